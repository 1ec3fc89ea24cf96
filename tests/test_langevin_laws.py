"""Laws of Langevin chains on a quadratic, against iterated covariances and drawn moves."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov

import langevin_laws as laws
import theory
from langevin_laws import KappaProtocol

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def random_case(seed: int, d: int) -> tuple[Array, Array, float, float]:
    """H (d, d) with a flat direction, unequal steps E (d,) that are stable, n_beta and gamma."""
    rng = np.random.default_rng(seed)
    J = rng.standard_normal((max(1, d - 1), d))
    n_beta, gamma = 10.0 ** rng.uniform(-1, 2), 10.0 ** rng.uniform(-2, 1)
    H = J.T @ J
    E = 10.0 ** rng.uniform(-2, 0, d)
    stiffest = np.linalg.eigvalsh(np.sqrt(np.outer(E, E)) * (n_beta * H + gamma * np.eye(d)))[-1]
    return H, E * rng.uniform(0.05, 3.5) / stiffest, n_beta, gamma


def iterated_llc(
    H: Array, E: Array, n_beta: float, gamma: float, steps: int, burn_in: int, *, noise: float = 0.5
) -> float:
    """The slow obvious way: the covariance of w_t, step by step; noise is the power of E in ξ's."""
    R = np.eye(len(H)) - 0.5 * E[:, None] * (n_beta * H + gamma * np.eye(len(H)))
    S, total = np.zeros_like(H), 0.0
    for t in range(steps):
        if t >= burn_in:
            total += 0.5 * n_beta * np.trace(H @ S)
        S = R @ S @ R.T + np.diag(E ** (2 * noise))
    return total / (steps - burn_in)


# ---- one step per coordinate -------------------------------------------------------------------


@given(st.integers(0, 9999), st.integers(1, 6), st.integers(1, 60), st.data())
def test_the_law_is_the_iterated_covariance(
    seed: int, d: int, steps: int, data: st.DataObject
) -> None:
    burn_in = data.draw(st.integers(0, steps - 1))
    H, E, n_beta, gamma = random_case(seed, d)
    law = laws.expected_llc(H, E, n_beta=n_beta, gamma=gamma, steps=steps, burn_in=burn_in)
    slow = iterated_llc(H, E, n_beta, gamma, steps, burn_in)
    # one product of d terms per step, and eigenvectors good to EPS times the largest share
    assert law == pytest.approx(slow, rel=1e-9, abs=100 * d * EPS * n_beta * np.trace(H) * E.max())


@given(st.integers(0, 9999), st.integers(1, 6))
def test_the_stationary_reading_solves_lyapunovs_equation(seed: int, d: int) -> None:
    H, E, n_beta, gamma = random_case(seed, d)
    R = np.eye(d) - 0.5 * E[:, None] * (n_beta * H + gamma * np.eye(d))
    slow = 0.5 * n_beta * np.trace(H @ solve_discrete_lyapunov(R, np.diag(E)))
    slowest = 1.0 / (1.0 - np.abs(np.linalg.eigvals(R)).max())
    burn_in = int(40 * slowest)  # e^-80 of the transient is left
    law = laws.expected_llc(H, E, n_beta=n_beta, gamma=gamma, steps=burn_in + 1, burn_in=burn_in)
    assert law == pytest.approx(slow, rel=1e-9 * slowest)  # the solve's condition number


@given(st.integers(0, 9999), st.integers(1, 8), st.integers(1, 300), st.data())
def test_equal_steps_are_plain_sgld(seed: int, d: int, steps: int, data: st.DataObject) -> None:
    burn_in = data.draw(st.integers(0, steps - 1))
    H, _, n_beta, gamma = random_case(seed, d)
    h = np.maximum(np.linalg.eigvalsh(H), 0.0)
    settings = {"n_beta": n_beta, "gamma": gamma, "steps": steps, "burn_in": burn_in}
    step = 3.0 / (n_beta * h.max() + gamma)
    law = laws.expected_llc(H, np.full(d, step), **settings)  # type: ignore[arg-type]
    plain = theory.sgld_expected_llc(h, step=step, **settings)  # type: ignore[arg-type]
    # the flat direction's curvature is 0 up to EPS·h_max, and n_beta/gamma may enlarge it
    assert law == pytest.approx(plain, rel=1e-9, abs=10 * d * EPS * n_beta * h.max() / gamma)


