"""Evaluate all metrics of one model on one test set, each with its interval; also over time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics import catalogue
from shasam.metrics.catalogue import Metric
from shasam.metrics.counts import (
    Counts,
    Estimate,
    checked_repeats,
    encode_rows,
    right_by_class,
    weighted,
)
from shasam.metrics.intervals import check_evaluation, in_order, relatives
from shasam.metrics.resampling import Gap, Lowest, Ratio, Resampling, Statistic, compared_rates
from shasam.metrics.scores import ScoreMetric, ScoreMetricByGroup, ScoreRows, checked_scores
from shasam.registry import did_you_mean

# -------------------------------------------------------------------------------------------------
# All metrics of one model on one test set, each with its interval.
# -------------------------------------------------------------------------------------------------


def evaluate(
    label: Any,
    prediction: Any,
    group: Any,
    scores: Any = None,
    *,
    classes: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    positive: int | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    strata: str = "cell",
    min_group: int = 0,
    repeats: Any = None,
    metrics: Sequence[str] | None = None,
    weights: Any = None,
) -> dict[str, Estimate]:
    """Compute every metric with its interval; values are fractions 0..1.

    The formulas stand in docs/metrics.md.

    Parameters
    ----------
    label
        True classes (n,), as codes or names.
    prediction
        Predicted classes (n,), as codes or names.
    group
        Sensitive groups (n,), as codes or names.
    scores
        Class probabilities (n, C), or for two classes the probability of the second (n,).
    classes
        Names of the classes, if labels are codes.
    groups
        Names of the groups, if groups are codes.
    positive
        The favourable class, by default the second of two.
    draws
        Resampled tables for intervals and tests.
    seed
        Seed of the resampling.
    level
        Confidence of the intervals.
    strata
        Whose sizes resampling keeps: "cell" (class and group), "group" or "none".
    min_group
        A group is left out of a comparison if the rate in question has fewer rows in it.
    repeats
        How many rows each entry stands for, if a database has counted them.
    metrics
        Names of the metrics, ``["all"]`` for every one; by default without error rates by name.
    weights
        Sample weights (n,); metrics of scores do not take them.

    Returns
    -------
    dict[str, Estimate]
        Estimates by the name of the metric.

    Examples
    --------
    >>> e = evaluate([0, 0, 1, 1] * 50, [0, 1, 1, 1] * 50, [0, 1, 0, 1] * 50)
    >>> e["accuracy"].value, e["eo_mean"].value
    (0.75, 0.5)
    """
    t, p, s, class_names, group_names = encode_rows(label, prediction, group, classes, groups)
    repeated = None if repeats is None else checked_repeats(repeats, len(t))
    check_evaluation(len(class_names), len(group_names), draws, scores=scores is not None)
    if weights is None:
        counts = Counts.from_codes(t, p, s, class_names, group_names, repeated)
    else:
        if repeats is not None:
            raise InputError("give weights or repeats, not both")
        counts = weighted(t, p, s, weights, class_names, group_names)
    favourable = positive_of(counts, positive)
    made = Resampling(counts, favourable, draws, seed, level, strata, min_group)
    wanted = chosen(metrics)
    out = _of_counts(made, wanted)
    if scores is None or weights is not None:
        return out
    scores_NC = checked_scores(scores, len(t), len(class_names))
    return out | _of_scores(ScoreRows(made, t, p, s, scores_NC, repeated), wanted)


def evaluate_counts(
    counts: Counts,
    *,
    positive: int | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    strata: str = "cell",
    min_group: int = 0,
    metrics: Sequence[str] | None = None,
) -> dict[str, Estimate]:
    """Compute the metrics that need no scores from a table of counts.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    positive
        The favourable class, by default the second of two.
    draws
        Resampled tables for intervals and tests.
    seed
        Seed of the resampling.
    level
        Confidence of the intervals.
    strata
        Whose sizes resampling keeps: "cell", "group" or "none".
    min_group
        A group is left out of a comparison if the rate in question has fewer rows in it.
    metrics
        Names of the metrics; by default without error rates by name.

    Returns
    -------
    dict[str, Estimate]
        Estimates by the name of the metric.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> found = evaluate_counts(Counts(n, ("no", "yes"), ("a", "b")))
    >>> round(found["accuracy"].value, 2), round(found["eo_max"].value, 2)
    (0.8, 0.2)
    """
    favourable = positive_of(counts, positive)
    made = Resampling(counts, favourable, draws, seed, level, strata, min_group)
    return _of_counts(made, chosen(metrics))


def chosen(names: Sequence[str] | None) -> list[Metric]:
    """Return the metrics of these names.

    ``["all"]`` is every one, None those that are always given.
    """
    known = catalogue.metrics().values()
    if names is None:
        return [m for m in known if m.always]
    return list(known) if list(names) == ["all"] else [catalogue.named(name) for name in names]


def names_of(groups: Sequence[str], *, scores: bool) -> list[str]:
    """List the metrics that ``evaluate`` returns by default.

    Parameters
    ----------
    groups
        Names of the groups.
    scores
        Whether there are class probabilities.

    Returns
    -------
    list[str]
        Names of metrics.

    Examples
    --------
    >>> "eo_mean" in names_of(("a", "b"), scores=False)
    True
    """
    out = [
        m.name for m in chosen(None) if not isinstance(m.value, ScoreMetric | ScoreMetricByGroup)
    ]
    for metric in chosen(None) if scores else ():
        if isinstance(metric.value, ScoreMetricByGroup):
            out += [f"{metric.name}_{group}" for group in groups]
        elif isinstance(metric.value, ScoreMetric):
            out.append(metric.name)
    return out


def values(
    counts: Counts, names: Sequence[str] | None = None, *, positive: int | None = None
) -> dict[str, float]:
    """Compute values without intervals, NaN if undefined.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    names
        Names of the metrics, by default all metrics of counts.
    positive
        The favourable class, by default the second of two.

    Returns
    -------
    dict[str, float]
        Values by the name of the metric.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> values(Counts(n, ("no", "yes"), ("a", "b")), ["accuracy"])
    {'accuracy': 0.8}
    """
    positive = positive_of(counts, positive)
    return {
        m.name: math.nan
        if m.undefined_because(counts, positive)
        else float(m.value.value(counts.n_CPG, positive))  # type: ignore[union-attr]
        for m in chosen(names)
        if m.of_counts
    }


def positive_of(counts: Counts, positive: int | None) -> int | None:
    """Return the favourable class: the one that is given, or the second of two."""
    return 1 if positive is None and len(counts.classes) == 2 else positive


def too_few(counts: Counts, statistic: Statistic, positive: int | None, least: int) -> str | None:
    """Return why groups cannot be compared by a metric, where rates of few rows are left out."""
    if least <= 0:
        return None
    table = getattr(statistic, "table", None)
    if table is None:
        whole = len(counts.large(least)) >= 2
        return None if whole else _fewer_than_two(least, "")
    if positive is None and table is not right_by_class:
        positive = 0  # the metric itself says that it needs a positive class
    rates_RG, _ = compared_rates(counts, table, positive, least)
    compared_R = (~np.isnan(rates_RG)).sum(1)
    if compared_R.min() >= 2:
        return None
    of_class = f" of class {counts.classes[int(compared_R.argmin())]!r}"
    return _fewer_than_two(least, of_class if table is right_by_class else "")


def _fewer_than_two(least: int, of_class: str) -> str:
    return (
        f"fewer than two groups have {least} rows{of_class}, so there is nothing to compare "
        "(--min-group sets the number)"
    )


def whole_groups(counts: Counts, least: int) -> np.ndarray:
    """Return the groups all of whose cells have at least that many rows."""
    return np.flatnonzero((counts.cells_CG >= least).all(0))


def _of_counts(made: Resampling, wanted: Sequence[Metric]) -> dict[str, Estimate]:
    names = [m.name for m in wanted if m.of_counts]
    related = relatives(names) - set(names)
    found = {
        metric.name: _estimated(metric, made)
        for metric in (*wanted, *(catalogue.named(name) for name in sorted(related)))
        if metric.of_counts
    }
    kept_CG = made.counts.cells_CG >= max(made.least, 1e-9)
    ordered = in_order(
        found,
        classes=len(made.counts.classes),
        groups=int(kept_CG.sum(1).max()),
        positive=made.positive,
        complete=bool(kept_CG.all()),
    )
    return {name: ordered[name] for name in names}


def _estimated(metric: Metric, made: Resampling) -> Estimate:
    """Return one metric of counts, or the reason why it has no value."""
    statistic, counts = metric.value, made.counts
    assert not isinstance(statistic, ScoreMetric | ScoreMetricByGroup)
    if not metric.between_groups:
        reason = metric.undefined_because(counts, made.positive)
        support = metric.support(counts, made.positive)
        return Estimate.undefined(reason, support) if reason else statistic.estimate(made, support)
    if not isinstance(statistic, Gap | Lowest | Ratio):
        places = whole_groups(counts, made.least)
        if len(places) < len(counts.groups) and made.least > 0:
            if len(places) < 2:
                return Estimate.undefined(_fewer_than_two(made.least, " of every class"))
            made = replace(made, counts=counts.only(places), made={})
        reason = metric.undefined_because(made.counts, made.positive)
        support = metric.support(made.counts, made.positive)
        return Estimate.undefined(reason, support) if reason else statistic.estimate(made, support)
    reason, support = not_comparable(metric, counts, made.positive, made.least)
    return Estimate.undefined(reason, support) if reason else statistic.estimate(made, support)


def not_comparable(
    metric: Metric, counts: Counts, positive: int | None, least: int
) -> tuple[str | None, int]:
    """Say why a metric of rates has no value, if so, and the rows of its smallest denominator."""
    statistic = metric.value
    table = statistic.table  # type: ignore[union-attr]
    if least <= 0:
        reason = metric.undefined_because(counts, positive)
        return reason, metric.support(counts, positive)
    reason = metric.undefined_because(counts, None) if positive is None else None
    if reason is None or (positive is None and table is right_by_class):
        reason = too_few(counts, statistic, positive, least)  # type: ignore[arg-type]
    if reason is not None:
        return reason, metric.support(counts, positive) if counts.groups else 0
    rates_RG, size_RG = compared_rates(counts, table, positive, least)
    kept_RG = ~np.isnan(rates_RG)
    if isinstance(statistic, Ratio) and not np.nanmax(rates_RG) > 0:
        reason = metric.undefined_because(counts.only(np.flatnonzero(kept_RG.all(0))), positive)
    return reason, int(size_RG[kept_RG].min())


def _of_scores(rows: ScoreRows, wanted: Sequence[Metric]) -> dict[str, Estimate]:
    counts, made = rows.counts, rows.made
    out = {}
    for metric in wanted:
        if isinstance(metric.value, ScoreMetricByGroup):
            for g, group in enumerate(counts.groups):
                out[f"{metric.name}_{group}"] = metric.value.estimate(rows, g)
        elif isinstance(metric.value, ScoreMetric):
            places = (whole_groups if metric.value.by_class else Counts.large)(counts, made.least)
            if made.least > 0 and metric.between_groups and len(places) < 2:
                of_class = " of every class" if metric.value.by_class else ""
                out[metric.name] = Estimate.undefined(_fewer_than_two(made.least, of_class))
                continue
            used = rows
            if made.least > 0 and metric.between_groups and len(places) < len(counts.groups):
                used = rows.only(places, replace(made, counts=counts.only(places), made={}))
            reason = metric.undefined_because(used.counts, made.positive)
            out[metric.name] = (
                Estimate.undefined(reason, metric.support(used.counts, made.positive))
                if reason
                else metric.value.estimate(used)
            )
    return out


# -------------------------------------------------------------------------------------------------
# A metric over time: the gap of every month, with its interval.
# -------------------------------------------------------------------------------------------------

PERIODS = {"day": "D", "week": "W", "month": "M", "quarter": "M", "year": "Y"}
MOST_PERIODS = 1000


@dataclass(frozen=True)
class Period:
    """Hold the metric of one period.

    Parameters
    ----------
    name
        2024-03, 2024-Q1, 2024, or the first day of a week.
    rows
        Rows of the period.
    estimate
        The metric.

    Examples
    --------
    >>> from shasam.metrics import Estimate
    >>> Period("2024-03", 120, Estimate(0.9, 0.8, 0.95, 120)).as_dict()["period"]
    '2024-03'
    """

    name: str  # 2024-03, 2024-Q1, 2024, or the first day of a week
    rows: int
    estimate: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"period": self.name, "rows": self.rows, **self.estimate.as_dict()}


def over_time(
    label: Any,
    prediction: Any,
    group: Any,
    when: Any,
    *,
    metric: str = "eo_mean",
    period: str = "month",
    classes: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    positive: int | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    strata: str = "none",
    min_group: int = 0,
    repeats: Any = None,
    weights: Any = None,
) -> list[Period]:
    """Compute one metric for each period that has rows, in order.

    A period in which it is undefined says why.

    Parameters
    ----------
    label
        True classes (n,).
    prediction
        Predicted classes (n,).
    group
        Sensitive groups (n,).
    when
        Dates (n,): numpy or Python dates, or text such as ``2024-03-18``.
    metric
        Name of the metric.
    period
        "day", "week", "month", "quarter" or "year".
    classes
        Names of the classes, if labels are codes.
    groups
        Names of the groups, if groups are codes.
    positive
        The favourable class, by default the second of two.
    draws
        Resampled tables for intervals.
    seed
        Seed of the resampling.
    level
        Confidence of the intervals.
    strata
        Whose sizes resampling keeps: "cell", "group" or "none".
    min_group
        A group is left out of a comparison if the rate in question has fewer rows in it.
    repeats
        How many rows each entry stands for.
    weights
        Sample weights (n,).

    Returns
    -------
    list[Period]
        One entry per period.

    Examples
    --------
    >>> found = over_time([0, 1] * 40, [0, 1] * 40, [0, 0, 1, 1] * 20,
    ...                   ["2024-01-05"] * 40 + ["2024-02-05"] * 40, metric="accuracy")
    >>> [(p.name, p.rows, p.estimate.value) for p in found]
    [('2024-01', 40, 1.0), ('2024-02', 40, 1.0)]
    """
    catalogue.named(metric)
    t, p, s, class_names, group_names = encode_rows(label, prediction, group, classes, groups)
    if len(when) != len(t):
        raise InputError(f"there are {len(when)} dates for {len(t)} rows; each row needs one")
    codes, names = periods_of(when, period)
    out = []
    for code, name in enumerate(names):
        rows = codes == code
        times, w = (None if x is None else np.asarray(x)[rows] for x in (repeats, weights))
        found = evaluate(
            t[rows], p[rows], s[rows], classes=class_names, groups=group_names, positive=positive,
            draws=draws, seed=seed, level=level, strata=strata, min_group=min_group,
            repeats=times, weights=w, metrics=[metric],
        )  # fmt: skip
        size = int(rows.sum()) if times is None else int(times.sum())
        out.append(Period(name, size, found[metric]))
    return out


def periods_of(when: Any, period: str) -> tuple[np.ndarray, list[str]]:
    """Return the code of each row's period, and the names of the periods in order."""
    if period not in PERIODS:
        raise InputError(f"there is no period {period!r}{did_you_mean(period, PERIODS)}")
    day = days_of(when)
    unit = day.astype(f"datetime64[{PERIODS[period]}]")
    if period == "quarter":
        month = unit.astype(np.int64)
        found, codes = np.unique(month // 3, return_inverse=True)
        names = [f"{1970 + q // 4}-Q{q % 4 + 1}" for q in found.tolist()]
    else:
        found, codes = np.unique(unit, return_inverse=True)
        shown = found.astype("datetime64[D]") if period == "week" else found
        names = [str(v) for v in shown]
    if len(names) > MOST_PERIODS:
        raise InputError(f"there are {len(names):,} periods; take a longer one than {period!r}")
    return codes, names


def days_of(when: Any) -> np.ndarray:
    """Return dates, times or whole years as days; a year is its first day.

    >>> days_of(["2024-03-18 23:10"]).astype(str).tolist(), days_of([2019]).astype(str).tolist()
    (['2024-03-18'], ['2019-01-01'])
    """
    values = np.asarray(when)
    if values.dtype.kind in "iuf":
        if not ((values >= 1000) & (values <= 9999) & (np.mod(values, 1) == 0)).all():
            raise InputError("numbers are dates only if they are years; write 2024-03-18")
        values = values.astype(np.int64).astype(str)
    try:
        day = np.asarray(values, dtype="datetime64[us]").astype("datetime64[D]")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the dates cannot be read ({error}); write them like 2024-03-18"
        ) from None
    if np.isnat(day).any():
        missing = np.isnat(day)
        raise InputError(
            f"{int(missing.sum())} of {len(day)} rows have no date, the first is row "
            f"{int(missing.argmax())}; leave those rows out"
        )
    return day


