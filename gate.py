"""The calibration gate: no grokked estimate at settings nobody has calibrated.

`calibrate.py` freezes the settings in data/calibration.json. The file carries the hash of its own
content, of the grid it was selected from and of the sampler's code. Code may change after the
freeze, settings may not: when the calibration passes with new code, the hash of that code is added
to data/calibration_passes.json. This module reads both files and decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import records

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
SAMPLER_CODE = ("sgld.py", "qnet.py", "theory.py")  # the code a calibration vouches for
CALIBRATION, PASSES, GRID = "calibration.json", "calibration_passes.json", "calibration_grid.csv"
CALIBRATED, NOT_CALIBRATED = "calibrated", "not calibrated"


class GateClosed(RuntimeError):
    """A grokked estimate was asked for that no calibration vouches for."""


@dataclass(frozen=True)
class Frozen:
    """The frozen calibration: settings, and the hash every record made under it carries."""

    settings: dict[str, Any]  # n_beta, gamma, step_constant, chains, steps, burn_in
    sha256: str


def sampler_code_hash(folder: Path = HERE) -> str:
    """SHA-256 of the sampler's code (SAMPLER_CODE) in a folder of sources."""
    return records.code_hash([folder / name for name in SAMPLER_CODE])


def content_hash(document: dict[str, Any]) -> str:
    """SHA-256 of a calibration's content: everything but its own `sha256` field."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_frozen(data: Path = DATA) -> Frozen:
    """The frozen settings. Raises GateClosed when the file is missing, edited, or was selected from
    another grid than the one beside it."""
    path = data / CALIBRATION
    if not path.exists():
        raise GateClosed(
            f"{path} is missing: freeze the settings with `python calibrate.py --freeze`"
        )
    document = records.read_json(path)
    if content_hash(document) != document.get("sha256"):
        raise GateClosed(
            f"{path} was edited: its content hashes to {content_hash(document)[:12]}, it says "
            f"{str(document.get('sha256'))[:12]}; restore it from the repository"
        )
    grid = records.sha256_file(data / GRID)
    if grid != document["grid_sha256"]:
        raise GateClosed(
            f"{data / GRID} hashes to {grid[:12]}, the settings were selected from "
            f"{document['grid_sha256'][:12]}; restore it from the repository"
        )
    return Frozen(document["settings"], document["sha256"])


def accepted_code(data: Path = DATA) -> set[str]:
    """Hashes of sampler code with which the calibration has passed at the frozen settings."""
    hashes = {records.read_json(data / CALIBRATION)["code_sha256"]}
    if (data / PASSES).exists():
        hashes |= {entry["code_sha256"] for entry in records.read_json(data / PASSES)}
    return hashes


def admit(
    settings: Mapping[str, Any], *, not_calibrated: bool = False, data: Path = DATA
) -> dict[str, Any]:
    """Decide whether a grokked estimate may be made, and how its record is marked.

    Returns {"status", "calibration_sha256"}: "calibrated" when code and settings are vouched for.
    With `not_calibrated` everything passes, and whatever is not vouched for is marked "not
    calibrated". Raises GateClosed otherwise, naming what does not match and the remedy.
    """
    try:
        frozen = read_frozen(data)
        _refuse_unknown_code(data)
        _refuse_other_settings(frozen.settings, settings)
    except GateClosed:
        if not not_calibrated:
            raise
        return {"status": NOT_CALIBRATED, "calibration_sha256": None}
    return {"status": CALIBRATED, "calibration_sha256": frozen.sha256}


def _refuse_unknown_code(data: Path) -> None:
    code = sampler_code_hash()
    if code not in accepted_code(data):
        raise GateClosed(
            f"the sampler's code ({', '.join(SAMPLER_CODE)}) hashes to {code[:12]}, which has "
            "passed no calibration: run `python calibrate.py`, or mark the record with "
            "--settings-not-calibrated"
        )


def _refuse_other_settings(frozen: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    others = [
        f"{name} {asked.get(name)} (frozen: {value})"
        for name, value in frozen.items()
        if asked.get(name) != value
    ]
    if others:
        raise GateClosed(
            f"settings differ from the frozen ones: {', '.join(others)}; drop them, or mark the "
            "record with --settings-not-calibrated"
        )
