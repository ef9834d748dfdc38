"""Follow the rates of a model along a sensitive number such as age, without cutting it into groups.

A rate (TPR, FPR, the recall of a class, selection) is smoothed over the quantiles of the number
among the rows that the rate is about. Ranks stay the same under every monotone transformation, and
every stretch of the curve rests on as many rows. Rows are counted in at most 200 bins of quantiles
first, so that a million rows cost no more than a thousand.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from shasam.errors import InputError, MemoryLimitError
from shasam.memory import readable
from shasam.metrics.catalogue import holm
from shasam.metrics.counts import Counts, Estimate, as_json
from shasam.metrics.evaluation import evaluate_counts
from shasam.metrics.intervals import (
    FEWEST_DRAWS,
    STEPS,
    Norm,
    directions_of,
    few_carry_it,
    fold,
    from_centre,
    memory_limit,
    widest_only,
)
from shasam.metrics.resampling import average, check_draws, largest, shuffled, smallest_p

# -------------------------------------------------------------------------------------------------
# What is measured of a curve, and the names of it.
# -------------------------------------------------------------------------------------------------

BINS = 200  # of quantiles; up to so many different values are kept as they are
GRID = np.round(np.linspace(0.05, 0.95, 37), 4)  # quantiles at which a curve is compared
QUARTERS = 4  # of the rows: each must be as large as a group that is compared
LEAST_VALUES = 10  # different ones; fewer are groups
NARROWEST, WIDEST = 0.03, 0.25  # half of the window that is averaged over, in quantiles
_COPIES = 6  # of the noise of all curves that are alive at the same time


@dataclass(frozen=True)
class Measure:
    """A number about a curve: its key in files and limits, and its name for readers."""

    key: str
    label: str
    unit: str  # "points", or "of 100" for a correlation
    meaning: str
    signed: bool = False  # it may be below 0, and a limit is about its size


MEASURES = {
    m.key: m
    for m in (
        Measure("curve_gap", "Largest gap along the curve", "points",
                "highest minus lowest rate between the 5 % and the 95 % quantile"),
        Measure("curve_mean_gap", "Mean gap along the curve", "points",
                "mean difference in rate between two quantiles from 5 % to 95 %"),
        Measure("curve_slope", "Slope", "points",
                "change in rate from the 25 % to the 75 % quantile, from a straight line", True),
        Measure("dependence", "Dependence", "of 100",
                "distance correlation between the outcome and the number, 0 to 100"),
    )
}  # fmt: skip
OVERALL = ("curve_gap", "curve_mean_gap", "dependence")  # also over all classes, by the bare key


def measure_of(name: str) -> Measure | None:
    """Return the measure of a name such as ``curve_gap_tpr``; the longest key that fits."""
    fits = [k for k in MEASURES if name.startswith(f"{k}_") or (name == k and k in OVERALL)]
    return MEASURES[max(fits, key=len)] if fits else None


# -------------------------------------------------------------------------------------------------
# Counts along the number, and the smoother.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Along:
    """The rows of one rate in the order of the number: how many there are and how many count."""

    u_B: np.ndarray  # mean quantile of each bin's rows
    n_B: np.ndarray  # rows
    k_B: np.ndarray  # rows with the outcome
    values_T: np.ndarray  # the number at the quantiles of GRID
    values: int  # different numbers

    @classmethod
    def of(cls, s_N: np.ndarray, hit_N: np.ndarray, repeats_N: np.ndarray | None) -> Along:
        """Rank the rows; equal numbers share the middle of their ranks."""
        n_N = np.ones(len(s_N), np.int64) if repeats_N is None else repeats_N
        number_V, place_N = np.unique(s_N, return_inverse=True)
        n_V = np.bincount(place_N, n_N, len(number_V))
        k_V = np.bincount(place_N, n_N * hit_N, len(number_V))
        u_V = (np.cumsum(n_V) - n_V / 2) / max(n_V.sum(), 1.0)
        at_T = np.interp(GRID, u_V, number_V) if len(u_V) else np.full(len(GRID), np.nan)
        bins = np.arange(len(u_V))
        if len(u_V) > BINS:
            _, bins = np.unique(np.minimum((u_V * BINS).astype(int), BINS - 1), return_inverse=True)
        n_B, k_B, nu_B = (np.bincount(bins, x) for x in (n_V, k_V, n_V * u_V))
        n, k = (np.rint(x).astype(np.int64) for x in (n_B, k_B))
        return cls(nu_B / np.maximum(n_B, 1.0), n, k, at_T, len(number_V))

    @property
    def rows(self) -> int:
        return int(self.n_B.sum())

    @property
    def rate(self) -> float:
        return float(self.k_B.sum() / max(self.rows, 1))

    @property
    def rates_B(self) -> np.ndarray:
        return self.k_B / self.n_B

    @property
    def bandwidth(self) -> float:
        """Half of the window in quantiles: n^(-1/5) / 2, from 0.03 to 0.25."""
        return min(max(0.5 * self.rows**-0.2, NARROWEST), WIDEST)

    @cached_property
    def smoother(self) -> np.ndarray:
        """Weights (T, B) of the bins' rates at the quantiles of GRID."""
        return local_linear(self.u_B, self.n_B, GRID, self.bandwidth)

    @cached_property
    def centre_B(self) -> np.ndarray:
        """The smooth rate of every bin that noise is drawn around, pulled in by one row.

        A stretch without an error would otherwise have no noise at all.
        """
        weight_BB = local_linear(self.u_B, self.n_B, self.u_B, self.bandwidth)
        worth_B = 1.0 / (weight_BB**2 / self.n_B).sum(1)  # rows that each smooth rate is worth
        pooled = (self.k_B.sum() + 0.5) / (self.rows + 1.0)
        smooth_B = np.clip(weight_BB @ self.rates_B, 0.0, 1.0)
        return (worth_B * smooth_B + pooled) / (worth_B + 1.0)

    @cached_property
    def slope_B(self) -> np.ndarray:
        """Weights of the bins' rates in the change of a straight line over half of the rows."""
        away_B = self.u_B - (self.n_B * self.u_B).sum() / self.rows
        return 0.5 * self.n_B * away_B / (self.n_B * away_B**2).sum()

    def drawn(self, draws: int, seed: int) -> np.ndarray:
        """Return rates (D, B) of rows drawn anew around the smooth rates.

        The number stays as it is.
        """
        rng = self._rng(seed, "curve")
        return rng.binomial(self.n_B, self.centre_B, (draws, len(self.n_B))) / self.n_B

    def shuffled(self, draws: int, seed: int) -> np.ndarray:
        """Return rates (D, B) of rows whose outcomes were dealt out by chance."""
        table_SKG = np.stack([self.k_B, self.n_B - self.k_B])[None]
        return shuffled(table_SKG, draws, self._rng(seed, "dealt"))[:, 0, 0] / self.n_B

    def _rng(self, seed: int, kind: str) -> np.random.Generator:
        """Seed random numbers by the counts: the order of rows and of classes does not matter."""
        content = zlib.crc32(np.stack([self.n_B, self.k_B]).tobytes())
        return np.random.default_rng([seed, zlib.crc32(kind.encode()), content])


