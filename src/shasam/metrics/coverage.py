"""Which intervals are approximate: those whose coverage, in simulated audits alike, missed 95 %.

``coverage.json`` holds what ``python -m bench.coverage --write`` measured. An audit is compared
with the simulated design that is nearest to its own counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from shasam.metrics.counts import Counts

HELD = (0.93, 0.97)  # shares of 95 % intervals that may hold the truth
ALARMS = 0.06  # largest share of fair models whose gap may be called real
FEWEST, MOST_GROUPS, MOST_CLASSES = (
    30,
    30,
    6,
)  # rows of a group, groups, classes that were simulated


@cache
def simulated() -> list[dict[str, Any]]:
    """What was measured, design by design, for fair and for unfair models."""
    text = files("shasam.metrics").joinpath("coverage.json").read_text(encoding="utf-8")
    return json.loads(text)


def nearest(counts: Counts) -> dict[str, Any]:
    """The simulated design that is most like these counts: groups, how unequal, classes."""
    sizes_G, groups = counts.sizes_G, len(counts.groups)
    return {
        "groups": 2 if groups < 3.5 else 6 if groups < 11 else 20,
        "skewed": bool(sizes_G.max() > 8 * sizes_G.min()),
        "classes": 2 if len(counts.classes) == 2 else 4,
    }


def approximate(
    metric: str,
    counts: Counts,
    measured: Sequence[Mapping[str, Any]] | None = None,
    *,
    support: int | None = None,
    between_groups: bool = True,
) -> str | None:
    """Why the interval of a metric is approximate for these counts; None where it is not.

    ``counts`` has the groups that are compared. A metric that was not simulated is judged by its
    ``support`` (the rows in its smallest denominator) and, if it compares groups, by their number.
    """
    measured = simulated() if measured is None else measured
    known = any(metric in entry["held"] for entry in measured)
    if known and int(counts.sizes_G.min()) < FEWEST:
        return f"groups of fewer than {FEWEST} rows were not simulated"
    if not known and support is not None and support < FEWEST:
        return f"rates of fewer than {FEWEST} rows were not simulated"
    many = len(counts.groups) > MOST_GROUPS or len(counts.classes) > MOST_CLASSES
    if many and (known or between_groups):
        return "so many groups or classes were not simulated"
    if not known:
        return None
    design = nearest(counts)
    alike = [entry for entry in measured if design.items() <= entry.items()]
    held = sum(e["held"][metric] * e["models"] for e in alike) / sum(e["models"] for e in alike)
    alarms = [e["called"][metric] for e in alike if e["fair"] and metric in e["called"]]
    if not HELD[0] <= held <= HELD[1]:
        return f"intervals of simulated audits like this one held the truth in {100 * held:.1f} %"
    if alarms and max(alarms) > ALARMS:
        return f"{100 * max(alarms):.1f} % of simulated models without a gap were called unequal"
    return None
