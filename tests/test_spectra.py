"""Studies without a sampler, on small networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import curvature
import measure
import networks
import records
import spectra
import tables
import theory
import train
from jobs import Setup
from networks import Size

SIZES = (Size(5, 3, 0.8), Size(7, 4, 0.8))
WIDE = (Size(5, 12, 0.8),)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Small sizes, and random weights in the place of trained ones: nothing is trained."""

    def random(net: train.QuadraticNetwork, recipe: train.Recipe, *, seed: int) -> train.Trained:
        return train.Trained(net.initial_weights(seed, 0.5), 10, 0)

    def kept(net: train.QuadraticNetwork, w: networks.Array) -> train.Polished:
        return train.Polished(w, 0, float(net.loss(w)), 0.0)

    monkeypatch.setattr(train, "train", random)
    monkeypatch.setattr(train, "polish_adam", kept)
    monkeypatch.setattr(networks, "VERDICT", SIZES)
    monkeypatch.setattr(spectra, "SETS", (("verdict", SIZES), ("too-wide", WIDE)))
    monkeypatch.setattr(spectra, "QR_SIZES", SIZES[:1])
    monkeypatch.setattr(spectra, "RANDOM_SIZES", SIZES[:1])
    return Setup(tmp_path / "data", tmp_path / "runs", quiet=True)


def test_the_networks_study_leaves_weights_spectra_and_ranks(setup: Setup) -> None:
    rows = spectra.study_networks(setup)
    assert [row["network"] for row in rows] == [s.name(k) for s, k in networks.each(SIZES + WIDE)]
    assert [row["study"] for row in rows] == 6 * ["verdict"] + 3 * ["too-wide"]
    assert records.read_csv(setup.data / "networks.csv", tables.types("networks")) == rows
    for row in rows:
        assert row["error"] == ""
        path = networks.checkpoint_path(setup.data, row["network"])
        checkpoint = records.read_checkpoint(path)
        net, w = networks.opened(checkpoint)
        kept = measure.read_spectrum(
            networks.spectrum_path(setup.data, row["network"]), net, row["checkpoint_sha256"]
        )
        s = np.linalg.svd(net.jacobian(w), compute_uv=False)
        assert kept.singular_values is not None
        # Two backward stable algorithms: each within the svd's own floor of s_max.
        floor = curvature.rounding_floor(net.jacobian(w).shape, "svd")
        assert np.abs(kept.singular_values - s).max() <= 2.0 * floor * s[0]
        assert row["rank"] == row["exact_lower"] <= row["rank_bound"]
        assert row["half_rank"] == row["bracket_low"] == 0.5 * row["rank"]


def test_every_column_of_networks_is_filled(setup: Setup) -> None:
    for row in spectra.study_networks(setup):
        empty = {name for name, value in row.items() if value in (None, "")}
        assert empty <= {"error", "gap", "largest_gap"}


def test_a_spectrum_of_the_same_weights_is_not_made_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = spectra.network_work(SIZES[0], 0, setup.data)[0]
    again = spectra.network_work(SIZES[0], 0, setup.data)[0]
    assert first["seconds_spectrum"] > 0 and "seconds_spectrum" not in again
    assert first["rank"] == again["rank"]
    monkeypatch.setattr(spectra.networks, "SEEDS", (0,))
    w = networks.opened(
        records.read_checkpoint(networks.checkpoint_path(setup.data, SIZES[0].name(0)))
    )[1]
    other = train.Trained(2.0 * w, 10, 0)
    monkeypatch.setattr(train, "train", lambda net, recipe, seed: other)
    assert spectra.network_work(SIZES[0], 0, setup.data)[0]["seconds_spectrum"] > 0


