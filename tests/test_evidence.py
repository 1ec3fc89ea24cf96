"""evidence.py: statistics against slow second computations, files, the source's claims."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrate
import claims
import evidence
import records
import tables
import width_tables
from evidence import Evidence, NotEnough, Statistic
from tests import made_data

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "data" / "source_claims.csv"

groups_of_floats = st.dictionaries(
    st.tuples(st.integers(2, 31), st.integers(1, 99)),
    st.lists(st.floats(0.1, 10.0), min_size=2, max_size=4),
    min_size=2,
    max_size=6,
)


# --- statistics -----------------------------------------------------------------------------


@given(groups_of_floats)
def test_the_spread_between_seeds_is_the_pooled_variance(
    groups: dict[tuple[int, int], list[float]],
) -> None:
    freedom = sum(len(v) - 1 for v in groups.values())
    pooled = sum((len(v) - 1) * np.var(v, ddof=1) for v in groups.values()) / freedom
    # Sums of at most 24 squares below 100: 30 eps of 100, under the root of a value near 0.
    assert evidence.between_seeds(groups) ** 2 == pytest.approx(pooled, rel=1e-12, abs=1e-12)


def test_one_network_per_size_has_no_spread() -> None:
    with pytest.raises(NotEnough, match="no size has two networks"):
        evidence.between_seeds({(11, 33): [0.7], (17, 51): [0.8]})


def test_the_error_of_a_median_of_equal_sizes_is_that_of_order_statistics() -> None:
    """Three sizes of the same mean: the median of three normals has the variance 0.4487 σ²."""
    groups = {(p, 3 * p): [0.69, 0.71] for p in (11, 17, 23)}
    s = evidence.between_seeds(groups)
    found = evidence.median_over_sizes(groups)
    assert found.value == pytest.approx(0.7)
    exact = 0.4487**0.5 * s / 2**0.5
    # A standard deviation from 4,000 draws is known to 1/√8000 = 1.1 %: 4 of those.
    assert found.error == pytest.approx(exact, rel=0.045)


def test_far_apart_sizes_leave_the_error_of_the_middle_one() -> None:
    groups = {(11, 33): [0.1, 0.12], (17, 51): [0.7, 0.72], (23, 69): [5.0, 5.02]}
    found = evidence.median_over_sizes(groups)
    assert found.value == pytest.approx(0.71)
    assert found.error == pytest.approx(evidence.between_seeds(groups) / 2**0.5, rel=0.045)


@given(st.lists(st.tuples(st.floats(1, 9), st.floats(-5, 5)), min_size=4, max_size=9))
def test_the_slope_is_that_of_the_normal_equations(points: list[tuple[float, float]]) -> None:
    x, y = (np.array(column) for column in zip(*points, strict=True))
    if np.ptp(x) < 1e-2:
        return  # the slope is then decided by rounding
    X = np.stack([np.ones_like(x), x], axis=1)
    inverse = np.linalg.inv(X.T @ X)
    beta = inverse @ X.T @ y
    variance = float(np.sum((y - X @ beta) ** 2)) / (len(x) - 2)
    found = evidence.line(x.tolist(), y.tolist())
    # The oracle squares the condition, (9/0.01)² ≤ 1e6: 1e6 · 9 · 5 · eps = 1e-8, ten times that.
    assert found.value == pytest.approx(beta[1], rel=1e-7, abs=1e-7)
    assert found.error == pytest.approx((variance * inverse[1, 1]) ** 0.5, rel=1e-5, abs=1e-5)


def test_a_slope_needs_three_points() -> None:
    with pytest.raises(NotEnough, match="needs 3 different points, got 2"):
        evidence.line([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(NotEnough):
        evidence.line([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])


def test_agreement_ends_at_two_errors_of_the_difference_and_the_rounding() -> None:
    ours, edge = Statistic(0.73, 0.01), 2 * 2**0.5 * 0.01 + 0.005
    assert evidence.agrees(ours, 0.73 + 0.999 * edge)
    assert not evidence.agrees(ours, 0.73 + 1.001 * edge)
    assert not evidence.agrees(ours, 0.73 - 1.001 * edge)
    assert not evidence.agrees(Statistic(float("nan"), 0.01), 0.73)


def test_a_range_may_be_narrower_but_not_wider() -> None:
    slack = 2 * 2**0.5 * 0.01 + 0.005
    assert evidence.range_agrees([0.70, 0.80], (0.65, 0.87), 0.01)
    assert evidence.range_agrees([0.65 - 0.99 * slack, 0.87 + 0.99 * slack], (0.65, 0.87), 0.01)
    assert not evidence.range_agrees([0.65 - 1.01 * slack, 0.8], (0.65, 0.87), 0.01)
    assert not evidence.range_agrees([0.7, 0.87 + 1.01 * slack], (0.65, 0.87), 0.01)


def test_one_network_of_the_source_is_compared_within_the_error_of_a_prediction() -> None:
    groups = {(17, 51): [0.24, 0.26], (11, 33): [0.1, 0.1, 0.1]}
    found, n = evidence.one_network(groups, (17, 51))
    s = evidence.between_seeds(groups)
    assert found.value == pytest.approx(0.25) and n == 2
    # agrees doubles the square: 2√2·error must be 2·s·√(1 + 1/n).
    assert 2 * 2**0.5 * found.error == pytest.approx(2 * s * (1 + 1 / 2) ** 0.5)
    with pytest.raises(NotEnough, match="p = 31, K = 93"):
        evidence.one_network(groups, (31, 93))


# --- words ----------------------------------------------------------------------------------


def test_failures_and_doubts_are_counted() -> None:
    rows = [{"p": 11, "K": 33, "seed": s, "settled": s != 1, "error": ""} for s in range(3)]
    failed = {"p": 17, "K": 51, "seed": 0, "error": "DeadChain: chain 2"}
    assert evidence.counted(rows) == "3 networks, 1 size; 1 with doubts about settling"
    assert evidence.counted(rows, [*rows, failed]).endswith("; 1 failed (DeadChain: chain 2)")


def test_settings_name_every_value_and_a_missing_calibration() -> None:
    row = made_data.reading(made_data.network(11, 33, 97, 0), 0.7)
    assert evidence.settings_of([row]) == (
        "n_beta 10000; gamma 1; s 0.2; 4 chains × 10,000 steps, 2,000 discarded"
    )
    other = made_data.reading(made_data.network(11, 33, 97, 0), 0.7, gamma=10.0)
    assert "gamma 1, 10;" in evidence.settings_of([row, other])
    assert evidence.settings_of([row, other]).endswith("[not calibrated]")


# --- files ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_data.write(tmp_path_factory.mktemp("data"))


def test_every_file_a_rule_names_is_read_and_has_its_command(folder: Path) -> None:
    data, rules = Evidence(folder), evidence.RULES.values()
    named = set(itertools.chain(*(rule.files for rule in rules)))
    assert claims.RULE_MODULES
    assert named <= set(evidence.COMMANDS)
    assert all(data.has(file) and data.rows(file) for file in named)


def test_a_file_is_read_once(folder: Path) -> None:
    data = Evidence(folder)
    assert data.rows("llc.csv") is data.rows("llc.csv")
    assert len(data.rows("llc.csv")) == 18


def test_failed_rows_and_empty_cells_are_left_out() -> None:
    data = made_data.Made()
    data.change("llc.csv", lambda r: r["p"] == 11, error="TrainingFailed: never grokked")
    data.change("llc.csv", lambda r: r["p"] == 31, llc=None)
    assert {r["p"] for r in data.usable("llc.csv", "llc")} == {17, 23}
    with pytest.raises(NotEnough, match=r"data/llc\.csv has no row with llc"):
        data.change("llc.csv", made_data.always, error="all failed").usable("llc.csv", "llc")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "llc.csv").write_text("network,p\na,11\n")
    with pytest.raises(records.RecordError, match="columns are"):
        Evidence(tmp_path).rows("llc.csv")


def test_the_columns_of_the_calibration_are_those_of_its_writer() -> None:
    assert list(evidence.GRID_COLUMNS.items()) == list(calibrate.GRID_COLUMNS.items())
    assert list(evidence.RESOLUTION_COLUMNS.items()) == list(calibrate.RESOLUTION_COLUMNS.items())


def test_every_table_has_a_command() -> None:
    assert {f"{name}.csv" for name in evidence.TABLES} <= set(evidence.COMMANDS)


def test_no_table_hides_another_of_its_name() -> None:
    names = [*tables.TABLES, *width_tables.TABLES, "peers"]
    assert len(names) == len(set(names)) == len(evidence.TABLES)
    assert not set(evidence.CALIBRATION_TABLES) & {f"{name}.csv" for name in names}


@pytest.mark.parametrize("file", ["widths.csv", "width_chains.csv", "peers.csv", "llc.csv"])
def test_a_table_is_read_with_the_types_of_its_columns(file: str, tmp_path: Path) -> None:
    example = {str: "a", float: 0.5, int: 3, bool: True}
    row = {name: example[kind] for name, kind in evidence.types(file).items()}
    records.write_csv(tmp_path / file, evidence.types(file), [row])
    assert Evidence(tmp_path).rows(file) == [row]
    assert evidence.types("widths.csv") == width_tables.types("widths")


def test_the_commands_of_the_width_study_are_scripts_that_are_there() -> None:
    for file in ("widths.csv", "width_influence.csv", "peers.csv"):
        script = next(word for word in evidence.COMMANDS[file].split() if word.endswith(".py"))
        assert (ROOT / script).exists()


# --- the source's claims --------------------------------------------------------------------


def test_every_claim_is_there_once_with_its_source() -> None:
    found = evidence.read_claims(SOURCE)
    wanted = [f"K{i:02d}" for i in range(1, 29)] + [f"C{i:02d}" for i in range(1, 4)]
    wanted += [f"E{i:02d}" for i in range(1, 21)] + [f"S{i:02d}" for i in range(1, 9)]
    wanted += [f"R{i:02d}" for i in range(1, 7)]
    assert [c.id for c in found] == wanted
    assert all(c.claim and c.place and c.value for c in found)
    assert {c.source for c in found} == set(claims.REFERENCES)


def test_the_numbers_of_a_claim_are_those_of_its_words() -> None:
    """Per cent become shares; counts and ratios stay."""
    k02, k13 = (next(c for c in evidence.read_claims(SOURCE) if c.id == i) for i in ("K02", "K13"))
    assert k02.numbers == (0.65, 0.87)
    assert k13.numbers == (384, 14, 0.038, 0.049, 0.09, 0.10)
