"""Singular values and their floors, rank and gaps, Lanczos and Hutchinson against dense oracles."""

from __future__ import annotations

import copy
import os
import pickle
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import curvature
from curvature import (
    InsufficientMemory,
    NegativeCurvature,
    NotConverged,
    SingularValues,
    ToleranceBelowFloor,
)
from qnet import QuadraticNetwork

Array = NDArray[np.float64]
ROUTES = ("svd", "gram", "qr")
EPS = float(np.finfo(np.float64).eps)
few = settings(max_examples=40, deadline=None)


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """(rows, columns) with orthonormal columns."""
    return np.linalg.qr(rng.standard_normal((rows, columns)))[0]


def with_singular_values(rng: np.random.Generator, m: int, d: int, s: Array) -> Array:
    return (orthogonal(rng, m, len(s)) * s) @ orthogonal(rng, d, len(s)).T


def symmetric(rng: np.random.Generator, h: Array) -> Array:
    """A symmetric matrix with eigenvalues h and random eigenvectors."""
    Q = orthogonal(rng, len(h), len(h))
    return (Q * h) @ Q.T


def column_by_column(J: Array) -> LinearOperator:
    """An operator that knows only products with one vector."""
    return LinearOperator(J.shape, matvec=lambda x: J @ x, rmatvec=lambda y: J.T @ y, dtype=float)


