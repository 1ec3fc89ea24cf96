"""spectrum_rules.py: each rule on made data, and the change of the data that turns its verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evidence
import spectrum_rules
from evidence import DIFFERS, NOT_COMPARABLE, REFUTED, REPRODUCED, RULES, Answer, NotEnough
from tests.made_data import Made, Row, always

SOURCE = Path(__file__).resolve().parent.parent / "data" / "source_claims.csv"
CLAIMS = {c.id: c for c in evidence.read_claims(SOURCE)}
Where = Callable[[Row], bool]


def judged(id: str, data: Made) -> Answer:
    assert RULES[id].judge.__module__ == spectrum_rules.__name__
    return RULES[id].judge(data, CLAIMS[id])


def near(tolerance: float) -> Where:
    return lambda r: abs(r["tolerance"] / tolerance - 1.0) < 1e-3


@pytest.mark.parametrize(
    "id",
    ["K04", "K05", "K06", "K07", "K08", "K09", "K10", "K18", "K26", "K28", "R03", "R04", "S07"],
)
def test_made_data_reproduce(id: str) -> None:
    assert judged(id, Made()).verdict == REPRODUCED


def test_the_smooth_model_of_one_size_is_reproduced() -> None:
    share = {"smooth_model": lambda r: (0.75 + 0.01 * r["seed"]) * 0.5 * r["rank"]}
    found = judged("K11", Made().change("rank_sweep.csv", always, **share))
    assert found.verdict == REPRODUCED
    assert found.value == pytest.approx(0.76)


def is_gram(row: Row) -> bool:
    return bool(row["route"] == "gram")


def late(row: Row) -> bool:
    return bool(row["training_steps"] > 10_000)


TURNED = [
    ("K04", "networks.csv", lambda r: r["p"] == 11, {"rank": 1000}, DIFFERS),
    ("K05", "rank_sweep.csv", is_gram, {"rank": lambda r: r["generic_rank"] - 40}, DIFFERS),
    ("K06", "networks.csv", always, {"gap": 40.0}, DIFFERS),
    ("K07", "rank_sweep.csv", is_gram, {"error_against_svd": 1e-6}, DIFFERS),
    ("K07", "rank_sweep.csv", is_gram, {"error_against_svd": 1e-9}, DIFFERS),
    ("K08", "rank_sweep.csv", lambda r: r["p"] == 31, {"flat_share": 0.5}, DIFFERS),
    ("K09", "rank_sweep.csv", lambda r: r["K"] == 51, {"flat_share": 0.5}, DIFFERS),
    ("K09", "rank_sweep.csv", lambda r: r["weights"] == "random", {"flat_share": 0.1}, DIFFERS),
    ("K10", "rank_sweep.csv", near(1e-4), {"smooth_model": 1.0}, DIFFERS),
    ("K11", "rank_sweep.csv", always, {"smooth_model": lambda r: 0.25 * r["rank"]}, DIFFERS),
    ("K18", "equations.json", always, {"error": 2e-9}, DIFFERS),
    ("K18", "equations.json", always, {"ok": False}, DIFFERS),
    ("K26", "networks.csv", lambda r: r["p"] == 31, {"polish_moved": 0.036}, DIFFERS),
    ("K28", "networks.csv", lambda r: r["p"] == 31, {"K_eff": 90}, DIFFERS),
    ("R03", "fourier.csv", lambda r: r["K"] == 30, {"bracket_high": 500.0}, REFUTED),
    ("R03", "fourier.csv", lambda r: r["p"] == 13, {"bracket_high": 2000.0}, DIFFERS),
    ("R04", "convergence.csv", late, {"formula_paper_in_use": 1.0}, DIFFERS),
    ("R04", "convergence.csv", late, {"rank": lambda r: r["K"] * (3 * r["p"] - 2)}, REFUTED),
]


@pytest.mark.parametrize(("id", "file", "where", "change", "verdict"), TURNED)
def test_a_changed_table_turns_the_verdict(
    id: str, file: str, where: Where, change: dict[str, Any], verdict: str
) -> None:
    assert judged(id, Made().change(file, where, **change)).verdict == verdict


def test_wide_networks_do_not_enter_claims_about_the_verdict() -> None:
    data = Made().change("networks.csv", lambda r: r["study"] == "too-wide", rank=1, K_eff=1)
    assert judged("K04", data).verdict == judged("K28", data).verdict == REPRODUCED
    with pytest.raises(NotEnough, match="no network of the verdict"):
        judged("K28", data.keep("networks.csv", lambda r: r["study"] != "verdict"))


def test_a_gram_rank_is_not_compared_in_whole_numbers() -> None:
    data = Made().change("networks.csv", lambda r: r["p"] == 31, route="gram", rank=8460)
    assert judged("K04", data).on.startswith("15 networks")


def test_a_fallen_rank_is_explained_by_the_neurons_out_of_use() -> None:
    fallen = {"rank": 1000, "K_eff": 31, "gap": 50.0}
    data = Made().change("networks.csv", lambda r: r["p"] == 11, **fallen)
    cause = judged("K04", data).cause
    assert "meets K(3p−2) on 18 of 18" in cause
    assert "Of the 3 networks below it 3 have neurons out of use, gap 5.0e+01" in cause


def test_wall_times_are_never_comparable() -> None:
    found = judged("K27", Made())
    assert found.verdict == NOT_COMPARABLE
    assert found.ours.startswith("p = 11: 7.0 s; p = 17: 7.0 s")
    assert "4-chain SGLD step over its floor, p31: 1.40" in found.cause
    data = Made()
    del data.files["bench.json"]
    assert judged("K27", data).cause == "Another machine than the source's."


@pytest.mark.parametrize(
    ("id", "file", "where"),
    [
        ("K05", "rank_sweep.csv", lambda r: r["p"] == 11),
        ("K07", "rank_sweep.csv", lambda r: r["route"] == "svd"),
        ("K09", "rank_sweep.csv", lambda r: r["weights"] == "grokked"),
        ("K11", "rank_sweep.csv", lambda r: r["p"] == 11),
        ("R03", "fourier.csv", lambda r: r["p"] != 11),
        ("R04", "convergence.csv", lambda r: r["training_steps"] < 10_000),
        ("K04", "networks.csv", lambda r: r["study"] == "too-wide"),
    ],
)
def test_half_a_table_is_not_enough(id: str, file: str, where: Where) -> None:
    with pytest.raises(NotEnough):
        judged(id, Made().keep(file, where))


def test_a_wrong_quarter_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bracket that starts at r/4 the shares leave 0 to ¼."""
    real = spectrum_rules.theory.bracket

    def wrong(rank: int, D: int) -> Any:
        return real(rank, D)._replace(lower=0.25 * rank)

    monkeypatch.setattr(spectrum_rules.theory, "bracket", wrong)
    assert judged("S07", Made()).verdict == REFUTED
