"""The formulas as loops over plain numbers: slow, and plainly right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

Set = Sequence[int]
Value = Callable[[Set], float]


def facility_location(kernel: Tensor, rows: Set | None = None) -> Value:
    k = kernel.tolist()
    represented = range(len(k)) if rows is None else rows

    def value(selected: Set) -> float:
        if not selected:
            return 0.0
        return math.fsum(max(k[i][a] for a in selected) for i in represented)

    return value


def graph_cut(kernel: Tensor, lam: float, rows: Set | None = None) -> Value:
    k = kernel.tolist()
    represented = range(len(k)) if rows is None else rows

    def value(selected: Set) -> float:
        relevance = math.fsum(k[i][a] for i in represented for a in selected)
        return relevance - lam * math.fsum(k[a][b] for a in selected for b in selected)

    return value


def logdet(kernel: Tensor, ridge: float) -> Value:
    k = kernel.numpy()

    def value(selected: Set) -> float:
        if not selected:
            return 0.0
        block = k[np.ix_(selected, selected)] + ridge * np.eye(len(selected))
        sign, log = np.linalg.slogdet(block)
        return float(log) if sign > 0 else -math.inf

    return value


def flqmi(kernel: Tensor, query: Set, eta: float) -> Value:
    k = kernel.tolist()

    def value(selected: Set) -> float:
        if not selected:
            return 0.0
        toward_query = sum(max(k[q][a] for a in selected) for q in query)
        return toward_query + eta * sum(max(k[q][a] for q in query) for a in selected)

    return value


def mutual_information(f: Value, query: Set) -> Value:
    return lambda a: f(a) + f(query) - f([*a, *query])


def conditional_gain(f: Value, private: Set) -> Value:
    return lambda a: f([*a, *private]) - f(private)


def conditional_mutual_information(f: Value, query: Set, private: Set) -> Value:
    return lambda a: (
        f([*a, *private]) + f([*query, *private]) - f([*a, *query, *private]) - f(private)
    )


def greedy(f: Value, pool: Set, k: int) -> tuple[list[int], list[float]]:
    """k picks by the definition; ties, up to 1e-10 relative, to the lowest index."""
    picks: list[int] = []
    gains: list[float] = []
    for _ in range(k):
        left = [v for v in pool if v not in picks]
        found = {v: f([*picks, v]) - f(picks) for v in left}
        best = max(found.values())
        scale = max(abs(best), abs(f(picks)))
        v = min(u for u in left if found[u] >= best - 1e-10 * scale)
        picks.append(v)
        gains.append(found[v])
    return picks, gains


def knapsack(f: Value, pool: Set, costs: Sequence[float], budget: float) -> list[int]:
    """The better of two walks within the budget: by gain over cost, and by gain."""
    found = []
    for by_ratio in (True, False):
        picks: list[int] = []
        left = budget
        while True:
            open_ = [v for v in pool if v not in picks and costs[v] <= left]
            gains = {v: f([*picks, v]) - f(picks) for v in open_}
            scores = {v: gains[v] / costs[v] if by_ratio else gains[v] for v in open_}
            if not open_:
                break
            best = max(scores.values())
            v = min(u for u in open_ if scores[u] >= best - 1e-9 * max(abs(best), 1e-3))
            if gains[v] <= 1e-12:
                break
            picks.append(v)
            left -= costs[v]
        found.append(picks)
    return max(found, key=lambda picks: round(f(picks), 9))


def feature_based(x: Tensor, phi: Callable[[float], float], weights: Sequence[float]) -> Value:
    rows = x.tolist()

    def value(selected: Set) -> float:
        sums = [math.fsum(rows[a][d] for a in selected) for d in range(len(weights))]
        return math.fsum(w * phi(s) for w, s in zip(weights, sums, strict=True))

    return value


def saturated_coverage(kernel: Tensor, alpha: float, rows: Set | None = None) -> Value:
    k = kernel.tolist()
    represented = range(len(k)) if rows is None else rows
    cap = {i: alpha * math.fsum(k[i]) for i in represented}

    def value(selected: Set) -> float:
        return math.fsum(min(math.fsum(k[i][a] for a in selected), cap[i]) for i in represented)

    return value


def mixture(functions: Sequence[Value], weights: Sequence[float]) -> Value:
    return lambda a: math.fsum(w * f(a) for w, f in zip(weights, functions, strict=True))
