"""report.py: one file that needs nothing else, with what was measured and what was not."""

from __future__ import annotations

import base64
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import claims
import evidence
import records
import report
import tables
from tests import made_data

ROOT = Path(__file__).resolve().parent.parent
PIXEL = base64.b64decode(  # a PNG of one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
VOID = {"meta", "img"}


class Outline(HTMLParser):
    """Tags that do not match, rows per table, links, and whatever the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.cells: list[list[int]] = []
        self.sources: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        at: dict[str, Any] = dict(attributes)
        if tag == "table":
            self.cells.append([])
        if tag == "tr":
            self.cells[-1].append(0)
        if tag in ("td", "th"):
            self.cells[-1][-1] += int(at.get("colspan", 1))
        self.sources += [at[name] for name in ("src", "srcset", "data", "poster") if name in at]
        self.links += [at["href"]] if "href" in at else []
        self.ids += [at["id"]] if "id" in at else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    return found


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Every file of data/, and a figure for each name."""
    data, figures = tmp_path / "data", tmp_path / "figures"
    data.mkdir()
    figures.mkdir()
    shutil.copy(ROOT / "data" / claims.SOURCE_CLAIMS, data)
    claims.main([], made_data.write(data), tmp_path)
    for name in report.FIGURES:
        (figures / f"{name}.png").write_bytes(PIXEL)
    return tmp_path


def page(folder: Path) -> str:
    return report.html(folder / "data", folder / "figures")


# --- the file -------------------------------------------------------------------------------


def test_the_page_needs_nothing_but_itself(full: Path) -> None:
    text = page(full)
    found = outline(text)
    assert all(source.startswith("data:image/png;base64,") for source in found.sources)
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    for outside in ("http://", "https://", "//cdn", "<script", "<link", "@import", "url("):
        assert outside not in text


def test_the_page_is_well_formed_and_every_row_fills_its_table(full: Path) -> None:
    found = outline(page(full))
    assert found.faults == [] and found.open == []
    assert len(found.cells) == 16
    for rows in found.cells:
        assert len(set(rows)) == 1 and len(rows) > 1


def test_the_same_data_give_the_same_bytes(full: Path) -> None:
    one = report.write(full / "data", full / "figures", full / "one.html").read_bytes()
    assert one == page(full).encode()
    assert one.startswith(b"<!doctype html>")


def test_figures_are_inside_whole_and_with_words_for_who_cannot_see_them(full: Path) -> None:
    text = page(full)
    inside = re.findall(r"base64,([^\"]+)", text)
    assert len(inside) == len(report.FIGURES)
    assert {base64.b64decode(content) for content in inside} == {PIXEL}
    assert len(re.findall(r'<img alt="[^"]{20,}"', text)) == len(report.FIGURES)


# --- what it says ---------------------------------------------------------------------------


def test_the_verdict_is_the_first_answer(full: Path) -> None:
    text = page(full)
    assert "match the closed form? <strong>No.</strong>" in text
    assert "½K(3p−1), the paper&#x27;s: 0 of 6 sizes, no match" in text
    assert "6 of 6 sizes read outside the bracket" in text


def test_every_sampled_table_names_its_settings(full: Path) -> None:
    text = page(full)
    captions = re.findall(r"<caption>(.*?)</caption>", text)
    sampled = [c for c in captions if "Settings:" in c]
    assert len(sampled) == 12
    assert all("n_beta" in c and "chains" in c and "discarded" in c for c in sampled)
    sensitivity = next(c for c in sampled if "sensitivity.csv" in c)
    assert "n_beta 1000, 10000, 100000" in sensitivity and "[not calibrated]" in sensitivity


def test_settings_that_differ_stand_in_every_row_and_shared_ones_do_not(full: Path) -> None:
    text = page(full)
    named = r"<caption>[^<]*\(data/(\w+)\.csv\)[^<]*</caption>(.*?)</table>"
    found = dict(re.findall(named, text, re.DOTALL))
    assert ">nβ</th>" in found["sensitivity"] and ">γ</th>" in found["sensitivity"]
    assert ">nβ</th>" not in found["llc"] and ">ε</th>" in found["llc"]


def test_a_failed_network_says_why(full: Path) -> None:
    rows = made_data.whole("llc", made_data.TABLES["llc"]())
    rows[0] = tables.row("llc", {k: rows[0][k] for k in tables.NETWORK}, error="Dead: <chain> 2")
    records.write_csv(full / "data" / "llc.csv", tables.types("llc"), rows)
    text = page(full)
    assert "failed: Dead: &lt;chain&gt; 2" in text
    assert outline(text).faults == []


def test_without_data_every_part_names_its_command(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = page(tmp_path)
    assert outline(text).faults == []
    for file in ("llc.csv", "calibration.json", "fourier.csv"):
        assert f"data/{file} is not there yet" in text
        assert evidence.COMMANDS[file].replace(">", "&gt;") in text
    assert "figures/response.png is not there yet: <code>python figures.py</code>" in text
    assert "<code>python claims.py</code>" in text
    assert len(outline(text).ids) == len(report.SECTIONS)


def test_every_claim_is_in_the_page(full: Path) -> None:
    text = page(full)
    for entry in records.read_json(full / "data" / "claims.json"):
        assert text.count(f'<th scope="row">{entry["id"]}</th>') == 1
    assert "✓ reproduced" in text and "≠ differs" in text


def test_every_column_is_one_its_table_has(full: Path) -> None:
    """A misspelt column would be a dash in every row."""
    data = evidence.Evidence(full / "data")
    for file, columns in report.COLUMNS.items():
        if file.endswith(".csv"):
            known = set(data.rows(file)[0])
            assert {cell for _, cell, _ in columns if isinstance(cell, str)} <= known, file


def test_a_damaged_file_is_refused(full: Path) -> None:
    (full / "data" / "llc.csv").write_text("network\n")
    with pytest.raises(records.RecordError, match=r"llc\.csv"):
        page(full)
