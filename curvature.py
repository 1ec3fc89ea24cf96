"""Curvature: singular values, rank, gaps, and the matrix-free route (Lanczos, Hutchinson + CG).

Everything works on a plain matrix or on a scipy `LinearOperator`; no model is imported here.

Symbols and shapes
    m, d    rows (residuals) and columns (weights) of the Jacobian J
    s       singular values of J, descending, (min(m, d),)
    h       curvatures = eigenvalues of the Gauss-Newton matrix hessian_scale * J^T J, descending
    H       symmetric (d, d) matrix or operator: the Gauss-Newton matrix or the full Hessian
    c       resolution, gamma / n_beta, in the unit of h
    M       H (H + cI)^-1; the effective dimension is 1/2 tr M
    z       a probe: d independent random signs, E[z z^T] = I

Routes of `singular_values` and their floor: the error in each s is below floor * s_max
    svd     LAPACK gesdd, values only                              f = 10 eps sqrt(max(m, d))
    qr      QR of the tall orientation, then the svd of R          f
    gram    eigenvalues of the smaller Gram matrix, square root    sqrt(f)
The square root is why a rank at 1e-9 cannot be read from a Gram matrix.

Sources: Higham & Mary, SIAM J. Sci. Comput. 41 (2019) A2815 (rounding grows as sqrt(n) eps, not
n eps); Hutchinson, Commun. Stat. Simul. Comput. 19 (1990) 433 (trace by random signs).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigvalsh, qr, svd
from scipy.linalg.blas import dsyrk
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, aslinearoperator, cg, eigsh

Array = NDArray[np.float64]
Matrix = NDArray[Any] | LinearOperator

TOLERANCES = tuple(10.0**-k for k in range(4, 13))
BLOCK = 256  # rows (or columns) of J that the gram route holds at once
DENSE = 512  # an H up to this size is written out and solved in full: as fast, and never stuck
KRYLOV = 40  # Lanczos vectors kept between restarts


class ToleranceBelowFloor(ValueError):
    """A rank was asked for at a tolerance that the rounding of the route cannot resolve."""


class InsufficientMemory(MemoryError):
    """A route needs more memory than there is; nothing has been allocated yet."""


class NotConverged(ArithmeticError):
    """Lanczos or conjugate gradients stopped before reaching the tolerance."""


class NegativeCurvature(ArithmeticError):
    """H + cI is not positive definite, so the effective dimension is undefined."""


# ------------------------------------------------------------------------------- singular values


class SingularValues(np.ndarray):
    """Singular values (float64, descending) that remember the matrix and route they come from.

    `.route` and `.shape_of_matrix` (m, d) survive slicing, copying and pickling; the result of
    arithmetic, such as s**2 / n, is a plain array.
    """

    route: str
    shape_of_matrix: tuple[int, int]

    def __new__(cls, values: ArrayLike, route: str, shape: tuple[int, int]) -> SingularValues:
        """Copy `values`, all singular values of a matrix of this shape."""
        self = np.array(values, dtype=np.float64).view(cls)
        self.route, self.shape_of_matrix = route, shape
        return self

    def __array_finalize__(self, source: Any) -> None:
        self.route = getattr(source, "route", "svd")
        self.shape_of_matrix = getattr(source, "shape_of_matrix", (self.size, self.size))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __reduce__(self) -> tuple[Any, ...]:
        return SingularValues, (np.asarray(self), self.route, self.shape_of_matrix)

    @property
    def floor(self) -> float:
        """Relative rounding floor of the route (see `rounding_floor`)."""
        return rounding_floor(self.shape_of_matrix, self.route)


def rounding_floor(shape: tuple[int, int], route: str) -> float:
    """Relative error, in units of s_max, that rounding may leave in each singular value."""
    backward_error = 10.0 * float(np.finfo(np.float64).eps * np.sqrt(max(shape)))
    return backward_error**0.5 if route == "gram" else backward_error


def singular_values(J: Matrix, route: str = "svd") -> SingularValues:
    """All min(m, d) singular values of J, descending.

    J      (m, d) real array, or a LinearOperator (gram only: rmatmat when d <= m, else matmat)
    route  "svd" | "gram" | "qr"; gram holds one Gram matrix and `BLOCK` rows or columns of J

    Raises ValueError (unknown route, not two-dimensional, complex, NaN or infinity, an operator
    on svd or qr) and InsufficientMemory (before anything is allocated).
    """
    if route not in _ROUTES:
        raise ValueError(f"unknown route {route!r}; choose one of {', '.join(_ROUTES)}")
    if isinstance(J, LinearOperator) and route != "gram":
        raise ValueError(f"route {route!r} needs J as an array; use 'gram' for an operator")
    J = J if isinstance(J, LinearOperator) else np.asarray(J)
    if J.ndim != 2:
        raise ValueError(f"J must have two dimensions (m, d), not shape {J.shape}")
    if np.issubdtype(J.dtype, np.complexfloating):
        raise ValueError("J is complex; singular values are read from real Jacobians only")
    if 0 in J.shape:
        return SingularValues([], route, J.shape)
    _require_memory(J.shape, route)
    return SingularValues(_ROUTES[route](J), route, J.shape)


def _by_svd(J: NDArray[Any]) -> Array:
    return svd(_finite(J), compute_uv=False, check_finite=False, lapack_driver="gesdd")


def _by_qr(J: NDArray[Any]) -> Array:
    tall = J if J.shape[0] >= J.shape[1] else J.T
    copy = np.array(_finite(tall), order="F")  # the only one: LAPACK overwrites it
    _, R = qr(copy, mode="raw", overwrite_a=True, check_finite=False)
    return svd(R.T, compute_uv=False, overwrite_a=True, check_finite=False)


def _by_gram(J: Matrix) -> Array:
    small, long = min(J.shape), max(J.shape)
    gram = np.zeros((small, small), order="F")
    for start in range(0, long, BLOCK):
        block = _gram_block(J, start, min(start + BLOCK, long))
        gram = dsyrk(1.0, block, beta=1.0, c=gram, lower=1, overwrite_c=1)
        del block  # two blocks never coexist
    # Any NaN or infinity in J reaches the diagonal, which sums squares.
    if not np.isfinite(gram.diagonal()).all():
        raise ValueError("J has NaN, infinity, or entries so large that their squares overflow")
    h = eigvalsh(gram, lower=True, overwrite_a=True, check_finite=False)
    return np.sqrt(np.maximum(h[::-1], 0.0))


def _gram_block(J: Matrix, start: int, stop: int) -> NDArray[Any]:
    """Rows of a tall J, transposed, or columns of a wide one: (small side, stop - start)."""
    tall = J.shape[1] <= J.shape[0]
    if isinstance(J, LinearOperator):
        units = np.eye(max(J.shape), stop - start, -start)
        return J.rmatmat(units) if tall else J.matmat(units)
    return J[start:stop].T if tall else J[:, start:stop]


def _finite(J: NDArray[Any]) -> Array:
    bad = J.size - int(np.count_nonzero(np.isfinite(J)))
    if bad:
        raise ValueError(f"J has {bad} of {J.size} entries NaN or infinite; check the weights")
    return J.astype(np.float64, copy=False)


_ROUTES: dict[str, Callable[[Any], Array]] = {"svd": _by_svd, "gram": _by_gram, "qr": _by_qr}


def memory_needed(shape: tuple[int, int], route: str) -> int:
    """Bytes a route allocates beyond J itself: an upper estimate, workspace included."""
    small, long = min(shape), max(shape)
    numbers = {
        "svd": small * long,
        "qr": small * long + 2 * small**2,
        "gram": small**2 + min(BLOCK, long) * (long + 2 * small),  # + unit vectors, block, copy
    }
    return 8 * (numbers[route] + 64 * (small + long))  # + LAPACK's blocked workspace


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, or None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _require_memory(shape: tuple[int, int], route: str) -> None:
    needed, available = memory_needed(shape, route), available_memory()
    if available is not None and needed > available:
        raise InsufficientMemory(
            f"route {route!r} on a {shape[0]} x {shape[1]} matrix needs {needed / 1e9:.3g} GB and "
            f"{available / 1e9:.3g} GB are available; 'gram' needs "
            f"{memory_needed(shape, 'gram') / 1e9:.3g} GB, and the matrix-free route "
            "(top_eigenvalue, hutchinson_effective_dimension) needs no matrix at all"
        )


# ---------------------------------------------------------------------------- reading a spectrum


class RankAt(NamedTuple):
    """One line of a rank sweep; `below_floor` marks a count that rounding may have decided."""

    tolerance: float
    rank: int
    gap: float
    below_floor: bool


def rank(s: ArrayLike, tol: float) -> int:
    """Number of singular values above tol * s_max.

    s    all singular values of one matrix; a plain array is taken as the svd of a square matrix
    tol  relative tolerance, floor <= tol < 1

    Raises ValueError, and ToleranceBelowFloor when the route cannot resolve tol.
    """
    floor = _floor_of(s)
    _require_tolerance(tol)
    if tol < floor:
        remedy = "use route 'svd' or 'qr'" if getattr(s, "route", "") == "gram" else "count exactly"
        raise ToleranceBelowFloor(
            f"tol = {tol:.3g} is below the rounding floor {floor:.3g} of these singular values; "
            f"raise tol above the floor, or {remedy}"
        )
    return _count(_spectrum(s), tol)


def rank_sweep(s: ArrayLike, tolerances: Sequence[float] = TOLERANCES) -> list[RankAt]:
    """Rank and gap at each tolerance; a count below the rounding floor is marked, not hidden."""
    values, floor = _spectrum(s), _floor_of(s)
    sweep = []
    for tol in tolerances:
        _require_tolerance(tol)
        r = _count(values, tol)
        sweep.append(RankAt(tol, r, gap_at(values, r), tol < floor))
    return sweep


def gap_at(s: ArrayLike, rank: int) -> float:
    """Ratio s[rank-1] / s[rank] at which a rank is decided; inf when nothing is left behind.

    Raises ValueError when there is no positive singular value in front of the cut.
    """
    values = _spectrum(s)
    positive = int(np.count_nonzero(values))
    if not min(1, positive) <= rank <= positive:
        raise ValueError(f"no gap at rank {rank}: {positive} singular values are positive")
    return float(values[rank - 1] / values[rank]) if rank < positive else np.inf


def largest_gap(s: ArrayLike) -> tuple[float, int]:
    """(ratio, rank) of the widest gap s[rank-1] / s[rank] between two neighbours.

    Only gaps whose upper side stands above the rounding floor count: below it ratios are noise.
    Without neighbours (zeros alone, one value): (inf, number of positive values).
    """
    values = _spectrum(s)
    last = min(_count(values, _floor_of(s)), len(values) - 1)
    gaps = [(gap_at(values, r), r) for r in range(1, last + 1)]
    return max(gaps, key=lambda gap: gap[0], default=(np.inf, int(np.count_nonzero(values))))


def curvatures(s: ArrayLike, hessian_scale: float) -> Array:
    """Eigenvalues h = hessian_scale * s^2 of the Gauss-Newton matrix, descending, (len(s),)."""
    _require_positive("hessian_scale", hessian_scale)
    return hessian_scale * _spectrum(s) ** 2


def flat_share(h: ArrayLike, rank: int, resolution: float) -> float:
    """Share of the `rank` largest curvatures that lie below the resolution c; 0 at rank 0."""
    values = _spectrum(h)
    _require_positive("resolution", resolution)
    if not 0 <= rank <= len(values):
        raise ValueError(f"rank = {rank} must be between 0 and the {len(values)} curvatures given")
    return float(np.mean(values[:rank] < resolution)) if rank else 0.0


def _spectrum(values: ArrayLike) -> Array:
    """A plain descending copy; refused unless one-dimensional, finite and non-negative."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"a spectrum has one dimension, not shape {array.shape}")
    if not np.all((array >= 0.0) & np.isfinite(array)):
        raise ValueError("a spectrum must be finite and non-negative")
    return np.sort(array)[::-1]


