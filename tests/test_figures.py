"""figures.py: what is drawn, from which files, and what happens without matplotlib."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import console
import evidence
import figures
import gate
import measure
import records
import run_llc
from figures import Spectrum
from qnet import QuadraticNetwork, modular_pairs
from records import Checkpoint
from tests import made_data

Patch = pytest.MonkeyPatch
PNG = b"\x89PNG\r\n\x1a\n"
TEN = Spectrum("p = 5, K = 3", 10.0 ** -np.arange(1.0, 11.0))  # 0.1 … 1e-10


@pytest.fixture
def matplotlib() -> Any:
    return pytest.importorskip("matplotlib")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with one small network, `tiny`."""
    a, b = modular_pairs(5, 0.8, 0)
    net = QuadraticNetwork.modular(5, 3, a, b)
    u, v, W = net.unpack(net.initial_weights(0, 0.5))
    path = tmp_path / "data" / "checkpoints" / "tiny.npz"
    records.write_checkpoint(path, Checkpoint(5, 3, a, b, u, v, W))
    return tmp_path / "data"


# --- what is drawn --------------------------------------------------------------------------


def test_each_curvature_stands_at_its_rank_share(matplotlib: Any) -> None:
    other = Spectrum("p = 7, K = 4", np.array([1.0, 1e-3]))
    (axes,) = figures.drawn_spectra([TEN, other], 3e-5).axes
    lines = {line.get_label(): line for line in axes.get_lines() if len(line.get_xdata()) > 2}
    first = lines["p = 5, K = 3: r = 10, 60.0% flat"]
    assert first.get_xdata().tolist() == [k / 10 for k in range(1, 11)]
    assert first.get_ydata().tolist() == TEN.h.tolist()
    assert "p = 7, K = 4: r = 2, 0.0% flat" in [line.get_label() for line in axes.get_lines()]
    assert axes.get_yscale() == "log"
    assert axes.get_xlabel() == "rank share i/r"
    assert axes.get_ylabel() == "curvature $h_i$ (loss per squared weight)"


def test_the_resolution_is_a_line_and_a_dot_marks_where_it_is_crossed(matplotlib: Any) -> None:
    (axes,) = figures.drawn_spectra([TEN], 3e-5).axes
    level = [line for line in axes.get_lines() if list(line.get_ydata()) == [3e-5, 3e-5]]
    assert len(level) == 1
    (dot,) = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert (dot.get_xdata().tolist(), list(dot.get_ydata())) == ([0.4], [3e-5])
    words = [text.get_text() for text in axes.texts]
    assert words == ["resolution c = γ/nβ = 3e-05", "flat directions, h < c"]


@pytest.mark.parametrize("c", [1e-14, 10.0])
def test_a_resolution_outside_the_spectrum_is_still_seen(c: float, matplotlib: Any) -> None:
    (axes,) = figures.drawn_spectra([TEN], c).axes
    low, high = axes.get_ylim()
    assert low < c < high
    assert not [line for line in axes.get_lines() if line.get_marker() == "o"]


def test_spectra_differ_in_colour_and_in_line_style(matplotlib: Any) -> None:
    (axes,) = figures.drawn_spectra([TEN] * 6, 1e-4).axes
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 10]
    assert len({line.get_color() for line in lines}) == 6
    assert len({str(line._dash_pattern) for line in lines}) == 6


