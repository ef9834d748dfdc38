"""The measures of facility location in closed form: FL1MI, FLCG, FLCMI, and FLQMI.

Each is made over a kernel, with query and private sets as indices into it, or over features, with
query and private sets as features of their own (``from_features``; then the candidates are the
rows of ``z``), or over a kernel of candidates against represented rows (``from_cross``). η
magnifies the query, ν hardens the private set; both are 1 in the paper.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numba import njit
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import loops
from shasam.submodular.kernels import CrossKernel, Gram, Rows, Similarities, check_strength
from shasam.submodular.loops import (
    ALL,
    BLOCK,
    BOUND_ERROR,
    TIE,
    block_top,
    block_tops,
    count_open,
    fall_range,
    first_of_ties,
    gain_bounds,
    highest,
    lower,
    risen,
)
from shasam.submodular.set_function import SetFunction, SimilarityFunction

# -------------------------------------------------------------------------------------------------
# Compiled gains and greedy walks of facility location and its measures.
#
# They share one gain: Σ_r clamp(K_vr, lo_r, hi_r) - lo_r + bonus_v. Kernel entries stay in their
# own type, sums run in float64: whatever the order of summation, two machines then agree on every
# gain that differs by more than TIE; below that the lowest index wins.
#
# Eight candidates are evaluated side by side: reading lo and hi once for all of them, and eight
# streams from memory at a time, halves the time of a pass. A gain is always computed by the same
# function, alone or among others, so that it has the same bits; naive and lazy return the same.
#
# "Lazy" here is a scan instead of a heap: a candidate is looked at again only if its old gain,
# which is an upper bound for a submodular function, could still win. Several threads scan
# different blocks; whatever they skip could not have won, so the picks do not depend on their
# number.
#
# Over a symmetric kernel `gain_bounds` and `fall_range` bound all gains together.
# -------------------------------------------------------------------------------------------------

SIDE = 8  # candidates that are evaluated side by side
EPS32, EPS64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
SHORT = 256  # columns below which each row is summed alone: it is in the cache anyway


# ``hi_R`` None is no cap; numba then compiles the walk without one. A row is named by its array and
# its number: a slice would count references, which costs more than a short row does.
@njit(cache=True, nogil=True, fastmath=True)
def clamped_sums(kernel_NR, v, lo_R, hi_R, sum_S):
    """Sum Σ_r clamp(K_vr, lo_r, hi_r) - lo_r in float64, for eight rows v."""
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
    """Return Σ_r clamp(K_vr, lo_r, hi_r) - lo_r in float64, for one short row v."""
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
    """Renew up to eight bounds at the positions waiting[start..stop]; missing ones repeat one."""
    kernel_NR, lo_R, hi_R, bonus_N, candidates, bound = shared
    for i in range(SIDE):
        v_S[i] = candidates[waiting[min(start + i, stop - 1)]]
    clamped_sums(kernel_NR, v_S, lo_R, hi_R, sum_S)
    for i in range(stop - start):
        bound[waiting[start + i]] = sum_S[i] + bonus_N[v_S[i]]


@njit(cache=True, nogil=True)
def renew_range(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, start, stop):
    """Renew bounds, which are the gains, at the positions start..stop."""
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
    """Compute the gain of every candidate, in their order."""
    shared = (kernel_NR, lo_R, hi_R, bonus_N, candidates, gains)
    loops.run(renew_range, [(*shared, *ends) for ends in _ranges(kernel_NR, candidates)])


def _ranges(kernel_NR, candidates):
    """Return the candidates in pieces for the threads, as (start, stop)."""
    n, parts = len(candidates), loops.pieces(len(candidates) * kernel_NR.shape[1])
    return pairwise([n * p // parts for p in range(parts + 1)])


def first_gains(kernel_NR, hi_R, bonus_N, candidates, gains):
    """Compute gains if nothing is picked and there is no floor: Σ_r min(K_vr, hi_r)."""
    shared = (kernel_NR, hi_R, bonus_N, candidates, gains)
    loops.run(first_range, [(*shared, *ends) for ends in _ranges(kernel_NR, candidates)])


@njit(cache=True, nogil=True)
def first_range(kernel_NR, hi_R, bonus_N, candidates, gains, start, stop):
    """Compute gains without a floor, at the positions start..stop."""
    for c in range(start, stop):
        v = candidates[c]
        gains[c] = capped_sum(kernel_NR, v, hi_R) + bonus_N[v]


@njit(cache=True, nogil=True, fastmath=True)
def capped_sum(kernel_NR, v, hi_R):
    """Return Σ_r min(K_vr, hi_r) in float64."""
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
    """Lift every represented row to its similarity with the pick v, up to the cap."""
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
    """Scan short rows, which are summed alone, a block at a time."""
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
    """Scan long rows: eight that wait, of whatever blocks, are summed side by side."""
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
def walk(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy, error):
    """Return the walk by one thread, without a call from Python in between: short walks need that.

    ``error`` is the rounding of bounds relative to a gain; 0 is a kernel without them.
    """
    n, rows = candidates.shape[0], kernel_NR.shape[0]
    bound, indices, gains = np.empty(n), np.empty(k, np.int64), np.empty(k)
    bound_N, base_lo_R = np.zeros(rows), lo_R.copy()
    if bounds_first(n, rows, error):
        bound_N = gain_bounds(kernel_NR, lo_R, hi_R, 0, rows) * (1 + error) + bonus_N
        bound[:] = bound_N[candidates]
    else:
        renew_range(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, 0, n)
        bound_N[candidates] = bound * (1 + error)
    tops, evaluations, spent = block_tops(bound), n, 0
    for step in range(k):
        if step > 0 or bounds_first(n, rows, error):
            top = renew_top(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, tops)
            if error > 0:
                raised = risen(lo_R, base_lo_R)
                spent += count_open(bound, tops, top)
                if lowering_pays(spent, raised, rows):
                    if raised.shape[0] > ALL * rows:
                        told = gain_bounds(kernel_NR, lo_R, hi_R, 0, rows)
                        bound_N = told * (1 + error) + bonus_N
                    else:
                        fall_range(kernel_NR, raised, lo_R, base_lo_R, bound_N, 0, rows)
                    base_lo_R[:] = lo_R
                    lower(bound, tops, bound_N, candidates)
                    spent = 0
                    top = renew_top(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, tops)
            evaluations += 1 + scan(
                kernel_NR, lo_R, hi_R, bonus_N, candidates, bound, tops, top, lazy, 0, 1
            )
        take_best(kernel_NR, lo_R, hi_R, candidates, bound, tops, step, indices, gains)
    return indices, gains, evaluations


@njit(cache=True, nogil=True)
def bounds_first(n, rows, error):
    """Say if bounding the gains of all rows is less work than computing those of n candidates."""
    return error > 0 and n > ALL * rows


@njit(cache=True, nogil=True)
def lowering_pays(spent, raised, rows):
    """Say whether lowering all bounds is less work than looking at those that could still win."""
    return raised.shape[0] > 0 and 4 * spent > 3 * min(raised.shape[0], ALL * rows)


def clamped_greedy(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy, mirrored=False):
    """Return k greedy picks of the clamped facility location; candidates are in ascending order.

    ``mirrored`` says that the kernel is symmetric to the last bit.
    """
    error = 0.0
    if mirrored and lazy and kernel_NR.dtype == np.float32:
        # Differences and parts of their sums are rounded in float32; whole sums in float64, of the
        # rows once and once more in every step at most.
        error = BOUND_ERROR * EPS32 + (k + 2) * kernel_NR.shape[1] * EPS64
    parts = loops.pieces(len(candidates) * kernel_NR.shape[1])
    if parts == 1:
        return walk(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy, error)
    n, rows = len(candidates), len(kernel_NR)
    bound, indices, gains = np.empty(n), np.empty(k, np.int64), np.empty(k)
    shared = (kernel_NR, lo_R, hi_R, bonus_N, candidates, bound)
    bound_N, base_lo_R = np.zeros(rows), lo_R.copy()
    if bounds_first(n, rows, error):
        bound_N = _gain_bounds(*shared[:4], error, parts)
        bound[:] = bound_N[candidates]
    else:
        clamped_gains(*shared)
        bound_N[candidates] = bound * (1 + error)
    tops, evaluations, spent = block_tops(bound), n, 0
    for step in range(k):
        if step > 0 or bounds_first(n, rows, error):
            top = renew_top(*shared, tops)
            if error > 0:
                raised = risen(lo_R, base_lo_R)
                spent += count_open(bound, tops, top)
                if lowering_pays(spent, raised, rows):
                    if len(raised) > ALL * rows:
                        bound_N = _gain_bounds(*shared[:4], error, parts)
                    else:
                        fallen = (kernel_NR, raised, lo_R, base_lo_R, bound_N)
                        ends = _ranges(kernel_NR, bound_N)
                        loops.run(fall_range, [(*fallen, *end) for end in ends])
                    base_lo_R[:] = lo_R
                    lower(bound, tops, bound_N, candidates)
                    spent = 0
                    top = renew_top(*shared, tops)
            told = loops.run(scan, [(*shared, tops, top, lazy, p, parts) for p in range(parts)])
            evaluations += 1 + sum(told)
        take_best(kernel_NR, lo_R, hi_R, candidates, bound, tops, step, indices, gains)
    return indices, gains, evaluations


def _gain_bounds(kernel_NN, lo_R, hi_R, bonus_N, error, parts):
    """Return bounds of all gains by several threads: pieces of the triangle have the same area."""
    left = np.sqrt(np.linspace(1, 0, parts + 1))
    ends = (len(kernel_NN) * (1 - left)).astype(np.int64) // 4 * 4
    ends[-1] = len(kernel_NN)
    told = loops.run(gain_bounds, [(kernel_NN, lo_R, hi_R, *end) for end in pairwise(ends)])
    return sum(told) * (1 + error) + bonus_N


# -------------------------------------------------------------------------------------------------
# Facility location, and the one engine that it shares with all its measures.
# -------------------------------------------------------------------------------------------------

C = TypeVar("C", bound="ClampedFacilityLocation")
_TOGETHER = 1024  # candidates that are compared together where there is no kernel


class ClampedFacilityLocation(SimilarityFunction):
    """f(A) = Σ_r [ max(min(max_{a∈A} K_ra, hi_r), lo_r) - lo_r ] + Σ_{a∈A} bonus_a, f(∅) = 0.

    The one engine of facility location and of all its measures. K has a row for each element and
    a column for each represented one; over features it is made when a walk needs it. ``lo_R``
    None: no floor (plain facility location); ``hi_R`` None: no cap.
    """

    submodular = True
    monotone = True

    def __init__(
        self,
        rows: Rows,
        lo_R: Tensor | None = None,
        hi_R: Tensor | None = None,
        bonus_N: Tensor | None = None,
        *,
        candidates: Tensor | None = None,
        nonnegative: bool | None = None,
    ) -> None:
        self.rows, self.lo_R, self.hi_R, self.bonus_N = rows, lo_R, hi_R, bonus_N
        self.n, self.device, self.dtype = rows.n, rows.device, rows.dtype
        self.candidates = candidates
        self._nonnegative = nonnegative
        self._bonus_array: np.ndarray | None = None

    @classmethod
    def from_cross(cls: type[C], kernel: Any, *arguments: Any, **named: Any) -> C:
        """Return the function over a kernel (N, R) of candidates against represented rows.

        The other arguments are those of the constructor after the kernel; a query or private set is
        given by its own similarities to the represented rows, (Q, R) or (P, R).
        """
        return cls(CrossKernel(kernel), *arguments, **named)  # type: ignore[arg-type]

    @property
    def kernel_NR(self) -> Tensor:
        """(N, R): every element against every represented row."""
        return self.rows.kernel_NR

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        value = torch.zeros((), dtype=self.dtype, device=self.device)
        if len(index) == 0:
            return value
        for piece, block in self.rows.blocks(index):
            value = value + self._of_rows(block, piece).sum()
        return value if self.bonus_N is None else value + self.bonus_N[index].sum()

    def row_values(self, selected: Any) -> Tensor:
        """Return (R,): what every represented row adds to f(A), without the bonus."""
        index = self.index(selected)
        return torch.cat([self._of_rows(block, p) for p, block in self.rows.blocks(index)])

    def _of_rows(self, block_AP: Tensor, piece: slice) -> Tensor:
        best = block_AP.amax(dim=0)
        if self.hi_R is not None:
            best = torch.minimum(best, self.hi_R[piece])
        return best if self.lo_R is None else (best - self.lo_R[piece]).clamp_min(0)

    def start(self, given: Any = ()) -> Tensor:
        floor_R = self._floor().to(self.device, copy=True)
        index = self.index(given)
        if len(index):
            best_R = self.rows.best(index).detach()
            floor_R = self._capped(torch.maximum(floor_R, best_R), floor_R)
        return floor_R

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        cap_R = None if self.hi_R is None else torch.maximum(self.hi_R.detach(), state)
        if self.device.type == "cpu" and self.rows.is_made(len(candidates)):
            return _compiled_gains(self._array(), state, cap_R, self._bonus(), candidates.numpy())
        parts = list(candidates.split(_TOGETHER))
        many = self.device.type == "cpu" and len(parts) > 1
        gather = loops.each if many else map  # whole parts side by side, one thread each
        told = list(gather(lambda part: self._gains_anew(part, state, cap_R), parts))
        gains_C = torch.cat([*told, torch.zeros(0, dtype=self.sum_dtype, device=self.device)])
        if self.bonus_N is not None:
            gains_C = gains_C + self.bonus_N.detach()[candidates].to(gains_C.dtype)
        return gains_C

    def _gains_anew(self, index: Tensor, state: Tensor, cap_R: Tensor | None) -> Tensor:
        """Return gains of some elements without the bonus; their similarities are not kept."""
        gains_C = torch.zeros(len(index), dtype=self.sum_dtype, device=self.device)
        for piece, block in self.rows.blocks(index):
            cap = None if cap_R is None else cap_R[piece]
            gains_C += self._block_gains(block.detach(), state[piece], cap)
        return gains_C

    def _block_gains(self, block_CR: Tensor, state: Tensor, cap_R: Tensor | None) -> Tensor:
        """Return gains of all rows of a block, without the bonus."""
        if self.device.type == "cpu":
            rows, pool = np.ascontiguousarray(block_CR.numpy()), np.arange(len(block_CR))
            return _compiled_gains(rows, state, cap_R, np.zeros(len(pool)), pool)
        raised_CR = torch.maximum(block_CR, state)
        if cap_R is not None:
            raised_CR = torch.minimum(raised_CR, cap_R)
        # Without a floor nothing is picked yet where the state is -inf: the gain is K itself.
        if not bool(torch.isinf(state).any()):
            raised_CR = raised_CR - state
        return raised_CR.sum(dim=1, dtype=self.sum_dtype)

    def add(self, state: Tensor, v: int) -> Tensor:
        row_R = self.rows.best(torch.tensor([v], device=self.device)).detach()
        return self._capped(torch.maximum(state, row_R), state)

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.device.type != "cpu" or not self.rows.kept:
            return None
        # Without a floor the walk starts at 0: check_maximizable has refused negative entries.
        rows = self._array()
        if self.lo_R is None:
            lo_R = np.zeros(rows.shape[1], rows.dtype)
        else:
            lo_R = self.lo_R.detach().numpy().copy()
        return clamped_greedy(
            rows,
            lo_R,
            None if self.hi_R is None else np.maximum(self.hi_R.detach().numpy(), lo_R),
            self._bonus(),
            candidates.numpy(),
            k,
            lazy,
            self.rows.mirrored,
        )

    def check_maximizable(self) -> None:
        if self._nonnegative is None:
            self._nonnegative = bool(self.kernel_NR.detach().amin() >= 0)
        if not self._nonnegative:
            raise InputError(
                f"{type(self).__name__} needs similarities that are not negative to be maximised; "
                "map cosines with (1 + K)/2 (similarity='shifted_cosine') or use rbf. "
                "Evaluating a signed kernel is fine"
            )

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        rows, columns = self.rows.part(index, represented)
        keep: Any = slice(None) if columns is None else columns
        return ClampedFacilityLocation(
            rows,
            None if self.lo_R is None else self.lo_R[keep],
            None if self.hi_R is None else self.hi_R[keep],
            None if self.bonus_N is None else self.bonus_N[index],
            nonnegative=self._nonnegative,
        )

    def gains_along(self, order: Tensor) -> Tensor:
        """Pass once over the represented rows for all picks."""
        value_K = torch.zeros(len(order), dtype=self.sum_dtype, device=self.device)
        for piece, block in self.rows.blocks(order):
            best = block.detach().cummax(dim=0).values
            if self.hi_R is not None:
                best = torch.minimum(best, self.hi_R.detach()[piece])
            if self.lo_R is not None:
                best = (best - self.lo_R.detach()[piece]).clamp_min(0)
            value_K += best.sum(dim=1, dtype=self.sum_dtype)
        gains_K = value_K.diff(prepend=value_K.new_zeros(1))
        if self.bonus_N is not None:
            gains_K = gains_K + self.bonus_N.detach()[order].to(gains_K.dtype)
        return gains_K.to(self.dtype)

    def after(self, given: Tensor) -> SetFunction:
        """Return H(A | given) = f(A ∪ given) - f(given): the walk goes on from a raised floor."""
        return ClampedFacilityLocation(
            self.rows,
            self.start(given),
            self.hi_R,
            self.bonus_N,
            candidates=self.candidates,
            nonnegative=self._nonnegative,
        )

    def _array(self) -> np.ndarray:
        return np.ascontiguousarray(self.kernel_NR.detach().numpy())

    def _floor(self) -> Tensor:
        if self.lo_R is not None:
            return self.lo_R.detach()
        return torch.full((self.rows.width,), -torch.inf, dtype=self.dtype)

    def _capped(self, raised: Tensor, floor_R: Tensor) -> Tensor:
        if self.hi_R is None:
            return raised
        # A cap below the floor gives nothing.
        return torch.minimum(raised, torch.maximum(self.hi_R.detach(), floor_R))

    def _bonus(self) -> np.ndarray:
        """Return the bonus in float64, made once: a walk over few represented rows is short."""
        if self._bonus_array is None:
            self._bonus_array = (
                np.zeros(self.n, np.float64)
                if self.bonus_N is None
                else self.bonus_N.detach().double().numpy()
            )
        return self._bonus_array


def _compiled_gains(
    rows: np.ndarray, state: Tensor, cap_R: Tensor | None, bonus: np.ndarray, pool: np.ndarray
) -> Tensor:
    cap, out = None if cap_R is None else cap_R.numpy(), np.empty(len(pool), np.float64)
    if bool(torch.isinf(state).any()):  # nothing is picked and there is no floor
        first_gains(rows, cap, bonus, pool, out)
    else:
        clamped_gains(rows, state.numpy(), cap, bonus, pool, out)
    return torch.from_numpy(out)


class FacilityLocation(ClampedFacilityLocation):
    """Measure how well a set stands for all rows: the nearest pick of each row counts.

    ``f(A) = Σ_{i∈R} max_{a∈A} K_ia``

    Take it to represent a data set by a few of its rows. ``FacilityLocation.from_features(z)``
    takes features z (N, D) in place of a kernel; memory is N × R.

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N).
    represented
        Indices of the represented rows R, by default all; from features also the features (R,
        D) of another set.

    Examples
    --------
    >>> f = FacilityLocation([[1.0, 0.25, 0.0], [0.25, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> float(f([1])), float(f([0, 1]))
    (1.75, 2.5)
    >>> g = FacilityLocation.from_features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], represented=[0, 1])
    >>> tuple(g.kernel_NR.shape)
    (3, 2)
    >>> float(FacilityLocation.from_cross([[1.0, 0.25, 0.5]])([0]))
    1.75
    """

    def __init__(self, kernel: Any, represented: Any = None) -> None:
        s = Similarities.of(kernel)
        super().__init__(Rows(s, represented), nonnegative=s.nonnegative)

    @property
    def similarities(self) -> Gram:
        """The kernel (N, R) with sets as indices, for the measures."""
        return Gram(self.kernel_NR, nonnegative=self._nonnegative)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        scale_N1 = torch.ones(self.n, 1, dtype=self.dtype, device=self.device)
        scale_N1[query], scale_N1[private] = eta, nu
        return ClampedFacilityLocation(Rows.of(self.kernel_NR * scale_N1))


class _FacilityLocationMeasure(ClampedFacilityLocation):
    """Σ_{i∈R} max( min(max_a K_ia, η max_q K_iq) - ν max_p K_ip, 0 ), either part optional."""

    def __init__(
        self, kernel: Any, query: Any, private: Any, eta: float, nu: float, represented: Any
    ) -> None:
        s = Similarities.of(kernel)
        check_strength(eta, nu)
        q, p = s.sets(query, private)
        super().__init__(
            Rows(s, represented),
            None if p is None else nu * s.nearest(p, represented),
            None if q is None else eta * s.nearest(q, represented),
            candidates=s.candidates(q, p),
            nonnegative=s.nonnegative,
        )


class FL1MI(_FacilityLocationMeasure):
    """Measure what a set and the query represent in common; saturates after a few picks.

    ``I(A; Q) = Σ_{i∈R} min( max_{a∈A} K_ia, η max_{q∈Q} K_iq )``

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).
    query
        Indices of the query; from features its features (Q, D).
    eta
        η, a factor of the similarities to the query.
    represented
        Indices of the represented rows R, by default all.

    Examples
    --------
    >>> f = FL1MI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0])
    >>> float(f([1])), float(f([1, 2]))
    (1.0, 1.0)
    >>> FL1MI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]).n
    2
    """

    def __init__(self, kernel: Any, query: Any, eta: float = 1.0, represented: Any = None) -> None:
        super().__init__(kernel, query, None, eta, 1.0, represented)


class FLCG(_FacilityLocationMeasure):
    """Measure what a set represents beyond a private set.

    ``H(A | P) = Σ_{i∈R} max( max_{a∈A} K_ia - ν max_{p∈P} K_ip, 0 )``

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).
    private
        Indices of the private set; from features its features (P, D).
    nu
        ν, a factor of the similarities to the private set.
    represented
        Indices of the represented rows R, by default all.

    Examples
    --------
    >>> f = FLCG([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], private=[0])
    >>> float(f([1])), float(f([2]))
    (1.0, 1.0)
    >>> FLCG.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], nu=0.5).n
    2
    >>> float(FLCG.from_cross([[1.0, 0.5, 0.0]], private=[[0.0, 0.5, 1.0]])([0]))
    1.0
    """

    def __init__(self, kernel: Any, private: Any, nu: float = 1.0, represented: Any = None) -> None:
        super().__init__(kernel, None, private, 1.0, nu, represented)


class FLCMI(_FacilityLocationMeasure):
    """Measure what a set and the query represent in common beyond a private set.

    ``I(A; Q | P) = Σ_{i∈R} max( min(max_a K_ia, η max_q K_iq) - ν max_p K_ip, 0 )``

    The form of the paper's Table 1.

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).
    query
        Indices of the query; from features its features (Q, D).
    private
        Indices of the private set; from features its features (P, D).
    eta
        η, a factor of the similarities to the query.
    nu
        ν, a factor of the similarities to the private set.
    represented
        Indices of the represented rows R, by default all.

    Examples
    --------
    >>> f = FLCMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0], private=[2])
    >>> float(f([1]))
    0.5
    >>> FLCMI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], [[1.0, -1.0]]).n
    2
    """

    def __init__(
        self,
        kernel: Any,
        query: Any,
        private: Any,
        eta: float = 1.0,
        nu: float = 1.0,
        represented: Any = None,
    ) -> None:
        super().__init__(kernel, query, private, eta, nu, represented)


class FLQMI(ClampedFacilityLocation):
    """Reward every pick for being near the query: two-sided facility location.

    ``f(A) = Σ_{q∈Q} max_{a∈A} K_qa + η Σ_{a∈A} max_{q∈Q} K_qa``

    Not the mutual information of facility location but its two-sided variant: it keeps rewarding
    every pick for being near the query, so that it finds the hardest elements when FL1MI is flat.
    It needs the cross kernel (N, Q) alone.

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).
    query
        Indices of the query; from features its features (Q, D).
    eta
        η, the weight of the second sum.

    Examples
    --------
    >>> f = FLQMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0])
    >>> float(f([1])), float(f([1, 2]))
    (1.0, 1.0)
    >>> from shasam.submodular import maximize
    >>> z, query = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [[0.1, 1.0]]
    >>> maximize(FLQMI.from_features(z, query), 1).indices.tolist()
    [1]
    """

    @classmethod
    def from_cross(cls, kernel: Any, eta: float = 1.0) -> FLQMI:
        """Return the function over the kernel (N, Q) of candidates against the query."""
        return cls(_QueryColumns(kernel), None, eta)

    def __init__(self, kernel: Any, query: Any, eta: float = 1.0) -> None:
        s = Similarities.of(kernel)
        check_strength(eta, 1.0)
        q = s.members(query, "query")
        cross_NQ = s.cross(q)
        super().__init__(
            Rows.of(cross_NQ),
            bonus_N=eta * cross_NQ.amax(dim=1),
            candidates=s.candidates(q),
            nonnegative=s.nonnegative,
        )


class _QueryColumns(CrossKernel):
    """The kernel (N, Q) of candidates against a query, which is all that FLQMI needs."""

    def members(self, given: Any, name: str) -> Tensor:
        return self.kernel_NR

    def cross(self, members: Tensor) -> Tensor:
        return self.kernel_NR
