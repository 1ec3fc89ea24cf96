"""Train perceptrons whose learning rates scale with width as NTK or as µP, and keep the way.

    NTK  the base rate on every tensor
    µP   the base rate on the input weights and on all biases, divided by the fan-in on all others

Symbols and shapes
    w       (d,) weights                      η   (tensors,) one Adam rate per tensor
    batch   examples per step, drawn in shuffled passes over all n
    L_n     loss over all n examples, which is what the trajectory records

One loop serves training (minibatches, constant rates) and polishing (all examples, rates falling to
zero in a straight line). Adam is train.Adam, one per tensor. Weights are float64 throughout.

The recipe is the closest to the source's figures among some 55 tried: variance 1/(3·fan-in), biases
0, pixels in [0, 1], Adam (0.9, 0.999), 3,000 minibatches of 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlp import MLP
from train import Adam, TrainingFailed

Array = NDArray[np.float64]
Condition = Literal["ntk", "mup"]
Progress = Callable[[int], None]

PURPOSE = 0x62617463  # "batc": first word of the SeedSequence of the minibatches
BATCH = 64
STEPS = 3_000
GROWTH = 1.15  # between the steps of a trajectory: dense where the loss falls fast


class Snapshot(NamedTuple):
    """A point of a trajectory: steps taken, L_n there, weights (d,)."""

    step: int
    loss: float
    w: Array


def rates(net: MLP, condition: Condition, base_rate: float) -> tuple[float, ...]:
    """One Adam rate per tensor, in the order of `net.names`.

    Raises ValueError for an unknown condition or a base rate that is not positive.
    """
    if condition not in ("ntk", "mup"):
        raise ValueError(f'condition must be "ntk" or "mup": got {condition!r}')
    if not 0.0 < base_rate < np.inf:
        raise ValueError(f"base_rate must be positive and finite: got {base_rate}")
    w = np.zeros(net.n_params)
    fan_in = [tensor.shape[1] if tensor.ndim == 2 else 1 for tensor in net.unpack(w)]
    slowed = [condition == "mup" and name.startswith("W") and name != "W1" for name in net.names]
    return tuple(
        base_rate / into if slow else base_rate for into, slow in zip(fan_in, slowed, strict=True)
    )


def trajectory_steps(steps: int, growth: float = GROWTH) -> list[int]:
    """0, 1, 2, … in ratios of `growth`, rounded, up to `steps` inclusive."""
    kept = {0, steps}
    at = 1.0
    while at < steps:
        kept.add(round(at))
        at *= growth
    return sorted(kept)


def train(
    net: MLP,
    w_0: ArrayLike,
    learning_rates: tuple[float, ...],
    *,
    seed: int,
    steps: int = STEPS,
    batch: int = BATCH,
    keep: list[int] | None = None,
    progress: Progress | None = None,
) -> Iterator[Snapshot]:
    """Train from w_0 and yield a snapshot at each step of `keep` (default trajectory_steps).

    The last step is always among them. Raises ValueError on a batch outside 1..n, TrainingFailed
    when the loss over all examples is not finite at a snapshot.
    """
    if not 1 <= batch <= net.n:
        raise ValueError(f"batch must lie in 1..n = {net.n}: got {batch}")
    wanted = {*(trajectory_steps(steps) if keep is None else keep), steps}
    w = np.array(w_0, dtype=np.float64)
    optimiser = _PerTensorAdam(net, w, learning_rates)
    draws = _minibatches(net.n, batch, seed)
    for step in range(steps + 1):
        if step in wanted:
            yield _snapshot(net, w, step)
        if step < steps:
            with np.errstate(over="ignore", invalid="ignore"):  # refused at the next snapshot
                optimiser.step(net.subset(next(draws)).loss_and_grad(w)[1])
            if progress:
                progress(1)


def polish(
    net: MLP,
    w: ArrayLike,
    learning_rates: tuple[float, ...],
    *,
    target_loss: float,
    max_steps: int,
    progress: Progress | None = None,
) -> Snapshot:
    """Full-batch Adam, its rates falling to zero in a straight line, until L_n ≤ target_loss.

    The loss reached is reported, not enforced. Raises TrainingFailed when it is not finite.
    """
    moving = np.array(w, dtype=np.float64)
    optimiser = _PerTensorAdam(net, moving, learning_rates)
    for step in range(max_steps):
        loss, gradient = net.loss_and_grad(moving)
        if loss <= target_loss:
            return Snapshot(step, float(loss), moving)
        optimiser.step(gradient, share=1.0 - step / max_steps)
        if progress:
            progress(1)
    return _snapshot(net, moving, max_steps)


def nearest_in_loss(losses: ArrayLike, target: float) -> int:
    """Index of the loss closest to `target` in ratio. Raises ValueError unless all are positive."""
    values = np.asarray(losses, dtype=np.float64)
    if not (values.size and (values > 0).all() and target > 0):
        raise ValueError("losses and target must be positive: a ratio is compared")
    return int(np.argmin(np.abs(np.log(values / target))))


class _PerTensorAdam:
    """One train.Adam per tensor of w, each with its own rate; moves w in place."""

    def __init__(self, net: MLP, w: Array, learning_rates: tuple[float, ...]) -> None:
        if len(learning_rates) != len(net.names):
            raise ValueError(f"need one rate for each of {net.names}: got {len(learning_rates)}")
        self._net, self._rates = net, learning_rates
        self._tensors = net.unpack(w)  # views: writing to them moves w
        self._adams = [
            Adam(tensor.shape, rate)
            for tensor, rate in zip(self._tensors, learning_rates, strict=True)
        ]

    def step(self, gradient: Array, share: float = 1.0) -> None:
        """Move along one gradient (d,), at this share of the rates."""
        parts = zip(
            self._adams, self._tensors, self._net.unpack(gradient), self._rates, strict=True
        )
        for adam, tensor, slope, rate in parts:
            adam.learning_rate = rate * share
            adam.step(tensor, slope)


def _minibatches(n: int, batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows of shuffled passes; what a pass leaves over begins no batch of its own."""
    rng = np.random.default_rng(np.random.SeedSequence([PURPOSE, seed]))
    while True:
        order = rng.permutation(n)
        for start in range(0, n - batch + 1, batch):
            yield order[start : start + batch]


def _snapshot(net: MLP, w: Array, step: int) -> Snapshot:
    with np.errstate(over="ignore", invalid="ignore"):
        loss = float(net.loss(w))
    if not np.isfinite(loss):
        raise TrainingFailed(
            f"training diverged: the loss is {loss} at step {step}; lower the base rate"
        )
    return Snapshot(step, loss, w.copy())
