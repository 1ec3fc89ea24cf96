"""The report: one HTML file that works offline, figures inside, settings beside each number.

Everything is read: tables from data/, figures from figures/*.png (`python figures.py`), claims from
data/claims.json (`python claims.py`). What is not there yet is named with the command that makes
it. `python run_llc.py --report` writes report.html.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import records
import verdict
from evidence import AT_SOURCE, COMMANDS, OPEN, VERDICTS, Evidence, Row, settings_of

Cell = str | Callable[[Row], Any]
Column = tuple[str, Cell, str]  # heading, column of the row or how to get it, format

SIGNS = dict(zip(VERDICTS, "✓≠✗•–○", strict=True))  # told apart without colour
STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 84rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.7rem; } h2 { border-top: 2px solid #0072b2; padding-top: .6rem; }
h3 { margin-bottom: .2rem; }
nav a { margin-right: 1.2rem; } a { color: #0060a0; }
.answer { font-size: 1.1rem; border-left: 4px solid #0072b2; padding-left: .8rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 11.5px; font-variant-numeric: tabular-nums;
        margin: .3rem 0 1rem; }
caption { text-align: left; font-size: 13px; padding: .2rem 0; }
th, td { padding: .15rem .35rem; text-align: right; white-space: nowrap; }
thead th { border-bottom: 1px solid #444; vertical-align: bottom; }
tbody tr:nth-child(even) { background: #f2f5f8; }
th[scope=row], .words { text-align: left; } tbody th, tbody td { vertical-align: top; }
td.words { white-space: normal; min-width: 9rem; max-width: 28rem; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
figcaption, .note { font-size: 13px; color: #444; } code { font-size: 12px; }
.missing { border: 1px dashed #888; padding: .4rem .8rem; font-size: 13px; }
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; }
  .scroll { overflow: visible; } table { font-size: 8pt; } th, td { padding: 0 2pt; }
  figure, tr { break-inside: avoid; } h2 { break-before: page; }
  h2, h3, caption, thead { break-after: avoid; } caption { font-size: 9pt; }
  h2:first-of-type { break-before: auto; }
  figure img { max-height: 115mm; width: auto; }
}
"""

FIGURES = {  # file in figures/ -> what it shows
    "reading": "Readings at the frozen settings against the formula, and over it size by size. "
    "Filled: grokked, with the bracket of λ as a bar from ½ rank; triangles: first layer frozen, "
    "against p·rank/2; ×: not settled.",
    "reading_at_source": "The same at the settings of Lab Agents 2026, with networks too wide for "
    "the formula (hollow).",
    "spectra": "Curvature spectra of two grokked networks. Grey: flatter than the resolution.",
    "calibration": "Error of every run of the calibration grid, one line of marks per setting.",
    "response": "What the spectra predict at every resolution, and the readings taken at some.",
    "sensitivity": "Readings when one setting is changed, and at the 16 settings of the grid.",
    "tolerance": "Rank and flat share against the tolerance, by route.",
    "settling": "Fifths of long chains against the 10,000-step reading; grey: within 5 %.",
    "polish": "Readings after two polishes of the same trained weights.",
    "trajectory": "A network that memorises first and groks later.",
    "convergence": "Networks trained on and on under weight decay: bracket, formulas, readings, "
    "ranks.",
}


# ---- tables ------------------------------------------------------------------------------------


def _length(row: Row) -> str:
    if not row.get("chains"):
        return "–"
    return f"{row['chains']} × {row['steps']:,} ({row['burn_in']:,})"


def _bracket(row: Row) -> str:
    if row.get("bracket_low") is None:
        return "–"
    return f"{row['bracket_low']:.1f} … {row['bracket_high']:.1f}"


