"""Training perceptrons, against a plain Adam loop, the two rules of scale, and what must fail."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import train_mlp
from mlp import MLP
from train import TrainingFailed

Array = NDArray[np.float64]


def network(width: int = 6, biases: bool = True, n: int = 20) -> MLP:
    rng = np.random.default_rng(0)
    return MLP(rng.random((n, 4)), np.eye(3)[rng.integers(0, 3, n)], [width, width], biases=biases)


def oracle_adam(gradients: list[Array], w: Array, rate: Array) -> Array:
    """Kingma and Ba 2015, algorithm 1, with a rate per weight."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        w = w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


# ---- rates -------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.booleans(), st.floats(-5, 0))
def test_rates_of_both_conditions(width: int, biases: bool, log_base: float) -> None:
    net, base = network(width, biases), 10.0**log_base
    ntk = dict(zip(net.names, train_mlp.rates(net, "ntk", base), strict=True))
    mup = dict(zip(net.names, train_mlp.rates(net, "mup", base), strict=True))
    assert set(ntk.values()) == {base}
    for name, rate in mup.items():
        assert rate == (base / width if name in ("W2", "W3") else base), name


def test_the_input_weights_are_not_divided_by_the_input_size() -> None:
    """A µP that divides every tensor by its fan-in is the other reading; the drifts forbid it."""
    assert train_mlp.rates(network(5), "mup", 1.0)[0] == 1.0  # not 1/4


def test_rates_refuse() -> None:
    with pytest.raises(ValueError, match="condition"):
        train_mlp.rates(network(), "sp", 1e-3)  # type: ignore[arg-type]
    for base in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="base_rate"):
            train_mlp.rates(network(), "ntk", base)


# ---- training ----------------------------------------------------------------------------------


def test_full_batches_are_plain_adam_with_a_rate_per_tensor() -> None:
    net = network()
    rates = train_mlp.rates(net, "mup", 1e-2)
    w_0 = net.initial_weights(0)
    snapshots = list(
        train_mlp.train(net, w_0, rates, seed=0, steps=12, batch=net.n, keep=list(range(13)))
    )
    # with all examples in every batch their order moves nothing but the last bits
    gradients = [net.loss_and_grad(s.w)[1] for s in snapshots[:-1]]
    expected = oracle_adam(gradients, w_0, net.expand(rates))
    assert snapshots[-1].w == pytest.approx(expected, rel=1e-6, abs=1e-9)
    equal_rates = oracle_adam(gradients, w_0, np.full_like(w_0, 1e-2))
    assert np.abs(snapshots[-1].w - equal_rates).max() > 1e-3
    assert [s.step for s in snapshots] == list(range(13))
    assert all(s.loss == net.loss(s.w) for s in snapshots)
    assert np.array_equal(snapshots[0].w, w_0)


def test_minibatches_are_disjoint_within_a_pass() -> None:
    draws = list(itertools.islice(train_mlp._minibatches(20, 6, seed=3), 6))
    for first in (0, 3):
        rows = np.concatenate(draws[first : first + 3])
        assert len(set(rows.tolist())) == 18  # three batches of 6; the two left over are skipped
    assert not np.array_equal(draws[0], draws[3])
    again = next(train_mlp._minibatches(20, 6, seed=3))
    assert np.array_equal(draws[0], again)
    assert not np.array_equal(draws[0], next(train_mlp._minibatches(20, 6, seed=4)))


def test_training_is_repeatable_and_learns() -> None:
    net = network(16)
    rates = train_mlp.rates(net, "ntk", 1e-2)
    runs = [
        list(train_mlp.train(net, net.initial_weights(1), rates, seed=1, steps=200, batch=5))
        for _ in range(2)
    ]
    assert np.array_equal(runs[0][-1].w, runs[1][-1].w)
    assert runs[0][-1].loss < 0.5 * runs[0][0].loss
    assert runs[0][-1].step == 200


def test_the_start_is_not_moved() -> None:
    net = network()
    w_0 = net.initial_weights(0)
    before = w_0.copy()
    list(train_mlp.train(net, w_0, train_mlp.rates(net, "ntk", 1e-2), seed=0, steps=5, batch=5))
    assert np.array_equal(w_0, before)


def test_trajectories_are_dense_where_the_loss_falls() -> None:
    steps = train_mlp.trajectory_steps(3000)
    assert steps[0] == 0 and steps[-1] == 3000 and steps[1:4] == [1, 2, 3]
    ratios = np.array(steps[12:]) / np.array(steps[11:-1])
    assert ratios.max() < 1.2  # 1.15 and rounding
    assert train_mlp.trajectory_steps(1) == [0, 1]


def test_divergence_is_refused() -> None:
    net = network()
    with pytest.raises(TrainingFailed, match=r"diverged.*step 3; lower the base rate"):
        list(
            train_mlp.train(
                net, net.initial_weights(0), (1e120,) * 6, seed=0, steps=3, batch=5, keep=[3]
            )
        )


def test_training_refuses() -> None:
    net = network()
    w, rates = net.initial_weights(0), train_mlp.rates(net, "ntk", 1e-2)
    for batch in (0, 21):
        with pytest.raises(ValueError, match="batch"):
            next(train_mlp.train(net, w, rates, seed=0, batch=batch))
    with pytest.raises(ValueError, match="one rate for each"):
        next(train_mlp.train(net, w, rates[:-1], seed=0, batch=5))


# ---- polish ------------------------------------------------------------------------------------


def test_a_polish_stops_at_its_target() -> None:
    net = network(16)
    w, rates = net.initial_weights(0), train_mlp.rates(net, "ntk", 1e-2)
    done = train_mlp.polish(net, w, rates, target_loss=0.02, max_steps=2000)
    assert done.loss <= 0.02 and 0 < done.step < 2000
    assert done.loss == net.loss(done.w)
    none = train_mlp.polish(net, done.w, rates, target_loss=0.02, max_steps=2000)
    assert none.step == 0 and np.array_equal(none.w, done.w)


def test_a_polish_slows_down() -> None:
    net = network(8)
    w, rates = net.initial_weights(0), train_mlp.rates(net, "ntk", 1e-2)
    done = train_mlp.polish(net, w, rates, target_loss=0.0, max_steps=5)
    assert done.step == 5
    # Adam moves a weight by at most about its rate: 1 + 0.8 + 0.6 + 0.4 + 0.2 of it here
    assert np.abs(done.w - w).max() <= 1.05 * 3.0 * 1e-2
    assert np.abs(done.w - w).max() > 0.5 * 3.0 * 1e-2


def test_nearest_in_loss() -> None:
    assert train_mlp.nearest_in_loss([1.0, 0.1, 0.01], 0.035) == 1  # 0.1/0.035 < 0.035/0.01
    assert train_mlp.nearest_in_loss([1.0, 0.1, 0.01], 0.03) == 2
    for losses, target in (([1.0, 0.0], 0.1), ([], 0.1), ([1.0], 0.0)):
        with pytest.raises(ValueError, match="positive"):
            train_mlp.nearest_in_loss(losses, target)


def test_progress_counts_steps() -> None:
    net = network()
    seen: list[int] = []
    rates = train_mlp.rates(net, "ntk", 1e-2)
    list(
        train_mlp.train(
            net, net.initial_weights(0), rates, seed=0, steps=7, batch=5, progress=seen.append
        )
    )
    assert seen == [1] * 7
    train_mlp.polish(
        net, net.initial_weights(0), rates, target_loss=0.0, max_steps=3, progress=seen.append
    )
    assert len(seen) == 10
