"""Lazy scaling and influence on tiny networks, against the definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import influence as attribution
import theory
import train_mlp
import width_extensions as we
import width_networks as wn
import width_study
import width_tables


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 digits to train on, 8 to ask about, width 3 or 4, few steps."""
    for name, value in {
        "LAZY_WIDTH": 4,
        "LAZY_DECADES": range(3),
        "INFLUENCE_WIDTH": 3,
        "TRAINED_ON": 64,
        "DIGITS": 72,
    }.items():
        monkeypatch.setattr(we, name, value)


def few_steps(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """The recipe with fewer steps and, for the lazy networks, fewer digits."""
    original = train_mlp.train

    def shorter(net, w_0, rates, **options):  # type: ignore[no-untyped-def]
        return original(net, w_0, rates, **options | {"steps": steps})

    monkeypatch.setattr(train_mlp, "train", shorter)
    original_model = wn.Network.model
    monkeypatch.setattr(wn.Network, "model", lambda self: original_model(self).subset(range(64)))


# ---- lazy --------------------------------------------------------------------------------------


def test_lazy_scaling_linearises(monkeypatch: pytest.MonkeyPatch) -> None:
    few_steps(monkeypatch, 60)
    rows = [we.lazy(alpha, 1)[0] for alpha in (1.0, 30.0, 1000.0)]
    for row in rows:
        assert set(row) <= set(width_tables.types("width_lazy"))
        assert row["rate"] == pytest.approx(1e-3 / row["alpha"])
    errors = [row["linearisation_error"] for row in rows]
    drifts = [row["drift_all"] for row in rows]
    assert errors[0] > 2 * errors[1] > 20 * errors[2]
    assert drifts[0] > drifts[1] > drifts[2]
    # the same way in function space: the losses agree although the weights moved 1000 times less
    assert rows[2]["loss"] == pytest.approx(rows[1]["loss"], rel=0.05)


def test_a_rate_over_alpha_squared_does_not_train_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    few_steps(monkeypatch, 60)
    (slow,), (right,) = we.lazy(100.0, 2), we.lazy(100.0, 1)
    assert slow["rate"] == pytest.approx(1e-7)
    start = 0.1  # α(f − f₀) = 0 answers nothing: the mean of y² is 1/10
    assert start - slow["loss"] < 0.05 * (start - right["loss"])


def test_lazy_readings_are_those_of_the_scaled_network(monkeypatch: pytest.MonkeyPatch) -> None:
    few_steps(monkeypatch, 20)
    (row,) = we.lazy(10.0, 1)
    plain = wn.Network("ntk", 4, 1e-3, 0)
    net = plain.model()
    w_0 = net.initial_weights(0)
    scaled = net.lazy(w_0, 10.0)
    rates = train_mlp.rates(scaled, "ntk", 1e-4)
    (end,) = train_mlp.train(scaled, w_0, rates, seed=0, keep=[])
    h = scaled.hessian_scale * np.linalg.svd(scaled.jacobian(end.w), compute_uv=False) ** 2
    assert row["loss"] == end.loss and row["h_max"] == pytest.approx(h[0])
    for k in range(3):
        assert row[f"dimension_1e{k}"] == pytest.approx(theory.response_curve(h, [10.0**k])[0])
    f = 10.0 * (net.outputs(end.w) - net.outputs(w_0))
    assert row["accuracy"] == np.mean(f.argmax(axis=1) == net.targets.argmax(axis=1))
    assert row["half_ceiling"] == 0.5 * net.rank_ceiling()


# ---- influence ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    width_study.train(tmp_path, we.influence_network("ntk"))
    return tmp_path


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    original = we.influence_network

    def shorter(condition: wn.Condition) -> wn.Network:
        network = original(condition)
        return wn.Network(
            network.condition, network.width, network.base_rate, 0, steps=100, n=network.n
        )

    monkeypatch.setattr(we, "influence_network", shorter)


def dense_bif(folder: Path, gamma: float) -> np.ndarray:
    """−[gᵀΣb + ½tr(AΣBΣ)] of the NTK network with dense Σ, for 2 digits and 1 query."""
    network = we.influence_network("ntk")
    net, w = network.model(), wn.read_snapshot(folder, network).w
    everything = we.MLP(*we.digits.load(72), net.widths)
    J, r, s = everything.jacobian(w), everything.residuals(w), 64 * net.hessian_scale
    H = net.hessian_scale * J[:640].T @ J[:640]
    covariance = np.linalg.inv(network.n_beta * H + gamma * np.eye(len(w)))

    def of(i: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(10 * i, 10 * i + 10)
        return s * J[part].T @ r[part], s * J[part].T @ J[part]

    found = np.empty((2, 1))
    for i in range(2):
        for q in range(1):
            (g, A), (b, B) = of(i), of(64 + q)
            found[i, q] = attribution.quadratic_influence((g, b), (A, B), covariance)
    return found


def test_attributions_are_the_dense_ones(folder: Path) -> None:
    model = we._Attributions(folder, we.influence_network("ntk"))
    exact, damped = model.at(model.network.n_beta, 2.0)
    assert exact.shape == damped.shape == (64, 8)
    # Gram and solve against a dense inverse of condition 1 + n_beta·h_max/gamma
    dense = dense_bif(folder, 2.0)
    assert exact[:2, :1] == pytest.approx(dense, rel=1e-7, abs=1e-9 * np.abs(dense).max())


def test_a_missing_network_is_trained_to_the_same_weights(folder: Path, tmp_path: Path) -> None:
    network = we.influence_network("ntk")
    assert network.n == 64
    kept = we._weights(folder, network, network.model())
    again = we._weights(tmp_path / "empty", network, network.model())
    assert np.array_equal(kept, again)
    assert wn.read_snapshot(tmp_path / "empty", network).step == 100


def test_losses_of_single_digits(folder: Path) -> None:
    model = we._Attributions(folder, we.influence_network("mup"))
    each = model.losses(np.stack([model.w, 0.9 * model.w]))
    assert each.shape == (2, 72)
    assert each[:, :64].mean(axis=1) == pytest.approx(
        [model.net.loss(model.w), model.net.loss(0.9 * model.w)], rel=1e-12
    )
    whole = we.MLP(*we.digits.load(72), model.net.widths)
    last = whole.subset([71])
    assert each[1, 71] == pytest.approx(last.loss(0.9 * model.w), rel=1e-12)


def test_rankings_over_kappa(folder: Path) -> None:
    rows = we.influence(folder, "ntk")
    assert len(rows) == len(we.INFLUENCE_KAPPAS) + len(we.INFLUENCE_GAMMAS)
    for row in rows:
        assert set(row) <= set(width_tables.types("width_influence"))
        for name in ("damped_and_exact", "exact_and_kappa_10", "damped_and_kappa_10"):
            assert -1.0 <= row[name] <= 1.0
        assert 0.0 < row["first_term_share"] < 1.0
        assert row["kappa"] * row["gamma"] == pytest.approx(rows[0]["kappa"] * rows[0]["gamma"])
    at = {row["kappa"]: row for row in rows if row["aligned"] == "kappa"}
    here = min(at, key=lambda kappa: abs(kappa - 10.0))
    assert at[here]["exact_and_kappa_10"] == at[here]["damped_and_kappa_10"] == pytest.approx(1.0)


def test_chains_find_the_exact_ranking(folder: Path) -> None:
    """Close to w*, where the network is linear, long chains agree with the exact influence."""
    (row,) = we.sampled_influence(folder, "mup", 1.0, 1e4, 200.0)
    assert set(row) <= set(width_tables.types("width_influence"))
    assert row["draws"] == 4 * (4000 - 80) // we.THINNING
    assert row["sampled_halves"] > 0.5
    assert row["sampled_and_exact"] > 0.7
