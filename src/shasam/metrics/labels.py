"""From columns of labels to codes 0..K-1 and their names; intersections of several attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.registry import did_you_mean


def encode(
    columns: Mapping[str, Any], names: Sequence[str] | None
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Codes of one or more columns that share their values, and the names of the values.

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
    """Several attributes as one: the combinations that occur, named ``a & b``."""
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
    """Codes of a column whose names are known."""
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
    """Text beside numbers would match nowhere, and the accuracy would be 0 without a word."""
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
    """One column of integers, booleans or text without missing values."""
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
    """Python objects (a pandas column, for example) as integers or text."""
    missing = [v is None or v != v for v in values]
    if any(missing):
        raise InputError(
            f"{sum(missing)} of {len(values)} rows have no {what}, the first is row "
            f"{missing.index(True)}; leave those rows out or give them a name"
        )
    if all(isinstance(v, bool | int | np.integer | np.bool_) for v in values):
        return values.astype(np.int64)
    return values.astype(str)
