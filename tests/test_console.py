"""console.py: progress with and without tqdm, one line per error, exit statuses."""

from __future__ import annotations

import builtins
import errno
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import console

ROOT = Path(__file__).resolve().parent.parent
Capture = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that stands until it is moved: call with seconds."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


@pytest.fixture
def without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name == "tqdm":
            raise ImportError("No module named 'tqdm'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)


# --- progress -------------------------------------------------------------------------------


def test_plain_lines_say_how_far_and_how_long(
    clock: Callable[[float], None], capsys: Capture
) -> None:
    with console.progress("sampling", 200) as report:  # pytest's stderr is no terminal
        report(0)
        clock(4.0)
        report(20)  # too soon for a line
        clock(4.0)
        report(30)
        clock(5.0)
        report(50)
    assert capsys.readouterr().err.splitlines() == [
        "sampling: started",
        "sampling: 25 %, about 24 s left",  # 50 of 200 in 8 s
        "sampling: 50 %, about 13 s left",
    ]


def test_more_done_than_announced_is_no_negative_time(
    clock: Callable[[float], None], capsys: Capture
) -> None:
    with console.progress("training", 10) as report:
        clock(6.0)
        report(20)
    assert capsys.readouterr().err.splitlines()[-1] == "training: 200 %, about 0 s left"


def test_nothing_done_yet_is_no_division_by_zero(
    clock: Callable[[float], None], capsys: Capture
) -> None:
    with console.progress("training", 10) as report:
        clock(60.0)
        report(0)
    assert capsys.readouterr().err == "training: started\n"


def test_a_terminal_without_tqdm_gets_plain_lines(
    without_tqdm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with console.progress("sampling", 10) as report:
        report(10)
    assert screen.getvalue() == "sampling: started\n"


def test_a_terminal_with_tqdm_gets_a_bar_that_is_wiped_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tqdm: Any = pytest.importorskip("tqdm").tqdm
    bars: list[Any] = []

    def recorded(**options: Any) -> Any:
        bars.append(tqdm(**options))
        return bars[-1]

    screen = Terminal()
    monkeypatch.setattr(console, "_tqdm", lambda: recorded)
    monkeypatch.setattr(sys, "stderr", screen)
    with console.progress("sampling", 10) as report:
        report(4)
        report(3)
    (bar,) = bars
    assert (bar.n, bar.total, bar.desc, bar.leave) == (7, 10, "sampling", False)
    assert "sampling" in screen.getvalue()


def test_a_log_file_gets_no_bar(capsys: Capture) -> None:
    pytest.importorskip("tqdm")
    with console.progress("sampling", 10) as report:
        report(10)
    assert "\r" not in capsys.readouterr().err


def test_quiet_is_silent(clock: Callable[[float], None], capsys: Capture) -> None:
    with console.progress("sampling", 10, quiet=True) as report:
        clock(60.0)
        report(5)
    assert capsys.readouterr() == ("", "")


# --- errors and exit statuses ---------------------------------------------------------------


def raising(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


FULL = OSError(errno.ENOSPC, "No space left on device")
DENIED = PermissionError(errno.EACCES, "Permission denied", "data/x.json")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("p must be at least 2, got 1"), 2, "error: p must be at least 2, got 1"),
        (ValueError("two\n  lines"), 2, "error: two lines"),
        (RuntimeError("chain 3 died"), 1, "error: chain 3 died"),
        (ArithmeticError("unstable step"), 1, "error: unstable step"),
        (MemoryError("needs 8 GB"), 1, "error: needs 8 GB"),
        (MemoryError(), 1, "error: out of memory; use a smaller network"),
        (
            FloatingPointError("overflow encountered in square"),
            1,
            "error: overflow encountered in square: a setting or a weight is outside the range of "
            "float64",
        ),
        (FULL, 1, "error: No space left on device"),
        (DENIED, 1, "error: Permission denied (data/x.json)"),
        (caused_by(ValueError("x.npz: cannot write"), DENIED), 2, "error: x.npz: cannot write"),
        (caused_by(ValueError("x.npz: cannot write"), FULL), 1, "error: x.npz: cannot write"),
        (KeyError("rank"), 1, "error: KeyError: 'rank'; this is a defect: --debug shows where"),
        (RuntimeError(), 1, "error: RuntimeError: ; this is a defect: --debug shows where"),
        (
            KeyboardInterrupt(),
            1,
            "interrupted: what was finished is kept; the same command resumes",
        ),
    ],
)
def test_an_error_is_one_line_and_a_status(
    error: BaseException, status: int, line: str, capsys: Capture
) -> None:
    assert console.run(raising(error)) == status
    assert capsys.readouterr() == ("", line + "\n")


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), FULL, KeyboardInterrupt()])
def test_debug_lets_the_exception_through(error: BaseException, capsys: Capture) -> None:
    with pytest.raises(type(error)):
        console.run(raising(error), debug=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("status", [0, 1])
def test_the_status_of_main_is_passed_on(status: int, capsys: Capture) -> None:
    assert console.run(lambda: status) == status
    assert capsys.readouterr() == ("", "")


def test_help_ends_the_program_with_status_0() -> None:
    def main() -> int:
        console.Arguments().parse_args(["--help"])
        return 1

    with pytest.raises(SystemExit) as left:
        console.run(main)
    assert left.value.code == 0


# --- the command line -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["--step", "3"], "unrecognized arguments: --step 3"),  # no abbreviations
        (["--steps"], "argument --steps: expected one argument"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: list[str], words: str) -> None:
    parser = console.Arguments()
    parser.add_argument("--steps", type=int)
    with pytest.raises(ValueError) as refused:
        parser.parse_args(arguments)
    assert str(refused.value) == f"{words} (--help lists the options)"


# --- what only a process of its own can show ------------------------------------------------

SCRIPT = """
import sys, console
def main():
    print("λ̂ = ½Σ" if len(sys.argv) < 2 else "line\\n" * 100_000)
    return 0
sys.exit(console.run(main))
"""


def run_script(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, **options)


def test_a_letter_the_terminal_lacks_is_a_question_mark() -> None:
    done = run_script(stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "?? = ??\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = run_script(stdout=full)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_a_reader_that_leaves_early_is_no_news() -> None:
    command = [sys.executable, "-c", SCRIPT, "long"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1
