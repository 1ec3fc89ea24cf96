"""The quadratic network against scalar loops, exact differences, brute force and its oracle.

Tolerances. eps = 2.2e-16. A sum of N terms is computed to within N·eps·Σ|terms|, so a test compares
within N·eps times the size of the terms, not of the result, which may have cancelled. Derivatives
are checked by differences that are exact on polynomials of degree 6 (`exact_derivative`): nothing
is truncated, and the tolerance is again rounding alone.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import qnet
from qnet import FrozenFirstLayer, QuadraticNetwork, modular_pairs
from tests import oracles

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)

# (p, K, n): p = 2, a prime, a composite, one neuron, more neurons than pairs
MODULAR_CASES = [(2, 1, 3), (2, 3, 4), (3, 9, 5), (5, 4, 18), (6, 5, 25)]


def modular(p: int, K: int, n: int, seed: int = 0) -> QuadraticNetwork:
    """The network on n random pairs in random order."""
    a, b = np.divmod(np.random.default_rng([p, n, seed]).permutation(p * p)[:n], p)
    return QuadraticNetwork.modular(p, K, a, b)


def gaussian(p: int, K: int, n: int, seed: int = 0) -> QuadraticNetwork:
    rng = np.random.default_rng([p, n, seed])
    return QuadraticNetwork(rng.standard_normal((n, 2 * p)), rng.standard_normal((n, p)), K)


def all_cases() -> list[Any]:
    """Every modular case, and two with Gaussian inputs, as pytest parameters."""
    one_hot = [pytest.param(modular(*case), id=f"modular-{case}") for case in MODULAR_CASES]
    return [
        *one_hot,
        pytest.param(gaussian(2, 1, 6), id="gaussian-2-1-6"),
        pytest.param(gaussian(3, 4, 9), id="gaussian-3-4-9"),
    ]


def weights(net: QuadraticNetwork, seed: int = 0, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng([seed, 7]).standard_normal(net.n_params)


def output_size(net: QuadraticNetwork, w: Array) -> float:
    """Largest Σ|terms| of any output plus the largest target: the size of r before cancelling."""
    sums = QuadraticNetwork(np.abs(net.inputs), net.targets, net.K).outputs(np.abs(w))
    return float(np.abs(sums).max() + np.abs(net.targets).max())


def exact_derivative(f: Callable[[Array], Any], w: Array, x: Array, h: float = 0.5) -> Array:
    """d/dt f(w + t·x) at t = 0, exact for polynomials in t of degree ≤ 6.

    The odd part has degrees 1, 3, 5: three symmetric differences determine it. L_n has degree 6
    along a line (z² is quadratic, W multiplies, the loss squares), its gradient 5, the outputs 3.
    Rounding: (45 + 9 + 1)·2/(60h) < 4 times the rounding of one evaluation at h = ½.
    """
    one, two, three = (np.asarray(f(w + k * h * x)) - f(w - k * h * x) for k in (1, 2, 3))
    return (45.0 * one - 9.0 * two + three) / (60.0 * h)


def rounding_of(f: Callable[[Array], Any], w: Array, x: Array, count: int, h: float = 0.5) -> float:
    """Rounding of `exact_derivative`: 4 evaluations, each to count·eps of its largest value. The
    largest value stands for the size of the terms: at random weights nothing cancels wholly."""
    largest = max(np.abs(f(w + k * h * x)).max() for k in (-3, 3))
    return 4.0 * count * EPS * float(largest)


# ---- scalar loops -------------------------------------------------------------------------------


def scalar_outputs(net: QuadraticNetwork, w: Array) -> list[list[float]]:
    u, v, W = (part.tolist() for part in net.unpack(w))
    x = net.inputs.tolist()
    table = []
    for row in x:
        z = []
        for j in range(net.K):
            left = sum(u[j][s] * row[s] for s in range(net.p))
            z.append(left + sum(v[j][s] * row[net.p + s] for s in range(net.p)))
        table.append([sum(W[k][j] * z[j] ** 2 for j in range(net.K)) for k in range(net.p)])
    return table


def scalar_loss(net: QuadraticNetwork, w: Array) -> float:
    f, y, total = scalar_outputs(net, w), net.targets.tolist(), 0.0
    for k in range(net.p):
        mean_f = sum(f[i][k] for i in range(net.n)) / net.n
        mean_y = sum(y[i][k] for i in range(net.n)) / net.n
        for i in range(net.n):
            total += ((f[i][k] - mean_f) - (y[i][k] - mean_y)) ** 2
    return total / (2 * net.n)


def check_forward(net: QuadraticNetwork, w: Array) -> None:
    size = output_size(net, w)
    # 2p + K terms an output; the mean adds n.
    relative = (2 * net.p + net.K + net.n) * EPS
    np.testing.assert_allclose(net.outputs(w), scalar_outputs(net, w), rtol=0, atol=relative * size)
    # |r²| changes by 2|r|δr: np entries over 2n.
    tolerance = 2 * net.p * relative * size**2
    assert net.loss(w) == pytest.approx(scalar_loss(net, w), rel=0, abs=tolerance)
    assert net.loss_and_grad(w)[0] == net.loss(w)


@pytest.mark.parametrize("net", all_cases())
def test_forward_and_loss_equal_scalar_loops(net: QuadraticNetwork) -> None:
    check_forward(net, weights(net))


@given(
    st.integers(2, 6), st.integers(1, 5), st.floats(0, 1), st.integers(-3, 3), st.integers(0, 99)
)
def test_forward_and_loss_equal_scalar_loops_at_any_scale(
    p: int, K: int, share: float, decade: int, seed: int
) -> None:
    net = modular(p, K, 2 + round(share * (p * p - 2)), seed)
    check_forward(net, weights(net, seed, 10.0**decade))


def check_gradient(net: QuadraticNetwork, w: Array, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        x = rng.standard_normal(net.n_params)
        # n·p squares are summed, each of a sum of K + n terms; relative to the loss, all positive.
        tolerance = rounding_of(net.loss, w, x, net.n * net.p + 2 * (net.K + net.n))
        slope = exact_derivative(net.loss, w, x)
        assert net.loss_and_grad(w)[1] @ x == pytest.approx(slope, rel=0, abs=tolerance)


@pytest.mark.parametrize("net", all_cases())
def test_gradient_is_the_derivative_of_the_loss(net: QuadraticNetwork) -> None:
    check_gradient(net, weights(net))


@pytest.mark.parametrize("net", all_cases())
def test_loss_and_gradient_equal_the_oracle(net: QuadraticNetwork) -> None:
    w = weights(net, seed=1)
    loss, gradient = oracles.loss_and_grad(net.inputs, net.targets, w, net.K)
    terms = net.n + 2 * net.p + net.K
    assert net.loss(w) == pytest.approx(loss, rel=4 * terms * EPS)
    # Every entry sums at most n products; the largest entry stands for their size.
    atol = 4 * terms * EPS * np.abs(gradient).max()
    np.testing.assert_allclose(net.loss_and_grad(w)[1], gradient, rtol=0, atol=atol)


@given(
    st.integers(2, 6), st.integers(1, 5), st.floats(0, 1), st.integers(-3, 3), st.integers(0, 99)
)
def test_gradient_identities_of_scaling_and_shift(
    p: int, K: int, share: float, decade: int, seed: int
) -> None:
    net = modular(p, K, 2 + round(share * (p * p - 2)), seed)
    w = weights(net, seed, 10.0**decade)
    u, v, W = net.unpack(w)
    du, dv, dW = net.unpack(net.loss_and_grad(w)[1])
    # An entry of the gradient is rounded by about n·eps of its terms: of |r|max·W·z, |r|max·z².
    terms = (net.n + K + p) * EPS * output_size(net, w) / net.n
    z = np.abs(u).max() + np.abs(v).max()
    scaling = 2.0 * (W * dW).sum(axis=0) - (u * du).sum(axis=1) - (v * dv).sum(axis=1)
    assert np.abs(scaling).max() <= 8 * terms * net.n * p * np.abs(W).max() * z**2
    shift = du.sum(axis=1) - dv.sum(axis=1)
    assert np.abs(shift).max() <= 8 * terms * net.n * p * np.abs(W).max() * z


@pytest.mark.parametrize("net", all_cases())
def test_loss_gradient_and_residuals_agree(net: QuadraticNetwork) -> None:
    w = weights(net, seed=2)
    r, (loss, gradient) = net.residuals(w), net.loss_and_grad(w)
    assert r.shape == (net.n * net.p,)
    assert loss == pytest.approx(0.5 * net.hessian_scale * (r @ r), rel=net.n * net.p * EPS)
    atol = 4 * (net.n + net.K + net.p) * EPS * np.abs(gradient).max()
    expected = net.hessian_scale * net.jacobian(w).T @ r
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=atol)
    # C subtracts means, so every output's residuals sum to zero: n roundings of the largest.
    column_sums = r.reshape(net.n, net.p).sum(axis=0)
    assert np.abs(column_sums).max() <= net.n * EPS * net.n * output_size(net, w)


# ---- Jacobian and products ----------------------------------------------------------------------


def test_jacobian_rows_and_columns_by_hand() -> None:
    """Two pairs, p = 2, K = 2: rows (pair 0, output 0), (0, 1), (1, 0), (1, 1); columns
    u_0[0] u_0[1] u_1[0] u_1[1], v alike, then W_00 W_01 W_10 W_11 with W_kj."""
    net = QuadraticNetwork.modular(2, 2, [0, 1], [1, 1])
    u, v, W = [[1, 2], [3, 5]], [[7, 10], [20, 30]], [[1, 4], [6, 9]]
    w = net.pack(u, v, W)
    assert w.tolist() == [1, 2, 3, 5, 7, 10, 20, 30, 1, 4, 6, 9]
    # Pair 0 is (0, 1): z = (1 + 10, 3 + 30) = (11, 33). Pair 1 is (1, 1): z = (12, 35).
    # ∂f_k/∂u_j[a] = 2·W_kj·z_j, for example 2·4·33 = 264 for pair 0, output 0, neuron 1.
    pair_0 = [
        [22, 0, 264, 0, 0, 22, 0, 264, 121, 1089, 0, 0],
        [132, 0, 594, 0, 0, 132, 0, 594, 0, 0, 121, 1089],
    ]
    pair_1 = [
        [0, 24, 0, 280, 0, 24, 0, 280, 144, 1225, 0, 0],
        [0, 144, 0, 630, 0, 144, 0, 630, 0, 0, 144, 1225],
    ]
    half = (np.array(pair_0) - np.array(pair_1)) / 2  # what centring over two pairs leaves
    # Small integers and halves: exact.
    assert net.jacobian(w).tolist() == [*half.tolist(), *(-half).tolist()]


@pytest.mark.parametrize("net", all_cases())
def test_jacobian_is_the_derivative_of_the_centred_outputs(net: QuadraticNetwork) -> None:
    w = weights(net, seed=3)
    J = net.jacobian(w)
    assert J.shape == (net.n * net.p, net.n_params)
    for column, unit in zip(J.T, np.eye(net.n_params), strict=True):
        tolerance = rounding_of(net.residuals, w, unit, 2 * net.p + net.K + net.n)
        slope = exact_derivative(net.residuals, w, unit)
        np.testing.assert_allclose(column, slope, rtol=0, atol=tolerance)


@pytest.mark.parametrize("net", all_cases())
def test_products_equal_the_matrices(net: QuadraticNetwork) -> None:
    w, rng = weights(net, seed=4), np.random.default_rng(5)
    J, H = net.jacobian(w), net.hessian(w)
    x = rng.standard_normal((3, net.n_params))
    y = rng.standard_normal((3, net.n * net.p))
    cases = [(net.jvp, x, x @ J.T), (net.vjp, y, y @ J), (net.hvp, x, x @ H)]
    for product, vectors, expected in cases:
        # Every way sums at most d + np products of size |expected|max, in another order.
        atol = (net.n_params + net.n * net.p) * EPS * np.abs(expected).max()
        np.testing.assert_allclose(product(w, vectors), expected, rtol=0, atol=atol)
        np.testing.assert_allclose(product(w, vectors[0]), expected[0], rtol=0, atol=atol)


@pytest.mark.parametrize("net", all_cases())
def test_jvp_and_vjp_are_adjoint(net: QuadraticNetwork) -> None:
    w, rng = weights(net, seed=6), np.random.default_rng(7)
    x, y = rng.standard_normal(net.n_params), rng.standard_normal(net.n * net.p)
    forth, back = net.jvp(w, x), net.vjp(w, y)
    # Both are sums over the same (np)·d products.
    tolerance = (net.n_params + net.n * net.p) * EPS * np.linalg.norm(forth) * np.linalg.norm(y)
    assert forth @ y == pytest.approx(back @ x, rel=0, abs=tolerance)


def test_jacobian_operator_multiplies_without_the_matrix() -> None:
    net = modular(5, 4, 18)
    w = weights(net, seed=8)
    operator, J = net.jacobian_operator(w), net.jacobian(w)
    assert operator.shape == J.shape and operator.dtype == np.float64
    atol = sum(J.shape) * EPS * np.abs(J).max()
    np.testing.assert_allclose(operator.matmat(np.eye(net.n_params)), J, rtol=0, atol=atol)
    np.testing.assert_allclose(operator.rmatmat(np.eye(len(J))), J.T, rtol=0, atol=atol)
    x, y = np.ones(net.n_params), np.ones((len(J), 1))
    np.testing.assert_allclose(operator @ x, J @ x, rtol=0, atol=atol * net.n_params)
    np.testing.assert_allclose(operator.H @ y, J.T @ y, rtol=0, atol=atol * len(J))


@pytest.mark.parametrize("net", all_cases())
def test_hessian_is_the_derivative_of_the_gradient(net: QuadraticNetwork) -> None:
    w = weights(net, seed=9)
    H = net.hessian(w)

    def gradient(at: Array) -> Array:
        return net.loss_and_grad(at)[1]

    for column, unit in zip(H.T, np.eye(net.n_params), strict=True):
        # Each entry of a gradient sums n·p products of sums of K + n terms.
        tolerance = rounding_of(gradient, w, unit, net.n * net.p + net.K + net.n)
        assert tolerance < 5e-10 * np.abs(H).max()  # the check means something
        slope = exact_derivative(gradient, w, unit)
        np.testing.assert_allclose(column, slope, rtol=0, atol=tolerance)


@pytest.mark.parametrize("net", all_cases())
def test_hessian_is_symmetric(net: QuadraticNetwork) -> None:
    H = net.hessian(weights(net, seed=10))
    atol = net.n * net.p * EPS * np.abs(H).max()
    np.testing.assert_allclose(H, H.T, rtol=0, atol=atol)


@given(
    st.integers(2, 5), st.integers(1, 4), st.floats(0, 1), st.integers(-3, 3), st.integers(0, 99)
)
def test_residual_term_has_no_trace_on_one_hot_pairs(
    p: int, K: int, share: float, decade: int, seed: int
) -> None:
    net = modular(p, K, 2 + round(share * (p * p - 2)), seed)
    w = weights(net, seed, 10.0**decade)
    J, H = net.jacobian(w), net.hessian(w)
    S = H - net.hessian_scale * J.T @ J
    # Diagonal entries of S sum g_ij = Σ_k W_kj r_ik; H and JᵀJ/n are rounded at their own size.
    r_size = output_size(net, w) * np.abs(net.unpack(w)[2]).max() * p
    tolerance = (net.n + net.n_params) * EPS * (np.abs(np.diag(H)).sum() + net.n_params * r_size)
    assert abs(np.trace(S)) <= tolerance
    W = slice(2 * p * K, None)
    assert np.abs(S[W, W]).max() <= tolerance


def test_residual_term_has_a_trace_on_gaussian_inputs() -> None:
    """tr S = (2/n) Σ g_ij |x_i|² vanishes only where all |x_i| are equal."""
    net = gaussian(3, 4, 9)
    w = weights(net)
    J = net.jacobian(w)
    S = net.hessian(w) - net.hessian_scale * J.T @ J
    assert abs(np.trace(S)) > 1e-3 * np.abs(S).max()


@pytest.mark.parametrize("net", all_cases())
def test_planted_teacher_has_zero_loss_and_a_gauss_newton_hessian(net: QuadraticNetwork) -> None:
    w = weights(net, seed=11)
    planted = net.with_targets(net.outputs(w))
    loss, gradient = planted.loss_and_grad(w)
    assert loss == 0.0 and not gradient.any() and not planted.residuals(w).any()  # f − f, exactly
    J = planted.jacobian(w)
    assert np.array_equal(planted.hessian(w), planted.hessian_scale * (J.T @ J))  # S adds zeros
    assert (planted.a is None) == (net.a is None)
    assert planted.rank_bound() == net.rank_bound()


# ---- symmetry -----------------------------------------------------------------------------------


@pytest.mark.parametrize("net", all_cases())
def test_null_directions_lie_in_the_kernel_and_are_independent(net: QuadraticNetwork) -> None:
    w = weights(net, seed=12)
    J, null = net.jacobian(w), net.null_directions(w)
    per_neuron = 2 if net.a is not None else 1
    assert null.shape == (per_neuron * net.K, net.n_params)
    # Each row of J·N sums up to 3p products that cancel: 3p·eps of the largest times the norm.
    tolerance = 3 * net.p * EPS * np.abs(J).max() * np.linalg.norm(null, axis=1).max()
    assert np.abs(J @ null.T).max() <= tolerance
    assert np.linalg.matrix_rank(null) == len(null)
    assert net.symmetry_free_dimension() == net.n_params - len(null)


def test_the_shift_is_no_symmetry_of_gaussian_inputs() -> None:
    net = gaussian(3, 1, 9)
    w = weights(net)
    shift = net.pack(np.ones((1, 3)), -np.ones((1, 3)), np.zeros((3, 1)))
    assert np.abs(net.jvp(w, shift)).max() > 0.1


@given(st.integers(2, 5), st.integers(1, 4), st.floats(-3, 3), st.floats(-1, 1), st.integers(0, 99))
def test_loss_is_invariant_under_scaling_and_shift_of_each_neuron(
    p: int, K: int, log_scale: float, shift: float, seed: int
) -> None:
    net = modular(p, K, p * p - 1, seed)
    w = weights(net, seed)
    u, v, W = net.unpack(w)
    scale = 10.0 ** (log_scale * np.linspace(-1, 1, K))[:, None] if K > 1 else 10.0**log_scale
    moved = net.pack(scale * (u + shift), scale * (v - shift), W / np.square(scale).T)
    # The shifted z cancels back from terms up to |shift| larger; three roundings a weight.
    z_size = np.abs(u).max() + np.abs(v).max() + 2 * abs(shift)
    size = K * np.abs(W).max() * z_size**2 + 1
    tolerance = 2 * p * (2 * p + K + net.n + 8) * EPS * size**2
    assert net.loss(moved) == pytest.approx(net.loss(w), rel=0, abs=tolerance)


# ---- neurons in use -----------------------------------------------------------------------------


def test_effective_neurons_of_handmade_networks() -> None:
    net = modular(3, 4, 9)
    u, v, W = np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((3, 4))
    assert net.effective_neurons(net.pack(u, v, W)) == 0  # all zero
    u[:, 0] = 1.0
    assert net.effective_neurons(net.pack(u, v, W)) == 0  # inputs, but nothing reads them
    W[1] = [1.0, 0.0, 0.011, 0.009]
    assert net.effective_neurons(net.pack(u, v, W)) == 2  # 1, 0, just above and just below 1 %
    v[3, 2] = 1.0  # doubles |u|² + |v|² of the last: 0.018
    assert net.effective_neurons(net.pack(u, v, W)) == 3
    W[1, 1] = 1000.0
    assert net.effective_neurons(net.pack(u, v, W)) == 1  # the largest sets the measure


def test_effective_neurons_count_the_one_percent_itself() -> None:
    net = modular(2, 2, 4)
    u, v, W = np.eye(2), np.zeros((2, 2)), np.array([[100.0, 1.0], [0.0, 0.0]])
    assert net.effective_neurons(net.pack(u, v, W)) == 2


def test_effective_neurons_do_not_change_under_the_scaling_symmetry() -> None:
    net = modular(5, 6, 20)
    u, v, W = net.unpack(weights(net, seed=13))
    W = W * np.array([1, 1, 1, 1e-3, 1e-4, 0])
    scale = np.array([1, 10, 0.1, 3, 100, 1e3])[:, None]
    moved = net.pack(scale * u, scale * v, W / np.square(scale).T)
    assert net.effective_neurons(moved) == net.effective_neurons(net.pack(u, v, W)) == 3


# ---- rank bound ---------------------------------------------------------------------------------


def numerical_rank(net: QuadraticNetwork, seed: int = 0) -> int:
    """Rank of J at generic weights. The cut must be a cliff: no singular value within a factor of
    1e3 on both sides of it (rounding sits at 1e-15, generic values of these small J above 1e-8)."""
    s = np.linalg.svd(net.jacobian(weights(net, seed)), compute_uv=False)
    r = int(np.count_nonzero(s > 1e-10 * s[0]))
    assert s[0] == 0 or r == len(s) or s[r] < 1e-3 * s[r - 1]
    return r


def random_one_hot(seed: int) -> QuadraticNetwork:
    rng = np.random.default_rng([seed, 400])
    p, K = int(rng.integers(2, 6)), int(rng.integers(1, 13))
    return modular(p, K, int(rng.integers(2, p * p + 1)), seed)


def seed_formula(net: QuadraticNetwork) -> int:
    return min(net.K * (3 * net.p - 2), net.p * (net.n - 1))


def test_rank_bound_is_the_numerical_rank_of_random_one_hot_networks() -> None:
    nets = [random_one_hot(seed) for seed in range(300)]
    ranks = [numerical_rank(net) for net in nets]
    assert [net.rank_bound() for net in nets] == ranks
    # The short formula min{K(3p−2), p(n−1)} is an upper bound too, and too high in some cases.
    short = [seed_formula(net) for net in nets]
    assert all(s >= r for s, r in zip(short, ranks, strict=True))
    assert sum(s > r for s, r in zip(short, ranks, strict=True)) >= 10


PAIR_SETS = {
    "two components": (6, 6, [(a, b) for a in range(6) for b in range(6) if a // 3 == b // 3]),
    "perfect matching": (4, 2, [(0, 0), (1, 1), (2, 2), (3, 3)]),
    "one value of a": (4, 3, [(2, 0), (2, 1), (2, 2), (2, 3)]),
    "path": (4, 3, [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3)]),
    "pendant pair": (5, 7, [*itertools.product(range(4), range(5)), (4, 0)]),
    "fewer neurons than outputs": (5, 2, list(itertools.product(range(5), range(5)))),
    "full grid": (3, 4, list(itertools.product(range(3), range(3)))),
    "wide": (3, 30, list(itertools.product(range(3), range(3)))),
    "two pairs": (2, 6, [(0, 0), (1, 0)]),
}


@pytest.mark.parametrize("name", PAIR_SETS)
def test_rank_bound_on_chosen_pair_sets(name: str) -> None:
    p, K, pairs = PAIR_SETS[name]
    a, b = np.array(pairs).T
    net = QuadraticNetwork.modular(p, K, a, b)
    assert net.rank_bound() == numerical_rank(net)
    assert isinstance(net.rank_bound(), int)


def test_the_wide_limit_of_the_full_grid_is_reached() -> None:
    p, K, pairs = PAIR_SETS["wide"]
    a, b = np.array(pairs).T
    assert QuadraticNetwork.modular(p, K, a, b).rank_bound() == p * (len(pairs) - 1)


def components(p: int, pairs: list[tuple[int, int]]) -> int:
    """Connected components of the 2p values under the pairs, by relabelling."""
    label = list(range(2 * p))
    for a, b in pairs:
        old, new = label[p + b], label[a]
        label = [new if other == old else other for other in label]
    return len(set(label))


def brute_force_bound(p: int, K: int, pairs: list[tuple[int, int]]) -> int:
    """The rank bound with the minimum over R taken over every subset of the pairs."""
    n = len(pairs)
    bounds = [p * (n - 1)] + ([K * (n - 1 + p - K)] if min(p, n - 1) > K else [])
    for size in range(n + 1):
        for left in itertools.combinations(pairs, size):
            bounds.append(p * (n - size) + K * (3 * p - 1 - components(p, list(left))))
    return min(bounds)


def test_greedy_peeling_finds_the_best_of_all_edge_subsets() -> None:
    rng = np.random.default_rng(14)
    for _ in range(40):
        p = int(rng.integers(2, 5))
        n = int(rng.integers(2, min(p * p, 8) + 1))
        a, b = np.divmod(rng.permutation(p * p)[:n], p)
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        for K in (1, 2, 4, 9):
            bound = QuadraticNetwork.modular(p, K, a, b).rank_bound()
            assert bound == brute_force_bound(p, K, pairs), (p, K, pairs)


@pytest.mark.parametrize(("p", "K"), [(2, K) for K in range(1, 8)] + [(3, K) for K in (1, 4, 7, 9)])
def test_rank_bound_on_gaussian_inputs(p: int, K: int) -> None:
    for n in (3, 2 * p + 3, p * (2 * p + 1) + 5):
        net = gaussian(p, K, n)
        assert net.rank_bound() == numerical_rank(net)


def test_the_defective_gaussian_case() -> None:
    """p = 3, K = 8: the count says 63, every choice of weights has 62."""
    net = gaussian(3, 8, 40)
    assert net.rank_bound() == 63
    assert [numerical_rank(net, seed) for seed in range(3)] == [62, 62, 62]


# ---- the frozen first layer ---------------------------------------------------------------------


@pytest.mark.parametrize("net", all_cases())
def test_frozen_view_is_the_network_with_its_first_layer_fixed(net: QuadraticNetwork) -> None:
    w = weights(net, seed=15)
    frozen = net.frozen(w)
    W = frozen.output_weights(w)
    assert frozen.n_params == net.p * net.K and frozen.hessian_scale == net.hessian_scale
    terms, size = net.n + net.K + net.p, output_size(net, w)
    assert frozen.loss(W) == pytest.approx(
        net.loss(w), rel=0, abs=4 * net.p * terms * EPS * size**2
    )
    J_W = net.jacobian(w)[:, 2 * net.p * net.K :]
    np.testing.assert_allclose(
        frozen.jacobian(W), J_W, rtol=0, atol=terms * EPS * np.abs(J_W).max()
    )
    gradient = net.loss_and_grad(w)[1][2 * net.p * net.K :]
    atol = 4 * terms * EPS * size * np.abs(frozen.features).max()
    np.testing.assert_allclose(frozen.loss_and_grad(W)[1], gradient, rtol=0, atol=atol)


@pytest.mark.parametrize("net", all_cases())
def test_frozen_view_keeps_the_identities_of_a_model(net: QuadraticNetwork) -> None:
    frozen = net.frozen(weights(net, seed=16))
    rng = np.random.default_rng(17)
    w, x = rng.standard_normal((2, frozen.n_params))
    y = rng.standard_normal(frozen.n * frozen.p)
    J, r, (loss, gradient) = frozen.jacobian(w), frozen.residuals(w), frozen.loss_and_grad(w)
    relative = 4 * (frozen.n * frozen.p + frozen.K) * EPS
    scale = frozen.hessian_scale

    def close(actual: Any, expected: Any) -> None:
        atol = relative * np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)

    close(loss, 0.5 * scale * (r @ r))
    close(gradient, scale * J.T @ r)
    close(frozen.jvp(w, x), J @ x)
    close(frozen.vjp(w, y), J.T @ y)
    close(frozen.hvp(w, x), scale * J.T @ (J @ x))
    tolerance = rounding_of(frozen.loss, w, x, frozen.n * frozen.p + frozen.n + frozen.K)
    assert gradient @ x == pytest.approx(exact_derivative(frozen.loss, w, x), rel=0, abs=tolerance)


@pytest.mark.parametrize(("p", "K", "n"), [(3, 4, 9), (5, 40, 20), (4, 6, 5)])
def test_frozen_rank_is_p_times_the_rank_of_the_centred_features(p: int, K: int, n: int) -> None:
    net = modular(p, K, n)
    frozen = net.frozen(weights(net))
    rank = np.linalg.matrix_rank(frozen.jacobian(np.zeros(frozen.n_params)))
    assert rank == p * np.linalg.matrix_rank(frozen.features)
    assert np.linalg.matrix_rank(frozen.features) == min(K, n - 1)  # generic: full


# ---- batching and bits --------------------------------------------------------------------------

BATCHED = [
    *all_cases(),
    pytest.param(modular(5, 1, 18), id="one-neuron"),
    pytest.param(modular(11, 33, 97), id="modular-11-33-97"),
]


@pytest.mark.parametrize("net", BATCHED)
def test_a_row_of_a_batch_has_the_bits_it_has_alone(net: QuadraticNetwork) -> None:
    batch = np.random.default_rng(18).standard_normal((5, net.n_params))
    losses, gradients = net.loss_and_grad(batch)
    outputs, residuals = net.outputs(batch), net.residuals(batch)
    pairs_of_rows = np.concatenate(
        [net.loss_and_grad(batch[:2])[1], net.loss_and_grad(batch[2:])[1]]
    )
    assert np.array_equal(pairs_of_rows, gradients)
    assert np.array_equal(losses, net.loss(batch))
    for row, w in enumerate(batch):
        loss, gradient = net.loss_and_grad(w)
        assert loss == np.ravel(losses)[row] == net.loss(w)
        assert np.array_equal(gradient, gradients[row])
        assert np.array_equal(net.outputs(w), outputs[row])
        assert np.array_equal(net.residuals(w), residuals[row])


def test_frozen_rows_have_the_bits_they_have_alone() -> None:
    net = modular(5, 4, 18)
    frozen = net.frozen(weights(net))
    batch = np.random.default_rng(19).standard_normal((5, frozen.n_params))
    losses, gradients = frozen.loss_and_grad(batch)
    for row, w in enumerate(batch):
        loss, gradient = frozen.loss_and_grad(w)
        assert loss == np.ravel(losses)[row] == frozen.loss(w)
        assert np.array_equal(gradient, gradients[row])


def test_results_belong_to_the_caller() -> None:
    """The work arrays of one call are reused by the next; nothing returned may live in them."""
    net = modular(5, 4, 18)
    w, other = weights(net, 1), weights(net, 2)
    loss, gradient = net.loss_and_grad(w)
    kept = loss, gradient.copy(), w.copy()
    net.loss_and_grad(other)
    gradient_again = net.loss_and_grad(w)[1]
    gradient_again *= 0.0
    assert loss == kept[0] and np.array_equal(gradient, kept[1]) and np.array_equal(w, kept[2])
    assert net.loss_and_grad(w)[0] == loss


def test_a_copy_sent_to_another_process_computes_the_same_bits() -> None:
    net = modular(5, 4, 18)
    batch = np.random.default_rng(20).standard_normal((3, net.n_params))
    expected = net.loss_and_grad(batch)
    losses, gradients = pickle.loads(pickle.dumps(net)).loss_and_grad(batch)
    assert np.array_equal(losses, expected[0]) and np.array_equal(gradients, expected[1])


@pytest.mark.parametrize("case", MODULAR_CASES)
def test_general_inputs_that_are_one_hot_equal_the_modular_network(
    case: tuple[int, int, int],
) -> None:
    net = modular(*case)
    general = QuadraticNetwork(net.inputs, net.targets, net.K)
    batch = np.random.default_rng(21).standard_normal((3, net.n_params))
    # Zeros add nothing and z is one sum of two, so the outputs agree to the bit; the gradient sums
    # at most n products in another order.
    assert np.array_equal(net.outputs(batch), general.outputs(batch))
    gradients = general.loss_and_grad(batch)[1]
    atol = net.n * EPS * np.abs(gradients).max()
    np.testing.assert_allclose(net.loss_and_grad(batch)[1], gradients, rtol=0, atol=atol)
    assert np.array_equal(net.jacobian(batch[0]), general.jacobian(batch[0]))
    assert np.array_equal(net.hessian(batch[0]), general.hessian(batch[0]))


def test_modular_inputs_and_targets_are_the_oracles() -> None:
    net = modular(6, 2, 20)
    assert net.a is not None and net.b is not None
    x, y = oracles.one_hot_task(6, net.a, net.b)
    assert np.array_equal(net.inputs, x) and np.array_equal(net.targets, y)


# ---- packing ------------------------------------------------------------------------------------


@given(st.integers(2, 7), st.integers(1, 6), st.integers(0, 3), st.integers(0, 99))
def test_pack_and_unpack_undo_each_other(p: int, K: int, rows: int, seed: int) -> None:
    net = modular(p, K, p * p)
    shape = (rows, net.n_params) if rows else (net.n_params,)
    w = np.random.default_rng(seed).standard_normal(shape)
    u, v, W = net.unpack(w)
    assert u.shape == v.shape == (*shape[:-1], K, p) and W.shape == (*shape[:-1], p, K)
    assert np.array_equal(net.pack(u, v, W), w)
    again = net.unpack(net.pack(u, v, W))
    assert all(np.array_equal(x, y) for x, y in zip(again, (u, v, W), strict=True))


def test_unpack_returns_views() -> None:
    net = modular(3, 2, 9)
    w = np.zeros(net.n_params)
    net.unpack(w)[2][1, 0] = 5.0  # W_10, column 2pK + 1·K + 0
    assert np.flatnonzero(w).tolist() == [2 * 3 * 2 + 2]


def test_initial_weights_depend_on_the_seed_alone() -> None:
    net = modular(5, 40, 20)
    w = net.initial_weights(3, 0.1)
    assert np.array_equal(w, net.initial_weights(3, 0.1))
    assert not np.array_equal(w, net.initial_weights(4, 0.1))
    # 600 draws: the standard deviation is known to 1/√1200 = 2.9 %; five of those.
    assert w.std() == pytest.approx(0.1, rel=5 / math.sqrt(2 * net.n_params))


# ---- accuracy -----------------------------------------------------------------------------------


def table_network(p: int, pairs: list[tuple[int, int]]) -> tuple[QuadraticNetwork, Array]:
    """One neuron per pair of the grid, u = e_a, v = e_b, read at half weight by output a + b: then
    f_k = 1 + 1[a + b = k], which is the target but for the offset."""
    a, b = np.divmod(np.arange(p * p), p)
    W = 0.5 * np.eye(p)[:, (a + b) % p]
    left, right = np.array(pairs).T
    net = QuadraticNetwork.modular(p, p * p, left, right)
    return net, net.pack(np.eye(p)[a], np.eye(p)[b], W)


@pytest.mark.parametrize("p", [2, 3, 4, 7])
def test_accuracy_of_a_network_that_knows_the_whole_table(p: int) -> None:
    grid = list(itertools.product(range(p), range(p)))
    net, w = table_network(p, grid[:-1])
    assert net.accuracy(w) == (1.0, 1.0)
    assert net.loss(w) <= p * (net.n * EPS * 2) ** 2  # C f = C y but for the rounding of the means
    u, v, W = net.unpack(w)
    assert net.accuracy(net.pack(u, v, -W)) == (0.0, 0.0)  # now the right answer scores lowest
    assert table_network(p, grid)[0].accuracy(w) == (1.0, None)  # nothing is held out


def test_accuracy_adds_the_offset_that_the_loss_leaves_free() -> None:
    p, grid = 3, list(itertools.product(range(3), range(3)))
    net, w = table_network(p, grid[:6])
    u, v, W = net.unpack(w)
    u, v, W = u.copy(), v.copy(), W.copy()
    # The last neuron, pair (2, 2), becomes constant and shouts for output 0.
    u[-1], v[-1], W[:, -1] = 1.0, 0.0, [1e3, 0, 0]
    trained, held_out = net.accuracy(net.pack(u, v, W))
    assert trained == 1.0
    # Held out are (2, 0), (2, 1), (2, 2); the last has lost its neuron: f_1 is 1, but so are all
    # others once ½(1 + 1 + 2) is gone from f_1: f_0 = f_2 = 1 against f_1 = 0.
    assert held_out == pytest.approx(2 / 3)


def test_accuracy_equals_a_scalar_count() -> None:
    net = modular(5, 3, 12)
    assert net.a is not None and net.b is not None
    for seed in range(5):
        w = weights(net, seed)
        u, v, W = net.unpack(w)
        trained = set(zip(net.a.tolist(), net.b.tolist(), strict=True))
        offset = net.targets.mean(axis=0) - net.outputs(w).mean(axis=0)
        right: dict[bool, list[bool]] = {True: [], False: []}
        for a, b in itertools.product(range(5), range(5)):
            f = W @ (u[:, a] + v[:, b]) ** 2 + offset
            right[(a, b) in trained].append(int(np.argmax(f)) == (a + b) % 5)
        expected = (np.mean(right[True]), np.mean(right[False]))
        assert net.accuracy(w) == pytest.approx(expected, rel=2 * EPS)


# ---- pairs --------------------------------------------------------------------------------------


@given(st.integers(2, 12), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 50))
def test_pairs_are_nested_distinct_and_in_grid_order(
    p: int, one: float, other: float, seed: int
) -> None:
    small, large = sorted(max(fraction, 2 / (p * p)) for fraction in (one, other))
    chosen = []
    for fraction in (small, large):
        a, b = modular_pairs(p, fraction, seed)
        assert len(a) == len(b) == round(fraction * p * p)
        index = a * p + b
        assert (np.diff(index) > 0).all() and index[0] >= 0 and index[-1] < p * p
        assert a.max() < p and b.max() < p
        chosen.append(set(index.tolist()))
    assert chosen[0] <= chosen[1]


def test_pairs_depend_on_the_seed_and_on_p() -> None:
    a, b = modular_pairs(7, 0.5, 1)
    again = modular_pairs(7, 0.5, 1)
    assert np.array_equal(a, again[0]) and np.array_equal(b, again[1])
    assert not np.array_equal(a * 7 + b, np.dot([7, 1], modular_pairs(7, 0.5, 2)))
    full = modular_pairs(5, 1.0, 3)
    assert np.array_equal(full[0] * 5 + full[1], np.arange(25))


# ---- bad input ----------------------------------------------------------------------------------

NET = modular(3, 2, 5)
W_OK = np.zeros(NET.n_params)
BAD_CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "pairs: p": (lambda: modular_pairs(1, 0.5, 0), "p must be at least 2, got 1"),
    "pairs: zero": (lambda: modular_pairs(5, 0.0, 0), r"fraction must lie in \(0, 1\], got 0.0"),
    "pairs: above one": (lambda: modular_pairs(5, 1.5, 0), "got 1.5"),
    "pairs: NaN": (lambda: modular_pairs(5, math.nan, 0), "got nan"),
    "pairs: too few": (lambda: modular_pairs(5, 0.05, 0), "leaves 1: at least 2 are needed"),
    "modular: p": (lambda: QuadraticNetwork.modular(1, 2, [0, 0], [0, 0]), "got 1"),
    "modular: lengths": (lambda: QuadraticNetwork.modular(3, 2, [0, 1], [0]), "one length"),
    "modular: floats": (lambda: QuadraticNetwork.modular(3, 2, [0.0, 1.0], [0, 1]), "float64"),
    "modular: shape": (lambda: QuadraticNetwork.modular(3, 2, [[0, 1]], [[0, 1]]), r"\(1, 2\)"),
    "modular: too large": (lambda: QuadraticNetwork.modular(3, 2, [0, 3], [0, 1]), r"in 0..2: got"),
    "modular: negative": (lambda: QuadraticNetwork.modular(3, 2, [0, 1], [-1, 1]), "-1..1"),
    "modular: twice": (lambda: QuadraticNetwork.modular(3, 2, [1, 1], [2, 2]), "occurs twice"),
    "modular: one pair": (lambda: QuadraticNetwork.modular(3, 2, [1], [2]), "two pairs, got 1"),
    "modular: no neuron": (lambda: QuadraticNetwork.modular(3, 0, [0, 1], [0, 1]), "K must be"),
    "general: inputs": (lambda: QuadraticNetwork(np.ones((4, 5)), np.ones((4, 3)), 2), r"\(4, 5\)"),
    "general: rows": (lambda: QuadraticNetwork(np.ones((5, 6)), np.ones((4, 3)), 2), r"\(5, 6\)"),
    "general: flat": (lambda: QuadraticNetwork(np.ones(6), np.ones(3), 2), r"\(6,\)"),
    "general: one pair": (lambda: QuadraticNetwork(np.ones((1, 6)), np.ones((1, 3)), 2), "got 1"),
    "general: NaN": (
        lambda: QuadraticNetwork(np.full((4, 6), np.nan), np.ones((4, 3)), 2),
        "must be finite",
    ),
    "general: infinity": (
        lambda: QuadraticNetwork(np.ones((4, 6)), np.full((4, 3), np.inf), 2),
        "must be finite",
    ),
    "targets": (lambda: NET.with_targets(np.ones((5, 2))), r"\(5, 2\)"),
    "pack": (lambda: NET.pack(np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 3))), "got shapes"),
    "unpack": (lambda: NET.unpack(np.zeros(7)), r"weights must be \(18,\).*got \(7,\)"),
    "weights: axes": (lambda: NET.loss_and_grad(np.zeros((1, 1, 18))), r"\(1, 1, 18\)"),
    "weights: scalar": (lambda: NET.loss(0.0), r"got \(\)"),
    "jacobian: batch": (lambda: NET.jacobian(np.zeros((2, 18))), "at one point"),
    "jvp": (lambda: NET.jvp(W_OK, np.zeros(15)), r"got \(15,\)"),
    "vjp": (lambda: NET.vjp(W_OK, np.zeros(18)), r"y must be \(15,\) or \(B, 15\): got \(18,\)"),
    "accuracy: general": (
        lambda: gaussian(3, 2, 5).accuracy(W_OK),
        "needs the modular-addition task",
    ),
    "frozen: shapes": (lambda: FrozenFirstLayer(np.ones((4, 2)), np.ones((5, 3))), r"\(5, 3\)"),
    "frozen: flat": (lambda: FrozenFirstLayer(np.ones(4), np.ones((4, 3))), r"\(4,\)"),
    "frozen: weights": (lambda: NET.frozen(W_OK).loss(np.zeros(7)), r"\(6,\).*got \(7,\)"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_refused_with_its_value(name: str) -> None:
    call, message = BAD_CALLS[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_any_modulus_from_two_on_is_allowed() -> None:
    for p in (2, 4, 6, 9, 15):
        net = QuadraticNetwork.modular(p, 2, *modular_pairs(p, 1.0, 0))
        assert net.targets.sum() == p * p


# ---- what must fail -----------------------------------------------------------------------------


class HalfForgotten(QuadraticNetwork):
    """L_n without the ½, and its gradient to match."""

    def loss(self, w: Any) -> Any:
        return 2.0 * super().loss(w)

    def loss_and_grad(self, w: Any) -> Any:
        loss, gradient = super().loss_and_grad(w)
        return 2.0 * loss, 2.0 * gradient


class NotCentred(QuadraticNetwork):
    """Residuals that keep their mean."""

    def _centre(self, f: Array) -> Array:
        return f


class TwoForgotten(QuadraticNetwork):
    """∂u and ∂v without the 2 of the square."""

    def loss_and_grad(self, w: Any) -> Any:
        loss, gradient = super().loss_and_grad(w)
        return loss, gradient * np.repeat([0.5, 0.5, 1.0], self.p * self.K)


def mutant(kind: type[QuadraticNetwork]) -> tuple[QuadraticNetwork, Array]:
    net = kind.modular(5, 4, *modular_pairs(5, 0.7, 0))
    assert isinstance(net, kind)
    return net, weights(net)


@pytest.mark.parametrize("kind", [HalfForgotten, NotCentred])
def test_a_wrong_loss_is_caught(kind: type[QuadraticNetwork]) -> None:
    with pytest.raises(AssertionError):
        check_forward(*mutant(kind))


def test_a_wrong_factor_in_the_gradient_is_caught() -> None:
    check_gradient(*mutant(QuadraticNetwork))
    with pytest.raises(AssertionError):
        check_gradient(*mutant(TwoForgotten))


def test_a_bound_without_peeling_or_the_narrow_term_is_caught() -> None:
    """The formula of the connected graph alone, with neither term, is above the rank."""
    for name in ("two components", "pendant pair", "path"):
        p, K, pairs = PAIR_SETS[name]
        a, b = np.array(pairs).T
        net = QuadraticNetwork.modular(p, K, a, b)
        assert seed_formula(net) > numerical_rank(net)


def test_the_constant_of_neurons_in_use_is_one_percent() -> None:
    assert qnet.NEURON_IN_USE == 0.01
