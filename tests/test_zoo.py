"""The zoo: the identities every model keeps, and each λ and m from an integral done numerically."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad

import zoo
from chains import Model

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def linear(rng: np.random.Generator) -> zoo.LinearRegression:
    n, d = rng.integers(1, 8, size=2)
    return zoo.LinearRegression(rng.standard_normal((n, d)), rng.standard_normal(d))


def monomial(rng: np.random.Generator) -> zoo.Monomial:
    return zoo.Monomial(rng.integers(1, 5, size=rng.integers(1, 5)))


def power_sum(rng: np.random.Generator) -> zoo.PowerSum:
    return zoo.PowerSum(rng.choice([2.0, 3.0, 4.0, 5.5, 6.0, 8.0], size=rng.integers(1, 6)))


Zoo = zoo.LinearRegression | zoo.Monomial | zoo.PowerSum
MAKERS: list[Callable[[np.random.Generator], Zoo]] = [linear, monomial, power_sum]


def a_model(seed: int) -> tuple[Zoo, Array, np.random.Generator]:
    """A random model and a random point, away from the kinks at 0."""
    rng = np.random.default_rng(seed)
    model = MAKERS[seed % len(MAKERS)](rng)
    w = rng.choice([-1.0, 1.0], model.n_params) * rng.uniform(0.3, 1.5, model.n_params)
    return model, w, rng


def central_difference(f: Callable[[Array], Array], w: Array, step: float) -> Array:
    """df/dw column by column, (…, d)."""
    columns = [(f(w + step * e) - f(w - step * e)) / (2 * step) for e in np.eye(len(w))]
    return np.stack(columns, axis=-1)


# --- the verbs ------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
def test_the_three_identities_of_every_model(seed: int) -> None:
    model, w, rng = a_model(seed)
    speaks: Model = model  # mypy: the zoo speaks the protocol
    loss, gradient = speaks.loss_and_grad(w)
    r, J = model.residuals(w), model.jacobian(w)
    # Sums of at most 8 products, and products of at most 4 powers: a few dozen roundings.
    close = {"rtol": 50 * EPS, "atol": 50 * EPS * (1 + abs(J).max() * abs(r).max())}
    np.testing.assert_allclose(loss, 0.5 * model.hessian_scale * r @ r, **close)
    np.testing.assert_allclose(model.loss(w), loss, **close)
    np.testing.assert_allclose(gradient, model.hessian_scale * J.T @ r, **close)
    x, y = rng.standard_normal(len(w)), rng.standard_normal(len(r))
    close["atol"] = 50 * EPS * (1 + abs(J).max() * max(abs(x).max(), abs(y).max()))
    np.testing.assert_allclose(model.jvp(w, x), J @ x, **close)
    np.testing.assert_allclose(model.vjp(w, y), J.T @ y, **close)


@given(st.integers(0, 10**6))
def test_derivatives_against_finite_differences(seed: int) -> None:
    model, w, rng = a_model(seed)
    # Step (eps)^{1/3}: truncation step²·f'''/6 and rounding eps·f/step are both near 4e-11·f. The
    # third derivatives of these polynomials, degree at most 16, are below 1e3 times their values.
    step = EPS ** (1 / 3)
    loss = abs(float(model.loss(w)))
    r = model.residuals(w)
    J = central_difference(model.residuals, w, step)
    np.testing.assert_allclose(J, model.jacobian(w), atol=1e-7 * (1 + abs(r).max()))
    gradient = central_difference(lambda v: np.asarray(model.loss(v)), w, step)
    np.testing.assert_allclose(gradient, model.loss_and_grad(w)[1], atol=1e-7 * (1 + loss))
    H = central_difference(lambda v: model.loss_and_grad(v)[1], w, step)
    x = rng.standard_normal(len(w))
    size = 1 + abs(model.loss_and_grad(w)[1]).max()
    np.testing.assert_allclose(model.hvp(w, x), H @ x, atol=1e-6 * size * abs(x).sum())


@given(st.integers(0, 10**6))
def test_a_batch_is_its_rows_bit_for_bit(seed: int) -> None:
    model, w, rng = a_model(seed)
    batch = np.stack([w, 0.5 * w, rng.standard_normal(len(w))])
    loss, gradient = model.loss_and_grad(batch)
    assert np.shape(loss) == (3,)
    assert gradient.shape == batch.shape
    for row, L, g in zip(batch, np.asarray(loss), gradient, strict=True):
        own_loss, own_gradient = model.loss_and_grad(row)
        assert own_loss == L
        assert np.array_equal(own_gradient, g)
    assert model.residuals(batch).shape == (3, len(model.residuals(w)))
    assert np.shape(model.loss(batch)) == (3,)


@given(st.integers(0, 10**6))
def test_w_star_is_a_zero_of_the_loss(seed: int) -> None:
    model, _, _ = a_model(seed)
    loss, gradient = model.loss_and_grad(model.w_star)
    assert loss == 0.0
    assert not gradient.any()


# --- λ and m from integrals -----------------------------------------------------------------


@given(st.integers(0, 10**6))
def test_linear_regression_has_half_the_rank(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, r = rng.integers(1, 7, size=3)
    X = rng.integers(-3, 4, (n, r)) @ rng.integers(-3, 4, (r, d))  # whole numbers: exact
    model = zoo.LinearRegression(X, np.zeros(d))
    h = np.linalg.eigvalsh(X.T @ X / n)
    # nβE[L] on the whole space under a vanishing spring: ½ per curved direction. The whole-number
    # matrices here have no curvature between 0 and 1e-3.
    assert model.llc == pytest.approx(0.5 * np.sum(h / (h + 1e-8)), abs=1e-4)
    assert model.symmetry_free_dimension() == 2 * model.llc
    assert model.multiplicity == 1


def test_a_planted_spectrum_is_the_spectrum() -> None:
    h = np.array([3.0, 1.0, 1e-3, 1e-6, 0.0, 0.0])
    model = zoo.planted_spectrum(h, n=20, seed=4)
    found = np.linalg.eigvalsh(model.hessian_scale * model.X.T @ model.X)[::-1]
    # X holds √h to a few eps of the largest; squared, 10 eps of h_max.
    np.testing.assert_allclose(found, h, rtol=0, atol=30 * EPS)
    assert model.llc == 2.0
    assert model.w_star.any()
    assert not np.array_equal(model.X, zoo.planted_spectrum(h, n=20, seed=5).X)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0, 6.0, 8.0])
def test_power_sum_adds_one_over_p(p: float) -> None:
    # n·E[L] on [−1, 1] is a ratio of incomplete Gamma functions, 1/p up to e^{−n/2}.
    n = 1e6

    def tilted(w: float) -> float:
        return float(np.exp(-n * zoo.PowerSum([p]).loss(np.array([w]))))

    width = (2 * 40 / n) ** (1 / p)  # beyond it the integrand is below e^−40
    mass = quad(tilted, 0, width, epsabs=0, epsrel=1e-11)[0]
    energy = quad(lambda w: n * 0.5 * w**p * tilted(w), 0, width, epsabs=0, epsrel=1e-11)[0]
    assert zoo.PowerSum([p]).llc == pytest.approx(energy / mass, abs=1e-9)
    assert zoo.PowerSum([p, 2.0, p]).llc == pytest.approx(2 / p + 0.5, rel=4 * EPS)
    assert zoo.PowerSum([p]).multiplicity == 1


def partition(k: tuple[int, ...], prior: tuple[float, ...], n: float) -> float:
    """Z(n) = ∫ exp(−n ∏ w_i^{2k_i}) ∏ w_i^{h_i} dw over [0, 1]², by Gauss-Legendre in −ln w."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(0.0, 60.0, 41)  # e^−60 is nothing, and 20 nodes per 1.5 e-folds are exact
    x = np.concatenate([a + 0.75 * (nodes + 1) for a in edges[:-1]])
    dx = np.tile(0.75 * weights, 40)
    a, b = np.exp(-x)[:, None], np.exp(-x)[None, :]
    density = np.exp(-n * a ** (2 * k[0]) * b ** (2 * k[1]))
    density = density * a ** (prior[0] + 1) * b ** (prior[1] + 1)
    return float(dx @ density @ dx)


