"""Decisions that keep limits: thresholds per group, or offsets by the group that a model infers.

A limit is a bound on a metric of decisions, ``{"eo_mean": 0.05, "tpr_min": 0.8}``. Rules are chosen
by what they do to rows that they were not fitted on. What a test set is large enough to show of a
limit is here too. numpy only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shasam.errors import InputError, ShasamWarning
from shasam.keyed import keyed
from shasam.metrics import catalogue
from shasam.metrics.counts import Counts
from shasam.metrics.evaluation import evaluate_counts, positive_of, values
from shasam.metrics.odds import FOLDS, GroupRule, cross_fitted, folds_of, front_reason
from shasam.metrics.resampling import Gap
from shasam.types import Predictions

Array = np.ndarray
Limits = Mapping[str, float]

# -------------------------------------------------------------------------------------------------
# Limits: how far values lie beyond them, and which of several decisions is to be taken.
# -------------------------------------------------------------------------------------------------


def check_limits(limits: Limits) -> None:
    """Refuse names that are no metric, and metrics that decisions do not change."""
    for name in limits:
        if not catalogue.named(name).of_counts:
            raise InputError(f"{name} is a metric of scores, which no rule for decisions changes")


def beyond(metric: str, value: float, bound: float) -> float:
    """Return how far a value lies beyond its limit; infinitely where it has none."""
    if not np.isfinite(value):
        return float("inf")
    return bound - value if catalogue.named(metric).better == "high" else value - bound


@dataclass(frozen=True)
class _Judgement:
    """What decisions do: whether they keep all limits, how far beyond they are, the metrics."""

    over: float
    values: dict[str, float]

    @classmethod
    def of(cls, rows: Predictions, decided_N: Array, limits: Limits) -> _Judgement:
        counts = Counts.from_codes(
            rows.target, decided_N, rows.sensitive, rows.classes, rows.groups, None
        )
        found = values(counts, [*limits, "accuracy"], positive=rows.positive)
        return cls(max(beyond(name, found[name], b) for name, b in limits.items()), found)

    @property
    def kept(self) -> bool:
        return self.over <= 1e-12

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Of those that keep the limits the most accurate; else the one that comes nearest."""
        return self.kept, -max(self.over, 0.0), self.values["accuracy"]


# -------------------------------------------------------------------------------------------------
# Offsets: what is added to a row's class scores, by the probabilities of its groups.
#
# A row is decided by the arg max of log q_c + Σ_g P(g)·a_gc. With groups that are known, a_g is a
# threshold of group g; with probabilities that a model infers, no group is needed to decide.
# -------------------------------------------------------------------------------------------------

# Searches of rising strictness: points of accuracy that are given for a point beyond the aim, and
# how far the aim lies within the limit.
SEARCHES = ((1.0, 0.0), (3.0, 0.0), (10.0, 0.0), (10.0, 0.2), (10.0, 0.4), (10.0, 0.7), (10.0, 1.0))
TRIED_STEPS = 65  # of an offset, by the ranks of the rows that they move
NEAR = 1 / 16  # of the ranks, in the second round
SWEEPS = 8  # over all offsets, at most, in each round
MOST_ROWS = 10_000  # that a search looks at


def offset_decision(logits_NC: Array, share_NG: Array, offset_GC: Array) -> Array:
    """Return classes (N,) of rows with class scores and probabilities of groups."""
    decided: Array = (logits_NC + share_NG @ offset_GC).argmax(1)
    return decided


