"""The script of the width study: its plan, its cells, its tables, and what it prints."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import console
import records
import run_widths
import width_chains
import width_networks as wn
import width_study
import width_tables
from jobs import Setup
from run_widths import Cell, Plan, Stage
from width_networks import Network

TINY = Network("ntk", 3, 1e-2, 0, steps=20, n=64)


@pytest.fixture
def stages(tmp_path: Path) -> list[Stage]:
    return Plan(tmp_path).stages()


# ---- the plan ----------------------------------------------------------------------------------


def test_every_claim_has_a_stage(stages: list[Stage]) -> None:
    answered = {claim for stage in stages for claim in stage.answers.split()}
    # E20, the peer, is tests/peers/
    assert answered == {f"E{k:02d}" for k in range(1, 20)} | {"R06"}


def test_every_network_is_trained_before_it_is_read(stages: list[Stage]) -> None:
    trained: set[Path] = set()
    for stage in stages:
        for cell in stage.cells:
            for path in cell.weights:
                assert path in trained, (stage.name, cell.key)
        if stage.name.startswith("train"):
            trained |= {
                wn.snapshot_path(c.arguments[0], c.arguments[1], wn.LAST) for c in stage.cells
            }
        if stage.name.startswith("polish"):
            trained |= {
                wn.snapshot_path(c.arguments[0], c.arguments[1], wn.POLISHED) for c in stage.cells
            }
    assert all(c.weights for s in stages if s.table == "width_chains" for c in s.cells)
    named = [c.key for s in stages if s.name.startswith("train") for c in s.cells]
    assert len(named) == len(set(named)) == 33


def test_every_network_is_read_once_with_its_spectrum_or_at_kappas(stages: list[Stage]) -> None:
    readers = (width_study.spectrum, width_study.at_kappas)
    read = [cell.arguments[1] for stage in stages if stage.work in readers for cell in stage.cells]
    assert len(read) == len(set(read)) and set(read) == set(wn.all_networks())


def needing_spectra(stage: Stage) -> list[tuple[Network, str]]:
    """The networks, with the step, whose kept curvatures the cells of a stage read."""
    if stage.work is width_chains.sampled:
        return [(c.arguments[1], c.arguments[2].weights) for c in stage.cells]
    if stage.work in (width_study.hessian, width_study.polish):
        return [(c.arguments[1], wn.LAST) for c in stage.cells]
    if stage.work is width_study.matched:  # either network may be the one read at its last step
        return [(network, wn.LAST) for c in stage.cells for network in c.arguments[2]]
    return []


def without_spectra(stages: list[Stage]) -> set[tuple[str, str]]:
    """(stage, network) where curvatures are read before a stage has kept them."""
    kept: set[tuple[Network, str]] = set()
    missing = set()
    for stage in stages:
        missing |= {(stage.name, n.name) for n, at in needing_spectra(stage) if (n, at) not in kept}
        step = {width_study.spectrum: wn.LAST, width_study.polish: wn.POLISHED}.get(stage.work)
        if step:
            kept |= {(cell.arguments[1], step) for cell in stage.cells}
    return missing


def test_whoever_is_read_by_its_curvatures_has_a_spectrum_before(stages: list[Stage]) -> None:
    read = {stage.name.split("-")[0] for stage in stages if needing_spectra(stage)}
    assert read == {"matched", "chains", "hessian", "polish"}
    assert without_spectra(stages) == set()


def test_a_spectrum_that_comes_too_late_is_noticed(stages: list[Stage]) -> None:
    late = sorted(stages, key=lambda stage: stage.name == "spectrum-later")
    assert {stage for stage, _ in without_spectra(late)} == {"chains-seeds", "matched-later"}


def test_keys_are_unique_and_estimates_positive(stages: list[Stage]) -> None:
    assert len({stage.name for stage in stages}) == len(stages)
    for stage in stages:
        keys = [cell.key for cell in stage.cells]
        assert len(keys) == len(set(keys)), stage.name
        assert all(cell.seconds > 0 for cell in stage.cells)
        assert stage.table in width_tables.TABLES
        assert stage.minutes == pytest.approx(sum(c.seconds for c in stage.cells) / 60)


def test_seeds_of_the_chains_differ(stages: list[Stage]) -> None:
    cells = [c for stage in stages if stage.table == "width_chains" for c in stage.cells]
    cases = [(c.arguments[1].name, c.arguments[2].key) for c in cells]
    assert len(cases) == len(set(cases))


def test_a_dead_chain_still_says_how_it_was_sampled(stages: list[Stage]) -> None:
    """What is known beforehand stands in a row without a reading, as in one with."""
    for cell in (c for s in stages if s.table == "width_chains" for c in s.cells):
        setting = cell.arguments[2]
        known = cell.known
        assert known["rule"] == setting.rule and known["kappa"] == setting.kappa
        assert known["aligned"] == ("kappa" if setting.gamma is None else "gamma")
        assert known["step_constant"] == pytest.approx(0.2 / setting.step_divisor, rel=1e-15)
        assert set(known) <= set(width_tables.types("width_chains"))


def test_the_plan_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_widths.main(["--plan", "--runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("train-first") and "E05 E06" in out[0]
    assert out[-1] == "minutes on one core; with --workers 2 about half"


# ---- cells -------------------------------------------------------------------------------------


def test_what_decides_a_cell(tmp_path: Path) -> None:
    weights = tmp_path / "w.npz"
    weights.write_bytes(b"one")
    cell = Cell("a", (tmp_path, TINY, (1.0, 2.0)), code=("mlp.py",), weights=(weights,))
    first = cell.identity("widths")
    assert first == Cell(
        "b", (tmp_path / "elsewhere", TINY, (1.0, 2.0)), code=("mlp.py",), weights=(weights,)
    ).identity("widths")  # neither its key nor a folder counts
    changed = [
        Cell("a", (tmp_path, TINY, (1.0, 3.0)), code=("mlp.py",), weights=(weights,)),
        Cell("a", (tmp_path, TINY, (1.0, 2.0)), code=("theory.py",), weights=(weights,)),
        Cell("a", (tmp_path, wn.Network("mup", 3, 1e-2, 0), (1.0, 2.0)), code=("mlp.py",)),
    ]
    assert all(other.identity("widths") != first for other in changed)
    weights.write_bytes(b"two")
    assert cell.identity("widths") != first


CALLS = itertools.count()


def measured(value: float) -> list[dict[str, Any]]:
    next(CALLS)
    if value < 0:
        raise ArithmeticError("no such thing")
    return [{"loss": value}]


def read(value: float) -> list[dict[str, Any]]:
    next(CALLS)
    return [{"h_max": value}]


def small_stages(*values: float) -> list[Stage]:
    known = [{"network": f"n{k}", "seed": k} for k in range(len(values))]
    trained = tuple(Cell(f"n{k}", (v,), known[k]) for k, v in enumerate(values))
    spectra = tuple(Cell(f"n{k}", (10 * v,), known[k]) for k, v in enumerate(values))
    return [
        Stage("train", "E01", "widths", measured, trained),
        Stage("spectrum", "E01", "widths", read, spectra),
    ]


def test_two_stages_fill_one_row_and_resume(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "data", tmp_path / "runs", quiet=True)
    rows = run_widths.run_stages(setup, small_stages(1.0, 2.0))["widths"]
    assert [(r["network"], r["loss"], r["h_max"]) for r in rows] == [
        ("n0", 1.0, 10.0),
        ("n1", 2.0, 20.0),
    ]
    on_disk = records.read_csv(tmp_path / "data" / "widths.csv", width_tables.types("widths"))
    assert on_disk == rows
    before = next(CALLS)
    assert run_widths.run_stages(setup, small_stages(1.0, 2.0))["widths"] == rows
    assert next(CALLS) == before + 1  # nothing was measured twice


def test_a_failure_leaves_its_reason(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "data", tmp_path / "runs", quiet=True)
    stages = small_stages(1.0, -1.0)
    rows = run_widths.run_stages(setup, stages[:1])["widths"]
    assert rows[1]["error"] == "ArithmeticError: no such thing" and rows[1]["loss"] is None
    assert rows[0]["error"] == "" and rows[1]["network"] == "n1"


def test_cells_without_weights_are_not_run(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "data", tmp_path / "runs", quiet=True)
    cell = Cell("a", (1.0,), {"network": "a"}, weights=(tmp_path / "none.npz",))
    rows = run_widths.run_stages(setup, [Stage("s", "E01", "width_polish", measured, (cell,))])
    assert rows["width_polish"][0]["error"] == "no weights: training failed"


# ---- the quick run -----------------------------------------------------------------------------


def test_the_quick_cell(tmp_path: Path) -> None:
    (row,) = run_widths.quick(tmp_path, TINY)
    assert row["network"] == TINY.name and row["steps"] == 20
    assert 0 < row["dimension_1"] < row["dimension_10"]
    assert row["llc"] > 0 and row["standard_error"] > 0


def quick_rows() -> list[dict[str, Any]]:
    row = dict.fromkeys(("loss", "drift_W1", "drift_W2", "linearisation_error", "h_max"), 0.5)
    row |= {"base_rate": 1e-3, "dimension_1": 8.0, "dimension_10": 40.0, "standard_error": 0.1}
    return [
        row | {"condition": "ntk", "llc": 9.0},
        row | {"condition": "mup", "llc": 4.5, "dimension_1": 6.0},
    ]


def test_what_the_quick_run_prints(capsys: pytest.CaptureFixture[str]) -> None:
    run_widths.print_quick(quick_rows())
    out = capsys.readouterr().out
    assert "NTK" in out and "µP" in out
    (line,) = [line for line in out.splitlines() if line.startswith("λ(c) at κ = 1, exact")]
    assert line.split()[-3:] == ["8.00", "6.00", "0.750"]
    assert all(len(line) <= 100 for line in out.splitlines())


def test_the_quick_run_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = tuple(wn.Network(c, 3, 1e-2, 0, steps=20, n=64) for c in wn.CONDITIONS)
    monkeypatch.setattr(wn, "pair", lambda *_: tiny)
    options = ["--runs", str(tmp_path / "runs"), "--data", str(tmp_path / "data")]
    monkeypatch.setattr(run_widths.Plan, "stages", lambda self: [])
    assert run_widths.main([*options, "--workers", "1", "--quiet"]) == 0
    assert "λ̂ at κ = 1, sampled" in capsys.readouterr().out
    assert not (tmp_path / "data").exists()  # the quick run writes no table


def test_bad_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(lambda: run_widths.main(["--study", "half"])) == console.BAD_USE
    assert console.run(lambda: run_widths.main(["--workers", "none"])) == console.BAD_USE
    assert all(line.startswith("error: ") for line in capsys.readouterr().err.splitlines())


def test_spectra_are_kept_together(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "data", tmp_path / "runs", quiet=True)
    network = wn.all_networks()[0]
    wn.write_spectrum(setup.runs / "widths", network, np.array([2.0, 1.0]))
    assert list(run_widths.keep_spectra(setup)) == [network.name]
    kept = records.read_npz(setup.data / "width_spectra.npz")
    assert kept[network.name].tolist() == [2.0, 1.0]
