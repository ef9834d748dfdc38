"""Read predictions of any model from a table: columns become codes, errors name the row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shasam.errors import Argument, DataError, InputError
from shasam.metrics import intersect
from shasam.metrics.scores import SCORE_BINS
from shasam.registry import did_you_mean
from shasam.report.columns import (
    ID,
    LABELS,
    PREDICTIONS,
    ColumnChoice,
    Columns,
    absent_values,
    check_plain,
    checked_score,
    choose,
    codes_of,
    context_of,
    count_column,
    followed_as_numbers,
    numbers_of,
    own_groups,
    without_missing,
)
from shasam.tables import UNKNOWN, TableFile, open_table, slices
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Rows counted instead of kept: in batches from large tables, or by a database beforehand.
#
# Metrics need no single rows: how many rows have a label, a prediction and groups in common is
# enough. Scores are put in bins first; each entry then holds the mean score of its rows.
# -------------------------------------------------------------------------------------------------

ROWS = "#rows"  # the column of counts in what is returned
MOST_ROWS = 2_000_000  # that are kept; beyond that they are counted
_SURELY = 1.25  # times as many, by the length of the first lines
MOST_SCORES = 2  # columns whose bins are counted together
MOST_COUNTED = 2**53  # rows; a float64 holds every whole number up to it
_MERGE = 16  # counted batches that wait to be added up
_BIN, _SURE = "#bin", "#sure"


def counted(
    batches: Iterable[pa.Table],
    chosen: ColumnChoice,
    threshold: float | None,
    where: str,
    told: Callable[[int], None] = lambda done: None,
) -> pa.Table:
    """Return one entry for each combination of values that occurs.

    It has the columns of ``chosen`` and #rows.

    ``told`` is called with the number of rows that are done.
    """
    if len(chosen.scores) > MOST_SCORES:
        raise InputError(
            f"{where} is read in batches, which takes up to {MOST_SCORES} score columns; "
            f"it has {len(chosen.scores)}. Name a prediction with ",
            Argument("prediction"),
            " and no ",
            Argument("score"),
            ", or audit a sample of its rows",
        )
    keys = [c for c in chosen.all if c not in chosen.scores]
    bins = [f"{_BIN}{i}" for i in range(len(chosen.scores))]
    sums = [(c, "sum") for c in (*chosen.scores, ROWS)]
    names = [*keys, *bins, _SURE, *chosen.scores, ROWS]
    waiting: list[pa.Table] = []
    done = 0
    for batch in batches:
        check_plain(batch, chosen.all, where)
        table = _binned(batch, chosen, bins, threshold, where, done)
        table = table.group_by([*keys, *bins, _SURE]).aggregate(sums).rename_columns(names)
        waiting.append(_plain(table))
        done += batch.num_rows
        told(done)
        if len(waiting) == _MERGE:
            waiting = [_added(waiting, [*keys, *bins, _SURE], sums, names)]
    whole = _added(waiting, [*keys, *bins, _SURE], sums, names)
    for score, place in zip(chosen.scores, bins, strict=True):
        means = _means(whole, score, place, threshold if len(bins) == 1 else None)
        whole = whole.set_column(whole.column_names.index(score), score, pa.array(means))
    return whole.select([*chosen.all, *bins, ROWS])


def given_counts(source: TableFile, chosen: ColumnChoice, column: str) -> pa.Table:
    """Return a table that was counted before.

    Each line stands for as many rows as ``column`` says.
    """
    table = source.read([*chosen.all, column])
    values = table.column(column)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise InputError(f"the counts in the column {column!r} of {source.name} are not numbers")
    n = values.to_numpy(zero_copy_only=False).astype(np.float64)
    bad = ~np.isfinite(n) | (n < 0) | (n != np.rint(n)) | (n > MOST_COUNTED)
    if bad.any():
        raise InputError(
            f"{int(bad.sum()):,} lines of {source.name} have no whole number up to 2^53 in "
            f"{column!r}, the first is line {int(bad.argmax()) + 1:,}"
        )
    if n.sum() > MOST_COUNTED:
        raise InputError(
            f"the counts in {column!r} of {source.name} add up to {n.sum():.3g} rows; more than "
            "2^53 cannot be told apart, so divide them all by one number"
        )
    table = table.append_column(ROWS, pa.array(n.astype(np.int64)))
    return table.filter(pc.greater(table.column(ROWS), 0))


def _binned(
    batch: pa.Table,
    chosen: ColumnChoice,
    bins: list[str],
    threshold: float | None,
    where: str,
    done: int,
) -> pa.Table:
    """Return the batch with a bin for each score, whether it reaches the threshold, and a count of
    1.

    A score on the edge of two bins has a bin of its own, so that it stays on the same side of the
    edges of calibration's bins.
    """
    sure = np.zeros(batch.num_rows, dtype=bool)
    for column, place in zip(chosen.scores, bins, strict=True):
        x = checked_score(batch.column(column), column, where, first=done)
        scaled = x * SCORE_BINS
        edge = np.floor(scaled)
        batch = batch.append_column(place, pa.array((2 * edge + (scaled != edge)).astype(np.int16)))
        batch = batch.set_column(batch.column_names.index(column), column, pa.array(x))
        if threshold is not None:
            sure = x >= threshold
    batch = batch.append_column(_SURE, pa.array(sure))
    return batch.append_column(ROWS, pa.array(np.ones(batch.num_rows, dtype=np.int64)))


def _means(table: pa.Table, score: str, place: str, threshold: float | None) -> np.ndarray:
    n = table.column(ROWS).to_numpy()
    mean = table.column(score).to_numpy() / n
    bins = table.column(place).to_numpy().astype(np.int64)
    mean = np.where(bins % 2 == 0, (bins // 2) / SCORE_BINS, mean)  # free of rounding on the edges
    if threshold is None:
        return mean
    sure = table.column(_SURE).to_numpy(zero_copy_only=False)
    below = np.nextafter(threshold, -np.inf)
    return np.where(sure, np.maximum(mean, threshold), np.minimum(mean, below))


def _added(
    tables: list[pa.Table], keys: list[str], sums: list[tuple[str, str]], names: list[str]
) -> pa.Table:
    whole = pa.concat_tables(tables, promote_options="permissive")
    return whole.group_by(keys).aggregate(sums).rename_columns(names)


def _plain(table: pa.Table) -> pa.Table:
    """Write out dictionaries: each batch may have another one."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    return table