@dataclass(frozen=True)
class _Rows:
    """Rows that offsets are searched on, with one-hot (class, group) cells."""

    logits_NC: Array
    share_NG: Array  # the last column is 1: all groups together
    cell_NK: Array
    groups: int
    positive: int | None

    @classmethod
    def of(cls, rows: Predictions, share_NG: Array, chosen: Array) -> _Rows:
        (places,) = np.where(chosen)
        if len(places) > MOST_ROWS:
            places = np.sort(keyed(len(places)).permutation(places)[:MOST_ROWS])
        groups, classes = len(rows.groups), len(rows.classes)
        cell_N = rows.target[places] * groups + rows.sensitive[places]
        counts = Counts(np.zeros((classes, classes, groups)), rows.classes, rows.groups)
        return cls(
            log_scores(rows)[places],
            np.concatenate([share_NG[places], np.ones((len(places), 1))], axis=1),
            np.eye(classes * groups, dtype=np.float32)[cell_N],
            groups,
            positive_of(counts, rows.positive),
        )

    def goodness(self, n_KCPG: Array, aims: Limits, penalty: float) -> Array:
        """Return the accuracy (K,) less the penalty for what lies beyond the aims."""
        total = n_KCPG.sum((1, 2, 3))
        out: Array = np.einsum("kccg->k", n_KCPG) / total
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)  # a rate of nobody is NaN
            for name, aim in aims.items():
                metric = catalogue.named(name)
                found = metric.value.value(n_KCPG, self.positive)  # type: ignore[union-attr]
                over = aim - found if metric.better == "high" else found - aim
                out = out - penalty * np.maximum(np.nan_to_num(over, nan=1.0), 0.0)
        return out

    def along(
        self, offset_GC: Array, at: tuple[int, int], aims: Limits, penalty: float, near: bool
    ) -> tuple[float, float]:
        """Return the best step of one offset, and how good the offsets are with it.

        The offset is 0 where none helps.
        """
        g, c = at
        scores_NC = self.logits_NC + self.share_NG[:, :-1] @ offset_GC
        own_N, share_N = scores_NC[:, c].copy(), self.share_NG[:, g]
        scores_NC[:, c] = -np.inf
        other_N = scores_NC.argmax(1)
        top_N = scores_NC[np.arange(len(other_N)), other_N]
        steps_K = _steps((top_N - own_N) / np.maximum(share_N, 1e-6), share_N, self.groups, near)
        picked_NK = (own_N[:, None] + share_N[:, None] * steps_K > top_N[:, None]).astype("f4")
        classes = scores_NC.shape[1]
        n_KCPG = np.zeros((len(steps_K), classes, classes, self.groups))
        shape = (len(steps_K), classes, self.groups)
        n_KCPG[:, :, c] = (picked_NK.T @ self.cell_NK).reshape(shape)
        for p in range(classes):
            if p != c:
                rest = other_N == p
                n_KCPG[:, :, p] += ((1 - picked_NK[rest]).T @ self.cell_NK[rest]).reshape(shape)
        good_K = self.goodness(n_KCPG, aims, penalty)
        k = int(good_K.argmax())
        k = k if good_K[k] > good_K[0] + 1e-9 else 0
        return float(steps_K[k]), float(good_K[k])


def _steps(margin_N: Array, share_N: Array, groups: int, near: bool) -> Array:
    """Return steps (K,) that are tried, by size.

    They are 0, ranks of the rows' margins, and steps beyond them all.
    """
    margins = margin_N[share_N > 1 / (groups + 1e-9)]
    margins = margin_N if len(margins) == 0 else margins
    ranks = np.linspace(0.0, 1.0, TRIED_STEPS)
    if near:
        ranks = np.clip((margins < 0).mean() + NEAR * (2 * ranks - 1), 0.0, 1.0)
    found = [np.quantile(margins, ranks), [margins.min() - 1, margins.max() + 1, 0.0]]
    steps = np.unique(np.concatenate(found))
    return steps[np.abs(steps).argsort(kind="stable")]


def log_scores(rows: Predictions) -> Array:
    """Return logarithms of class probabilities."""
    return np.log(np.clip(rows.scores.astype(np.float64), 1e-12, None))


def _aims(limits: Limits, strict: float) -> dict[str, float]:
    """Return limits with something in hand.

    They go from the bound itself to the best value that there is.
    """
    best = {name: 1.0 if catalogue.named(name).better == "high" else 0.0 for name in limits}
    return {name: bound + strict * (best[name] - bound) for name, bound in limits.items()}


def _path(rows: _Rows, limits: Limits) -> list[Array]:
    """Return offsets (G, C) of every search; each starts where the one before ended."""
    classes = rows.logits_NC.shape[1]
    offset_GC, out = np.zeros((rows.groups, classes)), []
    for penalty, strict in SEARCHES:
        aims = _aims(limits, strict)
        for near in (False, True):
            best = -np.inf
            for _ in range(SWEEPS):
                before = best
                for g in range(rows.groups + (rows.groups > 1)):
                    for c in range(1, classes):
                        step, best = rows.along(offset_GC, (g, c), aims, penalty, near)
                        offset_GC[slice(None) if g == rows.groups else g, c] += step
                if best <= before + 1e-9:
                    break
        out.append(offset_GC.copy())
    return out


