"""The width study's figures: what they are drawn from; the drawing itself where matplotlib is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import canvas
import width_figures as wf
import width_tables
from width_networks import PAIRS, WIDTHS


def network_row(condition: str, width: int, rate: float, seed: int, value: float) -> dict[str, Any]:
    known = {
        "network": f"{condition}_w{width}_r{rate:g}_s{seed}",
        "condition": condition,
        "width": width,
        "base_rate": rate,
        "seed": seed,
        "rank_ceiling": 100,
    }
    known |= {f"dimension_{k}": value * k**0.5 for k in (1, 10, 100)}
    known |= {f"drift_W{k}": value / k for k in (1, 2, 3)}
    return width_tables.row("widths", known)


def study_rows() -> list[dict[str, Any]]:
    rows = []
    for width in WIDTHS:
        for seed in (0, 1):
            for condition, rate in PAIRS["source-like"].items():
                value = 10.0 if condition == "ntk" else 5.0 + seed
                rows.append(network_row(condition, width, rate, seed, value))
    return rows


def test_every_figure_is_drawn_and_repeats_its_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = study_rows()
    quick = [
        rows[0] | {"llc": 9.0, "standard_error": 1.0},
        rows[1] | {"llc": 5.0, "standard_error": 1.0},
    ]
    chains = [
        width_tables.row(
            "width_chains",
            rows[k],
            {"rule": "plain", "llc": 5.0, "standard_error": 0.1, "law": 5.0, "slope_shift": 0.0},
            {"reach_law": 0.1, "slope_shift": -9.0 * k},
        )
        for k in (0, 1)
    ]
    lazy = [
        {"alpha": a, "rate_power": 1, "linearisation_error": 1 / a, "half_ceiling": 50.0}
        | {f"dimension_1e{k}": 5.0 * k for k in range(9)}
        for a in (1.0, 10.0)
    ]
    influence = [
        {"condition": c, "aligned": "kappa", "kappa": k, "n_beta_factor": 1.0}
        | dict.fromkeys(("damped_and_exact", "exact_and_kappa_10", "damped_and_kappa_10"), 0.5)
        | {"sampled_and_exact": 0.4}
        for c in ("ntk", "mup")
        for k in (1.0, 10.0)
    ]
    tables = {
        "quick": quick,
        "widths": rows,
        "width_chains": chains,
        "width_lazy": lazy,
        "width_influence": influence,
    }
    spectra = {r["network"]: np.geomspace(1.0, 1e-6, 20) for r in rows}
    written = wf.draw(tmp_path, tables, spectra)
    assert len(written) == 7
    before = [path.read_bytes() for path in written]
    assert all(content.startswith(b"\x89PNG") for content in before)
    assert [path.read_bytes() for path in wf.draw(tmp_path, tables, spectra)] == before


def test_a_figure_without_its_table_is_left_out(tmp_path: Path) -> None:
    assert wf.draw(tmp_path, {"widths": [{"error": "failed"}], "width_lazy": []}) == []


def test_without_matplotlib_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(canvas.NoMatplotlib, match="pip install"):
        wf.draw(tmp_path, {"widths": study_rows()})
