"""The sampling studies: their job lists, and each of them end to end on small random networks.

No trained network is sampled here: random weights take the place of trained ones, so the readings
mean nothing and only the columns, the gate and the frame are tested. What a reading means is tested
in test_sgld.py and test_measure.py.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrate
import gate
import measure
import networks
import records
import run_llc
import sgld
import spectra
import studies
import tables
import theory
import train
import verdict
from jobs import Job, Row, Setup
from measure import Protocol
from networks import Size

SIZES = (Size(5, 3, 0.8), Size(5, 4, 0.8))
WIDE = (Size(5, 12, 0.8),)
# A stiff spring: from random weights, where no loss is zero, a short chain then stays near.
SHORT = Protocol(n_beta=1e5, gamma=1e3, step_constant=0.2, chains=2, steps=60, burn_in=20)
SOURCE = dataclasses.replace(SHORT, step_constant=0.1)
AT_FROZEN = {"verdict", "memorising", "trajectory", "convergence"}  # others: at the source's


def freeze(data: Path, protocol: Protocol = SHORT) -> None:
    """A calibration that vouches for the sampler's code at these settings."""
    records.write_bytes(data / gate.GRID, b"grid\n")
    document = {
        "settings": asdict(protocol),
        "grid_sha256": records.sha256_file(data / gate.GRID),
        "code_sha256": gate.sampler_code_hash(),
    }
    document["sha256"] = gate.content_hash(document)
    records.write_json(data / gate.CALIBRATION, document)


def random_weights(
    net: train.QuadraticNetwork, recipe: train.Recipe, *, seed: int
) -> train.Trained:
    return train.Trained(net.initial_weights(seed, 0.5), 10, 4)


def untouched(net: Any, w: networks.Array) -> train.Polished:
    return train.Polished(np.array(w), 0, float(net.loss(w)), 0.0)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Small sizes, random weights, short chains, and settings frozen."""
    monkeypatch.setattr(train, "train", random_weights)
    # At the smaller scale of the recipe the residual term rules the Hessian, and chains diverge.
    monkeypatch.setattr(train, "Recipe", functools.partial(train.Recipe, initial_scale=0.5))
    for polish in ("polish_adam", "polish_lbfgs"):
        monkeypatch.setattr(train, polish, untouched)
    monkeypatch.setattr(networks, "VERDICT", SIZES)
    monkeypatch.setattr(networks, "TOO_WIDE", WIDE)
    monkeypatch.setattr(spectra, "SETS", (("verdict", SIZES), ("too-wide", WIDE)))
    monkeypatch.setattr(studies, "POLISHED", SIZES[:1])
    monkeypatch.setattr(studies, "DRIFTING", SIZES)
    monkeypatch.setattr(studies, "STOPS", (0, 2))
    monkeypatch.setattr(studies, "DELAYED", SIZES[0])
    monkeypatch.setattr(studies, "SOURCE", SOURCE)
    monkeypatch.setattr(studies, "LONG", {"chains": 2, "steps": 100})
    monkeypatch.setattr(studies, "GRID_LENGTH", {"chains": 2, "steps": 40, "burn_in": 10})
    ready = Setup(tmp_path / "data", tmp_path / "runs", quiet=True)
    freeze(ready.data)
    spectra.study_networks(ready)
    return ready


# ---- the plan ----------------------------------------------------------------------------------


def planned(study: str, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs a study hands to the frame, none of them done."""
    plan: list[Job] = []

    def note(setup: Setup, study: str, table: str, work: Any, todo: list[Job]) -> list[Row]:
        plan.extend(todo)
        return []

    with monkeypatch.context() as patched:
        patched.setattr(studies.jobs, "finish", note)
        studies.STUDIES[study].run(setup)
    return plan


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """The real sizes, with tables of networks that were never trained."""
    ready = Setup(tmp_path / "data", tmp_path / "runs", quiet=True)
    freeze(ready.data, Protocol(gamma=10.0, step_constant=0.5))
    chosen = networks.each(networks.VERDICT + networks.TOO_WIDE)
    rows = [tables.row("networks", networks.identified(*one)) for one in chosen]
    records.write_csv(ready.data / "networks.csv", tables.types("networks"), rows)
    for table in ("source_settings", "too_wide"):
        records.write_csv(ready.data / f"{table}.csv", tables.types(table), [])
    monkeypatch.setattr(train, "train", lambda net, recipe, seed: train.Trained(None, 0, 7480))  # type: ignore[arg-type]
    return ready


