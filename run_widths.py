"""NTK against µP on real digits, read on κ and not on gamma: `python run_widths.py`.

By default (about 2 minutes on 2 cores) both conditions at width 64: trained, read at κ = 1 and 10
exactly, and once by sampling at κ = 1. The tables behind the claims:

    python run_widths.py --plan                     what the study consists of, and its minutes
    python run_widths.py --study full --workers 2   widths 64, 256, 1024 -> data/width*.csv

One file per finished cell (runs/studies/widths-*), weights and spectra in runs/widths: the same
command resumes. Every stage writes its table when it ends; the stages that answer most come first.

Symbols: h curvatures, κ = n_beta·h_max/gamma, λ(c) effective dimension at c = gamma/n_beta.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: parallel by process, --workers

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import canvas
import console
import jobs
import records
import sgld
import width_chains
import width_extensions
import width_figures
import width_networks
import width_study
import width_tables
from jobs import Job, Row, Setup, Work
from langevin_laws import KappaProtocol
from width_chains import Setting
from width_networks import Network

Array = NDArray[np.float64]

HERE = Path(__file__).resolve().parent
QUICK_KAPPAS = (1, 10)
TRAINING = ("mlp.py", "train.py", "train_mlp.py", "digits.py")
READING = ("mlp.py", "curvature.py", "theory.py", "effective_dimension.py", "width_study.py")
SAMPLING = (
    *("mlp.py", "theory.py", "chains.py", "sgld.py", "preconditioned.py", "langevin_laws.py"),
    *("effective_dimension.py", "observer.py", "width_chains.py"),
)
EXTENDING = (*SAMPLING[:-1], *TRAINING, "influence.py", "width_extensions.py")


# ---- cells -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell(Job):
    """A job of this study: its rows depend on its arguments, its code and the weights it reads."""

    code: tuple[str, ...] = ()
    weights: tuple[Path, ...] = ()

    def identity(self, table: str) -> Row:
        """Whatever decides the rows, as plain JSON."""
        plain = [asdict(a) if is_dataclass(a) else a for a in _flat(self.arguments)]  # type: ignore[arg-type]
        content = {
            "arguments": [a for a in plain if not isinstance(a, Path)],
            "weights": [records.sha256_file(path) for path in self.weights],
            "code_sha256": records.code_hash([HERE / name for name in sorted(set(self.code))]),
            "columns": list(width_tables.TABLES[table]),
        }
        return dict(json.loads(records.to_json(content)))  # as a file gives it back


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


@dataclass(frozen=True)
class Stage:
    """Cells that run together and fill one table."""

    name: str
    answers: str  # claims
    table: str
    work: Work
    cells: tuple[Cell, ...]

    @property
    def minutes(self) -> float:
        """Estimate on one core."""
        return sum(cell.seconds for cell in self.cells) / 60.0


# ---- the plan of the full study ----------------------------------------------------------------

# Seconds on one core of 2024 whose neighbour is busy, by width.
TRAIN = {64: 8.0, 256: 26.0, 1024: 220.0}
SPECTRUM = {64: 115.0, 256: 120.0, 1024: 135.0}
CHOLESKY = {64: 70.0, 256: 72.0, 1024: 80.0}  # Gram matrix and three κ
HESSIAN = {64: 22.0, 256: 80.0, 1024: 400.0}
POLISH = 40.0  # at width 64
CHAIN_STEP = {64: 0.012, 256: 0.045, 1024: 0.35}


class Plan:
    """The stages of the full study, in the order they run."""

    def __init__(self, runs: Path) -> None:
        self.folder = runs / "widths"
        pairs = width_networks.all_pairs()
        self.first = [both for rates, both in pairs if both[0].seed == 0 and rates != "common high"]
        self.later = [both for _, both in pairs if both not in self.first]
        self.named = {both: rates for rates, both in pairs}
        self.telling = [both for both in self.first if self.named[both] == "source-like"]

    def stages(self) -> list[Stage]:
        """All of them; --study full runs them one after the other."""
        return [
            self._train("train-first", "E05 E06", self.first),
            self._spectra("spectrum-first", "E01 E02 E03 E04 E07 E08 E19", self.first),
            self._matched("matched-first", "E09", self.first),
            self._linear(),
            self._chains("chains-narrow", "E10 E11 E13 E14 E15", self._narrow()),
            self._train("train-later", "E05 E06", self.later),
            self._spectra("spectrum-later", "E01 E02 E03 E04 E07 E08 E19", self._telling_later()),
            self._at_kappas("kappas-later", "E01 E02 E03 E07 E08", self.later),
            self._hessian("hessian", (64, 256)),
            self._influence(),
            self._polish(),
            self._chains("chains-polished", "E16", self._polished()),
            self._chains("chains-wide", "E10 E11", self._wide()),
            self._hessian("hessian-wide", (1024,)),
            self._lazy(),
            self._sampled_influence(),
            self._chains("chains-seeds", "E11", self._seeds()),
            self._matched("matched-later", "E09", self._telling_later()),
        ]

    def _weights(self, *networks: Network, step: str = width_networks.LAST) -> tuple[Path, ...]:
        return tuple(width_networks.snapshot_path(self.folder, n, step) for n in networks)

    def _networks(self, pairs: Sequence[tuple[Network, Network]]) -> list[Network]:
        return list(dict.fromkeys(network for both in pairs for network in both))

    def _train(self, name: str, answers: str, pairs: Sequence[tuple[Network, Network]]) -> Stage:
        cells = [
            Cell(n.name, (self.folder, n), n.columns(), TRAIN[n.width], TRAINING)
            for n in self._networks(pairs)
        ]
        return Stage(name, answers, "widths", width_study.train, tuple(cells))

    def _spectra(self, name: str, answers: str, pairs: Sequence[tuple[Network, Network]]) -> Stage:
        cells = self._readings(self._networks(pairs), SPECTRUM)
        return Stage(name, answers, "widths", width_study.spectrum, cells)

    def _at_kappas(
        self, name: str, answers: str, pairs: Sequence[tuple[Network, Network]]
    ) -> Stage:
        """The pairs' networks, but those whose whole spectrum is computed for their chains."""
        spectra = self._networks(self._telling_later())
        others = [n for n in self._networks(pairs) if n not in spectra]
        cells = self._readings(others, CHOLESKY)
        return Stage(name, answers, "widths", width_study.at_kappas, cells)

    def _readings(self, networks: Iterable[Network], seconds: dict[int, float]) -> tuple[Cell, ...]:
        """One cell for each network's last weights."""
        return tuple(
            Cell(n.name, (self.folder, n), n.columns(), seconds[n.width], READING, self._weights(n))
            for n in networks
        )

    def _matched(self, name: str, answers: str, pairs: Sequence[tuple[Network, Network]]) -> Stage:
        cells = [
            Cell(
                f"{self.named[both].replace(' ', '-')}_w{both[0].width}_s{both[0].seed}",
                (self.folder, self.named[both], both),
                {},
                CHOLESKY[both[0].width],
                READING,
                self._weights(*both),
            )
            for both in pairs
        ]
        return Stage(name, answers, "width_matched", width_study.matched, tuple(cells))

    def _linear(self) -> Stage:
        settings = [(kappa, 0.2) for kappa in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)]
        cells = [
            Cell(f"k{kappa:g}_s{s:g}", (kappa, s), {}, 2.0 + kappa, SAMPLING)
            for kappa, s in [*settings, (1.0, 0.02), (10.0, 0.02), (1.0, 1.0), (10.0, 1.0)]
        ]
        return Stage("linear", "E12 E13", "width_linear", width_chains.linear, tuple(cells))

    def _hessian(self, name: str, widths: tuple[int, ...]) -> Stage:
        """The full Hessian's products cost most at width 1024: there µP alone, as in the source."""
        cells = []
        for network in self._networks(self.telling):
            wide = network.width == 1024
            if network.width not in widths or (wide and network.condition == "ntk"):
                continue
            kappas = (1.0, 10.0, 100.0) if network.width == 64 else (1.0, 10.0)
            arguments = (self.folder, network, kappas, wide)
            cells.append(
                Cell(
                    network.name,
                    arguments,
                    network.columns(),
                    HESSIAN[network.width],
                    READING,
                    self._weights(network),
                )
            )
        return Stage(name, "R06 E11", "width_hessian", width_study.hessian, tuple(cells))

    def _chains(self, name: str, answers: str, plan: Iterable[tuple[Network, Setting]]) -> Stage:
        cells = []
        for network, setting in plan:
            # the κ of a fixed gamma is not known before the spectrum: about this, as it turned out
            h_max = 1.0 if network.condition == "ntk" else 0.25 * network.width
            tau = setting.protocol(network.n_beta, h_max).relaxation_time
            seconds = tau * setting.lengths * setting.chains * CHAIN_STEP[network.width]
            cells.append(
                Cell(
                    f"{network.name}_{setting.key}",
                    (self.folder, network, setting),
                    network.columns() | _columns(setting),
                    seconds,
                    SAMPLING,
                    self._weights(network, step=setting.weights),
                )
            )
        return Stage(name, answers, "width_chains", width_chains.sampled, tuple(cells))

    def _narrow(self) -> Iterator[tuple[Network, Setting]]:
        """Widths 64 and 256, seed 0: every failure and its explanation."""
        for network in self._networks(self.telling):
            if network.width == 1024:
                continue
            mup = network.condition == "mup"  # the rates of NTK are equal: nothing to inherit
            for kappa, more in _at_both_kappas(network):
                yield network, Setting("plain", kappa, **more)
                yield network, Setting("rmsprop", kappa, **more)
                if mup:
                    yield network, Setting("inherited", kappa, **more)
            yield network, Setting("plain", 1.0, n_beta_factor=100.0)
            yield network, Setting("plain", gamma=width_study.FIXED_GAMMA)
            if mup:
                yield network, Setting("inherited", gamma=width_study.FIXED_GAMMA)
            if network.width == 64:
                for k in (4.0, 16.0, 64.0):
                    yield (
                        network,
                        Setting(
                            "plain", 1.0, step_divisor=k, chains=2, lengths=10.0, discarded=3.0
                        ),
                    )

    def _polished(self) -> Iterator[tuple[Network, Setting]]:
        for network in self._networks(self.telling):
            if network.width == 64:
                yield network, Setting("plain", 1.0, weights=width_networks.POLISHED)

    def _wide(self) -> Iterator[tuple[Network, Setting]]:
        """Width 1024, seed 0, two chains, as long as they can be afforded; RMSProp at µP."""
        for network in self._networks(self.telling):
            if network.width < 1024:
                continue
            yield network, Setting("plain", 1.0, chains=2, lengths=16.0)
            short: dict[str, Any] = {"chains": 2, "lengths": 9.0, "discarded": 3.0}
            quick = short | {"step_divisor": 0.4}  # s = 0.5: the law knows the step
            yield network, Setting("plain", gamma=width_study.FIXED_GAMMA, **quick)
            yield network, Setting("plain", 10.0, **short)
            if network.condition == "mup":
                yield network, Setting("rmsprop", 1.0, chains=2, lengths=12.0)
                yield network, Setting("inherited", gamma=width_study.FIXED_GAMMA, **quick)
            else:
                yield network, Setting("plain", 10.0, **quick)

    def _telling_later(self) -> list[tuple[Network, Network]]:
        """Seeds 1 and 2 at the source-like rates: a whole spectrum each, for chains and pairs."""
        return [both for both in self.later if self.named[both] == "source-like"]

    def _seeds(self) -> Iterator[tuple[Network, Setting]]:
        """Seeds 1 and 2 at widths 64 and 256: κ = 1 and 10, plain and RMSProp."""
        for network in self._networks(self._telling_later()):
            if network.width == 1024:
                continue
            for kappa, more in _at_both_kappas(network):
                yield network, Setting("plain", kappa, **more)
                yield network, Setting("rmsprop", kappa, **more)

    def _polish(self) -> Stage:
        """Width 64, seed 0: full batches at width 1024 cost more than the rest of a network."""
        cells = [
            Cell(
                n.name,
                (self.folder, n),
                n.columns(),
                POLISH + SPECTRUM[n.width],
                (*READING, *TRAINING[1:3]),
                self._weights(n),
            )
            for n in self._networks(self.telling)
            if n.width == 64
        ]
        return Stage("polish", "E16", "width_polish", width_study.polish, tuple(cells))

    def _lazy(self) -> Stage:
        plan = [(alpha, 1) for alpha in width_extensions.ALPHAS] + [(100.0, 2)]
        cells = [
            Cell(f"a{a:g}_p{p}", (a, p), {}, TRAIN[256] + SPECTRUM[256], EXTENDING) for a, p in plan
        ]
        return Stage("lazy", "E17", "width_lazy", width_extensions.lazy, tuple(cells))

    def _influence(self) -> Stage:
        cells = [
            Cell(f"exact_{c}", (self.folder, c), {}, 200.0, EXTENDING)
            for c in width_networks.CONDITIONS
        ]
        work = width_extensions.influence
        return Stage("influence", "E18", "width_influence", work, tuple(cells))

    def _sampled_influence(self) -> Stage:
        cells = []
        for c in width_networks.CONDITIONS:
            for kappa, factor, lengths in (
                (1.0, 1.0, 50.0),
                (1.0, 100.0, 50.0),
                (10.0, 1.0, 12.0),
            ):
                tau = KappaProtocol(kappa, 1.0).relaxation_time
                cells.append(
                    Cell(
                        f"sampled_{c}_k{kappa:g}_b{factor:g}",
                        (self.folder, c, kappa, factor, lengths),
                        {},
                        4 * lengths * tau * 1.2 * CHAIN_STEP[64] + 60.0,
                        EXTENDING,
                    )
                )
        work = width_extensions.sampled_influence
        return Stage("influence-sampled", "E18", "width_influence", work, tuple(cells))


