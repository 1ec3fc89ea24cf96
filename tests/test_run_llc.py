"""run_llc.py as its users meet it: reports, records, resuming, and every kind of bad input."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import console
import curvature
import gate
import measure
import readout
import records
import run_llc
import sgld
import train
from chains import DeadChain
from qnet import QuadraticNetwork, modular_pairs
from records import Checkpoint

ROOT = Path(__file__).resolve().parent.parent
Patch = pytest.MonkeyPatch
FAST = ("--steps", "60", "--burn-in", "10", "--chains", "2", "--settings-not-calibrated")


class Ran(NamedTuple):
    """What a run of the script leaves: exit status, stdout, stderr."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the script in this process with short chains, results under tmp_path/out."""

    def run(*arguments: object) -> Ran:
        words = [*FAST, "--out", str(tmp_path / "out"), *map(str, arguments)]
        status = console.run(lambda: run_llc.main(words))
        return Ran(status, *capsys.readouterr())

    return run


def random_network(p: int = 5, K: int = 6, seed: int = 1) -> Checkpoint:
    """An untrained network: far from a minimum."""
    a, b = modular_pairs(p, 0.8, seed)
    net = QuadraticNetwork.modular(p, K, a, b)
    u, v, W = net.unpack(net.initial_weights(seed, 0.5))
    return Checkpoint(p, K, a, b, u, v, W, fraction=0.8, seed=seed)


