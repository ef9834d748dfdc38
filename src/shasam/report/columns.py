"""Choose the columns of a user's table, and turn them into codes, scores, weights and dates."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shasam.errors import Argument, InputError, ShasamWarning
from shasam.metrics.counts import weights_vanish
from shasam.metrics.evaluation import days_of
from shasam.metrics.slices import column_of_rule, is_rule
from shasam.registry import did_you_mean
from shasam.rule_text import columns_of_rule
from shasam.tables import MOST_AS_GROUPS, NO_VALUE, Missing, TableFile, advice
from shasam.types import Context, attribute_columns

# -------------------------------------------------------------------------------------------------
# Which column of a table is the label, the prediction, the scores and the groups.
# -------------------------------------------------------------------------------------------------

LABELS = ("target", "label", "y_true")
PREDICTIONS = ("prediction", "predicted", "y_pred")
SENSITIVE = ("sensitive", "group")
COUNTS = ("n", "count")
ID = "id"


@dataclass(frozen=True)
class Columns:
    """What was asked for; None and () mean: look for the usual names."""

    label: str | None = None
    prediction: str | None = None
    scores: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    threshold: float | None = None
    positive: str | None = None
    classes: tuple[str, ...] = ()
    missing: Missing = "error"
    counts: bool = False  # a line stands for as many rows as its column n says
    weight: str | None = None  # what each row weighs
    time: str | None = None  # when each row is from
    slices: tuple[str, ...] = ()  # columns and rules such as age<35
    regression: bool = False  # label and prediction are numbers
    continuous: tuple[str, ...] = ()  # attributes that are followed as numbers
    discrete: tuple[str, ...] = ()  # attributes whose values are groups


@dataclass(frozen=True)
class ColumnChoice:
    """Columns that are in the table."""

    label: str
    prediction: str | None  # None: decided from the scores
    scores: tuple[str, ...]
    sensitive: tuple[str, ...]
    weight: str | None = None
    time: str | None = None
    sliced: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    derived: tuple[tuple[str, tuple[str, ...]], ...] = ()  # rule of an attribute -> its columns
    offered: bool = False  # scores were found by their names and not asked for

    @property
    def all(self) -> list[str]:
        """Each column of the file once."""
        single = (self.label, self.prediction, self.weight, self.time)
        one = tuple(c for c in single if c is not None)
        made = dict(self.derived)
        groups = [c for name in self.sensitive for c in made.get(name, (name,))]
        return list(dict.fromkeys((*one, *self.scores, *groups, *self.sliced)))

    @property
    def complete(self) -> list[str]:
        """The columns whose values must be there; a rule of an attribute stands for its columns."""
        made = {column for _, columns in self.derived for column in columns}
        used = {self.label, self.prediction, self.weight, self.time, *self.sensitive, *self.sliced}
        kept = [c for c in self.all if c not in made or c in used]
        return list(dict.fromkeys((*kept, *(rule for rule, _ in self.derived))))


def choose(table: TableFile, asked: Columns) -> ColumnChoice:
    """Choose the columns to read.

    A complaint says which one is not there and how to name another.
    """
    if asked.prediction is not None and asked.threshold is not None:
        raise InputError(
            Argument("threshold", asked.threshold),
            " makes predictions from the score, and ",
            Argument("prediction", asked.prediction),
            " names a column that has them already; give one of the two",
        )
    if asked.weight is not None and asked.counts:
        raise InputError(
            Argument("weight"),
            " and ",
            Argument("counts"),
            " exclude each other: a line of counts stands for whole rows. Give weights row by row",
        )
    label = _find(table, asked.label, LABELS, "label", Argument("label"))
    found, derived = [], []
    for column in asked.sensitive or own_groups(table) or (None,):
        needed = None
        if column is not None and column not in table.column_names:
            needed = columns_of_rule(column, table.column_names)
        if column is None or needed is None:
            found.append(
                _find(table, column, SENSITIVE, "sensitive attribute", Argument("sensitive"))
            )
            continue
        for name in needed:
            _find(table, name, (), f"sensitive attribute {column!r}", Argument("sensitive"))
        found.append(column)
        derived.append((column, tuple(dict.fromkeys(needed))))
    scores, offered = _score_columns(table, asked)
    prediction = asked.prediction
    if prediction is None and asked.threshold is None:
        prediction = next((c for c in PREDICTIONS if c in table.column_names), None)
    if prediction is not None:
        _find(table, prediction, (), "prediction", Argument("prediction"))
    if prediction is None and not scores:
        raise InputError(
            f"{table.name} has neither a prediction nor a score; name one with ",
            Argument("prediction"),
            " or ",
            Argument("score"),
            f" (its columns: {', '.join(table.column_names)})",
        )
    for column, what in ((asked.weight, "weight"), (asked.time, "time")):
        if column is not None:
            _find(table, column, (), what, Argument(what))
    sliced, rules = _sliced(table, asked.slices)
    return ColumnChoice(
        label, prediction, scores, tuple(found), asked.weight, asked.time, sliced, rules,
        tuple(derived), offered,
    )  # fmt: skip


def own_groups(table: TableFile) -> dict[str, tuple[str, ...]]:
    """Return the columns of several attributes and of their intersection, with their groups in
    order.

    Predictions of a run that had several hold them; {} of any other table.
    """
    try:
        found = json.loads(table.metadata.get("attributes", "[]"))
        if not found:
            return {}
        columns = attribute_columns([str(attribute["name"]) for attribute in found])
        groups = [tuple(map(str, attribute["groups"])) for attribute in found]
        whole = tuple(map(str, json.loads(table.metadata.get("sensitive_names", "[]"))))
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    named = {**dict(zip(columns, groups, strict=True)), "sensitive": whole}
    return named if len(named) > 2 and set(named) <= set(table.column_names) else {}


def _sliced(table: TableFile, asked: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that slices need, and the rules among what was asked for."""
    rules = tuple(text for text in asked if text not in table.column_names and is_rule(text))
    plain = [text for text in asked if text not in rules]
    needed = [*plain, *(column_of_rule(text) for text in rules)]
    for column in needed:
        _find(table, column, (), "slice", Argument("slices"))
    return tuple(dict.fromkeys(needed)), rules


