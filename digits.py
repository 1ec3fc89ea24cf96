"""The 1,024 handwritten digits of data/mnist1024.npz as inputs and targets; see data/MNIST.md.

Symbols and shapes
    n       examples, 1,024 or the first few of them
    inputs  (n, 784) grey levels divided by 255, in [0, 1]
    targets (n, 10) one-hot
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import records

Array = NDArray[np.float64]

FILE = Path(__file__).resolve().parent / "data" / "mnist1024.npz"
CLASSES = 10
BRIGHTEST = 255.0


def load(n: int | None = None, *, path: Path = FILE) -> tuple[Array, Array]:
    """Inputs (n, 784) and one-hot targets (n, 10) of the first n digits; all of them by default.

    The order in the file is random, so the first n are a random sample. Raises records.RecordError
    for a missing or damaged file, ValueError for an n that is not there.
    """
    arrays = records.read_npz(path)
    images, labels = arrays["images"], arrays["labels"]
    count = len(labels) if n is None else n
    if not 1 <= count <= len(labels):
        raise ValueError(f"n must lie in 1..{len(labels)}: got {n}")
    inputs = images[:count].reshape(count, -1) / BRIGHTEST
    return inputs, np.eye(CLASSES)[labels[:count]]
