"""From attribute columns to classes: ``gender``, ``age<35``, ``race==0``, ``age:[0,20,40,60]``,
``Male&Young``. A rule is parsed, never evaluated as code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from shasam.data.source import Label, of_many_values
from shasam.errors import Argument, DataError
from shasam.registry import did_you_mean
from shasam.rule_text import BINS, parsed_comparison
from shasam.tables import NO_VALUE

_MAX_CLASSES = 64
_SHOWN = 20  # values in a message
NO_VALUE_REASON = ": no value"
_OPPOSITE = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Labelling:
    """Codes (n,) int64 with -1 where a row has none, the reason why, and the names of the codes."""

    codes: np.ndarray
    names: tuple[str, ...]
    reasons: Mapping[int, str]  # row -> why it has no label


def apply_rule(
    rule: str, table: pa.Table, labels: Mapping[str, Label] | None = None, what: str = "target"
) -> Labelling:
    """Return labels of all rows. ``A&B`` counts in mixed base: code = a + n_a b."""
    parts = [_single(part.strip(), table, labels or {}, what) for part in rule.split("&")]
    codes, names, reasons = parts[0].codes.copy(), parts[0].names, dict(parts[0].reasons)
    for part in parts[1:]:
        none = (codes < 0) | (part.codes < 0)
        codes = np.where(none, -1, codes + len(names) * part.codes)
        names = tuple(f"{first} & {second}" for second in part.names for first in names)
        reasons.update({row: why for row, why in part.reasons.items() if row not in reasons})
    if len(names) < 2:
        raise DataError(f"the {what} {rule!r} has one value only ({names}); it needs two or more")
    if len(names) > _MAX_CLASSES:
        ways: list[object] = [
            f"the {what} {rule!r} makes {len(names)} groups; write a rule that makes fewer, such "
            f"as '{rule.split('&')[0]}:[0,20,40]' or '{rule.split('&')[0]}<35'"
        ]
        if what != "target" and rule in table.column_names:
            ways += [", or follow it as a number with ", Argument("data.sensitive_as", "number")]
        raise DataError(*ways)
    return Labelling(codes, names, reasons)


def along(rule: str, table: pa.Table, what: str) -> tuple[Labelling, np.ndarray]:
    """Return the quarters of a numeric column as groups, and its numbers (n,), NaN if none.

    The quarters serve where groups must be counted; they hold about as many rows each.
    """
    number = _numbers(rule, _column(rule, table, {}, what))
    number[np.isinf(number)] = np.nan
    null = np.isnan(number)
    known = number[~null] if not null.all() else np.zeros(1)
    edges = np.unique(np.quantile(known, [0.25, 0.5, 0.75]))
    codes = np.where(null, -1, np.searchsorted(edges, number, side="left")).astype(np.int64)
    _, codes[~null] = np.unique(codes[~null], return_inverse=True)
    names = []
    for code in range(int(codes.max()) + 1 if len(codes) else 0):
        own = number[codes == code]
        names.append(f"{rule} {own.min():g}-{own.max():g}")
    if len(names) < 2:
        raise DataError(f"the {what} {rule!r} has one value only; it needs two or more")
    return Labelling(codes, tuple(names), _missing_values(rule, null)), number


def number_rule(rules: Sequence[str], table: pa.Table) -> str:
    """Find the one of several sensitive attributes that is followed as a number."""
    if len(rules) == 1:
        return rules[0]
    many = [r for r in rules if r in table.column_names and of_many_values(table.column(r))]
    if len(many) == 1:
        return many[0]
    if many:
        raise DataError(
            f"{' and '.join(map(repr, many))} are numbers of many values, and one can be followed "
            f"at a time; make groups of the others by a rule, such as '{many[-1]}<35'"
        )
    raise DataError(
        f"of {' and '.join(map(repr, rules))} none is a column of many numbers; leave out ",
        Argument("data.sensitive_as", "number"),
    )


def crossed(labellings: Sequence[Labelling]) -> Labelling:
    """Return the intersections of several attributes that have rows as groups, in an audit's order.

    A row has none if one of its attributes has none.
    """
    codes, names = labellings[0].codes, labellings[0].names
    for part in labellings[1:]:
        none = (codes < 0) | (part.codes < 0)
        codes = np.where(none, -1, codes * len(part.names) + part.codes)
        names = tuple(f"{first} & {second}" for first in names for second in part.names)
    reasons = {
        row: why for part in reversed(labellings) for row, why in part.reasons.items()
    }  # the first attribute that a row lacks is its reason
    there = np.unique(codes[codes >= 0])
    place = np.full(len(names) + 1, -1, dtype=np.int64)  # its last entry is that of the code -1
    place[there] = np.arange(len(there))
    return Labelling(place[codes], tuple(names[code] for code in there.tolist()), reasons)


def _single(rule: str, table: pa.Table, labels: Mapping[str, Label], what: str) -> Labelling:
    if rule in labels:
        made = _single(labels[rule].rule, table, {}, what)
        return Labelling(made.codes, labels[rule].names or made.names, made.reasons)
    if rule in table.column_names:
        return _categories(rule, table)
    if match := BINS.match(rule):
        return _bins(match["column"], match["edges"], table, labels, what)
    if compared := parsed_comparison(rule):
        return _compare(*compared, table, labels, what)
    known = [*labels, *(c for c in table.column_names if c not in ("id", "path"))]
    raise DataError(f"there is no attribute {rule!r} for the {what}{did_you_mean(rule, known)}")


def _column(name: str, table: pa.Table, labels: Mapping[str, Label], what: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        known = [c for c in table.column_names if c not in ("id", "path")]
        raise DataError(f"there is no column {name!r} for the {what}{did_you_mean(name, known)}")
    return table.column(name)


def _missing_values(name: str, bad: np.ndarray, why: str = NO_VALUE_REASON) -> dict[int, str]:
    return {int(row): f"{name}{why}" for row in np.flatnonzero(bad)}


def with_missing_group(labelling: Labelling) -> Labelling:
    """Return rows without a value as a group of their own; others without a label stay without."""
    rows = [r for r, reason in labelling.reasons.items() if reason.endswith(NO_VALUE_REASON)]
    if not rows:
        return labelling
    codes = labelling.codes.copy()
    codes[rows] = len(labelling.names)
    reasons = {r: why for r, why in labelling.reasons.items() if r not in set(rows)}
    return Labelling(codes, (*labelling.names, NO_VALUE), reasons)


def _categories(name: str, table: pa.Table) -> Labelling:
    column = table.column(name)
    if pa.types.is_nested(column.type):
        raise DataError(
            f"the column {name!r} holds several values in a row ({column.type}); make a column of "
            "each, and train a model for each"
        )
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    cells = [None if isinstance(v, str) and not v.strip() else v for v in column.to_pylist()]
    null = np.array([v is None for v in cells], dtype=bool)
    values = sorted({v for v in cells if v is not None})
    code = {value: k for k, value in enumerate(values)}
    codes = np.array([code.get(v, -1) for v in cells], dtype=np.int64)
    names = tuple(str(v) for v in values)
    if names == ("0", "1"):
        names = (f"not {name}", name)
    return Labelling(codes, names, _missing_values(name, null))


def _numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    try:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    except pa.ArrowInvalid as error:
        raise DataError(f"the column {name!r} is not numeric: {error}") from error


def _bins(
    name: str, text: str, table: pa.Table, labels: Mapping[str, Label], what: str
) -> Labelling:
    try:
        edges = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise DataError(f"[{text}] must be numbers, such as {name}:[0,20,40,60]") from error
    if edges != sorted(set(edges)):
        raise DataError(f"[{text}] must increase, such as {name}:[0,20,40,60]")
    value = _numbers(name, _column(name, table, labels, what))
    codes = np.searchsorted(edges, value, side="right").astype(np.int64) - 1
    codes[np.isnan(value)] = -1
    reasons = _missing_values(name, np.isnan(value))
    reasons.update(_missing_values(name, value < edges[0], f": below {edges[0]:g}, the first edge"))
    names = [f"{name} {low:g}-{high:g}" for low, high in pairwise(edges)]
    return Labelling(codes, (*names, f"{name} >={edges[-1]:g}"), reasons)


def _nearest(text: str, known: list[str]) -> str:
    """Return the values that were meant.

    Those that differ only by case or spaces before all others.
    """
    plain = " ".join(text.split()).casefold()
    same = [value for value in known if " ".join(value.split()).casefold() == plain]
    return did_you_mean(same[0], same) if same else did_you_mean(text, known[:_SHOWN])


def _compare(
    name: str, op: str, text: str, table: pa.Table, labels: Mapping[str, Label], what: str
) -> Labelling:
    column = _column(name, table, labels, what)
    null = column.is_null().to_numpy(zero_copy_only=False)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if is_text and op in ("==", "!="):
        values = column.to_pylist()
        same = np.array([v == text for v in values])
        if not same.any():
            known = sorted({v for v in values if v is not None})
            raise DataError(f"no row has {name} {text!r}{_nearest(text, known)}")
        holds = same if op == "==" else ~same
    else:
        try:
            number = float(text)
        except ValueError as error:
            raise DataError(f"{text!r} in {name}{op}{text} should be a number") from error
        value = _numbers(name, column)
        null = null | np.isnan(value)
        holds = {
            "<": value < number, "<=": value <= number, ">": value > number,
            ">=": value >= number, "==": value == number, "!=": value != number,
        }[op]  # fmt: skip
        if op in ("==", "!=") and not (value == number).any():
            known = [f"{v:g}" for v in np.unique(value[~null])[:_SHOWN].tolist()]
            raise DataError(f"no row has {name} {text}; there are: {', '.join(known)}")
    codes = np.where(null, -1, holds.astype(np.int64))
    names = (f"{name}{_OPPOSITE[op]}{text}", f"{name}{op}{text}")
    return Labelling(codes, names, _missing_values(name, null))
