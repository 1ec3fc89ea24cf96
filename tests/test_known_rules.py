"""known_rules.py: each rule on made data, and the change of the data that turns its verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evidence
import known_rules
from evidence import DIFFERS, NOT_COMPARABLE, REFUTED, REPRODUCED, RULES, Answer, NotEnough
from tests.made_data import Made, Row, always

SOURCE = Path(__file__).resolve().parent.parent / "data" / "source_claims.csv"
CLAIMS = {c.id: c for c in evidence.read_claims(SOURCE)}


def judged(id: str, data: Made) -> Answer:
    assert RULES[id].judge.__module__ == known_rules.__name__
    return RULES[id].judge(data, CLAIMS[id])


@pytest.mark.parametrize("id", ["K12", "K13", "K14", "K20", "K22", "C01"])
def test_made_data_reproduce(id: str) -> None:
    assert judged(id, Made()).verdict == REPRODUCED


def coarse(row: Row) -> bool:
    return bool(row["gamma"] == 10.0 and row["n_beta"] == 1e3)


TURNED = [
    ("K12", "calibration_known.json", lambda r: r["name"] == "frozen_11_44", {"error": -0.06}),
    ("K13", "calibration_grid.csv", lambda r: not coarse(r), {"error": 0.08}),
    ("K13", "calibration_grid.csv", coarse, {"error": -0.2}),
    ("K13", "calibration_grid.csv", coarse, {"error": 0.03}),
    ("K14", "null.jsonl", lambda r: r["network"] == "null_11_33", {"share_of_known": 0.95}),
    ("K20", "memorising.csv", lambda r: r["p"] == 31, {"ratio_known": 0.94}),
    ("K22", "calibration_early.csv", lambda r: r["step_constant"] == 0.5, {"error": -0.4}),
    ("K22", "calibration_early.csv", always, {"error": 0.01}),
]


@pytest.mark.parametrize(("id", "file", "where", "change"), TURNED)
def test_a_changed_table_turns_the_verdict(
    id: str, file: str, where: Callable[[Row], bool], change: dict[str, Any]
) -> None:
    assert judged(id, Made().change(file, where, **change)).verdict == DIFFERS


def test_one_wrong_formula_refutes_a_theorem() -> None:
    data = Made().change("memorising.csv", lambda r: r["p"] == 31, formula_lazy=1.0)
    found = judged("C01", data)
    assert found.verdict == REFUTED
    assert found.ours == "equal on 10 of 11 networks"
    assert "p31_K93_s0 1 for 1441.5" in found.cause


def test_the_sloppy_model_is_none_of_the_eight() -> None:
    found = judged("K12", Made())
    assert found.on == "8 networks"
    assert found.value == pytest.approx(0.01)


def test_frozen_networks_are_left_out_of_the_early_setting() -> None:
    def frozen(row: Row) -> bool:
        return bool(row["network"].startswith("frozen"))

    data = Made().change("calibration_early.csv", frozen, error=-0.9)
    assert judged("K22", data).verdict == REPRODUCED
    with pytest.raises(NotEnough, match="no planted network"):
        judged("K22", data.keep("calibration_early.csv", frozen))


def test_an_unfinished_grid_is_not_enough() -> None:
    data = Made().keep("calibration_grid.csv", lambda r: r["scale"] != 2.0)
    with pytest.raises(NotEnough, match="256 of 384 runs"):
        judged("K13", data)


def test_null_networks_at_other_settings_are_not_comparable() -> None:
    data = Made()
    data.files["null.jsonl"] = [row | {"gamma": 10.0} for row in data.files["null.jsonl"]]
    found = judged("K14", data)
    assert found.verdict == NOT_COMPARABLE
    assert found.cause.startswith("Read at n_beta 10000; gamma 10; step_constant 0.2; the source's")


def test_a_missing_null_network_is_not_enough() -> None:
    data = Made()
    data.files["null.jsonl"] = data.files["null.jsonl"][:1]
    with pytest.raises(NotEnough, match="null_17_51"):
        judged("K14", data)