def _columns(setting: Setting) -> Row:
    """What a table says of a setting before its chains run, and if they die."""
    named = {k: v for k, v in asdict(setting).items() if k in width_tables.CHAINS}
    s = width_chains.STEP_CONSTANT / setting.step_divisor
    return named | {"aligned": "gamma" if setting.kappa is None else "kappa", "step_constant": s}


def _at_both_kappas(network: Network) -> list[tuple[float, dict[str, Any]]]:
    """κ = 1 and 10 with as many chains as a width can afford; 5.5 times the steps at κ = 10."""
    if network.width == 64:
        return [(1.0, {}), (10.0, {"chains": 2})]
    return [(1.0, {"lengths": 16.0}), (10.0, {"chains": 2, "lengths": 10.0})]


# ---- running -----------------------------------------------------------------------------------


def run_stages(setup: Setup, stages: Sequence[Stage]) -> dict[str, list[Row]]:
    """Run stage after stage, writing data/<table>.csv after each; the rows of every table."""
    parts: dict[str, dict[str, list[Row]]] = {}
    rows: dict[str, list[Row]] = {}
    for stage in stages:
        ready = [cell for cell in stage.cells if all(path.exists() for path in cell.weights)]
        done = jobs.run(setup, f"widths-{stage.name}", stage.table, stage.work, ready)
        found = parts.setdefault(stage.table, {})
        for cell in stage.cells:
            failed = done[cell.key].error if cell.key in done else "no weights: training failed"
            new = [{"error": failed}] if failed else done[cell.key].rows
            if stage.table == "widths":  # training and spectrum are two halves of one row
                before = found.get(cell.key, [{}])
                new = [a | b for a, b in zip(before, new, strict=True)]
            found[cell.key if stage.table == "widths" else f"{stage.name}/{cell.key}"] = [
                dict(cell.known) | row for row in new
            ]
        rows[stage.table] = [
            width_tables.row(stage.table, row) for some in found.values() for row in some
        ]
        path = setup.data / f"{stage.table}.csv"
        records.write_csv(path, width_tables.types(stage.table), rows[stage.table])
    return rows


