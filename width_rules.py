"""How the claims about the perceptrons' exact curvatures are decided; see reading_rules.

The source names neither its base rates nor its errors. Ours were chosen, before the study, as those
closest to its figures (width_networks.SOURCE_LIKE); the same is told at one common rate. A claim is
judged twice, its words and its figures: `refuted` when the words fail, `differs` when they hold and
a figure does not agree, `reproduced` when both hold. Three seeds a width, as in the source.

Symbols
    h      curvatures     κ   n_beta·h_max/gamma     λ(c)  effective dimension at c = h_max/κ
    ratio  λ(c) of µP over that of NTK, same width, seed and κ
    s      standard deviation between seeds of the logarithm, pooled over widths
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import width_networks
from evidence import (
    ANSWERED,
    Answer,
    Claim,
    Evidence,
    NotEnough,
    Statistic,
    agrees,
    between_seeds,
    judged,
    line,
    rule,
    span,
)
from width_networks import CONDITIONS, NAMES, PAIRS, WIDTHS
from width_tables import KAPPAS

ByWidth = dict[int, list[float]]  # one value a seed
AT_KAPPA_1 = "κ = 1; n_beta n/log n"
STUDY = "widths.csv"


# ---- statistics over widths --------------------------------------------------------------------


def by_width(data: Evidence, condition: str, column: str, rates: str = "source-like") -> ByWidth:
    """A column of widths.csv for one condition at one choice of base rates, every seed."""
    kind = (condition, PAIRS[rates][condition])
    found: ByWidth = {width: [] for width in WIDTHS}
    for r in data.usable(STUDY, column):
        if (r["condition"], r["base_rate"]) == kind:
            found[r["width"]].append(float(r[column]))
    return _complete(found, f"{column} of {NAMES[condition]} at {rates} rates")


def ratios(data: Evidence, column: str, rates: str = "source-like", file: str = STUDY) -> ByWidth:
    """µP over NTK of a column, for every seed that has both."""
    rows = data.usable(file, column)
    mine = rows if file == STUDY else [r for r in rows if r["pair"] == rates]
    found = width_networks.ratios(mine, rates, column)
    return _complete(found, f"{column} at {rates} rates")


def _complete(found: ByWidth, what: str) -> ByWidth:
    if missing := [width for width in WIDTHS if not found.get(width)]:
        raise NotEnough(f"no value of {what} at width {missing[0]}")
    return found


def log_spread(groups: ByWidth) -> float:
    """s, pooled over the widths. Raises NotEnough where every width has one seed."""
    return between_seeds({(w, 0): [math.log(x) for x in v] for w, v in groups.items()})


def at(groups: ByWidth, width: int, spread: float | None = None) -> Statistic:
    """Geometric mean over the seeds of one width; its error from s, or from a spread given."""
    s = log_spread(groups) if spread is None else spread
    value = math.exp(float(np.mean(np.log(groups[width]))))
    return Statistic(value, value * s / math.sqrt(len(groups[width])))


def exponent(groups: ByWidth) -> Statistic:
    """b of value ∝ width^b, over all widths and seeds."""
    points = [(math.log(w), math.log(x)) for w, values in groups.items() for x in values]
    return line(*zip(*points, strict=True))


def means(groups: ByWidth) -> list[float]:
    """Geometric mean of each width."""
    return [at(groups, width, 0.0).value for width in WIDTHS]


def falls(groups: ByWidth) -> bool:
    """Whether every width's mean lies below the one before."""
    values = means(groups)
    return all(b < a for a, b in pairwise(values))


def told(statistics: Sequence[Statistic], form: str = ".3f") -> str:
    """Values with errors, in a row."""
    return "; ".join(f"{x.value:{form}} ± {x.error:{form}}" for x in statistics)


def every(groups: ByWidth, form: str = ".3f") -> str:
    """The mean at each width, in a row."""
    return "; ".join(f"{x:{form}}" for x in means(groups))


def _aside(data: Evidence, column: str, form: str) -> str:
    """µP's values at the common base rate, told beside a claim that does not depend on them."""
    try:
        return every(by_width(data, "mup", column, "common"), form)
    except NotEnough:
        return "not measured"


