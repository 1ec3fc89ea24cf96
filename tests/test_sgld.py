"""sgld.py against the exact law, a slow loop per chain, and builds with one line wrong.

On a linear model the estimate has a known mean and variance (theory.sgld_expected_llc and
sgld_llc_variance), so the sampler is compared in standard errors: |z| ≤ 4, which a correct sampler
misses once in 16,000 seeds; the seeds are fixed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

import chains
import curvature
import sgld
import theory
from chains import DeadChain
from qnet import FrozenFirstLayer, QuadraticNetwork
from tests import oracles

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
ROOT = Path(sgld.__file__).parent


# ---- models -------------------------------------------------------------------------------------


class Bowl:
    """L = ½ Σ h w²: no verb but the one that sampling needs, and arrays nobody may write to."""

    def __init__(self, h: ArrayLike) -> None:
        self.h = np.asarray(h, dtype=np.float64)

    def loss_and_grad(self, w: Array) -> tuple[Array, Array]:
        gradient = self.h * w
        loss = 0.5 * np.sum(gradient * w, axis=-1)
        loss.setflags(write=False)
        gradient.setflags(write=False)
        return loss, gradient


class Well:
    """L = Σ ½w² + w⁴: the curvature at 0 is 1 and grows without bound away from it."""

    def loss_and_grad(self, w: Array) -> tuple[Array, Array]:
        return np.sum(0.5 * w**2 + w**4, axis=-1), w + 4 * w**3


def linear_model(seed: int = 10) -> tuple[FrozenFirstLayer, Array, Array]:
    """A linear network, its least-squares minimum (not at zero loss), and its 12 curvatures."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((12, 4)) * np.array([1.0, 0.3, 0.1, 0.01]) + 0.5
    targets = rng.standard_normal((12, 3))
    model = FrozenFirstLayer(features, targets)
    centred = features - features.mean(axis=0)
    W = np.linalg.lstsq(centred, targets - targets.mean(axis=0), rcond=None)[0].T
    s = curvature.singular_values(model.jacobian(W.ravel()))
    return model, W.ravel(), curvature.curvatures(s, model.hessian_scale)


def small_network() -> tuple[QuadraticNetwork, Array]:
    """A planted one-hot teacher, p = 3, K = 2: 18 weights at zero loss."""
    net = QuadraticNetwork.modular(3, 2, np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 2, 0]))
    w = net.initial_weights(0, 1.0)
    return net.with_targets(net.outputs(w)), w


def at_step(step_constant: float, h_max: float, n_beta: float, gamma: float) -> dict[str, Any]:
    step = theory.step_size(step_constant, n_beta=n_beta, h_max=h_max, gamma=gamma)
    return {"n_beta": n_beta, "gamma": gamma, "step": step}


# ---- the exact law ------------------------------------------------------------------------------

SHORT: dict[str, Any] = {"steps": 120, "burn_in": 20}


def z_scores(readings: Array, h: Array, **law: Any) -> tuple[float, float]:
    """Distance of mean and variance over chains from the law, in standard errors."""
    mean, variance = theory.sgld_expected_llc(h, **law), theory.sgld_llc_variance(h, **law)
    squares = (readings - mean) ** 2
    z_mean = (readings.mean() - mean) / np.sqrt(variance / len(readings))
    with np.errstate(divide="ignore"):  # chains that are all the same have no spread
        z_variance = (squares.mean() - variance) / (squares.std(ddof=1) / np.sqrt(len(squares)))
    return float(z_mean), float(z_variance)


@pytest.mark.parametrize("step_constant", [0.2, 1.0, 2.0, 3.5])
def test_many_chains_obey_the_exact_law(step_constant: float) -> None:
    model, w, h = linear_model()
    law: dict[str, Any] = at_step(step_constant, h[0], n_beta=100.0, gamma=0.5) | SHORT
    run = sgld.sample(model, w, **law, chains=1200, seed=1)
    z_mean, z_variance = z_scores(run.llc_per_chain, h, **law)
    assert abs(z_mean) <= 4
    assert abs(z_variance) <= 4
    # the reported error bar estimates the same: 1200 chains know it to 1/√2400 and a fat tail
    exact = theory.sgld_llc_variance(h, **law, chains=1200) ** 0.5
    assert run.reading.standard_error_between_chains == pytest.approx(exact, rel=0.15)


