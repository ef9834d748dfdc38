"""Tables for papers: three formats, escaped for each."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from payloads import payloads

from shasam.errors import SpecError
from shasam.report import rows_of, table
from shasam.report.published import published
from shasam.report.tables import Row, harmless


def test_every_format_has_a_row_for_each_method(many_runs: list[Path]) -> None:
    rows = rows_of(many_runs)
    assert [(r.method, r.seeds) for r in rows] == [("ce", 3), ("shasam", 3)]
    assert table(rows, "md").count("| 3 |") == 2
    assert r"\toprule" in table(rows, "latex") and r"$\pm$" in table(rows, "latex")
    lines = list(csv.DictReader(io.StringIO(table(rows, "csv"))))
    assert float(lines[0]["eo_mean"]) > float(lines[1]["eo_mean"])
    with pytest.raises(SpecError, match="did you mean 'latex'"):
        table(rows, "latx")
    with pytest.raises(SpecError, match="did you mean 'eo_mean'"):
        rows_of(many_runs, ["eo_mea"])


def test_no_csv_cell_can_be_run_by_a_spreadsheet() -> None:
    for name in payloads():
        assert not harmless(name).startswith(("=", "+", "-", "@"))
    rows = [Row(n, n, 1, {"accuracy": (0.5, 0.4, 0.6, 0.1)}, "") for n in payloads()]
    for cells in csv.reader(io.StringIO(table(rows, "csv"))):
        assert cells[0][:1] not in ("=", "+", "-", "@")


def test_names_cannot_break_a_markdown_row_or_leave_html_in_it() -> None:
    for name in payloads():
        row = Row(name, "m", 1, {"accuracy": (0.5, 0.4, 0.6, 0.1)}, "")
        text = table([row], "md")
        assert "<" not in text
        line = text.splitlines()[2]
        assert line.replace("\\|", "").count("|") == 5


def test_published_numbers_are_found_for_their_setting_only() -> None:
    protocol = {"source": "celeba", "target": "Attractive", "sensitive": "Male"}
    found = {p.method: (p.eo, p.accuracy) for p in published(protocol)}
    assert found["SHaSaM FLCMI"] == (5.5, 81.3) and found["FSCL+"] == (6.5, 79.1)
    utk = {"source": "utkface", "target": "gender", "sensitive": "ethnicity", "alpha": 3.0}
    assert {p.method for p in published(utk)} == {"SupCon", "FSCL", "FSCL+"}
    assert published(utk | {"alpha": 5.0}) == [] == published({"source": "faces"})
