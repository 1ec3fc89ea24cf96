"""How the claims about readings are decided: one function per claim, its rule in its docstring.

The rules were written before the studies were run. "Within two errors" always means
`evidence.agrees`: the difference is at most 2√2 times our standard error, plus the rounding of the
printed figure. A ratio is λ̂/½K(3p−1) unless another is named. Figures of the source are compared
with readings at the source's own settings; where ours were made at others alone, the answer is
`not comparable`, with the figures (`evidence.compared`).

Symbols
    λ̂     reading             law     what the exact law of SGLD predicts from the spectrum at w*
    c      gamma/n_beta        s       spread between seeds (evidence), or the step constant
    size   (p, K)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import verdict
from evidence import (
    AT_SOURCE,
    NOT_COMPARABLE,
    REFUTED,
    TWO_DECIMALS,
    Answer,
    Claim,
    Evidence,
    NotEnough,
    Row,
    Statistic,
    agrees,
    between_seeds,
    by_size,
    compared,
    counted,
    line,
    median_over_sizes,
    percent,
    range_agrees,
    rule,
    settings_of,
    span,
    verdict_if,
)

DISAGREES = 4.0  # standard errors of λ̂ against a predicted reading
SLOPE_NEAR_ONE = 0.1
LONGEST_DELAY = 2.0  # a network has grokked late if held-out follows training this many times later


# ---- the headline ------------------------------------------------------------------------------


@rule("llc.csv", also=(AT_SOURCE,))
def k01_ratio_median(data: Evidence, claim: Claim) -> Answer:
    """Mean ratio over the seeds of a size, median over the sizes; reproduced when the source's
    median lies within two errors of ours."""
    rows = data.at_source("llc.csv", "ratio_paper")
    found = median_over_sizes(by_size(rows, "ratio_paper"))
    in_use = median_over_sizes(by_size(rows, "ratio_paper_in_use")).value
    half_rank = median_over_sizes(by_size(rows, "ratio_half_rank")).value
    answer = Answer(
        verdict_if(agrees(found, claim.numbers[0])),
        f"{found.value:.3f} ± {found.error:.3f}; of ½K_eff(3p−1) {in_use:.3f}, of ½rank "
        f"{half_rank:.3f}",
        *found,
        on=counted(rows, data.rows("llc.csv")),
        settings=settings_of(rows),
        cause=why_low(rows),
    )
    return compared(answer, rows)


@rule("llc.csv", also=(AT_SOURCE,))
def k02_ratio_range(data: Evidence, claim: Claim) -> Answer:
    """Smallest and largest ratio over all networks; reproduced when all lie in the source's range,
    widened by 2√2·s + 0.005."""
    rows = data.at_source("llc.csv", "ratio_paper")
    ends = (choose(rows, key=lambda r: r["ratio_paper"]) for choose in (min, max))
    cause = "; ".join(
        f"{r['network']}: flat share {percent(r['flat_share'])}, K_eff {r['K_eff']} of {r['K']}, "
        f"law at w* {r['law'] / r['formula_paper']:.3f} of the formula, λ̂ {r['ratio_paper']:.3f}"
        for r in ends
    )
    return _range_answer(data, claim, rows, "ratio_paper", f"{cause}.")


@rule("llc.csv", also=(AT_SOURCE,))
def k03_verdict(data: Evidence, claim: Claim) -> Answer:
    """The source's own test (module verdict) at our frozen settings: a size matches when its mean
    ratio lies within 15 % of 1. Reproduced when fewer than 80 % of the sizes match, refuted
    otherwise; sizes nearer to an edge than two of their errors are counted beside it."""
    rows = data.rows("llc.csv")
    found = verdict.verdict_of(rows)
    read = [size for size in found.sizes if size.ratios]
    if not read:
        raise NotEnough("llc.csv has no reading")
    matches = sum(size.matches("formula_paper") for size in read)
    edge = sum(_near_an_edge(size) for size in read)
    usable = data.usable("llc.csv", "llc")
    others = ", ".join(
        f"{sum(size.matches(formula) for size in read)} of {len(found.sizes)} match {words}"
        for formula, words in verdict.FORMULAS.items()
        if formula != "formula_paper"
    )
    return Answer(
        verdict_if(not found.match("formula_paper"), REFUTED),
        f"{matches} of {len(found.sizes)} sizes match; {edge} within two errors of an edge",
        value=found.share("formula_paper"),
        on=counted(usable, rows),
        settings=settings_of(usable),
        cause=f"By the same test {others}. {_outside_bracket(usable)}{_elsewhere(data)}",
    )


def _elsewhere(data: Evidence) -> str:
    """The same test at the source's settings, where ours are others and those were read too."""
    rows = data.at_source("llc.csv", "llc")
    if rows == data.usable("llc.csv", "llc"):
        return ""
    found = verdict.verdict_of(rows)
    matches = sum(size.matches("formula_paper") for size in found.sizes)
    return f" At the source's settings {matches} of {len(found.sizes)} sizes match."


