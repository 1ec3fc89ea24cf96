"""How the claims about ranks, spectra and the networks themselves are decided; see reading_rules.

Symbols
    J   Jacobian at w*, r its numerical rank, K(3p−2) the most two symmetries per neuron allow
    s   singular values; between seeds, the spread of evidence.between_seeds
    h   curvatures, c = 1e-4 the resolution gamma/n_beta of the frozen settings
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import theory
import zoo
from evidence import (
    DIFFERS,
    NOT_COMPARABLE,
    REFUTED,
    Answer,
    Claim,
    Evidence,
    NotEnough,
    Row,
    agrees,
    between_seeds,
    by_size,
    counted,
    one_network,
    percent,
    range_agrees,
    rule,
    settings_of,
    span,
    verdict_if,
)

NO_SAMPLER = "from the spectrum at w*, no sampler"
GRAM_SIZES = ((23, 92), (31, 93))  # those whose spectrum the source took from the Gram matrix
ROUNDING_FACTOR = 3.0  # two figures of rounding error within it are of one size
FINE = 1e-9  # the source's tolerance for singular values by svd
SLOPPY = (17, 51)  # the size the source looks at closely
LONG = 10_000  # training steps after which R04 asks


# ---- rank --------------------------------------------------------------------------------------


def verdict_networks(data: Evidence, *columns: str) -> list[Row]:
    """The usable networks of the verdict sizes."""
    rows = [r for r in data.usable("networks.csv", *columns) if r["study"] == "verdict"]
    if not rows:
        raise NotEnough("networks.csv has no network of the verdict")
    return rows


@rule("networks.csv")
def k04_rank(data: Evidence, claim: Claim) -> Answer:
    """Rank at 1e-9 by svd or qr against K(3p−2), in whole numbers; reproduced when equal on every
    network. The exact rank over GF(q) of the stored weights stands beside it."""
    rows = [r for r in verdict_networks(data, "rank") if r["route"] in ("svd", "qr")]
    if not rows:
        raise NotEnough("networks.csv has no spectrum by svd or qr")
    ratios = [r["rank"] / generic_rank(r) for r in rows]
    equal = sum(r["rank"] == generic_rank(r) for r in rows)
    exact = sum(r["exact_lower"] == generic_rank(r) for r in rows)
    unused = sum(r["K_eff"] < r["K"] for r in rows if r["rank"] < generic_rank(r))
    lower = len(rows) - equal
    cause = f"The exact rank over GF(q) meets K(3p−2) on {exact} of {len(rows)}."
    if lower:
        gaps = [r["gap"] for r in rows if r["rank"] < generic_rank(r) and r["gap"]]
        behind = f", gap {span(gaps, '.1e')} at the cut" if gaps else ""
        cause += (
            f" Of the {lower} networks below it {unused} have neurons out of use{behind}: what is "
            "counted exactly there lies under the tolerance."
        )
    return Answer(
        verdict_if(equal == len(rows)),
        f"{equal} of {len(rows)} networks; ratio {span(ratios, '.4f')}",
        value=float(np.median(ratios)),
        on=counted(rows, data.rows("networks.csv")),
        settings=f"tolerance 1e-9; {NO_SAMPLER}",
        cause=cause,
    )


def generic_rank(row: Row) -> int:
    """K(3p−2)."""
    return int(row["K"] * (3 * row["p"] - 2))


def sweep(data: Evidence, route: str, weights: str = "grokked") -> list[Row]:
    """The rows of rank_sweep.csv of one route. Raises NotEnough."""
    rows = data.usable("rank_sweep.csv", "rank")
    rows = [r for r in rows if r["route"] == route and r["weights"] == weights]
    if not rows:
        raise NotEnough(f"rank_sweep.csv has no {weights} network by {route}")
    return rows


@rule("rank_sweep.csv")
def k05_gram_rank(data: Evidence, claim: Claim) -> Answer:
    """Gram route on the two sizes the source used it for: shortfall below K(3p−2) at 1e-6, and
    excess over it at every tolerance below 1e-7. Reproduced when the median shortfall is within 0
    to 6 and every network exceeds K(3p−2)."""
    rows = [r for r in sweep(data, "gram") if (r["p"], r["K"]) in GRAM_SIZES]
    short = [r["generic_rank"] - r["rank"] for r in rows if _at(r, 1e-6)]
    finer = [r for r in rows if r["tolerance"] < 0.99e-7]
    if not short or not finer:
        raise NotEnough(
            f"rank_sweep.csv has no Gram rank of the sizes {GRAM_SIZES} at 1e-6 or below"
        )
    over = [r["rank"] - r["generic_rank"] for r in finer]
    low, high = claim.numbers
    other = [
        r["generic_rank"] - r["rank"]
        for r in sweep(data, "gram")
        if (r["p"], r["K"]) not in GRAM_SIZES and _at(r, 1e-6)
    ]
    smaller = f" On the other sizes it is {span(other, 'd')} below at 1e-6." if other else ""
    return Answer(
        verdict_if(low <= float(np.median(short)) <= high and min(over) > 0),
        f"{span(short, 'd')} below at 1e-6; {span(over, 'd')} above below 1e-7",
        value=float(np.median(short)),
        on=counted(rows, data.rows("rank_sweep.csv")),
        settings=NO_SAMPLER,
        cause="The Gram matrix squares s: its rounding floor is "
        f"{'above' if finer[-1]['below_floor'] else 'below'} these tolerances.{smaller}",
    )


def _at(row: Row, tolerance: float) -> bool:
    return bool(np.isclose(row["tolerance"], tolerance, rtol=1e-6, atol=0.0))


@rule("networks.csv")
def k06_gap(data: Evidence, claim: Claim) -> Answer:
    """s[r−1]/s[r] at the cut by svd or qr; reproduced when its median lies within 1e7 to 1e9."""
    rows = [r for r in verdict_networks(data, "gap") if r["route"] in ("svd", "qr")]
    if not rows:
        raise NotEnough("networks.csv has no gap by svd or qr")
    gaps = [r["gap"] for r in rows]
    median = float(np.median(gaps))
    narrow = min(rows, key=lambda r: r["gap"])
    low, high = claim.numbers
    return Answer(
        verdict_if(low <= median <= high),
        f"median {median:.1e}, {span(gaps, '.1e')}",
        value=median,
        on=counted(rows, data.rows("networks.csv")),
        settings=f"tolerance 1e-9; {NO_SAMPLER}",
        cause=f"Narrowest for {narrow['network']}: smallest counted curvature "
        f"{narrow['h_min']:.1e} of {narrow['h_max']:.2g}, rank {narrow['rank']} of at most "
        f"{narrow['rank_bound']}.",
    )


@rule("rank_sweep.csv")
def k07_gram_error(data: Evidence, claim: Claim) -> Answer:
    """Largest |s(gram) − s(svd or qr)|/s_max; a rounding error, so reproduced when it is within a
    factor 3 of the source's."""
    rows = [r for r in sweep(data, "gram") if r["error_against_svd"] is not None]
    if not rows:
        raise NotEnough("rank_sweep.csv has no Gram spectrum beside another")
    errors = [r["error_against_svd"] for r in rows]
    source, eps = claim.numbers[0], float(np.finfo(np.float64).eps)
    close = source / ROUNDING_FACTOR <= max(errors) <= source * ROUNDING_FACTOR
    return Answer(
        verdict_if(close),
        f"{max(errors):.1e} at most, median {np.median(errors):.1e}",
        value=max(errors),
        on=counted(rows, data.rows("rank_sweep.csv")),
        settings=NO_SAMPLER,
        cause="An error e of the eigenvalues, in units of s_max², becomes √e where s is zero: "
        f"√eps is {eps**0.5:.1e}, ours {max(errors) ** 2 / eps:.0f} eps in the eigenvalue.",
    )


