"""SGLD with a step per coordinate, against sgld.sample, a plain loop, the law and the limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import langevin_laws
import preconditioned
import sgld
import theory
from chains import DeadChain
from mlp import MLP
from preconditioned import FixedSteps, RMSProp

Array = NDArray[np.float64]
SHORT: dict[str, Any] = {"n_beta": 8.0, "gamma": 1.5, "step": 0.02, "steps": 60, "burn_in": 20}


def planted(seed: int = 0, widths: list[int] | None = None) -> tuple[MLP, Array]:
    """A teacher, zero loss at w: linear regression unless widths are given."""
    rng = np.random.default_rng(seed)
    net = MLP(rng.standard_normal((12, 3)), rng.standard_normal((12, 2)), widths or [])
    w = net.initial_weights(seed)
    return net.with_targets(net.outputs(w)), w


def hessian(net: MLP, w: Array) -> Array:
    J = net.jacobian(w)
    return net.hessian_scale * J.T @ J


def oracle_losses(
    net: MLP, w_star: Array, scales: Any, chain: int, s: dict[str, Any], seed: int
) -> Array:
    """One chain by the formula, one line per term; scales(V) -> G, V from α = 0.9."""
    stream = sgld.chain_stream((seed,), chain)
    w, V, losses = w_star.copy(), np.zeros_like(w_star), []
    for _ in range(s["steps"]):
        loss, g = net.loss_and_grad(w)
        losses.append(loss)
        V = 0.9 * V + (1.0 - 0.9) * g**2
        G = scales(V)
        drift = s["n_beta"] * g + s["gamma"] * (w - w_star)
        noise = stream.standard_normal(len(w))
        w = w - s["step"] / 2 * G * drift + np.sqrt(s["step"] * G) * noise
    return np.array(losses)


# ---- the same chains ---------------------------------------------------------------------------


def test_unit_steps_are_sgld_to_the_last_bit() -> None:
    net, w = planted(1, [4])
    plain = sgld.sample(net, w, chains=3, seed=5, **SHORT)
    same = preconditioned.sample(net, w, FixedSteps(np.ones(len(w))), chains=3, seed=5, **SHORT)
    assert np.array_equal(plain.end_points, same.end_points)
    assert np.array_equal(plain.traces, same.traces)
    assert np.array_equal(plain.distances, same.distances)
    assert plain.llc == same.llc and plain.standard_error == same.standard_error
    # the same sums of squares in another order
    assert same.mala_acceptance == pytest.approx(plain.mala_acceptance, rel=1e-12)


@given(st.integers(0, 999), st.floats(0.01, 2.0))
@settings(max_examples=15)
def test_both_rules_are_the_formula(seed: int, damping: float) -> None:
    net, w = planted(seed, [3])
    scales = np.random.default_rng(seed).uniform(0.2, 1.0, len(w))
    rules: list[tuple[Any, Any]] = [
        (FixedSteps(scales), lambda V: scales),
        (RMSProp(0.9, damping), lambda V: 1.0 / (np.sqrt(V) + damping)),
    ]
    for rule, oracle in rules:
        s = SHORT | {"step": 0.02 * min(1.0, damping)}
        got = preconditioned.sample(net, w, rule, chains=2, seed=seed, **s)
        for chain in range(2):
            slow = oracle_losses(net, w, oracle, chain, s, seed)
            # rounding, enlarged by 60 steps of a stable chain
            assert got.traces[chain] == pytest.approx(slow[::10], rel=1e-9, abs=1e-14)


def test_a_rule_forgets_its_last_run() -> None:
    net, w = planted(2, [3])
    rule, s = RMSProp(0.9, 0.1), SHORT | {"step": 0.002}
    first = preconditioned.sample(net, w, rule, seed=1, **s)
    assert np.array_equal(first.traces, preconditioned.sample(net, w, rule, seed=1, **s).traces)


def test_scaling_the_metric_is_scaling_the_step() -> None:
    net, w = planted(3)
    s = SHORT | {"step": 0.04}
    whole = preconditioned.sample(net, w, FixedSteps(np.full(len(w), 0.5)), seed=1, **s)
    half = preconditioned.sample(net, w, FixedSteps(np.ones(len(w))), seed=1, **SHORT)
    assert whole.traces == pytest.approx(half.traces, rel=1e-9)
    assert whole.mala_acceptance == pytest.approx(half.mala_acceptance, rel=1e-9)


# ---- the exact law -----------------------------------------------------------------------------


def per_tensor_case() -> tuple[MLP, Array, Array, dict[str, Any]]:
    """Linear regression with the bias ten times slower; burn-in ends while it still relaxes."""
    net, w = planted(4)
    scales = net.expand([1.0, 0.1])
    s = {"n_beta": 10.0, "gamma": 0.5, "steps": 120, "burn_in": 10}
    stiffest = FixedSteps(scales).stiffest(net, w, 10.0, 0.5)
    return net, w, scales, s | {"step": 1.0 / stiffest}


def test_per_tensor_steps_obey_their_law() -> None:
    net, w, scales, s = per_tensor_case()
    got = preconditioned.sample(net, w, FixedSteps(scales), chains=400, seed=2, **s)
    law = {"n_beta": s["n_beta"], "gamma": s["gamma"], "steps": 120, "burn_in": 10}
    E, H = s["step"] * scales, hessian(net, w)
    expected = langevin_laws.expected_llc(H, E, **law)
    # 400 independent chains; a right sampler exceeds 4 standard errors once in 16,000
    error = got.llc_per_chain.std(ddof=1) / 20.0
    assert abs(got.llc - expected) < 4 * error
    wrong = {
        "plain steps": np.full(len(w), s["step"]),
        "the inverse metric": s["step"] / scales / 10.0,
        "√ε without the root": E * s["step"] * scales,
    }
    for name, steps_of in wrong.items():
        other = langevin_laws.expected_llc(H, steps_of, **law)
        assert abs(got.llc - other) > 4 * error, name


def test_the_stiffest_direction_of_a_metric() -> None:
    net, w = planted(5, [3])
    scales = np.random.default_rng(0).uniform(0.1, 2.0, len(w))
    root = np.sqrt(scales)
    dense = root[:, None] * (7.0 * hessian(net, w) + 0.3 * np.eye(len(w))) * root
    top = FixedSteps(scales).stiffest(net, w, 7.0, 0.3)
    assert top == pytest.approx(np.linalg.eigvalsh(dense)[-1], rel=1e-8)
    bound = RMSProp(0.9, 0.25).stiffest(net, w, 7.0, 0.3)
    assert bound == pytest.approx(
        (7.0 * np.linalg.eigvalsh(hessian(net, w))[-1] + 0.3) / 0.25, rel=1e-8
    )


# ---- the limits of RMSProp ---------------------------------------------------------------------


def test_large_damping_is_plain_sgld() -> None:
    """√V far below the damping: G = 1/damping, and plain SGLD at ε/damping remains."""
    net, w = planted(6, [4])
    slow = preconditioned.sample(net, w, RMSProp(0.99, 1e8), **SHORT | {"step": 0.02 * 1e8})
    plain = sgld.sample(net, w, **SHORT)
    # √V/damping < 1e-8 in every step, over 60 of them
    assert slow.traces == pytest.approx(plain.traces, rel=1e-5, abs=1e-12)


def test_frozen_rmsprop_obeys_the_law_of_fixed_steps() -> None:
    """α near 1: V stays at E[g²] = diag(HΣH), and the law is that of E = ε/(√V + δ₀)."""
    net, w = planted(7)
    H, n_beta, gamma, damping = hessian(net, w), 10.0, 2.0, 0.05
    posterior = np.linalg.inv(n_beta * H + gamma * np.eye(len(w)))
    G = 1.0 / (np.sqrt(np.diag(H @ posterior @ H)) + damping)
    step = 0.5 * damping / (n_beta * np.linalg.eigvalsh(H)[-1] + gamma)
    s = {"n_beta": n_beta, "gamma": gamma, "steps": 6000, "burn_in": 3000}
    got = preconditioned.sample(
        net,
        w,
        RMSProp(0.999, damping),
        step=step,
        chains=100,
        seed=3,
        **s,  # type: ignore[arg-type]
    )
    law = langevin_laws.expected_llc(H, step * G, **s)  # type: ignore[arg-type]
    # 4 standard errors, and 1 % for V's wandering: its relative variance is about (1−α)·τ = 3 %
    error = got.llc_per_chain.std(ddof=1) / 10.0
    assert abs(got.llc - law) < 4 * error + 0.01 * law


def test_tracking_rmsprop_reads_too_much() -> None:
    """α = 0, small steps, curvature along the axes: the density is (|g| + δ₀)exp(−U).

    With σ² = 1/a and b = hσ√(2/π): E[x²] = σ²(2b + δ₀)/(b + δ₀), up to twice the posterior's.
    """
    net = MLP(np.ones((4, 1)), np.zeros((4, 6)), [], biases=False, divisor="2n")
    w = np.zeros(6)
    h, n_beta, gamma, damping = 1.0, 10.0, 1.0, 0.1  # H = I: (1/n)·Σ1²
    assert np.allclose(hessian(net, w), h * np.eye(6))
    sigma = (n_beta * h + gamma) ** -0.5
    b = h * sigma * np.sqrt(2.0 / np.pi)
    inflated = (2 * b + damping) / (b + damping)
    exact = 6 * theory.effective_dimension([h], gamma / n_beta)
    s = {"n_beta": n_beta, "gamma": gamma, "steps": 3000, "burn_in": 1000}
    got = preconditioned.sample(
        net,
        w,
        RMSProp(0.0, damping),
        step=2e-4,
        chains=300,
        seed=4,
        **s,  # type: ignore[arg-type]
    )
    error = got.llc_per_chain.std(ddof=1) / 300**0.5
    # step bias: ε·a/damping/4 ≤ 0.6 %
    assert abs(got.llc - inflated * exact) < 4 * error + 0.006 * exact
    assert got.llc > 1.3 * exact + 4 * error  # the posterior's own reading is far away


# ---- refusals ----------------------------------------------------------------------------------


def test_refusals() -> None:
    net, w = planted(0)
    for bad in ([], [[1.0]], [1.0, 0.0], [1.0, np.inf], [-1.0]):
        with pytest.raises(ValueError, match="scales"):
            FixedSteps(bad)
    for alpha, damping in ((1.0, 0.1), (-0.1, 0.1), (0.9, 0.0), (0.9, np.inf)):
        with pytest.raises(ValueError, match="alpha"):
            RMSProp(alpha, damping)
    with pytest.raises(ValueError, match="3 scales for 8 weights"):
        preconditioned.sample(net, w, FixedSteps(np.ones(3)), **SHORT)
    with pytest.raises(ValueError, match="w_star"):
        preconditioned.sample(net, w[:-1], FixedSteps(np.ones(8)), **SHORT)
    with pytest.raises(ValueError, match="gamma"):
        preconditioned.sample(net, w, FixedSteps(np.ones(8)), **SHORT | {"gamma": 0.0})


def test_an_unstable_metric_is_refused_before_the_first_step() -> None:
    net, w = planted(0)
    top = FixedSteps(np.full(8, 3.0)).stiffest(net, w, SHORT["n_beta"], SHORT["gamma"])
    s = SHORT | {"step": 4.0 / top}
    with pytest.raises(theory.UnstableStep):
        preconditioned.sample(net, w, FixedSteps(np.full(8, 3.0)), **s)
    with pytest.raises(theory.UnstableStep):
        preconditioned.sample(net, w, RMSProp(0.9, 1.0 / 3.0), **s)


def test_a_dead_chain_is_refused() -> None:
    """Stable at w*, where the outputs are nearly linear; a cubic rise in curvature away from it."""
    net = MLP(np.ones((2, 1)), np.zeros((2, 1)), [1, 1, 1], activation="identity", biases=False)
    w = np.full(4, 1e-3)
    with pytest.raises(DeadChain, match="not finite at step"):
        preconditioned.sample(
            net, w, FixedSteps(np.ones(4)), n_beta=1e4, gamma=0.1, step=20.0, steps=200, burn_in=50
        )


def test_progress_counts_chain_steps() -> None:
    net, w = planted(0)
    seen: list[int] = []
    s = SHORT | {"steps": 250}
    preconditioned.sample(net, w, FixedSteps(np.ones(8)), chains=2, progress=seen.append, **s)
    assert seen == [200, 200, 100]
