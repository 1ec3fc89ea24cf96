"""The decision, on rows made by hand."""

from __future__ import annotations

from typing import Any

import pytest

import verdict


def row(p: int, K: int, ratio: float | None, **changes: Any) -> dict[str, Any]:
    """A network that reads `ratio` of the paper's formula, its rank meeting the bound."""
    paper, generic = 0.5 * K * (3 * p - 1), 0.5 * K * (3 * p - 2)
    return {
        "p": p,
        "K": K,
        "llc": None if ratio is None else ratio * paper,
        "standard_error": None if ratio is None else 0.01 * paper,
        "formula_paper": paper,
        "formula_paper_in_use": paper,
        "formula_generic": generic,
        "half_rank": generic,
        "bracket_low": generic,
        "bracket_high": generic,
    } | changes


SIZES = ((11, 33), (17, 51), (17, 68), (23, 69), (23, 92))


def judged(*ratios: float | None) -> verdict.Verdict:
    return verdict.verdict_of(
        [row(*size, ratio) for size, ratio in zip(SIZES, ratios, strict=True)]
    )


@pytest.mark.parametrize(
    ("ratios", "match"),
    [
        ((1.0, 1.0, 1.0, 1.0, 1.0), True),
        ((0.86, 1.14, 1.0, 0.9, 0.5), True),  # four of five sizes are 80 %
        ((0.86, 1.14, 1.0, 0.84, 0.5), False),  # three are not
        ((0.7, 0.7, 0.7, 0.7, 0.7), False),
        ((1.0, 1.0, 1.0, 1.0, None), True),
        ((1.0, 1.0, 1.0, None, None), False),  # a size without a reading does not match
        ((None,) * 5, False),
    ],
)
def test_a_match_needs_80_percent_of_the_sizes_within_15_percent(
    ratios: tuple[float | None, ...], match: bool
) -> None:
    assert judged(*ratios).match("formula_paper") is match


def test_other_numbers_would_decide_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two thresholds matter: rows that just miss match as soon as either is relaxed."""
    ratios = (1.0, 1.0, 1.0, 0.84, 0.84)
    assert not judged(*ratios).match("formula_paper")
    monkeypatch.setattr(verdict, "SHARE", 0.6)
    assert judged(*ratios).match("formula_paper")
    monkeypatch.setattr(verdict, "SHARE", 0.8)
    monkeypatch.setattr(verdict, "BAND", 0.17)
    assert judged(*ratios).match("formula_paper")


def test_a_size_reads_the_mean_of_its_networks() -> None:
    size = verdict.verdict_of([row(11, 33, r) for r in (0.7, 0.8, 0.9)]).sizes[0]
    assert size.ratios["formula_paper"] == pytest.approx(0.8, abs=1e-12)
    # The spread 0.1/√3 exceeds the sampler's 0.01/√3.
    assert size.errors["formula_paper"] == pytest.approx(0.1 / 3**0.5, abs=1e-12)
    assert (size.networks, size.measured) == (3, 3)


def test_the_samplers_error_counts_when_the_networks_agree() -> None:
    size = verdict.verdict_of([row(11, 33, 0.8) for _ in range(4)]).sizes[0]
    assert size.errors["formula_paper"] == pytest.approx(0.01 / 2, abs=1e-12)
    alone = verdict.verdict_of([row(11, 33, 0.8)]).sizes[0]
    assert alone.errors["formula_paper"] == pytest.approx(0.01, abs=1e-12)


def test_a_failed_network_is_counted_and_does_not_disturb_the_others() -> None:
    size = verdict.verdict_of([row(11, 33, 0.9), row(11, 33, None)]).sizes[0]
    assert (size.networks, size.measured) == (2, 1)
    assert size.matches("formula_paper")


def test_the_formulas_are_judged_apart() -> None:
    low = row(11, 33, 0.75, half_rank=0.75 * 528, bracket_low=0.75 * 528)
    found = verdict.verdict_of([low])
    assert not found.match("formula_paper")
    assert not found.match("formula_generic")
    assert found.match("half_rank")


@pytest.mark.parametrize(
    ("away", "possible"), [(-4.1, False), (-3.9, True), (0.0, True), (3.9, True), (4.1, False)]
)
def test_outside_the_bracket_by_4_standard_errors_is_impossible(
    away: float, possible: bool
) -> None:
    high = 520.0 if away > 0 else 511.5
    edge = {"llc": (520.0 if away > 0 else 511.5) + away, "standard_error": 1.0}
    found = row(11, 33, 1.0, bracket_low=511.5, bracket_high=high, **edge)
    assert verdict.is_possible(found) is possible
    assert verdict.verdict_of([found]).sizes[0].possible is possible


def test_the_text_says_yes_or_no_to_each_formula() -> None:
    told = verdict.text(judged(1.0, 0.7, 0.7, None, 0.7))
    assert "NO MATCH: λ̂ is within 15% of ½K(3p−1), the paper's at 20% of the sizes" in told
    assert "no reading" in told
    assert "1.000 ±0.010 *" in told
    assert "MATCH: " in verdict.text(judged(1.0, 1.0, 1.0, 1.0, 1.0))
    assert "NO MATCH" not in verdict.text(judged(1.0, 1.0, 1.0, 1.0, 1.0))


def test_nothing_to_judge_is_an_error() -> None:
    with pytest.raises(ValueError, match="--study verdict"):
        verdict.verdict_of([])