IN_CAPTION: tuple[Column, ...] = (  # left out of a table whose rows share them
    ("nβ", "n_beta", "g"),
    ("γ", "gamma", "g"),
    ("s", "step_constant", "g"),
    ("chains × steps (burn-in)", _length, ""),
    ("status", "status", ""),
)
SETTINGS: tuple[Column, ...] = (
    *IN_CAPTION,
    ("κ", "kappa", ".2g"),
    ("ε", "step", ".2e"),
    ("settled", "settled", ""),
)
READING: tuple[Column, ...] = (
    ("λ̂", "llc", ".1f"),
    ("± s.e.", "standard_error", ".1f"),
    ("law at w*", "law", ".1f"),
    ("z", "z_law", "+.1f"),
)
NETWORK: tuple[Column, ...] = (("network", "network", ""), ("n", "n", "d"))
VERDICT: tuple[Column, ...] = (
    *NETWORK,
    ("K_eff", "K_eff", "d"),
    ("loss", "loss", ".0e"),
    ("rank", "rank", "d"),
    ("exact", "exact_lower", "d"),
    ("bracket", _bracket, ""),
    ("½K(3p−1)", "formula_paper", ".1f"),
    ("flat", "flat_share", ".1%"),
    *READING,
    ("law at end", "end_law", ".1f"),
    ("z", "z_end", "+.1f"),
    ("end from w*", "end_distance", ".2g"),
    ("|w*|", "weight_norm", ".2g"),
    ("λ̂/formula", "ratio_paper", ".3f"),
    *SETTINGS,
)
RESOLUTION: tuple[Column, ...] = (
    ("network", "network", ""),
    ("λ known", "known_llc", ".1f"),
    ("½ rank", "half_rank", ".1f"),
    ("flat", "flat_share", ".1%"),
    ("law", "law", ".1f"),
    ("λ̂", "llc", ".1f"),
    ("± s.e.", "standard_error", ".1f"),
    ("of λ", "share_of_known", ".3f"),
    ("of the law", "share_of_law", ".3f"),
    ("settled", "settled", ""),
)
COLUMNS: dict[str, tuple[Column, ...]] = {
    "llc.csv": VERDICT,
    AT_SOURCE: VERDICT,
    "too_wide.csv": (*VERDICT[:8], ("½p(n−1)", "wide_limit", ".1f"), *VERDICT[8:]),
    "memorising.csv": (
        *NETWORK,
        ("rank CZ²", "feature_rank", "d"),
        ("p·rank/2", "known_llc", ".1f"),
        ("½p·min(l, K)", "formula_lazy", ".1f"),
        *READING,
        ("λ̂/known", "ratio_known", ".3f"),
        *SETTINGS,
    ),
    "sensitivity.csv": (
        *NETWORK,
        ("changed", "changed", ""),
        *READING,
        ("λ̂/formula", "ratio_paper", ".3f"),
        *SETTINGS,
    ),
    "settling.csv": (
        *NETWORK,
        *((f"fifth {k}", f"block_{k}", ".1f") for k in range(1, 6)),
        ("law, fifth 5", "law_last_block", ".1f"),
        ("10,000 steps", "reading_10000", ".1f"),
        ("change", "last_against_10000", "+.1%"),
        *SETTINGS,
    ),
    "polish.csv": (
        *NETWORK,
        ("polish", "polish", ""),
        ("loss", "loss", ".1e"),
        ("moved", "polish_moved", ".1%"),
        ("apart", "between_polishes", ".1%"),
        ("rank", "rank", "d"),
        *READING,
        *SETTINGS,
    ),
    "trajectory.csv": (
        ("steps", "training_steps", ",d"),
        ("loss", "loss", ".1e"),
        ("right, trained", "train_accuracy", ".0%"),
        ("right, held out", "held_out_accuracy", ".0%"),
        ("K_eff", "K_eff", "d"),
        ("½ rank", "half_rank", ".1f"),
        ("½Σh/(h+c)", "effective_dimension", ".1f"),
        ("at the paper's c", "paper_settings_reading", ".1f"),
        *READING,
        *SETTINGS,
    ),
    "convergence.csv": (
        ("network", "network", ""),
        ("steps", "training_steps", ",d"),
        ("K_eff", "K_eff", "d"),
        ("rank", "rank", "d"),
        ("gap", "gap", ".0e"),
        ("exact", "exact_lower", "d"),
        ("bracket", _bracket, ""),
        ("½K(3p−1)", "formula_paper", ".1f"),
        ("inside", "formula_inside", ""),
        ("½K_eff(3p−1)", "formula_paper_in_use", ".1f"),
        ("inside", "formula_in_use_inside", ""),
        *READING,
        *SETTINGS,
    ),
    "fourier.csv": (
        ("p", "p", "d"),
        ("per frequency", "per_frequency", "d"),
        ("K", "K", "d"),
        ("rank formula", "rank_formula", "d"),
        ("numerical", "rank", "d"),
        ("exact, ideal", "exact_rank_ideal", "d"),
        ("exact, rounded", "exact_rank_stored", "d"),
        ("bracket", _bracket, ""),
        ("½K(3p−1)", "formula_paper", ".1f"),
        ("inside", "formula_inside", ""),
        ("½K(3p−2)", "formula_generic", ".1f"),
        ("inside", "generic_inside", ""),
    ),
    "calibration_known.json": (
        ("network", "name", ""),
        ("from", "origin", ""),
        ("λ known", "known_llc", ".1f"),
        ("½ rank", "half_rank", ".1f"),
        *READING[:2],
        ("law at w*", "law", ".1f"),
        ("z", "z", "+.1f"),
        ("error", "error", "+.1%"),
        ("flat", "flat_share", ".0%"),
        ("settled", "settled", ""),
    ),
    "calibration_resolution.csv": RESOLUTION,
    "null.jsonl": RESOLUTION,
}
WORDS = {  # columns of text, which may break
    *("id", "claim", "source_value", "ours", "measured on", "cause"),
}


