"""``shasam audit``: accuracy and fairness of the predictions of any model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shasam.errors import SpecError

if TYPE_CHECKING:
    from shasam.report.along import NumberSubject
    from shasam.report.audits import AnySubject, Pairing
    from shasam.report.columns import Columns
    from shasam.report.subject import AuditOptions, Subject


def audit(
    files: Annotated[list[Path] | None, Parameter(negative=())] = None,
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
    continuous: Annotated[list[str] | None, Parameter(negative=())] = None,
    discrete: Annotated[list[str] | None, Parameter(negative=())] = None,
    reference: Annotated[list[str] | None, Parameter(negative=())] = None,
    time: str | None = None,
    period: Literal["day", "week", "month", "quarter", "year"] = "month",
    slices: Annotated[list[str] | None, Parameter(negative=())] = None,
    min_slice: int = 50,
    front: Annotated[bool, Parameter(negative=())] = False,
    regression: Annotated[bool, Parameter(negative=())] = False,
    abstain: Annotated[bool, Parameter(negative=())] = False,
    all_metrics: Annotated[bool, Parameter(negative=())] = False,
    json: Path | None = None,
    html: Path | None = None,
    figures: Path | None = None,
    fail_over: Annotated[list[str] | None, Parameter(negative=())] = None,
    junit: Path | None = None,
    summary: Path | None = None,
    scenarios: Path | None = None,
    scenarios_out: Path | None = None,
    standard: Literal["ll144"] | None = None,
    about: Annotated[list[str] | None, Parameter(negative=())] = None,
    csv: Path | None = None,
    markdown: Path | None = None,
    verify: Path | None = None,
    plan: Annotated[bool, Parameter(negative=())] = False,
    groups: str | None = None,
    gap: float = 0.05,
    rate: float = 0.8,
    base_rate: float = 0.5,
    power: float = 0.8,
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
        With a threshold, any score that ranks, such as risk deciles.
    sensitive
        Column with a sensitive attribute, or a rule such as "age<25" or "age:[0,20,40]"; repeat it
        for several and their intersection.
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
    continuous
        Sensitive column that is followed as a number, without groups (default: one of more than 20
        different numbers).
    discrete
        Sensitive column whose numbers are groups.
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
    front
        Say what thresholds per group could do for this model: the gap that they reach and its
        price in accuracy, from the scores alone. Each row is decided by a rule of other rows.
    regression
        Label and prediction are numbers: error and bias of each group.
    abstain
        Also print what leaving out the least sure answers costs: the share of each group that is
        answered, and the accuracy of those answers. It needs scores.
    all_metrics
        Print every metric instead of the usual ten.
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
    scenarios
        YAML file of bias scenarios: group, metric, agreed threshold, mitigation, review date. Exit
        with 1 if one is exceeded.
    scenarios_out
        Write the scenarios with what was measured to this Markdown file.
    standard
        The form of a regulator. ll144: impact ratios by sex, race/ethnicity and both, as New York
        City's Local Law 144 asks for; it needs selections or scores, and no labels.
    about
        FIELD=TEXT of the form's header, or a YAML file of fields: auditor, audit_date, tool,
        tool_version, distribution_date, data_source, data_period, data_kind, explanation.
    csv
        Write the form as a CSV table.
    markdown
        Write the form as Markdown.
    verify
        JSON file of an earlier form: compute it again from the table and compare.
    plan
        Say how many rows show a gap, before there are data; give --groups and --gap.
    groups
        Shares of the groups for --plan, such as 0.6,0.3,0.1.
    gap
        Gap for --plan.
    rate
        Accuracy around which the groups differ, for --plan.
    base_rate
        Share of the class in which they differ, for --plan.
    power
        Probability with which the gap is to be shown, for --plan.
    strata
        What resampling keeps fixed: the size of every cell, of every group, or neither.
    min_group
        Groups with fewer rows of a class are shown, but not compared with others in it.
    draws
        Number of bootstrap draws.
    seed
        Seed of the bootstrap.
    level
        Confidence level of the intervals.
    """
    import shasam.report.audits as audits
    from shasam.files import check_writable
    from shasam.output import complain, say
    from shasam.report.columns import Columns
    from shasam.report.scenarios import judged, read_scenarios, write_scenarios
    from shasam.report.subject import AuditOptions

    if plan:
        return print_plan(groups, gap, rate, base_rate, level, power)
    if not files:
        raise SpecError("name a table of predictions, such as predictions.csv")
    limits = audits.limits_of(fail_over or [], along=True)
    if junit is not None and not limits:
        raise SpecError("--junit reports limits; give one with --fail-over, such as eo_mean=0.05")
    for file in (json, html, junit, summary, csv, markdown, scenarios_out):
        check_writable(file)
    check_writable(figures, folder=True)
    columns = Columns(
        label, prediction, tuple(score or ()), tuple(sensitive or ()), threshold, positive,
        tuple(classes or ()), missing, counts, weight, time, tuple(slices or ()), regression,
        tuple(continuous or ()), tuple(discrete or ()),
    )  # fmt: skip
    drawn = AuditOptions(
        draws, seed, level, strata, min_group, tuple(reference or ()), period, min_slice, front
    )
    if verify is not None:
        return verify_form(verify, files)
    if standard is not None:
        return write_form(files, columns, about or [], level, (json, html, csv, markdown))
    _check_form_flags(bool(about or csv or markdown), bool(scenarios_out and not scenarios))
    agreed = [] if scenarios is None else read_scenarios(scenarios)
    if regression:
        if limits or figures is not None or summary is not None:
            raise SpecError("--regression writes --json and --html; leave out the other files")
        return _regressions(files, columns, drawn, json, html)
    subjects, numbers = _measured(files, columns, drawn)
    pairs = audits.pairings(subjects, drawn)
    flat: list[AnySubject] = [*(subject for of_file in subjects for subject in of_file), *numbers]
    found = judged(agreed, flat) if agreed else []
    if scenarios_out is not None:
        write_scenarios(scenarios_out, found)
    # Files come before the text: a pipe such as "| head" may close before all of it is read.
    written = _OutputFiles(json, html, figures)
    lines = written.write(subjects, pairs, numbers, drawn, _command(files, columns, drawn))
    if junit is not None:
        audits.write_junit(junit, flat, limits)
        lines.append(f"checks: {junit}")
    if summary is not None:
        audits.add_summary(summary, flat, limits, pairs)
    also = None if all_metrics else [limit.metric for limit in limits]
    audits.print_audit(flat, pairs, also, abstain)
    for told in (*lines, *(j.line for j in found)):
        say(told)
    broken = audits.broken_limits(limits, flat)
    broken += [f"scenario: {j.line}" for j in found if j.broken]
    for line in broken:
        complain(line)
    if broken:
        raise SystemExit(1)