def exact_rank(J: NDArray[np.int64]) -> int:
    """The slow oracle: Gaussian elimination over the rationals."""
    rows = [[Fraction(int(x)) for x in row] for row in J]
    done = 0
    for column in range(J.shape[1]):
        pivot = next((i for i in range(done, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        for i in range(done + 1, len(rows)):
            factor = rows[i][column] / rows[done][column]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[done], strict=True)]
        done += 1
    return done


def peak_bytes(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------- singular values


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("shape", [(200, 90), (90, 200), (120, 120)])
def test_error_of_each_route_stays_below_its_floor(route: str, shape: tuple[int, int]) -> None:
    exact = np.logspace(0, -12, min(shape))
    J = with_singular_values(np.random.default_rng(1), *shape, exact)
    s = curvature.singular_values(J, route)
    # Building J from rounded factors moves its singular values by one svd floor at most.
    allowed = s.floor + curvature.rounding_floor(shape, "svd")
    assert np.abs(s - exact).max() <= allowed * exact[0]


@pytest.mark.parametrize("shape", [(200, 90), (90, 200), (120, 120)])
def test_gram_cannot_see_what_svd_sees_at_1e_9(shape: tuple[int, int]) -> None:
    exact = np.logspace(0, -12, min(shape))
    J = with_singular_values(np.random.default_rng(2), *shape, exact)
    by_gram = curvature.singular_values(J, "gram")
    assert np.abs(by_gram - exact).max() > 1e-9
    # A floor without the square root would have promised better than was measured.
    assert np.abs(by_gram - exact).max() > by_gram.floor**2
    with pytest.raises(ToleranceBelowFloor, match=r"1e-09.*floor.*'svd' or 'qr'"):
        curvature.rank(by_gram, 1e-9)
    counted = curvature.rank(curvature.singular_values(J), 1e-9)
    # 1e-9 falls between two of the log-spaced values, each known to 1e-13.
    assert counted == np.count_nonzero(exact > 1e-9)


@given(
    m=st.integers(1, 40),
    d=st.integers(1, 40),
    exponent=st.integers(-3, 3),
    seed=st.integers(0, 10**6),
)
@few
def test_routes_agree_above_their_floors(m: int, d: int, exponent: int, seed: int) -> None:
    J = 10.0**exponent * np.random.default_rng(seed).standard_normal((m, d))
    oracle = np.linalg.svd(J, compute_uv=False)
    readings = [curvature.singular_values(J, route) for route in ROUTES]
    readings += [curvature.singular_values(np.asfortranarray(J), route) for route in ROUTES]
    readings.append(curvature.singular_values(aslinearoperator(J), "gram"))
    readings.append(curvature.singular_values(column_by_column(J), "gram"))
    for s in readings:
        assert s.shape == (min(m, d),)
        assert np.all(np.diff(s) <= 0.0)
        # The oracle carries its own svd floor.
        allowed = s.floor + curvature.rounding_floor((m, d), "svd")
        assert np.abs(s - oracle).max() <= allowed * oracle[0]


@pytest.mark.parametrize("shape", [(700, 30), (30, 700), (300, 280)])
def test_gram_blocks_add_up(shape: tuple[int, int]) -> None:
    """More than one block, the last one short; against the whole Gram matrix at once."""
    J = np.random.default_rng(3).standard_normal(shape)
    assert max(shape) > curvature.BLOCK and max(shape) % curvature.BLOCK
    whole = np.sqrt(np.linalg.eigvalsh(J @ J.T if shape[0] < shape[1] else J.T @ J)[::-1])
    for matrix in (J, np.asfortranarray(J), aslinearoperator(J), column_by_column(J)):
        s = curvature.singular_values(matrix, "gram")
        # Both square the same well-conditioned J: ds = dh / (2s), dh <= svd floor * s_max^2 each.
        allowed = curvature.rounding_floor(shape, "svd") * whole[0] ** 2 / whole[-1]
        assert np.abs(s - whole).max() <= allowed


@given(exponent=st.floats(-3, 3), seed=st.integers(0, 10**6), route=st.sampled_from(ROUTES))
@few
def test_scaling_J_scales_s_and_leaves_the_rank(exponent: float, seed: int, route: str) -> None:
    rng = np.random.default_rng(seed)
    J, factor = with_singular_values(rng, 30, 20, np.logspace(0, -2, 12)), 10.0**exponent
    s, scaled = curvature.singular_values(J, route), curvature.singular_values(factor * J, route)
    # Each side carries one floor.
    assert np.abs(scaled - factor * s).max() <= 2.0 * s.floor * factor * s[0]
    # 12 values of at least 1e-2; the rest is below the gram floor, 1.1e-7.
    assert curvature.rank(s, 1e-6) == curvature.rank(scaled, 1e-6) == 12


@given(m=st.integers(1, 5), d=st.integers(1, 5), seed=st.integers(0, 10**6), thin=st.booleans())
@settings(max_examples=100, deadline=None)
def test_rank_of_integer_matrices_against_exact_elimination(
    m: int, d: int, seed: int, thin: bool
) -> None:
    rng = np.random.default_rng(seed)
    J = rng.integers(-2, 3, (m, d))
    if thin and m > 1:
        J[-1] = J[0]  # at least one dependent row
    # The r x r minors are integers, so s_1 ... s_r >= 1 and s_r / s_1 >= s_1^-r >= 10^-5,
    # s_1 <= |J|_F <= 10: the tolerance 1e-6 lies below it and above the gram floor 7.1e-8.
    for route in ROUTES:
        assert curvature.rank(curvature.singular_values(J, route), 1e-6) == exact_rank(J)


def test_gram_clips_negative_rounding_to_zero() -> None:
    """About half of the 20 null eigenvalues of each Gram matrix round to something negative."""
    rng = np.random.default_rng(19)
    clipped = 0
    for _ in range(20):
        s = curvature.singular_values(with_singular_values(rng, 40, 30, np.ones(10)), "gram")
        assert np.all(np.diff(s) <= 0.0) and s[-1] >= 0.0
        clipped += int(np.count_nonzero(s == 0.0))
    assert clipped > 0


def test_integers_are_read_as_real_numbers() -> None:
    J = np.array([[3, 0, 0], [0, 4, 0]])
    for route in ROUTES:
        # Diagonal: only the square root rounds.
        assert curvature.singular_values(J, route) == pytest.approx([4.0, 3.0], rel=4 * EPS)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty_matrices_have_rank_zero(route: str, shape: tuple[int, int]) -> None:
    s = curvature.singular_values(np.zeros(shape), route)
    assert s.shape == (0,) and s.shape_of_matrix == shape
    assert curvature.rank(s, 1e-3) == 0
    assert curvature.gap_at(s, 0) == np.inf
    assert curvature.largest_gap(s) == (np.inf, 0)


@pytest.mark.parametrize("route", ROUTES)
def test_zero_matrix_has_rank_zero(route: str) -> None:
    s = curvature.singular_values(np.zeros((6, 4)), route)
    assert np.array_equal(s, np.zeros(4))
    assert curvature.rank(s, 1e-3) == 0


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_entries_are_refused(route: str, bad: float) -> None:
    J = np.ones((300, 4))
    J[290, 2] = bad  # in the second block of the gram route
    with pytest.raises(ValueError, match="NaN"):
        curvature.singular_values(J, route)
    # 0 * inf inside the operator's own product may warn first.
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="NaN"):
        curvature.singular_values(aslinearoperator(J), "gram")


def test_overflowing_squares_are_refused_by_gram_only() -> None:
    J = np.diag([1e200, 1.0])
    assert curvature.singular_values(J)[0] == pytest.approx(1e200, rel=4 * EPS)
    with pytest.raises(ValueError, match="overflow"):
        curvature.singular_values(J, "gram")


@pytest.mark.parametrize(
    ("J", "route", "message"),
    [
        (np.ones((2, 2)), "eig", "unknown route 'eig'; choose one of svd, gram, qr"),
        (np.ones(3), "svd", r"two dimensions \(m, d\), not shape \(3,\)"),
        (np.ones((2, 2, 2)), "gram", "two dimensions"),
        (1j * np.ones((2, 2)), "qr", "complex"),
        (aslinearoperator(np.eye(3)), "svd", "use 'gram' for an operator"),
        (aslinearoperator(np.eye(3)), "qr", "use 'gram' for an operator"),
    ],
)
def test_bad_matrices_are_refused(J: Array, route: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        curvature.singular_values(J, route)


def test_input_is_left_alone() -> None:
    J = np.asfortranarray(np.random.default_rng(4).standard_normal((20, 10)))
    before = J.copy()
    for route in ROUTES:
        curvature.singular_values(J, route)
        curvature.singular_values(J.T, route)
    assert np.array_equal(J, before)


def test_singular_values_remember_their_origin() -> None:
    s = curvature.singular_values(np.random.default_rng(5).standard_normal((9, 6)), "gram")
    kept = [s[:3], s.copy(), copy.deepcopy(s), pickle.loads(pickle.dumps(s))]
    for same in kept:
        assert type(same) is SingularValues
        assert (same.route, same.shape_of_matrix, same.floor) == ("gram", (9, 6), s.floor)
    assert np.array_equal(kept[-1], s)
    for plain in (s**2 / 9, np.sqrt(s), 2.0 * s, s > 1.0, np.concatenate([s, s])):
        assert type(plain) is np.ndarray
    for number in (s[0], s.max(), s.sum()):
        assert isinstance(number, np.float64)


# ---------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("shape", [(2000, 500), (500, 2000), (700, 700)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_gram_holds_one_gram_matrix_and_one_block(shape: tuple[int, int], order: str) -> None:
    J = np.array(np.random.default_rng(6).standard_normal(shape), order=order)  # type: ignore[call-overload]
    gram, block = 8 * min(shape) ** 2, 8 * min(shape) * curvature.BLOCK
    work = 8 * 64 * min(shape)  # LAPACK's blocked tridiagonalisation
    assert gram + block + work < 2 * gram  # a second copy would be noticed
    assert peak_bytes(lambda: curvature.singular_values(J, "gram")) <= gram + block + work


@pytest.mark.parametrize("shape", [(900, 300), (300, 900), (500, 500)])
def test_estimate_covers_what_each_route_allocates(shape: tuple[int, int]) -> None:
    J = np.random.default_rng(7).standard_normal(shape)
    cases: list[tuple[Array | LinearOperator, str]] = [(J, route) for route in ROUTES]
    cases.append((column_by_column(J), "gram"))
    for matrix, route in cases:
        peak = peak_bytes(partial(curvature.singular_values, matrix, route))
        # 50 kB of Python objects beside megabytes of arrays.
        assert peak <= curvature.memory_needed(shape, route) + 50_000
    # Nor so cautious that it refuses what would fit; the last peak is that of an operator, whose
    # unit vectors the estimate always counts.
    assert curvature.memory_needed(shape, "gram") <= 2 * peak


@pytest.mark.parametrize("route", ROUTES)
def test_too_large_is_refused_before_anything_is_allocated(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    J = np.ones((1500, 1000))
    monkeypatch.setattr(curvature, "available_memory", lambda: 5_000_000)

    def refused() -> None:
        with pytest.raises(InsufficientMemory, match=r"1500 x 1000 .* GB .*matrix-free") as error:
            curvature.singular_values(J, route)
        assert isinstance(error.value, MemoryError)

    assert peak_bytes(refused) < 1_000_000  # J itself is 12 MB


def test_unknown_memory_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "available_memory", lambda: None)
    assert curvature.rank(curvature.singular_values(np.eye(3)), 0.5) == 3


def test_available_memory_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "MemFree: 1 kB\nMemAvailable: 2 kB\n")
    assert curvature.available_memory() == 2048
    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert curvature.available_memory() == 3 * 4096
    monkeypatch.setattr(os, "sysconf", lambda _: missing())
    assert curvature.available_memory() is None


# ---------------------------------------------------------------------------- reading a spectrum


def test_rank_is_strict_and_relative() -> None:
    s = np.array([4.0, 2.0, 1.0, 1e-13])
    assert [curvature.rank(s, tol) for tol in (0.6, 0.5, 0.3, 0.25, 0.2, 1e-12)] == [
        1,
        1,  # 2 is not above 0.5 * 4
        2,
        2,
        3,
        3,
    ]


def test_plain_array_has_the_floor_of_a_square_svd() -> None:
    s = np.ones(100)
    floor = 10.0 * EPS * 10.0
    with pytest.raises(ToleranceBelowFloor, match=f"{floor:.3g}"):
        curvature.rank(s, 0.99 * floor)
    assert curvature.rank(s, 1.01 * floor) == 100


@pytest.mark.parametrize("tol", [0.0, -1e-3, 1.0, np.nan, np.inf])
def test_tolerance_outside_zero_and_one_is_refused(tol: float) -> None:
    with pytest.raises(ValueError, match=r"tol = .* between 0 and 1"):
        curvature.rank(np.ones(3), tol)
    with pytest.raises(ValueError, match=r"tol = .* between 0 and 1"):
        curvature.rank_sweep(np.ones(3), [tol])


@pytest.mark.parametrize("bad", [[1.0, np.nan], [1.0, -0.1], [np.inf], [[1.0]]])
def test_bad_spectra_are_refused(bad: list[float]) -> None:
    for read in (
        lambda: curvature.rank(bad, 0.1),
        lambda: curvature.gap_at(bad, 1),
        lambda: curvature.largest_gap(bad),
        lambda: curvature.rank_sweep(bad),
        lambda: curvature.curvatures(bad, 1.0),
        lambda: curvature.flat_share(bad, 1, 0.1),
        lambda: curvature.hutchinson_standard_error(bad, 0.1, 4),
    ):
        with pytest.raises(ValueError, match="spectrum"):
            read()


def test_gap_at_a_hand_made_cut() -> None:
    s = np.array([8.0, 4.0, 1.0, 0.0])
    assert [curvature.gap_at(s, r) for r in (1, 2, 3)] == [2.0, 4.0, np.inf]
    assert curvature.gap_at(s[:3], 3) == np.inf  # nothing behind
    for outside in (-1, 0, 4, 5):
        with pytest.raises(ValueError, match=f"no gap at rank {outside}"):
            curvature.gap_at(s, outside)


def test_largest_gap_is_not_looked_for_in_the_noise() -> None:
    s = np.array([8.0, 4.0, 1e-3, 5e-4, 1e-17, 1e-40])
    # 5e-4 / 1e-17 is real: the last value above the floor. 1e-17 / 1e-40 compares roundings.
    assert curvature.largest_gap(s) == (5e-4 / 1e-17, 4)
    assert curvature.largest_gap(s[:4]) == (4.0 / 1e-3, 2)
    assert curvature.largest_gap([3.0, 2.0, 0.0]) == (np.inf, 2)
    assert curvature.largest_gap([3.0]) == (np.inf, 1)
    by_gram = SingularValues(s, "gram", (6, 6))  # floor 7.4e-8: 1e-17 is noise, 5e-4 is not
    assert curvature.largest_gap(by_gram) == (5e-4 / 1e-17, 4)


@given(
    logs=st.lists(st.floats(-6, 3), min_size=2, max_size=12),
    seed=st.integers(0, 10**6),
)
@few
def test_gaps_telescope_and_order_does_not_matter(logs: list[float], seed: int) -> None:
    s = np.sort(10.0 ** np.array(logs))[::-1]
    gaps = [curvature.gap_at(s, r) for r in range(1, len(s))]
    # Each quotient rounds once: len(s) eps, doubled for the product.
    assert np.prod(gaps) == pytest.approx(s[0] / s[-1], rel=2 * len(s) * EPS)
    assert curvature.largest_gap(s)[0] == max(gaps)
    shuffled = np.random.default_rng(seed).permutation(s)
    assert curvature.largest_gap(shuffled) == curvature.largest_gap(s)
    assert curvature.rank(shuffled, 1e-3) == curvature.rank(s, 1e-3)


def test_rank_sweep_over_a_hand_made_spectrum() -> None:
    s = SingularValues([1.0, 1e-3, 3e-7, 3e-11, 1e-15], "svd", (5, 5))
    sweep = curvature.rank_sweep(s)
    assert [line.tolerance for line in sweep] == pytest.approx(
        [1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12], rel=4 * EPS
    )
    assert [line.rank for line in sweep] == [2, 2, 2, 3, 3, 3, 3, 4, 4]
    assert [line.gap for line in sweep] == [curvature.gap_at(s, line.rank) for line in sweep]
    assert not any(line.below_floor for line in sweep)  # floor 5e-15


def test_rank_sweep_marks_what_rounding_may_have_decided() -> None:
    s = SingularValues([1.0, 1e-3, 1e-9], "gram", (3, 3))
    marked = [line.tolerance for line in curvature.rank_sweep(s) if line.below_floor]
    assert marked == pytest.approx([1e-8, 1e-9, 1e-10, 1e-11, 1e-12], rel=4 * EPS)  # floor 6.2e-8


def test_flat_share_of_a_hand_made_spectrum() -> None:
    h = [4.0, 1.0, 1e-3, 1e-5, 0.0]
    assert curvature.flat_share(h, 4, 1e-4) == 0.25
    assert curvature.flat_share(h, 4, 1e-3) == 0.25  # a curvature equal to c is not flat
    assert curvature.flat_share(h, 4, 10.0) == 1.0
    assert curvature.flat_share(h, 5, 1e-4) == 0.4
    assert curvature.flat_share(h, 0, 1e-4) == 0.0
    for outside in (-1, 6):
        with pytest.raises(ValueError, match=f"rank = {outside}"):
            curvature.flat_share(h, outside, 1e-4)
    with pytest.raises(ValueError, match="resolution = 0"):
        curvature.flat_share(h, 4, 0.0)


@given(
    logs=st.lists(st.floats(-8, 2), min_size=1, max_size=20),
    resolution=st.floats(1e-8, 1e2),
    scale=st.floats(1e-3, 1e3),
)
@few
def test_flat_share_counts_and_has_no_unit(
    logs: list[float], resolution: float, scale: float
) -> None:
    h = 10.0 ** np.array(logs)
    flat = sum(1 for x in h if x < resolution)
    assert curvature.flat_share(h, len(h), resolution) == flat / len(h)
    if np.abs(h / resolution - 1.0).min() > 4 * EPS:  # the products round
        assert curvature.flat_share(scale * h, len(h), scale * resolution) == flat / len(h)


def test_curvatures_are_scaled_squares() -> None:
    J = np.random.default_rng(8).standard_normal((12, 7))
    h = curvature.curvatures(curvature.singular_values(J), 1 / 12)
    assert type(h) is np.ndarray
    expected = np.linalg.eigvalsh(J.T @ J / 12)[::-1]
    assert np.abs(h - expected).max() <= curvature.rounding_floor((12, 7), "svd") * expected[0]
    with pytest.raises(ValueError, match="hessian_scale = 0"):
        curvature.curvatures([1.0], 0.0)


# --------------------------------------------------------------------------------------- Lanczos

SPECTRA = {
    "positive": np.logspace(2, -3, 600),
    "with null directions": np.r_[np.logspace(0, -4, 200), np.zeros(400)],
    "saddle": np.r_[np.logspace(0, -4, 599), -1e-3],
    "two opposite ends": np.r_[1.0, -1.0 + 1e-9, np.zeros(598)],
    "negative": -np.logspace(0, -2, 600),
    "identity": np.ones(600),
    "rank one": np.r_[1.0, np.zeros(599)],
}


@pytest.mark.parametrize("name", SPECTRA)
def test_lanczos_finds_both_ends(name: str) -> None:
    h = SPECTRA[name]
    assert len(h) > curvature.DENSE
    H, size = symmetric(np.random.default_rng(9), h), np.abs(h).max()
    rounding = 10.0 * EPS * len(h) ** 0.5 * size  # of building H
    top = curvature.top_eigenvalue(H, tolerance=1e-6)
    bottom = curvature.smallest_eigenvalue(column_by_column(H))  # default tolerance 1e-6
    assert abs(top - h.max()) <= 1e-6 * size + rounding
    assert abs(bottom - h.min()) <= 1e-6 * size + rounding


@given(d=st.integers(1, 40), exponent=st.integers(-3, 3), seed=st.integers(0, 10**6))
@few
def test_small_operators_are_solved_in_full(d: int, exponent: int, seed: int) -> None:
    B = 10.0**exponent * np.random.default_rng(seed).standard_normal((d, d))
    H = B + B.T
    h = np.linalg.eigvalsh(H)
    # Two eigvalsh of matrices that differ by rounding, one shifted to three times the size.
    allowed = 8.0 * curvature.rounding_floor((d, d), "svd") * np.abs(h).max()
    assert abs(curvature.top_eigenvalue(aslinearoperator(H)) - h[-1]) <= allowed
    assert abs(curvature.smallest_eigenvalue(aslinearoperator(H)) - h[0]) <= allowed


@pytest.mark.parametrize("d", [1, 5, 700])
def test_zero_operator_has_only_zeros(d: int) -> None:
    for end in (curvature.top_eigenvalue, curvature.smallest_eigenvalue):
        value = end(np.zeros((d, d)))
        assert value == 0.0 and not np.signbit(value)


def test_lanczos_is_reproducible() -> None:
    H = symmetric(np.random.default_rng(10), SPECTRA["positive"])
    first = curvature.top_eigenvalue(H, seed=1)
    assert curvature.top_eigenvalue(H, seed=1) == first
    assert curvature.top_eigenvalue(H, seed=2) == pytest.approx(first, rel=2e-8)  # tolerance each


def test_lanczos_that_does_not_converge_says_so() -> None:
    H = np.diag(np.linspace(1.0, 1.0 + 1e-3, 1000))
    with pytest.raises(NotConverged, match=r"1e-12 on a 1000 x 1000 .* 1 restarts; raise"):
        curvature.top_eigenvalue(H, tolerance=1e-12, max_iterations=1)


@pytest.mark.parametrize("d", [3, 600])
def test_operators_that_give_nan_are_refused(d: int) -> None:
    H = np.eye(d)
    H[1, 1] = np.nan
    for run in (
        lambda: curvature.top_eigenvalue(H),
        lambda: curvature.smallest_eigenvalue(H),
        lambda: curvature.hutchinson_effective_dimension(H, 0.1, probes=2, seed=0),
    ):
        with pytest.raises(ValueError, match="NaN or infinite"):
            run()


@pytest.mark.parametrize("shape", [(2, 3), (0, 0)])
def test_operators_must_be_square(shape: tuple[int, int]) -> None:
    H = np.zeros(shape)
    for run in (
        lambda: curvature.top_eigenvalue(H),
        lambda: curvature.smallest_eigenvalue(H),
        lambda: curvature.hutchinson_effective_dimension(H, 0.1, probes=2, seed=0),
    ):
        with pytest.raises(ValueError, match="square"):
            run()


# ------------------------------------------------------------------------------------ Hutchinson

GRADED = np.r_[np.logspace(0, -6, 60), np.zeros(20)]


def damped_projector(H: Array, c: float) -> Array:
    """M = H (H + cI)^-1, by a dense solve."""
    return np.asarray(np.linalg.solve(H + c * np.eye(len(H)), H), dtype=np.float64)


def exact_standard_error(M: Array, probes: int) -> float:
    """Of 1/2 z^T M z under random signs: Var z^T M z = 2 (|M|_F^2 - sum M_ii^2)."""
    return float(0.5 * np.sqrt(2.0 * (np.sum(M**2) - np.sum(np.diag(M) ** 2)) / probes))


@given(
    d=st.integers(1, 50),
    h=st.floats(1e-3, 1e3),
    kappa=st.floats(1e-2, 1e4),
    seed=st.integers(0, 10**6),
)
@few
def test_hutchinson_is_exact_for_a_multiple_of_the_identity(
    d: int, h: float, kappa: float, seed: int
) -> None:
    value, error = curvature.hutchinson_effective_dimension(
        h * np.eye(d), h / kappa, probes=3, seed=seed
    )
    # z^T z = d whatever the signs; one CG step is exact, and a few operations round.
    assert value == pytest.approx(0.5 * d * kappa / (1.0 + kappa), rel=10.0 * d * EPS)
    assert error <= 10.0 * d * EPS * value


@pytest.mark.parametrize("kappa", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("seed", range(5))
def test_hutchinson_agrees_with_the_exact_trace(kappa: float, seed: int) -> None:
    H = symmetric(np.random.default_rng(11), GRADED)
    exact = 0.5 * float(np.sum(GRADED / (GRADED + 1.0 / kappa)))
    error = exact_standard_error(damped_projector(H, 1.0 / kappa), 64)
    value, spread = curvature.hutchinson_effective_dimension(H, 1.0 / kappa, probes=64, seed=seed)
    assert abs(value - exact) <= 4.0 * error + 1e-4  # 1e-4: what CG may leave
    assert abs(2.0 * value - exact) > 4.0 * error + 1e-4  # the factor 1/2 is tested
    # A standard deviation from 64 nearly normal samples has the relative error 1/sqrt(126).
    assert abs(spread / error - 1.0) <= 4.0 / 126**0.5


@given(
    kappa=st.floats(1e-1, 1e6),
    tolerance=st.sampled_from([1e-2, 1e-4]),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 10**6),
)
@few
def test_conjugate_gradients_keep_their_promise(
    kappa: float, tolerance: float, scale: float, seed: int
) -> None:
    """Each sample against a dense solve with the same signs."""
    H, c = scale * symmetric(np.random.default_rng(12), GRADED), scale / kappa
    samples = curvature.hutchinson_samples(H, c, probes=3, seed=seed, tolerance=tolerance)
    rng, M = np.random.default_rng(seed), damped_projector(H, c)
    signs = [rng.choice([-1.0, 1.0], len(H)) for _ in range(3)]
    oracle = np.array([0.5 * (z @ M @ z) for z in signs])
    rounding = len(H) * EPS * kappa  # both solves meet the condition number 1 + kappa
    assert np.abs(samples - oracle).max() <= tolerance + 10.0 * rounding


def test_same_seed_same_probes_and_more_only_append() -> None:
    H = symmetric(np.random.default_rng(13), GRADED)
    few_samples = curvature.hutchinson_samples(H, 0.1, probes=3, seed=7)
    more = curvature.hutchinson_samples(H, 0.1, probes=6, seed=7)
    assert np.array_equal(few_samples, more[:3])
    value, error = curvature.hutchinson_effective_dimension(H, 0.1, probes=6, seed=7)
    by_hand = (np.sum((more - np.mean(more)) ** 2) / 5 / 6) ** 0.5  # unbiased variance of the mean
    assert (value, error) == pytest.approx((np.mean(more), by_hand), rel=10 * EPS)
    assert not np.array_equal(few_samples, curvature.hutchinson_samples(H, 0.1, probes=3, seed=8))


def test_control_variate_beats_plain_probes() -> None:
    """Exact trace of A plus the same probes on B - A, for a B close to A."""
    rng = np.random.default_rng(14)
    A = symmetric(rng, GRADED)
    noise = rng.standard_normal(A.shape)
    B = A + 1e-4 * (noise @ noise.T) / len(A)
    exact_A, exact_B = (0.5 * float(np.trace(damped_projector(H, 0.01))) for H in (A, B))
    samples_A, samples_B = (
        curvature.hutchinson_samples(H, 0.01, probes=16, seed=1) for H in (A, B)
    )
    difference = samples_B - samples_A
    error = difference.std(ddof=1) / 4.0
    # Two solves at tolerance 1e-4; 5 errors, because 16 probes estimate the error themselves.
    assert abs(exact_A + difference.mean() - exact_B) <= 5.0 * error + 2e-4
    assert error < 0.02 * samples_B.std(ddof=1) / 4.0


def test_predicted_standard_error_bounds_that_of_random_signs() -> None:
    rng, c = np.random.default_rng(15), 0.01
    predicted = curvature.hutchinson_standard_error(GRADED, c, 8)
    M = damped_projector(symmetric(rng, GRADED), c)
    assert predicted == pytest.approx(0.5 * np.sqrt(2.0 * np.sum(M**2) / 8), rel=1e-12)
    assert exact_standard_error(M, 8) < predicted
    # A diagonal H is where signs and Gaussian probes differ most: z_i^2 = 1, no spread is left.
    value, spread = curvature.hutchinson_effective_dimension(np.diag(GRADED), c, probes=8, seed=0)
    assert spread <= 1e-4 < predicted
    assert value == pytest.approx(0.5 * np.sum(GRADED / (GRADED + c)), abs=1e-4)


def test_zero_operator_has_no_effective_dimension() -> None:
    assert curvature.hutchinson_effective_dimension(np.zeros((6, 6)), 1.0, probes=4, seed=0) == (
        0.0,
        0.0,
    )


def test_conjugate_gradients_that_do_not_converge_say_so() -> None:
    H = symmetric(np.random.default_rng(16), GRADED)
    with pytest.raises(NotConverged, match=r"residual of .* after 5 .* tolerance .*; raise"):
        curvature.hutchinson_effective_dimension(H, 1e-6, probes=2, seed=0, max_iterations=5)


def test_negative_curvature_beyond_the_resolution_is_refused() -> None:
    H = symmetric(np.random.default_rng(17), np.r_[np.logspace(0, -3, 40), -0.01])
    with pytest.raises(NegativeCurvature, match=r"-c = -0\.001.*smallest_eigenvalue"):
        curvature.hutchinson_effective_dimension(H, 1e-3, probes=4, seed=0)
    # At c = 0.02 H + cI is positive definite again: defined, the negative term included.
    exact = 0.5 * float(np.trace(damped_projector(H, 0.02)))
    error = exact_standard_error(damped_projector(H, 0.02), 64)
    value, _ = curvature.hutchinson_effective_dimension(H, 0.02, probes=64, seed=0)
    assert abs(value - exact) <= 4.0 * error + 1e-4


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"resolution": 0.0, "probes": 4}, "resolution = 0"),
        ({"resolution": -1.0, "probes": 4}, "resolution = -1"),
        ({"resolution": np.nan, "probes": 4}, "resolution = nan"),
        ({"resolution": 0.1, "probes": 1}, "at least 2"),
        ({"resolution": 0.1, "probes": 0}, "at least 2"),
    ],
)
def test_bad_hutchinson_settings_are_refused(settings_: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        curvature.hutchinson_effective_dimension(np.eye(3), seed=0, **settings_)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------- with a model


@pytest.fixture(scope="module")
def network() -> tuple[QuadraticNetwork, Array]:
    a, b = (x.ravel() for x in np.indices((4, 4)))
    model = QuadraticNetwork.modular(4, 3, a, b)
    return model, np.random.default_rng(18).standard_normal(model.n_params)


def test_operators_of_a_model_against_its_dense_matrices(
    network: tuple[QuadraticNetwork, Array],
) -> None:
    model, w = network
    J, identity = model.jacobian(w), np.eye(model.n_params)
    for operator, dense in (
        (curvature.gauss_newton_operator(model, w), model.hessian_scale * J.T @ J),
        (curvature.hessian_operator(model, w), model.hessian(w)),
    ):
        assert operator.shape == dense.shape
        # Sums over n p = 64 terms in another order.
        assert np.abs(operator @ identity - dense).max() <= 64 * EPS * np.abs(dense).max()
        assert np.abs(operator.T @ identity - dense).max() <= 64 * EPS * np.abs(dense).max()


def test_rank_of_a_network_by_every_route(network: tuple[QuadraticNetwork, Array]) -> None:
    model, w = network
    J = model.jacobian(w)
    readings = [curvature.singular_values(J, route) for route in ROUTES]
    readings.append(curvature.singular_values(model.jacobian_operator(w), "gram"))
    # Generic weights attain the bound: K(3p - 2) = 30, two null directions per neuron.
    assert {curvature.rank(s, 1e-5) for s in readings} == {30} == {model.rank_bound()}
    assert curvature.largest_gap(readings[0])[1] == 30
    top = curvature.top_eigenvalue(curvature.gauss_newton_operator(model, w))
    h = curvature.curvatures(readings[0], model.hessian_scale)
    assert top == pytest.approx(h[0], rel=4.0 * readings[0].floor)
