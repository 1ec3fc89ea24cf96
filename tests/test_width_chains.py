"""Chains of the width study on tiny networks: readings, laws and what is said of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import langevin_laws
import preconditioned
import sgld
import theory
import width_chains
import width_networks as wn
import width_study
import width_tables
from width_chains import Setting
from width_networks import Network

Array = NDArray[np.float64]
MUP = Network("mup", 4, 2e-2, 0, steps=150, n=64)
SHORT = Setting("plain", 2.0, chains=4, lengths=12.0, discarded=3.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("widths")
    width_study.train(path, MUP)
    width_study.spectrum(path, MUP)
    return path


@pytest.fixture(autouse=True)
def few_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hidden matrix has 16 weights only."""
    monkeypatch.setattr(width_chains, "WATCHED", 16)


def row_of(folder: Path, setting: Setting) -> dict[str, Any]:
    (row,) = width_chains.sampled(folder, MUP, setting)
    missing = set(width_tables.types("width_chains")) - set(row) - {"error", "damping"}
    assert not {name for name in missing if not name.startswith("spread_law")}, missing
    return row


def test_a_plain_reading_and_its_law(folder: Path) -> None:
    row = row_of(folder, SHORT)
    net, w = MUP.model(), wn.read_snapshot(folder, MUP).w
    h = wn.read_spectrum(folder, MUP)
    settings = langevin_laws.KappaProtocol(2.0, MUP.n_beta, 0.2, 12.0, 3.0).settings(h[0])
    seed = tuple(map(int, row["chains_seed"].split()))
    again = sgld.sample(net, w, chains=4, seed=seed, **settings)
    assert row["llc"] == again.llc and row["standard_error"] == again.standard_error
    assert row["mala"] == again.mala_acceptance
    assert row["dimension"] == pytest.approx(theory.response_curve(h, [2.0])[0])
    assert row["law"] == theory.sgld_expected_llc(h, **settings)
    assert row["aligned"] == "kappa" and row["kappa"] == 2.0 and row["rule"] == "plain"
    for name, value in settings.items():
        assert row[name] == value
    error = max(row["standard_error"], row["law_sd"])
    assert row["z"] == pytest.approx((row["llc"] - row["law"] - row["slope_shift"]) / error)


def test_close_to_home_the_law_holds(folder: Path) -> None:
    """Raising n_beta at fixed κ keeps the chains near w*: the reading is the law's, slope and all.

    At n_beta itself the spring lets them go farther than the weights are long.
    """
    far = row_of(folder, replace(SHORT, chains=8, lengths=40.0))
    near = row_of(folder, replace(SHORT, chains=8, lengths=40.0, n_beta_factor=1e4))
    assert near["reach"] == pytest.approx(far["reach"] / 100.0, rel=0.05)
    assert near["reach"] == pytest.approx(near["reach_law"], rel=0.1)  # most directions are flat
    assert abs(near["z"]) < 4.5  # standard errors of a right program; one in 10^5
    assert near["dimension"] == pytest.approx(far["dimension"], rel=1e-9)


def test_the_spring_forgets_in_tau_steps(folder: Path) -> None:
    row = row_of(folder, replace(SHORT, chains=8, lengths=80.0, n_beta_factor=1e4))
    assert row["relaxation_law"] == theory.relaxation_time(0.2, 2.0) == 30.0
    # 128 coordinates × chains of 77 τ each: integrated times to about 4 %
    assert row["relaxation"] == pytest.approx(30.0, rel=0.15)
    for tensor in ("W1", "W2"):
        assert row[f"spread_{tensor}"] == pytest.approx(row[f"spread_law_{tensor}"], rel=0.15)


def test_inherited_steps_leave_the_hidden_weights_behind(folder: Path) -> None:
    """Four times smaller steps: after 4 τ the hidden weights have relaxed for one of their own."""
    setting = replace(SHORT, rule="inherited", n_beta_factor=1e4, lengths=4.0, discarded=1.0)
    row = row_of(folder, replace(setting, chains=16))
    assert row["spread_law_W2"] < 0.8 * row["spread_law_W1"]
    assert row["spread_W2"] == pytest.approx(row["spread_law_W2"], rel=0.2)
    assert row["spread_W1"] == pytest.approx(row["spread_law_W1"], rel=0.2)
    plain = row_of(folder, replace(setting, rule="plain", chains=16))
    assert row["llc"] < plain["llc"] - 2 * plain["standard_error"]


