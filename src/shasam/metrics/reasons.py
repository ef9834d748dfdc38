"""Why a metric has no value on a table: a sentence that names what is missing, or None."""

from __future__ import annotations

import numpy as np

from shasam.metrics.counts import Counts


def nothing_missing(counts: Counts, positive: int | None) -> str | None:
    return None


def empty_class(counts: Counts, positive: int | None) -> str | None:
    """A mean over classes needs a row of each."""
    empty = np.flatnonzero(counts.n_CPG.sum((1, 2)) == 0)
    return (
        f"no row of class {', '.join(repr(counts.classes[c]) for c in empty)}"
        if len(empty)
        else None
    )


def empty_cell(counts: Counts, positive: int | None) -> str | None:
    """A mean over cells needs a row of each class in each group."""
    return _no_rows(counts.empty_cells())


def empty_group(counts: Counts, positive: int | None) -> str | None:
    return _no_rows([f"group {name}" for name in counts.empty_groups()])


def empty_cell_or_one_group(counts: Counts, positive: int | None) -> str | None:
    return one_group(counts) or empty_cell(counts, positive)


def empty_group_or_one_group(counts: Counts, positive: int | None) -> str | None:
    return one_group(counts) or empty_group(counts, positive)


def no_positive_rows(counts: Counts, positive: int | None) -> str | None:
    """A gap on the positive class needs to know it, and a row of it in each group."""
    if positive is None:
        return no_positive_class(counts, positive)
    empty = np.flatnonzero(counts.cells_CG[positive] == 0)
    return one_group(counts) or _no_rows(
        [f"class {counts.classes[positive]!r} in group {counts.groups[g]!r}" for g in empty]
    )


def no_positive_class(counts: Counts, positive: int | None) -> str | None:
    if positive is not None:
        return None
    return (
        f"it needs a positive class, and there are {len(counts.classes)} classes: say which one is "
        "the favourable outcome"
    )


def empty_in_groups(counts: Counts, size_G: np.ndarray, rows: str) -> str | None:
    """A rate needs a row of its kind in each group."""
    return _no_rows([f"group {counts.groups[g]!r}" for g in np.flatnonzero(size_G == 0)], rows)


def one_group(counts: Counts) -> str | None:
    if len(counts.groups) >= 2:
        return None
    return f"there is one group only ({counts.groups[0]!r}); a gap needs two"


def _no_rows(where: list[str], rows: str = "row") -> str | None:
    if not where:
        return None
    more = f" and {len(where) - 3} more" if len(where) > 3 else ""
    return f"no {rows} of {', '.join(where[:3])}{more}"
