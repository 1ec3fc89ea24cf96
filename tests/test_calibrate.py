"""The calibration: rule, grid, freeze, verdicts, and the mutants it must not let pass."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibrate
import chains
import gate
import measure
import records
from calibrate import GRID_COLUMNS, SOURCE, Verdict, calibrate_case, select
from known import CASES, SLOPPY, Case, Sloppy
from measure import Protocol

Row = dict[str, Any]
Setting = tuple[float, float, float]  # step constant, gamma, n_beta
THE_SOURCE = (0.2, 1.0, 1e4)
TINY = Protocol(n_beta=1e3, gamma=1.0, chains=2, steps=200, burn_in=50)
SMALL = CASES[0]  # gaussian_5_3, the quickest planted teacher


# --- the rule -------------------------------------------------------------------------------


def grid(worst: dict[Setting, float]) -> list[Row]:
    """Four rows per setting, the worst of them negative and not the last."""
    return [
        {"step_constant": s, "gamma": gamma, "n_beta": n_beta, "error": share * error}
        for (s, gamma, n_beta), error in worst.items()
        for share in (0.5, -1.0, 0.0, 0.9)
    ]


@pytest.mark.parametrize(
    ("worst", "chosen"),
    [
        ({THE_SOURCE: 0.03, (0.5, 1.0, 3e4): 0.02}, THE_SOURCE),  # better, but not by half
        ({THE_SOURCE: 0.05, (0.5, 1.0, 3e4): 0.025}, THE_SOURCE),  # both limits met exactly
        ({THE_SOURCE: 0.0501, (0.5, 1.0, 3e4): 0.04}, (0.5, 1.0, 3e4)),  # beyond 5 %
        ({THE_SOURCE: 0.041, (0.5, 1.0, 3e4): 0.02}, (0.5, 1.0, 3e4)),  # beyond twice the best
        ({THE_SOURCE: 0.09, (0.5, 1.0, 3e4): 0.08}, (0.5, 1.0, 3e4)),  # all bad: still the best
        ({THE_SOURCE: 0.08, (0.5, 1.0, 3e4): 0.09}, THE_SOURCE),  # ... which may be the source's
        ({THE_SOURCE: 0.02}, THE_SOURCE),
    ],
)
def test_the_source_is_kept_unless_the_grid_speaks_against_it(
    worst: dict[Setting, float], chosen: Setting
) -> None:
    assert select(grid(worst)) == chosen
    assert select(grid(worst)[::-1]) == chosen


@pytest.mark.parametrize(
    ("equals", "chosen"),
    [
        ([(0.2, 1.0, 1e3), (0.2, 1.0, 3e4)], (0.2, 1.0, 3e4)),  # finer gamma/n_beta by n_beta
        ([(0.2, 10.0, 3e4), (0.2, 1.0, 3e4)], (0.2, 1.0, 3e4)),  # ... by gamma
        ([(0.5, 1.0, 3e3), (0.2, 10.0, 3e4)], (0.2, 10.0, 3e4)),  # equal ones too
        ([(0.5, 1.0, 3e4), (0.2, 1.0, 3e4)], (0.2, 1.0, 3e4)),  # then the smaller step
        ([(0.2, 10.0, 1e4), (0.5, 1.0, 3e3)], (0.5, 1.0, 3e3)),  # resolution comes before the step
    ],
)
def test_ties_go_to_the_finer_resolution_and_then_the_smaller_step(
    equals: list[Setting], chosen: Setting
) -> None:
    for order in itertools.permutations(equals):
        assert select(grid({THE_SOURCE: 0.2} | dict.fromkeys(order, 0.03))) == chosen


SETTINGS = list(
    itertools.product(calibrate.GRID_STEP_CONSTANTS, calibrate.GRID_GAMMAS, calibrate.GRID_N_BETAS)
)


@given(st.lists(st.sampled_from([0.01, 0.02, 0.03, 0.05, 0.06, 0.1]), min_size=16, max_size=16))
def test_the_rule_against_its_words(errors: list[float]) -> None:
    worst = dict(zip(SETTINGS, errors, strict=True))
    best = sorted(worst, key=lambda s: (worst[s], s[1] / s[2], s[0]))[0]
    keep = worst[THE_SOURCE] <= 0.05 and worst[THE_SOURCE] <= 2 * worst[best]
    assert select(grid(worst)) == (THE_SOURCE if keep else best)


def test_the_source_s_setting_is_the_published_one() -> None:
    assert asdict(SOURCE) == {
        "n_beta": 1e4,
        "gamma": 1.0,
        "step_constant": 0.2,
        "chains": 4,
        "steps": 10_000,
        "burn_in": 2_000,
    }
    assert THE_SOURCE in SETTINGS


# --- the grid -------------------------------------------------------------------------------


def test_the_grid_has_384_distinct_runs_24_to_a_setting() -> None:
    jobs = list(calibrate.grid_settings())
    keys = {(c.name, scale, p.step_constant, p.gamma, p.n_beta) for c, scale, p in jobs}
    assert len(jobs) == len(keys) == 384
    per_setting = [(p.step_constant, p.gamma, p.n_beta) for _, _, p in jobs]
    assert {per_setting.count(setting) for setting in SETTINGS} == {24}
    assert {(p.chains, p.steps, p.burn_in) for _, _, p in jobs} == {(2, 4_000, 1_000)}
    assert {scale for _, scale, _ in jobs} == {0.5, 1.0, 2.0}


def test_a_row_of_the_grid_is_a_run() -> None:
    row = calibrate.grid_row(SMALL, 0.5, TINY)
    assert set(row) == set(GRID_COLUMNS)
    assert (row["network"], row["scale"], row["known_llc"]) == ("gaussian_5_3", 0.5, 21.0)
    assert (row["chains"], row["steps"], row["burn_in"]) == (2, 200, 50)
    assert row["error"] == row["llc"] / 21.0 - 1.0
    assert 0 < row["h_min"] < row["h_max"]
    # The step rule; and the law is below ½·42 curvatures by the flat ones, above by the step.
    assert row["step"] == pytest.approx(0.2 / (1e3 * row["h_max"] + 1.0), rel=1e-14)
    assert 0.5 * 21.0 < row["law"] < 21.0 / (1 - 0.2 / 4)
    assert row == calibrate.grid_row(SMALL, 0.5, TINY)


class HerePool:
    """A pool that runs every job at once, in this process."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> HerePool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def shutdown(self, **_: object) -> None: ...

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def fake_row(case: Case, scale: float, protocol: Protocol) -> Row:
    """A row with the right key and made-up numbers: the source's setting is best."""
    s, gamma, n_beta = protocol.step_constant, protocol.gamma, protocol.n_beta
    error = 0.01 if (s, gamma, n_beta) == THE_SOURCE else 0.04
    numbers = dict.fromkeys((n for n, kind in GRID_COLUMNS.items() if kind is float), 1.0)
    whole = {"chains": 2, "steps": 4_000, "burn_in": 1_000, "settled": True}
    key = {"network": case.name, "scale": scale, "step_constant": s}
    return numbers | whole | key | {"gamma": gamma, "n_beta": n_beta, "error": error}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Rows are made up, in this process; the list tells which."""
    calls: list[tuple[Any, ...]] = []

    def row(*job: Any) -> Row:
        calls.append(job)
        return fake_row(*job)

    monkeypatch.setattr(calibrate, "grid_row", row)
    monkeypatch.setattr(calibrate, "ProcessPoolExecutor", HerePool)
    return calls


def test_the_grid_is_written_whole_and_in_order(ran: list[Any], tmp_path: Path) -> None:
    rows = calibrate.run_grid(tmp_path / "data", tmp_path / "runs", workers=1, quiet=True)
    assert len(ran) == 384
    kept = records.read_csv(tmp_path / "data" / gate.GRID, GRID_COLUMNS)
    assert kept == rows == [fake_row(*job) for job in calibrate.grid_settings()]
    calibrate.run_grid(tmp_path / "data", tmp_path / "runs", workers=1, quiet=True)
    assert len(ran) == 384  # nothing is run twice


def test_the_grid_resumes_what_was_interrupted(
    ran: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*job: Any) -> Row:
        if len(ran) == 100:
            raise chains.DeadChain("chain 0 is not finite")
        ran.append(job)
        return fake_row(*job)

    data, runs = tmp_path / "data", tmp_path / "runs"
    with monkeypatch.context() as once:
        once.setattr(calibrate, "grid_row", interrupted)
        with pytest.raises(chains.DeadChain):
            calibrate.run_grid(data, runs, workers=1, quiet=True)
    assert not (data / gate.GRID).exists()  # no half grid
    found = list(runs.glob("*.jsonl"))
    done = len(records.read_jsonl(found[0])[0]) if found else 0
    if found:
        with open(found[0], "a", encoding="utf-8") as stream:
            stream.write('{"network": "torn')  # as a killed run leaves it
    ran.clear()
    rows = calibrate.run_grid(data, runs, workers=1, quiet=True)
    assert len(ran) == 384 - done
    assert rows == [fake_row(*job) for job in calibrate.grid_settings()]


def test_other_code_begins_the_grid_anew(
    ran: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate.run_grid(tmp_path, tmp_path / "runs", workers=1, quiet=True)
    monkeypatch.setattr(gate, "sampler_code_hash", lambda: "0" * 64)
    calibrate.run_grid(tmp_path, tmp_path / "runs", workers=1, quiet=True)
    assert len(ran) == 2 * 384


def test_the_summary_has_a_line_per_setting() -> None:
    rows = [fake_row(*job) for job in calibrate.grid_settings()]
    rows[0]["error"], rows[0]["settled"] = -0.3, False
    summary = calibrate.grid_summary(rows)
    assert len(summary) == 16
    assert sum(line["runs"] for line in summary) == 384
    first = summary[0]
    assert (first["worst_error"], first["median_error"], first["not_settled"]) == (0.3, 0.04, 1)
    assert summary[1]["worst_error"] == 0.04


# --- the freeze -----------------------------------------------------------------------------


@pytest.fixture
def gridded(tmp_path: Path) -> Path:
    """A data folder with a grid."""
    rows = [fake_row(*job) for job in calibrate.grid_settings()]
    records.write_csv(tmp_path / gate.GRID, GRID_COLUMNS, rows)
    return tmp_path


def test_the_freeze_writes_what_the_gate_believes(gridded: Path) -> None:
    document = calibrate.freeze(gridded)
    assert records.read_json(gridded / gate.CALIBRATION) == document
    frozen = gate.read_frozen(gridded)
    assert frozen.settings == asdict(SOURCE)
    assert frozen.sha256 == gate.content_hash(document) == document["sha256"]
    assert document["grid_sha256"] == records.sha256_file(gridded / gate.GRID)
    assert document["code_sha256"] == gate.sampler_code_hash()
    assert document["rule"].startswith("The setting (step constant, gamma, n_beta) to freeze")
    assert len(document["grid_summary"]) == 16
    assert {"numpy", "python", "blas"} <= set(document["versions"])
    assert gate.admit(asdict(SOURCE), data=gridded)["status"] == gate.CALIBRATED


def test_the_freeze_is_once(gridded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate.main(["--freeze"], gridded) == 0
    before = (gridded / gate.CALIBRATION).read_bytes()
    with pytest.raises(ValueError, match=r"calibration.json exists: .* frozen already"):
        calibrate.main(["--freeze"], gridded)
    assert (gridded / gate.CALIBRATION).read_bytes() == before
    assert json.loads(capsys.readouterr().out)["settings"]["step_constant"] == 0.2


def test_there_is_no_freeze_without_a_grid(tmp_path: Path) -> None:
    with pytest.raises(records.RecordError, match=r"calibration_grid.csv: cannot read"):
        calibrate.main(["--freeze"], tmp_path)
    assert not (tmp_path / gate.CALIBRATION).exists()


def test_selected_prints_the_rule_s_choice(
    gridded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate.main(["--selected"], gridded) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"step_constant": 0.2, "gamma": 1.0, "n_beta": 1e4}
    assert not (gridded / gate.CALIBRATION).exists()


# --- the verdicts ---------------------------------------------------------------------------


def judged(
    case: Case | Sloppy,
    monkeypatch: pytest.MonkeyPatch,
    *,
    z: float | None = None,
    error: float | None = None,
) -> Verdict:
    """The verdict on a sampler that reads z deviations off the law, or `error` off the known λ."""

    def reads(model: Any, w: Any, found: Any, protocol: Protocol, **_: Any) -> Any:
        predicted = measure.predict(model, w, found, protocol)
        assert predicted.expected_llc is not None
        assert predicted.standard_deviation is not None
        llc = case.known_llc * (1 + error) if error is not None else predicted.expected_llc
        llc += (z or 0.0) * predicted.standard_deviation
        ends = np.stack([1.01 * w, 0.99 * w])
        where = {"distances": np.array([[0.0, 2.0], [0.0, 4.0]]), "end_points": ends}
        return SimpleNamespace(llc=llc, standard_error=0.1, settled=True, **where)

    monkeypatch.setattr(calibrate.measure, "sample", reads)
    return calibrate_case(case, SOURCE)


LINEAR = Case("linear", "frozen", 5, 4, 20)


@pytest.mark.parametrize(("z", "passes"), [(0, True), (3.99, True), (-3.99, True), (4.01, False)])
def test_a_linear_network_must_lie_within_4_deviations_of_the_law(
    monkeypatch: pytest.MonkeyPatch, z: float, passes: bool
) -> None:
    verdict = judged(LINEAR, monkeypatch, z=z)
    assert verdict.linear
    assert verdict.z == pytest.approx(z, abs=1e-9)
    assert verdict.distance == 3.0
    assert verdict.law_at_ends is None
    assert (verdict.failures == ()) == passes
    if not passes:
        assert verdict.failures == ("z = +4.0 against the exact law",)


@pytest.mark.parametrize(
    ("error", "passes"), [(0.0, True), (0.049, True), (-0.049, True), (0.051, False), (-0.2, False)]
)
def test_a_teacher_must_lie_within_5_percent_of_the_known_llc(
    monkeypatch: pytest.MonkeyPatch, error: float, passes: bool
) -> None:
    verdict = judged(SMALL, monkeypatch, error=error)
    assert verdict.error == pytest.approx(error, abs=1e-12)
    assert (verdict.failures == ()) == passes
    if not passes:
        assert verdict.failures == (f"error {error:+.1%} against the known λ",)


def test_a_teacher_far_from_the_law_is_explained_and_not_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near = judged(CASES[1], monkeypatch, error=0.0)
    far = judged(CASES[1], monkeypatch, error=0.049)
    assert abs(near.z) <= 4 < far.z
    assert near.law_at_ends is None
    # The end points are w* scaled by 1 % either way: the spectra there move by a few per cent.
    assert far.law_at_ends == pytest.approx(far.law, rel=0.1)
    assert far.failures == ()
    assert "where the spectra predict" in calibrate.table([far])
    assert "where the spectra predict" not in calibrate.table([near])


@pytest.mark.parametrize("case", [LINEAR, SMALL])
def test_a_reading_that_is_no_number_fails(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    assert judged(case, monkeypatch, error=float("nan")).failures


def test_a_rank_that_contradicts_the_known_llc_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Case):
        @property
        def known_llc(self) -> float:
            return 21.5

    verdict = judged(Wrong("wrong", "gaussian", 5, 3, 300), monkeypatch, error=0.0)
    assert verdict.failures == ("½rank 21.0 is not the known λ 21.5",)


def test_a_sloppy_network_is_judged_by_the_law_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sloppy = Sloppy("tiny", 2, 40, 50, 1.0)
    verdict = judged(sloppy, monkeypatch, z=3.0)
    assert verdict.failures == ()
    assert verdict.law < 0.9 * verdict.known_llc  # half its curvatures are below gamma/n_beta
    assert verdict.error == pytest.approx(verdict.llc / verdict.law - 1)
    assert verdict.flat_share == pytest.approx(0.6, abs=0.03)  # 1..1e-10 against 1e-4
    assert judged(sloppy, monkeypatch, z=5.0).failures == ("z = +5.0 against the exact law",)


def test_a_real_run_is_judged_the_same_way() -> None:
    verdict = calibrate_case(LINEAR, Protocol(n_beta=1e3, gamma=1.0, steps=2_000, burn_in=500))
    assert verdict.failures == ()
    assert verdict.half_rank == verdict.known_llc == 10.0


# --- the command ----------------------------------------------------------------------------


def a_verdict(case: Case | Sloppy, _: Protocol = SOURCE, **changes: Any) -> Verdict:
    plain = Verdict(
        name=case.name,
        known_llc=10.0,
        origin=case.origin,
        linear=case.linear,
        half_rank=10.0,
        law=10.0,
        llc=10.1,
        standard_error=0.1,
        z=1.0,
        error=0.01,
        flat_share=0.0,
        distance=0.5,
        law_at_ends=None,
        settled=True,
        failures=(),
    )
    return replace(plain, **changes)


@pytest.fixture
def all_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "calibrate_case", a_verdict)


@pytest.fixture
def one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(case: Case | Sloppy, protocol: Protocol) -> Verdict:
        bad = case is CASES[3]
        return a_verdict(case, failures=("error +9.0% against the known λ",) if bad else ())

    monkeypatch.setattr(calibrate, "calibrate_case", verdict)


@pytest.fixture
def frozen_by_other_code(gridded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings frozen before the code changed."""
    with monkeypatch.context() as before:
        before.setattr(gate, "sampler_code_hash", lambda: "0" * 64)
        calibrate.freeze(gridded)
    return gridded