def test_rmsprop_steps_are_stable_and_say_their_damping(folder: Path) -> None:
    row = row_of(folder, replace(SHORT, rule="rmsprop"))
    assert row["damping"] > 0
    h = wn.read_spectrum(folder, MUP)
    # G ≤ 1/damping: ε/damping is the step of plain SGLD
    plain = theory.step_size(0.2, n_beta=MUP.n_beta, h_max=h[0], gamma=row["gamma"])
    assert row["step"] / row["damping"] == pytest.approx(plain)
    assert "spread_law_W1" not in row  # no law is known for these steps
    assert np.isfinite(row["llc"])


def test_a_fixed_gamma_has_the_kappa_it_happens_to_have(folder: Path) -> None:
    row = row_of(folder, replace(SHORT, kappa=None, gamma=50.0))
    h = wn.read_spectrum(folder, MUP)
    assert row["aligned"] == "gamma" and row["gamma"] == pytest.approx(50.0)
    assert row["kappa"] == pytest.approx(MUP.n_beta * h[0] / 50.0)


def test_smaller_steps_are_as_long_in_relaxation_times(folder: Path) -> None:
    whole, quarter = (row_of(folder, replace(SHORT, step_divisor=k)) for k in (1.0, 4.0))
    assert quarter["step"] == pytest.approx(whole["step"] / 4)
    assert quarter["steps"] == 4 * whole["steps"]
    assert quarter["mala_law_posterior"] > whole["mala_law_posterior"]


def test_settings_are_told_apart_and_checked() -> None:
    settings = [SHORT, replace(SHORT, rule="rmsprop"), replace(SHORT, kappa=3.0)]
    settings += [replace(SHORT, kappa=None, gamma=3.0), replace(SHORT, step_divisor=2.0)]
    settings += [replace(SHORT, n_beta_factor=2.0), replace(SHORT, weights=wn.POLISHED)]
    assert len({setting.key for setting in settings}) == len(settings)
    for kappa, gamma in ((None, None), (1.0, 1.0)):
        with pytest.raises(ValueError, match="fix kappa or gamma"):
            Setting("plain", kappa, gamma).protocol(1.0, 1.0)


def test_the_relaxation_time_of_a_known_process() -> None:
    rng = np.random.default_rng(0)
    rho, looks = 1.0 - 1.0 / 25.0, np.zeros((4000, 5, 40))
    looks[0] = rng.standard_normal((5, 40)) / np.sqrt(1 - rho**2)
    for t in range(1, 4000):
        looks[t] = rho * looks[t - 1] + rng.standard_normal((5, 40))
    # 200 series of 80 integrated times: 1 % or so
    assert width_chains.relaxation_time(looks) == pytest.approx(25.0, rel=0.05)


def test_linear_regression_obeys_the_law_and_not_the_rule() -> None:
    (row,) = width_chains.linear(1.0, 0.2)
    assert row["d"] == 105 and set(row) <= set(width_tables.types("width_linear"))
    assert abs(row["fraction"] - row["law_fraction"]) < 4.5 * row["law_fraction_sd"]
    # the two errors of κ/(κ+1): unequal curvatures lower it, steps that are not small raise it
    assert row["dimension_fraction"] < 0.95 * row["kappa_rule"]
    assert row["law_fraction"] > 1.02 * row["dimension_fraction"]
    assert row["relaxation"] == pytest.approx(row["relaxation_law"], rel=0.25)


def test_inherited_scales_are_the_conditions_rates() -> None:
    net = MUP.model()
    h = np.array([1.0])
    settings = langevin_laws.KappaProtocol(1.0, 1.0).settings(1.0)
    point = width_chains.Point(net, np.zeros(net.n_params), h, MUP, SHORT, settings)
    scales = width_chains._inherited(point)
    assert set(scales.tolist()) == {1.0, 0.25}
    assert np.array_equal(scales, net.expand([1.0, 1.0, 0.25, 1.0, 0.25, 1.0]))
    rule = preconditioned.FixedSteps(scales)
    rule.begin(1, net.n_params)
