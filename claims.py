"""Every claim of the sources, answered from data/: `python claims.py`.

Reads data/source_claims.csv (the sources' words and figures) and the tables the studies write, and
writes data/claims.json and CLAIMS.md. Each claim is decided by one rule, a function whose docstring
says how; the rules on grokked networks were committed before those were measured. Without its files
a claim is `open`, with the command that makes them. `python claims.py --check` writes nothing and
exits with 1 when either document is not what the data say.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import console
import gate
import known_rules
import reading_rules
import records
import spectrum_rules
import width_chain_rules
import width_rules
from evidence import (
    COMMANDS,
    OPEN,
    RULES,
    VERDICTS,
    Answer,
    Claim,
    Evidence,
    NotEnough,
    read_claims,
)

RULE_MODULES = (  # importing them fills RULES
    *(reading_rules, known_rules, spectrum_rules),
    *(width_rules, width_chain_rules),
)
SOURCE_CLAIMS, ANSWERS, DOCUMENT = "source_claims.csv", "claims.json", "CLAIMS.md"
DIGITS = 6  # significant digits kept: beyond them results depend on the BLAS

REFERENCES = {
    "Lab Agents 2026": "Lab Agents 2026, Kran Research, “Does the Measured Learning Coefficient of "
    "a Grokked Network Match Its Closed-Form Value?”",
    "Cullen et al. 2026": "Cullen, Estan-Ruiz, Danait and Li 2026, “A Basin-Selection Perspective "
    "on Grokking via Singular Learning Theory” (the paper)",
    "Width study a": "“Linear does not mean regular: Jacobian rank limits the learning "
    "coefficient”",
    "Width study b": "“LLC estimates are only as good as their hyperparameters”",
    "SLT explainer": "“Singular learning theory”, a walk through it from scratch",
    "this project": "what this project expected before its studies were run",
}
GROUPS = {
    "K": "Grokked networks against the closed form",
    "C": "The paper's own statements",
    "R": "Expectations of this project",
    "S": "The instruments of singular learning theory",
    "E": "The width study",
}
LATER = {  # first letter of an id -> why no rule answers it yet, and the command that will
    "R": ("answered by the unbiased referee", "not written yet"),
    "S": ("answered by the instruments", "not written yet"),
}


# ---- answers -----------------------------------------------------------------------------------


def answer(claim: Claim, data: Evidence) -> dict[str, Any]:
    """The entry of claims.json for one claim."""
    rule = RULES.get(claim.id)
    if rule is None:
        why, command = LATER[claim.id[0]]
        return _entry(claim, Answer(OPEN, "", cause=f"{why}, a later one"), "", [command], [])
    files = list(rule.files)
    used = [*files, *(file for file in rule.also if data.has(file))]
    commands = list(dict.fromkeys(COMMANDS[file] for file in (*files, *rule.also)))
    if missing := [file for file in files if not data.has(file)]:
        names = ", ".join(f"data/{file}" for file in missing)
        found = Answer(OPEN, "", cause=f"{names} not there yet")
    else:
        try:
            found = rule.judge(data, claim)
        except NotEnough as error:
            found = Answer(OPEN, "", cause=str(error))
    words = " ".join((rule.judge.__doc__ or "").split())
    return _entry(claim, found, words, commands, [f"data/{file}" for file in used])


def _entry(
    claim: Claim, found: Answer, rule: str, commands: Sequence[str], files: Sequence[str]
) -> dict[str, Any]:
    return {
        "id": claim.id,
        "source": claim.source,
        "place": claim.place,
        "claim": claim.claim,
        "source_value": claim.value,
        "ours": found.ours,
        "value": _rounded(found.value),
        "error": _rounded(found.error),
        "verdict": found.verdict,
        "on": found.on,
        "settings": found.settings,
        "cause": found.cause,
        "rule": rule,
        "command": " && ".join(commands),
        "data": list(files),
    }


def _rounded(x: float | None) -> float | None:
    return None if x is None else float(f"{x:.{DIGITS}g}")


def answers(folder: Path) -> list[dict[str, Any]]:
    """Every claim's entry, in the order of the source file."""
    data = Evidence(folder)
    return [answer(claim, data) for claim in read_claims(folder / SOURCE_CLAIMS)]


# ---- CLAIMS.md ---------------------------------------------------------------------------------


