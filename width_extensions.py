"""The experiments the sources propose next: lazy scaling, and influence under a sweep of κ.

    lazy       α(f − f₀): does λ(c) approach half the rank ceiling nC?   -> width_lazy.csv
    influence  do the rankings of attributions survive a change of κ?    -> width_influence.csv

Symbols: α output scale, c = gamma/n_beta resolution, κ = n_beta·h_max/gamma, λ(c) = ½Σh/(h+c), BIF
Bayesian influence −Cov(ℓ_i, ℓ_q) of a training digit i on a held-out digit q.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

import curvature
import digits
import effective_dimension
import influence as attribution
import sgld
import theory
import train_mlp
import width_networks
from langevin_laws import KappaProtocol
from mlp import MLP
from observer import Observed
from width_networks import Condition, Network

Array = NDArray[np.float64]
Row = dict[str, Any]

ALPHAS = (1.0, 10.0, 100.0, 1000.0)
LAZY_WIDTH, LAZY_RATE, LAZY_DECADES = 256, 1e-3, range(9)
INFLUENCE_WIDTH, TRAINED_ON, DIGITS = 64, 896, 1024
INFLUENCE_KAPPAS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
INFLUENCE_GAMMAS = (300.0, 1000.0, 3000.0, 10000.0)  # the range of Kreer et al. 2025
REFERENCE_KAPPA = 10.0  # the rankings at other κ are compared with those here
THINNING = 5  # steps between draws of the losses
PURPOSE = 0x696E66  # "inf": first word of the chains' seed


# ---- lazy scaling ------------------------------------------------------------------------------


def lazy(alpha: float, rate_power: int) -> list[Row]:
    """Train α(f − f₀) from the weights of the NTK network of seed 0, and read its spectrum.

    Gradient descent needs a rate over α², as the source says. Adam moves a weight by its rate
    whatever the size of the gradient, so the same way in function space needs a rate over α.
    """
    plain = Network("ntk", LAZY_WIDTH, LAZY_RATE, 0)
    net = plain.model()
    w_0 = net.initial_weights(plain.seed)
    scaled = net.lazy(w_0, alpha)
    rate = LAZY_RATE / alpha**rate_power
    rates = train_mlp.rates(scaled, "ntk", rate)
    (end,) = train_mlp.train(scaled, w_0, rates, seed=plain.seed, keep=[])
    gram = effective_dimension.gram_matrix(scaled, end.w, "eigenvalues")
    h = effective_dimension.curvatures_of_gram(gram, scaled.hessian_scale)
    outputs = scaled.outputs(end.w) - scaled.outputs(w_0)  # α(f − f₀)
    return [
        {
            "width": LAZY_WIDTH,
            "alpha": alpha,
            "rate_power": rate_power,
            "rate": rate,
            "loss": end.loss,
            "accuracy": float(np.mean(outputs.argmax(axis=1) == net.targets.argmax(axis=1))),
            "drift_all": scaled.weight_drift(end.w, w_0)["all"],
            "linearisation_error": scaled.linearisation_error(end.w, w_0),
            "rank": effective_dimension.resolved_rank(h, (len(h), net.n_params)),
            "rank_ceiling": scaled.rank_ceiling(),
            "h_max": h[0],
            "h_min": h[-1],
            "stable_rank": effective_dimension.stable_rank(h),
            **{
                f"dimension_1e{k}": theory.effective_dimension(h, h[0] / 10.0**k)
                for k in LAZY_DECADES
            },
            "half_ceiling": 0.5 * scaled.rank_ceiling(),
        }
    ]


# ---- influence ---------------------------------------------------------------------------------


def influence_network(condition: Condition) -> Network:
    """The model whose attributions are ranked: it never saw the last 128 digits."""
    rate = width_networks.SOURCE_LIKE[condition]
    return Network(condition, INFLUENCE_WIDTH, rate, 0, n=TRAINED_ON)


def _weights(folder: Path, network: Network, net: MLP) -> Array:
    """Its weights at the end of training, trained now where no job has done so."""
    if not width_networks.snapshot_path(folder, network, width_networks.LAST).exists():
        rates = train_mlp.rates(net, network.condition, network.base_rate)
        start = net.initial_weights(network.seed)
        for end in train_mlp.train(
            net, start, rates, seed=network.seed, steps=network.steps, keep=[]
        ):
            width_networks.write_snapshot(folder, network, end)
    return width_networks.read_snapshot(folder, network).w


class _Attributions:
    """Exact BIF and damped influence of one network at any resolution, from one Gram matrix."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.network, self.net = network, network.model()
        self.w = _weights(folder, network, self.net)
        everything = MLP(*digits.load(DIGITS), self.net.widths)
        gram = effective_dimension.gram_matrix(everything, self.w, "cholesky")
        self._rows = self.net.n * self.net.n_outputs
        self.K = gram[: self._rows, : self._rows]
        self._K_q = gram[: self._rows, self._rows :]
        residuals = everything.residuals(self.w)
        self._r, self._rho = residuals[: self._rows], residuals[self._rows :]
        self.queries = everything.subset(np.arange(self.net.n, everything.n))
        self.scale = self.net.n * self.net.hessian_scale

    def at(self, n_beta: float, gamma: float) -> tuple[Array, Array]:
        """Exact BIF and damped influence, (n, q) each."""
        outputs, scale = self.net.n_outputs, self.scale
        P = attribution.posterior_kernel(
            self.K, self._K_q, hessian_scale=self.net.hessian_scale, n_beta=n_beta, gamma=gamma
        )
        exact = attribution.exact_influence(P, self._r, self._rho, outputs=outputs, scale=scale)
        damped = attribution.damped_influence(
            P, self._r, self._rho, outputs=outputs, scale=scale, n_beta=n_beta
        )
        return exact, damped

    def losses(self, w: Array) -> Array:
        """ℓ of every training digit and of every query at w (C, d): (C, n + q)."""
        parts = [np.square(net.outputs(w) - net.targets) for net in (self.net, self.queries)]
        each = np.concatenate([part.sum(axis=2) for part in parts], axis=1)
        return np.asarray(0.5 * self.scale * each)


