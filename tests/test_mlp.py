"""The multilayer perceptron against a scalar loop, complex steps, differences and closed forms."""

from __future__ import annotations

import cmath
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chains import Model
from mlp import MLP, UnmovedFunction

EPS = float(np.finfo(float).eps)
DATA = Path(__file__).parents[1] / "data"


# ---- the slow obvious version ------------------------------------------------------------------


def oracle_activation(name: str, z: complex) -> complex:
    """φ(z); the real part decides whether a ReLU is on, so a kink counts as off."""
    if name == "relu":
        return z if z.real > 0 else 0.0
    return cmath.tanh(z) if name == "tanh" else z


def oracle_outputs(net: MLP, w: np.ndarray) -> np.ndarray:
    """Outputs (n, C) by scalar loops, from the layout: per layer, per neuron, weights, bias.

    Takes complex weights, so that the imaginary part of f at w + i h e_j is h times a column of J,
    exact to rounding: no difference is taken.
    """
    factors = iter(net.multipliers)
    a = [[complex(value) for value in row] for row in net.inputs]
    place = 0
    widths = [*net.widths, net.n_outputs]
    for layer, width in enumerate(widths):
        mu_w, mu_b = next(factors), next(factors) if net.biases else 0.0
        z = []
        for row in a:
            at, sums = place, []
            for _ in range(width):
                total = 0j
                for value in row:
                    total += mu_w * complex(w[at]) * value
                    at += 1
                if net.biases:
                    total += mu_b * complex(w[at])
                    at += 1
                sums.append(total)
            z.append(sums)
        place = at
        last = layer == len(widths) - 1
        a = z if last else [[oracle_activation(net.activation, v) for v in row] for row in z]
    assert place == net.n_params
    return np.array(a)


def oracle_loss(net: MLP, w: np.ndarray) -> float:
    total = 0.0
    f = oracle_outputs(net, w).real
    for i in range(net.n):
        for k in range(net.n_outputs):
            total += (f[i, k] - net.targets[i, k]) ** 2
    return total / {"nC": net.n * net.n_outputs, "n": net.n, "2n": 2 * net.n}[net.divisor]


def oracle_jacobian(net: MLP, w: np.ndarray) -> np.ndarray:
    """J (m, d) column by column with a complex step of 1e-30."""
    columns = []
    for j in range(net.n_params):
        moved = w.astype(complex)
        moved[j] += 1e-30j
        columns.append(oracle_outputs(net, moved).imag.ravel() / 1e-30)
    return np.stack(columns, axis=1)


def majorant(net: MLP, w: np.ndarray) -> MLP:
    """The identity network on |x|: its outputs at |w| bound every partial sum of f, as |φ(z)| ≤ |z|
    and |φ′| ≤ 1."""
    return MLP(
        np.abs(net.inputs),
        net.targets,
        net.widths,
        activation="identity",
        biases=net.biases,
        multipliers=net.multipliers,
    )


def rounding(net: MLP) -> float:
    """A bound of the relative rounding of a sum over all paths: every layer adds at most H + 4
    roundings (its dot product, its multiplier, φ), forward and backward."""
    return 2.0 * EPS * sum(size + 4 for size in (net.inputs.shape[1], *net.widths, net.n_outputs))


# ---- networks to try ---------------------------------------------------------------------------


@st.composite
def networks(draw: st.DrawFn, activations: tuple[str, ...] = ("relu", "tanh", "identity")) -> MLP:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, D, C = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    widths = draw(st.lists(st.integers(1, 4), max_size=3))
    biases = draw(st.booleans())
    count = (len(widths) + 1) * (1 + biases)
    return MLP(
        rng.standard_normal((n, D)),
        rng.standard_normal((n, C)),
        widths,
        activation=draw(st.sampled_from(activations)),
        biases=biases,
        divisor=draw(st.sampled_from(["nC", "n", "2n"])),
        multipliers=list(rng.uniform(0.5, 2.0, count)) if draw(st.booleans()) else None,
    )


