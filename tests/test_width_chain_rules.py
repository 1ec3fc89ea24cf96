"""width_chain_rules.py: each rule on made data, and the change that turns its verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evidence
import width_chain_rules
from chains import integrated_time
from evidence import (
    ANSWERED,
    DIFFERS,
    NOT_COMPARABLE,
    REFUTED,
    REPRODUCED,
    RULES,
    Answer,
    NotEnough,
)
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
    ("E13", CHAINS, mup_wide, times("relaxation", 2.0), DIFFERS),
    ("E13", CHAINS, always, times("relaxation", 0.9), DIFFERS),
    ("E14", CHAINS, inherited, {"spread_W2": 0.2}, DIFFERS),
    ("E14", CHAINS, inherited, {"spread_W2": 0.6, "spread_law_W2": 0.6}, DIFFERS),
    ("E15", CHAINS, small_step, {"mala": 0.8}, DIFFERS),
    ("E15", CHAINS, mup_wide, {"mala": 0.6}, DIFFERS),
    ("E15", CHAINS, small_step, times("standard_error", 10.0), DIFFERS),
    ("E15", CHAINS, small_step, {"mala": 0.1}, REFUTED),
    ("E15", CHAINS, small_step, times("llc", 1.1), REFUTED),
    ("E16", POLISH, always, times("dimension_1", 1.03), DIFFERS),
    ("E16", POLISH, always, times("dimension_1", 0.95), DIFFERS),
    ("E16", POLISH, always, {"loss_after": 1e-6}, NOT_COMPARABLE),
    ("E11", CHAINS, mup_wide, times("law", 1.04), DIFFERS),
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
    assert "; all agree within errors" in judged("E20", Made()).ours
    assert "; 1 of 2 do not agree within errors" in judged("E20", data).ours


def test_a_polish_that_stalls_decides_nothing() -> None:
    """A network whose loss did not fall far enough is told, not judged."""

    def ntk(row: Row) -> bool:
        return bool(row["condition"] == "ntk")

    stalled = Made().change(POLISH, ntk, loss_after=1e-6, dimension_1=20.0)
    assert judged("E16", stalled).verdict == REPRODUCED
    assert "loss over 133" in judged("E16", stalled).cause


def test_relaxation_is_measured_against_what_a_short_run_shows() -> None:
    """An AR(1) process of n = 8τ: the mean of the estimator over many runs, within 3 errors."""
    tau, n, rng = 20.0, 160, np.random.default_rng(0)
    rho = 1.0 - 1.0 / tau
    seen = []
    for _ in range(40):
        x = np.empty((64, 4, n))
        at = rng.standard_normal((64, 4))
        for t in range(n):
            at = rho * at + (1.0 - rho**2) ** 0.5 * rng.standard_normal((64, 4))
            x[..., t] = at
        seen.append(0.5 * (integrated_time(x.reshape(-1, n)) + 1.0))
    row = {"relaxation": float(np.mean(seen)), "relaxation_law": tau, "chains": 4}
    found = width_chain_rules._relaxation(row | {"steps": n + 10, "burn_in": 10})
    error = np.std(seen, ddof=1) / np.sqrt(len(seen)) / tau
    # the share shown is that of the whole sum of lags; the window and the mean take 2 % more
    assert abs(found.value - 1.0) <= 3.0 * error + 0.02
    assert found.error > np.std(seen, ddof=1) / tau  # the formula bounds one run's error
    assert abs(row["relaxation"] / tau - 1.0) > 0.08  # uncorrected it is seen to be wrong


def test_a_missing_rank_is_not_called_full() -> None:
    assert "does at every α" in judged("E17", Made()).cause
    less = Made().change("width_lazy.csv", lambda r: r["alpha"] == 1.0, rank=10_000)
    assert "does at every α" not in judged("E17", less).cause


def test_a_dead_chain_is_named_with_its_reason_and_is_in_no_ratio() -> None:
    def ten(r: Row) -> bool:
        return bool(r["condition"] == "ntk" and r["width"] == 1024 and r["kappa"] == 10.0)

    reason = "DeadChain: chain 0 is not finite at step 7. Lower the step"
    data = Made().change(CHAINS, ten, llc=None, standard_error=None, error=reason)
    cause = judged("E11", data).cause
    assert "No reading: NTK 1024 plain κ = 10, s = 0.2: DeadChain: chain 0 is not finite" in cause
    assert "NTK plain κ = 10: 1.00 (2)" in cause


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