def table(rows: Sequence[Row], columns: Sequence[Column], caption: str) -> str:
    """An HTML table; the first column heads its row. Failed rows say why in place of numbers."""
    head = "".join(
        f'<th scope="col"{_words(cell)}>{escape(name)}</th>' for name, cell, _ in columns
    )
    body = "\n".join(f"<tr>{_cells(row, columns)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _cells(row: Row, columns: Sequence[Column]) -> str:
    texts = [_text(row, cell, form) for _, cell, form in columns]
    head = f'<th scope="row">{escape(texts[0])}</th>'
    if isinstance(row.get("error"), str) and row["error"]:
        return f'{head}<td colspan="{len(columns) - 1}">failed: {escape(row["error"])}</td>'
    return head + "".join(
        f"<td{_words(cell)}>{escape(text)}</td>"
        for (_, cell, _), text in zip(columns[1:], texts[1:], strict=True)
    )


def _words(cell: Cell) -> str:
    return ' class="words"' if cell in WORDS else ""


def _text(row: Row, cell: Cell, form: str) -> str:
    if callable(cell):
        return str(cell(row))
    value = row.get(cell)
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, form)


# ---- parts -------------------------------------------------------------------------------------


class Parts:
    """What the report is made of: tables and figures, or where they are missing, the command."""

    def __init__(self, data: Evidence, figures: Path) -> None:
        self.data = data
        self.figures = figures

    def table(self, file: str, caption: str) -> str:
        """The table of a file of data/, its settings in the caption."""
        if not self.data.has(file):
            return missing(f"data/{file}", COMMANDS[file])
        rows = self.data.rows(file)
        sampled = [r for r in rows if r.get("n_beta") is not None]
        settings = f" Settings: {settings_of(sampled)}." if sampled else ""
        shared = [c for c in IN_CAPTION if len({_text(r, c[1], c[2]) for r in sampled}) < 2]
        columns = [c for c in COLUMNS[file] if c not in shared]
        return table(rows, columns, f"{caption} (data/{file}).{settings}")

    def figure(self, name: str) -> str:
        """A figure as part of the page."""
        path = self.figures / f"{name}.png"
        if not path.exists():
            return missing(f"figures/{name}.png", "python figures.py")
        content = base64.b64encode(path.read_bytes()).decode()
        words = escape(FIGURES[name])
        return (
            f'<figure><img alt="{words}" src="data:image/png;base64,{content}">'
            f"<figcaption>{words}</figcaption></figure>"
        )