def influence(folder: Path, condition: Condition) -> list[Row]:
    """Exact BIF against damped influence over κ, and over the fixed gammas of the literature."""
    network = influence_network(condition)
    model = _Attributions(folder, network)
    h_max = _h_max(model)
    n_beta = network.n_beta
    reference = model.at(n_beta, n_beta * h_max / REFERENCE_KAPPA)
    by_kappa = [("kappa", n_beta * h_max / kappa) for kappa in INFLUENCE_KAPPAS]
    rows = []
    for aligned, gamma in [*by_kappa, *(("gamma", gamma) for gamma in INFLUENCE_GAMMAS)]:
        exact, damped = model.at(n_beta, gamma)
        both = attribution.rank_correlation(exact, damped)
        first = damped / n_beta
        share = np.abs(first).sum() / (np.abs(first).sum() + np.abs(exact - first).sum())
        rows.append(
            network.columns()
            | {
                "queries": exact.shape[1],
                "aligned": aligned,
                "kappa": n_beta * h_max / gamma,
                "gamma": gamma,
                "n_beta_factor": 1.0,
                "damped_and_exact": both.mean(),
                "damped_and_exact_sd": both.std(ddof=1),
                "exact_and_kappa_10": attribution.rank_correlation(exact, reference[0]).mean(),
                "damped_and_kappa_10": attribution.rank_correlation(damped, reference[1]).mean(),
                "first_term_share": share,
            }
        )
    return rows


def sampled_influence(
    folder: Path, condition: Condition, kappa: float, n_beta_factor: float, lengths: float
) -> list[Row]:
    """BIF from chains, beside the exact one of the quadratic, and against itself in two halves.

    The halves say how much of a ranking is noise: with correlation r between halves, the whole can
    agree with the truth up to about √(2r/(1 + r)).
    """
    network = influence_network(condition)
    model = _Attributions(folder, network)
    n_beta = network.n_beta * n_beta_factor
    settings = KappaProtocol(kappa, n_beta, lengths=lengths).settings(_h_max(model))
    observed = Observed(model.net, model.losses, every=THINNING)
    name = f"{network.name} {kappa:g} {n_beta_factor:g}"
    sgld.sample(observed, model.w, chains=4, seed=(PURPOSE, crc32(name.encode())), **settings)
    draws = observed.looks(settings["steps"], settings["burn_in"])
    exact, damped = model.at(n_beta, settings["gamma"])
    n = model.net.n

    def read(chains: Array) -> Array:
        flat = chains.reshape(-1, chains.shape[-1])
        return attribution.sampled_influence(flat[:, :n], flat[:, n:])

    halves = attribution.rank_correlation(read(draws[:, :2]), read(draws[:, 2:]))
    return [
        network.columns()
        | {
            "queries": exact.shape[1],
            "aligned": "kappa",
            "kappa": kappa,
            "gamma": settings["gamma"],
            "n_beta_factor": n_beta_factor,
            "damped_and_exact": attribution.rank_correlation(exact, damped).mean(),
            "draws": draws.shape[0] * draws.shape[1],
            "sampled_and_exact": attribution.rank_correlation(read(draws), exact).mean(),
            "sampled_halves": halves.mean(),
        }
    ]


def _h_max(model: _Attributions) -> float:
    return float(model.net.hessian_scale * curvature.top_eigenvalue(model.K))
