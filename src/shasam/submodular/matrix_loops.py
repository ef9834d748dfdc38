"""Compiled loops over matrices: norms of rows, the mirror of a symmetric kernel, its symmetry."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc", "contract"})
def row_norms(x_ND):
    """|x_n| in float64."""
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


@njit(cache=True)
def largest_asymmetry(kernel_NN):
    """max |K_ij - K_ji| and where it is, tile by tile."""
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