def missing(what: str, command: str) -> str:
    """The place of something that was not measured yet."""
    return f'<p class="missing">{escape(what)} is not there yet: <code>{escape(command)}</code></p>'


# ---- sections ----------------------------------------------------------------------------------


def verdict_section(parts: Parts) -> str:
    """The answer, size by size and network by network."""
    if not parts.data.has("llc.csv"):
        return missing("data/llc.csv", COMMANDS["llc.csv"])
    rows = parts.data.rows("llc.csv")
    found = verdict.verdict_of(rows)
    answers = []
    for formula, words in verdict.FORMULAS.items():
        matches = sum(size.matches(formula) for size in found.sizes)
        answer = "match" if found.match(formula) else "no match"
        answers.append(f"<li>{escape(words)}: {matches} of {len(found.sizes)} sizes, {answer}</li>")
    impossible = sum(not size.possible for size in found.sizes)
    answer = "Yes" if found.match("formula_paper") else "No"
    return (
        f'<p class="answer">Does λ̂ match the closed form? <strong>{answer}.</strong> A match was '
        f"fixed beforehand: within {verdict.BAND:.0%} of the formula at {verdict.SHARE:.0%} of the "
        f"sizes.</p>\n<ul>{''.join(answers)}</ul>\n<p>{impossible} of {len(found.sizes)} sizes "
        f"read outside the bracket of λ by more than {verdict.IMPOSSIBLE:g} standard errors.</p>\n"
        + _size_table(found)
        + parts.figure("reading")
        + parts.table("llc.csv", "Every network of the verdict")
        + parts.figure("spectra")
    )


def _size_table(found: verdict.Verdict) -> str:
    rows = []
    for size in found.sizes:
        row: Row = {"size": f"{size.p}, {size.K}", "read": f"{size.measured} of {size.networks}"}
        for formula in verdict.FORMULAS:
            if formula in size.ratios:
                row[formula] = f"{size.ratios[formula]:.3f} ± {size.errors[formula]:.3f}"
        rows.append(row | {"possible": size.possible if size.measured else None})
    columns: list[Column] = [("p, K", "size", ""), ("networks read", "read", "")]
    columns += [(words, formula, "") for formula, words in verdict.FORMULAS.items()]
    columns.append(("in the bracket", "possible", ""))
    return table(rows, columns, "Mean of λ̂ over each formula, per size, ± its standard error.")


def calibration_section(parts: Parts) -> str:
    """The frozen settings and what the sampler reads where the answer is known."""
    frozen = missing("data/calibration.json", COMMANDS["calibration.json"])
    if parts.data.has("calibration.json"):
        document = parts.data.rows("calibration.json")[0]
        frozen = f"<p>Frozen settings: {escape(settings_of([document['settings']]))}.</p>"
        if rule := document.get("rule"):
            frozen += f'<p class="note">The rule that chose them: {escape(rule)}</p>'
    return (
        frozen
        + parts.table("calibration_known.json", "Networks with a known λ at the frozen settings")
        + parts.figure("calibration")
        + parts.table(
            "calibration_resolution.csv",
            "Known networks whose curvatures straddle the resolution, frozen settings",
        )
        + parts.table("null.jsonl", "Random weights at grokked size, frozen settings")
    )


def resolution_section(parts: Parts) -> str:
    """What the reading owes to the resolution gamma/n_beta."""
    return (
        "<p>A direction of curvature h counts ½·h/(h + c), c = γ/nβ, in chains without end on a "
        "quadratic loss.</p>"
        + "".join(map(parts.figure, ("response", "sensitivity", "tolerance")))
        + parts.table("sensitivity.csv", "One setting changed at a time")
        + parts.figure("reading_at_source")
        + parts.table(AT_SOURCE, "The networks at the settings of Lab Agents 2026")
    )


