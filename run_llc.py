"""Measure grokked networks: `python run_llc.py`.

Without arguments the shipped networks in data/checkpoints are measured. `--p --K --fraction --seed`
trains, polishes and measures a new one; `--checkpoint FILE` measures one from a file. stdout holds
the report (or one JSON document with --json), stderr the progress.

What is finished is kept under --out/<network>/ and taken up again by the same command:
    checkpoint.npz        a network trained here
    spectrum_<key>.npz    its singular values; they outlive a change of sampler settings
    record_<key>.json     everything measured; traces_<key>.npz: every 10th loss of every chain
A key is the hash of all that was asked for (network, code, settings), so nothing is overwritten.

Symbols: λ̂ the reading, K_eff neurons in use, c = gamma/n_beta the resolution, ε the step.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: parallel by process, --workers

import argparse
import math
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import console
import curvature
import measure
import records
import train
from measure import Protocol
from qnet import QuadraticNetwork, modular_pairs
from records import Checkpoint

HERE = Path(__file__).resolve().parent
SHIPPED = HERE / "data" / "checkpoints"
SPECTRUM_CODE = ("qnet.py", "curvature.py")
RECORD_CODE = (*SPECTRUM_CODE, "theory.py", "chains.py", "sgld.py", "measure.py", "run_llc.py")
DEFAULT = Protocol()
POLISHES = {"adam": train.polish_adam, "lbfgs": train.polish_lbfgs}
LINE = 100  # columns of the report


# ---- the command line --------------------------------------------------------------------------


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; every option says its unit and default. Raises ValueError."""
    parser = console.Arguments(
        description="Measure the local learning coefficient of grokked networks, and set beside "
        "each reading the exact answer at the settings it was made with.",
    )
    _add_network_options(parser.add_argument_group("which network (default: the shipped ones)"))
    _add_sampler_options(parser.add_argument_group("sampler"))
    _add_running_options(parser.add_argument_group("running"))
    return parser.parse_args(arguments)


def _add_network_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--checkpoint", type=Path, metavar="F", help="measure the network in this .npz file")
    add("--p", type=int, metavar="P", help="train a new network: modulus, P ≥ 2 (default 11)")
    add("--K", type=int, metavar="K", help="train a new network: hidden neurons (default 3P)")
    add(
        "--fraction",
        type=float,
        metavar="X",
        help="train a new network on this share of the P² pairs, in (0, 1] (default 0.8)",
    )
    add(
        "--seed",
        type=int,
        metavar="S",
        help="train a new network: seed of its pairs, weights and chains (default 0)",
    )
    add(
        "--polish",
        choices=tuple(POLISHES),
        help="train a new network: descent to zero loss after training (default adam)",
    )


def _add_sampler_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--n-beta",
        default=str(DEFAULT.n_beta),
        metavar="X",
        help="pairs × inverse temperature, a number > 0 or 'n/log(n)' (default 10000)",
    )
    add("--gamma", type=float, metavar="X", help="strength of the spring to w*, > 0 (default 1)")
    add(
        "--step-constant",
        type=float,
        metavar="X",
        help="step × top curvature, ε·(n_beta·h_max + gamma), in (0, 4) (default 0.2)",
    )
    add("--chains", type=int, metavar="C", help="independent chains (default 4)")
    add("--steps", type=int, metavar="T", help="steps per chain, burn-in included (default 10000)")
    add("--burn-in", type=int, metavar="B", help="first steps, not averaged (default 2000)")
    group.set_defaults(**{name: v for name, v in asdict(DEFAULT).items() if name != "n_beta"})


def _add_running_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--route",
        choices=measure.ROUTES,
        default="svd",
        help="how the spectrum is computed: gram and matrix-free need less memory (default svd)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        default=HERE / "runs",
        help="folder of what is kept (default runs/ beside this file)",
    )
    add("--workers", type=int, metavar="N", default=1, help="processes for chains (default 1)")
    add("--json", action="store_true", help="print one JSON document in place of the report")
    add("--quiet", action="store_true", help="print no progress and no notes")
    add("--debug", action="store_true", help="show the traceback of an error")


def protocol_for(n: int, options: argparse.Namespace) -> Protocol:
    """The sampler settings asked for, at n pairs. Raises ValueError for one out of range."""
    protocol = Protocol(
        n_beta=n_beta_of(options.n_beta, n),
        gamma=options.gamma,
        step_constant=options.step_constant,
        chains=options.chains,
        steps=options.steps,
        burn_in=options.burn_in,
    )
    protocol.check()
    return protocol