def names_in(text: str) -> list[str]:
    return [network["name"] for network in json.loads(text)["networks"]]


@pytest.mark.usefixtures("all_pass")
def test_every_network_is_run_at_the_source_s_setting_before_the_freeze(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate.main(["--json", "--quiet"], tmp_path) == 0
    document = json.loads(text := capsys.readouterr().out)
    assert document["settings"] == asdict(SOURCE)
    assert document["frozen"] is False
    assert names_in(text) == [case.name for case in (*CASES, *SLOPPY)]
    assert not (tmp_path / gate.PASSES).exists()


@pytest.mark.usefixtures("all_pass")
def test_network_chooses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--network", "sloppy_low", "--network", "gaussian_7_6"]
    assert calibrate.main(["--json", "--quiet", *chosen], tmp_path) == 0
    assert names_in(capsys.readouterr().out) == ["gaussian_7_6", "sloppy_low"]


@pytest.mark.usefixtures("all_pass")
def test_an_unknown_network_is_refused(tmp_path: Path) -> None:
    words = "unknown network nobody: choose from gaussian_5_3, .*sloppy_low"
    with pytest.raises(ValueError, match=words):
        calibrate.main(["--network", "nobody", "--network", "gaussian_5_3"], tmp_path)


@pytest.mark.usefixtures("one_fails")
def test_a_failure_is_told_and_is_exit_status_1(
    frozen_by_other_code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate.main(["--quiet"], frozen_by_other_code) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "FAILED" in line] == [
        line for line in lines if line.startswith("one_hot_11_6")
    ]
    assert not (frozen_by_other_code / gate.PASSES).exists()


@pytest.mark.usefixtures("all_pass", "capsys")
def test_a_pass_at_the_frozen_settings_is_recorded_once(frozen_by_other_code: Path) -> None:
    data = frozen_by_other_code
    with pytest.raises(gate.GateClosed, match="passed no calibration"):
        gate.admit(asdict(SOURCE), data=data)
    assert calibrate.main(["--quiet", "--network", "frozen_11_44"], data) == 0
    assert not (data / gate.PASSES).exists()  # one network is not the calibration
    for _ in range(2):
        assert calibrate.main(["--quiet"], data) == 0
        (entry,) = gate.read_passes(data)
    assert entry["code_sha256"] == gate.sampler_code_hash()
    assert entry["calibration_sha256"] == gate.read_frozen(data).sha256
    assert (entry["largest_z_of_linear"], entry["worst_error"]) == (1.0, 0.01)
    assert gate.admit(asdict(SOURCE), data=data)["status"] == gate.CALIBRATED


@pytest.mark.usefixtures("all_pass", "capsys")
def test_the_code_of_the_freeze_needs_no_pass(gridded: Path) -> None:
    calibrate.freeze(gridded)
    assert calibrate.main(["--quiet"], gridded) == 0
    assert not (gridded / gate.PASSES).exists()


@pytest.mark.usefixtures("all_pass")
def test_passes_of_several_codes_are_all_kept(
    frozen_by_other_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = ["1" * 64, "2" * 64, "1" * 64]
    for code in codes:
        monkeypatch.setattr(gate, "sampler_code_hash", lambda code=code: code)
        calibrate.main(["--quiet"], frozen_by_other_code)
    assert [e["code_sha256"] for e in gate.read_passes(frozen_by_other_code)] == codes[:2]


@pytest.mark.usefixtures("all_pass")
def test_edited_settings_are_not_calibrated_with(frozen_by_other_code: Path) -> None:
    path = frozen_by_other_code / gate.CALIBRATION
    path.write_text(path.read_text().replace('"gamma": 1.0', '"gamma": 10.0', 1))
    with pytest.raises(gate.GateClosed, match="was edited"):
        calibrate.main(["--quiet"], frozen_by_other_code)


def test_options_may_not_be_shortened(gridded: Path) -> None:
    with pytest.raises(ValueError, match="unrecognized arguments: --free"):
        calibrate.main(["--free"], gridded)
    assert not (gridded / gate.CALIBRATION).exists()


def test_processes_change_nothing() -> None:
    options = calibrate.parse(
        ["--quiet", "--network", "gaussian_5_3", "--network", "gaussian_3_20"]
    )
    alone = calibrate.run_cases(options, TINY)
    options.workers = 2
    assert calibrate.run_cases(options, TINY) == alone


# --- the resolution -------------------------------------------------------------------------


def test_the_straddling_networks_have_the_flat_shares_asked() -> None:
    cases = list(calibrate.resolution_cases(SOURCE))
    assert [name for name, *_ in cases[:2]] == ["sloppy_wide", "sloppy_low"]
    for (name, model, w, llc), share in zip(cases[2:], calibrate.FLAT_SHARES, strict=True):
        found = measure.read_curvature(model, w)
        assert found.h is not None and found.rank == 2 * llc == 588
        below = np.mean(found.h[: found.rank] < SOURCE.resolution)
        assert below == pytest.approx(share, abs=1 / 588), name


def test_the_resolution_is_measured_written_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sharp, flat = Sloppy("sharp", 2, 4, 20, 1e8), Sloppy("flat", 2, 12, 20, 1e-1)
    monkeypatch.setattr(
        calibrate,
        "resolution_cases",
        lambda _: [(c.name, *c.build(), c.known_llc) for c in (sharp, flat)],
    )
    monkeypatch.setattr(calibrate, "null_cases", lambda _: [("null", *SMALL.build(), 21.0)])
    monkeypatch.setattr(calibrate, "SOURCE", replace(SOURCE, steps=2_000, burn_in=400))
    assert calibrate.main(["--resolution", "--quiet"], tmp_path) == 0
    said = capsys.readouterr().out
    rows = records.read_csv(tmp_path / calibrate.RESOLUTION, calibrate.RESOLUTION_COLUMNS)
    nulls, _ = records.read_jsonl(tmp_path / calibrate.NULL)
    assert [row["network"] for row in rows] == ["sharp", "flat"]
    assert [row["network"] for row in nulls] == ["null"]
    for row in (*rows, *nulls):
        assert abs(row["llc"] - row["law"]) <= 4 * row["law_sd"] or row["network"] == "null"
        assert row["share_of_known"] == row["llc"] / row["known_llc"]
        assert row["share_of_law"] == row["llc"] / row["law"]
    assert rows[0]["flat_share"] == 0.0
    assert rows[1]["flat_share"] == pytest.approx(8 / 12)
    assert rows[1]["share_of_known"] < 0.6
    assert "the lowest read 0." in said
    assert "an effective dimension at this resolution, not λ" in said


def test_the_nulls_are_read_at_the_source_settings_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "resolution_cases", lambda _: [])
    monkeypatch.setattr(calibrate, "null_cases", lambda _: [("null", *SMALL.build(), 21.0)])
    source = replace(SOURCE, steps=300, burn_in=50)
    monkeypatch.setattr(calibrate, "SOURCE", source)
    at = replace(source, gamma=10.0, step_constant=0.5)
    rows = calibrate.run_resolution(tmp_path, at, 1, quiet=True)
    assert [(row["gamma"], row["step_constant"]) for row in rows] == [(10.0, 0.5), (1.0, 0.2)]


def test_the_early_setting_is_read_on_every_known_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "CASES", (SMALL,))
    monkeypatch.setattr(calibrate, "GRID_LENGTH", {"chains": 2, "steps": 200, "burn_in": 50})
    assert calibrate.main(["--early", "--quiet"], tmp_path) == 0
    rows = records.read_csv(tmp_path / calibrate.EARLY, calibrate.GRID_COLUMNS)
    asked = [(row["scale"], row["n_beta"], row["gamma"], row["step_constant"]) for row in rows]
    assert asked == [(0.3, 100.0, 1.0, 0.2), (0.3, 100.0, 1.0, 0.5)]


