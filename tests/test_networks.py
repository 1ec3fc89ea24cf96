"""The networks of the studies: distinct names, one training run however it is looked at, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import networks
import records
import tables
import theory
import train
from networks import Size

SMALL = Size(5, 4, 0.8)


def test_the_verdict_is_on_18_networks_of_6_sizes() -> None:
    chosen = list(networks.each(networks.VERDICT))
    assert len({size.name(seed) for size, seed in chosen}) == len(chosen) == 18
    sizes = [(size.p, size.K) for size in networks.VERDICT]
    assert sizes == [(11, 33), (17, 51), (17, 68), (23, 69), (23, 92), (31, 93)]
    assert [size.fraction for size in networks.VERDICT] == [0.8] + 5 * [0.7]


def test_the_verdict_stays_below_the_width_limit_and_too_wide_lies_past_it() -> None:
    for sizes, wide in ((networks.VERDICT, False), (networks.TOO_WIDE, True)):
        for size in sizes:
            n = networks.identified(size, 0)["n"]
            limit = theory.wide_limit(n, size.p)
            assert (theory.one_hot_generic(size.K, size.p) > limit) is wide


def test_a_name_tells_size_share_and_seed() -> None:
    assert Size(17, 68, 0.7).name(2) == "p17_K68_f70_s2"
    assert Size(11, 33, 0.825).name(0) == "p11_K33_f82.5_s0"


def test_the_columns_that_name_a_network_need_no_network() -> None:
    for size, seed in networks.each(networks.VERDICT + networks.TOO_WIDE):
        net, row = size.network(seed), networks.identified(size, seed)
        assert (row["n"], row["d"]) == (net.n, net.n_params)
        assert set(row) == set(tables.NETWORK)


def test_snapshots_are_those_of_one_training_run() -> None:
    """Looking does not disturb: bit for bit the weights that train.train passes through."""
    net, recipe = SMALL.network(0), train.Recipe(max_steps=40, hold_steps=0)
    seen = networks.snapshots(net, recipe, seed=3, at=[0, 7, 40])
    w = net.initial_weights(3, recipe.initial_scale)
    assert (seen[0] == w).all()
    adam = train.Adam(w.shape, recipe.learning_rate, recipe.weight_decay)
    for t in range(1, 41):
        adam.step(w, net.loss_and_grad(w)[1])
        if t == 7:
            assert (seen[1] == w).all()
    assert (seen[2] == w).all()
    assert (networks.snapshots(net, recipe, seed=3, at=[40])[0] == seen[2]).all()


def test_snapshots_end_where_train_ends() -> None:
    net, recipe = Size(7, 21, 0.8).network(0), train.Recipe(hold_steps=20)
    trained = train.train(net, recipe, seed=0)
    assert (networks.snapshots(net, recipe, seed=0, at=[trained.steps])[0] == trained.w).all()


@pytest.mark.parametrize(
    "recipe",
    [
        train.Recipe(initial_scale=1e-9),  # below what counts as collapsed from the start
        train.Recipe(initial_scale=1e200),  # overflows
    ],
)
def test_a_run_that_collapses_or_diverges_is_refused(recipe: train.Recipe) -> None:
    with pytest.raises(train.TrainingFailed, match=r"after \d+ steps: training collapsed or div"):
        networks.snapshots(SMALL.network(0), recipe, seed=0, at=[0, 3])


def test_make_trains_polishes_and_remembers_how() -> None:
    size = Size(7, 21, 0.8)
    made = networks.make(size, 0)
    kept = made.checkpoint
    net, w = networks.opened(kept)
    trained = train.train(net, train.Recipe(), seed=0)
    assert (kept.p, kept.K, kept.fraction, kept.seed) == (7, 21, 0.8, 0)
    assert (kept.steps, kept.polish) == (trained.steps, "adam")
    assert kept.loss == pytest.approx(float(net.loss(w)), rel=1e-12)  # a sum of 273 squares
    moved = np.linalg.norm(w - trained.w) / np.linalg.norm(trained.w)
    assert kept.polish_moved == pytest.approx(moved, rel=1e-12)
    assert net.accuracy(w) == (1.0, 1.0)
    assert made.seconds_training > 0.0 and made.seconds_polish > 0.0


def checkpoint(size: Size = SMALL, seed: int = 0) -> records.Checkpoint:
    net = size.network(seed)
    w = net.initial_weights(seed, 0.5)
    polished = train.Polished(w, 12, float(net.loss(w)), 0.25)
    return networks.as_checkpoint(net, polished, fraction=size.fraction, seed=seed, training=34)


def test_a_checkpoint_survives_its_file(tmp_path: Path) -> None:
    path = networks.checkpoint_path(tmp_path, SMALL.name(0))
    records.write_checkpoint(path, checkpoint())
    net, w = networks.opened(records.read_checkpoint(path))
    assert (w == SMALL.network(0).initial_weights(0, 0.5)).all()
    assert (net.p, net.K, net.n) == (5, 4, 20)


def test_the_columns_of_a_trained_network() -> None:
    row = networks.trained(checkpoint())
    assert set(row) == set(tables.TRAINED)
    assert (row["training_steps"], row["polish_steps"], row["polish_moved"]) == (34, 12, 0.25)
    assert row["checkpoint_sha256"] == checkpoint().content_hash()
    net, w = networks.opened(checkpoint())
    formulas = networks.formulas(net, w)
    assert set(formulas) == set(tables.FORMULAS)
    assert formulas["formula_paper"] == 0.5 * 4 * 14
    assert formulas["formula_generic"] == 0.5 * 4 * 13
    exact = networks.exact(net, w)
    assert set(exact) == set(tables.EXACT)
    assert exact["exact_lower"] <= exact["exact_upper"] == net.rank_bound()


def test_made_gives_the_rows_asked_for_in_order(tmp_path: Path) -> None:
    sizes = (SMALL, Size(7, 3, 0.8))
    rows = [
        tables.row("networks", networks.identified(size, seed), error="collapsed")
        for size, seed in networks.each(sizes)
    ]
    records.write_csv(tmp_path / "networks.csv", tables.types("networks"), rows[::-1])
    assert networks.made(tmp_path, sizes) == rows
    assert networks.made(tmp_path, sizes[1:], (2, 0)) == [rows[5], rows[3]]


def test_made_says_what_to_run_when_a_network_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"networks\.csv is missing: run `--study networks`"):
        networks.made(tmp_path, (SMALL,))
    records.write_csv(tmp_path / "networks.csv", tables.types("networks"), [])
    with pytest.raises(ValueError, match="has no p5_K4_f80_s0"):
        networks.made(tmp_path, (SMALL,))


def test_the_estimates_of_wall_time_grow_with_the_network() -> None:
    rows = [networks.identified(size, 0) for size in networks.VERDICT]
    sampling = [networks.seconds_to_sample(row, 40_000) for row in rows]
    assert sampling == sorted(sampling)
    assert 3.0 < sampling[0] < 5.0 and 40.0 < sampling[-1] < 60.0
    assert networks.seconds_to_sample(rows[0], 80_000) == 2.0 * sampling[0]
    spectra = [networks.seconds_to_decompose(row) for row in rows]
    assert spectra == sorted(spectra)
