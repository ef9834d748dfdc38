"""A number with its interval, its support, and the reason where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """A metric: value and interval as fractions, NaN with a ``reason`` where it is undefined."""

    value: float
    low: float
    high: float
    support: int  # rows in the smallest denominator that the value rests on
    reason: str | None = None
    p: float | None = None  # of a gap: how often a model without one shows as large a gap

    @classmethod
    def undefined(cls, reason: str, support: int = 0) -> Estimate:
        """A metric that has no value here, and why."""
        return cls(math.nan, math.nan, math.nan, support, reason)

    @property
    def defined(self) -> bool:
        return not math.isnan(self.value)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: NaN becomes null, because JSON has no NaN. ``p`` is there for gaps only."""
        plain = {
            "value": _plain(self.value),
            "low": _plain(self.low),
            "high": _plain(self.high),
            "support": int(self.support),
            "reason": self.reason,
        }
        return plain if self.p is None else plain | {"p": self.p}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Estimate:
        """What ``as_dict`` wrote."""
        value, low, high = (_number(entry.get(key)) for key in ("value", "low", "high"))
        reason, p = entry.get("reason"), entry.get("p")
        return cls(
            value,
            low,
            high,
            int(entry.get("support") or 0),
            None if reason is None else str(reason),
            float(p) if isinstance(p, int | float) else None,
        )


def as_json(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    """All estimates as plain JSON, the form of ``metrics.json``."""
    return {name: estimate.as_dict() for name, estimate in estimates.items()}


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