# ---- flat directions ---------------------------------------------------------------------------


@rule("rank_sweep.csv", "networks.csv")
def k08_flat_share(data: Evidence, claim: Claim) -> Answer:
    """Smallest and largest share of the counted curvatures below 1e-4, svd at 1e-9; reproduced when
    all lie in the source's range, widened by 2√2·s + 0.005."""
    swept = sweep(data, "svd")
    groups = by_size([r for r in swept if _at(r, FINE)], "flat_share")
    values, s = [v for group in groups.values() for v in group], between_seeds(groups)
    by_tolerance = "; ".join(
        f"{t:.0e}: {span([100 * r['flat_share'] for r in swept if _at(r, t)], '.0f')} %"
        for t in sorted({r["tolerance"] for r in swept}, reverse=True)
    )
    made = verdict_networks(data, "loss")
    return Answer(
        verdict_if(range_agrees(values, claim.numbers, s)),
        f"{span([100 * v for v in values], '.1f')} %; spread between seeds {percent(s, 1)}",
        value=float(np.median(values)),
        error=s,
        on=counted(swept, data.rows("rank_sweep.csv")),
        settings=f"c = 1e-4; {NO_SAMPLER}",
        cause=f"By tolerance (svd): {by_tolerance}. Trained for "
        f"{span([r['training_steps'] for r in made], 'd')} steps, polished to losses of "
        f"{span([r['loss'] for r in made], '.0e')}.",
    )