def normal(net: MLP, seed: int, *lead: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((*lead, net.n_params))


def fixed_network(activation: str = "tanh", divisor: Literal["nC", "n", "2n"] = "nC") -> MLP:
    """7 examples, 5-4-6-3; large enough to mix, small enough for a dense Hessian (75 weights)."""
    rng = np.random.default_rng(20)
    inputs, targets = rng.standard_normal((7, 5)), rng.standard_normal((7, 3))
    return MLP(inputs, targets, [4, 6], activation=activation, divisor=divisor)


def richardson(g: Callable[[float], np.ndarray], h: float) -> np.ndarray:
    """g′(0) from central differences at h and 2h, extrapolated: the error is 4h⁴g⁽⁵⁾/120, 0 for
    polynomials of degree 4, plus rounding of at most 2·EPS·max|g|/h."""
    return (4 * (g(h) - g(-h)) / (2 * h) - (g(2 * h) - g(-2 * h)) / (4 * h)) / 3


# ---- forward, loss, batches --------------------------------------------------------------------


def test_speaks_the_model_protocol() -> None:
    model: Model = fixed_network()
    assert (model.n, model.n_params, model.hessian_scale) == (7, 24 + 30 + 21, 2 / 21)


@given(networks(), st.integers(0, 2**32))
def test_outputs_and_loss_match_the_scalar_loop(net: MLP, seed: int) -> None:
    w = normal(net, seed)
    bound = majorant(net, w).outputs(np.abs(w))
    error = np.abs(net.outputs(w) - oracle_outputs(net, w).real)
    assert np.all(error <= rounding(net) * bound)
    # |Δ|r|²| ≤ Σ 2|r||Δr| + the rounding of a sum of m squares; the majorant bounds |f|.
    reach = bound + np.abs(net.targets)
    slack = (
        (2 * rounding(net) + net.targets.size * EPS) * 0.5 * net.hessian_scale * np.sum(reach**2)
    )
    assert abs(net.loss(w) - oracle_loss(net, w)) <= slack


@given(networks(), st.integers(0, 2**32), st.integers(1, 4))
def test_a_batch_is_the_loop_over_it_bit_for_bit(net: MLP, seed: int, chains: int) -> None:
    w = normal(net, seed, chains)
    loss, grad = map(np.asarray, net.loss_and_grad(w))
    for c in range(chains):
        alone, gradient = net.loss_and_grad(w[c])
        assert loss[c] == alone == net.loss(w[c]) == np.asarray(net.loss(w))[c]
        assert np.array_equal(grad[c], gradient)
        assert np.array_equal(net.residuals(w)[c], net.residuals(w[c]))
        assert np.array_equal(net.outputs(w)[c], net.outputs(w[c]))


def test_a_batch_is_the_loop_over_it_at_blocked_sizes() -> None:
    # Past the sizes at which BLAS starts to block its products.
    rng = np.random.default_rng(3)
    net = MLP(rng.standard_normal((130, 70)), rng.standard_normal((130, 10)), [65, 33])
    w = normal(net, 4, 3)
    loss, grad = map(np.asarray, net.loss_and_grad(w))
    for c in range(3):
        alone, gradient = net.loss_and_grad(w[c])
        assert loss[c] == alone and np.array_equal(grad[c], gradient)


@given(networks(), st.integers(0, 2**32), st.integers(1, 3))
def test_products_take_batches_of_vectors(net: MLP, seed: int, count: int) -> None:
    w, x = normal(net, seed), normal(net, seed + 1, count)
    y = np.random.default_rng(seed).standard_normal((count, net.targets.size))
    for verb, vectors in [("jvp", x), ("vjp", y), ("hvp", x), ("gauss_newton_product", x)]:
        product = getattr(net, verb)
        alone = [product(w, vector) for vector in vectors]
        assert np.array_equal(product(w, vectors), alone)


@pytest.mark.parametrize(("divisor", "scale"), [("nC", 2 / 21), ("n", 2 / 7), ("2n", 1 / 7)])
def test_the_divisor_sets_loss_and_hessian_scale(
    divisor: Literal["nC", "n", "2n"], scale: float
) -> None:
    net = fixed_network(divisor=divisor)
    w, x = normal(net, 1), normal(net, 2)
    assert net.hessian_scale == scale
    # One rounding per operation on numbers of one sign: 21 additions, a product, a quotient.
    assert net.loss(w) == pytest.approx(0.5 * scale * np.sum(net.residuals(w) ** 2), rel=25 * EPS)
    base = fixed_network()
    ratio = scale / base.hessian_scale
    for ours, theirs in [
        (net.loss_and_grad(w)[1], base.loss_and_grad(w)[1]),
        (net.hvp(w, x), base.hvp(w, x)),
    ]:
        # The scale enters once, at the output: the rest is the same sums, rounded anew.
        np.testing.assert_allclose(
            ours, ratio * theirs, rtol=0, atol=100 * EPS * np.abs(ours).max()
        )


# ---- Jacobian, gradient, products --------------------------------------------------------------


@given(networks(), st.integers(0, 2**32))
def test_jacobian_matches_complex_steps(net: MLP, seed: int) -> None:
    w = normal(net, seed)
    error = np.abs(net.jacobian(w) - oracle_jacobian(net, w))
    assert np.all(error <= rounding(net) * jacobian_bound(net, w))


def jacobian_bound(net: MLP, w: np.ndarray) -> np.ndarray:
    """What the paths through J add up to in absolute value; tanh adds the rounding of its slope,
    |Δφ′| ≤ 2|Δa|, one majorant more per layer."""
    upper = majorant(net, w)
    bound = upper.jacobian(np.abs(w))
    if net.activation == "tanh":
        bound = bound * (1 + 2 * len(net.widths) * layer_majorant(net, w))
    return bound


def layer_majorant(net: MLP, w: np.ndarray) -> float:
    """A bound of every activation's partial sums: the largest row sum of |W|,|b| to the power L."""
    size = max(1.0, float(np.abs(net.inputs).max()))
    for layer in net._effective(np.abs(w)):
        size = max(1.0, size * float(layer.sum(axis=-1).max()))
    return size


@given(networks(), st.integers(0, 2**32))
def test_products_are_those_of_the_dense_jacobian(net: MLP, seed: int) -> None:
    w, x = normal(net, seed), normal(net, seed + 1)
    y = np.random.default_rng(seed).standard_normal(net.targets.size)
    J, scale = net.jacobian(w), net.hessian_scale
    # Sums of d and of m terms over paths with up to rounding(net) each.
    slack = rounding(net) + (net.n_params + net.targets.size) * EPS
    upper = jacobian_bound(net, w)
    size_x, size_y = upper @ np.abs(x), upper.T @ np.abs(y)
    assert np.all(np.abs(net.jvp(w, x) - J @ x) <= slack * size_x)
    assert np.all(np.abs(net.vjp(w, y) - J.T @ y) <= slack * size_y)
    product = net.gauss_newton_product(w, x) - scale * (J.T @ (J @ x))
    assert np.all(np.abs(product) <= 2 * slack * scale * (upper.T @ size_x))
    r = net.residuals(w)
    gradient = net.loss_and_grad(w)[1] - scale * (J.T @ r)
    assert np.all(np.abs(gradient) <= 2 * slack * scale * (upper.T @ np.abs(r)))
    # The adjoint identity, with no J on either side.
    assert abs(net.jvp(w, x) @ y - x @ net.vjp(w, y)) <= 2 * slack * (size_x @ np.abs(y))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_derivatives_match_differences(activation: str) -> None:
    net = fixed_network(activation)
    w, x = 0.5 * normal(net, 5), normal(net, 6)
    x /= np.linalg.norm(x)
    h = 2e-3
    if (
        activation == "relu"
    ):  # no neuron switches within ±2h: on this line f is a cubic, ∇L a quintic
        patterns = [
            [a > 0 for a in net._point(w + t * x)[1][1:]] for t in np.linspace(-2 * h, 2 * h, 9)
        ]
        assert all(
            np.array_equal(p, q)
            for here in patterns
            for p, q in zip(here, patterns[0], strict=True)
        )
    # Rounding: 2·EPS·max|g|/h with |g| < 10 and about 30 roundings inside g gives 7e-11;
    # truncation 4h⁴g⁽⁵⁾/120 = 5e-13·g⁽⁵⁾, and g⁽⁵⁾ along a unit vector stays below 100 here.
    tolerance = 1e-10
    f = lambda t: net.outputs(w + t * x).ravel()  # noqa: E731
    loss = lambda t: np.asarray(net.loss(w + t * x))  # noqa: E731
    gradient = lambda t: net.loss_and_grad(w + t * x)[1]  # noqa: E731
    assert np.abs(richardson(f, h) - net.jvp(w, x)).max() < tolerance
    assert np.abs(richardson(f, h) - net.jacobian(w) @ x).max() < tolerance
    assert abs(richardson(loss, h) - net.loss_and_grad(w)[1] @ x) < tolerance
    assert np.abs(richardson(gradient, h) - net.hvp(w, x)).max() < tolerance
    # What must fail: the Gauss-Newton product is not the Hessian where the residuals are not 0,
    # and a loss with ½ in the wrong place misses by the whole gradient.
    assert np.abs(richardson(gradient, h) - net.gauss_newton_product(w, x)).max() > 1e6 * tolerance
    assert abs(richardson(loss, h) - 0.5 * net.loss_and_grad(w)[1] @ x) > 1e6 * tolerance


@given(networks(("relu", "identity")), st.integers(0, 2**32))
def test_hessian_is_symmetric(net: MLP, seed: int) -> None:
    w, unit = normal(net, seed), np.eye(net.n_params)
    H = net.hvp(w, unit)
    # The majorant with targets −|y| has residuals of at least |r|, and every term of its Hessian is
    # positive: it bounds all that an entry of H adds up, over m cotangents and two sets of paths.
    upper = majorant(net, w).with_targets(-np.abs(net.targets)).hvp(np.abs(w), unit)
    ratio = net.hessian_scale / majorant(net, w).hessian_scale
    slack = 4 * (rounding(net) + net.targets.size * EPS)
    assert np.all(np.abs(H - H.T) <= slack * ratio * upper)


@pytest.mark.parametrize("activation", ["relu", "tanh", "identity"])
def test_hessian_of_a_fixed_network_is_symmetric(activation: str) -> None:
    net = fixed_network(activation)
    H = net.hvp(normal(net, 21), np.eye(net.n_params))
    # An entry sums 21 cotangents through 18 neurons and back: some hundred roundings, mostly mixed.
    assert np.abs(H - H.T).max() <= 100 * EPS * np.abs(H).max()
    assert np.abs(H - net.hessian_scale * gauss_newton(net, normal(net, 21))).max() > 1e-2


def gauss_newton(net: MLP, w: np.ndarray) -> np.ndarray:
    J = net.jacobian(w)
    return J.T @ J


@given(networks(("tanh",)), st.integers(0, 2**32))
def test_at_zero_loss_the_hessian_is_the_gauss_newton_matrix(net: MLP, seed: int) -> None:
    w = normal(net, seed)
    planted = net.with_targets(net.outputs(w))
    assert planted.loss(w) == 0.0
    x = normal(net, seed + 1)
    # The residual terms are products with exact zeros: what is left is the same sums.
    assert np.array_equal(planted.hvp(w, x), planted.gauss_newton_product(w, x))


# ---- Gram matrix -------------------------------------------------------------------------------


@given(networks(), st.integers(0, 2**32))
def test_gram_matches_the_dense_product(net: MLP, seed: int) -> None:
    w = normal(net, seed)
    J, gram = net.jacobian(w), net.gram(w)
    assert np.array_equal(gram, gram.T)
    # Cauchy-Schwarz: a dot product of d terms is rounded by at most d·EPS·|J_i||J_j|.
    size = np.linalg.norm(J, axis=1)
    assert np.all(np.abs(gram - J @ J.T) <= 2 * (net.n_params + 8) * EPS * np.outer(size, size))
    assert net.gram_trace(w) == pytest.approx(np.trace(J @ J.T), rel=2 * (net.n_params + 8) * EPS)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("C", [1, 10])
def test_gram_over_several_ragged_tiles(activation: str, C: int) -> None:
    # 700 examples of one output or 70 of ten: three tiles of 320 rows, the last one cut.
    rng = np.random.default_rng(8)
    n = 700 // C
    multipliers = [0.5, 2.0, 1.5, 1.0, 0.7, 3.0]
    data = rng.standard_normal((n, 12)), rng.standard_normal((n, C))
    net = MLP(*data, [20, 15], activation=activation, multipliers=multipliers)
    w = normal(net, 9)
    J, gram = net.jacobian(w), net.gram(w)
    direct = J @ J.T
    # 555 to 706 terms per entry whose roundings partly cancel: √700·EPS = 6e-15 of the largest.
    assert np.abs(gram - direct).max() <= 6e-15 * direct.max()
    assert np.array_equal(gram, gram.T)
    assert net.gram_trace(w) == pytest.approx(np.trace(direct), rel=6e-15)
    # What must fail: forgetting the 1 that a bias adds to the product of the activations.
    wrong = gram_of_two_layers(net, w, bias=0.0)
    right = gram_of_two_layers(net, w, bias=1.0)
    assert np.abs(right - direct).max() <= 6e-15 * direct.max()
    assert np.abs(wrong - direct).max() > 1e-3 * direct.max()


def gram_of_two_layers(net: MLP, w: np.ndarray, bias: float) -> np.ndarray:
    """Σ_l (μ_W² a·a′ + bias·μ_b²)(δ·δ′) for each pair of outputs; two hidden layers."""
    tensors = [mu * t for mu, t in zip(net.multipliers, net.unpack(w), strict=True)]
    W1, b1, W2, b2, W3, _ = tensors
    relu = net.activation == "relu"

    def phi(z: np.ndarray) -> np.ndarray:
        return np.maximum(z, 0) if relu else np.tanh(z)

    def slope(z: np.ndarray) -> np.ndarray:
        return 1.0 * (z > 0) if relu else 1 / np.cosh(z) ** 2

    z1 = net.inputs @ W1.T + b1
    z2 = phi(z1) @ W2.T + b2
    activations = [net.inputs, phi(z1), phi(z2)]
    gram = np.zeros((net.n, net.n_outputs, net.n, net.n_outputs))
    for k in range(net.n_outputs):
        for q in range(net.n_outputs):
            second, second_q = W3[k] * slope(z2), W3[q] * slope(z2)
            deltas = [
                (second @ W2 * slope(z1), second_q @ W2 * slope(z1)),
                (second, second_q),
                (np.full((net.n, 1), 1.0 * (k == q)), np.ones((net.n, 1))),
            ]
            for layer, (a, (left, right)) in enumerate(zip(activations, deltas, strict=True)):
                mu_w, mu_b = net.multipliers[2 * layer : 2 * layer + 2]
                gram[:, k, :, q] += (mu_w**2 * a @ a.T + bias * mu_b**2) * (left @ right.T)
    return gram.reshape(net.targets.size, -1)


# ---- the linear case, dead neurons, kinks, rank ------------------------------------------------


@pytest.mark.parametrize("biases", [True, False])
def test_one_identity_layer_is_linear_regression(biases: bool) -> None:
    rng = np.random.default_rng(11)
    X, Y = rng.standard_normal((9, 4)), rng.standard_normal((9, 3))
    net = MLP(X, Y, [], activation="identity", biases=biases)
    rows = np.hstack([X, np.ones((9, 1))]) if biases else X
    H = net.hessian_scale * np.kron(np.eye(3), rows.T @ rows)
    w, x = normal(net, 12), normal(net, 13)
    # Sums of 9 products: 20·EPS of the largest entry.
    for point in (w, x, np.zeros_like(w)):
        assert np.abs(net.hvp(point, np.eye(net.n_params)) - H).max() <= 20 * EPS * H.max()
    assert np.array_equal(net.hvp(w, x), net.hvp(x, x))  # constant, bit for bit
    loss, grad = net.loss_and_grad(w)
    expected = loss + grad @ x + 0.5 * x @ H @ x
    assert net.loss(w + x) == pytest.approx(expected, rel=100 * EPS)
    solution, *_ = np.linalg.lstsq(rows, Y, rcond=None)
    # At the least-squares solution the gradient is 0 to the rounding of the normal equations.
    assert np.abs(net.loss_and_grad(solution.T.ravel())[1]).max() < 100 * EPS * H.max()


def test_dead_neurons_leave_the_output_bias_alone() -> None:
    net = fixed_network("relu")
    tensors = net.unpack(normal(net, 14).copy())
    tensors[3][...] = -1e3  # every neuron of the second layer is off on every example
    w = net.pack(tensors)
    J = net.jacobian(w)
    only_bias = net.pack([np.zeros_like(t) for t in tensors[:-1]] + [np.ones(3)]) > 0
    assert np.array_equal(J[:, ~only_bias], np.zeros((21, net.n_params - 3)))
    assert np.array_equal(J[:, only_bias], np.tile(np.eye(3), (7, 1)))
    assert np.linalg.matrix_rank(net.gram(w)) == 3
    # H is 2/(nC)·n = 2/C on the output biases and 0 elsewhere, exactly.
    H = net.hvp(w, np.eye(net.n_params))
    np.testing.assert_allclose(H, np.diag(np.where(only_bias, 2 / 3, 0.0)), rtol=0, atol=4 * EPS)


def test_a_neuron_on_its_kink_counts_as_off() -> None:
    # Example 0 is the origin and the first layer has no offset there: z = 0 exactly.
    rng = np.random.default_rng(15)
    inputs = np.vstack([np.zeros(3), rng.standard_normal((2, 3))])
    net = MLP(inputs, rng.standard_normal((3, 2)), [4], activation="relu")
    tensors = net.unpack(net.initial_weights(1))
    W1, b1, W2, b2 = (t.copy() for t in tensors)
    assert not b1.any()
    w, x = net.pack([W1, b1, W2, b2]), normal(net, 16)
    J = net.jacobian(w)
    assert np.array_equal(net.outputs(w)[0], b2)
    assert not J[:2, :16].any()  # both rows of example 0 vanish on W1 and b1
    below = net.pack([W1, b1 - 1e-300, W2, b2])
    assert np.array_equal(J, net.jacobian(below))  # the same as just below the kink
    np.testing.assert_allclose(J, oracle_jacobian(net, w), rtol=0, atol=10 * EPS)
    # All verbs follow the one convention.
    np.testing.assert_allclose(net.jvp(w, x), J @ x, rtol=0, atol=100 * EPS)
    np.testing.assert_allclose(net.gram(w), J @ J.T, rtol=0, atol=100 * EPS)
    np.testing.assert_allclose(net.hvp(w, x), net.hvp(below, x), rtol=0, atol=100 * EPS)


@given(networks(("relu", "identity")), st.integers(0, 2**32))
def test_scaling_a_neuron_is_a_null_direction(net: MLP, seed: int) -> None:
    w = normal(net, seed)
    upper = 2 * (rounding(net) + net.n_params * EPS) * jacobian_bound(net, w)
    step = 1 + net.biases
    for layer, width in enumerate(net.widths):
        for neuron in range(width):
            direction = [np.zeros_like(t) for t in net.unpack(w)]
            for t in range(layer * step, (layer + 1) * step):
                direction[t][neuron] = net.unpack(w)[t][neuron]
            outgoing = (layer + 1) * step
            direction[outgoing][:, neuron] = -net.unpack(w)[outgoing][:, neuron]
            x = net.pack(direction)
            assert np.all(np.abs(net.jvp(w, x)) <= upper @ np.abs(x))


@pytest.mark.parametrize(
    ("activation", "ceiling"), [("relu", 26 - 4), ("identity", 26 - 4), ("tanh", 26)]
)
def test_rank_ceiling_of_a_small_network(activation: str, ceiling: int) -> None:
    rng = np.random.default_rng(17)
    net = MLP(
        rng.standard_normal((60, 3)), rng.standard_normal((60, 2)), [4], activation=activation
    )
    assert (net.n_params, net.rank_ceiling()) == (26, ceiling)
    rank = np.linalg.matrix_rank(net.jacobian(normal(net, 18)))
    # Attained, but for the identity, whose J is also bound by C(D+1) = 8 coefficients.
    assert rank == (8 if activation == "identity" else ceiling)
    assert net.subset([0, 1, 2]).rank_ceiling() == 6


# ---- weights, multipliers, subsets -------------------------------------------------------------


@given(networks(), st.integers(0, 2**32))
def test_pack_inverts_unpack(net: MLP, seed: int) -> None:
    for w in (normal(net, seed), normal(net, seed, 2)):
        assert np.array_equal(net.pack(net.unpack(w)), w)
    w = normal(net, seed)
    for tensor in net.unpack(w):
        tensor[...] = 0.0  # the tensors are views
    assert not w.any()
    assert len(net.names) == len(net.unpack(w)) == len(net.multipliers)
    values = np.arange(1.0, len(net.names) + 1)
    for tensor, value in zip(net.unpack(net.expand(list(values))), values, strict=True):
        assert np.all(tensor == value)


@given(networks(), st.integers(0, 2**32))
def test_multipliers_scale_the_tensors(net: MLP, seed: int) -> None:
    w = normal(net, seed)
    plain = MLP(net.inputs, net.targets, net.widths, activation=net.activation, biases=net.biases)
    mu = net.expand(net.multipliers)
    assert np.array_equal(net.outputs(w), plain.outputs(mu * w))
    # J differs by one product per column, whichever way the factor is taken in.
    np.testing.assert_allclose(net.jacobian(w), plain.jacobian(mu * w) * mu, rtol=4 * EPS, atol=0)


@given(networks(), st.integers(0, 2**32))
def test_the_loss_is_the_mean_over_single_examples(net: MLP, seed: int) -> None:
    w = normal(net, seed)
    parts = np.array([net.subset([i]).loss(w) for i in range(net.n)])
    # Non-negative sums; products of one row and of n rows may be summed in another order.
    bound = majorant(net, w).outputs(np.abs(w)) + np.abs(net.targets)
    slack = 4 * (rounding(net) + net.targets.size * EPS) * net.hessian_scale * np.sum(bound**2)
    assert abs(float(net.loss(w)) - parts.mean()) <= slack
    assert net.subset(np.arange(net.n)).loss(w) == net.loss(w)


def test_initial_weights_have_the_stated_variance() -> None:
    rng = np.random.default_rng(19)
    net = MLP(rng.standard_normal((2, 80)), rng.standard_normal((2, 50)), [60, 40])
    w = net.initial_weights(7)
    for name, tensor in zip(net.names, net.unpack(w), strict=True):
        if name.startswith("b"):
            assert not tensor.any()
            continue
        variance = 1 / (3 * tensor.shape[1])
        # The mean square of N normals has standard error variance·√(2/N); 4 of them.
        assert abs(np.mean(tensor**2) - variance) < 4 * variance * np.sqrt(2 / tensor.size)
    assert np.array_equal(w, net.initial_weights(7))
    assert not np.array_equal(w, net.initial_weights(8))


# ---- drift, linearisation, lazy scaling --------------------------------------------------------


def test_weight_drift_of_known_moves() -> None:
    net = fixed_network()
    w_0 = net.initial_weights(3)
    moved = [t.copy() for t in net.unpack(w_0)]
    moved[0] *= 3.0  # W1: |3θ − θ|/|θ| = 2
    moved[1][0] = 0.5  # b1 starts at 0
    drift = net.weight_drift(net.pack(moved), w_0)
    assert list(drift) == ["W1", "b1", "W2", "b2", "W3", "b3", "all"]
    assert drift["W1"] == pytest.approx(2.0, rel=8 * EPS)
    assert (drift["b1"], drift["W2"], drift["b2"]) == (np.inf, 0.0, 0.0)
    size = np.linalg.norm(net.unpack(w_0)[0])
    expected = np.hypot(2 * size, 0.5) / np.linalg.norm(w_0)
    assert drift["all"] == pytest.approx(expected, rel=8 * EPS)


def test_linearisation_error_of_a_product() -> None:
    # f = ab at x = 1: from (1, 1) to (2, 3) f moves by 5, the linear prediction is 3: error 2/5.
    net = MLP([[1.0]], [[0.0]], [1], activation="identity", biases=False)
    assert net.linearisation_error([2.0, 3.0], [1.0, 1.0]) == pytest.approx(0.4, rel=4 * EPS)
    linear = MLP([[1.0, 2.0]], [[0.0]], [], activation="identity")
    assert linear.linearisation_error([3.0, 1.0, 4.0], [0.5, 0.25, 1.0]) <= 8 * EPS
    with pytest.raises(UnmovedFunction, match="outputs changed"):
        net.linearisation_error([2.0, 0.5], [0.5, 2.0])


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_lazy_scaling(activation: str) -> None:
    net = fixed_network(activation)
    w_0, w = net.initial_weights(4), net.initial_weights(5)
    alpha = 8.0  # a power of 2: scaling by it rounds nothing
    lazy = net.lazy(w_0, alpha)
    # r = (αf + …) − (y + αf_0): rounded at the size of αf, which is below 10 here.
    expected = alpha * (net.outputs(w) - net.outputs(w_0)) - net.targets
    np.testing.assert_allclose(lazy.residuals(w), expected.ravel(), rtol=0, atol=40 * EPS * 10)
    np.testing.assert_allclose(lazy.residuals(w_0), -net.targets.ravel(), rtol=0, atol=4 * EPS * 10)
    assert np.array_equal(lazy.jacobian(w), alpha * net.jacobian(w))
    with pytest.raises(ValueError, match="positive and finite"):
        net.lazy(w_0, 0.0)


def test_linearisation_error_falls_as_one_over_alpha() -> None:
    # One gradient step at a rate of 1/α²: |Δw| and the error are proportional to 1/α to first
    # order, with a relative correction of the order of the error itself, below 1 % at α = 100.
    net = fixed_network()
    w_0 = net.initial_weights(6)
    errors = []
    for alpha in (100.0, 1000.0):
        lazy = net.lazy(w_0, alpha)
        w = w_0 - lazy.loss_and_grad(w_0)[1] / alpha**2
        errors.append(lazy.linearisation_error(w, w_0))
    assert errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(10.0, rel=0.01)


# ---- refusals ----------------------------------------------------------------------------------


def test_refuses_what_it_cannot_use() -> None:
    one, net = np.ones((2, 1)), fixed_network()
    w = np.zeros(net.n_params)
    refusals: list[tuple[str, Callable[[], object]]] = [
        ("inputs", lambda: MLP(np.ones((3, 1)), one, [])),
        ("none of them empty", lambda: MLP(np.ones((0, 1)), np.ones((0, 1)), [])),
        ("none of them empty", lambda: MLP(np.ones((2, 0)), one, [])),
        ("finite", lambda: MLP(one, one * np.nan, [])),
        ("at least 1", lambda: MLP(one, one, [3, 0])),
        ("'gelu'", lambda: MLP(one, one, [], activation="gelu")),
        ("'batch'", lambda: MLP(one, one, [], divisor="batch")),  # type: ignore[arg-type]
        ("one value for each", lambda: MLP(one, one, [], multipliers=[1.0])),
        ("positive and finite", lambda: MLP(one, one, [], multipliers=[1.0, -1.0])),
        ("weights must be", lambda: net.loss(np.zeros(3))),
        ("one point", lambda: net.jacobian(np.zeros((2, net.n_params)))),
        ("rows of J", lambda: net.vjp(w, np.zeros(20))),
        ("must have shapes", lambda: net.pack([np.zeros(3)])),
        ("targets must be", lambda: net.with_targets(np.zeros((7, 1)))),
        ("none of them empty", lambda: net.subset(np.zeros(7, dtype=bool))),
    ]
    for message, attempt in refusals:
        with pytest.raises(ValueError, match=message):
            attempt()


# ---- the digits --------------------------------------------------------------------------------


def test_the_digits_are_what_their_page_says() -> None:
    path = DATA / "mnist1024.npz"
    page = (DATA / "MNIST.md").read_text()
    with np.load(path) as digits:
        images, labels = digits["images"], digits["labels"]
        indices, seed = digits["indices"], int(digits["seed"])
        assert all(name in str(digits["attribution"]) for name in ("LeCun", "Cortes", "Burges"))
    assert (images.shape, images.dtype) == ((1024, 28, 28), np.uint8)
    assert (labels.shape, labels.dtype) == ((1024,), np.uint8)
    keys = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(10_000)
    assert np.array_equal(indices, np.argsort(keys, kind="stable")[:1024])
    # Images per digit in the package: an index tells the label.
    counts = [1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978]
    assert np.array_equal(labels, np.repeat(np.arange(10), counts)[indices])
    assert len(np.unique(images.reshape(1024, -1), axis=0)) == 1024
    assert images.max() == 255 and (images.max(axis=(1, 2)) > 200).all()
    checksums = re.findall(r"`([0-9a-f]{64})`", page)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == checksums[1]
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() == checksums[2]
    assert ", ".join(str(c) for c in np.bincount(labels)[:9]) in page
