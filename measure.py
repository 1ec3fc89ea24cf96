"""One network, one record: curvature, rank, bracket, predicted reading, λ̂, and what they mean.

The way of the data: weights → J → singular values and rank → bracket and predicted reading →
sampler → λ̂ → record. Everything here is a function of a model, a point and the settings; the
scripts add files around it.

Symbols: s singular values of J, h curvatures, c = gamma/n_beta the resolution, r numerical rank,
D weights minus exact symmetry directions, K_eff neurons in use, λ̂ the reading.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import curvature
import exact_rank
import records
import sgld
import theory
from chains import Model
from console import Progress
from qnet import QuadraticNetwork
from records import PathLike

Array = NDArray[np.float64]

RANK_TOLERANCE = {"svd": 1e-9, "qr": 1e-9, "gram": 1e-6}  # the source's, above each route's floor
CLEAN_GAP = 1e3  # a smaller ratio at the cut, and another tolerance would count differently
ROUTES = (*RANK_TOLERANCE, "matrix-free")
PROBES = 32  # Hutchinson probes of the matrix-free route
NEEDS_SPECTRUM = (  # fields of curvature_record
    "rounding_floor",
    "clean_cut",
    "h_median",
    "h_min",
    "flat_share",
    "half_rank",
    "bracket",
    "certified",
)


@dataclass(frozen=True)
class Protocol:
    """How a network is to be sampled; ε follows from the step rule once h_max is known."""

    n_beta: float = 1e4
    gamma: float = 1.0
    step_constant: float = 0.2
    chains: int = 4
    steps: int = 10_000
    burn_in: int = 2_000

    def check(self) -> None:
        """Raise ValueError for a setting out of range, before any long work."""
        self.step(h_max=0.0)
        if not self.step_constant < theory.STABILITY_LIMIT:
            raise ValueError(
                f"step_constant must be below the stability limit {theory.STABILITY_LIMIT:g}, got "
                f"{self.step_constant}: every chain would diverge"
            )
        sgld.Settings(self.n_beta, self.gamma, 1.0, self.chains, self.steps, self.burn_in, seed=0)

    @property
    def resolution(self) -> float:
        """c = gamma/n_beta: a direction of curvature h counts ½·h/(h + c)."""
        return self.gamma / self.n_beta

    def step(self, h_max: float) -> float:
        """ε by the step rule at this h_max."""
        return theory.step_size(
            self.step_constant, n_beta=self.n_beta, h_max=h_max, gamma=self.gamma
        )


@dataclass(frozen=True)
class Curvature:
    """The spectrum at w* and what is read from it.

    On the matrix-free route only h_max is known and every other field but `route` is None.
    """

    route: str
    h_max: float
    singular_values: curvature.SingularValues | None = None
    h: Array | None = None  # (min(m, d),) descending
    tolerance: float | None = None
    rank: int | None = None
    gap: float | None = None  # s[r−1]/s[r]; None where nothing stands behind the cut
    largest_gap: float | None = None
    largest_gap_rank: int | None = None


def read_curvature(model: Model, w: Array, route: str = "svd") -> Curvature:
    """The spectrum of J at w by one of the ROUTES, with the rank at the route's tolerance.

    The gram route multiplies J block by block and never holds it where the model offers
    `jacobian_operator`. Raises curvature.InsufficientMemory before anything is allocated.
    """
    if route == "matrix-free":
        return Curvature(route, curvature.top_eigenvalue(curvature.gauss_newton_operator(model, w)))
    if route not in RANK_TOLERANCE:
        raise ValueError(f"unknown route {route!r}: choose one of {', '.join(ROUTES)}")
    if route == "gram" and hasattr(model, "jacobian_operator"):
        J = model.jacobian_operator(w)
    else:
        _refuse_large_jacobian(model, w, route)
        J = model.jacobian(w)
    return interpret(model, curvature.singular_values(J, route=route))


def interpret(model: Model, s: curvature.SingularValues) -> Curvature:
    """Rank, gaps and curvatures from the singular values of the model's J."""
    tolerance = RANK_TOLERANCE[s.route]
    r = curvature.rank(s, tolerance)
    gap = curvature.gap_at(s, r) if r else np.inf
    ratio, where = curvature.largest_gap(s)
    h = curvature.curvatures(s, model.hessian_scale)
    return Curvature(
        route=s.route,
        h_max=float(h[0]),
        singular_values=s,
        h=h,
        tolerance=tolerance,
        rank=r,
        gap=_finite_or_none(gap),
        largest_gap=_finite_or_none(ratio),
        largest_gap_rank=where,
    )


