"""Small models whose learning coefficient is known in closed form, with the verbs of every model.

Each carries `w_star` (a zero of the loss), `llc` and `multiplicity` there, and their `source`.

Symbols and shapes
    d, n     weights; data points (1 where there are no data)     B   a leading batch axis
    w        (d,) or (B, d)                                       m   rows of J
    X        (n, d) design matrix                                 h   (d,) curvatures
    k, p     (d,) exponents of a monomial, of a sum of powers
    λ, m     `llc` and `multiplicity`: the volume of {L < ε} shrinks as ε^λ·(ln 1/ε)^(m−1)
    D        d minus the exact symmetry directions at w*: see theory.bracket

Always: loss = ½·hessian_scale·|residuals|², its gradient is hessian_scale·Jᵀ·residuals, and the
Gauss-Newton matrix is hessian_scale·JᵀJ.

What clarity costs: J is dense, and a monomial's second derivatives are d² products of d factors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class LinearRegression:
    """L = |X(w − w*)|²/2n: exactly quadratic, λ = ½ rank(X), m = 1.

    Given X (n, d) and w* (d,). The directions that X does not see leave the loss unchanged, so
    D = rank(X) and the bracket has no width. Raises ValueError on other shapes.
    """

    source = "½ rank(X): the loss is a quadratic form"
    multiplicity = 1

    def __init__(self, X: ArrayLike, w_star: ArrayLike) -> None:
        self.X: Array = np.asarray(X, dtype=np.float64)
        self.w_star: Array = np.asarray(w_star, dtype=np.float64)
        if self.X.ndim != 2 or self.w_star.shape != self.X.shape[1:]:
            raise ValueError(
                f"need X (n, d) and w* (d,): got {self.X.shape} and {self.w_star.shape}"
            )
        self.n, self.n_params = self.X.shape
        self.hessian_scale = 1.0 / self.n
        self._rank = int(np.linalg.matrix_rank(self.X))
        self.llc = 0.5 * self._rank

    def symmetry_free_dimension(self) -> int:
        """D = rank(X)."""
        return self._rank

    def residuals(self, w: ArrayLike) -> Array:
        """X(w − w*), (n,) or (B, n)."""
        # One product per batch row: the bits of a row do not depend on the rows beside it.
        return (self.X @ (_checked(w, self.n_params) - self.w_star)[..., None])[..., 0]

    def loss(self, w: ArrayLike) -> float | Array:
        """L: a float, or (B,)."""
        return self.loss_and_grad(w)[0]

    def loss_and_grad(self, w: ArrayLike) -> tuple[float | Array, Array]:
        """L and its gradient, (d,) or (B, d) like w."""
        r = self.residuals(w)
        gradient = self.hessian_scale * (self.X.T @ r[..., None])[..., 0]
        return 0.5 * self.hessian_scale * np.vecdot(r, r), gradient

    def jacobian(self, w: ArrayLike) -> Array:
        """J = X for every w, (n, d)."""
        return self.X

    def jvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """J x, (n,)."""
        return self.X @ np.asarray(x)

    def vjp(self, w: ArrayLike, y: ArrayLike) -> Array:
        """Jᵀ y, (d,)."""
        return self.X.T @ np.asarray(y)

    def hvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """H x; there is no residual term."""
        return self.hessian_scale * self.vjp(w, self.jvp(w, x))


def planted_spectrum(h: ArrayLike, n: int, seed: int) -> LinearRegression:
    """A linear regression on n points whose Hessian has the eigenvalues h (d,), d ≤ n.

    Random directions and a random w*. Zeros in h are allowed: there λ is half the number of the
    others. Raises ValueError on a negative h or n < d.
    """
    spectrum = np.asarray(h, dtype=np.float64)
    d = len(spectrum)
    if not (spectrum >= 0).all() or n < d:
        raise ValueError(f"need curvatures ≥ 0 and n ≥ d: got {spectrum.min()} and {n} < {d}")
    rng = np.random.default_rng(np.random.SeedSequence([0x7A6F6F, d, n, seed]))  # "zoo"
    points = np.linalg.qr(rng.standard_normal((n, d)))[0]
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = (points * np.sqrt(n * spectrum)) @ directions.T
    return LinearRegression(X, rng.standard_normal(d))


class Monomial:
    """L = ∏ w_i^{2k_i}, a normal crossing, at w* = 0: λ = min (h_i+1)/(2k_i), m how many attain it.

    Given whole exponents k_i ≥ 1 and those of a prior ∏|w_i|^{h_i} (default 0), which λ takes into
    account and the sampler, whose prior is flat, does not. One residual, r = ∏ w_i^{k_i}. No
    symmetry moves w* = 0, so D = d. Raises ValueError.
    """

    source = "min (h_i+1)/(2k_i): Watanabe 2009, Algebraic Geometry and Statistical Learning Theory"
    n, hessian_scale = 1, 2.0

    def __init__(self, k: ArrayLike, prior: ArrayLike = 0.0) -> None:
        self.k = np.atleast_1d(np.asarray(k))
        if self.k.ndim != 1 or self.k.dtype.kind not in "iu" or not (self.k >= 1).all():
            raise ValueError(f"exponents must be whole numbers ≥ 1, got {self.k.tolist()}")
        self.n_params = len(self.k)
        self.w_star: Array = np.zeros(self.n_params)
        exponents = np.broadcast_to(np.asarray(prior, dtype=np.float64), self.k.shape)
        if not (exponents > -1).all():
            raise ValueError(f"the prior must be integrable: exponents > −1, got {exponents}")
        ratios = (exponents + 1.0) / (2.0 * self.k)
        self.llc = float(ratios.min())
        self.multiplicity = int(np.isclose(ratios, self.llc, rtol=1e-12, atol=0.0).sum())

    def symmetry_free_dimension(self) -> int:
        """D = d: the scalings that leave L unchanged do not move w* = 0."""
        return self.n_params

    def _factors(self, w: ArrayLike) -> tuple[Array, Array]:
        """w_i^{k_i} and its derivative, each (…, d)."""
        weights = _checked(w, self.n_params)
        below = weights ** (self.k - 1)
        return below * weights, self.k * below

    def residuals(self, w: ArrayLike) -> Array:
        """∏ w_i^{k_i}, (1,) or (B, 1)."""
        return self._factors(w)[0].prod(axis=-1, keepdims=True)

    def _slopes(self, w: ArrayLike) -> Array:
        """∂r/∂w_i, (d,) or (B, d)."""
        plain, first = self._factors(w)
        own = np.eye(self.n_params, dtype=bool)
        return np.where(own, first[..., None, :], plain[..., None, :]).prod(axis=-1)

    def loss(self, w: ArrayLike) -> float | Array:
        """L: a float, or (B,)."""
        return self.residuals(w)[..., 0] ** 2

    def loss_and_grad(self, w: ArrayLike) -> tuple[float | Array, Array]:
        """L and its gradient, (d,) or (B, d) like w."""
        r = self.residuals(w)
        return r[..., 0] ** 2, 2.0 * r * self._slopes(w)

    def jacobian(self, w: ArrayLike) -> Array:
        """J, (1, d)."""
        return self._slopes(w)[None]

    def jvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """J x, (1,)."""
        return self.jacobian(w) @ np.asarray(x)

    def vjp(self, w: ArrayLike, y: ArrayLike) -> Array:
        """Jᵀ y, (d,)."""
        return self.jacobian(w).T @ np.asarray(y)

    def hvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """H x, H = 2(JᵀJ + r∇²r)."""
        (plain, first), k = self._factors(w), self.k
        second = k * (k - 1) * np.asarray(w) ** np.maximum(k - 2, 0)
        bent = np.empty((self.n_params, self.n_params))  # ∇²r
        for i, j in np.ndindex(bent.shape):
            factors = plain.copy()
            factors[[i, j]] = second[i] if i == j else first[[i, j]]
            bent[i, j] = factors.prod()
        gauss_newton = self.vjp(w, self.jvp(w, x))
        return 2.0 * (gauss_newton + self.residuals(w)[0] * (bent @ np.asarray(x)))


class PowerSum:
    """L = ½ Σ |w_i|^{p_i} at w* = 0: λ = Σ 1/p_i, m = 1.

    Given p_i ≥ 2, below which there is no J at 0. The residuals are sign(w_i)·|w_i|^{p_i/2}. No
    symmetries: D = d. The bracket holds for the smooth ones, with even p_i: at 2 < p_i < 4 a
    Hessian-flat direction adds more than ¼. Raises ValueError.
    """

    source = "Σ 1/p_i: the volume of {L < ε} is a product of Gamma functions times ε^λ"
    n, hessian_scale, multiplicity = 1, 1.0, 1

    def __init__(self, p: ArrayLike) -> None:
        self.p: Array = np.atleast_1d(np.asarray(p, dtype=np.float64))
        if self.p.ndim != 1 or not ((self.p >= 2) & np.isfinite(self.p)).all():
            raise ValueError(f"powers must be finite and ≥ 2, got {self.p.tolist()}")
        self.n_params = len(self.p)
        self.w_star: Array = np.zeros(self.n_params)
        self.llc = float((1.0 / self.p).sum())

    def symmetry_free_dimension(self) -> int:
        """D = d."""
        return self.n_params

    def residuals(self, w: ArrayLike) -> Array:
        """sign(w)·|w|^{p/2}, (d,) or (B, d)."""
        weights = _checked(w, self.n_params)
        return np.copysign(np.abs(weights) ** (0.5 * self.p), weights)

    def _slopes(self, w: ArrayLike) -> Array:
        """dr_i/dw_i, (d,) or (B, d)."""
        half = 0.5 * self.p
        return half * np.abs(_checked(w, self.n_params)) ** (half - 1.0)

    def loss(self, w: ArrayLike) -> float | Array:
        """L: a float, or (B,)."""
        r = self.residuals(w)
        return 0.5 * np.vecdot(r, r)

    def loss_and_grad(self, w: ArrayLike) -> tuple[float | Array, Array]:
        """L and its gradient, (d,) or (B, d) like w."""
        r = self.residuals(w)
        return 0.5 * np.vecdot(r, r), self._slopes(w) * r

    def jacobian(self, w: ArrayLike) -> Array:
        """J (d, d), diagonal."""
        return np.diag(self._slopes(w))

    def jvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """J x, (d,)."""
        return self._slopes(w) * np.asarray(x)

    def vjp(self, w: ArrayLike, y: ArrayLike) -> Array:
        """Jᵀ y, (d,)."""
        return self._slopes(w) * np.asarray(y)

    def hvp(self, w: ArrayLike, x: ArrayLike) -> Array:
        """H x, H = diag(½p(p − 1)|w|^{p−2})."""
        bent = np.abs(_checked(w, self.n_params)) ** (self.p - 2.0)
        return 0.5 * self.p * (self.p - 1.0) * bent * np.asarray(x)


def _checked(w: ArrayLike, d: int) -> Array:
    weights = np.asarray(w, dtype=np.float64)
    if weights.ndim not in (1, 2) or weights.shape[-1] != d:
        raise ValueError(f"weights must be ({d},) or (B, {d}): got {weights.shape}")
    return weights
