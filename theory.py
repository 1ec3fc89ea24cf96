"""Closed forms: what an estimator must return, from a spectrum or a formula and with no model.

Symbols and shapes
    h         (r,) curvatures, eigenvalues of the Gauss-Newton matrix or the Hessian
    n_beta    number of points times inverse temperature
    gamma     strength of the spring to w*, the localisation
    c         resolution, gamma/n_beta; a direction counts ½·h/(h + c)
    kappa     n_beta·h_max/gamma
    step      ε of SGLD;  a = n_beta·h + gamma the tempered curvature;  ρ = 1 − εa/2
    q, v_t    ρ² and 1 − q^t, the share of its stationary variance a direction has after t steps
    V         [n_beta·h/a]/(1 − εa/4), twice what a direction reads in a chain without end
    T, B, N   steps, burn_in and their difference, the steps averaged
    λ, m      learning coefficient and multiplicity
    d, r, D   weights; rank of the Hessian; d minus the exact symmetry directions

On a quadratic loss SGLD is one AR(1) process per eigendirection, so mean and variance of its
estimate are finite sums: step bias, burn-in and chain length are all inside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

STABILITY_LIMIT = 4.0  # SGLD's AR(1) factor leaves (−1, 1) at ε·a = 4


class UndefinedDimension(ArithmeticError):
    """There is no localised posterior: some eigenvalue is at or below −c."""


class UnstableStep(ArithmeticError):
    """ε·a_max reaches the stability limit 4: the chain would diverge."""


class Bracket(NamedTuple):
    """Two-sided bound on λ at a zero of the loss: lower ≤ λ ≤ upper."""

    lower: float
    upper: float


# ---- readings at a finite resolution -----------------------------------------------------------


def effective_dimension(h: ArrayLike, resolution: float) -> float:
    """λ(c) = ½ Σ h/(h + c), what the localised tempered posterior of a quadratic loss returns.

    Given h (r,), of any sign above −c, and c = gamma/n_beta ≥ 0; at c = 0 it is half the number of
    non-zero curvatures. Raises UndefinedDimension when some h ≤ −c, ValueError on c < 0 (E11).
    """
    spectrum = _finite(h)
    if not (np.isfinite(resolution) and resolution >= 0):
        raise ValueError(f"resolution gamma/n_beta must be finite and ≥ 0, got {resolution}")
    lowest = spectrum.min(initial=0.0)
    if lowest < 0 and lowest <= -resolution:
        raise UndefinedDimension(
            f"smallest eigenvalue {lowest:.3g} is not above −c = {-resolution:.3g}: the localised "
            "posterior does not exist there; raise gamma/n_beta above it or polish to a minimum"
        )
    curved = spectrum[spectrum != 0]
    return float(0.5 * np.sum(curved / (curved + resolution)))


def response_curve(h: ArrayLike, kappas: ArrayLike) -> Array:
    """λ at each κ = n_beta·h_max/gamma: ½ Σ κ_i/(κ_i + 1) with κ_i = κ·h_i/h_max. (len(kappas),)

    Raises ValueError unless every κ is positive and finite; otherwise as `effective_dimension`."""
    spectrum = _finite(h)
    at = np.atleast_1d(np.asarray(kappas, dtype=np.float64))
    if not ((at > 0) & np.isfinite(at)).all():
        raise ValueError(f"every kappa must be positive and finite, got {at}")
    h_max = spectrum.max(initial=0.0)
    return np.array([effective_dimension(spectrum, h_max / kappa) for kappa in at])


def step_size(step_constant: float, *, n_beta: float, h_max: float, gamma: float) -> float:
    """ε = s/(n_beta·h_max + gamma), the step rule; s/4 is the fraction of the stability limit."""
    _positive(step_constant=step_constant, n_beta=n_beta, gamma=gamma)
    if not (np.isfinite(h_max) and h_max >= 0):
        raise ValueError(f"h_max must be finite and ≥ 0, got {h_max}")
    return step_constant / (n_beta * h_max + gamma)


def relaxation_time(step_constant: float, kappa: float) -> float:
    """τ = (2/s)(κ + 1) steps: the spring's relaxation time under the step rule (E12).

    It is 2/(εγ), the slowest direction's; the same for every model at the same κ and s."""
    _positive(step_constant=step_constant, kappa=kappa)
    return 2.0 / step_constant * (kappa + 1.0)


# ---- the exact law of the SGLD estimate on a quadratic -----------------------------------------


