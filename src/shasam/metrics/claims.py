"""Whether a gap is significant, which groups it is between, and how large it could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shasam.metrics import catalogue
from shasam.metrics.counts import Counts
from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import newcombe, wilson_ends
from shasam.metrics.statistic import Gap


@dataclass(frozen=True)
class Contrast:
    """The two groups that lie farthest apart on one rate, and by how much."""

    rate: str  # the class or prediction whose rate it is; empty where there is one rate only
    low_group: str
    high_group: str
    low: Estimate  # rate of each group with Wilson's interval
    high: Estimate
    gap: Estimate  # its interval holds for all pairs at once, so it may be read of the widest one


def widest(
    counts: Counts, metric: str = "eo_mean", *, positive: int | None = None, level: float = 0.95
) -> Contrast | None:
    """Which pair of groups and which class make the largest term of a gap, if there is one.

    The widest of many gaps is partly luck. So its interval (Newcombe 1998) has the error
    probability divided by the number of pairs and rates that it was chosen from.

    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> found = widest(Counts(n, ("no", "yes"), ("a", "b")))
    >>> found.rate, found.low_group, found.high_group, round(found.gap.value, 2)
    ('no', 'b', 'a', 0.2)
    """
    statistic = catalogue.named(metric).value
    if not isinstance(statistic, Gap) or len(counts.groups) < 2:
        return None
    table_SKG = statistic.table(counts.n_CPG, positive)
    rates_RG = statistic.rates(counts.n_CPG, positive)
    R, G = rates_RG.shape
    if np.isnan(rates_RG).any():
        return None
    row = int((rates_RG.max(-1) - rates_RG.min(-1)).argmax())
    low, high = int(rates_RG[row].argmin()), int(rates_RG[row].argmax())
    size_G = table_SKG.sum(1)[row * len(table_SKG) // R]
    ends = newcombe(
        float(rates_RG[row, high]), int(size_G[high]), float(rates_RG[row, low]), int(size_G[low]),
        1 - (1 - level) / (R * G * (G - 1) / 2),
    )  # fmt: skip
    rates = []
    for g in (low, high):
        below, above = wilson_ends(rates_RG[row, [g]], size_G[[g]], level)
        rates.append(
            Estimate(float(rates_RG[row, g]), float(below[0]), float(above[0]), int(size_G[g]))
        )
    gap = Estimate(
        rates[1].value - rates[0].value, max(ends[0], 0.0), ends[1], int(size_G[[low, high]].min())
    )
    name = counts.classes[row] if len(counts.classes) == R else ""
    return Contrast(name, counts.groups[low], counts.groups[high], rates[0], rates[1], gap)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjustment (1979): claims over several attributes err together at the level of one.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, least = [1.0] * len(p), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = least
    return adjusted


@dataclass(frozen=True)
class Claim:
    """A gap and what may be said of it, at a stated error rate."""

    metric: str
    estimate: Estimate
    p: float  # adjusted for the number of attributes that were looked at
    level: float
    contrast: Contrast | None
    attributes: int = 1  # how many were looked at

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        found = {"metric": self.metric, "real": self.real, "p": self.p}
        found |= {"attributes": self.attributes, "level": self.level, "widest": None}
        if self.contrast is not None:
            found["widest"] = {
                "rate": self.contrast.rate,
                "low_group": self.contrast.low_group,
                "high_group": self.contrast.high_group,
                "gap": self.contrast.gap.as_dict(),
            }
        return found

    @property
    def real(self) -> bool:
        """Chance alone would rarely give as much, and the interval does not reach 0."""
        return self.p <= 1 - self.level + 1e-12 and self.estimate.low > 0


def claim_of(
    counts: Counts,
    estimates: Mapping[str, Estimate],
    *,
    positive: int | None = None,
    level: float = 0.95,
) -> Claim | None:
    """The claim about equalized odds or, where that has no value, about accuracy by group."""
    for metric in ("eo_mean", "accuracy_gap"):
        e = estimates.get(metric)
        if e is not None and e.defined and e.p is not None:
            contrast = widest(counts, metric, positive=positive, level=level)
            return Claim(metric, e, e.p, level, contrast)
    return None


def adjusted(claims: Sequence[Claim | None]) -> list[Claim | None]:
    """The claims about several attributes of one model, with Holm's adjustment."""
    made = [c for c in claims if c is not None]
    new = iter(holm([c.p for c in made]))
    return [None if c is None else replace(c, p=next(new), attributes=len(made)) for c in claims]
