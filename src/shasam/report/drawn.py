"""How the intervals of an audit are made, and what is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shasam.types import Predictions


@dataclass(frozen=True)
class Drawn:
    """How intervals are made and which groups are compared; the defaults are those of an audit."""

    draws: int = 2000
    seed: int = 0
    level: float = 0.95
    strata: str = "none"  # whose sizes resampling keeps
    min_group: int = 30  # groups with fewer rows are shown, but not compared
    reference: tuple[str, ...] = ()  # groups that others are compared with; else the largest
    period: str = "month"  # over time
    min_slice: int = 50  # fewest rows of a slice

    def keywords(self, rows: Predictions) -> dict[str, Any]:
        """What ``shasam.metrics`` is told of rows beside their labels, predictions and groups."""
        return {
            "classes": rows.classes,
            "groups": rows.groups,
            "positive": rows.positive,
            "draws": self.draws,
            "seed": self.seed,
            "level": self.level,
            "strata": self.strata,
            "min_group": self.min_group,
            "repeats": rows.repeats,
            "weights": rows.context.weights,
        }


OF_RUNS = Drawn(strata="cell", min_group=0)  # a run's splits have fixed cells
