"""study_figures.py: every point of a table is where it belongs; axes are named; files are small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import canvas
import study_figures
import theory
from tests.made_data import Made, always

pytest.importorskip("matplotlib")

LARGEST = 300_000  # bytes of a PNG: the figures of a clone stay below 4 MB
SPECTRA = {(11, 33): 10.0 ** -np.linspace(-1, 9, 1023), (17, 51): 10.0 ** -np.linspace(-1, 8, 2499)}


def all_figures(data: Made) -> dict[str, Any]:
    rows = data.rows
    return {
        "reading": study_figures.reading_figure(
            rows("llc.csv"), rows("too_wide.csv"), rows("memorising.csv")
        ),
        "response": study_figures.response_figure(
            SPECTRA, rows("sensitivity.csv"), {"one": 1e-4, "two": 0.19}
        ),
        "tolerance": study_figures.tolerance_figure(rows("rank_sweep.csv")),
        "sensitivity": study_figures.sensitivity_figure(
            rows("sensitivity.csv"), rows("llc.csv"), rows("grid_selection.csv")
        ),
        "settling": study_figures.settling_figure(rows("settling.csv")),
        "polish": study_figures.polish_figure(rows("polish.csv")),
        "trajectory": study_figures.trajectory_figure(rows("trajectory.csv")),
        "convergence": study_figures.convergence_figure(rows("convergence.csv")),
        "calibration": study_figures.calibration_figure(rows("calibration_grid.csv"), 0.05),
    }


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    return all_figures(Made())


def points(axes: Any) -> set[tuple[float, float]]:
    """Every point of every line, to 6 digits."""
    found = set()
    for line in axes.get_lines():
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
            found.add((float(f"{x:.6g}"), float(f"{y:.6g}")))
    return found


def six(x: float) -> float:
    return float(f"{x:.6g}")


# --- all of them ----------------------------------------------------------------------------


def test_every_axis_says_what_it_shows_and_every_figure_has_a_legend(drawn: dict[str, Any]) -> None:
    for name, figure in drawn.items():
        legends = list(figure.legends)
        for axes in figure.axes:
            assert axes.get_ylabel() or len(axes.get_yticklabels()) > 6, name
            assert axes.get_xlabel() or axes.get_xticklabels() or axes.get_shared_x_axes(), name
            legends += [axes.get_legend()] if axes.get_legend() else []
        assert legends, name


def test_files_are_small_and_the_same_again(drawn: dict[str, Any], tmp_path: Path) -> None:
    for name in ("reading", "calibration"):
        again = all_figures(Made())[name]
        one, two = tmp_path / f"{name}1.png", tmp_path / f"{name}2.png"
        canvas.save(drawn[name], one)
        canvas.save(again, two)
        assert one.read_bytes() == two.read_bytes(), name
        assert len(one.read_bytes()) < LARGEST


# --- one by one -----------------------------------------------------------------------------


def test_a_network_is_one_point_against_its_formula(drawn: dict[str, Any]) -> None:
    left, right = drawn["reading"].axes
    seen, data = points(left), Made()
    for file, column in (
        ("llc.csv", "formula_paper"),
        ("too_wide.csv", "formula_paper"),
        ("memorising.csv", "known_llc"),
    ):
        for r in data.rows(file):
            assert (six(r[column]), six(r["llc"])) in seen
    ratios = {y for _, y in points(right)}
    for r in data.rows("llc.csv"):
        assert {six(r[c] / r["formula_paper"]) for c in ("llc", "law", "half_rank")} <= ratios


def test_the_bracket_is_a_bar_from_end_to_end() -> None:
    data = Made().change("llc.csv", always, bracket_high=lambda r: 1.1 * r["bracket_low"])
    axes = study_figures.reading_figure(data.rows("llc.csv")).axes[0]
    seen = points(axes)
    for r in data.rows("llc.csv"):
        assert (six(r["formula_paper"]), six(r["bracket_low"])) in seen
        assert (six(r["formula_paper"]), six(r["bracket_high"])) in seen


def test_what_has_not_settled_is_a_cross_and_wide_ones_are_hollow() -> None:
    data = Made().change("llc.csv", lambda r: r["network"] == "p31_K93_s2", settled=False)
    axes = study_figures.reading_figure(data.rows("llc.csv"), data.rows("too_wide.csv")).axes[0]
    words = axes.get_legend_handles_labels()[1]
    assert "grokked, not settled" in words and "too wide for the formula" in words
    crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
    assert sum(len(line.get_xdata()) for line in crosses) == 1
    hollow = [line for line in axes.get_lines() if line.get_marker() == study_figures.WIDE.marker]
    assert {line.get_markerfacecolor() for line in hollow} == {"none"}


def test_a_response_curve_is_the_effective_dimension_over_half_the_rank(
    drawn: dict[str, Any],
) -> None:
    (axes,) = drawn["response"].axes
    curve = next(line for line in axes.get_lines() if line.get_label() == "p = 11, K = 33")
    c, y = curve.get_xdata()[60], curve.get_ydata()[60]
    expected = theory.effective_dimension(SPECTRA[(11, 33)], c) / (1023 / 2)
    assert y == pytest.approx(expected, rel=1e-12)  # the same sum: rounding alone
    words = [text.get_text() for text in axes.texts]
    assert words == ["one, c = 1e-4", "two, c = 0.19"]


def test_every_tolerance_is_a_point_of_its_route(drawn: dict[str, Any]) -> None:
    left, right = drawn["tolerance"].axes
    for r in Made().rows("rank_sweep.csv"):
        if r["weights"] == "grokked":
            assert (six(r["tolerance"]), six(r["ratio_generic"])) in points(left)
            assert (six(r["tolerance"]), six(100 * r["flat_share"])) in points(right)
    assert left.xaxis_inverted() and left.get_xscale() == "log"


def test_every_change_and_the_frozen_setting_have_their_column(drawn: dict[str, Any]) -> None:
    left, right = drawn["sensitivity"].axes
    names = [text.get_text() for text in left.get_xticklabels()]
    assert names == ["none", "nβ=1000", "nβ=100000", "γ=0.1", "γ=10", "s=0.05", "s=0.1", "s=0.4"]
    y = {v for _, v in points(left)}
    data = Made()
    assert {six(r["ratio_paper"]) for r in data.rows("sensitivity.csv")} <= y
    assert {six(r["ratio_paper"]) for r in data.rows("llc.csv") if r["seed"] == 0} <= y
    for r in data.rows("grid_selection.csv"):
        assert (six(r["resolution"]), six(r["ratio_paper"])) in points(right)


def test_settling_and_polish_name_what_moved(drawn: dict[str, Any]) -> None:
    (settling,), (polish,) = drawn["settling"].axes, drawn["polish"].axes
    words = settling.get_legend_handles_labels()[1]
    assert len(words) == 11 and sum("not settled" in word for word in words) == 2
    data = Made()
    y = {v for _, v in points(polish)}
    assert {six(r["llc"] / r["formula_paper"]) for r in data.rows("polish.csv")} <= y


def test_negative_readings_do_not_stretch_the_axis() -> None:
    data = Made().change("trajectory.csv", lambda r: r["training_steps"] == 0, llc=-7e5)
    bottom = study_figures.trajectory_figure(data.rows("trajectory.csv")).axes[2]
    assert bottom.get_ylim()[0] == 0.0
    said = [text.get_text() for text in bottom.texts]
    negative = sum(r["llc"] < 0 for r in data.rows("trajectory.csv"))
    assert any(f"negative at {negative} of " in words for words in said)


def test_the_trajectory_is_drawn_in_order_of_steps() -> None:
    rows = Made().rows("trajectory.csv")[::-1]
    top, middle, bottom = study_figures.trajectory_figure(rows).axes
    for axes in (top, middle, bottom):
        x = axes.get_lines()[0].get_xdata()
        assert (np.diff(x) > 0).all()
    assert (six(2_400), six(100 * 0.53)) in points(top)
    assert {"½ rank J", "reading λ̂ ± 2 standard errors"} <= set(
        bottom.get_legend_handles_labels()[1]
    )


def test_convergence_has_a_column_per_size_and_names_each_thing_once(
    drawn: dict[str, Any],
) -> None:
    axes = drawn["convergence"].axes
    assert [a.get_title() for a in axes if a.get_title()] == ["p = 11, K = 33", "p = 17, K = 51"]
    words = axes[1].get_legend_handles_labels()[1]
    assert len(words) == len(set(words)) == 3
    r = Made().rows("convergence.csv")[-1]
    assert (six(r["training_steps"]), six(r["llc"])) in points(axes[2])
    assert (six(r["training_steps"]), six(r["rank"] / r["rank_bound"])) in points(axes[3])


def test_the_worst_run_of_every_setting_is_marked(drawn: dict[str, Any]) -> None:
    (axes,) = drawn["calibration"].axes
    worst = next(line for line in axes.get_lines() if line.get_marker() == "|")
    assert len(worst.get_xdata()) == 16
    assert sorted(set(np.round(worst.get_xdata(), 6))) == [4.2, 9.5]
    assert axes.get_yticklabels()[0].get_text() == "c = 3.3e-5: γ 1, nβ 3e4, s 0.2"


SHORT: list[tuple[float, str]] = [(1e4, "1e4"), (3e-5, "3e-5"), (0.19, "0.19"), (3.3e-4, "3.3e-4")]


@pytest.mark.parametrize(("x", "words"), SHORT)
def test_settings_are_written_without_padding(x: float, words: str) -> None:
    assert study_figures.short(x) == words


def test_a_wrong_axis_would_be_seen() -> None:
    """With λ̂ against ½K(3p−2) the points of the first figure are not where they belong."""
    data = Made()
    wrong = [r | {"formula_paper": r["formula_generic"]} for r in data.rows("llc.csv")]
    seen = points(study_figures.reading_figure(wrong).axes[0])
    assert not any((six(r["formula_paper"]), six(r["llc"])) in seen for r in data.rows("llc.csv"))
