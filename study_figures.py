"""The figures of the studies: each a function from the rows of a table to a matplotlib figure.

Symbols
    λ̂  reading · formula ½K(3p−1) · c = gamma/n_beta the resolution · r rank of J
    bracket  [r/2, r/2 + (D − r)/4], where λ lies at a zero of the loss
    law      what the exact law of SGLD predicts from the spectrum at w*
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import canvas
import theory
from canvas import DARK, GREY, LIGHT, MARKS, PAGE, Mark

Array = NDArray[np.float64]
Row = dict[str, Any]
Size = tuple[int, int]

BAND = 0.15  # of the formula: the source's test
SETTLES = 5.0  # per cent
WIDE, FROZEN_LAYER = MARKS[1], MARKS[2]
KINDS = {"gaussian": MARKS[0], "one_hot": MARKS[1], "frozen": MARKS[2]}
ROUTES = {"svd": MARKS[0], "qr": MARKS[2], "gram": MARKS[1]}
STEPS_LABEL, COEFFICIENT = "training steps", "λ, a pure number"


def size_of(row: Row) -> Size:
    """(p, K)."""
    return row["p"], row["K"]


def size_words(size: Size) -> str:
    """p = 11, K = 33."""
    return f"p = {size[0]}, K = {size[1]}"


def short(x: float) -> str:
    """1e4, 3e-5 or 0.19: a setting with two digits at most and no padding."""
    if 0.01 <= x < 1000:
        return f"{x:.2g}"
    mantissa, exponent = f"{x:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def spread_out(count: int, width: float = 0.5) -> Array:
    """Small horizontal offsets for points that would hide each other."""
    return np.linspace(-width / 2, width / 2, count) if count > 1 else np.zeros(1)


# ---- the verdict -------------------------------------------------------------------------------


def reading_figure(
    verdict: Sequence[Row],
    wide: Sequence[Row] = (),
    memorising: Sequence[Row] = (),
    settings: str = "",
) -> Any:
    """λ̂ against the formula, and their ratio size by size beside what is predicted.

    Filled: networks of the verdict with their bracket; hollow: too wide for the formula; triangles:
    first layer frozen, against p·rank/2; ×: the chains raise doubts. `settings` is the title.
    """
    figure = canvas.empty_figure(PAGE, 4.6)
    figure.suptitle(settings, fontsize=9, color=DARK)
    _against_formula(canvas.panel(figure, 1, 2, 1), verdict, wide, memorising)
    _ratio_by_size(canvas.panel(figure, 1, 2, 2), verdict)
    return figure


def _against_formula(
    axes: Any, verdict: Sequence[Row], wide: Sequence[Row], memorising: Sequence[Row]
) -> None:
    everything = [r["formula_paper"] for r in (*verdict, *wide)]
    everything += [r["known_llc"] for r in memorising]
    ends = np.array([0.7 * min(everything), 1.4 * max(everything)])
    axes.fill_between(ends, (1 - BAND) * ends, (1 + BAND) * ends, color=LIGHT, zorder=0)
    axes.plot(ends, ends, color=GREY, linewidth=0.8, label="λ̂ = formula, ± 15 %", zorder=0)
    for r in verdict:
        x = r["formula_paper"]
        axes.plot([x, x], [r["bracket_low"], r["bracket_high"]], color=GREY, linewidth=1.0)
        axes.plot(x, r["half_rank"], "_", color=DARK, markersize=9)
    axes.plot([], [], "_", color=DARK, markersize=9, label="½ rank J, lower end of the bracket")
    _points(axes, verdict, "formula_paper", MARKS[0], "grokked", filled=True)
    _points(axes, wide, "formula_paper", WIDE, "too wide for the formula", filled=False)
    _points(
        axes, memorising, "known_llc", FROZEN_LAYER, "first layer frozen: p·rank/2", filled=False
    )
    axes.set(xscale="log", yscale="log", xlim=ends, xlabel="formula ½K(3p−1)", ylabel="reading λ̂")
    canvas.plain_ticks(axes.xaxis, *ends)
    canvas.plain_ticks(axes.yaxis, *axes.get_ylim())
    canvas.legend(axes, loc="upper left")


def _points(
    axes: Any, rows: Sequence[Row], column: str, mark: Mark, label: str, *, filled: bool
) -> None:
    """One point per network; its standard error is smaller than the mark, or drawn."""
    for settled, style in ((True, mark.marker), (False, "x")):
        group = [r for r in rows if bool(r["settled"]) == settled]
        if not group:
            continue
        axes.errorbar(
            [r[column] for r in group],
            [r["llc"] for r in group],
            yerr=[r["standard_error"] for r in group],
            fmt=style,
            markersize=5,
            color=mark.colour,
            markerfacecolor=mark.colour if filled else "none",
            elinewidth=1.0,
            label=label if settled else f"{label}, not settled",
        )


def _ratio_by_size(axes: Any, rows: Sequence[Row]) -> None:
    """Per network, over the formula: λ̂, the law at w*, the law where the chain ended, ½rank."""
    sizes = list(dict.fromkeys(map(size_of, rows)))
    axes.axhspan(1 - BAND, 1 + BAND, color=LIGHT, zorder=0)
    columns = {
        "½ rank J": ("half_rank", Mark(DARK, None, "_")),
        "law at w*": ("law", MARKS[4]),
        "law where the chain ended": ("end_law", MARKS[3]),
        "reading λ̂": ("llc", MARKS[0]),
    }
    for label, (column, mark) in columns.items():
        x, y = [], []
        for i, size in enumerate(sizes):
            group = [r for r in rows if size_of(r) == size]
            at = i + spread_out(len(group))
            found = [
                (a, r[column] / r["formula_paper"])
                for a, r in zip(at, group, strict=True)
                if r[column]
            ]
            x += [a for a, _ in found]
            y += [ratio for _, ratio in found]
        face = mark.colour if column == "llc" else "none"
        axes.plot(
            x, y, mark.marker, color=mark.colour, markerfacecolor=face, markersize=6, label=label
        )
    axes.set_xticks(range(len(sizes)), [f"{p}, {K}" for p, K in sizes])
    axes.set(xlabel="size p, K; one column per seed", ylabel="over the formula ½K(3p−1)")
    axes.set_ylim(bottom=min(0.5, axes.get_ylim()[0]), top=max(1.3, axes.get_ylim()[1]))
    canvas.level(axes, 1.0, "formula, ± 15 %")
    canvas.legend(axes, loc="upper left", ncols=2)


# ---- resolution --------------------------------------------------------------------------------


def response_figure(
    spectra: Mapping[Size, Array],
    sensitivity: Sequence[Row] = (),
    marked: Mapping[str, float] | None = None,
) -> Any:
    """½Σh/(h+c) over ½rank against c for each spectrum h (r,), with the readings taken at some c.

    `marked`: resolutions to draw as lines, by name.
    """
    figure = canvas.empty_figure(canvas.COLUMN, 4.4)
    axes = canvas.panel(figure)
    marks = canvas.marks_of(spectra)
    c = np.geomspace(1e-9, 10.0, 121)
    for size, h in spectra.items():
        curve = [theory.effective_dimension(h, x) / (0.5 * len(h)) for x in c]
        mark = marks[size]
        axes.plot(c, curve, color=mark.colour, linestyle=mark.dashes, label=size_words(size))
        mine = [r for r in sensitivity if size_of(r) == size]
        axes.plot(
            [r["resolution"] for r in mine],
            [r["ratio_half_rank"] for r in mine],
            mark.marker,
            color=mark.colour,
            markersize=4,
            alpha=0.8,
        )
    for k, (words, x) in enumerate((marked or {}).items()):
        side = k % 2  # alternately below and above the curves
        axes.axvline(x, color=GREY, linewidth=0.8, zorder=0)
        place = {"rotation": 90, "va": ("bottom", "top")[side], "fontsize": 8, "color": DARK}
        place |= {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(f"{words}, c = {short(x)}", (x, (0.02, 0.99)[side]), (3, 0), **place)
    if sensitivity:
        axes.plot([], [], "o", color=GREY, markersize=4, label="marks: λ̂ by SGLD")
    axes.set(xscale="log", ylim=(0.0, 1.05), ylabel="½Σh/(h+c) over ½ rank")
    axes.set_xlabel("resolution c = γ/nβ (loss per squared weight)")
    canvas.legend(axes, loc="lower left")
    return figure


def tolerance_figure(rows: Sequence[Row]) -> Any:
    """Rank over K(3p−2) and flat share against the tolerance, a line per network and route."""
    figure = canvas.empty_figure(PAGE, 3.8)
    left, right = (canvas.panel(figure, 1, 2, i) for i in (1, 2))
    for route, mark in ROUTES.items():
        mine = [r for r in rows if r["route"] == route and r["weights"] == "grokked"]
        for k, name in enumerate(dict.fromkeys(r["network"] for r in mine)):
            line = [r for r in mine if r["network"] == name]
            t = [r["tolerance"] for r in line]
            style = {"color": mark.colour, "linestyle": mark.dashes, "marker": mark.marker}
            style |= {"markersize": 3, "linewidth": 0.9, "label": None if k else f"route {route}"}
            left.plot(t, [r["ratio_generic"] for r in line], **style)
            right.plot(t, [100 * r["flat_share"] for r in line], **style)
    left.axhline(1.0, color=GREY, linewidth=0.8, zorder=0)
    for axes in (left, right):
        axes.set(xscale="log", xlabel="tolerance, share of s_max")
        axes.invert_xaxis()
        canvas.legend(axes, loc="best")
    left.set_ylabel("rank J over K(3p−2)")
    right.set(ylabel="counted directions with h < 1e-4, %", ylim=(0, None))
    return figure


# ---- sensitivity, settling, polish -------------------------------------------------------------


def sensitivity_figure(
    changed: Sequence[Row], frozen: Sequence[Row], grid: Sequence[Row] = ()
) -> Any:
    """λ̂ over the formula when one setting changes, and at all settings of the grid against c.

    `frozen`: the rows of llc.csv; the lowest seed of each size is drawn as "none".
    """
    figure = canvas.empty_figure(PAGE, 4.0)
    left, right = (canvas.panel(figure, 1, 2, i, sharey=None) for i in (1, 2))
    first = {size_of(r): r for r in reversed(frozen)}
    changes = list(dict.fromkeys(r["changed"] for r in changed))
    marks = canvas.marks_of(map(size_of, changed))
    for i, (size, mark) in enumerate(marks.items()):
        rows = [r for r in changed if size_of(r) == size]
        place = {"none": first.get(size), **{r["changed"]: r for r in rows}}
        off = spread_out(len(marks), 0.4)[i]
        found = [
            (k + off, place[name]) for k, name in enumerate(["none", *changes]) if place.get(name)
        ]
        y = [r["ratio_paper"] for _, r in found if r]
        style = {"color": mark.colour, "markersize": 5, "label": size_words(size)}
        left.plot([x for x, _ in found], y, mark.marker, **style)
        mine = [r for r in grid if size_of(r) == size]
        right.plot(
            [r["resolution"] for r in mine], [r["ratio_paper"] for r in mine], mark.marker, **style
        )
    names = [
        name.replace("step_constant", "s").replace("n_beta", "nβ").replace("gamma", "γ")
        for name in changes
    ]
    left.set_xticks(range(len(changes) + 1), ["none", *names], rotation=35, ha="right")
    left.set(ylabel="λ̂ over ½K(3p−1)", xlabel="the one setting changed")
    right.set(xscale="log", xlabel="resolution c = γ/nβ of the 16 grid settings")
    right.set_ylabel("λ̂ over ½K(3p−1)")
    canvas.legend(left, loc="best", ncols=2)
    return figure


def settling_figure(rows: Sequence[Row]) -> Any:
    """λ̂ over fifths of long chains, over the 10,000-step reading, per network."""
    figure = canvas.empty_figure(canvas.COLUMN, 4.2)
    axes = canvas.panel(figure)
    axes.axhspan(-SETTLES, SETTLES, color=LIGHT, zorder=0)
    marks = canvas.marks_of(map(size_of, rows))
    for i, r in enumerate(rows):
        mark = marks[size_of(r)]
        y = [100 * (r[f"block_{k}"] / r["reading_10000"] - 1) for k in range(1, 6)]
        hollow = "none" if i >= len(MARKS) else mark.colour
        style = {"color": mark.colour, "linestyle": mark.dashes, "markerfacecolor": hollow}
        label = size_words(size_of(r)) + ("" if r["settles"] else " – not settled")
        axes.plot(range(1, 6), y, marker=mark.marker, markersize=5, label=label, **style)
    axes.axhline(0.0, color=GREY, linewidth=0.8, zorder=0)
    axes.set_xticks(range(1, 6))
    axes.set(xlabel="fifth of the steps kept", ylabel="λ̂ against the 10,000-step reading, %")
    canvas.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def polish_figure(rows: Sequence[Row]) -> Any:
    """λ̂ and the law at w* over the formula after either polish, joined per network."""
    figure = canvas.empty_figure(canvas.COLUMN, 3.8)
    axes = canvas.panel(figure)
    marks = canvas.marks_of(map(size_of, rows))
    names = ("adam", "lbfgs")
    for i, (size, mark) in enumerate(marks.items()):
        mine = {r["polish"]: r for r in rows if size_of(r) == size}
        x = [k + spread_out(len(marks), 0.3)[i] for k, name in enumerate(names) if name in mine]
        pair = [mine[name] for name in names if name in mine]
        y, law = ([r[c] / r["formula_paper"] for r in pair] for c in ("llc", "law"))
        error = [2 * r["standard_error"] / r["formula_paper"] for r in pair]
        axes.errorbar(
            x,
            y,
            yerr=error,
            color=mark.colour,
            fmt=mark.marker,
            linestyle=mark.dashes,
            label=size_words(size),
        )
        axes.plot(x, law, mark.marker, color=mark.colour, markerfacecolor="none")
    axes.plot([], [], "o", color=GREY, markerfacecolor="none", label="hollow: law at w*")
    axes.set_xticks((0, 1), ("polished by Adam", "polished by L-BFGS"))
    axes.set(ylabel="over the formula ½K(3p−1); bars: 2 standard errors", xlim=(-0.4, 1.4))
    canvas.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# ---- over training -----------------------------------------------------------------------------


def trajectory_figure(rows: Sequence[Row]) -> Any:
    """Accuracies, loss and everything about λ against training steps of one network."""
    rows = sorted(rows, key=lambda r: r["training_steps"])
    steps = np.array([r["training_steps"] for r in rows])
    figure = canvas.empty_figure(canvas.COLUMN, 6.4)
    top, middle, bottom = (canvas.panel(figure, 3, 1, i) for i in (1, 2, 3))
    for column, label, mark in (
        ("train_accuracy", "training pairs", MARKS[0]),
        ("held_out_accuracy", "pairs held out", MARKS[1]),
    ):
        _line(top, steps, [100 * r[column] for r in rows], mark, label)
    _line(middle, steps, [r["loss"] for r in rows], MARKS[0], "loss L_n")
    for column, label, mark in (
        ("half_rank", "½ rank J", MARKS[5]),
        ("effective_dimension", "½Σh/(h+c) of the spectrum", MARKS[2]),
        ("llc", "reading λ̂ ± 2 standard errors", MARKS[1]),
    ):
        _line(bottom, steps, [r[column] for r in rows], mark, label)
    low, high = ([r["llc"] + sign * 2 * r["standard_error"] for r in rows] for sign in (-1.0, 1.0))
    bottom.fill_between(steps, low, high, color=MARKS[1].colour, alpha=0.2, linewidth=0)
    canvas.level(bottom, rows[0]["formula_paper"], "formula ½K(3p−1)")
    middle.set(yscale="log", ylabel="loss on the training pairs")
    top.set(ylabel="accuracy, %")
    top.set_title(size_words(size_of(rows[0])), fontsize=10)
    bottom.set(ylabel=COEFFICIENT, xlabel=STEPS_LABEL)
    _cut_below_zero(bottom, [r["llc"] for r in rows], max(r["formula_paper"] for r in rows))
    for axes in (top, middle, bottom):
        axes.set_xscale("symlog", linthresh=float(steps[steps > 0].min(initial=steps.max())))
        axes.set_xlim(0, 1.1 * steps.max())
        canvas.legend(axes, loc="best")
    return figure


def _cut_below_zero(axes: Any, readings: Sequence[float], top: float) -> None:
    """Away from a minimum λ̂ is negative without bound; the axis ends at zero and says so."""
    negative = sum(reading < 0 for reading in readings)
    if not negative:
        return
    axes.set_ylim(0.0, 1.3 * top)
    words = f"λ̂ is negative at {negative} of {len(readings)} looks, where w is no minimum"
    axes.text(0.02, 0.9, words, transform=axes.transAxes, color=GREY, fontsize=8)


def _line(axes: Any, x: Any, y: Sequence[float], mark: Mark, label: str) -> None:
    style = {"color": mark.colour, "linestyle": mark.dashes, "marker": mark.marker}
    axes.plot(x, y, markersize=4, label=label, **style)


def convergence_figure(rows: Sequence[Row]) -> Any:
    """Per size: bracket, formulas and λ̂ above; rank, exact rank and K_eff below; against steps."""
    sizes = list(dict.fromkeys(map(size_of, rows)))
    figure = canvas.empty_figure(PAGE, 6.0)
    for i, size in enumerate(sizes):
        mine = [r for r in rows if size_of(r) == size]
        above = canvas.panel(figure, 2, len(sizes), i + 1)
        below = canvas.panel(figure, 2, len(sizes), len(sizes) + i + 1)
        for k, name in enumerate(dict.fromkeys(r["network"] for r in mine)):
            one = sorted(
                (r for r in mine if r["network"] == name), key=lambda r: r["training_steps"]
            )
            _bracket_and_reading(above, one, first=k == 0)
            _ranks(below, one, first=k == 0)
        canvas.level(above, mine[0]["formula_paper"], "½K(3p−1)")
        above.set(xscale="log", ylabel=COEFFICIENT)
        above.set_title(size_words(size), fontsize=10)
        below.set(xscale="log", ylabel="share of the largest possible", xlabel=STEPS_LABEL)
        below.set_ylim(top=1.05)
        if i == 0:
            canvas.legend(above, loc="best")
            canvas.legend(below, loc="best")
    return figure


def _bracket_and_reading(axes: Any, rows: Sequence[Row], *, first: bool) -> None:
    steps = [r["training_steps"] for r in rows]
    low, high = [r["bracket_low"] for r in rows], [r["bracket_high"] for r in rows]
    axes.fill_between(
        steps,
        low,
        high,
        color=MARKS[0].colour,
        alpha=0.25,
        linewidth=2.0,  # a certified λ is a line, not an area
        label="bracket of λ, per seed" if first else None,
    )
    label = "½K_eff(3p−1)" if first else None
    y = [r["formula_paper_in_use"] for r in rows]
    axes.plot(steps, y, color=MARKS[5].colour, linestyle="dotted", linewidth=1.2, label=label)
    axes.errorbar(
        steps,
        [r["llc"] for r in rows],
        yerr=[2 * r["standard_error"] for r in rows],
        fmt=MARKS[1].marker,
        color=MARKS[1].colour,
        markersize=4,
        label="reading λ̂ ± 2 standard errors" if first else None,
    )


def _ranks(axes: Any, rows: Sequence[Row], *, first: bool) -> None:
    steps = [r["training_steps"] for r in rows]
    for column, whole, label, mark in (
        ("rank", "rank_bound", "numerical rank J", MARKS[0]),
        ("exact_lower", "rank_bound", "exact rank of the stored weights", MARKS[3]),
        ("K_eff", "K", "neurons in use", MARKS[2]),
    ):
        y = [r[column] / r[whole] for r in rows]
        _line(axes, steps, y, mark, label if first else "_" + label)


# ---- calibration -------------------------------------------------------------------------------


def calibration_figure(rows: Sequence[Row], limit: float) -> Any:
    """Errors of every run of the grid, one line of dots per setting, the worst of each marked.

    `limit`: the error a known network may have, drawn as a band.
    """
    settings = sorted({_setting(r) for r in rows}, key=lambda s: (s[1] / s[2], s[0]))
    figure = canvas.empty_figure(canvas.COLUMN, 5.0)
    axes = canvas.panel(figure)
    axes.axvspan(-100 * limit, 100 * limit, color=LIGHT, zorder=0)
    axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    for off, (kind, mark) in zip((-0.2, 0.0, 0.2), KINDS.items(), strict=True):
        mine = [r for r in rows if r["network"].startswith(kind)]
        y = [settings.index(_setting(r)) + off for r in mine]
        label = f"{kind.capitalize().replace('_', '-')} networks"
        style = {"color": mark.colour, "markersize": 3.5, "markerfacecolor": "none"}
        axes.plot([100 * r["error"] for r in mine], y, mark.marker, label=label, **style)
    worst = [max((r for r in rows if _setting(r) == at), key=_size_of_error) for at in settings]
    x = [100 * r["error"] for r in worst]
    axes.plot(x, range(len(x)), "|", color=DARK, markersize=14, label="worst of its setting")
    names = [f"c = {short(g / n)}: γ {g:g}, nβ {short(n)}, s {s:g}" for s, g, n in settings]
    axes.set_yticks(range(len(settings)), names)
    axes.set(xlabel="error of λ̂ against the known λ, %")
    canvas.legend(figure, loc="outside upper center", ncols=4)
    return figure


def _setting(row: Row) -> tuple[float, float, float]:
    return row["step_constant"], row["gamma"], row["n_beta"]


def _size_of_error(row: Row) -> float:
    return abs(float(row["error"]))