def sgld_expected_llc(
    h: ArrayLike, *, n_beta: float, gamma: float, step: float, steps: int, burn_in: int
) -> float:
    """E[λ̂] of SGLD started at w*, a stationary point of a quadratic loss with curvatures h (E10).

    ½ Σ_i V_i · mean_{t∈[B,T)} (1 − ρ_i^{2t}),  V_i = [n_beta·h_i/a_i]/(1 − εa_i/4);
    the loss is recorded before each update and w_0 = w*. Exact: no limit of large n, small steps or
    long chains is taken. Raises UnstableStep when ε·a_max ≥ 4, UndefinedDimension when some a ≤ 0,
    ValueError on settings out of range.
    """
    V, log_q = _autoregression(h, n_beta, gamma, step)
    reached = _averaged_steps(log_q, steps, burn_in).plain[1] / (steps - burn_in)
    return float(0.5 * np.sum(V * reached))


def sgld_stationary_llc(h: ArrayLike, *, n_beta: float, gamma: float, step: float) -> float:
    """E[λ̂] of chains without end: ½ Σ [n_beta·h/a]/(1 − εa/4), step inflation kept (E10).

    Same errors as `sgld_expected_llc`."""
    V, _ = _autoregression(h, n_beta, gamma, step)
    return float(0.5 * np.sum(V))


def sgld_llc_variance(
    h: ArrayLike,
    *,
    n_beta: float,
    gamma: float,
    step: float,
    steps: int,
    burn_in: int,
    chains: int = 1,
) -> float:
    """Var[λ̂] over the noise of `chains` independent chains, exact on a quadratic (E10).

    For Gaussian x: Cov(x_s², x_t²) = 2 Cov(x_s, x_t)², and Cov(x_s, x_t) = ρ^{t−s} Var(x_s) for
    s ≤ t, so one chain has

        Var = Σ_i V_i²/(2N²) · Σ_{s,t∈[B,T)} q_i^{|t−s|} (1 − q_i^{min(s,t)})².

    With A = (1+q)/(1−q), D = 2q/(1−q), G_k = Σ_{t∈[B,T)} q^{kt} and G' = Σ_{t<N} q^t the inner sum
    is A·[N − 2G_1 + G_2] − D·[G' − 2N q^{T−1} + q^{T−1} G_1]. That form loses every digit for q
    near 1: `_averaged_steps` adds the same terms by doubling. Errors as in `sgld_expected_llc`.
    """
    if chains < 1:
        raise ValueError(f"chains must be at least 1, got {chains}")
    V, log_q = _autoregression(h, n_beta, gamma, step)
    pairs = _averaged_steps(log_q, steps, burn_in).pairs[2]
    return float(np.sum(V * V * pairs) / (2.0 * (steps - burn_in) ** 2 * chains))


def _autoregression(h: ArrayLike, n_beta: float, gamma: float, step: float) -> tuple[Array, Array]:
    """V and log q of each direction that is not flat; checks everything but the steps."""
    spectrum = _finite(h)
    _positive(n_beta=n_beta, step=step)
    if not (np.isfinite(gamma) and gamma >= 0):
        raise ValueError(f"gamma must be finite and ≥ 0, got {gamma}")
    check_stable(step, n_beta * spectrum.max(initial=0.0) + gamma)
    h_curved = spectrum[spectrum != 0]
    a = n_beta * h_curved + gamma
    if a.min(initial=np.inf) <= 0:
        raise UndefinedDimension(
            f"n_beta·h + gamma = {a.min():.3g} is not positive: the chain has no stationary law; "
            "raise gamma or polish to a minimum"
        )
    half = 0.5 * step * a  # 1 − ρ
    with np.errstate(divide="ignore"):  # ρ = 0 gives log q = −inf, which the sums below accept
        log_q = 2.0 * np.log1p(-np.minimum(half, 2.0 - half))
    return n_beta * h_curved / a / (1.0 - 0.5 * half), log_q


def check_stable(step: float, a_max: float) -> None:
    """Raise UnstableStep when ε·a_max ≥ 4, a_max = n_beta·h_max + gamma."""
    if not step * a_max < STABILITY_LIMIT:
        raise UnstableStep(
            f"ε·a_max = {step * a_max:.4g} is not below the stability limit 4 (step {step:.4g}, "
            f"n_beta·h_max + gamma = {a_max:.4g}): every chain would diverge; use a step below "
            f"{STABILITY_LIMIT / a_max:.4g}"
        )


class _Sums(NamedTuple):
    """Sums over a stretch of consecutive steps, each (3, r): a row per power k = 0, 1, 2 of v.

    Every term is positive and stretches are joined by additions alone, so nothing cancels.
    """

    plain: Array  # Σ_t v_t^k
    to_end: Array  # Σ_t v_t^k q^{last − t}
    pairs: Array  # Σ_{s,t} v_{min(s,t)}^k q^{|t − s|}