def count_column(table: TableFile) -> str:
    """Return the column that says how many rows a line stands for."""
    return _find(table, None, COUNTS, "number of rows", "AS n in the query")


def _find(
    table: TableFile, given: str | None, usual: Sequence[str], what: str, named: object
) -> str:
    known = table.column_names
    if given is None:
        for column in usual:
            if column in known:
                return column
        raise InputError(
            f"{table.name} has no column called {' or '.join(usual)}; name the {what} with ",
            named,
            f" (its columns: {', '.join(known)})",
        )
    if given not in known:
        raise InputError(
            f"{table.name} has no column {given!r} for the {what}{did_you_mean(given, known)}"
        )
    return given


def _score_columns(table: TableFile, asked: Columns) -> tuple[tuple[str, ...], bool]:
    """Return the score columns, and whether they are only offered: found by their names.

    ``score_yes`` and ``score_no`` are taken if yes and no turn out to be the classes; a column
    ``score_text`` of another kind is left alone.
    """
    if asked.scores:
        for column in asked.scores:
            _find(table, column, (), "score", Argument("score"))
        return asked.scores, False
    if "score" in table.column_names:
        return ("score",), False
    ours = tuple(c for c in table.column_names if c.startswith("score_"))
    if "target_names" in table.metadata:  # a file of predictions that shasam wrote
        return ours, False
    if asked.threshold is not None and not ours:
        raise InputError(
            Argument("threshold"),
            f" needs a score; name its column in {table.name} with ",
            Argument("score"),
        )
    return ours, bool(ours)


# -------------------------------------------------------------------------------------------------
# Columns of names, integers or booleans as codes 0..K-1; rows that have no value in one.
# -------------------------------------------------------------------------------------------------


def without_missing(
    table: pa.Table,
    chosen: ColumnChoice,
    missing: Missing,
    where: str,
    repeats: np.ndarray | None,
    numbers: Collection[str] = (),
    *,
    unknown: bool = False,
) -> pa.Table:
    """Treat rows without a label, prediction or group: refuse them, drop them, or group them.

    ``repeats`` says how many rows each entry of the table stands for. An attribute among
    ``numbers`` has no groups. With ``unknown`` rows without a group stay, and are left out where
    they are seen through that attribute.
    """
    check_plain(table, chosen.all, where)
    n = np.ones(table.num_rows, dtype=np.int64) if repeats is None else repeats
    total = int(n.sum())
    own = {*chosen.sensitive, *chosen.sliced} if missing == "group" else set()
    own -= {column_of_rule(rule) for rule in chosen.rules} - set(chosen.sensitive)
    own -= {chosen.label, chosen.prediction, chosen.weight, chosen.time, *numbers}
    lost = np.zeros(table.num_rows, dtype=bool)
    for column in chosen.complete:
        if column in chosen.scores:
            continue
        absent = absent_values(table.column(column))
        rows = int(n[absent].sum())
        if not rows:
            continue
        if unknown and column in chosen.sensitive:
            warnings.warn(
                f"{rows:,} of {total:,} rows of {where} have no value in the column {column!r} and "
                "are left out by it",
                ShasamWarning,
                stacklevel=2,
            )
        elif column in own:
            place = table.column_names.index(column)
            table = table.set_column(place, column, _filled(table.column(column), absent))
        elif missing == "drop":
            lost |= absent
        else:
            first = f", the first is row {int(absent.argmax()) + 1:,}" if repeats is None else ""
            raise InputError(*advice(column, rows, total, where, first))
    if not lost.any():
        return table
    warnings.warn(
        f"{int(n[lost].sum()):,} of {total:,} rows of {where} are left out: they have no "
        "label, prediction or group",
        ShasamWarning,
        stacklevel=2,
    )
    return table.filter(pa.array(~lost))


