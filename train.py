"""Training: full-batch AdamW until a network has grokked, and two polishes to zero loss.

Symbols and shapes
    w      (d,) weights               L_n    training loss, without weight decay
    lr     learning rate              decay  decoupled weight decay: w ← w − lr·decay·w
    grokked: every training pair and every held-out pair right (offset added), kept for a while

Weight decay belongs to training alone. The learning coefficient is defined at a minimum of L_n, so
a polish without decay follows; the second polish is another algorithm, to show that the choice of
polish does not decide the reading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import OptimizeResult, minimize

from chains import Model
from qnet import QuadraticNetwork

Array = NDArray[np.float64]
Progress = Callable[[int], None]

ADAM_BETAS = (0.9, 0.999)  # Kingma and Ba 2015
ADAM_EPSILON = 1e-8
COLLAPSED = 1e-6  # a network whose largest weight is below this computes nothing
CHECK_EVERY = 10  # steps between looks at the accuracy


class TrainingFailed(RuntimeError):
    """Training collapsed, diverged or never grokked; the message says when and what to do."""


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. The defaults are the source's: AdamW, lr 3e-3, decay 1.0."""

    learning_rate: float = 3e-3
    weight_decay: float = 1.0
    initial_scale: float = 0.1
    hold_steps: int = 500  # 100 % train and held-out accuracy must last this long
    max_steps: int = 50_000


@dataclass(frozen=True)
class Trained:
    """A grokked network: weights (d,), steps taken, the step from which it stayed perfect."""

    w: Array
    steps: int
    grokked_at: int


@dataclass(frozen=True)
class Polished:
    """A polished network: weights (d,), steps taken, loss reached, how far the weights moved."""

    w: Array
    steps: int
    loss: float
    moved: float  # |w − w_before| / |w_before|


class Adam:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), in place."""

    def __init__(self, shape: tuple[int, ...], learning_rate: float, weight_decay: float = 0.0):
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.t = 0
        self.mean, self.square = np.zeros(shape), np.zeros(shape)

    def step(self, w: Array, gradient: Array) -> None:
        """Move w in place along one gradient."""
        (b1, b2), self.t = ADAM_BETAS, self.t + 1
        self.mean += (1 - b1) * (gradient - self.mean)
        self.square += (1 - b2) * (gradient * gradient - self.square)
        unbiased = self.mean / (1 - b1**self.t)
        spread = np.sqrt(self.square / (1 - b2**self.t)) + ADAM_EPSILON
        w *= 1 - self.learning_rate * self.weight_decay
        w -= self.learning_rate * unbiased / spread


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused by name
def train(
    net: QuadraticNetwork, recipe: Recipe, *, seed: int, progress: Progress | None = None
) -> Trained:
    """Train from random weights until the network has grokked and stayed so for `hold_steps`.

    Needs held-out pairs, unless there are none (fraction 1). Raises TrainingFailed when the weights
    collapse to zero or stop being finite, or when `max_steps` pass without grokking.
    """
    w = net.initial_weights(seed, recipe.initial_scale)
    adam = Adam(w.shape, recipe.learning_rate, recipe.weight_decay)
    perfect_since: int | None = None
    for t in range(recipe.max_steps + 1):
        if t % CHECK_EVERY == 0:
            _refuse_collapse(w, t)
            train_accuracy, held_out = net.accuracy(w)
            perfect = train_accuracy == 1.0 and held_out in (1.0, None)
            perfect_since = (t if perfect_since is None else perfect_since) if perfect else None
            if perfect_since is not None and t - perfect_since >= recipe.hold_steps:
                return Trained(w, t, perfect_since)
            if progress:
                progress(CHECK_EVERY)
        adam.step(w, net.loss_and_grad(w)[1])
    raise TrainingFailed(
        f"no grok in {recipe.max_steps} steps: train accuracy {train_accuracy:.3f}, held-out "
        f"{'none' if held_out is None else f'{held_out:.3f}'}; use a larger fraction of the pairs, "
        "another seed, or more steps"
    )


def _refuse_collapse(w: Array, t: int) -> None:
    largest = np.abs(w).max()
    if not np.isfinite(largest):
        raise TrainingFailed(
            f"training diverged: weights are not finite at step {t}; lower the rate"
        )
    if largest < COLLAPSED:
        raise TrainingFailed(
            f"training collapsed to zero weights at step {t} (largest {largest:.1e}): weight decay "
            "won before the task was learned; use another seed, a larger initial scale or fraction"
        )


@np.errstate(over="ignore", invalid="ignore")
def polish_adam(
    model: Model,
    w: ArrayLike,
    *,
    learning_rate: float = 1e-3,
    target_loss: float = 1e-8,
    max_steps: int = 5_000,
    progress: Progress | None = None,
) -> Polished:
    """Adam without weight decay until L_n < target_loss or max_steps, the source's polish.

    The loss reached is reported, not enforced. Raises TrainingFailed when it is not finite.
    """
    start = np.array(w, dtype=np.float64)
    moving = start.copy()
    adam = Adam(start.shape, learning_rate)
    loss, gradient = model.loss_and_grad(moving)
    while loss >= target_loss and adam.t < max_steps:
        adam.step(moving, gradient)
        loss, gradient = model.loss_and_grad(moving)
        if progress:
            progress(1)
    return _polished(start, moving, adam.t, float(loss))


@np.errstate(over="ignore", invalid="ignore")
def polish_lbfgs(
    model: Model,
    w: ArrayLike,
    *,
    target_loss: float = 1e-8,
    max_steps: int = 5_000,
    progress: Progress | None = None,
) -> Polished:
    """L-BFGS (scipy, Byrd et al. 1995) to the same target: the second, different polish (K23)."""
    start = np.array(w, dtype=np.float64)
    reached = start.copy()

    def loss_and_grad(x: Array) -> tuple[float, Array]:
        loss, gradient = model.loss_and_grad(x)
        return float(loss), gradient

    def stop_at_target(intermediate_result: OptimizeResult) -> None:  # scipy asks for this name
        reached[...] = intermediate_result.x
        if intermediate_result.fun < target_loss:
            raise StopIteration

    found = minimize(
        loss_and_grad,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=stop_at_target,
        options={
            "maxiter": max_steps,
            "maxfun": 4 * max_steps,
            "ftol": 0.0,
            "gtol": 0.0,
            "maxcor": 30,
        },
    )
    return _polished(start, reached, int(found.nit), float(model.loss(reached)))


def _polished(start: Array, w: Array, steps: int, loss: float) -> Polished:
    if not np.isfinite(loss):
        raise TrainingFailed(
            f"the polish diverged: loss {loss} after {steps} steps; lower its rate"
        )
    return Polished(w, steps, loss, float(np.linalg.norm(w - start) / np.linalg.norm(start)))
