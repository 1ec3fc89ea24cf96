"""Long work as many jobs: in processes, one file per finished job, so nothing is done twice.

A study is a list of jobs. Each finished job is kept in runs/studies/<study>/<key>.json with the
identity it was done under (arguments, hash of the code, of the network, settings); the same
identity later means the same rows, without work. A job that fails for a reason of its own leaves
its reason in place of rows, and the other jobs go on.

Symbols
    job        one call of the study's work function
    known      columns of its rows that are known before it runs
    identity   whatever decides its result, as plain JSON
    rows       what it returns: dictionaries of plain values, one per line of a table
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import console
import records
import tables

Row = dict[str, Any]
Work = Callable[..., list[Row]]

FAILURES = (ArithmeticError, RuntimeError)  # a network's own; anything else stops the study
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


NO_SAMPLER = ("qnet.py", "theory.py", "curvature.py", "train.py", "exact_rank.py")
CODE = (*NO_SAMPLER, "chains.py", "sgld.py")
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Setup:
    """Where a study reads and writes, and how it runs."""

    data: Path = HERE / "data"
    runs: Path = HERE / "runs"
    workers: int = 1
    quiet: bool = False


class Study(NamedTuple):
    """A study of the command line: the table it fills, and what fills it."""

    table: str
    run: Callable[[Setup], list[Row]]


@dataclass(frozen=True)
class Job:
    """One call `work(*arguments)`, kept under `key`; with an error in `known` it is not made.

    Arguments are plain values, dataclasses of such, or folders; folders do not count for the
    identity. `seconds` is an estimate on one core: the longest go first, and it measures progress.
    """

    key: str
    arguments: tuple[Any, ...] = ()
    known: Row = field(default_factory=dict)
    seconds: float = 1.0
    code: tuple[str, ...] = CODE  # files the result is of; changed, it is made anew

    def identity(self, table: str) -> Row:
        """Whatever decides the rows this job makes for a table, as plain JSON."""
        plain = [_plain(argument) for argument in self.arguments]
        identity = {
            "arguments": [a for a in plain if not isinstance(a, Path)],
            "network": self.known.get("checkpoint_sha256", ""),
            "code_sha256": records.code_hash([HERE / name for name in self.code]),
            "columns": list(tables.TABLES[table]),
        }
        return dict(json.loads(records.to_json(identity)))  # as a file gives it back


def _plain(argument: Any) -> Any:
    """A job's argument in JSON's own types."""
    if is_dataclass(argument) and not isinstance(argument, type):
        return asdict(argument)
    return argument


@dataclass(frozen=True)
class Done:
    """What a job left: its rows, or the error in their place."""

    rows: list[Row]
    error: str = ""


def finish(setup: Setup, study: str, table: str, work: Work, todo: Sequence[Job]) -> list[Row]:
    """Run the jobs and write data/<table>.csv: the rows of each, or one row with its error."""
    results = run(setup, study, table, work, [job for job in todo if not job.known.get("error")])
    rows = []
    for job in todo:
        done = results.get(job.key, Done([], job.known.get("error", "")))
        found = [{"error": done.error}] if done.error else done.rows
        rows += [tables.row(table, job.known, row) for row in found]
    records.write_csv(setup.data / f"{table}.csv", tables.types(table), rows)
    return rows


def run(setup: Setup, study: str, table: str, work: Work, todo: Sequence[Job]) -> dict[str, Done]:
    """Do what is missing of the jobs, `workers` at a time; key -> result, in the order of the jobs.

    Raises ValueError when two jobs share a key or workers < 1. An exception outside FAILURES, such
    as a full disk or memory, ends the run; what was finished is kept.
    """
    keys = [job.key for job in todo]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"two jobs are called {twice}: every job needs a key of its own")
    if setup.workers < 1:
        raise ValueError(f"workers must be at least 1, got {setup.workers}")
    folder = setup.runs / "studies" / study
    identities = {job.key: job.identity(table) for job in todo}
    kept = {job.key: _kept(folder, job.key, identities[job.key]) for job in todo}
    missing = sorted((job for job in todo if kept[job.key] is None), key=lambda job: -job.seconds)
    total = sum(map(_units, missing))
    with console.progress(study, total, quiet=setup.quiet or not missing) as report:
        for job, done in _results(missing, work, setup.workers):
            content = {"identity": identities[job.key], "rows": done.rows, "error": done.error}
            records.write_json(folder / f"{job.key}.json", content)
            kept[job.key] = _kept(folder, job.key, identities[job.key])
            report(_units(job))
    return {key: done for key, done in kept.items() if done is not None}


def _kept(folder: Path, key: str, identity: Row) -> Done | None:
    """What the job left earlier; None when it was not done, or under another identity."""
    path = folder / f"{key}.json"
    if not path.exists():
        return None
    content = records.read_json(path)
    return Done(content["rows"], content["error"]) if content["identity"] == identity else None


def _units(job: Job) -> int:
    return max(1, round(job.seconds))


def _results(jobs: Sequence[Job], work: Work, workers: int) -> Iterator[tuple[Job, Done]]:
    """Every job with its result, as they are finished."""
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, attempt(work, job.arguments)
        return
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_enter_worker
    )
    try:
        with _one_blas_thread():
            waiting: dict[Future[Done], Job] = {
                pool.submit(attempt, work, job.arguments): job for job in jobs
            }
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def attempt(work: Work, arguments: tuple[Any, ...]) -> Done:
    """work(*arguments), or why it failed for a reason of its own."""
    try:
        return Done(work(*arguments))
    except FAILURES as error:
        return Done([], words(error))


def words(error: Exception) -> str:
    """An error as the cell of a table: its class and its message in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _enter_worker() -> None:
    """In a worker: end at once on Ctrl-C, the parent says what happened, and when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nobody is left to take a result: an idle worker would wait for ever


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Processes started inside use one BLAS thread: the jobs are the parallelism."""
    saved = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