def _count(values: Array, tol: float) -> int:
    return int(np.count_nonzero(values > tol * values[0])) if len(values) else 0


def _floor_of(s: ArrayLike) -> float:
    square = (np.size(s), np.size(s))
    return s.floor if isinstance(s, SingularValues) else rounding_floor(square, "svd")


def _require_tolerance(tol: float) -> None:
    if not 0.0 < tol < 1.0:
        raise ValueError(f"tol = {tol} must lie between 0 and 1 (it is relative to s_max)")


def _require_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} = {value} must be positive and finite")


# ------------------------------------------------------------------------------ without a matrix


class _Differentiable(Protocol):
    """The verbs of a model used here; the whole protocol is `chains.Model`."""

    @property
    def n_params(self) -> int: ...
    @property
    def hessian_scale(self) -> float: ...
    def jvp(self, w: Array, x: Array, /) -> Array: ...
    def vjp(self, w: Array, y: Array, /) -> Array: ...
    def hvp(self, w: Array, x: Array, /) -> Array: ...


def gauss_newton_operator(model: _Differentiable, w: Array) -> LinearOperator:
    """H = hessian_scale * J^T J at w as a (d, d) operator: one jvp and one vjp per product."""

    def product(x: Array) -> Array:
        return model.hessian_scale * model.vjp(w, model.jvp(w, x.ravel()))

    return _symmetric_operator(model.n_params, product)


