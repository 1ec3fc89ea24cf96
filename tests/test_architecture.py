"""The shape of the house: who may import whom, how long things are, what each module must have.

A module imports only from floors below its own. To add a module, add its line to FLOORS and to the
table in CONTRIBUTING.md; a test compares the two.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# name -> (floor, packages it may import besides the standard library)
NUMPY = frozenset({"numpy"})
NUMERIC = NUMPY | {"scipy"}
SCRIPT = NUMERIC | {"tqdm"}
FLOORS: dict[str, tuple[int, frozenset[str]]] = {
    "qnet": (0, NUMERIC),
    "mlp": (0, NUMERIC),
    "zoo": (0, NUMERIC),
    "theory": (0, NUMERIC),
    "curvature": (0, NUMERIC),
    "exact_rank": (0, NUMPY),
    "chains": (0, NUMPY),
    "records": (0, NUMPY),
    "tables": (0, NUMPY),
    "width_tables": (0, NUMPY),
    "verdict": (0, NUMPY),
    "console": (0, frozenset({"tqdm"})),
    "train": (1, NUMERIC),
    "sgld": (1, NUMERIC),
    "hmc": (1, NUMERIC),
    "known": (1, NUMERIC),
    "canvas": (1, frozenset({"matplotlib"})),
    "jobs": (1, NUMPY),
    "digits": (1, NUMPY),
    "effective_dimension": (1, NUMERIC),
    "langevin_laws": (1, NUMERIC),
    "influence": (1, NUMERIC),
    "observer": (1, NUMPY),
    "measure": (2, NUMERIC),
    "gate": (2, NUMPY),
    "networks": (2, NUMERIC),
    "train_mlp": (2, NUMERIC),
    "preconditioned": (2, NUMERIC),
    "width_networks": (2, NUMPY),
    "width_equations": (2, NUMERIC),
    "evidence": (2, NUMPY),
    "study_figures": (2, NUMPY),
    "equations": (3, NUMERIC),
    "readout": (3, frozenset()),
    "spectra": (3, NUMERIC),
    "studies": (3, NUMERIC),
    "width_study": (3, NUMERIC),
    "width_chains": (3, NUMERIC),
    "width_extensions": (3, NUMERIC),
    "width_figures": (3, NUMPY),
    "reading_rules": (3, NUMPY),
    "known_rules": (3, NUMPY),
    "spectrum_rules": (3, NUMPY),
    "width_rules": (3, NUMPY),
    "width_chain_rules": (3, NUMPY),
    "report": (3, NUMPY),
    "figures": (4, NUMERIC | {"matplotlib"}),
    "bench": (4, SCRIPT | {"threadpoolctl", "tests"}),  # the oracles of the tests are its rivals
    "calibrate": (4, SCRIPT),
    "run_llc": (4, SCRIPT),
    "run_widths": (4, SCRIPT),
    "instruments": (4, SCRIPT),
    "judge": (4, SCRIPT),
    "gen_vectors": (4, SCRIPT),
    "verify": (4, SCRIPT),
    "documents": (4, SCRIPT),
    "claims": (4, SCRIPT),
}
# Packages of requirements-extras.txt: nothing fails to start for the want of one.
OPTIONAL = frozenset({"matplotlib", "tqdm", "threadpoolctl", "flint"})
NEEDS_LEGEND = frozenset(name for name, (floor, _) in FLOORS.items() if floor < 2) - {"console"}
SCRIPTS = 4  # the floor of the scripts
LONGEST_FILE = 600  # lines
LONGEST_BODY = 40  # lines of a function, docstring not counted
EMPTY_NAMES = re.compile(r"(^|_)(util|utils|helper|helpers|misc|common)(_|$)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(top-level name, line) of every import, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield ("." if node.level else (node.module or "").split(".")[0]), node.lineno


def forbidden_imports(name: str, tree: ast.Module) -> Iterator[str]:
    floor, packages = FLOORS[name]
    for target, line in imports(tree):
        if target in FLOORS:
            below = FLOORS[target][0]
            if below >= floor:
                yield f"{name}:{line} (floor {floor}) imports {target} (floor {below})"
        elif target not in sys.stdlib_module_names and target not in packages:
            yield f"{name}:{line} imports {target}, allowed: {sorted(packages)}"


def eager_optional_imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Optional packages imported as the module loads, outside a function and outside a try."""
    lazy: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.Try):
            lazy.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for target, line in imports(tree):
        if target in OPTIONAL and line not in lazy:
            yield f"{name}:{line} needs the optional {target} to load: import it where it is used"


