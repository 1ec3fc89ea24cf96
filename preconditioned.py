"""SGLD with a step per coordinate: fixed ones, or RMSProp's, which follow the chain's gradients.

    w_{t+1} = w_t − (ε/2) G∘[n_beta·∇L_n(w_t) + gamma·(w_t − w*)] + √(εG) ∘ ξ_t,    w_0 = w*

G = 1 everywhere is sgld.sample to the last bit, which is the sampler to use when G = 1. The exact
law for a fixed G, and the limits of RMSProp's, are in langevin_laws.py.

Symbols and shapes
    C, T, d   chains, steps, weights              δ      (C, d) w − w*
    G         (d,) or (C, d) scale of the step    A      n_beta·H + gamma·I
    V         (C, d) running mean of g², g = ∇L_n;  V ← αV + (1−α)g² before each step, V = 0 before
    δ₀        damping of RMSProp: G = 1/(√V + δ₀)

RMSProp's G depends on the weights, and the term ½∂(εG)/∂w that would keep the posterior invariant
is left out, as in the source: the bias is bounded in langevin_laws.py and measured in the tests.
Neither chain is corrected by a Metropolis step.

Sources: Li et al., AAAI 2016 (RMSProp SGLD); Lau et al. 2023 (localisation); equation E31.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

import curvature
import effective_dimension
import theory
from chains import DeadChain, Model, summarise
from sgld import KEEP_EVERY, REPORT_EVERY, Progress, Sample, Settings, chain_stream, mala_acceptance

Array = NDArray[np.float64]


class StepRule(Protocol):
    """How the step of each coordinate is scaled."""

    def begin(self, chains: int, d: int) -> None:
        """Forget earlier runs."""

    def scales(self, gradient: Array) -> Array:
        """G (d,) or (C, d) for the step along ∇L_n (C, d)."""

    def stiffest(self, model: Model, w_star: Array, n_beta: float, gamma: float) -> float:
        """λ_max of √G A √G at w*, or a bound: the step is stable for ε times it below 4."""


class FixedSteps:
    """G (d,) chosen beforehand, positive: per-tensor steps are mlp.MLP.expand of their scales."""

    def __init__(self, scales: ArrayLike) -> None:
        self._scales = np.asarray(scales, dtype=np.float64)
        good = self._scales[np.isfinite(self._scales) & (self._scales > 0)]
        if self._scales.ndim != 1 or not 0 < good.size == self._scales.size:
            raise ValueError("scales must be a vector of positive, finite numbers, one per weight")

    def begin(self, chains: int, d: int) -> None:
        """Check the number of scales."""
        if self._scales.size != d:
            raise ValueError(f"{self._scales.size} scales for {d} weights: give one per weight")

    def scales(self, gradient: Array) -> Array:
        """G, whatever the gradient."""
        return self._scales

    def stiffest(self, model: Model, w_star: Array, n_beta: float, gamma: float) -> float:
        """λ_max of √G(n_beta·GN + gamma)√G, by Lanczos."""
        root = np.sqrt(self._scales)
        gauss_newton = curvature.gauss_newton_operator(model, w_star)

        def product(x: Array) -> Array:
            return root * (n_beta * (gauss_newton @ (root * x)) + gamma * root * x)

        return curvature.top_eigenvalue(effective_dimension.operator(len(root), product))


class RMSProp:
    """G = 1/(√V + damping), V ← αV + (1−α)g², V = 0 before the first step.

    G ≤ 1/damping always, so ε·(n_beta·h_max + gamma)/damping < 4 keeps every step stable. The
    defaults are devinterp's; its damping of 0.1 stands far above most gradients of a mean loss,
    and the chain is then plain SGLD with ε/0.1.
    """

    def __init__(self, alpha: float = 0.99, damping: float = 0.1) -> None:
        if not (0.0 <= alpha < 1.0 and 0.0 < damping < np.inf):
            raise ValueError(f"need 0 ≤ alpha < 1 and damping > 0: got {alpha} and {damping}")
        self.alpha, self.damping = alpha, damping
        self._V = np.zeros((0, 0))

    def begin(self, chains: int, d: int) -> None:
        """V = 0."""
        self._V = np.zeros((chains, d))

    def scales(self, gradient: Array) -> Array:
        """G (C, d) after this gradient has entered V."""
        self._V *= self.alpha
        self._V += (1.0 - self.alpha) * gradient * gradient
        return 1.0 / (np.sqrt(self._V) + self.damping)

    def stiffest(self, model: Model, w_star: Array, n_beta: float, gamma: float) -> float:
        """The bound (n_beta·h_max + gamma)/damping."""
        h_max = curvature.top_eigenvalue(curvature.gauss_newton_operator(model, w_star))
        return (n_beta * h_max + gamma) / self.damping


def sample(
    model: Model,
    w_star: ArrayLike,
    rule: StepRule,
    *,
    n_beta: float,
    gamma: float,
    step: float,
    chains: int = 4,
    steps: int = 10_000,
    burn_in: int = 2_000,
    seed: int | tuple[int, ...] = 0,
    progress: Progress | None = None,
) -> Sample:
    """Estimate λ at w* by SGLD with the steps of `rule`; arguments and result as sgld.sample.

    The noise streams are sgld's: the same seed gives the same ξ. `mala_acceptance` holds G still
    over each move. Raises theory.UnstableStep when ε·stiffest ≥ 4, DeadChain, ValueError.
    """
    settings = Settings(n_beta, gamma, step, chains, steps, burn_in, seed)
    start = np.array(w_star, dtype=np.float64)
    if start.shape != (model.n_params,) or not np.isfinite(start).all():
        raise ValueError(f"w_star must be {model.n_params} finite weights: got {start.shape}")
    rule.begin(chains, len(start))
    theory.check_stable(step, rule.stiffest(model, start, n_beta, gamma))
    losses, distances, accepted, delta = _run(model, start, rule, settings, progress)
    reference = float(losses[0, 0])
    reading = summarise(losses, reference, n_beta=n_beta, burn_in=burn_in)
    return Sample(
        settings=settings,
        reading=reading,
        loss_at_reference=reference,
        traces=losses[:, ::KEEP_EVERY].copy(),
        distances=distances,
        end_points=start + delta,
        mala_acceptance=accepted,
        doubts=reading.doubts,
    )


def _run(
    model: Model, w_star: Array, rule: StepRule, settings: Settings, progress: Progress | None
) -> tuple[Array, Array, float, Array]:
    """Losses (C, T), distances (C, ⌈T/10⌉), mean MALA acceptance, and the last δ (C, d)."""
    streams = [chain_stream(settings.case, c) for c in range(settings.chains)]
    losses = np.empty((settings.chains, settings.steps))
    distances = np.empty((settings.chains, -(-settings.steps // KEEP_EVERY)))
    delta, noise = np.zeros((2, settings.chains, len(w_star)))
    accepted: list[Array] = []
    before: _Move | None = None
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by name
        for t in range(settings.steps):
            loss, gradient = model.loss_and_grad(w_star + delta)
            losses[:, t] = loss
            if not np.isfinite(losses[:, t]).all():
                raise _diverged(losses[:, t], t)
            force = settings.n_beta * gradient + settings.gamma * delta
            if before is not None:
                accepted.append(before.acceptance(delta, losses[:, t], force, settings))
                before = None
            G = rule.scales(gradient)
            if t % KEEP_EVERY == 0:
                distances[:, t // KEEP_EVERY] = np.linalg.norm(delta, axis=1)
                if t >= settings.burn_in:
                    before = _Move(delta.copy(), losses[:, t].copy(), force, np.sqrt(G))
            for stream, row in zip(streams, noise, strict=True):
                stream.standard_normal(out=row)
            delta -= 0.5 * settings.step * force * G
            delta += settings.step**0.5 * noise * np.sqrt(G)
            if progress and (t + 1) % REPORT_EVERY == 0:
                progress(REPORT_EVERY * settings.chains)
    if progress:
        progress(settings.steps % REPORT_EVERY * settings.chains)
    if not np.isfinite(delta).all():
        raise _diverged(np.abs(delta).max(axis=1), settings.steps)
    return losses, distances, float(np.mean(accepted)) if accepted else np.nan, delta


class _Move:
    """Where a move began, to judge it once its end is known."""

    def __init__(self, delta: Array, loss: Array, force: Array, root: Array) -> None:
        self._delta, self._loss, self._force, self._root = delta, loss, force, root

    def acceptance(self, delta: Array, loss: Array, force: Array, settings: Settings) -> Array:
        """MALA's acceptance of the move that ended at δ, in the coordinates δ/√G, (C,)."""
        energies = [
            settings.n_beta * L + 0.5 * settings.gamma * np.vecdot(at, at)
            for at, L in ((self._delta, self._loss), (delta, loss))
        ]
        return mala_acceptance(
            self._delta / self._root,
            delta / self._root,
            previous_energy=energies[0],
            proposed_energy=energies[1],
            previous_gradient=self._force * self._root,
            proposed_gradient=force * self._root,
            step=settings.step,
        )


def _diverged(values: Array, t: int) -> DeadChain:
    bad = int(np.flatnonzero(~np.isfinite(values))[0])
    return DeadChain(
        f"chain {bad} is not finite at step {t}: it holds {values[bad]}. The curvature on the way "
        "exceeds the curvature at w*: lower the step or raise gamma. No average over the other "
        "chains is made"
    )
