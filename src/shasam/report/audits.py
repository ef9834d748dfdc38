"""Audit predictions: from tables to subjects, pairs, limits, JSON, JUnit and the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from rich import box
from rich.table import Table

from shasam.errors import Argument, InputError, MemoryLimitError, SpecError
from shasam.files import append_named, write_named
from shasam.metrics import Comparison, Slices, adjusted, as_json, catalogue, compare, worst_slices
from shasam.metrics.counts import Estimate
from shasam.metrics.curves import Measure, measure_of
from shasam.metrics.intervals import affordable_draws
from shasam.metrics.rates import smallest_gap
from shasam.metrics.scores import SCORE_BINS
from shasam.output import Screen, complain, markdown_code, markdown_table, markdown_text, visible
from shasam.registry import did_you_mean
from shasam.report.along import NumberSubject, number_summary, print_number
from shasam.report.fronts import ThresholdFront
from shasam.report.subject import AuditOptions, Reference, Subject, Timeline
from shasam.report.verdict import (
    comparison_line,
    count,
    found_slices,
    interval,
    percent,
    verdict,
)
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Two models on the same rows: matched and compared, as a sentence, a table row or JSON.
# -------------------------------------------------------------------------------------------------

BASELINE = "ce"
AnySubject = Subject | NumberSubject


@dataclass(frozen=True)
class Pairing:
    """What was found for a - b through one attribute, or why nothing was."""

    a: str
    b: str
    attribute: str
    found: dict[str, Comparison] | None
    reason: str = ""

    @property
    def line(self) -> str:
        """One sentence."""
        if self.found is None:
            return f"{self.a} against {self.b}: not compared, because {self.reason}."
        return comparison_line(self.a, self.b, self.found)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        found = None if self.found is None else {k: c.as_dict() for k, c in self.found.items()}
        return {
            "model": self.a,
            "against": self.b,
            "attribute": self.attribute,
            "differences": found,
            "reason": self.reason or None,
        }


def is_plain(method: str) -> bool:
    """Return whether it is cross-entropy, the method that does nothing about the groups."""
    return method.split(" (")[0].split("@")[0].lower() in (BASELINE, "cross-entropy")


def baseline_of(names: Sequence[str]) -> str:
    """Return what others are compared with: cross-entropy where it is there, else the first."""
    return min(filter(is_plain, names), key=lambda name: ("@" in name, name), default=names[0])


def pairings(subjects: Sequence[Sequence[Subject]], drawn: AuditOptions) -> list[Pairing]:
    """Compare each file of an audit with the first, through each attribute."""
    by_attribute: dict[str, list[Subject]] = {}
    for of_file in subjects:
        for subject in of_file:
            by_attribute.setdefault(subject.attribute, []).append(subject)
    out = []
    for attribute, members in by_attribute.items():
        base = baseline_of([s.name for s in members])
        other = next(s for s in members if s.name == base)
        out += [pairing(s, other, attribute, drawn) for s in members if s.name != base]
    return out


def pairing(a: Subject, b: Subject, attribute: str, drawn: AuditOptions) -> Pairing:
    """Compare both on the same rows, matched by id where there is one."""
    x, y = a.rows, b.rows
    order_x, order_y, reason = _matched(x, y)
    if reason:
        return Pairing(a.name, b.name, attribute, None, reason)
    try:
        found = compare(
            x.target[order_x],
            x.prediction[order_x],
            y.prediction[order_y],
            x.sensitive[order_x],
            classes=x.classes,
            groups=x.groups,
            positive=x.positive,
            draws=drawn.draws,
            seed=drawn.seed,
            level=drawn.level,
            strata=drawn.strata,
            min_group=drawn.min_group,
        )
    except (InputError, MemoryLimitError) as error:
        return Pairing(a.name, b.name, attribute, None, str(error))
    return Pairing(a.name, b.name, attribute, found)


def _matched(x: Predictions, y: Predictions) -> tuple[Any, Any, str]:
    """Match the rows of both: the order of each, or the reason why there is none."""
    everything = slice(None)
    if x.classes != y.classes or x.groups != y.groups:
        return everything, everything, "their classes or groups are not the same"
    if not (x.row_by_row and y.row_by_row):
        return everything, everything, "rows were counted and are not known one by one"
    if x.context.weights is not None or y.context.weights is not None:
        return everything, everything, "rows are weighted, and differences do not take weights"
    if len(x) != len(y):
        numbers = f"{len(x):,} and {len(y):,}"
        return everything, everything, f"their test rows are not the same ({numbers})"
    order_x: Any = everything
    order_y: Any = everything
    if len(x.ids) and len(y.ids):
        order_x, order_y = np.argsort(x.ids, kind="stable"), np.argsort(y.ids, kind="stable")
        if not (x.ids[order_x] == y.ids[order_y]).all():
            return everything, everything, "their ids are not the same"
    same = x.target[order_x] == y.target[order_y]
    same &= x.sensitive[order_x] == y.sensitive[order_y]
    if not same.all():
        differ = int((~same).sum())
        return everything, everything, f"labels or groups differ in {differ:,} of their rows"
    return order_x, order_y, ""


# -------------------------------------------------------------------------------------------------
# Audits: from predictions to subjects, JSON, and limits for continuous integration.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """``eo_mean=0.05``: the largest value (for accuracies the smallest) that passes."""

    metric: str
    end: str  # value, low or high
    bound: float

    @property
    def words(self) -> str:
        """As it is written."""
        end = "" if self.end == "value" else f".{self.end}"
        return f"{self.metric}{end}={self.bound:g}"

    @property
    def along(self) -> Measure | None:
        """What it measures of a curve; None if it is a metric of groups or rows."""
        return measure_of(self.metric)

    def concerns(self, subjects: Sequence[AnySubject]) -> list[AnySubject]:
        """Return the subjects that have the metric.

        Groups and numbers have metrics of their own.
        """
        own = [
            s
            for s in subjects
            if self.metric in s.estimates or isinstance(s, NumberSubject) == bool(self.along)
        ]
        return own or list(subjects)

    def broken(self, subject: AnySubject) -> str | None:
        """Return a sentence where the limit is broken; an undefined metric cannot pass."""
        e = subject.estimates.get(self.metric)
        where = f"{subject.name}, by {subject.attribute}"
        if e is None:
            why = subject.missing(self.metric) if isinstance(subject, NumberSubject) else (
                "it needs scores" if self.along is None else "no attribute is followed as a number"
            )  # fmt: skip
            return f"{self.metric} was not computed for {where} ({why})"
        found = getattr(e, self.end)
        if not e.defined:
            return f"{self.metric} is undefined for {where}: {e.reason}"
        if self.along is not None and self.along.signed:
            found = _size(e, self.end)
        high_is_good = self.along is None and catalogue.named(self.metric).better == "high"
        if found < self.bound if high_is_good else found > self.bound:
            word = "below" if high_is_good else "over"
            name = self.metric if self.end == "value" else f"{self.metric}.{self.end}"
            return f"{name} = {found:.4f} is {word} the limit {self.bound:g} for {where}"
        return None


def _size(e: Estimate, end: str) -> float:
    """Return how far a signed number is from 0: its value, at least (low) or at most (high)."""
    if end == "low":
        return max(e.low, -e.high, 0.0)
    return abs(e.value) if end == "value" else max(-e.low, e.high)


def broken_limits(limits: Sequence[Limit], subjects: Sequence[AnySubject]) -> list[str]:
    """Return a sentence for every limit that is broken."""
    return [line for limit in limits for s in limit.concerns(subjects) if (line := limit.broken(s))]


def limits_of(texts: Sequence[str], *, along: bool = False) -> list[Limit]:
    """Parse ``METRIC=LIMIT`` and ``METRIC.low=LIMIT``; ``<=`` and ``>=`` say the side too.

    ``along`` allows metrics of curves.
    """
    out = []
    for text in texts:
        name, sign, bound = re.match(r"([^<>=]*)(<=|>=|=|)(.*)", text, re.S).groups()  # type: ignore[union-attr]
        metric, dot, end = name.strip().rpartition(".")
        if not dot or end not in ("value", "low", "high"):
            metric, end = name.strip(), "value"
        of_curve = along and measure_of(metric) is not None  # all of them are gaps
        right = "<=" if of_curve or catalogue.named(metric).better != "high" else ">="
        if sign not in ("", "=", right):
            side = "high" if right == ">=" else "low"
            raise SpecError(f"{text!r}: {metric} is better {side}; write {metric}{right}{bound}")
        try:
            value = float(bound)
        except ValueError:
            raise SpecError(f"{text!r} is not a limit; write it like eo_mean=0.05") from None
        if not 0 <= value <= 2:
            raise SpecError(f"the limit {bound} is not a fraction; 5 points are 0.05")
        out.append(Limit(metric, end, value))
    return out


def subjects_of(
    tables: Sequence[Predictions],
    drawn: AuditOptions,
    *,
    tell: Callable[[str], None] = complain,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Subject]:
    """Return one subject for each sensitive attribute that has groups, and for their intersection.

    Where memory is short, fewer draws are taken; an intersection of too many groups for any is
    left out. ``tell`` reports both. Claims about gaps allow for the number of attributes (Holm's
    adjustment).
    """
    out: list[Subject] = []
    tables = [rows for rows in tables if rows.numbers is None]
    if not tables:
        return []
    _check_reference(tables, drawn)
    for number, rows in enumerate(tables):
        progress(number, len(tables))
        what = f"{rows.name}, by {rows.attribute}"
        classes, groups = len(rows.classes), len(rows.groups)
        try:
            affordable = affordable_draws(classes, groups, drawn.draws, scores=rows.scored)
        except MemoryLimitError as error:
            if not out:
                raise
            tell(f"{what}: left out. {error}")
            continue
        if affordable < drawn.draws:
            tell(
                f"{what}: {affordable:,} draws instead of {drawn.draws:,}, because {classes:,} "
                f"classes and {groups:,} groups need a lot of memory"
            )
        drawn_here = replace(drawn, draws=affordable)
        out.append(Subject.of(rows, drawn_here, unit="rows", metrics=["all"]))
    if len(out) > 1:
        found = adjusted([s.estimates for s in out], drawn.level)
        out = [s.with_estimates(e, len(out)) for s, e in zip(out, found, strict=True)]
    return [replace(out[0], slices=_slices(tables[0], drawn)), *out[1:]]


def _check_reference(tables: Sequence[Predictions], drawn: AuditOptions) -> None:
    known = list(dict.fromkeys(group for rows in tables for group in rows.groups))
    for name in drawn.reference:
        if name not in known:
            raise InputError(
                Argument("reference", name), f": there is no such group{did_you_mean(name, known)}"
            )


def _slices(rows: Predictions, drawn: AuditOptions) -> Slices | None:
    """Return the worst slices of all rows.

    Weights do not count here, because the test needs rows.
    """
    context = rows.context
    if not context.columns:
        return None
    return worst_slices(
        rows.prediction != rows.target,
        context.columns,
        context.rules,
        min_support=drawn.min_slice,
        level=drawn.level,
        repeats=rows.repeats,
    )


def _smallest_gap(subject: Subject) -> dict[str, Any] | None:
    """Return the smallest gap that the table shows with 80 % probability, and between whom."""
    found = smallest_gap(subject.counts, subject.drawn.min_group, subject.drawn.level)
    return None if found is None else asdict(found)


def as_document(
    subjects: Sequence[Sequence[Subject]],
    pairings: Sequence[Pairing],
    drawn: AuditOptions,
    numbers: Sequence[NumberSubject] = (),
) -> dict[str, Any]:
    """Return all numbers of an audit, and how the intervals were made, as plain JSON."""
    return {
        "intervals": asdict(drawn) | {"reference": list(drawn.reference)},
        "audits": [
            {
                "model": s.name,
                "attribute": s.attribute,
                "rows": s.rows.total,
                "weight": s.rows.context.weight or None,
                "draws": s.drawn.draws,
                "classes": list(s.counts.classes),
                "groups": list(s.counts.groups),
                "not_compared": list(s.small),
                "small_cells": [
                    {"class": r.name, "group": r.group, "rows": r.estimate.support}
                    for r in s.cells
                    if s.few(r.estimate)
                ],
                "verdict": verdict(s),
                "claim": None if s.claim is None else s.claim.as_dict(),
                "approximate": s.approximate,
                "binning_errors": s.binning,
                "smallest_gap": _smallest_gap(s),
                "metrics": as_json(s.estimates),
                "reference": None if s.reference is None else s.reference.as_dict(),
                "over_time": None if s.timeline is None else s.timeline.as_dict(),
                **({"front": made.as_dict()} if (made := ThresholdFront.of(s)) else {}),
                "cells": [
                    {"class": r.name, "group": r.group, "accuracy": r.estimate.as_dict()}
                    for r in s.cells
                ],
                "counts": s.counts.n_CPG.tolist(),
            }
            for of_file in subjects
            for s in of_file
        ],
        "numbers": [s.as_dict() for s in numbers],
        "slices": [
            {"model": s.name, **s.slices.as_dict()}
            for of_file in subjects
            for s in of_file
            if s.slices is not None
        ],
        "comparisons": [p.as_dict() for p in pairings],
    }


def write_json(
    path: Path,
    subjects: Sequence[Sequence[Subject]],
    pairings: Sequence[Pairing],
    drawn: AuditOptions,
    numbers: Sequence[NumberSubject] = (),
) -> None:
    """Write all numbers of an audit in a file."""
    content = as_document(subjects, pairings, drawn, numbers)
    write_named(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


# -------------------------------------------------------------------------------------------------
# What a build reads of an audit: JUnit XML, and a Markdown summary such as GitHub's.
# -------------------------------------------------------------------------------------------------

SHOWN = ("accuracy", "eo_mean", "demographic_parity", "worst_group_accuracy")


def write_junit(path: Path, subjects: Sequence[AnySubject], limits: Sequence[Limit]) -> None:
    """Write a test case for every limit and subject; a broken limit is a failure."""
    suite = ElementTree.Element("testsuite", name="shasam audit")
    failures = 0
    for subject in subjects:
        for limit in limits:
            if not any(s is subject for s in limit.concerns(subjects)):
                continue
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=visible(f"{subject.name}, by {subject.attribute}"),
                name=visible(limit.words),
            )
            broken = limit.broken(subject)
            if broken:
                failures += 1
                failure = ElementTree.SubElement(case, "failure", message=visible(broken))
                failure.text = visible("\n".join(_verdict(subject)))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    ElementTree.indent(suite)
    write_named(path, ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n")


def _verdict(subject: AnySubject) -> list[str]:
    return subject.lines if isinstance(subject, NumberSubject) else verdict(subject)


def add_summary(
    path: Path,
    subjects: Sequence[AnySubject],
    limits: Sequence[Limit],
    pairings: Sequence[Pairing],
) -> None:
    """Add verdicts, headline metrics, limits and comparisons to the end of a file."""
    lines = ["## shasam audit", ""]
    for subject in subjects:
        if isinstance(subject, NumberSubject):
            lines += number_summary(subject)
            continue
        lines += [f"### {markdown_text(subject.name)}, by {markdown_text(subject.attribute)}", ""]
        lines += [markdown_text(" ".join(verdict(subject))), ""]
        rows = []
        for key in SHOWN:
            e = subject.estimates[key]
            numbers = (
                [percent(e.value), interval(e)]
                if e.defined
                else ["–", markdown_text(e.reason or "")]
            )
            rows.append([markdown_code(key), *numbers, count(e.support)])
        lines += [
            *markdown_table(["metric, % and points", "value", "interval", "support"], rows),
            "",
        ]
    if limits:
        rows = [
            [
                markdown_text(f"{s.name}, by {s.attribute}"),
                markdown_code(limit.words),
                f"**failed**: {markdown_text(broken)}" if (broken := limit.broken(s)) else "passed",
            ]
            for s in subjects
            for limit in limits
            if any(s is own for own in limit.concerns(subjects))
        ]
        lines += [*markdown_table(["audit", "limit", "result"], rows), ""]
    lines += [f"- {markdown_text(p.line)} ({markdown_text(p.attribute)})" for p in pairings]
    append_named(path, ("\n".join(lines) + "\n").encode())


# -------------------------------------------------------------------------------------------------
# What an audit prints: the verdict, the accuracy of every cell, every metric with its interval.
# -------------------------------------------------------------------------------------------------

_PRINTED_RATES = ("selection", "fpr", "fnr")
WIDE = 100  # columns from which a metric's label fits beside its name


def print_audit(
    subjects: Sequence[AnySubject],
    pairs: Sequence[Pairing],
    also: Sequence[str] | None,
    abstain: bool = False,
) -> None:
    """Print all subjects and comparisons; ``also`` as in ``print_subject``."""
    screen = Screen()
    for subject in subjects:
        if isinstance(subject, NumberSubject):
            print_number(subject, screen)
            continue
        print_subject(subject, screen, also)
        if abstain:
            screen.print(_abstention(subject))
    for pair in pairs:
        print_pairing(pair, screen)


def print_subject(subject: Subject, screen: Screen, also: Sequence[str] | None = ()) -> None:
    """Print one model through one attribute.

    ``also`` are metrics beside the usual ten, None all.
    """
    screen.print()
    screen.print(f"{subject.name}, by {subject.attribute}", style="bold")
    for line in verdict(subject):
        screen.print(line)
    screen.print(_cells(subject))
    names = [*subject.estimates]
    if also is not None:
        names = [k for k in names if k in subject.shown_metrics or k in also]
    screen.print(_metrics(subject, names, screen.width >= WIDE))
    for why in dict.fromkeys(subject.approximate.values()):
        rows = [k for k in names if subject.approximate.get(k) == why]
        if rows:
            screen.print(f"≈ approximate ({', '.join(rows)}): {why}", style="dim")
    if subject.binning is not None:
        screen.print(_binned(subject.binning), style="dim")
    if len(names) < len(subject.estimates):
        more = len(subject.estimates) - len(names)
        screen.print(f"{more} more metrics: --all-metrics, or --json", style="dim")
    if subject.reference is not None:
        screen.print(_against(subject, subject.reference))
        screen.print(subject.reference.four_fifths(subject.drawn.min_group))
    if subject.timeline is not None:
        screen.print(_over_time(subject.timeline))
    if subject.front is not None and (front := ThresholdFront.of(subject)) is not None:
        for line in front.says:
            screen.print(line)
        if front.rows:
            screen.print(_front(front))
    if subject.slices is not None:
        screen.print(_slice_table(subject.slices))
        screen.print(found_slices(subject.slices))


def _binned(errors: Mapping[str, float]) -> str:
    """Say how far binned scores can be off, metric by metric."""
    told = ", ".join(f"{name} {error:.1g}" for name, error in errors.items() if error)
    return (
        f"scores were counted in {SCORE_BINS:,} bins, so that metrics of scores may be off by as "
        f"much as: {told}; calibration errors are exact"
    )


def print_pairing(pair: Pairing, screen: Screen) -> None:
    """Print two files on the same rows: the sentence, and every metric's difference."""
    screen.print()
    screen.print(f"{pair.a} against {pair.b}, by {pair.attribute}", style="bold")
    screen.print(pair.line)
    if pair.found is None:
        return
    title = f"{pair.a} minus {pair.b}, in points"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("metric", overflow="fold", min_width=_longest())
    for name in ("difference", "interval", "p"):
        table.add_column(name, justify="right")
    for key, c in pair.found.items():
        if c.reason:
            table.add_row(key, "–", c.reason, "")
            continue
        span = f"{percent(c.low, 2)} – {percent(c.high, 2)}"
        table.add_row(key, percent(c.difference, 2), span, f"{c.p:.3f}")
    screen.print(table)