@pytest.mark.parametrize(
    ("spectra", "c", "words"),
    [
        ([], 1e-4, "1 to 6 spectra can be told apart, got 0"),
        ([TEN] * 7, 1e-4, "1 to 6 spectra can be told apart, got 7"),
        ([Spectrum("dead", np.array([]))], 1e-4, "dead has no curvatures"),
        ([Spectrum("flat", np.array([1.0, 0.0]))], 1e-4, "flat has no curvatures, or one ≤ 0"),
        ([TEN], 0.0, "the resolution must be positive, got 0.0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(spectra: list[Spectrum], c: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        figures.drawn_spectra(spectra, c)


# --- files ----------------------------------------------------------------------------------


def test_the_file_is_a_png_and_the_same_bytes_again(matplotlib: Any, tmp_path: Path) -> None:
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    figures.spectrum_figure([TEN], 1e-4, one)
    figures.spectrum_figure([TEN], 1e-4, two)
    assert one.read_bytes().startswith(PNG)
    assert one.read_bytes() == two.read_bytes()


def test_the_kept_spectrum_is_the_one_computed(
    data: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    computed = figures.read_spectrum("tiny", data)
    assert capsys.readouterr().err == "tiny: singular values of the 100 × 45 Jacobian\n"
    assert computed.label == "p = 5, K = 3" and len(computed.h) == 39
    checkpoint = records.read_checkpoint(data / "checkpoints" / "tiny.npz")
    net = QuadraticNetwork.modular(5, 3, checkpoint.a, checkpoint.b)
    found = measure.read_curvature(net, net.pack(checkpoint.u, checkpoint.v, checkpoint.W))
    kept = data / "spectra" / "tiny.npz"
    measure.write_spectrum(kept, net, found, checkpoint.content_hash())
    monkeypatch.setattr(measure, "read_curvature", lambda *_: pytest.fail("computed again"))
    assert figures.read_spectrum("tiny", data).h.tolist() == computed.h.tolist()
    measure.write_spectrum(kept, net, found, "0" * 64)
    with pytest.raises(records.RecordError, match="the spectrum of network 000000000000, not of"):
        figures.read_spectrum("tiny", data)


def test_the_resolution_is_the_frozen_one_once_there_is_one(data: Path, monkeypatch: Patch) -> None:
    assert figures.resolution_used(data) == measure.Protocol().resolution == 1e-4
    frozen = gate.Frozen({"gamma": 3.0, "n_beta": 1000.0}, "", "")
    monkeypatch.setattr(gate, "read_frozen", lambda folder: frozen)
    assert figures.resolution_used(data) == 3e-3


def test_the_command_draws_and_says_where(
    matplotlib: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "drawn"
    arguments = ["--data", str(data), "--out", str(out), "--network", "tiny", "--quiet"]
    assert figures.main(arguments) == 0
    assert capsys.readouterr() == (f"{out / 'spectra.png'}\n", "")
    assert (out / "spectra.png").read_bytes().startswith(PNG)


# --- the studies ----------------------------------------------------------------------------


@pytest.fixture
def studied(data: Path) -> Path:
    """The same folder with the tables of every study."""
    return made_data.write(data)


def test_every_study_with_its_files_is_drawn(
    matplotlib: Any, studied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = figures.draw_studies(studied, tmp_path / "drawn")
    assert [path.stem for path in written] == [n for n in figures.drawings() if n != "response"]
    assert all(path.read_bytes().startswith(PNG) for path in written)
    assert capsys.readouterr().err == (
        "response.png not drawn: data/spectra has no spectrum of the verdict\n"
    )


def test_a_missing_file_leaves_its_figure_out_and_names_the_command(
    matplotlib: Any, studied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("polish.csv", "too_wide.csv", "grid_selection.csv"):
        (studied / name).unlink()
    written = figures.draw_studies(studied, tmp_path / "drawn")
    assert "polish.png" not in [path.name for path in written]
    assert {"reading.png", "sensitivity.png"} <= {path.name for path in written}
    assert (
        "polish.png not drawn: needs data/polish.csv: python run_llc.py --study polish\n"
        in capsys.readouterr().err
    )


def test_the_width_study_is_drawn_from_its_tables_and_spectra(
    matplotlib: Any, studied: Path, tmp_path: Path
) -> None:
    drawn = figures.draw_widths(studied, tmp_path / "drawn")
    assert "widths_ratio" in [path.stem for path in drawn]
    assert "widths_response" not in [path.stem for path in drawn]  # no spectra
    h = 10.0 ** -np.arange(10.0)
    records.write_npz(studied / "width_spectra.npz", {"ntk_w64_r0.001_s0": h})
    drawn = figures.draw_widths(studied, tmp_path / "drawn")
    assert "widths_response" in [path.stem for path in drawn]


def test_the_response_takes_the_lowest_seed_of_the_verdict(data: Path) -> None:
    checkpoint = records.read_checkpoint(data / "checkpoints" / "tiny.npz")
    net = QuadraticNetwork.modular(5, 3, checkpoint.a, checkpoint.b)
    found = measure.read_curvature(net, net.pack(checkpoint.u, checkpoint.v, checkpoint.W))
    kept = data / "spectra" / "tiny.npz"
    measure.write_spectrum(kept, net, found, checkpoint.content_hash())
    tiny = {"network": "tiny", "p": 5, "K": 3, "study": "verdict", "seed": 0}
    rows = [tiny | {"network": "other", "seed": 1}, tiny, tiny | {"p": 7, "study": "too-wide"}]
    spectra = figures.spectra_of(rows, data)
    assert list(spectra) == [(5, 3)] and len(spectra[5, 3]) == found.rank
    with pytest.raises(evidence.NotEnough, match="no spectrum of the verdict"):
        figures.spectra_of(rows[:1], data)


def test_the_networks_drawn_are_those_measured() -> None:
    assert figures.DRAWN == run_llc.SHIPPED


def test_without_matplotlib_the_error_says_what_to_install(
    data: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    arguments = ["--data", str(data), "--out", str(tmp_path), "--network", "tiny", "--quiet"]
    assert console.run(lambda: figures.main(arguments)) == 1
    assert capsys.readouterr().err == (
        "error: matplotlib is not installed: run `make figures`, or "
        "`pip install -r requirements-extras.txt`\n"
    )
    assert not list(tmp_path.glob("*.png"))
