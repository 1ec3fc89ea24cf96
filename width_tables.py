"""The columns of the width study's tables: name, type, meaning and unit, in file order.

As tables.py does for the other studies. An empty cell means: not measured, and `error` says why
where something failed. Numbers without a unit are pure numbers.

Symbols
    λ(c)  effective dimension ½Σh/(h+c); h curvatures of the Gauss-Newton matrix at w*
    κ     n_beta·h_max/gamma; c = gamma/n_beta the resolution
    λ̂     a sampled reading                 τ   2/(ε·gamma), relaxation time of the spring, steps
"""

from __future__ import annotations

from typing import Any

Table = dict[str, tuple[type, str]]

KAPPAS = (1, 10, 100)

# ---- blocks that tables share ------------------------------------------------------------------

NETWORK: Table = {
    "network": (str, "name, <condition>_w<width>_r<base rate>_s<seed>"),
    "condition": (str, "ntk: one rate for all tensors; mup: hidden and output rates over width"),
    "width": (int, "hidden neurons of each of the two hidden layers"),
    "base_rate": (float, "Adam rate before the condition's scaling"),
    "seed": (int, "seed of initial weights, minibatches and chains"),
}
OUTCOME: Table = {"error": (str, "what failed, in one line; empty when nothing did")}
DIMENSIONS: Table = {
    "h_max": (float, "largest curvature"),
    **{f"dimension_{k}": (float, f"λ(c) at κ = {k}, exact") for k in KAPPAS},
}

# ---- the tables, by name of the csv file -------------------------------------------------------

