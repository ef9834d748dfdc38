"""Facility location over a random sample of the represented rows, and how far that can be off.

f(A) = Σ_{i≤R} x_i is a sum over the represented rows with every x_i between 0 and 1. For r of them,
drawn without replacement, with mean m and standard deviation s, each of two inequalities bounds the
mean of all R from one side, with probability 1 - δ (Bardenet and Maillard 2015):

    Hoeffding-Serfling             √( ρ log(1/δ) / 2r )
    empirical Bernstein-Serfling   s √( 2ρ log(5/δ) / r ) + (7/3 + 3/√2) log(5/δ) / r

with ρ = 1 - (r - 1)/R for r ≤ R/2 and (1 - r/R)(1 + 1/r) above. Both are used on both sides with a
quarter of δ each, and the narrower one counts. Picks that were chosen on the same sample are one of
C(n, k) sets that could have been chosen: δ is then divided by C(n, k), so that the bound holds for
all of them at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.facility_location import ClampedFacilityLocation
from shasam.submodular.rows import sample_rows
from shasam.submodular.set_function import SetFunction
from shasam.submodular.similarities import Features
from shasam.submodular.walks import Progress
from shasam.types import Selection

_KAPPA = 7 / 3 + 3 / math.sqrt(2)
_KERNEL = 2**28  # entries of a kernel that is kept: 1 GiB of float32; larger ones are made anew


@dataclass(frozen=True)
class Estimate:
    """The value of some picks, estimated from a sample of the represented rows.

    >>> print(Estimate(650.0, 640.0, 660.0, confidence=0.95, sample=100, rows=1000))
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
) -> Estimate:
    """f(picks) from a fresh random sample of the represented rows, with bounds.

    For facility location and its measures over features, compared by "shifted_cosine" or "rbf".
    The sample must not have served to choose the picks; its own ``generator`` sees to that.

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
) -> tuple[Selection, Estimate]:
    """k picks that represent a random sample of the rows well, and how far their value can be off.

    Greedy sees n × ``sample`` similarities in place of n × R, and computes them anew where they do
    not fit. The estimate comes from a second sample of the same size, so that the choice of the
    picks does not flatter it; with ``fresh=False`` from the first one, with a bound that holds for
    all C(n, k) sets at once and is far wider. The gains are those of the same sample, scaled to
    all rows; with ``exact=True`` they are computed on all of them, n × k similarities.

    >>> from shasam.submodular import FacilityLocation
    >>> f = FacilityLocation.from_features(torch.randn(3000, 8))
    >>> chosen, told = maximize_sampled(f, 10, sample=500)
    >>> told.low <= float(f(chosen.indices)) <= told.high
    True
    """
    from shasam.submodular.maximize import maximize

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
) -> Estimate:
    """Of picks that are one of exp(sets) candidates for which the bound must hold at once."""
    whole = f.rows.width
    part = f.part(index, rows)
    assert isinstance(part, ClampedFacilityLocation)
    x_R = part.row_values(torch.arange(len(index), device=f.device)).double()
    mean, spread = float(x_R.mean()), float(x_R.std(correction=0))
    off = deviation(len(rows), whole, spread, math.log(4 / (1 - confidence)) + sets)
    low, high = max(mean - off, 0.0) * whole, min(mean + off, 1.0) * whole
    return Estimate(mean * whole, low, high, confidence, len(rows), whole)


def deviation(r: int, whole: int, spread: float, log_inverse_delta: float) -> float:
    """How far the mean of r of ``whole`` numbers in [0, 1] can be from that of all, one-sided.

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