def write_spectrum(
    path: PathLike, net: QuadraticNetwork, found: Curvature, checkpoint_sha256: str
) -> None:
    """Keep a spectrum, with the hash of the network it belongs to.

    Raises records.RecordError, and ValueError on the matrix-free route, which has no spectrum.
    """
    if found.singular_values is None:
        raise ValueError(f"route {found.route!r} has no spectrum to keep")
    arrays = {
        "checkpoint_sha256": checkpoint_sha256,
        "route": found.route,
        "singular_values": found.singular_values,
        "hessian_scale": net.hessian_scale,
    }
    records.write_npz(path, arrays)


def read_spectrum(path: PathLike, net: QuadraticNetwork, checkpoint_sha256: str) -> Curvature:
    """The curvature kept by `write_spectrum`, its rank read anew.

    Raises records.RecordError when the file is unreadable or belongs to another network.
    """
    kept = records.read_npz(path)
    owner = str(kept.get("checkpoint_sha256", "nobody"))
    if owner != checkpoint_sha256:
        cause = f"the spectrum of network {owner[:12]}, not of {checkpoint_sha256[:12]}"
        raise records.RecordError(path, cause, "remove it and run again")
    try:
        s, route = kept["singular_values"], str(kept["route"])
        shape = (net.n * net.p, net.n_params)
        return interpret(net, curvature.SingularValues(s, route, shape))
    except KeyError as error:
        cause = f"it has no array or no route {error}"
        raise records.RecordError(path, cause, "remove it and run again") from error


def _refuse_large_jacobian(model: Model, w: Array, route: str) -> None:
    rows = len(model.residuals(w))
    needed = 8 * rows * model.n_params + curvature.memory_needed((rows, model.n_params), route)
    available = curvature.available_memory()
    if available is not None and needed > available:
        raise curvature.InsufficientMemory(
            f"J is {rows} x {model.n_params}: with route {route!r} it needs {needed / 1e9:.3g} GB, "
            f"{available / 1e9:.3g} GB are available; use --route gram, which never holds J, or "
            "--route matrix-free"
        )


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# ---- predicted and measured readings -----------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """What the sampler returns if the loss is quadratic with the spectrum found at w*."""

    effective_dimension: float  # ½Σ h/(h+c), no step bias, no transient
    expected_llc: float | None  # exact law at the settings run; None without a spectrum
    standard_deviation: float | None  # of the mean over the chains, by the same law
    settled_share: float | None  # expected_llc over its value for endless chains
    probe_error: float | None = None  # standard error of the effective dimension, matrix-free route


def predict(model: Model, w: Array, found: Curvature, protocol: Protocol) -> Prediction:
    """The reading the spectrum at w predicts under the protocol (E10, E11)."""
    if found.h is None:
        operator = curvature.gauss_newton_operator(model, w)
        value, error = curvature.hutchinson_effective_dimension(
            operator, protocol.resolution, probes=PROBES, seed=0
        )
        return Prediction(value, None, None, None, error)
    h, n_beta, gamma = found.h, protocol.n_beta, protocol.gamma
    step, steps, burn_in = protocol.step(found.h_max), protocol.steps, protocol.burn_in
    expected = theory.sgld_expected_llc(
        h, n_beta=n_beta, gamma=gamma, step=step, steps=steps, burn_in=burn_in
    )
    variance = theory.sgld_llc_variance(
        h,
        n_beta=n_beta,
        gamma=gamma,
        step=step,
        steps=steps,
        burn_in=burn_in,
        chains=protocol.chains,
    )
    endless = theory.sgld_stationary_llc(h, n_beta=n_beta, gamma=gamma, step=step)
    return Prediction(
        effective_dimension=theory.effective_dimension(h, protocol.resolution),
        expected_llc=expected,
        standard_deviation=variance**0.5,
        settled_share=expected / endless if endless else None,
    )


def sample(
    model: Model,
    w: Array,
    found: Curvature,
    protocol: Protocol,
    *,
    seed: int | tuple[int, ...],
    workers: int = 1,
    progress: Progress | None = None,
) -> sgld.Sample:
    """Run SGLD under the protocol, with ε from the step rule at the h_max found."""
    return sgld.sample(
        model,
        w,
        n_beta=protocol.n_beta,
        gamma=protocol.gamma,
        step=protocol.step(found.h_max),
        chains=protocol.chains,
        steps=protocol.steps,
        burn_in=protocol.burn_in,
        seed=seed,
        h_max=found.h_max,
        workers=workers,
        progress=progress,
    )


def deviation(run: sgld.Sample, predicted: Prediction) -> float | None:
    """z of the reading against the law, by the larger of the law's spread and the measured error.

    None on the matrix-free route, which has no law.
    """
    if predicted.expected_llc is None or predicted.standard_deviation is None:
        return None
    error = max(run.standard_error, predicted.standard_deviation)
    return (run.llc - predicted.expected_llc) / error


# ---- records -----------------------------------------------------------------------------------


