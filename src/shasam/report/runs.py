"""Runs that are shown together, and the subject that a page shows of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shasam.metrics import Estimate, catalogue, names_of, values
from shasam.report.columns import Columns
from shasam.report.predictions import read_predictions
from shasam.report.subject import OF_RUNS, Subject, counts_of
from shasam.runs.directory import PREDICTIONS, RunDirectory
from shasam.types import Predictions


def predictions_of(run: RunDirectory) -> Predictions:
    """The test predictions of a run, under its name."""
    return read_predictions(run.file(PREDICTIONS), Columns(), run.name)[0]


def subject_of(run: RunDirectory, draws: int = 2000, seed: int = 0) -> Subject:
    """A run's numbers, computed from its predictions."""
    drawn = replace(OF_RUNS, draws=draws, seed=seed)
    rows = predictions_of(run)
    return Subject.of(rows, drawn, unit=run.unit, method=run.method, seed=run.seed)


def recorded_subject(
    run: RunDirectory, draws: int = 2000, seed: int = 0, *, complete: bool = False
) -> Subject:
    """A run's numbers as ``metrics.json`` has them, where they agree with its predictions.

    Else, or where ``complete`` asks for every metric and some are missing, they are computed.
    """
    rows = predictions_of(run)
    drawn = replace(OF_RUNS, draws=draws, seed=seed)
    known = _recorded(run, rows, complete)
    return Subject.of(rows, drawn, estimates=known, unit=run.unit, method=run.method, seed=run.seed)


def _recorded(run: RunDirectory, rows: Predictions, complete: bool) -> dict[str, Estimate] | None:
    """The estimates of ``metrics.json``, or None where they are too few or not of these rows."""
    found = run.metrics().get("test")
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        return None
    names = names_of(rows.groups, scores=rows.scored)
    if not set(names if complete else catalogue.SHOWN["headline"]) <= set(found):
        return None
    estimates = {name: Estimate.from_dict(found[name]) for name in names if name in found}
    for name, value in values(counts_of(rows), positive=rows.positive).items():
        if name in estimates and not _same(estimates[name].value, value):
            return None  # the file says something else than the predictions: believe those
    return estimates


def _same(a: float, b: float) -> bool:
    return abs(a - b) < 1e-9 or (math.isnan(a) and math.isnan(b))


def found_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories; a folder that is none stands for the finished runs inside it."""
    out: list[Path] = []
    for path in paths:
        if path.is_dir() and not (path / "predictions.parquet").is_file():
            inside = sorted(p.parent for p in path.glob("*/predictions.parquet"))
            if inside:
                out += inside
                continue
        out.append(path)
    return out


def finite(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
