"""chains.py against processes with a known answer: AR(1) chains, handmade traces, broken traces.

The AR(1) chain x_t = ρ x_{t−1} + noise has integrated time (1 + ρ)/(1 − ρ), and half its square,
the loss of a quadratic, has the exact variance of theory.sgld_llc_variance.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import chains
import theory
from chains import DeadChain, Model
from qnet import FrozenFirstLayer, QuadraticNetwork

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def autoregressive(rho: float, shape: tuple[int, int], seed: int, start: float | None) -> Array:
    """(C, T) of x_t = ρ x_{t−1} + √(1−ρ²) ξ_t: unit variance, from its law or from `start`."""
    rng = np.random.default_rng(seed)
    x = np.empty(shape)
    x[:, 0] = rng.standard_normal(shape[0]) if start is None else start
    noise = np.sqrt(1 - rho**2) * rng.standard_normal(shape)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x


def mixed_losses(seed: int = 0, n_chains: int = 4, steps: int = 2000) -> Array:
    """Losses that mix fast around 2: nothing to complain about."""
    return 2.0 + 0.5 * autoregressive(0.5, (n_chains, steps), seed, None)


# ---- integrated time ----------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.98])
def test_integrated_time_of_an_ar1_chain(rho: float) -> None:
    known = (1 + rho) / (1 - rho)
    x = autoregressive(rho, (8, 20_000), 3, None)
    # Sokal 1996: Var τ = τ²·2(2M+1)/N with the window M = 5τ; 4 standard errors. The window cuts
    # off e^−10 of τ and centring takes τ/N of it: both far below.
    error = known * np.sqrt(2 * (2 * chains.WINDOW * known + 1) / x.size)
    assert abs(chains.integrated_time(x) - known) <= 4 * error


def time_by_definition(x: Array) -> float:
    """1 + 2Σρ_k up to the first M ≥ 5τ(M), lag by lag."""
    centred = x - x.mean()
    n = x.shape[1]
    tau = -1.0
    for lag in range(n):
        products = [
            centred[c, t] * centred[c, t + lag] for c in range(len(x)) for t in range(n - lag)
        ]
        tau += 2 * sum(products) / (centred**2).sum()
        if lag >= chains.WINDOW * tau:
            break
    return max(1.0, tau)


@given(st.integers(0, 2**32), st.floats(-0.9, 0.95), st.integers(1, 3), st.integers(2, 40))
def test_integrated_time_is_its_definition(seed: int, rho: float, C: int, n: int) -> None:
    x = autoregressive(rho, (C, n), seed, None)
    # the transform rounds each autocovariance at EPS·log n of the variance, and n of them add up
    tolerance = 50 * EPS * n * np.log2(2 * n) * (x**2).mean() / x.var()
    assert chains.integrated_time(x) == pytest.approx(time_by_definition(x), abs=tolerance, rel=0)


@given(st.floats(-3, 3).map(lambda e: 10.0**e), st.floats(-10, 10))
def test_integrated_time_knows_neither_scale_nor_origin(scale: float, origin: float) -> None:
    x = autoregressive(0.8, (2, 300), 4, None)
    # the shift costs |origin|/scale of the digits
    tolerance = 1e4 * EPS * (1 + abs(origin) / scale)
    moved = chains.integrated_time(scale * x + origin)
    assert moved == pytest.approx(chains.integrated_time(x), rel=tolerance)


def test_anticorrelation_is_not_claimed_as_a_gain() -> None:
    assert chains.integrated_time(autoregressive(-0.8, (4, 1000), 5, None)) == 1.0


def test_chains_that_disagree_are_one_long_correlation() -> None:
    """Each chain is centred on the mean of all: two frozen opinions are not thousands of draws."""
    noise = autoregressive(0.0, (2, 1000), 6, None)
    apart = noise + np.array([[-10.0], [10.0]])
    assert chains.integrated_time(noise) < 2
    assert chains.integrated_time(apart) > 1000 / chains.WINDOW


# ---- standard errors ----------------------------------------------------------------------------


def test_both_standard_errors_estimate_the_exact_one() -> None:
    """400 readings of 4 chains each: the mean of the squared errors against the exact variance."""
    step, steps, burn_in = 0.4, 1000, 100  # ρ = 0.8 with n_beta = gamma = 1, h = 0
    rho, n_sets = 1 - step / 2, 400
    a = 1.0
    h = 1e-3  # L = ½h x², a = n_beta·h + gamma
    variance_of_x = 1 / (a * (1 - step * a / 4))
    law: dict[str, Any] = dict(n_beta=1.0, gamma=a - h, step=step, steps=steps, burn_in=burn_in)
    exact = theory.sgld_llc_variance([h], **law, chains=4)
    x = autoregressive(rho, (4 * n_sets, steps), 7, start=0.0)
    losses = (0.5 * h * variance_of_x * x**2).reshape(n_sets, 4, steps)
    readings = [chains.summarise(set_, 0.0, n_beta=1.0, burn_in=burn_in) for set_ in losses]

    between = np.array([r.standard_error_between_chains for r in readings], dtype=float) ** 2
    assert abs(between.mean() - exact) <= 4 * between.std(ddof=1) / np.sqrt(n_sets)

    tau = (1 + rho**2) / (1 - rho**2)
    within = np.array([r.standard_error_autocorrelation for r in readings]) ** 2
    # biased low by the share τ/(4N) that centring takes from every lag within the window of 5τ
    bias = (1 + 2 * chains.WINDOW) * tau / (4 * (steps - burn_in)) * exact
    assert abs(within.mean() - exact) <= 4 * within.std(ddof=1) / np.sqrt(n_sets) + bias

    llc = np.array([r.llc for r in readings])
    mean = theory.sgld_expected_llc([h], **law)
    assert abs(llc.mean() - mean) <= 4 * np.sqrt(exact / n_sets)
    squares = (llc - mean) ** 2
    assert abs(squares.mean() - exact) <= 4 * squares.std(ddof=1) / np.sqrt(n_sets)


def test_the_reported_error_is_the_larger_one() -> None:
    agreeing = chains.summarise(mixed_losses(), 0.0, n_beta=1.0, burn_in=0)
    shift = np.array([[0.0], [0.0], [0.3], [0.3]])
    apart = chains.summarise(mixed_losses() + shift, 0.0, n_beta=1.0, burn_in=0)
    for reading in (agreeing, apart):
        assert reading.standard_error_between_chains is not None
        assert reading.standard_error == max(
            reading.standard_error_between_chains, reading.standard_error_autocorrelation
        )
    assert apart.standard_error > 3 * agreeing.standard_error


def test_a_single_chain_has_no_error_between_chains() -> None:
    reading = chains.summarise(mixed_losses(n_chains=1), 0.0, n_beta=1.0, burn_in=0)
    assert reading.standard_error_between_chains is None
    assert reading.standard_error == reading.standard_error_autocorrelation > 0


# ---- split R-hat --------------------------------------------------------------------------------


def test_split_r_hat_of_handmade_chains() -> None:
    flip = np.tile([1.0, -1.0], (2, 50))  # every half has mean 0 and variance 50/49
    assert chains.split_r_hat(flip) == pytest.approx(np.sqrt(49 / 50), rel=10 * EPS)
    shifted = flip + np.array([[0.0], [3.0]])  # half means 0, 0, 3, 3: their variance is 3
    expected = np.sqrt(49 / 50 + 3 / (50 / 49))
    assert chains.split_r_hat(shifted) == pytest.approx(expected, rel=10 * EPS)
    assert chains.split_r_hat(np.repeat([[0.0, 1.0]], 10, axis=1)) == np.inf  # each half still
    assert chains.split_r_hat(np.arange(100.0)) > 1.5  # one chain, drifting


def test_split_r_hat_of_mixed_chains_is_close_to_one() -> None:
    x = autoregressive(0.0, (4, 5000), 8, None)
    # the variance of 8 half means of 2500 draws is 1/2500·(1 ± √(2/7)): R̂ − 1 ≈ half of it
    assert abs(chains.split_r_hat(x) - 1) < 0.5 / 2500 * (1 + 4 * np.sqrt(2 / 7))


def test_an_odd_chain_leaves_out_its_middle_step() -> None:
    x = autoregressive(0.0, (2, 11), 9, None)
    without = np.delete(x, 5, axis=1)
    assert chains.split_r_hat(x) == chains.split_r_hat(without)


# ---- the reading --------------------------------------------------------------------------------


@given(
    st.integers(0, 2**32),
    st.floats(-3, 3).map(lambda e: 10.0**e),
    st.floats(-1, 1),
    st.integers(0, 30),
)
def test_the_reading_is_the_mean_excess_loss(
    seed: int, n_beta: float, reference: float, burn_in: int
) -> None:
    losses = mixed_losses(seed, n_chains=3, steps=60)
    reading = chains.summarise(losses, reference, n_beta=n_beta, burn_in=burn_in)
    per_chain = [n_beta * (sum(chain[burn_in:]) / (60 - burn_in) - reference) for chain in losses]
    # sums of at most 60 losses of size 2 or so
    tolerance = 100 * EPS * n_beta * (np.abs(losses).max() + abs(reference))
    assert reading.llc_per_chain == pytest.approx(per_chain, abs=tolerance, rel=0)
    assert reading.llc == pytest.approx(sum(per_chain) / 3, abs=tolerance, rel=0)
    assert reading.burn_in == burn_in
    if burn_in % 5 == 0:  # then the fifths are equally long
        assert reading.block_means.mean() == pytest.approx(reading.llc, abs=tolerance, rel=0)


def test_block_means_are_consecutive_fifths() -> None:
    ramp = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], 4) + np.tile([0.25, -0.25], 10)
    losses = np.concatenate([[99.0, 98.0], ramp])[None]
    reading = chains.summarise(losses, 0.5, n_beta=2.0, burn_in=2)
    assert (reading.block_means == 2 * (np.arange(1.0, 6.0) - 0.5)).all()  # exact in binary


@given(st.integers(0, 2**32), st.floats(-30, 30).map(lambda e: 10.0**e))
def test_burn_in_is_discarded_from_every_number(seed: int, garbage: float) -> None:
    losses = mixed_losses(seed, steps=200)
    dirty = losses.copy()
    dirty[:, :50] = garbage * np.random.default_rng(seed).standard_normal((4, 50))
    clean = asdict(chains.summarise(losses, 1.0, n_beta=3.0, burn_in=50))
    for name, value in asdict(chains.summarise(dirty, 1.0, n_beta=3.0, burn_in=50)).items():
        assert np.array_equal(value, clean[name]), name


def test_burn_in_that_is_kept_goes_red() -> None:
    """The same garbage moves every number when it is not discarded."""
    losses = mixed_losses(steps=200)
    losses[:, :50] = 40.0 + np.arange(50)
    kept = chains.summarise(losses, 1.0, n_beta=3.0, burn_in=0)
    right = chains.summarise(losses, 1.0, n_beta=3.0, burn_in=50)
    assert abs(kept.llc - right.llc) > 4 * right.standard_error
    assert not kept.settled


@given(st.integers(0, 2**32), st.integers(-3, 3))
def test_a_doubled_loss_at_half_the_temperature_reads_the_same_bits(seed: int, power: int) -> None:
    losses = mixed_losses(seed, steps=100)
    one = asdict(chains.summarise(losses, 0.3, n_beta=7.0, burn_in=20))
    factor = 2.0**power
    other = asdict(chains.summarise(factor * losses, factor * 0.3, n_beta=7.0 / factor, burn_in=20))
    for name, value in other.items():
        assert np.array_equal(value, one[name]), name


# ---- settled or not -----------------------------------------------------------------------------


def doubts(losses: Array, reference: float = 0.0) -> str:
    reading = chains.summarise(losses, reference, n_beta=1.0, burn_in=0)
    assert reading.settled == (not reading.doubts)
    return "; ".join(reading.doubts)


def test_mixed_chains_are_settled() -> None:
    for seed in range(20):
        assert doubts(mixed_losses(seed)) == ""


def test_noise_alone_is_rarely_taken_for_drift() -> None:
    """Error bars of 3 %: the last fifth is off by 6 % or so, and that is no drift."""
    found = [doubts(1.0 + 0.5 * autoregressive(0.5, (2, 400), seed, None)) for seed in range(200)]
    # 3 standard errors, themselves read from 160 correlated steps: about 1 % of false alarms
    assert sum("last fifth" in each for each in found) <= 8


def test_a_late_jump_is_not_settled() -> None:
    losses = mixed_losses()
    losses[:, 1600:] *= 1.2  # mean 2 → 2.4 over the last fifth, the whole reads 2.08
    assert "last fifth of the chains reads 2.4" in doubts(losses)
    losses = mixed_losses()
    losses[:, 1600:] *= 0.8
    assert "last fifth of the chains reads 1.6" in doubts(losses)


def test_chains_stuck_to_the_end_leave_no_noise_to_hide_in() -> None:
    losses = mixed_losses()
    losses[:, 1600:] = 2.2  # 10 % above the rest, and standing still
    assert "last fifth of the chains reads 2.2" in doubts(losses)


def test_a_chain_in_another_place_is_not_settled() -> None:
    losses = mixed_losses()
    losses[3] += 1.0  # two standard deviations of the noise
    assert "split R-hat" in doubts(losses)


def test_too_few_independent_draws_are_not_settled() -> None:
    losses = 20.0 + 0.1 * autoregressive(0.99, (2, 2000), 10, None)  # τ = 199: some 20 draws
    found = doubts(losses)
    assert "independent draws, fewer than 50" in found
    assert "standard error" not in found  # the error bar looks small, but little supports it


def test_a_large_error_bar_is_not_settled() -> None:
    losses = 0.02 + np.random.default_rng(11).standard_normal((4, 2000))
    assert "standard error 0.0" in doubts(losses)


def test_a_negative_reading_is_not_settled() -> None:
    found = doubts(mixed_losses(), reference=3.0)
    assert found.startswith("λ̂ = -1.0") or found.startswith("λ̂ = -0.99")
    assert "lower loss than w*" in found


@pytest.mark.parametrize("n_chains", [1, 2, 4, 20])
@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("relaxation", [0.06, 0.1, 0.3, 1.0, 10.0])
def test_chains_still_on_their_way_are_not_settled(
    n_chains: int, noise: float, relaxation: float
) -> None:
    """1 − e^{−t/τ} from w*, τ a share of the run: the mean is 6 % or more below its limit."""
    t = np.arange(5000) / 5000
    rise = 1 - np.exp(-t / relaxation)
    assert rise.mean() < 0.95
    shape = (n_chains, 5000)
    losses = rise * (1 + noise * np.random.default_rng(12).standard_normal(shape))
    assert doubts(losses)


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("step", [3, 150])  # within burn-in and after it
def test_a_chain_that_is_not_finite_sinks_the_set(bad: float, step: int) -> None:
    losses = mixed_losses(steps=200)
    losses[2, step:] = bad
    losses[1, step + 1 :] = np.nan  # later: the first failure is the one to look at
    with pytest.raises(DeadChain, match=rf"chain 2 has loss {bad} at step {step}.*No average"):
        chains.summarise(losses, 0.0, n_beta=1.0, burn_in=50)


def test_a_value_that_is_not_finite_in_burn_in_alone_sinks_the_set() -> None:
    losses = mixed_losses(steps=200)
    losses[1, 7] = np.inf
    with pytest.raises(DeadChain, match="chain 1 has loss inf at step 7"):
        chains.summarise(losses, 0.0, n_beta=1.0, burn_in=50)


def test_a_chain_that_does_not_move_sinks_the_set() -> None:
    losses = mixed_losses(steps=200)
    losses[3, 50:] = losses[3, 50]
    with pytest.raises(DeadChain, match=r"chain 3 never moves from step 50 on.*check the step"):
        chains.summarise(losses, 0.0, n_beta=1.0, burn_in=50)
    losses[3, 120] += 1e-9
    chains.summarise(losses, 0.0, n_beta=1.0, burn_in=50)


def test_no_average_over_survivors() -> None:
    """The mean of the healthy chains would be available, and is not given."""
    losses = mixed_losses(steps=200)
    losses[0] = np.nan
    with pytest.raises(DeadChain):
        chains.summarise(losses, 0.0, n_beta=1.0, burn_in=0)
    assert chains.summarise(losses[1:], 0.0, n_beta=1.0, burn_in=0).llc > 0


@pytest.mark.parametrize("statistic", [chains.integrated_time, chains.split_r_hat])
def test_statistics_of_nothing_are_refused(statistic: Any) -> None:
    with pytest.raises(DeadChain, match=r"one value 0\.1"):
        statistic(np.full((2, 100), 0.1))
    with pytest.raises(DeadChain, match="not finite"):
        statistic([[0.0, 1.0, np.nan, 2.0]])


@pytest.mark.parametrize(
    "losses, change, named",
    [
        (np.zeros(100), {}, r"\(100,\)"),
        (np.zeros((0, 100)), {}, r"\(0, 100\)"),
        (mixed_losses(steps=20), {"burn_in": 11}, "burn_in 11 of 20 steps.*at least 10"),
        (mixed_losses(steps=20), {"burn_in": -1}, "burn_in -1"),
        (mixed_losses(steps=20), {"n_beta": 0.0}, r"n_beta .*0\.0"),
        (mixed_losses(steps=20), {"n_beta": np.nan}, "n_beta .*nan"),
        (mixed_losses(steps=20), {"loss_at_reference": np.inf}, r"loss at w\* .*inf"),
    ],
)
def test_unreadable_arguments_are_named(losses: Array, change: dict[str, Any], named: str) -> None:
    fine: dict[str, Any] = {"loss_at_reference": 0.0, "n_beta": 1.0, "burn_in": 5}
    with pytest.raises(ValueError, match=named):
        chains.summarise(losses, **fine | change)


def test_split_r_hat_needs_four_steps() -> None:
    with pytest.raises(ValueError, match="at least 4 steps, got 3"):
        chains.split_r_hat([[1.0, 2.0, 3.0]])


# ---- the protocol -------------------------------------------------------------------------------


def test_the_models_of_the_quadratic_network_speak_the_protocol() -> None:
    """Checked by mypy at the two assignments, and here by name."""
    net = QuadraticNetwork(np.eye(4), np.zeros((4, 2)), 3)
    frozen = net.frozen(np.ones(net.n_params))
    models: list[Model] = [net, frozen]
    verbs = [name for name in vars(Model) if not name.startswith("_")]
    assert {"loss_and_grad", "jvp", "n_params"} <= set(verbs)
    assert isinstance(frozen, FrozenFirstLayer)
    for model in models:
        assert all(hasattr(model, verb) for verb in verbs)
