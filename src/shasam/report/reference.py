"""Every group against one: differences and ratios of error rates, and the four-fifths rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shasam.metrics import Against, Counts, against
from shasam.metrics.confusion import LARGEST, RATES

FOUR_FIFTHS = 0.8  # of the reference's selection rate: below it, US agencies presume a disparity


@dataclass(frozen=True)
class Reference:
    """The group that others are compared with, and what was found."""

    group: str
    positive: str  # the class whose rates they are
    named: bool  # it was asked for; otherwise it is the largest
    rates: dict[str, list[Against]]  # rate -> every other group

    @classmethod
    def of(
        cls, counts: Counts, names: Sequence[str], positive: int | None, level: float
    ) -> Reference | None:
        """The first of ``names`` that is a group here, else the largest group."""
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
        """Plain JSON."""
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

    def four_fifths(self, small: Sequence[str] = ()) -> str:
        """What the rule says of the group that is selected least, groups of few rows left out."""
        found = [a for a in self.rates["selection"] if a.ratio.defined and a.group not in small]
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