def hessian_operator(model: _Differentiable, w: Array) -> LinearOperator:
    """The full Hessian of the loss at w as a (d, d) operator: one hvp per product."""
    return _symmetric_operator(model.n_params, lambda x: model.hvp(w, x.ravel()))


def top_eigenvalue(
    H: Matrix, *, tolerance: float = 1e-8, max_iterations: int = 10_000, seed: int = 0
) -> float:
    """Largest eigenvalue of a symmetric H, by Lanczos from a fixed random start.

    tolerance       error allowed, in units of the largest |eigenvalue|; usually far less is left
    max_iterations  restarts allowed
    Raises ValueError (not square, NaN or infinity) and NotConverged.
    """
    operator = _square_operator(H)
    extreme = _largest_magnitude(operator, tolerance, max_iterations, seed)
    if extreme >= 0.0:
        return extreme
    # Lanczos judges an eigenvalue by its own size. Shifted by twice the extreme one, all lie
    # between |H| and 3 |H|, so even an eigenvalue close to zero converges.
    shift = 2.0 * abs(extreme)
    shifted = _symmetric_operator(operator.shape[0], lambda x: operator @ x + shift * x)
    return _largest_magnitude(shifted, tolerance / 3.0, max_iterations, seed) - shift


def smallest_eigenvalue(H: Matrix, *, tolerance: float = 1e-6, **options: Any) -> float:
    """Smallest (most negative) eigenvalue; arguments and errors as in `top_eigenvalue`.

    The default tolerance is wider: where many eigenvalues crowd near zero, as they do at the
    bottom of a Hessian, Lanczos cannot tell them apart at a bearable cost.
    """
    operator = _square_operator(H)
    mirrored = _symmetric_operator(operator.shape[0], lambda x: -(operator @ x))
    return 0.0 - top_eigenvalue(mirrored, tolerance=tolerance, **options)  # never -0.0


