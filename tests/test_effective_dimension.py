"""Curvatures and effective dimensions from a Gram matrix, against dense J and dense Hessians."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import eigvalsh

import curvature
import effective_dimension as ed
import theory
from mlp import MLP

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def network(seed: int, n: int = 6, C: int = 3, width: int = 4, divisor: str = "nC") -> MLP:
    rng = np.random.default_rng(seed)
    return MLP(
        rng.standard_normal((n, 5)),
        rng.standard_normal((n, C)),
        [width, width],
        activation="tanh",
        divisor=divisor,  # type: ignore[arg-type]
    )


def random_jacobian(seed: int, m: int, d: int, decades: float) -> Array:
    """J (m, d) with singular values over some decades."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, d)) * 10.0 ** rng.uniform(-decades, 0.0, d)


def dense_effective_dimension(H: Array, c: float) -> float:
    """The slow obvious way: ½ tr of a dense (d, d) solve."""
    return float(0.5 * np.trace(np.linalg.solve(H + c * np.eye(len(H)), H)))


def exact_gram(J: Array) -> Array:
    """JJᵀ, symmetric to the last bit whatever the BLAS does."""
    gram = J @ J.T
    return np.tril(gram) + np.tril(gram, -1).T


# ---- curvatures --------------------------------------------------------------------------------


@given(st.integers(0, 999), st.integers(1, 12), st.integers(1, 30), st.floats(0, 3))
def test_the_gram_matrix_holds_every_curvature(seed: int, m: int, d: int, decades: float) -> None:
    J = random_jacobian(seed, m, d, decades)
    scale = 2.0 / m
    h = ed.curvatures_of_gram(exact_gram(J), scale)
    dense = eigvalsh(scale * J.T @ J)[::-1]
    expected = np.zeros(m)
    expected[: min(m, d)] = dense[: min(m, d)]
    # eigvalsh and the products: a few times the size, in units of the largest eigenvalue
    assert h == pytest.approx(expected, abs=20 * max(m, d) * EPS * dense[0], rel=0)
    assert (np.diff(h) <= 0).all() and h.min() >= 0


def test_a_wrong_scale_is_seen() -> None:
    net = network(0)
    w = net.initial_weights(0)
    J = net.jacobian(w)
    dense = eigvalsh(net.hessian_scale * J.T @ J)[::-1][: len(J)]
    assert ed.curvatures_of_gram(net.gram(w), net.hessian_scale) == pytest.approx(dense, abs=1e-14)
    # without the factor 2 of |r|²/(nC), at one κ nothing would show; in λ_max all of it does
    halved = ed.curvatures_of_gram(net.gram(w), 0.5 * net.hessian_scale)
    assert halved[0] == pytest.approx(0.5 * dense[0])
    assert theory.response_curve(halved, [10.0]) == pytest.approx(
        theory.response_curve(dense, [10.0]), rel=1e-12
    )
    for c in (0.1, 1.0):
        assert (
            abs(
                theory.effective_dimension(halved, c)
                - dense_effective_dimension(net.hessian_scale * J.T @ J, c)
            )
            > 0.01
        )


def test_a_dropped_bias_is_seen() -> None:
    """The +1 beside a·a′ in the Gram matrix is the bias; without it λ is another number."""
    net = network(1)
    w = net.initial_weights(1)
    J = net.jacobian(w)
    c = 0.05
    is_bias = net.expand([1.0 if name.startswith("b") else 0.0 for name in net.names])
    reading = ed.cholesky_effective_dimension(net.gram(w), net.hessian_scale, c)
    dense = dense_effective_dimension(net.hessian_scale * J.T @ J, c)
    assert reading == pytest.approx(dense, abs=1e-12)
    dropped = J[:, is_bias == 0.0]
    assert (
        abs(reading - dense_effective_dimension(net.hessian_scale * dropped.T @ dropped, c)) > 0.1
    )


