"""How far picks can be from the best ones: a bound that is computed from the data.

For a monotone submodular f and any set A, the best k elements O obey (Minoux 1978)

    f(O) ≤ f(A ∪ O) ≤ f(A) + Σ of the k largest gains f(A + v) - f(A).

Facility location over very many rows is a sum over them, so the second term is estimated from a
random sample of r of the R represented rows. With d_i the rise of row i from A to A ∪ O, which lies
within 0 and c = top - min_i max_{a∈A} K_ia, Serfling's inequality gives with probability 1 - δ

    Σ_i d_i ≤ R/r Σ_{i in the sample} d_i + R c √( (1 - (r-1)/R) log(1/δ) / 2r ).
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
from shasam.types import Selection


@dataclass(frozen=True)
class Certificate:
    """The value of some picks, and what no other set of as many elements can exceed.

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
    """The sum of the k largest gains that are not negative."""
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
    share = 1 - (sample - 1) / f.rows.width
    spread = math.sqrt(share * math.log(1 / (1 - confidence)) / (2 * sample))
    return top + f.rows.width * max(most - lowest, 0.0) * spread
