"""The perceptrons of the width study: which there are, and where their weights are kept.

    runs/widths/<name>/step_000123.npz   weights and loss after 123 steps; `polished.npz`
    runs/widths/<name>/spectrum_last.npz curvatures at the last step; `spectrum_polished.npz`
    runs/widths/<name>/trajectory.json   the steps that were kept, and their losses

A base rate is an axis of the study, not a constant: the source does not give its own, and whether
µP's effective dimension falls with the width depends on it.

Symbols: w weights (d,), h curvatures (m,) descending, n examples, λ effective dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import digits
import records
from mlp import MLP

Array = NDArray[np.float64]
Condition = Literal["ntk", "mup"]

WIDTHS = (64, 256, 1024)
SEEDS = (0, 1, 2)
CONDITIONS: tuple[Condition, ...] = ("ntk", "mup")
NAMES = {"ntk": "NTK", "mup": "µP"}
SOURCE_LIKE = {"ntk": 1e-3, "mup": 2e-2}  # closest to the source's figures among some 55 tried
COMMON = {"ntk": 1e-3, "mup": 1e-3}
COMMON_HIGH = {"ntk": 1e-2, "mup": 1e-2}
PAIRS = {"source-like": SOURCE_LIKE, "common": COMMON, "common high": COMMON_HIGH}
LAST, POLISHED = "last", "polished"
STEPS, DIGITS = 3_000, 1_024  # what a name does not mention


class Weights(NamedTuple):
    """Weights (d,) as they are kept, with the steps that led to them and L_n there."""

    step: int
    loss: float
    w: Array


@dataclass(frozen=True)
class Network:
    """One network of the study: 784→width→width→10 on the first `n` digits."""

    condition: Condition
    width: int
    base_rate: float
    seed: int
    steps: int = STEPS
    n: int = DIGITS

    @property
    def name(self) -> str:
        """ntk_w64_r0.001_s0: what its folder is called; what differs from the study's is added."""
        short = "" if self.steps == STEPS else f"_t{self.steps}"
        fewer = "" if self.n == DIGITS else f"_n{self.n}"
        return f"{self.condition}_w{self.width}_r{self.base_rate:g}_s{self.seed}{short}{fewer}"

    @property
    def n_beta(self) -> float:
        """n/log n, the source's n_beta."""
        return self.n / math.log(self.n)

    def model(self) -> MLP:
        """The perceptron on its digits."""
        return MLP(*digits.load(self.n), [self.width, self.width])

    def columns(self) -> dict[str, Any]:
        """What every table says of a network."""
        return {
            "network": self.name,
            "condition": self.condition,
            "width": self.width,
            "base_rate": self.base_rate,
            "seed": self.seed,
        }


def pair(width: int, rates: str, seed: int) -> tuple[Network, Network]:
    """The NTK and the µP network that are compared: one width, one pair of rates, one seed."""
    ntk, mup = (Network(c, width, PAIRS[rates][c], seed) for c in CONDITIONS)
    return ntk, mup


def all_pairs() -> list[tuple[str, tuple[Network, Network]]]:
    """Every pair with the name of its rates, the most telling first.

    Three seeds at the source-like and at the common rates, one at the common high rate.
    """
    plan = [("source-like", 0), ("common", 0), ("source-like", 1), ("common", 1)]
    plan += [("source-like", 2), ("common", 2), ("common high", 0)]
    return [(rates, pair(width, rates, seed)) for rates, seed in plan for width in WIDTHS]


def all_networks() -> list[Network]:
    """Every network once, in the order of the pairs."""
    return list(dict.fromkeys(network for _, both in all_pairs() for network in both))


def ratios(rows: Iterable[Mapping[str, Any]], rates: str, column: str) -> dict[int, list[float]]:
    """µP over NTK of a column, by width: a value for every seed of which both have one."""
    value = {
        (r["condition"], r["base_rate"], r["width"], r["seed"]): r[column]
        for r in rows
        if r.get(column)
    }
    ntk_rate, mup_rate = (PAIRS[rates][c] for c in CONDITIONS)
    found: dict[int, list[float]] = {}
    for (condition, rate, width, seed), above in value.items():
        below = value.get(("ntk", ntk_rate, width, seed))
        if (condition, rate) == ("mup", mup_rate) and below:
            found.setdefault(width, []).append(above / below)
    return dict(sorted(found.items()))


# ---- files -------------------------------------------------------------------------------------


def snapshot_path(folder: Path, network: Network, step: int | str) -> Path:
    """Where the weights of a step are kept: its number, "last" or "polished"."""
    number = network.steps if step == LAST else step
    label = f"step_{number:06d}" if isinstance(number, int) else number
    return folder / network.name / f"{label}.npz"


def write_snapshot(
    folder: Path,
    network: Network,
    snapshot: tuple[int, float, Array],
    step: int | str | None = None,
) -> None:
    """Keep a snapshot under its own step, or under the name given. Raises records.RecordError."""
    taken, loss, w = snapshot
    path = snapshot_path(folder, network, taken if step is None else step)
    records.write_npz(path, {"step": taken, "loss": loss, "w": w})


def read_snapshot(folder: Path, network: Network, step: int | str = LAST) -> Weights:
    """The weights at a step. Raises records.RecordError."""
    arrays = records.read_npz(snapshot_path(folder, network, step))
    return Weights(int(arrays["step"]), float(arrays["loss"]), arrays["w"])


def spectrum_path(folder: Path, network: Network, step: str = LAST) -> Path:
    """Where the curvatures at the last step ("last") or after the polish are kept."""
    return folder / network.name / f"spectrum_{step}.npz"


def write_spectrum(folder: Path, network: Network, h: Array, step: str = LAST) -> None:
    """Keep the curvatures h (m,). Raises records.RecordError."""
    records.write_npz(spectrum_path(folder, network, step), {"h": h})


def read_spectrum(folder: Path, network: Network, step: str = LAST) -> Array:
    """The curvatures h (m,), descending. Raises records.RecordError when they are not there."""
    return np.asarray(records.read_npz(spectrum_path(folder, network, step))["h"])


def write_trajectory(folder: Path, network: Network, steps: list[int], losses: list[float]) -> None:
    """Keep which steps have a snapshot, and the loss there; written last, when all are there."""
    records.write_json(
        folder / network.name / "trajectory.json", {"steps": steps, "losses": losses}
    )


def read_trajectory(folder: Path, network: Network) -> tuple[list[int], list[float]]:
    """Steps and losses of the snapshots. Raises records.RecordError before the training ended."""
    content = records.read_json(folder / network.name / "trajectory.json")
    return content["steps"], content["losses"]
