"""The jobs of the width study on tiny networks, against dense Jacobians of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import curvature
import records
import theory
import train_mlp
import width_networks as wn
import width_study
import width_tables
from width_networks import Network

Array = NDArray[np.float64]
NTK = Network("ntk", 3, 1e-2, 0, steps=40, n=70)
MUP = Network("mup", 3, 1e-3, 0, steps=40, n=70)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both networks trained, with their spectra."""
    path = tmp_path_factory.mktemp("widths")
    for network in (NTK, MUP):
        width_study.train(path, network)
        width_study.spectrum(path, network)
    return path


def dense_curvatures(network: Network, w: Array) -> Array:
    net = network.model()
    s = np.linalg.svd(net.jacobian(w), compute_uv=False)
    return net.hessian_scale * s**2


def known(row: dict[str, object], table: str) -> None:
    """Every column a job fills is one of the table's."""
    assert set(row) <= set(width_tables.types(table)), set(row) - set(width_tables.types(table))


def test_training_says_how_far_it_went(tmp_path: Path) -> None:
    (row,) = width_study.train(tmp_path, NTK)
    known(row, "widths")
    net = NTK.model()
    w_0, end = net.initial_weights(0), wn.read_snapshot(tmp_path, NTK)
    again = list(train_mlp.train(net, w_0, train_mlp.rates(net, "ntk", 1e-2), seed=0, steps=40))[-1]
    assert np.array_equal(end.w, again.w) and row["loss"] == end.loss == net.loss(end.w)
    W1, start = net.unpack(end.w)[0], net.unpack(w_0)[0]
    assert row["drift_W1"] == pytest.approx(np.linalg.norm(W1 - start) / np.linalg.norm(start))
    moved = net.outputs(end.w) - net.outputs(w_0)
    linear = (net.jacobian(w_0) @ (end.w - w_0)).reshape(moved.shape)
    error = np.linalg.norm(moved - linear) / np.linalg.norm(moved)
    assert row["linearisation_error"] == pytest.approx(error, rel=1e-9)
    answers = net.outputs(end.w).argmax(axis=1) == net.targets.argmax(axis=1)
    assert row["accuracy"] == answers.sum() / 70
    steps, losses = wn.read_trajectory(tmp_path, NTK)
    assert steps == train_mlp.trajectory_steps(40) and losses[-1] == end.loss
    assert all(wn.read_snapshot(tmp_path, NTK, s).step == s for s in steps)


@pytest.mark.parametrize("network", [NTK, MUP])
def test_the_spectrum_is_the_dense_one(network: Network, folder: Path) -> None:
    (row,) = width_study.spectrum(folder, network)
    known(row, "widths")
    w = wn.read_snapshot(folder, network).w
    dense = dense_curvatures(network, w)
    h = wn.read_spectrum(folder, network)
    # backward error of both routes, in units of the largest curvature
    assert h[: len(dense)] == pytest.approx(dense, abs=1e-12 * dense[0], rel=0)
    assert row["h_max"] == h[0] and row["h_min"] == h[-1]
    assert row["trace"] == pytest.approx(dense.sum(), rel=1e-12)
    assert row["trace_without_gram"] == pytest.approx(dense.sum(), rel=1e-12)
    assert row["stable_rank"] == pytest.approx(dense.sum() / dense[0], rel=1e-12)
    for kappa in (1, 10, 100):
        expected = 0.5 * np.sum(dense / (dense + dense[0] / kappa))
        assert row[f"dimension_{kappa}"] == pytest.approx(expected, rel=1e-9)
        c = dense.sum() / (20 * kappa)
        assert row[f"trace_dimension_{kappa}"] == pytest.approx(
            theory.effective_dimension(dense, c), rel=1e-9
        )
        c = dense.sum() / (row["effective_rank"] * kappa)
        assert row[f"rank_dimension_{kappa}"] == pytest.approx(
            theory.effective_dimension(dense, c), rel=1e-9
        )
    c = 5000.0 / (70 / np.log(70))
    assert row["dimension_gamma_5000"] == pytest.approx(
        theory.effective_dimension(dense, c), rel=1e-9
    )
    assert row["kappa_gamma_5000"] == pytest.approx(dense[0] / c)
    # at a resolution above every curvature the reading is the trace over 2c: the source's finding
    assert row["dimension_gamma_5000"] == pytest.approx(dense.sum() / (2 * c), rel=dense[0] / c)
    assert row["rank"] <= row["rank_ceiling"]


def test_cholesky_reads_what_the_spectrum_reads(folder: Path) -> None:
    w = wn.read_snapshot(folder, NTK).w
    read = width_study.read_at_kappas(NTK.model(), w)
    h = wn.read_spectrum(folder, NTK)
    assert read["h_max"] == pytest.approx(h[0], rel=1e-7)  # Lanczos
    for kappa in (1, 10, 100):
        assert read[f"dimension_{kappa}"] == pytest.approx(
            theory.response_curve(h, [kappa])[0], rel=1e-6
        )