def local_linear(
    u_B: np.ndarray, n_B: np.ndarray, at_T: np.ndarray, bandwidth: float
) -> np.ndarray:
    """Return weights (T, B) of a weighted straight line through the bins near each point
    (Epanechnikov).

    Where equal numbers leave fewer than two bins in the window, it reaches the two nearest.
    """
    away_TB = u_B[None, :] - at_T[:, None]
    second_T = np.sort(np.abs(away_TB), 1)[:, min(1, len(u_B) - 1)]
    width_T1 = np.maximum(bandwidth, 1.01 * second_T)[:, None]
    k_TB = n_B * np.maximum(1.0 - (away_TB / width_T1) ** 2, 0.0)
    s1, s2 = ((k_TB * away_TB**j).sum(1, keepdims=True) for j in (1, 2))
    weight_TB = k_TB * (s2 - away_TB * s1)
    return weight_TB / weight_TB.sum(1, keepdims=True)


# -------------------------------------------------------------------------------------------------
# Dependence: the distance correlation of an outcome with the ranks, from the counts.
# -------------------------------------------------------------------------------------------------


def distance_covariance(along: Along, rates_B: np.ndarray) -> np.ndarray:
    """Return the distance covariance (Székely et al. 2007) of yes or no with the quantile.

    (..., B) -> (...).

    An outcome of 0 and 1 has the centred distances -2 (y - ȳ)(y' - ȳ), so the double sum over
    pairs of rows is an integral of squared running sums, as in the test of Cramér and von Mises.
    """
    share_B = along.n_B / along.rows
    excess_B = share_B * (rates_B - (rates_B @ share_B)[..., None])
    running_B = np.cumsum(excess_B, -1)[..., :-1]
    return np.sqrt(4.0 * (running_B**2) @ np.diff(along.u_B))


