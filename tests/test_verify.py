"""The order read from small git histories: the right one, and every way to get it wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import calibrate
import gate
import records
import verify
from verify import FROZEN, GRID, NotProven

# A small project in the shape of the real one: a rule, its constants, and the option verify runs.
MEASURE = """
class Protocol:
    n_beta: float = 1e4
    gamma: float = 1.0
"""
CALIBRATE = '''
import json
import sys

from measure import Protocol

SIGN = 1
ERROR_LIMIT = 0.05
SOURCE = Protocol()


def select(grid):
    """The gamma with the smallest error."""
    return min(grid, key=lambda row: SIGN * row[1])[0]


if sys.argv[1:] == ["--selected"]:
    with open("data/calibration_grid.csv") as lines:
        grid = [[float(cell) for cell in line.split(",")] for line in lines]
    print(json.dumps({"gamma": select(grid)}))
'''
ROWS = "1.0,0.01\n10.0,0.09\n"


class Project:
    """A git repository under construction."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("measure.py", MEASURE)
        self.write("calibrate.py", CALIBRATE)

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        plain = ["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"]
        command = ["git", "-C", str(self.root), *identity, *plain, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(exist_ok=True, parents=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        assert text.count(old) == 1
        self.write(path, text.replace(old, new))

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    # the four acts

    def rule(self) -> None:
        self.commit("the rule")

    def grid(self, rows: str = ROWS) -> None:
        self.write(GRID, rows)
        self.commit("the grid")

    def write_frozen(self, **changes: Any) -> None:
        grid = (self.root / GRID).read_bytes() if (self.root / GRID).exists() else b""
        document: dict[str, Any] = {
            "settings": {"gamma": 1.0, "steps": 100},
            "grid_sha256": sha256(grid).hexdigest(),
        } | changes
        document["sha256"] = gate.content_hash(document)
        records.write_json(self.root / FROZEN, document)

    def freeze(self, **changes: Any) -> None:
        self.write_frozen(**changes)
        self.commit("the freeze")

    def results(self, path: str = "data/llc.csv", text: str = "network,llc\n") -> None:
        self.write(path, text)
        self.commit(f"results: {path}")

    def in_order(self) -> None:
        self.rule()
        self.grid()
        self.freeze()
        self.results()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def verdicts(project: Project) -> dict[str, verify.Step]:
    return {step.step: step for step in verify.order(project.root)}


# --- the right order ------------------------------------------------------------------------


def test_the_order_is_shown(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.in_order()
    assert verify.main(["--order"], project.root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["step", "commit", "date", "what"]
    assert [line.split()[0] for line in lines[1::2]] == [
        "rule",
        "grid",
        "freeze",
        "settings",
        "results",
    ]
    assert all(line.strip().startswith("ok: ") for line in lines[2::2])
    for subject, line in zip(
        ["the rule", "the grid", "the freeze", "the freeze", "results: data/llc.csv"],
        lines[1::2],
        strict=True,
    ):
        assert line.endswith(subject)


def test_the_order_as_json(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.in_order()
    assert verify.main(["--order", "--json"], project.root) == 0
    steps = json.loads(capsys.readouterr().out)["order"]
    assert [s["step"] for s in steps] == ["rule", "grid", "freeze", "settings", "results"]
    head = project.git("rev-parse", "HEAD")
    assert head.startswith(steps[-1]["commit"])


def test_no_results_yet(project: Project) -> None:
    project.rule()
    project.grid()
    project.freeze()
    assert verdicts(project)["results"].commit is None
    assert verify.main(["--order"], project.root) == 0


def test_the_oldest_commit_with_the_rule_is_named(project: Project) -> None:
    project.edit("calibrate.py", "smallest", "largest")
    project.commit("an earlier rule")
    project.edit("calibrate.py", "largest", "smallest")
    rule = project.commit("the rule as it is")
    project.edit("calibrate.py", "SIGN = 1", "SIGN = +1")  # not part of the rule
    project.edit("measure.py", "1.0\n", "1.0\n\n    def check(self): ...\n")  # no field
    project.commit("other work")
    project.grid()
    project.freeze()
    assert rule.startswith(verdicts(project)["rule"].commit or "none")


def test_other_work_and_merges_after_the_freeze_are_no_matter(project: Project) -> None:
    project.rule()
    project.git("branch", "aside")
    project.grid()
    project.freeze()
    project.git("checkout", "--quiet", "aside")
    project.write("README.md", "hello")
    project.commit("aside, from before the grid")
    project.git("checkout", "--quiet", "main")
    project.git("merge", "--quiet", "--no-edit", "aside")
    project.edit("calibrate.py", "SIGN = 1", "SIGN = 1  # a comment")
    project.results("data/traces/a.npz")
    assert verdicts(project)["results"].verdict == "after the freeze, like all 1 files"


def test_the_environment_of_a_git_hook_is_ignored(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.in_order()
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert len(verdicts(project)) == 5


# --- every wrong order ----------------------------------------------------------------------


def rule_with_the_grid(p: Project) -> None:
    p.grid()
    p.freeze()


def rule_after_the_grid(p: Project) -> None:
    p.edit("calibrate.py", "smallest", "largest")
    p.rule()
    p.grid()
    p.edit("calibrate.py", "largest", "smallest")
    p.commit("another rule")
    p.freeze()


def docstring_alone_changed_after_the_grid(p: Project) -> None:
    p.rule()
    p.grid()
    p.edit("calibrate.py", "smallest error.", "smallest error of all.")
    p.commit("other words")
    p.freeze()


def limit_changed_after_the_grid(p: Project) -> None:
    p.rule()
    p.grid()
    p.edit("calibrate.py", "0.05", "0.10")
    p.commit("another limit")
    p.freeze()


def default_changed_after_the_grid(p: Project) -> None:
    p.rule()
    p.grid()
    p.edit("measure.py", "1.0", "2.0")
    p.commit("another default")
    p.freeze()


def rule_changed_and_changed_back(p: Project) -> None:
    p.rule()
    p.grid()
    p.edit("calibrate.py", "smallest", "largest")
    p.commit("try this")
    p.edit("calibrate.py", "largest", "smallest")
    p.commit("no")
    p.freeze()


def no_rule(p: Project) -> None:
    p.edit("calibrate.py", "def select", "def choose")
    p.rule()
    p.grid()
    p.freeze()


def rule_that_does_not_parse(p: Project) -> None:
    p.edit("calibrate.py", "def select(grid)", "def select(grid")
    p.rule()
    p.grid()
    p.freeze()


def rule_changed_after_the_freeze(p: Project) -> None:
    p.in_order()
    p.edit("calibrate.py", "smallest", "largest")
    p.commit("a later rule")


def rule_changed_in_the_working_tree(p: Project) -> None:
    p.in_order()
    p.edit("calibrate.py", "smallest", "largest")


def no_grid(p: Project) -> None:
    p.rule()
    p.write_frozen()
    p.commit("the freeze")


def no_freeze(p: Project) -> None:
    p.rule()
    p.grid()


def freeze_not_committed(p: Project) -> None:
    p.rule()
    p.grid()
    p.write_frozen()


def grid_with_the_freeze(p: Project) -> None:
    p.rule()
    p.write(GRID, ROWS)
    p.freeze()


def grid_after_the_freeze(p: Project) -> None:
    p.rule()
    p.freeze(grid_sha256=sha256(ROWS.encode()).hexdigest())
    p.grid()


def freeze_not_alone(p: Project) -> None:
    p.rule()
    p.grid()
    p.write("README.md", "frozen!")
    p.freeze()


def grid_changed_later(p: Project) -> None:
    p.in_order()
    p.grid("1.0,0.02\n10.0,0.09\n")


def grid_changed_and_restored(p: Project) -> None:
    p.in_order()
    p.grid("1.0,0.02\n10.0,0.09\n")
    p.grid()


def freeze_changed_later(p: Project) -> None:
    p.in_order()
    p.freeze(settings={"gamma": 1.0, "steps": 200})


def freeze_removed(p: Project) -> None:
    p.in_order()
    (p.root / FROZEN).unlink()
    p.commit("gone")


def freeze_changed_in_a_merge(p: Project) -> None:
    p.in_order()
    p.git("checkout", "--quiet", "-b", "aside", "HEAD~1")
    p.write("README.md", "aside")
    p.commit("aside")
    p.git("merge", "--quiet", "--no-commit", "main")
    p.freeze(settings={"gamma": 1.0, "steps": 200})


def grid_edited(p: Project) -> None:
    p.in_order()
    p.write(GRID, "1.0,0.0\n")


def freeze_edited(p: Project) -> None:
    p.in_order()
    p.write_frozen(settings={"gamma": 10.0})


def freeze_deleted(p: Project) -> None:
    p.in_order()
    (p.root / FROZEN).unlink()


def made_from_another_grid(p: Project) -> None:
    p.rule()
    p.grid()
    p.freeze(grid_sha256="0" * 64)


def hash_of_other_content(p: Project) -> None:
    p.rule()
    p.grid()
    p.write_frozen()
    p.edit(FROZEN, "100", "200")
    p.commit("the freeze")


def freeze_without_settings(p: Project) -> None:
    p.rule()
    p.grid()
    p.write(FROZEN, "[]")
    p.commit("the freeze")


def other_settings_than_the_rule_gives(p: Project) -> None:
    p.rule()
    p.grid()
    p.freeze(settings={"gamma": 10.0})


def rule_that_reads_something_else_today(p: Project) -> None:
    p.in_order()
    p.edit("calibrate.py", "SIGN = 1", "SIGN = -1")
    p.commit("the same words, another choice")


def rule_that_does_not_run_today(p: Project) -> None:
    p.in_order()
    p.edit("calibrate.py", "import json", "import json, nowhere")
    p.commit("broken")


def results_before_the_freeze(p: Project) -> None:
    p.rule()
    p.grid()
    p.results()
    p.freeze()


def results_before_and_removed(p: Project) -> None:
    p.rule()
    p.results()
    (p.root / "data/llc.csv").unlink()
    p.commit("nothing was here")
    p.grid()
    p.freeze()


def results_on_a_branch_from_before(p: Project) -> None:
    p.rule()
    p.git("branch", "aside")
    p.grid()
    p.freeze()
    p.git("checkout", "--quiet", "aside")
    p.results()
    p.git("checkout", "--quiet", "main")
    p.git("merge", "--quiet", "--no-edit", "aside")


WRONG: list[tuple[Callable[[Project], None], str]] = [
    (rule_with_the_grid, r"the rule as it was frozen \(\w{9}\) was not committed before"),
    (rule_after_the_grid, "the rule as it was frozen .* was not committed before data/calib"),
    (docstring_alone_changed_after_the_grid, "the rule as it was frozen"),
    (limit_changed_after_the_grid, "the rule as it was frozen"),
    (default_changed_after_the_grid, "the rule as it was frozen"),
    (rule_changed_and_changed_back, "the rule as it was frozen"),
    (no_rule, "froze the settings without select in calibrate.py"),
    (rule_that_does_not_parse, "froze the settings without select in calibrate.py"),
    (rule_changed_after_the_freeze, "select in calibrate.py is not what it was at the freeze"),
    (rule_changed_in_the_working_tree, "select in calibrate.py is not what it was"),
    (no_grid, "data/calibration_grid.csv was never committed"),
    (no_freeze, "data/calibration.json was never committed"),
    (freeze_not_committed, "data/calibration.json was never committed"),
    (grid_with_the_freeze, r"grid.csv \(\w{9}\) was not committed before data/calibration.json"),
    (grid_after_the_freeze, r"grid.csv \(\w{9}\) was not committed before data/calibration.json"),
    (freeze_not_alone, "adds data/calibration.json, but not alone: README.md"),
    (grid_changed_later, r"grid.csv was committed in \w{9} and changed in \w{9}"),
    (grid_changed_and_restored, r"grid.csv was committed in \w{9} and changed in \w{9}"),
    (freeze_changed_later, r"calibration.json was committed in \w{9} and changed in \w{9}"),
    (freeze_removed, r"calibration.json was committed in \w{9} and changed in \w{9}"),
    (freeze_changed_in_a_merge, r"calibration.json is not what it was when \w{9} added it"),
    (grid_edited, "grid.csv has uncommitted changes"),
    (freeze_edited, "calibration.json has uncommitted changes"),
    (freeze_deleted, "calibration.json has uncommitted changes"),
    (made_from_another_grid, r"hashes to \w{12}, data/calibration.json was made from another"),
    (hash_of_other_content, "does not have the hash it says"),
    (freeze_without_settings, "holds no settings"),
    (other_settings_than_the_rule_gives, "today's rule gives other settings: gamma 1.0, frozen 10"),
    (rule_that_reads_something_else_today, "today's rule gives other settings: gamma 10.0, fro"),
    (rule_that_does_not_run_today, "`python calibrate.py --selected` failed: .*nowhere"),
    (results_before_the_freeze, r"\w{9} commits data/llc.csv, a reading .* not come after the fre"),
    (results_before_and_removed, r"\w{9} commits data/llc.csv"),
    (results_on_a_branch_from_before, r"\w{9} commits data/llc.csv"),
]


@pytest.mark.parametrize(("build", "words"), WRONG, ids=lambda x: getattr(x, "__name__", ""))
def test_a_wrong_order_is_refused(
    project: Project, build: Callable[[Project], None], words: str
) -> None:
    build(project)
    with pytest.raises(NotProven, match=f"(?s){words}"):
        verify.main(["--order"], project.root)


@pytest.mark.parametrize("pattern", verify.GROKKED)
def test_no_file_of_readings_may_come_early(project: Project, pattern: str) -> None:
    path = pattern.replace("?", "_").replace("*", "a.csv")
    project.rule()
    project.results(path)
    project.grid()
    project.freeze()
    with pytest.raises(NotProven, match=path):
        verify.main(["--order"], project.root)


@pytest.mark.parametrize(
    "path", ["data/checkpoints/p11.npz", "data/null.jsonl", "data/calibration_resolution.csv"]
)
def test_what_holds_no_reading_of_a_trained_network_may(project: Project, path: str) -> None:
    project.rule()
    project.results(path)
    project.grid()
    project.freeze()
    assert verdicts(project)["results"].commit is None


# --- no history to read ---------------------------------------------------------------------


def test_a_shallow_clone_is_refused(project: Project, tmp_path: Path) -> None:
    project.in_order()
    clone = tmp_path / "clone"
    source = f"file://{project.root}"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", source, str(clone)], check=True)
    with pytest.raises(NotProven, match=r"shallow clone.*git fetch --unshallow"):
        verify.main(["--order"], clone)
    subprocess.run(["git", "-C", str(clone), "fetch", "--quiet", "--unshallow"], check=True)
    assert verify.main(["--order"], clone) == 0


def test_a_folder_without_git_is_refused(project: Project) -> None:
    project.in_order()
    shutil.rmtree(project.root / ".git")
    with pytest.raises(NotProven, match="is not a git checkout"):
        verify.main(["--order"], project.root)


def test_a_folder_inside_another_checkout_is_refused(project: Project) -> None:
    project.in_order()
    inner = project.root / "copy"
    shutil.copytree(project.root / "data", inner / "data")
    with pytest.raises(NotProven, match="copy is not a git checkout"):
        verify.main(["--order"], inner)


def test_an_empty_history_is_refused(project: Project) -> None:
    with pytest.raises(NotProven, match="git rev-list failed"):
        verify.main(["--order"], project.root)


def test_git_itself_may_be_missing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.in_order()
    monkeypatch.setenv("PATH", str(project.root))
    with pytest.raises(NotProven, match="git is not installed"):
        verify.main(["--order"], project.root)


# --- the command ----------------------------------------------------------------------------


def test_a_violation_is_one_line_and_exit_status_1(project: Project) -> None:
    results_before_the_freeze(project)
    for module in ("verify", "console", "gate", "records"):
        shutil.copy(verify.HERE / f"{module}.py", project.root)
    command = [sys.executable, "verify.py", "--order"]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "commits data/llc.csv" in done.stderr
    assert done.stderr.count("\n") == 1


def test_nothing_asked_is_bad_use() -> None:
    with pytest.raises(ValueError, match="--order is required"):
        verify.main([])


# --- the real files -------------------------------------------------------------------------


def test_the_real_scripts_in_a_history_of_their_own(project: Project) -> None:
    for path in verify.HERE.glob("*.py"):
        shutil.copy(path, project.root)
    project.rule()
    rows = [
        dict.fromkeys(calibrate.GRID_COLUMNS, 1)
        | {"network": case.name, "settled": True, "scale": scale, "known_llc": case.known_llc}
        | {"step_constant": protocol.step_constant, "gamma": protocol.gamma}
        | {"n_beta": protocol.n_beta, "error": 0.01 if protocol.gamma == 1.0 else 0.1}
        for case, scale, protocol in calibrate.grid_settings()
    ]
    records.write_csv(project.root / GRID, calibrate.GRID_COLUMNS, rows)
    project.commit("the grid")
    freeze = [sys.executable, "calibrate.py", "--freeze"]
    subprocess.run(freeze, cwd=project.root, check=True, capture_output=True, env=os.environ)
    project.commit("the freeze")
    assert [*verdicts(project)] == ["rule", "grid", "freeze", "settings", "results"]


def test_this_repository_keeps_its_order() -> None:
    if not (verify.HERE / FROZEN).exists():
        pytest.skip("nothing is frozen yet")
    try:
        verify.refuse_incomplete_history(verify.HERE)
    except NotProven as why:
        pytest.skip(str(why))
    assert len(list(verify.order(verify.HERE))) == 5