def test_the_source_settings_record_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "CASES", (SMALL,))
    monkeypatch.setattr(calibrate, "SLOPPY", ())
    assert calibrate.main(["--source-settings", "--json", "--quiet"], tmp_path) == 0
    (network,) = json.loads(capsys.readouterr().out)["networks"]
    assert {name: network[name] for name in asdict(SOURCE)} == asdict(SOURCE)
    assert not (tmp_path / gate.PASSES).exists()


def resolved(flat_share: float, share_of_known: float) -> Row:
    plain = dict.fromkeys(calibrate.RESOLUTION_COLUMNS, 1.0)
    shares = {"flat_share": flat_share, "share_of_known": share_of_known}
    return plain | {"network": "a"} | shares


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(0.0, 1.01), (0.05, 0.96), (0.25, 0.8)], "only where at most 5% of the curvatures"),
        ([(0.25, 0.8), (0.5, 0.6)], "No reading was within 5% of λ; the lowest read 0.60 of λ"),
    ],
)
def test_the_words_follow_from_the_rows(rows: list[tuple[float, float]], words: str) -> None:
    assert words in calibrate.resolution_words([resolved(*row) for row in rows])


# --- mutants --------------------------------------------------------------------------------
# A copy of the sources with one line changed must fail the calibration at full length: patched in
# the file, run as a user would run it.