def _cross_fitted_paths(
    rows: Predictions, share_NG: Array, limits: Limits, seed: int
) -> list[Array]:
    """Return decisions (N,) of every search, each row decided by offsets of other folds."""
    logits_NC, fold_N = log_scores(rows), folds_of(rows, FOLDS, seed)
    decided = [np.zeros(len(rows), dtype=np.int64) for _ in SEARCHES]
    for k in range(FOLDS):
        (own,) = np.where(fold_N == k)
        for found, offset_GC in zip(
            decided, _path(_Rows.of(rows, share_NG, fold_N != k), limits), strict=True
        ):
            found[own] = offset_decision(logits_NC[own], share_NG[own], offset_GC)
    return decided


@dataclass(frozen=True)
class ChosenOffsets:
    """The offsets that were chosen for limits, and whether they kept them on held-out folds."""

    offset_GC: Array
    kept: bool
    values: dict[str, float]  # of the limits' metrics, cross-fitted


def offsets_for(
    rows: Predictions, share_NG: Array, limits: Limits, *, price: float = 1.0, seed: int = 0
) -> ChosenOffsets:
    """Choose offsets by inferred groups on rows whose groups are known.

    Every search is tried by cross-fitting, and no offset at all. Of those that keep the limits the
    most accurate is taken, else the one that comes nearest; it is then fitted on all rows. None
    may cost more accuracy than ``price``: a gap that rows are too few to show is not bought with a
    constant answer.
    """
    check_limits(limits)
    if why := front_reason(rows):
        raise InputError(f"offsets by group cannot be fitted: {why}")
    zero_GC = np.zeros((len(rows.groups), len(rows.classes)))
    plain = offset_decision(log_scores(rows), share_NG, zero_GC)
    decided = [plain, *_cross_fitted_paths(rows, share_NG, limits, seed)]
    judged = [_Judgement.of(rows, made, limits) for made in decided]
    least = judged[0].values["accuracy"] - price
    offsets = [zero_GC, *_path(_Rows.of(rows, share_NG, np.ones(len(rows), dtype=bool)), limits)]

    def affordable(k: int) -> bool:
        """Compare the price as cross-fitted, and as fitted on all rows, which may end elsewhere."""
        fitted = _Judgement.of(
            rows, offset_decision(log_scores(rows), share_NG, offsets[k]), limits
        )
        found = judged[k].values["accuracy"], fitted.values["accuracy"]
        return min(found) >= least - 1e-12

    k = max(filter(affordable, range(len(judged))), key=lambda k: (judged[k].rank, -k))
    offset_GC = offsets[k]
    found = {name: judged[k].values[name] for name in limits}
    return ChosenOffsets(offset_GC, judged[k].kept, found)


# -------------------------------------------------------------------------------------------------
# Thresholds per group for limits, where the group of every row is known.
# -------------------------------------------------------------------------------------------------

TRIED = (0.0, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 1.0)


@dataclass(frozen=True)
class ChosenRule:
    """The rule that was chosen for limits, how, and whether it kept them on held-out folds."""

    rule: GroupRule
    tolerance: float | None  # of rates between groups; None where thresholds were searched
    kept: bool
    values: dict[str, float]  # of the limits' metrics, cross-fitted


