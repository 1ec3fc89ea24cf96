"""Rank with no tolerance: Gaussian elimination over GF(q), exact on float64 BLAS.

A float64 is a dyadic rational m 2^e, so a matrix of floats, or the Jacobian of a polynomial network
at float weights, is an exact rational matrix. Reduced modulo an odd prime q, no minor that was zero
becomes non-zero:

    rank over GF(q) <= rank over Q,   always.

Every rank returned here is such a lower bound; it is too low only if q divides every largest minor.
Met by an upper bound that needs no arithmetic (symmetries, edges of the pair graph) it is a
certificate.

The question answered is the rank of the Jacobian at the *stored* doubles. Rounding is generic: at
a network that has converged to a degenerate point the exact rank can exceed the rank of the ideal
solution, of which the gap in the singular values (`curvature.py`) speaks. `fourier_network_mod` is
the ideal solution itself.

Why BLAS is exact here. A *residue* is a float64 integer r with |r| <= h = (q+3)/2, a hair wider
than the balanced range. A block update computes C - A B with inner dimension at most DEPTH = 512.
Each product is at most h², so any partial sum, in whatever order, with or without fused
multiply-add, and with C included, is an integer of modulus at most

    S = 512 h² + h,   and   S + q <= 2^53   for q <= 8388593 = 2^23 - 15,

the largest prime below 2^23: all are represented without rounding. Residues in [0, q) would reach
2^55; the balanced range is what makes 512 safe.

Why the reduction x - q rint(x (1/q)) is exact. Take |x| <= S and u = 2^-53. Two roundings give the
quotient a relative error below 2u + u^2, an absolute one below (2/q)(1 + u), so k = rint(.) has
|x - qk| < q/2 + 2 + 2u. As x - qk is an integer and q is odd, |x - qk| <= (q+3)/2 = h: a residue
again, with no correction step. And |qk| <= S + h < S + q <= 2^53, so product and difference are
exact too. For q >= 5, h < q: a residue is zero in GF(q) iff its float is zero.

Symbols and shapes
    q  odd prime, SMALLEST_PRIME <= q <= LARGEST_PRIME    h  largest modulus of a residue, (q+3)/2
    n  pairs    p  outputs    K  neurons    u, v (K, p)    W (p, K)
    X  (n, 2p)   inputs
    Z  (n, K)    z_ij = x_i · (u_j, v_j)
    J  (n p, 3 p K)  uncentred Jacobian, rows pair-major, columns u, v, W; J_uv its first 2 p K
    N  (T, n)    left null space of [Z² | 1], T = n - rank[Z² | 1]
    s            number of random row combinations
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

SMALLEST_PRIME = 5
LARGEST_PRIME = 8388593
PRIMES = (8388593, 8388587)
DEPTH = 512  # inner dimension of a block update: 512 h² + h + q <= 2^53
CHUNK = 1 << 14  # entries reduced at a time, so that the four passes stay in cache
SPARE_ROWS = 16  # random combinations beyond the number needed


class RankContradiction(ArithmeticError):
    """A rigorous lower bound exceeds a claimed upper bound: the upper bound is wrong."""


class Network(Protocol):
    """What `network_rank` needs of a quadratic network; `qnet.QuadraticNetwork` has it."""

    @property
    def inputs(self) -> Array:
        """X (n, 2p)."""

    def unpack(self, w: Array) -> tuple[Array, Array, Array]:
        """Weights w (3 p K,) as u, v (K, p) and W (p, K)."""

    def rank_bound(self) -> int:
        """Upper bound on the rank of the centred Jacobian, at all weights."""


@dataclass(frozen=True)
class ExactRank:
    """Two-sided statement about the rank of a centred Jacobian.

    lower: rank over GF(q), a rigorous lower bound on the rational rank at the stored weights.
    upper: bound from symmetries and the pair graph, valid at all weights.
    primes: the moduli used, in order; a later one is tried only while lower < upper.
    """

    lower: int
    upper: int
    primes: tuple[int, ...]

    @property
    def certified(self) -> bool:
        """The bounds meet: rank exact and locally constant; at zero loss λ = rank/2 and m = 1."""
        return self.lower == self.upper


# ---- residues ------------------------------------------------------------------------------------


def check_modulus(q: int) -> None:
    """Refuse (ValueError) any q that is not a prime in [SMALLEST_PRIME, LARGEST_PRIME]."""
    if not SMALLEST_PRIME <= q <= LARGEST_PRIME:
        raise ValueError(
            f"modulus {q} is outside [{SMALLEST_PRIME}, {LARGEST_PRIME}], where float64 sums of "
            f"{DEPTH} products are exact and 1/2 exists; use one of {PRIMES}"
        )
    if not is_prime(q):
        raise ValueError(f"modulus {q} is not a prime, so GF(q) is no field; use one of {PRIMES}")


def is_prime(q: int) -> bool:
    """By trial division: moduli stay below 2²³."""
    return q >= 2 and all(q % divisor for divisor in range(2, isqrt(q) + 1))


def reduce_dyadic(A: ArrayLike, q: int) -> Array:
    """Residues modulo q of an integer or float array of any shape, each entry reduced exactly.

    A float is m 2^e with m an integer of at most 53 bits; m mod q and 2^e mod q are below 2^23, so
    their product is below 2^46 and int64 cannot overflow. ValueError for NaN and infinity, which
    are no rational numbers, and for types wider than 64 bits.
    """
    check_modulus(q)
    A = np.asarray(A)
    if A.dtype.kind == "u":
        residues = (A.astype(np.uint64) % np.uint64(q)).astype(np.int64)
    elif A.dtype.kind in "bi":
        residues = A.astype(np.int64) % q
    elif A.dtype.kind == "f" and A.dtype.itemsize <= 8:
        residues = _float_residues(A.astype(np.float64), q)
    else:
        raise ValueError(
            f"cannot reduce entries of type {A.dtype} exactly: pass integers of at most 64 bits, "
            f"float64 or narrower; reduce wider numbers modulo {q} first"
        )
    return _reduce(residues.astype(np.float64, order="C").reshape(-1), q).reshape(A.shape)


def _float_residues(A: Array, q: int) -> NDArray[np.int64]:
    finite = np.isfinite(A)
    if not finite.all():
        raise ValueError(
            f"{A[~finite][0]} has no residue: {np.count_nonzero(~finite)} of {A.size} entries are "
            "not finite; repair the weights or inputs"
        )
    fraction, exponent = np.frexp(A)
    mantissa = np.ldexp(fraction, 53).astype(np.int64) % q
    # frexp exponents of finite doubles lie in [-1073, 1024]
    powers = np.array([pow(2, e - 53, q) for e in range(-1073, 1025)], dtype=np.int64)
    return mantissa * powers[exponent + 1073] % q


def _reduce(x: Array, q: int) -> Array:
    """Replace, in place, the integers of x (modulus at most 2^53 - q) by residues; return x."""
    step = max(1, CHUNK * len(x) // max(1, x.size))
    for start in range(0, len(x), step):
        part = x[start : start + step]
        multiple = part * (1.0 / q)
        np.rint(multiple, out=multiple)
        multiple *= q
        part -= multiple
    return x


def _subtract_product(C: Array, A: Array, B: Array, q: int) -> Array:
    """C - A B mod q in place for residues C (m, n), A (m, k), B (k, n); return C."""
    h = (q + 3) // 2
    assert DEPTH * h * h + h + q <= 2**53, "the exactness bound of the module docstring"
    product = np.empty((min(DEPTH, len(C)), C.shape[1]))
    for k in range(0, A.shape[1], DEPTH):
        for top in range(0, len(C), DEPTH):
            block, left = C[top : top + DEPTH], A[top : top + DEPTH, k : k + DEPTH]
            block -= np.matmul(left, B[k : k + DEPTH], out=product[: len(block)])
            _reduce(block, q)
    return C


def _product(A: Array, B: Array, q: int) -> Array:
    return _subtract_product(np.zeros((A.shape[0], B.shape[1])), -A, B, q)


# ---- elimination ---------------------------------------------------------------------------------


def _echelon(rows: Array, q: int) -> tuple[Indices, Array]:
    """Reduced echelon basis of the rows (m, n), m >= 1, which are overwritten.

    Returns pivots (r,) and basis (r, n) with basis[:, pivots] = I; r is the rank. Any non-zero
    entry may be a pivot, dependent rows vanish; halving turns all but single rows into products.
    """
    if len(rows) == 1:
        pivot = int(np.argmax(rows[0] != 0))
        if rows[0, pivot] == 0:
            return np.zeros(0, np.intp), rows[:0]
        return np.array([pivot]), _reduce(rows * pow(int(rows[0, pivot]), -1, q), q)
    half = len(rows) // 2
    pivots, basis = _echelon(rows[:half], q)
    rest = rows[half:]
    _subtract_product(rest, rest[:, pivots], basis, q)
    more, lower = _echelon(rest, q)
    _subtract_product(basis, basis[:, more], lower, q)
    return np.concatenate([pivots, more]), np.concatenate([basis, lower])


def _complement(pivots: Indices, width: int) -> Indices:
    return np.setdiff1d(np.arange(width), pivots, assume_unique=True)


def _rank_of_residues(A: Array, q: int) -> int:
    """Rank of residues A (m, n), which are overwritten, DEPTH rows at a time.

    The rows below lose their pivot columns: free columns from the right move into their places and
    the matrix narrows, so no copy of it is made.
    """
    rank = 0
    while A.size:
        pivots, basis = _echelon(A[:DEPTH], q)
        width, rest = A.shape[1] - len(pivots), A[DEPTH:]
        free = _complement(pivots, A.shape[1])
        gaps, movers = pivots[pivots < width], free[free >= width]
        multipliers = rest[:, pivots]
        rest[:, gaps], basis[:, gaps] = rest[:, movers], basis[:, movers]
        A = _subtract_product(rest[:, :width], multipliers, basis[:, :width], q)
        rank += len(pivots)
    return rank


def rank_mod(A: ArrayLike, q: int) -> int:
    """Rank over GF(q) of an integer or float matrix (m, n): a lower bound on its rational rank.

    ValueError for a q that is no allowed prime, entries `reduce_dyadic` refuses, or other shapes.
    """
    residues = reduce_dyadic(A, q)
    if residues.ndim != 2:
        raise ValueError(f"rank needs a matrix (m, n), got shape {residues.shape}")
    return _rank_of_residues(residues, q)


def exact_rank(A: ArrayLike, primes: Sequence[int] = PRIMES) -> int:
    """Largest rank of A (m, n) over the fields GF(q): the best lower bound on its rational rank."""
    _check_primes(primes)
    return max(rank_mod(A, q) for q in primes)


def _check_primes(primes: Sequence[int]) -> None:
    if len(primes) == 0:
        raise ValueError(f"no primes given: a rank needs at least one, for example {PRIMES[0]}")
    for q in primes:
        check_modulus(q)


# ---- the quadratic network -----------------------------------------------------------------------


def network_rank(
    net: Network, w: Array, *, primes: Sequence[int] = PRIMES, seed: int = 0
) -> ExactRank:
    """Rank of the centred Jacobian (n p, 3 p K) of a quadratic network at stored weights (3 p K,).

    The lower bound is rigorous for every seed. ValueError as `rank_mod`; RankContradiction if a
    rank above net.rank_bound() is found.
    """
    _check_primes(primes)
    upper, lower, used = net.rank_bound(), 0, 0
    while lower < upper and used < len(primes):
        q = primes[used]
        lower = max(lower, rank_from_residues(*_network_residues(net, w, q), q, seed=seed))
        used += 1
    if lower > upper:
        raise RankContradiction(
            f"rank {lower} exceeds the claimed upper bound {upper}; it is rigorous, so correct "
            "rank_bound()"
        )
    return ExactRank(lower, upper, tuple(primes[:used]))


def _network_residues(net: Network, w: Array, q: int) -> tuple[Array, Array, Array, Array]:
    if np.ndim(w) != 1:
        raise ValueError(f"rank needs one weight vector (3 p K,), got shape {np.shape(w)}")
    u, v, W = net.unpack(w)
    X = net.inputs
    return reduce_dyadic(X, q), reduce_dyadic(u, q), reduce_dyadic(v, q), reduce_dyadic(W, q)


def rank_from_residues(X: Array, u: Array, v: Array, W: Array, q: int, *, seed: int = 0) -> int:
    """Centred Jacobian rank over GF(q) from residues X (n, 2p), u, v (K, p), W (p, K), without J.

    Centring appends 1 ⊗ I_p (see `centred_rank`), so readout and offset columns together are
    [Z² | 1] ⊗ I_p and, over any field,

        rank J = p (rank[Z² | 1] - 1) + rank[(I_p ⊗ N) J_uv].

    The second matrix has p T rows (t, k) with entries 2 W_kj (N_t · (x_c z_j)) in column (j, c).
    Its rows are combined s times, with random weights over t times random weights over k. Such
    products span all weights: as many rows as the rank miss it with probability at most about
    2 s / q, and every spare row lowers that. A miss only lowers the bound.
    """
    first = np.hstack([u, v])
    Z = _product(X, first.T, q)
    squares = np.vstack([_reduce(Z * Z, q).T, np.ones(len(Z))])  # (K + 1, n)
    pivots, basis = _echelon(squares, q)
    free = _complement(pivots, len(Z))
    kept = _kept_columns(X, first, q)
    s = min(int(kept.sum()), len(W) * len(free)) + SPARE_ROWS
    rng = np.random.default_rng(np.random.SeedSequence([seed, q]))
    null = np.empty((len(Z), s))  # columns: random combinations of the rows of N
    null[free] = _random_residues(rng, (len(free), s), q)
    null[pivots] = _product(-basis[:, free], null[free], q)
    readout = _product(W.T, _random_residues(rng, (len(W), s), q), q)  # (K, s)
    compressed = _compressed_columns(X, Z, null, readout, kept, q)
    return len(W) * (len(pivots) - 1) + _rank_of_residues(compressed, q)


def _random_residues(rng: np.random.Generator, shape: tuple[int, int], q: int) -> Array:
    return _reduce(rng.integers(q, size=shape).astype(np.float64), q)


def _compressed_columns(
    X: Array, Z: Array, null: Array, readout: Array, kept: NDArray[np.bool_], q: int
) -> Array:
    """Kept columns of the compressed (I_p ⊗ N) J_uv, without its factor 2, as rows (kept, s)."""
    columns, top = np.empty((int(kept.sum()), null.shape[1])), 0
    for c in range(X.shape[1]):
        seen = np.flatnonzero(X[:, c])  # for one-hot inputs, the few pairs that hold this value
        weighted = _reduce(null[seen] * X[seen, c, None], q)
        block = _product(Z[np.ix_(seen, kept[:, c])].T, weighted, q)
        block *= readout[kept[:, c]]
        columns[top : top + len(block)] = _reduce(block, q)
        top += len(block)
    return columns


def _kept_columns(X: Array, first: Array, q: int) -> NDArray[np.bool_]:
    """Mask (K, 2p) of columns of (I_p ⊗ N) J_uv that span them all: two per neuron may go.

    Scaling: Σ_c w_jc column_jc = 2 W_kj z_ij², which N annihilates. Shift: if X (1, -1) = 0, as
    for one-hot pairs, Σ_c (1, -1)_c column_jc = 0, and the last column is dropped. The
    combination w_j + v_jp (1, -1) of the two relations does not involve it; a column with non-zero
    coefficient there is dropped too. If there is none, z_j = 0 and so are the neuron's columns.
    These are relations over GF(q): no rank is lost.
    """
    kept = np.ones(first.shape, dtype=np.bool_)
    shift = np.repeat([1.0, -1.0], first.shape[1] // 2)
    scaling = first
    if not _product(X, shift[:, None], q).any():
        kept[:, -1] = False
        scaling = _reduce(first + first[:, -1:] * shift, q)
    kept[np.arange(len(first)), np.argmax(scaling != 0, axis=1)] = False
    return kept


# ---- the slow oracle -----------------------------------------------------------------------------


def jacobian_from_residues(X: Array, u: Array, v: Array, W: Array, q: int) -> Array:
    """J mod q (n p, 3 p K), uncentred and literal, from the residues `rank_from_residues` takes."""
    n, p, K = len(X), *W.shape
    Z = _product(X, np.hstack([u, v]).T, q)
    gain = _reduce(2 * Z[:, None, :] * W, q)  # (n, p, K)
    first = _reduce(gain[..., None] * X[:, None, None, :], q)  # (n, p, K, 2p)
    readout = np.eye(p)[:, :, None] * _reduce(Z * Z, q)[:, None, None, :]  # (n, p, p, K)
    parts = (first[..., :p], first[..., p:], readout)
    return np.concatenate([part.reshape(n * p, K * p) for part in parts], axis=1)


def jacobian_mod(net: Network, w: Array, q: int) -> Array:
    """`jacobian_from_residues` of a network at weights w (3 p K,): takes 8 n p 3 p K bytes."""
    return jacobian_from_residues(*_network_residues(net, w, q), q)


def centred_rank(J: ArrayLike, p: int, q: int) -> int:
    """Rank over GF(q) of J (n p, d), pair-major, with each of the p outputs centred over n pairs.

    Subtracting means divides by n, which q may divide. Instead: the rank of J modulo the span of
    1 ⊗ I_p, which is rank[1 ⊗ I_p | J] - p. Over Q the two are equal.
    """
    J = np.asarray(J)
    offsets = np.tile(np.eye(p), (len(J) // p, 1))
    return rank_mod(np.hstack([offsets, J]), q) - p


# ---- exact Fourier networks ----------------------------------------------------------------------


def fourier_network(p: int, per_frequency: int) -> tuple[Array, Array, Array]:
    """Zero-loss weights u, v (K, p), W (p, K) for one-hot (a+b) mod p, K = per_frequency (p-1)/2.

    Per frequency ω = 2πm/p, m = 1 ... (p-1)/2, neurons u = cos(ωa + φ), v = cos(ωb + ψ),
    W = cos(ωk + χ). Squares are waves in 2ωa, 2ωb, ω(a-b), ω(a+b) and a constant; read out and
    summed over the neurons, only cos(ω(a+b-k)) and a constant per output survive:

    4: quadrature pairs (cos ωa + cos(ωb+t))² + (sin ωa - sin(ωb+t))² = 2 + 2 cos(ω(a+b) + t),
       t = 0 and a quarter turn, read out by cos(ωk + t): f_k = 2 Σ_m cos(ω(a+b-k)) + const.
    6: φ = ψ = χ/2 = 30 j degrees, j = 0 ... 5, v and W negated for odd j: 3 instead of 2.

    As Σ_m cos(2πm x/p) = (p [x = 0] - 1)/2, W times 2/(2p) or 2/(3p) makes f one-hot up to a
    constant. Full-grid ranks:

    4: (p-1)(6p-7), whatever the amplitudes, the phases of each quadrature pair and the two t.
    6: (p-1)(15p-24)/2. Six is not one family: turning the odd j by 30 degrees onto the even gives
       (p-1)(13p-18)/2, and three quadrature pairs have (p-1)(16p-27)/2.
    """
    cosines = np.cos(2 * np.pi * np.arange(12 * p) / (12 * p))
    u, v, W = _waves(cosines, p, per_frequency)
    return u, v, W * (4 / (p * per_frequency))


def fourier_network_mod(p: int, per_frequency: int, q: int) -> tuple[Array, Array, Array]:
    """`fourier_network` with exact waves: residues u, v (K, p), W (p, K) for a prime q = 1 mod 12p.

    cos(2πi/12p) becomes (g^i + g^-i)/2, g a primitive 12p-th root of unity in GF(q): reduction
    of the cyclotomic field modulo a prime above q, so ranks remain lower bounds. ValueError for
    other q; `fourier_prime` finds one.
    """
    check_modulus(q)
    if q % (12 * p) != 1:
        raise ValueError(
            f"GF({q}) has no {12 * p}-th roots of unity; take q = 1 mod {12 * p}, "
            f"for example {fourier_prime(p)}"
        )
    root, half = _primitive_root_of_unity(12 * p, q), pow(2, -1, q)
    cosines = [(pow(root, i, q) + pow(root, -i, q)) * half % q for i in range(12 * p)]
    u, v, W = _waves(reduce_dyadic(cosines, q), p, per_frequency)
    return u, v, _reduce(W * (4 * pow(p * per_frequency, -1, q) % q), q)


def fourier_prime(p: int) -> int:
    """Largest allowed prime q = 1 mod 12p; ValueError if there is none."""
    top = LARGEST_PRIME - (LARGEST_PRIME - 1) % (12 * p)
    for q in range(top, SMALLEST_PRIME, -12 * p):
        if is_prime(q):
            return q
    raise ValueError(f"no prime q = 1 mod {12 * p} up to {LARGEST_PRIME}; p = {p} is too large")


def _primitive_root_of_unity(order: int, q: int) -> int:
    for x in range(2, q):
        root = pow(x, (q - 1) // order, q)
        if all(pow(root, d, q) != 1 for d in range(1, order) if order % d == 0):
            return root
    raise ArithmeticError(f"no element of order {order} modulo {q}: {order} must divide {q - 1}")


def _waves(cosines: Array, p: int, per_frequency: int) -> tuple[Array, Array, Array]:
    """Unscaled u, v (K, p), W (p, K) looked up in a table of cos(2πi/12p), i = 0 ... 12p-1."""
    if p < 3 or not is_prime(p):
        raise ValueError(f"p = {p} must be an odd prime")
    if per_frequency == 4:  # φ, ψ, χ of each neuron in twelfths of a turn
        phases = [(0, 0, 0), (3, -3, 0), (0, 3, 3), (3, 0, 3)]
    elif per_frequency == 6:
        phases = [(j, j + 6 * (j % 2), 2 * j + 6 * (j % 2)) for j in range(6)]
    else:
        raise ValueError(f"per_frequency = {per_frequency}: there are constructions for 4 and 6")
    frequencies = np.repeat(np.arange(1, (p + 1) // 2), per_frequency)[:, None]
    shifts = np.tile(phases, ((p - 1) // 2, 1))[:, :, None]  # (K, 3, 1)
    angles = 12 * frequencies * np.arange(p)
    u, v, W = (cosines[(angles + p * shifts[:, i]) % (12 * p)] for i in range(3))
    return u, v, W.T.copy()
