"""documents.py: what the documents say is what the files in data/ hold."""

from __future__ import annotations

from pathlib import Path

import pytest

import documents
import evidence
import readout
import records
import width_networks
from tests import made_widths

ROOT = Path(__file__).resolve().parent.parent


def test_the_documents_are_not_stale() -> None:
    assert documents.main(["--check"]) == 0


def test_the_shipped_text_is_the_report_of_the_shipped_records() -> None:
    shipped = records.read_json(ROOT / "data" / "shipped.json")["networks"]
    text = "\n\n".join(readout.report_text(record) for record in shipped) + "\n"
    assert (ROOT / "data" / "shipped.txt").read_text(encoding="utf-8") == text


def test_a_block_is_replaced_and_the_rest_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(documents.BLOCKS, "report", lambda: "NEW")
    text = "before\n<!-- begin report -->\nold\n<!-- end report -->\nafter 17\n"
    new = documents.readme(text)
    assert new == "before\n<!-- begin report -->\nNEW\n<!-- end report -->\nafter 17\n"
    assert documents.readme(new) == new


def test_an_unknown_block_is_refused() -> None:
    with pytest.raises(ValueError, match="block 'weather'"):
        documents.readme("<!-- begin weather -->\n<!-- end weather -->")


def test_every_block_of_the_readme_is_filled() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in documents.BLOCKS:
        assert text.count(f"<!-- begin {name} -->\n") == 1, name
        assert f"<!-- begin {name} -->\n<!-- end" not in text, name


def test_a_missing_file_is_named_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "DATA", tmp_path)
    for block in documents.BLOCKS.values():
        with pytest.raises(ValueError, match=r"is missing: make it with `(python|make) "):
            block()


def test_a_file_that_nobody_described_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stray.csv").write_text("x\n")
    with pytest.raises(ValueError, match=r"stray\.csv"):
        documents.data_readme(tmp_path)


def test_data_readme_tells_the_hash_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "null.jsonl").write_text("{}\n")
    text = documents.data_readme(tmp_path)
    assert f"| null.jsonl | `{records.sha256_file(tmp_path / 'null.jsonl')}` |" in text
    (tmp_path / "null.jsonl").write_text('{"a": 1}\n')
    assert documents.data_readme(tmp_path) != text


def test_every_table_is_described_once() -> None:
    described = [entry.table for entry in documents.ENTRIES if entry.table]
    assert sorted(described) == sorted(evidence.TABLES)
    assert all(e.pattern == f"{e.table}.csv" for e in documents.ENTRIES if e.table)


def test_data_readme_explains_the_columns_of_the_width_study_and_of_the_peer(
    tmp_path: Path,
) -> None:
    for file in ("widths.csv", "peers.csv"):
        (tmp_path / file).write_text("x\n")
    text = documents.data_readme(tmp_path)
    assert "| dimension_10 | float | λ(c) at κ = 10, exact |" in text
    assert "| ms_theirs | float |" in text
    assert "`python run_widths.py --study full --workers 2`, about 140 minutes" in text
    assert "`runs/peers/bin/python tests/peers/devinterp_peer.py`" in text


def test_the_table_of_the_widths_pairs_seed_with_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = made_widths.files()["widths.csv"]
    for row in rows:  # two seeds' ratios 0.5 and 0.72: their geometric mean is 0.6
        if row["network"] in ("mup_w256_r0.02_s0", "mup_w256_r0.02_s1", "mup_w256_r0.02_s2"):
            ntk = next(r for r in rows if r["network"] == f"ntk_w256_r0.001_s{row['seed']}")
            row["dimension_10"] = (0.5, 0.72, 0.6)[row["seed"]] * ntk["dimension_10"]
    records.write_csv(tmp_path / "widths.csv", evidence.types("widths.csv"), rows)
    monkeypatch.setattr(documents, "DATA", tmp_path)
    lines = documents.widths_block().splitlines()
    assert len(lines) == 2 + 9 + 2 and len({line.count("|") for line in lines[:11]}) == 1
    cells = [cell.strip() for cell in lines[3].split("|")[1:-1]]
    assert cells[:2] == ["0.001 / 0.02", "256"] and cells[5] == "0.600" and cells[7] == "3"
    assert "at 0.001 / 0.001 as w^(0.10 ± 0.00) for µP" in lines[-1]  # made to rise


def test_the_kept_spectra_of_the_width_study_stay_small() -> None:
    """Every network's, were they all kept and did nothing compress: 33 of 10,240 doubles."""
    networks = width_networks.all_networks()
    assert sum(8 * 10 * network.n for network in networks) < 3e6


def test_check_names_a_stale_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "README.md").write_text("no block here\n")
    monkeypatch.setattr(documents, "HERE", tmp_path)
    monkeypatch.setattr(documents, "DATA", tmp_path / "data")
    monkeypatch.setattr(documents, "data_readme", lambda: documents.__doc__ or "", raising=True)
    assert documents.main(["--check"]) == 1
    assert "data/README.md is stale" in capsys.readouterr().err
    assert documents.main([]) == 0
    assert documents.main(["--check"]) == 0