@rule("rank_sweep.csv")
def k09_flat_share_of_one_size(data: Evidence, claim: Claim) -> Answer:
    """Flat share at p = 17, K = 51, svd at 1e-9: reproduced when the mean over our seeds agrees
    with the middle of the source's range for one network, within 2·s·√(1+1/n), and at random
    weights at most a tenth of it is left."""
    groups = by_size([r for r in sweep(data, "svd") if _at(r, FINE)], "flat_share")
    low, high, at_random = claim.numbers
    found, n = one_network(groups, SLOPPY)
    swept = [r for r in sweep(data, "svd", "random") if _size(r) == SLOPPY and _at(r, FINE)]
    if not swept:
        raise NotEnough("rank_sweep.csv has no random weights at p = 17, K = 51 and 1e-9")
    flat = swept[0]["flat_share"]
    holds = agrees(found, 0.5 * (low + high), 0.5 * (high - low) + 0.0005)
    return Answer(
        verdict_if(holds and flat <= 0.1 * found.value),
        f"{percent(found.value, 1)} (single networks {span(groups[SLOPPY], '.3f')}); at random "
        f"weights {percent(flat, 2)}",
        *found,
        on=f"{n} networks, 1 size",
        settings=f"c = 1e-4; {NO_SAMPLER}",
        cause=f"At random weights the source has {percent(at_random, 2)}.",
    )


def _size(row: Row) -> tuple[int, int]:
    return row["p"], row["K"]


@rule("rank_sweep.csv")
def k10_smooth_model(data: Evidence, claim: Claim) -> Answer:
    """½Σh/(h+c) over the directions counted at each tolerance, svd: largest minus smallest over
    tolerances 1e-4 to 1e-12, the worst network. Reproduced when it is below 0.01."""
    by_network: dict[str, list[Row]] = {}
    for r in sweep(data, "svd"):
        by_network.setdefault(r["network"], []).append(r)
    moved = {
        name: float(np.ptp([r["smooth_model"] for r in rows])) for name, rows in by_network.items()
    }
    worst = max(moved, key=lambda name: moved[name])
    rows = by_network[worst]
    counts = [r["rank"] for r in rows]
    share = moved[worst] / max(r["smooth_model"] for r in rows)
    return Answer(
        verdict_if(moved[worst] < claim.numbers[0]),
        f"{moved[worst]:.2g} at most, {share:.1e} of it; median {np.median([*moved.values()]):.2g}",
        value=moved[worst],
        on=counted([r for group in by_network.values() for r in group]),
        settings=f"c = 1e-4; {NO_SAMPLER}",
        cause=f"Most for {worst}: {max(counts) - min(counts)} directions lie between the "
        "tolerances, and each counts ½h/(h+c).",
    )