def networks(*groups: ByWidth) -> str:
    """How many networks stand behind the values."""
    seeds = [len(values) for group in groups for values in group.values()]
    return f"{sum(seeds)} networks, {len(WIDTHS)} widths, {span(seeds, 'd')} seeds each"


def _ends(groups: ByWidth) -> tuple[Statistic, Statistic]:
    return at(groups, WIDTHS[0]), at(groups, WIDTHS[-1])


def _half_a_digit(figure: float) -> float:
    """Half a unit of the last digit a figure of the source is printed with."""
    text = f"{figure:g}"
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def _agree(ours: Sequence[Statistic], source: Sequence[float], decimals: int | None = None) -> bool:
    """Whether every figure agrees, printed with so many decimals or with those it needs."""
    half = None if decimals is None else 0.5 * 10.0**-decimals
    return all(agrees(o, s, half or _half_a_digit(s)) for o, s in zip(ours, source, strict=True))


# ---- effective dimension -----------------------------------------------------------------------


@rule(STUDY)
def e01_ratio(data: Evidence, claim: Claim) -> Answer:
    """λ(c) of µP over NTK, per seed, at the source-like rates. The words hold when the mean ratio
    is below 1 at every width and falls from width to width, at κ = 1, 10 and 100; reproduced when
    moreover the three ratios at κ = 1 agree with the source within 2√2 standard errors."""
    found = {kappa: ratios(data, f"dimension_{kappa}") for kappa in KAPPAS}
    failing = [k for k, r in found.items() if not (max(means(r)) < 1.0 and falls(r))]
    ours = [at(found[1], width) for width in WIDTHS]
    others = "; ".join(f"κ = {k}: {every(found[k])}" for k in KAPPAS[1:])
    where = ", ".join(f"κ = {k}" for k in failing)
    return Answer(
        judged(not failing, _agree(ours, claim.numbers)),
        told(ours),
        *ours[-1],
        on=networks(found[1]).replace("networks", "pairs"),
        settings=AT_KAPPA_1,
        cause=f"{f'A widening gap with µP below NTK fails at {where}. ' if failing else ''}"
        f"{others}.{_common_ratios(data)}",
    )


def _common_ratios(data: Evidence) -> str:
    """The ratio at base rates both networks share, as far as measured."""
    parts = []
    for name in ("common", "common high"):
        try:
            each = [f"κ = {k}: {every(ratios(data, f'dimension_{k}', name))}" for k in KAPPAS]
        except NotEnough:
            continue
        parts.append(f" At the common rate {PAIRS[name]['ntk']:g}: {', '.join(each)}.")
    return "".join(parts)


@rule(STUDY)
def e02_ntk_dimension(data: Evidence, claim: Claim) -> Answer:
    """The exponent of NTK's λ(c) at κ = 1 in the width. The words hold when it is no larger in size
    than the source's, within 2√2 standard errors; reproduced when exponent and both ends agree."""
    low, high, power = claim.numbers
    found = by_width(data, "ntk", "dimension_1")
    ours, ends = exponent(found), _ends(found)
    words = abs(ours.value) <= power + 2.0 * 2**0.5 * ours.error
    return Answer(
        judged(words, agrees(ours, power) and _agree(ends, (low, high))),
        f"{told(ends, '.1f')}, as w^({ours.value:.2f} ± {ours.error:.2f})",
        *ours,
        on=networks(found),
        settings=AT_KAPPA_1,
        cause=f"By width {every(found, '.2f')}. {_at_other_kappas(data, 'ntk')}",
    )


@rule(STUDY)
def e03_mup_dimension(data: Evidence, claim: Claim) -> Answer:
    """The exponent of µP's λ(c) at κ = 1 in the width, at the source-like rates. The words hold
    when it lies below 0 by two standard errors; reproduced when both ends agree too. Whether
    it falls at one common base rate as well is told in any case."""
    found = by_width(data, "mup", "dimension_1")
    ours, ends = exponent(found), _ends(found)
    common = " ".join(_at_common_rate(data, rates) for rates in ("common", "common high"))
    return Answer(
        judged(ours.value < -2.0 * ours.error, _agree(ends, claim.numbers)),
        f"{told(ends, '.2f')}, as w^({ours.value:.2f} ± {ours.error:.2f})",
        *ours,
        on=networks(found),
        settings=f"{AT_KAPPA_1}; base rate {PAIRS['source-like']['mup']:g}",
        cause=f"By width {every(found, '.2f')}. {_at_other_kappas(data, 'mup')} {common}",
    )