@pytest.fixture
def untrained(tmp_path: Path) -> Path:
    """A file with an untrained network."""
    path = tmp_path / "untrained.npz"
    records.write_checkpoint(path, random_network())
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a grokked and polished network: p = 7, K = 14, about a second."""
    net = QuadraticNetwork.modular(7, 14, *modular_pairs(7, 0.8, 0))
    path = tmp_path_factory.mktemp("trained") / "p7_K14.npz"
    records.write_checkpoint(path, run_llc.make_checkpoint(net, 0.8, 0, "adam", True))
    return path


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def count_calls(patch: Patch, module: Any, name: str) -> list[str]:
    """Note each call of a function, which still does its work."""
    real, calls = getattr(module, name), []

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return real(*arguments, **named)

    patch.setattr(module, name, counted)
    return calls


def one_network(ran: Ran) -> dict[str, Any]:
    """The only network of a --json run that went well."""
    assert ran.status == 0, ran.err
    (network,) = json.loads(ran.out)["networks"]
    return dict(network)


# --- what a user gets -----------------------------------------------------------------------


def test_the_report_of_a_grokked_network(run: Run, trained: Path) -> None:
    ran = run("--checkpoint", trained, "--steps", 2000, "--burn-in", 400, "--chains", 4)
    assert ran.status == 0
    heads = [line[2:13].strip() for line in ran.out.splitlines() if line[2:3].strip()]
    assert ran.out.startswith("p7_K14: p = 7, K = 14, n = 39 pairs, d = 294 weights\n")
    assert heads[1:] == [
        "network",
        "spectrum",
        "rank",
        "bracket",
        "exact rank",
        "predicted",
        "reading",
        "chains",
        "formula",
        "verdict",
    ]
    assert "right on 100% of the pairs trained on, 100% of those held out" in ran.out
    assert "266 directions in which the outputs change" in ran.out
    assert "133.0 ≤ λ ≤ 133.0 for the teacher f(w*)" in ran.out
    assert "CERTIFICATE: λ = 133.0, m = 1" in ran.out
    assert "[not calibrated]" in ran.out
    assert "½K_eff(3p−1) = 140.0 (the paper's); ½K(3p−2) = 133.0; ½p(n−1) = 133.0" in ran.out
    assert "the exact law of the spectrum at w*" in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) <= readout.LINE
    # On a slow machine lines with the time left stand between these.
    assert [line for line in ran.err.splitlines() if " %, about " not in line] == [
        "p7_K14: singular values of the 273 × 294 Jacobian",
        "p7_K14: sampling: started",
    ]


def test_the_record_agrees_with_measure_called_by_hand(run: Run, trained: Path) -> None:
    record = one_network(run("--checkpoint", trained, "--json", "--quiet"))
    c = records.read_checkpoint(trained)
    net = QuadraticNetwork.modular(c.p, c.K, c.a, c.b)
    w = net.pack(c.u, c.v, c.W)
    found = measure.read_curvature(net, w)
    short = {"chains": 2, "steps": 60, "burn_in": 10}
    protocol = measure.Protocol(**run_llc.default_settings() | short)
    again = measure.sample(net, w, found, protocol, seed=(7, 14, 0))
    assert record["reading"]["llc"] == again.llc
    assert record["reading"]["settings"]["step"] == protocol.step(found.h_max)
    assert (
        record["predicted"]["expected_llc"] == measure.predict(net, w, found, protocol).expected_llc
    )
    assert record["curvature"]["rank"] == found.rank == 266
    assert record["network"]["loss"] == c.loss
    assert record["network"]["weight_norm"] == np.linalg.norm(w)
    assert record["status"] == "not calibrated"


def test_the_traces_are_kept_beside_the_record(run: Run, untrained: Path, tmp_path: Path) -> None:
    record = one_network(run("--checkpoint", untrained, "--json"))
    folder = tmp_path / "out" / "untrained"
    (kept,) = folder.glob("record_*.json")
    assert records.read_json(kept) == record
    (traces,) = folder.glob("traces_*.npz")
    assert traces.stem.split("_")[1] == kept.stem.split("_")[1]
    arrays = records.read_npz(traces)
    assert arrays["losses"].shape == arrays["distances"].shape == (2, 6)  # every 10th of 60
    assert arrays["losses"][0, 0] == record["reading"]["loss_at_reference"]


def test_json_is_one_document_and_nothing_else_on_stdout(run: Run, untrained: Path) -> None:
    ran = run("--checkpoint", untrained, "--json")
    assert json.loads(ran.out)["networks"][0]["name"] == "untrained"
    assert "sampling" in ran.err


def test_two_networks_are_one_document_or_two_reports(
    run: Run, untrained: Path, monkeypatch: Patch, tmp_path: Path
) -> None:
    records.write_checkpoint(tmp_path / "other.npz", random_network(seed=2))
    monkeypatch.setattr(run_llc, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(run_llc, "SHIPPED", ("untrained", "other"))
    document = json.loads(run("--json").out)
    assert [network["name"] for network in document["networks"]] == ["untrained", "other"]
    first, second = run().out.split("\n\n")
    assert first.startswith("untrained: ") and second.startswith("other: ")


def test_a_report_is_printed_before_the_next_network_fails(
    run: Run, untrained: Path, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_llc, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(run_llc, "SHIPPED", ("untrained", "missing"))
    ran = run("--quiet")
    assert ran.status == 2 and ran.out.startswith("untrained: ")
    assert ran.err == (
        f"error: {tmp_path / 'missing.npz'}: cannot read (No such file or directory); check the "
        "path\n"
    )
    assert run("--quiet", "--json").out == ""  # no half document


def test_quiet_prints_nothing_on_stderr(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "four.npz"
    records.write_checkpoint(path, random_network(p=4))
    assert run("--checkpoint", path, "--quiet").err == ""


def test_every_option_has_a_line_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run_llc.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert left.value.code == 0
    frozen = run_llc.default_settings()
    defaults = {
        "p": "11",
        "K": "3P",
        "fraction": "0.8",
        "seed": "0",
        "polish": "adam",
        **{name.replace("_", "-"): f"{value:g}" for name, value in frozen.items()},
        "route": "svd",
        "workers": "1",
    }
    for option, default in defaults.items():
        _, _, about = text.rpartition(f" --{option} ")
        assert f"(default {default})" in about.split(" --")[0], option
    for option in ("checkpoint", "out", "json", "quiet", "debug"):
        assert f" --{option} " in text.partition("options:")[2]


def test_the_defaults_said_are_the_defaults_used() -> None:
    options = run_llc.parse([])
    assert run_llc.protocol_for(97, options) == measure.Protocol(**gate.read_frozen().settings)
    assert (options.route, options.workers, options.out) == ("svd", 1, ROOT / "runs")


@pytest.mark.parametrize("rule", ["n/log(n)", "n / log(n)", "n/log n"])
def test_n_beta_by_the_rule_of_wbic(rule: str, run: Run, untrained: Path) -> None:
    record = one_network(run("--checkpoint", untrained, "--json", "--n-beta", rule))
    assert record["reading"]["settings"]["n_beta"] == 20 / math.log(20)  # 0.8 · 5² pairs
    gamma = run_llc.default_settings()["gamma"]
    assert record["curvature"]["resolution"] == gamma / (20 / math.log(20))


def test_workers_change_no_bit(run: Run, untrained: Path, tmp_path: Path) -> None:
    one = one_network(run("--checkpoint", untrained, "--json", "--out", tmp_path / "1"))
    two = one_network(
        run("--checkpoint", untrained, "--json", "--out", tmp_path / "2", "--workers", 2)
    )
    assert one["reading"] == two["reading"]
    assert one["asked"] == two["asked"]


def test_the_matrix_free_route_has_no_rank_and_no_law(run: Run, untrained: Path) -> None:
    ran = run("--checkpoint", untrained, "--route", "matrix-free", "--gamma", "500")
    assert ran.status == 0
    assert "(matrix-free: no rank, no bracket)" in ran.out
    assert "(probes)" in ran.out
    assert "exact law" not in ran.out and "≤ λ ≤" not in ran.out


def test_a_network_without_weights_is_reported_too(run: Run, tmp_path: Path) -> None:
    c = random_network()
    path = tmp_path / "zero.npz"
    records.write_checkpoint(path, replace(c, u=0 * c.u, v=0 * c.v, W=0 * c.W))
    ran = run("--checkpoint", path, "--n-beta", 1, "--gamma", 100)
    assert ran.status == 0
    assert "rank       0 directions" in ran.out
    assert "the paper's formula;" not in ran.out  # K_eff = 0: there is nothing to compare with


# --- networks -------------------------------------------------------------------------------


@pytest.fixture
def untrained_by_command(monkeypatch: Patch) -> list[tuple[Any, ...]]:
    """Training takes no time and teaches nothing; returns (p, K, n, fraction, seed, polish)."""
    made: list[tuple[Any, ...]] = []

    def stub(
        net: QuadraticNetwork, fraction: float, seed: int, polish: str, quiet: bool
    ) -> Checkpoint:
        made.append((net.p, net.K, net.n, fraction, seed, polish))
        assert net.a is not None and net.b is not None
        u, v, W = net.unpack(net.initial_weights(seed, 0.5))
        return Checkpoint(net.p, net.K, net.a, net.b, u, v, W, fraction=fraction, seed=seed)

    monkeypatch.setattr(run_llc, "make_checkpoint", stub)
    return made


@pytest.mark.parametrize(
    ("arguments", "made", "name"),
    [
        (["--p", "5"], (5, 15, 20, 0.8, 0, "adam"), "p5_K15_f80_s0"),
        (["--p", "5", "--K", "4"], (5, 4, 20, 0.8, 0, "adam"), "p5_K4_f80_s0"),
        (["--K", "2"], (11, 2, 97, 0.8, 0, "adam"), "p11_K2_f80_s0"),
        (["--seed", "3"], (11, 33, 97, 0.8, 3, "adam"), "p11_K33_f80_s3"),
        (["--fraction", "1", "--p", "5"], (5, 15, 25, 1.0, 0, "adam"), "p5_K15_f100_s0"),
        (["--polish", "lbfgs", "--p", "5"], (5, 15, 20, 0.8, 0, "lbfgs"), "p5_K15_f80_s0_lbfgs"),
    ],
)
def test_any_network_option_trains_a_new_one(
    arguments: list[str],
    made: tuple[Any, ...],
    name: str,
    run: Run,
    untrained_by_command: list[tuple[Any, ...]],
) -> None:
    record = one_network(run("--json", *arguments))
    assert untrained_by_command == [made]
    assert record["name"] == name
    assert record["reading"]["settings"]["seed"] == [made[0], made[1], made[4]]


def test_train_polish_and_measure_a_new_network(run: Run, tmp_path: Path) -> None:
    ran = run("--p", 7, "--K", 14, "--polish", "lbfgs")
    assert ran.status == 0
    c = records.read_checkpoint(tmp_path / "out" / "p7_K14_f80_s0_lbfgs" / "checkpoint.npz")
    assert (c.p, c.K, c.n, c.fraction, c.seed, c.polish) == (7, 14, 39, 0.8, 0, "lbfgs")
    assert c.loss is not None and c.loss < 1e-8
    assert "right on 100% of the pairs trained on, 100% of those held out" in ran.out
    assert ran.err.splitlines()[:2] == ["training, at most: started", "polishing, at most: started"]


def test_a_kept_file_may_be_named_to_measure_it_again(
    run: Run, untrained_by_command: list[Any], tmp_path: Path
) -> None:
    own = one_network(run("--p", 5, "--json"))
    path = tmp_path / "out" / "p5_K15_f80_s0" / "checkpoint.npz"
    assert one_network(run("--checkpoint", path, "--json")) == own
    assert len(untrained_by_command) == 1


def test_a_foreign_network_draws_its_chains_from_its_own_hash(run: Run, tmp_path: Path) -> None:
    c = replace(random_network(), seed=None, fraction=None)
    path = tmp_path / "foreign.npz"
    records.write_checkpoint(path, c)
    record = one_network(run("--checkpoint", path, "--json"))
    assert record["reading"]["settings"]["seed"] == [5, 6, int(c.content_hash()[:8], 16)]


def test_p_need_not_be_prime_and_the_user_is_told_what_changes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "four.npz"
    records.write_checkpoint(path, random_network(p=4))
    ran = run("--checkpoint", path)
    assert ran.status == 0
    assert ran.err.startswith("note: p = 4 is not prime: rank, bracket and readings mean the same")
    assert ran.out.startswith("four: p = 4 (not prime), K = 6")
    assert one_network(run("--checkpoint", path, "--json"))["network"]["p_is_prime"] is False


# --- resuming -------------------------------------------------------------------------------


def interrupted(*arguments: Any, **named: Any) -> Any:
    raise KeyboardInterrupt


def test_an_interruption_while_sampling_keeps_training_and_spectrum(
    run: Run, tmp_path: Path, monkeypatch: Patch
) -> None:
    command = ("--p", 7, "--K", 14)
    with monkeypatch.context() as patch:
        patch.setattr(measure, "sample", interrupted)
        ran = run(*command, "--quiet")
    assert ran == (1, "", "interrupted: what was finished is kept; the same command resumes\n")
    folder = tmp_path / "out" / "p7_K14_f80_s0"
    before = files(folder)
    assert [name.split("_")[0] for name in before] == ["checkpoint.npz", "spectrum"]
    monkeypatch.setattr(train, "train", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(measure, "read_curvature", lambda *_: pytest.fail("decomposed again"))
    assert run(*command).status == 0
    after = files(folder)
    assert {name: after[name] for name in before} == before


def test_an_interruption_while_training_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(train, "train", interrupted)
    assert run("--p", 7, "--K", 14).status == 1
    assert files(tmp_path / "out") == {}


def test_the_same_command_does_nothing_twice(run: Run, untrained: Path, monkeypatch: Patch) -> None:
    first = run("--checkpoint", untrained)
    monkeypatch.setattr(measure, "sample", lambda *_, **__: pytest.fail("sampled again"))
    second = run("--checkpoint", untrained)
    assert (second.status, second.out, second.err) == (0, first.out, "")


@pytest.mark.parametrize(
    "changed",
    [
        ("--gamma", "2"),
        ("--n-beta", "500"),
        ("--step-constant", "0.1"),
        ("--chains", "3"),
        ("--steps", "61"),
        ("--burn-in", "11"),
    ],
)
def test_other_settings_are_sampled_anew_from_the_same_spectrum(
    changed: tuple[str, str], run: Run, untrained: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    first = run("--checkpoint", untrained)
    before = files(tmp_path / "out")
    sampled = count_calls(monkeypatch, measure, "sample")
    decomposed = count_calls(monkeypatch, measure, "read_curvature")
    assert run("--checkpoint", untrained, *changed).status == 0
    assert (sampled, decomposed) == (["sample"], [])
    after = files(tmp_path / "out")
    assert {name: after[name] for name in before} == before  # both results are kept
    assert run("--checkpoint", untrained).out == first.out
    assert sampled == ["sample"]


def test_another_route_is_another_record(run: Run, untrained: Path, monkeypatch: Patch) -> None:
    run("--checkpoint", untrained)
    sampled = count_calls(monkeypatch, measure, "sample")
    assert (
        one_network(run("--checkpoint", untrained, "--route", "gram", "--json"))["curvature"][
            "route"
        ]
        == "gram"
    )
    assert sampled == ["sample"]


@pytest.mark.parametrize("change", ["weights", "seed", "code"])
def test_a_record_is_not_reused_for_anything_else(
    change: str, run: Run, untrained: Path, monkeypatch: Patch
) -> None:
    first = one_network(run("--checkpoint", untrained, "--json"))
    c = records.read_checkpoint(untrained)
    if change == "weights":
        records.write_checkpoint(untrained, replace(c, W=np.nextafter(c.W, np.inf)))
    elif change == "seed":  # of the chains: the same weights and pairs
        records.write_checkpoint(untrained, replace(c, seed=7))
    else:
        monkeypatch.setattr(records, "code_hash", lambda paths: "0" * 64)
    second = one_network(run("--checkpoint", untrained, "--json"))
    assert second["asked"] != first["asked"]
    same_numbers = second["reading"]["llc"] == first["reading"]["llc"]
    assert same_numbers == (change == "code")  # only its hash was changed here


def test_a_record_that_is_not_what_its_name_says_is_refused(
    run: Run, untrained: Path, tmp_path: Path
) -> None:
    run("--checkpoint", untrained)
    (kept,) = (tmp_path / "out" / "untrained").glob("record_*.json")
    record = records.read_json(kept)
    record["asked"]["protocol"]["gamma"] = 3.0
    for content in (record, [record]):
        records.write_json(kept, content)
        ran = run("--checkpoint", untrained)
        assert ran == (
            2,
            "",
            f"error: {kept} is not the record its name says: remove it and run again\n",
        )
    kept.write_text("{")
    assert "not JSON" in run("--checkpoint", untrained).err


def test_a_folder_with_another_network_of_that_name_is_refused(
    run: Run, untrained_by_command: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "out" / "p5_K15_f80_s0" / "checkpoint.npz"
    records.write_checkpoint(path, random_network(p=5, K=15, seed=4))
    before = files(tmp_path)
    ran = run("--p", 5)
    assert ran.status == 2 and "holds another network: remove it, or choose another" in ran.err
    assert files(tmp_path) == before and untrained_by_command == []


# --- bad use: status 2, one line, nothing written -------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--p", "1"], "p must be at least 2, got 1"),
        (["--p", "-3"], "p must be at least 2, got -3"),
        (["--K", "0", "--p", "5"], "K must be at least 1, got 0"),
        (["--fraction", "0"], "fraction must lie in (0, 1], got 0.0"),
        (["--fraction", "1.01"], "fraction must lie in (0, 1], got 1.01"),
        (["--fraction", "-0.5"], "fraction must lie in (0, 1], got -0.5"),
        (["--fraction", "nan"], "fraction must lie in (0, 1], got nan"),
        (["--fraction", "0.01"], "fraction 0.01 of 11² pairs leaves 1: at least 2 are needed"),
        (["--seed", "-1"], "seed must lie in 0..2^32−1, got -1"),
        (["--seed", "4294967296"], "seed must lie in 0..2^32−1, got 4294967296"),
        (["--n-beta", "0"], "n_beta must be positive and finite, got 0.0"),
        (["--n-beta", "-1"], "n_beta must be positive and finite, got -1.0"),
        (["--n-beta", "inf"], "n_beta must be positive and finite, got inf"),
        (["--n-beta", "n"], "n_beta must be a number or 'n/log(n)', got 'n'"),
        (["--gamma", "0"], "gamma must be positive and finite, got 0.0"),
        (["--gamma", "-1"], "gamma must be positive and finite, got -1.0"),
        (["--gamma", "nan"], "gamma must be positive and finite, got nan"),
        (["--step-constant", "0"], "step_constant must be positive and finite, got 0.0"),
        (["--step-constant", "4"], "step_constant must be below the stability limit 4, got 4.0"),
        (["--chains", "0"], "chains must be at least 1, got 0"),
        (["--burn-in", "60"], "got burn_in 60 of 60 steps"),
        (["--burn-in", "55"], "burn_in must be ≥ 0 and leave at least 10 steps"),
        (["--burn-in", "-1"], "burn_in must be ≥ 0"),
        (["--workers", "0"], "workers must be at least 1, got 0"),
        (["--p", "seven"], "argument --p: invalid int value: 'seven'"),
        (["--steps", "1e4"], "argument --steps: invalid int value: '1e4'"),
        (["--route", "lu"], "argument --route: invalid choice: 'lu'"),
        (["--polish", "sgd"], "argument --polish: invalid choice: 'sgd'"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["data.npz"], "unrecognized arguments: data.npz"),
        (["--checkpoint", "x.npz", "--p", "7"], "--checkpoint names a finished network"),
        (["--checkpoint", "nowhere.npz"], "nowhere.npz: cannot read (No such file"),
        (["--checkpoint", "tests"], "tests: cannot read (Is a directory)"),
        (["--checkpoint", "run_llc.py"], "run_llc.py: not readable as .npz"),
    ],
)
def test_bad_use(
    arguments: list[str], words: str, run: Run, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(train, "train", lambda *_, **__: pytest.fail("work before the refusal"))
    ran = run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1
    assert words in ran.err
    assert files(tmp_path) == {}


def damaged(kind: str, path: Path) -> None:
    """Write a checkpoint that is wrong in one way."""
    c = random_network()
    fields = {name: getattr(c, name) for name in ("p", "K", "a", "b", "u", "v", "W")}
    if kind == "truncated":
        records.write_checkpoint(path, c)
        path.write_bytes(path.read_bytes()[:-100])
        return
    wrong: dict[str, Any] = {
        "NaN": {"u": np.where(np.arange(5) == 2, np.nan, c.u)},
        "shape": {"W": c.W.T},
        "type": {"v": c.v.astype(np.float32)},
        "p": {"p": 1},
        "pairs": {"a": c.a[:1], "b": c.b[:1]},
        "twice": {"a": np.append(c.a, c.a[0]), "b": np.append(c.b, c.b[0])},
        "outside": {"a": c.a + 1},
        "fraction": {"fraction": 1.5},
        "unknown": {"weights": c.u},
    }
    np.savez(path, **fields | wrong[kind])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("truncated", "it is no .npz, or is damaged: restore it"),
        ("NaN", "array u is nan at (0, 2)"),
        ("shape", "W has shape (6, 5), expected (5, 6)"),
        ("type", "v has type float32, expected float64"),
        ("p", "p is 1; it must be an integer, 2 or more"),
        ("pairs", "1 pairs; a network is measured on two pairs or more"),
        ("twice", "is given twice"),
        ("outside", "values are 0..4 for p=5"),
        ("fraction", "fraction is 1.5; it must be in (0, 1]"),
        ("unknown", "unknown array weights"),
    ],
)
def test_a_damaged_checkpoint_is_refused(kind: str, words: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.npz"
    damaged(kind, path)
    ran = run("--checkpoint", path)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {path}: ") and ran.err.count("\n") == 1
    assert words in ran.err
    assert not (tmp_path / "out").exists()


def test_no_permission_is_found_before_the_work(
    run: Run, untrained: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "a_file").write_text("keep me")
    monkeypatch.setattr(train, "train", lambda *_, **__: pytest.fail("work before the refusal"))
    monkeypatch.setattr(
        measure, "read_curvature", lambda *_: pytest.fail("work before the refusal")
    )
    for command in (["--p", "5"], ["--checkpoint", untrained]):
        ran = run(*command, "--out", tmp_path / "a_file" / "out")
        assert (ran.status, ran.out) == (2, "")
        assert "cannot write (Not a directory)" in ran.err and ran.err.count("\n") == 1
    assert (tmp_path / "a_file").read_text() == "keep me"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_read_only_folder_is_bad_use(
    number: int, run: Run, untrained: Path, monkeypatch: Patch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(records.os, "replace", refuse)
    ran = run("--checkpoint", untrained)
    assert (ran.status, ran.out) == (2, "")
    assert f"cannot write ({os.strerror(number)}); check the permissions" in ran.err


# --- failed measurements: status 1, one line, nothing harmed --------------------------------


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_disk_that_fills_up_harms_nothing_and_the_command_resumes(
    written: int, run: Run, untrained: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Full after so many files: the probe, the spectrum, the traces; 3: before the record."""
    earlier = run("--checkpoint", untrained, "--gamma", 2)
    before, real, done = files(tmp_path / "out"), os.fsync, 0
    spectrum = next((tmp_path / "out" / "untrained").glob("spectrum_*"))
    spectrum.unlink()  # so that it has to be written again

    def fsync(descriptor: int) -> None:
        nonlocal done
        if done == written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += 1
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(records.os, "fsync", fsync)
        ran = run("--checkpoint", untrained, "--quiet")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert "cannot write (No space left on device); free some space and run again" in ran.err
    left = files(tmp_path / "out")
    assert not any(name.endswith(".tmp") or ".writable" in name for name in left)
    assert all(left[name] == before[name] for name in left if name in before)
    assert run("--checkpoint", untrained).status == 0
    assert run("--checkpoint", untrained, "--gamma", 2).out == earlier.out


