"""The benchmark: that it measures what it says, on sizes too small to mean anything."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bench
import digits
import records
import sgld
import width_networks
import width_study
import width_tables
from bench import Figure, Size
from mlp import MLP
from tests import oracles

TINY = Size(3, 2, 6)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 2)
    monkeypatch.setattr(bench, "SECONDS", 1e-4)


def test_works_take_turns() -> None:
    order: list[str] = []
    works: dict[str, Callable[[], object]] = {
        "a": lambda: order.append("a"),
        "b": lambda: order.append("b"),
    }
    ticks = iter(range(12))
    seconds = bench.take_turns(works, 3, lambda: float(next(ticks)))
    assert order == ["a", "b"] * 3
    assert seconds == {"a": [1.0, 1.0, 1.0], "b": [1.0, 1.0, 1.0]}


def test_the_ratio_is_taken_within_a_round() -> None:
    """A round in which everything is ten times slower changes nothing."""
    assert bench.median_ratio([2.0, 20.0, 3.0], [1.0, 10.0, 1.0]) == 2.0


def test_a_limit_is_kept_on_its_own_side() -> None:
    assert Figure("", 1.5, 1.5, True, {}).kept and not Figure("", 1.51, 1.5, True, {}).kept
    assert Figure("", 1.7, 1.7, False, {}).kept and not Figure("", 1.69, 1.7, False, {}).kept


def test_the_bench_network_sits_at_a_minimum_and_its_chains_are_stable() -> None:
    net, w = bench.planted(bench.SMALL)
    assert (net.p, net.K, net.n) == bench.SMALL
    assert net.loss(w) == 0.0
    sample = sgld.sample(net, w, **bench.settings(net, w, 20))
    assert sample.llc > 0


def test_a_certified_rank_is_timed_beside_the_svd(quick: None) -> None:
    first, memory, *_, ratio = bench.certified_rank((TINY, TINY))
    assert first.what == "seconds of a certified rank, p=3, K=2, n=6" and first.limit == 20.0
    assert memory.details["peak_bytes"] == memory.ratio * 2**30
    assert ratio.ratio == ratio.details["svd"] / ratio.details["rank"] and not ratio.at_most


def test_a_perceptrons_curvatures_are_timed_exactly_and_by_probes() -> None:
    gram, *ratios, spectrum, memory = bench.perceptron_curvatures(width=3, n=20)
    assert gram.what == "seconds of a Gram matrix, w=3, n=20" and gram.limit == 15.0
    net = MLP(*digits.load(20), [3, 3])
    s = np.linalg.svd(net.jacobian(net.initial_weights(0)), compute_uv=False)
    h = net.hessian_scale * s**2
    for figure, kappa in zip(ratios, bench.KAPPAS, strict=True):
        assert f"κ = {kappa}" in figure.what and not figure.at_most and figure.limit == 1.0
        found = figure.details
        assert figure.ratio == found["probes"] / (found["gram"] + found["cholesky"])
        # h_max by Lanczos at 1e-8, Cholesky at m·eps·kappa: far below 1e-6 of the value.
        exact = 0.5 * np.sum(h / (h + h[0] / kappa))
        assert found["exact"] == pytest.approx(exact, rel=1e-6)
        # Another resolution would be another value.
        assert found["exact"] != pytest.approx(0.5 * np.sum(h / (h + h[0])), rel=1e-2)
        # Both sides read one matrix: 5 standard errors, whose own spread from 8 probes is 27 %.
        assert abs(found["probed"] - exact) < 5 * found["standard_error"]
    assert spectrum.limit == 240.0 and spectrum.ratio == spectrum.details["seconds"] > 0
    # It cannot do with less than the Gram matrix.
    assert memory.ratio * 2**30 == memory.details["peak_bytes"] >= 8 * (20 * 10) ** 2


def test_the_perceptron_of_the_bench_is_that_of_the_study() -> None:
    defaults = inspect.signature(bench.perceptron_curvatures).parameters
    assert defaults["width"].default == max(width_networks.WIDTHS)
    assert defaults["n"].default == width_networks.DIGITS
    assert bench.PROBES == width_study.PROBES and set(bench.KAPPAS) <= set(width_tables.KAPPAS)


def test_every_size_is_a_set_of_pairs() -> None:
    assert [bench.planted(size)[0].n for size in bench.SIZES] == [size.n for size in bench.SIZES]


def test_the_oracle_runs_the_same_chains_the_same_number_of_steps() -> None:
    net, w = bench.planted(TINY)
    losses = bench.oracle_run(net, w, bench.settings(net, w, 20))()
    assert isinstance(losses, np.ndarray) and losses.shape == (bench.CHAINS, 20)


def test_the_oracle_and_the_fast_chains_are_the_same_chains() -> None:
    """With the same streams the losses agree: the two sides of the ratio do one job."""
    net, w = bench.planted(bench.SMALL)
    options = bench.settings(net, w, steps := 100)
    fast = sgld.sample(net, w, **options, seed=7)
    streams = [sgld.chain_stream((7,), c) for c in range(bench.CHAINS)]
    kept = {name: options[name] for name in ("n_beta", "gamma", "step", "steps")}
    assert net.a is not None and net.b is not None
    x, _ = oracles.one_hot_task(net.p, net.a, net.b)
    slow = oracles.sgld_losses(x, net.targets, w, net.K, streams, **kept)[:, :: sgld.KEEP_EVERY]
    # A step has sums of n + K + 2p terms, whose roundings are independent and grow as the root; a
    # stable step does not magnify what came before. Residuals are differences of outputs about 30
    # times their size.
    terms = steps * (net.n + net.K + 2 * net.p)
    tolerance = 30 * terms**0.5 * np.finfo(np.float64).eps
    np.testing.assert_allclose(fast.traces, slow, rtol=0, atol=tolerance * slow.max())
    assert (slow[:, 1:] > 0).all()


@pytest.mark.usefixtures("quick")
def test_ratios_of_time_are_measured() -> None:
    for figure in (bench._over_floor(TINY, 2.5), bench._over_oracle(TINY)):
        assert figure.ratio > 0 and figure.details["step_us"] > 0
        assert str(TINY) in figure.what


def test_two_workers_are_measured_on_the_clock() -> None:
    (figure,) = bench.two_workers(TINY, steps=50)
    # Starting a process costs more than these 50 steps.
    assert 0 < figure.ratio < figure.limit and not figure.kept


def test_the_gram_route_holds_one_gram_matrix_and_one_block() -> None:
    (figure,) = bench.gram_memory()
    assert figure.kept
    # It cannot do with less than the Gram matrix.
    assert figure.details["peak_bytes"] >= 8 * min(97 * 11, 3 * 11 * 33) ** 2


def run_with(
    monkeypatch: pytest.MonkeyPatch, output: Path, ratio: float, arguments: list[str]
) -> int:
    figure = Figure("something", ratio, 2.0, True, {"p": 3})
    monkeypatch.setattr(bench, "SECTIONS", {"one": lambda: [figure], "two": lambda: [figure]})
    monkeypatch.setattr(bench, "OUTPUT", output)
    return bench.main(arguments)


def test_the_record_says_what_where_and_with_what(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = tmp_path / "bench.json"
    assert run_with(monkeypatch, output, 1.234, []) == 0
    record = records.read_json(output)
    assert record["summary"][0] == {"what": "something", "measured": "1.23", "limit": "≤ 2"}
    assert len(record["summary"]) == 2 and list(record["sections"]) == ["one", "two"]
    assert record["sections"]["one"][0]["kept"] is True
    assert record["versions"] == records.versions()
    assert record["machine"]["processor"] and record["machine"]["cores"] >= 1


def test_a_missed_limit_is_recorded_and_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bench.json"
    assert run_with(monkeypatch, output, 3.0, []) == 1
    assert records.read_json(output)["sections"]["one"][0]["kept"] is False
    assert "3.00 (limit ≤ 2)  MISSED" in capsys.readouterr().err


def test_single_sections_are_printed_and_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bench.json"
    assert run_with(monkeypatch, output, 1.0, ["two"]) == 0
    assert not output.exists()
    assert list(json.loads(capsys.readouterr().out)["sections"]) == ["two"]


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown section speed; choose from step_over_floor"):
        bench.main(["speed"])