def _longest() -> int:
    """Return letters of the longest metric, and its arrow."""
    return max(map(len, catalogue.metrics())) + 2


def _cells(subject: Subject) -> Table:
    table = Table(title="Accuracy by class and group", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("class", overflow="fold")
    table.add_column("group", overflow="fold")
    for name in (subject.unit, "correct, %", "interval"):
        table.add_column(name, justify="right")
    for rate in subject.cells:
        value, span = _shown(rate.estimate, 1)
        small = "dim" if subject.few(rate.estimate) else None
        support = count(rate.estimate.support)
        table.add_row(str(rate.name), rate.group, support, value, span, style=small)
    return table


def _metrics(subject: Subject, names: Sequence[str], wide: bool) -> Table:
    """Tabulate metrics under the names that --fail-over takes, folded rather than cut off."""
    table = Table(title="Metrics, in % and points", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("metric", overflow="fold", min_width=_longest())
    if wide:
        table.add_column("", overflow="fold")
    for name in ("value", f"{100 * subject.drawn.level:g} % interval", "support"):
        table.add_column(name, justify="right")
    for key, e in ((key, subject.estimates[key]) for key in names):
        better = {"high": "↑", "low": "↓"}[catalogue.named(key).better]
        value, span = _shown(e, 2)
        span = f"≈ {span}" if key in subject.approximate else span
        label = [_label(subject, key)] if wide else []
        table.add_row(f"{key} {better}", *label, value, span, count(e.support))
    return table


def _label(subject: Subject, key: str) -> str:
    served = subject.worst_served if key == "worst_group_accuracy" else ""
    return f"{catalogue.label_of(key)}: {served}" if served else catalogue.label_of(key)


def _against(subject: Subject, reference: Reference) -> Table:
    """Return three rates of every group against the reference; JSON and the page have all six."""
    table = Table(title=f"Against {reference.says}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("rate", overflow="fold")
    table.add_column("group", overflow="fold")
    for name in ("difference, points", "ratio, %"):
        table.add_column(name, justify="right")
    for rate in _PRINTED_RATES:
        for a in reference.rates[rate]:
            ends = ["{} ({})".format(*_shown(e, 1)) for e in (a.difference, a.ratio)]
            faint = subject.few(a.difference)
            table.add_row(rate, a.group, *ends, style="dim" if faint else None)
    return table


def _over_time(timeline: Timeline) -> Table:
    title = f"{timeline.metric} by {timeline.period} of {timeline.column}, in points"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(timeline.period)
    for name in ("rows", "value", "interval", "support"):
        table.add_column(name, justify="right")
    for p in timeline.periods:
        table.add_row(p.name, count(p.rows), *_shown(p.estimate, 2), count(p.estimate.support))
    return table


def _abstention(subject: Subject) -> Table | str:
    """Return the share of every group that is answered, and accuracy of those answers."""
    if not subject.abstention:
        return "--abstain needs probabilities; name their column with --score"
    title = "Answering only where it is sure: % of each group answered (% of answers right)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("answered", "confidence from", *subject.rows.groups):
        table.add_column(name, justify="right", overflow="fold")
    for a in subject.abstention:
        cells = [
            f"{percent(a.coverage[g].value)} ({_shown(a.accuracy[g], 1)[0]})"
            for g in subject.rows.groups
        ]
        table.add_row(f"{percent(a.share)} %", percent(a.confidence), *cells)
    return table


def _front(front: ThresholdFront) -> Table:
    title = "Thresholds per group: rates may differ by so much; all intervals hold at once"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("may differ by")
    for name in ("gap (EO)", "accuracy, %", "against now"):
        table.add_column(name, justify="right")
    for row in front.rows:
        cells = (f"{row[k]} ({row[f'{k}_ci']})" for k in ("gap", "accuracy", "price"))
        table.add_row(row["tolerance"], *cells)
    return table


def _slice_table(found: Slices) -> Table:
    table = Table(title="Worst slices", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("slice", overflow="fold")
    for name in ("rows", "wrong, %", "interval", "rest, %", "q"):
        table.add_column(name, justify="right")
    for s in found.found:
        numbers = [*_shown(s.rate, 1), percent(s.rest), f"{s.q:.3f}" if s.q >= 0.001 else "<0.001"]
        known = None if s.q <= found.false_finds else "dim"
        table.add_row(s.name, count(s.rate.support), *numbers, style=known)
    return table


def _shown(e: Estimate, digits: int) -> tuple[str, str]:
    """Return value and interval, or a dash and the reason why there is none."""
    if not e.defined:
        return "–", e.reason or ""
    return percent(e.value, digits), f"{percent(e.low, digits)} – {percent(e.high, digits)}"
