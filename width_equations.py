"""Equations E25-E34: the perceptron, its curvatures, its chains and its influences, each checked.

As equations.py does for the quadratic network: a formula of this project and the same quantity by
another road. A check yields comparisons: what, error, tolerance. `python equations.py` prints them.

Symbols and shapes
    w (d,) weights                 J (m, d) Jacobian, H Hessian, G = hessian_scale·JJᵀ (m, m)
    h curvatures                   c = gamma/n_beta resolution, λ(c) effective dimension
    E (d,) one step per coordinate g, b gradients of single losses, A, B their Hessians
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov

import effective_dimension
import influence
import langevin_laws
import theory
from mlp import MLP

Array = NDArray[np.float64]
Comparison = tuple[str, float, float]  # what was compared, the error, the error allowed

EPS = float(np.finfo(np.float64).eps)
STANDARD_ERRORS = 4.0  # a correct estimate fails a two-sided test at 4 once in 16,000
DIFFERENCE = 1e-5  # central differences leave its square, and EPS over it


class Entry(NamedTuple):
    """One equation; the fields of equations.Equation, in its order."""

    id: str
    name: str
    formula: str
    source: str
    functions: str
    reason: str
    parts: Callable[[], Iterator[Comparison]]


ENTRIES: list[Entry] = []


def _equation(
    id: str, name: str, *, formula: str, source: str, functions: str, reason: str
) -> Callable[[Callable[[], Iterator[Comparison]]], Callable[[], Iterator[Comparison]]]:
    def enter(parts: Callable[[], Iterator[Comparison]]) -> Callable[[], Iterator[Comparison]]:
        ENTRIES.append(Entry(id, name, formula, source, functions, reason, parts))
        return parts

    return enter


def _network(activation: str = "tanh", seed: int = 0, widths: tuple[int, ...] = (5, 4)) -> MLP:
    rng = np.random.default_rng(seed)
    return MLP(
        rng.standard_normal((6, 4)),
        rng.standard_normal((6, 3)),
        widths,
        activation=activation,
        multipliers=rng.uniform(0.5, 2.0, 2 * (len(widths) + 1)).tolist(),
    )


def _relative(found: Array | float, expected: Array | float) -> float:
    difference = np.abs(np.asarray(found) - expected).max()
    return float(difference / max(np.abs(np.asarray(expected)).max(), 1e-300))


# ---- the perceptron ----------------------------------------------------------------------------


@_equation(
    "E25",
    "perceptron, first derivatives",
    formula="∇L = hessian_scale·Jᵀr; row (i,k) of J: μ∘(δ_l ⊗ ã_{l−1}), δ by backpropagation",
    source="Rumelhart, Hinton and Williams 1986",
    functions="mlp.MLP.loss_and_grad, mlp.MLP.jacobian, mlp.MLP.jvp, mlp.MLP.vjp",
    reason="central differences of 1e-5: 1e-10 and EPS/1e-5, times third derivatives",
)
def perceptron_gradient() -> Iterator[Comparison]:
    """Loss and outputs differenced along every weight, for each activation."""
    for activation in ("relu", "tanh", "identity"):
        net = _network(activation)
        w = net.initial_weights(0)
        loss, gradient = net.loss_and_grad(w)
        away = [w + sign * DIFFERENCE * np.eye(net.n_params) for sign in (1, -1)]
        slope = (net.loss(away[0]) - net.loss(away[1])) / (2 * DIFFERENCE)
        yield f"gradient, {activation}", _relative(gradient, slope), 1e-7
        columns = (net.residuals(away[0]) - net.residuals(away[1])) / (2 * DIFFERENCE)
        J = net.jacobian(w)
        yield f"Jacobian, {activation}", _relative(J, columns.T), 1e-7
        r = net.residuals(w)
        yield "hessian_scale·Jᵀr", _relative(gradient, net.hessian_scale * J.T @ r), 100 * EPS
        yield "½·hessian_scale·|r|²", abs(0.5 * net.hessian_scale * r @ r / loss - 1), 10 * EPS
        products = [_relative(net.jvp(w, w), J @ w), _relative(net.vjp(w, r), J.T @ r)]
        yield f"jvp and vjp, {activation}", max(products), 100 * EPS


@_equation(
    "E26",
    "perceptron, second derivatives",
    formula="Hx = d/dt ∇L(w + tx) at t = 0, H = Hᵀ; GN = hessian_scale·JᵀJ, H → GN as r → 0",
    source="R-operator: Pearlmutter 1994",
    functions="mlp.MLP.hvp, mlp.MLP.gauss_newton_product",
    reason="differences as in E25; symmetry and GN by rounding, 100 eps",
)
def perceptron_hessian() -> Iterator[Comparison]:
    """Gradients differenced along directions, symmetry, and the teacher where H = GN."""
    for activation in ("relu", "tanh"):
        net = _network(activation, seed=1)
        w = net.initial_weights(1)
        H = net.hvp(w, np.eye(net.n_params))
        ahead, behind = (
            net.loss_and_grad(w + sign * DIFFERENCE * np.eye(net.n_params))[1] for sign in (1, -1)
        )
        yield f"differences, {activation}", _relative(H, (ahead - behind) / (2 * DIFFERENCE)), 1e-7
        yield f"symmetry, {activation}", _relative(H, H.T), 100 * EPS
        J = net.jacobian(w)
        dense = net.hessian_scale * J.T @ J
        product = net.gauss_newton_product(w, np.eye(net.n_params))
        yield f"GN, {activation}", _relative(product, dense), 100 * EPS
        teacher = net.with_targets(net.outputs(w))
        yield "H = GN at zero loss", _relative(teacher.hvp(w, np.eye(len(w))), dense), 100 * EPS


# ---- effective dimension -----------------------------------------------------------------------


@_equation(
    "E27",
    "Gram matrix and curvatures",
    formula="(JJᵀ)[(i,k),(i′,k′)] = Σ_l (ã_{l−1}(i)·ã_{l−1}(i′))(δ_l(i,k)·δ_l(i′,k′)); h = spec(G)",
    source="tangent kernel: Jacot, Gabriel and Hongler 2018",
    functions="mlp.MLP.gram, mlp.MLP.gram_trace, effective_dimension.curvatures_of_gram",
    reason="rounding of products and eigenvalues: 1000 eps of the largest",
)
def gram_and_curvatures() -> Iterator[Comparison]:
    """JJᵀ, its trace, and the spectrum of the dense (d, d) Gauss-Newton matrix."""
    for activation in ("relu", "tanh"):
        net = _network(activation, seed=2, widths=(9, 8))
        w = net.initial_weights(2)
        J = net.jacobian(w)
        yield f"JJᵀ, {activation}", _relative(net.gram(w), J @ J.T), 1000 * EPS
        yield f"trace, {activation}", abs(net.gram_trace(w) / np.sum(J * J) - 1), 1000 * EPS
        h = effective_dimension.curvatures_of_gram(net.gram(w), net.hessian_scale)
        dense = np.linalg.eigvalsh(net.hessian_scale * J.T @ J)[::-1][: len(h)]
        yield f"curvatures, {activation}", _relative(h, dense), 1000 * EPS
        rank = effective_dimension.resolved_rank(h, J.shape)
        yield f"rank ≤ ceiling, {activation}", float(max(0, rank - net.rank_ceiling())), 0.0


@_equation(
    "E28",
    "effective dimension by Cholesky",
    formula="LLᵀ = G + cI:  ½tr H(H+cI)⁻¹ = ½[m − c|L⁻¹|²_F]",
    source="tr G(G+cI)⁻¹ = m − c·tr(G+cI)⁻¹",
    functions="effective_dimension.cholesky_effective_dimension, theory.effective_dimension",
    reason="condition number 1 + κ of a solve, times 1000 eps",
)
def cholesky() -> Iterator[Comparison]:
    """Cholesky, eigenvalues, and a dense solve in the space of the weights."""
    net = _network("relu", seed=3, widths=(9, 8))
    w = net.initial_weights(3)
    J, gram = net.jacobian(w), net.gram(w)
    H = net.hessian_scale * J.T @ J
    h = effective_dimension.curvatures_of_gram(gram.copy(), net.hessian_scale)
    for kappa in (1.0, 10.0, 1000.0):
        c = float(h[0] / kappa)
        value = effective_dimension.cholesky_effective_dimension(gram, net.hessian_scale, c)
        dense = 0.5 * np.trace(np.linalg.solve(H + c * np.eye(len(H)), H))
        tolerance = 1000 * EPS * (1 + kappa)
        yield f"dense solve, κ = {kappa:g}", abs(value / dense - 1), tolerance
        by_spectrum = theory.effective_dimension(h, c)
        yield f"eigenvalues, κ = {kappa:g}", abs(value / by_spectrum - 1), tolerance


@_equation(
    "E29",
    "full Hessian with a control variate",
    formula="½tr H(H+cI)⁻¹ = λ_GN(c) + ½E[zᵀ(H(H+cI)⁻¹ − GN(GN+cI)⁻¹)z], z random signs",
    source="Hutchinson 1990; control variates",
    functions="effective_dimension.probed_effective_dimension",
    reason="4 standard errors of 60 probes",
)
def control_variate() -> Iterator[Comparison]:
    """The probes' value against a dense solve, and their error against that without the variate."""
    net = _network("tanh", seed=4)
    w = net.initial_weights(4)
    net = net.with_targets(net.outputs(w) + 0.1)
    d, J = net.n_params, net.jacobian(w)
    H, shared = net.hvp(w, np.eye(d)), net.hessian_scale * J.T @ J
    lowest, c = float(np.linalg.eigvalsh(H)[0]), float(np.linalg.eigvalsh(shared)[-1]) / 3.0
    solved = [0.5 * np.trace(np.linalg.solve(M + c * np.eye(d), M)) for M in (H, shared)]
    probed = effective_dimension.probed_effective_dimension(
        effective_dimension.operator(d, lambda x: net.hvp(w, x)),
        effective_dimension.operator(d, lambda x: net.gauss_newton_product(w, x)),
        c,
        exact=solved[1],
        lowest=lowest,
        probes=60,
        tolerance=1e-8,
    )
    z = float(abs(probed.value - solved[0]) / probed.standard_error)
    yield "|z| of the value", z, STANDARD_ERRORS
    z = float(abs(probed.plain - solved[0]) / probed.plain_standard_error)
    yield "|z| of the plain probes", z, STANDARD_ERRORS
    gain = probed.standard_error / probed.plain_standard_error
    yield "error over that of plain probes", gain, 0.5