TRAINED: Table = {
    "d": (int, "weights"),
    "n": (int, "digits trained on"),
    "steps": (int, "minibatches of 64"),
    "loss": (float, "L_n over all digits, mean over examples and outputs"),
    "accuracy": (float, "share of right answers on the digits trained on"),
    **{f"drift_W{k}": (float, f"|ΔW{k}|/|W{k}| since the start") for k in (1, 2, 3)},
    "drift_all": (float, "|Δw|/|w| since the start, all tensors in one vector"),
    "linearisation_error": (float, "|f(w) − f(w₀) − J(w₀)Δw|/|f(w) − f(w₀)|"),
    "seconds_training": (float, "wall time, s"),
}
SPECTRUM: Table = {
    "hessian_scale": (float, "H = hessian_scale·JᵀJ; 2/(nC)"),
    "rank_ceiling": (int, "min(nC, d − hidden neurons), which rank J cannot exceed"),
    "rank": (int, "curvatures above the rounding of the gram route"),
    "h_min": (float, "smallest of the nC curvatures"),
    "trace": (float, "Σh, sum of all curvatures"),
    "trace_without_gram": (float, "the same from forward and backward passes alone"),
    "stable_rank": (float, "Σh/h_max"),
    "effective_rank": (float, "exp of the entropy of h/Σh"),
    **DIMENSIONS,
    **{f"trace_dimension_{k}": (float, f"λ(c) at c = Σh/(20·{k})") for k in KAPPAS},
    **{f"rank_dimension_{k}": (float, f"λ(c) at c = Σh/(effective rank·{k})") for k in KAPPAS},
    "dimension_gamma_5000": (float, "λ(c) at gamma = 5000, n_beta = n/log n"),
    "kappa_gamma_5000": (float, "κ at that gamma"),
    "seconds_gram": (float, "wall time of the Gram matrix, s"),
    "seconds_eigenvalues": (float, "wall time of all its eigenvalues, s"),
}
MATCHED: Table = (
    {"pair": (str, "source-like, common or common high: the two base rates compared")}
    | NETWORK
    | {
        "target_loss": (float, "the larger of the pair's two last losses"),
        "step": (int, "snapshot whose loss is closest in ratio"),
        "loss": (float, "L_n at that snapshot"),
    }
    | DIMENSIONS
    | OUTCOME
)
HESSIAN: Table = (
    NETWORK
    | {
        "kappa": (float, "κ, on the Gauss-Newton h_max"),
        "resolution": (float, "c, in the unit of h"),
        "lowest": (float, "smallest eigenvalue of the full Hessian, Lanczos"),
        "gauss_newton": (float, "λ(c) of the Gauss-Newton matrix, exact"),
        "full": (float, "λ(c) of the full Hessian: the exact value and probes of the difference"),
        "full_error": (float, "standard error of it"),
        "plain": (float, "λ(c) of the full Hessian by the probes alone, the source's way"),
        "plain_error": (float, "standard error of it, from the spread of the probes"),
        "error_formula": (float, "½√(2|M|²_F/probes), from the exact curvatures"),
        "probes": (int, "random sign vectors"),
        "cholesky": (float, "λ(c) of the Gauss-Newton matrix by Cholesky; empty where not asked"),
        "seconds_probes": (float, "wall time of the probes of both matrices, s"),
        "seconds_cholesky": (float, "wall time of Cholesky, s"),
    }
    | OUTCOME
)
CHAINS: Table = {
    "weights": (str, "last: the end of training; polished"),
    "rule": (str, "plain, rmsprop, or inherited: the condition's rates as steps"),
    "aligned": (str, "kappa or gamma: what was fixed beforehand"),
    "kappa": (float, "n_beta·h_max/gamma"),
    "n_beta_factor": (float, "n_beta over n/log n"),
    "n_beta": (float, "number of points × inverse temperature"),
    "gamma": (float, "strength of the spring to w*"),
    "step_constant": (float, "ε·(n_beta·h_max + gamma), or its bound for rmsprop"),
    "step": (float, "ε of the sampler"),
    "damping": (float, "δ₀ of rmsprop"),
    "chains": (int, "independent chains"),
    "steps": (int, "steps per chain, burn-in included"),
    "burn_in": (int, "first steps, not averaged"),
    "chains_seed": (str, "words of the SeedSequence of the chains"),
    "llc": (float, "λ̂, mean over chains"),
    "standard_error": (float, "of λ̂: the larger of between chains and autocorrelation"),
    "settled": (bool, "no doubt was found"),
    "doubts": (str, "why not, joined by ' | '"),
    "integrated_time": (float, "integrated autocorrelation time of the loss, steps"),
    "dimension": (float, "λ(c), exact"),
    "law": (float, "reading the law of plain SGLD predicts from the curvatures (E10)"),
    "law_sd": (float, "standard deviation of that reading"),
    "slope_shift": (float, "what the gradient at w* adds to it (E30)"),
    "z": (float, "(λ̂ − law − slope_shift)/the larger of standard_error and law_sd"),
    "relaxation": (float, "relaxation time of input weights, measured, steps"),
    "relaxation_law": (float, "τ = (2/s)(κ + 1), steps"),
    "spread_W1": (float, "gamma·mean δ² of input weights: 1 when relaxed under the spring alone"),
    "spread_W2": (float, "the same of hidden weights"),
    "spread_law_W1": (float, "what a flat direction of that step would show"),
    "spread_law_W2": (float, "the same of hidden weights"),
    "mala": (float, "mean probability that MALA would accept the moves made"),
    "mala_law_chain": (float, "the same on the quadratic, from SGLD's own law (E32)"),
    "mala_law_posterior": (float, "the same from the exact posterior (E32)"),
    "reach": (float, "mean |w − w*|/|w*| at the last step kept"),
    "reach_law": (float, "√(d/gamma)/|w*|"),
    "seconds_sampling": (float, "wall time of the chains, s"),
}
POLISH: Table = (
    NETWORK
    | {
        "loss_before": (float, "L_n after training"),
        "loss_after": (float, "L_n after full-batch Adam"),
        "polish_steps": (int, "steps of it"),
        "moved": (float, "|Δw|/|w|"),
        **{f"before_{k}": (float, f"λ(c) at κ = {k} before") for k in KAPPAS},
    }
    | DIMENSIONS
    | OUTCOME
)
LINEAR: Table = {
    "kappa": (float, "κ on the largest curvature"),
    "n": (int, "examples"),
    "d": (int, "weights; λ = d/2"),
    "step_constant": (float, "ε·(n_beta·h_max + gamma)"),
    "llc": (float, "λ̂, mean over 8 chains"),
    "standard_error": (float, "of λ̂"),
    "fraction": (float, "λ̂/(d/2)"),
    "kappa_rule": (float, "κ/(κ+1), the source's prediction"),
    "dimension_fraction": (float, "λ(c)/(d/2), the sum over the actual curvatures"),
    "law_fraction": (float, "the exact law of the chains, over d/2"),
    "law_fraction_sd": (float, "standard deviation of it"),
    "relaxation": (float, "relaxation time of the five weakest directions, measured, steps"),
    "relaxation_law": (float, "2/(ε·a) of that direction, steps"),
} | OUTCOME
LAZY: Table = {
    "width": (int, "hidden neurons"),
    "alpha": (float, "factor on the output, α(f − f₀)"),
    "rate_power": (int, "the rate is divided by α to this power: 1 for Adam, 2 in the source"),
    "rate": (float, "Adam rate"),
    "loss": (float, "L_n at the end"),
    "accuracy": (float, "share of right answers on the digits trained on"),
    "drift_all": (float, "|Δw|/|w₀|"),
    "linearisation_error": (float, "as in widths.csv"),
    "rank": (int, "curvatures above the rounding of the gram route"),
    "rank_ceiling": (int, "which rank J cannot exceed"),
    "h_max": (float, "largest curvature"),
    "h_min": (float, "smallest curvature"),
    "stable_rank": (float, "Σh/h_max"),
    **{f"dimension_1e{k}": (float, f"λ(c) at κ = 1e{k}") for k in range(9)},
    "half_ceiling": (float, "rank_ceiling/2, the limit of λ(c) as c → 0 where it is attained"),
} | OUTCOME
INFLUENCE: Table = (
    NETWORK
    | {
        "queries": (int, "digits held out of the training"),
        "aligned": (str, "kappa or gamma: what was fixed beforehand"),
        "kappa": (float, "n_beta·h_max/gamma"),
        "gamma": (float, "strength of the spring"),
        "n_beta_factor": (float, "n_beta over n/log n"),
        "damped_and_exact": (float, "rank correlation of damped influence and exact BIF, mean"),
        "damped_and_exact_sd": (float, "its spread over the queries"),
        "exact_and_kappa_10": (float, "rank correlation of exact BIF with that at κ = 10, mean"),
        "damped_and_kappa_10": (float, "the same of damped influence"),
        "first_term_share": (float, "Σ|first term|/Σ(|first| + |second term|) of exact BIF"),
        "draws": (int, "sampled: draws kept of all chains"),
        "sampled_and_exact": (float, "sampled: rank correlation of sampled and exact BIF, mean"),
        "sampled_halves": (float, "sampled: rank correlation of two halves of the chains, mean"),
    }
    | OUTCOME
)