def body_length(function: Function) -> int:
    """Lines from the first statement after the docstring to the last."""
    has_docstring = ast.get_docstring(function, clean=False) is not None
    statements = function.body[1:] if has_docstring else function.body
    if not statements:
        return 0
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1


def too_long(name: str, source: str, tree: ast.Module) -> Iterator[str]:
    lines = source.count("\n")
    if lines > LONGEST_FILE:
        yield f"{name} has {lines} lines, at most {LONGEST_FILE}"
    for node in ast.walk(tree):
        if isinstance(node, Function) and body_length(node) > LONGEST_BODY:
            length = body_length(node)
            yield f"{name}:{node.lineno} {node.name} has {length} lines, at most {LONGEST_BODY}"


def work_on_import(name: str, tree: ast.Module) -> Iterator[str]:
    """Top-level statements that do something: calls, loops, assignments into other objects.

    One thing a script may do: set the number of BLAS threads, which must come before numpy.
    """
    for node in tree.body:
        if FLOORS[name][0] == SCRIPTS and ast.unparse(node).startswith("os.environ.setdefault("):
            continue
        call = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        loop = isinstance(node, ast.For | ast.While | ast.With)
        assigned = node.targets if isinstance(node, ast.Assign) else []
        outside = any(isinstance(target, ast.Attribute | ast.Subscript) for target in assigned)
        if call or loop or outside:
            yield f"{name}:{node.lineno} does something on import: move it into a function"


def bad_docstring(name: str, tree: ast.Module) -> Iterator[str]:
    docstring = ast.get_docstring(tree) or ""
    if not docstring:
        yield f"{name} has no docstring"
    elif name in NEEDS_LEGEND and not re.search(r"^\W*Symbols\b", docstring, re.MULTILINE):
        yield f"{name} has no legend: a line beginning with 'Symbols' in its docstring"


def violations(name: str, source: str) -> list[str]:
    """Everything in one top-level module that breaks the house's rules."""
    found = []
    if EMPTY_NAMES.search(name):
        found.append(f"{name} says nothing about what it holds")
    if name not in FLOORS:
        return [*found, f"{name} is on no floor: add it to FLOORS"]
    tree = ast.parse(source)
    found += forbidden_imports(name, tree)
    found += eager_optional_imports(name, tree)
    found += too_long(name, source, tree)
    found += work_on_import(name, tree)
    found += bad_docstring(name, tree)
    return found


def untested(root: Path) -> list[str]:
    return [
        f"{path.name} has no tests/test_{path.name}"
        for path in sorted(root.glob("*.py"))
        if not (root / "tests" / f"test_{path.name}").exists()
    ]


# --- the house ------------------------------------------------------------------------------


