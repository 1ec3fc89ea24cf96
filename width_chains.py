"""Chains on the perceptrons of the width study, each reading beside what the closed forms say.

    sampled   one network, one setting, plain, RMSProp or inherited steps -> width_chains.csv
    linear    linear regression, whose coefficient is d/2                -> width_linear.csv

A reading departs from the exact effective dimension for reasons that can be computed: the step's
inflation and the transient (E10), a gradient at w* (E30), steps that leave tensors behind (E31),
and, where the chains travel as far as |w*|, a loss that is no quadratic any more. The last is
shown by raising n_beta at fixed κ: the chains stay near, and the reading comes closer to the law.

Symbols: h curvatures, κ = n_beta·h_max/gamma, τ = (2/s)(κ+1) steps, ε step, C chains, T steps, δ =
w − w*.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

import chains
import effective_dimension
import langevin_laws
import preconditioned
import sgld
import theory
import train_mlp
import width_networks
from langevin_laws import KappaProtocol, SamplerSettings
from mlp import MLP
from observer import Observed
from preconditioned import FixedSteps, RMSProp
from width_networks import LAST, Network

Array = NDArray[np.float64]
Row = dict[str, Any]
Rule = Literal["plain", "rmsprop", "inherited"]
AT: tuple[Literal["chain", "posterior"], ...] = ("chain", "posterior")

STEP_CONSTANT = 0.2
WATCHED = 64  # weights of a tensor whose way is followed
PURPOSE = 0x776964  # "wid": first word of the other random draws made here


@dataclass(frozen=True)
class Setting:
    """How a network is sampled: κ or gamma fixed, steps of one of three kinds."""

    rule: Rule = "plain"
    kappa: float | None = None
    gamma: float | None = None
    n_beta_factor: float = 1.0
    step_divisor: float = 1.0
    chains: int = 4
    lengths: float = 20.0  # in units of τ
    discarded: float = 4.0
    weights: str = LAST

    def protocol(self, n_beta: float, h_max: float) -> KappaProtocol:
        """The κ protocol; a fixed gamma has the κ it happens to have."""
        if (self.kappa is None) == (self.gamma is None):
            raise ValueError(f"fix kappa or gamma, one of them: got {self.kappa}, {self.gamma}")
        kappa = self.kappa if self.gamma is None else n_beta * h_max / self.gamma
        assert kappa is not None
        s = STEP_CONSTANT / self.step_divisor
        return KappaProtocol(kappa, n_beta, s, self.lengths, self.discarded)

    @property
    def key(self) -> str:
        """What the setting's file is called."""
        fixed = f"k{self.kappa:g}" if self.gamma is None else f"g{self.gamma:g}"
        parts = [self.rule, fixed, f"b{self.n_beta_factor:g}", f"d{self.step_divisor:g}"]
        return "_".join([*parts, self.weights])


@dataclass(frozen=True)
class Point:
    """Where chains start: the network there, its curvatures, and the protocol's settings."""

    net: MLP
    w: Array
    h: Array
    network: Network
    setting: Setting
    settings: SamplerSettings

    @property
    def case(self) -> tuple[int, ...]:
        """Words of the chains' seed, from the names of network and setting."""
        words = (self.network.name, self.setting.key)
        return (PURPOSE, *(crc32(word.encode()) for word in words))


def sampled(folder: Path, network: Network, setting: Setting) -> list[Row]:
    """Sample one network, and set beside the reading what the closed forms predict."""
    h = width_networks.read_spectrum(folder, network, setting.weights)
    w = width_networks.read_snapshot(folder, network, setting.weights).w
    protocol = setting.protocol(network.n_beta * setting.n_beta_factor, float(h[0]))
    point = Point(network.model(), w, h, network, setting, protocol.settings(float(h[0])))
    rows: Row = asdict(setting) | dict(point.settings) | {"kappa": protocol.kappa}
    rows |= {"aligned": "kappa" if setting.gamma is None else "gamma"}
    rows |= {"step_constant": protocol.step_constant, "relaxation_law": protocol.relaxation_time}
    rows |= _chains(point) | _laws(point)
    error = max(rows["standard_error"], rows["law_sd"])
    rows["z"] = (rows["llc"] - rows["law"] - rows["slope_shift"]) / error
    return [network.columns() | rows]