def n_beta_of(text: str, n: int) -> float:
    """A number, or n/log(n) at this many pairs (Watanabe 2013, WBIC). Raises ValueError."""
    if text.replace(" ", "") in ("n/log(n)", "n/logn"):
        return n / math.log(n)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"n_beta must be a number or 'n/log(n)', got {text!r}") from None


# ---- networks ----------------------------------------------------------------------------------


def chosen_networks(options: argparse.Namespace) -> Iterator[tuple[str, Checkpoint]]:
    """(name, checkpoint) of each network to measure; a new one is trained and kept first."""
    new = [options.p, options.K, options.fraction, options.seed, options.polish]
    train_new = any(value is not None for value in new)
    if options.checkpoint is not None:
        if train_new:
            raise ValueError("--checkpoint names a finished network: leave out --p, --K, ...")
        files = [options.checkpoint]
    elif train_new:
        files = [trained_checkpoint(options)]
    elif not (files := sorted(SHIPPED.glob("*.npz"))):
        raise ValueError(f"no shipped networks in {SHIPPED}: train one, for example with --p 11")
    for path in files:
        name = path.parent.resolve().name if path.stem == "checkpoint" else path.stem
        yield name, records.read_checkpoint(path)


def trained_checkpoint(options: argparse.Namespace) -> Path:
    """The file of the network asked for: trained and polished, unless it is already there."""
    p = 11 if options.p is None else options.p
    K = 3 * p if options.K is None else options.K
    fraction = 0.8 if options.fraction is None else options.fraction
    seed = 0 if options.seed is None else options.seed
    polish = options.polish or "adam"
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must lie in 0..2^32−1, got {seed}")
    a, b = modular_pairs(p, fraction, seed)
    protocol_for(len(a), options)
    suffix = "" if polish == "adam" else f"_{polish}"
    name = f"p{p}_K{K}_f{100 * fraction:g}_s{seed}{suffix}"
    path = options.out / name / "checkpoint.npz"
    if not path.exists():
        net = QuadraticNetwork.modular(p, K, a, b)
        _require_writable(path.parent)
        records.write_checkpoint(path, make_checkpoint(net, fraction, seed, polish, options.quiet))
    kept = records.read_checkpoint(path)
    if (kept.K, kept.a.tolist(), kept.b.tolist()) != (K, a.tolist(), b.tolist()):
        raise ValueError(f"{path} holds another network: remove it, or choose another --out")
    return path


def make_checkpoint(
    net: QuadraticNetwork, fraction: float, seed: int, polish: str, quiet: bool
) -> Checkpoint:
    """Train until grokked, then polish without decay. Raises train.TrainingFailed."""
    assert net.a is not None and net.b is not None  # a modular network has its pairs
    recipe = train.Recipe()
    with console.progress("training, at most", recipe.max_steps, quiet=quiet) as report:
        trained = train.train(net, recipe, seed=seed, progress=report)
    with console.progress("polishing, at most", 5_000, quiet=quiet) as report:
        polished = POLISHES[polish](net, trained.w, progress=report)
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
        steps=trained.steps,
        polish=polish,
        polish_steps=polished.steps,
        polish_moved=polished.moved,
    )


def _require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to before the work, not after it."""
    probe = folder / ".writable"
    records.write_bytes(probe, b"")
    probe.unlink(missing_ok=True)


def is_prime(p: int) -> bool:
    """By trial division: p is a few thousand at most."""
    return p >= 2 and all(p % q for q in range(2, math.isqrt(p) + 1))


# ---- measuring ---------------------------------------------------------------------------------


def measured(name: str, checkpoint: Checkpoint, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one network, from --out when the same one was made there before."""
    if not (is_prime(checkpoint.p) or options.quiet):
        console.say(
            f"note: p = {checkpoint.p} is not prime: rank, bracket and readings mean the same, but "
            "exact Fourier solutions, which the paper's formula is about, are known for prime p"
        )
    protocol = protocol_for(checkpoint.n, options)
    asked = {
        "checkpoint_sha256": checkpoint.content_hash(),
        "made": _provenance(checkpoint),
        "code_sha256": _code_hash(RECORD_CODE),
        "protocol": asdict(protocol),
        "seed": chains_seed(checkpoint),
        "route": options.route,
    }
    folder, key = options.out / name, _key(asked)
    kept = folder / f"record_{key}.json"
    if not kept.exists():
        _require_writable(folder)
        found, run = _measure(name, checkpoint, protocol, options)
        losses, distances = run["traces"]
        records.write_npz(folder / f"traces_{key}.npz", {"losses": losses, "distances": distances})
        records.write_json(kept, {"name": name, "asked": asked} | found)
    return _kept_record(kept, asked)