# Written by tests/peers/devinterp_peer.py, which runs by hand and is no stage of the study.
PEERS: Table = {
    "case": (str, "p<p>: a grokked network; <condition>64_k<κ>: a perceptron of width 64"),
    "rule": (str, "plain or rmsprop, the same on both sides"),
    "peer": (str, "the other sampler and its version"),
    "torch": (str, "version of the torch it ran on"),
    "d": (int, "weights"),
    "chains": (int, "independent chains, the same number on both sides"),
    "steps": (int, "steps per chain, burn-in included"),
    "burn_in": (int, "first steps, not averaged"),
    "n_beta": (float, "number of points × inverse temperature"),
    "gamma": (float, "strength of the spring to w*"),
    "kappa": (float, "n_beta·h_max/gamma"),
    "step": (float, "ε, the peer's lr"),
    "ours": (float, "λ̂ of this project's chains"),
    "ours_error": (float, "standard error of it"),
    "theirs": (float, "λ̂ as the peer reports it"),
    "theirs_error": (float, "standard error of it, from the peer's losses by our estimator"),
    "z_difference": (float, "(ours − theirs)/√(ours_error² + theirs_error²)"),
    "law": (float, "reading the law of plain SGLD predicts (E10); empty for rmsprop"),
    "law_sd": (float, "standard deviation of that reading"),
    "slope_shift": (float, "what the gradient at w* adds to it (E30)"),
    "ms_ours": (float, "wall time of a step of all chains, ours, ms"),
    "ms_theirs": (float, "the same of the peer"),
    "ratio": (float, "ms_theirs/ms_ours"),
}

TABLES: dict[str, Table] = {
    "widths": NETWORK | TRAINED | SPECTRUM | OUTCOME,
    "width_matched": MATCHED,
    "width_hessian": HESSIAN,
    "width_chains": NETWORK | CHAINS | OUTCOME,
    "width_polish": POLISH,
    "width_linear": LINEAR,
    "width_lazy": LAZY,
    "width_influence": INFLUENCE,
}


def types(table: str) -> dict[str, type]:
    """Column -> type of a table, as `records.write_csv` and `records.read_csv` take it."""
    return {name: kind for name, (kind, _) in TABLES[table].items()}


def row(table: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """One row of a table: what the parts know of its columns, the rest left empty."""
    known: dict[str, Any] = {}
    for part in parts:
        known |= part
    return {
        name: known.get(name, "" if kind is str else None) for name, kind in types(table).items()
    }