def check_plain(table: pa.Table, columns: Iterable[str], where: str) -> None:
    """Refuse columns whose entries are lists or structures: they are no classes and no groups."""
    for column in columns:
        kind = table.schema.field(column).type
        if pa.types.is_nested(kind):
            raise InputError(
                f"the column {column!r} of {where} holds {str(kind)[:60]}, where each row needs "
                "one value; write a column with that value"
            )


def followed_as_numbers(
    table: pa.Table, chosen: ColumnChoice, asked: Columns, named: Collection[str]
) -> tuple[str, ...]:
    """Return the attributes that are not cut into groups: asked for, or of many different numbers.

    Columns of ``named`` hold codes that the file gives names to.
    """
    for argument, columns in (("continuous", asked.continuous), ("discrete", asked.discrete)):
        for column in columns:
            if column not in chosen.sensitive:
                raise InputError(
                    Argument(argument, column),
                    f" says how a sensitive attribute is taken, and {column!r} is none; add ",
                    Argument("sensitive", column),
                )
    found = []
    for column in chosen.sensitive:
        values = table.column(column)
        holds = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
        if column in asked.continuous and column in asked.discrete:
            raise InputError(
                f"{column!r} cannot be both ", Argument("continuous"), " and ", Argument("discrete")
            )
        if column in asked.continuous:
            if not holds:
                raise InputError(
                    Argument("continuous", column), f": the column holds {values.type}, no numbers"
                )
            found.append(column)
        elif holds and column not in (*asked.discrete, *named):
            different = pc.count_distinct(values, mode="only_valid").as_py()
            if different > MOST_AS_GROUPS:
                found.append(column)
    return tuple(found)


def codes_of(
    values: pa.ChunkedArray, column: str, where: str, names: tuple[str, ...] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return codes and names.

    The names are the sorted values, or those that a file gives its integers.
    """
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


def checked_score(
    values: pa.ChunkedArray, column: str, where: str, first: int = 0, *, ranks: bool = False
) -> np.ndarray:
    """Read probabilities as float64; ``first`` is the number of rows that were read before.

    ``ranks`` allows scores of any range, such as risk deciles, where a threshold decides.
    """
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
        if ranks:
            return x
        raise InputError(
            f"the score column {column!r} of {where} reaches from {x.min():.4g} to "
            f"{x.max():.4g}, so it holds no probabilities. Say with ",
            Argument("threshold"),
            " from which score on the prediction is positive, or give probabilities",
        )
    return np.clip(x, 0.0, 1.0)


def absent_values(values: pa.ChunkedArray) -> np.ndarray:
    """Find values that are null, NaN or an empty text."""
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
            "(a probability belongs in ",
            Argument("score"),
            ", and a sensitive number is followed as it is with ",
            Argument("continuous", column),
            ")",
        )
    return values.cast(pa.int64())


def _sort_key(value: object) -> tuple[int, float, str]:
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)


# -------------------------------------------------------------------------------------------------
# Weights, dates and the columns that slices are cut from, as numpy reads them from a table.
# -------------------------------------------------------------------------------------------------


def context_of(table: pa.Table, chosen: ColumnChoice, where: str) -> Context:
    """Return the other columns that were asked for; an error names the column."""
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
    """Return a column of finite numbers."""
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
    """Read numbers as numbers, anything else as text."""
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        return values.to_numpy(zero_copy_only=False)
    return np.array([str(v) for v in values.to_pylist()], dtype=str)


def _weights(table: pa.Table, column: str, where: str) -> np.ndarray:
    w = numbers_of(table, column, "weight", where)
    if (w < 0).any() or not w.any():
        raise InputError(
            f"the weight column {column!r} of {where} must not be negative, nor 0 in every row"
        )
    if weights_vanish(w):
        raise InputError(
            f"the weights {column!r} of {where} go from {w[w > 0].min():.3g} to {w.max():.3g}: the "
            "small ones are lost in every sum; correct them, or give 0 to rows that are not to "
            "count"
        )
    return w


def _dates(table: pa.Table, column: str, where: str) -> np.ndarray:
    try:
        return days_of(table.column(column).to_numpy(zero_copy_only=False))
    except InputError as error:
        raise InputError(f"the time column {column!r} of {where}: {error}") from None
