"""How a rule is written, the same for training, audits and slices: ``age<35``, ``race==white``,
``age:[0,20,40]``. It is parsed, never evaluated as code.
"""

from __future__ import annotations

import re
from collections.abc import Collection

COMPARISON = re.compile(r"^\s*(?P<column>.+?)\s*(?P<op><=|>=|==|!=|<|>|=)\s*(?P<value>.+?)\s*$")
BINS = re.compile(r"^\s*(?P<column>.+?)\s*:\s*\[(?P<edges>[^\]]*)\]\s*$")


def parsed_comparison(text: str) -> tuple[str, str, str] | None:
    """Return column, sign and value of a comparison; quotes around the value are not part of it.

    >>> parsed_comparison("race == 'white'"), parsed_comparison("sex=f")
    (('race', '==', 'white'), ('sex', '==', 'f'))
    """
    found = COMPARISON.match(text)
    if not found:
        return None
    sign = "==" if found["op"] == "=" else found["op"]
    return found["column"], sign, found["value"].strip("'\"")


def columns_of_rule(text: str, known: Collection[str]) -> list[str] | None:
    """Return the columns that a rule needs, parts joined by ``&``; None if it is none.

    >>> columns_of_rule("age:[0,20,40]&sex", ["age", "sex"]), columns_of_rule("age", ["sex"])
    (['age', 'sex'], None)
    """
    out = []
    for part in (p.strip() for p in text.split("&")):
        compared = parsed_comparison(part)
        bins = BINS.match(part)
        if part in known:
            out.append(part)
        elif bins:
            out.append(bins["column"])
        elif compared:
            out.append(compared[0])
        else:
            return None
    return out