def studies_section(parts: Parts) -> str:
    """The side studies, one by one."""
    studies = (
        ("First layer frozen", "memorising.csv", ""),
        ("Too wide for the formula", "too_wide.csv", ""),
        ("Settling", "settling.csv", "settling"),
        ("Two polishes", "polish.csv", "polish"),
        ("From memorising to grokking", "trajectory.csv", "trajectory"),
        ("Trained on and on", "convergence.csv", "convergence"),
        ("Exact Fourier solutions", "fourier.csv", ""),
    )
    return "\n".join(
        f"<h3>{escape(title)}</h3>"
        + (parts.figure(figure) if figure else "")
        + parts.table(file, title)
        for title, file, figure in studies
    )


def claims_section(parts: Parts) -> str:
    """Every claim of the sources with its verdict."""
    path = parts.data.data / "claims.json"
    if not path.exists():
        return missing("data/claims.json", "python claims.py")
    entries = records.read_json(path)
    counts = ", ".join(f"{sum(e['verdict'] == v for e in entries)} {v}" for v in VERDICTS)
    answered = [_claim(e) for e in entries if e["verdict"] != OPEN]
    open_ones = [_claim(e) for e in entries if e["verdict"] == OPEN]
    columns: list[Column] = [
        ("", "id", ""),
        ("claim", "claim", ""),
        ("source", "source_value", ""),
        ("ours", "ours", ""),
        ("verdict", "sign", ""),
        ("measured on", "measured on", ""),
        ("why", "cause", ""),
    ]
    text = f"<p>{len(entries)} claims: {escape(counts)}. Rules and sources: CLAIMS.md.</p>"
    if answered:
        text += table(answered, columns, "Claims answered.")
    waiting = [columns[0], columns[1], columns[2], columns[6]]
    return text + (table(open_ones, waiting, "Claims that are open.") if open_ones else "")


def _claim(entry: Row) -> Row:
    measured = "; ".join(filter(None, (entry["on"], entry["settings"])))
    sign = f"{SIGNS[entry['verdict']]} {entry['verdict']}"
    known = {k: entry[k] for k in ("id", "claim", "source_value", "ours", "cause")}
    return known | {"sign": sign, "measured on": measured}


SECTIONS = {
    "Verdict": verdict_section,
    "Calibration": calibration_section,
    "Resolution": resolution_section,
    "Studies": studies_section,
    "Claims": claims_section,
}


def html(data: Path, figures: Path) -> str:
    """The whole page. Raises records.RecordError for a damaged file."""
    parts = Parts(Evidence(data), figures)
    links = "".join(f'<a href="#{name.lower()}">{name}</a>' for name in SECTIONS)
    sections = "\n".join(
        f'<h2 id="{name.lower()}">{name}</h2>\n{section(parts)}'
        for name, section in SECTIONS.items()
    )
    files = sorted(p for p in data.glob("*.*") if p.suffix in (".csv", ".json", ".jsonl"))
    hashes = " · ".join(f"{escape(p.name)} {records.sha256_file(p)[:12]}" for p in files)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Learning coefficients of grokked networks</title><style>{STYLE}</style></head>\n"
        "<body><h1>Do measured learning coefficients of grokked networks match the closed form?"
        f"</h1>\n<nav>{links}</nav>\n"
        "<p>λ̂: reading of the sampler; law: what the exact law of SGLD predicts from the spectrum "
        "at w*, with z the difference in standard errors; bracket: where λ lies at a zero of the "
        f"loss. A dash: not measured.</p>\n{sections}\n"
        f'<p class="note">Read from (SHA-256, first 12 digits): {hashes}</p></body></html>\n'
    )


def write(data: Path, figures: Path, out: Path) -> Path:
    """Write the page to `out`, atomically. Raises records.RecordError."""
    records.write_bytes(out, html(data, figures).encode())
    return out