def _chains(point: Point) -> Row:
    """Run the chains and say what they read, how far they went and how fast they forgot."""
    watched = _watched(point)
    observed = Observed(point.net, lambda at: (at - point.w)[:, watched])
    started = time.perf_counter()
    sample, more = _run(observed, point)
    return {
        "chains_seed": " ".join(map(str, point.case)),
        "llc": sample.llc,
        "standard_error": sample.standard_error,
        "settled": sample.settled,
        "doubts": " | ".join(sample.doubts),
        "integrated_time": sample.reading.integrated_time,
        "mala": sample.mala_acceptance,
        "reach": np.mean(sample.distances[:, -1]) / np.linalg.norm(point.w),
        "seconds_sampling": time.perf_counter() - started,
        **_spread(point, observed.looks(point.settings["steps"])),
        **more,
    }


def _run(observed: Observed, point: Point) -> tuple[sgld.Sample, Row]:
    """The chains of the setting's rule, and what is peculiar to it."""
    common = {**point.settings, "chains": point.setting.chains, "seed": point.case}
    if point.setting.rule == "plain":
        return sgld.sample(observed, point.w, h_max=float(point.h[0]), **common), {}  # type: ignore[arg-type]
    if point.setting.rule == "inherited":
        rule: preconditioned.StepRule = FixedSteps(_inherited(point))
        return preconditioned.sample(observed, point.w, rule, **common), {}  # type: ignore[arg-type]
    damping = _gradient_size(point)
    slowed = {**common, "step": point.settings["step"] * damping}  # stable for every V
    sample = preconditioned.sample(observed, point.w, RMSProp(damping=damping), **slowed)  # type: ignore[arg-type]
    return sample, {"damping": damping, "step": slowed["step"]}


def _inherited(point: Point) -> Array:
    """The condition's own learning rates, over the base rate, as scales of the step."""
    return point.net.expand(train_mlp.rates(point.net, point.network.condition, 1.0))


def _gradient_size(point: Point) -> float:
    """Root mean square of a component of ∇L_n, one draw of the spring's own spread from w*."""
    rng = np.random.default_rng(np.random.SeedSequence([PURPOSE, *point.case]))
    away = point.w + rng.standard_normal(len(point.w)) / point.settings["gamma"] ** 0.5
    gradient = point.net.loss_and_grad(away)[1]
    return float(np.sqrt(np.mean(gradient * gradient)))


def _watched(point: Point) -> NDArray[np.intp]:
    """Places in w of WATCHED weights of W1, then of WATCHED weights of W2."""
    rng = np.random.default_rng(np.random.SeedSequence([PURPOSE, point.network.seed]))
    tensor_of = point.net.expand(range(len(point.net.names)))
    places = [np.flatnonzero(tensor_of == point.net.names.index(name)) for name in ("W1", "W2")]
    return np.concatenate([rng.choice(p, WATCHED, replace=len(p) < WATCHED) for p in places])


def _spread(point: Point, looks: Array) -> Row:
    """gamma·mean δ² of W1 and W2 after burn-in, its law for flat directions, and τ of W1."""
    B, T = point.settings["burn_in"], point.settings["steps"]
    gamma, step = point.settings["gamma"], point.settings["step"]
    scale = _inherited(point)[_watched(point)] if point.setting.rule == "inherited" else None
    found: Row = {"relaxation": relaxation_time(looks[B:, :, :WATCHED])}
    for k, tensor in enumerate(("W1", "W2")):
        part = slice(k * WATCHED, (k + 1) * WATCHED)
        pull = step * gamma * (1.0 if scale is None else scale[part][0])
        relaxed = 1.0 - (1.0 - 0.5 * pull) ** (2.0 * np.arange(B, T))
        found[f"spread_{tensor}"] = gamma * np.mean(looks[B:, :, part] ** 2)
        if point.setting.rule != "rmsprop":
            found[f"spread_law_{tensor}"] = relaxed.mean() / (1.0 - 0.25 * pull)
    return found


