"""What Langevin chains must return on a quadratic: the κ protocol, per-coordinate steps, MALA.

    w ← w − ½E[n_beta·∇L_n + gamma·δ] + √E ξ,   E diagonal: one step per coordinate

In the coordinates u = E^{−½}δ this is u ← (I − ½Ã)u + ξ with Ã = √E(n_beta·H + gamma·I)√E, so each
eigendirection of Ã is one AR(1) process, exactly.

Symbols and shapes
    H        (d, d) Hessian of a quadratic loss        δ   w − w*, started at 0
    E        (d,) steps; E = ε everywhere is plain SGLD, whose law is in theory.py (E10)
    a, Q     eigenvalues and eigenvectors of Ã;  ρ = 1 − a/2, stable for 0 < a < 4
    S        stationary covariance of u:  S = (I − ½Ã)S(I − ½Ã) + I, so S = [Ã(I − Ã/4)]⁻¹
    κ        n_beta·h_max/gamma;  s the step constant ε·(n_beta·h_max + gamma)
    τ        (2/s)(κ + 1) steps, the relaxation time of a direction held by the spring alone
    T, B     steps, burn_in

RMSProp steps, E = ε/(√V + δ₀) with V ← αV + (1−α)g², have no law of this kind: E moves with the
chain, and the drift term ½∂E/∂w that would keep the posterior invariant is dropped, as in the
source. Two limits are known. Frozen (α → 1): V stands still and the law above holds with that E.
Tracking (α = 0, small steps): a coordinate feels E(w), and its density is exp(−U)/E(w), that is
(|g| + δ₀)exp(−U) on a diagonal quadratic, whose reading lies between 1 and 2 times the posterior's.

Sources: Roberts and Tweedie, Bernoulli 2 (1996) 341 (MALA); Li et al., AAAI 2016 (RMSProp SGLD);
equations E31, E32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

import theory

Array = NDArray[np.float64]


# ---- the κ protocol ----------------------------------------------------------------------------


class SamplerSettings(TypedDict):
    """Keyword arguments of sgld.sample."""

    n_beta: float
    gamma: float
    step: float
    steps: int
    burn_in: int


@dataclass(frozen=True)
class KappaProtocol:
    """Fix κ, not gamma: gamma = n_beta·h_max/κ, and every network gets the same number of τ.

    kappa          n_beta·h_max/gamma, the stiffness of the sharpest direction in springs
    n_beta         number of points times inverse temperature
    step_constant  s; ε = s/(n_beta·h_max + gamma)
    lengths        T in units of τ;  discarded  B in units of τ
    """

    kappa: float
    n_beta: float
    step_constant: float = 0.2
    lengths: float = 20.0
    discarded: float = 4.0

    @property
    def relaxation_time(self) -> float:
        """τ in steps, the same for every network."""
        return theory.relaxation_time(self.step_constant, self.kappa)

    def settings(self, h_max: float) -> SamplerSettings:
        """The settings of a network with this top curvature. Raises ValueError unless h_max > 0."""
        if not (np.isfinite(h_max) and h_max > 0):
            raise ValueError(f"h_max must be positive and finite: got {h_max}")
        if not 0 <= self.discarded < self.lengths:
            raise ValueError(f"discarded {self.discarded} must lie in 0..lengths {self.lengths}")
        gamma = self.n_beta * h_max / self.kappa
        return {
            "n_beta": self.n_beta,
            "gamma": gamma,
            "step": theory.step_size(
                self.step_constant, n_beta=self.n_beta, h_max=h_max, gamma=gamma
            ),
            "steps": int(np.ceil(self.lengths * self.relaxation_time)),
            "burn_in": int(np.ceil(self.discarded * self.relaxation_time)),
        }


# ---- one step per coordinate -------------------------------------------------------------------


def expected_llc(
    H: ArrayLike, steps_of: ArrayLike, *, n_beta: float, gamma: float, steps: int, burn_in: int
) -> float:
    """E[λ̂] from w*, transient and step bias included (E31).

    ½n_beta Σ_i (Qᵀ√E H √E Q)_ii/[a_i(1 − a_i/4)] · mean_{B≤t<T}(1 − ρ_i^{2t}). Dense, for small d.
    Raises theory.UnstableStep when some a ≥ 4, theory.UndefinedDimension when some a ≤ 0,
    ValueError on shapes and settings.
    """
    if not 0 <= burn_in < steps:
        raise ValueError(f"burn_in must lie in 0..steps−1: got {burn_in} of {steps} steps")
    a, share = _modes(H, steps_of, n_beta, gamma)
    reached = 1.0 - _mean_power(a, steps, burn_in)
    return float(0.5 * n_beta * np.sum(share / (a * (1.0 - 0.25 * a)) * reached))


def _modes(H: ArrayLike, steps_of: ArrayLike, n_beta: float, gamma: float) -> tuple[Array, Array]:
    """a and the diagonal of Qᵀ√E H √E Q."""
    H, E = np.asarray(H, dtype=np.float64), np.asarray(steps_of, dtype=np.float64)
    if E.ndim != 1 or H.shape != (E.size, E.size):
        raise ValueError(f"need H (d, d) and one step per coordinate: got {H.shape}, {E.shape}")
    if not (np.isfinite(E).all() and (E > 0).all() and n_beta > 0 and gamma >= 0):
        raise ValueError("steps and n_beta must be positive, gamma ≥ 0, all finite")
    root = np.sqrt(E)
    scaled = root[:, None] * H * root
    a, Q = np.linalg.eigh(n_beta * scaled + gamma * np.diag(E))
    theory.check_stable(1.0, float(a.max()))
    if a.min() <= 0:
        raise theory.UndefinedDimension(
            f"the smallest eigenvalue of √E(n_beta·H + gamma)√E is {a.min():.3g}: the chain has no "
            "stationary law; raise gamma or polish to a minimum"
        )
    return a, np.sum(Q * (scaled @ Q), axis=0)


def _mean_power(a: Array, steps: int, burn_in: int) -> Array:
    """Mean over B ≤ t < T of ρ^{2t} for 0 < a < 4; the geometric sum, without cancellation."""
    with np.errstate(divide="ignore"):  # ρ = 0 adds nothing after t = 0, nor does e^−700
        log_q = np.maximum(2.0 * np.log1p(-np.minimum(0.5 * a, 2.0 - 0.5 * a)), -700.0)
    return (
        np.exp(burn_in * log_q)
        * np.expm1((steps - burn_in) * log_q)
        / (np.expm1(log_q) * (steps - burn_in))
    )


# ---- MALA --------------------------------------------------------------------------------------


def expected_acceptance(
    h: ArrayLike,
    *,
    d: int,
    n_beta: float,
    gamma: float,
    step: float,
    at: Literal["chain", "posterior"],
) -> float:
    """Mean probability that MALA accepts SGLD's moves on a quadratic with d weights (E32).

    h holds the curvatures that are not flat; the other d − len(h) directions have a = gamma. A move
    x → y is accepted with probability min(1, eˣ), X = (ε/8)Σa²(x² − y²), nearly normal for many
    directions; with b = εa,

        at "chain"      x from SGLD's own law, which y shares:  mean 0, variance Σ b³/(16 − 4b)
        at "posterior"  x from the exact posterior:  mean −Σ b³/32, variance Σ (b³/16 + b⁶/512)

    On its own law the acceptance is never below ½, however large d; on the posterior's it falls to
    0 once Σ b³ is large. Raises theory.UnstableStep when ε·a ≥ 4, ValueError on arguments.
    """
    if at not in ("chain", "posterior"):
        raise ValueError(f'at must be "chain" or "posterior": got {at!r}')
    curved = np.asarray(h, dtype=np.float64)
    if curved.ndim != 1 or curved.size > d:
        raise ValueError(f"h must be a vector of at most d = {d} curvatures: got {curved.shape}")
    a = np.append(n_beta * curved + gamma, gamma)
    count = np.append(np.ones(curved.size), d - curved.size)
    theory.check_stable(step, float(a.max()))
    b = step * a
    at_rest = at == "chain"
    mean = 0.0 if at_rest else -float(count @ b**3) / 32.0
    each = b**3 / (16.0 - 4.0 * b) if at_rest else b**3 / 16.0 + b**6 / 512.0
    variance = float(count @ each)
    sd = variance**0.5
    # E min(1, e^X) of a normal X; in logarithms, because e^{mean + variance/2} may overflow
    beyond = np.exp(mean + 0.5 * variance + log_ndtr(-sd - mean / sd))
    return float(np.exp(log_ndtr(mean / sd)) + beyond)