def hutchinson_samples(
    H: Matrix,
    resolution: float,
    *,
    probes: int,
    seed: int,
    tolerance: float = 1e-4,
    max_iterations: int = 50_000,
) -> Array:
    """One unbiased estimate 1/2 z^T (H + cI)^-1 H z of 1/2 tr M per probe, (probes,).

    tolerance       bound on the error that CG leaves in each estimate (unit: dimensions)
    max_iterations  products with H allowed per probe
    The same seed gives the same probes and asking for more only appends, so the samples of two
    operators can be subtracted probe by probe: a control variate.
    Raises ValueError, NotConverged, NegativeCurvature.
    """
    operator = _square_operator(H)
    _require_positive("resolution", resolution)
    _require_positive("probes", probes)
    rng = np.random.default_rng(seed)
    d = operator.shape[0]
    # |z^T (H + cI)^-1 r| <= |z| |r| / c turns a bound on the estimate into one on the residual r.
    # Solving for H z, not z, keeps CG out of the null space of H and its error free of d.
    target = 2.0 * tolerance * resolution / d**0.5
    samples = np.empty(probes)
    for k in range(probes):
        z = rng.choice([-1.0, 1.0], d)
        x = _solve_damped(operator, resolution, _apply(operator, z), target, max_iterations)
        samples[k] = 0.5 * (z @ x)
    return samples


