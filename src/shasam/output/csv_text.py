"""The CSV writer: every cell stays one cell, and no spreadsheet takes a cell for a formula."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

# what Excel, LibreOffice and Google Sheets read as the start of a formula, with the full-width
# forms that East Asian versions accept (OWASP, "CSV Injection")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
_QUOTED = re.compile('[",;\t\r\n]|^ | $')
_PLAIN = re.compile(r"([A-Za-z0-9_./][A-Za-z0-9_./:-]*\n)*\Z")  # lines that need no care

Cell = str | int | float | None


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Rows as CSV, one line each, ``\\n`` at the end of a line.

    Numbers are written as they are, None and NaN as an empty cell. Text is quoted where it holds a
    separator, a quote or a line break; text that a spreadsheet would run gets an apostrophe in
    front.

    >>> print(csv_text([["name", "n"], ["=1+1", 2], ["a,b", None]]), end="")
    name,n
    '=1+1,2
    "a,b",
    """
    return "".join(",".join(cell_text(value) for value in row) + "\n" for row in rows)


def cell_text(value: Cell) -> str:
    """One cell of a line."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        return str(value)
    # a path that is not UTF-8 has half surrogates, which no UTF-8 file can hold
    text = harmless(value).encode("utf-8", "backslashreplace").decode("utf-8")
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def text_cells(values: Sequence[str]) -> Sequence[str]:
    """Cells of text; numbers, names and paths, as most are, are judged all at once."""
    lines = "".join([f"{value}\n" for value in values])
    if lines.count("\n") == len(values) and _PLAIN.match(lines):
        return values
    return [cell_text(value) for value in values]


def harmless(cell: str) -> str:
    """A cell that starts like a formula gets an apostrophe; a plain number does not need it."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.match(cell) else cell
