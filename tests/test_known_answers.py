"""The sampler where the answer comes from an integral, not from the law of a quadratic.

Posteriors of the zoo at a finite gamma are integrated numerically; SGLD must find the same reading
once the bias of its step, which is of first order in ε, is extrapolated away from two runs.

Symbols: ε step, s step constant, κ = n_beta·h_max/gamma, c = gamma/n_beta, r rank of the Hessian,
D weights minus exact symmetry directions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import kve

import chains
import curvature
import sgld
import theory
import zoo
from qnet import QuadraticNetwork, modular_pairs

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)
Z_LIMIT = 4.0  # a correct sampler exceeds it once in 16,000


class Copies:
    """Independent copies of a small model side by side: its loss is their sum, and λ̂ too."""

    def __init__(self, model: zoo.Monomial | zoo.PowerSum, count: int) -> None:
        self.model, self.count = model, count
        self.n_params = count * model.n_params

    def loss_and_grad(self, w: Array) -> tuple[Array, Array]:
        loss, gradient = self.model.loss_and_grad(w.reshape(-1, self.model.n_params))
        return np.reshape(loss, (len(w), self.count)).sum(axis=1), gradient.reshape(w.shape)


def extrapolated(
    model: zoo.Monomial | zoo.PowerSum, step: float, *, n_beta: float, gamma: float, count: int
) -> tuple[float, float]:
    """λ̂ of one copy at ε → 0 from runs at ε and ε/2, and its standard error."""
    copies = Copies(model, count)
    runs = [
        sgld.sample(
            copies,  # type: ignore[arg-type]  # speaks loss_and_grad, all that sampling needs
            np.zeros(copies.n_params),
            n_beta=n_beta,
            gamma=gamma,
            step=step / halvings,
            chains=4,
            steps=1_500,
            burn_in=300,
            seed=(halvings, count),
        )
        for halvings in (1, 2)
    ]
    coarse, fine = runs
    error = np.hypot(2.0 * fine.standard_error, coarse.standard_error)
    return (2.0 * fine.llc - coarse.llc) / count, float(error) / count


# --- sums of powers -------------------------------------------------------------------------


def power_reading(p: float, n_beta: float, gamma: float) -> float:
    """n_beta·E[½|w|^p] under exp(−n_beta·½|w|^p − ½ gamma w²)."""

    def density(w: float) -> float:
        return float(np.exp(-0.5 * n_beta * w**p - 0.5 * gamma * w * w))

    exact: dict[str, Any] = {"epsabs": 0.0, "epsrel": 1e-12, "limit": 200}
    far = 10.0 / gamma**0.5  # e^−50
    mass = quad(density, 0, far, points=[0.1, 1.0], **exact)[0]
    energy = quad(lambda w: 0.5 * w**p * density(w), 0, far, points=[0.1, 1.0], **exact)[0]
    return float(n_beta * energy / mass)


@pytest.mark.parametrize(("p", "reading"), [(2, 0.4950), (4, 0.2384), (6, 0.1529), (8, 0.1110)])
def test_power_readings_are_the_published_ones(p: float, reading: float) -> None:
    assert power_reading(p, 100.0, 1.0) == pytest.approx(reading, abs=5e-5)  # four digits given


def test_a_direction_reads_between_the_spring_and_one_over_p() -> None:
    assert power_reading(2, 100.0, 1.0) == pytest.approx(0.5 * 100 / 101, rel=1e-10)
    # At γ → 0 it is 1/p; the correction is of order γ·n_beta^{−2/p}.
    assert power_reading(4, 1e8, 1e-2) == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize("p", [4.0, 6.0, 8.0])
def test_sgld_reads_what_quadrature_says_on_sums_of_powers(p: float) -> None:
    found, error = extrapolated(zoo.PowerSum([p]), 0.004, n_beta=100.0, gamma=1.0, count=1_000)
    # What extrapolation leaves is of order ε²: measured 0.2 to 0.5 %, less than the error.
    assert abs(found - power_reading(p, 100.0, 1.0)) <= Z_LIMIT * error
    assert error < 0.02 * found  # or the comparison would say nothing


# --- normal crossings -----------------------------------------------------------------------


@cache
def crossing_reading(k: tuple[int, ...], n_beta: float, gamma: float) -> float:
    """n_beta·E[∏ w_i^{2k_i}] under the localised posterior, by Gauss-Legendre on one orthant."""
    points = {1: 400, 2: 400, 3: 120}[len(k)]
    nodes, weights = np.polynomial.legendre.leggauss(points)
    far = 9.0 / gamma**0.5  # e^−40
    axes = np.meshgrid(*[0.5 * far * (nodes + 1.0)] * len(k), sparse=True)
    measure = np.ones(())
    loss = np.ones(())
    widths = np.meshgrid(*[weights] * len(k), sparse=True)
    for axis, exponent, dx in zip(axes, k, widths, strict=True):
        measure = measure * dx * np.exp(-0.5 * gamma * axis * axis)
        loss = loss * axis ** (2 * exponent)
    measure = measure * np.exp(-n_beta * loss)
    return float(n_beta * (loss * measure).sum() / measure.sum())


@pytest.mark.parametrize(("n_beta", "gamma"), [(100.0, 10.0), (10.0, 3.0), (1.0, 4.0)])
def test_the_cross_has_a_bessel_function_for_an_answer(n_beta: float, gamma: float) -> None:
    s = gamma**2 / (8.0 * n_beta)
    bessel = 0.5 + s - s * kve(1, s) / kve(0, s)
    assert crossing_reading((1, 1), n_beta, gamma) == pytest.approx(bessel, rel=1e-9)


@pytest.mark.parametrize("k", [(1, 1), (1, 2), (2, 2), (1, 1, 1)])
def test_sgld_reads_what_quadrature_says_on_normal_crossings(k: tuple[int, ...]) -> None:
    found, error = extrapolated(zoo.Monomial(k), 0.008, n_beta=100.0, gamma=10.0, count=400)
    assert abs(found - crossing_reading(k, 100.0, 10.0)) <= Z_LIMIT * error
    assert error < 0.05 * found


def test_half_the_spring_would_show_on_the_cross() -> None:
    found, error = extrapolated(zoo.Monomial((1, 1)), 0.008, n_beta=100.0, gamma=10.0, count=400)
    assert abs(found - crossing_reading((1, 1), 100.0, 5.0)) > Z_LIMIT * error
    assert abs(found - crossing_reading((1, 1), 100.0, 20.0)) > Z_LIMIT * error


# --- linear regression on κ/(κ + 1) (claim E12) ---------------------------------------------

STEP_CONSTANT = 0.2
N_BETA = 1_000.0


@cache
def regression() -> tuple[zoo.LinearRegression, Array]:
    """Gaussian inputs, whose true covariance is the identity, and the curvatures of the sample."""
    rng = np.random.default_rng(np.random.SeedSequence([12]))
    model = zoo.LinearRegression(rng.standard_normal((2_000, 10)), rng.standard_normal(10))
    s = curvature.singular_values(model.jacobian(model.w_star))
    return model, curvature.curvatures(s, model.hessian_scale)


def kappa_protocol(h: Array, kappa: float) -> dict[str, Any]:
    """n_beta, gamma = n_beta·h_max/κ and ε by the step rule."""
    gamma = N_BETA * h[0] / kappa
    step = theory.step_size(STEP_CONSTANT, n_beta=N_BETA, h_max=h[0], gamma=gamma)
    return {"n_beta": N_BETA, "gamma": gamma, "step": step}


@pytest.mark.parametrize("kappa", [1.0, 10.0, 100.0])
def test_linear_regression_reads_the_exact_law(kappa: float) -> None:
    model, h = regression()
    settings = kappa_protocol(h, kappa)
    length: dict[str, Any] = {
        "steps": 5_000,
        "burn_in": 500,
    }  # the law knows the transient: no need to wait it out
    run = sgld.sample(model, model.w_star, **settings, **length, chains=8, seed=12, h_max=h[0])
    law = theory.sgld_expected_llc(h, **settings, **length)
    spread = theory.sgld_llc_variance(h, **settings, **length, chains=8) ** 0.5
    assert abs(run.llc - law) <= Z_LIMIT * spread
    assert spread < 0.01 * law
    # The sum over the spectrum alone would not pass: the step inflates the reading by up to 5 %.
    assert run.llc - theory.response_curve(h, kappa)[0] > Z_LIMIT * spread


def test_the_kappa_curve_hides_two_opposite_errors() -> None:
    _, h = regression()
    half = 0.5 * len(h)
    settings = kappa_protocol(h, 1.0)
    naive = half * 1.0 / (1.0 + 1.0)
    exact_sum = theory.response_curve(h, 1.0)[0]
    endless = theory.sgld_stationary_llc(h, **settings)
    # The largest of 10 sample curvatures is above 1, so every other κ_i is below κ.
    assert exact_sum == pytest.approx(0.5 * np.sum(h / (h + h[0])), rel=10 * EPS)
    too_low, too_high = exact_sum / naive - 1.0, endless / exact_sum - 1.0
    assert -0.09 < too_low < -0.05  # (1 + √(d/n))² gives h_max = 1.15: κ_i = 0.87, −7 %
    # ε·a ≤ s, equal to it in the stiffest direction: at most 1/(1 − s/4) = 5.3 %.
    assert 0.04 < too_high < 1 / (1 - STEP_CONSTANT / 4) - 1
    # Together they leave less than either: agreement with κ/(κ + 1) at 5 % checks neither.
    assert abs(endless / naive - 1.0) < 0.5 * min(-too_low, too_high) + 0.02


# --- a metamorphic law ----------------------------------------------------------------------


class Doubled:
    """The same model with its loss, and so its gradient, doubled."""

    def __init__(self, model: zoo.PowerSum) -> None:
        self.model, self.n_params = model, model.n_params

    def loss_and_grad(self, w: Array) -> tuple[Array, Array]:
        loss, gradient = self.model.loss_and_grad(w)
        return 2.0 * np.asarray(loss), 2.0 * gradient


def test_twice_the_loss_at_half_n_beta_is_the_same_reading_bit_for_bit() -> None:
    model = zoo.PowerSum([2.0, 4.0, 6.0])
    rest: dict[str, Any] = {"gamma": 1.0, "step": 0.005, "chains": 3, "steps": 300, "burn_in": 50}
    plain = sgld.sample(model, model.w_star, n_beta=100.0, **rest)
    double = sgld.sample(Doubled(model), model.w_star, n_beta=50.0, **rest)  # type: ignore[arg-type]
    # Powers of two are exact in float64: every product is the same number.
    assert double.llc == plain.llc
    assert np.array_equal(double.traces, 2.0 * plain.traces)
    assert np.array_equal(double.end_points, plain.end_points)


# --- the bracket: a Hessian-flat direction adds between 0 and ¼ (claim S07) ------------------


def bracket_of(model: chains.Model, w: Array, D: int) -> theory.Bracket:
    """The bracket from the numerical rank of J, which is that of the Hessian at a zero."""
    J = model.jacobian(w)
    r = curvature.rank(curvature.singular_values(J), 1e-9) if J.any() else 0
    return theory.bracket(r, D)


@given(st.integers(0, 10**6))
def test_every_analytic_model_of_the_zoo_lies_in_its_bracket(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d = rng.integers(1, 8, size=2)
    rank_deficient = rng.standard_normal((n, d)) * rng.integers(0, 2, d)
    models: list[zoo.LinearRegression | zoo.Monomial | zoo.PowerSum] = [
        zoo.LinearRegression(rank_deficient, rng.standard_normal(d)),
        zoo.PowerSum(rng.choice([2.0, 4.0, 6.0, 8.0], size=d)),
        zoo.Monomial(rng.integers(1, 4, size=d)),
    ]
    for model in models:
        lower, upper = bracket_of(model, model.w_star, model.symmetry_free_dimension())
        assert lower <= model.llc <= upper  # every term a multiple of 1/24: exact to an ulp


def test_a_flat_direction_that_is_not_smooth_can_add_more() -> None:
    # |w|³ has a second derivative, 0 at 0, but no third: the splitting lemma says nothing about it.
    model = zoo.PowerSum([3.0])
    lower, upper = bracket_of(model, model.w_star, model.symmetry_free_dimension())
    assert (lower, upper) == (0.0, 0.25)
    assert model.llc > upper


@pytest.mark.parametrize("one_hot", [True, False])
def test_a_dead_neuron_adds_to_λ_what_the_bracket_allows(one_hot: bool) -> None:
    """λ of the teacher with 0 to 3 dead neurons; J gains no rank, the bracket only width."""
    p, K, rng = 5, 2, np.random.default_rng(7)
    generic = theory.one_hot_generic(K, p) if one_hot else theory.gaussian_generic(K, p)
    for dead in range(4):
        if one_hot:
            net = QuadraticNetwork.modular(p, K + dead, *modular_pairs(p, 1.0, seed=0))
        else:
            net = QuadraticNetwork(rng.standard_normal((300, 2 * p)), np.zeros((300, p)), K + dead)
        alive = np.arange(K + dead) < K
        w = net.pack(
            rng.standard_normal((K + dead, p)) * alive[:, None],
            rng.standard_normal((K + dead, p)) * alive[:, None],
            rng.standard_normal((p, K + dead)) * alive,
        )
        moved = np.linalg.matrix_rank(net.null_directions(w))  # the scaling of a dead one is zero
        lower, upper = bracket_of(net, w, net.n_params - int(moved))
        assert lower == generic
        llc = generic + dead * theory.dead_neuron(p, one_hot=one_hot)
        assert lower <= llc <= upper