def _near_an_edge(size: verdict.SizeVerdict) -> bool:
    off = abs(size.ratios["formula_paper"] - 1.0) - verdict.BAND
    return abs(off) <= 2.0 * size.errors["formula_paper"]


def _outside_bracket(rows: Sequence[Row]) -> str:
    outside = [r for r in rows if not verdict.is_possible(r)]
    below = sum(r["llc"] < r["bracket_low"] for r in outside)
    return (
        f"λ̂ lies below the bracket by more than {verdict.IMPOSSIBLE:g} standard errors on {below} "
        f"of {len(rows)} networks and above it on {len(outside) - below}."
    )


def why_low(rows: Sequence[Row]) -> str:
    """What the spectrum at w*, and where the chains end, predict beside the reading; all measured.
    Flat directions below c count little, so the law at w* lies under ½rank; where λ̂ leaves that
    law too, the chains have travelled and the spectrum at their end is the one to ask."""
    flat = [r["flat_share"] for r in rows]
    law = np.median([r["law"] / r["formula_paper"] for r in rows])
    read = np.median([r["llc"] / r["formula_paper"] for r in rows])
    off = sum(abs(r["z_law"]) > DISAGREES for r in rows)
    text = (
        f"{span([100 * x for x in flat], '.0f')} % of the counted curvatures lie below "
        f"c = {rows[0]['resolution']:g}; the exact law of the spectrum at w* predicts {law:.3f} of "
        f"the formula (median over networks) where λ̂ is {read:.3f}, and λ̂ departs from it by more "
        f"than {DISAGREES:g} standard errors on {off} of {len(rows)} networks."
    )
    ended = [r for r in rows if r["end_law"] is not None]
    if not ended:
        return text
    end = np.median([r["end_law"] / r["formula_paper"] for r in ended])
    still = sum(abs(r["z_end"]) > DISAGREES for r in ended)
    distance = np.median([r["end_distance"] for r in ended])
    norm = np.median([r["weight_norm"] for r in ended])
    return (
        f"{text} The chains end {distance:.3g} from w* (|w*| = {norm:.3g}, medians); the spectrum "
        f"there predicts {end:.3f}, from which λ̂ departs on {still} of {len(ended)}."
    )


@rule("llc.csv", also=(AT_SOURCE,))
def k25_slope(data: Evidence, claim: Claim) -> Answer:
    """Least squares of log λ̂ on log ½K(3p−1), one point per size; reproduced when the slope is
    within 0.1 of 1, or within two of its errors of that band."""
    rows = data.at_source("llc.csv", "llc", "formula_paper")
    y, x = by_size(rows, "llc"), by_size(rows, "formula_paper")
    found = line(
        [float(np.log(np.mean(v))) for v in x.values()],
        [float(np.log(np.mean(v))) for v in y.values()],
    )
    off = abs(found.value - claim.numbers[0])
    answer = Answer(
        verdict_if(off <= SLOPE_NEAR_ONE + 2.0 * found.error),
        f"{found.value:.3f} ± {found.error:.3f}",
        *found,
        on=counted(rows, data.rows("llc.csv")),
        settings=settings_of(rows),
        cause=f"The ratio runs from {span([r['ratio_paper'] for r in rows])} over these sizes.",
    )
    return compared(answer, rows)


def _range_answer(
    data: Evidence,
    claim: Claim,
    rows: Sequence[Row],
    column: str,
    cause: str,
    file: str = "llc.csv",
    rounding: float = TWO_DECIMALS,
) -> Answer:
    """The answer to a claim of a smallest and a largest value over networks."""
    groups = by_size(rows, column)
    values, s = [v for group in groups.values() for v in group], between_seeds(groups)
    answer = Answer(
        verdict_if(range_agrees(values, claim.numbers, s, rounding)),
        f"{span(values, '.3f')}; spread between seeds {s:.3f}",
        value=float(np.median(values)),
        error=s,
        on=counted(rows, data.rows(file)),
        settings=settings_of(rows),
        cause=cause,
    )
    return compared(answer, rows)