def bracket_at(net: QuadraticNetwork, w: Array, rank: int, *, clean: bool) -> theory.Bracket:
    """Lower and upper bound on λ at w*, from the numerical rank there.

    A rank that meets the rank bound is locally constant: λ is half of it. Otherwise the splitting
    lemma holds with D = d minus the symmetry directions at w*: of a neuron that is not in use the
    scaling direction vanishes, so it is not subtracted. Where the cut is not clean, directions
    behind it may be curved, and the upper end allows for as many as the rank bound does. λ is never
    above half the number of squares, ½p(n−1).
    """
    bound, idle = net.rank_bound(), net.K - net.effective_neurons(w)
    if rank == bound:
        return theory.Bracket(0.5 * rank, 0.5 * rank)
    D = net.symmetry_free_dimension() + idle
    upper = theory.bracket(rank if clean else bound, D).upper
    return theory.Bracket(0.5 * rank, min(upper, theory.wide_limit(net.n, net.p)))


def curvature_record(
    net: QuadraticNetwork, w: Array, found: Curvature, resolution: float
) -> dict[str, Any]:
    """Spectrum, rank, gap, flat share and bracket of a quadratic network at w*, as plain fields.

    `clean_cut`: a wide gap, and nothing behind it but rounding (of the svd: the Gram route cannot
    tell). `certified`: the rank meets that bound; `exact_record` says so
    without rounding. The matrix-free route knows h_max and the rank bound only; every other field
    is None.
    """
    record: dict[str, Any] = {
        "route": found.route,
        "resolution": resolution,
        "h_max": found.h_max,
        "rank_bound": net.rank_bound(),
        "rank": found.rank,
        "tolerance": found.tolerance,
        "gap": found.gap,
        "largest_gap": found.largest_gap,
        "largest_gap_rank": found.largest_gap_rank,
    }
    if found.h is None or found.rank is None or found.singular_values is None:
        return record | dict.fromkeys(NEEDS_SPECTRUM)
    counted, clean = found.h[: found.rank], _clean_cut(found.singular_values, found.rank)
    return record | {
        "rounding_floor": found.singular_values.floor,
        "clean_cut": clean,
        "h_median": float(np.median(counted)) if found.rank else None,
        "h_min": float(counted[-1]) if found.rank else None,
        "flat_share": curvature.flat_share(found.h, found.rank, resolution),
        "half_rank": 0.5 * found.rank,
        "bracket": list(bracket_at(net, w, found.rank, clean=clean)),
        "certified": found.rank == net.rank_bound(),
    }


def exact_record(net: QuadraticNetwork, w: Array) -> dict[str, Any]:
    """The rank of J over GF(q) at the stored weights, as plain fields.

    `exact_lower` is a rigorous lower bound on the rank; `certified`: it meets the rank bound, so λ
    of the teacher f(w*) is exactly half of it. It needs no spectrum and holds no rounding.
    """
    exact = exact_rank.network_rank(net, w)
    return {
        "exact_lower": exact.lower,
        "exact_primes": list(exact.primes),
        "certified": exact.certified,
    }


def _clean_cut(s: curvature.SingularValues, rank: int) -> bool:
    if rank == len(s) or s[rank] == 0.0:
        return True
    rounding = curvature.rounding_floor(s.shape_of_matrix, "svd") * s[0]
    return bool(s[rank] <= rounding and s[rank - 1] >= CLEAN_GAP * s[rank])


def reading_record(run: sgld.Sample, protocol: Protocol) -> dict[str, Any]:
    """λ̂, its errors, doubts and the settings it ran at, as plain fields."""
    reading = run.reading
    return {
        "llc": run.llc,
        "standard_error": run.standard_error,
        "standard_error_between_chains": reading.standard_error_between_chains,
        "standard_error_autocorrelation": reading.standard_error_autocorrelation,
        "llc_per_chain": run.llc_per_chain,
        "integrated_time": reading.integrated_time,
        "split_r_hat": reading.split_r_hat,
        "block_means": reading.block_means,
        "settled": run.settled,
        "doubts": list(run.doubts),
        "mala_acceptance": run.mala_acceptance if np.isfinite(run.mala_acceptance) else None,
        "distance": float(run.distances[:, -1].mean()),  # from w*, at the last step kept
        "loss_at_reference": run.loss_at_reference,
        "burn_in_discarded": protocol.burn_in,
        "settings": asdict(protocol) | {"step": run.settings.step, "seed": run.settings.seed},
    }


def formulas(net: QuadraticNetwork, K_eff: int) -> dict[str, float]:
    """The closed forms a reading is compared with."""
    return {
        "paper": theory.paper_closed_form(K_eff, net.p),
        "one_hot_generic": theory.one_hot_generic(net.K, net.p),
        "wide_limit": theory.wide_limit(net.n, net.p),
    }
