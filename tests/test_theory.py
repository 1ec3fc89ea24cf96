"""theory.py against exact rational arithmetic, dense linear algebra and simulated chains.

The law of the SGLD estimate is checked two ways that share nothing with its doubling scheme: the
double sum over pairs of steps in exact fractions of the very doubles given, and the AR(1) process
itself. EPS is the relative rounding error of one operation.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import theory

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)

curvature_scales = st.floats(-8.0, 3.0).map(lambda x: 10.0**x)
spectra = st.lists(curvature_scales, min_size=1, max_size=3).map(np.array)


# ---- readings at a finite resolution -----------------------------------------------------------


@given(st.lists(st.floats(-8, 3), min_size=1, max_size=12), st.floats(-6, 2), st.integers(0, 2**32))
def test_effective_dimension_is_the_trace_formula(
    exponents: list[float], log_c: float, seed: int
) -> None:
    h = 10.0 ** np.array(exponents)
    c = 10.0**log_c * h.max()
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(h), len(h))))
    H = (rotation * h) @ rotation.T
    by_solve = 0.5 * np.trace(np.linalg.solve(H + c * np.eye(len(h)), H))
    # forward error of a solve: condition number (h_max + c)/c, times EPS, times its size
    assert theory.effective_dimension(h, c) == pytest.approx(
        by_solve, abs=10 * len(h) ** 2 * EPS * (1 + h.max() / c), rel=0
    )


def test_effective_dimension_at_known_points() -> None:
    h = np.array([3.0, 1.0, 0.0])
    assert theory.effective_dimension(h, 1.0) == 0.5 * (0.75 + 0.5)
    assert theory.effective_dimension(h, 0.0) == 1.0  # half the number of non-zero curvatures
    assert theory.effective_dimension([], 1.0) == 0.0
    assert theory.effective_dimension([0.0], 0.0) == 0.0
    assert theory.effective_dimension([-0.5], 1.0) == -0.5  # a negative direction counts below zero


@given(spectra)
def test_a_vanishing_spring_leaves_half_the_rank(h: Array) -> None:
    # each h/(h + c) is 1 − c/h or closer; c/h ≤ 1e-26/1e-8, far below EPS
    assert theory.effective_dimension(h, 1e-26) == pytest.approx(0.5 * len(h), rel=4 * EPS, abs=0)


def test_no_posterior_below_minus_c() -> None:
    assert theory.effective_dimension([2.0, -0.99], 1.0) == pytest.approx(0.5 * (2 / 3 - 99))
    for lowest in (-1.0, -1.5):
        with pytest.raises(theory.UndefinedDimension, match=rf"{lowest:.3g}.*−c = -1.*polish"):
            theory.effective_dimension([2.0, lowest], 1.0)
    with pytest.raises(theory.UndefinedDimension):
        theory.effective_dimension([2.0, -1e-30], 0.0)


@given(spectra, st.floats(-3, 6).map(lambda x: 10.0**x), st.floats(-3, 5).map(lambda x: 10.0**x))
def test_kappa_is_another_name_for_the_resolution(h: Array, kappa: float, n_beta: float) -> None:
    gamma = n_beta * h.max() / kappa
    each = n_beta * h / gamma  # κ_i
    expected = 0.5 * np.sum(each / (each + 1.0))
    # a handful of roundings in each term, all terms positive
    assert theory.response_curve(h, [kappa])[0] == pytest.approx(expected, rel=10 * EPS, abs=0)
    by_resolution = theory.effective_dimension(h, gamma / n_beta)
    assert by_resolution == pytest.approx(expected, rel=10 * EPS, abs=0)


def test_response_curve_at_known_points() -> None:
    curve = theory.response_curve([2.0, 1.0, 0.0], [1.0, 2.0])
    # κ = 1: κ_i = 1, ½; κ = 2: κ_i = 2, 1. Two roundings each
    assert curve == pytest.approx([0.5 * (1 / 2 + 1 / 3), 0.5 * (2 / 3 + 1 / 2)], rel=4 * EPS)
    assert (theory.response_curve([0.0, 0.0], [1.0, 10.0]) == 0.0).all()
    assert theory.response_curve([1.0], 3.0).shape == (1,)
    assert (np.diff(theory.response_curve(np.geomspace(1e-6, 1, 20), [1, 10, 100, 1e4])) > 0).all()


@given(
    st.floats(1e-3, 3.9),
    st.floats(-4, 6).map(lambda x: 10.0**x),
    st.floats(-3, 3).map(lambda x: 10.0**x),
    st.floats(-3, 3).map(lambda x: 10.0**x),
)
def test_relaxation_time_is_that_of_the_spring(
    s: float, kappa: float, h: float, beta: float
) -> None:
    gamma = beta * h / kappa
    step = theory.step_size(s, n_beta=beta, h_max=h, gamma=gamma)
    # gamma, step, product and quotient: ten roundings
    assert theory.relaxation_time(s, kappa) == pytest.approx(
        2 / (step * gamma), rel=10 * EPS, abs=0
    )
    assert step * (beta * h + gamma) == pytest.approx(s, rel=4 * EPS, abs=0)


# ---- the exact law of the SGLD estimate ---------------------------------------------------------


def law_in_fractions(
    h: Array, *, n_beta: float, gamma: float, step: float, steps: int, burn_in: int
) -> tuple[float, float]:
    """Mean and variance of λ̂ as the double sum over pairs of steps, without any rounding."""
    mean = variance = Fraction(0)
    kept = range(burn_in, steps)
    for curvature in map(Fraction, h):
        a = Fraction(n_beta) * curvature + Fraction(gamma)
        q = (1 - Fraction(step) * a / 2) ** 2
        stationary = 1 / (a * (1 - Fraction(step) * a / 4))  # of x, not of the loss
        power = [q**t for t in range(steps)]
        var = [stationary * (1 - power[t]) for t in range(steps)]
        scale = Fraction(n_beta) * curvature / 2  # n_beta·L = scale·x²
        mean += scale * sum(var[t] for t in kept) / len(kept)
        squared = (2 * power[abs(s - t)] * var[min(s, t)] ** 2 for s in kept for t in kept)
        variance += scale**2 * sum(squared) / len(kept) ** 2
    return float(mean), float(variance)


def law_of_theory(h: Array, **law: Any) -> tuple[float, float]:
    return theory.sgld_expected_llc(h, **law), theory.sgld_llc_variance(h, **law)


@st.composite
def laws(draw: st.DrawFn) -> tuple[Array, dict[str, Any]]:
    """Any spectrum, from chains that hardly move to chains just below the stability limit."""
    h = draw(spectra)
    n_beta = 10.0 ** draw(st.floats(-2, 5))
    gamma = 10.0 ** draw(st.floats(-4, 4))
    # ε·a_max: at 2 the top direction forgets everything (ρ = 0), above it alternates (ρ < 0)
    fraction = draw(st.floats(1e-12, 3.99) | st.sampled_from([1e-9, 1.0, 2.0, 3.0]))
    steps = draw(st.integers(1, 9))
    burn_in = draw(st.integers(0, steps - 1))
    step = fraction / (n_beta * h.max() + gamma)
    return h, dict(n_beta=n_beta, gamma=gamma, step=step, steps=steps, burn_in=burn_in)


@given(laws())
@settings(max_examples=400)
def test_the_law_is_the_double_sum(case: tuple[Array, dict[str, Any]]) -> None:
    h, law = case
    mean, variance = law_in_fractions(h, **law)
    # Only additions of positive terms: some 50 roundings; the factor 1 − εa/4 and, for ρ near −1,
    # 1 − q lose digits in proportion to the distance from the stability limit.
    to_limit = 1 - law["step"] * (law["n_beta"] * h.max() + law["gamma"]) / 4
    tolerance = 50 * EPS / to_limit
    found_mean, found_variance = law_of_theory(h, **law)
    assert found_mean == pytest.approx(mean, rel=tolerance, abs=0)
    assert found_variance == pytest.approx(variance, rel=2 * tolerance, abs=0)


@pytest.mark.parametrize("fraction", [1e-15, 1e-10, 1e-5, 2.0, 4 - 1e-6])
def test_no_digits_are_lost_for_q_near_one(fraction: float) -> None:
    h = np.array([0.7])
    law: dict[str, Any] = dict(n_beta=1e3, gamma=1.0, step=fraction / 701.0, steps=20, burn_in=3)
    exact = law_in_fractions(h, **law)
    # 50 roundings as above; within 1e-6 of the limit 1 − εa/4 is known to EPS·4e6 of itself
    assert law_of_theory(h, **law) == pytest.approx(exact, rel=max(50, 1e7 * (fraction > 3)) * EPS)


def law_by_recursion(q: float, steps: int, burn_in: int) -> tuple[float, float]:
    """Mean of v_t and mean of q^|t−s| v_min², one step after the other."""
    v = plain = pairs = to_end = 0.0
    for t in range(steps):
        if t >= burn_in:
            plain += v
            pairs += v * v + 2 * q * to_end
            to_end = q * to_end + v * v
        v += q**t * (1 - q)
    return plain / (steps - burn_in), pairs / (steps - burn_in) ** 2


@pytest.mark.parametrize("steps, burn_in", [(4097, 0), (5000, 1000), (1023, 1022), (2048, 1)])
@pytest.mark.parametrize("q", [0.3, 0.99, 0.9999])
def test_long_chains_agree_with_a_recursion(q: float, steps: int, burn_in: int) -> None:
    step = 1 - q**0.5  # with n_beta·h = gamma = 1: a = 2, ρ = 1 − step
    law: dict[str, Any] = dict(n_beta=1.0, gamma=1.0, step=step, steps=steps, burn_in=burn_in)
    plain, pairs = law_by_recursion(q, steps, burn_in)
    V = 0.5 / (1 - 0.5 * step)
    expected = (0.5 * V * plain, 0.5 * V**2 * pairs)
    # the recursion adds thousands of terms one by one, and q comes back from a square root of
    # itself: steps·EPS, times 1/(1 − q) ≤ 1e4 for the rounding of q that 1 − q magnifies
    tolerance = 10 * EPS * (steps + 1 / (1 - q))
    assert law_of_theory(np.array([1.0]), **law) == pytest.approx(expected, rel=tolerance)


@given(st.floats(0.0, 0.9), st.integers(1, 400), st.integers(0, 50))
def test_the_variance_has_the_closed_form_of_its_docstring(q: float, N: int, B: int) -> None:
    T = N + B
    step = 1 - q**0.5
    found = theory.sgld_llc_variance([1.0], n_beta=1, gamma=1, step=step, steps=T, burn_in=B)
    t = np.arange(B, T)
    G1, G2, G0 = (q**t).sum(), (q ** (2 * t)).sum(), (q ** np.arange(N)).sum()
    A, D = (1 + q) / (1 - q), 2 * q / (1 - q)
    inner = A * (N - 2 * G1 + G2) - D * (G0 - 2 * N * q ** (T - 1) + q ** (T - 1) * G1)
    V = 0.5 / (1 - 0.5 * step)
    # two differences of terms up to 20·N: absolute error 20·N·EPS a few times over
    assert found == pytest.approx(
        V**2 / (2 * N**2) * inner, rel=0, abs=V**2 / (2 * N**2) * 1000 * N * EPS
    )


def simulated_readings(
    h: Array,
    *,
    n_beta: float,
    gamma: float,
    step: float,
    steps: int,
    burn_in: int,
    chains: int,
    seed: int,
) -> Array:
    """λ̂ of independent chains (chains,), simulated direction by direction."""
    rng = np.random.default_rng(seed)
    x = np.zeros((chains, len(h)))
    total = np.zeros(chains)
    for t in range(steps):
        if t >= burn_in:
            total += 0.5 * n_beta * (x * x) @ h
        drift = n_beta * h * x + gamma * x
        x = x - step / 2 * drift + np.sqrt(step) * rng.standard_normal(x.shape)
    return total / (steps - burn_in)


def z_of_mean(readings: Array, mean: float, variance: float) -> float:
    return float((readings.mean() - mean) / np.sqrt(variance / len(readings)))


def z_of_variance(readings: Array, mean: float, variance: float) -> float:
    """In standard errors of the mean square deviation, from its own spread."""
    squares = (readings - mean) ** 2
    return float((squares.mean() - variance) / (squares.std(ddof=1) / np.sqrt(len(squares))))


H = np.array([2.0, 0.3, 1e-2, 1e-4, 0.0])
SIMULATED: dict[str, Any] = dict(n_beta=50.0, gamma=2.0, steps=60, burn_in=15)


def step_at(step_constant: float) -> float:
    return theory.step_size(step_constant, n_beta=50.0, h_max=H.max(), gamma=2.0)


@pytest.mark.parametrize("step_constant", [0.2, 0.5, 2.0, 3.5])
def test_many_short_chains_obey_the_law(step_constant: float) -> None:
    law = SIMULATED | {"step": step_at(step_constant)}
    readings = simulated_readings(H, **law, chains=6000, seed=1)
    mean, variance = law_of_theory(H, **law)
    # 4 standard errors each: a correct law misses once in 16,000 seeds, and the seed is fixed
    assert abs(z_of_mean(readings, mean, variance)) <= 4
    assert abs(z_of_variance(readings, mean, variance)) <= 4


def test_long_chains_obey_the_law() -> None:
    law: dict[str, Any] = dict(n_beta=50.0, gamma=2.0, step=step_at(1.0), steps=8000, burn_in=500)
    readings = simulated_readings(H, **law, chains=300, seed=2)
    mean, variance = law_of_theory(H, **law)
    assert abs(z_of_mean(readings, mean, variance)) <= 4
    assert abs(z_of_variance(readings, mean, variance)) <= 4


def mean_of_a_chain(
    h: Array, law: dict[str, Any], *, noise: float, drift: float, spring: float, first: int
) -> float:
    """E[λ̂] of w ← w − drift·(n_beta·h + spring)·w + √noise·ξ averaged over first ≤ t < T."""
    rho = 1 - drift * (law["n_beta"] * h + spring)
    var = np.zeros(len(h))
    total = 0.0
    for t in range(law["steps"]):
        total += 0.5 * law["n_beta"] * (h @ var) if t >= first else 0.0
        var = rho**2 * var + noise
    return total / (law["steps"] - first)


def test_a_law_with_a_wrong_factor_goes_red() -> None:
    """The comparison with 6,000 chains tells the law from each near miss."""
    step = step_at(0.5)
    law = SIMULATED | {"step": step}
    readings = simulated_readings(H, **law, chains=6000, seed=1)
    variance = theory.sgld_llc_variance(H, **law)
    right: dict[str, Any] = dict(noise=step, drift=step / 2, spring=2.0, first=15)
    mutants = {
        "√ε → ε": right | {"noise": step**2},
        "gamma missing": right | {"spring": 0.0},
        "drift without ½": right | {"drift": step},
        "burn-in included": right | {"first": 0},
    }
    assert abs(z_of_mean(readings, mean_of_a_chain(H, law, **right), variance)) <= 4
    for name, mutant in mutants.items():
        z = z_of_mean(readings, mean_of_a_chain(H, law, **mutant), variance)
        assert abs(z) > 4, name
    half_variance = z_of_variance(readings, theory.sgld_expected_llc(H, **law), variance / 2)
    assert abs(half_variance) > 4  # Cov(x², y²) = Cov(x, y)² without its factor 2


@given(laws())
def test_chains_without_end_read_the_stationary_law(case: tuple[Array, dict[str, Any]]) -> None:
    h, law = case
    at = {name: law[name] for name in ("n_beta", "gamma", "step")}
    limit = theory.sgld_stationary_llc(h, **at)
    a = law["n_beta"] * h + law["gamma"]
    slowest = max(float(np.abs(1 - 0.5 * law["step"] * a).max()), 0.1)  # the largest |ρ|
    assume(slowest < 1 - 1e-9)
    forgotten = int(-40 / np.log(slowest)) + 1  # q^B < e^−80: nothing of the start is left
    far = theory.sgld_expected_llc(h, **at, steps=forgotten + 10, burn_in=forgotten)
    # log q·B is rounded at 80·EPS, which e^−80 hides: the sums' own roundings remain
    assert far == pytest.approx(limit, rel=50 * EPS, abs=0)
    some = theory.sgld_expected_llc(h, **at, steps=law["steps"], burn_in=law["burn_in"])
    assert some <= limit * (1 + 50 * EPS)


@given(spectra, st.floats(-4, 4).map(lambda x: 10.0**x), st.floats(-4, 4).map(lambda x: 10.0**x))
def test_small_steps_read_the_effective_dimension(h: Array, beta: float, gamma: float) -> None:
    step = 1e-9 / (beta * h.max() + gamma)
    reading = theory.sgld_stationary_llc(h, n_beta=beta, gamma=gamma, step=step)
    expected = theory.effective_dimension(h, gamma / beta)
    # step inflation 1/(1 − εa/4), between 1 and 1 + 2.5e-10 in every direction, and ten roundings
    assert expected * (1 - 10 * EPS) <= reading <= expected * (1 + 2.6e-10)


def test_without_a_spring_the_law_still_holds() -> None:
    law: dict[str, Any] = dict(n_beta=1.0, gamma=0.0, step=0.5, steps=4, burn_in=1)
    exact = law_in_fractions(np.array([1.0]), **law)
    assert law_of_theory(np.array([1.0, 0.0]), **law) == pytest.approx(exact, rel=20 * EPS)


def test_one_step_reads_nothing() -> None:
    """At w* itself, before any move."""
    law: dict[str, Any] = dict(n_beta=10.0, gamma=1.0, step=0.1, steps=1, burn_in=0)
    assert law_of_theory(np.array([1.0, 2.0]), **law) == (0.0, 0.0)
    assert law_of_theory(np.array([]), **law) == (0.0, 0.0)


@given(laws(), st.integers(1, 10))
def test_independent_chains_divide_the_variance(
    case: tuple[Array, dict[str, Any]], chains: int
) -> None:
    h, law = case
    one = theory.sgld_llc_variance(h, **law)
    together = theory.sgld_llc_variance(h, **law, chains=chains)
    assert together == pytest.approx(one / chains, rel=4 * EPS, abs=0)


# ---- what is refused ---------------------------------------------------------------------------

FINE: dict[str, Any] = dict(n_beta=10.0, gamma=1.0, step=0.1, steps=20, burn_in=5)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"n_beta": 0.0}, "n_beta.*0"),
        ({"n_beta": np.nan}, "n_beta.*nan"),
        ({"step": -0.1}, "step.*-0.1"),
        ({"gamma": -1.0}, "gamma.*-1"),
        ({"gamma": np.inf}, "gamma.*inf"),
        ({"burn_in": 20}, "burn_in.*20 of 20"),
        ({"burn_in": -1}, "burn_in.*-1"),
    ],
)
def test_settings_out_of_range_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        theory.sgld_expected_llc([1.0], **FINE | change)
    with pytest.raises(ValueError, match=named):
        theory.sgld_llc_variance([1.0], **FINE | change)


def test_an_unstable_step_is_refused_with_its_remedy() -> None:
    edge = 4 / 11.0  # a_max = 10·1 + 1
    for step in (edge, 2 * edge):
        with pytest.raises(theory.UnstableStep, match=r"ε·a_max = [48] .*step below 0\.3636"):
            theory.sgld_expected_llc([1.0, 0.5], **FINE | {"step": step})
    theory.sgld_expected_llc([1.0, 0.5], **FINE | {"step": edge * (1 - 1e-12)})
    with pytest.raises(theory.UnstableStep):  # a flat direction diverges too, by its spring
        theory.sgld_stationary_llc([0.0], n_beta=1.0, gamma=50.0, step=0.1)


def test_no_stationary_law_without_a_positive_curvature() -> None:
    with pytest.raises(theory.UndefinedDimension, match=r"-4 is not positive.*raise gamma"):
        theory.sgld_expected_llc([1.0, -0.5], **FINE)
    negative = theory.sgld_stationary_llc([-0.05], n_beta=10.0, gamma=1.0, step=1e-12)
    assert negative == pytest.approx(theory.effective_dimension([-0.05], 0.1), rel=1e-12)


@pytest.mark.parametrize(
    "h, named", [([[1.0]], r"vector.*\(1, 1\)"), ([1.0, np.nan], "entry 1 is nan"), (1.0, r"\(\)")]
)
def test_a_spectrum_must_be_a_finite_vector(h: Any, named: str) -> None:
    for reading in (
        lambda: theory.effective_dimension(h, 1.0),
        lambda: theory.response_curve(h, [1.0]),
        lambda: theory.sgld_expected_llc(h, **FINE),
    ):
        with pytest.raises(ValueError, match=named):
            reading()


def test_other_arguments_out_of_range() -> None:
    for resolution in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"resolution.*{resolution}"):
            theory.effective_dimension([1.0], resolution)
    for kappa in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="kappa"):
            theory.response_curve([1.0], [1.0, kappa])
    with pytest.raises(ValueError, match=r"chains.*0"):
        theory.sgld_llc_variance([1.0], **FINE, chains=0)
    with pytest.raises(ValueError, match=r"h_max.*-1"):
        theory.step_size(0.2, n_beta=1.0, h_max=-1.0, gamma=1.0)
    with pytest.raises(ValueError, match=r"step_constant.*0"):
        theory.step_size(0.0, n_beta=1.0, h_max=1.0, gamma=1.0)
    with pytest.raises(ValueError, match=r"kappa.*0"):
        theory.relaxation_time(0.2, 0.0)


# ---- learning coefficients of the quadratic network --------------------------------------------


@given(arrays(np.float64, 6, elements=st.floats(0.0, 1e3)), st.integers(0, 4))
def test_a_reading_at_any_resolution_lies_below_the_bracket(h: Array, extra: int) -> None:
    rank = int(np.count_nonzero(h))
    lower, upper = theory.bracket(rank, len(h) + extra)
    assert theory.effective_dimension(h, 1e-3) <= lower <= upper


def test_bracket() -> None:
    assert theory.bracket(10, 18) == (5.0, 7.0)
    assert theory.bracket(10, 10) == (5.0, 5.0)  # no flat direction but the symmetries
    assert theory.bracket(0, 0) == (0.0, 0.0)
    for rank, dimension in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match=f"0..D = {dimension}, got {rank}"):
            theory.bracket(rank, dimension)


@pytest.mark.parametrize(
    "found, known",
    [
        (theory.gaussian_generic(K=3, p=5), 21.0),
        (theory.gaussian_generic(K=6, p=7), 60.0),
        (theory.gaussian_generic(K=20, p=3), 31.5),  # saturated: p·p(2p+1)/2
        (theory.one_hot_generic(K=6, p=11), 93.0),
        (theory.one_hot_generic(K=12, p=17), 294.0),
        (min(theory.one_hot_generic(K=14, p=7), theory.wide_limit(n=24, p=7)), 80.5),
        (theory.frozen_first_layer(feature_rank=44, p=11), 242.0),
        (theory.frozen_first_layer(feature_rank=68, p=17), 578.0),
        (theory.paper_closed_form(K_eff=68, p=17), 1700.0),
        (theory.one_hot_generic(K=33, p=11), 1023 / 2),  # half the rank 1023 of that network
        (theory.dead_neuron(11, one_hot=True), 21 / 4),
        (theory.dead_neuron(5, one_hot=False), 5 / 2),
    ],
)
def test_closed_forms_give_the_known_coefficients(found: float, known: float) -> None:
    assert found == known  # half-integers: exact in floating point
