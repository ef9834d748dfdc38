"""What is done with rows that lack a label or a group: the same words for training and audits."""

from __future__ import annotations

from typing import Literal

Missing = Literal["error", "drop", "group"]
NO_VALUE = "(missing)"  # the group of the rows without one, where that is asked for
# what people write into a cell that has no value; a reader of CSV knows some of them already
MISSING_WORDS = frozenset(
    ("", "-", "--", ".", "?", "#n/a", "missing", "n/a", "na", "nan", "nil", "none", "null")
)


def advice(column: str, rows: int, total: int, where: str, first: str = "") -> str:
    """The sentence about missing values, and the three ways out."""
    return (
        f"{rows:,} of {total:,} rows of {where} have no value in the column {column!r}{first}. "
        "Fill them in, leave them out with --missing drop, or, for a sensitive attribute, make "
        "them a group with --missing group"
    )