def test_the_eigenvalues_overwrite_and_need_no_second_matrix() -> None:
    m = 400
    gram = exact_gram(random_jacobian(0, m, m, 1.0))
    before = gram.copy()
    tracemalloc.start()
    ed.curvatures_of_gram(gram, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not np.array_equal(gram, before)
    assert peak < 0.6 * gram.nbytes  # workspace of the blocked reduction, no copy


def test_cholesky_holds_two_matrices_and_keeps_the_first() -> None:
    m = 400
    gram = exact_gram(random_jacobian(0, m, m, 1.0))
    before = gram.copy()
    tracemalloc.start()
    ed.cholesky_effective_dimension(gram, 1.0, 0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(gram, before)
    assert gram.nbytes + peak <= ed.memory_needed(m, "cholesky") + 0.1 * gram.nbytes


# ---- Cholesky ----------------------------------------------------------------------------------


@given(
    st.integers(0, 999),
    st.integers(1, 15),
    st.integers(1, 30),
    st.floats(0, 3),
    st.floats(-3, 2),
    st.floats(-2, 2),
)
def test_cholesky_is_the_trace_of_the_damped_inverse(
    seed: int, m: int, d: int, decades: float, log_kappa: float, log_scale: float
) -> None:
    J, scale = random_jacobian(seed, m, d, decades), 10.0**log_scale
    H = scale * J.T @ J
    h_max = eigvalsh(H)[-1]
    c = h_max / 10.0**log_kappa
    reading = ed.cholesky_effective_dimension(exact_gram(J), scale, c)
    # a solve loses the condition number 1 + h_max/c, and the subtraction from m the size of m
    tolerance = 20 * max(m, d) ** 2 * EPS * (1.0 + h_max / c)
    assert reading == pytest.approx(dense_effective_dimension(H, c), abs=tolerance, rel=0)
    by_eigenvalues = theory.effective_dimension(ed.curvatures_of_gram(exact_gram(J), scale), c)
    assert reading == pytest.approx(by_eigenvalues, abs=tolerance, rel=0)


def test_what_a_factor_2_or_an_unscaled_c_would_do() -> None:
    J = random_jacobian(3, 8, 20, 0.5)
    gram, scale, c = exact_gram(J), 0.25, 0.7
    right = dense_effective_dimension(scale * J.T @ J, c)
    assert ed.cholesky_effective_dimension(gram, scale, c) == pytest.approx(right, abs=1e-12)
    L = np.linalg.cholesky(scale * gram + c * np.eye(8))
    inverse = np.linalg.inv(L)
    mutants = {
        "no ½": 8 - c * np.sum(inverse**2),
        "no c": 0.5 * (8 - np.sum(inverse**2)),
        "|L|² for |L⁻¹|²": 0.5 * (8 - c * np.sum(L**2)),
        "c on an unscaled Gram matrix": dense_effective_dimension(J.T @ J, c),
    }
    for name, wrong in mutants.items():
        assert abs(wrong - right) > 0.05, name


def test_a_wide_network_by_three_roads() -> None:
    net = network(4, n=10, C=2, width=20)
    w = net.initial_weights(4)
    gram = ed.gram_matrix(net, w, "cholesky")
    operator = ed.operator(net.n_params, lambda x: net.gauss_newton_product(w, x))
    h_max = curvature.top_eigenvalue(operator)
    c = h_max / 10.0
    by_cholesky = ed.cholesky_effective_dimension(gram, net.hessian_scale, c)
    h = ed.curvatures_of_gram(gram, net.hessian_scale)
    assert h[0] == pytest.approx(h_max, rel=1e-7)  # Lanczos' own tolerance of 1e-8, and more
    assert by_cholesky == pytest.approx(theory.effective_dimension(h, c), abs=1e-12)
    value, error = curvature.hutchinson_effective_dimension(operator, c, probes=40, seed=0)
    assert abs(value - by_cholesky) < 4 * error


@pytest.mark.parametrize(
    ("gram", "scale", "words"),
    [
        (np.ones((2, 3)), 1.0, "square"),
        (np.zeros((0, 0)), 1.0, "not empty"),
        (np.array([[1.0, np.nan], [np.nan, np.nan]]), 1.0, "diagonal"),
        (np.array([[1.0, 0.0], [0.0, -1.0]]), 1.0, "non-negative"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), 1.0, "symmetric"),
        (np.eye(2), 0.0, "hessian_scale"),
        (np.eye(2), np.nan, "hessian_scale"),
    ],
)
def test_what_is_no_gram_matrix_is_refused(gram: Array, scale: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ed.curvatures_of_gram(gram.copy(), scale)
    with pytest.raises(ValueError, match=words):
        ed.cholesky_effective_dimension(gram.copy(), scale, 1.0)


def test_refusals_of_cholesky() -> None:
    for c in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="resolution"):
            ed.cholesky_effective_dimension(np.eye(2), 1.0, c)
    indefinite = np.array([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues 3 and −1
    with pytest.raises(ed.NotPositive, match="row 1"):
        ed.cholesky_effective_dimension(indefinite, 1.0, 0.5)


def test_memory_is_predicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ed.memory_needed(10_240, "eigenvalues") == pytest.approx(8 * 10_240**2, rel=0.02)
    assert ed.memory_needed(10_240, "cholesky") < 3 * 2**30  # the two fit in 3 GiB
    with pytest.raises(ValueError, match="route"):
        ed.memory_needed(10, "svd")
    monkeypatch.setattr(curvature, "available_memory", lambda: 1_000)
    net = network(0)
    words = re.compile(r"cholesky of a Gram matrix with 18 rows .* GB are available.*probes")
    with pytest.raises(curvature.InsufficientMemory, match=words):
        ed.gram_matrix(net, net.initial_weights(0), "cholesky")
    monkeypatch.setattr(curvature, "available_memory", lambda: None)
    assert ed.gram_matrix(net, net.initial_weights(0), "cholesky").shape == (18, 18)


# ---- reading a spectrum ------------------------------------------------------------------------


@given(st.integers(1, 50), st.floats(-5, 5))
def test_equal_curvatures_count_fully(m: int, log_size: float) -> None:
    h = np.full(m, 10.0**log_size)
    assert ed.stable_rank(h) == pytest.approx(m, rel=m * EPS)
    assert ed.effective_rank(h) == pytest.approx(m, rel=20 * m * EPS)


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20))
def test_ranks_are_ordered_and_blind_to_scale_and_zeros(values: list[float]) -> None:
    h = np.array(values)
    stable, effective = ed.stable_rank(h), ed.effective_rank(h)
    # entropy lies between −ln p_max and ln(count)
    assert 1 - 1e-12 <= stable <= effective * (1 + 1e-12) <= len(h) * (1 + 1e-11)
    rescaled = np.append(3.0 * h, [0.0, 0.0])
    assert ed.stable_rank(rescaled) == pytest.approx(stable, rel=1e-13)
    assert ed.effective_rank(rescaled) == pytest.approx(effective, rel=1e-12)


def test_known_ranks() -> None:
    assert ed.stable_rank([2.0, 1.0, 1.0]) == 2.0
    assert ed.effective_rank([2.0, 1.0, 1.0]) == pytest.approx(2**1.5)  # entropy 1.5 bits
    assert ed.resolved_rank([1.0, 1e-6, 1e-20, 0.0], (4, 100)) == 2
    for bad in ([], [0.0], [-1.0], [np.nan]):
        with pytest.raises(ValueError):
            ed.stable_rank(bad)


def test_the_rank_meets_its_ceiling() -> None:
    net = network(5, n=4, C=3, width=10)
    w = net.initial_weights(5)
    h = ed.curvatures_of_gram(net.gram(w), net.hessian_scale)
    assert ed.resolved_rank(h, (len(h), net.n_params)) == net.rank_ceiling() == 12


# ---- the full Hessian --------------------------------------------------------------------------


def _case(seed: int) -> tuple[MLP, Array, Array, Array]:
    """A network, weights, and its dense full Hessian and Gauss-Newton matrix."""
    net = network(seed)
    w = net.initial_weights(seed)
    J = net.jacobian(w)
    H = np.stack([net.hvp(w, e) for e in np.eye(net.n_params)])
    return net, w, H, net.hessian_scale * J.T @ J


@pytest.mark.parametrize("seed", range(4))
def test_the_control_variate_is_unbiased_and_sharper(seed: int) -> None:
    net, w, H, gauss_newton = _case(seed)
    lowest, h_max = eigvalsh(H)[[0, -1]]
    c = max(h_max, 1.5 * abs(lowest))
    exact = dense_effective_dimension(H, c)
    probed = ed.probed_effective_dimension(
        ed.operator(net.n_params, lambda x: net.hvp(w, x)),
        ed.operator(net.n_params, lambda x: net.gauss_newton_product(w, x)),
        c,
        exact=dense_effective_dimension(gauss_newton, c),
        lowest=lowest,
        probes=60,
        seed=seed,
        tolerance=1e-8,
    )
    # 4 standard errors of 60 probes: a right program fails once in some 8,000
    assert abs(probed.value - exact) < 4 * probed.standard_error
    assert abs(probed.plain - exact) < 4 * probed.plain_standard_error
    assert probed.probes == 60


def test_the_control_variate_near_zero_loss() -> None:
    """At a teacher both Hessians agree: the difference of the probes is CG's error alone."""
    net = network(2)
    w = net.initial_weights(2)
    net = net.with_targets(net.outputs(w) + 1e-4)
    J = net.jacobian(w)
    gauss_newton = net.hessian_scale * J.T @ J
    exact = dense_effective_dimension(gauss_newton, 0.1)
    H = np.stack([net.hvp(w, e) for e in np.eye(net.n_params)])
    probed = ed.probed_effective_dimension(
        ed.operator(net.n_params, lambda x: net.hvp(w, x)),
        ed.operator(net.n_params, lambda x: net.gauss_newton_product(w, x)),
        0.1,
        exact=exact,
        lowest=eigvalsh(H)[0],
        tolerance=1e-8,
    )
    assert probed.standard_error < 0.01 * probed.plain_standard_error
    assert abs(probed.value - dense_effective_dimension(H, 0.1)) < 4 * probed.standard_error + 1e-7


def test_no_reading_of_the_full_hessian_below_minus_c() -> None:
    _, w, H, gauss_newton = _case(0)
    lowest = eigvalsh(H)[0]
    assert lowest < 0
    with pytest.raises(theory.UndefinedDimension, match=r"not above −c.*lower kappa"):
        ed.probed_effective_dimension(
            ed.operator(len(w), lambda x: H @ x),
            ed.operator(len(w), lambda x: gauss_newton @ x),
            -0.5 * lowest,
            exact=1.0,
            lowest=lowest,
        )
    with pytest.raises(ValueError, match="at least 2"):
        ed.probed_effective_dimension(
            ed.operator(len(w), lambda x: H @ x),
            ed.operator(len(w), lambda x: H @ x),
            1.0,
            exact=1.0,
            lowest=lowest,
            probes=1,
        )


@given(st.integers(0, 999), st.floats(-2, 2), st.floats(-1, 4))
def test_the_slope_shift_is_the_mean_of_the_shifted_posterior(
    seed: int, log_c: float, log_n_beta: float
) -> None:
    """Loss gᵀδ + ½δᵀHδ: the Gaussian's mean −(H+cI)⁻¹g put into the loss, by dense solves."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 8))
    J = rng.standard_normal((d, d))
    H, g = J.T @ J, rng.standard_normal(d)
    c, n_beta = 10.0**log_c, 10.0**log_n_beta
    mean = -np.linalg.solve(H + c * np.eye(d), g)
    expected = n_beta * (g @ mean + 0.5 * mean @ H @ mean)
    shift = ed.slope_shift(
        ed.operator(d, lambda x: H @ x), g, n_beta=n_beta, resolution=c, tolerance=1e-13
    )
    # the error is quadratic in CG's at the minimum of the form, at worst its condition number
    assert shift == pytest.approx(expected, rel=1e-9)
    assert shift <= 0


def test_the_slope_shift_refuses() -> None:
    operator = ed.operator(2, lambda x: x)
    with pytest.raises(ValueError, match="resolution"):
        ed.slope_shift(operator, np.ones(2), n_beta=1.0, resolution=0.0)
    assert ed.slope_shift(operator, np.zeros(2), n_beta=1.0, resolution=1.0) == 0.0
