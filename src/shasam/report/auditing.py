"""Audits: from predictions to subjects, JSON, and limits for continuous integration."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shasam.errors import InputError, MemoryLimitError, SpecError
from shasam.files import write_atomic
from shasam.metrics import Slices, adjusted, as_json, catalogue, worst_slices
from shasam.metrics.memory import affordable_draws
from shasam.output.terminal import complain
from shasam.registry import did_you_mean
from shasam.report.paired import Pairing
from shasam.report.subject import Drawn, Subject
from shasam.report.words import verdict
from shasam.types import Predictions


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

    def broken(self, subject: Subject) -> str | None:
        """A sentence where the limit is broken; an undefined metric cannot pass."""
        e = subject.estimates.get(self.metric)
        where = f"{subject.name}, by {subject.attribute}"
        if e is None:
            return f"{self.metric} was not computed for {where} (it needs scores)"
        found = getattr(e, self.end)
        if not e.defined:
            return f"{self.metric} is undefined for {where}: {e.reason}"
        high_is_good = catalogue.named(self.metric).better == "high"
        if found < self.bound if high_is_good else found > self.bound:
            word = "below" if high_is_good else "over"
            name = self.metric if self.end == "value" else f"{self.metric}.{self.end}"
            return f"{name} = {found:.4f} is {word} the limit {self.bound:g} for {where}"
        return None


def limits_of(texts: Sequence[str]) -> list[Limit]:
    """Parse ``METRIC=LIMIT`` and ``METRIC.low=LIMIT``."""
    out = []
    for text in texts:
        name, _, bound = text.partition("=")
        metric, dot, end = name.strip().rpartition(".")
        if not dot or end not in ("value", "low", "high"):
            metric, end = name.strip(), "value"
        catalogue.named(metric)
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
    drawn: Drawn,
    *,
    tell: Callable[[str], None] = complain,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Subject]:
    """One subject for each sensitive attribute, and for their intersection.

    Where memory is short, fewer draws are taken; an intersection of too many groups for any is
    left out. ``tell`` reports both. Claims about gaps allow for the number of attributes (Holm's
    adjustment).
    """
    _check_reference(tables, drawn)
    out: list[Subject] = []
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
    claims = adjusted([s.claim for s in out])
    out = [replace(s, claim=c) for s, c in zip(out, claims, strict=True)]
    return [replace(out[0], slices=_slices(tables[0], drawn)), *out[1:]]


def _check_reference(tables: Sequence[Predictions], drawn: Drawn) -> None:
    known = list(dict.fromkeys(group for rows in tables for group in rows.groups))
    for name in drawn.reference:
        if name not in known:
            raise InputError(
                f"--reference {name}: there is no such group{did_you_mean(name, known)}"
            )


def _slices(rows: Predictions, drawn: Drawn) -> Slices | None:
    """The worst slices of all rows; weights do not count here, because the test needs rows."""
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


def as_document(
    subjects: Sequence[Sequence[Subject]], pairings: Sequence[Pairing], drawn: Drawn
) -> dict[str, Any]:
    """All numbers of an audit, and how the intervals were made, as plain JSON."""
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
                "verdict": verdict(s),
                "claim": None if s.claim is None else s.claim.as_dict(),
                "approximate": s.approximate,
                "metrics": as_json(s.estimates),
                "reference": None if s.reference is None else s.reference.as_dict(),
                "over_time": None if s.timeline is None else s.timeline.as_dict(),
                "cells": [
                    {"class": r.name, "group": r.group, "accuracy": r.estimate.as_dict()}
                    for r in s.cells
                ],
                "counts": s.counts.n_CPG.tolist(),
            }
            for of_file in subjects
            for s in of_file
        ],
        "slices": [
            {"model": s.name, **s.slices.as_dict()}
            for of_file in subjects
            for s in of_file
            if s.slices is not None
        ],
        "comparisons": [p.as_dict() for p in pairings],
    }


def write_json(
    path: Path, subjects: Sequence[Sequence[Subject]], pairings: Sequence[Pairing], drawn: Drawn
) -> None:
    """All numbers of an audit in a file."""
    content = as_document(subjects, pairings, drawn)
    write_atomic(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
