"""measure.py: one network from weights to record, against theory called and written out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import chains
import curvature
import measure
import records
import sgld
import theory
from measure import Protocol
from qnet import FrozenFirstLayer, QuadraticNetwork, modular_pairs

Array = NDArray[np.float64]
Network = tuple[QuadraticNetwork, Array]

EPS = float(np.finfo(np.float64).eps)
SHORT = Protocol(n_beta=300.0, gamma=0.5, chains=3, steps=300, burn_in=60)
HASH = "ab" * 32


def teacher(p: int = 5, K: int = 3, fraction: float = 0.8, seed: int = 0) -> Network:
    """A planted network: weights of order one, zero loss, rank at its bound."""
    net = QuadraticNetwork.modular(p, K, *modular_pairs(p, fraction, seed))
    w = net.initial_weights(seed, 0.8)
    return net.with_targets(net.outputs(w)), w


@pytest.fixture(scope="module")
def planted() -> Network:
    return teacher()


def with_dead_neuron(p: int = 5, K: int = 3) -> Network:
    """The last neuron has no weights at all: J has no column for it that is not zero."""
    net, w = teacher(p, K)
    u, v, W = (part.copy() for part in net.unpack(w))
    u[-1] = v[-1] = W[:, -1] = 0.0
    w = net.pack(u, v, W)
    return net.with_targets(net.outputs(w)), w


def with_faint_neuron(size: float) -> Network:
    """The last neuron's weights are small: curvatures of order size⁴, each of them real."""
    net, w = teacher()
    u, v, W = (part.copy() for part in net.unpack(w))
    for part in (u, v):
        part[-1] *= size
    W[:, -1] *= size
    w = net.pack(u, v, W)
    return net.with_targets(net.outputs(w)), w


# --- the protocol ---------------------------------------------------------------------------


