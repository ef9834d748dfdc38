"""Columns of names, integers or booleans as codes 0..K-1; rows that have no value in one."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shasam.errors import InputError, ShasamWarning
from shasam.metrics.slices import column_of_rule
from shasam.report.columns import Chosen
from shasam.tables.missing import NO_VALUE, Missing, advice


def without_missing(
    table: pa.Table, chosen: Chosen, missing: Missing, where: str, repeats: np.ndarray | None
) -> pa.Table:
    """Rows without a label, prediction or group: refused, left out, or in a group of their own.

    ``repeats`` says how many rows each entry of the table stands for.
    """
    n = np.ones(table.num_rows, dtype=np.int64) if repeats is None else repeats
    total = int(n.sum())
    own = {*chosen.sensitive, *chosen.sliced} if missing == "group" else set()
    own -= {column_of_rule(rule) for rule in chosen.rules} - set(chosen.sensitive)
    classified = {chosen.label, chosen.prediction, chosen.weight, chosen.time}
    own -= classified
    lost = np.zeros(table.num_rows, dtype=bool)
    for column in chosen.all:
        if column in chosen.scores:
            continue
        absent = _absent(table.column(column))
        rows = int(n[absent].sum())
        if not rows:
            continue
        if column in own:
            place = table.column_names.index(column)
            table = table.set_column(place, column, _filled(table.column(column), absent))
        elif missing == "drop":
            lost |= absent
        else:
            first = f", the first is row {int(absent.argmax()) + 1:,}" if repeats is None else ""
            raise InputError(advice(column, rows, total, where, first))
    if not lost.any():
        return table
    warnings.warn(
        f"{int(n[lost].sum()):,} of {total:,} rows of {where} are left out: they have no "
        "label, prediction or group",
        ShasamWarning,
        stacklevel=2,
    )
    return table.filter(pa.array(~lost))


def codes_of(
    values: pa.ChunkedArray, column: str, where: str, names: tuple[str, ...] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes and names; the names are the sorted values, or those that a file gives its integers."""
    if names is not None and pa.types.is_integer(values.type):
        codes = values.to_numpy().astype(np.int64)
        if codes.min() < 0 or codes.max() >= len(names):
            raise InputError(
                f"the column {column!r} of {where} holds {codes.min()}..{codes.max()}, but the "
                f"file names {len(names)} values: {', '.join(names)}"
            )
        return codes, names
    if pa.types.is_floating(values.type):
        values = _whole_numbers(values, column, where)
    if not isinstance(values.type, pa.DictionaryType):
        values = values.dictionary_encode()
    encoded = values.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks() if encoded.num_chunks != 1 else encoded.chunk(0)
    found = encoded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=lambda i: _sort_key(found[i]))
    rank = np.empty(len(found), dtype=np.int64)
    rank[order] = np.arange(len(found))
    codes = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    return codes, tuple(str(found[i]) for i in order)


def checked_score(values: pa.ChunkedArray, column: str, where: str, first: int = 0) -> np.ndarray:
    """Probabilities as float64; ``first`` is the number of rows that were read before."""
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise InputError(f"the score column {column!r} of {where} does not hold numbers")
    x = values.to_numpy().astype(np.float64)
    bad = ~np.isfinite(x)
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {len(x)} scores in the column {column!r} of {where} are "
            f"missing, NaN or infinite, the first in row {first + int(bad.argmax()) + 1}; leave "
            "those rows out or repair the model"
        )
    if len(x) and (x.min() < -1e-6 or x.max() > 1 + 1e-6):
        raise InputError(
            f"the score column {column!r} of {where} reaches from {x.min():.4g} to "
            f"{x.max():.4g}; give probabilities (apply softmax or a sigmoid first)"
        )
    return np.clip(x, 0.0, 1.0)


def _absent(values: pa.ChunkedArray) -> np.ndarray:
    """Null, NaN or an empty text."""
    out = pc.is_null(values, nan_is_null=True)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        out = pc.or_(out, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), False))
    return out.to_numpy().astype(bool)


def _filled(values: pa.ChunkedArray, absent: np.ndarray) -> pa.ChunkedArray:
    text = values
    if pa.types.is_floating(values.type):
        whole = pc.all(pc.equal(values, pc.floor(values)), min_count=0).as_py()
        text = pc.if_else(pa.array(absent), None, values).cast(pa.int64()) if whole else values
    return pc.if_else(pa.array(absent), NO_VALUE, text.cast(pa.string()))


def _whole_numbers(values: pa.ChunkedArray, column: str, where: str) -> pa.ChunkedArray:
    if pc.any(pc.is_inf(values)).as_py() or pc.any(pc.greater(pc.abs(values), 2**53)).as_py():
        raise InputError(
            f"the column {column!r} of {where} holds infinite or very large numbers; it needs "
            "classes or groups"
        )
    if pc.any(pc.not_equal(values, pc.floor(values))).as_py():
        raise InputError(
            f"the column {column!r} of {where} holds fractions; it needs classes or groups "
            "(a probability belongs in --score)"
        )
    return values.cast(pa.int64())


def _sort_key(value: object) -> tuple[int, float, str]:
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)
