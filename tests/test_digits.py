"""The digits: what is read is what data/MNIST.md says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import digits
import records


def test_all_digits() -> None:
    inputs, targets = digits.load()
    assert inputs.shape == (1024, 784) and targets.shape == (1024, 10)
    assert inputs.min() == 0.0 and inputs.max() == 1.0
    assert np.array_equal(np.rint(255 * inputs), 255 * inputs)  # b/255·255 is b in float64
    assert np.array_equal(targets.sum(axis=1), np.ones(1024))
    # the numbers of digits 0 … 9 in data/MNIST.md
    counts = [100, 121, 102, 110, 105, 81, 95, 112, 91, 107]
    assert targets.sum(axis=0).tolist() == counts


def test_the_first_few_are_the_beginning() -> None:
    inputs, targets = digits.load()
    few_inputs, few_targets = digits.load(10)
    assert np.array_equal(few_inputs, inputs[:10]) and np.array_equal(few_targets, targets[:10])


def test_refusals(tmp_path: Path) -> None:
    for n in (0, 1025, -1):
        with pytest.raises(ValueError, match=r"1\.\.1024"):
            digits.load(n)
    with pytest.raises(records.RecordError, match="check the path"):
        digits.load(path=tmp_path / "none.npz")
