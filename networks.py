"""The networks the studies measure: sizes and names, how they are made, their files in data/.

    data/checkpoints/<name>.npz   weights and pairs, polished (records.Checkpoint)
    data/spectra/<name>.npz       singular values of J at those weights
    data/networks.csv             one row each; a network whose training failed has only its error

One recipe for all (train.Recipe, the source's), one polish (Adam). The seed names the pairs, the
initial weights and, with p and K, the chains.

Symbols
    p  modulus, outputs    K  hidden neurons    n  training pairs    w  (3pK,) weights
    J  (n p, 3pK) Jacobian    s  its singular values
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import exact_rank
import records
import tables
import theory
import train
from qnet import QuadraticNetwork, modular_pairs
from records import Checkpoint

Array = NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """A size of network: modulus p, hidden neurons K, share of the p² pairs trained on."""

    p: int
    K: int
    fraction: float

    def name(self, seed: int) -> str:
        """p11_K33_f80_s0: what its files are called."""
        return f"p{self.p}_K{self.K}_f{100 * self.fraction:g}_s{seed}"

    def network(self, seed: int) -> QuadraticNetwork:
        """The task of this size on its pairs."""
        return QuadraticNetwork.modular(self.p, self.K, *modular_pairs(self.p, self.fraction, seed))


VERDICT = (
    Size(11, 33, 0.8),
    Size(17, 51, 0.7),
    Size(17, 68, 0.7),
    Size(23, 69, 0.7),
    Size(23, 92, 0.7),
    Size(31, 93, 0.7),
)
TOO_WIDE = (  # K(3p−2) > p(n−1): past the width limit
    Size(7, 21, 0.8),
    Size(7, 28, 0.8),
    Size(7, 56, 0.8),
    Size(11, 55, 0.8),
    Size(17, 119, 0.7),
)
SEEDS = (0, 1, 2)
LOWEST = SEEDS[:1]


def each(sizes: tuple[Size, ...], seeds: tuple[int, ...] = SEEDS) -> Iterator[tuple[Size, int]]:
    """Every size with every seed, size by size."""
    for size in sizes:
        for seed in seeds:
            yield size, seed


@dataclass(frozen=True)
class Made:
    """A trained and polished network, and the wall time of either step in seconds."""

    checkpoint: Checkpoint
    seconds_training: float
    seconds_polish: float


def make(size: Size, seed: int) -> Made:
    """Train by the default recipe until grokked, then polish. Raises train.TrainingFailed."""
    net = size.network(seed)
    started = time.perf_counter()
    trained = train.train(net, train.Recipe(), seed=seed)
    trained_at = time.perf_counter()
    polished = train.polish_adam(net, trained.w)
    return Made(
        as_checkpoint(net, polished, fraction=size.fraction, seed=seed, training=trained.steps),
        trained_at - started,
        time.perf_counter() - trained_at,
    )


def as_checkpoint(
    net: QuadraticNetwork,
    polished: train.Polished,
    *,
    fraction: float,
    seed: int,
    training: int,
    polish: str = "adam",
) -> Checkpoint:
    """The file of a network: weights, pairs and provenance; `training` counts AdamW steps."""
    assert net.a is not None and net.b is not None  # a modular network has its pairs
    u, v, W = net.unpack(polished.w)
    return Checkpoint(
        p=net.p,
        K=net.K,
        a=net.a,
        b=net.b,
        u=u,
        v=v,
        W=W,
        fraction=fraction,
        seed=seed,
        loss=polished.loss,
        steps=training,
        polish=polish,
        polish_steps=polished.steps,
        polish_moved=polished.moved,
    )


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused by name
def snapshots(
    net: QuadraticNetwork, recipe: train.Recipe, *, seed: int, at: Sequence[int]
) -> Array:
    """Weights (len(at), d) after `at` steps, ascending, of one training run that does not stop.

    The same run as train.train(net, recipe, seed=seed). Raises train.TrainingFailed when the
    weights collapse or stop being finite on the way.
    """
    w = net.initial_weights(seed, recipe.initial_scale)
    adam = train.Adam(w.shape, recipe.learning_rate, recipe.weight_decay)
    kept = []
    for step in at:
        while adam.t < step:
            adam.step(w, net.loss_and_grad(w)[1])
        largest = np.abs(w).max()
        if not (np.isfinite(largest) and largest >= train.COLLAPSED):
            raise train.TrainingFailed(
                f"the largest weight is {largest:.1e} after {step} steps: training collapsed or "
                "diverged; use another seed"
            )
        kept.append(w.copy())
    return np.array(kept)


def opened(checkpoint: Checkpoint) -> tuple[QuadraticNetwork, Array]:
    """(network, weights) of a checkpoint."""
    net = QuadraticNetwork.modular(checkpoint.p, checkpoint.K, checkpoint.a, checkpoint.b)
    return net, net.pack(checkpoint.u, checkpoint.v, checkpoint.W)


# ---- columns -----------------------------------------------------------------------------------


def identified(size: Size, seed: int) -> Row:
    """The NETWORK columns (`tables.py`)."""
    n = round(size.fraction * size.p**2)
    own = {"network": size.name(seed), "n": n, "d": 3 * size.p * size.K, "seed": seed}
    return own | {"p": size.p, "K": size.K, "fraction": size.fraction}


def trained(checkpoint: Checkpoint) -> Row:
    """The TRAINED columns."""
    net, w = opened(checkpoint)
    train_accuracy, held_out = net.accuracy(w)
    return {
        "training_steps": checkpoint.steps,
        "polish": checkpoint.polish,
        "polish_steps": checkpoint.polish_steps,
        "polish_moved": checkpoint.polish_moved,
        "loss": float(net.loss(w)),
        "weight_norm": float(np.linalg.norm(w)),
        "K_eff": net.effective_neurons(w),
        "train_accuracy": train_accuracy,
        "held_out_accuracy": held_out,
        "checkpoint_sha256": checkpoint.content_hash(),
    }


def formulas(net: QuadraticNetwork, w: Array) -> Row:
    """The FORMULAS columns."""
    return {
        "formula_paper": theory.paper_closed_form(net.K, net.p),
        "formula_paper_in_use": theory.paper_closed_form(net.effective_neurons(w), net.p),
        "formula_generic": theory.one_hot_generic(net.K, net.p),
        "wide_limit": theory.wide_limit(net.n, net.p),
    }


def spectrum(record: Row) -> Row:
    """The SPECTRUM columns of a `measure.curvature_record`."""
    low, high = record["bracket"]
    return {**record, "bracket_low": low, "bracket_high": high}


def exact(net: QuadraticNetwork, w: Array) -> Row:
    """The EXACT columns."""
    found = exact_rank.network_rank(net, w)
    names = ("exact_lower", "exact_upper", "exact_certified")
    return dict(zip(names, (found.lower, found.upper, found.certified), strict=True))


# ---- files -------------------------------------------------------------------------------------


def checkpoint_path(data: Path, name: str) -> Path:
    """Where a network's weights are kept."""
    return data / "checkpoints" / f"{name}.npz"


