"""Count outcomes per (class, prediction, group), and say why a metric has no value on them.

Every metric without scores is a function of these counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.registry import did_you_mean

# -------------------------------------------------------------------------------------------------
# A number with its interval, its support, and the reason where there is none.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """Hold a metric: value and interval as fractions, NaN with a reason if it is undefined.

    Parameters
    ----------
    value
        The value.
    low
        Lower end of the interval.
    high
        Upper end of the interval.
    support
        Rows in the smallest denominator that the value rests on.
    reason
        Why there is no value.
    p
        Of a gap: how often a model without one shows as large a gap.

    Examples
    --------
    >>> Estimate.undefined("no rows").defined
    False
    """

    value: float
    low: float
    high: float
    support: int  # rows in the smallest denominator that the value rests on
    reason: str | None = None
    p: float | None = None  # of a gap: how often a model without one shows as large a gap

    @classmethod
    def undefined(cls, reason: str, support: int = 0) -> Estimate:
        """Return a metric that has no value here, and why."""
        return cls(math.nan, math.nan, math.nan, support, reason)

    @property
    def defined(self) -> bool:
        return not math.isnan(self.value)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON.

        NaN becomes null, because JSON has no NaN. ``p`` is there for gaps only.
        """
        plain = {
            "value": _plain(self.value),
            "low": _plain(self.low),
            "high": _plain(self.high),
            "support": int(self.support),
            "reason": self.reason,
        }
        return plain if self.p is None else plain | {"p": self.p}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Estimate:
        """Read what ``as_dict`` wrote."""
        value, low, high = (_number(entry.get(key)) for key in ("value", "low", "high"))
        reason, p = entry.get("reason"), entry.get("p")
        return cls(
            value,
            low,
            high,
            int(entry.get("support") or 0),
            None if reason is None else str(reason),
            float(p) if isinstance(p, int | float) else None,
        )


