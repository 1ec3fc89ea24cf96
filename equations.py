"""The equations, each against an independent computation: `python equations.py`.

Every check computes a formula of this project and the same quantity by another road (scalar loops,
finite differences, a dense solve, a long simulation) and compares the two with a tolerance that has
a reason. A check has parts; the table shows the part closest to its tolerance. Exit status 1 if any
part fails or raises. EQUATIONS.md is written by `python equations.py --markdown` and compared by a
test.

Symbols: n pairs, p outputs, K neurons, d weights, w weights, J Jacobian of the centred outputs,
r centred residuals, H Hessian, h curvatures, s singular values, c = gamma/n_beta the resolution,
ε step, s (the step constant) its fraction: ε = s/(n_beta·h_max + gamma), z a deviation in standard
errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import chains
import console
import curvature
import records
import sgld
import theory
import width_equations
from qnet import FrozenFirstLayer, QuadraticNetwork, modular_pairs

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
STANDARD_ERRORS = 4.0  # a correct estimate fails a two-sided test at 4 once in 16,000


class Part(NamedTuple):
    """One comparison: what was compared, the error found, and the error allowed."""

    compared: str
    error: float
    tolerance: float


@dataclass(frozen=True)
class Equation:
    """One entry of the table; `parts` computes the comparisons when called."""

    id: str
    name: str
    formula: str
    source: str
    functions: str
    reason: str  # why the tolerance is what it is
    parts: Callable[[], Iterator[Part]]


@dataclass(frozen=True)
class Outcome:
    """The verdict on one equation: its worst part by error/tolerance."""

    id: str
    name: str
    compared: str
    error: float
    tolerance: float
    ok: bool


_ENTERED: list[Equation] = []


def equation(
    id: str, name: str, *, formula: str, source: str, functions: str, reason: str
) -> Callable[[Callable[[], Iterator[Part]]], Callable[[], Iterator[Part]]]:
    """Enter the decorated generator of parts into the table."""

    def enter(parts: Callable[[], Iterator[Part]]) -> Callable[[], Iterator[Part]]:
        _ENTERED.append(Equation(id, name, formula, source, functions, reason, parts))
        return parts

    return enter


def check(entry: Equation) -> Outcome:
    """Run one check. A part that is NaN counts as failed, and so does a check that raises."""
    parts: list[Part] = []
    try:
        parts.extend(entry.parts())
    except Exception as error:  # the other equations must still be checked
        parts = [Part(f"{type(error).__name__}: {error}", np.inf, 0.0)]
    worst = max(parts, key=_severity)
    ok = _severity(worst) <= 1.0
    return Outcome(entry.id, entry.name, worst.compared, float(worst.error), worst.tolerance, ok)


def _severity(part: Part) -> float:
    if not part.error <= part.tolerance:
        return np.inf
    return part.error / part.tolerance if part.tolerance else 0.0


# ---- the cases and the second roads ------------------------------------------------------------


def _small_network(seed: int = 0, p: int = 5, K: int = 4) -> tuple[QuadraticNetwork, Array]:
    """A modular network on 15 of 25 pairs with weights of order one: every term matters."""
    net = QuadraticNetwork.modular(p, K, *modular_pairs(p, 0.6, seed))
    return net, net.initial_weights(seed, 0.7)


def _planted(seed: int = 0, p: int = 5, K: int = 4) -> tuple[QuadraticNetwork, Array]:
    """The same inputs with the network's own outputs as targets: the loss is zero at w."""
    net, w = _small_network(seed, p, K)
    return net.with_targets(net.outputs(w)), w


def _gaussian_teacher(p: int, K: int, n: int, seed: int = 0) -> tuple[QuadraticNetwork, Array]:
    rng = np.random.default_rng(np.random.SeedSequence([0x6761757373, p, K, n, seed]))  # "gauss"
    net = QuadraticNetwork(rng.standard_normal((n, 2 * p)), np.zeros((n, p)), K)
    w = net.initial_weights(seed, 1.0)
    return net.with_targets(net.outputs(w)), w