@pytest.mark.parametrize(
    ("k", "prior", "llc"),
    [
        ((1, 2), (0.0, 0.0), 1 / 4),
        ((1, 3), (0.0, 0.0), 1 / 6),
        ((1, 2), (0.0, 2.5), 1 / 2),  # the prior forbids w_2 = 0: (h+1)/2k = 7/8
        ((2, 1), (2.0, -0.5), 1 / 4),  # the prior favours w_2 = 0
    ],
)
def test_monomial_with_one_smallest_ratio(
    k: tuple[int, ...], prior: tuple[float, ...], llc: float
) -> None:
    model = zoo.Monomial(k, prior)
    assert model.llc == pytest.approx(llc, rel=4 * EPS)
    assert model.multiplicity == 1
    # Z = c·n^−λ (1 + c' n^−(λ'−λ)), λ' the next ratio, at least λ + 1/4 here: n = 1e16 leaves 1e-4.
    slope = np.log(partition(k, prior, 1e16) / partition(k, prior, 1e20)) / np.log(1e4)
    assert slope == pytest.approx(llc, abs=1e-4)


@pytest.mark.parametrize(
    ("k", "prior"), [((1, 1), (0.0, 0.0)), ((2, 2), (0.0, 0.0)), ((1, 2), (0.0, 1.0))]
)
def test_monomial_with_two_equal_ratios(k: tuple[int, ...], prior: tuple[float, ...]) -> None:
    model = zoo.Monomial(k, prior)
    assert model.multiplicity == 2
    # Z·n^λ is linear in ln n, with a slope: m − 1 = 1. Corrections are of order e^−n.
    first, second, third = (partition(k, prior, n) * n**model.llc for n in (1e4, 1e6, 1e8))
    assert second - first > 0.1 * first
    assert third - second == pytest.approx(second - first, rel=1e-6)


