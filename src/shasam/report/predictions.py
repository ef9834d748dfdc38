"""Predictions of any model from a CSV or Parquet file: columns to codes, with kind errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from shasam.errors import DataError, FileError, InputError
from shasam.metrics import intersect
from shasam.parquet import read_parquet
from shasam.registry import did_you_mean

LABELS = ("target", "label", "y_true")
PREDICTIONS = ("prediction", "predicted", "y_pred")
SENSITIVE = ("sensitive", "group")
MOST_GROUPS = 50
MOST_CLASSES = 1000


@dataclass(frozen=True)
class Columns:
    """Which column is what; None means: look for the usual names."""

    label: str | None = None
    prediction: str | None = None
    scores: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    threshold: float | None = None
    positive: str | None = None
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grouping:
    """One way to cut the rows: by an attribute, or by several at once."""

    attribute: str
    s: np.ndarray
    names: tuple[str, ...]


@dataclass(frozen=True)
class Predicted:
    """What a file holds, as codes."""

    name: str
    t: np.ndarray
    p: np.ndarray
    scores_NC: np.ndarray | None
    classes: tuple[str, ...]
    groupings: tuple[Grouping, ...]
    positive: int | None
    ids: np.ndarray | None = None


def read_predictions(path: Path, columns: Columns, name: str | None = None) -> Predicted:
    """Read a file of predictions; every complaint says which column and what to do."""
    table, metadata = _read(path)
    where = path.name
    label = _find(table, columns.label, LABELS, "label", "--label", where)
    sensitive = columns.sensitive or (
        _find(table, None, SENSITIVE, "sensitive attribute", "--sensitive", where),
    )
    for column in sensitive:
        _find(table, column, (), "sensitive attribute", "--sensitive", where)
    scores = _score_columns(table, columns, where)
    prediction = columns.prediction
    if prediction is None and columns.threshold is None:
        prediction = next((c for c in PREDICTIONS if c in table.column_names), None)
    if prediction is not None:
        _find(table, prediction, (), "prediction", "--prediction", where)
    if prediction is None and not scores:
        raise InputError(
            f"{where} has neither a prediction nor a score; name one with --prediction or --score "
            f"(its columns: {', '.join(table.column_names)})"
        )
    t, label_names = _codes(
        table, label, where, _names(metadata, "target_names", label == "target")
    )
    if len(label_names) > MOST_CLASSES:
        raise InputError(
            f"the label column {label!r} of {where} has {len(label_names):,} distinct values; an "
            f"audit takes up to {MOST_CLASSES:,} classes. Name another column with --label"
        )
    classes, t = _class_order(label_names, t, columns, where)
    positive = classes.index(columns.positive) if columns.positive else None
    if positive is None and len(classes) == 2:
        positive = 1
    scores_NC = _scores(table, scores, classes, positive, where)
    if prediction is not None:
        p = _predicted(table, prediction, classes, where, metadata, label)
    else:
        assert scores_NC is not None
        p = _decide(scores_NC, columns.threshold, classes, positive)
    groupings = []
    for column in sensitive:
        s, names = _codes(
            table, column, where, _names(metadata, "sensitive_names", column == "sensitive")
        )
        if len(names) > MOST_GROUPS:
            raise InputError(
                f"the sensitive column {column!r} of {where} has {len(names)} distinct values; "
                "give it as groups (for example 'under 35' and '35 and over')"
            )
        groupings.append(Grouping(_attribute(metadata, column), s, names))
    if len(groupings) > 1:
        s, names = intersect([g.s for g in groupings], [g.names for g in groupings])
        groupings.append(Grouping(" & ".join(g.attribute for g in groupings), s, names))
    for grouping in groupings:
        if len(grouping.names) < 2:
            raise InputError(
                f"the sensitive column {grouping.attribute!r} of {where} holds one group only "
                f"({grouping.names[0]!r}); a gap needs two: give rows of another group, or another "
                "column with --sensitive"
            )
    ids = None
    if "id" in table.column_names:
        ids = table.column("id").to_numpy(zero_copy_only=False)
    return Predicted(name or path.stem, t, p, scores_NC, classes, tuple(groupings), positive, ids)


def _read(path: Path) -> tuple[pa.Table, dict[str, str]]:
    if not path.is_file():
        raise DataError(f"there is no file {path}; give a CSV or Parquet file of predictions")
    try:
        if path.suffix.lower() in {".parquet", ".pq"}:
            table = read_parquet(path)
        else:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            table = pacsv.read_csv(path, parse_options=pacsv.ParseOptions(delimiter=separator))
    except (pa.ArrowException, OSError, FileError) as error:
        raise DataError(f"{path.name} cannot be read as a table: {error}") from error
    if not table.num_rows:
        raise DataError(f"{path.name} has no rows; there is nothing to audit")
    if len(set(table.column_names)) != len(table.column_names):
        raise DataError(f"{path.name} has two columns of the same name; rename one of them")
    metadata = {
        k.decode("utf-8", "replace"): v.decode("utf-8", "replace")
        for k, v in (table.schema.metadata or {}).items()
    }
    return table, metadata


def _find(
    table: pa.Table, given: str | None, usual: Sequence[str], what: str, flag: str, where: str
) -> str:
    known = table.column_names
    if given is None:
        for column in usual:
            if column in known:
                return column
        raise InputError(
            f"{where} has no column called {' or '.join(usual)}; name the {what} with {flag} "
            f"(its columns: {', '.join(known)})"
        )
    if given not in known:
        raise InputError(
            f"{where} has no column {given!r} for the {what}{did_you_mean(given, known)}"
        )
    return given


def _names(metadata: dict[str, str], key: str, ours: bool) -> tuple[str, ...] | None:
    """The names that our own prediction files carry for integer codes."""
    if not ours or key not in metadata:
        return None
    try:
        names = json.loads(metadata[key])
    except (ValueError, RecursionError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None


def _attribute(metadata: dict[str, str], column: str) -> str:
    if column == "sensitive" and "protocol" in metadata:
        try:
            protocol = json.loads(metadata["protocol"])
        except (ValueError, RecursionError):
            return column
        if isinstance(protocol, dict) and protocol.get("sensitive"):
            return str(protocol["sensitive"])
    return column


def _codes(
    table: pa.Table, column: str, where: str, names: tuple[str, ...] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes of a column of names, integers or booleans; the names are its sorted values."""
    values = table.column(column)
    missing = values.null_count
    if pa.types.is_floating(values.type):
        missing += pc.sum(pc.is_nan(values)).as_py() or 0
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        missing += pc.sum(pc.equal(values, "")).as_py() or 0
    if missing:
        raise InputError(
            f"{missing} of {table.num_rows} rows of {where} have no value in the column "
            f"{column!r}; fill them in or leave those rows out"
        )
    if names is not None and pa.types.is_integer(values.type):
        codes = values.to_numpy().astype(np.int64)
        if codes.min() < 0 or codes.max() >= len(names):
            raise InputError(
                f"the column {column!r} of {where} holds {codes.min()}..{codes.max()}, but the "
                f"file names {len(names)} values: {', '.join(names)}"
            )
        return codes, names
    if pa.types.is_floating(values.type):
        if pc.any(pc.is_inf(values)).as_py() or pc.any(pc.greater(pc.abs(values), 2**53)).as_py():
            raise InputError(
                f"the column {column!r} of {where} holds infinite or very large numbers; it needs "
                "classes or groups"
            )
        fraction = pc.any(pc.not_equal(values, pc.floor(values))).as_py()
        if fraction:
            raise InputError(
                f"the column {column!r} of {where} holds fractions; it needs classes or groups "
                "(a probability belongs in --score)"
            )
        values = values.cast(pa.int64())
    encoded = values.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    found = encoded.dictionary.to_pylist()
    order = sorted(range(len(found)), key=lambda i: _sort_key(found[i]))
    rank = np.empty(len(found), dtype=np.int64)
    rank[order] = np.arange(len(found))
    codes = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    return codes, tuple(_text(found[i]) for i in order)


