"""Weights, dates and the columns that slices are cut from, as numpy reads them from a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shasam.errors import InputError
from shasam.metrics.periods import days_of
from shasam.report.columns import Chosen
from shasam.types import Context


def context_of(table: pa.Table, chosen: Chosen, where: str) -> Context:
    """The other columns that were asked for; an error names the column."""
    weights = None if chosen.weight is None else _weights(table, chosen.weight, where)
    return Context(
        weight=chosen.weight or "",
        weights=weights,
        time=chosen.time or "",
        when=None if chosen.time is None else _dates(table, chosen.time, where),
        columns={column: values_of(table.column(column)) for column in chosen.sliced},
        rules=chosen.rules,
    )


def numbers_of(table: pa.Table, column: str, what: str, where: str) -> np.ndarray:
    """A column of finite numbers."""
    values = table.column(column)
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise InputError(f"the {what} column {column!r} of {where} does not hold numbers")
    x = values.to_numpy(zero_copy_only=False).astype(np.float64)
    bad = ~np.isfinite(x)
    if bad.any():
        raise InputError(
            f"{int(bad.sum()):,} of {len(x):,} rows of {where} have no finite number in the "
            f"{what} column {column!r}, the first is row {int(bad.argmax()) + 1:,}"
        )
    return x


def values_of(values: pa.ChunkedArray) -> np.ndarray:
    """Numbers as numbers, anything else as text."""
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        return values.to_numpy(zero_copy_only=False)
    return np.array([str(v) for v in values.to_pylist()], dtype=str)


def _weights(table: pa.Table, column: str, where: str) -> np.ndarray:
    w = numbers_of(table, column, "weight", where)
    if (w < 0).any() or not w.any():
        raise InputError(
            f"the weight column {column!r} of {where} must not be negative, nor 0 in every row"
        )
    return w


def _dates(table: pa.Table, column: str, where: str) -> np.ndarray:
    try:
        return days_of(table.column(column).to_numpy(zero_copy_only=False))
    except InputError as error:
        raise InputError(f"the time column {column!r} of {where}: {error}") from None