def rule_for(rows: Predictions, limits: Limits, *, seed: int = 0) -> ChosenRule:
    """Choose a rule by cross-fitting on rows, then fit it on all of them.

    Of the rules whose cross-fitted decisions keep every limit the most accurate is taken; where
    none does, the one that comes nearest. Tried are equal odds up to each tolerance, the smaller
    one of two alike. Where a limit is not on a gap and there are two classes, thresholds are
    searched for it too.
    """
    check_limits(limits)
    if why := front_reason(rows):
        raise InputError(f"thresholds per group cannot be fitted: {why}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShasamWarning)  # told when the rule itself is fitted
        decided = [cross_fitted(rows, tolerance, seed=seed) for tolerance in TRIED]
    known_NG = np.eye(len(rows.groups))[rows.sensitive]
    if len(rows.classes) == 2 and not _gaps_alone(limits):
        decided += _cross_fitted_paths(rows, known_NG, limits, seed)
    judged = [_Judgement.of(rows, made, limits) for made in decided]
    k = max(range(len(judged)), key=lambda k: (judged[k].rank, -k))
    found = {name: judged[k].values[name] for name in limits}
    if k < len(TRIED):
        groups = len(rows.groups)
        rule = GroupRule.fit(rows.scores, rows.target, rows.sensitive, groups, TRIED[k])
        return ChosenRule(rule, TRIED[k], judged[k].kept, found)
    whole = _Rows.of(rows, known_NG, np.ones(len(rows), dtype=bool))
    return ChosenRule(_as_rule(_path(whole, limits)[k - len(TRIED)]), None, judged[k].kept, found)


def _gaps_alone(limits: Sequence[str] | Limits) -> bool:
    """Return whether every limit is on a gap between groups, which equal odds make small."""
    return all(isinstance(catalogue.named(name).value, Gap) for name in limits)


def _as_rule(offset_G2: Array) -> GroupRule:
    """Return offsets of two classes as thresholds of the second one's probability."""
    shift_G = np.clip(offset_G2[:, 1] - offset_G2[:, 0], -700.0, 700.0)
    table = np.zeros((len(shift_G), 6))
    table[:, 4], table[:, 5] = 1.0, 1 / (1 + np.exp(shift_G))
    return GroupRule(2, table, np.ones(len(shift_G), dtype=bool))


# -------------------------------------------------------------------------------------------------
# What a test set can show of a limit on a gap, whatever the model.
# -------------------------------------------------------------------------------------------------

FAIR = 15  # models without a gap that are drawn
FEWEST_ROWS = 30  # of a cell, from which the rows that are needed are reckoned


def lowest_shown(
    counts: Counts,
    metric: str,
    *,
    positive: int | None = None,
    level: float = 0.95,
    min_group: int = 0,
) -> float:
    """Return below what a gap cannot be shown on so many rows: half of the models that have none
    get a higher upper end.

    The models are as often right in each class as the one of the counts, in every group. NaN where
    the metric is not 0 for such a model.
    """
    size_CG, rate_CP = counts.n_CPG.sum(1), counts.n_CPG.sum(2)
    rate_CP = rate_CP / np.maximum(rate_CP.sum(1, keepdims=True), 1)
    alike = rate_CP[:, :, None] * size_CG[:, None, :]
    exact = values(Counts(alike, counts.classes, counts.groups), [metric], positive=positive)
    if not abs(exact[metric]) < 1e-9:  # NaN too
        return math.nan
    found = []
    for k in range(FAIR):
        rng = keyed(0, k)
        drawn = [[rng.multinomial(round(n), p) for n in of] for of, p in zip(
            size_CG.tolist(), rate_CP, strict=True)]  # fmt: skip
        made = Counts(np.array(drawn).transpose(0, 2, 1), counts.classes, counts.groups)
        e = evaluate_counts(
            made, positive=positive, draws=1000, level=level, min_group=min_group, metrics=[metric]
        )
        found.append(e[metric].high)
    return float(np.median(found))


def rows_to_show(
    counts: Counts,
    metric: str,
    bound: float,
    *,
    positive: int | None = None,
    level: float = 0.95,
) -> int:
    """Return how many rows in each class of each group would show a gap below the bound, of a model
    that has none.

    Upper ends shrink with the root of the rows.
    """
    n_CPG = counts.n_CPG
    rate_CP = n_CPG.sum(2) / np.maximum(n_CPG.sum((1, 2)), 1)[:, None]
    rows = max(FEWEST_ROWS, round(float(n_CPG.sum(1).min())))
    equal = Counts(
        np.repeat(rate_CP[:, :, None] * rows, n_CPG.shape[2], 2), counts.classes, counts.groups
    )
    reached = lowest_shown(equal, metric, positive=positive, level=level)
    return math.ceil(rows * (reached / bound) ** 2)
