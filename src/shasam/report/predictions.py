"""Predictions of any model from a table: columns become codes, errors name column and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from shasam.errors import DataError, InputError
from shasam.metrics import intersect
from shasam.registry import did_you_mean
from shasam.report.codes import checked_score, codes_of, without_missing
from shasam.report.columns import ID, LABELS, Chosen, Columns, choose, count_column
from shasam.report.context import context_of
from shasam.report.counting import MOST_ROWS, ROWS, counted, given_counts
from shasam.tables import TableFile, open_table
from shasam.tables.table import slices
from shasam.types import Predictions

MOST_GROUPS = 50
MOST_CLASSES = 1000
PLAIN = (*LABELS, "y", "true", "class", "outcome")  # names of a label that say nothing about it
NO_IDS = np.zeros(0, dtype=object)


def read_predictions(
    path: Path | TableFile,
    asked: Columns,
    name: str | None = None,
    *,
    ids: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Predictions]:
    """Predictions through each sensitive attribute, and through the intersection of several.

    An error names the column and says what to do. ``ids`` reads the column ``id`` too, by which the
    rows of two files are matched. The rows of a large table are counted in batches and not kept.
    """
    source = path if isinstance(path, TableFile) else open_table(path)
    where, metadata = source.name, source.metadata
    chosen = choose(source, asked)
    matched = ids and ID in source.column_names
    wanted = list(dict.fromkeys([*chosen.all, *([ID] if matched else [])]))
    table = _rows_of(source, asked, chosen, wanted, progress)
    if not table.num_rows:
        raise DataError(f"{where} has no rows; there is nothing to audit")
    kept = ROWS not in table.column_names
    repeats = None if kept else table.column(ROWS).to_numpy()
    table = without_missing(table, chosen, asked.missing, where, repeats)
    if not table.num_rows:
        raise DataError(f"every row of {where} has a missing value; there is nothing to audit")
    t, label_names = codes_of(
        table.column(chosen.label), chosen.label, where, _class_names(metadata, chosen)
    )
    if len(label_names) > MOST_CLASSES:
        raise InputError(
            f"the label column {chosen.label!r} of {where} has {len(label_names):,} distinct "
            f"values; an audit takes up to {MOST_CLASSES:,} classes. Name another column with "
            "--label"
        )
    classes, t = _class_order(label_names, t, asked, where)
    positive = classes.index(asked.positive) if asked.positive else None
    if positive is None and len(classes) == 2:
        positive = 1
    scores_NC = _scores(table, chosen.scores, classes, positive, where)
    if chosen.prediction is not None:
        p = _predicted(table, chosen, classes, where, metadata)
    else:
        p = _decide(scores_NC, asked.threshold, classes, positive)
    whole = Predictions(
        ids=table.column(ID).to_numpy(zero_copy_only=False) if matched and kept else NO_IDS,
        target=t,
        prediction=p,
        sensitive=t,  # of each attribute below
        scores=scores_NC,
        classes=classes,
        positive=positive,
        repeats=None if kept else table.column(ROWS).to_numpy(),
        name=name or (source.path.stem if source.content is None else source.name),
        outcome=_protocol(metadata, "target") or ("" if chosen.label in PLAIN else chosen.label),
        threshold=_threshold(asked, chosen, positive),
        context=context_of(table, chosen, where),
    )
    return _by_attribute(whole, table, chosen, where, metadata)


def _rows_of(
    source: TableFile,
    asked: Columns,
    chosen: Chosen,
    wanted: list[str],
    progress: Callable[[int, int], None] | None,
) -> pa.Table:
    """The rows, counted where there are many; rows that have weights are kept one by one."""
    if asked.counts:
        return given_counts(source, chosen, count_column(source))
    keep = chosen.weight is not None
    if not keep and (source.rows or 0) > MOST_ROWS:
        told = partial(_tell, progress, source.rows)
        batches = source.batches(chosen.all)
        return counted(batches, chosen, asked.threshold, source.name, told)
    table = source.read(wanted)
    if not keep and table.num_rows > MOST_ROWS:
        return counted(slices(table.select(chosen.all)), chosen, asked.threshold, source.name)
    return table


def _tell(progress: Callable[[int, int], None] | None, rows: int | None, done: int) -> None:
    if progress is not None:
        progress(done, rows or done)


def _by_attribute(
    whole: Predictions, table: pa.Table, chosen: Chosen, where: str, metadata: Mapping[str, str]
) -> list[Predictions]:
    """The predictions through each attribute, and through the intersection of several."""
    found = []
    for column in chosen.sensitive:
        given = _names(metadata, "sensitive_names") if column == "sensitive" else None
        s, names = codes_of(table.column(column), column, where, given)
        if len(names) > MOST_GROUPS:
            raise InputError(
                f"the sensitive column {column!r} of {where} has {len(names)} distinct values; "
                "give it as groups (for example 'under 35' and '35 and over')"
            )
        if len(names) < 2:
            raise InputError(
                f"the sensitive column {column!r} of {where} holds one group only "
                f"({names[0]!r}); a gap needs two: give rows of another group, or another "
                "column with --sensitive"
            )
        attribute = _attribute(metadata, column)
        found.append(replace(whole, sensitive=s, groups=names, attribute=attribute))
    if len(found) > 1:
        s, names = intersect([p.sensitive for p in found], [p.groups for p in found])
        attribute = " & ".join(p.attribute for p in found)
        found.append(replace(whole, sensitive=s, groups=names, attribute=attribute))
    return found


def _class_names(metadata: Mapping[str, str], chosen: Chosen) -> tuple[str, ...] | None:
    return _names(metadata, "target_names") if chosen.label == "target" else None


def _names(metadata: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    """The names that our own prediction files carry for integer codes."""
    if key not in metadata:
        return None
    try:
        names = json.loads(metadata[key])
    except (ValueError, RecursionError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None


def _attribute(metadata: Mapping[str, str], column: str) -> str:
    return (_protocol(metadata, "sensitive") if column == "sensitive" else "") or column


def _protocol(metadata: Mapping[str, str], key: str) -> str:
    """What our own prediction files say of the question that was asked."""
    try:
        protocol = json.loads(metadata.get("protocol", "{}"))
    except (ValueError, RecursionError):
        return ""
    return str(protocol.get(key) or "") if isinstance(protocol, dict) else ""


def _class_order(
    found: tuple[str, ...], t: np.ndarray, asked: Columns, where: str
) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes in the order asked for; the positive one last where there are two."""
    classes = asked.classes or found
    if asked.positive and asked.positive not in classes:
        raise InputError(
            f"the positive class {asked.positive!r} is not a label of {where}"
            f"{did_you_mean(asked.positive, classes)}"
        )
    if len(classes) == 2 and asked.positive == classes[0]:
        classes = (classes[1], classes[0])
    for name in found:
        if name not in classes:
            raise InputError(
                f"the label {name!r} of {where} is not among the classes"
                f"{did_you_mean(name, classes)}"
            )
    if len(classes) < 2:
        raise InputError(
            f"all labels of {where} are {found[0]!r}: an audit needs two classes. "
            "Name all classes with --classes, or give rows of the others"
        )
    place = np.array([classes.index(name) for name in found], dtype=np.int64)
    return tuple(classes), place[t]


