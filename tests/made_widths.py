"""The width study's tables made by hand: the sources' own figures, with a percent between seeds.

Nothing is measured; see made_data. At these figures every claim of the width study is reproduced,
save that the law of the linear regression is κ/(κ + 1) itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import width_networks
import width_tables
from width_networks import PAIRS, WIDTHS, Network

Row = dict[str, Any]
SPREAD = 0.01
N_BETA = 1024 / math.log(1024)

# at widths 64, 256, 1024
NTK = {
    "dimension_1": (8.2, 11.19, 15.4),
    "drift_all": (2.49, 1.5, 0.90),
    "linearisation_error": (2.45 * 16**0.21, 2.45 * 4**0.21, 2.45),
    "h_max": (2.07, 1.3, 0.82),
    "trace": (42.9, 39.0, 34.2),
    "stable_rank": (21.0, 30.0, 42.0),
    "dimension_gamma_5000": (0.40, 0.20, 0.10),
}
MUP = {
    "dimension_1": (0.954 * 8.2, 0.528 * 11.19, 0.247 * 15.4),
    "drift_all": (4.9, 5.0, 5.01),
    "linearisation_error": (16.0, 15.5, 14.7),
    "h_max": (9.3, 60.0, 346.0),
    "trace": (199.0, 900.0, 4201.0),
    "stable_rank": (22.0, 15.0, 12.0),
    "dimension_gamma_5000": (0.5, 0.8, 1.69),
}
LAYERS = {"ntk": (0.83, 0.96, 1.03), "mup": (7.08, 0.05, 0.12)}
MATCHED = (0.713, 0.431, 0.213)


def jitter(name: str) -> float:
    """A factor near 1 that belongs to one network."""
    words = np.random.SeedSequence([len(name), *name.encode()])
    return float(np.exp(SPREAD * np.random.default_rng(words).standard_normal()))


def network(n: Network) -> Row:
    """One line of widths.csv."""
    at = WIDTHS.index(n.width)
    values = {k: v[at] for k, v in (NTK if n.condition == "ntk" else MUP).items()}
    if n.base_rate not in (PAIRS["source-like"][n.condition], PAIRS["common"]["ntk"]):
        values["dimension_1"] *= 1.1
    if n.condition == "mup" and n.base_rate == PAIRS["common"]["mup"]:
        values["dimension_1"] = 6.0 + at  # it rises at the common rate
    size = {k: v * jitter(n.name + k) for k, v in values.items()}
    one = size["dimension_1"]
    return {
        **n.columns(),
        **{"d": n.width * (784 + n.width + 10) + 2 * n.width + 10, "n": n.n, "steps": n.steps},
        **{"loss": 1e-4, "accuracy": 1.0},
        **{
            f"drift_W{k + 1}": x * jitter(f"{n.name}{k}") for k, x in enumerate(LAYERS[n.condition])
        },
        **{"hessian_scale": 2.0 / 10240, "rank_ceiling": 10240, "rank": 10240, "h_min": 1e-6},
        **{"dimension_10": 4.287 * one, "dimension_100": 12.0 * one, "kappa_gamma_5000": 0.03},
        **{f"trace_dimension_{k}": one * 0.9 * x for k, x in ((1, 1), (10, 4), (100, 12))},
        **{f"rank_dimension_{k}": one * 1.1 * x for k, x in ((1, 1), (10, 4), (100, 12))},
        **size,
    }


def widths() -> list[Row]:
    """widths.csv: every network of the study."""
    return [network(n) for n in width_networks.all_networks()]


def matched() -> list[Row]:
    """width_matched.csv: seed 0 of every pair."""
    rows = []
    for rates, both in width_networks.all_pairs():
        if both[0].seed or rates == "common high":
            continue
        for n in both:
            one = network(n)["dimension_1"]
            if n.condition == "mup" and rates == "source-like":
                one = MATCHED[WIDTHS.index(n.width)] * network(both[0])["dimension_1"]
            values = {"pair": rates, "target_loss": 1e-4, "loss": 1.05e-4, "step": 2000}
            rows.append({**n.columns(), **values, "h_max": 2.0, "dimension_1": one})
    return rows


def chain(n: Network, rule: str = "plain", kappa: float = 1.0, **more: Any) -> Row:
    """One line of width_chains.csv: the reading is the exact value."""
    one = network(n)
    s = more.get("step_constant", 0.2)
    tau = 2.0 / s * (kappa + 1.0)
    llc = one["dimension_1"] * {1.0: 1.0, 10.0: 4.3}.get(kappa, 1.0)
    if n.condition == "mup" and n.width == 1024:
        llc = {1.0: 3.80, 10.0: 16.2}.get(kappa, llc)
    slow = rule == "inherited"
    return {
        **n.columns(),
        **{"weights": "last", "rule": rule, "aligned": "kappa", "kappa": kappa},
        **{"n_beta_factor": 1.0, "n_beta": N_BETA, "gamma": 100.0, "step_constant": s},
        **{"step": 1e-4, "chains": 4, "steps": round(20 * tau), "burn_in": round(4 * tau)},
        **{"llc": llc, "standard_error": 0.005 * llc, "settled": True, "integrated_time": 5.0},
        **{"dimension": llc, "law": llc, "law_sd": 0.005 * llc, "slope_shift": 0.0, "z": 0.1},
        **{
            "relaxation": 0.95 * tau * jitter(n.name + rule + f"{kappa}{s}") ** 3,
            "relaxation_law": tau,
            "spread_W1": 1.0,
        },
        **{"spread_W2": 0.11 if slow else 0.99, "spread_law_W1": 1.0},
        **{"spread_law_W2": 0.1 if slow else 1.0, "mala": 0.0 if s > 0.1 else 0.92},
        **{"mala_law_chain": 0.7, "mala_law_posterior": 0.0, "reach": 0.3, "reach_law": 0.3},
    } | more


def chains() -> list[Row]:
    """width_chains.csv: what each rule asks for."""
    rows = []
    for condition in width_networks.CONDITIONS:
        for width in WIDTHS:
            n = Network(condition, width, PAIRS["source-like"][condition], 0)
            gamma = network(n)["dimension_gamma_5000"]
            read = dict.fromkeys(("llc", "law", "dimension"), gamma)
            read |= dict.fromkeys(("standard_error", "law_sd"), 0.01 * gamma)
            rows += [chain(n, rule, k) for rule in ("plain", "rmsprop") for k in (1.0, 10.0)]
            rows += [chain(n, "plain", 0.1, aligned="gamma", **read)]
            rows += [chain(n, n_beta_factor=100.0)]
            if condition == "mup":
                rows += [chain(n, "inherited", k) for k in (1.0, 10.0)]
            if width == 64:
                steps = ((4.0, 0.2), (16.0, 0.6), (64.0, 0.92))
                rows += [chain(n, step_constant=0.2 / k, mala=mala) for k, mala in steps]
                rows += [chain(n, weights="polished")]
    return rows


def linear() -> list[Row]:
    """width_linear.csv: the law is κ/(κ + 1)."""
    rows = []
    for kappa, s in ((0.1, 0.2), (1.0, 0.2), (10.0, 0.2), (100.0, 0.2), (1.0, 0.02)):
        share = kappa / (kappa + 1.0)
        fractions = dict.fromkeys(("kappa_rule", "dimension_fraction", "law_fraction"), share)
        read = {"llc": 52.5 * share, "standard_error": 0.5 * share, "fraction": 1.005 * share}
        rows.append(
            {"kappa": kappa, "n": 1024, "d": 105, "step_constant": s, **fractions, **read}
            | {"law_fraction_sd": 0.01 * share, "relaxation": 20.0, "relaxation_law": 20.0}
        )
    return rows


def hessian() -> list[Row]:
    """width_hessian.csv at κ = 1 and 10."""
    rows = []
    for condition in width_networks.CONDITIONS:
        value = 12.3 if condition == "ntk" else 12.0
        n = Network(condition, 64, PAIRS["source-like"][condition], 0)
        for kappa in (1.0, 10.0):
            read = {"gauss_newton": value, "full": value, "plain": value, "error_formula": 0.57}
            errors = {"full_error": 0.01, "plain_error": 0.5, "probes": 8, "lowest": -1e-3}
            rows.append({**n.columns(), "kappa": kappa, "resolution": 1.0, **read, **errors})
    return rows


def polish() -> list[Row]:
    """width_polish.csv: λ(c) moves by a percent."""
    rows = []
    for condition in width_networks.CONDITIONS:
        n = Network(condition, 64, PAIRS["source-like"][condition], 0)
        values = {f"before_{k}": 8.0 * k for k in width_tables.KAPPAS}
        after = {f"dimension_{k}": 8.08 * k for k in width_tables.KAPPAS}
        losses = {"loss_before": 1.33e-4, "loss_after": 1e-7, "polish_steps": 900, "moved": 0.01}
        rows.append({**n.columns(), **losses, **values, **after, "h_max": 2.0})
    return rows


def lazy() -> list[Row]:
    """width_lazy.csv: the lazier, the larger the share at κ = 100."""
    rows = []
    for k, alpha in enumerate((1.0, 10.0, 100.0, 1000.0)):
        values = {"loss": 1e-3, "accuracy": 1.0, "drift_all": 0.5, "linearisation_error": 10.0**-k}
        sizes = {f"dimension_1e{e}": 10.0 * (1 + k) * (1 + e) for e in range(9)}
        ranks = {"rank": 10240, "rank_ceiling": 10240, "half_ceiling": 5120.0}
        rows.append(
            {"width": 256, "alpha": alpha, "rate_power": 1, "rate": 1e-3 / alpha}
            | {**values, **sizes, **ranks, "h_max": 1.0, "h_min": 1e-6, "stable_rank": 20.0}
        )
    return rows


def influence() -> list[Row]:
    """width_influence.csv: exact over κ, and one sampled row."""
    rows = []
    for condition in width_networks.CONDITIONS:
        n = Network(condition, 64, PAIRS["source-like"][condition], 0, n=896)
        same = {**n.columns(), "queries": 128, "aligned": "kappa", "gamma": 10.0}
        for kappa in (1.0, 10.0, 1000.0):
            values = dict.fromkeys(("exact_and_kappa_10", "damped_and_kappa_10"), 0.8)
            both = {"damped_and_exact": 0.9, "damped_and_exact_sd": 0.05, "first_term_share": 0.5}
            rows.append({**same, "kappa": kappa, "n_beta_factor": 1.0, **values, **both})
        read = {"draws": 400, "sampled_and_exact": 0.6, "sampled_halves": 0.7}
        rows.append({**same, "kappa": 1.0, "n_beta_factor": 100.0, "damped_and_exact": 0.9, **read})
    return rows


def peers() -> list[Row]:
    """peers.csv: two cases that agree."""
    rows = []
    for case, ours in (("p11", 364.0), ("width64_k1", 14.4)):
        values = {"ours": ours, "ours_error": 0.01 * ours, "theirs": 1.01 * ours}
        rest = {"theirs_error": 0.01 * ours, "z_difference": -0.7, "law": ours, "law_sd": 1.0}
        times = {"ms_ours": 0.4, "ms_theirs": 8.0, "ratio": 20.0, "slope_shift": 0.0}
        rows.append(
            {"case": case, "rule": "plain", "peer": "devinterp 1.3.2", "torch": "2.13.0", "d": 9}
            | {"chains": 4, "steps": 100, "burn_in": 20, "n_beta": 1e4, "gamma": 1.0, "kappa": 10.0}
            | {"step": 1e-6, **values, **rest, **times}
        )
    return rows


TABLES = {
    "widths": widths,
    "width_matched": matched,
    "width_chains": chains,
    "width_linear": linear,
    "width_hessian": hessian,
    "width_polish": polish,
    "width_lazy": lazy,
    "width_influence": influence,
}


def files() -> dict[str, list[Row]]:
    """Every table with every column of its own, by file name."""
    found = {f"{name}.csv": [width_tables.row(name, r) for r in f()] for name, f in TABLES.items()}
    return found | {"peers.csv": peers()}
