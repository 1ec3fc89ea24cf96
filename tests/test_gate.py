"""The gate: what it lets through, and every way in which it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gate
import records
from gate import GateClosed, admit

SETTINGS = {
    "n_beta": 1e4,
    "gamma": 1.0,
    "step_constant": 0.2,
    "chains": 4,
    "steps": 10_000,
    "burn_in": 2_000,
}
OTHER_CODE = "0" * 64


def frozen_document(data: Path, code: str) -> dict[str, Any]:
    document = {
        "settings": SETTINGS,
        "rule": "the best of the grid",
        "grid_sha256": records.sha256_file(data / gate.GRID),
        "code_sha256": code,
        "versions": {"python": "3"},
    }
    return document | {"sha256": gate.content_hash(document)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a grid, and settings frozen from it with today's code."""
    records.write_bytes(tmp_path / gate.GRID, b"network,llc\none,1.0\n")
    document = frozen_document(tmp_path, gate.sampler_code_hash())
    records.write_json(tmp_path / gate.CALIBRATION, document)
    return tmp_path


def rewrite(data: Path, change: Callable[[dict[str, Any]], None], *, rehash: bool = False) -> None:
    """Change the frozen document, as an editor would; with `rehash` it vouches for itself again."""
    document = records.read_json(data / gate.CALIBRATION)
    change(document)
    if rehash:
        document["sha256"] = gate.content_hash(document)
    records.write_json(data / gate.CALIBRATION, document)


def pass_with(data: Path, code: str, calibration: str | None = None) -> None:
    entry = {
        "code_sha256": code,
        "calibration_sha256": calibration or gate.read_frozen(data).sha256,
    }
    records.write_json(data / gate.PASSES, [entry])


# --- what passes ----------------------------------------------------------------------------


def test_frozen_settings_and_known_code_are_calibrated(data: Path) -> None:
    mark = admit(SETTINGS, data=data)
    own = records.read_json(data / gate.CALIBRATION)["sha256"]
    assert mark == {"status": "calibrated", "calibration_sha256": own}
    assert gate.read_frozen(data).settings == SETTINGS


def test_numbers_are_compared_as_numbers(data: Path) -> None:
    assert admit(SETTINGS | {"n_beta": 10_000, "gamma": 1}, data=data)["status"] == "calibrated"


def test_more_than_the_settings_may_be_asked(data: Path) -> None:
    assert admit(SETTINGS | {"seed": 3, "step": 1e-5}, data=data)["status"] == "calibrated"


def test_the_mark_is_earned_even_when_a_departure_was_allowed(data: Path) -> None:
    assert admit(SETTINGS, not_calibrated=True, data=data) == admit(SETTINGS, data=data)


def test_code_that_passed_later_is_accepted(data: Path) -> None:
    rewrite(data, lambda d: d.update(code_sha256=OTHER_CODE), rehash=True)
    with pytest.raises(GateClosed):
        admit(SETTINGS, data=data)
    pass_with(data, gate.sampler_code_hash())
    assert admit(SETTINGS, data=data)["status"] == "calibrated"
    frozen = gate.read_frozen(data)
    assert gate.accepted_code(frozen, data) == {OTHER_CODE, gate.sampler_code_hash()}


# --- every refusal --------------------------------------------------------------------------


def missing(data: Path) -> None:
    (data / gate.CALIBRATION).unlink()


def edited_settings(data: Path) -> None:
    rewrite(data, lambda d: d["settings"].update(steps=5))


def edited_rule(data: Path) -> None:
    rewrite(data, lambda d: d.update(rule="whatever reads highest"))


def edited_code_hash(data: Path) -> None:
    rewrite(data, lambda d: d.update(code_sha256=OTHER_CODE))


def hash_taken_out(data: Path) -> None:
    rewrite(data, lambda d: d.pop("sha256"))


def broken_json(data: Path) -> None:
    (data / gate.CALIBRATION).write_text('{"settings": ')


def another_document(data: Path) -> None:
    (data / gate.CALIBRATION).write_text("[]")


def edited_grid(data: Path) -> None:
    (data / gate.GRID).write_text("network,llc\none,1.1\n")


def missing_grid(data: Path) -> None:
    (data / gate.GRID).unlink()


def unknown_code(data: Path) -> None:
    rewrite(data, lambda d: d.update(code_sha256=OTHER_CODE), rehash=True)