@_equation(
    "E30",
    "a slope at w*",
    formula="λ̂ − λ(c) = −nβ(gᵀx − ½xᵀHx), x = (H+cI)⁻¹g, for L = gᵀδ + ½δᵀHδ",
    source="the mean of a Gaussian is where its energy is stationary",
    functions="effective_dimension.slope_shift",
    reason="conjugate gradients at 1e-13: 1e-9; 4 standard errors of 200,000 draws",
)
def slope() -> Iterator[Comparison]:
    """Dense algebra, and the posterior itself: n_beta·E[L − L(w*)] over draws."""
    rng = np.random.default_rng(5)
    d, n_beta, c = 6, 30.0, 0.4
    A = rng.standard_normal((4, d))
    H, g = A.T @ A, 0.3 * rng.standard_normal(d)
    shift = effective_dimension.slope_shift(
        effective_dimension.operator(d, lambda x: H @ x),
        g,
        n_beta=n_beta,
        resolution=c,
        tolerance=1e-13,
    )
    mean = -np.linalg.solve(H + c * np.eye(d), g)
    dense = n_beta * (g @ mean + 0.5 * mean @ H @ mean)
    yield "dense solve", float(abs(shift / dense - 1)), 1e-9
    covariance = np.linalg.inv(n_beta * (H + c * np.eye(d)))
    draws = rng.multivariate_normal(mean, covariance, 200_000)
    losses = n_beta * (draws @ g + 0.5 * np.sum((draws @ H) * draws, axis=1))
    expected = shift + 0.5 * np.trace(np.linalg.solve(H + c * np.eye(d), H))
    z = abs(losses.mean() - expected) / (losses.std() / 200_000**0.5)
    yield "|z| of drawn losses", float(z), STANDARD_ERRORS