def print_plan(stages: Sequence[Stage]) -> None:
    """Stage by stage: cells, minutes on one core, claims it answers."""
    total = 0.0
    for stage in stages:
        total += stage.minutes
        head = f"{stage.name:18s} {len(stage.cells):3d} cells {stage.minutes:6.1f} min"
        print(f"{head}  sum {total:6.1f}  {stage.answers}")
    print("minutes on one core; with --workers 2 about half")


# ---- the quick run -----------------------------------------------------------------------------


def quick(folder: Path, network: Network) -> list[Row]:
    """Train one network, read λ(c) exactly at QUICK_KAPPAS and once by chains at κ = 1."""
    (trained,) = width_study.train(folder, network)
    net, w = network.model(), width_networks.read_snapshot(folder, network).w
    read = width_study.read_at_kappas(net, w, QUICK_KAPPAS)
    settings = KappaProtocol(1.0, network.n_beta).settings(read["h_max"])
    sample = sgld.sample(net, w, h_max=read["h_max"], chains=2, seed=network.seed, **settings)
    sampled = {"llc": sample.llc, "standard_error": sample.standard_error}
    return [network.columns() | trained | read | sampled]


def run_quick(setup: Setup) -> list[Row]:
    """Both conditions at width 64, seed 0, at the source-like rates."""
    folder = setup.runs / "widths"
    cells = [
        Cell(n.name, (folder, n), {}, 80.0, (*TRAINING, *READING, "sgld.py", "chains.py"))
        for n in width_networks.pair(64, "source-like", 0)
    ]
    done = jobs.run(setup, "widths-quick", "widths", quick, cells)
    for cell in cells:
        if done[cell.key].error:
            raise RuntimeError(done[cell.key].error)
    return [done[cell.key].rows[0] for cell in cells]