def hutchinson_effective_dimension(
    H: Matrix, resolution: float, *, probes: int, seed: int, **options: Any
) -> tuple[float, float]:
    """(value, standard error) of 1/2 tr H (H + cI)^-1: `hutchinson_samples` averaged.

    The standard error comes from the spread of the probes, at least two; options (tolerance,
    max_iterations) and errors as in `hutchinson_samples`.
    """
    if probes < 2:
        raise ValueError(f"probes = {probes}: a standard error needs at least 2")
    samples = hutchinson_samples(H, resolution, probes=probes, seed=seed, **options)
    return float(samples.mean()), float(samples.std(ddof=1)) / probes**0.5


def hutchinson_standard_error(h: ArrayLike, resolution: float, probes: int) -> float:
    """Standard error 1/2 sqrt(2 |M|_F^2 / probes) expected from the curvatures h alone.

    Exact for Gaussian probes. The variance of z^T M z under the random signs used here is
    2 (|M|_F^2 - sum_i M_ii^2), which depends on the eigenvectors too: this is its upper bound.
    """
    values = _spectrum(h)
    _require_positive("resolution", resolution)
    _require_positive("probes", probes)
    return 0.5 * float(np.linalg.norm(values / (values + resolution))) * (2.0 / probes) ** 0.5


def _solve_damped(
    operator: LinearOperator, c: float, right: Array, target: float, max_iterations: int
) -> Array:
    """Solve (H + cI) x = right by conjugate gradients, to a residual of norm `target`."""

    def damped(x: Array) -> Array:
        image = _apply(operator, x) + c * x
        if x @ image <= 0.0:
            raise NegativeCurvature(
                f"H has an eigenvalue at or below -c = {-c:.3g}: the effective dimension is "
                "undefined there; raise the resolution above -smallest_eigenvalue(H)"
            )
        return image

    system = _symmetric_operator(operator.shape[0], damped)
    x, failed = cg(system, right, rtol=0.0, atol=target, maxiter=max_iterations)
    if failed:
        residual = np.linalg.norm(right - operator @ x - c * x)
        raise NotConverged(
            f"conjugate gradients left a residual of {residual:.3g} after {max_iterations} "
            f"iterations, tolerance {target:.3g}; raise max_iterations, tolerance or resolution"
        )
    return x


def _largest_magnitude(
    operator: LinearOperator, tolerance: float, max_iterations: int, seed: int
) -> float:
    d = operator.shape[0]
    if d <= DENSE:
        h = eigvalsh(np.stack([_apply(operator, e) for e in np.eye(d)]))
        return float(max(h, key=abs))
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(d)
    if not _apply(operator, start).any():
        return 0.0
    try:
        extreme = eigsh(
            operator,
            k=1,
            v0=start,
            ncv=KRYLOV,
            tol=tolerance,
            maxiter=max_iterations,
            rng=rng,
            return_eigenvectors=False,
        )
        return float(extreme[0])
    except ArpackNoConvergence as error:
        raise NotConverged(
            f"Lanczos did not reach the relative tolerance {tolerance:.3g} on a {d} x {d} "
            f"operator in {max_iterations} restarts; raise max_iterations or tolerance"
        ) from error


def _apply(operator: LinearOperator, x: Array) -> Array:
    image = operator @ x
    if not np.isfinite(image).all():
        raise ValueError("H times a finite vector is NaN or infinite; check weights and data")
    return image


def _square_operator(H: Any) -> LinearOperator:
    operator = aslinearoperator(H)
    if operator.shape[0] != operator.shape[1] or operator.shape[0] == 0:
        raise ValueError(f"H must be square and not empty, not of shape {operator.shape}")
    return operator


def _symmetric_operator(d: int, product: Callable[[Array], Array]) -> LinearOperator:
    return LinearOperator((d, d), matvec=product, rmatvec=product, dtype=np.float64)
