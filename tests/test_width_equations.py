"""Every equation of the width study holds, is told apart, and can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import effective_dimension
import influence
import langevin_laws
import width_equations
from mlp import MLP
from width_equations import ENTRIES, Entry

by_id = {entry.id: entry for entry in ENTRIES}


def failures(entry: Entry) -> list[tuple[str, float, float]]:
    return [part for part in entry.parts() if not part[1] <= part[2]]


def test_they_are_e25_to_e34() -> None:
    assert list(by_id) == [f"E{k}" for k in range(25, 35)]
    for entry in ENTRIES:
        assert all(entry[:6]), entry.id


@pytest.mark.parametrize("id", by_id)
def test_equation_holds(id: str) -> None:
    assert failures(by_id[id]) == []


def times(factor: float, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a wrong factor."""

    def wrong(*arguments: Any, **options: Any) -> Any:
        return factor * function(*arguments, **options)

    return wrong


WRONG = [
    ("E25", MLP, "jvp", 2.0),
    ("E26", MLP, "hvp", 1.0001),
    ("E27", MLP, "gram", 0.5),
    ("E28", effective_dimension, "cholesky_effective_dimension", 2.0),
    ("E30", effective_dimension, "slope_shift", 1.01),
    ("E31", langevin_laws, "expected_llc", 1.001),
    ("E32", langevin_laws, "expected_acceptance", 1.1),
    ("E33", influence, "posterior_kernel", 20.0),
    ("E34", influence, "exact_influence", 1.05),
]


@pytest.mark.parametrize(("id", "place", "name", "factor"), WRONG)
def test_a_wrong_factor_goes_red(
    id: str, place: Any, name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, times(factor, getattr(place, name)))
    assert failures(by_id[id])


def test_a_wrong_hessian_scale_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """|r|²/(nC) has the Hessian 2/(nC)·JᵀJ; 1/(nC) is the lost factor 2."""
    original = MLP._take_data

    def halved(self: MLP, inputs: Any, targets: Any) -> None:
        original(self, inputs, targets)
        self.hessian_scale /= 2.0

    gradient = MLP.loss_and_grad
    monkeypatch.setattr(MLP, "_take_data", halved)
    # the true loss and gradient stay: only the scale by which curvature is read is wrong
    monkeypatch.setattr(MLP, "loss_and_grad", lambda s, w: tuple(2 * x for x in gradient(s, w)))
    assert failures(by_id["E25"])


def test_a_control_variate_of_other_probes_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different probes of the two matrices share nothing: the error grows instead of falling."""
    original = width_equations.effective_dimension.curvature.hutchinson_samples
    seeds = iter(range(100))

    def fresh(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **options | {"seed": next(seeds)})

    monkeypatch.setattr(effective_dimension.curvature, "hutchinson_samples", fresh)
    assert any("plain probes" in what for what, _, _ in failures(by_id["E29"]))


def test_a_dropped_bias_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    original = MLP._weighted

    def without_ones(self: MLP, activations: list[Any]) -> list[Any]:
        weighted = original(self, activations)
        for a in weighted:
            a[:, -1] = 0.0
        return weighted

    monkeypatch.setattr(MLP, "_weighted", without_ones)
    assert failures(by_id["E25"])  # jacobian and gram share the source of ã, the loss does not