@rule("rank_sweep.csv")
def k11_smooth_model_of_one_size(data: Evidence, claim: Claim) -> Answer:
    """½Σh/(h+1e-4) over half the rank at p = 17, K = 51, svd at 1e-9; reproduced when the mean over
    our seeds agrees with the source's one network, within 2·s·√(1+1/n) + 0.005."""
    rows = [
        r | {"share": r["smooth_model"] / (0.5 * r["rank"])}
        for r in sweep(data, "svd")
        if _at(r, FINE)
    ]
    groups = by_size(rows, "share")
    found, n = one_network(groups, SLOPPY)
    mine = [r for r in rows if _size(r) == SLOPPY]
    return Answer(
        verdict_if(agrees(found, claim.numbers[0])),
        f"{found.value:.3f} (single networks {span(groups[SLOPPY], '.3f')})",
        *found,
        on=f"{n} networks, 1 size",
        settings=f"c = 1e-4; {NO_SAMPLER}",
        cause=f"Flat share {span([r['flat_share'] for r in mine], '.3f')}, rank "
        f"{span([r['rank'] for r in mine], 'd')}.",
    )


# ---- the networks and their making -------------------------------------------------------------


@rule("equations.json")
def k18_hessian(data: Evidence, claim: Claim) -> Answer:
    """Error of check E08; a rounding error of a stencil, so reproduced when it is at most 3 times
    the source's."""
    found = [r for r in data.rows("equations.json") if r["id"] == "E08"]
    if not found or found[0]["error"] is None:
        raise NotEnough("equations.json has no result of E08")
    error = found[0]["error"]
    return Answer(
        verdict_if(found[0]["ok"] and error <= ROUNDING_FACTOR * claim.numbers[0]),
        f"{error:.1e} of the largest entry, tolerance {found[0]['tolerance']:.1e}",
        value=error,
        on="planted networks of check E08",
        settings="five-point stencil of the gradient",
        cause="The error is the stencil's, step⁴ against eps/step.",
    )


@rule("networks.csv")
def k26_polish_moves(data: Evidence, claim: Claim) -> Answer:
    """Largest |w* − w|/|w| of the polish; reproduced when it rounds to 3 % or less."""
    rows = verdict_networks(data, "polish_moved")
    moved = [r["polish_moved"] for r in rows]
    worst = max(rows, key=lambda r: r["polish_moved"])
    return Answer(
        verdict_if(max(moved) < claim.numbers[0] + 0.005),
        f"{percent(max(moved), 1)} at most, median {percent(float(np.median(moved)), 1)}",
        value=max(moved),
        on=counted(rows, data.rows("networks.csv")),
        settings="Adam without decay to a loss of 1e-8 or 5,000 steps",
        cause=f"Most for {worst['network']}: {worst['polish_steps']} steps to a loss of "
        f"{worst['loss']:.1e} after {worst['training_steps']} of training.",
    )


@rule("networks.csv", "llc.csv")
def k27_wall_time(data: Evidence, claim: Claim) -> Answer:
    """Seconds of polish and chains by p; never comparable, since the machines differ."""
    polish = {r["network"]: r["seconds_polish"] for r in verdict_networks(data, "seconds_polish")}
    rows = [r for r in data.usable("llc.csv", "seconds_sampling") if r["network"] in polish]
    if not rows:
        raise NotEnough("no network has both its polish and its chains timed")
    taken: dict[int, list[float]] = {}
    for r in rows:
        taken.setdefault(r["p"], []).append(polish[r["network"]] + r["seconds_sampling"])
    seconds = {p: float(np.median(values)) for p, values in taken.items()}
    return Answer(
        NOT_COMPARABLE,
        "; ".join(f"p = {p}: {s:.1f} s" for p, s in seconds.items()),
        value=seconds[min(seconds)],
        on=counted(rows, data.rows("llc.csv")),
        settings=settings_of(rows),
        cause=f"Another machine than the source's.{_over_the_floor(data)}",
    )


