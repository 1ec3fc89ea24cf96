"""The calibration gate: no grokked estimate at settings nobody has calibrated.

`calibrate.py` freezes the settings in data/calibration.json. The file carries the hash of its own
content, of the grid it was selected from and of the sampler's code. Code may change after the
freeze, settings may not: when the calibration passes with new code, the hash of that code is added
to data/calibration_passes.json. This module reads both files and decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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


class OtherSettings(GateClosed, ValueError):
    """Settings were asked for that differ from the frozen ones: bad use, not a failure."""


@dataclass(frozen=True)
class Frozen:
    """The frozen calibration: settings, and the hash every record made under it carries."""

    settings: dict[str, Any]  # n_beta, gamma, step_constant, chains, steps, burn_in
    code_sha256: str  # of the sampler that ran the grid
    sha256: str


def sampler_code_hash(folder: Path = HERE) -> str:
    """SHA-256 of the sampler's code (SAMPLER_CODE) in a folder of sources."""
    return records.code_hash([folder / name for name in SAMPLER_CODE])


def content_hash(document: dict[str, Any]) -> str:
    """SHA-256 of a calibration's content: everything but its own `sha256` field."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_frozen(data: Path = DATA) -> Frozen:
    """The frozen settings. Raises GateClosed when a file is missing, damaged or edited, or when the
    settings were selected from another grid than the one beside them."""
    path = data / CALIBRATION
    if not path.exists():
        raise GateClosed(
            f"{path} is missing: freeze the settings with `python calibrate.py --freeze`"
        )
    document = _read(records.read_json, path)
    if not isinstance(document, dict) or content_hash(document) != document.get("sha256"):
        raise GateClosed(
            f"{path} was edited: its content does not have the hash it says it has; restore it "
            "from the repository"
        )
    grid = _read(records.sha256_file, data / GRID)
    if grid != document["grid_sha256"]:
        raise GateClosed(
            f"{data / GRID} hashes to {grid[:12]}, the settings were selected from "
            f"{document['grid_sha256'][:12]}; restore it from the repository"
        )
    return Frozen(document["settings"], document["code_sha256"], document["sha256"])


def _read(reader: Callable[[Path], Any], path: Path) -> Any:
    try:
        return reader(path)
    except records.RecordError as error:
        raise GateClosed(str(error)) from error


def read_passes(data: Path = DATA) -> list[dict[str, Any]]:
    """What later calibrations have passed with, oldest first; empty when there were none. Raises
    GateClosed when the file is damaged."""
    path = data / PASSES
    if not path.exists():
        return []
    passes = _read(records.read_json, path)
    if not (isinstance(passes, list) and all(isinstance(entry, dict) for entry in passes)):
        raise GateClosed(f"{path} is not a list of passes; restore it from the repository")
    return passes


def accepted_code(frozen: Frozen, data: Path = DATA) -> set[str]:
    """Hashes of the sampler code with which these frozen settings have passed the calibration."""
    later = read_passes(data)
    passed = {e.get("code_sha256") for e in later if e.get("calibration_sha256") == frozen.sha256}
    return {frozen.code_sha256, *filter(None, passed)}


def admit(
    settings: Mapping[str, Any], *, not_calibrated: bool = False, data: Path = DATA
) -> dict[str, Any]:
    """Decide whether a grokked estimate may be made, and how its record is marked.

    Returns {"status", "calibration_sha256"}: "calibrated" when code and settings are vouched for.
    With `not_calibrated` everything passes, and whatever is not vouched for is marked "not
    calibrated", beside the hash of the calibration it departs from (None when there is none to
    trust). Raises GateClosed otherwise, naming what does not match and the remedy.
    """
    frozen = None
    try:
        frozen = read_frozen(data)
        _refuse_unknown_code(frozen, data)
        _refuse_other_settings(frozen.settings, settings)
    except GateClosed:
        if not not_calibrated:
            raise
        return {"status": NOT_CALIBRATED, "calibration_sha256": frozen and frozen.sha256}
    return {"status": CALIBRATED, "calibration_sha256": frozen.sha256}


def _refuse_unknown_code(frozen: Frozen, data: Path) -> None:
    code = sampler_code_hash()
    if code not in accepted_code(frozen, data):
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
        raise OtherSettings(
            f"settings differ from the frozen ones: {', '.join(others)}; drop them, or mark the "
            "record with --settings-not-calibrated"
        )