# ---- sensitivity and settling ------------------------------------------------------------------


@rule("sensitivity.csv", "llc.csv", also=(AT_SOURCE,))
def k15_sensitivity(data: Evidence, claim: Claim) -> Answer:
    """Median ratio over the sizes, lowest seed of each, one setting changed from the source's. The
    error is that of a
    median over single networks with the spread between seeds of llc.csv. Reproduced when all four
    medians agree within two errors."""
    s = between_seeds(by_size(data.at_source("llc.csv", "ratio_paper"), "ratio_paper"))
    rows = data.usable("sensitivity.csv", "ratio_paper")
    changes = (("n_beta", 1e3), ("n_beta", 1e5), ("gamma", 0.1), ("gamma", 10.0))
    chosen = [changed_to(rows, name, value) for name, value in changes]
    found = [median_over_sizes(by_size(r, "ratio_paper"), s) for r in chosen]
    laws = "; ".join(
        f"{name} {value:g}: {np.median([r['law'] / r['formula_paper'] for r in group]):.3f}"
        for (name, value), group in zip(changes, chosen, strict=True)
    )
    used = [r for group in chosen for r in group]
    answer = Answer(
        verdict_if(all(map(agrees, found, claim.numbers))),
        "; ".join(f"{x.value:.3f} ± {x.error:.3f}" for x in found),
        *found[0],
        on=counted(used, data.rows("sensitivity.csv")),
        settings=settings_of(used),
        cause=f"The law at w* predicts these medians: {laws}.",
    )
    return compared(answer, used, "n_beta", "gamma")


def changed_to(rows: Sequence[Row], name: str, value: float) -> list[Row]:
    """The rows in which this one setting was changed to this value. Raises NotEnough."""
    found = [r for r in rows if r["changed"].split("=")[0] == name and r[name] == value]
    if not found:
        raise NotEnough(f"no row with {name} changed to {value:g}")
    return found


@rule("sensitivity.csv", "llc.csv", also=(AT_SOURCE,))
def k16_step_constant(data: Evidence, claim: Claim) -> Answer:
    """Largest |λ̂(s)/λ̂ − 1| over networks and s = 0.05, 0.1, 0.4 against 0.2; reproduced when it
    is at most 2.3 % plus two standard errors of that ratio."""
    frozen = {r["network"]: r for r in data.at_source("llc.csv", "llc")}
    rows = [
        r
        for s in (0.05, 0.1, 0.4)
        for r in changed_to(data.usable("sensitivity.csv", "llc"), "step_constant", s)
        if r["network"] in frozen
    ]
    if not rows:
        raise NotEnough("llc.csv has none of the networks of sensitivity.csv")
    pairs = [(r, frozen[r["network"]]) for r in rows]
    row, base = max(pairs, key=lambda pair: abs(pair[0]["llc"] / pair[1]["llc"] - 1.0))
    moved, error = abs(row["llc"] / base["llc"] - 1.0), _relative_error(row, base)
    median = float(np.median([abs(r["llc"] / b["llc"] - 1.0) for r, b in pairs]))
    answer = Answer(
        verdict_if(moved <= claim.numbers[0] + 2.0 * error),
        f"{percent(moved, 1)} ± {percent(error, 1)} at most, median {percent(median, 1)}",
        value=moved,
        error=error,
        on=counted(rows, data.rows("sensitivity.csv")),
        settings=settings_of(rows),
        cause=f"Largest for {row['network']} at s {row['step_constant']:g}, where the law at w* "
        f"moves by {percent(row['law'] / base['law'] - 1.0, 1)}.",
    )
    return compared(answer, [*rows, *frozen.values()], "step_constant")


def _relative_error(a: Row, b: Row) -> float:
    """Standard error of λ̂_a/λ̂_b over that ratio, the two readings independent."""
    return float(np.hypot(a["standard_error"] / a["llc"], b["standard_error"] / b["llc"]))


