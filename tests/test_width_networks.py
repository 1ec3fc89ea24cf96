"""Which networks the width study has, and that their files give back what was put in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import records
import width_networks as wn
from train_mlp import STEPS, Snapshot
from width_networks import Network


def test_the_plan_has_three_seeds_at_two_pairs_of_rates() -> None:
    pairs = wn.all_pairs()
    assert len(pairs) == 21 and len(wn.all_networks()) == 33
    for width in wn.WIDTHS:
        of = [(rates, both[0].seed) for rates, both in pairs if both[0].width == width]
        assert sorted(of) == [
            *(("common", seed) for seed in (0, 1, 2)),
            ("common high", 0),
            *(("source-like", seed) for seed in (0, 1, 2)),
        ]
    for rates, (ntk, mup) in pairs:
        assert (ntk.condition, mup.condition) == ("ntk", "mup")
        assert (ntk.width, ntk.seed) == (mup.width, mup.seed)
        assert (ntk.base_rate == mup.base_rate) == rates.startswith("common")
    assert wn.STEPS == STEPS  # of the recipe


def test_ratios_pair_equal_seeds_and_widths() -> None:
    rows = [
        n.columns() | {"x": 10.0 if n.condition == "ntk" else 5.0 + n.seed}
        for width in wn.WIDTHS
        for seed in (0, 1)
        for n in wn.pair(width, "source-like", seed)
    ]
    assert wn.ratios(rows, "source-like", "x") == {width: [0.5, 0.6] for width in wn.WIDTHS}
    assert wn.ratios(rows, "common", "x") == {}  # no µP network at the NTK rate
    without = [r for r in rows if not (r["condition"] == "ntk" and r["seed"] == 1)]
    assert wn.ratios(without, "source-like", "x") == {width: [0.5] for width in wn.WIDTHS}
    rows[0]["x"] = None  # a failed reading is no ratio
    assert wn.ratios(rows, "source-like", "x")[64] == [0.6]


def test_names_are_told_apart() -> None:
    networks = wn.all_networks()
    assert len({network.name for network in networks}) == 33
    assert Network("mup", 256, 2e-2, 1).name == "mup_w256_r0.02_s1"
    assert Network("ntk", 64, 1e-3, 0, steps=10, n=896).name == "ntk_w64_r0.001_s0_t10_n896"


def test_a_network_knows_its_model() -> None:
    network = Network("ntk", 3, 1e-3, 0, n=7)
    net = network.model()
    assert (net.n, net.widths, net.n_outputs, net.inputs.shape[1]) == (7, (3, 3), 10, 784)
    assert network.n_beta == 7 / math.log(7)
    assert net.hessian_scale == 2 / 70  # the mean over examples and outputs


def test_files_give_back_what_was_put_in(tmp_path: Path) -> None:
    network = Network("ntk", 3, 1e-3, 0, steps=12)
    w = np.arange(5.0) / 3.0
    wn.write_snapshot(tmp_path, network, Snapshot(12, 0.25, w))
    wn.write_snapshot(tmp_path, network, Snapshot(4, 0.125, 2 * w), wn.POLISHED)
    assert (tmp_path / network.name / "step_000012.npz").exists()
    last, polished = (
        wn.read_snapshot(tmp_path, network),
        wn.read_snapshot(tmp_path, network, "polished"),
    )
    assert (last.step, last.loss) == (12, 0.25) and np.array_equal(last.w, w)
    assert (polished.step, polished.loss) == (4, 0.125) and np.array_equal(polished.w, 2 * w)
    assert np.array_equal(wn.read_snapshot(tmp_path, network, 12).w, w)

    wn.write_spectrum(tmp_path, network, w[::-1].copy())
    assert np.array_equal(wn.read_spectrum(tmp_path, network), w[::-1])
    wn.write_trajectory(tmp_path, network, [0, 12], [1.0, 0.25])
    assert wn.read_trajectory(tmp_path, network) == ([0, 12], [1.0, 0.25])


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    network = Network("ntk", 3, 1e-3, 0)
    for read in (wn.read_snapshot, wn.read_spectrum, wn.read_trajectory):
        with pytest.raises(records.RecordError, match="check the path"):
            read(tmp_path, network)
