"""What the files in data/ say, in the form a rule judges: tables, statistics over sizes, answers.

A claim of a source is answered by one rule: a function that reads tables and returns an Answer. A
rule names the files it reads; where one of them is missing the claim stays open.

Symbols
    size     (p, K); its networks differ by their seed alone
    s        standard deviation between the seeds of one size, pooled over the sizes
    verdict  reproduced · differs · refuted · answered (a question without a figure) ·
             not comparable · open
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import records
import tables
import width_tables

Row = dict[str, Any]
Size = tuple[int, int]
Groups = Mapping[Size, Sequence[float]]

REPRODUCED, DIFFERS, REFUTED = "reproduced", "differs", "refuted"
ANSWERED, NOT_COMPARABLE, OPEN = "answered", "not comparable", "open"
VERDICTS = (REPRODUCED, DIFFERS, REFUTED, ANSWERED, NOT_COMPARABLE, OPEN)

STANDARD_ERRORS = 2.0  # ours and the source's figure are called equal within two of their errors
TWO_DECIMALS = 0.005  # what is lost when a figure is printed with two decimals
DRAWS = 4_000  # of the simulated median: its error is known to 1/√8000, 1 %

# The settings every reading of Lab Agents 2026 was made at, and the file of ours made at the same.
SOURCE_SETTINGS = {"n_beta": 1e4, "gamma": 1.0, "step_constant": 0.2}
AT_SOURCE = "source_settings.csv"  # columns of llc.csv
# File of data/ -> the command that writes it.
COMMANDS = {
    "networks.csv": "python run_llc.py --study networks",
    "llc.csv": "python run_llc.py --study verdict",
    "too_wide.csv": "python run_llc.py --study too-wide",
    AT_SOURCE: "python run_llc.py --study source-settings",
    "memorising.csv": "python run_llc.py --study memorising",
    "sensitivity.csv": "python run_llc.py --study sensitivity",
    "grid_selection.csv": "python run_llc.py --study grid-selection",
    "settling.csv": "python run_llc.py --study settling",
    "rank_sweep.csv": "python run_llc.py --study tolerance",
    "polish.csv": "python run_llc.py --study polish",
    "trajectory.csv": "python run_llc.py --study trajectory",
    "convergence.csv": "python run_llc.py --study convergence",
    "fourier.csv": "python run_llc.py --study fourier",
    "calibration.json": "python calibrate.py --freeze",
    "calibration_grid.csv": "python calibrate.py --grid",
    "calibration_known.json": "python calibrate.py --source-settings --json "
    "> data/calibration_known.json",
    "calibration_early.csv": "python calibrate.py --early",
    "calibration_resolution.csv": "python calibrate.py --resolution",
    "null.jsonl": "python calibrate.py --resolution",
    "equations.json": "python equations.py --json > data/equations.json",
    "bench.json": "python bench.py",
    **{
        f"{name}.csv": "python run_widths.py --study full --workers 2"
        for name in width_tables.TABLES
    },
    "peers.csv": "runs/peers/bin/python tests/peers/devinterp_peer.py",
}
# Every table whose columns have a meaning written down, by name of the csv file.
TABLES = tables.TABLES | width_tables.TABLES | {"peers": width_tables.PEERS}
# The calibration's tables, as calibrate.py writes them; a test compares the two.
GRID_COLUMNS: dict[str, type] = {
    **{"network": str},
    **dict.fromkeys(("scale", "step_constant", "gamma", "n_beta", "known_llc", "law"), float),
    **dict.fromkeys(("llc", "standard_error", "error", "step", "h_max", "h_min"), float),
    **{"settled": bool},
    **dict.fromkeys(("chains", "steps", "burn_in"), int),
}
RESOLUTION_COLUMNS: dict[str, type] = {
    **{"network": str},
    **dict.fromkeys(("n_beta", "gamma", "step_constant"), float),
    **dict.fromkeys(("chains", "steps", "burn_in"), int),
    **dict.fromkeys(("known_llc", "half_rank", "flat_share", "law", "law_sd"), float),
    **dict.fromkeys(("settled_share", "llc", "standard_error", "share_of_known"), float),
    **dict.fromkeys(("share_of_law", "distance"), float),
    **{"settled": bool},
}
CALIBRATION_TABLES = {
    "calibration_grid.csv": GRID_COLUMNS,
    "calibration_early.csv": GRID_COLUMNS,
    "calibration_resolution.csv": RESOLUTION_COLUMNS,
}
CLAIM_COLUMNS = dict.fromkeys(("id", "source", "place", "claim", "value", "numbers"), str)


def types(file: str) -> dict[str, type]:
    """Column -> type of a csv file of data/, as `records.read_csv` takes it."""
    if file in CALIBRATION_TABLES:
        return CALIBRATION_TABLES[file]
    return {name: kind for name, (kind, _) in TABLES[file.removesuffix(".csv")].items()}


class NotEnough(ArithmeticError):
    """The files are there, but too few usable rows for the statistic the rule asks for."""


# ---- claims and answers ------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One statement of a source: its words, its figure as people read it, and as numbers."""

    id: str
    source: str
    place: str
    claim: str
    value: str
    numbers: tuple[float, ...]