def pass_of_other_code(data: Path) -> None:
    unknown_code(data)
    pass_with(data, "1" * 64)


def pass_of_another_calibration(data: Path) -> None:
    unknown_code(data)
    pass_with(data, gate.sampler_code_hash(), calibration="2" * 64)


def broken_passes(data: Path) -> None:
    unknown_code(data)
    (data / gate.PASSES).write_text("[")


def passes_of_another_kind(data: Path) -> None:
    unknown_code(data)
    (data / gate.PASSES).write_text('["' + gate.sampler_code_hash() + '"]')


REFUSALS = [
    (missing, r"calibration.json is missing: .*--freeze"),
    (edited_settings, "was edited"),
    (edited_rule, "was edited"),
    (edited_code_hash, "was edited"),
    (hash_taken_out, "was edited"),
    (broken_json, "not JSON"),
    (another_document, "was edited"),
    (edited_grid, r"calibration_grid.csv hashes to \w{12}, the settings were selected from"),
    (missing_grid, r"calibration_grid.csv: cannot read"),
    (unknown_code, r"sgld.py, qnet.py, theory.py.* passed no calibration: run `python calibrate"),
    (pass_of_other_code, "passed no calibration"),
    (pass_of_another_calibration, "passed no calibration"),
    (broken_passes, "calibration_passes.json: not JSON"),
    (passes_of_another_kind, "not a list of passes"),
]
WITHOUT_A_FROZEN_FILE = {t for t, _ in REFUSALS[:9]}


@pytest.mark.parametrize(("tamper", "words"), REFUSALS, ids=lambda x: getattr(x, "__name__", ""))
def test_refused_and_marked_when_allowed(
    data: Path, tamper: Callable[[Path], None], words: str
) -> None:
    tamper(data)
    with pytest.raises(GateClosed, match=words) as caught:
        admit(SETTINGS, data=data)
    assert "\n" not in str(caught.value)
    mark = admit(SETTINGS, not_calibrated=True, data=data)
    assert mark["status"] == "not calibrated"
    trusted = None if tamper in WITHOUT_A_FROZEN_FILE else gate.read_frozen(data).sha256
    assert mark["calibration_sha256"] == trusted


@pytest.mark.parametrize("name", SETTINGS)
def test_any_other_setting_is_refused_and_named(data: Path, name: str) -> None:
    asked = SETTINGS | {name: SETTINGS[name] * 2}
    words = rf"{name} {SETTINGS[name] * 2} \(frozen: {SETTINGS[name]}\).*--settings-not-calibrated"
    with pytest.raises(GateClosed, match=words):
        admit(asked, data=data)
    mark = admit(asked, not_calibrated=True, data=data)
    assert mark == {
        "status": "not calibrated",
        "calibration_sha256": gate.read_frozen(data).sha256,
    }


def test_a_setting_that_is_not_given_is_refused(data: Path) -> None:
    with pytest.raises(GateClosed, match=r"burn_in None \(frozen: 2000\)"):
        admit({k: v for k, v in SETTINGS.items() if k != "burn_in"}, data=data)


# --- hashes ---------------------------------------------------------------------------------


def test_the_content_hash_sees_every_value_and_not_itself(data: Path) -> None:
    document = records.read_json(data / gate.CALIBRATION)
    assert gate.content_hash(document) == document["sha256"]
    assert (
        gate.content_hash({k: v for k, v in document.items() if k != "sha256"})
        == (document["sha256"])
    )
    shuffled = dict(reversed(document.items()))
    assert gate.content_hash(shuffled) == document["sha256"]
    for name in document.keys() - {"sha256"}:
        assert gate.content_hash(document | {name: "other"}) != document["sha256"]
    nearly = json.loads(json.dumps(document))
    nearly["settings"]["gamma"] = 1.0 + 2.0**-52
    assert gate.content_hash(nearly) != document["sha256"]


@pytest.mark.parametrize("name", gate.SAMPLER_CODE)
def test_the_code_hash_sees_every_file_of_the_sampler(tmp_path: Path, name: str) -> None:
    for file in gate.SAMPLER_CODE:
        (tmp_path / file).write_bytes((gate.HERE / file).read_bytes())
    assert gate.sampler_code_hash(tmp_path) == gate.sampler_code_hash()
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
    assert gate.sampler_code_hash(tmp_path) != gate.sampler_code_hash()