def _sort_key(value: object) -> tuple[int, float, str]:
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def _text(value: object) -> str:
    return str(value)


def _class_order(
    found: tuple[str, ...], t: np.ndarray, columns: Columns, where: str
) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes in the order asked for; the positive one last where there are two."""
    classes = columns.classes or found
    if columns.positive and columns.positive not in classes:
        raise InputError(
            f"the positive class {columns.positive!r} is no label of {where}"
            f"{did_you_mean(columns.positive, classes)}"
        )
    if len(classes) == 2 and columns.positive == classes[0]:
        classes = (classes[1], classes[0])
    for name in found:
        if name not in classes:
            raise InputError(
                f"the label {name!r} of {where} is not among the classes"
                f"{did_you_mean(name, classes)}"
            )
    if len(classes) < 2:
        raise InputError(
            f"all labels of {where} are {found[0]!r}; with one class nothing can go wrong. "
            "Name all classes with --classes, or give rows of the others"
        )
    place = np.array([classes.index(name) for name in found], dtype=np.int64)
    return tuple(classes), place[t]


def _predicted(
    table: pa.Table,
    column: str,
    classes: tuple[str, ...],
    where: str,
    metadata: dict[str, str],
    label: str,
) -> np.ndarray:
    ours = column == "prediction" and label == "target"
    p, names = _codes(table, column, where, _names(metadata, "target_names", ours))
    place = np.full(len(names), -1, dtype=np.int64)
    for i, name in enumerate(names):
        if name in classes:
            place[i] = classes.index(name)
    out = place[p]
    if (out < 0).any():
        unknown = [names[i] for i in np.unique(p[out < 0])]
        raise InputError(
            f"{int((out < 0).sum())} predictions of {where} are {unknown[0]!r}, which is no label"
            f"{did_you_mean(unknown[0], classes)} Spell labels and predictions alike, or name all "
            "classes with --classes"
        )
    return out


def _score_columns(table: pa.Table, columns: Columns, where: str) -> tuple[str, ...]:
    if columns.scores:
        for column in columns.scores:
            _find(table, column, (), "score", "--score", where)
        return columns.scores
    ours = [c for c in table.column_names if c.startswith("score_")]
    if not ours and "score" in table.column_names:
        ours = ["score"]
    if columns.threshold is not None and not ours:
        raise InputError(f"--threshold needs a score; name its column in {where} with --score")
    return tuple(ours)


def _scores(
    table: pa.Table,
    columns: tuple[str, ...],
    classes: tuple[str, ...],
    positive: int | None,
    where: str,
) -> np.ndarray | None:
    if not columns:
        return None
    values = []
    for column in columns:
        array = table.column(column)
        if not (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
            raise InputError(f"the score column {column!r} of {where} does not hold numbers")
        x = array.to_numpy().astype(np.float64)
        bad = ~np.isfinite(x)
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} of {len(x)} scores in the column {column!r} of {where} are "
                f"missing, NaN or infinite, the first in row {int(bad.argmax()) + 1}; leave those "
                "rows out or repair the model"
            )
        if x.min() < -1e-6 or x.max() > 1 + 1e-6:
            raise InputError(
                f"the score column {column!r} of {where} reaches from {x.min():.4g} to "
                f"{x.max():.4g}; give probabilities (apply softmax or a sigmoid first)"
            )
        values.append(x)
    if len(values) == 1 and len(classes) == 2:
        other = 1.0 - values[0]
        return np.stack([other, values[0]] if positive == 1 else [values[0], other], 1)
    if len(values) != len(classes):
        raise InputError(
            f"{where} has {len(values)} score columns for {len(classes)} classes "
            f"({', '.join(classes)}); give one for each, or for two classes that of the positive"
        )
    named = {c.removeprefix("score_"): i for i, c in enumerate(columns)}
    if set(named) == set(classes):
        values = [values[named[c]] for c in classes]
    return np.stack(values, 1)


def _decide(
    scores_NC: np.ndarray, threshold: float | None, classes: tuple[str, ...], positive: int | None
) -> np.ndarray:
    if threshold is None:
        if len(classes) == 2 and positive is not None:
            return np.where(scores_NC[:, positive] >= 0.5, positive, 1 - positive)
        return scores_NC.argmax(1)
    if len(classes) != 2 or positive is None:
        raise InputError(f"--threshold is for two classes; there are {len(classes)}")
    return np.where(scores_NC[:, positive] >= threshold, positive, 1 - positive)