def print_quick(rows: Sequence[Row]) -> None:
    """Both networks side by side, and their ratio."""
    print(
        "Width 64, 784→64→64→10, 1,024 digits; λ(c) effective dimension, κ = n_beta·h_max/gamma\n"
    )
    lines = [
        ("base rate", "base_rate", "g"),
        ("loss", "loss", ".2e"),
        ("drift of W1", "drift_W1", ".2f"),
        ("drift of W2", "drift_W2", ".2f"),
        ("linearisation error", "linearisation_error", ".2f"),
        ("largest curvature h_max", "h_max", ".3g"),
        *((f"λ(c) at κ = {k}, exact", f"dimension_{k}", ".2f") for k in QUICK_KAPPAS),
        ("λ̂ at κ = 1, sampled", "llc", ".2f"),
        ("  its standard error", "standard_error", ".2f"),
    ]
    heads = [width_networks.NAMES[row["condition"]] for row in rows]
    print(f"{'':28s}{heads[0]:>10s}{heads[1]:>10s}{'ratio':>10s}")
    for label, column, form in lines:
        a, b = (row[column] for row in rows)
        ratio = f"{b / a:10.3f}" if "λ" in label else ""
        print(f"{label:28s}{a:>10{form}}{b:>10{form}}{ratio}")
    print(
        "\nThe sampled reading departs from the exact one where the chains travel as far as the "
        "weights are\nlong (NTK here): the loss is no quadratic there."
    )