def test_small_steps_of_any_kind_leave_the_posterior() -> None:
    """Where the steps vanish E drops out: the reading is the effective dimension."""
    H, E, n_beta, gamma = random_case(5, 5)
    tiny = 1e-4 * E
    exact = 0.5 * np.trace(np.linalg.solve(H + gamma / n_beta * np.eye(5), H))
    law = laws.expected_llc(H, tiny, n_beta=n_beta, gamma=gamma, steps=10**9, burn_in=10**9 - 10)
    assert law == pytest.approx(exact, rel=1e-3)  # step inflation a/4 ≤ 3.5e-4/4, and less


def test_what_a_lost_root_or_spring_would_do() -> None:
    H, E, n_beta, _ = random_case(5, 5)
    gamma = n_beta * np.trace(H) / 10.0  # a spring that counts
    E = 0.3 * E
    law = laws.expected_llc(H, E, n_beta=n_beta, gamma=gamma, steps=40, burn_in=10)
    mutants = {
        "noise of deviation E, not √E": iterated_llc(H, E, n_beta, gamma, 40, 10, noise=1.0),
        "no spring": iterated_llc(H, E, n_beta, 0.0, 40, 10),
        "a full step of drift": iterated_llc(2 * H, E, n_beta, 2 * gamma, 40, 10) / 2,
        "burn-in forgotten": iterated_llc(H, E, n_beta, gamma, 40, 0),
    }
    for name, wrong in mutants.items():
        assert abs(wrong / law - 1.0) > 0.01, name


def test_law_refuses() -> None:
    H = np.eye(2)
    settings = {"n_beta": 1.0, "gamma": 1.0, "steps": 10, "burn_in": 0}
    with pytest.raises(theory.UnstableStep):
        laws.expected_llc(H, [0.1, 2.0], **settings)  # type: ignore[arg-type]
    with pytest.raises(theory.UndefinedDimension, match="gamma"):
        laws.expected_llc(-2.0 * H, [0.1, 0.1], **settings)  # type: ignore[arg-type]
    for bad in ([0.1], [0.1, 0.0], [0.1, np.nan]):
        with pytest.raises(ValueError):
            laws.expected_llc(H, bad, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="burn_in"):
        laws.expected_llc(H, [0.1, 0.1], n_beta=1.0, gamma=1.0, steps=10, burn_in=10)


# ---- the κ protocol ----------------------------------------------------------------------------


@given(st.floats(-2, 4), st.floats(-6, 4), st.floats(0, 5), st.floats(0.01, 3.0))
def test_every_network_gets_the_same_relaxation_times(
    log_kappa: float, log_h: float, log_n_beta: float, s: float
) -> None:
    kappa, h_max, n_beta = 10.0**log_kappa, 10.0**log_h, 10.0**log_n_beta
    protocol = KappaProtocol(kappa, n_beta, step_constant=s)
    settings = protocol.settings(h_max)
    gamma, step = settings["gamma"], settings["step"]
    assert n_beta * h_max / gamma == pytest.approx(kappa, rel=4 * EPS)
    # the step rule, and the spring's relaxation time 2/(εγ), for any h_max: (2/s)(κ + 1)
    assert step * (n_beta * h_max + gamma) == pytest.approx(s, rel=8 * EPS)
    assert 2.0 / (step * gamma) == pytest.approx(protocol.relaxation_time, rel=20 * EPS)
    assert settings["steps"] == KappaProtocol(kappa, n_beta, s).settings(7.0 * h_max)["steps"]
    assert settings["steps"] >= 20 * protocol.relaxation_time
    assert settings["burn_in"] == np.ceil(4 * protocol.relaxation_time)


def test_protocol_at_known_points() -> None:
    settings = KappaProtocol(kappa=10.0, n_beta=100.0).settings(0.5)
    assert settings == {
        "n_beta": 100.0,
        "gamma": 5.0,
        "step": 0.2 / 55,
        "steps": 2200,
        "burn_in": 440,
    }


