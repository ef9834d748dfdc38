"""Bound how far picks are from the best: a certificate, and samples of the represented rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.facility_location import ClampedFacilityLocation
from shasam.submodular.greedy import Progress
from shasam.submodular.kernels import Features, sample_rows
from shasam.submodular.set_function import SetFunction
from shasam.types import Selection

# -------------------------------------------------------------------------------------------------
# How far picks can be from the best ones: a bound that is computed from the data.
#
# For a monotone submodular f and any set A, the best k elements O obey (Minoux 1978)
#
#     f(O) ≤ f(A ∪ O) ≤ f(A) + Σ of the k largest gains f(A + v) - f(A).
#
# Facility location over very many rows is a sum over them, so the second term is estimated from a
# random sample of r of the R represented rows. With d_i the rise of row i from A to A ∪ O, which
# lies within 0 and c = top - min_i max_{a∈A} K_ia, Serfling's inequality gives with probability 1
# - δ
#
#     Σ_i d_i ≤ R/r Σ_{i in the sample} d_i + R c √( (1 - (r-1)/R) log(1/δ) / 2r ).
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    """Hold the value of some picks, and what no other set of as many elements can exceed.

    Parameters
    ----------
    value
        f(A), exact.
    optimum_at_most
        Bound of the value of the best set.
    confidence
        Probability with which the bound holds; 1 if nothing was sampled.
    sample
        Represented rows that were looked at; None is all.

    Examples
    --------
    >>> Certificate(value=90.0, optimum_at_most=100.0, confidence=0.95, sample=4096).share
    0.9
    """

    value: float  # f(A), exact
    optimum_at_most: float
    confidence: float  # 1 where nothing was sampled
    sample: int | None  # represented rows that were looked at; None is all

    @property
    def share(self) -> float:
        """At least this share of the optimum was reached."""
        return self.value / self.optimum_at_most if self.optimum_at_most > 0 else 1.0

    def __str__(self) -> str:
        sure = "" if self.sample is None else f" with {self.confidence:.0%} confidence"
        how = "" if self.sample is None else f" (bound from a sample of {self.sample:,} rows)"
        return (
            f"value {self.value:,.6g}; no other choice of as many exceeds "
            f"{self.optimum_at_most:,.6g}{sure}, so at least {self.share:.1%} of the optimum{how}"
        )


@torch.no_grad()
def certify(
    f: SetFunction,
    picks: Any,
    *,
    confidence: float = 0.95,
    sample: int = 4096,
    generator: torch.Generator | None = None,
) -> Certificate:
    """Bound how far picks are from the best set of as many elements, after Minoux.

    Exact for any monotone submodular f. For facility location over features with more represented
    rows than ``sample``, the bound is estimated from that many random rows and holds with the
    given confidence; the sample must not have served to choose the picks, so give a ``generator``
    of its own. f(A) itself is exact.

    Parameters
    ----------
    f
        A monotone submodular function.
    picks
        A ``Selection``, or indices.
    confidence
        Probability with which a sampled bound holds.
    sample
        Represented rows that are looked at, if there are more.
    generator
        Source of random numbers for the sample.

    Returns
    -------
    Certificate
        The value of the picks, and what no other choice of as many can exceed.

    Examples
    --------
    >>> from shasam.submodular import FacilityLocation, maximize
    >>> f = FacilityLocation([[1.0, 0.25, 0.0], [0.25, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> print(certify(f, maximize(f, 2)))
    value 2.5; no other choice of as many exceeds 3, so at least 83.3% of the optimum
    """
    index = f.index(picks.indices if isinstance(picks, Selection) else picks)
    if not (f.monotone and f.submodular):
        raise InputError(
            f"the bound needs a monotone submodular function; {type(f).__name__} is declared "
            f"monotone = {f.monotone}, submodular = {f.submodular}"
        )
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1; got {confidence}")
    pool = torch.arange(f.n, device=f.device) if f.candidates is None else f.candidates
    pool = pool[~torch.isin(pool, index)]
    value = float(f.gains_along(index).double().sum())
    if isinstance(f, ClampedFacilityLocation) and f.rows.width > sample and not f.rows.is_made(2):
        generator = generator or torch.Generator().manual_seed(1)
        rise = _sampled_rise(f, index, pool, confidence, sample, generator)
        return Certificate(value, value + rise, confidence, sample)
    rise = _top(f.gains(f.start(index), pool), len(index))
    return Certificate(value, value + rise, 1.0, None)


def _top(gains_C: Tensor, k: int) -> float:
    """Return the sum of the k largest gains that are not negative."""
    return float(gains_C.topk(min(k, len(gains_C))).values.clamp_min(0).sum())


def _sampled_rise(
    f: ClampedFacilityLocation,
    index: Tensor,
    pool: Tensor,
    confidence: float,
    sample: int,
    generator: torch.Generator,
) -> float:
    rows = sample_rows(f.rows.width, sample, generator).to(f.device)
    judge = f.part(torch.cat([index, pool]), rows)
    k = len(index)
    others = torch.arange(k, k + len(pool), device=f.device)
    scale = f.rows.width / sample
    top = _top(judge.gains(judge.start(range(k)), others), k) * scale
    lowest = float(f.start(index).min())
    most = 1.0 if f.hi_R is None else min(1.0, float(f.hi_R.max()))
    return top + serfling(f.rows.width, sample, most - lowest, confidence)


def serfling(rows: int, sample: int, spread: float, confidence: float) -> float:
    """Bound how far a scaled-up sample can fall short of the sum over rows, each within ``spread``.

    >>> serfling(1000, 1000, 0.5, 0.95) < 2 < serfling(1000, 100, 0.5, 0.95)
    True
    """
    left = 1 - (sample - 1) / rows
    off = math.sqrt(left * math.log(1 / (1 - confidence)) / (2 * sample))
    return rows * max(spread, 0.0) * off


# -------------------------------------------------------------------------------------------------
# Facility location over a random sample of the represented rows, and how far that can be off.
#
# f(A) = Σ_{i≤R} x_i is a sum over the represented rows with every x_i between 0 and 1. For r of
# them, drawn without replacement, with mean m and standard deviation s, each of two inequalities
# bounds the mean of all R from one side, with probability 1 - δ (Bardenet and Maillard 2015):
#
#     Hoeffding-Serfling             √( ρ log(1/δ) / 2r )
#     empirical Bernstein-Serfling   s √( 2ρ log(5/δ) / r ) + (7/3 + 3/√2) log(5/δ) / r
#
# with ρ = 1 - (r - 1)/R for r ≤ R/2 and (1 - r/R)(1 + 1/r) above. Both are used on both sides with
# a quarter of δ each, and the narrower one counts. Picks that were chosen on the same sample are
# one of C(n, k) sets that could have been chosen: δ is then divided by C(n, k), so that the bound
# holds for all of them at once.
# -------------------------------------------------------------------------------------------------

_KAPPA = 7 / 3 + 3 / math.sqrt(2)
_KERNEL = 2**28  # entries of a kernel that is kept: 1 GiB of float32; larger ones are made anew


@dataclass(frozen=True)
class SampledValue:
    """Hold the value of some picks, estimated from a sample of the represented rows.

    Parameters
    ----------
    value
        The estimate.
    low
        Lower bound.
    high
        Upper bound.
    confidence
        Probability with which the bounds hold.
    sample
        Rows in the sample.
    rows
        Represented rows in all.

    Examples
    --------
    >>> print(SampledValue(650.0, 640.0, 660.0, confidence=0.95, sample=100, rows=1000))
    value about 650, between 640 and 660 with 95% confidence (100 of 1,000 represented rows)
    """

    value: float
    low: float
    high: float
    confidence: float
    sample: int
    rows: int

    def __str__(self) -> str:
        return (
            f"value about {self.value:,.6g}, between {self.low:,.6g} and {self.high:,.6g} with "
            f"{self.confidence:.0%} confidence ({self.sample:,} of {self.rows:,} represented rows)"
        )


@torch.no_grad()
def estimate(
    f: SetFunction,
    picks: Any,
    *,
    sample: int = 8192,
    confidence: float = 0.95,
    generator: torch.Generator | None = None,
) -> SampledValue:
    """Estimate f(picks) from a fresh random sample of the represented rows, with bounds.

    For facility location and its measures over features, compared by "shifted_cosine" or "rbf".
    The sample must not have served to choose the picks; its own ``generator`` sees to that.

    Parameters
    ----------
    f
        Facility location or one of its measures, over features compared by "shifted_cosine" or
        "rbf".
    picks
        A ``Selection``, or indices.
    sample
        Rows in the sample.
    confidence
        Probability with which the bounds hold.
    generator
        Source of random numbers for the sample.

    Returns
    -------
    SampledValue
        The estimate and its bounds.

    Examples
    --------
    >>> from shasam.submodular import FacilityLocation
    >>> f = FacilityLocation.from_features(torch.randn(5000, 8))
    >>> told = estimate(f, [1, 2, 3], sample=500)
    >>> told.low <= float(f([1, 2, 3])) <= told.high
    True
    """
    g = _checked(f, sample, confidence)
    index = g.index(picks.indices if isinstance(picks, Selection) else picks)
    rows = sample_rows(g.rows.width, sample, generator or torch.Generator().manual_seed(2))
    return _estimate(g, index, rows.to(g.device), confidence, 0.0)


@torch.no_grad()
def maximize_sampled(
    f: SetFunction,
    k: int | None = None,
    *,
    costs: Any = None,
    budget: float | None = None,
    sample: int = 8192,
    confidence: float = 0.95,
    fresh: bool = True,
    exact: bool = False,
    optimizer: Any = "auto",
    epsilon: float = 0.1,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> tuple[Selection, SampledValue]:
    """Pick k elements that represent a random sample of the rows, and bound their value.

    Greedy sees n × ``sample`` similarities in place of n × R, and computes them anew where they do
    not fit. The estimate comes from a second sample of the same size, so that the choice of the
    picks does not flatter it; with ``fresh=False`` from the first one, with a bound that holds for
    all C(n, k) sets at once and is far wider. The gains are those of the same sample, scaled to
    all rows; with ``exact=True`` they are computed on all of them, n × k similarities.

    Parameters
    ----------
    f
        Facility location, or a measure of it, over features.
    k
        How many elements to pick.
    costs
        One positive cost per element, for a ``budget``.
    budget
        Total cost that the picks must stay within.
    sample
        Rows in the random sample.
    confidence
        Probability with which the bounds hold.
    fresh
        Estimate the value from a second sample, so that the choice of the picks does not
        flatter it.
    exact
        Compute the gains on all rows, n × k similarities.
    optimizer
        As for ``maximize``.
    epsilon
        As for ``maximize``.
    generator
        Source of random numbers for both samples.
    progress
        Function that is called with (done, whole).

    Returns
    -------
    tuple[Selection, SampledValue]
        The picks with their gains, and the value with its bounds.

    Examples
    --------
    >>> from shasam.submodular import FacilityLocation
    >>> f = FacilityLocation.from_features(torch.randn(3000, 8))
    >>> chosen, told = maximize_sampled(f, 10, sample=500)
    >>> told.low <= float(f(chosen.indices)) <= told.high
    True
    """
    from shasam.submodular.greedy import maximize

    g = _checked(f, sample, confidence)
    generator = generator or torch.Generator().manual_seed(0)
    everything = torch.arange(g.n, device=g.device)
    rows = sample_rows(g.rows.width, sample, generator).to(g.device)
    judge = g.part(everything, rows)
    assert isinstance(judge, ClampedFacilityLocation)
    judge.candidates, judge.rows.kept = g.candidates, g.n * sample <= _KERNEL
    chosen = maximize(
        judge,
        k,
        costs=costs,
        budget=budget,
        optimizer=optimizer,
        epsilon=epsilon,
        generator=generator,
        progress=progress,
    )
    sets = 0.0
    if fresh:
        rows = sample_rows(g.rows.width, sample, generator).to(g.device)
    else:
        pool, size = g.n if g.candidates is None else len(g.candidates), len(chosen)
        sets = math.lgamma(pool + 1) - math.lgamma(size + 1) - math.lgamma(pool - size + 1)
        if costs is not None:  # sets of any size: size s gets the share 1/2(s + 1)² of δ
            sets += math.log(2) + 2 * math.log(size + 1)
    told = _estimate(g, chosen.indices, rows, confidence, sets)
    if exact:
        gains = g.gains_along(chosen.indices)
    else:
        order = torch.arange(len(chosen), device=g.device)
        gains = g.part(chosen.indices, rows).gains_along(order) * (g.rows.width / sample)
    name = f"{chosen.optimizer}, {sample:,} of {g.rows.width:,} represented rows"
    return Selection(chosen.indices, gains, chosen.evaluations, name), told


def _checked(f: SetFunction, sample: int, confidence: float) -> ClampedFacilityLocation:
    if not isinstance(f, ClampedFacilityLocation) or not isinstance(f.rows.source, Features):
        raise InputError(
            "a sample of the represented rows is for facility location and its measures over "
            f"features; this {type(f).__name__} is another function, or is over a kernel"
        )
    if f.rows.source.similarity == "cosine" or f.bonus_N is not None:
        raise InputError(
            "the bound needs a sum of numbers between 0 and 1 over the represented rows; use "
            "similarity='shifted_cosine' or 'rbf'. FLQMI has no bound, because it adds a bonus"
        )
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1; got {confidence}")
    if isinstance(sample, bool) or not 2 <= sample <= f.rows.width:
        raise InputError(
            f"a sample holds at least 2 and at most {f.rows.width} represented rows; got {sample}"
        )
    return f


def _estimate(
    f: ClampedFacilityLocation, index: Tensor, rows: Tensor, confidence: float, sets: float
) -> SampledValue:
    """Estimate picks that are one of exp(sets) candidates for which the bound must hold at once."""
    whole = f.rows.width
    part = f.part(index, rows)
    assert isinstance(part, ClampedFacilityLocation)
    x_R = part.row_values(torch.arange(len(index), device=f.device)).double()
    mean, spread = float(x_R.mean()), float(x_R.std(correction=0))
    off = deviation(len(rows), whole, spread, math.log(4 / (1 - confidence)) + sets)
    low, high = max(mean - off, 0.0) * whole, min(mean + off, 1.0) * whole
    return SampledValue(mean * whole, low, high, confidence, len(rows), whole)


def deviation(r: int, whole: int, spread: float, log_inverse_delta: float) -> float:
    """Bound how far the mean of r of ``whole`` numbers in [0, 1] is from that of all, one-sided.

    >>> deviation(1000, 1000, 0.1, 3.0)
    0.0
    >>> 0.01 < deviation(1000, 10**6, 0.1, 3.0) < deviation(100, 10**6, 0.1, 3.0) < 0.2
    True
    """
    if r == whole:
        return 0.0
    rho = 1 - (r - 1) / whole if 2 * r <= whole else (1 - r / whole) * (1 + 1 / r)
    hoeffding = math.sqrt(rho * log_inverse_delta / (2 * r))
    log5 = log_inverse_delta + math.log(5)
    bernstein = spread * math.sqrt(2 * rho * log5 / r) + _KAPPA * log5 / r
    return min(hoeffding, bernstein)
