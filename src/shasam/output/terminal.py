"""The terminal writer: what is printed is text, never markup or a control sequence.

``Screen`` is a rich console, so tables and progress bars work on it. Every plain string that it
renders (a line, a table cell, a title) is taken literally: ``[/b]`` is printed as it stands, and
an escape sequence in a file name is spelled out instead of obeyed. Styles are given as arguments.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from shasam.output.control import visible


class Screen(Console):
    """Standard output, or standard error with ``stderr=True``."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        options = {"highlight": False, "emoji": False, **options}
        super().__init__(stderr=stderr, markup=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """The place where rich turns a string into styled text."""
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False})


def say(text: str) -> None:
    """One message on standard output, not wrapped: paths can be copied, tables can be piped."""
    Screen().print(text, soft_wrap=True)


def complain(text: str) -> None:
    """One message on standard error."""
    Screen(stderr=True).print(f"shasam: {text}", soft_wrap=True)


def emit(text: str) -> None:
    """Text made for another program; spelled out like the rest only where a person looks at it."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