def test_protocol_refuses() -> None:
    for h_max in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match="h_max"):
            KappaProtocol(1.0, 1.0).settings(h_max)
    with pytest.raises(ValueError, match="kappa"):
        KappaProtocol(0.0, 1.0).relaxation_time  # noqa: B018
    with pytest.raises(ValueError, match="discarded"):
        KappaProtocol(1.0, 1.0, lengths=4.0).settings(1.0)


# ---- MALA --------------------------------------------------------------------------------------


def drawn_acceptance(
    a: Array, step: float, at: str, draws: int, seed: int, *, factor: float = 0.5
) -> Array:
    """The definition: moves proposed from x, and U and log q evaluated at both ends, (draws,)."""
    rng = np.random.default_rng(seed)
    variance = 1.0 / (a * (1.0 - step * a / 4.0)) if at == "chain" else 1.0 / a
    x = rng.standard_normal((draws, len(a))) * np.sqrt(variance)
    y = x - factor * step * a * x + np.sqrt(step) * rng.standard_normal(x.shape)

    def log_q(start: Array, end: Array) -> Array:
        miss = end - start + 0.5 * step * a * start
        return -np.sum(miss * miss, axis=1) / (2.0 * step)

    U = [0.5 * np.sum(a * z * z, axis=1) for z in (x, y)]
    return np.exp(np.minimum(0.0, U[0] - U[1] + log_q(y, x) - log_q(x, y)))


@pytest.mark.parametrize("at", ["chain", "posterior"])
@pytest.mark.parametrize("step", [0.02, 0.1, 0.5])
def test_acceptance_is_what_drawn_moves_say(at: Literal["chain", "posterior"], step: float) -> None:
    n_beta, gamma, d = 3.0, 1.0, 1000
    h = np.linspace(0.0, 2.0, 300)
    a = np.append(n_beta * h + gamma, np.full(d - len(h), gamma))
    drawn = drawn_acceptance(a, step / a.max() * 2.0, at, draws=4000, seed=1)
    law = laws.expected_acceptance(
        h, d=d, n_beta=n_beta, gamma=gamma, step=step / a.max() * 2.0, at=at
    )
    # 4 standard errors of 4,000 draws; the sum of 1,000 terms is normal to about 1/√1000·skewness,
    # which moves the mean by less than 0.002
    assert abs(drawn.mean() - law) < 4 * drawn.std() / 4000**0.5 + 0.002


def test_acceptance_in_a_million_dimensions() -> None:
    """Many weights: near ½ on the chain's own law, 0 on the posterior's; both 1 for small steps."""

    def acceptance(step: float, at: Literal["chain", "posterior"]) -> float:
        return laws.expected_acceptance([1.0], d=1_863_690, n_beta=1.0, gamma=1.0, step=step, at=at)

    assert acceptance(0.1, "chain") == pytest.approx(0.537, abs=0.001)
    assert acceptance(0.1, "posterior") < 1e-6
    assert acceptance(0.1 / 64, "posterior") > 0.98
    assert acceptance(0.1 / 64, "chain") > 0.98
    assert acceptance(1.9, "posterior") == pytest.approx(0.0, abs=1e-300)  # no overflow
    assert acceptance(1.9, "chain") == pytest.approx(0.5, abs=0.01)


def test_acceptance_sees_a_full_step_of_drift() -> None:
    a = np.full(1000, 1.0)
    law = laws.expected_acceptance(np.zeros(0), d=1000, n_beta=1.0, gamma=1.0, step=0.3, at="chain")
    wrong = drawn_acceptance(a, 0.3, "chain", draws=2000, seed=2, factor=1.0)
    assert abs(wrong.mean() - law) > 0.1


def test_acceptance_refuses() -> None:
    settings = {"n_beta": 1.0, "gamma": 1.0, "step": 0.1}
    with pytest.raises(ValueError, match="at must be"):
        laws.expected_acceptance([1.0], d=1, at="elsewhere", **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most d"):
        laws.expected_acceptance([1.0, 2.0], d=1, at="chain", **settings)
    with pytest.raises(theory.UnstableStep):
        laws.expected_acceptance([100.0], d=1, at="chain", **settings)