def _scalar_outputs(net: QuadraticNetwork, w: Array) -> Array:
    """f by four nested loops over the definition."""
    u, v, W = net.unpack(w)
    f = np.zeros((net.n, net.p))
    for i in range(net.n):
        for k in range(net.p):
            for j in range(net.K):
                x = net.inputs[i]
                z = sum(u[j, a] * x[a] + v[j, a] * x[net.p + a] for a in range(net.p))
                f[i, k] += W[k, j] * z * z
    return f


def _derivative(
    f: Callable[[Array], Array | float], w: Array, x: Array, step: float = 1e-3
) -> Array:
    """Directional derivative of f at w along x: five-point stencil, error of order step⁴."""
    ahead, behind = np.asarray(f(w + step * x)), np.asarray(f(w - step * x))
    far = np.asarray(f(w + 2 * step * x)) - np.asarray(f(w - 2 * step * x))
    return (8.0 * (ahead - behind) - far) / (12.0 * step)


def _by_differences(f: Callable[[Array], Array | float], w: Array) -> Array:
    """All partial derivatives of f at w, last axis d."""
    return np.stack([_derivative(f, w, unit) for unit in np.eye(len(w))], axis=-1)


def _gradient_of(net: QuadraticNetwork) -> Callable[[Array], Array]:
    return lambda w: net.loss_and_grad(w)[1]