@rule("settling.csv")
def k17_settling(data: Evidence, claim: Claim) -> Answer:
    """Share of the sizes whose last fifth of 40,000 steps is within 5 % of the 10,000-step reading;
    reproduced when the two shares differ by at most two of their binomial errors."""
    settled, of = claim.numbers
    rows = data.usable("settling.csv", "last_against_10000")
    ours = sum(bool(r["settles"]) for r in rows)
    share, theirs = ours / len(rows), settled / of
    error = float(np.sqrt(_binomial(ours, len(rows)) + _binomial(settled, of)))
    moved = "; ".join(
        f"{r['network']} {100 * r['last_against_10000']:+.1f} % (law "
        f"{100 * (r['law_last_block'] / r['law'] - 1):+.1f} %)"
        for r in rows
        if not r["settles"]
    )
    answer = Answer(
        verdict_if(abs(share - theirs) <= 2.0 * error),
        f"{ours} of {len(rows)}",
        value=share,
        error=error,
        on=counted(rows, data.rows("settling.csv")),
        settings=settings_of(rows),
        cause=f"Not settled: {moved}." if moved else "All settled.",
    )
    return compared(answer, rows)


def _binomial(successes: float, trials: float) -> float:
    """Variance of a share, by the rule of adding two successes and two failures."""
    share = (successes + 2.0) / (trials + 4.0)
    return share * (1.0 - share) / (trials + 4.0)


@rule("llc.csv", also=(AT_SOURCE,))
def k19_standard_error(data: Evidence, claim: Claim) -> Answer:
    """Largest standard error between the four chains over λ̂. Such an error is itself known to 40 %
    at the largest of 18, so reproduced when ours is at most 1.4 times the source's."""
    rows = data.at_source("llc.csv", "standard_error_between_chains", "llc")
    shares = [r["standard_error_between_chains"] / r["llc"] for r in rows]
    law = float(np.median([r["law_sd"] / r["llc"] for r in rows]))
    worst = max(rows, key=lambda r: r["standard_error_between_chains"] / r["llc"])
    answer = Answer(
        verdict_if(max(shares) <= 1.4 * claim.numbers[0]),
        f"{percent(max(shares), 1)} at most, median {percent(float(np.median(shares)), 1)}",
        value=max(shares),
        on=counted(rows, data.rows("llc.csv")),
        settings=settings_of(rows),
        cause=f"The exact law gives {percent(law, 2)} (median) on a quadratic loss. Largest for "
        f"{worst['network']}: split R-hat {worst['r_hat']:.3f}, the chains end "
        f"{worst['distance']:.3g} from w*, |w*| = {worst['weight_norm']:.3g}.",
    )
    return compared(answer, rows)


@rule("llc.csv", also=(AT_SOURCE,))
def k24_settled_share(data: Evidence, claim: Claim) -> Answer:
    """law/law_stationary per network; reproduced when all lie in the source's range, widened by
    2√2·s + 0.005."""
    rows = data.at_source("llc.csv", "settled_share")
    times = [2.0 / (r["step"] * r["gamma"]) for r in rows]
    cause = f"A direction held by the spring alone settles in 2/(εγ) = {span(times, ',.0f')} steps."
    return _range_answer(data, claim, rows, "settled_share", cause)


@rule("polish.csv")
def k23_other_polish(data: Evidence, claim: Claim) -> Answer:
    """Largest |λ̂(lbfgs)/λ̂(adam) − 1| over networks; reproduced when it is at most 3 % plus two
    standard errors of that ratio."""
    by_network: dict[str, dict[str, Row]] = {}
    for r in data.usable("polish.csv", "llc"):
        by_network.setdefault(r["network"], {})[r["polish"]] = r
    pairs = [p for p in by_network.values() if {"adam", "lbfgs"} <= set(p)]
    if not pairs:
        raise NotEnough("polish.csv has no network with both polishes")
    worst = max(pairs, key=lambda p: abs(p["lbfgs"]["llc"] / p["adam"]["llc"] - 1.0))
    one, other = worst["adam"], worst["lbfgs"]
    moved, error = abs(other["llc"] / one["llc"] - 1.0), _relative_error(one, other)
    rows = [r for p in pairs for r in p.values()]
    answer = Answer(
        verdict_if(moved <= claim.numbers[0] + 2.0 * error),
        f"{percent(moved, 1)} ± {percent(error, 1)} at most",
        value=moved,
        error=error,
        on=counted(rows, data.rows("polish.csv")),
        settings=settings_of(rows),
        cause=f"Largest for {one['network']}: losses {one['loss']:.1e} and {other['loss']:.1e}, "
        f"{percent(other['between_polishes'] or 0.0, 1)} of the norm apart; the law at the two "
        f"points differs by {percent(other['law'] / one['law'] - 1.0, 1)}.",
    )
    return compared(answer, rows)