# -------------------------------------------------------------------------------------------------
# Predictions of any model from a table: columns become codes, errors name column and remedy.
# -------------------------------------------------------------------------------------------------

MOST_GROUPS = 50
MOST_CLASSES = 1000
PLAIN = (*LABELS, "y", "true", "class", "outcome")  # names of a label that say nothing about it
_LOOKED_AT = 10_000  # rows of two columns that are compared
NO_IDS = np.zeros(0, dtype=object)


def read_predictions(
    path: Path | TableFile,
    asked: Columns,
    name: str | None = None,
    *,
    ids: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Predictions]:
    """Return predictions through each sensitive attribute, and through the intersection of several.

    An error names the column and says what to do. ``ids`` reads the column ``id`` too, by which the
    rows of two files are matched. The rows of a large table are counted in batches and not kept.
    """
    source = path if isinstance(path, TableFile) else open_table(path)
    where, metadata = source.name, source.metadata
    chosen = choose(source, asked)
    matched = ids and ID in source.column_names
    wanted = list(dict.fromkeys([*chosen.all, *([ID] if matched else [])]))
    chosen = _without_offered(chosen, source, metadata)
    wanted = [c for c in wanted if c in chosen.all or c == ID]
    table = _rows_of(source, asked, chosen, wanted, progress)
    if not table.num_rows:
        raise DataError(f"{where} has no rows; there is nothing to audit")
    kept = ROWS not in table.column_names
    repeats = None if kept else table.column(ROWS).to_numpy()
    table = _with_derived(table, chosen)
    named = ("sensitive",) if "sensitive_names" in metadata else ()
    numbers = followed_as_numbers(table, chosen, asked, named)
    unknown = _protocol(metadata, "missing") in UNKNOWN and asked.missing == "error"
    table = without_missing(table, chosen, asked.missing, where, repeats, numbers, unknown=unknown)
    if not table.num_rows:
        raise DataError(f"every row of {where} has a missing value; there is nothing to audit")
    t, label_names = codes_of(
        table.column(chosen.label), chosen.label, where, _class_names(metadata, chosen)
    )
    _check_classes(label_names, chosen.label, where)
    classes, t = _class_order(label_names, t, asked, where)
    positive = classes.index(asked.positive) if asked.positive else None
    if positive is None and len(classes) == 2:
        positive = 1
    if chosen.offered and {c.removeprefix("score_") for c in chosen.scores} != set(classes):
        chosen = replace(chosen, scores=(), offered=False)
        _need_prediction(chosen, source)
    ranks = asked.threshold is not None and len(chosen.scores) == 1 and len(classes) == 2
    scores_NC, span = _scores(table, chosen.scores, classes, positive, where, ranks)
    if chosen.prediction is not None:
        p = _predicted(table, chosen, classes, where, metadata)
    else:
        threshold = asked.threshold
        if span is not None and threshold is not None:
            favourable = positive or 0
            above = table.column(chosen.scores[0]).to_numpy() >= threshold
            p = np.where(above, favourable, 1 - favourable)
        else:
            p = _decide(scores_NC, threshold, classes, positive)
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
        threshold=_threshold(asked, chosen, positive),
        span=span,
        bins=None if kept else _bins_of(table),
        context=context_of(table, chosen, where),
    )
    return _by_attribute(whole, table, chosen, source, numbers)


