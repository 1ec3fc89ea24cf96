"""What is measured on each perceptron of the width study: one function is one job.

    train     trajectory, drift, linearisation error              -> widths.csv
    spectrum  every Gauss-Newton curvature, λ(c) at κ and at other alignments -> widths.csv
    at_kappas λ(c) at κ and the trace, without the curvatures      -> widths.csv
    matched   a pair at equal loss                                 -> width_matched.csv
    hessian   λ(c) of the full Hessian, with error                 -> width_hessian.csv
    polish    full-batch descent, and what it moves                -> width_polish.csv

Symbols: w weights, h curvatures, c = gamma/n_beta resolution, κ = n_beta·h_max/gamma, λ(c) =
½Σh/(h+c), m = nC rows of J.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import curvature
import effective_dimension
import theory
import train_mlp
import width_networks
from mlp import MLP
from width_networks import LAST, POLISHED, Network
from width_tables import KAPPAS

Array = NDArray[np.float64]
Row = dict[str, Any]

TRACE_REFERENCE = 20.0  # c = Σh/(20κ): a stable rank of 20 makes it the κ protocol
FIXED_GAMMA = 5000.0  # the source's first attempt
PROBES = 8  # the source's
LOSS_RATIO = 1330.0  # by which the source's polish reduced the loss
POLISH_STEPS = {64: 4000, 256: 2500, 1024: 1000}  # at most; by width, for their cost
LANCZOS_TOLERANCE = 1e-3  # for the smallest eigenvalue, in units of the largest


def train(folder: Path, network: Network) -> list[Row]:
    """Train from random weights, keep the trajectory, and say how far it went."""
    started = time.perf_counter()
    net = network.model()
    w_0 = net.initial_weights(network.seed)
    rates = train_mlp.rates(net, network.condition, network.base_rate)
    steps: list[int] = []
    losses: list[float] = []
    for snapshot in train_mlp.train(net, w_0, rates, seed=network.seed, steps=network.steps):
        width_networks.write_snapshot(folder, network, snapshot)
        steps.append(snapshot.step)
        losses.append(snapshot.loss)
    width_networks.write_trajectory(folder, network, steps, losses)
    drift = net.weight_drift(snapshot.w, w_0)
    return [
        {
            "d": net.n_params,
            "n": net.n,
            "steps": network.steps,
            "loss": snapshot.loss,
            "accuracy": accuracy(net, snapshot.w),
            **{f"drift_{name}": drift[name] for name in ("W1", "W2", "W3", "all")},
            "linearisation_error": net.linearisation_error(snapshot.w, w_0),
            "seconds_training": time.perf_counter() - started,
        }
    ]


def accuracy(net: MLP, w: Array) -> float:
    """Share of the examples whose largest output is the right one."""
    right = net.outputs(w).argmax(axis=1) == net.targets.argmax(axis=1)
    return float(right.mean())


def spectrum(folder: Path, network: Network, step: str = LAST) -> list[Row]:
    """Every curvature at the last step, kept in a file, and what is read from it."""
    net, w = network.model(), width_networks.read_snapshot(folder, network, step).w
    started = time.perf_counter()
    gram = effective_dimension.gram_matrix(net, w, "eigenvalues")
    built = time.perf_counter()
    h = effective_dimension.curvatures_of_gram(gram, net.hessian_scale)
    done = time.perf_counter()
    width_networks.write_spectrum(folder, network, h, step)
    return [
        {
            "hessian_scale": net.hessian_scale,
            "rank_ceiling": net.rank_ceiling(),
            "rank": effective_dimension.resolved_rank(h, (len(h), net.n_params)),
            "h_min": h[-1],
            "trace": h.sum(),
            "trace_without_gram": net.hessian_scale * net.gram_trace(w),
            **readings(h, network.n_beta),
            "seconds_gram": built - started,
            "seconds_eigenvalues": done - built,
        }
    ]


def readings(h: Array, n_beta: float) -> Row:
    """λ(c) at each κ, at two other alignments, and at the source's fixed gamma."""
    effective = effective_dimension.effective_rank(h)
    trace = float(h.sum())
    fixed = FIXED_GAMMA / n_beta
    return {
        "h_max": h[0],
        "stable_rank": effective_dimension.stable_rank(h),
        "effective_rank": effective,
        **_at({f"dimension_{k}": h[0] / k for k in KAPPAS}, h),
        **_at({f"trace_dimension_{k}": trace / (TRACE_REFERENCE * k) for k in KAPPAS}, h),
        **_at({f"rank_dimension_{k}": trace / (effective * k) for k in KAPPAS}, h),
        **_at({"dimension_gamma_5000": fixed}, h),
        "kappa_gamma_5000": h[0] / fixed,
    }


def _at(resolutions: dict[str, float], h: Array) -> Row:
    return {name: theory.effective_dimension(h, c) for name, c in resolutions.items()}


def read_at_kappas(net: MLP, w: Array, kappas: tuple[float, ...] = KAPPAS) -> Row:
    """h_max by Lanczos on the Gram matrix and λ(c) at each κ by Cholesky: no other eigenvalues."""
    gram = effective_dimension.gram_matrix(net, w, "cholesky")
    return _of_gram(gram, net.hessian_scale, kappas)