def _over_the_floor(data: Evidence) -> str:
    """What bench.py says of a step beside its matrix products and normal draws alone."""
    if not data.has("bench.json"):
        return ""
    floor = [r for r in data.rows("bench.json")[0]["summary"] if "over its floor" in r["what"]]
    told = "; ".join(f"{r['what']}: {r['measured']}" for r in floor)
    return f" On one machine and thread: {told}."


@rule("networks.csv")
def k28_neurons_in_use(data: Evidence, claim: Claim) -> Answer:
    """K_eff = K by the 1 % rule; reproduced when it holds on every network of the verdict."""
    rows = verdict_networks(data, "K_eff")
    full = sum(r["K_eff"] == r["K"] for r in rows)
    least = min(rows, key=lambda r: r["K_eff"] / r["K"])
    return Answer(
        verdict_if(full == len(rows)),
        f"{full} of {len(rows)} networks; lowest K_eff/K {least['K_eff'] / least['K']:.2f}",
        value=least["K_eff"] / least["K"],
        on=counted(rows, data.rows("networks.csv")),
        settings="1 % of the largest |W_j|·(|u_j|² + |v_j|²)",
        cause=f"Lowest for {least['network']}: {least['K_eff']} of {least['K']} after "
        f"{least['training_steps']} steps under weight decay; training stopped between "
        f"{span([r['training_steps'] for r in rows], 'd')} steps.",
    )


# ---- degenerate points -------------------------------------------------------------------------


@rule("fourier.csv")
def r03_fourier(data: Evidence, claim: Claim) -> Answer:
    """½K(3p−1) above the upper end of the bracket at exact Fourier solutions, in exact numbers:
    reproduced when that holds on every row and the row p = 11, K = 30 has the claimed figures,
    refuted when it fails there."""
    rows = data.usable("fourier.csv", "bracket_high")
    above = [r["formula_paper"] > r["bracket_high"] for r in rows]
    named = [r for r in rows if (r["p"], r["K"]) == (11, 30)]
    if not named:
        raise NotEnough("fourier.csv has no row p = 11, K = 30")
    r = named[0]
    figures = (r["formula_paper"], r["bracket_low"], r["bracket_high"])
    agrees_exactly = np.array_equal(figures, claim.numbers)
    wrong = REFUTED if r["formula_paper"] <= r["bracket_high"] else DIFFERS
    listed = "; ".join(
        f"({r['p']}, {r['K']}) {r['formula_paper']:g} against {r['bracket_low']:g} to "
        f"{r['bracket_high']:g}"
        for r in rows
    )
    ideal = sum(r["exact_rank_ideal"] == r["rank_formula"] for r in rows)
    return Answer(
        verdict_if(all(above) and agrees_exactly, wrong),
        f"above on {sum(above)} of {len(rows)}; (11, 30): {figures[0]:g}, {figures[1]:g} to "
        f"{figures[2]:g}",
        value=figures[0],
        on=f"{len(rows)} solutions, p = {', '.join(map(str, sorted({r['p'] for r in rows})))}",
        settings="exact, no sampler",
        cause=f"{listed}. The exact rank mod q meets the rank formula on {ideal} of {len(rows)}.",
    )