def relaxation_time(looks: Array) -> float:
    """τ in steps of weights held by the spring, from looks (T, C, k).

    Such a weight is an AR(1) process, ρ = 1 − 1/τ, whose integrated time is 2τ − 1."""
    T = len(looks)
    return 0.5 * (chains.integrated_time(looks.reshape(T, -1).T) + 1.0)


def _laws(point: Point) -> Row:
    """What the curvatures at w* predict of plain SGLD at these settings."""
    h, d, settings = point.h, point.net.n_params, point.settings
    product = effective_dimension.operator(d, lambda x: point.net.gauss_newton_product(point.w, x))
    gradient = point.net.loss_and_grad(point.w)[1]
    step, n_beta, gamma = settings["step"], settings["n_beta"], settings["gamma"]
    acceptance = {
        f"mala_law_{at}": langevin_laws.expected_acceptance(
            h, d=d, n_beta=n_beta, gamma=gamma, step=step, at=at
        )
        for at in AT
    }
    variance = theory.sgld_llc_variance(h, chains=point.setting.chains, **settings)
    return {
        "dimension": theory.effective_dimension(h, gamma / n_beta),
        "law": theory.sgld_expected_llc(h, **settings),
        "law_sd": variance**0.5,
        "slope_shift": effective_dimension.slope_shift(
            product, gradient, n_beta=n_beta, resolution=gamma / n_beta
        ),
        "reach_law": (d / settings["gamma"]) ** 0.5 / np.linalg.norm(point.w),
        **acceptance,
    }


# ---- linear regression -------------------------------------------------------------------------

LINEAR_N, LINEAR_INPUTS, LINEAR_OUTPUTS = 1024, 20, 5


def linear(kappa: float, step_constant: float) -> list[Row]:
    """Linear regression with Gaussian inputs at one κ: λ = d/2, and the loss is a quadratic.

    The source expects the fraction κ/(κ+1) of d/2. The curvatures are not all equal, which lowers
    the fraction, and the steps are not small, which raises it: the law has both.
    """
    rng = np.random.default_rng(np.random.SeedSequence([PURPOSE, LINEAR_N]))
    net = MLP(
        rng.standard_normal((LINEAR_N, LINEAR_INPUTS)), np.zeros((LINEAR_N, LINEAR_OUTPUTS)), []
    )
    w = net.initial_weights(0)
    net = net.with_targets(net.outputs(w))
    J = net.jacobian(w)
    h, vectors = np.linalg.eigh(net.hessian_scale * J.T @ J)
    protocol = KappaProtocol(kappa, LINEAR_N / np.log(LINEAR_N), step_constant, lengths=60.0)
    settings = protocol.settings(float(h[-1]))
    weakest = vectors[:, :LINEAR_OUTPUTS]  # every output has the same curvatures
    observed = Observed(net, lambda at: (at - w) @ weakest)
    case = (PURPOSE, LINEAR_N, round(100 * kappa), round(1000 * step_constant))
    sample = sgld.sample(observed, w, h_max=float(h[-1]), chains=8, seed=case, **settings)
    half = 0.5 * net.n_params
    pull = settings["step"] * (settings["n_beta"] * h[0] + settings["gamma"])
    return [
        {
            "kappa": kappa,
            "n": net.n,
            "d": net.n_params,
            "step_constant": step_constant,
            "llc": sample.llc,
            "standard_error": sample.standard_error,
            "fraction": sample.llc / half,
            "kappa_rule": kappa / (kappa + 1.0),
            "dimension_fraction": theory.response_curve(h, [kappa])[0] / half,
            "law_fraction": theory.sgld_expected_llc(h, **settings) / half,
            "law_fraction_sd": theory.sgld_llc_variance(h, chains=8, **settings) ** 0.5 / half,
            "relaxation": relaxation_time(observed.looks(settings["steps"], settings["burn_in"])),
            "relaxation_law": 2.0 / pull,
        }
    ]
