"""One model on one test set, seen through one sensitive attribute: all that a page shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shasam.metrics import (
    Claim,
    Counts,
    Estimate,
    Rate,
    cell_rates,
    claim_of,
    evaluate,
    group_rates,
)
from shasam.metrics.areas import densities
from shasam.metrics.calibration import Reliability
from shasam.metrics.scores import checked_scores

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Subject:
    """Counts, estimates and curves; single rows, unless they were counted, for comparisons."""

    name: str  # the model
    attribute: str  # the sensitive attribute, or several joined
    counts: Counts
    estimates: dict[str, Estimate]
    cells: list[Rate]
    groups: list[Rate]
    density_GB: np.ndarray | None = None  # of the positive class's score, by group
    reliability: Reliability | None = None
    label: np.ndarray = field(default_factory=lambda: _NONE, repr=False)
    prediction: np.ndarray = field(default_factory=lambda: _NONE, repr=False)
    group: np.ndarray = field(default_factory=lambda: _NONE, repr=False)
    ids: np.ndarray | None = field(default=None, repr=False)
    level: float = 0.95  # of the intervals
    strata: str = "cell"  # whose sizes resampling keeps
    draws: int = 2000
    unit: str = "images"  # what a row is
    positive: int | None = None  # the favourable class
    min_group: int = 0  # groups with fewer rows are shown, but not compared
    claim: Claim | None = None  # what may be said of the gap between groups

    @classmethod
    def of(
        cls,
        name: str,
        attribute: str,
        t: np.ndarray,
        p: np.ndarray,
        s: np.ndarray,
        scores_NC: np.ndarray | None,
        classes: Sequence[str],
        groups: Sequence[str],
        *,
        positive: int | None = None,
        draws: int = 2000,
        seed: int = 0,
        level: float = 0.95,
        strata: str = "cell",
        ids: np.ndarray | None = None,
        unit: str = "images",
        min_group: int = 0,
        repeats: np.ndarray | None = None,
    ) -> Subject:
        """Evaluate codes and scores once, for every figure and table."""
        counts = Counts.from_codes(t, p, s, classes, groups, repeats)
        estimates = evaluate(
            t,
            p,
            s,
            scores_NC,
            classes=classes,
            groups=groups,
            positive=positive,
            draws=draws,
            seed=seed,
            level=level,
            strata=strata,
            min_group=min_group,
            repeats=repeats,
        )
        density = reliability = None
        if scores_NC is not None:
            probabilities = checked_scores(scores_NC, len(t), len(classes))
            favourable = positive if positive is not None else 1
            if len(classes) == 2:
                density = densities(probabilities[:, favourable], s, len(groups), repeats)
            chosen = np.take_along_axis(probabilities, p[:, None], 1)[:, 0]
            reliability = Reliability.of(p == t, chosen, s, len(groups), repeats)
        # counted rows have no rows of their own to show
        label, prediction, group = (t, p, s) if repeats is None else (_NONE, _NONE, _NONE)
        return cls(
            name,
            attribute,
            counts,
            estimates,
            cell_rates(counts, level),
            group_rates(counts, level),
            density,
            reliability,
            label,
            prediction,
            group,
            ids,
            level,
            strata,
            draws,
            unit,
            positive,
            min_group,
            claim_of(
                counts.only(counts.large(min_group)), estimates, positive=positive, level=level
            ),
        )

    @property
    def small(self) -> tuple[str, ...]:
        """The groups that have too few rows to be compared."""
        sizes = zip(self.counts.groups, self.counts.sizes_G.tolist(), strict=True)
        return tuple(name for name, n in sizes if n < self.min_group)
