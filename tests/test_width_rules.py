"""width_rules.py: each rule on made data, and the change of the data that turns its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evidence
import width_rules
from evidence import ANSWERED, DIFFERS, REFUTED, REPRODUCED, RULES, Answer, NotEnough
from tests.made_data import Made, Row
from width_networks import PAIRS

SOURCE = Path(__file__).resolve().parent.parent / "data" / "source_claims.csv"
CLAIMS = {c.id: c for c in evidence.read_claims(SOURCE)}
MINE = [f"E{k:02d}" for k in (1, 2, 3, 4, 5, 6, 7, 8, 9, 19)] + ["R06"]


def judged(id: str, data: Made) -> Answer:
    assert RULES[id].judge.__module__ == width_rules.__name__
    return RULES[id].judge(data, CLAIMS[id])


@pytest.mark.parametrize("id", MINE)
def test_made_data_reproduce(id: str) -> None:
    assert judged(id, Made()).verdict == (ANSWERED if id == "E19" else REPRODUCED)


def wide(condition: str) -> Callable[[Row], bool]:
    return lambda r: bool(r["condition"] == condition and r["width"] == 1024)


def of(condition: str) -> Callable[[Row], bool]:
    return lambda r: bool(r["condition"] == condition)


def times(column: str, factor: float) -> dict[str, Any]:
    return {column: lambda r: factor * r[column]}


def steeper(column: str, power: float) -> dict[str, Any]:
    return {column: lambda r: r[column] * (r["width"] / 64) ** power}


STUDY, MATCHED, HESSIAN = "widths.csv", "width_matched.csv", "width_hessian.csv"
TURNED = [
    ("E01", STUDY, wide("mup"), times("dimension_1", 1.05), DIFFERS),
    ("E01", STUDY, wide("mup"), times("dimension_1", 3.0), REFUTED),
    ("E01", STUDY, of("mup"), {"dimension_100": lambda r: 12.0 * r["width"]}, REFUTED),
    ("E02", STUDY, of("ntk"), times("dimension_1", 1.2), DIFFERS),
    ("E02", STUDY, of("ntk"), steeper("dimension_1", 0.1), REFUTED),
    ("E02", STUDY, of("ntk"), steeper("dimension_1", -0.1), DIFFERS),
    ("E03", STUDY, of("mup"), times("dimension_1", 1.2), DIFFERS),
    ("E03", STUDY, of("mup"), steeper("dimension_1", 0.3), REFUTED),
    ("E04", STUDY, wide("ntk"), {"rank": 10241}, REFUTED),
    ("E04", STUDY, of("ntk"), times("dimension_1", 5.0), DIFFERS),
    ("E04", STUDY, lambda r: r["width"] == 1024, {"dimension_1": 5200.0}, REFUTED),
    ("E05", STUDY, wide("mup"), times("drift_W2", 3.0), DIFFERS),
    ("E05", STUDY, wide("mup"), times("drift_W2", 300.0), REFUTED),
    ("E05", STUDY, wide("ntk"), times("drift_all", 2.0), REFUTED),
    ("E06", STUDY, of("mup"), times("linearisation_error", 1.2), DIFFERS),
    ("E06", STUDY, of("mup"), times("linearisation_error", 0.1), REFUTED),
    ("E06", STUDY, of("ntk"), steeper("linearisation_error", 0.3), REFUTED),
    ("E07", STUDY, of("ntk"), times("h_max", 1.2), DIFFERS),
    ("E07", STUDY, of("mup"), steeper("h_max", -2.0), REFUTED),
    ("E08", STUDY, of("ntk"), times("trace", 1.2), DIFFERS),
    ("E08", STUDY, of("mup"), steeper("stable_rank", 1.0), REFUTED),
    ("E09", MATCHED, of("mup"), times("dimension_1", 0.9), DIFFERS),
    ("E09", MATCHED, wide("mup"), times("dimension_1", 1.3), REFUTED),
    ("R06", HESSIAN, of("ntk"), {"plain_error": 1.2}, DIFFERS),
    ("R06", HESSIAN, of("ntk"), {"error_formula": 0.04, "plain_error": 0.04}, REFUTED),
    ("R06", HESSIAN, of("ntk"), {"error_formula": 1.2, "plain_error": 1.2}, DIFFERS),
]


@pytest.mark.parametrize(("id", "file", "where", "change", "verdict"), TURNED)
def test_a_changed_table_turns_the_verdict(
    id: str, file: str, where: Callable[[Row], bool], change: dict[str, Any], verdict: str
) -> None:
    assert judged(id, Made().change(file, where, **change)).verdict == verdict


def test_the_common_base_rate_is_told_beside_the_source_like_one() -> None:
    cause = judged("E03", Made()).cause
    assert "At the common base rate 0.001 it rises: " in cause
    assert "At the common base rate 0.01 it falls: " in cause

    def common(r: Row) -> bool:
        return bool(r["condition"] == "mup" and r["base_rate"] == PAIRS["common"]["mup"])

    fallen = Made().change(STUDY, common, **steeper("dimension_1", -0.5))
    assert "At the common base rate 0.001 it falls: " in judged("E03", fallen).cause


def test_ratios_pair_seed_with_seed() -> None:
    found = width_rules.ratios(Made(), "dimension_1")
    rows = {(r["network"]): r["dimension_1"] for r in Made().rows(STUDY)}
    by_hand = [rows[f"mup_w256_r0.02_s{s}"] / rows[f"ntk_w256_r0.001_s{s}"] for s in (0, 1, 2)]
    assert found[256] == pytest.approx(by_hand, rel=1e-15)


def test_a_mean_is_geometric_and_its_error_is_of_the_logarithm() -> None:
    groups = {64: [1.0, 4.0], 256: [9.0, 9.0], 1024: [3.0, 3.0]}
    s = math.sqrt(0.5 * math.log(4.0) ** 2 / 3)  # three degrees of freedom
    assert width_rules.log_spread(groups) == pytest.approx(s)
    found = width_rules.at(groups, 64)
    assert found == pytest.approx((2.0, 2.0 * s / math.sqrt(2)))


def test_the_exponent_of_a_power_law_is_found() -> None:
    groups = {w: [3.0 * w**-0.4, 3.0 * w**-0.4] for w in (64, 256, 1024)}
    assert width_rules.exponent(groups) == pytest.approx((-0.4, 0.0), abs=1e-7)


@pytest.mark.parametrize(
    ("id", "file", "where", "reason"),
    [
        (
            "E01",
            STUDY,
            lambda r: r["width"] < 1024,
            "no value of dimension_1 at source-like rates at width 1024",
        ),
        ("E04", STUDY, lambda r: r["width"] < 1024, "no whole spectrum at width 1024"),
        ("E02", STUDY, lambda r: r["seed"] == 0, "the spread between seeds is unknown"),
        ("R06", HESSIAN, lambda r: r["kappa"] == 10.0, "no row at κ = 1"),
    ],
)
def test_too_few_rows_leave_a_claim_open(
    id: str, file: str, where: Callable[[Row], bool], reason: str
) -> None:
    with pytest.raises(NotEnough, match=reason):
        judged(id, Made().keep(file, where))
