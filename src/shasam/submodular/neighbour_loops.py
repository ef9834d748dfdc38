"""Compiled loops over the nearest neighbours of every row: finding, storing and walking them.

The graph is stored by element: ``start_N1`` says where the edges of an element begin, ``row_E``
which represented row an edge leads to and ``value_E`` how similar it is.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shasam.submodular.blocks import BLOCK, TIE, block_top, block_tops, first_of_ties, highest

_STRIP = 64  # similarities whose largest is compared first: most strips hold no near neighbour


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc", "contract"})
def strip_top(block_TC, t, left, right):
    top = block_TC[t, left]
    for c in range(left + 1, right):
        top = max(top, block_TC[t, c])
    return top


@njit(cache=True, nogil=True)
def keep_nearest(block_TC, first_row, own_C, value_TK, index_TK):
    """Put the similarities of a tile among the k largest of its rows; own_C numbers its columns.

    Of equal ones the first stays. A row is no neighbour of itself.
    """
    k = value_TK.shape[1]
    for t in range(block_TC.shape[0]):
        least = 0
        for j in range(1, k):
            if value_TK[t, j] < value_TK[t, least]:
                least = j
        for left in range(0, block_TC.shape[1], _STRIP):
            right = min(left + _STRIP, block_TC.shape[1])
            if strip_top(block_TC, t, left, right) <= value_TK[t, least]:
                continue
            for c in range(left, right):
                value = block_TC[t, c]
                if value > value_TK[t, least] and own_C[c] != first_row + t:
                    value_TK[t, least], index_TK[t, least] = value, own_C[c]
                    for j in range(k):
                        if value_TK[t, j] < value_TK[t, least]:
                            least = j


@njit(cache=True, nogil=True)
def _place(index_NK, i, j):
    """Where j stands among the neighbours of i; -1 where it does not."""
    for s in range(index_NK.shape[1]):
        if index_NK[i, s] == j:
            return s
    return -1


@njit(cache=True, nogil=True)
def by_element(index_NK, value_NK, own_N, symmetric):
    """The edges by element, every element with an edge to itself.

    Symmetric: i and j are joined if either is near the other, with one value both ways.
    """
    n, k = index_NK.shape
    start = np.zeros(n + 1, np.int64)
    for i in range(n):
        if own_N[i] >= 0:
            start[i + 1] += 1
        for s in range(k):
            j = index_NK[i, s]
            if j < 0:
                continue
            start[j + 1] += 1
            if symmetric and _place(index_NK, j, i) < 0:
                start[i + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    free = start[:-1].copy()
    row = np.empty(start[n], np.int32)
    value = np.empty(start[n], value_NK.dtype)
    for i in range(n):  # edges of an element stand in the order of their rows
        if own_N[i] >= 0:
            row[free[i]], value[free[i]] = i, own_N[i]
            free[i] += 1
        for s in range(k):
            j = index_NK[i, s]
            if j < 0:
                continue
            back = _place(index_NK, j, i) if symmetric else -1
            told = value_NK[j, back] if back >= 0 and j < i else value_NK[i, s]
            row[free[j]], value[free[j]] = i, told
            free[j] += 1
            if symmetric and back < 0:
                row[free[i]], value[free[i]] = j, told
                free[i] += 1
    return start, row, value


@njit(cache=True, nogil=True)
def sparse_gain(start, row, value, v, best_N):
    total = 0.0
    for e in range(start[v], start[v + 1]):
        total += max(np.float64(value[e]) - best_N[row[e]], 0.0)
    return total


@njit(cache=True, nogil=True)
def sparse_gains(start, row, value, best_N, candidates):
    gains = np.empty(candidates.shape[0], np.float64)
    for c in range(candidates.shape[0]):
        gains[c] = sparse_gain(start, row, value, candidates[c], best_N)
    return gains


@njit(cache=True, nogil=True)
def raise_best(start, row, value, v, best_N):
    for e in range(start[v], start[v + 1]):
        best_N[row[e]] = max(best_N[row[e]], np.float64(value[e]))


@njit(cache=True, nogil=True)
def _renew_block(start, row, value, best_N, candidates, bound, b, cut):
    """New gains in block b where the old one reaches the cut; how many there were."""
    renewed = 0
    for c in range(b * BLOCK, min((b + 1) * BLOCK, candidates.shape[0])):
        if bound[c] >= cut:
            bound[c] = sparse_gain(start, row, value, candidates[c], best_N)
            renewed += 1
    return renewed


@njit(cache=True, nogil=True)
def sparse_greedy(start, row, value, best_N, candidates, k, lazy):
    """k greedy picks; a gain is looked at again only if its old value could still win."""
    bound = sparse_gains(start, row, value, best_N, candidates)
    tops = block_tops(bound)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = candidates.shape[0]
    lowest = -np.finfo(np.float64).max
    for step in range(k):
        if step > 0:
            top = highest(bound, tops)
            b = top // BLOCK
            bound[top] = sparse_gain(start, row, value, candidates[top], best_N)
            best, evaluations = bound[top], evaluations + 1
            tops[b] = block_top(bound, b)
            for b in range(tops.shape[0]):
                cut = best - TIE * abs(best) if lazy else lowest
                if tops[b] >= cut:
                    evaluations += _renew_block(
                        start, row, value, best_N, candidates, bound, b, cut
                    )
                    tops[b] = block_top(bound, b)
                    best = max(best, tops[b])
        chosen = first_of_ties(bound, tops, highest(bound, tops))
        indices[step], gains[step] = candidates[chosen], bound[chosen]
        bound[chosen] = -np.inf
        tops[chosen // BLOCK] = block_top(bound, chosen // BLOCK)
        raise_best(start, row, value, candidates[chosen], best_N)
    return indices, gains, evaluations
