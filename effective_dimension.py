"""The effective dimension λ(c) = ½ tr H(H + cI)⁻¹ of a network far too wide for its Jacobian.

    eigenvalues   all Gauss-Newton curvatures, from the Gram matrix: every resolution at once
    Cholesky      LLᵀ = G + cI gives λ(c) = ½[m − c|L⁻¹|²_F]: one resolution, exact, 6 times faster
    probes        the full Hessian, by Hutchinson + CG, less the same probes of the Gauss-Newton
                  matrix, plus its exact value: a control variate

Symbols and shapes
    m, d    rows of J (examples × outputs) and weights; m is far below d here
    gram    (m, m) JJᵀ, symmetric;  G = hessian_scale·JJᵀ has every non-zero eigenvalue of H = GN
    GN      hessian_scale·JᵀJ, the Gauss-Newton matrix (d, d), never formed
    h       curvatures, eigenvalues of G, descending (m,)
    c       resolution, gamma/n_beta, in the unit of h
    L       lower Cholesky factor (m, m)
    g       (d,) gradient of L_n at w*, zero at a minimum

Memory is predicted before anything is allocated: one (m, m) array for the eigenvalues, two for
Cholesky (0.84 GB each at m = 10,240). What clarity costs: the Gram matrix is not kept packed.

Sources: Hutchinson, Commun. Stat. Simul. Comput. 19 (1990) 433; Roy and Vetterli, EUSIPCO 2007
(effective rank); equations E27-E30.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.sparse.linalg import LinearOperator, cg

import curvature
import theory

Array = NDArray[np.float64]

COPIES = {"eigenvalues": 1, "cholesky": 2}  # (m, m) arrays alive at once
SYMMETRY_SAMPLE = 64  # rows compared with columns: enough to catch a matrix that is no Gram matrix


class NotPositive(ArithmeticError):
    """G + cI has no Cholesky factor: the matrix given is no Gram matrix, or not finite."""


class _GramModel(Protocol):
    """The verbs used here; `mlp.MLP` has them."""

    def gram(self, w: Array, /) -> Array: ...
    def residuals(self, w: Array, /) -> Array: ...


# ---- the Gram matrix ---------------------------------------------------------------------------


def memory_needed(m: int, route: str) -> int:
    """Bytes a route holds at its peak, the Gram matrix included. Raises ValueError (route)."""
    if route not in COPIES:
        raise ValueError(f"route must be one of {', '.join(COPIES)}: got {route!r}")
    return 8 * (COPIES[route] * m * m + 128 * m)  # + LAPACK's blocked workspace


def require_memory(m: int, route: str) -> None:
    """Raise curvature.InsufficientMemory, with what is needed and what there is."""
    needed, available = memory_needed(m, route), curvature.available_memory()
    if available is not None and needed > available:
        raise curvature.InsufficientMemory(
            f"the {route} of a Gram matrix with {m} rows need {needed / 1e9:.3g} GB and "
            f"{available / 1e9:.3g} GB are available; use fewer examples, or probes "
            "(curvature.hutchinson_effective_dimension), which need no matrix"
        )


def gram_matrix(model: _GramModel, w: Array, route: str) -> Array:
    """JJᵀ (m, m) at w for one of the routes, its memory predicted first."""
    require_memory(len(model.residuals(w)), route)
    return model.gram(w)


def curvatures_of_gram(gram: Array, hessian_scale: float) -> Array:
    """All curvatures h (m,), descending; zero where rounding left a negative one (E27).

    `gram` is overwritten: at m = 10,240 a copy would cost 0.84 GB. Raises ValueError on a matrix
    that is not square, not symmetric, not finite or of negative trace.
    """
    _check(gram, hessian_scale)
    eigenvalues = eigvalsh(gram.T, lower=True, overwrite_a=True, check_finite=False)
    return hessian_scale * np.maximum(eigenvalues[::-1], 0.0)


def cholesky_effective_dimension(gram: Array, hessian_scale: float, resolution: float) -> float:
    """λ(c) = ½[m − c|L⁻¹|²_F], LLᵀ = hessian_scale·gram + cI (E28); `gram` is kept.

    Exact to about m·10⁻¹⁶·(1 + h_max/c) in absolute value. Raises ValueError as above and on
    c ≤ 0, NotPositive when the factorisation fails.
    """
    _check(gram, hessian_scale)
    if not (np.isfinite(resolution) and resolution > 0):
        raise ValueError(f"resolution gamma/n_beta must be positive and finite, got {resolution}")
    damped = np.multiply(gram.T, hessian_scale, order="F")
    np.einsum("ii->i", damped)[...] += resolution
    factor, failed = dpotrf(damped, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise NotPositive(
            f"G + {resolution:.3g}·I is not positive definite at row {failed - 1}: give JJᵀ itself"
        )
    inverse, _ = dtrtri(factor, lower=1, overwrite_c=1)
    flat = inverse.ravel(order="K")
    return float(0.5 * (len(gram) - resolution * (flat @ flat)))


def _check(gram: Array, hessian_scale: float) -> None:
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.size == 0:
        raise ValueError(f"a Gram matrix is square and not empty: got shape {gram.shape}")
    if not (np.isfinite(hessian_scale) and hessian_scale > 0):
        raise ValueError(f"hessian_scale must be positive and finite: got {hessian_scale}")
    diagonal = gram.diagonal()
    if not (np.isfinite(diagonal).all() and diagonal.min() >= 0):
        raise ValueError("the diagonal of a Gram matrix is finite and non-negative: check J")
    rows = np.linspace(0, len(gram) - 1, min(len(gram), SYMMETRY_SAMPLE)).astype(int)
    if not np.array_equal(gram[rows], gram[:, rows].T):
        raise ValueError("a Gram matrix is symmetric to the last bit; use mlp.MLP.gram")


# ---- reading a spectrum ------------------------------------------------------------------------


def stable_rank(h: ArrayLike) -> float:
    """tr H/h_max: the curvature in units of the largest. Raises ValueError unless some h > 0."""
    values = _curved(h)
    return float(values.sum() / values.max())


def effective_rank(h: ArrayLike) -> float:
    """exp(−Σ p ln p), p = h/Σh: how many directions share the curvature (Roy, Vetterli 2007)."""
    values = _curved(h)
    shares = values[values > 0] / values.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def resolved_rank(h: ArrayLike, shape: tuple[int, int]) -> int:
    """Number of curvatures above the rounding of the gram route for J of this shape (m, d)."""
    s = curvature.SingularValues(np.sqrt(_curved(h)), "gram", shape)
    return curvature.rank(s, s.floor)


def _curved(h: ArrayLike) -> Array:
    values = np.asarray(h, dtype=np.float64)
    if values.ndim != 1 or not (np.isfinite(values).all() and values.min(initial=0.0) >= 0):
        raise ValueError("curvatures must be a finite, non-negative vector")
    if not values.max(initial=0.0) > 0:
        raise ValueError("every curvature is zero: nothing to count")
    return values


# ---- the full Hessian, by probes ---------------------------------------------------------------


class Probed(NamedTuple):
    """λ(c) of the full Hessian, with and without the control variate, and standard errors."""

    value: float
    standard_error: float
    plain: float
    plain_standard_error: float
    probes: int


def operator(d: int, product: Callable[[Array], Array]) -> LinearOperator:
    """A symmetric (d, d) operator from x -> H x."""

    def multiply(x: Array) -> Array:
        return product(x.ravel())

    return LinearOperator((d, d), matvec=multiply, rmatvec=multiply, dtype=np.float64)


def probed_effective_dimension(
    hessian: LinearOperator,
    gauss_newton: LinearOperator,
    resolution: float,
    *,
    exact: float,
    lowest: float,
    probes: int = 8,
    seed: int = 0,
    tolerance: float = 1e-3,
) -> Probed:
    """λ(c) of the full Hessian = exact Gauss-Newton value + mean of the probes' differences (E29).

    exact      λ(c) of `gauss_newton`, by eigenvalues or Cholesky
    lowest     smallest eigenvalue of `hessian` (curvature.smallest_eigenvalue)
    tolerance  error CG may leave in each probe, in dimensions
    The same seed makes the same probes of both matrices, so what they share cancels. Raises
    theory.UndefinedDimension when lowest ≤ −c, ValueError for fewer than two probes, and what
    curvature.hutchinson_samples raises.
    """
    if probes < 2:
        raise ValueError(f"probes = {probes}: a standard error needs at least 2")
    if lowest <= -resolution:
        raise theory.UndefinedDimension(
            f"the Hessian's smallest eigenvalue {lowest:.4g} is not above −c = {-resolution:.4g}: "
            "there is no localised posterior; lower kappa or polish to a minimum"
        )
    full, shared = (
        curvature.hutchinson_samples(
            matrix, resolution, probes=probes, seed=seed, tolerance=tolerance
        )
        for matrix in (hessian, gauss_newton)
    )
    difference = full - shared
    return Probed(
        value=float(exact + difference.mean()),
        standard_error=float(difference.std(ddof=1) / probes**0.5),
        plain=float(full.mean()),
        plain_standard_error=float(full.std(ddof=1) / probes**0.5),
        probes=probes,
    )


def slope_shift(
    hessian: LinearOperator, g: Array, *, n_beta: float, resolution: float, tolerance: float = 1e-8
) -> float:
    """What a gradient g at w* adds to the reading on a quadratic: −n_beta·(gᵀx − ½xᵀHx) (E30).

    x = (H + cI)⁻¹g, so the posterior's mean is w* − x: the chains slide down, and the reading
    λ(c) falls by this much (the result is negative or zero). Raises curvature.NotConverged.
    """
    if not (np.isfinite(resolution) and resolution > 0):
        raise ValueError(f"resolution gamma/n_beta must be positive and finite, got {resolution}")
    damped = operator(len(g), lambda x: hessian @ x + resolution * x)
    x, failed = cg(damped, g, rtol=tolerance, atol=0.0, maxiter=50_000)
    if failed:
        raise curvature.NotConverged(
            f"conjugate gradients did not reach {tolerance:.3g} in {failed} steps; raise the "
            "tolerance or the resolution"
        )
    return float(-n_beta * (g @ x - 0.5 * (x @ (hessian @ x))))