def test_the_defaults_are_the_settings_of_the_source() -> None:
    assert Protocol() == Protocol(1e4, 1.0, 0.2, 4, 10_000, 2_000)
    assert Protocol().resolution == 1e-4
    assert Protocol().step(h_max=0.5) == 0.2 / 5001.0
    Protocol().check()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("n_beta", 0.0, "n_beta must be positive"),
        ("n_beta", -1.0, "n_beta must be positive"),
        ("n_beta", math.nan, "n_beta must be positive"),
        ("n_beta", math.inf, "n_beta must be positive"),
        ("gamma", 0.0, "gamma must be positive"),
        ("gamma", -1.0, "gamma must be positive"),
        ("gamma", math.nan, "gamma must be positive"),
        ("step_constant", 0.0, "step_constant must be positive"),
        ("step_constant", 4.0, "below the stability limit 4, got 4.0"),
        ("step_constant", math.nan, "step_constant must be positive"),
        ("chains", 0, "chains must be at least 1"),
        ("steps", 2_009, "leave at least 10 steps"),
        ("burn_in", 10_000, "leave at least 10 steps"),
        ("burn_in", -1, "burn_in must be"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(Protocol(), **{name: value}).check()  # type: ignore[arg-type]


# --- the spectrum ---------------------------------------------------------------------------


def test_the_routes_agree(planted: Network) -> None:
    net, w = planted
    svd, qr, gram = (measure.read_curvature(net, w, route) for route in ("svd", "qr", "gram"))
    free = measure.read_curvature(net, w, "matrix-free")
    assert svd.h is not None and qr.h is not None and gram.h is not None
    rank = 3 * (3 * 5 - 2)
    assert (svd.rank, qr.rank, gram.rank) == (rank, rank, rank)
    assert (svd.tolerance, qr.tolerance, gram.tolerance) == (1e-9, 1e-9, 1e-6)
    # The routes' own floors bound |Δs| by floor·s_max; the largest floor is the Gram route's.
    assert svd.singular_values is not None and gram.singular_values is not None
    s, floor = np.sqrt(svd.h), gram.singular_values.floor
    assert np.abs(np.sqrt(qr.h) - s).max() <= 2 * svd.singular_values.floor * s[0]
    assert np.abs(np.sqrt(gram.h) - s).max() <= (floor + svd.singular_values.floor) * s[0]
    # d = 45 is solved densely: d products of m terms, 1e3·eps.
    assert free.h_max == pytest.approx(svd.h_max, rel=1e3 * EPS)
    assert free.h is None and free.rank is None and free.singular_values is None


def test_curvatures_are_squares_of_singular_values_over_n(planted: Network) -> None:
    net, w = planted
    found = measure.read_curvature(net, w)
    s = np.linalg.svd(net.jacobian(w), compute_uv=False)
    assert found.h is not None
    # relative to h_max: an svd's error is about 10 eps·s_max at this size
    assert np.abs(found.h - s**2 / net.n).max() <= 100 * EPS * found.h[0]
    assert found.h_max == found.h[0]


def test_the_gap_stands_at_the_cut(planted: Network) -> None:
    net, w = planted
    found = measure.read_curvature(net, w)
    assert found.h is not None and found.rank is not None
    assert found.gap == pytest.approx(np.sqrt(found.h[found.rank - 1] / found.h[found.rank]))
    assert (found.largest_gap, found.largest_gap_rank) == (found.gap, found.rank)


def test_nothing_behind_the_cut_is_no_infinity() -> None:
    net, w = teacher(p=3, K=8, fraction=1.0)  # p(n−1) = 24 rows count, J has 27
    whole = measure.read_curvature(net, w)
    assert whole.singular_values is not None and whole.rank == 24
    s = curvature.SingularValues(whole.singular_values[:24], "svd", (24, 72))
    assert measure.interpret(net, s).gap is None


def test_zero_weights_have_rank_zero_and_no_curvature() -> None:
    net, _ = teacher()
    w = np.zeros(net.n_params)
    found = measure.read_curvature(net, w)
    assert (found.rank, found.h_max, found.gap) == (0, 0.0, None)
    record = measure.curvature_record(net, w, found, 1e-4)
    assert (record["half_rank"], record["flat_share"], record["h_min"]) == (0.0, 0.0, None)
    assert not record["certified"]
    predicted = measure.predict(net, w, found, SHORT)
    assert (predicted.expected_llc, predicted.settled_share) == (0.0, None)


def test_an_unknown_route_is_refused(planted: Network) -> None:
    with pytest.raises(ValueError, match="unknown route 'lu': choose one of svd, qr, gram, matrix"):
        measure.read_curvature(*planted, route="lu")


def test_a_model_without_an_operator_goes_the_gram_route_through_its_jacobian() -> None:
    net, w = teacher()
    frozen = net.frozen(w)
    assert not hasattr(frozen, "jacobian_operator")
    at = frozen.output_weights(w)
    gram, svd = measure.read_curvature(frozen, at, "gram"), measure.read_curvature(frozen, at)
    assert gram.rank == svd.rank == 5 * 3
    assert gram.h_max == pytest.approx(svd.h_max, rel=1e3 * EPS)


# --- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["svd", "qr", "gram"])
def test_too_little_memory_is_refused_before_J_is_made(
    route: str, planted: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, w = planted
    monkeypatch.setattr(curvature, "available_memory", lambda: 1_000)
    monkeypatch.setattr(QuadraticNetwork, "jacobian", lambda net, w: pytest.fail("J was made"))
    with pytest.raises(curvature.InsufficientMemory, match=r"needs .* GB.*are available.*matrix"):
        measure.read_curvature(net, w, route)


def test_the_gram_route_and_the_matrix_free_one_need_less(monkeypatch: pytest.MonkeyPatch) -> None:
    net, w = teacher(p=11, K=33)
    available = curvature.memory_needed((net.n * net.p, net.n_params), "gram")
    monkeypatch.setattr(curvature, "available_memory", lambda: available)
    monkeypatch.setattr(QuadraticNetwork, "jacobian", lambda net, w: pytest.fail("J was made"))
    with pytest.raises(curvature.InsufficientMemory, match="use --route gram"):
        measure.read_curvature(net, w, "svd")
    assert measure.read_curvature(net, w, "gram").rank == net.rank_bound()
    monkeypatch.setattr(curvature, "available_memory", lambda: 1_000)
    assert measure.read_curvature(net, w, "matrix-free").h_max > 0


def test_a_system_that_does_not_tell_its_memory_is_trusted(
    planted: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curvature, "available_memory", lambda: None)
    assert measure.read_curvature(*planted).rank == 39


# --- spectra on disk ------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["svd", "gram"])
def test_a_kept_spectrum_comes_back_bit_by_bit(
    route: str, planted: Network, tmp_path: Path
) -> None:
    net, w = planted
    found, path = measure.read_curvature(net, w, route), tmp_path / "s.npz"
    measure.write_spectrum(path, net, found, HASH)
    again = measure.read_spectrum(path, net, HASH)
    assert found.h is not None and again.h is not None
    assert found.singular_values is not None and again.singular_values is not None
    assert again.h.tolist() == found.h.tolist()
    assert again.singular_values.floor == found.singular_values.floor
    assert (again.rank, again.gap, again.route) == (found.rank, found.gap, route)


def test_the_spectrum_of_another_network_is_refused(planted: Network, tmp_path: Path) -> None:
    net, w = planted
    path = tmp_path / "s.npz"
    measure.write_spectrum(path, net, measure.read_curvature(net, w), HASH)
    with pytest.raises(records.RecordError, match=r"of network abababababab, not of cdcdcdcdcdcd"):
        measure.read_spectrum(path, net, "cd" * 32)


@pytest.mark.parametrize("lost", ["route", "singular_values"])
def test_a_spectrum_without_an_array_is_refused(
    lost: str, planted: Network, tmp_path: Path
) -> None:
    net, w = planted
    path = tmp_path / "s.npz"
    measure.write_spectrum(path, net, measure.read_curvature(net, w), HASH)
    arrays = records.read_npz(path)
    del arrays[lost]
    records.write_npz(path, arrays)
    with pytest.raises(records.RecordError, match=f"it has no array .*'{lost}'; remove it"):
        measure.read_spectrum(path, net, HASH)


def test_the_matrix_free_route_has_no_spectrum_to_keep(planted: Network, tmp_path: Path) -> None:
    found = measure.read_curvature(*planted, route="matrix-free")
    with pytest.raises(ValueError, match="'matrix-free' has no spectrum"):
        measure.write_spectrum(tmp_path / "s.npz", planted[0], found, HASH)


# --- the predicted reading ------------------------------------------------------------------


def law_by_hand(h: Array, at: Protocol, step: float) -> float:
    """E[λ̂] by its definition: every direction, every averaged step, one at a time."""
    total = 0.0
    for curved in h:
        a = at.n_beta * curved + at.gamma
        rho = 1.0 - step * a / 2.0
        variance = 0.0
        for t in range(at.steps):
            if t >= at.burn_in:
                total += at.n_beta * curved * variance / 2.0 / (at.steps - at.burn_in)
            variance = rho * rho * variance + step
    return total


def test_the_prediction_is_the_law_at_the_settings_run(planted: Network) -> None:
    net, w = planted
    found = measure.read_curvature(net, w)
    predicted = measure.predict(net, w, found, SHORT)
    assert found.h is not None
    step = SHORT.step_constant / (SHORT.n_beta * found.h[0] + SHORT.gamma)
    by_hand = law_by_hand(found.h, SHORT, step)
    # 45·300 positive terms after recursions of 300 rounded steps: 1e4 eps
    assert predicted.expected_llc == pytest.approx(by_hand, rel=1e4 * EPS)
    assert predicted.effective_dimension == pytest.approx(
        sum(0.5 * x / (x + SHORT.gamma / SHORT.n_beta) for x in found.h), rel=100 * EPS
    )
    variance = theory.sgld_llc_variance(
        found.h, n_beta=300.0, gamma=0.5, step=step, steps=300, burn_in=60, chains=3
    )
    assert predicted.standard_deviation == variance**0.5
    endless = theory.sgld_stationary_llc(found.h, n_beta=300.0, gamma=0.5, step=step)
    assert predicted.expected_llc is not None
    assert predicted.settled_share == predicted.expected_llc / endless
    assert predicted.probe_error is None


@pytest.mark.parametrize("changed", [{"gamma": 20.0}, {"burn_in": 0}, {"n_beta": 7.5}])
def test_the_prediction_would_notice_a_wrong_setting(
    changed: dict[str, float], planted: Network
) -> None:
    net, w = planted
    found = measure.read_curvature(net, w)
    right = measure.predict(net, w, found, SHORT)
    wrong = measure.predict(net, w, found, replace(SHORT, **changed))  # type: ignore[arg-type]
    assert right.expected_llc is not None and wrong.expected_llc is not None
    assert abs(wrong.expected_llc / right.expected_llc - 1.0) > 0.01


def test_without_a_matrix_the_effective_dimension_is_within_4_errors(planted: Network) -> None:
    net, w = planted
    exact = measure.predict(net, w, measure.read_curvature(net, w), SHORT)
    found = measure.read_curvature(net, w, "matrix-free")
    free = measure.predict(net, w, found, SHORT)
    assert free.probe_error is not None and 0 < free.probe_error < 1
    # two-sided at 4: a right program fails once in 16,000 seeds (32 probes: nearly normal)
    assert abs(free.effective_dimension - exact.effective_dimension) <= 4 * free.probe_error
    assert (free.expected_llc, free.standard_deviation, free.settled_share) == (None, None, None)


# --- readings -------------------------------------------------------------------------------


def test_the_sampler_runs_at_the_protocol_and_agrees_with_its_law() -> None:
    """On a linear network, where the law is exact."""
    net, w = teacher()
    frozen: FrozenFirstLayer = net.frozen(w)
    at = frozen.output_weights(w)
    found = measure.read_curvature(frozen, at)
    protocol = replace(SHORT, chains=8)
    run = measure.sample(frozen, at, found, protocol, seed=(5, 3, 0))
    assert run.settings == sgld.Settings(
        300.0, 0.5, protocol.step(found.h_max), 8, 300, 60, (5, 3, 0)
    )
    z = measure.deviation(run, measure.predict(frozen, at, found, protocol))
    assert z is not None and abs(z) <= 4.0  # once in 16,000 seeds


def reading(llc: float, error: float) -> sgld.Sample:
    """A sample of which only λ̂ and its error matter."""
    blocks = np.full(chains.BLOCKS, llc)
    one = chains.Reading(llc, np.array([llc]), error, None, error, 1.0, 1.0, blocks, 0, ())
    settings = sgld.Settings(1.0, 1.0, 0.1, 1, 20, 0, 0)
    nothing = np.zeros((1, 2))
    return sgld.Sample(settings, one, 0.0, nothing, nothing, nothing, math.nan, ())


@pytest.mark.parametrize(
    ("error", "spread", "z"),
    [(2.0, 1.0, -1.5), (1.0, 2.0, -1.5), (0.5, 0.25, -6.0)],
)
def test_z_is_in_units_of_the_larger_error(error: float, spread: float, z: float) -> None:
    predicted = measure.Prediction(12.0, 10.0, spread, 1.0)
    assert measure.deviation(reading(7.0, error), predicted) == z


def test_without_a_law_there_is_no_z() -> None:
    predicted = measure.Prediction(12.0, None, None, None, 0.5)
    assert measure.deviation(reading(7.0, 1.0), predicted) is None


# --- records --------------------------------------------------------------------------------


def test_a_certified_network() -> None:
    net, w = teacher()
    found = measure.read_curvature(net, w)
    record = measure.curvature_record(net, w, found, resolution=1e-3)
    assert found.h is not None
    assert (record["rank"], record["rank_bound"], record["certified"]) == (39, 39, True)
    assert record["half_rank"] == 19.5
    assert record["bracket"] == [19.5, 19.5]  # D = 45 − 6 = 39: nothing is left undecided
    assert record["clean_cut"] and record["gap"] > 1e9
    counted = found.h[:39]
    assert record["flat_share"] == sum(h < 1e-3 for h in counted) / 39
    assert (record["h_median"], record["h_min"]) == (np.median(counted), counted[-1])
    assert (record["resolution"], record["route"]) == (1e-3, "svd")


def test_a_dead_neuron_widens_the_bracket_around_the_known_coefficient() -> None:
    net, w = with_dead_neuron()
    record = measure.curvature_record(net, w, measure.read_curvature(net, w), 1e-4)
    assert (record["rank"], record["certified"]) == (26, False)
    # A dead neuron has its shift direction and no scaling direction: D = 45 − 3 − 2.
    assert record["bracket"] == [13.0, 13.0 + (40 - 26) / 4]
    lower, upper = record["bracket"]
    assert lower < 13.0 + theory.dead_neuron(5, one_hot=True) <= upper  # λ = 13 + 9/4


def test_a_cut_that_is_not_clean_leaves_the_bracket_open_above() -> None:
    """The Gram route cannot see curvatures that the svd counts: its bracket must still hold λ."""
    net, w = with_faint_neuron(1e-3)
    svd = measure.curvature_record(net, w, measure.read_curvature(net, w), 1e-4)
    assert svd["certified"] and svd["bracket"] == [19.5, 19.5]
    gram = measure.curvature_record(net, w, measure.read_curvature(net, w, "gram"), 1e-4)
    assert gram["rank"] < 39 and not gram["clean_cut"] and not gram["certified"]
    assert gram["bracket"][0] <= 19.5 <= gram["bracket"][1]
    by_rank_alone = theory.bracket(gram["rank"], 39).upper
    assert by_rank_alone < 19.5  # what the bracket would wrongly have said


def test_without_a_matrix_the_record_has_the_same_fields_and_no_rank(planted: Network) -> None:
    net, w = planted
    free = measure.curvature_record(net, w, measure.read_curvature(net, w, "matrix-free"), 1e-4)
    full = measure.curvature_record(net, w, measure.read_curvature(net, w), 1e-4)
    assert set(free) == set(full)
    known = {name for name, value in free.items() if value is not None}
    assert known == {"route", "resolution", "h_max", "rank_bound"}


def test_the_formulas_written_out() -> None:
    net, _ = teacher(p=5, K=3)  # n = 20
    assert measure.formulas(net, K_eff=2) == {
        "paper": 0.5 * 2 * 14,
        "one_hot_generic": 0.5 * 3 * 13,
        "wide_limit": 0.5 * 5 * 19,
    }


def test_the_reading_carries_all_its_settings_and_goes_into_json(planted: Network) -> None:
    net, w = planted
    found = measure.read_curvature(net, w)
    run = measure.sample(net, w, found, SHORT, seed=(5, 3, 0))
    record = measure.reading_record(run, SHORT)
    assert record["settings"] == {
        "n_beta": 300.0,
        "gamma": 0.5,
        "step_constant": 0.2,
        "step": SHORT.step(found.h_max),
        "chains": 3,
        "steps": 300,
        "burn_in": 60,
        "seed": (5, 3, 0),
    }
    assert record["burn_in_discarded"] == 60
    assert record["llc"] == np.mean(run.llc_per_chain)
    assert record["standard_error"] == run.standard_error
    assert record["distance"] == np.mean(run.distances[:, -1])
    assert 0 < record["mala_acceptance"] <= 1
    assert record["settled"] == (record["doubts"] == [])
    assert '"llc"' in records.to_json(record)


def test_an_acceptance_nobody_looked_at_is_none_in_the_record() -> None:
    assert measure.reading_record(reading(7.0, 1.0), SHORT)["mala_acceptance"] is None


# --- over random networks -------------------------------------------------------------------


@given(
    p=st.integers(2, 6),
    K=st.integers(1, 7),
    share=st.floats(0.3, 1.0),
    log_scale=st.floats(-3.0, 3.0),
    seed=st.integers(0, 1_000),
)
def test_brackets_and_predictions_of_random_teachers(
    p: int, K: int, share: float, log_scale: float, seed: int
) -> None:
    net = QuadraticNetwork.modular(p, K, *modular_pairs(p, max(share, 2.5 / p**2), seed))
    w = net.initial_weights(seed, 10.0**log_scale)
    net = net.with_targets(net.outputs(w))
    found = measure.read_curvature(net, w)
    assert found.h is not None and found.rank is not None
    c = 0.1 * found.h_max
    record = measure.curvature_record(net, w, found, c)
    lower, upper = record["bracket"]
    assert lower == record["half_rank"] <= upper
    assert record["rank"] <= record["rank_bound"]
    # generic weights attain the bound, at every scale: rank does not depend on units
    assert record["certified"]
    at = replace(SHORT, n_beta=100.0, gamma=100.0 * c)
    predicted = measure.predict(net, w, found, at)
    assert predicted.expected_llc is not None
    # each direction counts less than ½ … and the step inflates a reading by at most 1/(1 − s/4)
    assert 0 < predicted.effective_dimension < lower + len(found.h) * EPS
    assert 0 < predicted.expected_llc <= predicted.effective_dimension / (1 - 0.2 / 4) * (1 + 1e-12)