def spectrum_path(data: Path, name: str) -> Path:
    """Where its singular values are kept."""
    return data / "spectra" / f"{name}.npz"


def made(data: Path, sizes: tuple[Size, ...], seeds: tuple[int, ...] = SEEDS) -> list[Row]:
    """The rows of data/networks.csv of these networks. Raises ValueError when one is missing."""
    path = data / "networks.csv"
    if not path.exists():
        raise ValueError(f"{path} is missing: run `--study networks` first")
    rows = {row["network"]: row for row in records.read_csv(path, tables.types("networks"))}
    names = [size.name(seed) for size, seed in each(sizes, seeds)]
    if missing := [name for name in names if name not in rows]:
        raise ValueError(f"{path} has no {missing[0]}: run `--study networks` again")
    return [rows[name] for name in names]


# ---- what a job costs --------------------------------------------------------------------------


def seconds_to_sample(row: Row, chain_steps: int) -> float:
    """Rough wall time on one core: 40,000 chain-steps take 4 s at p = 11 and 50 s at p = 31."""
    return chain_steps / 40_000 * (3.0 + 2.4e-5 * row["n"] * row["p"] * row["K"])


def seconds_to_decompose(row: Row) -> float:
    """Rough wall time of the singular values on one core: m·d² operations at the rate measured."""
    small, long = sorted((row["n"] * row["p"], row["d"]))
    return 1.0 + 2.3e-10 * long * small**2