def _predicted(
    table: pa.Table,
    chosen: Chosen,
    classes: tuple[str, ...],
    where: str,
    metadata: Mapping[str, str],
) -> np.ndarray:
    column = chosen.prediction or ""
    given = _class_names(metadata, chosen) if column == "prediction" else None
    p, names = codes_of(table.column(column), column, where, given)
    place = np.full(len(names), -1, dtype=np.int64)
    for i, name in enumerate(names):
        if name in classes:
            place[i] = classes.index(name)
    out = place[p]
    if (out < 0).any():
        unknown = [names[i] for i in np.unique(p[out < 0])]
        raise InputError(
            f"{int((out < 0).sum())} predictions of {where} are {unknown[0]!r}, which is not a "
            "label: use the same names in labels and predictions, or name all classes with "
            f"--classes{did_you_mean(unknown[0], classes)}"
        )
    return out


def _scores(
    table: pa.Table,
    columns: tuple[str, ...],
    classes: tuple[str, ...],
    positive: int | None,
    where: str,
) -> np.ndarray:
    if not columns:
        return np.zeros((table.num_rows, 0))
    values = [checked_score(table.column(column), column, where) for column in columns]
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


def _threshold(asked: Columns, chosen: Chosen, positive: int | None) -> float | None:
    """The one that decided, if predictions come from scores."""
    if chosen.prediction is not None or positive is None:
        return None
    return 0.5 if asked.threshold is None else asked.threshold


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
