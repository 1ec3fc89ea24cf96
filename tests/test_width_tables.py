"""Every column has a type and a meaning, and no block overrides another's."""

from __future__ import annotations

import pytest

import width_tables as wt


@pytest.mark.parametrize("table", [*wt.TABLES.values(), wt.PEERS])
def test_columns_are_explained(table: wt.Table) -> None:
    for name, (kind, meaning) in table.items():
        assert kind in (int, float, str, bool), name
        assert len(meaning) > 4, name


@pytest.mark.parametrize("table", wt.TABLES)
def test_a_row_says_last_what_failed(table: str) -> None:
    assert list(wt.TABLES[table])[-1] == "error"


def test_a_row_takes_what_is_known_and_leaves_the_rest_empty() -> None:
    row = wt.row("width_linear", {"kappa": 1.0, "strange": 5}, {"llc": 2.0})
    assert row["kappa"] == 1.0 and row["llc"] == 2.0
    assert row["fraction"] is None and row["error"] == ""
    assert "strange" not in row
    assert list(row) == list(wt.types("width_linear"))
    assert wt.row("width_linear", {"kappa": 1.0}, {"kappa": 2.0})["kappa"] == 2.0
