"""An observed model samples the same chains, and what is seen of them is what they were."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import preconditioned
import sgld
from mlp import MLP
from observer import Observed
from preconditioned import FixedSteps

Array = NDArray[np.float64]
SETTINGS = {"n_beta": 10.0, "gamma": 1.0, "step": 0.01, "chains": 3, "steps": 40, "burn_in": 10}


def linear_regression() -> tuple[MLP, Array]:
    rng = np.random.default_rng(0)
    net = MLP(rng.standard_normal((9, 2)), rng.standard_normal((9, 2)), [])
    return net, net.initial_weights(0)


def test_every_step_is_seen_and_no_bit_changes() -> None:
    net, w = linear_regression()
    plain = sgld.sample(net, w, **SETTINGS)  # type: ignore[arg-type]
    watched = Observed(net, lambda w: w)
    seen = sgld.sample(watched, w, **SETTINGS)  # type: ignore[arg-type]
    assert np.array_equal(plain.end_points, seen.end_points)
    looks = watched.looks(40)
    assert looks.shape == (40, 3, net.n_params)
    assert np.array_equal(looks[0], np.stack([w] * 3))  # w_0 = w*
    assert np.array_equal(net.loss(looks[10]), plain.traces[:, 1])
    assert np.array_equal(watched.looks(40, burn_in=15), looks[15:])


def test_the_other_sampler_is_seen_too() -> None:
    net, w = linear_regression()
    watched = Observed(net, lambda w: w[:, :2], every=10)
    seen = preconditioned.sample(watched, w, FixedSteps(np.ones(6)), **SETTINGS)  # type: ignore[arg-type]
    looks = watched.looks(40)
    assert looks.shape == (4, 3, 2)
    assert np.array_equal(looks[0], np.stack([w[:2]] * 3))
    assert seen.reading.llc != 0.0


def test_it_speaks_for_its_model() -> None:
    net, w = linear_regression()
    watched = Observed(net, lambda w: w)
    assert (watched.n, watched.n_params, watched.hessian_scale) == (9, 6, net.hessian_scale)
    assert np.array_equal(watched.jvp(w, w), net.jvp(w, w))
    assert watched.loss(w) == net.loss(w)
    with pytest.raises(AttributeError):
        watched.nothing_of_the_kind  # noqa: B018


def test_refusals() -> None:
    net, w = linear_regression()
    with pytest.raises(ValueError, match="every"):
        Observed(net, lambda w: w, every=0)
    watched = Observed(net, lambda w: w)
    watched.loss_and_grad(np.stack([w, w]))
    with pytest.raises(ValueError, match="1 calls were seen, fewer than the 2"):
        watched.looks(2)
