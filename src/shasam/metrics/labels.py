"""From columns of labels to codes 0..K-1 and their names; intersections of several attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.registry import did_you_mean


def encode(
    column: Any, names: Sequence[str] | None, what: str, also: Any = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes and names of a column.

    With ``names``, integers are codes 0..K-1 into them and anything else must be one of them;
    without, the sorted distinct values (of ``column`` and ``also``) are the names.
    """
    values = _flat(column, what)
    if names is None:
        known = np.unique(values if also is None else np.concatenate([values, _flat(also, what)]))
        return np.searchsorted(known, values), tuple(map(str, known.tolist()))
    names = tuple(map(str, names))
    if len(set(names)) != len(names):
        raise InputError(f"the names of the {what} are not distinct: {', '.join(names)}")
    if values.dtype.kind in "iub":
        codes = values.astype(np.int64)
        if len(codes) and (codes.min() < 0 or codes.max() >= len(names)):
            wrong = int(codes.min() if codes.min() < 0 else codes.max())
            raise InputError(
                f"the {what} code {wrong} is outside 0..{len(names) - 1}; "
                f"there are {len(names)} names: {', '.join(names)}"
            )
        return codes, names
    found, inverse = np.unique(values.astype(str), return_inverse=True)
    place = {name: i for i, name in enumerate(names)}
    for name in found.tolist():
        if name not in place:
            raise InputError(f"the {what} {name!r} is not known{did_you_mean(name, names)}")
    return np.array([place[name] for name in found.tolist()], dtype=np.int64)[inverse], names


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


def _flat(column: Any, what: str) -> np.ndarray:
    values = np.asarray(column)
    if values.ndim != 1:
        raise InputError(f"the {what} must be one column, not an array of shape {values.shape}")
    if values.dtype.kind == "f":
        whole = values.astype(np.int64, copy=False) if np.isfinite(values).all() else None
        if whole is None or (whole != values).any():
            raise InputError(
                f"the {what} holds NaN or fractions; give integers or names, one for each row"
            )
        return whole
    return values.astype(str) if values.dtype.kind == "O" else values