def _bins_of(table: pa.Table) -> np.ndarray | None:
    """Return the bins of each score column, where rows were counted here."""
    names = [name for name in table.column_names if name.startswith(_BIN)]
    return np.stack([table.column(name).to_numpy() for name in names], 1) if names else None


def _without_offered(
    chosen: ColumnChoice, source: TableFile, metadata: Mapping[str, str]
) -> ColumnChoice:
    """Leave out offered scores of a table too large to be read before it is known what they are."""
    names = _class_names(metadata, chosen)
    ours = names is not None and {f"score_{n}" for n in names} == set(chosen.scores)
    if not chosen.offered or ours or (source.rows or 0) <= MOST_ROWS:
        return chosen
    left = replace(chosen, scores=(), offered=False)
    _need_prediction(left, source)
    return left


def _need_prediction(chosen: ColumnChoice, source: TableFile) -> None:
    if chosen.prediction is None:
        raise InputError(
            f"{source.name} has no prediction, and its columns that begin with score_ are not "
            "named by the classes; name the prediction with ",
            Argument("prediction"),
            " or the scores with ",
            Argument("score"),
        )


def _with_derived(table: pa.Table, chosen: ColumnChoice) -> pa.Table:
    """Return the table with a column for each attribute that is given by a rule, such as age<25."""
    for rule, _ in chosen.derived:
        from shasam.data.rules import apply_rule

        made = apply_rule(rule, table, what="sensitive attribute")
        names = [made.names[code] if code >= 0 else None for code in made.codes.tolist()]
        table = table.append_column(rule, pa.array(names, pa.string()))
    return table