MUTANTS = {
    "√ε → ε": (
        "frozen_11_44",
        "sgld.py",
        "half_eps, root_eps = 0.5 * settings.step, settings.step**0.5",
        "half_eps, root_eps = 0.5 * settings.step, settings.step",
    ),
    "drift without ½": (
        "frozen_11_44",
        "sgld.py",
        "half_eps, root_eps = 0.5 * settings.step, settings.step**0.5",
        "half_eps, root_eps = settings.step, settings.step**0.5",
    ),
    "no gamma": ("sloppy_low", "sgld.py", "            force += spring\n", ""),
    "loss without ½, linear": (
        "frozen_11_44",
        "qnet.py",
        "        return 0.5 * self.hessian_scale * np.vecdot(flat, flat), grad",
        "        return self.hessian_scale * np.vecdot(flat, flat), grad",
    ),
    "loss without ½, quadratic": (
        "gaussian_5_3",
        "qnet.py",
        "        loss = 0.5 * self.hessian_scale * np.vecdot(flat, flat)\n",
        "        loss = self.hessian_scale * np.vecdot(flat, flat)\n",
    ),
    "outputs not centred": ("one_hot_7_14", "qnet.py", "        f -= self._mean_row @ f\n", ""),
    "burn-in included": (
        "sloppy_wide",
        "chains.py",
        "    excess = n_beta * (traces[:, burn_in:] - loss_at_reference)\n",
        "    excess = n_beta * (traces[:, 0:] - loss_at_reference)\n",
    ),
}


