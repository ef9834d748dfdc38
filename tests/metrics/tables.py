"""Random tables of counts and their metrics in rational arithmetic, written without numpy."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np


def random_table(rng: np.random.Generator) -> np.ndarray:
    """Counts (C, C, G) with C <= 4 and G <= 6; some tables have empty cells."""
    C, G = int(rng.integers(2, 5)), int(rng.integers(2, 7))
    n = rng.integers(0, int(rng.choice([2, 5, 40, 3000])), (C, C, G))
    if n.sum() == 0:
        n[0, 0, 0] = 1
    return n


def exact(n: np.ndarray) -> dict[str, Fraction | None]:
    """Every metric of counts as a fraction, None where a denominator is 0."""
    C, _, G = n.shape
    table = [[[int(n[c, p, g]) for g in range(G)] for p in range(C)] for c in range(C)]
    cell = [[sum(table[c][p][g] for p in range(C)) for g in range(G)] for c in range(C)]
    group = [sum(cell[c][g] for c in range(C)) for g in range(G)]
    total = sum(group)
    recall = [[_over(table[c][c][g], cell[c][g]) for g in range(G)] for c in range(C)]
    right = [_over(sum(table[c][c][g] for c in range(C)), group[g]) for g in range(G)]
    rate = [
        [_over(sum(table[c][p][g] for c in range(C)), group[g]) for g in range(G)] for p in range(C)
    ]
    of_class = [_over(sum(table[c][c]), sum(cell[c])) for c in range(C)]
    flat = [r for row in recall for r in row]
    gaps = [_gap(row[a], row[b]) for row in recall for a, b in combinations(range(G), 2)]
    ranges = [_range(row) for row in recall]
    hits = sum(table[c][c][g] for c in range(C) for g in range(G))
    return {
        "accuracy": _over(hits, total),
        "balanced_accuracy": _mean(of_class),
        "cell_balanced_accuracy": _mean(flat),
        "worst_group_accuracy": None if None in flat else min(flat),  # type: ignore[type-var]
        "min_group_accuracy": None if None in right else min(right),  # type: ignore[type-var]
        "eo_mean": _mean(gaps),
        "eo_max": None if None in gaps else max(gaps),  # type: ignore[type-var]
        "eo_sum": None if None in gaps else sum(gaps),  # type: ignore[arg-type]
        "eo_mean_range": _mean(ranges),
        "equal_opportunity": _range(recall[1]) if C == 2 else None,
        "demographic_parity": None
        if None in [_range(row) for row in rate]
        else max(_range(row) for row in rate),  # type: ignore[type-var]
        "accuracy_gap": _range(right),
    }


def _over(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


def _gap(a: Fraction | None, b: Fraction | None) -> Fraction | None:
    return None if a is None or b is None else abs(a - b)


def _mean(values: list[Fraction | None]) -> Fraction | None:
    return None if None in values else sum(values) / len(values)  # type: ignore[arg-type]


def _range(values: list[Fraction | None]) -> Fraction | None:
    return None if None in values else max(values) - min(values)  # type: ignore[type-var,operator]