def test_a_network_that_does_not_train_is_a_row_with_its_error(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collapsing(
        net: train.QuadraticNetwork, recipe: train.Recipe, *, seed: int
    ) -> train.Trained:
        if seed == 1:
            raise train.TrainingFailed("training collapsed to zero weights at step 30")
        return train.Trained(net.initial_weights(seed, 0.5), 10, 0)

    monkeypatch.setattr(train, "train", collapsing)
    rows = spectra.study_networks(setup)
    assert len(rows) == 9
    for row in rows:
        failed = row["seed"] == 1
        assert (row["error"] != "") is failed
        assert (row["rank"] is None) is failed
        assert row["network"] and row["n"] and row["study"]  # still says which it was


def test_the_sweep_has_every_route_and_tolerance(setup: Setup) -> None:
    spectra.study_networks(setup)
    rows = spectra.study_tolerance(setup)
    kinds = [(row["network"], row["weights"], row["route"]) for row in rows]
    assert len(set(kinds)) == 6 + 6 + 1 + 1
    assert len(rows) == 9 * len(set(kinds))
    for row in rows:
        grokked_svd = (row["weights"], row["route"]) == ("grokked", "svd")
        assert (row["seconds"] is None) is grokked_svd
        assert (row["error_against_svd"] is None) is (grokked_svd or row["weights"] == "random")
        assert row["ratio_generic"] == row["rank"] / row["generic_rank"]
        assert row["below_floor"] is (row["route"] == "gram" and row["tolerance"] < 1e-6)


def test_the_routes_agree_as_far_as_they_can(setup: Setup) -> None:
    spectra.study_networks(setup)
    for row in spectra.study_tolerance(setup):
        if row["error_against_svd"] is not None:
            shape = (row["n"] * row["p"], row["d"])
            floor = curvature.rounding_floor(shape, row["route"])
            assert row["error_against_svd"] <= floor


def test_smooth_model_and_flat_share_are_those_of_the_counted_directions(setup: Setup) -> None:
    h = np.array([1.0, 1e-4, 1e-6, 1e-16])
    net = SIZES[0].network(0)
    s = curvature.SingularValues(np.sqrt(h * net.n), "svd", (100, 45))
    rows = list(spectra._sweep(s, net, {}))
    at = {round(np.log10(row["tolerance"])): row for row in rows}
    assert (at[-4]["rank"], at[-4]["flat_share"]) == (3, pytest.approx(1 / 3))
    # 1/2·(1/(1+1e-4) + 1/2 + 0.01/1.01) to rounding
    smooth = 0.5 * (1 / 1.0001 + 0.5 + 0.01 / 1.01)
    assert at[-4]["smooth_model"] == pytest.approx(smooth, rel=1e-12)
    assert at[-9]["rank"] == 4 and at[-9]["gap"] is None


def test_random_weights_have_the_spread_of_the_grokked_ones(setup: Setup) -> None:
    made = networks.make(Size(17, 51, 0.7), 0).checkpoint
    w = spectra.random_weights(made)
    u, v, W = networks.opened(made)[0].unpack(w)
    # 1734 and 867 draws: four standard errors of a standard deviation are 4/√(2·867) < 0.1
    assert np.concatenate([u, v]).std() == pytest.approx(
        np.concatenate([made.u, made.v]).std(), rel=0.1
    )
    assert W.std() == pytest.approx(made.W.std(), rel=0.1)
    assert not np.allclose(w, networks.opened(made)[1])


@pytest.mark.parametrize("p", [5, 7])
@pytest.mark.parametrize("per_frequency", [4, 6])
def test_a_fourier_solution_has_the_rank_of_its_formula(p: int, per_frequency: int) -> None:
    row = spectra.fourier_work(p, per_frequency)[0]
    assert row["rank"] == row["exact_rank_ideal"] == row["rank_formula"]
    assert row["exact_rank_stored"] >= row["rank_formula"]  # rounding is generic
    assert row["loss"] < 1e-28  # rounding: squares of a few ulps of outputs of order 1
    assert row["bracket_low"] == 0.5 * row["rank_formula"]
    D = 3 * p * row["K"] - 2 * row["K"]
    wide = theory.wide_limit(p * p, p)
    assert row["bracket_high"] == min(theory.bracket(row["rank"], D).upper, wide)
    assert not row["formula_inside"]


def test_the_known_example_of_the_paper_above_its_bracket() -> None:
    """p = 11, 6 per frequency: ½·30·32 = 480 against [705/2, 705/2 + (930 − 705)/4]."""
    assert spectra.fourier_rank(11, 6) == 705
    assert theory.bracket(705, 930) == (352.5, 408.75)
    assert theory.paper_closed_form(30, 11) == 480.0


def test_the_fourier_study_covers_four_primes_and_both_constructions(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(spectra.FOURIER)) == 8
    monkeypatch.setattr(spectra, "FOURIER", ((5, 4), (5, 6)))
    rows = spectra.study_fourier(setup)
    assert [(row["p"], row["per_frequency"], row["K"]) for row in rows] == [(5, 4, 8), (5, 6, 12)]
    assert [row["past_width_limit"] for row in rows] == [False, True]  # 12·13 > 5·24
    assert all(value not in (None, "") for row in rows for k, value in row.items() if k != "error")


def test_the_studies_have_the_names_of_the_command_line() -> None:
    tables_filled = {name: study.table for name, study in spectra.STUDIES.items()}
    assert tables_filled == {
        "networks": "networks",
        "tolerance": "rank_sweep",
        "fourier": "fourier",
    }
