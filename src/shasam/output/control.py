"""Control characters in names are made visible, so that they cannot steer a terminal."""

from __future__ import annotations

import re

# C0 and C1 controls (without tab and newline), line and paragraph separators, the marks that
# reverse or hide text, the byte-order mark, and halves of surrogate pairs (from undecodable names)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""``text`` with control characters spelled out, ESC as ``\x1b``; tab and newline stay.

    >>> visible("red \x1b[31m alert")
    'red \\x1b[31m alert'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """``visible``, with every run of white space as a single space."""
    return visible(" ".join(text.split()))
