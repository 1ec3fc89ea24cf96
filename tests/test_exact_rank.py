"""Rank over GF(q): exact arithmetic, elimination, the quadratic network, exact Fourier networks.

All comparisons are between integers and have no tolerance, except where a float64 construction is
compared with its exact twin; those tolerances are derived where they stand.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import exact_rank as er
from exact_rank import (
    DEPTH,
    LARGEST_PRIME,
    PRIMES,
    SMALLEST_PRIME,
    ExactRank,
    RankContradiction,
    centred_rank,
    exact_rank,
    fourier_network,
    fourier_network_mod,
    fourier_prime,
    jacobian_from_residues,
    jacobian_mod,
    network_rank,
    rank_from_residues,
    rank_mod,
    reduce_dyadic,
)
from qnet import QuadraticNetwork

Weights = tuple[np.ndarray, np.ndarray, np.ndarray]
FIELDS = [SMALLEST_PRIME, 7, 101, LARGEST_PRIME]
EXAMPLES = settings(max_examples=60, deadline=None)


def integers(A: np.ndarray) -> np.ndarray:
    """Python integers, which never overflow or round."""
    return A.astype(np.int64).astype(object)


def fraction_rank(rows: np.ndarray) -> int:
    """The slow oracle: Gaussian elimination in exact rationals."""
    matrix, rank = [[Fraction(x) for x in row] for row in rows.tolist()], 0
    for column in range(rows.shape[1]):
        pivot = next((i for i in range(rank, len(matrix)) if matrix[i][column]), None)
        if pivot is None:
            continue
        matrix[rank], matrix[pivot] = matrix[pivot], matrix[rank]
        for i in range(rank + 1, len(matrix)):
            factor = matrix[i][column] / matrix[rank][column]
            matrix[i] = [x - factor * y for x, y in zip(matrix[i], matrix[rank], strict=True)]
        rank += 1
    return rank


def of_known_rank(rng: np.random.Generator, m: int, n: int, rank: int) -> np.ndarray:
    """Shuffled [I; X] [I, Y]: contains I_r, so its rank is r over every field."""
    left = np.vstack([np.eye(rank, dtype=int), rng.integers(-9, 10, (m - rank, rank))])
    right = np.hstack([np.eye(rank, dtype=int), rng.integers(-9, 10, (rank, n - rank))])
    return (left @ right)[rng.permutation(m)][:, rng.permutation(n)]


def random_pairs(rng: np.random.Generator, p: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.divmod(rng.choice(p * p, n, replace=False), p)


def numerical_rank(J: np.ndarray) -> tuple[int, float]:
    """Position and ratio of the largest gap among singular values above rounding."""
    s = np.linalg.svd(J, compute_uv=False)
    ratios = s[:-1] / np.maximum(s[1:], 1e-16 * s[0])
    ratios[s[:-1] < 1e-10 * s[0]] = 0
    return int(np.argmax(ratios)) + 1, float(ratios.max())


# ---- the modulus -----------------------------------------------------------------------


def test_largest_and_smallest_modulus_are_allowed_and_their_neighbours_are_not() -> None:
    for q in (SMALLEST_PRIME, LARGEST_PRIME, *PRIMES):
        er.check_modulus(q)
    for q in (-5, 0, 1, 2, 3, 2**23 + 9, 2**31 - 1):  # 2^23 + 9 is the next prime
        with pytest.raises(ValueError, match="outside"):
            rank_mod(np.eye(2), q)
    for q in (9, 8388591, 2897 * 2887):
        with pytest.raises(ValueError, match="not a prime"):
            rank_mod(np.eye(2), q)


def test_default_primes_are_the_two_largest_allowed() -> None:
    sieve = np.ones(2**23, dtype=bool)
    sieve[:2] = False
    for d in range(2, 2897):
        sieve[d * d :: d] = False
    assert tuple(np.flatnonzero(sieve)[:-3:-1]) == PRIMES


def test_bound_holds_at_the_largest_prime_and_fails_at_the_next() -> None:
    def largest_sum(q: int) -> int:
        h = (q + 3) // 2
        return DEPTH * h * h + h + q

    assert largest_sum(LARGEST_PRIME) <= 2**53 < largest_sum(2**23 + 9)


# ---- residues --------------------------------------------------------------------------


def is_residue_of(residue: float, value: Fraction, q: int) -> bool:
    r = int(residue)
    small = r == residue and abs(r) <= (q + 3) // 2
    return small and (r * value.denominator - value.numerator) % q == 0


@EXAMPLES
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.sampled_from(FIELDS)
)
def test_dyadic_reduction_matches_fractions(values: list[float], q: int) -> None:
    residues = reduce_dyadic(values, q)
    assert all(is_residue_of(r, Fraction(x), q) for r, x in zip(residues, values, strict=True))


def test_dyadic_reduction_at_the_ends_of_the_formats() -> None:
    tiny, huge = 5e-324, np.finfo(np.float64).max
    for q in FIELDS:
        for x in (0.0, -0.0, tiny, -tiny, 2.0**-1022, huge, -huge, 2.0**53 + 2, 1 - 2.0**-53):
            assert is_residue_of(reduce_dyadic(x, q).item(), Fraction(x), q)
        for dtype in (np.int8, np.int64, np.uint8, np.uint64):
            limits = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype=dtype)
            for r, x in zip(reduce_dyadic(limits, q), limits.tolist(), strict=True):
                assert is_residue_of(r, Fraction(x), q)  # 2^64 - 1 is no float64: not via floats
        halves = np.array([0.1, 65504], dtype=np.float16)
        assert is_residue_of(reduce_dyadic(halves, q)[0], Fraction(float(halves[0])), q)
        assert np.abs(reduce_dyadic([True, False], q)).tolist() == [1, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_entries_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="1 of 2 entries are not finite"):
        rank_mod(np.array([[1.0, bad]]), PRIMES[0])


@pytest.mark.parametrize("dtype", [object, complex, np.longdouble, str])
def test_types_that_cannot_be_reduced_exactly_are_refused(dtype: type) -> None:
    with pytest.raises(ValueError, match="cannot reduce entries of type"):
        rank_mod(np.ones((2, 2)).astype(dtype), PRIMES[0])


@EXAMPLES
@given(st.sampled_from(FIELDS), st.data())
def test_fast_reduction_is_exact_on_its_whole_range(q: int, data: st.DataObject) -> None:
    h = (q + 3) // 2
    largest = DEPTH * h * h + h
    multiples = st.integers(-(largest // q) + 1, largest // q - 1)
    near = st.builds(
        lambda k, d: k * q + d, multiples, st.sampled_from([-1, 0, 1, q // 2, -q // 2])
    )
    values = data.draw(st.lists(st.one_of(st.integers(-largest, largest), near), min_size=1))
    residues = er._reduce(np.array([*values, largest, -largest], dtype=np.float64), q)
    expected = [*values, largest, -largest]
    assert all(is_residue_of(r, Fraction(x), q) for r, x in zip(residues, expected, strict=True))


@pytest.mark.parametrize("q", FIELDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_worst_case_residues_at_full_depth_match_python_integers(q: int, sign: int) -> None:
    h = (q + 3) // 2
    A, B = np.full((3, DEPTH), float(h)), np.full((DEPTH, 4), float(sign * h))
    C = np.full((3, 4), float(-sign * h))
    exact = -sign * h - sign * DEPTH * h * h
    assert float((C - A @ B)[0, 0]) == exact  # every partial sum below 2^53
    assert all(is_residue_of(r, Fraction(exact), q) for r in er._subtract_product(C, A, B, q).flat)


@pytest.mark.parametrize("depth", [1, DEPTH, DEPTH + 1, 3 * DEPTH + 7])
@pytest.mark.parametrize("q", [SMALLEST_PRIME, LARGEST_PRIME])
def test_products_of_any_depth_match_python_integers(depth: int, q: int) -> None:
    rng = np.random.default_rng(depth)
    A, B = rng.integers(0, q, (5, depth)), rng.integers(0, q, (depth, 6))
    A[0], B[:, 0] = q - 1, q - 1
    exact = integers(A) @ integers(B)
    product = er._product(reduce_dyadic(A, q), reduce_dyadic(B, q), q)
    assert ((integers(product) - exact) % q == 0).all()


def test_unbalanced_residues_would_round() -> None:
    """Why the range is balanced: with residues in [0, q) the same product is wrong."""
    q, rng = LARGEST_PRIME, np.random.default_rng(0)
    A, B = rng.integers(q - 999, q, (20, DEPTH)), rng.integers(q - 999, q, (DEPTH, 20))
    rounded = integers(A.astype(float) @ B.astype(float))
    assert ((rounded - integers(A) @ integers(B)) % q != 0).any()


# ---- rank of a matrix ------------------------------------------------------------------


@EXAMPLES
@given(
    arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(-9, 9))
)
def test_rank_of_small_integer_matrices_is_the_rational_rank(A: np.ndarray) -> None:
    # Hadamard: minors are at most 9^5 5^(5/2) = 3.3e6 < q, so q divides only those that are zero
    rank = fraction_rank(A)
    assert rank_mod(A, PRIMES[0]) == rank_mod(A, PRIMES[1]) == exact_rank(A) == rank


@EXAMPLES
@given(
    arrays(np.int64, (5, 4), elements=st.integers(-9, 9)),
    arrays(np.int64, 5, elements=st.integers(-400, 400)),
    arrays(np.int64, 4, elements=st.integers(-400, 400)),
)
def test_scaling_rows_and_columns_by_powers_of_two_keeps_the_rank(
    A: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> None:
    scaled = np.ldexp(A.astype(float), rows[:, None] + columns)
    assert exact_rank(scaled) == fraction_rank(scaled) == fraction_rank(A)


@EXAMPLES
@given(
    arrays(np.float64, (4, 4), elements=st.floats(-8, 8, allow_subnormal=False)),
    st.sampled_from(FIELDS),
)
def test_rank_over_a_field_is_never_above_the_rational_rank(A: np.ndarray, q: int) -> None:
    A[3] = A[0] * 0.5 + A[1]  # rounded: the rank of the stored doubles may still be 4
    assert rank_mod(A, q) <= fraction_rank(A)


def test_a_prime_that_divides_the_determinant_sees_less_and_the_other_makes_up_for_it() -> None:
    A = np.diag([1, PRIMES[0]])
    assert [rank_mod(A, q) for q in PRIMES] == [1, 2]
    assert exact_rank(A) == 2


@EXAMPLES
@given(
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(FIELDS),
    st.data(),
)
def test_known_rank_is_found_over_every_field(
    seed: int, m: int, n: int, q: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, min(m, n)))
    assert rank_mod(of_known_rank(np.random.default_rng(seed), m, n, rank), q) == rank


@pytest.mark.parametrize("q", [SMALLEST_PRIME, LARGEST_PRIME])
@pytest.mark.parametrize(("m", "n", "rank"), [(1100, 600, 530), (600, 700, 600), (520, 520, 512)])
def test_known_rank_is_found_across_panels(m: int, n: int, rank: int, q: int) -> None:
    known = of_known_rank(np.random.default_rng(rank), m, n, rank)
    A = np.hstack([np.zeros((m, 3), dtype=int), known])  # no pivot in the leading columns
    before = A.copy()
    assert rank_mod(A, q) == rank_mod(A.T, q) == rank
    assert np.array_equal(A, before), "the argument must not be overwritten"


@pytest.mark.parametrize("q", FIELDS)
def test_degenerate_shapes(q: int) -> None:
    assert rank_mod(np.zeros((7, 600)), q) == 0
    assert rank_mod(np.zeros((600, 7)), q) == 0
    for shape in [(0, 0), (0, 5), (5, 0)]:
        assert rank_mod(np.zeros(shape), q) == 0
    row = np.zeros((1, 9))
    assert rank_mod(row, q) == 0
    row[0, 7] = 0.5
    assert rank_mod(row, q) == rank_mod(row.T, q) == 1
    assert rank_mod(np.full((3, 3), q - 1), q) == 1
    assert rank_mod(np.full((3, 3), q), q) == 0
    with pytest.raises(ValueError, match="needs a matrix"):
        rank_mod(np.zeros(3), q)


def test_no_primes_are_refused() -> None:
    with pytest.raises(ValueError, match="no primes"):
        exact_rank(np.eye(2), primes=())
    with pytest.raises(ValueError, match="not a prime"):
        exact_rank(np.eye(2), primes=(PRIMES[0], 9))


@pytest.mark.parametrize("q", FIELDS)
def test_rank_agrees_with_flint(q: int) -> None:
    flint = pytest.importorskip("flint")
    rng = np.random.default_rng(q)
    for m, n, rank in [(150, 120, 90), (80, 200, 80), (130, 130, 129)]:
        A = of_known_rank(rng, m, n, rank)
        A[rng.integers(m, size=30), rng.integers(n, size=30)] += rng.integers(-3, 4, 30)
        assert rank_mod(A, q) == flint.nmod_mat(m, n, [int(x) % q for x in A.flat], q).rank()
        assert exact_rank(A) == flint.fmpz_mat(A.tolist()).rank()


# ---- the quadratic network -------------------------------------------------------------


def one_hot_network(rng: np.random.Generator, p: int, K: int, n: int) -> QuadraticNetwork:
    return QuadraticNetwork.modular(p, K, *random_pairs(rng, p, n))


def gaussian_network(rng: np.random.Generator, p: int, K: int, n: int) -> QuadraticNetwork:
    return QuadraticNetwork(rng.normal(size=(n, 2 * p)), rng.normal(size=(n, p)), K)


def test_jacobian_mod_is_the_jacobian_of_the_network_at_small_integers() -> None:
    rng = np.random.default_rng(1)
    net = one_hot_network(rng, 4, 3, 9)
    w = rng.integers(-4, 5, net.n_params).astype(float)
    J = jacobian_mod(net, w, LARGEST_PRIME).reshape(9, 4, -1)  # entries below q/2: J itself
    # entries are at most 64 and means of 9 of them round by a few 64 x 2^-53 = 7e-15
    np.testing.assert_allclose((J - J.mean(axis=0)).reshape(36, -1), net.jacobian(w), atol=1e-13)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 9), st.booleans(), st.data())
def test_schur_route_matches_direct_elimination(
    seed: int, p: int, K: int, one_hot: bool, data: st.DataObject
) -> None:
    n = data.draw(st.integers(2, p * p))
    rng = np.random.default_rng(seed)
    net = (one_hot_network if one_hot else gaussian_network)(rng, p, K, n)
    w = rng.normal(size=net.n_params)
    if data.draw(st.booleans(), label="weights -1, 0, 1: coefficients of the symmetries vanish"):
        w = np.sign(np.rint(w))
    u, v, W = net.unpack(w)
    if data.draw(st.booleans(), label="a neuron without output, one without input, one constant"):
        W[:, 0], u[-1], v[-1] = 0, 0, 0
        u[K // 2], v[K // 2] = 1.5, -1.5
    w, q = net.pack(u, v, W), PRIMES[0]
    found = network_rank(net, w, primes=(q,))
    assert found.lower == centred_rank(jacobian_mod(net, w, q), p, q) <= found.upper


def test_a_vanishing_symmetry_coefficient_does_not_cost_rank() -> None:
    """Where z_j = 0 at the pair (0, p-1), the first column is in neither relation: keep it."""
    net = one_hot_network(np.random.default_rng(4), 5, 3, 25)
    u, v, W = net.unpack(np.random.default_rng(4).normal(size=net.n_params))
    u[:, 0] = -v[:, -1]
    w, q = net.pack(u, v, W), PRIMES[0]
    direct = centred_rank(jacobian_mod(net, w, q), 5, q)
    assert network_rank(net, w).lower == direct == 3 * (3 * 5 - 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([SMALLEST_PRIME, 101]))
def test_schur_route_is_a_lower_bound_in_small_fields_too(seed: int, K: int, q: int) -> None:
    rng = np.random.default_rng(seed)
    net = one_hot_network(rng, 3, K, 7)
    w = rng.normal(size=net.n_params)
    direct = centred_rank(jacobian_mod(net, w, q), 3, q)
    assert network_rank(net, w, primes=(q,), seed=seed).lower <= direct


def test_centred_rank_is_the_rank_of_centred_rows() -> None:
    rng = np.random.default_rng(2)
    for n, p, d in [(4, 2, 9), (5, 3, 7), (6, 2, 3)]:
        J = rng.integers(-3, 4, (n * p, d))
        blocks = np.array(J.tolist(), dtype=object).reshape(n, p, d) * Fraction(1)
        centred = blocks - blocks.sum(axis=0) / n
        rational = fraction_rank(centred.reshape(n * p, d))
        assert centred_rank(J, p, PRIMES[0]) == rational
        assert centred_rank(J, p, 5) <= rational  # also where 5 divides n


def test_forgetting_to_centre_changes_the_rank() -> None:
    rng = np.random.default_rng(3)
    p, K, n = 3, 9, 6
    net = one_hot_network(rng, p, K, n)
    w = rng.normal(size=net.n_params)
    J = jacobian_mod(net, w, PRIMES[0])
    assert centred_rank(J, p, PRIMES[0]) == network_rank(net, w).lower == p * (n - 1)
    assert rank_mod(J, PRIMES[0]) == p * n


@pytest.mark.parametrize(
    ("p", "K", "n"), [(5, 2, 12), (5, 7, 20), (7, 21, 30), (7, 30, 49), (11, 33, 90)]
)
def test_generic_weights_are_certified_by_the_first_prime(p: int, K: int, n: int) -> None:
    rng = np.random.default_rng(p * K)
    net = one_hot_network(rng, p, K, n)
    w = rng.normal(size=net.n_params)
    found = network_rank(net, w)
    assert found == ExactRank(net.rank_bound(), net.rank_bound(), PRIMES[:1])
    assert found.certified
    assert found == network_rank(net, w, seed=1)


@pytest.mark.parametrize(("K", "rank"), [(1, 8), (4, 32), (8, 62), (9, 63)])
def test_gaussian_inputs(K: int, rank: int) -> None:
    """K(3p-1) up to p p(2p+1) = 63 at p = 3, with the one defective case K = 8: 62, not 63."""
    rng = np.random.default_rng(K)
    net = gaussian_network(rng, 3, K, 30)
    w = rng.normal(size=net.n_params)
    found = network_rank(net, w)
    assert found.lower == rank
    assert found.certified == (K != 8)
    assert found.primes == (PRIMES if K == 8 else PRIMES[:1])


def test_a_dead_neuron_leaves_the_bounds_apart_and_uses_every_prime() -> None:
    rng = np.random.default_rng(5)
    p, K = 5, 3
    net = one_hot_network(rng, p, K, 25)
    u, v, W = net.unpack(rng.normal(size=net.n_params))
    u[0], v[0], W[:, 0] = 0, 0, 0
    found = network_rank(net, net.pack(u, v, W))
    assert found == ExactRank((K - 1) * (3 * p - 2), K * (3 * p - 2), PRIMES)
    assert not found.certified


def test_refusals() -> None:
    rng = np.random.default_rng(6)
    net = one_hot_network(rng, 3, 2, 9)
    w = rng.normal(size=net.n_params)
    for primes, message in [((), "no primes"), ((9,), "not a prime"), ((PRIMES[0], 3), "outside")]:
        with pytest.raises(ValueError, match=message):
            network_rank(net, w, primes=primes)
    with pytest.raises(ValueError, match="one weight vector"):
        network_rank(net, np.stack([w, w]))


def test_an_upper_bound_below_the_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    net = one_hot_network(rng, 3, 2, 9)
    w = rng.normal(size=net.n_params)
    wrong = net.rank_bound() - 1
    monkeypatch.setattr(net, "rank_bound", lambda: wrong)
    with pytest.raises(RankContradiction, match=f"claimed upper bound {wrong}"):
        network_rank(net, w)


# ---- exact Fourier networks ------------------------------------------------------------


def full_grid(p: int, K: int) -> QuadraticNetwork:
    return QuadraticNetwork.modular(p, K, *np.divmod(np.arange(p * p), p))


def fourier_rank(p: int, weights: Weights, q: int) -> int:
    return rank_from_residues(full_grid(p, weights[0].shape[0]).inputs, *weights, q)


FULL_GRID_RANK = {4: lambda p: (p - 1) * (6 * p - 7), 6: lambda p: (p - 1) * (15 * p - 24) // 2}


@pytest.mark.parametrize("p", [3, 5, 7, 11, 13])
@pytest.mark.parametrize("per_frequency", [4, 6])
def test_exact_fourier_network_computes_the_sum_and_has_the_published_rank(
    p: int, per_frequency: int
) -> None:
    q = fourier_prime(p)
    u, v, W = weights = fourier_network_mod(p, per_frequency, q)
    assert W.shape == (p, per_frequency * (p - 1) // 2)
    a, b = np.divmod(np.arange(p * p), p)
    z = integers(u[:, a] + v[:, b])
    excess = (integers(W) @ z**2 - (np.arange(p)[:, None] == (a + b) % p)) % q
    assert (excess == excess[:, :1]).all()  # one-hot up to a constant per output
    if p > 3:
        assert fourier_rank(p, weights, q) == FULL_GRID_RANK[per_frequency](p)


@pytest.mark.parametrize("per_frequency", [4, 6])
def test_schur_route_matches_direct_elimination_at_the_fourier_network(per_frequency: int) -> None:
    p, q = 5, fourier_prime(5)
    weights = fourier_network_mod(p, per_frequency, q)
    J = jacobian_from_residues(full_grid(p, len(weights[0])).inputs, *weights, q)
    assert centred_rank(J, p, q) == FULL_GRID_RANK[per_frequency](p)


@pytest.mark.parametrize("p", [5, 7, 11])
@pytest.mark.parametrize("per_frequency", [4, 6])
def test_float_fourier_network_has_zero_loss_and_the_same_numerical_rank(
    p: int, per_frequency: int
) -> None:
    u, v, W = fourier_network(p, per_frequency)
    net = full_grid(p, len(u))
    w = net.pack(u, v, W)
    # an output sums K terms of size 4 |W| <= 4 x 4 / (4 p), each rounded a few times: below
    # 100 u K / p < 60 u = 7e-15; squared and halved over p outputs, < p 2.5e-29
    assert net.loss(w) < p * 2.5e-29
    rank, gap = numerical_rank(net.jacobian(w))
    assert rank == FULL_GRID_RANK[per_frequency](p)
    assert gap > 1e9  # rounding leaves about 1e-15 behind smallest singular values above 1e-3


def test_rounding_makes_the_stored_doubles_generic() -> None:
    """The exact rank of the rounded Fourier network is another question and another answer."""
    u, v, W = fourier_network(5, 4)
    net = full_grid(5, len(u))
    found = network_rank(net, net.pack(u, v, W))
    assert FULL_GRID_RANK[4](5) == 92 < found.lower <= found.upper == 8 * (3 * 5 - 2)


def waves_mod(p: int, q: int, neurons: list[tuple[int, int, int]]) -> Weights:
    """Oracle in Python integers: phases (φ, ψ, χ) in 12p-ths of a turn, for all frequencies."""
    order = 12 * p
    g = next(
        g
        for g in (pow(x, (q - 1) // order, q) for x in range(2, q))
        if len({pow(g, i, q) for i in range(order)}) == order
    )

    def wave(frequency: int, phase: int) -> list[int]:
        turns = [12 * frequency * k + phase for k in range(p)]
        return [(pow(g, t, q) + pow(g, -t, q)) * pow(2, -1, q) % q for t in turns]

    rows = [(m, phases) for m in range(1, (p + 1) // 2) for phases in neurons]
    u, v, W = (reduce_dyadic([wave(m, ph[i]) for m, ph in rows], q) for i in range(3))
    return u, v, W.T


@pytest.mark.parametrize("p", [5, 7])
def test_rank_of_the_other_families_named_in_the_docstring(p: int) -> None:
    q = fourier_prime(p)
    turned = [((j - j % 2) * p, (j - j % 2) * p + 6 * p * (j % 2)) for j in range(6)]
    pairs = [(phi, psi, (phi + psi) % (12 * p)) for phi, psi in turned]
    assert fourier_rank(p, waves_mod(p, q, pairs), q) == (p - 1) * (13 * p - 18) // 2
    thirds = [n for t in (0, 4 * p, 8 * p) for n in [(0, t, t), (3 * p, t - 3 * p, t)]]
    assert fourier_rank(p, waves_mod(p, q, thirds), q) == (p - 1) * (16 * p - 27) // 2


@pytest.mark.parametrize("p", [5, 7])
def test_four_per_frequency_rank_does_not_depend_on_phases_or_amplitudes(p: int) -> None:
    q = fourier_prime(p)
    generic = [
        n for f, t in ((1, 2), (9, 17)) for n in [(f, t, f + t), (f + 3 * p, t - 3 * p, f + t)]
    ]
    u, v, W = waves_mod(p, q, generic)
    assert fourier_rank(p, (u, v, W), q) == FULL_GRID_RANK[4](p)
    factors = np.random.default_rng(p).integers(1, q, (2, len(u) // 2)).repeat(2, axis=1)
    u, v = (
        reduce_dyadic(x.astype(np.int64) * f[:, None], q)
        for x, f in zip((u, v), factors, strict=True)
    )
    assert fourier_rank(p, (u, v, W), q) == FULL_GRID_RANK[4](p)


def test_fourier_refusals() -> None:
    assert fourier_prime(11) % 132 == 1
    with pytest.raises(ValueError, match=f"132-th roots of unity.*{fourier_prime(11)}"):
        fourier_network_mod(11, 4, PRIMES[0])
    for p in (2, 9, 1):
        with pytest.raises(ValueError, match="odd prime"):
            fourier_network(p, 4)
    with pytest.raises(ValueError, match="constructions for 4 and 6"):
        fourier_network(5, 5)
    with pytest.raises(ValueError, match="too large"):
        fourier_prime(LARGEST_PRIME)


def test_primes() -> None:
    assert [p for p in range(-2, 30) if er.is_prime(p)] == [
        2,
        3,
        5,
        7,
        11,
        13,
        17,
        19,
        23,
        29,
    ]
    assert er.is_prime(97) and not er.is_prime(91) and not er.is_prime(49)
