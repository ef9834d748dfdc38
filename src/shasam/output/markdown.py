"""The Markdown writer: names stay words in a line or a table, never markup, HTML or links."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shasam.output.control import one_line

_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_SPECIAL = re.compile(r"[\\|<>&\[\]*_`~$#!]|(?<=www)\.|:(?=//)")
_PLAIN = re.compile(r"[\w./=-]+\Z")


def inline(text: str) -> str:
    r"""Text inside a line or a table cell.

    >>> print(inline("<b>a|b</b> www.x.org"))
    &lt;b&gt;a\|b&lt;/b&gt; www&#46;x.org
    """
    return _SPECIAL.sub(_escaped, one_line(text))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in ".:":  # a link that GitHub would make by itself
        return f"&#{ord(character)};"
    return _ENTITIES.get(character, f"\\{character}")


def code(text: str) -> str:
    """A code span for a plain name; for anything else, escaped text.

    Entities and backslashes do not work in a code span, so it cannot hold markup safely in every
    renderer.
    """
    return f"`{text}`" if _PLAIN.match(text) else inline(text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose cells went through ``inline`` or ``code``."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
