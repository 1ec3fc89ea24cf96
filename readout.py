"""The record of one network as a person reads it: the report, the verdict, what is impossible.

Symbols: λ̂ the reading, w* the reference weights, c = gamma/n_beta the resolution, h curvatures,
z deviation from the exact law in standard errors.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

AGREES = 4.0  # standard errors: a right program departs from its law once in 16,000 readings
LINE = 100  # columns of the report


def report_text(record: dict[str, Any]) -> str:
    """The record as lines a person reads."""
    net, forms = record["network"], record["formulas"]
    title = (
        f"{record['name']}: p = {net['p']}{'' if net['p_is_prime'] else ' (not prime)'}, "
        f"K = {net['K']}, n = {net['n']} pairs, d = {net['d']} weights"
    )
    formulas = (
        f"½K_eff(3p−1) = {forms['paper']:.1f} (the paper's); "
        f"½K(3p−2) = {forms['one_hot_generic']:.1f}; ½p(n−1) = {forms['wide_limit']:.1f}"
    )
    lines = [
        title,
        _line("network", _network(net)),
        *_curvature_lines(record["curvature"]),
        _line("exact rank", _exact(record["curvature"])),
        _line("predicted", _predicted(record["predicted"])),
        _line("reading", _reading(record["reading"], record["status"])),
        _line("chains", _chains(record["reading"], net["weight_norm"])),
        *(_line("", f"doubt: {doubt}") for doubt in record["reading"]["doubts"]),
        _line("formula", formulas),
        _line("verdict", record["verdict"]),
    ]
    return "\n".join(lines)


def _line(head: str, text: str) -> str:
    return textwrap.fill(f"  {head:10} {text}", LINE, subsequent_indent=" " * 13)


def _network(net: dict[str, Any]) -> str:
    held_out = net["held_out_accuracy"]
    seen = "no pair held out" if held_out is None else f"{held_out:.0%} of those held out"
    return (
        f"loss {net['loss']:.2e}, K_eff {net['K_eff']}; right on {net['train_accuracy']:.0%} of "
        f"the pairs trained on, {seen}"
    )


def _curvature_lines(found: dict[str, Any]) -> Iterator[str]:
    h_max, rank = found["h_max"], found["rank"]
    if rank is None:
        yield _line("spectrum", f"h from {h_max:.3g} down (matrix-free: no rank, no bracket)")
        return
    if rank:
        span = (
            f"h from {h_max:.3g} through {found['h_median']:.3g} (median) to {found['h_min']:.3g}"
        )
        flat = f"{found['flat_share']:.1%} of them are flat, below the resolution"
        yield _line("spectrum", f"{span}; {flat} c = gamma/n_beta = {found['resolution']:.3g}")
    cut = "nothing behind it" if found["gap"] is None else f"a gap of {found['gap']:.1e} behind it"
    how = f"{found['route']}, tolerance {found['tolerance']:g}, {cut}"
    doubt = "" if found["clean_cut"] else ", where more may be curved"
    what = "directions in which the outputs change at float64 accuracy"
    yield _line("rank", f"{rank} {what} ({how}{doubt})")
    lower, upper = found["bracket"]
    where = "a solution of this rank near w*" if _idealised(found) else "the teacher f(w*)"
    yield _line("bracket", f"{lower:.1f} ≤ λ ≤ {upper:.1f} for {where}")


def _idealised(found: dict[str, Any]) -> bool:
    """True where rank and bracket drop directions curved only by the rounding of the weights: the
    exact rank, of the stored weights, counts them."""
    return bool(found["clean_cut"]) and found["exact_lower"] > found["rank"]


def _exact(found: dict[str, Any]) -> str:
    lower, upper = found["exact_lower"], found["rank_bound"]
    fields = ", ".join(f"GF({q})" for q in found["exact_primes"])
    if found["certified"]:
        return (
            f"{lower}, met by the bound from symmetries and pairs: no rounding is in it ({fields}, "
            f"at the stored weights). CERTIFICATE: λ = {lower / 2:.1f}, m = 1 for the teacher f(w*)"
        )
    return (
        f"at least {lower} ({fields}, at the stored weights, no rounding), at most {upper} "
        "(symmetries and pairs); they do not meet, so no certificate"
    )


def _predicted(law: dict[str, Any]) -> str:
    if law["expected_llc"] is None:
        return f"½Σh/(h+c) = {law['effective_dimension']:.2f} ± {law['probe_error']:.2f} (probes)"
    return (
        f"{law['expected_llc']:.2f}, spread {law['standard_deviation']:.2f}, by the exact law of "
        f"this spectrum at these settings; ½Σh/(h+c) = {law['effective_dimension']:.2f}"
    )


def _reading(reading: dict[str, Any], status: str) -> str:
    at = reading["settings"]
    return (
        f"λ̂ = {reading['llc']:.2f} ± {reading['standard_error']:.2f} [{status}] by SGLD at n_beta "
        f"{at['n_beta']:g}, gamma {at['gamma']:g}, ε {at['step']:.3g}; {at['chains']} chains × "
        f"{at['steps']} steps, the first {at['burn_in']} discarded"
    )


def _chains(reading: dict[str, Any], weight_norm: float) -> str:
    settled = "settled" if reading["settled"] else "NOT settled"
    accepted = reading["mala_acceptance"]
    return (
        f"{settled}; they end {reading['distance']:.2g} from w*, |w*| = {weight_norm:.2g}; R-hat "
        f"{reading['split_r_hat']:.3f}, integrated time {reading['integrated_time']:.0f} steps"
        + ("" if accepted is None else f", MALA would accept {accepted:.0%}")
    )


def verdict(record: dict[str, Any]) -> str:
    """In words: what the reading says, and what it cannot say."""
    reading, found, formula = record["reading"], record["curvature"], record["formulas"]["paper"]
    parts = [] if reading["settled"] else ["the chains raise doubts, so λ̂ decides nothing"]
    if formula:
        parts.append(f"λ̂ is {reading['llc'] / formula:.2f} of the paper's formula")
    z = record["z_against_law"]
    if z is not None:
        agrees = "agrees with" if abs(z) <= AGREES else "departs from"
        parts.append(f"it {agrees} the exact law of the spectrum at w* (z = {z:+.1f})")
    if found["bracket"] is not None:
        parts.append(_formula_words(found, formula))
    flagged = impossible(record)
    if flagged is not None:
        parts.append(f"λ̂ cannot be λ: {flagged['cause']}")
    return "; ".join(parts) + "."


def _formula_words(found: dict[str, Any], formula: float) -> str:
    lower, upper = found["bracket"]
    if not found["certified"] or _idealised(found):
        inside = "inside" if lower <= formula <= upper else "outside"
        return f"the formula lies {inside} the bracket"
    exact = found["exact_lower"] / 2
    side = "above" if formula > exact else "at" if formula == exact else "below"
    return f"the formula lies {side} the certified λ = {exact:.1f}"


def impossible(record: dict[str, Any]) -> dict[str, Any] | None:
    """What a reading outside the bracket by more than 4 standard errors is: not λ, and why.

    Returns {"side": "below" | "above", "standard_errors", "cause"}, or None for a reading that the
    bracket allows, or where there is no bracket.
    """
    reading, bracket = record["reading"], record["curvature"]["bracket"]
    if bracket is None:
        return None
    lower, upper = bracket
    llc, error = reading["llc"], reading["standard_error"]
    outside = (lower - llc) if llc < lower else (llc - upper)
    if not outside > AGREES * error:
        return None
    side = "below" if llc < lower else "above"
    cause = _cause_below(record) if side == "below" else _cause_above(record)
    return {
        "side": side,
        "standard_errors": outside / error if error else None,
        "cause": f"it lies {outside:.1f} {side} the bracket, {cause}",
    }


def _cause_below(record: dict[str, Any]) -> str:
    if record["reading"]["llc"] < 0:
        return "for w* is not a minimum: the chains found lower loss"
    found, law = record["curvature"], record["predicted"]["expected_llc"]
    causes = []
    if law is not None and law < found["bracket"][0]:
        causes.append(
            f"for {found['flat_share']:.0%} of the directions are flatter than the resolution "
            f"{found['resolution']:.3g} (the law alone reads {law:.1f})"
        )
    return " and ".join([*causes, *_left(record, -1)]) or "for a reason the spectrum does not show"


def _cause_above(record: dict[str, Any]) -> str:
    law, smooth = record["predicted"]["expected_llc"], record["predicted"]["effective_dimension"]
    causes = []
    if law is not None and law > record["curvature"]["bracket"][1]:
        causes.append(f"for the step inflates the reading (law {law:.1f} against {smooth:.1f})")
    return " and ".join([*causes, *_left(record, +1)]) or "for a reason the spectrum does not show"


def _left(record: dict[str, Any], sign: int) -> Iterator[str]:
    """The way the chains went, where it moved the reading off the law to this side (−1 below)."""
    z = record["z_against_law"]
    if z is not None and sign * z > AGREES:
        distance, norm = record["reading"]["distance"], record["network"]["weight_norm"]
        yield (
            f"the chains went {distance:.1f} from w* (|w*| = {norm:.1f}), where the loss is not "
            "the quadratic one"
        )