@pytest.mark.parametrize(
    ("study", "count"),
    [
        ("verdict", 18),
        ("source-settings", 18),
        ("too-wide", 15),
        ("memorising", 18 + 5),
        ("sensitivity", 6 * 7),
        ("grid-selection", 6 * 16),
        ("settling", 6 + 5),
        ("polish", 5),
        ("trajectory", 22),
        ("convergence", 2 * 3 * 8),
    ],
)
def test_a_study_has_its_jobs_each_once(
    study: str, count: int, full: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(study, full, monkeypatch)
    assert len({job.key for job in plan}) == len(plan) == count
    asked = [a for job in plan for a in job.arguments if isinstance(a, studies.Ask)]
    assert len(asked) == count
    expected = gate.CALIBRATED if study in AT_FROZEN else gate.NOT_CALIBRATED
    assert {a.status for a in asked} == {expected}
    assert len({a.calibration_sha256 for a in asked}) == 1


def test_all_of_it_takes_an_hour_on_two_cores(full: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    total = sum(
        job.seconds for study in studies.STUDIES for job in planned(study, full, monkeypatch)
    )
    assert total < 2 * 3600


@pytest.mark.parametrize("study", ["source-settings", "too-wide", "polish"])
def test_the_settings_of_the_source_are_those_of_its_every_reading(
    study: str, full: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in planned(study, full, monkeypatch):
        asked = next(a for a in job.arguments if isinstance(a, studies.Ask))
        assert _values(asked.protocol) == (1e4, 1.0, 0.2, 4, 10_000, 2_000)


def test_sensitivity_changes_one_setting_at_a_time(
    full: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = asdict(Protocol())
    for job in planned("sensitivity", full, monkeypatch):
        asked = next(a for a in job.arguments if isinstance(a, studies.Ask))
        changed = {k: v for k, v in asdict(asked.protocol).items() if v != frozen[k]}
        name, value = job.known["changed"].split("=")
        assert changed == {name: float(value)}


def test_the_grid_is_the_one_of_the_calibration(
    full: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {astuple for _, _, pr in calibrate.grid_settings() for astuple in [_values(pr)]}
    plan = planned("grid-selection", full, monkeypatch)
    ours = [_values(a.protocol) for j in plan for a in j.arguments if isinstance(a, studies.Ask)]
    assert set(ours) == theirs and len(theirs) == 16


def _values(protocol: Protocol) -> tuple[Any, ...]:
    return dataclasses.astuple(protocol)


def test_no_two_studies_share_the_noise_of_their_chains(
    full: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for verdict, source-settings, sensitivity and grid: these differ in settings alone."""
    seeds: list[tuple[int, ...]] = []
    for study in ("verdict", "too-wide", "settling"):
        for job in planned(study, full, monkeypatch):
            seeds.append(job.arguments[1])
    assert len(set(seeds)) == len(seeds) == 18 + 15 + 11
    words = (
        studies.MEMORISING,
        studies.SETTLING,
        studies.POLISHING,
        studies.TRAJECTORY,
        studies.CONVERGENCE,
    )
    assert len(set(words)) == len(words) and 0 not in words


def test_looks_lie_around_the_grok() -> None:
    steps = studies.looks(7480)
    assert steps[0] == 0 and steps[-1] == 4 * 7480
    assert list(steps) == sorted(set(steps))
    assert sum(7480 / 4 <= t <= 1.1 * 7480 for t in steps) >= 9
    assert len(studies.looks(1)) >= 2


def test_the_stops_reach_from_300_to_20000_steps() -> None:
    assert (studies.STOPS[0], studies.STOPS[-1], len(studies.STOPS)) == (300, 20_000, 8)


# ---- the gate ----------------------------------------------------------------------------------


@pytest.mark.parametrize("study", studies.STUDIES)
def test_without_frozen_settings_no_study_starts(
    study: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    (setup.data / gate.CALIBRATION).unlink()
    monkeypatch.setattr(sgld, "sample", None)  # a call would be a TypeError
    with pytest.raises(gate.GateClosed, match="freeze the settings"):
        studies.STUDIES[study].run(setup)


@pytest.mark.parametrize("study", studies.STUDIES)
def test_with_a_sampler_that_passed_no_calibration_no_study_starts(
    study: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "sampler_code_hash", lambda: "0" * 64)
    with pytest.raises(gate.GateClosed, match="has passed no calibration"):
        studies.STUDIES[study].run(setup)


# ---- end to end --------------------------------------------------------------------------------


def test_every_study_end_to_end_fills_its_table(setup: Setup) -> None:
    sha256 = gate.read_frozen(setup.data).sha256
    rows = {name: study.run(setup) for name, study in studies.STUDIES.items()}
    counts = {study: len(found) for study, found in rows.items()}
    assert counts == {
        "verdict": 6,
        "source-settings": 6,
        "too-wide": 3,
        "memorising": 7,
        "sensitivity": 14,
        "grid-selection": 32,
        "settling": 3,
        "polish": 2,
        "trajectory": len(studies.looks(4)),
        "convergence": 12,
    }
    for study, found in rows.items():
        table = studies.STUDIES[study].table
        assert records.read_csv(setup.data / f"{table}.csv", tables.types(table)) == found
        for row in found:
            assert row["error"] == "", (study, row["error"])
            assert row["calibration_sha256"] == sha256
            empty = {name for name, value in row.items() if value in (None, "")}
            # Where the chains end is asked at the frozen settings alone.
            unasked = set(tables.ENDS) if study in ("source-settings", "too-wide") else set()
            allowed = {"error", "doubts", "gap", "largest_gap", "ratio_half_rank"} | unasked
            assert empty <= allowed, study


def test_a_verdict_row_agrees_with_its_parts(setup: Setup) -> None:
    row = studies.study_verdict(setup)[0]
    at = studies.shipped(setup.data, row["network"])
    run = measure.sample(at.net, at.w, at.found, SHORT, seed=(5, 3, 0))
    assert row["llc"] == run.llc and row["standard_error"] == run.standard_error
    assert row["chains_seed"] == "5 3 0"
    assert row["kappa"] == row["h_max"] / SHORT.resolution
    assert row["step"] == SHORT.step(row["h_max"])
    predicted = measure.predict(at.net, at.w, at.found, SHORT)
    assert (row["law"], row["law_sd"]) == (predicted.expected_llc, predicted.standard_deviation)
    assert row["settled_share"] == pytest.approx(row["law"] / row["law_stationary"], rel=1e-12)
    assert row["effective_dimension"] <= row["law_stationary"]  # the step inflates
    assert row["ratio_paper"] == row["llc"] / (0.5 * 3 * 14)
    assert row["ratio_generic"] == row["llc"] / (0.5 * 3 * 13)
    traces = records.read_npz(setup.data / "traces" / "llc" / f"{row['network']}.npz")
    assert (traces["losses"] == run.traces).all() and traces["losses"].shape == (2, 6)
    assert (traces["distances"] == run.distances).all()


def test_the_end_point_is_where_the_first_chain_ended(setup: Setup) -> None:
    """With a polish that does nothing the end is the chain's own last point."""
    row = studies.study_verdict(setup)[0]
    at = studies.shipped(setup.data, row["network"])
    run = measure.sample(at.net, at.w, at.found, SHORT, seed=(5, 3, 0))
    end = run.end_points[0]
    assert row["end_distance"] == pytest.approx(np.linalg.norm(end - at.w), rel=1e-12)
    h = np.linalg.eigvalsh(at.net.jacobian(end).T @ at.net.jacobian(end) / at.net.n)
    own = theory.effective_dimension(np.maximum(h, 0.0), SHORT.resolution)
    # eigenvalues to 1e-15·h_max against c = 1e-2: each term to 1e-12 or so
    assert row["end_effective_dimension"] == pytest.approx(own, rel=1e-9)
    assert row["z_end"] == (row["llc"] - row["end_law"]) / row["standard_error"]


def test_memorising_is_exactly_linear_and_knows_its_answer(setup: Setup) -> None:
    for row in studies.study_memorising(setup):
        size = Size(row["p"], row["K"], row["fraction"])
        net = size.network(row["seed"])
        w = net.initial_weights(row["seed"], 1.0)
        model = net.frozen(w)
        assert row["feature_rank"] == np.linalg.matrix_rank(model.features)
        assert row["known_llc"] == 0.5 * row["p"] * row["feature_rank"]
        z = studies.hidden_activations(net, w)
        assert row["formula_lazy"] == 0.5 * row["p"] * min(np.linalg.matrix_rank(z), row["K"])
        s = np.linalg.svd(model.jacobian(w[-model.n_params :]), compute_uv=False)
        found = studies.lazy_curvature(model)
        assert found.h is not None
        # h is s²/n: two backward stable svds, errors of a few ulps of h_max each
        assert np.abs(found.h - s**2 / model.n).max() <= 1e-13 * found.h_max


def test_memorising_starts_at_a_minimum(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    slopes = []

    def looking(model: Any, w: Any, found: Any, protocol: Any, *, seed: Any) -> sgld.Sample:
        slopes.append(np.linalg.norm(model.loss_and_grad(w)[1]))
        return sample(model, w, found, protocol, seed=seed)

    sample = measure.sample
    monkeypatch.setattr(measure, "sample", looking)
    studies.study_memorising(setup)
    assert len(slopes) == 7 and max(slopes) < 1e-10  # least squares to rounding: 1e-16·condition


def test_settling_compares_the_last_fifth_with_the_short_reading(setup: Setup) -> None:
    short = {row["network"]: row["llc"] for row in studies.study_source_settings(setup)}
    short |= {row["network"]: row["llc"] for row in studies.study_too_wide(setup)}
    for row in studies.study_settling(setup):
        assert row["reading_10000"] == short[row["network"]]
        assert row["last_against_10000"] == row["block_5"] / short[row["network"]] - 1.0
        assert row["settles"] is (abs(row["last_against_10000"]) <= 0.05)
        blocks = [row[f"block_{k}"] for k in range(1, 6)]
        assert np.mean(blocks) == pytest.approx(row["llc"], rel=1e-12)  # fifths of equal length
        assert row["status"] == gate.NOT_CALIBRATED and row["steps"] == 100


def test_settling_needs_the_short_readings_first(setup: Setup) -> None:
    with pytest.raises(ValueError, match="run `--study source-settings`"):
        studies.study_settling(setup)


def test_the_law_of_the_last_fifth_is_the_law_of_its_steps(setup: Setup) -> None:
    """100 steps, 20 discarded: the last fifth is steps 84 … 99."""
    for run in (studies.study_source_settings, studies.study_too_wide):
        run(setup)
    row = studies.study_settling(setup)[0]
    at = studies.shipped(setup.data, row["network"])
    assert at.found.h is not None
    n_beta, gamma, step = row["n_beta"], row["gamma"], row["step"]
    a = n_beta * at.found.h + gamma
    t = np.arange(84, 100)[:, None]
    reached = (1.0 - (1.0 - 0.5 * step * a) ** (2 * t)).mean(axis=0)
    law = 0.5 * np.sum(n_beta * at.found.h / a / (1.0 - 0.25 * step * a) * reached)
    assert row["law_last_block"] == pytest.approx(law, rel=1e-10)


def test_convergence_says_whether_the_formula_fits_the_bracket(setup: Setup) -> None:
    for row in studies.study_convergence(setup):
        low, high = row["bracket_low"], row["bracket_high"]
        assert row["formula_inside"] is (low <= row["formula_paper"] <= high)
        assert row["formula_in_use_inside"] is (low <= row["formula_paper_in_use"] <= high)
        assert row["exact_lower"] <= row["exact_upper"] == row["rank_bound"]


def test_trajectory_sees_the_weights_of_its_step(setup: Setup) -> None:
    rows = studies.study_trajectory(setup)
    net = SIZES[0].network(0)
    for row in rows:
        w = networks.snapshots(net, studies.DELAYED_RECIPE, seed=0, at=[row["training_steps"]])[0]
        assert row["loss"] == float(net.loss(w)) and row["weight_norm"] == np.linalg.norm(w)
    reading = [row["paper_settings_reading"] for row in rows]
    assert all(0.0 < x <= 0.5 * rows[0]["d"] for x in reading)


def test_the_paper_settings_are_those_of_claim_c03() -> None:
    assert abs(studies.PAPER_RESOLUTION - 0.19) < 0.005  # as the claim rounds it


# ---- failures ----------------------------------------------------------------------------------


def test_a_dead_chain_is_a_row_with_its_error(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = measure.sample

    def dying(model: Any, w: Any, found: Any, protocol: Any, *, seed: Any) -> sgld.Sample:
        if seed[2] == 1:
            raise sgld.DeadChain("chain 0 has loss inf at step 3: it diverged")
        return sample(model, w, found, protocol, seed=seed)

    monkeypatch.setattr(measure, "sample", dying)
    rows = studies.study_verdict(setup)
    assert len(rows) == 6
    for row in rows:
        dead = row["seed"] == 1
        assert row["error"].startswith("DeadChain: chain 0") is dead
        assert (row["llc"] is None) is dead
        assert row["rank"] is not None and row["exact_lower"] is not None  # known before


def test_a_dead_chain_leaves_the_spectrum_of_weights_that_are_nowhere_else(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: Any, **__: Any) -> sgld.Sample:
        raise sgld.DeadChain("chain 1 never moves")

    alive = {study: studies.STUDIES[study].run(setup) for study in ("polish", "convergence")}
    monkeypatch.setattr(measure, "sample", dying)
    again = dataclasses.replace(setup, runs=setup.runs / "again")
    of_chains = {*tables.READING, *tables.RATIOS, "z_law", "error"}
    for study, rows in alive.items():
        dead = studies.STUDIES[study].run(again)
        for one, other in zip(rows, dead, strict=True):
            assert other["error"] == "DeadChain: chain 1 never moves"
            assert other["llc"] is None and other["ratio_paper"] is None
            assert {k: v for k, v in one.items() if k not in of_chains} == {
                k: v for k, v in other.items() if k not in of_chains
            }


def test_a_network_that_was_never_trained_is_a_row_in_every_study_of_it(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collapsing(
        net: train.QuadraticNetwork, recipe: train.Recipe, *, seed: int
    ) -> train.Trained:
        if net.K == 4:
            raise train.TrainingFailed("training collapsed to zero weights")
        return random_weights(net, recipe, seed=seed)

    monkeypatch.setattr(train, "train", collapsing)
    again = dataclasses.replace(setup, runs=setup.runs / "again")
    spectra.study_networks(again)
    counts = {"verdict": 3, "sensitivity": 7, "grid-selection": 16}
    for study, failed in counts.items():
        rows = studies.STUDIES[study].run(again)
        errors = [row["error"] for row in rows if row["error"]]
        assert errors == failed * ["TrainingFailed: training collapsed to zero weights"]


def test_a_study_is_taken_up_again_where_it_stopped(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = studies.study_verdict(setup)
    monkeypatch.setattr(measure, "sample", None)  # a call would be a TypeError
    assert studies.study_verdict(setup) == first
    freeze(setup.data, dataclasses.replace(SHORT, n_beta=2e3))
    with pytest.raises(TypeError):
        studies.study_verdict(setup)  # other settings are another measurement


def test_a_spectrum_of_other_weights_is_refused(setup: Setup) -> None:
    name, other = SIZES[0].name(0), SIZES[0].name(1)
    path = networks.spectrum_path(setup.data, name)
    path.write_bytes(networks.spectrum_path(setup.data, other).read_bytes())
    with pytest.raises(records.RecordError, match="the spectrum of network"):
        studies.shipped(setup.data, name)


# ---- the command line --------------------------------------------------------------------------


@pytest.fixture
def commanded(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """`run_llc.main` writes to the folder of the test."""
    monkeypatch.setattr(run_llc.jobs, "Setup", functools.partial(Setup, setup.data))
    return setup


def command(setup: Setup, *arguments: str) -> int:
    return run_llc.main([*arguments, "--out", str(setup.runs), "--quiet"])


def test_every_study_has_a_name_of_its_own() -> None:
    assert len(run_llc.STUDIES) == len(spectra.STUDIES) + len(studies.STUDIES) == 13
    assert {study.table for study in run_llc.STUDIES.values()} == set(tables.TABLES)


def test_the_verdict_is_printed_with_the_table(
    commanded: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(commanded, "--study", "verdict") == 0
    told = capsys.readouterr().out
    assert told.startswith("data/llc.csv: 6 rows\n")
    assert "within 15% of ½K(3p−1), the paper's at" in told
    rows = records.read_csv(commanded.data / "llc.csv", tables.types("llc"))
    assert verdict.text(verdict.verdict_of(rows)) in told


def test_failures_are_named_and_a_study_of_failures_alone_fails(
    commanded: Setup, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: Any, **__: Any) -> sgld.Sample:
        raise sgld.DeadChain("chain 1 never moves")

    monkeypatch.setattr(measure, "sample", dying)
    assert command(commanded, "--study", "too-wide") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "data/too_wide.csv: 3 rows, 3 of them failed"
    assert told[1] == f"  {WIDE[0].name(0)}: DeadChain: chain 1 never moves"


def test_json_is_the_rows(commanded: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(commanded, "--study", "networks", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    rows = records.read_csv(commanded.data / "networks.csv", tables.types("networks"))
    assert document == {"study": "networks", "rows": rows}


@pytest.mark.parametrize(
    "other",
    [("--p", "7"), ("--gamma", "3"), ("--route", "gram"), ("--n-beta", "100"), ("--K", "5")],
)
def test_a_study_takes_no_other_networks_or_settings(
    other: tuple[str, str], commanded: Setup
) -> None:
    with pytest.raises(ValueError, match=f"leave out {other[0]}"):
        command(commanded, "--study", "verdict", *other)
