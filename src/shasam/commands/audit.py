"""``shasam audit``: how accurate and how unequal the predictions of any model are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def audit(
    files: list[Path],
    /,
    *,
    label: str | None = None,
    prediction: str | None = None,
    score: Annotated[list[str] | None, Parameter(negative=())] = None,
    sensitive: Annotated[list[str] | None, Parameter(negative=())] = None,
    threshold: float | None = None,
    positive: str | None = None,
    classes: Annotated[list[str] | None, Parameter(negative=())] = None,
    missing: Literal["error", "drop", "group"] = "error",
    json: Path | None = None,
    html: Path | None = None,
    figures: Path | None = None,
    fail_over: Annotated[list[str] | None, Parameter(negative=())] = None,
    strata: str = "cell",
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> None:
    """Measure accuracy and fairness of any model's predictions.

    They are read from CSV or Parquet files, whatever framework made them.

    Parameters
    ----------
    files
        One table for each model; several are put side by side. "-" is standard input.
    label
        Column of the true class (default: target, label or y_true).
    prediction
        Column of the predicted class (default: prediction, predicted or y_pred).
    score
        Column of a probability: of the positive class, or repeated, one for each class.
    sensitive
        Column of a sensitive attribute; repeat it for several and their intersection.
    threshold
        Decide for the positive class where its score is at least this.
    positive
        The favourable class (default: the last of two, sorted).
    classes
        All classes, where a file does not hold every one.
    missing
        Rows without a label, prediction or group: an error, left out, or (for a sensitive
        attribute) a group of their own.
    json
        Write all numbers to this file.
    html
        Write the page to this file.
    figures
        Write the figures as SVG files into this folder.
    fail_over
        METRIC=LIMIT: exit with 1 if the value is above it (below it, for accuracies) or undefined;
        METRIC.low=LIMIT uses an end of the interval.
    strata
        What a resampled test set keeps: the size of every cell, of every group, or none.
    draws
        Bootstrap draws.
    seed
        Seed of the bootstrap.
    level
        Level of the intervals.
    """
    from shasam.output.terminal import Screen, complain, say
    from shasam.report.auditing import limits_of, subjects_of, write_json
    from shasam.report.columns import Columns
    from shasam.report.predictions import read_predictions
    from shasam.report.printed import print_subject

    limits = limits_of(fail_over or [])
    columns = Columns(
        label,
        prediction,
        tuple(score or ()),
        tuple(sensitive or ()),
        threshold,
        positive,
        tuple(classes or ()),
        missing,
    )
    names = _distinct(files)
    predicted = [
        read_predictions(f, columns, n, ids=len(files) > 1)
        for f, n in zip(files, names, strict=True)
    ]
    subjects = [
        subjects_of(p, draws=draws, seed=seed, level=level, strata=strata) for p in predicted
    ]
    screen = Screen()
    for of_file in subjects:
        for subject in of_file:
            print_subject(subject, screen)
    if json is not None:
        write_json(json, subjects, draws=draws, seed=seed, level=level, strata=strata)
        say(f"numbers: {json}")
    if html is not None:
        from shasam.report import write_audit

        write_audit(predicted, subjects, html, _command(files, columns), figures)
        say(f"page: {html}")
    broken = [b for limit in limits for of in subjects for s in of if (b := limit.broken(s))]
    for line in broken:
        complain(line)
    if broken:
        sys.exit(1)


def _distinct(files: list[Path]) -> list[str]:
    """Short names that tell the files apart: predictions.parquet is named by its run."""
    stems = [f.parent.name if f.stem == "predictions" and f.parent.name else f.stem for f in files]
    stems = ["standard input" if s == "-" else s for s in stems]
    return [s if stems.count(s) == 1 else f"{s} ({i + 1})" for i, s in enumerate(stems)]


def _command(files: list[Path], columns: object) -> str:
    """The command line that gives the same page again, without the folders it was made in."""
    import shlex

    words = ["shasam", "audit", *(f.name for f in files)]
    for flag in ("label", "prediction", "scores", "sensitive", "threshold", "positive", "classes"):
        value = getattr(columns, flag)
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None:
                words += [f"--{'score' if flag == 'scores' else flag}", str(item)]
    return " ".join(shlex.quote(w) for w in words)
