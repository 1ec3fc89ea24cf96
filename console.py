"""What people see while they wait: progress with time left, and errors in one line, on stderr.

stdout is left to tables and JSON. tqdm draws the bars where it is installed and stderr is a
terminal; anywhere else a plain line is printed at the start and every few seconds.

Exit status of every script: 0 done · 1 a measurement failed · 2 the command or its input is wrong.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

Progress = Callable[[int], None]

PLAIN_SECONDS = 5.0  # between two plain progress lines
FAILED, BAD_USE = 1, 2
DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}


# ---- progress ----------------------------------------------------------------------------------


@contextmanager
def progress(label: str, total: int, *, quiet: bool = False) -> Iterator[Progress]:
    """Progress over `total` units: call the yielded function with the number of units just done."""
    if quiet:
        yield _silent
        return
    tqdm = _tqdm()
    if tqdm is None or not sys.stderr.isatty():
        yield _plain_lines(label, total)
        return
    with tqdm(total=total, desc=label, file=sys.stderr, leave=False, unit_scale=True) as bar:

        def advance(done: int) -> None:
            bar.update(done)

        yield advance


def _tqdm() -> Any:
    """The class tqdm, or None where it is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm


def _silent(done: int) -> None:
    """Progress that nobody watches."""


def _plain_lines(label: str, total: int) -> Progress:
    started = last = time.monotonic()
    done = 0
    say(f"{label}: started")

    def update(more: int) -> None:
        nonlocal done, last
        done += more
        now = time.monotonic()
        if done and now - last >= PLAIN_SECONDS:
            last = now
            left = (now - started) * max(0, total - done) / done
            say(f"{label}: {100 * done / total:.0f} %, about {left:.0f} s left")

    return update


def say(text: str) -> None:
    """One line to a person, on stderr."""
    print(text, file=sys.stderr, flush=True)


# ---- the frame around every script -------------------------------------------------------------


class Arguments(argparse.ArgumentParser):
    """A command line whose mistakes are one line, like every other mistake; no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise ValueError in place of printing the usage."""
        raise ValueError(f"{message} (--help lists the options)")


def run(main: Callable[[], int], *, debug: bool = False) -> int:
    """Run a script's main and turn what it raises into one line on stderr and an exit status.

    ValueError is bad use (2): an unknown file, a wrong shape, a setting out of range. Everything
    else is a failed measurement (1): a dead chain, an unstable step, no memory, a full disk,
    Ctrl-C. With `debug` the exception passes through with its traceback.
    """
    _never_fail_on_a_letter()
    try:
        status = main()
        _flush()
        return status
    except BrokenPipeError:  # the reader of our output has gone, as in `... | head -n 1`
        with suppress(OSError):
            _flush()
        return FAILED
    except KeyboardInterrupt:
        if debug:
            raise
        say("interrupted: what was finished is kept; the same command resumes")
        return FAILED
    except Exception as error:
        if debug:
            raise
        say(f"error: {_words(error)}")
        return BAD_USE if _is_bad_use(error) else FAILED


def _words(error: Exception) -> str:
    """What happened, in one line."""
    if isinstance(error, OSError) and error.strerror:
        about = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{about}"
    text = " ".join(str(error).split())
    if isinstance(error, FloatingPointError):
        return f"{text}: a setting or a weight is outside the range of float64"
    if isinstance(error, MemoryError):
        return text or "out of memory; use a smaller network"
    if isinstance(error, ValueError | ArithmeticError | RuntimeError) and text:
        return text
    return f"{type(error).__name__}: {text}; this is a defect: --debug shows where"


def _is_bad_use(error: Exception) -> bool:
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in DISK_TROUBLE:
        return False
    return isinstance(error, ValueError)


def _never_fail_on_a_letter() -> None:
    """Print ? for a letter the terminal's encoding does not have (λ in ASCII)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _flush() -> None:
    """Flush stdout now, where a full disk or a closed pipe can still be reported."""
    try:
        sys.stdout.flush()
    except OSError:
        # What is left in the buffer would be tried again, and fail again, as Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
