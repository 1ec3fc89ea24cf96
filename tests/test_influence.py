"""Influence from Gram matrices, against dense derivatives, drawn posteriors and worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import spearmanr

import influence
from mlp import MLP

Array = NDArray[np.float64]
OUTPUTS, TRAIN, QUERIES = 2, 5, 3
N_BETA, GAMMA = 7.0, 1.3


class Case:
    """A tiny network, its first TRAIN examples trained on, the others queries."""

    def __init__(self, seed: int, widths: tuple[int, ...] = (3,)) -> None:
        rng = np.random.default_rng(seed)
        n = TRAIN + QUERIES
        self.all = MLP(
            rng.standard_normal((n, 2)),
            rng.standard_normal((n, OUTPUTS)),
            widths,
            activation="tanh",
            divisor="n",  # s = 2: a lost power of s shows
        )
        self.train = self.all.subset(np.arange(TRAIN))
        self.w = self.all.initial_weights(seed)
        self.scale = TRAIN * self.train.hessian_scale  # s
        self.J = self.all.jacobian(self.w)
        self.r = self.all.residuals(self.w)
        self.rows = TRAIN * OUTPUTS
        J = self.J[: self.rows]
        self.H = self.train.hessian_scale * J.T @ J
        self.covariance = np.linalg.inv(N_BETA * self.H + GAMMA * np.eye(len(self.w)))

    def kernel(self) -> Array:
        gram = self.all.gram(self.w)
        return influence.posterior_kernel(
            gram[: self.rows, : self.rows],
            gram[: self.rows, self.rows :],
            hessian_scale=self.train.hessian_scale,
            n_beta=N_BETA,
            gamma=GAMMA,
        )

    def example(self, i: int) -> tuple[Array, Array]:
        """Gradient and Gauss-Newton Hessian of ℓ_i, dense."""
        rows = slice(i * OUTPUTS, (i + 1) * OUTPUTS)
        J = self.J[rows]
        return self.scale * J.T @ self.r[rows], self.scale * J.T @ J

    def dense(self, i: int, q: int) -> float:
        (g, A), (b, B) = self.example(i), self.example(TRAIN + q)
        return influence.quadratic_influence((g, b), (A, B), self.covariance)

    def from_gram(self) -> Array:
        return influence.exact_influence(
            self.kernel(),
            self.r[: self.rows],
            self.r[self.rows :],
            outputs=OUTPUTS,
            scale=self.scale,
        )


@given(st.integers(0, 9999))
def test_the_posterior_kernel_is_j_sigma_j(seed: int) -> None:
    case = Case(seed)
    dense = case.J[: case.rows] @ case.covariance @ case.J[case.rows :].T
    # the solve's condition number is 1 + n_beta·h_max/gamma, below 1e3 here
    assert case.kernel() == pytest.approx(dense, rel=1e-9, abs=1e-11)


@given(st.integers(0, 9999))
def test_exact_influence_is_the_dense_formula(seed: int) -> None:
    case = Case(seed)
    dense = np.array([[case.dense(i, q) for q in range(QUERIES)] for i in range(TRAIN)])
    assert case.from_gram() == pytest.approx(dense, rel=1e-9, abs=1e-11)


@given(st.integers(0, 9999))
def test_damped_influence_is_the_dense_solve(seed: int) -> None:
    case = Case(seed)
    damped = influence.damped_influence(
        case.kernel(),
        case.r[: case.rows],
        case.r[case.rows :],
        outputs=OUTPUTS,
        scale=case.scale,
        n_beta=N_BETA,
    )
    inverse = np.linalg.inv(case.H + GAMMA / N_BETA * np.eye(len(case.w)))
    for i in range(TRAIN):
        for q in range(QUERIES):
            g, b = case.example(i)[0], case.example(TRAIN + q)[0]
            assert damped[i, q] == pytest.approx(-b @ inverse @ g, rel=1e-9, abs=1e-11)


def drawn_influence(case: Case, draws: int, *, full: bool) -> tuple[Array, Array]:
    """−Cov(ℓ_i, ℓ_q) over δ ~ N(0, Σ), brute force, and its standard error, (n, q).

    full: the losses of the network itself, else those of its linearisation, for which the formula
    is exact.
    """
    rng = np.random.default_rng(11)
    delta = rng.multivariate_normal(np.zeros(len(case.w)), case.covariance, draws)
    residuals = case.all.residuals(case.w + delta) if full else case.r + delta @ case.J.T
    losses = (
        0.5 * case.scale * np.sum(residuals.reshape(draws, TRAIN + QUERIES, OUTPUTS) ** 2, axis=2)
    )
    value = influence.sampled_influence(losses[:, :TRAIN], losses[:, TRAIN:])
    centred = losses - losses.mean(axis=0)
    products = centred[:, :TRAIN, None] * centred[:, None, TRAIN:]
    return value, products.std(axis=0) / draws**0.5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exact_influence_is_what_the_posterior_says(seed: int) -> None:
    case = Case(seed)
    value, error = drawn_influence(case, 200_000, full=False)
    exact = case.from_gram()
    # 15 comparisons at 5 standard errors: a right program fails once in 10^5
    assert (np.abs(value - exact) < 5 * error).all()


def test_what_a_lost_half_or_term_would_do() -> None:
    case = Case(3)
    value, error = drawn_influence(case, 200_000, full=False)
    P, r, rho = case.kernel(), case.r[: case.rows], case.r[case.rows :]
    first = (
        influence.damped_influence(P, r, rho, outputs=OUTPUTS, scale=case.scale, n_beta=N_BETA)
        / N_BETA
    )
    second = case.from_gram() - first
    mutants = {
        "first term alone": first,
        "no ½": first + 2 * second,
        "second term alone": second,
        "wrong sign": -case.from_gram(),
        "s for s²": case.from_gram() / case.scale,
    }
    for name, wrong in mutants.items():
        assert (np.abs(value - wrong) > 5 * error).any(), name


def test_a_tight_posterior_makes_the_network_quadratic() -> None:
    """At n_beta and gamma 1e6 times larger, Σ is so small that tanh is linear: the full losses."""
    case = Case(4)
    case.covariance = case.covariance / 1e6
    value, error = drawn_influence(case, 50_000, full=True)
    linear, _ = drawn_influence(case, 50_000, full=False)
    assert value == pytest.approx(linear, rel=0.01, abs=float(error.max()) / 10)


def test_worked_covariance_and_ranks() -> None:
    losses = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 3.0]])
    query = np.array([[2.0], [4.0], [6.0]])
    assert influence.sampled_influence(losses, query) == pytest.approx(np.array([[-2.0], [-3.0]]))
    x = np.array([[1.0, 1.0], [2.0, 2.0], [30.0, 3.0]])
    assert influence.rank_correlation(x, -x).tolist() == [-1.0, -1.0]
    assert influence.rank_correlation(x, x**3).tolist() == [1.0, 1.0]


@given(st.integers(0, 9999), st.integers(3, 20), st.integers(1, 4))
def test_rank_correlation_is_spearmans(seed: int, n: int, q: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 4, (2, n, q)).astype(float)  # many ties
    x[0], y[0] = -1.0, -1.0  # no constant column
    x[1], y[1] = 5.0, 5.0
    expected = [spearmanr(x[:, k], y[:, k]).statistic for k in range(q)]
    assert influence.rank_correlation(x, y) == pytest.approx(expected, abs=1e-12)


def test_refusals() -> None:
    K = np.eye(4)
    for bad in ({"gamma": 0.0}, {"n_beta": -1.0}, {"hessian_scale": 0.0}):
        s = {"hessian_scale": 1.0, "n_beta": 1.0, "gamma": 1.0} | bad
        with pytest.raises(ValueError, match="positive"):
            influence.posterior_kernel(K, K, **s)
    with pytest.raises(ValueError, match="rows and columns per example"):
        influence.exact_influence(np.ones((4, 3)), np.ones(4), np.ones(3), outputs=2, scale=1.0)
    for shapes in (((1, 2), (1, 2)), ((3, 2), (4, 2)), ((3,), (3,))):
        with pytest.raises(ValueError, match="draws"):
            influence.sampled_influence(np.ones(shapes[0]), np.ones(shapes[1]))
    with pytest.raises(ValueError, match="shape"):
        influence.rank_correlation(np.ones((3, 1)), np.ones((4, 1)))
    with pytest.raises(ValueError, match="ranking"):
        influence.rank_correlation(np.ones((3, 1)), np.arange(3.0)[:, None])