def disagreeing(row: dict[str, Any], whole: dict[str, Any]) -> set[str]:
    """The columns, times aside, in which what at_kappas reads is not what the spectrum says."""
    exact = ("hessian_scale", "rank_ceiling", "trace_without_gram")  # one computation on both sides
    tolerances = dict.fromkeys(exact, 0.0)
    # A sum of 700 squares in another order: 700 eps at most; eigenvalues below 0 are rounding.
    tolerances["trace"] = 1e-12
    # Lanczos leaves 1e-8 of h_max, and λ(c) moves relatively by no more than c does; Cholesky adds
    # m·eps·(1 + κ) = 2e-11. Ten times that.
    tolerances |= dict.fromkeys(
        ("h_max", "stable_rank", "dimension_1", "dimension_10", "dimension_100"), 1e-7
    )
    assert set(row) == {*tolerances, "seconds_gram"}
    return {
        name for name, rel in tolerances.items() if row[name] != pytest.approx(whole[name], rel=rel)
    }


@pytest.mark.parametrize("network", [NTK, MUP])
def test_at_kappas_reads_what_the_spectrum_reads_and_keeps_no_curvatures(
    network: Network, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = width_study.spectrum(folder, network)
    width_study.train(tmp_path, network)  # the same weights, without a spectrum beside them
    (row,) = width_study.at_kappas(tmp_path, network)
    known(row, "widths")
    assert not wn.spectrum_path(tmp_path, network).exists()
    assert disagreeing(row, whole) == set()
    # What a lost factor 2 in h_max would do: every column that depends on it is caught.
    top = curvature.top_eigenvalue
    monkeypatch.setattr(width_study.curvature, "top_eigenvalue", lambda gram: 2.0 * top(gram))
    (wrong,) = width_study.at_kappas(tmp_path, network)
    spoilt = {"h_max", "stable_rank", "dimension_1", "dimension_10", "dimension_100"}
    assert disagreeing(wrong, whole) == spoilt


def test_a_pair_is_matched_at_the_larger_loss(folder: Path) -> None:
    rows = width_study.matched(folder, "common", (NTK, MUP))
    last = [wn.read_snapshot(folder, n).loss for n in (NTK, MUP)]
    assert rows[0]["target_loss"] == rows[1]["target_loss"] == max(last)
    slower = int(np.argmax(last))
    assert rows[slower]["step"] == 40 and rows[slower]["loss"] == last[slower]
    faster = rows[1 - slower]
    assert faster["step"] < 40
    _, losses = wn.read_trajectory(folder, (NTK, MUP)[1 - slower])
    assert (
        abs(np.log(faster["loss"] / max(last)))
        == np.abs(np.log(np.array(losses) / max(last))).min()
    )
    w = wn.read_snapshot(folder, (NTK, MUP)[1 - slower], faster["step"]).w
    dense = dense_curvatures(NTK, w)
    assert faster["dimension_10"] == pytest.approx(theory.response_curve(dense, [10])[0], rel=1e-6)


def test_the_full_hessian_at_each_kappa(folder: Path) -> None:
    rows = width_study.hessian(folder, NTK, (1.0, 10.0, 1e9), True)
    net, w = NTK.model(), wn.read_snapshot(folder, NTK).w
    H = np.stack([net.hvp(w, e) for e in np.eye(net.n_params)])
    lowest = np.linalg.eigvalsh(H)[0]
    assert rows[0]["lowest"] == pytest.approx(lowest, rel=1e-2)  # Lanczos at 1e-3 of the largest
    for row in rows[:2]:
        known(row, "width_hessian")
        c = row["resolution"]
        exact = 0.5 * np.trace(np.linalg.solve(H + c * np.eye(len(H)), H))
        # 8 probes: 5 of their standard errors, whose own spread is 25 %
        assert abs(row["full"] - exact) < 5 * row["full_error"] + 1e-3
        assert row["full_error"] < row["plain_error"]
        assert row["cholesky"] == pytest.approx(row["gauss_newton"], rel=1e-6)
        assert row["error_formula"] > 0
    # far below the Hessian's negative curvature there is no posterior: a reason, and no number
    assert "UndefinedDimension" in rows[2]["error"] and "full" not in rows[2]


def test_without_cholesky_no_gram_matrix_is_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(width_study.effective_dimension, "gram_matrix", None)
    (row,) = width_study.hessian(folder, NTK, (1.0,), False)
    assert "cholesky" not in row


def test_a_polish_is_read_before_and_after(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(width_study, "POLISH_STEPS", {3: 300})
    (row,) = width_study.polish(folder, NTK)
    before, after = (wn.read_snapshot(folder, NTK, step) for step in (wn.LAST, wn.POLISHED))
    assert row["loss_before"] == before.loss and row["loss_after"] == after.loss < before.loss
    assert row["polish_steps"] == after.step == 300
    assert row["moved"] == pytest.approx(
        np.linalg.norm(after.w - before.w) / np.linalg.norm(before.w)
    )
    for w, prefix in ((before.w, "before"), (after.w, "dimension")):
        dense = dense_curvatures(NTK, w)
        for kappa in (1, 10):
            assert row[f"{prefix}_{kappa}"] == pytest.approx(
                theory.response_curve(dense, [kappa])[0], rel=1e-9
            )
    assert wn.read_spectrum(folder, NTK, wn.POLISHED)[0] == row["h_max"]


def test_nothing_is_measured_before_the_training(tmp_path: Path) -> None:
    for job in (width_study.spectrum, width_study.at_kappas, width_study.polish):
        with pytest.raises(records.RecordError):
            job(tmp_path, NTK)
