"""Compiled loops that every set function uses: threads, blocks of upper bounds, norms of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from numba import njit

# -------------------------------------------------------------------------------------------------
# Several threads for compiled loops that release the interpreter lock.
#
# A plain pool of Python threads, not numba's own: that one ends a process which was forked after
# its first use. As many threads as torch uses (`torch.set_num_threads`, OMP_NUM_THREADS).
#
# No thread spins, and none is waited for that has not begun: work is cut into more pieces than
# there are threads, every thread takes the next piece when it is done with one, and where other
# work holds a core the calling thread takes them all.
# -------------------------------------------------------------------------------------------------

_WORTH = 1_000_000  # kernel entries per thread, below which handing over costs more than it saves
_PIECES = 3  # per thread: a thread that was held up leaves at most a piece to wait for
T = TypeVar("T")
_pool: ThreadPoolExecutor | None = None
_size = 0


def count(entries: int) -> int:
    """Return how many threads a loop over this many kernel entries is worth on the cores that are
    free.
    """
    wanted = min(torch.get_num_threads(), entries // _WORTH)
    return 1 if wanted <= 1 else max(1, min(wanted, free_now()))


def free_now() -> int:
    """Return cores that nothing else is running on at this moment, with that of the calling thread.

    A thread on a core that others hold too makes the whole walk wait in every step.
    """
    cores = os.cpu_count() or 1
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            running = int(file.read().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):  # the system does not say: all are taken for free
        return cores
    return max(1, cores - max(running - 1, 0))


def pieces(entries: int) -> int:
    """Return into how many pieces a loop over this many kernel entries is cut."""
    threads = count(entries)
    return 1 if threads == 1 else _PIECES * threads


def run(loop: Callable[..., Any], parts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call ``loop`` with each tuple of arguments, several at the same time; results in order."""
    helpers = min(len(parts), torch.get_num_threads()) - 1
    if helpers < 1:
        return [loop(*part) for part in parts]
    told: list[Any] = [None] * len(parts)
    left = iter(range(len(parts)))  # the interpreter lock hands out each number once

    def work() -> None:
        for number in left:
            told[number] = loop(*parts[number])

    waiting = [_workers(helpers).submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        begun = [work for work in waiting if not work.cancel()]
    for helper in begun:
        helper.result()
    return told


def each(task: Callable[[T], Any], works: Sequence[T]) -> Iterator[Any]:
    """Do ``task`` of every work, several at the same time with one thread each; results in order.

    Whole tasks side by side do not wait for each other; threads inside a short task would.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(works) == 1:
        yield from map(task, works)
        return
    torch.set_num_threads(1)  # a thread takes this over when it first computes
    try:
        with ThreadPoolExecutor(min(threads, len(works)), thread_name_prefix="part") as pool:
            try:
                yield from pool.map(task, works)
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        torch.set_num_threads(threads)


def _workers(size: int) -> ThreadPoolExecutor:
    global _pool, _size
    if _pool is None or size > _size:
        _pool, _size = ThreadPoolExecutor(size, thread_name_prefix="shasam"), size
    return _pool


def _forget() -> None:
    """Forget the threads of the parent: a forked child has none but its own."""
    global _pool, _size
    _pool, _size = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# -------------------------------------------------------------------------------------------------
# Upper bounds of candidates, kept in blocks so that a scan skips many of them together.
#
# A bound is a gain that was true earlier; for a submodular function it can only have fallen since.
# Ties, values closer than TIE relative, go to the lowest position.
# -------------------------------------------------------------------------------------------------

BLOCK = 32  # candidates whose largest bound is kept
# Maxima may be reordered, so that they are vectorised; infinities keep their meaning.
_REORDER = {"nnan", "nsz", "reassoc", "contract"}
TIE = 1e-10  # gains closer than this, relative to the best, are a tie


@njit(cache=True, nogil=True, fastmath=_REORDER)
def block_top(value_C, b):
    """Return the largest value of a block; the picked hold -inf."""
    top = -np.inf
    for c in range(b * BLOCK, min((b + 1) * BLOCK, value_C.shape[0])):
        top = max(top, value_C[c])
    return top


@njit(cache=True, nogil=True)
def block_tops(value_C):
    """Return the largest value of every block.

    What lies below the cut is skipped a block at a time.
    """
    tops_B = np.empty((value_C.shape[0] + BLOCK - 1) // BLOCK, np.float64)
    for b in range(tops_B.shape[0]):
        tops_B[b] = block_top(value_C, b)
    return tops_B


@njit(cache=True, nogil=True)
def position(value_C, b, value):
    """Return the first position of a value that is in block b."""
    c = b * BLOCK
    while value_C[c] != value:
        c += 1
    return c


@njit(cache=True, nogil=True)
def highest(value_C, tops_B):
    """Return the first position of the largest value."""
    top = 0
    for b in range(1, tops_B.shape[0]):
        if tops_B[b] > tops_B[top]:
            top = b
    return position(value_C, top, tops_B[top])


@njit(cache=True, nogil=True)
def first_of_ties(value_C, tops_B, best):
    """Return the lowest position whose value ties with the best one.

    The first such is up to date.
    """
    cut = value_C[best] - TIE * abs(value_C[best])
    for b in range(best // BLOCK + 1):
        if tops_B[b] >= cut:
            for c in range(b * BLOCK, min((b + 1) * BLOCK, best)):
                if value_C[c] >= cut:
                    return c
    return best


@njit(cache=True, nogil=True)
def cannot_win(value_C, c, best, cut):
    """Say whether an old value, an upper bound, is too low to be picked before the best one."""
    return value_C[c] < cut or (c > best and value_C[c] <= value_C[best])


# -------------------------------------------------------------------------------------------------
# Compiled loops over matrices: norms of rows, the mirror of a symmetric kernel, its symmetry.
# -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc", "contract"})
def row_norms(x_ND):
    """Return |x_n| in float64."""
    norm_N = np.empty(x_ND.shape[0], np.float64)
    for n in range(x_ND.shape[0]):
        total = 0.0
        for d in range(x_ND.shape[1]):
            total += np.float64(x_ND[n, d]) * np.float64(x_ND[n, d])
        norm_N[n] = np.sqrt(total)
    return norm_N


@njit(cache=True, nogil=True)
def scale_rows(cross_NM, norm_N, shifted):
    """Divide row n by norm_n, in place; ``shifted`` maps the cosine c to (1 + c)/2."""
    for n in range(cross_NM.shape[0]):
        scale, shift = 1 / norm_N[n], 0.0
        if shifted:
            scale, shift = scale / 2, 0.5
        for m in range(cross_NM.shape[1]):
            cross_NM[n, m] = cross_NM[n, m] * scale + shift


@njit(cache=True, nogil=True)
def mirror_block(kernel_NN, top, bottom, left, right):
    """Copy rows top..bottom, columns left..right, to the other side of the diagonal.

    Eight rows are read side by side, so that eight neighbours are written together.
    """
    whole = bottom - (bottom - top) % 8
    for i in range(top, whole, 8):
        for j in range(left, right):
            a, b, c, d = (
                kernel_NN[i, j],
                kernel_NN[i + 1, j],
                kernel_NN[i + 2, j],
                kernel_NN[i + 3, j],
            )
            e, f, g, h = (
                kernel_NN[i + 4, j],
                kernel_NN[i + 5, j],
                kernel_NN[i + 6, j],
                kernel_NN[i + 7, j],
            )
            kernel_NN[j, i], kernel_NN[j, i + 1], kernel_NN[j, i + 2], kernel_NN[j, i + 3] = (
                a,
                b,
                c,
                d,
            )
            kernel_NN[j, i + 4], kernel_NN[j, i + 5], kernel_NN[j, i + 6], kernel_NN[j, i + 7] = (
                e,
                f,
                g,
                h,
            )
    for i in range(whole, bottom):
        for j in range(left, right):
            kernel_NN[j, i] = kernel_NN[i, j]


@njit(cache=True, nogil=True)
def mirror_upper(kernel_NN, top, bottom):
    """Copy what is above the diagonal of a square block to below it."""
    for i in range(top, bottom):
        for j in range(i + 1, bottom):
            kernel_NN[j, i] = kernel_NN[i, j]


@njit(cache=True)
def largest_asymmetry(kernel_NN):
    """Return max |K_ij - K_ji| and where it is, tile by tile."""
    n, side = kernel_NN.shape[0], 64
    worst, row, column = 0.0, 0, 0
    for ib in range(0, n, side):
        for jb in range(ib, n, side):
            for i in range(ib, min(ib + side, n)):
                for j in range(jb, min(jb + side, n)):
                    gap = abs(kernel_NN[i, j] - kernel_NN[j, i])
                    if gap > worst:
                        worst, row, column = gap, i, j
    return worst, row, column


# -------------------------------------------------------------------------------------------------
# Compiled loops that bound the gains of all elements together, over a symmetric kernel.
#
# `gain_bounds` sums all gains at once. Entry K_rv belongs to the gain of v and to that of r, so
# half of the kernel is read.
#
# `fall_range` lowers them. Where a pick has raised the floor of row r from a to b, the gain of v
# fell by clamp(K_rv, a, b) - a, and row r of the kernel holds K_rv for all v. Later picks raise few
# floors, so this reads less than looking at the candidates that could still win, which are many
# where gains are much alike.
#
# Both add in the type of the kernel, 256 numbers at most, then in float64. Bounds only decide what
# is looked at: ``facility_location`` sums what is picked.
# -------------------------------------------------------------------------------------------------

FALLS = 32  # rows of which an element's share is added in the kernel's type
SPAN = 256  # columns of which a row's share is added in the kernel's type
# In units of the last place, of which a rounding is half: a difference is rounded when it is taken
# and less than SPAN times when it is added, in a gain and in its fall; the gain that is picked is
# rounded once; and one is for what these do together.
BOUND_ERROR = SPAN + 2
_ORDERED = {"nnan", "nsz"}
ALL = 0.55  # of reading the kernel: what `gain_bounds` costs


# Columns are named by slices that start at 0, so that the loops over them are vectorised: a column
# number that could be negative would be counted from the end. max(K - lo, 0) has the bits of
# max(K, lo) - lo, and no order of the sum takes it apart.
@njit(cache=True, nogil=True, fastmath=_REORDER)
def gain_bounds(kernel_NN, lo_R, hi_R, first, last):
    """Add Σ_r clamp(K_vr, lo_r, hi_r) - lo_r (N,), the share of rows first..last of a triangle.

    ``first`` is a multiple of four.
    """
    n = kernel_NN.shape[0]
    zero = kernel_NN.dtype.type(0)
    gain_N, part_N = np.zeros(n, np.float64), np.zeros(n, kernel_NN.dtype)
    cap_R = None if hi_R is None else hi_R - lo_R
    for i in range(first, last, 4):
        right = min(i + 4, n)
        for r in range(i, right):
            for v in range(i, right):
                share = max(kernel_NN[r, v] - lo_R[v], zero)
                gain_N[r] += share if cap_R is None else min(share, cap_R[v])
        if right == n:
            break
        a0, a1, a2, a3 = lo_R[i], lo_R[i + 1], lo_R[i + 2], lo_R[i + 3]
        for start in range(right, n, SPAN):
            stop = min(start + SPAN, n)
            k0, k1 = kernel_NN[i, start:stop], kernel_NN[i + 1, start:stop]
            k2, k3 = kernel_NN[i + 2, start:stop], kernel_NN[i + 3, start:stop]
            part, lo = part_N[start:stop], lo_R[start:stop]
            s0 = s1 = s2 = s3 = zero
            if cap_R is None:
                for v in range(part.shape[0]):
                    part[v] += (max(k0[v] - a0, zero) + max(k1[v] - a1, zero)) + (
                        max(k2[v] - a2, zero) + max(k3[v] - a3, zero)
                    )
                    s0 += max(k0[v] - lo[v], zero)
                    s1 += max(k1[v] - lo[v], zero)
                    s2 += max(k2[v] - lo[v], zero)
                    s3 += max(k3[v] - lo[v], zero)
            else:
                c0, c1, c2, c3 = cap_R[i], cap_R[i + 1], cap_R[i + 2], cap_R[i + 3]
                cap = cap_R[start:stop]
                for v in range(part.shape[0]):
                    part[v] += (min(max(k0[v] - a0, zero), c0) + min(max(k1[v] - a1, zero), c1)) + (
                        min(max(k2[v] - a2, zero), c2) + min(max(k3[v] - a3, zero), c3)
                    )
                    s0 += min(max(k0[v] - lo[v], zero), cap[v])
                    s1 += min(max(k1[v] - lo[v], zero), cap[v])
                    s2 += min(max(k2[v] - lo[v], zero), cap[v])
                    s3 += min(max(k3[v] - lo[v], zero), cap[v])
            gain_N[i] += s0
            gain_N[i + 1] += s1
            gain_N[i + 2] += s2
            gain_N[i + 3] += s3
        if (i - first) % FALLS == FALLS - 4:
            for v in range(n):
                gain_N[v] += part_N[v]
                part_N[v] = 0
    return gain_N + part_N


@njit(cache=True, nogil=True, fastmath=_ORDERED)
def fall_range(kernel_NN, rows, lo_R, base_lo_R, bound_N, start, stop):
    """Lower the bounds of start..stop by what their gains fall as the floors of some rows rise."""
    told = bound_N[start:stop]
    part = np.zeros(stop - start, kernel_NN.dtype)
    for first in range(0, rows.shape[0], FALLS):
        end = min(first + FALLS, rows.shape[0])
        for i in range(first, end, 4):
            # Past the end the last row is repeated.
            r0, r1 = rows[i], rows[min(i + 1, end - 1)]
            r2, r3 = rows[min(i + 2, end - 1)], rows[min(i + 3, end - 1)]
            a0, a1, a2, a3 = base_lo_R[r0], base_lo_R[r1], base_lo_R[r2], base_lo_R[r3]
            b0 = lo_R[r0]
            b1 = lo_R[r1] if i + 1 < end else a1  # and its floor does not rise
            b2 = lo_R[r2] if i + 2 < end else a2
            b3 = lo_R[r3] if i + 3 < end else a3
            k0, k1 = kernel_NN[r0, start:stop], kernel_NN[r1, start:stop]
            k2, k3 = kernel_NN[r2, start:stop], kernel_NN[r3, start:stop]
            for v in range(part.shape[0]):
                part[v] += ((min(max(k0[v], a0), b0) - a0) + (min(max(k1[v], a1), b1) - a1)) + (
                    (min(max(k2[v], a2), b2) - a2) + (min(max(k3[v], a3), b3) - a3)
                )
        for v in range(part.shape[0]):
            told[v] -= part[v]
            part[v] = 0


@njit(cache=True, nogil=True)
def risen(lo_R, base_lo_R):
    """Return the rows whose floor has risen."""
    count = 0
    for r in range(lo_R.shape[0]):
        count += lo_R[r] > base_lo_R[r]
    found, count = np.empty(count, np.int64), 0
    for r in range(lo_R.shape[0]):
        if lo_R[r] > base_lo_R[r]:
            found[count] = r
            count += 1
    return found


@njit(cache=True, nogil=True)
def count_open(bound, tops, top):
    """Return how many bounds could beat the one at ``top``."""
    cut, count = bound[top] - TIE * abs(bound[top]), 0
    for b in range(tops.shape[0]):
        if tops[b] >= cut:
            for c in range(b * BLOCK, min((b + 1) * BLOCK, bound.shape[0])):
                count += bound[c] >= cut
    return count


@njit(cache=True, nogil=True)
def lower(bound, tops, bound_N, candidates):
    """Lower the bounds of candidates to those of all elements; the picked hold -inf."""
    for c in range(bound.shape[0]):
        bound[c] = min(bound[c], bound_N[candidates[c]])
    for b in range(tops.shape[0]):
        tops[b] = block_top(bound, b)