def distance_scale(along: Along, rate: float) -> float:
    """Return what the distance covariance of such a rate is divided by to become a correlation."""
    share_B = along.n_B / along.rows
    far_BB = np.abs(along.u_B[:, None] - along.u_B[None, :])
    mean_B = far_BB @ share_B
    centred_BB = far_BB - mean_B[:, None] - mean_B[None, :] + share_B @ mean_B
    variance = math.sqrt(float(share_B @ centred_BB**2 @ share_B))
    return math.sqrt(2.0 * rate * (1.0 - rate) * variance)


# -------------------------------------------------------------------------------------------------
# One curve with everything that is said of it.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RateCurve:
    """Hold a rate along a sensitive number, with a band that holds the whole curve at once.

    Parameters
    ----------
    rate
        Key of the rate: "tpr", "fpr", "selection", "recall_<class>" or "selection_<class>".
    says
        What the rate is, in words.
    rows
        Rows that the rate is about.
    values
        The number at the 5 % to 95 % quantiles of those rows.
    curve
        The smoothed rate there.
    low
        Lower end of the simultaneous band.
    high
        Upper end of the simultaneous band.
    bandwidth
        Half of the smoothing window, in quantiles.
    reason
        Why there is no curve.

    Examples
    --------
    >>> RateCurve("tpr", "yes, called yes", 12, reason="too few rows").defined
    False
    """

    rate: str
    says: str
    rows: int
    values: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)
    curve: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)
    low: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)
    high: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)
    bandwidth: float = math.nan
    reason: str | None = None

    @property
    def defined(self) -> bool:
        return self.reason is None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        found = {"rate": self.rate, "says": self.says, "rows": self.rows, "reason": self.reason}
        if not self.defined:
            return found
        points = {"quantiles": GRID, "values": self.values, "curve": self.curve, "low": self.low,
                  "high": self.high}  # fmt: skip
        return found | {"bandwidth": self.bandwidth} | {k: v.tolist() for k, v in points.items()}


@dataclass(frozen=True)
class Curves:
    """Hold the curves of a model along one sensitive number, and every metric of them.

    Parameters
    ----------
    curves
        One for each rate.
    estimates
        Metrics by name, such as "curve_gap", "curve_slope_tpr" and "dependence_fpr".

    Examples
    --------
    >>> Curves((), {}).as_dict()
    {'curves': [], 'metrics': {}}
    """

    curves: tuple[RateCurve, ...]
    estimates: dict[str, Estimate]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"curves": [c.as_dict() for c in self.curves], "metrics": as_json(self.estimates)}


