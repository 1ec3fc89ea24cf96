"""Verify what this repository says about its own history: `python verify.py --order`.

--order reads the git history and shows that the selection rule was committed before the grid of
known networks, the grid before the frozen settings, and the frozen settings before any reading of a
grokked network. Exit status 1 and one line when that cannot be shown.

What it cannot show: git keeps an order, not a time. A history can be rewritten until somebody else
holds a copy of it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import console
import gate
import records

HERE = Path(__file__).resolve().parent
GRID, FROZEN = f"data/{gate.GRID}", f"data/{gate.CALIBRATION}"
# The rule and all it reads; of a class, the fields with their defaults.
RULE_FILE, RULE_NAME = "calibrate.py", "select"
RULE = {RULE_FILE: (RULE_NAME, "ERROR_LIMIT", "SOURCE"), "measure.py": ("Protocol",)}
# Files that hold a sampler's reading of a trained network, or are written from one.
GROKKED = (
    "data/claims*",
    "data/convergence*",
    "data/grid_selection*",
    "data/llc*",
    "data/memorising*",
    "data/peers*",
    "data/polish*",
    "data/records/*",
    "data/sensitivity*",
    "data/settling*",
    "data/shipped*",
    "data/source?settings*",
    "data/too?wide*",
    "data/traces/*",
    "data/trajectory*",
    "data/verdict*",
)


class NotProven(RuntimeError):
    """The history does not show what was claimed, or is not there to be read."""


@dataclass(frozen=True)
class Step:
    """One line of the table: a commit and what holds for it."""

    step: str
    commit: str | None  # None where there is no commit yet
    date: str | None
    what: str
    verdict: str


# ---- git ---------------------------------------------------------------------------------------


def run_git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """git in `root`, deaf to the GIT_ variables of a hook it may run in. Raises NotProven when git
    is not installed."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), "-c", "core.quotePath=false", *arguments]
    try:
        return subprocess.run(command, capture_output=True, env=environment, check=False)
    except FileNotFoundError:
        raise NotProven("git is not installed, and the order is read from its history") from None


def git(root: Path, *arguments: str) -> list[str]:
    """The lines git prints. Raises NotProven when git refuses."""
    done = run_git(root, *arguments)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise NotProven(f"git {arguments[0]} failed in {root}: {said}")
    return done.stdout.decode(errors="replace").splitlines()


def blob(root: Path, commit: str, path: str) -> bytes | None:
    """A file's bytes in a commit; None where the commit has no such file."""
    done = run_git(root, "show", f"{commit}:{path}")
    return None if done.returncode else done.stdout


def refuse_incomplete_history(root: Path) -> None:
    """Raise NotProven unless `root` is the top of a checkout with its whole history."""
    found = run_git(root, "rev-parse", "--show-toplevel")
    top = found.stdout.decode(errors="replace").strip()
    if found.returncode or Path(top).resolve() != root.resolve():
        raise NotProven(f"{root} is not a git checkout: clone the repository, with its history")
    if git(root, "rev-parse", "--is-shallow-repository") == ["true"]:
        raise NotProven(
            f"{root} is a shallow clone, without the history to read: run `git fetch --unshallow`"
        )


def the_commit_of(root: Path, path: str) -> str:
    """The one commit that added a file, which no other has changed. Raises NotProven otherwise."""
    changes = git(root, "rev-list", "--full-history", "--no-merges", "HEAD", "--", path)
    if not changes:
        raise NotProven(f"{path} was never committed")
    added = changes[-1]
    if len(changes) > 1:
        raise NotProven(
            f"{path} was committed in {short(added)} and changed in {short(changes[0])}"
        )
    if blob(root, "HEAD", path) != blob(root, added, path):
        raise NotProven(f"{path} is not what it was when {short(added)} added it")
    if git(root, "status", "--porcelain", "--", path):
        raise NotProven(f"{path} has uncommitted changes: `git checkout -- {path}` undoes them")
    return added


def require_before(root: Path, first: tuple[str, str], then: tuple[str, str]) -> None:
    """Raise NotProven unless the commit of `first` is a strict ancestor of that of `then`; each is
    (what, commit)."""
    (what, commit), (later_what, later) = first, then
    done = run_git(root, "merge-base", "--is-ancestor", commit, later)
    if commit == later or done.returncode:
        raise NotProven(
            f"{what} ({short(commit)}) was not committed before {later_what} ({short(later)})"
        )


def short(commit: str) -> str:
    """The first digits of a commit's hash."""
    return commit[:9]


# ---- the order ---------------------------------------------------------------------------------


