"""Look at the chains of a sampler that keeps nothing but their losses.

`Observed` stands before any model and hands every batch of weights to a look on its way to
`loss_and_grad`; the sampler knows nothing of it, and the chains are the same to the last bit.

Symbols and shapes
    C, T, d   chains, steps, weights         k   what one look keeps of a chain
    looks     (T, C, k), one per step: w_0 … w_{T−1}, as the loss is recorded
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chains import Model

Array = NDArray[np.float64]


class Observed:
    """A model that keeps look(w), w (C, d) -> (C, k), of every `every`-th batch it is asked for.

    A sampler may try the model before its first step (sgld.sample does, at w*); `looks` therefore
    counts from the end. One run per instance, in one process (workers = 1).
    """

    def __init__(self, model: Model, look: Callable[[Array], Array], *, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1: got {every}")
        self._model, self._look, self._every = model, look, every
        self._calls = 0
        self._kept: list[tuple[int, Array]] = []

    def __getattr__(self, name: str) -> Any:
        """Every other verb is the model's own."""
        return getattr(self._model, name)

    @property
    def n(self) -> int:
        """The model's."""
        return self._model.n

    @property
    def n_params(self) -> int:
        """The model's."""
        return self._model.n_params

    @property
    def hessian_scale(self) -> float:
        """The model's."""
        return self._model.hessian_scale

    def loss_and_grad(self, w: Array) -> tuple[float | Array, Array]:
        """The model's, after a look at w."""
        if w.ndim == 2 and self._calls % self._every == 0:
            self._kept.append((self._calls, np.array(self._look(w), dtype=np.float64)))
        self._calls += 1
        return self._model.loss_and_grad(w)

    def looks(self, steps: int, burn_in: int = 0) -> Array:
        """What was seen in the last `steps` calls after the first `burn_in` of them.

        Raises ValueError when fewer calls were made.
        """
        first = self._calls - steps
        if first < 0:
            raise ValueError(f"{self._calls} calls were seen, fewer than the {steps} asked for")
        return np.stack([seen for call, seen in self._kept if call >= first + burn_in])
