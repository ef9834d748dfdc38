"""Compiled gains and greedy walks of facility location and its measures.

They share one gain: Σ_r clamp(K_vr, lo_r, hi_r) - lo_r + bonus_v. Kernel entries stay in their own
type, sums run in float64: whatever the order of summation, two machines then agree on every gain
that differs by more than TIE; below that the lowest index wins.

Eight candidates are evaluated side by side: reading lo and hi once for all of them, and eight
streams from memory at a time, halves the time of a pass. A gain is always computed by the same
function, alone or among others, so that it has the same bits; naive and lazy return the same.

"Lazy" here is a scan instead of a heap: a candidate is looked at again only if its old gain, which
is an upper bound for a submodular function, could still win. Several threads scan different
blocks; whatever they skip could not have won, so the picks do not depend on their number.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shasam.submodular import threads
from shasam.submodular.blocks import (
    BLOCK,
    TIE,
    block_top,
    block_tops,
    first_of_ties,
    highest,
)

SIDE = 8  # candidates that are evaluated side by side
SHORT = 256  # columns below which each row is summed alone: it is in the cache anyway


# ``hi_R`` None is no cap; numba then compiles the walk without one. A row is named by its array and
# its number: a slice would count references, which costs more than a short row does.
@njit(cache=True, nogil=True, fastmath=True)
def clamped_sums(kernel_NR, v, lo_R, hi_R, sum_S):
    """Σ_r clamp(K_vr, lo_r, hi_r) - lo_r in float64, for eight rows v."""
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    if hi_R is None:
        for r in range(lo_R.shape[0]):
            lo = lo_R[r]
            s0 += max(kernel_NR[v0, r], lo) - lo
            s1 += max(kernel_NR[v1, r], lo) - lo
            s2 += max(kernel_NR[v2, r], lo) - lo
            s3 += max(kernel_NR[v3, r], lo) - lo
            s4 += max(kernel_NR[v4, r], lo) - lo
            s5 += max(kernel_NR[v5, r], lo) - lo
            s6 += max(kernel_NR[v6, r], lo) - lo
            s7 += max(kernel_NR[v7, r], lo) - lo
    else:
        for r in range(lo_R.shape[0]):
            lo, hi = lo_R[r], hi_R[r]
            s0 += min(max(kernel_NR[v0, r], lo), hi) - lo
            s1 += min(max(kernel_NR[v1, r], lo), hi) - lo
            s2 += min(max(kernel_NR[v2, r], lo), hi) - lo
            s3 += min(max(kernel_NR[v3, r], lo), hi) - lo
            s4 += min(max(kernel_NR[v4, r], lo), hi) - lo
            s5 += min(max(kernel_NR[v5, r], lo), hi) - lo
            s6 += min(max(kernel_NR[v6, r], lo), hi) - lo
            s7 += min(max(kernel_NR[v7, r], lo), hi) - lo
    sum_S[0], sum_S[1], sum_S[2], sum_S[3] = s0, s1, s2, s3
    sum_S[4], sum_S[5], sum_S[6], sum_S[7] = s4, s5, s6, s7


@njit(cache=True, nogil=True, fastmath=True)
def clamped_sum(kernel_NR, v, lo_R, hi_R):
    """Σ_r clamp(K_vr, lo_r, hi_r) - lo_r in float64, for one short row v."""
    total = 0.0
    if hi_R is None:
        for r in range(lo_R.shape[0]):
            total += max(kernel_NR[v, r], lo_R[r]) - lo_R[r]
    else:
        for r in range(lo_R.shape[0]):
            total += min(max(kernel_NR[v, r], lo_R[r]), hi_R[r]) - lo_R[r]
    return total


@njit(cache=True, nogil=True, inline="always")
def renew(shared, waiting, start, stop, v_S, sum_S):
    """New bounds at the positions waiting[start..stop], at most eight; missing ones repeat one."""
    kernel_NR, lo_R, hi_R, bonus_N, candidates, bound = shared
    for i in range(SIDE):
        v_S[i] = candidates[waiting[min(start + i, stop - 1)]]
    clamped_sums(kernel_NR, v_S, lo_R, hi_R, sum_S)
    for i in range(stop - start):
        bound[waiting[start + i]] = sum_S[i] + bonus_N[v_S[i]]


@njit(cache=True, nogil=True)
def renew_range(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, start, stop):
    """New bounds, which are the gains, at the positions start..stop."""
    if lo_R.shape[0] < SHORT:
        for c in range(start, stop):
            v = candidates[c]
            bound[c] = clamped_sum(kernel_NR, v, lo_R, hi_R) + bonus_N[v]
        return
    shared = (kernel_NR, lo_R, hi_R, bonus_N, candidates, bound)
    waiting = np.arange(start, stop)
    v_S, sum_S = np.empty(SIDE, np.int64), np.empty(SIDE, np.float64)
    for c in range(0, stop - start, SIDE):
        renew(shared, waiting, c, min(c + SIDE, stop - start), v_S, sum_S)


def clamped_gains(kernel_NR, lo_R, hi_R, bonus_N, candidates, gains):
    """The gain of every candidate, in their order."""
    shared = (kernel_NR, lo_R, hi_R, bonus_N, candidates, gains)
    n, parts = len(candidates), threads.count(len(candidates) * kernel_NR.shape[1])
    edges = [n * p // parts for p in range(parts + 1)]
    threads.run(renew_range, [(*shared, edges[p], edges[p + 1]) for p in range(parts)])


@njit(cache=True, nogil=True)
def first_gains(kernel_NR, hi_R, bonus_N, candidates, gains):
    """Gains where nothing is picked and there is no floor: Σ_r min(K_vr, hi_r)."""
    for c in range(candidates.shape[0]):
        v = candidates[c]
        gains[c] = capped_sum(kernel_NR, v, hi_R) + bonus_N[v]


@njit(cache=True, nogil=True, fastmath=True)
def capped_sum(kernel_NR, v, hi_R):
    """Σ_r min(K_vr, hi_r) in float64."""
    total = 0.0
    if hi_R is None:
        for r in range(kernel_NR.shape[1]):
            total += kernel_NR[v, r]
    else:
        for r in range(kernel_NR.shape[1]):
            total += min(kernel_NR[v, r], hi_R[r])
    return total


@njit(cache=True, nogil=True)
def raise_floor(kernel_NR, v, lo_R, hi_R):
    """Picking v lifts every represented row to its similarity with v, up to the cap."""
    for r in range(lo_R.shape[0]):
        lo_R[r] = max(kernel_NR[v, r], lo_R[r])
    if hi_R is not None:
        for r in range(lo_R.shape[0]):
            lo_R[r] = min(lo_R[r], hi_R[r])


@njit(cache=True, nogil=True, inline="always")
def renew_top(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, tops):
    """Renew the highest bound, which is likely to stay the highest; its position."""
    top = highest(bound, tops)
    renew_range(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, top, top + 1)
    return top


@njit(cache=True, nogil=True)
def scan(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, tops, top, lazy, first, stride):
    """Renew the bounds of the blocks first, first + stride, … that could beat the one at ``top``.

    Returns how many were renewed.
    """
    shared = (kernel_NR, lo_R, hi_R, bonus_N, candidates, bound)
    cut = bound[top] - TIE * abs(bound[top]) if lazy else -np.finfo(np.float64).max
    if lo_R.shape[0] < SHORT:
        return scan_short(shared, tops, bound[top], cut, lazy, first, stride)
    return scan_long(shared, tops, bound[top], cut, lazy, first, stride)


@njit(cache=True, nogil=True, inline="always")
def scan_short(shared, tops, best, cut, lazy, first, stride):
    """Rows are short and are summed alone, a block at a time."""
    kernel_NR, lo_R, hi_R, bonus_N, candidates, bound = shared
    waiting, renewed = np.empty(BLOCK, np.int64), 0
    for b in range(first, tops.shape[0], stride):
        if tops[b] < cut:
            continue
        # Gathered without a branch and then evaluated in one go: a mispredicted branch would cost
        # more than a gain.
        count = 0
        for c in range(b * BLOCK, min((b + 1) * BLOCK, candidates.shape[0])):
            waiting[count] = c
            count += bound[c] >= cut
        for i in range(count):
            v = candidates[waiting[i]]
            bound[waiting[i]] = clamped_sum(kernel_NR, v, lo_R, hi_R) + bonus_N[v]
        renewed += count
        tops[b] = block_top(bound, b)
        if tops[b] > best:
            best = tops[b]
            cut = best - TIE * abs(best) if lazy else cut
    return renewed


@njit(cache=True, nogil=True, inline="always")
def scan_long(shared, tops, best, cut, lazy, first, stride):
    """Rows are long: eight that wait, of whatever blocks, are summed side by side."""
    _, _, _, _, candidates, bound = shared
    waiting, count, renewed = np.empty(BLOCK + SIDE, np.int64), 0, 0
    v_S, sum_S = np.empty(SIDE, np.int64), np.empty(SIDE, np.float64)
    lowest = cut
    for b in range(first, tops.shape[0], stride):
        if tops[b] >= cut:
            for c in range(b * BLOCK, min((b + 1) * BLOCK, candidates.shape[0])):
                waiting[count] = c
                count += bound[c] >= cut
        while count >= SIDE or (count > 0 and b + stride >= tops.shape[0]):
            start = max(count - SIDE, 0)
            renew(shared, waiting, start, count, v_S, sum_S)
            for i in range(start, count):
                best = max(best, bound[waiting[i]])
            if lazy:
                cut = best - TIE * abs(best)
            renewed += count - start
            count = start
    for b in range(first, tops.shape[0], stride):
        if tops[b] >= lowest:
            tops[b] = block_top(bound, b)
    return renewed


@njit(cache=True, nogil=True)
def take_best(kernel_NR, lo_R, hi_R, candidates, bound, tops, step, indices, gains):
    """Pick the highest bound, all that could win being up to date."""
    best = first_of_ties(bound, tops, highest(bound, tops))
    v = candidates[best]
    indices[step], gains[step] = v, bound[best]
    bound[best] = -np.inf
    tops[best // BLOCK] = block_top(bound, best // BLOCK)
    raise_floor(kernel_NR, v, lo_R, hi_R)


@njit(cache=True, nogil=True)
def walk(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy):
    """The walk by one thread, without a call from Python in between: short walks need that."""
    n = candidates.shape[0]
    bound = np.empty(n, np.float64)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    renew_range(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, 0, n)
    tops = block_tops(bound)
    evaluations = n
    for step in range(k):
        if step > 0:
            top = renew_top(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, tops)
            evaluations += 1 + scan(
                kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, tops, top, lazy, 0, 1
            )
        take_best(kernel_NR, lo_R, hi_R, candidates, bound, tops, step, indices, gains)
    return indices, gains, evaluations


def clamped_greedy(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy):
    """k greedy picks of the clamped facility location; candidates are in ascending order."""
    parts = threads.count(len(candidates) * kernel_NR.shape[1])
    if parts == 1:
        return walk(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy)
    bound = np.empty(len(candidates), np.float64)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    shared = (kernel_NR, lo_R, hi_R, bonus_N, candidates, bound)
    clamped_gains(*shared)
    tops = block_tops(bound)
    evaluations = len(candidates)
    for step in range(k):
        if step > 0:
            top = renew_top(*shared, tops)
            told = threads.run(scan, [(*shared, tops, top, lazy, p, parts) for p in range(parts)])
            evaluations += 1 + sum(told)
        take_best(kernel_NR, lo_R, hi_R, candidates, bound, tops, step, indices, gains)
    return indices, gains, evaluations
