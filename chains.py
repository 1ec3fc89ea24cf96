"""What a set of chains says, and the verbs every model speaks.

Symbols and shapes
    losses    (C, T) L_n(w_t) of C chains, T steps, recorded before each update
    B         burn_in, steps discarded at the start of every chain
    N         T − B, steps kept per chain
    λ̂         n_beta·(mean of the kept losses − L_n(w*))
    τ         integrated autocorrelation time in steps: N steps are worth N/τ independent draws
    R̂         split R-hat (Gelman et al., Bayesian Data Analysis 3rd ed., 11.4)

There is no average over survivors: one chain that is not finite, or that does not move, and the
whole set is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

BLOCKS = 5  # a reading is settled only if the last fifth agrees with the whole
BAND = 0.05  # ... within this share of λ̂; the standard error must be smaller than it too
NOISE = 3.0  # a drift within 3 standard errors of itself is noise, not drift
SPLIT_R_HAT_LIMIT = 1.1  # Gelman et al.: below it the halves of the chains tell the same story
DRAWS_NEEDED = 50  # independent draws, all chains together: fewer cannot support the error bar
WINDOW = 5.0  # Sokal's window: the autocorrelation is summed up to 5τ


class Model(Protocol):
    """The verbs of every model. A new architecture is one new file that speaks them.

    `w` is (d,); `loss` and `loss_and_grad` also take (B, d). J has m rows; `residuals` and `vjp`
    use its row order. Always: loss = ½·hessian_scale·|residuals|², its gradient is
    hessian_scale·Jᵀ·residuals, and the Gauss-Newton matrix is hessian_scale·JᵀJ.
    """

    @property
    def n(self) -> int:
        """Number of data points."""

    @property
    def n_params(self) -> int:
        """d, the number of weights."""

    @property
    def hessian_scale(self) -> float:
        """The factor between JᵀJ and the Gauss-Newton matrix."""

    def loss(self, w: Array, /) -> float | Array:
        """L_n: a scalar, or (B,)."""

    def loss_and_grad(self, w: Array, /) -> tuple[float | Array, Array]:
        """L_n and ∇L_n, (d,) or (B, d) like w."""

    def residuals(self, w: Array, /) -> Array:
        """(m,), in the row order of J."""

    def jacobian(self, w: Array, /) -> Array:
        """J of the residuals, (m, d)."""

    def jvp(self, w: Array, x: Array, /) -> Array:
        """J x, (m,)."""

    def vjp(self, w: Array, y: Array, /) -> Array:
        """Jᵀ y, (d,)."""

    def hvp(self, w: Array, x: Array, /) -> Array:
        """The full Hessian times x, (d,)."""


class DeadChain(RuntimeError):
    """A chain is not finite or never moved; the message names chain, step and value."""


@dataclass(frozen=True)
class Reading:
    """λ̂ with everything needed to judge it. Burn-in is discarded from every number."""

    llc: float
    llc_per_chain: Array  # (C,)
    standard_error: float  # the larger of the two below
    standard_error_between_chains: float | None  # None for a single chain
    standard_error_autocorrelation: float
    integrated_time: float  # steps
    split_r_hat: float
    block_means: Array  # (BLOCKS,) λ̂ over consecutive fifths, all chains
    burn_in: int
    doubts: tuple[str, ...]  # why it is not settled; empty when it is

    @property
    def settled(self) -> bool:
        """No reason for doubt was found."""
        return not self.doubts


def summarise(
    losses: ArrayLike, loss_at_reference: float, *, n_beta: float, burn_in: int
) -> Reading:
    """Read λ̂ and its doubts from the loss traces (C, T) of a set of chains.

    Raises DeadChain for a chain with a value that is not finite, burn-in included, or with no
    movement after burn-in; ValueError for a shape, a reference loss, an n_beta or a burn-in that
    cannot be read (a burn-in must leave 2·BLOCKS steps).
    """
    traces = _checked(losses, loss_at_reference, n_beta, burn_in)
    _refuse_dead(traces, burn_in)
    excess = n_beta * (traces[:, burn_in:] - loss_at_reference)
    per_chain = excess.mean(axis=1)
    llc = float(per_chain.mean())
    tau = integrated_time(excess)
    correlated = float(np.sqrt(excess.var() * tau / excess.size))
    between = float(per_chain.std(ddof=1) / np.sqrt(len(excess))) if len(excess) > 1 else None
    error = max(correlated, between or 0.0)
    blocks = np.array([part.mean() for part in np.array_split(excess, BLOCKS, axis=1)])
    r_hat = split_r_hat(excess)
    return Reading(
        llc=llc,
        llc_per_chain=per_chain,
        standard_error=error,
        standard_error_between_chains=between,
        standard_error_autocorrelation=correlated,
        integrated_time=tau,
        split_r_hat=r_hat,
        block_means=blocks,
        burn_in=burn_in,
        doubts=tuple(_doubts(llc, error, blocks, _noise(excess), r_hat, excess.size / tau)),
    )


def _checked(losses: ArrayLike, loss_at_reference: float, n_beta: float, burn_in: int) -> Array:
    traces = np.asarray(losses, dtype=np.float64)
    if traces.ndim != 2 or len(traces) == 0:
        raise ValueError(f"losses must be (chains, steps), got shape {traces.shape}")
    if not np.isfinite(loss_at_reference):
        raise ValueError(f"the loss at w* must be finite, got {loss_at_reference}")
    if not (np.isfinite(n_beta) and n_beta > 0):
        raise ValueError(f"n_beta must be positive and finite, got {n_beta}")
    if not 0 <= burn_in <= traces.shape[1] - 2 * BLOCKS:
        raise ValueError(
            f"burn_in {burn_in} of {traces.shape[1]} steps must leave at least {2 * BLOCKS} steps"
        )
    return traces


def _refuse_dead(losses: Array, burn_in: int) -> None:
    if not np.isfinite(losses).all():
        # the first in time: what happens to other chains later may follow from the same cause
        step, chain = np.argwhere(~np.isfinite(losses.T))[0]
        raise DeadChain(
            f"chain {chain} has loss {losses[chain, step]} at step {step}: it diverged; lower the "
            "step constant or raise gamma. No average over the other chains is made"
        )
    still = np.flatnonzero(np.ptp(losses[:, burn_in:], axis=1) == 0.0)
    if still.size:
        raise DeadChain(
            f"chain {still[0]} never moves from step {burn_in} on: its loss stays "
            f"{losses[still[0], -1]:.6g}; check the step, the noise and that the loss depends on w"
        )


def _noise(excess: Array) -> float:
    """Standard error of the last fifth's distance from the whole, were there no drift.

    It is read from the last fifth alone, each chain about its own mean: a drift that all chains
    share would widen an error bar read from the whole, and hide inside it.
    """
    last = excess[:, -(excess.shape[1] // BLOCKS) :]
    scatter = last - last.mean(axis=1, keepdims=True)
    if np.ptp(scatter) == 0.0:
        return 0.0
    error = np.sqrt(scatter.var() * integrated_time(scatter) / scatter.size)
    return float(error * np.sqrt(1.0 - 1.0 / BLOCKS))  # a fifth shares its own draws with the whole


def _doubts(
    llc: float, error: float, blocks: Array, noise: float, r_hat: float, draws: float
) -> list[str]:
    doubts = []
    if abs(blocks[-1] - llc) > max(BAND * abs(llc), NOISE * noise):
        doubts.append(f"last fifth of the chains reads {blocks[-1]:.4g}, the whole {llc:.4g}")
    if r_hat > SPLIT_R_HAT_LIMIT:
        doubts.append(f"split R-hat {r_hat:.3f} exceeds {SPLIT_R_HAT_LIMIT}")
    if draws < DRAWS_NEEDED:
        doubts.append(f"the chains hold {draws:.0f} independent draws, fewer than {DRAWS_NEEDED}")
    if error > BAND * abs(llc):
        doubts.append(f"standard error {error:.3g} exceeds {BAND:.0%} of the reading {llc:.4g}")
    if llc < 0:
        doubts.append(f"λ̂ = {llc:.4g} is negative: the chains found lower loss than w* has")
    return doubts


def integrated_time(x: ArrayLike) -> float:
    """Integrated autocorrelation time τ = 1 + 2 Σ ρ_t in steps, of chains x (C, N).

    Each chain is centred on the mean of all, the autocovariances are averaged over the chains and
    summed up to Sokal's window, the first M ≥ 5τ(M). Never below 1: anticorrelation is not claimed
    as a gain. Raises DeadChain when all values are equal or one is not finite.
    Source: Sokal 1996, "Monte Carlo methods in statistical mechanics", section 3.
    """
    chains = _moving(x)
    n = chains.shape[1]
    spectrum = np.fft.rfft(chains - chains.mean(), 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(axis=0)
    taus = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0  # taus[M] sums the lags up to M
    inside = np.flatnonzero(np.arange(n) >= WINDOW * taus)
    return max(1.0, float(taus[inside[0] if inside.size else n - 1]))


def split_r_hat(x: ArrayLike) -> float:
    """Split R-hat of chains x (C, N): √(pooled variance / within variance) over 2C half chains.

    N ≥ 4; an odd N leaves out the middle step. Infinite when every half stands still at its own
    value. Raises DeadChain when all values are equal or one is not finite, ValueError on N < 4.
    """
    chains = _moving(x)
    half = chains.shape[1] // 2
    if half < 2:
        raise ValueError(f"split R-hat needs at least 4 steps, got {chains.shape[1]}")
    halves = np.concatenate([chains[:, :half], chains[:, -half:]])
    within = float(halves.var(axis=1, ddof=1).mean())
    between = float(halves.mean(axis=1).var(ddof=1))
    return float(np.sqrt((half - 1) / half + between / within)) if within > 0 else np.inf


def _moving(x: ArrayLike) -> Array:
    """x as (C, N), refused unless finite and not all equal."""
    chains = np.atleast_2d(np.asarray(x, dtype=np.float64))
    if not np.isfinite(chains).all():
        raise DeadChain("a chain holds a value that is not finite; find where it diverged")
    if np.ptp(chains) == 0.0:
        raise DeadChain(f"the chains hold the one value {chains.flat[0]:.6g}: nothing moved")
    return chains
