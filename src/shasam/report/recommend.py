"""Which model to take, and why: decided on the validation split, honest about what is not known.

The rule: of the methods whose validation accuracy is within a point of the highest, the one with
the smallest gap (EO mean) on validation; its run with the smallest gap is the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shasam.errors import SpecError
from shasam.metrics import Comparison, compare_seeds
from shasam.registry import did_you_mean
from shasam.report.paired import baseline_of
from shasam.report.words import p_value, percent
from shasam.runs.directory import RunDirectory

TOLERANCE = 0.01  # of accuracy that a smaller gap may cost
FEWEST_SEEDS = 3  # below, nothing is said to be established


@dataclass(frozen=True)
class _Row:
    """A method on validation: its runs, and their accuracy and EO."""

    method: str
    runs: list[RunDirectory]
    accuracy: list[float]
    eo: list[float]

    @property
    def mean_accuracy(self) -> float:
        return sum(self.accuracy) / len(self.accuracy)

    @property
    def mean_eo(self) -> float:
        return sum(self.eo) / len(self.eo)


def named_baseline(methods: Sequence[str], asked: str | None) -> str:
    """The method that others are compared with; one that is asked for must be there."""
    if asked is None:
        return baseline_of(methods)
    for method in methods:
        if asked in (method, method.split(" (")[0]):
            return method
    raise SpecError(
        f"--baseline {asked}: no run here is of that method{did_you_mean(asked, methods)}"
    )


def recommendations(runs: Sequence[RunDirectory], baseline: str | None = None) -> list[str]:
    """A sentence or two for each setting that has several methods."""
    settings: dict[str, list[RunDirectory]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(run)
    out = []
    for name, members in settings.items():
        methods = list(dict.fromkeys(run.method for run in members))
        if len(methods) > 1:
            where = f"On {name}: " if len(settings) > 1 else ""
            out.append(where + _advice(members, named_baseline(methods, baseline)))
    return out


def _advice(runs: Sequence[RunDirectory], baseline: str) -> str:
    rows = {row.method: row for row in _rows(runs)}
    if len(rows) < 2:
        return (
            "Which model to take cannot be said: fewer than two methods have an accuracy and an EO "
            "on the validation split."
        )
    best = max(rows.values(), key=lambda row: row.mean_accuracy)
    near = [r for r in rows.values() if r.mean_accuracy >= best.mean_accuracy - TOLERANCE]
    chosen = min(near, key=lambda row: row.mean_eo)
    model = chosen.runs[min(range(len(chosen.eo)), key=lambda i: chosen.eo[i])]
    why = (
        f"it has the highest accuracy on validation ({percent(best.mean_accuracy)} %) and no other "
        "within a point of it has a smaller EO"
        if chosen is best
        else f"on validation its EO is the smallest ({percent(chosen.mean_eo)} points) of the "
        f"{len(near)} methods within a point of the highest accuracy ({best.method}, "
        f"{percent(best.mean_accuracy)} %)"
    )
    said = f"Take {chosen.method}: {why}. "
    if chosen.method == baseline:
        others = [row for row in rows.values() if row is not chosen]
        said += _established(chosen, min(others, key=lambda row: row.mean_eo))
    elif baseline in rows:
        said += _established(chosen, rows[baseline])
    return f"{said} The model is {model.path.name}, its run with the smallest EO on validation."


def _established(a: _Row, b: _Row) -> str:
    """How much smaller the gap of a is than that of b, and whether that is more than chance."""
    seeds_b = {run.seed: value for run, value in zip(b.runs, b.eo, strict=True)}
    pairs = [(x, seeds_b[r.seed]) for r, x in zip(a.runs, a.eo, strict=True) if r.seed in seeds_b]
    if len(pairs) < FEWEST_SEEDS:
        return (
            f"Against {b.method} (EO {percent(b.mean_eo)}) the difference is not established: they "
            f"have {len(pairs)} seed{'' if len(pairs) == 1 else 's'} in common, and "
            f"{FEWEST_SEEDS} or more would tell (--seeds)."
        )
    found: Comparison = compare_seeds([x for x, _ in pairs], [y for _, y in pairs])
    span = f"{percent(found.low)} to {percent(found.high)} points, {p_value(found.p)}"
    if found.p < 0.05 and found.difference < 0:
        return (
            f"Against {b.method} its EO is smaller by {percent(-found.difference)} points "
            f"({span}, paired over {len(pairs)} seeds)."
        )
    return (
        f"Against {b.method} a smaller EO is not established ({span}, paired over {len(pairs)} "
        "seeds)."
    )


def _rows(runs: Sequence[RunDirectory]) -> list[_Row]:
    made: dict[str, _Row] = {}
    for run in runs:
        val = run.metrics().get("val")
        accuracy, eo = (_value(val, key) for key in ("accuracy", "eo_mean"))
        if accuracy is None or eo is None:
            continue
        row = made.setdefault(run.method, _Row(run.method, [], [], []))
        row.runs.append(run)
        row.accuracy.append(accuracy)
        row.eo.append(eo)
    return list(made.values())


def _value(metrics: Any, key: str) -> float | None:
    entry = metrics.get(key) if isinstance(metrics, dict) else None
    value = entry.get("value") if isinstance(entry, dict) else None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
