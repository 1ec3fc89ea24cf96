"""Measure grokked networks: `python run_llc.py`.

Without arguments two of the networks in data/checkpoints are measured. `--p --K --fraction --seed`
trains, polishes and measures a new one; `--checkpoint FILE` measures one from a file. stdout holds
the report (or one JSON document with --json), stderr the progress. `--study NAME` runs one study of
`spectra.py` or `studies.py` on many networks instead, into data/.

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
import time
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import console
import exact_rank
import gate
import jobs
import measure
import networks
import readout
import records
import report
import sgld
import spectra
import studies
import train
import verdict
from measure import Protocol
from qnet import QuadraticNetwork, modular_pairs
from records import Checkpoint

HERE = Path(__file__).resolve().parent
CHECKPOINTS = HERE / "data" / "checkpoints"
SHIPPED = ("p11_K33_f80_s0", "p17_K51_f70_s0")  # what is measured without arguments
SPECTRUM_CODE = ("qnet.py", "curvature.py", "measure.py")
RECORD_CODE = (
    *SPECTRUM_CODE,
    *("theory.py", "chains.py", "sgld.py", "exact_rank.py", "readout.py", "run_llc.py"),
)
POLISHES = {"adam": train.polish_adam, "lbfgs": train.polish_lbfgs}
STUDIES = spectra.STUDIES | studies.STUDIES
RUNNING = ("study", "out", "workers", "json", "quiet", "debug")  # the options a study takes


# ---- the command line --------------------------------------------------------------------------


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; every option says its unit and default. Raises ValueError."""
    parser = console.Arguments(
        description="Measure the local learning coefficient of grokked networks, and set beside "
        "each reading the exact answer at the settings it was made with.",
    )
    _add_network_options(parser.add_argument_group("which network (default: the two shipped ones)"))
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


def default_settings() -> dict[str, Any]:
    """The frozen settings; where none are frozen the source's, which the gate then refuses."""
    try:
        return gate.read_frozen().settings
    except gate.GateClosed:
        return asdict(Protocol())


def _add_sampler_options(group: argparse._ArgumentGroup) -> None:
    add, frozen = group.add_argument, default_settings()
    add(
        "--n-beta",
        metavar="X",
        help="pairs × inverse temperature, a number > 0 or 'n/log(n)' "
        f"(default {frozen['n_beta']:.0f})",
    )
    add(
        "--gamma",
        type=float,
        metavar="X",
        help=f"strength of the spring to w*, > 0 (default {frozen['gamma']:g})",
    )
    add(
        "--step-constant",
        type=float,
        metavar="X",
        help="step × top curvature, ε·(n_beta·h_max + gamma), in (0, 4) "
        f"(default {frozen['step_constant']:g})",
    )
    for option, metavar, what in (
        ("chains", "C", "independent chains"),
        ("steps", "T", "steps per chain, burn-in included"),
        ("burn_in", "B", "first steps, not averaged"),
    ):
        words = f"{what} (default {frozen[option]})"
        add(f"--{option.replace('_', '-')}", type=int, metavar=metavar, help=words)
    add(
        "--settings-not-calibrated",
        action="store_true",
        help="allow other settings than the frozen ones; the record is marked (default off)",
    )
    group.set_defaults(**frozen | {"n_beta": str(frozen["n_beta"])})


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
    add("--study", choices=tuple(STUDIES), help="run this study on its own networks, into data/")
    add("--report", action="store_true", help="write report.html from data/ and figures/")
    add("--workers", type=int, metavar="N", default=1, help="processes (default 1)")
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
    else:
        files = [CHECKPOINTS / f"{name}.npz" for name in SHIPPED]
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
    recipe = train.Recipe()
    with console.progress("training, at most", recipe.max_steps, quiet=quiet) as advance:
        trained = train.train(net, recipe, seed=seed, progress=advance)
    with console.progress("polishing, at most", 5_000, quiet=quiet) as advance:
        polished = POLISHES[polish](net, trained.w, progress=advance)
    return networks.as_checkpoint(
        net, polished, fraction=fraction, seed=seed, training=trained.steps, polish=polish
    )


