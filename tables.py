"""The columns of every table the studies write: name, type, meaning and unit, in file order.

One place says what a column means; `records.write_csv` takes the types from here, readers (figures,
claims) too. A table is a mapping name -> (type, meaning). Numbers without a unit are pure numbers;
λ̂ and every predicted reading count weights, halved. An empty cell means: not measured, and `error`
says why where something failed.

Symbols
    λ̂   the reading                     w*   the polished weights     J   Jacobian at w*
    h   curvatures, eigenvalues of JᵀJ/n; c = gamma/n_beta the resolution; s singular values of J
    r   numerical rank of J, D = d − 2K the weights minus exact symmetry directions
"""

from __future__ import annotations

from typing import Any

Table = dict[str, tuple[type, str]]

# ---- blocks that tables share ------------------------------------------------------------------

NETWORK: Table = {
    "network": (str, "name, p<p>_K<K>_f<percent of the pairs>_s<seed>"),
    "p": (int, "modulus and number of outputs"),
    "K": (int, "hidden neurons"),
    "n": (int, "training pairs"),
    "d": (int, "weights, 3pK"),
    "fraction": (float, "share of the p² pairs trained on"),
    "seed": (int, "seed of pairs, initial weights and chains"),
}
TRAINED: Table = {
    "training_steps": (int, "AdamW steps"),
    "polish": (str, "descent without weight decay that made w*: adam or lbfgs"),
    "polish_steps": (int, "steps of that descent"),
    "polish_moved": (float, "how far it moved the weights, |w* − w| / |w|"),
    "loss": (float, "L_n(w*), without weight decay"),
    "weight_norm": (float, "|w*|"),
    "K_eff": (int, "neurons in use at w* by the 1 % rule"),
    "train_accuracy": (float, "share of right answers on the training pairs"),
    "held_out_accuracy": (float, "share of right answers on all other pairs"),
    "checkpoint_sha256": (str, "content hash of pairs and weights"),
}
SPECTRUM: Table = {
    "route": (str, "how the singular values were computed: svd, qr or gram"),
    "tolerance": (float, "a singular value counts from tolerance·s_max on"),
    "rank": (int, "numerical rank r of J at that tolerance"),
    "gap": (float, "s[r−1]/s[r] at the cut; empty when nothing stands behind it"),
    "largest_gap": (float, "widest ratio of two neighbouring s above the rounding floor"),
    "largest_gap_rank": (int, "rank at that gap"),
    "rank_bound": (int, "largest rank J can have: symmetries and pair graph (E06)"),
    "h_max": (float, "largest curvature"),
    "h_min": (float, "smallest counted curvature"),
    "half_rank": (float, "r/2, lower end of the bracket"),
    "bracket_low": (float, "r/2 ≤ λ at a zero of the loss"),
    "bracket_high": (float, "λ ≤ R/2 + (D − R)/4, R = r after a clean cut, else the rank bound"),
    "clean_cut": (bool, "a wide gap at the cut and nothing but rounding behind it"),
}
EXACT: Table = {
    "exact_lower": (int, "rank of J over GF(q) at the stored doubles: a rigorous lower bound"),
    "exact_upper": (int, "its upper bound, rank_bound"),
    "exact_certified": (bool, "the two meet, so the exact rank is known and locally constant"),
}
FORMULAS: Table = {
    "formula_paper": (float, "½K(3p−1), the closed form under test, every neuron counted"),
    "formula_paper_in_use": (float, "½K_eff(3p−1), the same with the neurons in use"),
    "formula_generic": (float, "½K(3p−2), one free direction per neuron less"),
    "wide_limit": (float, "½p(n−1), past which the pairs pin every output"),
}
SETTINGS: Table = {
    "n_beta": (float, "number of pairs × inverse temperature"),
    "gamma": (float, "strength of the spring to w*"),
    "resolution": (float, "c = gamma/n_beta, in the unit of h"),
    "kappa": (float, "n_beta·h_max/gamma"),
    "step_constant": (float, "ε·(n_beta·h_max + gamma)"),
    "step": (float, "ε of SGLD"),
    "chains": (int, "independent chains"),
    "steps": (int, "steps per chain, burn-in included"),
    "burn_in": (int, "first steps, not averaged"),
    "chains_seed": (str, "words of the SeedSequence of the chains"),
    "status": (str, "calibrated, or not calibrated: other settings than the frozen ones"),
    "calibration_sha256": (str, "hash of the calibration the settings come from; empty without"),
}
READING: Table = {
    "llc": (float, "λ̂, mean over chains"),
    "standard_error": (float, "of λ̂: the larger of between chains and autocorrelation"),
    "standard_error_between_chains": (float, "of λ̂, from the spread of the chains alone"),
    "settled": (bool, "no doubt was found"),
    "doubts": (str, "why not, joined by ' | '"),
    "r_hat": (float, "split R-hat of the kept losses"),
    "integrated_time": (float, "integrated autocorrelation time of the loss, steps"),
    "mala": (float, "mean probability that MALA would accept the moves SGLD made"),
    "distance": (float, "mean |w − w*| over the chains at the last step kept"),
    "seconds_sampling": (float, "wall time of the chains, s"),
}
LAW: Table = {
    "flat_share": (float, "share of the counted curvatures below c"),
    "effective_dimension": (float, "½Σh/(h+c) of the spectrum at w*: endless chains, small steps"),
    "law": (float, "reading the exact law of SGLD predicts from that spectrum (E10)"),
    "law_sd": (float, "standard deviation of that reading by the same law"),
    "law_stationary": (float, "the law for chains without end: step inflation, no transient"),
    "settled_share": (float, "law / law_stationary"),
    "z_law": (float, "(λ̂ − law) / the larger of standard_error and law_sd"),
}
RATIOS: Table = {
    "ratio_paper": (float, "λ̂ / formula_paper, the headline reading"),
    "ratio_paper_in_use": (float, "λ̂ / formula_paper_in_use"),
    "ratio_generic": (float, "λ̂ / formula_generic"),
    "ratio_half_rank": (float, "λ̂ / half_rank"),
    "ratio_law": (float, "λ̂ / law"),
}
ENDS: Table = {
    "end_distance": (float, "|w − w*| of chain 0's last point w, polished to zero loss"),
    "end_polish_moved": (float, "how far that polish moved it, in units of its norm"),
    "end_loss": (float, "L_n there after the polish"),
    "end_K_eff": (int, "neurons in use there"),
    "end_effective_dimension": (float, "½Σh/(h+c) of the spectrum there (gram route)"),
    "end_law": (float, "law_stationary of the spectrum there, at the same step"),
    "z_end": (float, "(λ̂ − end_law) / standard_error"),
}
OUTCOME: Table = {"error": (str, "what failed, in one line; empty when nothing did")}