# ---- chains ------------------------------------------------------------------------------------


@_equation(
    "E31",
    "one step per coordinate",
    formula="Ã = √E(nβH+γ)√E: E[λ̂] = ½nβΣ(Qᵀ√EH√EQ)_ii/[a_i(1−a_i/4)]·mean(1−ρ_i^{2t})",
    source="w ← w − ½E[nβ∇L + γδ] + √Eξ is AR(1) in E^{−½}δ",
    functions="langevin_laws.expected_llc, theory.sgld_expected_llc",
    reason="1e-9: rounding over 60 products; Lyapunov's equation: its condition number",
)
def per_coordinate_steps() -> Iterator[Comparison]:
    """The covariance iterated step by step, Lyapunov's equation, and equal steps (E10)."""
    rng = np.random.default_rng(6)
    d, n_beta, gamma = 5, 7.0, 0.8
    A = rng.standard_normal((3, d))
    H, E = A.T @ A, rng.uniform(0.002, 0.02, d)
    R = np.eye(d) - 0.5 * E[:, None] * (n_beta * H + gamma * np.eye(d))
    S, total = np.zeros((d, d)), 0.0
    for t in range(60):
        total += 0.5 * n_beta * np.trace(H @ S) if t >= 15 else 0.0
        S = R @ S @ R.T + np.diag(E)
    law = langevin_laws.expected_llc(H, E, n_beta=n_beta, gamma=gamma, steps=60, burn_in=15)
    yield "iterated covariance", abs(law / (total / 45) - 1), 1e-9
    settled = langevin_laws.expected_llc(
        H, E, n_beta=n_beta, gamma=gamma, steps=200_001, burn_in=200_000
    )
    endless = np.asarray(solve_discrete_lyapunov(R, np.diag(E)))
    read = 0.5 * n_beta * np.trace(H @ endless)
    yield "Lyapunov's equation", abs(settled / read - 1), 1e-9
    h = np.maximum(np.linalg.eigvalsh(H), 0.0)
    settings = {"n_beta": n_beta, "gamma": gamma}
    equal = langevin_laws.expected_llc(H, np.full(d, 0.01), **settings, steps=60, burn_in=15)
    plain = theory.sgld_expected_llc(h, **settings, step=0.01, steps=60, burn_in=15)
    yield "equal steps", abs(equal / plain - 1), 1e-9