def _check_form_flags(of_a_form: bool, without_scenarios: bool) -> None:
    if of_a_form:
        raise SpecError("--about, --csv and --markdown belong to a form; add --standard ll144")
    if without_scenarios:
        raise SpecError("--scenarios-out needs --scenarios, a YAML file of what was agreed")


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
        numbers: list[NumberSubject],
        drawn: AuditOptions,
        command: str,
    ) -> list[str]:
        """Write them; returns lines that say where they are."""
        from shasam.report.audits import write_json

        lines = []
        if self.json is not None:
            write_json(self.json, subjects, pairs, drawn, numbers)
            lines.append(f"numbers: {self.json}")
        if self.html is not None:
            from shasam.report import write_audit

            page = write_audit(subjects, pairs, self.html, command, numbers)
            lines.append(f"page: {page}")
        if self.figures is not None:
            from shasam.report import write_audit_figures

            write_audit_figures(subjects, pairs, self.figures, numbers)
            lines.append(f"figures: {self.figures}")
        return lines


def _regressions(
    files: list[Path], columns: Columns, drawn: AuditOptions, json: Path | None, html: Path | None
) -> None:
    """Audit errors of numbers: the same table, other measures."""
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


def _measured(
    files: list[Path], columns: Columns, drawn: AuditOptions
) -> tuple[list[list[Subject]], list[NumberSubject]]:
    """Measure every file through every attribute, with a bar where it takes a while."""
    from shasam.output import shown_progress
    from shasam.report.along import numbers_of_audit
    from shasam.report.audits import subjects_of
    from shasam.report.predictions import read_predictions

    out: list[list[Subject]] = []
    numbers: list[NumberSubject] = []
    with shown_progress() as progress:
        for file, name in zip(files, _distinct(files), strict=True):
            told = progress(f"reading {name}")
            read = read_predictions(file, columns, name, ids=len(files) > 1, progress=told)
            out.append(subjects_of(read, drawn, progress=progress(f"measuring {name}")))
            if any(rows.numbers is not None for rows in read):
                numbers += numbers_of_audit(read, drawn)
    return out, numbers


