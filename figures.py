"""Every plot: `python figures.py` writes figures/*.png from the files in data/.

What is drawn from the tables of the studies is in study_figures and width_figures, the style in
canvas. A figure whose files are not there is left out, with the command that makes them.

Symbols and shapes
    h   (r,) curvatures of J counted in the rank r, descending: loss per squared weight
    c   resolution gamma/n_beta, in the unit of h; a direction with h < c is flat to the sampler
    i/r rank share of the i-th curvature
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import canvas
import console
import curvature
import evidence
import gate
import measure
import records
import study_figures
import width_figures
import width_tables
from evidence import Evidence, NotEnough, Row
from qnet import QuadraticNetwork
from records import PathLike

Array = NDArray[np.float64]

HERE = Path(__file__).resolve().parent
DRAWN = ("p11_K33_f80_s0", "p17_K51_f70_s0")  # the networks `python run_llc.py` measures
ERROR_LIMIT = 0.05  # of a known λ, beyond which calibrate.py fails
PAPER_RESOLUTION = 5.0 / 26.4  # gamma/n_beta of Cullen et al. 2026, claim C03
SOURCE_RESOLUTION = evidence.SOURCE_SETTINGS["gamma"] / evidence.SOURCE_SETTINGS["n_beta"]


@dataclass(frozen=True)
class Spectrum:
    """What is drawn of one network: its label and its counted curvatures h, (r,) descending."""

    label: str
    h: Array


def spectrum_figure(spectra: Sequence[Spectrum], resolution: float, path: PathLike) -> None:
    """Write `drawn_spectra` to a PNG file, atomically. Raises records.RecordError too."""
    canvas.save(drawn_spectra(spectra, resolution), path)


def drawn_spectra(spectra: Sequence[Spectrum], resolution: float) -> Any:
    """A matplotlib figure: each h_i against its rank share i/r, c as a line, grey where h is flat.

    Given one to six spectra of r ≥ 1 positive curvatures, and c > 0. A dot marks where a spectrum
    falls below c. Raises ValueError for what cannot be drawn, and canvas.NoMatplotlib.
    """
    _check(spectra, resolution)
    figure = canvas.empty_figure()
    axes = canvas.panel(figure)
    for spectrum, (colour, dashes, _) in zip(spectra, canvas.MARKS, strict=False):
        r = len(spectrum.h)
        flat = curvature.flat_share(spectrum.h, r, resolution)
        label = f"{spectrum.label}: r = {r}, {flat:.1%} flat"
        share = np.arange(1, r + 1) / r
        axes.plot(share, spectrum.h, color=colour, linestyle=dashes, linewidth=1.6, label=label)
        if 0 < flat < 1:
            axes.plot(1.0 - flat, resolution, "o", color=colour, markersize=6, zorder=3)
    axes.set_yscale("log")
    axes.set_xlim(0.0, 1.0)
    _mark_resolution(axes, resolution)
    axes.set_xlabel("rank share i/r")
    axes.set_ylabel("curvature $h_i$ (loss per squared weight)")
    canvas.legend(axes, loc="lower left", fontsize=9)
    return figure


def _check(spectra: Sequence[Spectrum], resolution: float) -> None:
    if not 1 <= len(spectra) <= len(canvas.MARKS):
        raise ValueError(f"1 to {len(canvas.MARKS)} spectra can be told apart, got {len(spectra)}")
    for spectrum in spectra:
        if not (len(spectrum.h) and (spectrum.h > 0).all()):
            raise ValueError(f"{spectrum.label} has no curvatures, or one ≤ 0: nothing to draw")
    if not resolution > 0:
        raise ValueError(f"the resolution must be positive, got {resolution}")


def _mark_resolution(axes: Any, c: float) -> None:
    """The line at c, and grey below it."""
    bottom = min(axes.get_ylim()[0], c / 10)
    axes.axhspan(bottom, c, color="0.92", zorder=0)
    axes.axhline(c, color="0.35", linewidth=0.8)
    axes.set_ylim(bottom=bottom)
    near = {"textcoords": "offset points", "color": "0.25", "fontsize": 9}
    axes.annotate(f"resolution c = γ/nβ = {c:g}", (0.01, c), (0, 4), **near)
    axes.annotate("flat directions, h < c", (0.01, c), (0, -12), **near)


# ---- from the files in data/ -------------------------------------------------------------------


def read_spectrum(name: str, data: Path, quiet: bool = False) -> Spectrum:
    """The spectrum of a network of data/checkpoints, kept in data/spectra or computed now."""
    checkpoint = records.read_checkpoint(data / "checkpoints" / f"{name}.npz")
    net = QuadraticNetwork.modular(checkpoint.p, checkpoint.K, checkpoint.a, checkpoint.b)
    kept = data / "spectra" / f"{name}.npz"
    if kept.exists():
        found = measure.read_spectrum(kept, net, checkpoint.content_hash())
    else:
        if not quiet:
            console.say(f"{name}: singular values of the {net.n * net.p} × {net.n_params} Jacobian")
        found = measure.read_curvature(net, net.pack(checkpoint.u, checkpoint.v, checkpoint.W))
    assert found.h is not None and found.rank is not None  # every route but matrix-free
    return Spectrum(f"p = {net.p}, K = {net.K}", found.h[: found.rank])


def resolution_used(data: Path) -> float:
    """c of the frozen settings, or of the source's while none are frozen."""
    try:
        settings = gate.read_frozen(data).settings
    except gate.GateClosed:
        return measure.Protocol().resolution
    return float(settings["gamma"] / settings["n_beta"])