@_equation(
    "E32",
    "MALA acceptance on a quadratic",
    formula="log ratio = (ε/8)Σa²(x²−y²), b = εa; chain: N(0, Σb³/(16−4b)); posterior: −Σb³/32, …",
    source="Roberts and Tweedie 1996; the sum by the central limit theorem",
    functions="langevin_laws.expected_acceptance",
    reason="4 standard errors of 4,000 moves, and 0.002 for the sum of 1,000 terms being normal",
)
def acceptance() -> Iterator[Comparison]:
    """Moves proposed from either law and judged by the definition."""
    rng = np.random.default_rng(7)
    h, d, step = np.linspace(0.0, 2.0, 300), 1000, 0.08
    a = np.append(3.0 * h + 1.0, np.ones(d - len(h)))
    for at, variance in (("chain", 1.0 / (a * (1.0 - step * a / 4.0))), ("posterior", 1.0 / a)):
        x = rng.standard_normal((4000, d)) * np.sqrt(variance)
        y = x - 0.5 * step * a * x + np.sqrt(step) * rng.standard_normal(x.shape)
        forth, back = y - x + 0.5 * step * a * x, x - y + 0.5 * step * a * y
        ratio = 0.5 * np.sum(a * (x * x - y * y), axis=1)
        ratio += np.sum(forth * forth - back * back, axis=1) / (2.0 * step)
        drawn = np.exp(np.minimum(0.0, ratio))
        law = langevin_laws.expected_acceptance(
            h,
            d=d,
            n_beta=3.0,
            gamma=1.0,
            step=step,
            at=at,  # type: ignore[arg-type]
        )
        allowed = STANDARD_ERRORS * drawn.std() / 4000**0.5 + 0.002
        yield f"moves from the {at}'s law", abs(drawn.mean() - law), float(allowed)


