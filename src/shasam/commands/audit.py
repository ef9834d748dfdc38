"""``shasam audit``: accuracy and fairness of the predictions of any model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shasam.errors import SpecError

if TYPE_CHECKING:
    from shasam.report.audits import Pairing
    from shasam.report.predictions import Columns
    from shasam.report.subject import AuditOptions, Subject


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
    counts: Annotated[bool, Parameter(negative=())] = False,
    weight: str | None = None,
    reference: Annotated[list[str] | None, Parameter(negative=())] = None,
    time: str | None = None,
    period: Literal["day", "week", "month", "quarter", "year"] = "month",
    slices: Annotated[list[str] | None, Parameter(negative=())] = None,
    min_slice: int = 50,
    regression: Annotated[bool, Parameter(negative=())] = False,
    json: Path | None = None,
    html: Path | None = None,
    figures: Path | None = None,
    fail_over: Annotated[list[str] | None, Parameter(negative=())] = None,
    junit: Path | None = None,
    summary: Path | None = None,
    strata: Literal["none", "group", "cell"] = "none",
    min_group: int = 30,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> None:
    """Measure accuracy and fairness of any model's predictions.

    They are read from CSV or Parquet files, whatever framework made them.

    Parameters
    ----------
    files
        One table for each model; several are compared. A table is a file, a folder or quoted
        pattern of Parquet files ("parts/*.parquet"), or "-" for standard input.
    label
        Column of the true class (default: target, label or y_true).
    prediction
        Column of the predicted class (default: prediction, predicted or y_pred).
    score
        Column with the probability of the positive class; repeat it for one column per class.
    sensitive
        Column with a sensitive attribute; repeat it for several and their intersection.
    threshold
        Score from which the positive class is predicted.
    positive
        The favourable class (default: the last of two, sorted).
    classes
        Names of all classes, if a file does not contain every one.
    missing
        Rows without a label, prediction or group: an error, left out, or (for a sensitive
        attribute) a group of their own.
    counts
        The table is aggregated: column n says how many rows each line stands for.
    weight
        Column with what each row weighs.
    reference
        Group that the others are compared with (default: the largest); repeat it for several
        attributes.
    time
        Column with the date of each row: the gap is measured in every period.
    period
        Length of those periods.
    slices
        Column, or rule such as "age<35", by which the worst slices are searched; repeat it.
    min_slice
        Fewest rows of a slice.
    regression
        Label and prediction are numbers: error and bias of each group.
    json
        Write all numbers to this file.
    html
        Write the page to this file.
    figures
        Write the figures as SVG files into this folder.
    fail_over
        METRIC=LIMIT: exit with 1 if the value is above it (below it, for accuracies) or undefined;
        METRIC.low=LIMIT uses an end of the interval.
    junit
        Write the limits as JUnit XML, a test case each.
    summary
        Add a Markdown summary to this file, such as "$GITHUB_STEP_SUMMARY".
    strata
        What resampling keeps fixed: the size of every cell, of every group, or neither.
    min_group
        Groups with fewer rows are shown, but not compared with others.
    draws
        Number of bootstrap draws.
    seed
        Seed of the bootstrap.
    level
        Confidence level of the intervals.
    """
    from shasam.files import check_writable
    from shasam.output import Screen, complain, say
    from shasam.report.audits import add_summary, limits_of, pairings, write_junit
    from shasam.report.predictions import Columns
    from shasam.report.subject import AuditOptions
    from shasam.report.terminal import print_pairing, print_subject

    limits = limits_of(fail_over or [])
    if junit is not None and not limits:
        raise SpecError("--junit reports limits; give one with --fail-over, such as eo_mean=0.05")
    for file in (json, html, junit):
        check_writable(file)
    check_writable(figures, folder=True)
    columns = Columns(
        label,
        prediction,
        tuple(score or ()),
        tuple(sensitive or ()),
        threshold,
        positive,
        tuple(classes or ()),
        missing,
        counts,
        weight,
        time,
        tuple(slices or ()),
        regression,
    )
    drawn = AuditOptions(
        draws, seed, level, strata, min_group, tuple(reference or ()), period, min_slice
    )
    if regression:
        if limits or figures is not None or summary is not None:
            raise SpecError("--regression writes --json and --html; leave out the other files")
        return _regressions(files, columns, drawn, json, html)
    subjects = _measured(files, columns, drawn)
    pairs = pairings(subjects, drawn)
    flat = [subject for of_file in subjects for subject in of_file]
    screen = Screen()
    for subject in flat:
        print_subject(subject, screen)
    for pair in pairs:
        print_pairing(pair, screen)
    written = _OutputFiles(json, html, figures)
    written.write(subjects, pairs, drawn, _command(files, columns, drawn))
    if junit is not None:
        write_junit(junit, flat, limits)
        say(f"checks: {junit}")
    if summary is not None:
        add_summary(summary, flat, limits, pairs)
    broken = [line for limit in limits for s in flat if (line := limit.broken(s))]
    for line in broken:
        complain(line)
    if broken:
        raise SystemExit(1)


@dataclass(frozen=True)
class _OutputFiles:
    """The files that were asked for."""

    json: Path | None
    html: Path | None
    figures: Path | None

    def write(
        self,
        subjects: list[list[Subject]],
        pairs: list[Pairing],
        drawn: AuditOptions,
        command: str,
    ) -> None:
        """Write them and say where."""
        from shasam.output import say
        from shasam.report.audits import write_json

        if self.json is not None:
            write_json(self.json, subjects, pairs, drawn)
            say(f"numbers: {self.json}")
        if self.html is not None:
            from shasam.report import write_audit

            say(f"page: {write_audit(subjects, pairs, self.html, command)}")
        if self.figures is not None:
            from shasam.report import write_audit_figures

            write_audit_figures(subjects, pairs, self.figures)
            say(f"figures: {self.figures}")


def _regressions(
    files: list[Path], columns: Columns, drawn: AuditOptions, json: Path | None, html: Path | None
) -> None:
    """Errors of numbers: the same table, other measures."""
    from shasam.output import Screen, say
    from shasam.report.regression_audit import (
        print_regression,
        read_regressions,
        write_regression_json,
        write_regression_page,
    )

    found = [
        r
        for file, name in zip(files, _distinct(files), strict=True)
        for r in read_regressions(file, columns, drawn, name)
    ]
    screen = Screen()
    for r in found:
        print_regression(r, screen)
    if json is not None:
        write_regression_json(json, found, drawn)
        say(f"numbers: {json}")
    if html is not None:
        write_regression_page(html, found, drawn, _command(files, columns, drawn))
        say(f"page: {html}")


def _measured(files: list[Path], columns: Columns, drawn: AuditOptions) -> list[list[Subject]]:
    """Every file through every attribute, with a bar where it takes a while."""
    from shasam.output import shown_progress
    from shasam.report.audits import subjects_of
    from shasam.report.predictions import read_predictions

    out = []
    with shown_progress() as progress:
        for file, name in zip(files, _distinct(files), strict=True):
            told = progress(f"reading {name}")
            read = read_predictions(file, columns, name, ids=len(files) > 1, progress=told)
            out.append(subjects_of(read, drawn, progress=progress(f"measuring {name}")))
    return out


def _distinct(files: list[Path]) -> list[str]:
    """Short names that tell the files apart: predictions.parquet is named by its run."""
    stems = [f.parent.name if f.stem == "predictions" and f.parent.name else f.stem for f in files]
    stems = ["standard input" if s == "-" else s for s in stems]
    return [s if stems.count(s) == 1 else f"{s} ({i + 1})" for i, s in enumerate(stems)]


def _command(files: list[Path], columns: Columns, drawn: AuditOptions) -> str:
    """The command line that gives the same page again, without the folders it was made in."""
    import shlex
    from dataclasses import fields

    words = ["shasam", "audit", *(f.name for f in files)]
    for given in (columns, drawn):
        for field in fields(given):
            value = getattr(given, field.name)
            if value == field.default:
                continue
            flag = "--score" if field.name == "scores" else f"--{field.name.replace('_', '-')}"
            for item in value if isinstance(value, tuple) else (value,):
                words += [flag] if item is True else [flag, str(item)]
    return " ".join(shlex.quote(w) for w in words)
