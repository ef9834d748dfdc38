"""Write text that leaves the package: terminal, CSV, Markdown, progress bars.

Names come from other people's files, so every writer makes them harmless: no markup, no
control characters, no formulas for a spreadsheet.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.text import Text

# -------------------------------------------------------------------------------------------------
# Control characters in names are made visible, so that they cannot steer a terminal.
# -------------------------------------------------------------------------------------------------

# C0 and C1 controls (without tab and newline), line and paragraph separators, the marks that
# reverse or hide text, the byte-order mark, and halves of surrogate pairs (from undecodable names)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return ``text`` with control characters spelled out, ESC as ``\x1b``; tab and newline stay.

    >>> visible("red \x1b[31m alert")
    'red \\x1b[31m alert'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Return ``visible``, with every run of white space as a single space."""
    return visible(" ".join(text.split()))


# -------------------------------------------------------------------------------------------------
# The CSV writer: every cell stays one cell, and no spreadsheet takes a cell for a formula.
# -------------------------------------------------------------------------------------------------

# what Excel, LibreOffice and Google Sheets read as the start of a formula, with the full-width
# forms that East Asian versions accept (OWASP, "CSV Injection")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
_QUOTED = re.compile('[",;\t\r\n]|^ | $')
_PLAIN_LINES = re.compile(r"([A-Za-z0-9_./][A-Za-z0-9_./:-]*\n)*\Z")  # lines that need no care

Cell = str | int | float | None


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Write rows as CSV, one line each, ``\\n`` at the end of a line.

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
    """Return one cell of a line."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        return str(value)
    # a path that is not UTF-8 has half surrogates, which no UTF-8 file can hold
    text = harmless(value).encode("utf-8", "backslashreplace").decode("utf-8")
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def text_cells(values: Sequence[str]) -> Sequence[str]:
    """Return cells of text; numbers, names and paths, as most are, are judged all at once."""
    lines = "".join([f"{value}\n" for value in values])
    if lines.count("\n") == len(values) and _PLAIN_LINES.match(lines):
        return values
    return [cell_text(value) for value in values]


def harmless(cell: str) -> str:
    """Put an apostrophe before a cell that starts like a formula; a plain number needs none."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.match(cell) else cell


# -------------------------------------------------------------------------------------------------
# The Markdown writer: names stay words in a line or a table, never markup, HTML or links.
# -------------------------------------------------------------------------------------------------

_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_SPECIAL = re.compile(r"[\\|<>&\[\]*_`~$#!]|(?<=www)\.|:(?=//)")
_PLAIN_WORD = re.compile(r"[\w./=-]+\Z")


def markdown_text(text: str) -> str:
    r"""Return text inside a line or a table cell.

    >>> print(markdown_text("<b>a|b</b> www.x.org"))
    &lt;b&gt;a\|b&lt;/b&gt; www&#46;x.org
    """
    return _SPECIAL.sub(_escaped, one_line(text))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in ".:":  # a link that GitHub would make by itself
        return f"&#{ord(character)};"
    return _ENTITIES.get(character, f"\\{character}")


def markdown_code(text: str) -> str:
    """Return a code span for a plain name; for anything else, escaped text.

    Entities and backslashes do not work in a code span, so it cannot hold markup safely in every
    renderer.
    """
    return f"`{text}`" if _PLAIN_WORD.match(text) else markdown_text(text)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose cells went through ``inline`` or ``code``."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


# -------------------------------------------------------------------------------------------------
# The terminal writer: what is printed is text, never markup or a control sequence.
#
# `Screen` is a rich console, so tables and progress bars work on it. Every plain string that it
# renders (a line, a table cell, a title) is taken literally: `[/b]` is printed as it stands, and
# an escape sequence in a file name is spelled out instead of obeyed. Styles are given as
# arguments.
# -------------------------------------------------------------------------------------------------


class Screen(Console):
    """Standard output, or standard error with ``stderr=True``."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        options = {"highlight": False, "emoji": False, **options}
        super().__init__(stderr=stderr, markup=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the place where rich turns a string into styled text."""
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False})


def say(text: str) -> None:
    """Print a message on standard output, not wrapped: paths can be copied, tables can be piped."""
    Screen().print(text, soft_wrap=True)


def complain(text: str) -> None:
    """Print a message on standard error."""
    Screen(stderr=True).print(f"shasam: {text}", soft_wrap=True)


def emit(text: str) -> None:
    """Print text made for another program.

    Spelled out like the rest only if a person looks at it.
    """
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


# -------------------------------------------------------------------------------------------------
# A bar for work that takes a while; it appears only on a terminal, and only after a second.
# -------------------------------------------------------------------------------------------------

PATIENCE = 1.0  # seconds without a bar

Told = Callable[[int, int], None]  # done, total


@contextmanager
def shown_progress(
    screen: Screen | None = None, *, unit: str | None = None
) -> Iterator[Callable[[str], Told]]:
    """Yield ``told = named("reading p.csv")``, then ``told(done, total)`` as often as you like.

    With a ``unit`` the bar also says how many of them are done in a second.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = screen or Screen(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    task = bar.add_task("", total=None, visible=False, rate="")
    began = time.monotonic()

    def named(description: str) -> Told:
        bar.reset(task, description=visible(description), total=None, visible=False)
        first: list[tuple[int, float]] = []  # done, when

        def told(done: int, total: int) -> None:
            now = time.monotonic()
            first.append((done, now))
            del first[1:]
            rate = ""
            if unit is not None and done > first[0][0]:
                rate = f"{(done - first[0][0]) / (now - first[0][1]):.0f} {unit}/s"
            late = now - began > PATIENCE
            bar.update(task, completed=done, total=total, visible=late, rate=rate)

        return told

    # rich before 14 ends a bar that was never shown with a blank line
    with bar if screen.is_terminal else nullcontext():
        yield named