@dataclass(frozen=True)
class Answer:
    """What we found: `ours` as people read it, `value` ± `error` as numbers where there is one."""

    verdict: str
    ours: str
    value: float | None = None
    error: float | None = None
    on: str = ""  # how many networks of how many sizes
    settings: str = ""
    cause: str = ""


Judge = Callable[["Evidence", Claim], Answer]


@dataclass(frozen=True)
class Rule:
    """How one claim is decided, the files it needs and those it takes where they are there."""

    id: str
    judge: Judge
    files: tuple[str, ...]
    also: tuple[str, ...] = ()


RULES: dict[str, Rule] = {}


def rule(*files: str, also: tuple[str, ...] = ()) -> Callable[[Judge], Judge]:
    """Enter a rule that reads these files of data/; its claim is the first word of its name.

    `also`: files it takes into account without needing them.
    """

    def enter(judge: Judge) -> Judge:
        id = judge.__name__.split("_")[0].upper()
        RULES[id] = Rule(id, judge, files, also)
        return judge

    return enter


def read_claims(path: Path) -> list[Claim]:
    """The claims of data/source_claims.csv. Raises records.RecordError."""
    rows = records.read_csv(path, CLAIM_COLUMNS)
    return [Claim(**r | {"numbers": tuple(map(float, r["numbers"].split()))}) for r in rows]


class Evidence:
    """The files of one data folder, each read once."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._read: dict[str, list[Row]] = {}

    def has(self, file: str) -> bool:
        """Whether the file is there."""
        return (self.data / file).exists()

    def rows(self, file: str) -> list[Row]:
        """Every row of a file, failed ones too. Raises records.RecordError for a damaged one."""
        if file not in self._read:
            self._read[file] = self._rows(file)
        return self._read[file]

    def usable(self, file: str, *columns: str) -> list[Row]:
        """The rows that did not fail and have these columns. Raises NotEnough when none has."""
        rows = [r for r in self.rows(file) if not r.get("error") and _filled(r, columns)]
        if not rows:
            raise NotEnough(f"data/{file} has no row with {', '.join(columns) or 'a result'}")
        return rows

    def at_source(self, file: str, *columns: str) -> list[Row]:
        """The usable rows of a file; those of AT_SOURCE of the same networks, where there are any.

        Our frozen settings may be others than the source's; `compared` says so in the answer.
        """
        rows = self.usable(file, *columns)
        if not self.has(AT_SOURCE):
            return rows
        names = {r["network"] for r in self.rows(file)}
        read = [r for r in self.rows(AT_SOURCE) if not r["error"] and _filled(r, columns)]
        return [r for r in read if r["network"] in names] or rows

    def _rows(self, file: str) -> list[Row]:
        path = self.data / file
        if file.endswith(".csv"):
            return records.read_csv(path, types(file))
        if file.endswith(".jsonl"):
            return records.read_jsonl(path)[0]
        document = records.read_json(path)
        found = document.get("networks") if isinstance(document, dict) else document
        return found if isinstance(found, list) else [document]


def _filled(row: Row, columns: Iterable[str]) -> bool:
    return all(row.get(c) not in (None, "") for c in columns)


# ---- the source's settings ---------------------------------------------------------------------


def off_source(row: Mapping[str, Any]) -> set[str]:
    """The sampler settings in which a row differs from the source's."""
    return {name for name, value in SOURCE_SETTINGS.items() if row[name] != value}


def compared(answer: Answer, rows: Iterable[Mapping[str, Any]], *changed: str) -> Answer:
    """The answer as it is, or not comparable where rows were read at other settings.

    A row may differ from the source's settings in one of `changed`, which the claim is about.
    """
    for row in rows:
        off = off_source(row)
        if off and not (len(off) == 1 and off <= set(changed)):
            names = "; ".join(f"{name} {row[name]:g}" for name in SOURCE_SETTINGS)
            theirs = "; ".join(f"{name} {value:g}" for name, value in SOURCE_SETTINGS.items())
            why = f"Read at {names}; the source's settings are {theirs}. {answer.cause}"
            return replace(answer, verdict=NOT_COMPARABLE, cause=why)
    return answer


# ---- statistics over sizes ---------------------------------------------------------------------


