"""Which column of a table is the label, the prediction, the scores and the groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shasam.errors import InputError
from shasam.metrics.slices import column_of_rule, is_rule
from shasam.registry import did_you_mean
from shasam.tables import TableFile
from shasam.tables.missing import Missing

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


@dataclass(frozen=True)
class Chosen:
    """Columns that are in the table."""

    label: str
    prediction: str | None  # None: decided from the scores
    scores: tuple[str, ...]
    sensitive: tuple[str, ...]
    weight: str | None = None
    time: str | None = None
    sliced: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """Each column once."""
        single = (self.label, self.prediction, self.weight, self.time)
        one = tuple(c for c in single if c is not None)
        return list(dict.fromkeys((*one, *self.scores, *self.sensitive, *self.sliced)))


def choose(table: TableFile, asked: Columns) -> Chosen:
    """The columns to read; a complaint says which one is not there and how to name another."""
    if asked.prediction is not None and asked.threshold is not None:
        raise InputError(
            f"--threshold {asked.threshold:g} makes predictions from the score, and --prediction "
            f"{asked.prediction} names a column that has them already; give one of the two"
        )
    if asked.weight is not None and asked.counts:
        raise InputError(
            "--weight and --counts exclude each other: a line of counts stands for whole rows. "
            "Give weights row by row"
        )
    label = _find(table, asked.label, LABELS, "label", "--label")
    found = [
        _find(table, column, SENSITIVE, "sensitive attribute", "--sensitive")
        for column in asked.sensitive or (None,)
    ]
    scores = _score_columns(table, asked)
    prediction = asked.prediction
    if prediction is None and asked.threshold is None:
        prediction = next((c for c in PREDICTIONS if c in table.column_names), None)
    if prediction is not None:
        _find(table, prediction, (), "prediction", "--prediction")
    if prediction is None and not scores:
        raise InputError(
            f"{table.name} has neither a prediction nor a score; name one with --prediction or "
            f"--score (its columns: {', '.join(table.column_names)})"
        )
    for column, what in ((asked.weight, "weight"), (asked.time, "time")):
        if column is not None:
            _find(table, column, (), what, f"--{what}")
    sliced, rules = _sliced(table, asked.slices)
    return Chosen(label, prediction, scores, tuple(found), asked.weight, asked.time, sliced, rules)


def _sliced(table: TableFile, asked: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that slices need, and the rules among what was asked for."""
    rules = tuple(text for text in asked if text not in table.column_names and is_rule(text))
    plain = [text for text in asked if text not in rules]
    needed = [*plain, *(column_of_rule(text) for text in rules)]
    for column in needed:
        _find(table, column, (), "slice", "--slices")
    return tuple(dict.fromkeys(needed)), rules


def count_column(table: TableFile) -> str:
    """The column that says how many rows a line stands for."""
    return _find(table, None, COUNTS, "number of rows", "AS n in the query")


def _find(table: TableFile, given: str | None, usual: Sequence[str], what: str, flag: str) -> str:
    known = table.column_names
    if given is None:
        for column in usual:
            if column in known:
                return column
        raise InputError(
            f"{table.name} has no column called {' or '.join(usual)}; name the {what} with {flag} "
            f"(its columns: {', '.join(known)})"
        )
    if given not in known:
        raise InputError(
            f"{table.name} has no column {given!r} for the {what}{did_you_mean(given, known)}"
        )
    return given


def _score_columns(table: TableFile, asked: Columns) -> tuple[str, ...]:
    if asked.scores:
        for column in asked.scores:
            _find(table, column, (), "score", "--score")
        return asked.scores
    ours = [c for c in table.column_names if c.startswith("score_")]
    if not ours and "score" in table.column_names:
        ours = ["score"]
    if asked.threshold is not None and not ours:
        raise InputError(f"--threshold needs a score; name its column in {table.name} with --score")
    return tuple(ours)