def _at_other_kappas(data: Evidence, condition: str) -> str:
    parts = []
    for kappa in KAPPAS[1:]:
        found = by_width(data, condition, f"dimension_{kappa}")
        power = exponent(found)
        parts.append(f"κ = {kappa}: {every(found, '.1f')}, w^({power.value:.2f})")
    return "At " + "; ".join(parts) + "."


def _at_common_rate(data: Evidence, rates: str) -> str:
    """Does µP's λ(c) fall with the width at a base rate that NTK shares?"""
    try:
        found = by_width(data, "mup", "dimension_1", rates)
    except NotEnough:
        return f"At the common base rate {PAIRS[rates]['mup']:g}: not measured."
    power = exponent(found)
    falling = power.value < -2.0 * power.error
    rising = power.value > 2.0 * power.error
    word = "it falls" if falling else "it rises" if rising else "it neither falls nor rises"
    return (
        f"At the common base rate {PAIRS[rates]['mup']:g} {word}: {every(found, '.2f')}, "
        f"w^({power.value:.2f} ± {power.error:.2f})."
    )


@rule(STUDY)
def e04_ceiling(data: Evidence, claim: Claim) -> Answer:
    """The words hold when no rank of J exceeds nC and every λ(c) at κ = 1 is below nC/2 and
    below d/2; reproduced when at width 1024 d/2 lies five orders of magnitude above, rounded."""
    ceiling = claim.numbers[0]
    rows = [r for r in data.usable(STUDY, "rank", "dimension_1") if _source_like(r)]
    words = all(
        r["rank"] <= r["rank_ceiling"] <= ceiling and r["dimension_1"] < 0.5 * min(r["d"], ceiling)
        for r in rows
    )
    orders = {
        width: [math.log10(0.5 * r["d"] / r["dimension_1"]) for r in rows if r["width"] == width]
        for width in WIDTHS
    }
    wide = orders[WIDTHS[-1]]
    if not wide:
        raise NotEnough(f"no whole spectrum at width {WIDTHS[-1]}")
    ranks = span([r["rank"] for r in rows], ",d")
    full = sum(r["rank"] == r["rank_ceiling"] for r in rows)
    return Answer(
        judged(words, all(round(x) == 5 for x in wide)),
        f"{span(wide, '.1f')} orders at width {WIDTHS[-1]}; rank {ranks}",
        on=f"{len(rows)} networks with a whole spectrum",
        settings=AT_KAPPA_1,
        cause=f"Orders at widths 64 and 256: {span(orders[64], '.1f')}; "
        f"{span(orders[256], '.1f')}. J(w_T) has full row rank, {ceiling:,.0f}, on {full} of "
        f"{len(rows)}; λ(c) counts the few stiff directions among them.",
    )


def _source_like(row: Mapping[str, Any]) -> bool:
    return bool(row["base_rate"] == PAIRS["source-like"][row["condition"]])


# ---- drift, linearisation, spectrum ------------------------------------------------------------


@rule(STUDY)
def e05_drift(data: Evidence, claim: Claim) -> Answer:
    """|Δw|/|w₀| of all weights. The words hold when NTK's falls with width, µP's at 1024 is the
    larger, and there most of it is in W1; reproduced when all six figures agree."""
    ntk, mup = (by_width(data, c, "drift_all") for c in CONDITIONS)
    layers = [by_width(data, "mup", f"drift_W{k}") for k in (1, 2, 3)]
    wide = [at(group, WIDTHS[-1]) for group in (mup, *layers)]
    ours = [*_ends(ntk), *wide]
    words = falls(ntk) and wide[0].value > ours[1].value and wide[1].value > max(wide[2:]).value
    return Answer(
        judged(words, _agree(ours, claim.numbers, decimals=2)),
        f"NTK {told(ours[:2], '.2f')}; µP {told(wide[:1], '.2f')}; by layer "
        f"{told(wide[1:], '.2f')}",
        *ours[2],
        on=networks(ntk, mup),
        cause=f"By width: NTK {every(ntk, '.2f')}; µP {every(mup, '.2f')}. µP at base rate "
        f"{PAIRS['common']['mup']:g}: {_aside(data, 'drift_all', '.2f')}.",
    )