@dataclass(frozen=True, eq=False)
class _RateDraws:
    """A rate with its draws: what gaps, tests and the band are made of."""

    along: Along
    draws: int
    seed: int
    level: float

    @cached_property
    def rates_T(self) -> np.ndarray:
        smooth_T = self.along.smoother @ self.along.rates_B
        return np.clip(np.round(smooth_T, 12), 0.0, 1.0)  # a rate of 1 everywhere has no gap

    @cached_property
    def drawn_DB(self) -> np.ndarray:
        return self.along.drawn(self.draws, self.seed)

    @cached_property
    def noise_DT(self) -> np.ndarray:
        return (self.drawn_DB - self.along.centre_B) @ self.along.smoother.T

    def band(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both ends of a simultaneous band: the largest of all studentised errors is drawn.

        On the scale of the arcsine errors are about as large everywhere, also near 0 and 100 %.
        """
        centre_T = self.along.smoother @ self.along.centre_B
        error_DT = _arcsine(centre_T + self.noise_DT) - _arcsine(centre_T)
        spread_T = np.maximum(error_DT.std(0), 1e-12)
        errors = float(np.quantile(np.abs(error_DT / spread_T).max(1), self.level))
        z_T = _arcsine(self.rates_T)
        low_T = np.sin(np.maximum(z_T - errors * spread_T, 0.0)) ** 2
        return low_T, np.sin(np.minimum(z_T + errors * spread_T, math.pi / 2)) ** 2

    @cached_property
    def p(self) -> tuple[float, float]:
        """Of 'outcomes are dealt out by chance': by the whole curve, and by dependence alone.

        The first combines two statistics: distance covariance finds trends, the largest
        standardised distance of the curve from the mean finds one stretch that stands apart.
        """
        along = self.along
        dealt_DB = along.shuffled(self.draws, self.seed)
        whole = np.concatenate([along.rates_B[None], dealt_DB])
        depends = distance_covariance(along, whole)
        away = whole @ along.smoother.T - along.rate
        farthest = np.abs(away / np.maximum(away[1:].std(0), 1e-12)).max(1)
        flat = smallest_p(np.stack([depends, farthest], -1)[:, None])
        return float(flat[0]), float(smallest_p(depends[:, None, None])[0])

    def slope(self) -> Estimate:
        along = self.along
        value = float(along.slope_B @ along.rates_B)
        variance_B = along.centre_B * (1 - along.centre_B) / along.n_B
        spread = math.sqrt(float(along.slope_B**2 @ variance_B))
        z = NormalDist().inv_cdf((1 + self.level) / 2)
        p = math.erfc(abs(value) / spread / math.sqrt(2.0))
        low, high = max(value - z * spread, -1.0), min(value + z * spread, 1.0)
        return Estimate(value, low, high, along.rows, p=p)

    def dependence(self, p: float) -> Estimate:
        """Return the distance correlation.

        Its interval starts at 0 exactly where the test allows 0.
        """
        along = self.along
        scale = distance_scale(along, along.rate)
        if not scale > 0:
            return Estimate.undefined("the outcome is the same in every row", along.rows)

        def norm(rates_B: np.ndarray) -> np.ndarray:
            return distance_covariance(along, rates_B) / scale

        seen = float(norm(along.rates_B))
        shapes = [along.centre_B - along.centre_B @ along.n_B / along.rows, along.u_B - 0.5]
        directions = [x / norm(x) for x in shapes if norm(x) > 1e-9]
        noise_DB = self.drawn_DB - along.centre_B
        by_chance = p > 1 - self.level + 1e-12
        low, high = fold(seen, noise_DB, norm, directions, self.level, from_zero=by_chance)
        low = 0.0 if by_chance else max(low, seen / 2**STEPS)
        return Estimate(seen, min(low, seen), min(max(high, seen), 1.0), along.rows, p=p)


def _arcsine(rate: np.ndarray) -> np.ndarray:
    return np.arcsin(np.sqrt(np.clip(rate, 0.0, 1.0)))


def gap_along(of: Sequence[_RateDraws], norm: Norm, p: float) -> Estimate:
    """Return a gap along one curve, or over several.

    ``p`` decides whether the interval starts at 0.

    The interval inverts a test, as that of a gap between groups does. A largest gap has a lower end
    of its own: what two quantiles differ by for sure, all pairs at once.
    """
    level, support = of[0].level, min(d.along.rows for d in of)
    rates_RT = np.stack([d.rates_T for d in of])
    seen = float(norm(rates_RT))
    away_RT, noise_DRT = from_centre(rates_RT, np.stack([d.noise_DT for d in of], 1))
    directions = directions_of(away_RT, noise_DRT, norm) + few_carry_it(away_RT, noise_DRT, norm)
    if norm is largest:
        directions.append(widest_only(rates_RT))
    else:
        # The observed curve is rougher than the true one: noise adds more to what it starts from,
        # and the upper end alone would be too low.
        smooth_RT = np.stack([d.along.smoother @ d.along.centre_B for d in of])
        smooth_RT -= smooth_RT.mean(1, keepdims=True)
        if norm(smooth_RT) > 1e-9:
            directions.append(smooth_RT / norm(smooth_RT))
    by_chance = p > 1 - level + 1e-12
    low, high = fold(seen, noise_DRT, norm, directions, level, from_zero=by_chance)
    if by_chance:
        low = 0.0
    elif norm is largest:
        low = _surely(of, rates_RT, noise_DRT) or gap_along(of, average, p).low
    low = 0.0 if by_chance else max(low, seen / 2**STEPS)
    return Estimate(seen, min(low, seen), min(max(high, seen), 1.0), support, p=p)


def _surely(of: Sequence[_RateDraws], rates_RT: np.ndarray, noise_DRT: np.ndarray) -> float:
    """Return by how much two quantiles of a curve differ for sure, for all pairs and curves at
    once.

    Pairs within one window share most of their rows and are left out.
    """
    lowered, largest_D = [], np.zeros(len(noise_DRT))
    for r, d in enumerate(of):
        i, j = np.triu_indices(len(GRID), 1)
        far = GRID[j] - GRID[i] >= d.along.bandwidth
        i, j = i[far], j[far]
        apart_DK = noise_DRT[:, r, i] - noise_DRT[:, r, j]
        error_K = np.maximum(apart_DK.std(0), 1e-12)
        largest_D = np.maximum(largest_D, np.abs(apart_DK / error_K).max(1))
        lowered.append((np.abs(rates_RT[r, i] - rates_RT[r, j]), error_K))
    errors = float(np.quantile(largest_D, of[0].level))
    return max(float((gap - errors * error).max(initial=0.0)) for gap, error in lowered)


# -------------------------------------------------------------------------------------------------
# All curves of a model along one number.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rate:
    key: str
    says: str
    about_N: np.ndarray  # the rows that it is about
    hit_N: np.ndarray  # those that count
    of_class: bool  # of one class; otherwise a selection rate


def _rates_of(
    t_N: np.ndarray, p_N: np.ndarray, classes: Sequence[str], positive: int | None
) -> list[_Rate]:
    """Return TPR, FPR and selection of two classes; recall and selection of each of more."""
    everyone = np.ones(len(t_N), bool)
    if len(classes) == 2:
        yes = 1 if positive is None else positive
        name, other = classes[yes], classes[1 - yes]
        return [
            _Rate("tpr", f"{name}, called {name}", t_N == yes, p_N == yes, True),
            _Rate("fpr", f"{other}, called {name}", t_N != yes, p_N == yes, True),
            _Rate("selection", f"called {name}", everyone, p_N == yes, False),
        ]
    recalls = [
        _Rate(f"recall_{name}", f"{name}, called {name}", t_N == c, p_N == c, True)
        for c, name in enumerate(classes)
    ]
    return recalls + [
        _Rate(f"selection_{name}", f"called {name}", everyone, p_N == c, False)
        for c, name in enumerate(classes)
    ]


def evaluate_curves(
    target: np.ndarray,
    prediction: np.ndarray,
    values: np.ndarray,
    *,
    classes: Sequence[str],
    positive: int | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    min_group: int = 30,
    repeats: np.ndarray | None = None,
) -> Curves:
    """Measure how the rates of a model change along a sensitive number, such as age in years.

    docs/metrics.md has the definitions.

    Parameters
    ----------
    target
        True classes as codes (n,).
    prediction
        Predicted classes as codes (n,).
    values
        The sensitive number of each row (n,).
    classes
        Names of the classes.
    positive
        The favourable class of two (default: the second).
    draws
        Simulated test sets for the band, intervals and tests.
    seed
        Seed of the draws.
    level
        Confidence of the band and the intervals.
    min_group
        A curve needs four times as many rows of its class.
    repeats
        How many rows each entry stands for (default: one).

    Returns
    -------
    Curves
        The curves, and every metric of them with its interval.

    Examples
    --------
    >>> import numpy as np
    >>> age, label = np.tile(np.arange(20, 70), 20), np.repeat([0, 1], 500)
    >>> found = evaluate_curves(label, np.where(age > 60, 1, label), age, classes=("no", "yes"))
    >>> found.estimates["curve_gap_fpr"].low > 0.5
    True
    """
    t_N, p_N, s_N = (np.asarray(x) for x in (target, prediction, values))
    _check(t_N, p_N, s_N, level, draws, seed)
    rates = _rates_of(t_N, p_N, classes, positive)
    draws = _affordable(draws, len(rates))
    curves, drawn = [], {}
    for rate in rates:
        own = None if repeats is None else repeats[rate.about_N]
        along = Along.of(s_N[rate.about_N].astype(np.float64), rate.hit_N[rate.about_N], own)
        reason = _too_few(along, QUARTERS * min_group)
        if reason:
            curves.append(RateCurve(rate.key, rate.says, along.rows, reason=reason))
            continue
        drawn[rate.key] = d = _RateDraws(along, draws, seed, level)
        low_T, high_T = d.band()
        curves.append(RateCurve(rate.key, rate.says, along.rows, along.values_T, d.rates_T,
                                low_T, high_T, along.bandwidth))  # fmt: skip
    found = _averages(t_N, p_N, classes, positive, repeats, draws, seed, level)
    for of_class in (True, False):
        family = [r.key for r in rates if r.of_class == of_class]
        reasons = {c.rate: c.reason or "" for c in curves}
        found |= _of_family(family, drawn, reasons, overall=of_class)
    return Curves(tuple(curves), {k: found[k] for k in sorted(found, key=_first_of_all)})


def _first_of_all(name: str) -> int:
    """Put metrics of all classes before those of one rate; the order is otherwise kept."""
    return 0 if name in ("accuracy", "balanced_accuracy") else 1 if name in OVERALL else 2


def _of_family(
    keys: Sequence[str], drawn: dict[str, _RateDraws], reasons: dict[str, str], *, overall: bool
) -> dict[str, Estimate]:
    """Return metrics of curves that are tested together.

    P-values are adjusted for their number (Holm).
    """
    known = [k for k in keys if k in drawn]
    flat = dict(zip(known, holm([drawn[k].p[0] for k in known]), strict=True))
    depends = dict(zip(known, holm([drawn[k].p[1] for k in known]), strict=True))
    found: dict[str, Estimate] = {}
    for key in keys:
        if key not in drawn:
            found |= {f"{m}_{key}": Estimate.undefined(reasons[key]) for m in MEASURES}
            continue
        d = drawn[key]
        found[f"curve_gap_{key}"] = gap_along([d], largest, flat[key])
        found[f"curve_mean_gap_{key}"] = gap_along([d], average, flat[key])
        found[f"curve_slope_{key}"] = d.slope()
        found[f"dependence_{key}"] = d.dependence(depends[key])
    if not overall:
        return found
    if not known:
        return found | {m: Estimate.undefined("no class has a curve") for m in OVERALL}
    together, p = [drawn[k] for k in known], min(flat.values())
    found["curve_gap"] = gap_along(together, largest, p)
    found["curve_mean_gap"] = gap_along(together, average, p)
    return found | {"dependence": _strongest([found[f"dependence_{k}"] for k in known])}


def _strongest(of: Sequence[Estimate]) -> Estimate:
    """Return the largest of several dependences; its ends are the largest ends."""
    defined = [e for e in of if e.defined]
    if not defined:
        return of[0]
    value, low, high = (max(getattr(e, end) for e in defined) for end in ("value", "low", "high"))
    return Estimate(value, low, high, min(e.support for e in defined),
                    p=min(e.p or 0.0 for e in defined))  # fmt: skip


def adjusted_along(
    estimates: Sequence[Mapping[str, Estimate]], level: float
) -> list[dict[str, Estimate]]:
    """Return the estimates of several sensitive numbers, p of gaps and dependence adjusted by Holm.

    An interval starts at 0 if the adjusted p does not exclude it. Slopes have signs, and are
    left as they are.
    """
    out = [dict(e) for e in estimates]
    for name in dict.fromkeys(name for e in out for name in e):
        measure = measure_of(name)
        if measure is None or measure.signed:
            continue
        places = [i for i, e in enumerate(out) if name in e and e[name].p is not None]
        for i, p in zip(places, holm([out[i][name].p or 0.0 for i in places]), strict=True):
            low = 0.0 if p > 1 - level + 1e-12 else out[i][name].low
            out[i][name] = replace(out[i][name], p=p, low=low)
    return out


def _averages(
    t_N: np.ndarray,
    p_N: np.ndarray,
    classes: Sequence[str],
    positive: int | None,
    repeats: np.ndarray | None,
    draws: int,
    seed: int,
    level: float,
) -> dict[str, Estimate]:
    """Compute accuracy and balanced accuracy, which need no groups."""
    everyone = np.zeros(len(t_N), np.int64)
    counts = Counts.from_codes(t_N, p_N, everyone, tuple(classes), ("all",), repeats)
    return evaluate_counts(
        counts, positive=positive, draws=draws, seed=seed, level=level, strata="none",
        metrics=["accuracy", "balanced_accuracy"],
    )  # fmt: skip


def _too_few(along: Along, least: int) -> str:
    """Return why there is no curve; empty where there is one."""
    if along.rows < least:
        return f"it has {along.rows:,} rows; a curve needs {least:,}"
    if along.values < LEAST_VALUES:
        return f"its rows have {along.values} different values; a curve needs {LEAST_VALUES}"
    return ""


def _affordable(draws: int, curves: int) -> int:
    """Return ``draws``, or as many as fit in memory."""
    each, limit = 8 * _COPIES * curves * len(GRID), memory_limit()
    fits = min(draws, limit // each)
    if fits < min(draws, FEWEST_DRAWS):
        raise MemoryLimitError(
            f"{curves:,} curves need {readable(each * draws)} at {draws:,} draws; the limit is "
            f"{readable(limit)}. Merge classes"
        )
    return fits


def _check(
    t_N: np.ndarray, p_N: np.ndarray, s_N: np.ndarray, level: float, draws: int, seed: int
) -> None:
    if not len(t_N) == len(p_N) == len(s_N):
        raise InputError(
            f"labels, predictions and values must be as many: got {len(t_N):,}, {len(p_N):,} and "
            f"{len(s_N):,}"
        )
    if not np.isfinite(s_N.astype(np.float64)).all():
        raise InputError("the sensitive number is missing or infinite in some rows; leave them out")
    if not 0 < level < 1 or draws < 100:
        raise InputError("an interval needs a level between 0 and 1 and at least 100 draws")
    check_draws(draws, seed)