@rule("convergence.csv")
def r04_long_training(data: Evidence, claim: Claim) -> Answer:
    """At the first stop after 10,000 steps or more, p = 17, K = 51: rank below K(3p−2) and the
    paper's formula above the bracket, both with every neuron counted and with those in use.
    Reproduced when all hold on every network, refuted when the rank falls on none, differs else."""
    runs = _after(data.usable("convergence.csv", "rank", "bracket_high"), LONG)
    mine = [r for r in runs if _size(r) == SLOPPY]
    if not mine:
        raise NotEnough("convergence.csv has no p = 17, K = 51 at 10,000 steps or more")
    fell = _count(mine, lambda r: r["rank"] < generic_rank(r))
    above = _count(mine, lambda r: r["formula_paper"] > r["bracket_high"])
    in_use = _count(mine, lambda r: r["formula_paper_in_use"] > r["bracket_high"])
    holds = fell == above == in_use == len(mine)
    others = [r for r in runs if _size(r) != SLOPPY]
    elsewhere = _count(others, lambda r: r["formula_paper_in_use"] > r["bracket_high"])
    gaps = [r["gap"] for r in mine if r["gap"]]
    return Answer(
        verdict_if(holds, REFUTED if fell == 0 else DIFFERS),
        f"rank {span([r['rank'] for r in mine], 'd')} of {generic_rank(mine[0])}; formula above "
        f"the bracket on {above} of {len(mine)}, with the neurons in use on {in_use}",
        value=float(np.median([r["rank"] for r in mine])),
        on=counted(mine, data.rows("convergence.csv")),
        settings=f"{span([r['training_steps'] for r in mine], 'd')} training steps; {NO_SAMPLER}",
        cause=f"K_eff is {span([r['K_eff'] for r in mine], 'd')} of {mine[0]['K']}; "
        + (f"gap at the cut {span(gaps, '.1e')}; " if gaps else "")
        + f"exact rank of the stored weights {span([r['exact_lower'] for r in mine], 'd')}. At the "
        f"other size ½K_eff(3p−1) is above on {elsewhere} of {len(others)}.",
    )


def _after(rows: Sequence[Row], steps: int) -> list[Row]:
    """Per network the first row at so many training steps or more."""
    found: dict[str, Row] = {}
    for r in sorted(rows, key=lambda r: r["training_steps"]):
        if r["training_steps"] >= steps:
            found.setdefault(r["network"], r)
    return list(found.values())


def _count(rows: Sequence[Row], holds: Callable[[Row], bool]) -> int:
    return sum(map(holds, rows))


@rule()
def s07_flat_directions(data: Evidence, claim: Claim) -> Answer:
    """(λ − r/2)/(D − r) on smooth models with a known λ (normal crossings and sums of even powers
    of up to 4 weights, exponents up to 4): reproduced when it lies within 0 to ¼ on all, refuted
    otherwise. r is the rank of J at the singular point, D − r the flat directions."""
    models: list[zoo.Monomial | zoo.PowerSum] = [zoo.Monomial(k) for k in _exponents()]
    models += [zoo.PowerSum([2 * e for e in k]) for k in _exponents()]
    shares = []
    for model in models:
        r = int(np.linalg.matrix_rank(model.jacobian(model.w_star)))
        flat = model.symmetry_free_dimension() - r
        low = theory.bracket(r, model.symmetry_free_dimension()).lower
        if flat:
            shares.append((model.llc - low) / flat)
    low, high = claim.numbers
    return Answer(
        verdict_if(min(shares) >= low and max(shares) <= high, REFUTED),
        span(shares, ".4f"),
        value=max(shares),
        on=f"{len(shares)} models with flat directions",
        settings="closed forms, no sampler",
        cause="¼ is reached by w₁²w₂² and w⁴: one factor or term of fourth order.",
    )


def _exponents() -> list[list[int]]:
    """Every rising list of 1 to 4 whole numbers of 1 to 4."""
    found: list[list[int]] = [[]]
    lists = []
    for _ in range(4):
        found = [[*k, e] for k in found for e in range(k[-1] if k else 1, 5)]
        lists += found
    return lists
