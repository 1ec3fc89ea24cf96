"""The calibration networks: known λ against the rank of J, zero loss at w*, spectra as promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import curvature
import known
import theory
from known import CASES, SLOPPY, Case, Sloppy, null_network, scale_for_flat_share
from measure import RANK_TOLERANCE
from qnet import FrozenFirstLayer, modular_pairs

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)

LLC = {  # the true λ the source gives for its eight networks
    "gaussian_5_3": 21.0,
    "gaussian_7_6": 60.0,
    "gaussian_3_20": 31.5,
    "one_hot_11_6": 93.0,
    "one_hot_17_12": 294.0,
    "one_hot_7_14": 80.5,
    "frozen_11_44": 242.0,
    "frozen_17_68": 578.0,
}
SMALL = [case for case in CASES if case.name not in ("frozen_17_68", "gaussian_7_6")]


def name_of(case: Case | Sloppy) -> str:
    return case.name


def singular_values(built: known.Built) -> curvature.SingularValues:
    """Of J at w*. For a frozen first layer J = (C F) ⊗ I_p: those of C F, each p times."""
    model, w = built
    if isinstance(model, FrozenFirstLayer):
        s = np.repeat(np.linalg.svd(model.features, compute_uv=False), model.p)
        return curvature.SingularValues(s, "svd", (model.n * model.p, model.n_params))
    return curvature.singular_values(model.jacobian(w))


def test_the_eight_networks_are_those_of_the_source() -> None:
    assert {case.name: case.known_llc for case in CASES} == LLC
    assert [(case.p, case.K, case.n) for case in CASES] == [
        (5, 3, 300),
        (7, 6, 400),
        (3, 20, 200),
        (11, 6, 60),
        (17, 12, 144),
        (7, 14, 24),
        (11, 44, 60),
        (17, 68, 144),
    ]
    assert [case.linear for case in CASES] == [False] * 6 + [True] * 2


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_known_llc_is_half_the_numerical_rank(case: Case, scale: float) -> None:
    model, _ = built = case.build(scale)
    assert model.n == case.n
    s = singular_values(built)
    r = curvature.rank(s, RANK_TOLERANCE["svd"])
    assert 0.5 * r == case.known_llc
    # The cut is clean: what lies behind it is rounding, a thousand times smaller at least.
    assert curvature.gap_at(s, r) > 1e3


def test_the_frozen_shortcut_has_the_spectrum_of_the_full_jacobian() -> None:
    model, w = built = Case("small", "frozen", 5, 8, 20).build()
    full = curvature.singular_values(model.jacobian(w))
    np.testing.assert_allclose(singular_values(built), full, rtol=0, atol=1e2 * EPS * full[0])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_loss_is_zero_at_the_teacher(case: Case) -> None:
    model, w = case.build()
    loss, gradient = model.loss_and_grad(w)
    # Residuals are differences of outputs of size |f| computed by two roads: a few eps·|f| each.
    size = float(np.abs(model.jvp(w, w)).max())
    assert 0 <= loss <= (100 * EPS * size) ** 2
    assert np.abs(gradient).max() <= 100 * EPS * size**2 * model.n_params


@pytest.mark.parametrize("case", SMALL, ids=name_of)
def test_curvatures_grow_with_the_fourth_power_of_the_scale(case: Case) -> None:
    h, larger = (singular_values(case.build(scale)) ** 2 for scale in (1.0, 2.0))
    # Multiplying by 2 is exact; an svd is backward stable: sizes times eps of the largest.
    np.testing.assert_allclose(larger, 16.0 * h, rtol=0, atol=1e3 * EPS * larger[0])


def test_origin_names_the_closed_form_that_applies() -> None:
    assert [case.origin for case in CASES] == [
        "½K(3p−1)",
        "½K(3p−1)",
        "½p²(2p+1)",
        "½K(3p−2)",
        "½K(3p−2)",
        "½p(n−1)",
        "½p·rank(CZ²)",
        "½p·rank(CZ²)",
    ]


def test_builders_are_repeatable_and_independent() -> None:
    first, again, other = (Case("any", "one-hot", 5, 3, n).build()[1] for n in (15, 15, 16))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


# --- sloppy spectra -------------------------------------------------------------------------


@pytest.mark.parametrize("sloppy", SLOPPY, ids=name_of)
def test_a_sloppy_spectrum_is_log_uniform_over_ten_decades(sloppy: Sloppy) -> None:
    model, w = sloppy.build()
    assert isinstance(model, FrozenFirstLayer)
    s = np.linalg.svd(model.features, compute_uv=False)
    h = s**2 / model.n
    planned = sloppy.h_max * np.logspace(0, -10, sloppy.K)
    # s is right to a few eps·s_max, so h to 2·eps·√(h_max·h): 1e5 times eps relative at h_min.
    np.testing.assert_allclose(h, planned, rtol=1e6 * EPS)
    assert sloppy.known_llc == 0.5 * model.n_params == 0.5 * sloppy.p * sloppy.K
    assert model.loss(w) < (1e3 * EPS) ** 2 * (model.jvp(w, w) ** 2).sum()


def test_both_sloppy_networks_straddle_the_source_s_resolution() -> None:
    # At c = 1e-4 the shares of the ten decades below it: 40 % of 1e2..1e-8, 70 % of 1e-1..1e-11.
    shares = {s.name: np.mean(s.h_max * np.logspace(0, -10, s.K) < 1e-4) for s in SLOPPY}
    assert shares == {
        "sloppy_wide": pytest.approx(0.4, abs=1 / 150),
        "sloppy_low": pytest.approx(0.7, abs=1 / 150),
    }


# --- flat shares and null networks ----------------------------------------------------------


@given(st.integers(0, 10**6), st.floats(0.02, 0.98), st.floats(-8, 2))
def test_scale_for_flat_share_gives_the_share_asked(
    seed: int, share: float, log_resolution: float
) -> None:
    rng = np.random.default_rng(seed)
    h = np.sort(10.0 ** rng.uniform(-6, 3, rng.integers(2, 300)))[::-1]
    resolution = 10.0**log_resolution
    t = scale_for_flat_share(h, share, resolution)
    found = np.mean(t**4 * h < resolution)
    assert abs(found - share) <= 1 / len(h)  # a share of N curvatures is a multiple of 1/N


def test_scale_for_flat_share_on_a_teacher() -> None:
    case = Case("small", "one-hot", 7, 4, 40)
    s = singular_values(case.build())
    r = curvature.rank(s, 1e-9)
    h = curvature.curvatures(s, 1 / case.n)
    t = scale_for_flat_share(h[:r], 0.25, 1e-4)
    scaled = curvature.curvatures(singular_values(case.build(t)), 1 / case.n)
    assert curvature.flat_share(scaled, r, 1e-4) == pytest.approx(0.25, abs=1 / r)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, np.nan])
def test_a_share_outside_0_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\)"):
        scale_for_flat_share(np.ones(3), share, 1e-4)


def test_a_null_network_has_the_scales_asked_and_no_loss() -> None:
    p, K = 11, 33
    a, b = modular_pairs(p, 0.8, seed=0)
    model, w = null_network(p, K, a, b, input_scale=0.4, output_scale=1.7)
    assert model.n == len(a)
    u, v, W = np.split(w, 3)
    for part, scale in ((u, 0.4), (v, 0.4), (W, 1.7)):
        # The standard deviation of N normal draws is known to 1/√(2N): 4 of those errors.
        assert part.std() == pytest.approx(scale, rel=4 / np.sqrt(2 * p * K))
    assert model.loss(w) == pytest.approx(0.0, abs=(100 * EPS * np.abs(model.jvp(w, w)).max()) ** 2)


def test_a_small_null_network_has_the_generic_llc() -> None:
    a, b = modular_pairs(7, 0.8, seed=0)
    built = null_network(7, 5, a, b, input_scale=0.5, output_scale=2.0)
    r = curvature.rank(singular_values(built), 1e-9)
    assert 0.5 * r == theory.one_hot_generic(5, 7)