def _rows_of(
    source: TableFile,
    asked: Columns,
    chosen: ColumnChoice,
    wanted: list[str],
    progress: Callable[[int, int], None] | None,
) -> pa.Table:
    """Return the rows, counted where there are many; rows that have weights are kept one by one."""
    if asked.counts:
        return given_counts(source, chosen, count_column(source))
    keep = chosen.weight is not None
    if not keep and (source.rows or 0) > MOST_ROWS:
        told = partial(_tell, progress, source.rows)
        batches = source.batches(chosen.all)
        return counted(batches, chosen, asked.threshold, source.name, told)
    if not keep and (source.about_rows or 0) > _SURELY * MOST_ROWS:
        with suppress(pa.ArrowException):  # rows that are not like the first are read at once
            table = counted(source.stream(chosen.all), chosen, asked.threshold, source.name)
            if int(table.column(ROWS).to_numpy().sum()) > MOST_ROWS:
                return table
    table = source.read(wanted)
    if not keep and table.num_rows > MOST_ROWS:
        return counted(slices(table.select(chosen.all)), chosen, asked.threshold, source.name)
    return table


def _tell(progress: Callable[[int, int], None] | None, rows: int | None, done: int) -> None:
    if progress is not None:
        progress(done, rows or done)


def _by_attribute(
    whole: Predictions,
    table: pa.Table,
    chosen: ColumnChoice,
    source: TableFile,
    numbers: tuple[str, ...],
) -> list[Predictions]:
    """Return the predictions through each attribute, and through the intersection of several.

    Those that are followed as ``numbers`` come last and are not intersected.
    """
    where, told = source.name, _told_names(source, chosen)
    outcome = told.get(chosen.label, "" if chosen.label in PLAIN else chosen.label)
    whole, found = replace(whole, outcome=outcome), []
    own = own_groups(source)
    for column in chosen.sensitive:
        if column in numbers:
            continue
        given = _names(source.metadata, "sensitive_names") if column == "sensitive" else None
        known = ~absent_values(table.column(column))  # some are not, in a run that used such rows
        s, names = codes_of(table.column(column).filter(pa.array(known)), column, where, given)
        if given is None and set(names) <= set(own.get(column, ())):
            s, names = np.array([own[column].index(name) for name in names])[s], own[column]
        if len(names) > MOST_GROUPS and given is None:
            raise InputError(
                f"the sensitive column {column!r} of {where} has {len(names)} distinct values, and "
                f"at most {MOST_GROUPS} groups are compared; give groups by a rule, such as ",
                Argument("sensitive", f"{column}<35"),
                f" or '{column}:[0,20,40,60]'",
            )
        if len(names) < 2:
            raise InputError(
                f"the sensitive column {column!r} of {where} holds one group only "
                f"({names[0]!r}); a gap needs two: give rows of another group, or another "
                "column with ",
                Argument("sensitive"),
            )
        attribute = told.get(column) or column
        seen = whole.only(known)
        found.append(replace(seen, sensitive=s, groups=names, attribute=attribute))
    if len(found) > 1 and list(chosen.sensitive) != list(own):  # ours hold the intersection
        s, names = intersect([p.sensitive for p in found], [p.groups for p in found])
        attribute = " & ".join(p.attribute for p in found)
        found.append(replace(whole, sensitive=s, groups=names, attribute=attribute))
    everyone = np.zeros(len(whole), np.int64)
    for column in numbers:
        s = numbers_of(table, column, "sensitive", where)
        attribute = told.get(column) or column
        found.append(
            replace(whole, sensitive=everyone, groups=("all",), attribute=attribute, numbers=s)
        )
    return found


def _class_names(metadata: Mapping[str, str], chosen: ColumnChoice) -> tuple[str, ...] | None:
    return _names(metadata, "target_names") if chosen.label == "target" else None