MODULES = sorted(path.stem for path in ROOT.glob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_module_keeps_the_rules(name: str) -> None:
    assert violations(name, (ROOT / f"{name}.py").read_text(encoding="utf-8")) == []


def test_every_module_has_its_tests() -> None:
    assert untested(ROOT) == []


def test_the_floor_table_that_people_read_is_this_one() -> None:
    rows = re.findall(r"^\| (\d) [^|]*\|([^|]*)\|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    told = {name: int(floor) for floor, cell in rows for name in re.findall(r"`(\w+)\.py`", cell)}
    assert told == {name: floor for name, (floor, _) in FLOORS.items()}


def test_no_test_file_has_an_empty_name() -> None:
    names = [path.stem for path in (ROOT / "tests").rglob("*.py")]
    assert [name for name in names if EMPTY_NAMES.search(name)] == []


# --- what must fail -------------------------------------------------------------------------

GOOD = '"""Title.\n\nSymbols\n  n  points\n"""\n\nimport math\n\nimport numpy as np\n'


def long_function(lines: int) -> str:
    return f'{GOOD}def f():\n    """One.\n\n    Two.\n    """\n' + "    x = 1\n" * lines


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("qnet", GOOD),
        ("qnet", GOOD + "from scipy import linalg\n"),
        ("sgld", GOOD + "from chains import Model\nimport scipy.linalg\n"),
        ("equations", GOOD + "import sgld\nimport qnet\n"),
        ("run_llc", GOOD + "import study_figures\nimport sgld\nimport qnet\n"),
        ("run_llc", GOOD + "import os\nos.environ.setdefault('OMP_NUM_THREADS', '1')\n"),
        ("run_llc", GOOD + "def f():\n    from tqdm import tqdm\n"),
        ("run_llc", GOOD + "try:\n    import tqdm\nexcept ImportError:\n    tqdm = None\n"),
        (
            "run_llc",
            '"""Title: a script needs no legend."""\nif __name__ == "__main__":\n    f()\n',
        ),
        ("qnet", long_function(LONGEST_BODY)),
        ("qnet", GOOD + "#\n" * (LONGEST_FILE - GOOD.count("\n"))),
    ],
)
def test_what_is_allowed(name: str, source: str) -> None:
    assert violations(name, source) == []


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("qnet", GOOD + "import sgld\n", "qnet:10 (floor 0) imports sgld (floor 1)"),
        ("qnet", GOOD + "from chains import Model\n", "(floor 0) imports chains (floor 0)"),
        ("sgld", GOOD + "def f():\n    import train\n", "sgld:11 (floor 1) imports train"),
        ("run_llc", GOOD + "import calibrate\n", "(floor 4) imports calibrate (floor 4)"),
        ("equations", GOOD + "from run_llc import main\n", "(floor 3) imports run_llc"),
        ("records", GOOD + "import scipy.linalg\n", "imports scipy, allowed: ['numpy']"),
        ("sgld", GOOD + "import torch\n", "imports torch"),
        ("sgld", GOOD + "from . import chains\n", "imports ."),
        ("theory", GOOD + "def f():\n    import matplotlib\n", "imports matplotlib"),
        ("figures", GOOD + "import matplotlib.pyplot\n", "needs the optional matplotlib to load"),
        ("run_llc", GOOD + "class A:\n    import tqdm\n", "needs the optional tqdm to load"),
        ("qnet", long_function(LONGEST_BODY + 1), "qnet:10 f has 41 lines, at most 40"),
        ("qnet", GOOD + "#\n" * LONGEST_FILE, "qnet has 609 lines, at most 600"),
        ("qnet", GOOD + "np.random.seed(0)\n", "qnet:10 does something on import"),
        ("qnet", GOOD + "import os\nos.environ.setdefault('A', '1')\n", "qnet:11 does something"),
        ("qnet", GOOD + "np.x = 1\n", "qnet:10 does something on import"),
        ("qnet", GOOD + "for i in range(3):\n    pass\n", "qnet:10 does something on import"),
        ("qnet", '"""Title. No symbols."""\n', "qnet has no legend"),
        ("run_llc", "import math\n", "run_llc has no docstring"),
        ("helpers", GOOD, "helpers says nothing"),
        ("chain_utils", GOOD, "chain_utils says nothing"),
        ("wanderer", GOOD, "wanderer is on no floor"),
    ],
)
def test_what_is_forbidden_is_caught(name: str, source: str, words: str) -> None:
    found = violations(name, source)
    assert len(found) >= 1
    assert words in found[0]


def test_a_module_without_tests_is_caught(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_qnet.py").touch()
    (tmp_path / "qnet.py").touch()
    (tmp_path / "sgld.py").touch()
    assert untested(tmp_path) == ["sgld.py has no tests/test_sgld.py"]