def _relative(found: Array, expected: Array) -> float:
    """Largest difference as a share of the largest expected entry."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# The outputs are cubic and the loss is of degree six in w, so the stencil's own error is
# step⁴/30·f⁽⁵⁾ ≲ 1e-12·(weights of order one); rounding leaves about 3 eps·|f|/step ≈ 1e-12.
# 1e-11 keeps a tenfold room for larger higher derivatives and is 10¹¹ below a wrong factor's error.
STENCIL = 1e-11
STENCIL_REASON = "five-point stencil: step⁴ and eps/step errors near 1e-12, times 10"


@equation(
    "E01",
    "forward and loss",
    formula="f_k(i) = Σ_j W_kj z_j(i)², L_n = (1/2n) Σ_i |(Cf)_i − (Cy)_i|²",
    source="Cullen et al. 2026, eq. of the quadratic network; centring: README",
    functions="qnet.QuadraticNetwork.outputs, .loss, .residuals",
    reason="sums of K·2p and n·p terms of one size, in another order: 50 eps",
)
def forward_and_loss() -> Iterator[Part]:
    """Outputs and loss against nested loops over their definitions."""
    for net, w in (_small_network(), _gaussian_teacher(3, 4, 12)):
        f = _scalar_outputs(net, w)
        yield Part("outputs against four nested loops", _relative(net.outputs(w), f), 50 * EPS)
        net = net.with_targets(np.roll(net.targets, 1, axis=1) + 0.3)
        total = 0.0
        for k in range(net.p):
            mean_f = sum(f[:, k]) / net.n
            mean_y = sum(net.targets[:, k]) / net.n
            for i in range(net.n):
                total += (f[i, k] - mean_f - net.targets[i, k] + mean_y) ** 2
        loss = total / (2 * net.n)
        yield Part("loss against loops", abs(net.loss(w) - loss) / loss, 50 * EPS)


@equation(
    "E02",
    "gradient",
    formula="∂W_kj = (1/n) Σ_i r_ik z_ij², ∂u_j[a] = (2/n) Σ_i x_i[a] g_ij z_ij, g = rW",
    source="derived from E01",
    functions="qnet.QuadraticNetwork.loss_and_grad",
    reason=STENCIL_REASON,
)
def gradient() -> Iterator[Part]:
    """The gradient against differences of the loss."""
    for net, w in (_small_network(), _small_network(1, 4, 7)):
        by_differences = _by_differences(net.loss, w)
        yield Part("gradient, one-hot", _relative(net.loss_and_grad(w)[1], by_differences), STENCIL)
    net, w = _gaussian_teacher(3, 4, 12)
    net = net.with_targets(np.zeros((12, 3)))
    yield Part(
        "gradient, Gaussian inputs",
        _relative(net.loss_and_grad(w)[1], _by_differences(net.loss, w)),
        STENCIL,
    )


@equation(
    "E03",
    "gradient identities",
    formula="2⟨W_j, ∂W_j⟩ = ⟨u_j, ∂u_j⟩ + ⟨v_j, ∂v_j⟩ (scaling), Σ_a ∂u_j[a] = Σ_b ∂v_j[b] (shift)",
    source="invariance of L_n under the two symmetries of each neuron",
    functions="qnet.QuadraticNetwork.loss_and_grad",
    reason="exact identities; sums of n·p rounded products: 100 eps of the terms' absolute sum",
)
def gradient_identities() -> Iterator[Part]:
    """Both identities over six decades of weight scale."""
    for scale in (1e-3, 1.0, 1e3):
        net, w = _small_network()
        u, v, W = net.unpack(scale * w)
        du, dv, dW = net.unpack(net.loss_and_grad(scale * w)[1])
        ups, downs = (u * du + v * dv).sum(axis=1), 2 * (W * dW).sum(axis=0)
        size = (np.abs(u * du) + np.abs(v * dv)).sum(axis=1).max()
        yield Part(f"scaling, weights × {scale:g}", np.abs(ups - downs).max() / size, 100 * EPS)
        shift = du.sum(axis=1) - dv.sum(axis=1)
        size = np.abs(du).sum(axis=1).max()
        yield Part(f"shift, weights × {scale:g}", np.abs(shift).max() / size, 100 * EPS)


@equation(
    "E04",
    "Jacobian",
    formula="∂f_k/∂W_lj = δ_kl z_j², ∂f_k/∂u_j[a] = 2 W_kj z_j x[a], centred; ∇L_n = Jᵀr/n",
    source="derived from E01",
    functions="qnet.QuadraticNetwork.jacobian, .jvp, .vjp",
    reason=STENCIL_REASON + "; products with J: 200 eps",
)
def jacobian() -> Iterator[Part]:
    """J against differences of the residuals; jvp, vjp and the gradient against products with J."""
    for kind, (net, w) in {
        "one-hot": _small_network(),
        "Gaussian": _gaussian_teacher(3, 4, 12),
    }.items():
        J = net.jacobian(w)
        yield Part(f"J, {kind}", _relative(J, _by_differences(net.residuals, w)), STENCIL)
        rng = np.random.default_rng(4)
        x, y = rng.standard_normal(net.n_params), rng.standard_normal(len(J))
        yield Part(f"J x, {kind}", _relative(net.jvp(w, x), J @ x), 200 * EPS)
        yield Part(f"Jᵀ y, {kind}", _relative(net.vjp(w, y), J.T @ y), 200 * EPS)
        moved = w + 0.1 * x
        gradient = net.loss_and_grad(moved)[1]
        pulled = net.hessian_scale * (net.jacobian(moved).T @ net.residuals(moved))
        yield Part(f"∇L = Jᵀr/n, {kind}", _relative(gradient, pulled), 200 * EPS)


@equation(
    "E05",
    "null directions",
    formula="J·(u_j, v_j, −2W_j) = 0 and J·(+1 on u_j, −1 on v_j) = 0 for every neuron j",
    source="scaling and shift symmetry of a neuron; the shift needs one-hot pairs",
    functions="qnet.QuadraticNetwork.null_directions",
    reason="exact cancellation of products: 50 eps of |J||x|; the directions must be independent",
)
def null_directions() -> Iterator[Part]:
    """J times the symmetry directions, and their number."""
    for kind, per_neuron, (net, w) in (
        ("one-hot", 2, _small_network()),
        ("Gaussian", 1, _gaussian_teacher(3, 4, 12)),
    ):
        J, rows = net.jacobian(w), net.null_directions(w)
        error = np.abs(J @ rows.T).max() / (np.abs(J) @ np.abs(rows.T)).max()
        yield Part(f"J x, {kind}", float(error), 50 * EPS)
        missing = per_neuron * net.K - np.linalg.matrix_rank(rows)
        yield Part(f"independent directions missing, {kind}", float(missing), 0.0)


@equation(
    "E06",
    "rank bound",
    formula="rank J ≤ min{p(n−1); min_R p|R| + K(3p−1−c(E∖R)); K(n−1+p−K) if K < min(p, n−1)}",
    source="README, section on the rank bound; c counts the components of the pair graph",
    functions="qnet.QuadraticNetwork.rank_bound",
    reason="whole numbers: no case may differ",
)
def rank_bound() -> Iterator[Part]:
    """The bound against the numerical rank on thin, disconnected and dense pair sets."""
    rng = np.random.default_rng(np.random.SeedSequence(6))
    off = 0
    for _ in range(120):
        net = _random_pair_set(rng)
        w = net.initial_weights(int(rng.integers(1_000_000)), 1.0)
        s = curvature.singular_values(net.jacobian(w))
        off += curvature.rank(s, 1e-10) != net.rank_bound()
    yield Part("random one-hot cases off the bound, of 120", float(off), 0.0)


def _random_pair_set(rng: np.random.Generator) -> QuadraticNetwork:
    """A random network whose pair graph is, one time in three each, thin, disconnected or dense."""
    p, K = int(rng.integers(2, 7)), int(rng.integers(1, 15))
    grid = np.arange(p * p)
    kind = rng.integers(3)
    if kind == 1 and p > 2:  # two blocks with no pair between them
        cut = int(rng.integers(1, p))
        a, b = np.divmod(grid, p)
        grid = grid[(a < cut) == (b < cut)]
    most = len(grid) if kind else min(len(grid), 3 * p)
    chosen = rng.permutation(grid)[: int(rng.integers(2, most + 1))]
    return QuadraticNetwork.modular(p, K, chosen // p, chosen % p)


@equation(
    "E07",
    "known learning coefficients",
    formula="λ = ½ rank J: K(3p−2)/2, p(n−1)/2, K(3p−1)/2, p²(2p+1)/2, p·rank(CZ²)/2",
    source="constant rank near w*: the zero set is a manifold; README, certificate",
    functions="theory.one_hot_generic, wide_limit, gaussian_generic, frozen_first_layer",
    reason="whole numbers: no case may differ",
)
def known_coefficients() -> Iterator[Part]:
    """Half the numerical rank, and the closed form, on eight networks whose λ is known."""
    for p, K, n, known in ((5, 3, 300, 21.0), (7, 6, 400, 60.0), (3, 20, 200, 31.5)):
        net, w = _gaussian_teacher(p, K, n)
        yield Part(f"Gaussian {p},{K}", abs(_half_rank(net.jacobian(w)) - known), 0.0)
        yield Part(f"Gaussian formula {p},{K}", abs(theory.gaussian_generic(K, p) - known), 0.0)
    for p, K, n, known in ((11, 6, 60, 93.0), (17, 12, 144, 294.0), (7, 14, 24, 80.5)):
        net = QuadraticNetwork.modular(p, K, *modular_pairs(p, n / p**2, 0))
        half = _half_rank(net.jacobian(net.initial_weights(0, 1.0)))
        formula = min(theory.one_hot_generic(K, p), theory.wide_limit(n, p))
        yield Part(f"one-hot {p},{K}", abs(half - known), 0.0)
        yield Part(f"one-hot formula {p},{K}", abs(formula - known), 0.0)
    for p, K, n, known in ((11, 44, 60, 242.0), (17, 68, 144, 578.0)):
        net = QuadraticNetwork.modular(p, K, *modular_pairs(p, n / p**2, 0))
        frozen = net.frozen(net.initial_weights(0, 1.0))
        s = curvature.singular_values(frozen.features)
        formula = theory.frozen_first_layer(curvature.rank(s, 1e-10), p)
        yield Part(f"frozen {p},{K}", abs(formula - known), 0.0)


def _half_rank(J: Array) -> float:
    return 0.5 * curvature.rank(curvature.singular_values(J), 1e-10)


@equation(
    "E08",
    "Hessian at zero loss",
    formula="H = JᵀJ/n where L_n = 0",
    source="S is linear in r; claim K18",
    functions="qnet.QuadraticNetwork.jacobian",
    reason="five-point stencil of the gradient: the step⁴ term is near 1e-11 of the largest entry",
)
def hessian_at_zero_loss() -> Iterator[Part]:
    """The Gauss-Newton matrix against differences of the gradient, at planted teachers."""
    for seed, p, K in ((0, 5, 4), (1, 4, 6)):
        net, w = _planted(seed, p, K)
        J = net.jacobian(w)
        by_differences = _by_differences(_gradient_of(net), w)
        yield Part(f"p={p}, K={K}", _relative(net.hessian_scale * J.T @ J, by_differences), 5e-10)


@equation(
    "E09",
    "full Hessian",
    formula="H = JᵀJ/n + S, S block-diagonal over neurons, S[W,W] = 0, tr S = 0 (one-hot)",
    source="derived from E02",
    functions="qnet.QuadraticNetwork.hessian, .hvp",
    reason=STENCIL_REASON + "; tr S and H x by rounding alone: 500 eps",
)
def full_hessian() -> Iterator[Part]:
    """H and H x off zero loss against differences of the gradient; the shape of S."""
    teacher, at = _gaussian_teacher(3, 4, 12)
    for kind, net, w in (
        ("one-hot", *_small_network()),
        ("Gaussian", teacher.with_targets(np.zeros((12, 3))), at),
    ):
        H = net.hessian(w)
        by_differences = _by_differences(_gradient_of(net), w)
        yield Part(f"H off zero loss, {kind}", _relative(H, by_differences), STENCIL)
        x = np.random.default_rng(9).standard_normal((3, net.n_params))
        yield Part(f"H x without H, {kind}", _relative(net.hvp(w, x), x @ H), 500 * EPS)
    net, w = _small_network()
    J = net.jacobian(w)
    S = net.hessian(w) - net.hessian_scale * J.T @ J
    size = np.abs(S).sum()
    yield Part("tr S of its absolute sum", abs(np.trace(S)) / size, 500 * EPS)
    yield Part(
        "S off its blocks, of its sum", np.abs(S[~_blocks_of_S(net)]).sum() / size, 500 * EPS
    )


def _blocks_of_S(net: QuadraticNetwork) -> NDArray[np.bool_]:
    """Where S may differ from zero, (d, d): two weights of one neuron, not both output weights."""
    each = np.arange(net.K)
    neuron = np.concatenate([np.repeat(each, net.p)] * 2 + [np.tile(each, net.p)])
    output = np.arange(net.n_params) >= 2 * net.K * net.p
    return (neuron[:, None] == neuron) & ~(output[:, None] & output)


@equation(
    "E10",
    "exact law of SGLD on a quadratic",
    formula="E[λ̂] = ½Σ [nβh/a]/(1−εa/4)·mean_{B≤t<T}(1−ρ^{2t}), a = nβh+γ, ρ = 1−εa/2",
    source="AR(1) of each eigendirection; Var[λ̂]: theory.sgld_llc_variance",
    functions="theory.sgld_expected_llc, theory.sgld_llc_variance, sgld.sample",
    reason="4 standard errors of 1,000 independent chains, of the mean and of the variance",
)
def exact_sgld_law() -> Iterator[Part]:
    """Mean and variance of λ̂ over independent chains, at a small, a large and an extreme step."""
    model, w_star, h = _frozen_teacher()
    for step_constant in (0.2, 1.0, 3.0):
        law: dict[str, Any] = {"n_beta": 100.0, "gamma": 0.5, "steps": 150, "burn_in": 20}
        step = theory.step_size(step_constant, n_beta=100.0, h_max=h[0], gamma=0.5)
        run = sgld.sample(model, w_star, **law, step=step, chains=1000, seed=10, h_max=h[0])
        mean = theory.sgld_expected_llc(h, **law, step=step)
        variance = theory.sgld_llc_variance(h, **law, step=step)
        readings = run.llc_per_chain
        z = (readings.mean() - mean) / np.sqrt(variance / len(readings))
        yield Part(f"|z| of the mean, s = {step_constant}", abs(z), STANDARD_ERRORS)
        squares = (readings - mean) ** 2
        z = (squares.mean() - variance) / (squares.std(ddof=1) / np.sqrt(len(squares)))
        yield Part(f"|z| of the variance, s = {step_constant}", abs(z), STANDARD_ERRORS)


def _frozen_teacher() -> tuple[FrozenFirstLayer, Array, Array]:
    """A linear network at zero loss with curvatures over four decades: model, w*, h."""
    rng = np.random.default_rng(np.random.SeedSequence(10))
    features = rng.standard_normal((12, 5)) * np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    w_star = rng.standard_normal(3 * 5)
    targets = features @ w_star.reshape(3, 5).T
    model = FrozenFirstLayer(features, targets)
    s = curvature.singular_values(model.jacobian(w_star))
    return model, w_star, curvature.curvatures(s, model.hessian_scale)


@equation(
    "E11",
    "effective dimension",
    formula="λ(c) = ½Σ h/(h+c) = ½tr[H(H+cI)⁻¹] = ½[N − c|L⁻¹|²_F], LLᵀ = H + cI",
    source="MacKay 1992 (effective number of parameters); ridge degrees of freedom / 2",
    functions="theory.effective_dimension, curvature.hutchinson_effective_dimension",
    reason="solves with condition number (h_max+c)/c ≤ 1e4: 1e4·100 eps; probes: 4 standard errors",
)
def effective_dimension() -> Iterator[Part]:
    """The spectral sum against two dense routes and the matrix-free one."""
    net, w = _planted()
    J = net.jacobian(w)
    H = net.hessian_scale * J.T @ J
    h = curvature.curvatures(curvature.singular_values(J), net.hessian_scale)
    identity = np.eye(len(H))
    for kappa in (1.0, 100.0, 1e4):
        c = h[0] / kappa
        spectral = theory.effective_dimension(h, c)
        solved = 0.5 * np.trace(np.linalg.solve(H + c * identity, H))
        yield Part(f"dense solve, κ = {kappa:g}", abs(solved / spectral - 1), 1e6 * EPS)
        inverse = np.linalg.inv(np.linalg.cholesky(H + c * identity))
        cholesky = 0.5 * (len(H) - c * (inverse**2).sum())
        yield Part(f"Cholesky, κ = {kappa:g}", abs(cholesky / spectral - 1), 1e6 * EPS)
    operator = curvature.gauss_newton_operator(net, w)
    c = h[0] / 100.0
    found, error = curvature.hutchinson_effective_dimension(operator, c, probes=100, seed=11)
    z = (found - theory.effective_dimension(h, c)) / error
    yield Part("|z| of Hutchinson + CG, κ = 100", abs(z), STANDARD_ERRORS)


@equation(
    "E12",
    "κ and relaxation time",
    formula="λ = ½Σ κ_i/(κ_i+1), κ_i = nβh_i/γ; τ = 2/(εγ) = (2/s)(κ+1); time of L: (1+ρ²)/(1−ρ²)",
    source="κ protocol: README; integrated time: Sokal 1996",
    functions="theory.response_curve, relaxation_time, step_size, chains.integrated_time",
    reason="identities: 10 eps; measured time: 4 of Sokal's standard errors, τ√(2(2M+1)/N), M = 5τ",
)
def kappa_and_relaxation() -> Iterator[Part]:
    """κ against γ, the relaxation time under the step rule, and measured autocorrelations."""
    h, n_beta = np.geomspace(1e-6, 3.0, 40), 50.0
    for kappa in (1.0, 10.0, 100.0):
        gamma = n_beta * h.max() / kappa
        each = n_beta * h / gamma
        curve = 0.5 * np.sum(each / (each + 1.0))
        error = abs(theory.response_curve(h, kappa)[0] / curve - 1)
        yield Part(f"response curve, κ = {kappa:g}", error, 10 * EPS)
        step = theory.step_size(0.2, n_beta=n_beta, h_max=h.max(), gamma=gamma)
        error = abs(theory.relaxation_time(0.2, kappa) * step * gamma / 2.0 - 1)
        yield Part(f"τ = 2/(εγ), κ = {kappa:g}", error, 10 * EPS)
    steepest = 1.0 - 0.5 * 0.2  # ρ at ε·a = s
    yield Part("|z| of the time of L, steepest direction", *_measured_time(1.0, steepest))
    spring = 1.0 - 1.0 / theory.relaxation_time(0.2, kappa=10.0)
    yield Part("|z| of the time of L, flat direction", *_measured_time(1e-6, spring))


def _measured_time(h: float, rho: float) -> tuple[float, float]:
    """(|z|, tolerance) of the integrated time of L in one direction of curvature h, where h_max is
    1, nβ = 10, γ = 1 and s = 0.2 (κ = 10), against (1+ρ²)/(1−ρ²)."""
    model = FrozenFirstLayer(np.sqrt(h) * np.array([[1.0], [-1.0]]), np.zeros((2, 1)))
    step = theory.step_size(0.2, n_beta=10.0, h_max=1.0, gamma=1.0)
    run = sgld.sample(
        model,
        np.zeros(1),
        n_beta=10.0,
        gamma=1.0,
        step=step,
        chains=20,
        steps=8000,
        burn_in=500,
        seed=12,
    )
    expected = (1.0 + rho**2) / (1.0 - rho**2)
    draws = 20 * (8000 - 500)
    error = expected * np.sqrt(2 * (2 * chains.WINDOW * expected + 1) / draws)
    return abs(run.reading.integrated_time - expected) / error, STANDARD_ERRORS


def _of_the_perceptron(entry: width_equations.Entry) -> Equation:
    """An equation of width_equations as an entry of this table."""

    def parts() -> Iterator[Part]:
        return (Part(*comparison) for comparison in entry.parts())

    return Equation(*entry[:-1], parts)


EQUATIONS = [*_ENTERED, *map(_of_the_perceptron, width_equations.ENTRIES)]


# ---- the table ---------------------------------------------------------------------------------


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as aligned text, one line each."""
    width = max(len(o.name) for o in outcomes)
    far = max(len(o.compared) for o in outcomes)
    lines = [f"{'':4} {'equation':{width}}  {'closest comparison':{far}}  {'error':>9}  tolerance"]
    for o in outcomes:
        lines.append(
            f"{o.id:4} {o.name:{width}}  {o.compared:{far}}  {o.error:9.2g}  {o.tolerance:9.2g}  "
            f"{'ok' if o.ok else 'FAILED'}"
        )
    return "\n".join(lines)


