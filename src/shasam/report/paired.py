"""Two models on the same rows: matched and compared, as a sentence, a table row or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError, MemoryLimitError
from shasam.metrics import Comparison, compare
from shasam.report.subject import Drawn, Subject
from shasam.report.words import comparison_line
from shasam.types import Predictions

BASELINE = "ce"


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
        """Plain JSON."""
        found = None if self.found is None else {k: c.as_dict() for k, c in self.found.items()}
        return {
            "model": self.a,
            "against": self.b,
            "attribute": self.attribute,
            "differences": found,
            "reason": self.reason or None,
        }


def is_plain(method: str) -> bool:
    """Whether it is cross-entropy, the method that does nothing about the groups."""
    return method.split(" (")[0].split("@")[0].lower() in (BASELINE, "cross-entropy")


def baseline_of(names: Sequence[str]) -> str:
    """What others are compared with: cross-entropy where it is there, else the first."""
    return min(filter(is_plain, names), key=lambda name: ("@" in name, name), default=names[0])


def pairings(subjects: Sequence[Sequence[Subject]], drawn: Drawn) -> list[Pairing]:
    """Each file of an audit against the first, through each attribute."""
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


def pairing(a: Subject, b: Subject, attribute: str, drawn: Drawn) -> Pairing:
    """Both on the same rows, matched by id where there is one."""
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
    """Orders in which the rows of both are the same, or the reason why there are none."""
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
