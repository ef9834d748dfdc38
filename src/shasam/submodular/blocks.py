"""Upper bounds of candidates, kept in blocks so that a scan skips many of them together.

A bound is a gain that was true earlier; for a submodular function it can only have fallen since.
Ties, values closer than TIE relative, go to the lowest position.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BLOCK = 32  # candidates whose largest bound is kept
# Maxima may be reordered, so that they are vectorised; infinities keep their meaning.
_REORDER = {"nnan", "nsz", "reassoc", "contract"}
TIE = 1e-10  # gains closer than this, relative to the best, are a tie


@njit(cache=True, nogil=True, fastmath=_REORDER)
def block_top(value_C, b):
    """The largest value of a block; the picked hold -inf."""
    top = -np.inf
    for c in range(b * BLOCK, min((b + 1) * BLOCK, value_C.shape[0])):
        top = max(top, value_C[c])
    return top


@njit(cache=True, nogil=True)
def block_tops(value_C):
    """The largest value of every block: what lies below the cut is skipped a block at a time."""
    tops_B = np.empty((value_C.shape[0] + BLOCK - 1) // BLOCK, np.float64)
    for b in range(tops_B.shape[0]):
        tops_B[b] = block_top(value_C, b)
    return tops_B


@njit(cache=True, nogil=True)
def position(value_C, b, value):
    """The first position of a value that is in block b."""
    c = b * BLOCK
    while value_C[c] != value:
        c += 1
    return c


@njit(cache=True, nogil=True)
def highest(value_C, tops_B):
    """The first position of the largest value."""
    top = 0
    for b in range(1, tops_B.shape[0]):
        if tops_B[b] > tops_B[top]:
            top = b
    return position(value_C, top, tops_B[top])


@njit(cache=True, nogil=True)
def first_of_ties(value_C, tops_B, best):
    """The lowest position whose value ties with the best one; the first such is up to date."""
    cut = value_C[best] - TIE * abs(value_C[best])
    for b in range(best // BLOCK + 1):
        if tops_B[b] >= cut:
            for c in range(b * BLOCK, min((b + 1) * BLOCK, best)):
                if value_C[c] >= cut:
                    return c
    return best


@njit(cache=True, nogil=True)
def cannot_win(value_C, c, best, cut):
    """Is an old value, which is an upper bound, too low to be picked before the best one?"""
    return value_C[c] < cut or (c > best and value_C[c] <= value_C[best])