# -------------------------------------------------------------------------------------------------
# Which intervals are approximate: those whose coverage, in simulated audits alike, missed 95 %.
#
# `coverage.json` holds what `python -m bench.coverage --write` measured. An audit is compared
# with the simulated design that is nearest to its own counts.
# -------------------------------------------------------------------------------------------------

HELD = (0.93, 0.97)  # shares of 95 % intervals that may hold the truth
ALARMS = 0.06  # largest share of fair models whose gap may be called real
KINDS = {
    "fair": "where there was no gap",
    "spread": "where the gap was spread over groups",
    "few": "where a few groups carried the gap",
}
FEWEST, MOST_GROUPS, MOST_CLASSES = (
    30,
    30,
    6,
)  # rows of a group, groups, classes that were simulated


@cache
def simulated() -> list[dict[str, Any]]:
    """Return what was measured, design by design, for fair and for unfair models."""
    text = files("shasam.metrics").joinpath("coverage.json").read_text(encoding="utf-8")
    return json.loads(text)


def nearest(counts: Counts) -> dict[str, Any]:
    """Return the simulated design that is most like these counts: groups, how unequal, classes."""
    sizes_G, groups = counts.sizes_G, len(counts.groups)
    return {
        "groups": 2 if groups < 3.5 else 6 if groups < 11 else 20,
        "skewed": bool(sizes_G.max() > 8 * sizes_G.min()),
        "classes": 2 if len(counts.classes) == 2 else 4,
    }