def _require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to before the work, not after it."""
    probe = folder / ".writable"
    records.write_bytes(probe, b"")
    probe.unlink(missing_ok=True)


# ---- measuring ---------------------------------------------------------------------------------


def measured(name: str, checkpoint: Checkpoint, options: argparse.Namespace) -> dict[str, Any]:
    """The record of one network, from --out when the same one was made there before."""
    if not (exact_rank.is_prime(checkpoint.p) or options.quiet):
        console.say(
            f"note: p = {checkpoint.p} is not prime: rank, bracket and readings mean the same, but "
            "exact Fourier solutions, which the paper's formula is about, are known for prime p"
        )
    protocol = protocol_for(checkpoint.n, options)
    admitted = gate.admit(asdict(protocol), not_calibrated=options.settings_not_calibrated)
    asked = {
        "calibration": admitted,
        "checkpoint_sha256": checkpoint.content_hash(),
        "made": _provenance(checkpoint),
        "code_sha256": records.code_hash([HERE / file for file in RECORD_CODE]),
        "protocol": asdict(protocol),
        "seed": chains_seed(checkpoint),
        "route": options.route,
    }
    kept = options.out / name / f"record_{_key(asked)}.json"
    if not kept.exists():
        _require_writable(kept.parent)
        with np.errstate(over="raise", divide="raise", invalid="raise"):  # no NaN goes unseen
            record, run = _measure(name, checkpoint, protocol, options)
        record |= admitted
        traces = {"losses": run.traces, "distances": run.distances}
        records.write_npz(kept.with_name(f"traces_{_key(asked)}.npz"), traces)
        records.write_json(kept, {"name": name, "asked": asked} | record)
    record = records.read_json(kept)
    if not (isinstance(record, dict) and _key(record.get("asked")) == _key(asked)):
        raise ValueError(f"{kept} is not the record its name says: remove it and run again")
    return record


def _measure(
    name: str, checkpoint: Checkpoint, protocol: Protocol, options: argparse.Namespace
) -> tuple[dict[str, Any], sgld.Sample]:
    net, w = networks.opened(checkpoint)
    started = time.perf_counter()
    found = spectrum(name, net, w, checkpoint.content_hash(), options)
    predicted = measure.predict(net, w, found, protocol)
    predicted_at = time.perf_counter()
    total = protocol.chains * protocol.steps
    with console.progress(f"{name}: sampling", total, quiet=options.quiet) as advance:
        run = measure.sample(
            net,
            w,
            found,
            protocol,
            seed=chains_seed(checkpoint),
            workers=options.workers,
            progress=advance,
        )
    record = {
        "network": network_record(net, w, checkpoint),
        "curvature": measure.curvature_record(net, w, found, protocol.resolution)
        | measure.exact_record(net, w),
        "predicted": asdict(predicted),
        "reading": measure.reading_record(run, protocol),
        "z_against_law": measure.deviation(run, predicted),
        "formulas": measure.formulas(net, net.effective_neurons(w)),
        "seconds": {
            "spectrum_and_law": predicted_at - started,
            "sampling": time.perf_counter() - predicted_at,
        },
        "versions": records.versions(),
    }
    return record | {"verdict": readout.verdict(record)}, run


def spectrum(
    name: str,
    net: QuadraticNetwork,
    w: measure.Array,
    checkpoint_sha256: str,
    options: argparse.Namespace,
) -> measure.Curvature:
    """Curvature at w; the singular values are kept, for they outlive a change of sampler."""
    if options.route == "matrix-free":
        return measure.read_curvature(net, w, options.route)
    code = records.code_hash([HERE / file for file in SPECTRUM_CODE])
    key = _key([checkpoint_sha256, code, options.route])
    kept = options.out / name / f"spectrum_{key}.npz"
    if not kept.exists():
        if not options.quiet:
            console.say(f"{name}: singular values of the {net.n * net.p} × {net.n_params} Jacobian")
        found = measure.read_curvature(net, w, options.route)
        measure.write_spectrum(kept, net, found, checkpoint_sha256)
    return measure.read_spectrum(kept, net, checkpoint_sha256)


def network_record(
    net: QuadraticNetwork, w: measure.Array, checkpoint: Checkpoint
) -> dict[str, Any]:
    """What the network is and does, as plain fields; the loss is L_n without weight decay."""
    train_accuracy, held_out_accuracy = net.accuracy(w)
    return _provenance(checkpoint) | {
        "p": net.p,
        "p_is_prime": exact_rank.is_prime(net.p),
        "K": net.K,
        "n": net.n,
        "d": net.n_params,
        "loss": float(net.loss(w)),
        "weight_norm": float(np.linalg.norm(w)),
        "K_eff": net.effective_neurons(w),
        "train_accuracy": train_accuracy,
        "held_out_accuracy": held_out_accuracy,
    }


def _provenance(checkpoint: Checkpoint) -> dict[str, Any]:
    """How the network was made, where its file tells."""
    return {
        "fraction": checkpoint.fraction,
        "seed": checkpoint.seed,
        "training_steps": checkpoint.steps,
        "polish": checkpoint.polish,
        "polish_steps": checkpoint.polish_steps,
        "polish_moved": checkpoint.polish_moved,
    }


def chains_seed(checkpoint: Checkpoint) -> tuple[int, ...]:
    """The case of the chains' SeedSequence: p, K and seed, or for a foreign network its hash."""
    own = checkpoint.seed if checkpoint.seed is not None else int(checkpoint.content_hash()[:8], 16)
    return (checkpoint.p, checkpoint.K, own)