@rule("too_wide.csv", also=(AT_SOURCE,))
def k21_too_wide(data: Evidence, claim: Claim) -> Answer:
    """Smallest and largest ratio past the width limit; reproduced when all lie in the source's
    range, widened by 2√2·s and by 0.05, for it is printed with one decimal."""
    rows = data.at_source("too_wide.csv", "ratio_paper")
    limit = float(np.median([r["llc"] / r["wide_limit"] for r in rows]))
    share = [r["wide_limit"] / r["formula_paper"] for r in rows]
    cause = (
        f"The pairs pin at most ½p(n−1), {span(share)} of the formula; λ̂ is {limit:.3f} of that "
        f"(median). {why_low(rows)}"
    )
    return _range_answer(data, claim, rows, "ratio_paper", cause, "too_wide.csv", 0.05)


# ---- over training -----------------------------------------------------------------------------


@rule("trajectory.csv")
def c02_trajectory(data: Evidence, claim: Claim) -> Answer:
    """The step at which λ̂ has made half of its way from the moment of memorising (training
    accuracy first ≥ 0.99) to the end must lie between the last snapshot with held-out accuracy ≤
    0.1 and the first with ≥ 0.9: reproduced. Not comparable when held-out accuracy reaches ½ less
    than twice as late as memorising, since then nothing was delayed."""
    rows = sorted(data.usable("trajectory.csv", "llc"), key=lambda r: r["training_steps"])
    steps = [r["training_steps"] for r in rows]
    memorised = _first(rows, lambda r: r["train_accuracy"] >= 0.99)
    half = _first(rows, lambda r: r["held_out_accuracy"] >= 0.5)
    late = _first(rows, lambda r: r["held_out_accuracy"] >= 0.9)
    before = max((i for i in range(late) if rows[i]["held_out_accuracy"] <= 0.1), default=0)
    start, end = rows[memorised]["llc"], rows[-1]["llc"]
    turned = _first(rows, lambda r: (r["llc"] - start) / (end - start) >= 0.5, memorised)
    delayed = steps[half] >= LONGEST_DELAY * steps[memorised]
    holds = steps[before] <= steps[turned] <= steps[late]
    told = "; ".join(
        f"at step {r['training_steps']:,}: λ̂ {r['llc']:.0f}, ½rank {r['half_rank']:.0f}, ½Σh/(h+c) "
        f"{r['effective_dimension']:.0f}, held-out {percent(r['held_out_accuracy'])}"
        for r in (rows[memorised], rows[half], rows[-1])
    )
    return Answer(
        verdict_if(holds) if delayed else NOT_COMPARABLE,
        f"λ̂ turns at step {steps[turned]:,}; held-out accuracy rises between {steps[before]:,} and "
        f"{steps[late]:,}; memorised at {steps[memorised]:,}",
        value=float(steps[turned]),
        on=f"1 network, {len(rows)} snapshots",
        settings=settings_of(rows),
        cause=f"{told}. Before the end the snapshots are no minima of the loss.",
    )


def _first(rows: Sequence[Row], holds: Callable[[Row], bool], start: int = 0) -> int:
    """Index of the first row from `start` on for which it holds. Raises NotEnough."""
    for i in range(start, len(rows)):
        if holds(rows[i]):
            return i
    raise NotEnough("the trajectory never memorises, never generalises, or λ̂ never moves")