SAMPLED: Table = SETTINGS | LAW | READING

# ---- the tables, by name of the csv file -------------------------------------------------------

NETWORKS: Table = (
    NETWORK
    | TRAINED
    | SPECTRUM
    | EXACT
    | FORMULAS
    | {
        "study": (str, "which study the network was trained for: verdict or too-wide"),
        "seconds_training": (float, "wall time of the training, s"),
        "seconds_polish": (float, "wall time of the polish, s"),
        "seconds_spectrum": (float, "wall time of J and its singular values, s; empty if kept"),
        "seconds_exact_rank": (float, "wall time of the exact rank, s"),
    }
    | OUTCOME
)
LLC: Table = (
    NETWORK
    | TRAINED
    | SPECTRUM
    | EXACT
    | FORMULAS
    | SAMPLED
    | RATIOS
    | ENDS
    | {
        "paper_settings_reading": (
            float,
            "½Σh/(h+c) at the paper's own n_beta = 26.4, gamma = 5: what its estimator would read",
        ),
    }
    | OUTCOME
)
MEMORISING: Table = (
    NETWORK
    | {
        "feature_rank": (int, "rank of the centred squared activations CZ², (n, K)"),
        "known_llc": (float, "p·feature_rank/2, exact: the model is linear"),
        "formula_lazy": (float, "½p·min{feature rank before centring, K}, the paper's formula"),
        "loss": (float, "L_n at the least-squares solution w*"),
        "h_max": (float, "largest curvature"),
        "h_min": (float, "smallest non-zero curvature"),
    }
    | SAMPLED
    | {"ratio_known": (float, "λ̂ / known_llc")}
    | OUTCOME
)
SENSITIVITY: Table = (
    NETWORK
    | {"changed": (str, "the one setting that differs from the source's, as name=value")}
    | FORMULAS
    | {"half_rank": (float, "r/2")}
    | SAMPLED
    | RATIOS
    | OUTCOME
)
SETTLING: Table = (
    NETWORK
    | SAMPLED
    | {f"block_{k}": (float, f"λ̂ over fifth {k} of the steps kept") for k in range(1, 6)}
    | {
        "law_last_block": (float, "what the exact law predicts for the last fifth"),
        "reading_10000": (float, "λ̂ of the same network in source_settings.csv or too_wide.csv"),
        "last_against_10000": (float, "block_5 / reading_10000 − 1"),
        "settles": (bool, "the source's rule: within 5 %"),
    }
    | OUTCOME
)
RANK_SWEEP: Table = (
    NETWORK
    | {
        "weights": (str, "grokked, or random: normal weights of the grokked network's scales"),
        "route": (str, "svd, gram or qr"),
        "tolerance": (float, "relative to s_max"),
        "rank": (int, "number of singular values above tolerance·s_max"),
        "generic_rank": (int, "K(3p−2), which two exact symmetries per neuron do not let J exceed"),
        "ratio_generic": (float, "rank / generic_rank"),
        "gap": (float, "s[r−1]/s[r] at this cut; empty when nothing stands behind it"),
        "below_floor": (bool, "the tolerance lies below the route's rounding floor"),
        "flat_share": (float, "share of the counted curvatures below c = 1e-4"),
        "smooth_model": (float, "½Σh/(h+c) over the counted directions, c = 1e-4"),
        "error_against_svd": (float, "largest |s − s of the svd or qr| / s_max; gram rows only"),
        "seconds": (float, "wall time of J and this route, s; empty where the spectrum was kept"),
    }
    | OUTCOME
)
POLISH: Table = (
    NETWORK
    | TRAINED
    | SPECTRUM
    | FORMULAS
    | SAMPLED
    | RATIOS
    | {"between_polishes": (float, "|w*(adam) − w*(lbfgs)| / |w*(adam)|")}
    | OUTCOME
)
TRAJECTORY: Table = (
    NETWORK
    | {
        "training_steps": (int, "AdamW steps taken"),
        "loss": (float, "L_n on the training pairs, without weight decay; not zero here"),
        "train_accuracy": (float, "share of right answers on the training pairs"),
        "held_out_accuracy": (float, "share of right answers on all other pairs"),
        "weight_norm": (float, "|w|"),
        "K_eff": (int, "neurons in use by the 1 % rule"),
    }
    | SPECTRUM
    | FORMULAS
    | SAMPLED
    | RATIOS
    | {
        "paper_settings_reading": (
            float,
            "½Σh/(h+c) at the paper's own n_beta = 26.4, gamma = 5 (claim C03)",
        ),
    }
    | OUTCOME
)
CONVERGENCE: Table = (
    NETWORK
    | {
        "loss_before_polish": (float, "L_n after that many steps under weight decay"),
        "K_eff_before_polish": (int, "neurons in use then"),
        "held_out_before_polish": (float, "held-out accuracy then"),
    }
    | TRAINED
    | SPECTRUM
    | EXACT
    | FORMULAS
    | {
        "formula_inside": (bool, "formula_paper lies in [bracket_low, bracket_high]"),
        "formula_in_use_inside": (bool, "formula_paper_in_use lies in the bracket"),
    }
    | SAMPLED
    | RATIOS
    | OUTCOME
)
FOURIER: Table = {
    "p": (int, "modulus"),
    "per_frequency": (int, "neurons per frequency: 4 or 6"),
    "K": (int, "hidden neurons, per_frequency·(p−1)/2"),
    "n": (int, "pairs: the full grid, p²"),
    "d": (int, "weights, 3pK"),
    "symmetry_free_dimension": (int, "D = d − 2K"),
    "loss": (float, "L_n at the rounded solution; rounding alone"),
    "rank_formula": (int, "(p−1)(6p−7) for 4 neurons per frequency, (p−1)(15p−24)/2 for 6"),
    "rank": (int, "numerical rank of J at the rounded solution, svd at 1e-9"),
    "gap": (float, "s[r−1]/s[r] at the cut"),
    "exact_rank_ideal": (int, "rank at the ideal solution: exact waves in GF(q), q ≡ 1 mod 12p"),
    "exact_rank_stored": (int, "rank over GF(q) at the rounded solution: rounding is generic"),
    "rank_bound": (int, "largest rank J can have, min{K(3p−2), p(n−1)} on the full grid"),
    "bracket_low": (float, "½·rank_formula"),
    "bracket_high": (float, "bracket_low + (D − rank_formula)/4, at most ½p(n−1)"),
    "formula_paper": (float, "½K(3p−1)"),
    "formula_generic": (float, "½K(3p−2)"),
    "formula_inside": (bool, "formula_paper lies in the bracket"),
    "generic_inside": (bool, "formula_generic lies in the bracket"),
    "past_width_limit": (bool, "K(3p−2) > p(n−1), where the paper's formula claims nothing"),
} | OUTCOME

TABLES: dict[str, Table] = {
    "networks": NETWORKS,
    "llc": LLC,
    "source_settings": LLC,
    "too_wide": LLC,
    "memorising": MEMORISING,
    "sensitivity": SENSITIVITY,
    "grid_selection": SENSITIVITY,
    "settling": SETTLING,
    "rank_sweep": RANK_SWEEP,
    "polish": POLISH,
    "trajectory": TRAJECTORY,
    "convergence": CONVERGENCE,
    "fourier": FOURIER,
}


def types(table: str) -> dict[str, type]:
    """Column -> type of a table, as `records.write_csv` and `records.read_csv` take it."""
    return {name: kind for name, (kind, _) in TABLES[table].items()}


def row(table: str, *parts: dict[str, Any], **values: Any) -> dict[str, Any]:
    """One row of a table: what the parts and values know of its columns, the rest left empty."""
    known: dict[str, Any] = {}
    for part in (*parts, values):
        known |= part
    return {
        name: known.get(name, "" if kind is str else None) for name, kind in types(table).items()
    }
