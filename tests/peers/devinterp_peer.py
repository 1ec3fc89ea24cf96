"""devinterp 1.3.2 beside this project, on the same weights and settings: see README.md here.

Symbols: λ̂ reading, n_beta, gamma, ε step; C chains of T steps, B of them discarded; a row of
data/peers.csv holds both readings with errors, the exact law, and milliseconds per C-chain step.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import devinterp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from devinterp.optim import SGMCMC  # noqa: E402
from devinterp.slt.callback import SamplerCallback  # noqa: E402
from devinterp.slt.llc import LLCEstimator  # noqa: E402
from devinterp.slt.sampler import sample as peer_sample  # noqa: E402

import chains  # noqa: E402
import curvature  # noqa: E402
import effective_dimension  # noqa: E402
import evidence  # noqa: E402
import gate  # noqa: E402
import preconditioned  # noqa: E402
import records  # noqa: E402
import sgld  # noqa: E402
import theory  # noqa: E402
import width_networks  # noqa: E402
import width_study  # noqa: E402
from langevin_laws import KappaProtocol  # noqa: E402
from qnet import QuadraticNetwork  # noqa: E402

CHAINS = 4
CHECKPOINTS = {"p11": "p11_K33_f80_s0", "p17": "p17_K51_f70_s0", "p31": "p31_K93_f70_s0"}
DRAWS = {"p11": 8_000, "p17": 4_000, "p31": 1_000}  # kept; as many are discarded at most 2,000
KAPPAS = (1.0, 10.0)
RMSPROP = {"alpha": 0.99, "damping": 0.1}  # the peer's defaults


# ---- the peer's models -------------------------------------------------------------------------


class Quadratic(torch.nn.Module):
    """f_k(i) = Σ_j W_kj (u_j[a_i] + v_j[b_i])²; outputs centred over the pairs."""

    def __init__(self, net: QuadraticNetwork, w: np.ndarray) -> None:
        super().__init__()
        u, v, W = (torch.tensor(np.array(part)) for part in net.unpack(w))
        self.u, self.v, self.W = (torch.nn.Parameter(part) for part in (u, v, W))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        z = self.u[:, pairs[:, 0]] + self.v[:, pairs[:, 1]]
        f = (self.W @ z.square()).T
        return f - f.mean(dim=0)


def perceptron(net: Any, w: np.ndarray) -> torch.nn.Module:
    """The ReLU perceptron as torch.nn layers with our weights."""
    tensors = net.unpack(w)
    layers: list[torch.nn.Module] = []
    for k in range(0, len(tensors), 2):
        weight, bias = (torch.tensor(np.array(part)) for part in tensors[k : k + 2])
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


@dataclass
class Case:
    """One comparison: our model, the peer's, its batch, its loss, and the settings of both."""

    name: str
    rule: str
    net: Any
    w: np.ndarray
    h: np.ndarray
    module: torch.nn.Module
    batch: tuple[torch.Tensor, torch.Tensor]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    settings: dict[str, Any]  # n_beta, gamma, step, steps, burn_in