def _of_gram(gram: Array, hessian_scale: float, kappas: tuple[float, ...]) -> Row:
    h_max = hessian_scale * curvature.top_eigenvalue(gram)
    return {
        "h_max": h_max,
        **{
            f"dimension_{k}": effective_dimension.cholesky_effective_dimension(
                gram, hessian_scale, h_max / k
            )
            for k in kappas
        },
    }


def at_kappas(folder: Path, network: Network) -> list[Row]:
    """What needs no eigenvalues, at less than half their cost: for the seeds after the first."""
    net, w = network.model(), width_networks.read_snapshot(folder, network).w
    started = time.perf_counter()
    gram = effective_dimension.gram_matrix(net, w, "cholesky")
    built = time.perf_counter()
    read = _of_gram(gram, net.hessian_scale, KAPPAS)
    trace = net.hessian_scale * float(np.trace(gram))
    return [
        {
            "hessian_scale": net.hessian_scale,
            "rank_ceiling": net.rank_ceiling(),
            "trace": trace,
            "trace_without_gram": net.hessian_scale * net.gram_trace(w),
            "stable_rank": trace / read["h_max"],
            **read,
            "seconds_gram": built - started,
        }
    ]


def matched(folder: Path, pair: str, both: tuple[Network, Network]) -> list[Row]:
    """λ(c) of both networks of a pair at the snapshots closest to the larger of their last losses.

    The network with that loss is read at its last step, the other one earlier.
    """
    trajectories = [width_networks.read_trajectory(folder, network) for network in both]
    target = max(losses[-1] for _, losses in trajectories)
    rows = []
    for network, (steps, losses) in zip(both, trajectories, strict=True):
        at = train_mlp.nearest_in_loss(losses, target)
        here = {"pair": pair, "target_loss": target, "step": steps[at], "loss": losses[at]}
        if steps[at] == network.steps:
            read = readings(width_networks.read_spectrum(folder, network), network.n_beta)
        else:
            w = width_networks.read_snapshot(folder, network, steps[at]).w
            read = read_at_kappas(network.model(), w)
        rows.append(network.columns() | here | read)
    return rows


def hessian(
    folder: Path, network: Network, kappas: tuple[float, ...], with_cholesky: bool
) -> list[Row]:
    """λ(c) of the full Hessian at each κ by probes, with and without the control variate.

    Asked for it, Cholesky reads the Gauss-Newton value once more, to be timed in the same run.
    """
    net, w = network.model(), width_networks.read_snapshot(folder, network).w
    h = width_networks.read_spectrum(folder, network)
    full = effective_dimension.operator(net.n_params, lambda x: net.hvp(w, x))
    shared = effective_dimension.operator(net.n_params, lambda x: net.gauss_newton_product(w, x))
    lowest = curvature.smallest_eigenvalue(full, tolerance=LANCZOS_TOLERANCE)
    gram = effective_dimension.gram_matrix(net, w, "cholesky") if with_cholesky else None
    rows = []
    for kappa in kappas:
        c = float(h[0] / kappa)
        row = {"kappa": kappa, "resolution": c, "lowest": lowest, "probes": PROBES}
        row["gauss_newton"] = theory.effective_dimension(h, c)
        row["error_formula"] = curvature.hutchinson_standard_error(h, c, PROBES)
        if gram is not None:
            row |= _timed_cholesky(gram, net.hessian_scale, c)
        rows.append(network.columns() | row | _probed(full, shared, row, network.seed))
    return rows


def _timed_cholesky(gram: Array, hessian_scale: float, c: float) -> Row:
    started = time.perf_counter()
    value = effective_dimension.cholesky_effective_dimension(gram, hessian_scale, c)
    return {"cholesky": value, "seconds_cholesky": time.perf_counter() - started}


def _probed(full: Any, shared: Any, row: Row, seed: int) -> Row:
    """The probes of one κ; a resolution below −lowest is a reason in place of numbers."""
    started = time.perf_counter()
    try:
        probed = effective_dimension.probed_effective_dimension(
            full,
            shared,
            row["resolution"],
            exact=row["gauss_newton"],
            lowest=row["lowest"],
            probes=PROBES,
            seed=seed,
        )
    except (theory.UndefinedDimension, curvature.NegativeCurvature) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "full": probed.value,
        "full_error": probed.standard_error,
        "plain": probed.plain,
        "plain_error": probed.plain_standard_error,
        "seconds_probes": time.perf_counter() - started,
    }


def polish(folder: Path, network: Network) -> list[Row]:
    """Full-batch descent to the loss over LOSS_RATIO, its curvatures, and λ(c) before and after."""
    net, before = network.model(), width_networks.read_snapshot(folder, network)
    done = train_mlp.polish(
        net,
        before.w,
        train_mlp.rates(net, network.condition, network.base_rate),
        target_loss=before.loss / LOSS_RATIO,
        max_steps=POLISH_STEPS.get(network.width, max(POLISH_STEPS.values())),
    )
    width_networks.write_snapshot(folder, network, done, POLISHED)
    after = spectrum(folder, network, POLISHED)[0]
    h = width_networks.read_spectrum(folder, network)
    moved = np.linalg.norm(done.w - before.w) / np.linalg.norm(before.w)
    return [
        network.columns()
        | {
            "loss_before": before.loss,
            "loss_after": done.loss,
            "polish_steps": done.step,
            "moved": moved,
            **_at({f"before_{k}": h[0] / k for k in KAPPAS}, h),
        }
        | after
    ]