def markdown() -> str:
    """EQUATIONS.md: every equation with its formula, source, functions and reason."""
    head = (
        "# Equations\n\n"
        "Written by `python equations.py --markdown`; a test compares it with the code.\n"
        "`python equations.py` runs every check and prints errors beside tolerances.\n"
    )
    entries = (
        f"\n## {e.id} {e.name}\n\n"
        f"    {e.formula}\n\n"
        f"- Source: {e.source}\n- Functions: {_code(e.functions)}\n- Tolerance: {e.reason}\n"
        for e in EQUATIONS
    )
    return head + "".join(entries)


def _code(functions: str) -> str:
    return ", ".join(f"`{name}`" for name in functions.split(", "))


def main(arguments: list[str] | None = None) -> int:
    """Run the checks; exit status 0 only when every one holds."""
    parser = console.Arguments(description="Check every equation against a second computation.")
    parser.add_argument("--json", action="store_true", help="print a JSON list, not the table")
    parser.add_argument("--markdown", action="store_true", help="print EQUATIONS.md, run nothing")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    chosen = parser.parse_args(arguments)
    if chosen.markdown:
        print(markdown(), end="")
        return 0
    outcomes = [check(entry) for entry in EQUATIONS]
    print(records.to_json([_fields(o) for o in outcomes]) if chosen.json else table(outcomes))
    return 0 if all(o.ok for o in outcomes) else console.FAILED


def _fields(o: Outcome) -> dict[str, Any]:
    """One entry of --json; an error that is not a finite number is null there."""
    error = o.error if np.isfinite(o.error) else None
    return {"id": o.id, "name": o.name, "error": error, "tolerance": o.tolerance, "ok": o.ok}


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