def quadratic_case(name: str, draws: int | None) -> Case:
    """A shipped grokked network at the frozen settings."""
    kept = records.read_checkpoint(ROOT / "data" / "checkpoints" / f"{CHECKPOINTS[name]}.npz")
    net = QuadraticNetwork.modular(kept.p, kept.K, kept.a, kept.b)
    w = net.pack(kept.u, kept.v, kept.W)
    s = curvature.singular_values(net.jacobian_operator(w), route="gram")
    h = curvature.curvatures(s, net.hessian_scale)
    frozen = gate.read_frozen().settings
    n_beta, gamma = float(frozen["n_beta"]), float(frozen["gamma"])
    step = theory.step_size(
        float(frozen["step_constant"]), n_beta=n_beta, h_max=float(h[0]), gamma=gamma
    )
    burn_in = min(2_000, draws or DRAWS[name])
    settings = {"n_beta": n_beta, "gamma": gamma, "step": step, "burn_in": burn_in}
    settings["steps"] = burn_in + (draws or DRAWS[name])
    pairs = torch.tensor(np.stack([kept.a, kept.b], axis=1))
    targets = torch.tensor(net.targets - net.targets.mean(axis=0))

    def loss(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (f - y).square().sum() / (2 * len(y))

    return Case(name, "plain", net, w, h, Quadratic(net, w), (pairs, targets), loss, settings)


def perceptron_cases(folder: Path, draws: int | None) -> list[Case]:
    """Both conditions at width 64 under κ = 1 and 10, plain steps; RMSProp at κ = 1."""
    cases = []
    for network in width_networks.pair(64, "source-like", 0):
        if not width_networks.snapshot_path(folder, network, width_networks.LAST).exists():
            width_study.train(folder, network)
        if not width_networks.spectrum_path(folder, network).exists():
            width_study.spectrum(folder, network)
        net = network.model()
        w = width_networks.read_snapshot(folder, network).w
        h = width_networks.read_spectrum(folder, network)
        batch = torch.tensor(net.inputs), torch.tensor(net.targets)
        for kappa in KAPPAS:
            settings = dict(KappaProtocol(kappa, network.n_beta).settings(float(h[0])))
            if draws:
                settings["steps"] = settings["burn_in"] + draws
            for rule in ("plain", "rmsprop") if kappa == 1.0 else ("plain",):
                own = dict(settings)
                if rule == "rmsprop":  # the same bound on the step, for every V
                    own["step"] *= RMSPROP["damping"]
                module = perceptron(net, w)
                loss = torch.nn.functional.mse_loss  # the mean over examples and outputs
                name = f"{network.condition}64_k{kappa:g}"
                cases.append(Case(name, rule, net, w, h, module, batch, loss, own))
    return cases


# ---- both samplers -----------------------------------------------------------------------------


class Losses(SamplerCallback):
    """The losses of all draws in float64, (C, draws)."""

    def __init__(self, draws: int) -> None:
        self.values = np.empty((CHAINS, draws))

    def __call__(self, chain: int, draw: int, loss: torch.Tensor, **_: Any) -> None:
        self.values[chain, draw] = loss.item()

    def get_results(self) -> dict[str, Any]:
        """Nothing of its own."""
        return {}


def ours(case: Case) -> tuple[float, float, float]:
    """λ̂, its standard error, and ms per 4-chain step."""
    s = case.settings
    started = time.perf_counter()
    if case.rule == "plain":
        got = sgld.sample(case.net, case.w, chains=CHAINS, seed=1, h_max=float(case.h[0]), **s)
    else:
        rule = preconditioned.RMSProp(**RMSPROP)
        got = preconditioned.sample(case.net, case.w, rule, chains=CHAINS, seed=1, **s)
    ms = 1e3 * (time.perf_counter() - started) / s["steps"]
    return got.llc, got.standard_error, ms


def theirs(case: Case) -> tuple[float, float, float]:
    """The same of devinterp: its own reading, an error from its losses, ms per 4-chain step."""
    s = case.settings
    draws = s["steps"] - s["burn_in"]
    reference = float(case.net.loss(case.w))
    estimator = LLCEstimator(CHAINS, draws, init_loss=reference, nbeta=s["n_beta"])
    seen = Losses(draws)
    method = SGMCMC.sgld if case.rule == "plain" else SGMCMC.rmsprop_sgld
    optimiser = {"lr": s["step"], "localization": s["gamma"], "nbeta": s["n_beta"]}

    def evaluate(model: torch.nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return case.loss(model(data[0]), data[1])

    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer_sample(
            case.module,
            one_batch(case),
            [estimator, seen],
            evaluate=evaluate,
            sampling_method=method,
            optimizer_kwargs=optimiser,
            num_draws=draws,
            num_chains=CHAINS,
            num_burnin_steps=s["burn_in"],
            init_loss=reference,
            seed=1,
            verbose=False,
        )
    ms = 1e3 * (time.perf_counter() - started) / s["steps"]
    reading = chains.summarise(seen.values, reference, n_beta=s["n_beta"], burn_in=0)
    return estimator.get_results()["llc/mean"], reading.standard_error, ms


def one_batch(case: Case) -> torch.utils.data.DataLoader:
    """A loader of the one full batch as it is: nothing is collated example by example."""
    return torch.utils.data.DataLoader(
        [case.batch], batch_size=1, collate_fn=lambda items: items[0]
    )


def compare(case: Case) -> dict[str, Any]:
    """One row: both readings, the exact law of plain SGLD, and the times."""
    check_same_loss(case)
    (a, a_error, a_ms), (b, b_error, b_ms) = ours(case), theirs(case)
    s = case.settings
    row = {
        "case": case.name,
        "rule": case.rule,
        "peer": f"devinterp {getattr(devinterp, '__version__', '1.3.2')}",
        "torch": str(torch.__version__),
        "d": case.net.n_params,
        "chains": CHAINS,
        "kappa": s["n_beta"] * float(case.h[0]) / s["gamma"],
        **s,
        "ours": a,
        "ours_error": a_error,
        "theirs": b,
        "theirs_error": b_error,
        "z_difference": (a - b) / (a_error**2 + b_error**2) ** 0.5,
        "ms_ours": a_ms,
        "ms_theirs": b_ms,
        "ratio": b_ms / a_ms,
        "law": None,
        "law_sd": None,
        "slope_shift": slope(case),
    }
    if case.rule == "plain":
        row["law"] = theory.sgld_expected_llc(case.h, **s)
        row["law_sd"] = theory.sgld_llc_variance(case.h, chains=CHAINS, **s) ** 0.5
    return row


def slope(case: Case) -> float:
    """What the gradient at w* adds to the reading."""
    s = case.settings
    return effective_dimension.slope_shift(
        curvature.gauss_newton_operator(case.net, case.w),
        case.net.loss_and_grad(case.w)[1],
        n_beta=s["n_beta"],
        resolution=s["gamma"] / s["n_beta"],
    )


def check_same_loss(case: Case) -> None:
    """Both models have one loss and one gradient at w*, or nothing is compared."""
    loss = case.loss(case.module(case.batch[0]), case.batch[1])
    loss.backward()
    mine, gradient = case.net.loss_and_grad(case.w)
    size = sum(float(p.grad.square().sum()) for p in case.module.parameters()) ** 0.5
    case.module.zero_grad()
    close = np.isclose(loss.item(), mine, rtol=1e-9) and np.isclose(
        size, np.linalg.norm(gradient), rtol=1e-6
    )
    if not close:
        raise RuntimeError(f"{case.name}: loss {loss.item()} and {mine}, gradient {size}")


def main() -> None:
    """Run the chosen cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="p11, p17, p31, width64 (default: all)")
    parser.add_argument("--draws", type=int, help="draws per chain, for a short run")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="weights of the widths")
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "peers.csv")
    options = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    chosen = options.cases or [*CHECKPOINTS, "width64"]
    cases = [quadratic_case(name, options.draws) for name in chosen if name != "width64"]
    if "width64" in chosen:
        cases += perceptron_cases(options.runs / "widths", options.draws)
    rows = []
    for case in cases:
        rows.append(compare(case))
        row = rows[-1]
        print(
            f"{row['case']:10s} {row['rule']:8s} ours {row['ours']:9.3f} ± {row['ours_error']:.3f}"
            f"  theirs {row['theirs']:9.3f} ± {row['theirs_error']:.3f}  law {row['law'] or 0:9.3f}"
            f"  ms {row['ms_ours']:.2f} and {row['ms_theirs']:.2f}",
            flush=True,
        )
        records.write_csv(options.out, evidence.types("peers.csv"), rows)


if __name__ == "__main__":
    main()
