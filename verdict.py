"""The decision, fixed before anything is measured: does λ̂ match the closed form?

A match means a reading within 15 % of ½K(3p−1) at 80 % of the sizes (p, K) or more. A size reads
the mean of λ̂ / formula over its networks that have a reading, settled or not; a size without any
reading does not match. The same test is put to ½K(3p−2) and to half the numerical rank; and, since
λ lies in the bracket [r/2, r/2 + (D − r)/4] whatever the settings, a size is possible when every
reading of it lies in its network's bracket to within 4 standard errors.

Symbols: λ̂ reading, r numerical rank, D weights minus exact symmetry directions; a row is a line of
data/llc.csv (`tables.LLC`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

BAND = 0.15  # of the formula
SHARE = 0.8  # of the sizes
IMPOSSIBLE = 4.0  # standard errors outside the bracket
FORMULAS = {
    "formula_paper": "½K(3p−1), the paper's",
    "formula_paper_in_use": "½K_eff(3p−1), neurons in use alone",
    "formula_generic": "½K(3p−2)",
    "half_rank": "½rank",
}


@dataclass(frozen=True)
class SizeVerdict:
    """One size: its readings against every formula."""

    p: int
    K: int
    networks: int
    measured: int
    ratios: dict[str, float]  # formula -> mean of λ̂ / formula; empty without a reading
    errors: dict[str, float]  # its standard error: sampler or spread between networks, the larger
    possible: bool  # every reading lies in its bracket, within IMPOSSIBLE standard errors

    def matches(self, formula: str) -> bool:
        """Whether this size reads within BAND of the formula."""
        return formula in self.ratios and abs(self.ratios[formula] - 1.0) <= BAND


@dataclass(frozen=True)
class Verdict:
    """All sizes, in the order of the rows."""

    sizes: tuple[SizeVerdict, ...]

    def share(self, formula: str) -> float:
        """Share of the sizes that match the formula."""
        return sum(size.matches(formula) for size in self.sizes) / len(self.sizes)

    def match(self, formula: str) -> bool:
        """The decision: SHARE of the sizes or more."""
        return self.share(formula) >= SHARE


def verdict_of(rows: Sequence[Row]) -> Verdict:
    """The verdict on the rows of data/llc.csv. Raises ValueError when there are none."""
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["p"], row["K"]), []).append(row)
    if not groups:
        raise ValueError("no rows: run `--study verdict` first")
    return Verdict(tuple(_size(p, K, group) for (p, K), group in groups.items()))


def _size(p: int, K: int, group: Sequence[Row]) -> SizeVerdict:
    read = [row for row in group if row["llc"] is not None]
    ratios, errors = {}, {}
    for formula in FORMULAS if read else ():
        each = [row["llc"] / row[formula] for row in read]
        noise = [row["standard_error"] / row[formula] for row in read]
        ratios[formula], errors[formula] = _mean(each, noise)
    return SizeVerdict(p, K, len(group), len(read), ratios, errors, all(map(is_possible, read)))


def _mean(values: Sequence[float], noise: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error: from the noise of each, or from their spread if that is larger."""
    k = len(values)
    mean = sum(values) / k
    from_noise = sum(e * e for e in noise) ** 0.5 / k
    spread = sum((v - mean) ** 2 for v in values)
    return mean, max(from_noise, (spread / (k * (k - 1))) ** 0.5 if k > 1 else 0.0)


def is_possible(row: Row) -> bool:
    """Whether λ̂ lies in the bracket of its network, within IMPOSSIBLE standard errors."""
    slack = IMPOSSIBLE * row["standard_error"]
    low, high = row["bracket_low"] - slack, row["bracket_high"] + slack
    return bool(low <= row["llc"] <= high)


def text(verdict: Verdict) -> str:
    """The verdict as a person reads it."""
    lines = ["  p    K   read   " + "   ".join(f"{name:>16}" for name in FORMULAS) + "   bracket"]
    for size in verdict.sizes:
        cells = [_cell(size, formula) for formula in FORMULAS]
        inside = "inside" if size.possible and size.measured else "outside"
        read = f"{size.measured}/{size.networks}"
        row = f"{size.p:3d}  {size.K:3d}  {read:>5}   " + "   ".join(cells)
        lines.append(f"{row}   {inside if size.measured else 'no reading'}")
    for formula, words in FORMULAS.items():
        answer = "MATCH" if verdict.match(formula) else "NO MATCH"
        lines.append(
            f"{answer}: λ̂ is within {BAND:.0%} of {words} at {verdict.share(formula):.0%} of the "
            f"sizes (needed: {SHARE:.0%})"
        )
    outside = sum(not size.possible for size in verdict.sizes)
    lines.append(
        f"{outside} of {len(verdict.sizes)} sizes read outside the bracket by more than "
        f"{IMPOSSIBLE:g} standard errors: there λ̂ is no learning coefficient of these networks"
    )
    return "\n".join(lines)


def _cell(size: SizeVerdict, formula: str) -> str:
    if formula not in size.ratios:
        return f"{'–':>16}"
    mark = "*" if size.matches(formula) else " "
    return f"{size.ratios[formula]:8.3f} ±{size.errors[formula]:.3f}{mark:>2}"