def definition(source: str, name: str) -> str | None:
    """The source of a module's function or constant, or of a class's fields; None without it."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return None
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            return "\n".join(ast.get_source_segment(source, part) or "" for part in fields)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_source_segment(source, node)
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            return ast.get_source_segment(source, node)
    return None


def rule_at(root: Path, commit: str) -> list[str | None]:
    """The source of the rule, and of all it reads, in a commit."""
    found = []
    for path, names in RULE.items():
        source = (blob(root, commit, path) or b"").decode(errors="replace")
        found += [definition(source, name) for name in names]
    return found


def commit_of_rule(root: Path, freeze: str) -> str:
    """The oldest commit since which the rule reads as it did at the freeze."""
    frozen, oldest = rule_at(root, freeze), freeze
    if None in frozen:
        raise NotProven(f"{short(freeze)} froze the settings without {RULE_NAME} in {RULE_FILE}")
    history = git(root, "rev-list", "--full-history", "--topo-order", freeze, "--", *RULE)
    for commit in history:
        if rule_at(root, commit) != frozen:
            break
        oldest = commit
    return oldest


def rule_step(root: Path, grid: str, freeze: str) -> Step:
    """The rule: before the grid, and the same at the freeze and today."""
    rule = commit_of_rule(root, freeze)
    require_before(root, ("the rule as it was frozen", rule), (GRID, grid))
    today = (root / RULE_FILE).read_text(encoding="utf-8")
    if definition(today, RULE_NAME) != rule_at(root, freeze)[0]:
        raise NotProven(f"{RULE_NAME} in {RULE_FILE} is not what it was at the freeze")
    return step(root, "rule", rule, "before the grid, the same at the freeze and today")


def freeze_step(root: Path, freeze: str) -> Step:
    """The freeze: alone in its commit, made from the committed grid, whole."""
    changed = git(root, "diff-tree", "-r", "--root", "--no-commit-id", "--name-only", freeze)
    if changed != [FROZEN]:
        others = ", ".join(path for path in changed if path != FROZEN)
        raise NotProven(f"{short(freeze)} adds {FROZEN}, but not alone: {others}")
    document = frozen_document(root, freeze)
    if gate.content_hash(document) != document.get("sha256"):
        raise NotProven(f"{FROZEN} does not have the hash it says it has: it was edited")
    grid = sha256(blob(root, freeze, GRID) or b"").hexdigest()
    if grid != document.get("grid_sha256"):
        raise NotProven(f"{GRID} hashes to {grid[:12]}, {FROZEN} was made from another grid")
    return step(root, "freeze", freeze, "after the grid, from that grid, alone in its commit")


def frozen_document(root: Path, freeze: str) -> dict[str, Any]:
    """data/calibration.json as it was committed."""
    document = json.loads(blob(root, freeze, FROZEN) or b"null")
    if not isinstance(document, dict):
        raise NotProven(f"{FROZEN} holds no settings")
    return document


def settings_step(root: Path, freeze: str) -> Step:
    """Today's rule on the committed grid gives the frozen settings."""
    command = [sys.executable, RULE_FILE, "--selected"]
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise NotProven(f"`python {RULE_FILE} --selected` failed: {done.stderr.strip()}")
    chosen, frozen = json.loads(done.stdout), frozen_document(root, freeze).get("settings", {})
    others = [f"{name} {x}, frozen {frozen.get(name)}" for name, x in chosen.items()]
    if any(frozen.get(name) != x for name, x in chosen.items()):
        raise NotProven(f"today's rule gives other settings: {'; '.join(others)}")
    return step(root, "settings", freeze, "today's rule on this grid gives them")


def results_step(root: Path, freeze: str) -> Step:
    """Every reading of a grokked network was committed after the freeze."""
    after = set(git(root, "rev-list", "--ancestry-path", f"{freeze}..HEAD"))
    commits = git(root, "rev-list", "--full-history", "--topo-order", "HEAD", "--", *GROKKED)
    early = [commit for commit in commits if commit not in after]
    if early:
        shown = ("diff-tree", "-r", "-m", "--root", "--no-commit-id", "--name-only")
        files = git(root, *shown, early[-1], "--", *GROKKED)
        raise NotProven(
            f"{short(early[-1])} commits {', '.join(files[:3])}, a reading of a grokked network, "
            f"and does not come after the freeze ({short(freeze)})"
        )
    if not commits:
        return Step("results", None, None, "no readings of grokked networks yet", "none too early")
    files = git(root, "ls-files", "--", *GROKKED)
    return step(root, "results", commits[-1], f"after the freeze, like all {len(files)} files")


def step(root: Path, name: str, commit: str, verdict: str) -> Step:
    """A line of the table, with the commit's own date and subject."""
    (line,) = git(root, "log", "-1", "--format=%cs %s", commit)
    date, _, subject = line.partition(" ")
    return Step(name, short(commit), date, subject, verdict)


def order(root: Path) -> Iterator[Step]:
    """Rule, grid, freeze, settings, results, each shown in turn. Raises NotProven."""
    refuse_incomplete_history(root)
    grid, freeze = the_commit_of(root, GRID), the_commit_of(root, FROZEN)
    require_before(root, (GRID, grid), (FROZEN, freeze))
    yield rule_step(root, grid, freeze)
    yield step(root, "grid", grid, "after the rule, never changed")
    yield freeze_step(root, freeze)
    yield settings_step(root, freeze)
    yield results_step(root, freeze)


# ---- the command -------------------------------------------------------------------------------


def table(steps: list[Step]) -> str:
    """The steps as aligned text."""
    lines = [f"{'step':9} {'commit':10} {'date':11} what"]
    for s in steps:
        lines.append(f"{s.step:9} {s.commit or '-':10} {s.date or '-':11} {s.what}")
        lines.append(f"{'':32} ok: {s.verdict}")
    return "\n".join(lines)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line. Raises ValueError."""
    parser = console.Arguments(description="Verify what this repository says about its history.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--order", action="store_true", help="rule before grid before freeze before results"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None, root: Path = HERE) -> int:
    """Show what was asked, or raise."""
    options = parse(arguments)
    steps = list(order(root))
    if options.json:
        print(records.to_json({"order": [asdict(s) for s in steps]}), end="")
    else:
        print(table(steps))
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
