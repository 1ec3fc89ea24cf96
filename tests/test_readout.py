"""readout.py: the words follow from the numbers, and a reading outside the bracket is flagged."""

from __future__ import annotations

from typing import Any

import pytest

import readout


def record(
    *,
    llc: float,
    error: float = 1.0,
    formula: float = 140.0,
    z: float | None = 0.0,
    law: float | None = 110.0,
    smooth: float = 108.0,
    settled: bool = True,
    **found: Any,
) -> dict[str, Any]:
    curved = {
        "rank": 240,
        "clean_cut": False,
        "bracket": [120.0, 133.0],
        "certified": False,
        "exact_lower": 240,
        "exact_primes": [7],
        "rank_bound": 266,
        "flat_share": 0.25,
        "resolution": 1e-3,
    }
    return {
        "reading": {"settled": settled, "llc": llc, "standard_error": error, "distance": 5.0},
        "curvature": curved | found,
        "predicted": {"expected_llc": law, "effective_dimension": smooth},
        "formulas": {"paper": formula},
        "network": {"weight_norm": 9.0},
        "z_against_law": z,
    }


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"llc": 98.0}, "λ̂ is 0.70 of the paper's formula; "),
        ({"llc": 98.0, "z": 4.0}, "it agrees with the exact law of the spectrum at w* (z = +4.0)"),
        ({"llc": 98.0, "z": -4.1}, "it departs from the exact law"),
        ({"llc": 125.0}, "the formula lies outside the bracket."),
        ({"llc": 125.0, "formula": 120.0}, "the formula lies inside the bracket."),
        (
            {"llc": 130.0, "certified": True, "exact_lower": 266, "bracket": [133.0, 133.0]},
            "the formula lies above the certified λ = 133.0",
        ),
        (
            {"llc": 140.0, "certified": True, "exact_lower": 280, "bracket": [140.0, 140.0]},
            "the formula lies at the certified λ = 140.0.",
        ),
        (
            {"llc": 125.0, "certified": True, "exact_lower": 266, "clean_cut": True},
            "the formula lies outside the bracket.",
        ),
        ({"llc": 98.0, "settled": False}, "the chains raise doubts, so λ̂ decides nothing; λ̂ is"),
        ({"llc": 98.0}, "λ̂ cannot be λ: it lies 22.0 below the bracket"),
    ],
)
def test_the_verdict_in_words(case: dict[str, Any], words: str) -> None:
    assert words in readout.verdict(record(**case))


def test_the_verdict_without_a_law_or_a_bracket_says_less() -> None:
    said = readout.verdict(record(llc=98.0, z=None, law=None, bracket=None))
    assert said == "λ̂ is 0.70 of the paper's formula."


@pytest.mark.parametrize("llc", [116.0, 120.0, 126.0, 133.0, 137.0])
def test_a_reading_within_four_standard_errors_of_the_bracket_is_possible(llc: float) -> None:
    assert readout.impossible(record(llc=llc)) is None


def test_below_the_bracket_the_resolution_is_named_where_the_law_is_below_too() -> None:
    flagged = readout.impossible(record(llc=115.9))
    assert flagged is not None and flagged["side"] == "below"
    assert flagged["standard_errors"] == pytest.approx(4.1)
    assert "25% of the directions are flatter than the resolution 0.001" in flagged["cause"]
    assert "the law alone reads 110.0" in flagged["cause"]
    assert "from w*" not in flagged["cause"]


def test_chains_that_left_are_named_where_the_reading_departs_from_the_law() -> None:
    flagged = readout.impossible(record(llc=90.0, z=-9.0))
    assert flagged is not None
    assert "the chains went 5.0 from w* (|w*| = 9.0)" in flagged["cause"]
    alone = readout.impossible(record(llc=90.0, z=-9.0, law=125.0))
    assert alone is not None and "resolution" not in alone["cause"]
    above_the_law = readout.impossible(record(llc=112.0, z=9.0))
    assert above_the_law is not None and "from w*" not in above_the_law["cause"]


def test_above_the_bracket_the_step_is_named_where_the_law_is_above_too() -> None:
    flagged = readout.impossible(record(llc=138.0, law=137.0, smooth=132.0))
    assert flagged is not None and flagged["side"] == "above"
    assert "the step inflates the reading (law 137.0 against 132.0)" in flagged["cause"]


def test_below_zero_the_cause_is_that_w_star_is_no_minimum() -> None:
    flagged = readout.impossible(record(llc=-90.0, z=-90.0))
    assert flagged is not None
    assert flagged["cause"].endswith("for w* is not a minimum: the chains found lower loss")


def test_a_cause_that_is_not_known_is_not_invented() -> None:
    for llc in (100.0, 150.0):
        flagged = readout.impossible(record(llc=llc, law=125.0))
        assert flagged is not None
        assert "for a reason the spectrum does not show" in flagged["cause"]


def test_without_a_bracket_nothing_is_impossible() -> None:
    assert readout.impossible(record(llc=1e9, bracket=None)) is None


@pytest.mark.parametrize(
    ("clean_cut", "exact_lower", "whose"),
    [
        (True, 240, "the teacher f(w*)"),
        (False, 266, "the teacher f(w*)"),
        (True, 266, "a solution of this rank near w*"),
    ],
)
def test_the_bracket_says_whose_it_is(clean_cut: bool, exact_lower: int, whose: str) -> None:
    found = record(llc=1.0, clean_cut=clean_cut, exact_lower=exact_lower)["curvature"]
    spectrum = {"h_max": 1.0, "h_median": 0.1, "h_min": 0.01, "gap": 1e9}
    lines = list(readout._curvature_lines(found | spectrum | {"route": "svd", "tolerance": 1e-9}))
    assert lines[-1].split(maxsplit=1)[1] == f"120.0 ≤ λ ≤ 133.0 for {whose}"


def test_the_exact_rank_is_a_certificate_only_where_the_bounds_meet() -> None:
    met = readout._exact(record(llc=1.0, exact_lower=266, certified=True)["curvature"])
    assert met.startswith("266, met by the bound") and "CERTIFICATE: λ = 133.0, m = 1" in met
    open_ = readout._exact(record(llc=1.0)["curvature"])
    assert open_.startswith("at least 240") and "at most 266" in open_
    assert "CERTIFICATE" not in open_
