"""Rates of single cells and groups, each with its own Wilson interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shasam.metrics.counts import Counts
from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import wilson_ends


@dataclass(frozen=True)
class Rate:
    """One rate: of which class and group, and how sure."""

    kind: str  # "recall": P(right | class, group); "selection": P(prediction | group); "accuracy"
    name: str | None  # the class, or None where the rate is over all classes
    group: str
    estimate: Estimate


def wilson(part: float, whole: float, level: float = 0.95) -> Estimate:
    """part / whole with Wilson's score interval (1927); NaN with a reason where whole is 0.

    Both are counts, or what weighted rows are worth.
    """
    if whole == 0:
        return Estimate.undefined("no rows")
    low, high = wilson_ends(np.array([part / whole]), np.array([whole]), level)
    return Estimate(float(part / whole), float(low[0]), float(high[0]), round(whole))


def cell_rates(counts: Counts, level: float = 0.95) -> list[Rate]:
    """The accuracy of every (class, group) cell: what equalized odds compares."""
    cells = counts.cells_CG
    return [
        Rate("recall", name, group, wilson(counts.n_CPG[c, c, g], cells[c, g], level))
        for c, name in enumerate(counts.classes)
        for g, group in enumerate(counts.groups)
    ]


def group_rates(counts: Counts, level: float = 0.95) -> list[Rate]:
    """Accuracy of every group, and how often each class is predicted for it."""
    sizes = counts.n_CPG.sum((0, 1))
    out = []
    for g, group in enumerate(counts.groups):
        right, whole = counts.n_CPG[:, :, g].trace(), sizes[g]
        out.append(Rate("accuracy", None, group, wilson(right, whole, level)))
        for p, name in enumerate(counts.classes):
            part = counts.n_CPG[:, p, g].sum()
            out.append(Rate("selection", name, group, wilson(part, whole, level)))
    return out
