"""canvas.py: one style, colours that every eye tells apart, files that come out the same."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import canvas

pytest.importorskip("matplotlib")


def lightness(colour: str) -> float:
    """CIE lightness 0 (black) to 100 (white) of an sRGB colour: what a grey print shows."""
    linear = []
    for k in (1, 3, 5):
        c = int(colour[k : k + 2], 16) / 255
        linear.append(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return float(116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y)


def test_marks_differ_in_colour_dashes_and_marker() -> None:
    for field in canvas.Mark._fields:
        assert len({str(getattr(mark, field)) for mark in canvas.MARKS}) == len(canvas.MARKS)


def test_every_colour_is_seen_on_white_paper() -> None:
    assert all(lightness(mark.colour) < 75 for mark in canvas.MARKS)


def test_a_size_keeps_its_mark_and_the_seventh_repeats() -> None:
    sizes = [(p, 3 * p) for p in (5, 7, 11, 13, 17, 19, 23)]
    marks = canvas.marks_of([*sizes, sizes[0]])
    assert list(marks) == sizes
    assert marks[sizes[0]] == marks[sizes[6]] == canvas.MARKS[0]


def test_ticks_are_round_and_in_digits() -> None:
    axes = canvas.panel(canvas.empty_figure())
    axes.set(xscale="log", xlim=(150.0, 6_000.0))
    canvas.plain_ticks(axes.xaxis, 150.0, 6_000.0)
    words = [text.get_text() for text in axes.get_xticklabels()]
    assert words == ["200", "500", "1,000", "2,000", "5,000"]
    assert axes.get_xticklabels(minor=True) == []


def test_a_saved_figure_is_the_same_bytes_again(tmp_path: Path) -> None:
    content = []
    for name in ("one.png", "two.png"):
        figure = canvas.empty_figure()
        axes = canvas.panel(figure)
        axes.plot([1, 2], [3, 4], label="line")
        canvas.level(axes, 3.5, "half way")
        canvas.legend(axes)
        canvas.save(figure, tmp_path / name)
        content.append((tmp_path / name).read_bytes())
    assert content[0] == content[1]
    assert content[0].startswith(b"\x89PNG")


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(canvas.NoMatplotlib, match=r"pip install -r requirements-extras\.txt"):
        canvas.empty_figure()