@rule("llc.csv")
def c03_slopes(data: Evidence, claim: Claim) -> Answer:
    """½Σh/(h+c) at the paper's c = 5/26.4. Slope in K: difference of the size means over that of
    the formula between sizes of one p; slope in p: between sizes whose K differ by at most 2 %.
    Mean over the pairs, error from s. Reproduced when both lie in the paper's ranges, within two
    errors."""
    rows = data.usable("llc.csv", "paper_settings_reading")
    groups, formula = by_size(rows, "paper_settings_reading"), by_size(rows, "formula_paper")
    s = between_seeds(groups)
    pairs = [(a, b) for a in groups for b in groups if a < b]
    along = {
        "p": [(a, b) for a, b in pairs if a[0] != b[0] and abs(a[1] - b[1]) <= 0.02 * a[1]],
        "K": [(a, b) for a, b in pairs if a[0] == b[0]],
    }
    slopes = {}
    for name, chosen in along.items():
        if not chosen:
            raise NotEnough(f"no two sizes differ in {name} alone")
        slopes[name] = _relative_slope(chosen, groups, formula, s)
    low_p, high_p, low_K, high_K = claim.numbers
    holds = _inside(slopes["p"], low_p, high_p) and _inside(slopes["K"], low_K, high_K)
    share = [r["paper_settings_reading"] / r["formula_paper"] for r in rows]
    return Answer(
        verdict_if(holds),
        "; ".join(
            f"in {k} {percent(x.value, 1)} ± {percent(x.error, 1)}" for k, x in slopes.items()
        ),
        *slopes["p"],
        on=counted(rows, data.rows("llc.csv")),
        settings="n_beta 26.4; gamma 5; from the spectrum at w*, no sampler",
        cause=f"At that resolution the whole reading is {percent(min(share), 1)} to "
        f"{percent(max(share), 1)} of the formula.",
    )


def _relative_slope(
    pairs: Sequence[tuple[tuple[int, int], tuple[int, int]]],
    groups: dict[tuple[int, int], list[float]],
    formula: dict[tuple[int, int], list[float]],
    s: float,
) -> Statistic:
    """Mean of Δreading/Δformula over pairs of sizes."""
    values, variances = [], []
    for a, b in pairs:
        rise = float(np.mean(formula[b]) - np.mean(formula[a]))
        values.append(float(np.mean(groups[b]) - np.mean(groups[a])) / rise)
        variances.append(s * s * (1 / len(groups[a]) + 1 / len(groups[b])) / rise**2)
    return Statistic(float(np.mean(values)), float(np.sqrt(sum(variances)) / len(values)))


def _inside(found: Statistic, low: float, high: float) -> bool:
    """Within [low, high], or out of it by at most two errors and half a percent of rounding."""
    slack = 2.0 * found.error + 0.005
    return low - slack <= found.value <= high + slack


@rule("llc.csv", "sensitivity.csv", also=(AT_SOURCE,))
def r05_step_inflation(data: Evidence, claim: Claim) -> Answer:
    """law_stationary over ½Σh/(h+c), minus 1: median over networks; reproduced when it is within
    half a percent of 2 % and 1/(1−s/4) − 1 within half a percent of 5 %. Beside it the measured
    λ̂(0.2)/λ̂(0.05) and what the law says of it."""
    rows = data.at_source("llc.csv", "law_stationary", "effective_dimension")
    values = [r["law_stationary"] / r["effective_dimension"] - 1.0 for r in rows]
    whole, stiff = float(np.median(values)), 1.0 / (1.0 - rows[0]["step_constant"] / 4.0) - 1.0
    frozen = {r["network"]: r for r in rows}
    small = changed_to(data.usable("sensitivity.csv", "llc"), "step_constant", 0.05)
    pairs = [(frozen[r["network"]], r) for r in small if r["network"] in frozen]
    if not pairs:
        raise NotEnough("llc.csv has none of the networks of sensitivity.csv")
    read = float(np.median([a["llc"] / b["llc"] - 1.0 for a, b in pairs]))
    law = float(np.median([a["law"] / b["law"] - 1.0 for a, b in pairs]))
    error = float(np.median([_relative_error(a, b) for a, b in pairs]))
    near = abs(whole - claim.numbers[0]) <= 0.005 and abs(stiff - claim.numbers[1]) <= 0.005
    answer = Answer(
        verdict_if(near),
        f"{percent(whole, 1)}, from {percent(min(values), 1)} to {percent(max(values), 1)}; "
        f"{percent(stiff, 1)} per stiff direction",
        value=whole,
        on=counted(rows, data.rows("llc.csv")),
        settings=settings_of(rows),
        cause=f"From s 0.05 to 0.2 λ̂ rises by {percent(read, 1)} ± {percent(error, 1)} (median of "
        f"{len(pairs)} networks) where the law says {percent(law, 1)}; at s 0.05 chains of one "
        "length are less settled, which the law includes.",
    )
    return compared(answer, [*rows, *small], "step_constant")