def _averaged_steps(log_q: Array, steps: int, burn_in: int) -> _Sums:
    """The sums over B ≤ t < T, in about 2·log₂ N joins."""
    if not 0 <= burn_in < steps:
        raise ValueError(f"burn_in must lie in 0..steps−1: got {burn_in} of {steps} steps")
    first_power_alone = np.outer([1.0, 0.0, 0.0], np.ones_like(log_q))
    one = total = _Sums(first_power_alone, first_power_alone, first_power_alone)  # t = 0: v_0 = 0
    length = 1
    for digit in f"{steps - burn_in:b}"[1:]:
        total, length = _joined(total, length, total, length, log_q), 2 * length
        if digit == "1":
            total, length = _joined(total, length, one, 1, log_q), length + 1
    return _moved(total, burn_in, log_q)


def _joined(head: _Sums, head_length: int, tail: _Sums, tail_length: int, log_q: Array) -> _Sums:
    """The sums over a stretch that starts at t = 0, from those of two that both start there."""
    after = _moved(tail, head_length, log_q)
    across = 2.0 * np.exp(log_q) * tail.to_end[0] * head.to_end  # s in the head, t in the tail
    return _Sums(
        head.plain + after.plain,
        head.to_end * np.exp(log_q * tail_length) + after.to_end,
        head.pairs + across + after.pairs,
    )


def _moved(sums: _Sums, start: int, log_q: Array) -> _Sums:
    """The sums over a stretch that starts at `start`: there v_{start+t} = v_start + q^start·v_t."""
    if start == 0:
        return sums
    q, v = np.exp(log_q * start), -np.expm1(log_q * start)

    def expanded(powers: Array) -> Array:
        zeroth, first, second = powers
        return np.stack(
            [zeroth, v * zeroth + q * first, v * v * zeroth + 2.0 * v * q * first + q * q * second]
        )

    return _Sums(expanded(sums.plain), expanded(sums.to_end), expanded(sums.pairs))


# ---- learning coefficients of the quadratic network --------------------------------------------


def bracket(rank: int, symmetry_free_dimension: int) -> Bracket:
    """r/2 ≤ λ ≤ r/2 + (D − r)/4 at a zero of the loss (splitting lemma).

    Given r, the rank of the Hessian there, and D = d minus the exact symmetry directions. Each
    direction the Hessian calls flat adds between 0 and ¼. Raises ValueError unless 0 ≤ r ≤ D.
    """
    if not 0 <= rank <= symmetry_free_dimension:
        raise ValueError(f"rank must lie in 0..D = {symmetry_free_dimension}, got {rank}")
    lower = 0.5 * rank
    return Bracket(lower, lower + 0.25 * (symmetry_free_dimension - rank))


def paper_closed_form(K_eff: int, p: int) -> float:
    """½ K_eff (3p − 1): the grokked value of Cullen et al. 2026, Cor. 5.4. A claim to be tested."""
    return 0.5 * K_eff * (3 * p - 1)


def one_hot_generic(K: int, p: int) -> float:
    """½ K (3p − 2): generic one-hot networks below every width limit; λ = half the rank, m = 1."""
    return 0.5 * K * (3 * p - 2)


def gaussian_generic(K: int, p: int) -> float:
    """½ min{K(3p − 1), p²(2p + 1)}: planted teachers on many Gaussian inputs; m = 1."""
    return 0.5 * min(K * (3 * p - 1), p * p * (2 * p + 1))


def wide_limit(n: int, p: int) -> float:
    """½ p (n − 1): past the width limit the n centred targets pin every output; m = 1."""
    return 0.5 * p * (n - 1)


def frozen_first_layer(feature_rank: int, p: int) -> float:
    """½ p·rank(C Z²): only the output weights vary, so the model is linear; m = 1."""
    return 0.5 * p * feature_rank


def dead_neuron(p: int, *, one_hot: bool) -> float:
    """What one more neuron with W = 0, u = v = 0 adds to λ, and the Hessian does not see.

    (2p − 1)/4 on one-hot pairs with m = 1, p/2 on Gaussian inputs with m = 2."""
    return (2 * p - 1) / 4 if one_hot else p / 2


# ---- checks ------------------------------------------------------------------------------------


def _finite(h: ArrayLike) -> Array:
    spectrum = np.asarray(h, dtype=np.float64)
    if spectrum.ndim != 1:
        raise ValueError(f"curvatures must be a vector, got shape {spectrum.shape}")
    if not np.isfinite(spectrum).all():
        bad = int(np.flatnonzero(~np.isfinite(spectrum))[0])
        raise ValueError(f"curvatures must be finite: entry {bad} is {spectrum[bad]}")
    return spectrum


def _positive(**settings: float) -> None:
    for name, value in settings.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, got {value}")
