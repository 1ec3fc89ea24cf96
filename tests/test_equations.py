"""equations.py: every equation holds, and a wrong formula turns the right one red."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chains
import curvature
import equations
import sgld
import theory
from equations import Equation, Part
from qnet import QuadraticNetwork

ROOT = Path(__file__).resolve().parent.parent
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
BY_ID = {entry.id: entry for entry in equations.EQUATIONS}
OWN = {id for id in BY_ID if id <= "E12"}  # test_width_equations.py turns the others red
SLOW = {"E10", "E11", "E12"}  # about a second each


def test_ids_are_E01_to_E12_and_E25_to_E34() -> None:
    quadratic, perceptron = range(1, 13), range(25, 35)  # E13 to E24 are kept free between them
    assert [e.id for e in equations.EQUATIONS] == [f"E{k:02}" for k in (*quadratic, *perceptron)]


@pytest.mark.parametrize("id", BY_ID)
def test_the_equation_holds(id: str) -> None:
    for part in BY_ID[id].parts():
        assert part.error <= part.tolerance, part.compared


def test_EQUATIONS_md_is_the_one_the_code_writes() -> None:
    assert (ROOT / "EQUATIONS.md").read_text(encoding="utf-8") == equations.markdown()


def test_every_function_named_in_the_table_exists() -> None:
    modules = {"qnet", "theory", "curvature", "sgld", "chains", "mlp"}
    modules |= {"effective_dimension", "influence", "langevin_laws", "preconditioned"}
    for entry in equations.EQUATIONS:
        owner = ""
        for name in entry.functions.split(", "):
            if name.split(".")[0] in modules:
                owner, _, last = name.rpartition(".")
            else:
                last = name.lstrip(".")
            found: Any = __import__(owner.split(".")[0])
            for step in [*owner.split(".")[1:], last]:
                found = getattr(found, step)


# --- what must go red -----------------------------------------------------------------------

Mutation = Callable[[Patch], None]


def times(module: Any, name: str, factor: float) -> Mutation:
    """The function with a wrong constant factor."""
    right = getattr(module, name)
    return lambda patch: patch.setattr(module, name, lambda *a, **k: factor * right(*a, **k))


def loss_factor(patch: Patch) -> None:
    """L_n without its ½."""
    right = QuadraticNetwork.loss
    patch.setattr(QuadraticNetwork, "loss", lambda net, w: 2.0 * right(net, w))


def outputs_uncentred(patch: Patch) -> None:
    """Residuals f − y in place of C(f − y)."""
    patch.setattr(QuadraticNetwork, "_centre", lambda net, f: f)


def gradient_part(start: int, stop: int, factor: float) -> Mutation:
    """One third of the gradient (0 u, 1 v, 2 W) with a wrong factor."""
    right = QuadraticNetwork.loss_and_grad

    def wrong(net: QuadraticNetwork, w: Any) -> Any:
        loss, gradient = right(net, w)
        third = net.n_params // 3
        gradient[..., start * third : stop * third] *= factor
        return loss, gradient

    return lambda patch: patch.setattr(QuadraticNetwork, "loss_and_grad", wrong)


def jacobian_part(factor: float) -> Mutation:
    """∂f/∂u and ∂f/∂v with a wrong factor: the 2 of the square."""
    right = QuadraticNetwork.jacobian

    def wrong(net: QuadraticNetwork, w: Any) -> Any:
        J = right(net, w)
        J[:, : 2 * net.n_params // 3] *= factor
        return J

    return lambda patch: patch.setattr(QuadraticNetwork, "jacobian", wrong)


def vjp_of_all_rows(patch: Patch) -> None:
    """Jᵀ y without the centring of y."""
    right = QuadraticNetwork.vjp

    def wrong(net: QuadraticNetwork, w: Any, y: Any) -> Any:
        offset = np.asarray(y).reshape(-1, net.n, net.p).mean(axis=1, keepdims=True)
        return right(net, w, y) + offset.sum()

    patch.setattr(QuadraticNetwork, "vjp", wrong)


def scaling_direction(patch: Patch) -> None:
    """(u_j, v_j, −W_j) in place of (u_j, v_j, −2W_j)."""
    right = QuadraticNetwork.null_directions

    def wrong(net: QuadraticNetwork, w: Any) -> Any:
        rows = right(net, w)
        rows[: net.K, 2 * net.n_params // 3 :] *= 0.5
        return rows

    patch.setattr(QuadraticNetwork, "null_directions", wrong)


def shift_directions_lost(patch: Patch) -> None:
    right = QuadraticNetwork.null_directions
    patch.setattr(QuadraticNetwork, "null_directions", lambda net, w: right(net, w)[: net.K])


def rank_bound_without_components(patch: Patch) -> None:
    """min{K(3p−2), p(n−1)}: right on connected, well covered pair sets with K ≥ p."""
    patch.setattr(
        QuadraticNetwork,
        "rank_bound",
        lambda net: min(net.K * (3 * net.p - 2), net.p * (net.n - 1)),
    )


def gauss_newton_for_hessian(patch: Patch) -> None:
    """JᵀJ/n at any loss: S is lost."""
    patch.setattr(
        QuadraticNetwork,
        "hessian",
        lambda net, w: net.hessian_scale * net.jacobian(w).T @ net.jacobian(w),
    )


def hvp_without_residual_term(patch: Patch) -> None:
    patch.setattr(
        QuadraticNetwork,
        "hvp",
        lambda net, w, x: net.hessian_scale * net.vjp(w, net.jvp(w, x)),
    )


def law_without_gamma(patch: Patch) -> None:
    right = theory.sgld_expected_llc
    patch.setattr(theory, "sgld_expected_llc", lambda h, **at: right(h, **at | {"gamma": 1e-9}))


def law_without_step_inflation(patch: Patch) -> None:
    """The limit of small steps: ½Σ h/(h+c) and its approach."""
    right = theory.sgld_expected_llc

    def wrong(h: Any, *, n_beta: float, gamma: float, step: float, steps: int, burn_in: int) -> Any:
        stationary = theory.sgld_stationary_llc(h, n_beta=n_beta, gamma=gamma, step=step)
        at = right(h, n_beta=n_beta, gamma=gamma, step=step, steps=steps, burn_in=burn_in)
        return at / stationary * theory.effective_dimension(h, gamma / n_beta)

    patch.setattr(theory, "sgld_expected_llc", wrong)


def law_with_burn_in_averaged(patch: Patch) -> None:
    right = theory.sgld_expected_llc
    patch.setattr(theory, "sgld_expected_llc", lambda h, **at: right(h, **at | {"burn_in": 0}))


def sampler_with_half_the_noise(patch: Patch) -> None:
    """√(ε/2) in place of √ε."""

    class Half:
        def __init__(self, stream: np.random.Generator) -> None:
            self.stream = stream

        def standard_normal(self, out: Any) -> None:
            self.stream.standard_normal(out=out)
            out *= math.sqrt(0.5)

    right = sgld.chain_stream
    patch.setattr(sgld, "chain_stream", lambda case, chain: Half(right(case, chain)))


def dimension_of_a_wider_resolution(patch: Patch) -> None:
    """½Σ h/(h + 2c)."""
    right = theory.effective_dimension
    patch.setattr(theory, "effective_dimension", lambda h, c: right(h, 2.0 * c))


def relaxation_without_the_spring(patch: Patch) -> None:
    """(2/s)·κ in place of (2/s)(κ + 1)."""
    patch.setattr(theory, "relaxation_time", lambda s, kappa: 2.0 / s * kappa)


RED: list[tuple[str, Mutation, set[str]]] = [
    ("loss without its ½", loss_factor, {"E01", "E02"}),
    ("uncentred outputs", outputs_uncentred, {"E01", "E04", "E08", "E09"}),
    ("gradient × ½", gradient_part(0, 3, 0.5), {"E02", "E04", "E08", "E09"}),
    ("∂W × 2", gradient_part(2, 3, 2.0), {"E02", "E03", "E04", "E08", "E09"}),
    ("∂u × 2", gradient_part(0, 1, 2.0), {"E02", "E03", "E04", "E08", "E09"}),
    ("J without the 2 of the square", jacobian_part(0.5), {"E04", "E05", "E08", "E09"}),
    ("Jᵀy not centred", vjp_of_all_rows, {"E04"}),
    ("scaling direction with −W", scaling_direction, {"E05"}),
    ("shift directions lost", shift_directions_lost, {"E05"}),
    ("bound without components", rank_bound_without_components, {"E06"}),
    ("½K(3p−1) × 2", times(theory, "gaussian_generic", 2.0), {"E07"}),
    ("½p(n−1) × ½", times(theory, "wide_limit", 0.5), {"E07"}),
    ("½p·rank × 2", times(theory, "frozen_first_layer", 2.0), {"E07"}),
    ("H without S", gauss_newton_for_hessian, {"E09"}),
    ("Hx without S", hvp_without_residual_term, {"E09"}),
    ("law without gamma", law_without_gamma, {"E10"}),
    ("law without step inflation", law_without_step_inflation, {"E10"}),
    ("law with burn-in averaged in", law_with_burn_in_averaged, {"E10"}),
    ("variance × 2", times(theory, "sgld_llc_variance", 2.0), {"E10"}),
    ("noise √(ε/2)", sampler_with_half_the_noise, {"E10"}),
    ("dimension without its ½", times(theory, "effective_dimension", 2.0), {"E11", "E12"}),
    ("dimension at 2c", dimension_of_a_wider_resolution, {"E11", "E12"}),
    ("curvature × 2", times(curvature, "curvatures", 2.0), {"E10", "E11"}),
    ("κ without + 1", relaxation_without_the_spring, {"E12"}),
    ("integrated time × ½", times(chains, "integrated_time", 0.5), {"E12"}),
    ("step × ½", times(theory, "step_size", 0.5), {"E12"}),
]


@pytest.mark.parametrize(("mutation", "red"), [m[1:] for m in RED], ids=[m[0] for m in RED])
def test_a_wrong_formula_turns_the_right_equations_red(
    mutation: Mutation, red: set[str], monkeypatch: Patch
) -> None:
    mutation(monkeypatch)
    looked_at = red if red & SLOW else OWN - SLOW
    assert {id for id in looked_at if not equations.check(BY_ID[id]).ok} == red


def test_every_equation_has_a_mutant_that_turns_it_red() -> None:
    assert set().union(*(red for _, _, red in RED)) == OWN


# --- the verdict ----------------------------------------------------------------------------


def entry(*parts: Part, id: str = "E01") -> Equation:
    return Equation(
        id, "name", "formula", "source", "theory.bracket", "reason", lambda: iter(parts)
    )


@pytest.mark.parametrize(
    ("parts", "worst", "ok"),
    [
        ([Part("a", 1.0, 10.0), Part("b", 2.0, 10.0)], "b", True),
        ([Part("a", 0.0, 0.0), Part("b", 1.0, 10.0)], "b", True),
        ([Part("a", 10.0, 10.0)], "a", True),
        ([Part("a", 11.0, 10.0), Part("b", 1.0, 10.0)], "a", False),
        ([Part("a", 1.0, 0.0), Part("b", 1.0, 10.0)], "a", False),
        ([Part("a", math.nan, 10.0), Part("b", 1.0, 10.0)], "a", False),
    ],
)
def test_the_worst_part_decides(parts: list[Part], worst: str, ok: bool) -> None:
    outcome = equations.check(entry(*parts))
    assert (outcome.compared, outcome.ok) == (worst, ok)


def raising() -> Iterator[Part]:
    yield Part("a", 0.0, 1.0)
    raise RuntimeError("chain 3 died")


def test_a_check_that_raises_has_failed_and_the_others_are_still_made(
    monkeypatch: Patch, capsys: Capture
) -> None:
    broken = Equation("E01", "name", "formula", "source", "theory.bracket", "reason", raising)
    fine = entry(Part("b", 0.0, 1.0), id="E02")
    monkeypatch.setattr(equations, "EQUATIONS", [broken, fine])
    assert equations.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "RuntimeError: chain 3 died" in lines[1] and lines[1].endswith("FAILED")
    assert lines[2].endswith("ok")
    assert equations.main(["--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(o["id"], o["error"], o["ok"]) for o in document] == [
        ("E01", None, False),
        ("E02", 0.0, True),
    ]


# --- the command line -----------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: Patch) -> None:
    monkeypatch.setattr(equations, "EQUATIONS", [BY_ID["E01"], BY_ID["E05"]])


def test_json_is_a_list_of_the_five_fields(few: None, capsys: Capture) -> None:
    assert equations.main(["--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert [set(o) for o in document] == [{"id", "name", "error", "tolerance", "ok"}] * 2
    assert [o["id"] for o in document] == ["E01", "E05"]
    assert all(o["ok"] is True and o["error"] <= o["tolerance"] for o in document)
    assert captured.err == ""


def test_the_table_has_one_line_each(few: None, capsys: Capture) -> None:
    assert equations.main([]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["equation", "closest", "comparison", "error", "tolerance"]
    assert first.startswith("E01  forward and loss") and first.endswith("  ok")
    assert second.startswith("E05  null directions") and second.endswith("  ok")


def test_one_failure_is_exit_status_1(few: None, monkeypatch: Patch, capsys: Capture) -> None:
    scaling_direction(monkeypatch)
    assert equations.main([]) == 1
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("ok") and second.endswith("FAILED")
    assert equations.main(["--json"]) == 1
    assert [o["ok"] for o in json.loads(capsys.readouterr().out)] == [True, False]


def test_markdown_prints_and_runs_nothing(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(equations, "check", lambda entry: pytest.fail("a check was run"))
    assert equations.main(["--markdown"]) == 0
    assert capsys.readouterr().out == equations.markdown()


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="unrecognized arguments: --fast"):
        equations.main(["--fast"])
