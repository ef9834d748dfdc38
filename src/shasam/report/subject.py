"""Evaluate one model through one sensitive attribute: metrics, claims, groups against one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from shasam.metrics import (
    Claim,
    Counts,
    Estimate,
    GroupContrast,
    Period,
    Rate,
    Slices,
    against,
    catalogue,
    cell_rates,
    claim_of,
    evaluate,
    group_rates,
    over_time,
)
from shasam.metrics.counts import weighted
from shasam.metrics.evaluation import approximate
from shasam.metrics.odds import ScoreFront, front_of_scores, front_reason
from shasam.metrics.rates import LARGEST, RATES
from shasam.metrics.resampling import check_draws
from shasam.metrics.scores import (
    Abstention,
    Reliability,
    abstention,
    binning_errors,
    checked_scores,
    densities,
)
from shasam.report.svg import element, line, marker, picture, text, ticks
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# How the intervals of an audit are made, and what is compared.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditOptions:
    """How intervals are made and which groups are compared; the defaults are those of an audit."""

    draws: int = 2000
    seed: int = 0
    level: float = 0.95
    strata: str = "none"  # whose sizes resampling keeps
    min_group: int = 30  # groups with fewer rows are shown, but not compared
    reference: tuple[str, ...] = ()  # groups that others are compared with; else the largest
    period: str = "month"  # over time
    min_slice: int = 50  # fewest rows of a slice
    front: bool = False  # try thresholds per group on the scores

    def __post_init__(self) -> None:
        check_draws(self.draws, self.seed)

    def keywords(self, rows: Predictions) -> dict[str, Any]:
        """Return what ``shasam.metrics`` is told of rows beside their labels, predictions and
        groups.
        """
        return {
            "classes": rows.classes,
            "groups": rows.groups,
            "positive": rows.positive,
            "draws": self.draws,
            "seed": self.seed,
            "level": self.level,
            "strata": self.strata,
            "min_group": self.min_group,
            "repeats": rows.repeats,
            "weights": rows.context.weights,
        }


OF_RUNS = AuditOptions(strata="cell", min_group=0)  # a run's splits have fixed cells


# -------------------------------------------------------------------------------------------------
# Every group against one: differences and ratios of error rates, and the four-fifths rule.
# -------------------------------------------------------------------------------------------------

FOUR_FIFTHS = 0.8  # of the reference's selection rate: below it, US agencies presume a disparity


@dataclass(frozen=True)
class Reference:
    """The group that others are compared with, and what was found."""

    group: str
    positive: str  # the class whose rates they are
    named: bool  # it was asked for; otherwise it is the largest
    rates: dict[str, list[GroupContrast]]  # rate -> every other group

    @classmethod
    def of(
        cls, counts: Counts, names: Sequence[str], positive: int | None, level: float
    ) -> Reference | None:
        """Return the first of ``names`` that is a group here, else the largest group."""
        if positive is None or len(counts.groups) < 2:
            return None
        named = next((name for name in names if name in counts.groups), None)
        group = named or counts.groups[int(counts.sizes_G.argmax())]
        rates = {
            rate.name: against(counts, rate.name, group, positive=positive, level=level)
            for rate in RATES
        }
        return cls(group, counts.classes[positive], named is not None, rates)

    @property
    def says(self) -> str:
        """Which group it is, and why."""
        return f"{self.group}, {'as asked for' if self.named else f'the {LARGEST} group'}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "group": self.group,
            "named": self.named,
            "rates": {
                name: [
                    {
                        "group": a.group,
                        "difference": a.difference.as_dict(),
                        "ratio": a.ratio.as_dict(),
                    }
                    for a in found
                ]
                for name, found in self.rates.items()
            },
        }

    def four_fifths(self, least: int = 0) -> str:
        """Return what the rule says of the group that is selected least, groups of few rows left
        out.
        """
        found = [a for a in self.rates["selection"] if a.ratio.defined and a.ratio.support >= least]
        if not found:
            return "The four-fifths rule cannot be applied: no ratio of selection rates is defined."
        worst = min(found, key=lambda a: a.ratio.value)
        r = worst.ratio
        span = f"{100 * r.low:.1f} to {100 * r.high:.1f}"
        meets = "meets" if r.value >= FOUR_FIFTHS else "breaks"
        sure = "" if r.low >= FOUR_FIFTHS or r.high < FOUR_FIFTHS else ", but the interval holds 80"
        return (
            f"Group {worst.group} is predicted {self.positive} at {100 * r.value:.1f} % of the "
            f"rate of {self.group} ({span}), which {meets} the four-fifths rule{sure}."
        )


# -------------------------------------------------------------------------------------------------
# The gap between groups over time: one value with its interval for each period.
# -------------------------------------------------------------------------------------------------

WIDTH = 420.0


@dataclass(frozen=True)
class Timeline:
    """A metric in every period that has rows."""

    column: str
    period: str
    metric: str
    periods: tuple[Period, ...]

    @classmethod
    def of(cls, rows: Predictions, drawn: AuditOptions, metric: str) -> Timeline:
        """Compute the timeline of rows with dates."""
        found = over_time(
            rows.target,
            rows.prediction,
            rows.sensitive,
            rows.context.when,
            metric=metric,
            period=drawn.period,
            **drawn.keywords(rows),
        )
        return cls(rows.context.time, drawn.period, metric, tuple(found))

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "column": self.column,
            "period": self.period,
            "metric": self.metric,
            "periods": [p.as_dict() for p in self.periods],
        }

    def figure(self) -> Markup:
        """Draw a mark with its interval for every period that has a value."""
        left, right, top, bottom = 46.0, WIDTH - 12, 14.0, 190.0
        found = [(i, p) for i, p in enumerate(self.periods) if p.estimate.defined]
        if not found:
            return Markup("")
        most = max(100 * p.estimate.high for _, p in found) * 1.05 or 1.0
        step = (right - left) / len(self.periods)
        body = []
        for v in ticks(0.0, most, 5):
            y = bottom - v / most * (bottom - top)
            body.append(line(left, y, right, y, "grid"))
            body.append(text(left - 6, y + 4, f"{v:g}", "muted small", "end"))
        for i, p in found:
            x, e = left + (i + 0.5) * step, p.estimate
            low, y, high = (
                bottom - 100 * v / most * (bottom - top) for v in (e.low, e.value, e.high)
            )
            says = (
                f"{p.name}: {100 * e.value:.1f} points ({100 * e.low:.1f} to {100 * e.high:.1f}), "
                f"{p.rows:,} rows"
            )
            body.append(element("g", line(x, low, x, high, "whisker own"), cls="c0"))
            body.append(marker(0, x, y, 4.2, "fill c0", says))
        every = -(-len(self.periods) // 6)
        for i, p in enumerate(self.periods):
            if i % every == 0:
                middle = left + (i + 0.5) * step
                body.append(text(middle, bottom + 17, p.name, "muted small", "middle"))
        body.append(line(left, bottom, right, bottom, "axis"))
        body.append(text(left, top - 3, "gap, points", "muted"))
        told = "; ".join(f"{p.name} {100 * p.estimate.value:.1f}" for _, p in found[:24])
        return picture(WIDTH, bottom + 26, body, f"Gap in points by {self.period}: {told}.")


# -------------------------------------------------------------------------------------------------
# One model on one test set, seen through one sensitive attribute: all that a page shows of it.
# -------------------------------------------------------------------------------------------------

__all__ = ["OF_RUNS", "AuditOptions", "Subject", "counts_of"]


@dataclass(frozen=True)
class Subject:
    """Predictions with their counts and estimates; rates and curves are computed when asked for."""

    rows: Predictions = field(repr=False)
    counts: Counts
    estimates: dict[str, Estimate]
    drawn: AuditOptions
    unit: str = "images"  # what a row is
    method: str = ""  # of a run
    seed: int | None = None  # of a run
    claim: Claim | None = None  # what may be said of the gap between groups
    slices: Slices | None = None  # of all rows, so only the first attribute of a file has them

    @classmethod
    def of(
        cls,
        rows: Predictions,
        drawn: AuditOptions,
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
        if rows.span is not None:  # ranks have an order, but no calibration and no scale
            estimates = {
                k: e for k, e in estimates.items() if not k.startswith(("ece", "abcc", "abpc"))
            }
        claim = claim_of(
            counts, estimates, positive=rows.positive, level=drawn.level, least=drawn.min_group
        )
        return cls(rows, counts, estimates, drawn, unit, method or rows.name, seed, claim)

    def with_estimates(self, estimates: dict[str, Estimate], attributes: int) -> Subject:
        """Return the same with estimates that allow for several attributes, and the claim from
        them.
        """
        claim = claim_of(
            self.counts,
            estimates,
            positive=self.positive,
            level=self.drawn.level,
            least=self.drawn.min_group,
        )
        claim = None if claim is None else replace(claim, attributes=attributes)
        return replace(self, estimates=estimates, claim=claim)

    @property
    def name(self) -> str:
        """The model."""
        return self.rows.name

    @property
    def attribute(self) -> str:
        """The sensitive attribute, or several joined."""
        return self.rows.attribute

    @cached_property
    def abstention(self) -> list[Abstention]:
        """Coverage and accuracy by group where the least sure answers are left out."""
        return abstention(self.rows, level=self.drawn.level) if self.scored else []

    @property
    def outcome(self) -> str:
        """What the classes are values of; empty where that has no telling name."""
        # classes of a rule say it themselves: not "where age<35 is age<35"
        return "" if self.rows.outcome in self.rows.classes else self.rows.outcome

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
        if not self.scored or len(rows.classes) != 2 or rows.span is not None:
            return None
        favourable = rows.positive if rows.positive is not None else 1
        scores = self._probabilities[:, favourable]
        return densities(scores, rows.sensitive, len(rows.groups), rows.repeats)

    @cached_property
    def reliability(self) -> Reliability | None:
        rows = self.rows
        if not self.scored or rows.span is not None:
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
        """Every group against the reference group; None if no class is positive."""
        return Reference.of(self.counts, self.drawn.reference, self.positive, self.drawn.level)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The gap of every period; None where rows have no dates."""
        metric = "eo_mean" if self.claim is None else self.claim.metric
        return (
            None if self.rows.context.when is None else Timeline.of(self.rows, self.drawn, metric)
        )

    @cached_property
    def front(self) -> ScoreFront | str | None:
        """What thresholds per group could do, or why nothing is known; None if not asked for."""
        if not self.drawn.front:
            return None
        drawn = self.drawn
        return front_reason(self.rows) or front_of_scores(
            self.rows,
            level=drawn.level,
            draws=drawn.draws,
            seed=drawn.seed,
            strata=drawn.strata,
            min_group=drawn.min_group,
        )

    @cached_property
    def binning(self) -> dict[str, float] | None:
        """How far metrics of scores can be from those of the rows; None where none were binned."""
        rows = self.rows
        if rows.bins is None or rows.repeats is None or not self.scored:
            return None
        hit = None if rows.positive is None else rows.target == rows.positive
        return binning_errors(
            rows.bins, rows.scores, hit, rows.sensitive, len(rows.groups), rows.repeats
        )

    @property
    def _probabilities(self) -> np.ndarray:
        return checked_scores(self.rows.scores, len(self.rows), len(self.rows.classes))

    @cached_property
    def approximate(self) -> dict[str, str]:
        """Why an interval is approximate, metric by metric; simulations were of 95 % intervals."""
        compared = self.counts.only(np.flatnonzero(self.compared_CG.any(0)))
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
    def worst_served(self) -> str:
        """The class and group of the lowest accuracy among the cells that are compared."""
        own = [r for r in self.cells if r.estimate.defined and not self.few(r.estimate)]
        if not own:
            return ""
        worst = min(own, key=lambda r: r.estimate.value)
        return f"class {worst.name} of {worst.group}"

    @property
    def shown_metrics(self) -> list[str]:
        """The metrics of the short table: the usual ten, and those of other packages."""
        known = catalogue.shown("audit")
        return [k for k in self.estimates if k in known or not catalogue.built_in(k)]

    @property
    def compared_CG(self) -> np.ndarray:
        """The (class, group) cells that have enough rows to be compared."""
        return self.counts.cells_CG >= self.drawn.min_group

    @property
    def small(self) -> tuple[str, ...]:
        """The groups that have too few rows of some class to be compared there."""
        few = np.flatnonzero(~self.compared_CG.all(0))
        return tuple(self.counts.groups[g] for g in few)

    def few(self, estimate: Estimate) -> bool:
        """Return whether a rate rests on too few rows to be compared."""
        return estimate.support < self.drawn.min_group


def counts_of(rows: Predictions) -> Counts:
    """Return how many rows have each (class, prediction, group).

    Weighted rows count what they are worth.
    """
    codes = (rows.target, rows.prediction, rows.sensitive)
    if rows.context.weights is not None:
        return weighted(*codes, rows.context.weights, rows.classes, rows.groups)
    return Counts.from_codes(*codes, rows.classes, rows.groups, rows.repeats)