def test_four_long_chains_obey_the_exact_law() -> None:
    model, w, h = linear_model()
    law: dict[str, Any] = at_step(0.5, h[0], n_beta=100.0, gamma=0.5)
    law |= {"steps": 6000, "burn_in": 1000}
    run = sgld.sample(model, w, **law, chains=4, seed=2)
    error = theory.sgld_llc_variance(h, **law, chains=4) ** 0.5
    assert abs(run.llc - theory.sgld_expected_llc(h, **law)) <= 4 * error
    assert run.settled and run.doubts == ()


class LossWithoutHalf(FrozenFirstLayer):
    """The build that forgets the ½ in the loss, but not in its gradient."""

    def loss_and_grad(self, w: ArrayLike) -> tuple[float | Array, Array]:
        loss, gradient = super().loss_and_grad(w)
        return 2.0 * loss, gradient


def uncentred(model: FrozenFirstLayer) -> FrozenFirstLayer:
    """The build that forgets to subtract each output's mean."""
    model.features = model.features + 0.5
    return model


def loss_without_half(model: FrozenFirstLayer) -> FrozenFirstLayer:
    model.__class__ = LossWithoutHalf
    return model


def patched_sampler(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """sgld.py with one piece of its text replaced, as a module of its own."""
    source = (ROOT / "sgld.py").read_text(encoding="utf-8")
    assert source.count(old) == 1, f"sgld.py no longer holds this text once: {old}"
    mutant = types.ModuleType("mutant_sgld")
    monkeypatch.setitem(sys.modules, "mutant_sgld", mutant)  # dataclasses look their module up
    exec(compile(source.replace(old, new), "mutant_sgld.py", "exec"), mutant.__dict__)
    return mutant


MUTANTS = {
    "nothing": ("", ""),
    "√ε → ε": ("settings.step**0.5", "settings.step"),
    "gamma missing": ("force += spring", "pass"),
    "drift without ½": ("0.5 * settings.step,", "1.0 * settings.step,"),
    "n_beta missing in the drift": ("np.multiply(n_beta, gradient", "np.multiply(1.0, gradient"),
    "burn-in included": ("n_beta=n_beta, burn_in=burn_in)", "n_beta=n_beta, burn_in=0)"),
    "one stream for all chains": ("*case, chain]", "*case]"),
    "one draw for all weights": ("standard_normal(out=row)", "standard_normal(out=row[:1])"),
    "spring to 0, not to w*": ("np.multiply(gamma, delta", "np.multiply(gamma, w"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_sampler_with_one_line_wrong_goes_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = MUTANTS[name]
    sampler = patched_sampler(old, new, monkeypatch) if old else sgld
    model, w, h = linear_model()
    law: dict[str, Any] = at_step(1.0, h[0], n_beta=100.0, gamma=0.5) | SHORT
    try:
        readings = sampler.sample(model, w, **law, chains=400, seed=3).llc_per_chain
        z = max(map(abs, z_scores(readings, h, **law)))
    except DeadChain:
        z = np.inf
    assert (z <= 4) == (name == "nothing")


@pytest.mark.parametrize("mutate", [loss_without_half, uncentred])
def test_a_model_with_one_line_wrong_goes_red(mutate: Any) -> None:
    model, w, h = linear_model()
    law: dict[str, Any] = at_step(1.0, h[0], n_beta=100.0, gamma=0.5) | SHORT
    run = sgld.sample(mutate(model), w, **law, chains=400, seed=3, h_max=h[0])
    assert max(map(abs, z_scores(run.llc_per_chain, h, **law))) > 4


# ---- one chain after the other ------------------------------------------------------------------


def chain_by_chain(model: Any, w_star: Array, s: sgld.Settings) -> tuple[Array, Array, Array]:
    """Losses (C, T), distances (C, T), end points (C, d), each chain alone, nothing reused."""
    losses, distances = np.empty((2, s.chains, s.steps))
    ends = np.empty((s.chains, len(w_star)))
    for c in range(s.chains):
        stream, delta = sgld.chain_stream(s.case, c), np.zeros((1, len(w_star)))
        for t in range(s.steps):
            loss, gradient = model.loss_and_grad(w_star + delta)
            losses[c, t], distances[c, t] = loss[0], np.linalg.norm(delta)
            drift = s.n_beta * gradient + s.gamma * delta
            noise = s.step**0.5 * stream.standard_normal(len(w_star))
            delta = delta - 0.5 * s.step * drift + noise
        ends[c] = w_star + delta[0]
    return losses, distances, ends


@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(12, 60),
    st.floats(-2, 3).map(lambda e: 10.0**e),
    st.floats(-2, 2).map(lambda e: 10.0**e),
    st.floats(0.1, 3.0),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=25)
def test_the_batch_is_the_loop_bit_for_bit(
    d: int, C: int, steps: int, n_beta: float, gamma: float, step_constant: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    model: Any = Bowl(10.0 ** rng.uniform(-4, 1, d))
    w_star = np.zeros(d)
    setting = sgld.Settings(
        **at_step(step_constant, model.h.max(), n_beta, gamma),
        chains=C,
        steps=steps,
        burn_in=2,
        seed=(seed, 5),
    )
    run = sgld.sample(model, w_star, **asdict(setting), h_max=model.h.max())
    losses, distances, ends = chain_by_chain(model, w_star, setting)
    # The same operations in the same order: no rounding is allowed to differ.
    assert np.array_equal(run.traces, losses[:, ::10])
    assert np.array_equal(run.end_points, ends)
    reading = chains.summarise(losses, losses[0, 0], n_beta=n_beta, burn_in=2)
    assert np.array_equal(run.llc_per_chain, reading.llc_per_chain)
    # a norm over rows and a norm of one vector add in different orders
    assert run.distances == pytest.approx(distances[:, ::10], rel=10 * EPS, abs=0)


def test_the_network_follows_the_loop_in_one_hot_matrices() -> None:
    net, w = small_network()
    x, y = net.inputs, net.targets
    h_max = curvature.top_eigenvalue(net.hessian(w))
    at = at_step(0.3, h_max, n_beta=200.0, gamma=3.0)
    run = sgld.sample(net, w, **at, chains=3, steps=60, burn_in=10, seed=4)
    streams = [sgld.chain_stream((4,), c) for c in range(3)]
    losses = oracles.sgld_losses(x, y, w, net.K, streams, **at, steps=60)
    # Rounding of 1e-16 per step, at most doubled by each of the first few steps and then contracted
    # with |ρ| < 1: 1e-12 of the typical loss.
    assert run.traces == pytest.approx(losses[:, ::10], abs=1e-12 * losses.max(), rel=0)


def test_traces_hold_every_tenth_loss_from_step_0() -> None:
    model, w, h = linear_model()
    at = at_step(0.5, h[0], n_beta=10.0, gamma=1.0)
    for steps, kept in ((100, 10), (101, 11), (109, 11), (110, 11)):
        run = sgld.sample(model, w, **at, chains=2, steps=steps, burn_in=50, seed=5)
        assert run.traces.shape == run.distances.shape == (2, kept)
        assert (run.traces[:, 0] == run.loss_at_reference).all()
        assert run.loss_at_reference == pytest.approx(model.loss(w), rel=10 * EPS)
        assert (run.distances[:, 0] == 0).all() and (run.distances[:, 1:] > 0).all()
        assert run.end_points.shape == (2, 12)


def test_the_result_carries_its_settings() -> None:
    model, w, h = linear_model()
    at = at_step(0.5, h[0], n_beta=10.0, gamma=1.0)
    run = sgld.sample(model, w, **at, chains=3, steps=90, burn_in=17, seed=(6, 7))
    assert asdict(run.settings) == at | {"chains": 3, "steps": 90, "burn_in": 17, "seed": (6, 7)}
    assert run.reading.burn_in == 17
    assert run.llc == run.llc_per_chain.mean()
    assert run.standard_error == run.reading.standard_error > 0


# ---- a chain's bits are its own -----------------------------------------------------------------


def same_bits(one: sgld.Sample, other: sgld.Sample) -> bool:
    return (
        np.array_equal(one.llc_per_chain, other.llc_per_chain)
        and np.array_equal(one.traces, other.traces)
        and np.array_equal(one.distances, other.distances)
        and np.array_equal(one.end_points, other.end_points)
        and one.mala_acceptance == other.mala_acceptance
    )


NETWORK_RUN: dict[str, Any] = {"n_beta": 200.0, "gamma": 3.0, "step": 1e-4, "steps": 150}


def test_a_chain_does_not_see_its_neighbours() -> None:
    for model, w in (small_network(), linear_model()[:2]):
        few = sgld.sample(model, w, **NETWORK_RUN, burn_in=30, chains=2, seed=8)
        many = sgld.sample(model, w, **NETWORK_RUN, burn_in=30, chains=5, seed=8)
        assert np.array_equal(few.traces, many.traces[:2])
        assert np.array_equal(few.end_points, many.end_points[:2])
        assert np.array_equal(few.llc_per_chain, many.llc_per_chain[:2])


def test_the_bits_do_not_depend_on_the_number_of_workers() -> None:
    net, w = small_network()
    counts: dict[int, int] = {}
    runs = []
    for workers in (1, 2):
        done: list[int] = []
        run = sgld.sample(
            net, w, **NETWORK_RUN, burn_in=30, chains=3, workers=workers, progress=done.append
        )
        runs.append(run)
        counts[workers] = sum(done)
    assert same_bits(*runs)
    assert counts == {1: 3 * 150, 2: 3 * 150}  # every chain-step is reported once


def test_more_workers_than_chains_are_not_started() -> None:
    class Local(Bowl):  # cannot be sent to another process
        pass

    model: Any = Local([1.0])
    at: dict[str, Any] = {"n_beta": 1.0, "gamma": 1.0, "step": 0.1, "steps": 20, "burn_in": 0}
    alone = sgld.sample(model, [0.0], **at, chains=1)
    assert same_bits(alone, sgld.sample(model, [0.0], **at, chains=1, workers=8))


def test_workers_inherit_one_blas_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    before = dict(os.environ)
    with sgld._inherited_by_workers():
        assert os.environ["OPENBLAS_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"] == "1"
    assert dict(os.environ) == before


def test_the_same_seed_repeats_and_another_does_not() -> None:
    net, w = small_network()
    once, again, other = (
        sgld.sample(net, w, **NETWORK_RUN, burn_in=30, seed=seed) for seed in (1, (1,), 2)
    )
    assert same_bits(once, again)
    assert not np.isin(once.end_points, other.end_points).any()


def test_no_two_chains_share_a_stream() -> None:
    words = (0, 1, 2**32 - 1)
    cases: list[tuple[int, ...]] = [(i,) for i in words] + [(i, j) for i in words for j in words]
    cases += [(i, j, k) for i in words for j in words for k in words]
    first = {sgld.chain_stream(case, c).standard_normal() for case in cases for c in (0, 1, 2)}
    assert len(first) == 3 * len(cases)


@pytest.mark.parametrize("power", [-2, 1, 3])
def test_a_doubled_loss_at_half_the_temperature_reads_the_same_bits(power: int) -> None:
    model, w, h = linear_model()
    scaled, _, _ = linear_model()
    scaled.hessian_scale *= 2.0**power
    at = at_step(0.5, h[0], n_beta=30.0, gamma=1.0)
    one = sgld.sample(model, w, **at, chains=3, steps=200, burn_in=40, seed=9)
    at["n_beta"] *= 2.0**-power
    other = sgld.sample(scaled, w, **at, chains=3, steps=200, burn_in=40, seed=9)
    assert np.array_equal(one.llc_per_chain, other.llc_per_chain)
    assert one.llc == other.llc and one.standard_error == other.standard_error
    assert np.array_equal(one.end_points, other.end_points)
    assert np.array_equal(2.0**power * one.traces, other.traces)


# ---- Metropolis-adjusted Langevin, as a diagnostic ----------------------------------------------


def test_mala_acceptance_of_a_known_step() -> None:
    """U = ½|w|², from 0 to (10.5, 5.5): −70.25 + (140.5 − 0.95²·140.5)/0.2 = −1.75625."""
    proposed = np.array([10.5, 5.5])
    accepted = sgld.mala_acceptance(
        np.zeros(2),
        proposed,
        previous_energy=0.0,
        proposed_energy=70.25,
        previous_gradient=np.zeros(2),
        proposed_gradient=proposed,
        step=0.1,
    )
    # energies and transition terms of size 700, differing by 1.8: 700·EPS, and a few roundings
    assert accepted == pytest.approx(np.exp(-1.75625), rel=1e-12, abs=0)


def test_mala_always_accepts_a_way_down_without_a_slope() -> None:
    accepted = sgld.mala_acceptance(
        np.zeros((3, 1)),
        np.ones((3, 1)),
        previous_energy=np.array([0.0, 1.0, 5.0]),
        proposed_energy=np.array([1.0, 1.0, 1.0]),
        previous_gradient=np.zeros((3, 1)),
        proposed_gradient=np.zeros((3, 1)),
        step=0.1,
    )
    assert accepted == pytest.approx([np.exp(-1.0), 1.0, 1.0], rel=4 * EPS, abs=0)


@pytest.mark.parametrize("step_constant", [0.5, 1.0, 2.5])
def test_mala_acceptance_on_a_gaussian_is_its_integral(step_constant: float) -> None:
    """For U = ½ax² the acceptance is min(1, exp(−(εa²/8)(x'² − x²))), x from SGLD's own law."""
    n_beta, gamma, h = 3.0, 1.0, 2.0
    at = at_step(step_constant, h, n_beta, gamma)
    a, step = n_beta * h + gamma, at["step"]
    rho, width = 1 - step * a / 2, 1 / (a * (1 - step * a / 4)) ** 0.5
    # midpoint rule, 8 standard deviations each way; the kink leaves an error of order 1/n² < 1e-5
    n = 1500
    grid = (np.arange(n) + 0.5) / n * 16 - 8
    weight = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi) * 16 / n
    x, jump = width * grid[:, None], step**0.5 * grid[None]
    ratio = np.exp(np.minimum(0.0, -step * a * a / 8 * ((rho * x + jump) ** 2 - x * x)))
    mean, square = weight @ ratio @ weight, weight @ ratio**2 @ weight
    model: Any = Bowl([h])
    C, steps, burn_in = 300, 1000, 100
    run = sgld.sample(model, [0.0], **at, chains=C, steps=steps, burn_in=burn_in, h_max=h)
    draws = C * (steps - burn_in) // 10
    # moves 10 steps apart: correlated by ρ²⁰ ≤ 0.4 % at most, hence the 1.01
    error = 1.01 * np.sqrt((square - mean**2) / draws)
    assert abs(run.mala_acceptance - mean) <= 4 * error + 1e-5


def test_mala_acceptance_without_a_move_to_look_at_is_not_a_number() -> None:
    model, w, h = linear_model()
    at = at_step(0.5, h[0], n_beta=10.0, gamma=1.0)
    run = sgld.sample(model, w, **at, chains=2, steps=21, burn_in=11)  # step 20 has no successor
    assert np.isnan(run.mala_acceptance)


# ---- chains that die ----------------------------------------------------------------------------


def test_an_unstable_step_is_refused_before_the_first_step() -> None:
    model, w, h = linear_model()
    steps_done: list[int] = []
    for step_constant in (4.0, 5.0):
        at = at_step(step_constant * (1 + 1e-9), h[0], n_beta=100.0, gamma=0.5)
        limit = 4 / (100.0 * h[0] + 0.5)
        named = rf"ε·a_max = {step_constant:.4g} .*limit 4 .*use a step below {limit:.4g}"
        with pytest.raises(theory.UnstableStep, match=named):
            sgld.sample(model, w, **at, **SHORT, progress=steps_done.append)
    assert steps_done == []
    at = at_step(3.99, h[0], n_beta=100.0, gamma=0.5)
    sgld.sample(model, w, **at, **SHORT)  # just below it holds


def first_death(model: Any, w_star: Array, s: sgld.Settings) -> tuple[int, int]:
    """(step, chain) of the first loss that is not finite, by the slow loop."""
    with np.errstate(all="ignore"):
        losses, _, _ = chain_by_chain(model, w_star, s)
    step, chain = np.argwhere(~np.isfinite(losses.T))[0]
    return int(step), int(chain)


def test_a_chain_that_diverges_is_named() -> None:
    """Stable at w*, but the curvature grows on the way: the check up front cannot see it."""
    model: Any = Well()
    setting = sgld.Settings(
        **at_step(1.9, 1.0, n_beta=20.0, gamma=1.0), chains=3, steps=400, burn_in=50, seed=1
    )
    step, chain = first_death(model, np.zeros(4), setting)
    named = rf"chain {chain} is not finite at step {step}: .*ε·a_max at w\* is 1.9.*No average"
    with pytest.raises(DeadChain, match=named):
        sgld.sample(model, np.zeros(4), **asdict(setting), h_max=1.0)
    with pytest.raises(DeadChain, match=r"ε·a_max at w\* is unknown"):
        sgld.sample(model, np.zeros(4), **asdict(setting))


class Cliff:
    """A loss of the first weight alone; the second one has no way back from beyond ½."""

    def loss_and_grad(self, w: Array) -> tuple[Array, Array]:
        gradient = w.copy()
        gradient[:, 1] = np.where(np.abs(w[:, 1]) > 0.5, np.inf, 0.0)
        return 0.5 * w[:, 0] ** 2, gradient


def test_weights_that_are_not_finite_are_found_behind_a_finite_loss() -> None:
    model: Any = Cliff()
    at: dict[str, Any] = {"n_beta": 1.0, "gamma": 1.0, "step": 0.1, "burn_in": 10}
    with pytest.raises(DeadChain, match="chain 0 is not finite at step 80: it holds nan"):
        sgld.sample(model, np.zeros(2), **at, chains=1, steps=80)


def test_no_chain_survives_another() -> None:
    """One diverging chain among many healthy ones refuses the whole set."""
    model: Any = Well()
    at = at_step(1.2, 1.0, n_beta=20.0, gamma=1.0)
    setting = sgld.Settings(**at, chains=200, steps=100, burn_in=20, seed=3)
    with np.errstate(all="ignore"):
        losses, _, _ = chain_by_chain(model, np.zeros(4), setting)
    dead = ~np.isfinite(losses).all(axis=1)
    assert 0 < dead.sum() < 200
    with pytest.raises(DeadChain):
        sgld.sample(model, np.zeros(4), **asdict(setting))


class Trapdoor:
    """A slope from 0 to 100 along x; whoever passes 10 < x < 50 on the side y < 0 falls out."""

    def loss_and_grad(self, w: Array) -> tuple[Array, Array]:
        x, y = w[:, 0], w[:, 1]
        fallen = (x > 10) & (x < 50) & (y < 0)
        slope = np.stack([x - 100, 0 * y], axis=1)
        return np.where(fallen, np.nan, 0.5 * (x - 100) ** 2), slope


def test_a_death_in_a_worker_stops_the_others() -> None:
    """Chain 1 falls within ten steps, chain 0 would go on for minutes."""
    model: Any = Trapdoor()
    at: dict[str, Any] = {"n_beta": 1.0, "gamma": 1e-3, "step": 0.2, "chains": 2, "seed": 9}
    losses, _, _ = chain_by_chain(model, np.zeros(2), sgld.Settings(**at, steps=100, burn_in=0))
    assert np.isnan(losses).any(axis=1).tolist() == [False, True]
    begun = time.monotonic()
    with pytest.raises(DeadChain, match=r"chain 1 is not finite at step \d: it holds nan"):
        sgld.sample(model, np.zeros(2), **at, steps=20_000_000, burn_in=0, workers=2)
    assert time.monotonic() - begun < 60  # two processes start in a few seconds


INTERRUPTED = """
import numpy as np
import sgld
from qnet import FrozenFirstLayer

if __name__ == "__main__":
    model = FrozenFirstLayer(np.eye(3), np.zeros((3, 2)))
    at = dict(n_beta=1.0, gamma=1.0, step=0.1, steps=5_000_000, burn_in=0, chains=2)
    try:
        sgld.sample(model, np.zeros(6), workers=2, progress=lambda n: print(n, flush=True), **at)
    except KeyboardInterrupt:
        raise SystemExit(3)
"""


def two_workers_under_way() -> subprocess.Popen[str]:
    """A script in a session of its own whose two workers would sample for minutes."""
    run = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert run.stdout is not None
    while int(run.stdout.readline()) == 0:
        pass  # until the first steps are reported
    return run


def last_words(run: subprocess.Popen[str]) -> str:
    """What stands on stderr once every process that holds it has ended: the workers too."""
    try:
        return run.communicate(timeout=60)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)


def test_ctrl_c_ends_the_workers_quietly() -> None:
    run = two_workers_under_way()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to parent and workers alike
    assert last_words(run) == ""
    assert run.returncode == 3


def test_workers_do_not_outlive_their_parent() -> None:
    run = two_workers_under_way()
    run.kill()
    last_words(run)


# ---- points that are not minima -----------------------------------------------------------------


def test_a_negative_reading_says_what_the_point_is() -> None:
    net, _ = small_network()
    w = net.initial_weights(3, 0.5)  # far from the teacher
    h_max = curvature.top_eigenvalue(net.hessian(w))
    at = at_step(0.05, h_max, n_beta=1e4, gamma=1.0)
    run = sgld.sample(net, w, **at, chains=2, steps=400, burn_in=100)
    assert run.llc < 0 and not run.settled
    lowest = np.linalg.eigvalsh(net.hessian(w))[0]
    slope = np.linalg.norm(net.loss_and_grad(w)[1])
    said = "; ".join(run.doubts)
    assert "not a minimum" in said and "polish" in said
    assert lowest < 0
    assert f"smallest Hessian eigenvalue {lowest:.4g}, gradient norm {slope:.4g}" in said


def test_a_negative_reading_of_a_model_without_a_hessian() -> None:
    model: Any = Bowl([1.0, 2.0])
    at = at_step(0.1, 2.0, n_beta=1e4, gamma=1.0)
    run = sgld.sample(model, [3.0, 2.0], **at, chains=2, steps=400, burn_in=100, h_max=2.0)
    assert run.llc < 0
    assert "eigenvalue unknown (the model has no hvp), gradient norm 5;" in run.doubts[-1]


# ---- bad arguments ------------------------------------------------------------------------------

FINE: dict[str, Any] = {
    "n_beta": 1.0,
    "gamma": 1.0,
    "step": 0.1,
    "chains": 2,
    "steps": 40,
    "burn_in": 5,
    "seed": 0,
}


@pytest.mark.parametrize(
    "change, named",
    [
        ({"n_beta": 0.0}, r"n_beta must be positive.*0\.0"),
        ({"n_beta": np.nan}, "n_beta.*nan"),
        ({"gamma": 0.0}, r"gamma must be positive.*0\.0"),
        ({"gamma": -2.0}, r"gamma.*-2\.0"),
        ({"step": 0.0}, r"step must be positive.*0\.0"),
        ({"step": np.inf}, "step.*inf"),
        ({"chains": 0}, "chains must be at least 1, got 0"),
        ({"chains": 2.5}, r"chains must be a whole number, got 2\.5"),
        ({"steps": 1e4}, "steps must be a whole number"),
        ({"burn_in": 40}, "burn_in 40 of 40 steps"),
        ({"burn_in": 31}, "leave at least 10 steps: got burn_in 31 of 40"),
        ({"burn_in": -1}, "burn_in -1 of 40"),
        ({"seed": -1}, r"seed.*got -1"),
        ({"seed": 2**32}, r"0..2\^32−1.*got 4294967296"),
        ({"seed": (1, 0.5)}, r"seed.*\(1, 0\.5\)"),
        ({"seed": None}, r"seed.*None"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"h_max": -1.0}, r"h_max.*-1\.0"),
        ({"h_max": np.nan}, "h_max.*nan"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], named: str) -> None:
    model: Any = Bowl([1.0, 2.0])
    with pytest.raises(ValueError, match=named):
        sgld.sample(model, np.zeros(2), **FINE | change)


@pytest.mark.parametrize(
    "w_star, named",
    [
        (np.zeros((1, 2)), r"w_star must be a vector.*\(1, 2\)"),
        (np.array([]), r"w_star.*\(0,\)"),
        (np.array([0.0, np.nan]), "weight 1 is nan"),
        (np.array([1e200, 0.0]), r"finite at w\*: the loss there is inf"),
    ],
)
def test_bad_reference_points_are_named(w_star: Array, named: str) -> None:
    model: Any = Bowl([1.0, 2.0])
    with pytest.raises(ValueError, match=named):
        sgld.sample(model, w_star, **FINE)


def test_weights_of_the_wrong_length_are_named() -> None:
    net, w = small_network()
    with pytest.raises(ValueError, match=r"weights must be .*18"):
        sgld.sample(net, w[:-1], **FINE)


class OneChainOnly:
    """A model of (d,) weights alone, which a batch does not disturb."""

    def loss_and_grad(self, w: Array) -> tuple[float, Array]:
        return float(0.5 * np.sum(w * w)), w


def test_a_model_without_a_chain_axis_is_named() -> None:
    """It would be averaged over chains without a word."""
    model: Any = OneChainOnly()
    with pytest.raises(ValueError, match=r"\(C, d\) to \(C,\) .*to \(\) and \(2, 3\).*chain axis"):
        sgld.sample(model, np.zeros(3), **FINE)