@rule(STUDY)
def e06_linearisation(data: Evidence, claim: Claim) -> Answer:
    """|f − f_lin|/|f − f₀|. The words hold when NTK's error falls with width and µP's is larger;
    reproduced when NTK's at 1024, µP's over it and the exponent agree (`about six`: ± 0.5)."""
    source, six, power = claim.numbers
    ntk, mup = (by_width(data, c, "linearisation_error") for c in CONDITIONS)
    wide, slope = at(ntk, WIDTHS[-1]), exponent(ntk)
    times = at(ratios(data, "linearisation_error"), WIDTHS[-1])
    worse = [f"{w}" for w, x in zip(WIDTHS, means(ntk), strict=True) if x > 1.0]
    above = f"at width {', '.join(worse)}" if worse else "at no width"
    figures = agrees(wide, source) and agrees(times, six, 0.5) and agrees(slope, -power)
    return Answer(
        judged(slope.value < -2.0 * slope.error and times.value > 1.0, figures),
        f"{told([wide], '.2f')}; {told([times], '.1f')} times; w^({slope.value:.2f} ± "
        f"{slope.error:.2f})",
        *wide,
        on=networks(ntk, mup),
        cause=f"By width: NTK {every(ntk, '.2f')}; µP {every(mup, '.2f')}. Above 1 the linear "
        f"model predicts the change worse than no change would: NTK {above}.",
    )


@rule(STUDY)
def e07_top_eigenvalue(data: Evidence, claim: Claim) -> Answer:
    """h_max at the ends. The words hold when NTK's falls and µP's rises with width; reproduced when
    all four figures agree."""
    ntk, mup = (by_width(data, c, "h_max") for c in CONDITIONS)
    ours = [*_ends(ntk), *_ends(mup)]
    words = exponent(ntk).value < 0.0 < exponent(mup).value
    return Answer(
        judged(words, _agree(ours, claim.numbers)),
        f"{told(ours[:2], '.2f')}; {told(ours[2:], '.2f')}",
        *ours[-1],
        on=networks(ntk, mup),
        cause=f"By width: NTK {every(ntk, '.2f')}; µP {every(mup, '.2f')}; µP at "
        f"{PAIRS['common']['mup']:g}: {_aside(data, 'h_max', '.2f')}. "
        "Curvatures scale with the loss: ours is the mean over examples and outputs.",
    )


@rule(STUDY)
def e08_trace(data: Evidence, claim: Claim) -> Answer:
    """Σh and Σh/h_max at the ends. The words hold when NTK's stable rank and µP's trace rise and
    µP's stable rank falls; reproduced when all eight figures agree."""
    groups = [by_width(data, c, x) for c in CONDITIONS for x in ("trace", "stable_rank")]
    ours = [end for group in groups for end in _ends(group)]
    _, ntk_rank, mup_trace, mup_rank = (exponent(group).value for group in groups)
    names = [f"{NAMES[c]} {x}" for c in CONDITIONS for x in ("trace", "stable rank")]
    return Answer(
        judged(ntk_rank > 0.0 and mup_trace > 0.0 and mup_rank < 0.0, _agree(ours, claim.numbers)),
        "; ".join(f"{told(ours[k : k + 2], '.3g')}" for k in range(0, 8, 2)),
        *ours[5],
        on=networks(groups[0], groups[2]),
        cause="By width: "
        + "; ".join(f"{n} {every(g, '.3g')}" for n, g in zip(names, groups, strict=True))
        + ".",
    )


