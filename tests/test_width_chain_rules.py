"""width_chain_rules.py: each rule on made data, and the change that turns its verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evidence
import width_chain_rules
from evidence import ANSWERED, DIFFERS, REFUTED, REPRODUCED, RULES, Answer, NotEnough
from tests.made_data import Made, Row, always

SOURCE = Path(__file__).resolve().parent.parent / "data" / "source_claims.csv"
CLAIMS = {c.id: c for c in evidence.read_claims(SOURCE)}
QUESTIONS = ["E17", "E18", "E20"]
STATEMENTS = [f"E{k}" for k in range(10, 17)]
CHAINS, LINEAR, POLISH = "width_chains.csv", "width_linear.csv", "width_polish.csv"


def judged(id: str, data: Made) -> Answer:
    assert RULES[id].judge.__module__ == width_chain_rules.__name__
    return RULES[id].judge(data, CLAIMS[id])


@pytest.mark.parametrize("id", [*STATEMENTS, *QUESTIONS])
def test_made_data_reproduce(id: str) -> None:
    assert judged(id, Made()).verdict == (ANSWERED if id in QUESTIONS else REPRODUCED)


def mup_wide(row: Row) -> bool:
    return bool(row["condition"] == "mup" and row["width"] == 1024 and row["rule"] == "plain")


def at_gamma(row: Row) -> bool:
    return mup_wide(row) and bool(row["aligned"] == "gamma")


def small_step(row: Row) -> bool:
    return bool(row["step_constant"] < 0.01)


def inherited(row: Row) -> bool:
    return bool(row["rule"] == "inherited")


def times(column: str, factor: float) -> dict[str, Any]:
    return {column: lambda r: factor * r[column]}


TURNED = [
    ("E10", CHAINS, at_gamma, times("llc", 1.5), DIFFERS),
    ("E10", CHAINS, at_gamma, times("llc", 0.05), REFUTED),
    ("E11", CHAINS, mup_wide, times("llc", 1.05), REFUTED),
    ("E11", "widths.csv", lambda r: r["width"] == 1024, times("dimension_10", 1.1), DIFFERS),
    ("E12", LINEAR, always, times("kappa_rule", 1.05), DIFFERS),
    ("E12", LINEAR, always, times("law_fraction", 1.05), REFUTED),
    ("E13", CHAINS, mup_wide, times("relaxation", 2.0), DIFFERS),
    ("E14", CHAINS, inherited, {"spread_W2": 0.2}, DIFFERS),
    ("E14", CHAINS, inherited, {"spread_W2": 0.6, "spread_law_W2": 0.6}, DIFFERS),
    ("E15", CHAINS, small_step, {"mala": 0.8}, DIFFERS),
    ("E15", CHAINS, mup_wide, {"mala": 0.6}, DIFFERS),
    ("E15", CHAINS, small_step, {"mala": 0.1}, REFUTED),
    ("E15", CHAINS, small_step, times("llc", 1.1), REFUTED),
    ("E16", POLISH, always, times("dimension_1", 1.03), DIFFERS),
    ("E16", POLISH, always, times("dimension_1", 0.95), DIFFERS),
]


@pytest.mark.parametrize(("id", "file", "where", "change", "verdict"), TURNED)
def test_a_changed_table_turns_the_verdict(
    id: str, file: str, where: Callable[[Row], bool], change: dict[str, Any], verdict: str
) -> None:
    assert judged(id, Made().change(file, where, **change)).verdict == verdict


def test_answers_to_open_questions_say_what_was_found() -> None:
    assert judged("E17", Made()).ours.startswith("linearisation error 1 to 0.001 as α goes 1 to")
    assert "BIF at κ = 1 … 1000 against κ = 10: 0.80" in judged("E18", Made()).ours
    data = Made().change("peers.csv", lambda r: r["case"] == "p11", z_difference=5.0)
    assert "agree within errors" in judged("E20", Made()).ours
    assert "differ on 1 within errors" in judged("E20", data).ours


def test_a_missing_rank_is_not_called_full() -> None:
    assert "does at every α" in judged("E17", Made()).cause
    less = Made().change("width_lazy.csv", lambda r: r["alpha"] == 1.0, rank=10_000)
    assert "does at every α" not in judged("E17", less).cause


def test_readings_are_told_over_their_law() -> None:
    data = Made().change(CHAINS, mup_wide, **times("llc", 1.5))
    assert "µP plain κ = 1: 1.00 to 1.50 (3)" in judged("E11", data).cause
    assert "µP plain κ = 1: 1.00 (3)" in judged("E11", Made()).cause


@pytest.mark.parametrize(
    ("id", "where", "reason"),
    [
        ("E10", lambda r: r["aligned"] == "kappa", "has no row with"),
        ("E11", lambda r: r["width"] < 1024, "has no row with"),
        ("E15", lambda r: not small_step(r), "no step 64 times smaller for NTK"),
    ],
)
def test_too_few_rows_leave_a_claim_open(
    id: str, where: Callable[[Row], bool], reason: str
) -> None:
    with pytest.raises(NotEnough, match=reason):
        judged(id, Made().keep(CHAINS, where))
