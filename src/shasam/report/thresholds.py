"""Scores as decisions: ROC curves by group, and group rates against the threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from shasam.metrics import by_group, roc_curve, threshold_curves
from shasam.metrics.confusion import rate_named
from shasam.report.figures import WIDTH, axes, largest_groups
from shasam.report.subject import Subject
from shasam.report.svg import COLOURS, line, marker, picture, polyline, text

RATES = ("selection", "fpr", "fnr")
MOST_POINTS = 200  # of a curve; a screen shows no more
LEFT, RIGHT, TOP, BOTTOM = 40.0, WIDTH - 12, 14.0, 250.0


@dataclass(frozen=True)
class Decided:
    """Scores of the positive class with what decided: a threshold, where there is one."""

    subject: Subject
    score: np.ndarray
    hit: np.ndarray  # rows of the positive class
    positive: int
    threshold: float | None

    @classmethod
    def of(cls, subject: Subject) -> Decided | None:
        """None without scores, and for more than two classes."""
        rows = subject.rows
        if not subject.scored or len(rows.classes) != 2:
            return None
        positive = 1 if rows.positive is None else rows.positive
        score = rows.scores[:, positive]
        threshold = rows.threshold
        if threshold is None:
            threshold = _between(score, rows.prediction == positive)
        return cls(subject, score, rows.target == positive, positive, threshold)

    @property
    def says(self) -> str:
        """Which threshold is drawn."""
        if self.threshold is None:
            return "The predictions do not follow one threshold of the score, so none is drawn."
        return f"The upright line is the threshold in use, {self.threshold:.3g}."

    def roc(self) -> Markup:
        """The curve of each group; a mark is the decision in use."""
        rows = self.subject.rows
        rates = by_group(self.subject.counts, positive=self.positive)
        body = axes(LEFT, RIGHT, TOP, BOTTOM, (0.0, 100.0), (0.0, 100.0))
        body.append(line(_x(0), _y(0), _x(1), _y(1), "diagonal"))
        told = []
        for g in largest_groups(self.subject):
            own = rows.sensitive == g
            times = None if rows.repeats is None else rows.repeats[own]
            if not self.hit[own].any() or self.hit[own].all():
                continue  # one class alone has no curve
            curve = roc_curve(self.hit[own], self.score[own], times)
            kept = _thinned(len(curve.fpr))
            points = [(_x(a), _y(b)) for a, b in zip(curve.fpr[kept], curve.tpr[kept], strict=True)]
            body.append(polyline(points, f"line c{g % COLOURS}"))
            fpr, tpr = rates["fpr"][g].value, rates["tpr"][g].value
            says = f"{rows.groups[g]}: FPR {100 * fpr:.1f} %, TPR {100 * tpr:.1f} %"
            body.append(marker(g, _x(fpr), _y(tpr), 5.0, f"fill c{g % COLOURS}", says))
            told.append(says)
        body.append(_below("false positive rate, %"))
        body.append(text(LEFT, TOP - 3, "true positive rate, %", "muted"))
        return picture(WIDTH, BOTTOM + 42, body, f"ROC by group. In use: {'; '.join(told)}.")

    def rate(self, name: str) -> Markup:
        """One rate of each group against the threshold, with the threshold in use."""
        rows, label = self.subject.rows, rate_named(name).label
        curves = threshold_curves(
            self.hit, self.score, rows.sensitive, rows.groups, chosen=self.threshold,
            repeats=rows.repeats,
        )  # fmt: skip
        body = axes(LEFT, RIGHT, TOP, BOTTOM, (0.0, 1.0), (0.0, 100.0))
        for g in largest_groups(self.subject):
            share_T = curves.value[name][:, g]
            points = [
                (_x(t), _y(v))
                for t, v in zip(curves.thresholds, share_T, strict=True)
                if np.isfinite(v)
            ]
            body.append(polyline(points, f"line c{g % COLOURS}" + (" dashed" if g % 2 else "")))
        if self.threshold is not None and 0 <= self.threshold <= 1:
            x = _x(self.threshold)
            body.append(line(x, TOP, x, BOTTOM, "whisker"))
            left = self.threshold < 0.75
            at = f"in use: {self.threshold:.3g}"
            body.append(text(x + (4 if left else -4), TOP + 10, at, "small",
                             "start" if left else "end"))  # fmt: skip
        body.append(_below("threshold of the score"))
        body.append(text(LEFT, TOP - 3, f"{label}, %", "muted"))
        return picture(
            WIDTH, BOTTOM + 42, body, f"{label} of each group against the threshold. {self.says}"
        )


def _between(score: np.ndarray, called: np.ndarray) -> float | None:
    """The threshold that gives these predictions: 0.5 if it does, else the lowest positive one."""
    if not called.any() or called.all():
        return None
    above, below = float(score[called].min()), float(score[~called].max())
    if below >= above:
        return None
    return 0.5 if below < 0.5 <= above else above


def _thinned(points: int) -> np.ndarray:
    return np.unique(np.linspace(0, points - 1, min(points, MOST_POINTS)).round().astype(int))


def _x(v: float) -> float:
    return LEFT + v * (RIGHT - LEFT)


def _y(v: float) -> float:
    return BOTTOM - v * (BOTTOM - TOP)


def _below(label: str) -> str:
    return text((LEFT + RIGHT) / 2, BOTTOM + 34, label, "muted", "middle")
