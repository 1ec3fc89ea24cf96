"""How training examples influence query losses: Bayesian and damped influence, and their ranking.

The loss of an example is ℓ_i(w) = (s/2)|f(x_i) − y_i|², s = n·hessian_scale, so L_n is their mean.
Under the localised posterior of a quadratic, δ = w − w* ~ N(0, Σ), Σ = (n_beta·H + gamma·I)⁻¹,

    BIF(i, q) = −Cov(ℓ_i, ℓ_q) = −[gᵀΣb + ½ tr(AΣBΣ)]        g, A at example i; b, B at query q
    damped    = −bᵀ(H + cI)⁻¹g = −n_beta·bᵀΣg                the first term, up to n_beta

With the Gauss-Newton Hessian (the network linear in δ) everything follows from Gram matrices:
g = s·J_iᵀr_i, A = s·J_iᵀJ_i, so with P = JΣJᵀ the two terms are s²·r_iᵀP_iq r_q and ½s²·|P_iq|²_F.

Symbols and shapes
    n, q, C  training examples, queries, outputs       m, k  rows of J: n·C, q·C
    r, ρ     (m,), (k,) residuals of training and query examples at w*
    K        (m, m) JJᵀ of the training rows;  K_q (m, k) training rows against query rows
    P        (m, k) JΣJᵀ
    c        resolution, gamma/n_beta

Sources: Koh and Liang, ICML 2017; Kreer et al. 2025, arXiv:2509.26544; equations E33, E34.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import rankdata

Array = NDArray[np.float64]


def posterior_kernel(
    K: Array, K_q: Array, *, hessian_scale: float, n_beta: float, gamma: float
) -> Array:
    """P = JΣJᵀ between training and query rows, (m, k), from Gram matrices alone (E33).

    P = (n_beta·hessian_scale)⁻¹ (K + μI)⁻¹ K_q, μ = gamma/(n_beta·hessian_scale), by the identity
    J(aJᵀJ + gamma·I)⁻¹ = (aJJᵀ + gamma·I)⁻¹J. Raises ValueError unless all settings are positive.
    """
    if not (hessian_scale > 0 and n_beta > 0 and gamma > 0):
        raise ValueError(
            f"hessian_scale, n_beta, gamma must be positive: got {hessian_scale, n_beta, gamma}"
        )
    scale = n_beta * hessian_scale
    damped = np.array(K, order="F")
    np.einsum("ii->i", damped)[...] += gamma / scale
    factor = cho_factor(damped, lower=True, overwrite_a=True, check_finite=False)
    return cho_solve(factor, K_q, check_finite=False) / scale


def exact_influence(P: Array, r: Array, rho: Array, *, outputs: int, scale: float) -> Array:
    """BIF on the quadratic, (n, q): −s²[r_iᵀP_iq ρ_q + ½|P_iq|²_F], scale = s (E34)."""
    blocks = _blocks(P, outputs)
    return -(scale**2) * (_first(blocks, r, rho) + 0.5 * np.einsum("iaqb,iaqb->iq", blocks, blocks))


def damped_influence(
    P: Array, r: Array, rho: Array, *, outputs: int, scale: float, n_beta: float
) -> Array:
    """−bᵀ(H + cI)⁻¹g, (n, q): the classical influence with damping c = gamma/n_beta (E34)."""
    return -n_beta * scale**2 * _first(_blocks(P, outputs), r, rho)


def _blocks(P: Array, outputs: int) -> Array:
    """P as (n, C, q, C)."""
    if P.ndim != 2 or P.shape[0] % outputs or P.shape[1] % outputs:
        raise ValueError(f"P {P.shape} must have {outputs} rows and columns per example")
    return P.reshape(P.shape[0] // outputs, outputs, P.shape[1] // outputs, outputs)


def _first(blocks: Array, r: Array, rho: Array) -> Array:
    """r_iᵀP_iq ρ_q, (n, q)."""
    n, outputs, q, _ = blocks.shape
    return np.einsum(
        "iaqb,ia,qb->iq", blocks, r.reshape(n, outputs), rho.reshape(q, outputs), optimize=True
    )


def quadratic_influence(
    gradients: tuple[Array, Array], hessians: tuple[Array, Array], covariance: Array
) -> float:
    """−[gᵀΣb + ½ tr(AΣBΣ)] for one pair, from dense g, b (d,), A, B and Σ (d, d) (E34)."""
    (g, b), (A, B) = gradients, hessians
    AS, BS = A @ covariance, B @ covariance
    return float(-(g @ covariance @ b + 0.5 * np.sum(AS * BS.T)))


def sampled_influence(losses: ArrayLike, query_losses: ArrayLike) -> Array:
    """−Cov(ℓ_i, ℓ_q), (n, q), over draws: losses (draws, n), query_losses (draws, q).

    Raises ValueError on fewer than two draws or unequal numbers of them.
    """
    a, b = (np.asarray(x, dtype=np.float64) for x in (losses, query_losses))
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b) or len(a) < 2:
        raise ValueError(f"need the same number, ≥ 2, of draws: got {a.shape} and {b.shape}")
    return -(a - a.mean(axis=0)).T @ (b - b.mean(axis=0)) / (len(a) - 1)


def rank_correlation(x: ArrayLike, y: ArrayLike) -> Array:
    """Spearman's ρ of the training examples' order, one per query: x, y (n, q) -> (q,).

    Raises ValueError on unequal shapes, n < 2, or a column of one value, which has no order.
    """
    a, b = (np.asarray(v, dtype=np.float64) for v in (x, y))
    if a.shape != b.shape or a.ndim != 2 or len(a) < 2:
        raise ValueError(f"need two (n ≥ 2, q) arrays of one shape: got {a.shape} and {b.shape}")
    if np.any(np.ptp(a, axis=0) == 0) or np.any(np.ptp(b, axis=0) == 0):
        raise ValueError("a query for which all examples have one influence has no ranking")
    ranks = [rankdata(v, axis=0) for v in (a, b)]
    centred = [v - v.mean(axis=0) for v in ranks]
    sizes = np.sqrt(np.sum(centred[0] ** 2, axis=0) * np.sum(centred[1] ** 2, axis=0))
    return np.asarray(np.sum(centred[0] * centred[1], axis=0) / sizes)