class Statistic(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


def by_size(rows: Iterable[Row], column: str) -> dict[Size, list[float]]:
    """The values of a column, size by size, in the order of the rows."""
    groups: dict[Size, list[float]] = {}
    for row in rows:
        groups.setdefault((row["p"], row["K"]), []).append(float(row[column]))
    return groups


def between_seeds(groups: Groups) -> float:
    """s, pooled over the sizes. Raises NotEnough when no size has two networks."""
    freedom = sum(len(values) - 1 for values in groups.values())
    if freedom < 1:
        raise NotEnough("no size has two networks: the spread between seeds is unknown")
    squares = sum(float(np.sum((np.array(v) - np.mean(v)) ** 2)) for v in groups.values())
    return (squares / freedom) ** 0.5


def median_over_sizes(groups: Groups, spread: float | None = None) -> Statistic:
    """Median over the sizes of the mean over seeds; error by simulation.

    The sizes are fixed; a size's mean has the error s/√(its networks), s pooled unless `spread` is
    given. The error of the median is its spread when every mean is moved by a normal of that error.
    """
    s = between_seeds(groups) if spread is None else spread
    means = np.array([np.mean(values) for values in groups.values()])
    errors = s / np.sqrt([len(values) for values in groups.values()])
    rng = np.random.default_rng(np.random.SeedSequence([len(means)]))
    simulated = np.median(means + errors * rng.standard_normal((DRAWS, len(means))), axis=1)
    return Statistic(float(np.median(means)), float(simulated.std(ddof=1)))


def line(x: Sequence[float], y: Sequence[float]) -> Statistic:
    """Slope of y against x by least squares, with its standard error. Needs three points."""
    if len(x) < 3 or np.ptp(x) == 0:
        raise NotEnough(f"a slope with its error needs 3 different points, got {len(x)}")
    dx, dy = np.array(x) - np.mean(x), np.array(y) - np.mean(y)
    slope = float(dx @ dy / (dx @ dx))
    residual = dy - slope * dx
    return Statistic(slope, float(np.sqrt(residual @ residual / (len(x) - 2) / (dx @ dx))))


def one_network(groups: Groups, size: Size) -> tuple[Statistic, int]:
    """Mean over a size's n seeds, to be compared with a single network of the source; and n.

    The difference has the error s·√(1 + 1/n); half its square is given, for `agrees` doubles it.
    """
    if size not in groups:
        raise NotEnough(f"there is no network of p = {size[0]}, K = {size[1]}")
    s, n = between_seeds(groups), len(groups[size])
    return Statistic(float(np.mean(groups[size])), s * ((1.0 + 1.0 / n) / 2.0) ** 0.5), n


def agrees(ours: Statistic, source: float, rounding: float = TWO_DECIMALS) -> bool:
    """|ours − source| ≤ 2√2·error + rounding.

    The source gives no error. Its figure comes from as many networks as ours or fewer, so its error
    is taken to be ours, and that of the difference √2 times as large.
    """
    return abs(ours.value - source) <= STANDARD_ERRORS * 2**0.5 * ours.error + rounding


def range_agrees(
    values: Sequence[float], source: Sequence[float], s: float, rounding: float = TWO_DECIMALS
) -> bool:
    """All values lie in the source's range, widened by 2√2·s + rounding at both ends.

    An extreme value belongs to one network, so its error is that of one network, s.
    """
    low, high = source
    slack = STANDARD_ERRORS * 2**0.5 * s + rounding
    return low - slack <= min(values) and max(values) <= high + slack


def verdict_if(holds: bool, otherwise: str = DIFFERS) -> str:
    """reproduced when the rule holds."""
    return REPRODUCED if holds else otherwise


def judged(words: bool, figures: bool) -> str:
    """refuted when a claim's words fail, differs when they hold and a figure does not agree."""
    return REFUTED if not words else REPRODUCED if figures else DIFFERS


# ---- words -------------------------------------------------------------------------------------


def counted(rows: Sequence[Row], of: Sequence[Row] | None = None) -> str:
    """How many networks of how many sizes; how many failed, and how many raised doubts."""
    networks = {(r["p"], r["K"], r.get("seed", 0)) for r in rows}
    sizes = {(p, K) for p, K, _ in networks}
    words = f"{_number(len(networks), 'network')}, {_number(len(sizes), 'size')}"
    doubtful = {(r["p"], r["K"], r.get("seed", 0)) for r in rows if r.get("settled") is False}
    if doubtful:
        words += f"; {len(doubtful)} with doubts about settling"
    failed = [r for r in of or [] if r.get("error")]
    return words + (f"; {len(failed)} failed ({failed[0]['error']})" if failed else "")


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def settings_of(rows: Sequence[Row]) -> str:
    """The sampler settings the rows share; where they differ, every value."""

    def every(name: str) -> str:
        found = sorted({r[name] for r in rows if r.get(name) is not None})
        return ", ".join(f"{x:,}" if isinstance(x, int) else f"{x:g}" for x in found)

    text = (
        f"n_beta {every('n_beta')}; gamma {every('gamma')}; s {every('step_constant')}; "
        f"{every('chains')} chains × {every('steps')} steps, {every('burn_in')} discarded"
    )
    return text + (" [not calibrated]" if any(_uncalibrated(r) for r in rows) else "")


def _uncalibrated(row: Row) -> bool:
    return row.get("status") == "not calibrated"


def percent(share: float, digits: int = 0) -> str:
    """0.246 as 25 %, or 24.6 % with one digit."""
    return f"{100 * share:.{digits}f} %"


def span(values: Sequence[float], form: str = ".2f") -> str:
    """Smallest to largest; one figure where they are written alike."""
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"