def _distinct(files: list[Path]) -> list[str]:
    """Return short names that tell the files apart: predictions.parquet is named by its run."""
    stems = [f.parent.name if f.stem == "predictions" and f.parent.name else f.stem for f in files]
    stems = ["standard input" if s == "-" else s for s in stems]
    return [s if stems.count(s) == 1 else f"{s} ({i + 1})" for i, s in enumerate(stems)]


def _command(files: list[Path], columns: Columns, drawn: AuditOptions) -> str:
    """Return the command line that gives the same page again, without the author's folders."""
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


# -------------------------------------------------------------------------------------------------
# What ``shasam audit`` does beside an audit: plans before data, and forms of regulators.
# -------------------------------------------------------------------------------------------------


def print_plan(
    groups: str | None, gap: float, rate: float, base_rate: float, level: float, power: float
) -> None:
    """Print how many rows show a gap between every two groups."""
    from shasam.metrics.rates import rows_needed
    from shasam.output import Screen

    try:
        shares = [float(part) for part in (groups or "").split(",")]
    except ValueError:
        raise SpecError("--plan needs the shares of the groups: --groups 0.6,0.3,0.1") from None
    found = rows_needed(shares, gap, rate=rate, positives=base_rate, level=level, power=power)
    screen = Screen()
    screen.print(
        f"Rows in all that show a gap of {100 * gap:g} points with {100 * power:g} % probability, "
        f"around an accuracy of {100 * rate:g} % in a class of {100 * base_rate:g} % of the rows:"
    )
    for a, b, rows in found:
        screen.print(f"  groups of {shares[a]:g} and {shares[b]:g}: {rows:,} rows")
    screen.print(f"For all groups: {found[-1][2]:,} rows.")


def write_form(
    files: list[Path],
    columns: Columns,
    about: list[str],
    level: float,
    places: tuple[Path | None, Path | None, Path | None, Path | None],
) -> None:
    """Write the form of a regulator from one table."""
    from shasam.output import Screen, say
    from shasam.report.bias_audit import bias_audit, header_of, print_bias_audit, write_bias_audit

    if len(files) != 1:
        raise SpecError("--standard takes one table")
    found = bias_audit(files[0], columns, header_of(about), level)
    json, html, csv, markdown = places
    lines = write_bias_audit(found, json_file=json, html=html, csv=csv, markdown=markdown)
    print_bias_audit(found, Screen())
    for line in lines:
        say(line)


def verify_form(document: Path, files: list[Path]) -> None:
    """Compute a form again and say whether it is the same."""
    from shasam.output import complain, say
    from shasam.report.bias_audit import verify

    if len(files) != 1:
        raise SpecError("--verify compares one form with one table")
    differ = verify(document, files[0])
    for line in differ:
        complain(line)
    if differ:
        raise SystemExit(1)
    say(f"{document} is what {files[0]} gives: data, result and hashes agree")