def calibrated(folder: Path, *networks: str) -> subprocess.CompletedProcess[str]:
    """`python calibrate.py` on these networks, in a copy of the sources and frozen settings."""
    (folder / "data").mkdir()
    for path in (*gate.HERE.glob("*.py"), gate.DATA / gate.CALIBRATION, gate.DATA / gate.GRID):
        copy = folder / path.relative_to(gate.HERE)
        if path.exists() and not copy.exists():  # what is there already is the mutant
            shutil.copy(path, copy)
    chosen = [word for name in networks for word in ("--network", name)]
    command = [sys.executable, "calibrate.py", "--quiet", *chosen]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)


def test_the_sampler_as_it_is_passes_where_the_mutants_fail(tmp_path: Path) -> None:
    networks = {network for network, *_ in MUTANTS.values()}
    done = calibrated(tmp_path, *networks)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" ok\n") == len(networks)
    assert "FAILED" not in done.stdout


@pytest.mark.parametrize(("network", "file", "line", "mutant"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_fails_the_calibration(
    tmp_path: Path, network: str, file: str, line: str, mutant: str
) -> None:
    source = (gate.HERE / file).read_text(encoding="utf-8")
    assert source.count(line) == 1
    (tmp_path / file).write_text(source.replace(line, mutant), encoding="utf-8")
    done = calibrated(tmp_path, network)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout or done.stderr.startswith("error: ")