def main(arguments: list[str] | None = None) -> int:
    """The script; the exit status of console.run."""
    options = _parse(arguments)
    setup = Setup(options.data, options.runs, options.workers, options.quiet)
    stages = Plan(options.runs).stages()
    if options.plan:
        print_plan(stages)
        return 0
    if options.study == "quick":
        rows = run_quick(setup)
        print_quick(rows)
        _draw(setup.runs / "widths", {"quick": rows}, {})
        return 0
    if not setup.quiet:
        print_plan(stages)
    tables = run_stages(setup, stages)
    spectra = keep_spectra(setup)
    _draw(setup.data.parent / "figures", tables, spectra)
    return 0


def keep_spectra(setup: Setup) -> dict[str, Array]:
    """Write data/width_spectra.npz: the curvatures of every network, under its name."""
    folder = setup.runs / "widths"
    spectra = {
        network.name: width_networks.read_spectrum(folder, network)
        for network in width_networks.all_networks()
        if width_networks.spectrum_path(folder, network).exists()
    }
    records.write_npz(setup.data / "width_spectra.npz", spectra)
    return spectra


def _draw(folder: Path, tables: dict[str, list[Row]], spectra: dict[str, Array]) -> None:
    """Draw what the rows allow; without matplotlib say so and go on."""
    try:
        for path in width_figures.draw(folder, tables, spectra):
            print(f"figure: {path}")
    except canvas.NoMatplotlib as error:
        console.say(f"no figure: {error}")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = console.Arguments(
        description="NTK against µP perceptrons on 1,024 digits: effective dimensions at fixed κ."
    )
    add = parser.add_argument
    add("--study", choices=("quick", "full"), default="quick", help="default: quick, 2 minutes")
    add("--plan", action="store_true", help="print the stages of --study full and their minutes")
    add("--workers", type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="processes")
    add("--data", type=Path, default=HERE / "data", metavar="DIR", help="tables go here")
    add("--runs", type=Path, default=HERE / "runs", metavar="DIR", help="cells and weights go here")
    add("--quiet", action="store_true", help="print no progress")
    add("--debug", action="store_true", help="show where an error came from")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
