"""Row against row over a whole artefact: what a table of many settings says of two methods.

A difference is paired: both rows have the same settings and seeds. Its interval is over what there
is more of. With eight settings and three seeds it is over settings, each the mean of its seeds;
with three settings and five seeds it is over seeds, each the mean of its settings.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shasam.metrics import compare_seeds
from shasam.metrics.comparison import Comparison
from shasam.reproduce.filled import Filled


@dataclass(frozen=True)
class Difference:
    """A row minus another, of one metric, in points."""

    row: str
    other: str
    metric: str
    ours: Comparison  # over ``support`` settings or seeds
    over: str  # "settings" or "seeds"
    printed: float | None  # the paper's own mean difference, over the same settings


def differences(filled: Filled) -> Iterator[Difference]:
    """Those that the artefact asks for and that its finished runs can answer."""
    for row, other in filled.artefact.compare:
        for metric in filled.artefact.metrics:
            found = _difference(filled, row, other, metric)
            if found is not None:
                yield found


def _difference(filled: Filled, row: str, other: str, metric: str) -> Difference | None:
    by_column: dict[str, dict[int, float]] = {}
    printed = []
    for column in filled.artefact.columns:
        one, two = (filled.get(name, column, metric) for name in (row, other))
        shared = one.by_seed.keys() & two.by_seed.keys()
        if not shared:
            continue
        by_column[column] = {seed: one.by_seed[seed] - two.by_seed[seed] for seed in shared}
        if one.printed is not None and two.printed is not None:
            printed.append(one.printed.value - two.printed.value)
    if not by_column:
        return None
    values, over = _units(by_column)
    ours = compare_seeds(values, [0.0] * len(values))
    paper = statistics.fmean(printed) if len(printed) == len(by_column) else None
    return Difference(row, other, metric, ours, over, paper)


def _units(by_column: Mapping[str, Mapping[int, float]]) -> tuple[list[float], str]:
    """The mean difference of each setting, or of each seed that all settings have."""
    seeds = sorted(set.intersection(*(set(found) for found in by_column.values())))
    if len(seeds) >= len(by_column):
        every = by_column.values()
        return [statistics.fmean(found[seed] for found in every) for seed in seeds], "seeds"
    return [statistics.fmean(found.values()) for found in by_column.values()], "settings"
