"""Training and polishing: the optimiser against scalar loops, real grokking, and every way to fail.

Training is chaotic, so nothing here compares weights across machines: a test asserts what training
is for (the task is learned and kept, the loss reached), or the same bits within one run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import train
from qnet import QuadraticNetwork, modular_pairs
from train import Adam, Recipe, Trained, TrainingFailed, polish_adam, polish_lbfgs

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def network(p: int, K: int, fraction: float) -> QuadraticNetwork:
    return QuadraticNetwork.modular(p, K, *modular_pairs(p, fraction, 0))


@pytest.fixture(scope="module")
def small() -> tuple[QuadraticNetwork, Trained]:
    """p = 7 at 90 % of the pairs groks within about 1,000 steps, a tenth of a second."""
    net = network(7, 28, 0.9)
    return net, train.train(net, Recipe(max_steps=10_000), seed=0)


# ---- Adam ---------------------------------------------------------------------------------------


def scalar_adam(w: float, gradients: list[float], rate: float, decay: float) -> float:
    """AdamW on one weight, as Loshchilov and Hutter (2019), algorithm 2, write it down."""
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        w = w - rate * (m_hat / (math.sqrt(v_hat) + 1e-8) + decay * w)
    return w


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=30),
    st.floats(1e-4, 1e-1),
    st.floats(0, 2),
    st.integers(-3, 3),
)
def test_adam_equals_a_scalar_loop(
    gradients: list[float], rate: float, decay: float, decade: int
) -> None:
    scaled = [g * 10.0**decade for g in gradients]
    w = np.array([0.5, -2.0])
    adam = Adam(w.shape, rate, decay)
    for g in scaled:
        adam.step(w, np.array([g, -g]))
    expected = [
        scalar_adam(0.5, scaled, rate, decay),
        scalar_adam(-2.0, [-g for g in scaled], rate, decay),
    ]
    # Both averages are running sums of T terms; a unit step divides one by the root of the other,
    # and T steps of size ≤ 10·rate add up. (Where m cancels, its error is T·eps of its terms, and
    # v, a sum of squares, keeps the quotient's error at √1000·T·eps.)
    T = len(scaled)
    tolerance = 40 * T * EPS * (2.0 + 10 * rate * T)
    np.testing.assert_allclose(w, expected, rtol=0, atol=tolerance)
    assert adam.t == T


def test_the_first_step_has_the_length_of_the_rate_whatever_the_gradient() -> None:
    for size in (1e-3, 1.0, 1e3):
        w = np.zeros(2)
        Adam(w.shape, 0.01).step(w, np.array([size, -size]))
        # g/(|g| + 1e-8), so short by 1e-8/size of itself, and a few roundings
        np.testing.assert_allclose(w, [-0.01, 0.01], rtol=1.1e-8 / size + 8 * EPS)


def test_weight_decay_is_decoupled_from_the_gradient() -> None:
    """Without a gradient w shrinks by lr·decay a step; L2 inside the gradient would shrink it by
    lr whatever the decay."""
    w = np.array([1.0, -3.0])
    adam = Adam(w.shape, learning_rate=0.01, weight_decay=2.0)
    for _ in range(5):
        adam.step(w, np.zeros(2))
    np.testing.assert_allclose(w, np.array([1.0, -3.0]) * 0.98**5, rtol=10 * EPS)


def test_adam_moves_the_weights_in_place_and_leaves_the_gradient_alone() -> None:
    w, gradient = np.ones(3), np.array([1.0, 2.0, 3.0])
    view = w[:]
    Adam(w.shape, 0.1, 0.5).step(w, gradient)
    assert (view < 1.0).all() and gradient.tolist() == [1.0, 2.0, 3.0]


# ---- training -----------------------------------------------------------------------------------


def test_the_defaults_are_the_sources() -> None:
    assert Recipe() == Recipe(3e-3, 1.0, 0.1, 500, 50_000)
    assert train.ADAM_BETAS == (0.9, 0.999) and train.ADAM_EPSILON == 1e-8


def test_a_grokked_network_answers_everything(small: tuple[QuadraticNetwork, Trained]) -> None:
    net, trained = small
    assert net.accuracy(trained.w) == (1.0, 1.0)
    assert trained.w.shape == (net.n_params,) and np.isfinite(trained.w).all()
    assert trained.steps - trained.grokked_at == Recipe().hold_steps
    assert trained.grokked_at % train.CHECK_EVERY == 0


def test_the_shipped_size_groks() -> None:
    net = network(11, 33, 0.8)
    trained = train.train(net, Recipe(), seed=0)
    assert net.accuracy(trained.w) == (1.0, 1.0)
    assert 0 < trained.grokked_at < 10_000


def test_accuracy_must_last(small: tuple[QuadraticNetwork, Trained]) -> None:
    """Holding longer continues the same path: the step from which it stayed perfect is the same,
    unless perfection was lost meanwhile, and then it is later."""
    net, trained = small
    short = train.train(net, Recipe(hold_steps=0), seed=0)
    long = train.train(net, Recipe(hold_steps=700), seed=0)
    assert short.steps == short.grokked_at <= trained.grokked_at <= long.grokked_at
    assert long.steps - long.grokked_at == 700


class Flickering(QuadraticNetwork):
    """A network whose held-out answers fail at the checks listed in `wrong`."""

    wrong: frozenset[int] = frozenset()
    looks = 0

    def accuracy(self, w: Any) -> tuple[float, float | None]:
        self.looks += 1
        return 1.0, 0.5 if self.looks - 1 in self.wrong else 1.0


def test_one_lapse_starts_the_count_again() -> None:
    net = Flickering.modular(3, 2, *modular_pairs(3, 0.7, 0))
    assert isinstance(net, Flickering)
    net.wrong = frozenset({0, 3, 4})  # looks are CHECK_EVERY = 10 steps apart
    trained = train.train(net, Recipe(hold_steps=30, max_steps=200), seed=0)
    assert (trained.grokked_at, trained.steps) == (50, 80)


def test_without_held_out_pairs_the_training_pairs_decide() -> None:
    net = network(5, 20, 1.0)
    trained = train.train(net, Recipe(hold_steps=20), seed=0)
    assert net.accuracy(trained.w) == (1.0, None)


def test_the_same_seed_gives_the_same_bits(small: tuple[QuadraticNetwork, Trained]) -> None:
    net, trained = small
    again = train.train(net, Recipe(max_steps=10_000), seed=0)
    assert np.array_equal(again.w, trained.w) and again.steps == trained.steps
    other = train.train(net, Recipe(hold_steps=0), seed=1)
    assert not np.array_equal(other.w, trained.w)


def test_progress_counts_every_step_once(small: tuple[QuadraticNetwork, Trained]) -> None:
    net, trained = small
    counted: list[int] = []
    train.train(net, Recipe(), seed=0, progress=counted.append)
    # one report per look at the accuracy, the last look excepted
    assert sum(counted) == trained.steps


def test_decay_that_wins_is_reported_as_collapse() -> None:
    net = network(7, 14, 0.8)
    with pytest.raises(
        TrainingFailed, match=r"collapsed to zero weights at step \d+ .*another seed"
    ):
        train.train(net, Recipe(weight_decay=100.0), seed=0)


def test_a_network_that_never_groks_says_where_it_stands() -> None:
    net = network(7, 14, 0.5)
    message = r"no grok in 100 steps: train accuracy [01]\.\d{3}, held-out 0\.\d{3}; use a larger"
    with pytest.raises(TrainingFailed, match=message):
        train.train(net, Recipe(max_steps=100), seed=0)
    with pytest.raises(TrainingFailed, match="held-out none"):
        train.train(network(7, 14, 1.0), Recipe(max_steps=20), seed=0)


def test_divergence_is_refused_by_name_and_without_warnings() -> None:
    net = network(5, 10, 0.8)
    with pytest.raises(TrainingFailed, match=r"diverged: weights are not finite at step \d+"):
        train.train(net, Recipe(learning_rate=1e60), seed=0)


# ---- polishing ----------------------------------------------------------------------------------

POLISHES = [polish_adam, polish_lbfgs]


@pytest.mark.parametrize("polish", POLISHES)
def test_a_polish_reaches_its_target_and_keeps_the_task(
    polish: Any, small: tuple[QuadraticNetwork, Trained]
) -> None:
    net, trained = small
    before = trained.w.copy()
    polished = polish(net, trained.w)
    assert polished.loss < 1e-8 < net.loss(before)
    assert polished.loss == net.loss(polished.w)
    assert 0 < polished.steps < 5_000
    assert polish(net, trained.w, max_steps=polished.steps - 1).loss >= 1e-8  # it stops at once
    assert net.accuracy(polished.w) == (1.0, 1.0)
    assert np.array_equal(trained.w, before)  # the given weights are not touched
    distance = np.linalg.norm(polished.w - before) / np.linalg.norm(before)
    assert polished.moved == pytest.approx(distance, rel=net.n_params * EPS)
    assert 0 < polished.moved < 0.2


def test_the_two_polishes_are_two_ways(small: tuple[QuadraticNetwork, Trained]) -> None:
    net, trained = small
    one, other = (polish(net, trained.w).w for polish in POLISHES)
    assert np.linalg.norm(one - other) > 1e-3 * np.linalg.norm(trained.w)


@pytest.mark.parametrize("polish", POLISHES)
def test_a_polish_stops_at_its_last_step_and_reports_the_loss_reached(
    polish: Any, small: tuple[QuadraticNetwork, Trained]
) -> None:
    net, trained = small
    polished = polish(net, trained.w, target_loss=0.0, max_steps=7)
    assert polished.steps == 7
    assert 0 < polished.loss == net.loss(polished.w) < net.loss(trained.w)


@pytest.mark.parametrize("polish", POLISHES)
def test_a_polish_gives_the_same_bits_twice(
    polish: Any, small: tuple[QuadraticNetwork, Trained]
) -> None:
    net, trained = small
    assert np.array_equal(polish(net, trained.w).w, polish(net, trained.w).w)


def test_adam_leaves_a_polished_network_alone(small: tuple[QuadraticNetwork, Trained]) -> None:
    net, trained = small
    once = polish_adam(net, trained.w)
    twice = polish_adam(net, once.w)
    assert twice.steps == 0 and twice.moved == 0 and np.array_equal(twice.w, once.w)


def test_polishing_reports_every_step() -> None:
    net = network(5, 10, 0.8)
    counted: list[int] = []
    polish_adam(net, net.initial_weights(0, 0.5), max_steps=12, progress=counted.append)
    assert counted == [1] * 12


@pytest.mark.parametrize("polish", POLISHES)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_polish_that_is_not_finite_is_refused(polish: Any, value: float) -> None:
    net = network(5, 10, 0.8)
    w = net.initial_weights(0, 0.5)
    w[3] = value
    with pytest.raises(
        TrainingFailed, match=r"the polish diverged: loss (nan|inf) after \d+ steps"
    ):
        polish(net, w)


def test_a_polish_works_on_any_model(small: tuple[QuadraticNetwork, Trained]) -> None:
    """The frozen view is linear: its least squares problem has a known minimum."""
    net, trained = small
    frozen = net.frozen(trained.w)
    W = frozen.output_weights(trained.w)
    least = np.linalg.lstsq(frozen.features, net.targets - net.targets.mean(axis=0))[0]
    polished = polish_lbfgs(frozen, W)
    assert polished.loss < max(1e-8, 1.001 * float(np.max(frozen.loss(least.T.ravel()))))


# ---- what must fail -----------------------------------------------------------------------------


def test_coupled_weight_decay_is_caught() -> None:
    class Coupled(Adam):
        def step(self, w: Array, gradient: Array) -> None:
            decay, self.weight_decay = self.weight_decay, 0.0
            super().step(w, gradient + decay * w)
            self.weight_decay = decay

    w = np.array([1.0])
    coupled = Coupled(w.shape, 0.01, 2.0)
    for g in (0.3, -0.2):
        coupled.step(w, np.array([g]))
    assert abs(w[0] - scalar_adam(1.0, [0.3, -0.2], 0.01, 2.0)) > 1e-3


def test_a_recipe_cannot_be_changed_by_accident() -> None:
    recipe = Recipe()
    with pytest.raises(AttributeError):
        recipe.weight_decay = 0.0  # type: ignore[misc]
    assert replace(recipe, weight_decay=0.0).weight_decay == 0.0