def approximate(
    metric: str,
    counts: Counts,
    measured: Sequence[Mapping[str, Any]] | None = None,
    *,
    support: int | None = None,
    between_groups: bool = True,
) -> str | None:
    """Return why the interval of a metric is approximate for these counts; None if it is not.

    ``counts`` has the groups that are compared. A metric that was not simulated is judged by its
    ``support`` (the rows in its smallest denominator) and, if it compares groups, by their number.
    """
    measured = simulated() if measured is None else measured
    known = any(metric in entry["held"] for entry in measured)
    if known and int(counts.sizes_G.min()) < FEWEST:
        return f"groups of fewer than {FEWEST} rows were not simulated"
    if not known and support is not None and support < FEWEST:
        return f"rates of fewer than {FEWEST} rows were not simulated"
    many = len(counts.groups) > MOST_GROUPS or len(counts.classes) > MOST_CLASSES
    if many and (known or between_groups):
        return "so many groups or classes were not simulated"
    if not known:
        return None
    design = nearest(counts)
    alike = [entry for entry in measured if design.items() <= entry.items()]
    alarms = [e["called"][metric] for e in alike if e["model"] == "fair" and metric in e["called"]]
    kinds = {e["model"]: [x for x in alike if x["model"] == e["model"]] for e in alike}
    held, kind = min((_held(entries, metric), kind) for kind, entries in kinds.items())
    if held < HELD[0]:
        return (
            f"intervals of simulated audits like this one held the truth in {100 * held:.1f} % "
            f"{KINDS[kind]}"
        )
    if _held(alike, metric) > HELD[1]:
        return (
            "intervals of simulated audits like this one held the truth in "
            f"{100 * _held(alike, metric):.1f} %, so it is wider than need be"
        )
    if alarms and max(alarms) > ALARMS:
        return f"{100 * max(alarms):.1f} % of simulated models without a gap were called unequal"
    return None


def _held(entries: Sequence[Mapping[str, Any]], metric: str) -> float:
    models = sum(e["models"] for e in entries)
    return sum(e["held"][metric] * e["models"] for e in entries) / models
