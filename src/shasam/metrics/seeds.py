"""The same experiment with several seeds: mean, spread, and a paired comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.comparison import Comparison
from shasam.metrics.estimate import Estimate
from shasam.metrics.tails import quantile, two_sided_p


@dataclass(frozen=True)
class Spread:
    """Mean over seeds, sample standard deviation, and Student's interval for the mean."""

    mean: float
    sd: float
    low: float
    high: float
    seeds: int
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        number = {k: getattr(self, k) for k in ("mean", "sd", "low", "high")}
        plain = {k: (v if math.isfinite(v) else None) for k, v in number.items()}
        return plain | {"seeds": self.seeds, "reason": self.reason}


def over_seeds(values: Sequence[float | Estimate], level: float = 0.95) -> Spread:
    """mean ± t(n-1) sd / √n over seeds; with one seed there is no spread, and it says so."""
    x = _numbers(values)
    if not len(x):
        return Spread(math.nan, math.nan, math.nan, math.nan, 0, "no seeds")
    if np.isnan(x).any():
        bad = int(np.isnan(x).sum())
        reason = f"{bad} of {len(x)} seeds have no value"
        return Spread(math.nan, math.nan, math.nan, math.nan, len(x), reason)
    if len(x) == 1:
        return Spread(float(x[0]), math.nan, math.nan, math.nan, 1, "one seed has no spread")
    sd = float(x.std(ddof=1))
    half = quantile(level, len(x) - 1) * sd / math.sqrt(len(x))
    mean = float(x.mean())
    return Spread(mean, sd, mean - half, mean + half, len(x))


def compare_seeds(
    a: Sequence[float | Estimate], b: Sequence[float | Estimate], level: float = 0.95
) -> Comparison:
    """a - b, paired by seed: Student's interval and p for the mean difference."""
    x, y = _numbers(a), _numbers(b)
    if len(x) != len(y):
        raise InputError(
            f"there are {len(x)} seeds on one side and {len(y)} on the other; a paired comparison "
            "needs the same seeds in the same order"
        )
    spread = over_seeds(list(x - y), level)
    if math.isnan(spread.mean) or len(x) < 2:
        return Comparison(spread.mean, math.nan, math.nan, math.nan, len(x), spread.reason)
    if spread.sd == 0:
        p = 1.0 if spread.mean == 0 else 0.0
    else:
        p = two_sided_p(spread.mean / (spread.sd / math.sqrt(len(x))), len(x) - 1)
    return Comparison(spread.mean, spread.low, spread.high, p, len(x))


def _numbers(values: Sequence[float | Estimate]) -> np.ndarray:
    return np.array([v.value if isinstance(v, Estimate) else float(v) for v in values])
