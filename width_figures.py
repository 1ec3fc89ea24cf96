"""The figures of the width study, from its tables and spectra; the style is canvas.py's.

Symbols: h curvatures, κ = n_beta·h_max/gamma, λ(c) effective dimension at c = gamma/n_beta, α
output scale of lazy training, δ = w − w*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import canvas
import theory
from width_networks import CONDITIONS, NAMES, PAIRS, WIDTHS, ratios
from width_tables import KAPPAS

Array = NDArray[np.float64]
Row = dict[str, Any]
Rows = Sequence[Row]

SOURCE_RATIOS = (0.954, 0.528, 0.247)  # µP/NTK at WIDTHS, claim E01
CURVE_KAPPAS = np.geomspace(0.1, 1e8, 91)
STYLE = dict(zip(CONDITIONS, canvas.MARKS, strict=False))


def quick_figure(rows: Rows) -> Any:
    """λ(c) against κ of the two networks of the quick run, and their sampled readings."""
    figure = canvas.empty_figure()
    axes = canvas.panel(figure)
    for row in rows:
        mark, name = STYLE[row["condition"]], NAMES[row["condition"]]
        at = [k for k in KAPPAS if row.get(f"dimension_{k}")]
        values = [row[f"dimension_{k}"] for k in at]
        axes.plot(at, values, mark.marker, color=mark.colour, label=f"{name}, exact")
        axes.errorbar(
            [1.1],
            [row["llc"]],
            yerr=[row["standard_error"]],
            fmt=mark.marker,
            color=mark.colour,
            markerfacecolor="none",
            label=f"{name}, sampled",
        )
    axes.set(xscale="log", yscale="log", xlabel="κ", ylabel="effective dimension λ(c)")
    canvas.legend(axes)
    return figure


def ratio_figure(rows: Rows) -> Any:
    """µP/NTK against the width, a line per κ, a panel per pair of rates."""
    figure = canvas.empty_figure(canvas.PAGE)
    for index, rates in enumerate(PAIRS, start=1):
        axes = canvas.panel(figure, 1, len(PAIRS), index)
        for kappa, mark in zip(KAPPAS, canvas.MARKS, strict=False):
            found = ratios(rows, rates, f"dimension_{kappa}")
            means = [np.mean(values) for values in found.values()]
            axes.plot(
                list(found), means, color=mark.colour, linestyle=mark.dashes, label=f"κ = {kappa}"
            )
            for width, values in found.items():
                axes.plot([width] * len(values), values, mark.marker, color=mark.colour, ms=4)
        axes.plot(WIDTHS, SOURCE_RATIOS, "x", color=canvas.GREY, label="source")
        axes.axhline(1.0, color=canvas.GREY, linewidth=0.8, zorder=0)
        base = " / ".join(f"{PAIRS[rates][c]:g}" for c in CONDITIONS)
        axes.set(xscale="log", xlabel="width", title=f"base rates NTK / µP: {base}")
        axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
        axes.title.set_size(9)
        if index == 1:
            axes.set_ylabel("λ(c) of µP over that of NTK")
    _below(figure, axes, 4)
    return figure


def response_figure(rows: Rows, spectra: Mapping[str, Array]) -> Any:
    """λ(c) against κ for each width and condition, seed 0, source-like rates, up to the ceiling."""
    figure = canvas.empty_figure()
    axes = canvas.panel(figure)
    for row in rows:
        rate = PAIRS["source-like"][row["condition"]]
        if row["seed"] != 0 or row["base_rate"] != rate or row["network"] not in spectra:
            continue
        mark = STYLE[row["condition"]]
        dashes = canvas.MARKS[WIDTHS.index(row["width"])].dashes
        curve = theory.response_curve(spectra[row["network"]], CURVE_KAPPAS)
        label = f"{NAMES[row['condition']]}, width {row['width']}"
        axes.plot(CURVE_KAPPAS, curve, color=mark.colour, linestyle=dashes, label=label)
        half = 0.5 * row["rank_ceiling"]
    canvas.level(axes, half, "half the rank ceiling", 0.3)
    axes.set(xscale="log", yscale="log", xlabel="κ", ylabel="effective dimension λ(c)")
    canvas.legend(axes)
    return figure


def drift_figure(rows: Rows) -> Any:
    """|ΔW|/|W| of the three weight matrices against the width, seed 0, source-like rates."""
    figure = canvas.empty_figure(canvas.PAGE)
    for index, condition in enumerate(CONDITIONS, start=1):
        axes = canvas.panel(figure, 1, 2, index)
        mine = [
            r
            for r in rows
            if r["condition"] == condition
            and r["base_rate"] == PAIRS["source-like"][condition]
            and r["seed"] == 0
        ]
        mine.sort(key=lambda r: r["width"])
        for layer, mark in zip((1, 2, 3), canvas.MARKS, strict=False):
            axes.plot(
                [r["width"] for r in mine],
                [r[f"drift_W{layer}"] for r in mine],
                color=mark.colour,
                marker=mark.marker,
                label=f"W{layer}",
            )
        axes.set(xscale="log", yscale="log", xlabel="width", title=NAMES[condition])
        canvas.plain_ticks(axes.yaxis, *axes.get_ylim())
        axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
        if index == 1:
            axes.set_ylabel("drift |ΔW|/|W₀|")
            canvas.legend(axes)
    return figure


def reach_figure(rows: Rows) -> Any:
    """Sampled over predicted reading against how far the spring lets the chains travel."""
    figure = canvas.empty_figure()
    axes = canvas.panel(figure)
    for condition in CONDITIONS:
        mine = [
            (r, r["law"] + r["slope_shift"])
            for r in rows
            if r["condition"] == condition and r["rule"] == "plain"
        ]
        mine = [(r, predicted) for r, predicted in mine if predicted > 0]  # else no ratio
        mark = STYLE[condition]
        axes.errorbar(
            [r["reach_law"] for r, _ in mine],
            [r["llc"] / predicted for r, predicted in mine],
            yerr=[r["standard_error"] / predicted for r, predicted in mine],
            fmt=mark.marker,
            color=mark.colour,
            markersize=5,
            label=NAMES[condition],
        )
    canvas.level(axes, 1.0, "the law on the quadratic", 0.3)
    axes.set(xscale="log", xlabel="√(d/γ) over |w*|", ylabel="sampled over predicted reading")
    axes.set_yscale("log")
    canvas.plain_ticks(axes.yaxis, *axes.get_ylim())
    canvas.legend(axes)
    return figure


def lazy_figure(rows: Rows) -> Any:
    """Linearisation error, and λ(c) over half the rank ceiling, against α."""
    figure = canvas.empty_figure(canvas.PAGE)
    left, right = (canvas.panel(figure, 1, 2, k) for k in (1, 2))
    mine = sorted((r for r in rows if r["rate_power"] == 1), key=lambda r: r["alpha"])
    alpha = [r["alpha"] for r in mine]
    left.plot(alpha, [r["linearisation_error"] for r in mine], "o-", color=canvas.MARKS[0].colour)
    left.set(xscale="log", yscale="log", xlabel="α", ylabel="linearisation error")
    canvas.plain_ticks(left.yaxis, *left.get_ylim())
    for k, mark in zip((0, 1, 2, 4, 6, 8), canvas.MARKS, strict=True):
        share = [r[f"dimension_1e{k}"] / r["half_ceiling"] for r in mine]
        right.plot(alpha, share, mark.marker, color=mark.colour, label=f"κ = 1e{k}", linestyle="-")
    right.set(xscale="log", yscale="log", xlabel="α", ylabel="λ(c) over half the rank ceiling")
    _below(figure, right, 6)
    return figure


def influence_figure(rows: Rows) -> Any:
    """Rank correlations of attributions against κ, a panel per condition."""
    figure = canvas.empty_figure(canvas.PAGE)
    columns = {
        "damped_and_exact": "damped and Bayesian",
        "exact_and_kappa_10": "Bayesian, and itself at κ = 10",
        "damped_and_kappa_10": "damped, and itself at κ = 10",
        "sampled_and_exact": "sampled and exact Bayesian",
    }
    for index, condition in enumerate(CONDITIONS, start=1):
        axes = canvas.panel(figure, 1, 2, index)
        mine = [r for r in rows if r["condition"] == condition and r["aligned"] == "kappa"]
        mine = sorted((r for r in mine if r["n_beta_factor"] == 1.0), key=lambda r: r["kappa"])
        for (column, label), mark in zip(columns.items(), canvas.MARKS, strict=False):
            points = [(r["kappa"], r[column]) for r in mine if r.get(column) is not None]
            axes.plot(
                *zip(*points, strict=True), marker=mark.marker, color=mark.colour, label=label
            )
        axes.set(xscale="log", xlabel="κ", title=NAMES[condition])
        if index == 1:
            axes.set_ylabel("rank correlation, mean over queries")
    _below(figure, axes, 2)
    return figure


def _below(figure: Any, axes: Any, columns: int) -> None:
    """The legend of these axes under the whole figure, where no curve can run into it."""
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(figure, handles=handles, labels=labels, loc="outside lower center", ncols=columns)


def draw(
    folder: Path, tables: Mapping[str, Rows], spectra: Mapping[str, Array] | None = None
) -> list[Path]:
    """Draw every figure whose tables are there, into the folder; the files written.

    Failed rows are left out. Raises canvas.NoMatplotlib and records.RecordError.
    """
    good = {name: [r for r in rows if not r.get("error")] for name, rows in tables.items()}
    figures: dict[str, tuple[str, Callable[[Rows], Any]]] = {
        "widths_quick": ("quick", quick_figure),
        "widths_ratio": ("widths", ratio_figure),
        "widths_drift": ("widths", drift_figure),
        "widths_response": ("widths", lambda rows: response_figure(rows, spectra or {})),
        "widths_reach": ("width_chains", reach_figure),
        "widths_lazy": ("width_lazy", lazy_figure),
        "widths_influence": ("width_influence", influence_figure),
    }
    written = []
    for name, (table, figure) in figures.items():
        if good.get(table) and (name != "widths_response" or spectra):
            path = folder / f"{name}.png"
            canvas.save(figure(good[table]), path)
            written.append(path)
    return written
