"""Compiled loops that lower the bounds of all candidates together, over a symmetric kernel.

Where a pick has raised the floor of row r from a to b, the gain of v fell by clamp(K_rv, a, b) - a,
and row r of the kernel holds K_rv for all v. Later picks raise few floors, so this reads less than
looking at the candidates that could still win, which are many where gains are much alike. Lowered
bounds only decide what is looked at: what is picked has been summed by ``clamped_loops``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shasam.submodular.loops import BLOCK, TIE, block_top

SIDE = 8  # rows that are read side by side


@njit(cache=True, nogil=True, fastmath=True)
def fall_range(kernel_NN, rows, lo_R, base_lo_R, fall_N, start, stop):
    """Add how far the gains of start..stop fall as the floors of some rows rise."""
    whole = rows.shape[0] - rows.shape[0] % SIDE
    for i in range(0, whole, SIDE):
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        r4, r5, r6, r7 = rows[i + 4], rows[i + 5], rows[i + 6], rows[i + 7]
        a0, b0 = base_lo_R[r0], lo_R[r0]
        a1, b1 = base_lo_R[r1], lo_R[r1]
        a2, b2 = base_lo_R[r2], lo_R[r2]
        a3, b3 = base_lo_R[r3], lo_R[r3]
        a4, b4 = base_lo_R[r4], lo_R[r4]
        a5, b5 = base_lo_R[r5], lo_R[r5]
        a6, b6 = base_lo_R[r6], lo_R[r6]
        a7, b7 = base_lo_R[r7], lo_R[r7]
        for v in range(start, stop):
            fall_N[v] += (
                np.float64(min(max(kernel_NN[r0, v], a0), b0) - a0)
                + np.float64(min(max(kernel_NN[r1, v], a1), b1) - a1)
                + np.float64(min(max(kernel_NN[r2, v], a2), b2) - a2)
                + np.float64(min(max(kernel_NN[r3, v], a3), b3) - a3)
                + np.float64(min(max(kernel_NN[r4, v], a4), b4) - a4)
                + np.float64(min(max(kernel_NN[r5, v], a5), b5) - a5)
                + np.float64(min(max(kernel_NN[r6, v], a6), b6) - a6)
                + np.float64(min(max(kernel_NN[r7, v], a7), b7) - a7)
            )
    for i in range(whole, rows.shape[0]):
        r = rows[i]
        a, b = base_lo_R[r], lo_R[r]
        for v in range(start, stop):
            fall_N[v] += np.float64(min(max(kernel_NN[r, v], a), b) - a)


@njit(cache=True, nogil=True)
def risen(lo_R, base_lo_R):
    """The rows whose floor has risen."""
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
    """How many bounds could beat the one at ``top``."""
    cut, count = bound[top] - TIE * abs(bound[top]), 0
    for b in range(tops.shape[0]):
        if tops[b] >= cut:
            for c in range(b * BLOCK, min((b + 1) * BLOCK, bound.shape[0])):
                count += bound[c] >= cut
    return count


@njit(cache=True, nogil=True)
def lower(bound, tops, base_C, fall_N, candidates, error):
    """Bounds from the first gains less what they have fallen, and more than all rounding."""
    for c in range(bound.shape[0]):
        if bound[c] > -np.inf:
            bound[c] = min(bound[c], base_C[c] * (1 + error) - fall_N[candidates[c]])
    for b in range(tops.shape[0]):
        tops[b] = block_top(bound, b)
