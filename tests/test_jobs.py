"""Jobs: done once, kept, taken up again; a failure of one is its row and no other's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import jobs
import records
import spectra
import tables
from jobs import Job, Setup
from networks import Size

TABLE = "fourier"


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path / "data", tmp_path / "runs", quiet=True)


class Work:
    """A work function that keeps a diary: p -> its rows, failing for some p."""

    def __init__(self, failing: dict[int, Exception] | None = None) -> None:
        self.calls: list[int] = []
        self.failing = failing or {}

    def __call__(self, p: int, *_: Any) -> list[jobs.Row]:
        self.calls.append(p)
        if p in self.failing:
            raise self.failing[p]
        return [{"K": p * 10}, {"K": p * 10 + 1}]


def todo(*ps: int, **changes: Any) -> list[Job]:
    return [Job(f"p{p}", (p, *changes.values()), {"p": p}, seconds=p) for p in ps]


def test_rows_come_in_the_order_of_the_jobs_and_go_to_the_table(setup: Setup) -> None:
    work = Work()
    rows = jobs.finish(setup, "s", TABLE, work, todo(5, 11, 7))
    assert work.calls == [11, 7, 5]  # the longest first
    assert [(r["p"], r["K"]) for r in rows] == [
        (5, 50),
        (5, 51),
        (11, 110),
        (11, 111),
        (7, 70),
        (7, 71),
    ]
    assert records.read_csv(setup.data / "fourier.csv", tables.types(TABLE)) == rows


def test_what_is_finished_is_not_done_again(setup: Setup) -> None:
    first = jobs.finish(setup, "s", TABLE, Work(), todo(5, 7))
    again = Work()
    assert jobs.finish(setup, "s", TABLE, again, todo(5, 7)) == first
    assert again.calls == []


def test_an_interruption_keeps_what_was_finished(setup: Setup) -> None:
    with pytest.raises(KeyboardInterrupt):
        jobs.finish(setup, "s", TABLE, Work({5: KeyboardInterrupt()}), todo(5, 7, 11))  # type: ignore[dict-item]
    assert not (setup.data / "fourier.csv").exists()
    resumed = Work()
    assert len(jobs.finish(setup, "s", TABLE, resumed, todo(5, 7, 11))) == 6
    assert resumed.calls == [5]


@pytest.mark.parametrize(
    "changed",
    [
        todo(5, gamma=2.0),
        [Job("p5", (5,), {"p": 5, "checkpoint_sha256": "other weights"})],
    ],
)
def test_another_identity_is_done_anew(setup: Setup, changed: list[Job]) -> None:
    jobs.finish(setup, "s", TABLE, Work(), todo(5))
    work = Work()
    jobs.finish(setup, "s", TABLE, work, changed)
    assert work.calls == [5]


def test_the_code_that_counts_is_the_one_named() -> None:
    job, without = Job("p5", (5,)), Job("p5", (5,), code=jobs.NO_SAMPLER)
    assert job.identity(TABLE) == Job("p5", (5,), code=jobs.CODE).identity(TABLE)
    assert job.identity(TABLE) != without.identity(TABLE)
    assert {"sgld.py", "chains.py"} == set(jobs.CODE) - set(jobs.NO_SAMPLER)


def test_other_code_or_columns_are_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("p5", (5,))
    before = job.identity(TABLE)
    assert job.identity("networks") != before
    monkeypatch.setattr(records, "code_hash", lambda paths: "other code")
    assert job.identity(TABLE) != before


def test_a_folder_is_no_part_of_the_identity_and_a_size_is() -> None:
    def identity(*arguments: Any) -> jobs.Row:
        return Job("k", arguments).identity(TABLE)

    size = Size(5, 8, 0.8)
    assert identity(size, Path("/a")) == identity(size, Path("/b"))
    assert identity(size) != identity(Size(5, 9, 0.8))
    assert records.to_json(identity(size))  # plain JSON


@pytest.mark.parametrize("error", [RuntimeError("chain 0 died\nat once"), ArithmeticError("ε")])
def test_a_failure_is_a_row_and_the_others_go_on(setup: Setup, error: Exception) -> None:
    rows = jobs.finish(setup, "s", TABLE, Work({7: error}), todo(5, 7, 11))
    assert [r["p"] for r in rows] == [5, 5, 7, 11, 11]
    failed = rows[2]
    assert failed["error"] == f"{type(error).__name__}: {' '.join(str(error).split())}"
    assert failed["K"] is None
    again = Work()
    assert jobs.finish(setup, "s", TABLE, again, todo(5, 7, 11)) == rows
    assert again.calls == []  # the failure is a result too


def test_a_job_whose_network_failed_is_a_row_without_work(setup: Setup) -> None:
    broken = Job("p5", (5,), {"p": 5, "error": "TrainingFailed: collapsed"})
    work = Work()
    rows = jobs.finish(setup, "s", TABLE, work, [broken, *todo(7)])
    assert work.calls == [7]
    assert [(r["p"], r["error"]) for r in rows] == [
        (5, "TrainingFailed: collapsed"),
        (7, ""),
        (7, ""),
    ]


def test_a_failure_that_is_not_the_networks_own_stops_the_study(setup: Setup) -> None:
    with pytest.raises(MemoryError):
        jobs.finish(setup, "s", TABLE, Work({5: MemoryError("1 TB")}), todo(5))
    assert not list((setup.runs / "studies" / "s").glob("*.json"))


def test_refuses_two_jobs_of_one_key_and_no_workers(setup: Setup) -> None:
    with pytest.raises(ValueError, match="two jobs are called p5"):
        jobs.run(setup, "s", TABLE, Work(), todo(5, 5))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        jobs.run(Setup(setup.data, setup.runs, workers=0), "s", TABLE, Work(), todo(5))


def test_a_result_of_another_hand_is_done_anew(setup: Setup) -> None:
    jobs.run(setup, "s", TABLE, Work(), todo(5))
    path = setup.runs / "studies" / "s" / "p5.json"
    records.write_json(path, records.read_json(path) | {"identity": "somebody"})
    work = Work()
    jobs.run(setup, "s", TABLE, work, todo(5))
    assert work.calls == [5]


def test_processes_give_the_same_rows(tmp_path: Path) -> None:
    chosen = [Job(f"p5_{k}", (5, k), {"p": 5, "per_frequency": k}) for k in (4, 6)]
    rows = []
    for workers in (1, 2):
        own = Setup(tmp_path / str(workers), tmp_path / f"runs{workers}", workers, quiet=True)
        rows.append(jobs.finish(own, "fourier", TABLE, spectra.fourier_work, chosen))
    for one, two in zip(*rows, strict=True):
        for name in ("rank", "exact_rank_ideal", "exact_rank_stored", "formula_inside"):
            assert one[name] == two[name]


def test_processes_get_one_blas_thread_and_the_parent_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with jobs._one_blas_thread():
        assert {os.environ[name] for name in jobs.ONE_THREAD} == {"1"}
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_a_worker_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Parent:
        def join(self) -> None:
            told.append("waited")

    monkeypatch.setattr("multiprocessing.parent_process", Parent)
    monkeypatch.setattr("os._exit", lambda status: told.append(f"exit {status}"))
    jobs._end_with_parent()
    assert told == ["waited", "exit 1"]
    monkeypatch.setattr("multiprocessing.parent_process", lambda: None)
    jobs._end_with_parent()  # the parent itself never ends
    assert told == ["waited", "exit 1"]


def test_progress_is_in_estimated_seconds(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    class Progress:
        def __init__(self, label: str, total: int, *, quiet: bool) -> None:
            told.append(total)

        def __enter__(self) -> Any:
            return told.append

        def __exit__(self, *_: Any) -> None:
            pass

    monkeypatch.setattr("console.progress", Progress)
    jobs.run(setup, "s", TABLE, Work(), todo(5, 7))
    assert told == [12, 7, 5]
