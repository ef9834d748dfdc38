"""One model on one test set, seen through one sensitive attribute: all that a page shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shasam.metrics import (
    Claim,
    Counts,
    Estimate,
    Rate,
    Slices,
    catalogue,
    cell_rates,
    claim_of,
    evaluate,
    group_rates,
)
from shasam.metrics.areas import densities
from shasam.metrics.calibration import Reliability
from shasam.metrics.counts import weighted
from shasam.metrics.coverage import approximate
from shasam.metrics.scores import checked_scores
from shasam.report.drawn import OF_RUNS, Drawn
from shasam.report.reference import Reference
from shasam.report.timeline import Timeline
from shasam.types import Predictions

__all__ = ["OF_RUNS", "Drawn", "Subject", "counts_of"]


@dataclass(frozen=True)
class Subject:
    """Predictions with their counts and estimates; rates and curves are computed when asked for."""

    rows: Predictions = field(repr=False)
    counts: Counts
    estimates: dict[str, Estimate]
    drawn: Drawn
    unit: str = "images"  # what a row is
    method: str = ""  # of a run
    seed: int | None = None  # of a run
    claim: Claim | None = None  # what may be said of the gap between groups
    slices: Slices | None = None  # of all rows, so only the first attribute of a file has them

    @classmethod
    def of(
        cls,
        rows: Predictions,
        drawn: Drawn,
        *,
        estimates: dict[str, Estimate] | None = None,
        unit: str = "images",
        method: str = "",
        seed: int | None = None,
        metrics: Sequence[str] | None = None,
    ) -> Subject:
        """Count the rows and evaluate them, unless ``estimates`` are known already."""
        counts = counts_of(rows)
        if estimates is None:
            estimates = evaluate(
                rows.target,
                rows.prediction,
                rows.sensitive,
                rows.scores if rows.scored else None,
                metrics=metrics,
                **drawn.keywords(rows),
            )
        large = counts.only(counts.large(drawn.min_group))
        claim = claim_of(large, estimates, positive=rows.positive, level=drawn.level)
        return cls(rows, counts, estimates, drawn, unit, method or rows.name, seed, claim)

    @property
    def name(self) -> str:
        """The model."""
        return self.rows.name

    @property
    def attribute(self) -> str:
        """The sensitive attribute, or several joined."""
        return self.rows.attribute

    @property
    def outcome(self) -> str:
        """What the classes are values of; empty where that has no telling name."""
        return self.rows.outcome

    @property
    def positive(self) -> int | None:
        """The favourable class."""
        return self.rows.positive

    @cached_property
    def cells(self) -> list[Rate]:
        return cell_rates(self.counts, self.drawn.level)

    @cached_property
    def groups(self) -> list[Rate]:
        return group_rates(self.counts, self.drawn.level)

    @cached_property
    def density_GB(self) -> np.ndarray | None:
        """Of the positive class's score, by group; None without scores or for many classes."""
        rows = self.rows
        if not self.scored or len(rows.classes) != 2:
            return None
        favourable = rows.positive if rows.positive is not None else 1
        scores = self._probabilities[:, favourable]
        return densities(scores, rows.sensitive, len(rows.groups), rows.repeats)

    @cached_property
    def reliability(self) -> Reliability | None:
        rows = self.rows
        if not self.scored:
            return None
        chosen = np.take_along_axis(self._probabilities, rows.prediction[:, None], 1)[:, 0]
        right = rows.prediction == rows.target
        return Reliability.of(right, chosen, rows.sensitive, len(rows.groups), rows.repeats)

    @property
    def scored(self) -> bool:
        """Whether metrics and figures of scores are shown; they do not take sample weights."""
        return self.rows.scored and self.rows.context.weights is None

    @cached_property
    def reference(self) -> Reference | None:
        """Every group against the reference group; None where no class is positive."""
        return Reference.of(self.counts, self.drawn.reference, self.positive, self.drawn.level)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The gap of every period; None where rows have no dates."""
        metric = "eo_mean" if self.claim is None else self.claim.metric
        return (
            None if self.rows.context.when is None else Timeline.of(self.rows, self.drawn, metric)
        )

    @property
    def _probabilities(self) -> np.ndarray:
        return checked_scores(self.rows.scores, len(self.rows), len(self.rows.classes))

    @cached_property
    def approximate(self) -> dict[str, str]:
        """Why an interval is approximate, metric by metric; simulations were of 95 % intervals."""
        compared = self.counts.only(self.counts.large(self.drawn.min_group))
        if self.drawn.level != 0.95 or not len(compared.groups):
            return {}
        found = {
            key: approximate(
                key, compared, support=e.support,
                between_groups=catalogue.named(key).between_groups,
            )
            for key, e in self.estimates.items()
            if e.defined
        }  # fmt: skip
        return {key: why for key, why in found.items() if why}

    @property
    def small(self) -> tuple[str, ...]:
        """The groups that have too few rows to be compared."""
        sizes = zip(self.counts.groups, self.counts.sizes_G.tolist(), strict=True)
        return tuple(name for name, n in sizes if n < self.drawn.min_group)


def counts_of(rows: Predictions) -> Counts:
    """How many rows have each (class, prediction, group); weighted rows what they are worth."""
    codes = (rows.target, rows.prediction, rows.sensitive)
    if rows.context.weights is not None:
        return weighted(*codes, rows.context.weights, rows.classes, rows.groups)[1]
    return Counts.from_codes(*codes, rows.classes, rows.groups, rows.repeats)
