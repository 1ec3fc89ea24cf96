"""Studies without a sampler: what J says by itself. `python run_llc.py --study NAME`.

    name        what it measures                                          minutes on 2 cores
    networks    train, polish, decompose, exact rank of every network of the studies      15
    tolerance   rank and flat share against tolerance and route -> rank_sweep.csv          5
    fourier     the exact Fourier solutions: rank, bracket, which formula fits inside    0.3

They may run before the sampler's settings are frozen.

Symbols: J Jacobian, s its singular values, h = s²/n curvatures, c the resolution, r rank, D weights
minus exact symmetry directions, w* polished weights.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import curvature
import exact_rank
import jobs
import known
import measure
import networks
import records
import theory
from jobs import Job, Row, Setup, Study
from measure import Curvature
from networks import Size
from qnet import QuadraticNetwork, modular_pairs

Array = NDArray[np.float64]

RESOLUTION = 1e-4  # c of the source's settings, gamma = 1 at n_beta = 1e4
QR_SIZES = networks.VERDICT[:4]  # beyond them a second exact route takes minutes
RANDOM_SIZES = networks.VERDICT[:2]  # the source's two, its networks of random weights
SETS = (("verdict", networks.VERDICT), ("too-wide", networks.TOO_WIDE))
FOURIER = tuple(itertools.product((5, 7, 11, 13), (4, 6)))  # p, neurons per frequency


# ---- networks ----------------------------------------------------------------------------------


def study_networks(setup: Setup) -> list[Row]:
    """Train, polish and decompose every network; data/checkpoints, data/spectra, networks.csv."""
    todo = []
    for study, sizes in SETS:
        for size, seed in networks.each(sizes):
            row = networks.identified(size, seed) | {"study": study}
            seconds = 5.0 + 1.3 * networks.seconds_to_decompose(row)
            todo.append(
                Job(row["network"], (size, seed, setup.data), row, seconds, jobs.NO_SAMPLER)
            )
    return jobs.finish(setup, "networks", "networks", network_work, todo)


def network_work(size: Size, seed: int, data: Path) -> list[Row]:
    """Checkpoint, spectrum and exact rank of one network.

    A spectrum of these very weights that is there already is read, not made: it takes minutes.
    """
    made, name = networks.make(size, seed), size.name(seed)
    records.write_checkpoint(networks.checkpoint_path(data, name), made.checkpoint)
    row = networks.trained(made.checkpoint)
    net, w = networks.opened(made.checkpoint)
    path, sha256 = networks.spectrum_path(data, name), row["checkpoint_sha256"]
    started = time.perf_counter()
    found = _kept_spectrum(path, net, sha256)
    if found is None:
        found = measure.read_curvature(net, w)
        measure.write_spectrum(path, net, found, sha256)
        row["seconds_spectrum"] = time.perf_counter() - started
    row |= {"seconds_training": made.seconds_training, "seconds_polish": made.seconds_polish}
    started = time.perf_counter()
    row |= networks.exact(net, w)
    row["seconds_exact_rank"] = time.perf_counter() - started
    record = networks.spectrum(measure.curvature_record(net, w, found, RESOLUTION))
    return [row | record | networks.formulas(net, w)]


def _kept_spectrum(path: Path, net: QuadraticNetwork, sha256: str) -> Curvature | None:
    """The spectrum kept for these weights, if there is one."""
    try:
        return measure.read_spectrum(path, net, sha256) if path.exists() else None
    except records.RecordError:
        return None


# ---- tolerance ---------------------------------------------------------------------------------


def study_tolerance(setup: Setup) -> list[Row]:
    """Rank and flat share of the verdict networks at 1e-4 … 1e-12, by route."""
    todo = []
    for row, weights, route in _sweeps(setup):
        known_columns = row | {"weights": weights, "route": route}
        seconds = 1.0 if (weights, route) == ("grokked", "svd") else _seconds(row, route)
        key = f"{row['network']}_{weights}_{route}"
        arguments = (row["network"], weights, route, setup.data)
        todo.append(Job(key, arguments, known_columns, seconds, jobs.NO_SAMPLER))
    return jobs.finish(setup, "tolerance", "rank_sweep", sweep_work, todo)


def _sweeps(setup: Setup) -> Iterator[tuple[Row, str, str]]:
    """(row of networks.csv, weights, route) of every sweep."""
    for route in ("svd", "gram"):
        for row in networks.made(setup.data, networks.VERDICT):
            yield row, "grokked", route
    for row in networks.made(setup.data, QR_SIZES, networks.LOWEST):
        yield row, "grokked", "qr"
    for row in networks.made(setup.data, RANDOM_SIZES, networks.LOWEST):
        yield row, "random", "svd"


def _seconds(row: Row, route: str) -> float:
    return networks.seconds_to_decompose(row) * (0.3 if route == "gram" else 1.0)


def sweep_work(name: str, weights: str, route: str, data: Path) -> list[Row]:
    """One spectrum at every tolerance; the kept one where it is that one, else made here."""
    checkpoint = records.read_checkpoint(networks.checkpoint_path(data, name))
    net, w = networks.opened(checkpoint)
    path = networks.spectrum_path(data, name)
    kept = measure.read_spectrum(path, net, checkpoint.content_hash()).singular_values
    assert kept is not None
    if (weights, route) == ("grokked", kept.route):
        return list(_sweep(kept, net, {}))
    if weights == "random":
        w = random_weights(checkpoint)
    started = time.perf_counter()
    s = measure.read_curvature(net, w, route).singular_values
    own: Row = {"seconds": time.perf_counter() - started}
    assert s is not None
    if weights == "grokked":
        own["error_against_svd"] = float(np.abs(s - kept).max() / kept[0])
    return list(_sweep(s, net, own))


def random_weights(checkpoint: records.Checkpoint) -> Array:
    """Normal weights with the spread a grokked network has in its first and in its second layer."""
    c = checkpoint
    spread = np.sqrt(0.5 * (c.u.var() + c.v.var()))
    return known.null_network(
        c.p, c.K, c.a, c.b, input_scale=float(spread), output_scale=float(c.W.std())
    )[1]


def _sweep(s: curvature.SingularValues, net: QuadraticNetwork, own: Row) -> Iterator[Row]:
    h = curvature.curvatures(s, net.hessian_scale)
    generic = net.K * (3 * net.p - 2)
    for at in curvature.rank_sweep(s):
        yield own | {
            "tolerance": at.tolerance,
            "rank": at.rank,
            "generic_rank": generic,
            "ratio_generic": at.rank / generic,
            "gap": at.gap if np.isfinite(at.gap) else None,
            "below_floor": at.below_floor,
            "flat_share": curvature.flat_share(h, at.rank, RESOLUTION),
            "smooth_model": theory.effective_dimension(h[: at.rank], RESOLUTION),
        }


# ---- fourier -----------------------------------------------------------------------------------


def study_fourier(setup: Setup) -> list[Row]:
    """The exact Fourier solutions on the full grid."""
    todo = []
    for p, per_frequency in FOURIER:
        row = {"p": p, "per_frequency": per_frequency}
        key, arguments = f"p{p}_{per_frequency}", (p, per_frequency)
        todo.append(Job(key, arguments, row, code=jobs.NO_SAMPLER))
    return jobs.finish(setup, "fourier", "fourier", fourier_work, todo)


def fourier_work(p: int, per_frequency: int) -> list[Row]:
    """Rank, bracket and formulas of one exact Fourier solution."""
    net = QuadraticNetwork.modular(p, per_frequency * (p - 1) // 2, *modular_pairs(p, 1.0, 0))
    w = net.pack(*exact_rank.fourier_network(p, per_frequency))
    found = measure.read_curvature(net, w)
    record = measure.curvature_record(net, w, found, RESOLUTION)
    D, rank = net.symmetry_free_dimension(), fourier_rank(p, per_frequency)
    low, high = theory.bracket(rank, D)
    high = min(high, theory.wide_limit(net.n, net.p))
    paper, generic = theory.paper_closed_form(net.K, p), theory.one_hot_generic(net.K, p)
    return [
        {
            **record,
            "K": net.K,
            "n": net.n,
            "d": net.n_params,
            "symmetry_free_dimension": D,
            "loss": float(net.loss(w)),
            "rank_formula": rank,
            "exact_rank_ideal": ideal_rank(net, p, per_frequency),
            "exact_rank_stored": networks.exact(net, w)["exact_lower"],
            "bracket_low": low,
            "bracket_high": high,
            "formula_paper": paper,
            "formula_generic": generic,
            "formula_inside": low <= paper <= high,
            "generic_inside": low <= generic <= high,
            "past_width_limit": generic > theory.wide_limit(net.n, p),
        }
    ]


def fourier_rank(p: int, per_frequency: int) -> int:
    """Rank of J at the exact solution on the full grid: (p−1)(6p−7) or (p−1)(15p−24)/2."""
    return (p - 1) * (6 * p - 7) if per_frequency == 4 else (p - 1) * (15 * p - 24) // 2


def ideal_rank(net: QuadraticNetwork, p: int, per_frequency: int) -> int:
    """Rank over GF(q) with exact waves: nothing is rounded."""
    q = exact_rank.fourier_prime(p)
    waves = exact_rank.fourier_network_mod(p, per_frequency, q)
    return exact_rank.rank_from_residues(exact_rank.reduce_dyadic(net.inputs, q), *waves, q)


STUDIES = {
    "networks": Study("networks", study_networks),
    "tolerance": Study("rank_sweep", study_tolerance),
    "fourier": Study("fourier", study_fourier),
}