def markdown(entries: Sequence[dict[str, Any]]) -> str:
    """CLAIMS.md: the count of verdicts, a table per group, causes, rules and sources."""
    counts = Counter(e["verdict"] for e in entries)
    lines = [
        "# Claims",
        "",
        "Written by `python claims.py` from the files in `data/`; `python claims.py --check` says "
        "when it is stale.",
        "Our networks are not the sources' networks, so statistics are compared, not digits. Every "
        "verdict follows from a rule;",
        "the rules are at the end. Those on grokked networks were committed before the networks "
        "were measured. The calibration",
        "grid (K13) and the null networks (K14) were measured before their rules were committed. "
        "The rules of the width study",
        "were committed before its tables were written, but its networks of width 64, seed 0, had "
        "been read in rehearsals, and",
        "the linear regression (E12) and the training of seed 0 (E05, E06) had been run. After the "
        "first cells the rules E10 to",
        "E13, E15, E16 and E09 were amended where a review found a tolerance too loose or an "
        "estimator biased.",
        "",
        "In the width study `refuted` means that the words of a claim fail on our networks, "
        "`differs` that they hold and a figure",
        "does not agree, `answered` that the source asks without a figure. Its source names "
        "neither base rates nor the length of",
        "the training, so ours are not its networks: where figures differ (E02 to E08) that is "
        "the likeliest cause, and the",
        "common base rates beside them show how much hangs on it.",
        "",
        "| verdict | claims |",
        "|---|---|",
        *(f"| {verdict} | {counts[verdict]} |" for verdict in VERDICTS if counts[verdict]),
    ]
    for letter, title in GROUPS.items():
        group = [e for e in entries if e["id"].startswith(letter)]
        lines += ["", f"## {title}", "", *_group(group)] if group else []
    ruled = [e for e in entries if e["rule"]]
    lines += ["", "## The rules", "", *(f"- **{e['id']}** {e['rule']}" for e in ruled)]
    cited = {e["source"] for e in entries}
    lines += ["", "## The sources", ""]
    lines += [f"- **{name}** {REFERENCES[name]}" for name in REFERENCES if name in cited]
    return "\n".join(lines) + "\n"


def _group(entries: Sequence[dict[str, Any]]) -> list[str]:
    """A table of answers and, below it, why each is as it is; open ones in a table of their own."""
    answered = [e for e in entries if e["verdict"] != OPEN]
    open_ones = [e for e in entries if e["verdict"] == OPEN]
    lines: list[str] = []
    if answered:
        lines += [
            "| | claim | source | ours | verdict | measured on |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(e, "source_value", "ours", "verdict", "measured_on") for e in answered]
        lines += ["", *(f"- **{e['id']}** {e['cause']} `{e['command']}`" for e in answered)]
    if open_ones:
        lines += [""] if answered else []
        lines += ["| open | claim | source | why | command |", "|---|---|---|---|---|"]
        lines += [_row(e, "source_value", "cause", "command_as_code") for e in open_ones]
    return lines


def _row(entry: dict[str, Any], *columns: str) -> str:
    made = {
        "measured_on": "; ".join(filter(None, (entry["on"], entry["settings"]))),
        "command_as_code": f"`{entry['command']}`" if entry["command"] else "",
    }
    cells = [entry["id"], f"{entry['claim']} ({entry['source']}, {entry['place']})"]
    cells += [str((entry | made)[name]) for name in columns]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# ---- the command -------------------------------------------------------------------------------


def documents(folder: Path, root: Path) -> dict[Path, str]:
    """Both documents as they should be."""
    entries = answers(folder)
    answered = folder / ANSWERS
    return {answered: records.to_json(entries, answered), root / DOCUMENT: markdown(entries)}


def stale(documents: dict[Path, str]) -> list[Path]:
    """The documents that are missing or not what the data say."""
    return [
        path
        for path, text in documents.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(
    arguments: list[str] | None = None, folder: Path = gate.DATA, root: Path = gate.HERE
) -> int:
    """Write both documents, or with --check compare them; 1 when one is stale."""
    parser = console.Arguments(description="Answer every claim of the sources from data/.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when stale")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    options = parser.parse_args(arguments)
    wanted = documents(folder, root)
    if options.check:
        for path in (old := stale(wanted)):
            console.say(f"{path} is not what the data say: run `python claims.py`")
        return console.FAILED if old else 0
    for path, text in wanted.items():
        records.write_bytes(path, text.encode())
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(console.run(main, debug="--debug" in sys.argv))