# ---- influence ---------------------------------------------------------------------------------


def _influence_case() -> tuple[MLP, Array, Array, Array]:
    """Five training digits and two queries in one network; J, residuals and Σ of the five."""
    rng = np.random.default_rng(8)
    everything = MLP(rng.standard_normal((7, 2)), rng.standard_normal((7, 2)), [3], divisor="n")
    w = everything.initial_weights(8)
    J, r = everything.jacobian(w), everything.residuals(w)
    H = 2.0 / 5 * J[:10].T @ J[:10]  # hessian_scale of the five: 2/n
    return everything, J, r, np.asarray(np.linalg.inv(20.0 * H + 1.5 * np.eye(len(w))))


def _kernel(J: Array) -> Array:
    K, K_q = J[:10] @ J[:10].T, J[:10] @ J[10:].T
    return influence.posterior_kernel(K, K_q, hessian_scale=0.4, n_beta=20.0, gamma=1.5)


@_equation(
    "E33",
    "posterior kernel",
    formula="JΣJ_qᵀ = (nβ·s)⁻¹(K + γ/(nβ·s)·I)⁻¹K_q, Σ = (nβ·s·JᵀJ + γI)⁻¹, s = hessian_scale",
    source="push-through identity",
    functions="influence.posterior_kernel",
    reason="1e4 eps: condition number of the solve",
)
def posterior_kernel() -> Iterator[Comparison]:
    """The product with the dense covariance of the weights."""
    _, J, _, covariance = _influence_case()
    yield "dense covariance", _relative(_kernel(J), J[:10] @ covariance @ J[10:].T), 1e4 * EPS


@_equation(
    "E34",
    "Bayesian influence on a quadratic",
    formula="−Cov(ℓ_i, ℓ_q) = −[gᵀΣb + ½tr(AΣBΣ)];  −bᵀ(H+cI)⁻¹g = −nβ·gᵀΣb",
    source="Isserlis 1918; Kreer et al. 2025; Koh and Liang 2017",
    functions="influence.exact_influence, damped_influence, quadratic_influence, sampled_influence",
    reason="dense: 1e4 eps; 4.5 standard errors of 200,000 draws, ten comparisons",
)
def bayesian_influence() -> Iterator[Comparison]:
    """The dense formula pair by pair, and the covariance over draws of the posterior."""
    _, J, r, covariance = _influence_case()
    P, scale = _kernel(J), 2.0
    exact = influence.exact_influence(P, r[:10], r[10:], outputs=2, scale=scale)
    damped = influence.damped_influence(P, r[:10], r[10:], outputs=2, scale=scale, n_beta=20.0)
    rows = [slice(2 * i, 2 * i + 2) for i in range(7)]
    g = [scale * J[part].T @ r[part] for part in rows]
    A = [scale * J[part].T @ J[part] for part in rows]
    pairs = [(i, 5 + q) for i in range(5) for q in range(2)]
    dense = np.array(
        [influence.quadratic_influence((g[i], g[j]), (A[i], A[j]), covariance) for i, j in pairs]
    )
    yield "dense formula", _relative(exact.ravel(), dense), 1e4 * EPS
    solved = np.array([-20.0 * g[j] @ covariance @ g[i] for i, j in pairs])
    yield "damped influence", _relative(damped.ravel(), solved), 1e4 * EPS
    delta = np.random.default_rng(9).multivariate_normal(
        np.zeros(len(covariance)), covariance, 200_000
    )
    losses = 0.5 * scale * np.sum((r + delta @ J.T).reshape(-1, 7, 2) ** 2, axis=2)
    drawn = influence.sampled_influence(losses[:, :5], losses[:, 5:])
    centred = losses - losses.mean(axis=0)
    spread = (centred[:, :5, None] * centred[:, None, 5:]).std(axis=0) / 200_000**0.5
    yield "worst |z| of drawn covariances", float(np.max(np.abs(drawn - exact) / spread)), 4.5
