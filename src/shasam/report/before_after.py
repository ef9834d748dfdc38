"""Two models on the same images as before and after: sentences and a figure of the gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from shasam.metrics import over_seeds
from shasam.metrics.counts import recalls
from shasam.report.subject import Subject
from shasam.report.svg import COLOURS, line, marker, picture, text
from shasam.report.words import joined, percent

MOST_METHODS, MOST_CLASSES = 4, 6  # more rows than this are a table, not a picture


def before_after(baseline: str, by_method: Mapping[str, Sequence[Subject]]) -> list[str]:
    """Sentences where one method stands beside its baseline; none where there are more."""
    if len(by_method) != 2 or baseline not in by_method:
        return []
    (other,) = (name for name in by_method if name != baseline)
    shown = []
    for method in (baseline, other):
        for key in ("eo_mean", "accuracy"):
            mean = over_seeds([e.estimates[key] for e in by_method[method]]).mean
            if not math.isfinite(mean):
                return []
            shown.append(percent(mean))
    unit = by_method[baseline][0].unit
    groups = joined(by_method[baseline][0].counts.groups)
    plain = f"cross-entropy ({baseline})" if baseline.startswith("ce") else baseline
    return [
        f"Before, with {plain}: a gap of {shown[0]} points between {groups}, and {shown[1]} % "
        f"of all {unit} classified correctly.",
        f"After, with {other}: a gap of {shown[2]} points, and {shown[3]} % classified correctly.",
        f"The gap is how much the accuracy on {unit} of the same class differs between the groups "
        "(average gap between groups, EO).",
    ]


def gaps(by_method: Mapping[str, Sequence[Subject]]) -> Markup:
    """For each class and method the accuracy in every group, joined by a line as long as the gap.

    Nothing where there is one method alone, or too many rows for a picture.
    """
    first = next(iter(by_method.values()))[0].counts
    names = (first.classes, first.groups)
    others = (e.counts for members in by_method.values() for e in members)
    alike = all((counts.classes, counts.groups) == names for counts in others)
    if not (alike and 2 <= len(by_method) <= MOST_METHODS and len(first.classes) <= MOST_CLASSES):
        return Markup("")
    rates = {method: _recalls(entries) for method, entries in by_method.items()}
    left, right, y = 96.0, 480.0, 8.0
    body: list[str] = []
    told: list[str] = []
    for c, name in enumerate(first.classes):
        y += 22
        body.append(text(0, y, f"Class {name}", "b", most=50))
        for method, rate_CG in rates.items():
            y += 22
            x_G = left + rate_CG[c] * (right - left)
            gap = percent(float(np.ptp(rate_CG[c])))
            body.append(text(0, y + 4, method, "muted", most=16))
            body.append(line(left, y, right, y, "grid"))
            body.append(line(float(x_G.min()), y, float(x_G.max()), y, "whisker"))
            for g, group in enumerate(first.groups):
                words = f"{method}, {name}, {group}: {percent(rate_CG[c, g])} %"
                body.append(marker(g, float(x_G[g]), y, 5.5, f"fill c{g % COLOURS}", words))
            body.append(text(right + 12, y + 4, f"gap {gap}"))
            told.append(f"{method} on {name}: {gap} points")
        y += 6
    y += 20
    for share in (0, 25, 50, 75, 100):
        x = left + share / 100 * (right - left)
        body.append(text(x, y, f"{share} %", "muted small", "middle"))
    return picture(right + 76, y + 6, body, f"Gaps between the groups. {'; '.join(told)}.")


def _recalls(entries: Sequence[Subject]) -> np.ndarray:
    """Accuracy of each (class, group) cell, its mean where there are several seeds."""
    return np.mean([recalls(e.counts.n_CPG) for e in entries], axis=0)
