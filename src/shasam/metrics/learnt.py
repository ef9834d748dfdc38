"""Has a model learnt its target? One rule, for the terminal, pages, cards, exports and records.

A model that always names one class, or guesses, has an even error in every group, so its small gap
between groups says nothing. The rule therefore asks first whether predictions and labels go
together. Their measure is the correlation of the confusion matrix (Matthews' for two classes,
Gorodkin's R for more): 0 for a constant, a coin, or a guess at any rate of each class; 1 for no
error. Accuracy is not asked, because a model of equally weighted classes may be less accurate than
the most common class and still have learnt.

The null hypothesis is a correlation of at most ``LEAST``, not of 0: features of a network that was
never trained let a second stage guess a little better than chance, and on 2,000 rows a plain test
calls 52.5 % of two even classes significant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shasam.metrics.counts import Counts

LEAST = 0.1  # correlation that a model has to exceed; 55 % accuracy of two even classes
FEWEST_ROWS = 10  # below, nothing is sure
_SURE = 1.6448536269514722  # standard normal quantile of a one-sided test at 5 %


@dataclass(frozen=True)
class Skill:
    """How far predictions and labels go together, and how sure that is."""

    rows: int
    accuracy: float
    majority: float  # share of the most common class
    correlation: float
    low: float  # lower end of its one-sided 95 % interval
    only_class: str | None = None  # the one class that is ever predicted

    @property
    def learnt(self) -> bool:
        """Whether the correlation is above ``LEAST`` beyond chance."""
        return self.low > LEAST

    @classmethod
    def of(cls, counts: Counts) -> Skill:
        """Return the skill of a table of counts."""
        n_CP = counts.n_CPG.sum(2).astype(np.float64)
        total = float(n_CP.sum())
        correlation, error = correlation_of(n_CP)
        low = correlation - _SURE * error if total >= FEWEST_ROWS else -1.0
        used = np.flatnonzero(n_CP.sum(0))
        return cls(
            rows=round(total),
            accuracy=float(np.trace(n_CP)) / total,
            majority=float(n_CP.sum(1).max()) / total,
            correlation=correlation,
            low=low,
            only_class=counts.classes[int(used[0])] if len(used) == 1 else None,
        )

    @classmethod
    def from_codes(cls, t: np.ndarray, p: np.ndarray, classes: int) -> Skill:
        """Return the skill of predictions ``p`` for labels ``t``, both 0..classes-1."""
        names = tuple(map(str, range(classes)))
        return cls.of(Counts.from_codes(t, p, np.zeros_like(t), names, ("all",)))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for ``metrics.json``."""
        return {
            "learnt": self.learnt,
            "rows": self.rows,
            "accuracy": self.accuracy,
            "majority": self.majority,
            "correlation": self.correlation,
            "low": self.low,
            "least": LEAST,
            "only_class": self.only_class,
        }

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Skill:
        """Read what ``as_dict`` wrote; raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        only = body["only_class"]
        return cls(
            rows=int(body["rows"]),
            accuracy=float(body["accuracy"]),
            majority=float(body["majority"]),
            correlation=float(body["correlation"]),
            low=float(body["low"]),
            only_class=None if only is None else str(only),
        )

    def sentence(self, unit: str = "rows", split: str = "test") -> str:
        """Say what is wrong, in figures; of a model that has not learnt."""
        if self.only_class is not None:
            return (
                f"The model has not learnt: it calls each of {self.rows:,} {split} {unit} "
                f"{self.only_class}."
            )
        return (
            f"The model has not learnt: {100 * self.accuracy:.1f} % of {self.rows:,} {split} "
            f"{unit} are right, and always naming the most common class would make it "
            f"{100 * self.majority:.1f} %. Labels and predictions have a correlation of "
            f"{self.correlation:.2f}, which is not shown to be above {LEAST:g}."
        )


def correlation_of(n_CP: np.ndarray) -> tuple[float, float]:
    """Compute Gorodkin's R of a confusion matrix (Matthews' for two classes) and its standard
    error by the delta method; 0 and 0 where labels or predictions are constant.

    >>> value, error = correlation_of(np.array([[45.0, 5.0], [5.0, 45.0]]))
    >>> round(value, 3), round(error, 3)
    (0.8, 0.06)
    """
    total = float(n_CP.sum())
    share_CP = n_CP / total
    label_C, called_P = share_CP.sum(1), share_CP.sum(0)
    together = float(np.trace(share_CP) - label_C @ called_P)
    labels, called = 1 - float(label_C @ label_C), 1 - float(called_P @ called_P)
    if min(labels, called) < 1e-12:
        return 0.0, 0.0
    root = math.sqrt(labels * called)
    value = together / root
    # the derivative of the value by the share of each entry
    slope_CP = (np.eye(len(n_CP)) - called_P[:, None] - label_C[None, :]) / root
    slope_CP += value * (label_C[:, None] / labels + called_P[None, :] / called)
    mean = float((share_CP * slope_CP).sum())
    variance = float((share_CP * (slope_CP - mean) ** 2).sum()) / total
    return value, math.sqrt(variance)


@dataclass(frozen=True)
class Learnt:
    """The verdict on a trained model, as ``metrics.json`` keeps it under "learnt"."""

    own: Skill  # of the predictions that the method stands for
    heads: Mapping[str, Skill] = field(default_factory=dict)  # of its other classifiers, by name
    features: Skill | None = None  # of a linear probe of what the classifiers read
    log_loss: float | None = None  # of its probabilities
    chance_loss: float | None = None  # of the shares of the classes instead

    @property
    def ok(self) -> bool:
        """Whether the model has learnt its target."""
        return self.own.learnt

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for ``metrics.json``."""
        return {
            **self.own.as_dict(),
            "heads": {name: skill.as_dict() for name, skill in self.heads.items()},
            "features": None if self.features is None else self.features.as_dict(),
            "log_loss": self.log_loss,
            "chance_loss": self.chance_loss,
        }

    @classmethod
    def from_dict(cls, body: Any) -> Learnt | None:
        """Read what ``as_dict`` wrote; None if this is something else."""
        try:
            features = body["features"]
            losses = (body["log_loss"], body["chance_loss"])
            return cls(
                Skill.from_dict(body),
                {str(name): Skill.from_dict(skill) for name, skill in body["heads"].items()},
                None if features is None else Skill.from_dict(features),
                *(None if value is None else float(value) for value in losses),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def sentences(self, unit: str = "rows", split: str = "test") -> list[str]:
        """Say what a reader has to know before anything else; nothing if all is well."""
        lines = []
        if not self.ok:
            lines.append(f"{self.own.sentence(unit, split)} {self._remedy()}")
        constant = [name for name, skill in self.heads.items() if skill.only_class is not None]
        if constant:
            some = f"The classifier on {constant[0]} names"
            if len(constant) > 1:
                some = f"The classifiers on {', '.join(constant)} name"
            lines.append(f"{some} one class only.")
        own, chance = self.log_loss, self.chance_loss
        if own is not None and chance is not None and not own <= chance:
            lines.append(
                "Its probabilities are worse than the shares of the classes: log loss "
                f"{own:.3f}, chance {chance:.3f}."
            )
        return lines

    def _remedy(self) -> str:
        if self.features is not None and self.features.learnt:
            return (
                f"Its features hold the target (a linear probe is right for "
                f"{100 * self.features.accuracy:.1f} %), so it is the classifier that has not "
                "learnt: try another rate or more epochs for it (--classify.lr, --classify.epochs "
                "of a method with two stages)."
            )
        return (
            "Its gaps between groups mean nothing. Try a lower rate (--lr), --on-plateau "
            "lower-rate, or more steps."
        )


def log_losses(t_n: np.ndarray, scores_nC: np.ndarray) -> tuple[float, float]:
    """Return the log loss of probabilities, and that of the shares of the classes in these rows."""
    rows = np.arange(len(t_n))
    own = -np.log(np.maximum(scores_nC[rows, t_n].astype(np.float64), 1e-12)).mean()
    share_C = np.bincount(t_n, minlength=scores_nC.shape[1]) / len(t_n)
    return float(own), float(-np.log(share_C[t_n]).mean())
