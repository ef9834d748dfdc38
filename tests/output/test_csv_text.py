"""The CSV writer against two readers: a cell stays one cell, and is no formula."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pyarrow.csv as pacsv
from tests.payloads import payloads

from shasam.output import cell_text, csv_text, harmless, text_cells


def test_every_payload_comes_back_as_one_cell_from_two_readers() -> None:
    names = payloads()
    assert len(set(names)) >= 200
    text = csv_text([["before", "name", "after"], *([1, name, "x"] for name in names)])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [len(row) for row in rows] == [3] * (len(names) + 1)
    assert [row[1] for row in rows[1:]] == [harmless(name) for name in names]
    read = pacsv.read_csv(
        pa.BufferReader(text.encode()),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(column_types={"name": pa.string()}),
    )
    assert read.column("name").to_pylist() == [harmless(name) for name in names]
    assert set(read.column("after").to_pylist()) == {"x"}


def test_no_payload_starts_a_formula_and_numbers_stay_numbers() -> None:
    for name in payloads():
        assert not harmless(name).startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝")), name
    assert csv_text([[-1, "-1", "+2.5e-3", -0.25, None, float("nan")]]) == "-1,-1,+2.5e-3,-0.25,,\n"


def test_a_name_that_is_not_utf8_can_be_written() -> None:
    assert csv_text([["a\udc80b"]]).encode() == b"a\\udc80b\n"


def test_many_cells_are_the_same_as_one_by_one() -> None:
    plain = ["1", "a-b/c.jpg", "2026-11-17"]
    assert text_cells(plain) == plain
    for name in [*payloads(), "a\nb", ""]:
        many = [*plain, name]
        assert list(text_cells(many)) == [cell_text(value) for value in many], name
