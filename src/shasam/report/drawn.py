"""How the intervals of an audit are made, and what is compared."""

from __future__ import annotations

from dataclasses import dataclass


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


OF_RUNS = Drawn(strata="cell", min_group=0)  # a run's splits have fixed cells
