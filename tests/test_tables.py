"""The columns of the tables: typed, explained, and filled or left empty."""

from __future__ import annotations

from pathlib import Path

import pytest

import records
import tables

RECORDED = ("n_beta", "gamma", "kappa", "step", "chains", "steps", "burn_in", "chains_seed")


@pytest.mark.parametrize("table", tables.TABLES)
def test_every_column_is_typed_and_explained(table: str) -> None:
    for name, (kind, meaning) in tables.TABLES[table].items():
        assert kind in (int, float, bool, str), name
        assert len(meaning) >= 3, name  # "r/2" is the shortest explanation there is
        assert name == name.lower() or name in ("K", "K_eff", "end_K_eff", "K_eff_before_polish")


@pytest.mark.parametrize("table", tables.TABLES)
def test_every_table_says_what_failed(table: str) -> None:
    assert list(tables.TABLES[table])[-1] == "error"


@pytest.mark.parametrize("table", [t for t, c in tables.TABLES.items() if "llc" in c])
def test_a_reading_carries_its_settings_error_and_calibration(table: str) -> None:
    needed = {*RECORDED, "standard_error", "calibration_sha256", "status", "doubts", "law", "z_law"}
    assert needed <= set(tables.TABLES[table])


def test_no_block_hides_a_column_of_another() -> None:
    blocks = (
        tables.NETWORK,
        tables.TRAINED,
        tables.SPECTRUM,
        tables.EXACT,
        tables.FORMULAS,
        tables.SETTINGS,
        tables.LAW,
        tables.READING,
        tables.RATIOS,
        tables.ENDS,
        tables.OUTCOME,
    )
    names = [name for block in blocks for name in block]
    assert len(set(names)) == len(names)
    for (
        table
    ) in tables.TABLES.values():  # where a table adds a column of its own, no meaning is lost
        for block in blocks:
            assert all(table[name][0] is kind for name, (kind, _) in block.items() if name in table)


def test_a_row_keeps_what_is_known_and_leaves_the_rest_empty(tmp_path: Path) -> None:
    row = tables.row("fourier", {"p": 5, "stranger": 1}, {"gap": 2.0}, error="dead")
    assert list(row) == list(tables.FOURIER)
    assert (row["p"], row["gap"], row["K"], row["error"]) == (5, 2.0, None, "dead")
    records.write_csv(tmp_path / "t.csv", tables.types("fourier"), [row])
    assert records.read_csv(tmp_path / "t.csv", tables.types("fourier")) == [row]


def test_a_later_part_wins() -> None:
    assert tables.row("fourier", {"p": 5}, {"p": 7})["p"] == 7
    assert tables.row("fourier", {"p": 5}, p=11)["p"] == 11


def test_an_empty_row_of_every_table_can_be_written(tmp_path: Path) -> None:
    for table in tables.TABLES:
        path = tmp_path / f"{table}.csv"
        records.write_csv(path, tables.types(table), [tables.row(table)])
        assert records.read_csv(path, tables.types(table)) == [tables.row(table)]