def test_a_chain_that_dies_is_a_failed_measurement(
    run: Run, untrained: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    def die(*_: Any, **__: Any) -> sgld.Sample:
        raise DeadChain("chain 1 is not finite at step 7; lower the step")

    monkeypatch.setattr(measure, "sample", die)
    ran = run("--checkpoint", untrained, "--quiet")
    assert ran == (1, "", "error: chain 1 is not finite at step 7; lower the step\n")
    assert not list((tmp_path / "out").rglob("record_*"))


def test_a_chain_that_really_dies(run: Run, trained: Path) -> None:
    """Away from w* the loss is steeper: a step just below the limit at w* is too long there."""
    ran = run("--checkpoint", trained, "--step-constant", 3.99, "--n-beta", 1, "--steps", 2000)
    assert (ran.status, ran.out) == (1, "")
    assert "is not finite at step" in ran.err and "No average over the other chains" in ran.err


def test_a_training_that_fails_leaves_no_network(
    run: Run, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(train, "Recipe", lambda: replace(RECIPE, max_steps=20))
    ran = run("--p", 7, "--K", 14, "--quiet")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("error: no grok in 20 steps") and ran.err.count("\n") == 1
    assert files(tmp_path / "out") == {}


RECIPE = train.Recipe()


def test_too_little_memory_is_a_failed_measurement_with_a_remedy(
    run: Run, untrained: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(curvature, "available_memory", lambda: 1_000)
    ran = run("--checkpoint", untrained, "--quiet")
    assert (ran.status, ran.out) == (1, "")
    assert "are available; use --route gram, which never holds J, or --route matrix-free" in ran.err
    assert run("--checkpoint", untrained, "--route", "matrix-free", "--gamma", 500).status == 0


@pytest.mark.parametrize("setting", [("--n-beta", "1e300"), ("--n-beta", "1e-300")])
def test_settings_beyond_float64_are_one_line(
    setting: tuple[str, str], run: Run, trained: Path
) -> None:
    ran = run("--checkpoint", trained, "--quiet", *setting)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.endswith(": a setting or a weight is outside the range of float64\n")
    assert ran.err.count("\n") == 1


def test_debug_shows_where(run: Run) -> None:
    with pytest.raises(ValueError, match="p must be at least 2"):
        console.run(lambda: run_llc.main(["--p", "1"]), debug=True)


# --- doubts ---------------------------------------------------------------------------------


def test_a_point_that_is_no_minimum_is_called_that(run: Run, untrained: Path) -> None:
    ran = run("--checkpoint", untrained, "--steps", 400)
    assert ran.status == 0
    words = " ".join(ran.out.split())
    assert "λ̂ = -" in words and "NOT settled" in words
    assert "doubt: w* is not a minimum: smallest Hessian eigenvalue -" in words
    assert "polish further before measuring" in words
    assert "the chains raise doubts, so λ̂ decides nothing" in words


def test_report_writes_one_page(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_llc, "HERE", tmp_path)
    assert run_llc.main(["--report"]) == 0
    page = tmp_path / "report.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


# --- in a process of its own ----------------------------------------------------------------


def command(*arguments: object) -> list[str]:
    return [sys.executable, "run_llc.py", *map(str, arguments)]


def test_bad_use_in_a_process_has_no_traceback_unless_asked_for() -> None:
    bad = command("--fraction", 2)
    done = subprocess.run(bad, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: fraction must lie in (0, 1], got 2.0\n"
    done = subprocess.run([*bad, "--debug"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" in done.stderr


def interrupted_by_ctrl_c(long: list[str]) -> None:
    """Run until the sampler starts, then send SIGINT to the group, as a terminal does."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        long, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stderr:
            if "sampling: started" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        lines = process.stderr.read()
        assert process.stdout.read() == ""
    assert process.returncode == 1
    assert lines == "interrupted: what was finished is kept; the same command resumes\n"


def test_ctrl_c_is_one_line_and_the_same_command_resumes(untrained: Path, tmp_path: Path) -> None:
    arguments = ("--checkpoint", untrained, "--out", tmp_path / "out", "--chains", 2)
    marked = (*arguments, "--settings-not-calibrated")
    long = command(*marked, "--steps", 10_000, "--json")  # a second at least
    interrupted_by_ctrl_c(long)
    (kept,) = files(tmp_path / "out")
    assert kept.startswith("untrained/spectrum_")
    done = subprocess.run(long, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.startswith("untrained: sampling: started\n")  # no second spectrum
    assert json.loads(done.stdout)["networks"][0]["reading"]["settings"]["steps"] == 10_000


def test_ctrl_c_stops_the_workers_without_a_word_of_theirs(untrained: Path, tmp_path: Path) -> None:
    arguments = ("--checkpoint", untrained, "--out", tmp_path / "out", "--workers", 2)
    marked = (*arguments, "--settings-not-calibrated")
    interrupted_by_ctrl_c(command(*marked, "--steps", 1_000_000))


# ---- the gate ----------------------------------------------------------------------------------


def test_other_settings_are_refused_unless_marked(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--checkpoint", str(untrained), "--out", str(tmp_path), "--gamma", "3.5"]
    assert console.run(lambda: run_llc.main(words)) == 2
    error = capsys.readouterr().err
    assert "gamma 3.5 (frozen: " in error and "--settings-not-calibrated" in error
    assert files(tmp_path / untrained.stem) == {}


def test_a_missing_calibration_closes_the_gate(
    untrained: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate.read_frozen, "__defaults__", (tmp_path,))
    monkeypatch.setattr(gate.admit, "__kwdefaults__", {"not_calibrated": False, "data": tmp_path})
    words = ["--checkpoint", str(untrained), "--out", str(tmp_path)]
    assert console.run(lambda: run_llc.main(words)) == 1
    assert "calibration.json is missing" in capsys.readouterr().err


def test_the_frozen_settings_are_calibrated(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--checkpoint", str(untrained), "--out", str(tmp_path), "--json", "--quiet"]
    assert console.run(lambda: run_llc.main(words)) == 0
    (record,) = json.loads(capsys.readouterr().out)["networks"]
    assert record["status"] == "calibrated"
    assert record["calibration_sha256"] == gate.read_frozen().sha256