def _key(asked: Any) -> str:
    """Twelve hex digits that name a file by all that was asked for."""
    return sha256(records.to_json(asked).encode()).hexdigest()[:12]


# ---- studies -----------------------------------------------------------------------------------


def run_study(options: argparse.Namespace) -> int:
    """Run one study and say what became of it; exit status 1 when every row of it failed."""
    others = {name: v for name, v in vars(parse([])).items() if name not in RUNNING}
    if given := [name for name, value in others.items() if getattr(options, name) != value]:
        option = given[0] if given[0] == "K" else given[0].replace("_", "-")
        raise ValueError(f"a study has its own networks and settings: leave out --{option}")
    setup = jobs.Setup(runs=options.out, workers=options.workers, quiet=options.quiet)
    rows = STUDIES[options.study].run(setup)
    if options.json:
        print(records.to_json({"study": options.study, "rows": rows}), end="")
    else:
        print(study_text(options.study, rows))
    return int(all(row["error"] for row in rows))


def study_text(name: str, rows: list[dict[str, Any]]) -> str:
    """Where the rows are, which of them failed, and for the verdict the decision."""
    failed = [row for row in rows if row["error"]]
    words = f", {len(failed)} of them failed" if failed else ""
    lines = [f"data/{STUDIES[name].table}.csv: {len(rows)} rows{words}"]
    lines += [f"  {row.get('network', row['p'])}: {row['error']}" for row in failed]
    if name == "verdict":
        lines.append(verdict.text(verdict.verdict_of(rows)))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure every chosen network and print the reports as they are finished."""
    options = parse(arguments)
    if options.report:
        print(report.write(gate.DATA, HERE / "figures", HERE / "report.html"))
        return 0
    if options.study is not None:
        return run_study(options)
    protocol_for(2, options)
    if options.workers < 1:
        raise ValueError(f"workers must be at least 1, got {options.workers}")
    measurements: list[dict[str, Any]] = []
    for name, checkpoint in chosen_networks(options):
        record = measured(name, checkpoint, options)
        if not options.json:
            print(("\n" if measurements else "") + readout.report_text(record), flush=True)
        measurements.append(record)
    if options.json:
        print(records.to_json({"networks": measurements}), end="")
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
