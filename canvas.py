"""The one style of every figure: paper, colours, marks, and how a figure becomes a file.

matplotlib is optional (requirements-extras.txt): it is imported where it draws, and its absence is
an error that says what to install. Colours are Okabe and Ito's, told apart by every kind of eye;
marks and line styles tell the same in print.

Symbols: a size is (p, K); networks of one size share its colour and its mark.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import records
from records import PathLike

COLUMN, PAGE = 6.3, 9.0  # inches: a text column, and two panels side by side
HEIGHT, DPI = 4.2, 150
LIGHT, GREY, DARK = "0.92", "0.55", "0.25"  # of bands, of what is compared with, of words


class Mark(NamedTuple):
    """How one thing is told from the others, in colour and without it."""

    colour: str
    dashes: Any
    marker: str


MARKS = (  # Okabe and Ito 2008; dark to light, so that grey prints differ too
    Mark("#0072B2", "solid", "o"),
    Mark("#D55E00", (0, (6, 2)), "s"),
    Mark("#009E73", (0, (1, 1)), "^"),
    Mark("#CC79A7", (0, (6, 2, 1, 2)), "D"),
    Mark("#E69F00", (0, (3, 1)), "v"),
    Mark("#000000", (0, (8, 1, 1, 1, 1, 1)), "P"),
)


class NoMatplotlib(RuntimeError):
    """The optional matplotlib is not installed."""


def empty_figure(width: float = COLUMN, height: float = HEIGHT, dpi: int = DPI) -> Any:
    """A figure of its own, without pyplot's global state. Raises NoMatplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoMatplotlib(
            "matplotlib is not installed: run `make figures`, or "
            "`pip install -r requirements-extras.txt`"
        ) from error
    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panel(figure: Any, rows: int = 1, columns: int = 1, index: int = 1, **options: Any) -> Any:
    """Axes in the house style: no box, small words."""
    axes = figure.add_subplot(rows, columns, index, **options)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_size(9)
    axes.yaxis.label.set_size(9)
    return axes


def legend(target: Any, **options: Any) -> None:
    """The legend of a figure or of axes, without a frame."""
    target.legend(**{"frameon": False, "fontsize": 8} | options)


def marks_of(sizes: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Mark]:
    """A mark for each of the sizes, in their order; from the seventh on they repeat."""
    distinct = list(dict.fromkeys(sizes))
    return {size: MARKS[i % len(MARKS)] for i, size in enumerate(distinct)}


def level(axes: Any, y: float, words: str, x: float = 0.99) -> None:
    """A thin horizontal line at y with its name above it, near the right end."""
    axes.axhline(y, color=GREY, linewidth=0.8, zorder=0)
    at = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    axes.annotate(words, (x, y), (0, 3), ha="right", color=DARK, fontsize=8, **at)


def plain_ticks(axis: Any, low: float, high: float) -> None:
    """1, 2 and 5 times the powers of ten between low and high, in digits, on a log axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [k * 10.0**e for e in powers for k in (1, 2, 5) if low <= k * 10.0**e <= high]
    axis.set_ticks(ticks, [f"{tick:,.6g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def save(figure: Any, path: PathLike) -> None:
    """Write a PNG, atomically; the same figure gives the same bytes. Raises RecordError."""
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    records.write_bytes(path, content.getvalue())