def spectra_of(rows: Sequence[Row], data: Path) -> dict[tuple[int, int], Array]:
    """Per size of networks.csv the spectrum of its lowest seed. Raises NotEnough without one."""
    found: dict[tuple[int, int], Array] = {}
    for row in sorted(rows, key=lambda r: r["seed"]):
        size = row["p"], row["K"]
        kept = data / "spectra" / f"{row['network']}.npz"
        if row["study"] == "verdict" and size not in found and kept.exists():
            found[size] = read_spectrum(row["network"], data).h
    if not found:
        raise NotEnough("data/spectra has no spectrum of the verdict")
    return {size: found[size] for size in sorted(found)}


# ---- every figure of the studies ---------------------------------------------------------------


@dataclass(frozen=True)
class Drawing:
    """A figure of the studies: the files it cannot do without, and how it is drawn from them."""

    files: tuple[str, ...]
    draw: Callable[[Evidence], Any]


def _reading(data: Evidence) -> Any:
    rows, frozen_layer = data.usable("llc.csv", "llc"), _if_there(data, "memorising.csv")
    return study_figures.reading_figure(rows, (), frozen_layer, evidence.settings_of(rows))


def _reading_at_source(data: Evidence) -> Any:
    rows, wide = data.usable(evidence.AT_SOURCE, "llc"), _if_there(data, "too_wide.csv")
    return study_figures.reading_figure(rows, wide, (), evidence.settings_of(rows))


def _if_there(data: Evidence, file: str) -> list[Row]:
    """The readings of a file that a figure can do without."""
    return [r for r in data.rows(file) if r["llc"] is not None] if data.has(file) else []


def _response(data: Evidence) -> Any:
    marked = {
        "Lab Agents 2026": SOURCE_RESOLUTION,
        "the paper": PAPER_RESOLUTION,
        "frozen here": resolution_used(data.data),
    }
    spectra = spectra_of(data.usable("networks.csv", "rank"), data.data)
    return study_figures.response_figure(spectra, _if_there(data, "sensitivity.csv"), marked)


def _sensitivity(data: Evidence) -> Any:
    rows = data.usable("sensitivity.csv", "llc"), data.at_source("llc.csv", "llc")
    return study_figures.sensitivity_figure(*rows, _if_there(data, "grid_selection.csv"))


def _calibration(data: Evidence) -> Any:
    return study_figures.calibration_figure(data.rows("calibration_grid.csv"), ERROR_LIMIT)


def _from(file: str, draw: Callable[[list[Row]], Any], *columns: str) -> Drawing:
    """A figure of the usable rows of one file."""
    return Drawing((file,), lambda data: draw(data.usable(file, *columns)))


def drawings() -> dict[str, Drawing]:
    """Every figure but the shipped spectra, by the name of its file."""
    of = study_figures
    return {
        "calibration": Drawing(("calibration_grid.csv",), _calibration),
        "reading": Drawing(("llc.csv",), _reading),
        "reading_at_source": Drawing((evidence.AT_SOURCE,), _reading_at_source),
        "response": Drawing(("networks.csv",), _response),
        "tolerance": _from("rank_sweep.csv", of.tolerance_figure, "rank"),
        "sensitivity": Drawing(("sensitivity.csv", "llc.csv"), _sensitivity),
        "settling": _from("settling.csv", of.settling_figure, "reading_10000"),
        "polish": _from("polish.csv", of.polish_figure, "llc"),
        "trajectory": _from("trajectory.csv", of.trajectory_figure, "llc"),
        "convergence": _from("convergence.csv", of.convergence_figure, "llc", "rank"),
    }


def draw_studies(data: Path, out: Path, quiet: bool = False) -> list[Path]:
    """Draw what the files of `data` allow into `out`; say what is missing. The files written."""
    found, written = Evidence(data), []
    for name, drawing in drawings().items():
        missing = [file for file in drawing.files if not found.has(file)]
        try:
            if missing:
                raise NotEnough(f"needs data/{missing[0]}: {evidence.COMMANDS[missing[0]]}")
            figure = drawing.draw(found)
        except NotEnough as error:
            if not quiet:
                console.say(f"{name}.png not drawn: {error}")
            continue
        canvas.save(figure, out / f"{name}.png")
        written.append(out / f"{name}.png")
    return written


def draw_widths(data: Path, out: Path) -> list[Path]:
    """Draw what the tables and spectra of the width study allow into `out`; the files written."""
    found, kept = Evidence(data), data / "width_spectra.npz"
    tables = {name: f"{name}.csv" for name in width_tables.TABLES}
    rows = {name: found.rows(file) for name, file in tables.items() if found.has(file)}
    return width_figures.draw(out, rows, records.read_npz(kept) if kept.exists() else {})


def main(arguments: list[str] | None = None) -> int:
    """Draw every figure."""
    parser = console.Arguments(description="Draw every figure from the files in data/.")
    add = parser.add_argument
    add("--data", type=Path, default=HERE / "data", help="where to read (default data)")
    add("--out", type=Path, default=HERE / "figures", help="where to draw (default figures)")
    add("--network", action="append", help="draw this network of data/checkpoints; may be repeated")
    add("--quiet", action="store_true", help="print no progress")
    add("--debug", action="store_true", help="show the traceback of an error")
    options = parser.parse_args(arguments)
    names = options.network or DRAWN
    spectra = [read_spectrum(name, options.data, options.quiet) for name in names]
    path = options.out / "spectra.png"
    spectrum_figure(spectra, resolution_used(options.data), path)
    studies = draw_studies(options.data, options.out, options.quiet)
    for drawn in (path, *studies, *draw_widths(options.data, options.out)):
        print(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