def as_json(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    """Convert estimates to plain JSON, the form of ``metrics.json``.

    Parameters
    ----------
    estimates
        Estimates by the name of the metric.

    Returns
    -------
    dict[str, dict[str, Any]]
        Numbers by the name of the metric; NaN becomes None.

    Examples
    --------
    >>> as_json({"accuracy": Estimate.undefined("no rows")})["accuracy"]["value"] is None
    True
    """
    return {name: estimate.as_dict() for name, estimate in estimates.items()}


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


# -------------------------------------------------------------------------------------------------
# From columns of labels to codes 0..K-1 and their names; intersections of several attributes.
# -------------------------------------------------------------------------------------------------


def encode(
    columns: Mapping[str, Any], names: Sequence[str] | None
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Return codes of one or more columns that share their values, and the names of the values.

    ``columns`` maps what a column is called in errors to its values. With ``names``, integers are
    codes 0..K-1 into them and anything else must be one of them; without, the sorted distinct
    values of all columns are the names, so all columns must hold the same kind of value.

    >>> [t, p], names = encode({"label": ["no", "yes"], "prediction": ["no", "no"]}, None)
    >>> t.tolist(), p.tolist(), names
    ([0, 1], [0, 0], ('no', 'yes'))
    """
    values = {what: _flat(column, what) for what, column in columns.items()}
    if names is None:
        _same_kind(values)
        known = np.unique(np.concatenate(list(values.values())))
        codes = [np.searchsorted(known, column) for column in values.values()]
        return codes, tuple(map(str, known.tolist()))
    names = tuple(map(str, names))
    if len(set(names)) != len(names):
        what = next(iter(values))
        raise InputError(f"the names of the {what} are not distinct: {', '.join(names)}")
    return [_place(column, names, what) for what, column in values.items()], names


def intersect(
    codes: Sequence[np.ndarray], names: Sequence[Sequence[str]]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Combine several attributes into one: the combinations that occur, named ``a & b``.

    Parameters
    ----------
    codes
        Codes (n,) of each attribute.
    names
        Names of the groups of each attribute.

    Returns
    -------
    tuple[np.ndarray, tuple[str, ...]]
        Codes (n,) of the combinations, and their names.

    Examples
    --------
    >>> sex, age = np.array([0, 1, 1]), np.array([0, 0, 1])
    >>> codes, names = intersect([sex, age], [("f", "m"), ("old", "young")])
    >>> codes.tolist(), names
    ([0, 1, 2], ('f & old', 'm & old', 'm & young'))
    """
    joint = np.zeros(len(codes[0]), dtype=np.int64)
    for column, values in zip(codes, names, strict=True):
        joint = joint * len(values) + column
    found, inverse = np.unique(joint, return_inverse=True)
    labels = []
    for code in found.tolist():
        parts = []
        for values in reversed(names):
            code, place = divmod(code, len(values))
            parts.append(str(values[place]))
        labels.append(" & ".join(reversed(parts)))
    return inverse.astype(np.int64), tuple(labels)


def _place(values: np.ndarray, names: tuple[str, ...], what: str) -> np.ndarray:
    """Return codes of a column whose names are known."""
    if values.dtype.kind in "iub":
        codes = values.astype(np.int64)
        if len(codes) and (codes.min() < 0 or codes.max() >= len(names)):
            wrong = int(codes.min() if codes.min() < 0 else codes.max())
            raise InputError(
                f"the {what} code {wrong} is outside 0..{len(names) - 1}; "
                f"there are {len(names)} names: {', '.join(names)}"
            )
        return codes
    found, inverse = np.unique(values.astype(str), return_inverse=True)
    place = {name: i for i, name in enumerate(names)}
    for name in found.tolist():
        if name not in place:
            raise InputError(f"the {what} {name!r} is not known{did_you_mean(name, names)}")
    return np.array([place[name] for name in found.tolist()], dtype=np.int64)[inverse]


def _same_kind(values: Mapping[str, np.ndarray]) -> None:
    """Refuse text beside numbers: nothing would match, and the accuracy would silently be 0."""
    kinds = {
        what: "numbers" if column.dtype.kind in "iub" else "text"
        for what, column in values.items()
        if len(column)
    }
    if len(set(kinds.values())) < 2:
        return
    shown = []
    for what, kind in kinds.items():
        some = ", ".join(map(repr, np.unique(values[what])[:2].tolist()))
        shown.append(f"each {what} is {kind} ({some})")
    raise InputError(
        f"{'; '.join(shown)}; write them alike, or give the names of the codes with classes="
    )


def _flat(column: Any, what: str) -> np.ndarray:
    """Return one column of integers, booleans or text without missing values."""
    values = np.asarray(column)
    if values.ndim != 1:
        raise InputError(f"the {what} must be one column, not an array of shape {values.shape}")
    if values.dtype.kind == "f":
        whole = values.astype(np.int64) if np.isfinite(values).all() else None
        if whole is None or (whole != values).any():
            raise InputError(
                f"the {what} holds NaN or fractions; give integers or names, one for each row"
            )
        return whole
    return _from_objects(values, what) if values.dtype.kind == "O" else values


def _from_objects(values: np.ndarray, what: str) -> np.ndarray:
    """Convert Python objects (a pandas column, for example) to integers or text."""
    missing = [v is None or v != v for v in values]
    if any(missing):
        raise InputError(
            f"{sum(missing)} of {len(values)} rows have no {what}, the first is row "
            f"{missing.index(True)}; leave those rows out or give them a name"
        )
    if all(isinstance(v, bool | int | np.integer | np.bool_) for v in values):
        return values.astype(np.int64)
    return values.astype(str)


# -------------------------------------------------------------------------------------------------
# Counts per (class, prediction, group): every metric without scores is computed from them.
#
# Shapes: C classes, P predictions (the same C names), G groups; leading axes are bootstrap draws,
# so that one formula serves a table and 2,000 resampled ones.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Count the rows of class c and group g that were called p.

    Parameters
    ----------
    n_CPG
        Counts (C, C, G) by class, prediction and group: int64, or what weighted rows are worth.
    classes
        Names of the classes.
    groups
        Names of the groups.
    squares_CPG
        Sums of squared weights on the same scale, if rows have weights.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> Counts(n, ("no", "yes"), ("a", "b")).sizes_G.tolist()
    [200, 200]
    """

    n_CPG: np.ndarray  # int64, or what weighted rows are worth as a whole
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    squares_CPG: np.ndarray | None = None  # sums of squared weights on the same scale

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

    def outcomes(
        self, table: Callable[[np.ndarray, int | None], np.ndarray], positive: int | None
    ) -> np.ndarray:
        """Tabulate outcomes (S, K, G); weighted rows count what they are worth in their cell.

        Rows of weights w are worth (Σw)² / Σw² equal ones (Kish 1965). The sum runs over the rows
        that a rate is made of, because weights may differ by class as well as by group.
        """
        n_SKG = table(self.n_CPG, positive)
        if self.squares_CPG is None:
            return n_SKG
        whole, squares = (
            t.sum(-2, keepdims=True) for t in (n_SKG, table(self.squares_CPG, positive))
        )
        return n_SKG * np.divide(whole, squares, out=np.zeros_like(whole), where=squares > 0)

    @property
    def cells_CG(self) -> np.ndarray:
        """Rows of each (class, group) cell, or what weighted ones are worth."""
        return self._worth(1)

    def empty_cells(self) -> list[str]:
        """Return the (class, group) cells without a row, in words."""
        rows = np.argwhere(self.cells_CG == 0)
        return [f"class {self.classes[c]!r} in group {self.groups[g]!r}" for c, g in rows]

    @property
    def sizes_G(self) -> np.ndarray:
        """Rows of each group, or what weighted ones are worth."""
        return self._worth((0, 1))

    def large(self, least: int) -> np.ndarray:
        """Return the groups with at least that many rows, as places in ``groups``."""
        return np.flatnonzero(self.sizes_G >= least)

    def only(self, places: np.ndarray) -> Counts:
        """Return the same table with these groups alone."""
        squares = None if self.squares_CPG is None else self.squares_CPG[:, :, places]
        names = tuple(self.groups[g] for g in places)
        return Counts(self.n_CPG[:, :, places], self.classes, names, squares)

    def _worth(self, axes: int | tuple[int, ...]) -> np.ndarray:
        whole = self.n_CPG.sum(axes)
        if self.squares_CPG is None:
            return whole
        return divide(whole**2, self.squares_CPG.sum(axes), nothing=0.0)

    def empty_groups(self) -> list[str]:
        return [repr(self.groups[g]) for g in np.flatnonzero(self.n_CPG.sum((0, 1)) == 0)]


def tally(codes: np.ndarray, size: int, repeats: np.ndarray | None = None) -> np.ndarray:
    """Return how many rows have each code 0..size-1; exact up to 2**53 rows."""
    if repeats is None:
        return np.bincount(codes, minlength=size)
    return np.rint(np.bincount(codes, weights=repeats, minlength=size)).astype(np.int64)


def checked_repeats(repeats: Any, entries: int) -> np.ndarray:
    """Return whole numbers of rows, one for each entry."""
    values = np.asarray(repeats)
    if values.shape != (entries,):
        raise InputError(f"repeats have the shape {values.shape}; {entries} entries need one each")
    whole = np.rint(values.astype(np.float64))
    if not np.isfinite(whole).all() or (whole < 0).any() or (np.abs(whole - values) > 1e-9).any():
        raise InputError("repeats must be whole numbers of rows, 0 or more")
    return whole.astype(np.int64)


def weights_vanish(w: np.ndarray) -> bool:
    """Say whether adding the smallest weight to the largest changes nothing."""
    return bool(w.max() / 2.0**53 > w[w > 0].min())


def weighted(
    t: np.ndarray,
    p: np.ndarray,
    s: np.ndarray,
    weights: Any,
    classes: Sequence[str],
    groups: Sequence[str],
) -> Counts:
    """Count weighted rows; the whole table has the size that the rows are worth (Kish 1965).

    Rates are those of the weighted rows. ``Counts.outcomes`` finds what the rows of a single rate
    are worth from the sums of squared weights.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != t.shape:
        raise InputError(f"there are {w.size} weights for {len(t)} rows; each row needs one")
    if not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise InputError("weights must be finite, not negative, and not all 0")
    if weights_vanish(w):
        raise InputError(
            f"weights go from {w[w > 0].min():.3g} to {w.max():.3g}: the small ones are lost in "
            "every sum; correct them, or give 0 to rows that are not to count"
        )
    if not 1e-100 < w.max() < 1e100:  # their squares would not be finite; only ratios count
        w = w / w.max()
    C, G = len(classes), len(groups)
    joint = (t * C + p) * G + s
    worth = w.sum() / (w * w).sum()
    n_CPG, squares_CPG = (
        np.bincount(joint, x, C * C * G).reshape(C, C, G) for x in (w * worth, (w * worth) ** 2)
    )
    return Counts(n_CPG, tuple(classes), tuple(groups), squares_CPG)


def encode_rows(
    label: Any,
    prediction: Any,
    group: Any,
    classes: Sequence[str] | None,
    groups: Sequence[str] | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return codes of the three columns, and the names of classes and groups."""
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
    """Return the accuracy of each cell, P(prediction = c | class c, group g): shape (..., C, G)."""
    return divide(np.einsum("...ccg->...cg", n_CPG), n_CPG.sum(-2))


def class_recalls(n_CPG: np.ndarray) -> np.ndarray:
    """Return P(prediction = c | class c): shape (..., C)."""
    return divide(np.einsum("...ccg->...c", n_CPG), n_CPG.sum((-2, -1)))


def accuracy(n_CPG: np.ndarray) -> np.ndarray:
    """Return P(prediction = class): shape (...)."""
    return divide(np.einsum("...ccg->...", n_CPG), n_CPG.sum((-3, -2, -1)))


def divide(part: np.ndarray, whole: np.ndarray, nothing: float = np.nan) -> np.ndarray:
    """Divide part by whole; NaN, or what is given instead, where there is nothing to divide by."""
    out = np.full(np.broadcast_shapes(part.shape, whole.shape), nothing)
    return np.divide(part, whole, out=out, where=whole > 0)


# -------------------------------------------------------------------------------------------------
# Tables of outcomes: what a gap between groups is computed from.
#
# A table has the shape (..., S, K, G): within each of S strata, every row of group g has one of K
# outcomes. Equalized odds has a stratum for each class and the outcomes right and wrong;
# demographic parity has one stratum and an outcome for each prediction. That is all that values,
# resampling and permutations need to know of a metric.
# -------------------------------------------------------------------------------------------------

Table = Callable[
    [np.ndarray, "int | None"], np.ndarray
]  # (..., C, P, G), positive -> (..., S, K, G)


def right_by_class(n_CPG: np.ndarray, positive: int | None = None) -> np.ndarray:
    """Return right and wrong within each class: (..., C, 2, G)."""
    right = np.einsum("...ccg->...cg", n_CPG)
    return np.stack([right, n_CPG.sum(-2) - right], -2)


def right_of_positive(n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
    """Return right and wrong within the positive class: (..., 1, 2, G)."""
    return right_by_class(n_CPG)[..., [positive or 0], :, :]


def right(n_CPG: np.ndarray, positive: int | None = None) -> np.ndarray:
    """Return right and wrong over all classes: (..., 1, 2, G)."""
    return right_by_class(n_CPG).sum(-3, keepdims=True)


def predicted(n_CPG: np.ndarray, positive: int | None = None) -> np.ndarray:
    """Return how often each class is predicted: (..., 1, P, G)."""
    return n_CPG.sum(-3)[..., None, :, :]


def rates(n_SKG: np.ndarray) -> np.ndarray:
    """Return rates that groups are compared by, (..., R, G): all outcomes, or the first of two."""
    share = divide(n_SKG, n_SKG.sum(-2, keepdims=True))
    shown = share[..., :1, :] if n_SKG.shape[-2] == 2 else share
    return shown.reshape(*n_SKG.shape[:-3], -1, n_SKG.shape[-1])


# -------------------------------------------------------------------------------------------------
# Why a metric has no value on a table: a sentence that names what is missing, or None.
# -------------------------------------------------------------------------------------------------


def nothing_missing(counts: Counts, positive: int | None) -> str | None:
    return None


def empty_class(counts: Counts, positive: int | None) -> str | None:
    """Say which class has no row: a mean over classes needs a row of each."""
    empty = np.flatnonzero(counts.n_CPG.sum((1, 2)) == 0)
    return (
        f"no row of class {', '.join(repr(counts.classes[c]) for c in empty)}"
        if len(empty)
        else None
    )


def empty_cell(counts: Counts, positive: int | None) -> str | None:
    """Say which cell is empty: a mean over cells needs a row of each class in each group."""
    return _no_rows(counts.empty_cells())


def empty_group(counts: Counts, positive: int | None) -> str | None:
    return _no_rows([f"group {name}" for name in counts.empty_groups()])


def empty_cell_or_one_group(counts: Counts, positive: int | None) -> str | None:
    return one_group(counts) or empty_cell(counts, positive)


def empty_group_or_one_group(counts: Counts, positive: int | None) -> str | None:
    return one_group(counts) or empty_group(counts, positive)


def no_positive_rows(counts: Counts, positive: int | None) -> str | None:
    """Say why a gap on the positive class has no value: no such class, or a group without it."""
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
    """Say which group has no row of the kind that a rate needs."""
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
