"""Counts per (class, prediction, group): every metric without scores is computed from them.

Shapes: C classes, P predictions (the same C names), G groups; leading axes are bootstrap draws, so
that one formula serves a table and 2,000 resampled ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.labels import encode


@dataclass(frozen=True)
class Counts:
    """How many rows of class c and group g were called p."""

    n_CPG: np.ndarray  # int64, or what weighted rows are worth
    classes: tuple[str, ...]
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        shape = (len(self.classes), len(self.classes), len(self.groups))
        if self.n_CPG.shape != shape:
            raise InputError(f"counts of shape {self.n_CPG.shape} do not fit the names: {shape}")

    @classmethod
    def from_codes(
        cls,
        t: np.ndarray,
        p: np.ndarray,
        s: np.ndarray,
        classes: Sequence[str],
        groups: Sequence[str],
        repeats: np.ndarray | None = None,
    ) -> Counts:
        """Count codes 0..C-1 and 0..G-1; ``repeats`` says how many rows each entry stands for."""
        C, G = len(classes), len(groups)
        n = tally((t * C + p) * G + s, C * C * G, repeats).reshape(C, C, G)
        return cls(n, tuple(classes), tuple(groups))

    @property
    def total(self) -> int:
        return int(self.n_CPG.sum())

    @property
    def cells_CG(self) -> np.ndarray:
        """Rows of each (class, group) cell."""
        return self.n_CPG.sum(1)

    def empty_cells(self) -> list[str]:
        """The (class, group) cells without a row, in words."""
        rows = np.argwhere(self.cells_CG == 0)
        return [f"class {self.classes[c]!r} in group {self.groups[g]!r}" for c, g in rows]

    @property
    def sizes_G(self) -> np.ndarray:
        """Rows of each group."""
        return self.n_CPG.sum((0, 1))

    def large(self, least: int) -> np.ndarray:
        """The groups with at least that many rows, as places in ``groups``."""
        return np.flatnonzero(self.sizes_G >= least)

    def only(self, places: np.ndarray) -> Counts:
        """The same table with these groups alone."""
        return Counts(self.n_CPG[:, :, places], self.classes, tuple(self.groups[g] for g in places))

    def empty_groups(self) -> list[str]:
        return [repr(self.groups[g]) for g in np.flatnonzero(self.n_CPG.sum((0, 1)) == 0)]


def tally(codes: np.ndarray, size: int, repeats: np.ndarray | None = None) -> np.ndarray:
    """How many rows have each code 0..size-1; exact up to 2**53 rows."""
    if repeats is None:
        return np.bincount(codes, minlength=size)
    return np.rint(np.bincount(codes, weights=repeats, minlength=size)).astype(np.int64)


def checked_repeats(repeats: Any, entries: int) -> np.ndarray:
    """Whole numbers of rows, one for each entry."""
    values = np.asarray(repeats)
    if values.shape != (entries,):
        raise InputError(f"repeats have the shape {values.shape}; {entries} entries need one each")
    whole = np.rint(values.astype(np.float64))
    if not np.isfinite(whole).all() or (whole < 0).any() or (np.abs(whole - values) > 1e-9).any():
        raise InputError("repeats must be whole numbers of rows, 0 or more")
    return whole.astype(np.int64)


def weighted(
    t: np.ndarray,
    p: np.ndarray,
    s: np.ndarray,
    weights: Any,
    classes: Sequence[str],
    groups: Sequence[str],
) -> tuple[Counts, Counts]:
    """Tables of weighted rows, scaled to how many equal rows they are worth (Kish 1965).

    Unequal weights make an estimate less sure: rows of weights w are worth (Σw)² / Σw². The first
    table has that size as a whole and serves averages over all rows; the second has it in every
    group and serves comparisons of groups. Rates are those of the weighted rows in both.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != t.shape:
        raise InputError(f"there are {w.size} weights for {len(t)} rows; each row needs one")
    if not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise InputError("weights must be finite, not negative, and not all 0")
    C, G = len(classes), len(groups)
    joint = (t * C + p) * G + s
    n_CPG = np.bincount(joint, w, C * C * G).reshape(C, C, G)
    sums_G = np.bincount(s, w, G)
    worth_G = np.divide(sums_G, np.bincount(s, w * w, G), out=np.zeros(G), where=sums_G > 0)
    worth = w.sum() / (w * w).sum()
    names = tuple(classes), tuple(groups)
    return Counts(n_CPG * worth, *names), Counts(n_CPG * worth_G, *names)


def encode_rows(
    label: Any,
    prediction: Any,
    group: Any,
    classes: Sequence[str] | None,
    groups: Sequence[str] | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Codes of the three columns, and the names of classes and groups."""
    [t, p], class_names = encode({"label": label, "prediction": prediction}, classes)
    [s], group_names = encode({"group": group}, groups)
    if not len(t) == len(p) == len(s):
        raise InputError(
            f"there are {len(t)} labels, {len(p)} predictions and {len(s)} groups; "
            "each row needs one of each"
        )
    if not len(t):
        raise InputError("there are no rows to measure; give at least one prediction")
    return t, p, s, class_names, group_names


def recalls(n_CPG: np.ndarray) -> np.ndarray:
    """Accuracy of each cell, P(prediction = c | class c, group g): shape (..., C, G)."""
    return divide(np.einsum("...ccg->...cg", n_CPG), n_CPG.sum(-2))


def class_recalls(n_CPG: np.ndarray) -> np.ndarray:
    """P(prediction = c | class c): shape (..., C)."""
    return divide(np.einsum("...ccg->...c", n_CPG), n_CPG.sum((-2, -1)))


def accuracy(n_CPG: np.ndarray) -> np.ndarray:
    """P(prediction = class): shape (...)."""
    return divide(np.einsum("...ccg->...", n_CPG), n_CPG.sum((-3, -2, -1)))


def divide(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, NaN where there is nothing to divide by."""
    out = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    return np.divide(part, whole, out=out, where=whole > 0)