def test_a_wrong_multiplicity_would_show() -> None:
    first, second, third = (partition((1, 2), (0.0, 0.0), n) * n**0.25 for n in (1e4, 1e6, 1e8))
    assert third - second != pytest.approx(second - first, rel=0.1)  # m = 1: it levels off


def test_multiplicity_counts_every_factor_that_attains_it() -> None:
    assert (zoo.Monomial([1, 1, 1]).llc, zoo.Monomial([1, 1, 1]).multiplicity) == (0.5, 3)
    assert (zoo.Monomial([3, 1, 3]).llc, zoo.Monomial([3, 1, 3]).multiplicity) == (1 / 6, 2)
    # (h+1)/2k = 0.3/2 and 0.9/6 are equal on paper and not in float64
    assert zoo.Monomial([1, 3], [-0.7, -0.1]).multiplicity == 2


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: zoo.LinearRegression(np.ones((3, 2)), np.ones(3)), r"\(3, 2\) and \(3,\)"),
        (lambda: zoo.LinearRegression(np.ones(3), np.ones(3)), "need X"),
        (lambda: zoo.planted_spectrum([1.0, -1.0], n=5, seed=0), "curvatures ≥ 0"),
        (lambda: zoo.planted_spectrum([1.0, 1.0], n=1, seed=0), "1 < 2"),
        (lambda: zoo.Monomial([1, 0]), "whole numbers ≥ 1"),
        (lambda: zoo.Monomial([1.5]), "whole numbers ≥ 1"),
        (lambda: zoo.Monomial([1, 1], [0.0, -1.0]), "integrable"),
        (lambda: zoo.PowerSum([2.0, 1.9]), "≥ 2"),
        (lambda: zoo.PowerSum([np.inf]), "finite"),
        (lambda: zoo.PowerSum([2.0]).loss(np.zeros(2)), r"weights must be \(1,\)"),
        (lambda: zoo.Monomial([1, 2]).loss(np.zeros((1, 1, 2))), r"got \(1, 1, 2\)"),
    ],
)
def test_refusals(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
