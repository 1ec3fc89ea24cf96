"""claims.py: every claim answered or open, both documents, --check."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import claims
from evidence import AT_SOURCE, COMMANDS, OPEN, RULES, VERDICTS
from tests import made_data

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
Capture = pytest.CaptureFixture[str]


def entries_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {e["id"]: e for e in claims.answers(folder)}


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A data folder with the claims and nothing else."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(DATA / claims.SOURCE_CLAIMS, folder)
    return folder


@pytest.fixture
def full(empty: Path) -> Path:
    """A data folder with every file."""
    return made_data.write(empty)


def test_every_claim_of_a_finished_study_has_a_rule_that_says_how() -> None:
    ruled = set(RULES)
    assert {i for i in entries_of(DATA) if i[0] in "KCE"} <= ruled
    assert {"R03", "R04", "R05", "R06", "S07"} <= ruled
    for rule in RULES.values():
        assert rule.judge.__name__.startswith(rule.id.lower() + "_")
        words = (rule.judge.__doc__ or "").lower()
        assert "reproduced" in words or "answered" in words or rule.id == "K27"


def test_without_data_every_claim_is_open_and_names_its_command(empty: Path) -> None:
    found = entries_of(empty)
    assert {e["verdict"] for i, e in found.items() if i != "S07"} == {OPEN}
    assert found["K01"]["cause"] == "data/llc.csv not there yet"
    assert found["K04"]["command"] == COMMANDS["networks.csv"]
    assert found["K01"]["command"] == f"{COMMANDS['llc.csv']} && {COMMANDS[AT_SOURCE]}"
    assert found["E05"]["command"] == found["R06"]["command"] == COMMANDS["widths.csv"]
    assert all(e["command"] for i, e in found.items() if i != "S07")


def test_with_all_data_every_claim_with_a_rule_is_answered(full: Path) -> None:
    for id, entry in entries_of(full).items():
        assert entry["verdict"] in VERDICTS
        assert (entry["verdict"] != OPEN) == (id in RULES), id
        if id in RULES:
            assert entry["ours"] and entry["on"] and entry["cause"] and entry["rule"], id


def test_one_missing_file_opens_its_claims_alone(full: Path) -> None:
    (full / "polish.csv").unlink()
    found = entries_of(full)
    assert [i for i in RULES if found[i]["verdict"] == OPEN] == ["K23"]


def test_too_few_rows_open_a_claim_with_the_reason(full: Path) -> None:
    lines = (full / "polish.csv").read_text().splitlines()
    (full / "polish.csv").write_text(lines[0] + "\n" + lines[1] + "\n")
    entry = entries_of(full)["K23"]
    assert entry["verdict"] == OPEN
    assert "no network with both polishes" in entry["cause"]


# --- the documents --------------------------------------------------------------------------


def test_the_document_holds_every_claim_once_in_a_table_and_escapes_bars(full: Path) -> None:
    text = claims.markdown(claims.answers(full))
    for id in entries_of(full):
        assert text.count(f"| {id} | ") == 1
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in (3, 6, 7), line
    assert "| reproduced |" in text and "| open |" in text
    assert "Lab Agents 2026, Kran Research" in text


def test_main_writes_and_check_agrees(full: Path, capsys: Capture) -> None:
    root = full.parent
    assert claims.main(["--check"], full, root) == 1
    assert claims.main([], full, root) == 0
    assert claims.main(["--check"], full, root) == 0
    answers = json.loads((full / "claims.json").read_text())
    assert [a["id"] for a in answers] == list(entries_of(full))
    wanted = {"id", "claim", "source_value", "ours", "error", "verdict", "cause", "command", "data"}
    assert all(wanted <= set(a) for a in answers)


@pytest.mark.parametrize("file", ["data/claims.json", "CLAIMS.md", "data/llc.csv"])
def test_check_names_what_is_stale(full: Path, capsys: Capture, file: str) -> None:
    root = full.parent
    claims.main([], full, root)
    path = root / file
    text = path.read_text()
    path.write_text(text.replace("p31_K93_s2", "p31_K93_s9") if "llc" in file else text + "\n")
    capsys.readouterr()
    assert claims.main(["--check"], full, root) == 1
    said = capsys.readouterr().err
    assert "run `python claims.py`" in said
    assert "llc" in file or file.split("/")[-1] in said


def test_numbers_are_kept_to_six_digits(full: Path) -> None:
    for entry in claims.answers(full):
        for x in (entry["value"], entry["error"]):
            assert x is None or x == float(f"{x:.6g}")


def test_the_shipped_documents_are_fresh() -> None:
    """CLAIMS.md and data/claims.json say what the data beside them say."""
    wanted = claims.documents(DATA, ROOT)
    if not any(path.exists() for path in wanted):
        pytest.skip("no results yet: `python claims.py` has not been run")
    assert claims.stale(wanted) == []