@rule(STUDY, "width_matched.csv")
def e09_equal_loss(data: Evidence, claim: Claim) -> Answer:
    """The ratio at κ = 1 from checkpoints of equal loss, beside that at the last step. The words
    hold when it is the smaller of the two at every width; reproduced when the figures agree, with
    the spread between seeds of the ratio at the last step."""
    matched = ratios(data, "dimension_1", file="width_matched.csv")
    every_seed = ratios(data, "dimension_1")
    spread = log_spread(every_seed)
    last = {w: x[: len(matched[w])] for w, x in every_seed.items()}  # the same seeds, in order
    ours = [at(matched, width, spread) for width in WIDTHS]
    words = all(at(matched, w, 0.0).value < at(last, w, 0.0).value for w in WIDTHS)
    common = ratios(data, "dimension_1", "common", "width_matched.csv")
    rows = [r for r in data.usable("width_matched.csv", "loss") if r["pair"] == "source-like"]
    apart = max(abs(math.log(r["loss"] / r["target_loss"])) for r in rows)
    return Answer(
        judged(words, _agree(ours, claim.numbers)),
        told(ours),
        *ours[-1],
        on=networks(matched).replace("networks", "pairs"),
        settings=AT_KAPPA_1,
        cause=f"At the last step {every(last)}. Losses agree to a factor of {math.exp(apart):.2f}. "
        f"At the common rate {PAIRS['common']['mup']:g}: {every(common)}, at the last step "
        f"{every(ratios(data, 'dimension_1', 'common'))}.",
    )


@rule(STUDY)
def e19_alignment(data: Evidence, claim: Claim) -> Answer:
    """Answered: the ratio when gamma is set from Σh/20 or from Σh over the effective rank, in place
    of h_max; not reproduced nor refuted, since the source asks only."""
    choices = {"h_max": "dimension", "Σh/20": "trace_dimension", "Σh/erank": "rank_dimension"}
    found = {
        name: {k: ratios(data, f"{column}_{k}") for k in KAPPAS} for name, column in choices.items()
    }
    trace = at(found["Σh/20"][1], WIDTHS[-1])
    low = {name: ratios(data, f"{column}_1") for name, column in choices.items()}
    others = ". ".join(
        f"κ = {k}: " + "; ".join(f"{name} {every(found[name][k])}" for name in choices)
        for k in KAPPAS[1:]
    )
    kept = {
        name: [f"{k}" for k, r in kind.items() if max(means(r)) < 1.0 and falls(r)] or ["none"]
        for name, kind in found.items()
    }
    order = "; ".join(f"{name}: κ = {', '.join(where)}" for name, where in kept.items())
    return Answer(
        ANSWERED,
        "; ".join(f"{name} {every(low[name])}" for name in choices),
        *trace,
        on=networks(found["Σh/20"][1]).replace("networks", "pairs"),
        settings=AT_KAPPA_1,
        cause=f"{others}. µP below NTK with a widening gap holds at: {order}.",
    )


@rule("width_hessian.csv")
def r06_probes(data: Evidence, claim: Claim) -> Answer:
    """The words hold when at κ = 1 the closed form ½√(2|M|²_F/8) exceeds half a unit of the third
    digit on every network; reproduced when the spread of the probes agrees with it, within three
    times the 27 % that eight probes leave open, and the relative error is the expected 4.6 %,
    within a factor of two."""
    error, value = claim.numbers
    rows = [r for r in data.usable("width_hessian.csv", "plain_error") if r["kappa"] == 1.0]
    if not rows:
        raise NotEnough("width_hessian.csv has no row at κ = 1")
    third = [0.5 * 10.0 ** (math.floor(math.log10(r["gauss_newton"])) - 2) for r in rows]
    words = all(r["error_formula"] > digit for r, digit in zip(rows, third, strict=True))
    slack = 3.0 / math.sqrt(2.0 * (rows[0]["probes"] - 1))
    spread = all(abs(r["plain_error"] / r["error_formula"] - 1.0) <= slack for r in rows)
    relative = [r["error_formula"] / r["gauss_newton"] for r in rows]
    near = all(0.5 <= x / (error / value) <= 2.0 for x in relative)
    most = max(rows, key=lambda r: r["error_formula"])
    return Answer(
        judged(words, spread and near),
        f"{most['error_formula']:.2f} on {most['gauss_newton']:.2f}",
        most["error_formula"],
        on=f"{len(rows)} networks",
        settings="8 probes; κ = 1",
        cause="Formula, spread of the probes and error left by the control variate: "
        + "; ".join(
            f"{r['network']} {r['error_formula']:.2f}, {r['plain_error']:.2f}, "
            f"{r['full_error']:.3f}"
            for r in rows
        )
        + ".",
    )