def _names(metadata: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    """Return the names that our own prediction files carry for integer codes."""
    if key not in metadata:
        return None
    try:
        names = json.loads(metadata[key])
    except (ValueError, RecursionError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None


def _told_names(source: TableFile, chosen: ColumnChoice) -> dict[str, str]:
    """Return what our own columns ``target`` and ``sensitive`` are called by people, if that is
    known.

    The predictions of a run say it. Those that ``shasam predict`` writes (with columns p(class))
    hold the columns of training too: the one with the same texts is what ours was made of.
    """
    ours = [c for c in ("target", "sensitive") if c in (chosen.label, *chosen.sensitive)]
    found: dict[str, str] = {c: n for c in ours if (n := _protocol(source.metadata, c))}
    names = source.column_names
    asked = [c for c in ours if c not in found]
    if not asked or not any(name.startswith("p(") for name in names):
        return found
    none = {*ours, *PREDICTIONS, ID, *names[: names.index(asked[0])]}
    others = [c for c in names if c not in none and names.count(c) == 1]
    try:
        rows = next(source.batches([*asked, *others], text=[*asked, *others])).slice(0, _LOOKED_AT)
    except (DataError, InputError, StopIteration):  # of a column that the audit does not need
        return found
    for column in asked:
        same = [c for c in others if rows.column(c).equals(rows.column(column))]
        if len(same) == 1:
            found[column] = same[0]
    return found


def _protocol(metadata: Mapping[str, str], key: str) -> str:
    """Return what our own prediction files say of the question that was asked."""
    try:
        protocol = json.loads(metadata.get("protocol", "{}"))
    except (ValueError, RecursionError):
        return ""
    return str(protocol.get(key) or "") if isinstance(protocol, dict) else ""


def _check_classes(names: tuple[str, ...], label: str, where: str) -> None:
    if len(names) > MOST_CLASSES:
        raise InputError(
            f"the label column {label!r} of {where} has {len(names):,} distinct "
            f"values; an audit takes up to {MOST_CLASSES:,} classes. Name another column with ",
            Argument("label"),
        )


def _class_order(
    found: tuple[str, ...], t: np.ndarray, asked: Columns, where: str
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the classes in the order asked for; the positive one last where there are two."""
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
            "Name all classes with ",
            Argument("classes"),
            ", or give rows of the others",
        )
    place = np.array([classes.index(name) for name in found], dtype=np.int64)
    return tuple(classes), place[t]


def _predicted(
    table: pa.Table,
    chosen: ColumnChoice,
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
            "label: use the same names in labels and predictions, or name all classes with ",
            Argument("classes"),
            did_you_mean(unknown[0], classes),
        )
    return out


def _scores(
    table: pa.Table,
    columns: tuple[str, ...],
    classes: tuple[str, ...],
    positive: int | None,
    where: str,
    ranks: bool,
) -> tuple[np.ndarray, tuple[float, float] | None]:
    """Return class probabilities, or ranks scaled to 0..1 and the range that they had."""
    if not columns:
        return np.zeros((table.num_rows, 0)), None
    values = [checked_score(table.column(c), c, where, ranks=ranks) for c in columns]
    if len(values) == 1 and len(classes) == 2:
        x, span = values[0], None
        low, high = float(x.min()), float(x.max())
        if low < 0 or high > 1:
            x, span = (x - low) / max(high - low, 1e-300), (low, high)
        other = 1.0 - x
        return np.stack([other, x] if positive == 1 else [x, other], 1), span
    if len(values) != len(classes):
        raise InputError(
            f"{where} has {len(values)} score columns for {len(classes)} classes "
            f"({', '.join(classes)}); give one for each, or for two classes that of the positive"
        )
    named = {c.removeprefix("score_"): i for i, c in enumerate(columns)}
    if set(named) == set(classes):
        values = [values[named[c]] for c in classes]
    return np.stack(values, 1), None


def _threshold(asked: Columns, chosen: ColumnChoice, positive: int | None) -> float | None:
    """Return the threshold that decided, if predictions come from scores."""
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
        raise InputError(Argument("threshold"), f" is for two classes; there are {len(classes)}")
    return np.where(scores_NC[:, positive] >= threshold, positive, 1 - positive)
