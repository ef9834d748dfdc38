"""Rows counted instead of kept: in batches from large tables, or by a database beforehand.

Metrics need no single rows: how many rows have a label, a prediction and groups in common is
enough. Scores are put in bins first; each entry then holds the mean score of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shasam.errors import InputError
from shasam.report.codes import checked_score
from shasam.report.columns import Chosen
from shasam.tables import TableFile

ROWS = "#rows"  # the column of counts in what is returned
BINS = 3000  # of scores: a multiple of the 15 of calibration and of the 100 of densities
MOST_ROWS = 2_000_000  # that are kept; beyond that they are counted
MOST_SCORES = 2  # columns whose bins are counted together
_MERGE = 16  # counted batches that wait to be added up
_BIN, _SURE = "#bin", "#sure"


def counted(
    batches: Iterable[pa.Table],
    chosen: Chosen,
    threshold: float | None,
    where: str,
    told: Callable[[int], None] = lambda done: None,
) -> pa.Table:
    """One entry for each combination of values that occurs: the columns of ``chosen`` and #rows.

    ``told`` is called with the number of rows that are done.
    """
    if len(chosen.scores) > MOST_SCORES:
        raise InputError(
            f"{where} is read in batches, which takes up to {MOST_SCORES} score columns; "
            f"it has {len(chosen.scores)}. Name a prediction with --prediction and no --score, or "
            "audit a sample of its rows"
        )
    keys = [c for c in chosen.all if c not in chosen.scores]
    bins = [f"{_BIN}{i}" for i in range(len(chosen.scores))]
    sums = [(c, "sum") for c in (*chosen.scores, ROWS)]
    names = [*keys, *bins, _SURE, *chosen.scores, ROWS]
    waiting: list[pa.Table] = []
    done = 0
    for batch in batches:
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
    return whole.select([*chosen.all, ROWS])


def given_counts(source: TableFile, chosen: Chosen, column: str) -> pa.Table:
    """A table that was counted before: each line stands for as many rows as ``column`` says."""
    table = source.read([*chosen.all, column])
    values = table.column(column)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise InputError(f"the counts in the column {column!r} of {source.name} are not numbers")
    n = values.to_numpy(zero_copy_only=False).astype(np.float64)
    bad = ~np.isfinite(n) | (n < 0) | (n != np.rint(n))
    if bad.any():
        raise InputError(
            f"{int(bad.sum()):,} lines of {source.name} have no whole number in {column!r}, the "
            f"first is line {int(bad.argmax()) + 1:,}"
        )
    table = table.append_column(ROWS, pa.array(n.astype(np.int64)))
    return table.filter(pc.greater(table.column(ROWS), 0))


def _binned(
    batch: pa.Table,
    chosen: Chosen,
    bins: list[str],
    threshold: float | None,
    where: str,
    done: int,
) -> pa.Table:
    """The batch with a bin for each score, whether it reaches the threshold, and a count of 1.

    A score on the edge of two bins has a bin of its own, so that it stays on the same side of the
    edges of calibration's bins.
    """
    sure = np.zeros(batch.num_rows, dtype=bool)
    for column, place in zip(chosen.scores, bins, strict=True):
        x = checked_score(batch.column(column), column, where, first=done)
        scaled = x * BINS
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
    mean = np.where(bins % 2 == 0, (bins // 2) / BINS, mean)  # free of rounding on the edges
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
    """Dictionaries written out: each batch may have another one."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    return table
