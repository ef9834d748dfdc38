"""Compiled greedy walks of the log-determinant, over features and over a kernel.

LogDet keeps d_v, the conditional variance of v given what was picked; its gain is log d_v. Sums run
in float64: whatever the order of summation, two devices then agree on every gain that differs by
more than TIE; below that the lowest index wins.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shasam.submodular.blocks import (
    BLOCK,
    TIE,
    block_top,
    block_tops,
    cannot_win,
    first_of_ties,
    highest,
)


@njit(cache=True, fastmath=True)
def row_dot(x, i, y, j, width):
    """x_i·y_j over the first columns, in float64."""
    total = 0.0
    for t in range(width):
        total += x[i, t] * y[j, t]
    return total


@njit(cache=True)
def project(p_DD, z_ND, x, w_KD, step, root):
    """w_step = (P - Σ_{t<step} w_t w_t') z_x / root, in float64; an empty P is the identity."""
    width = z_ND.shape[1]
    for i in range(width):
        w_KD[step, i] = z_ND[x, i] if p_DD.shape[0] == 0 else row_dot(p_DD, i, z_ND, x, width)
    for t in range(step):
        e = row_dot(z_ND, x, w_KD, t, width)
        for i in range(width):
            w_KD[step, i] -= e * w_KD[t, i]
    for i in range(width):
        w_KD[step, i] /= root


@njit(cache=True)
def explain(z_ND, v, w_KD, seen, step, d, floor):
    """d_v after the picks seen..step-1 are known: d -= (z_v·w_t)² each."""
    for t in range(seen, step):
        e = row_dot(z_ND, v, w_KD, t, z_ND.shape[1])
        d = max(d - e * e, floor)
    return d


@njit(cache=True)
def logdet_greedy_features(z_ND, p_DD, d_C, floor, candidates, k, lazy):
    """k greedy picks of log det(K + λI), K = Z P Z', from features alone.

    With P the residual metric at the start and w_t = (P - Σ_{s<t} w_s w_s') z_x / √d_x for each
    pick x, d_v -= (z_v·w_t)². One pass over Z a pick at most, and no n×n nor n×k matrix.
    """
    n = candidates.shape[0]
    w_KD = np.zeros((k, z_ND.shape[1]), np.float64)
    seen = np.zeros(n, np.int64)  # how many picks d_v already knows of
    tops = block_tops(d_C)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = n
    for step in range(k):
        best = first = highest(d_C, tops)
        d_C[first] = explain(z_ND, candidates[first], w_KD, seen[first], step, d_C[first], floor)
        seen[first] = step
        cut = d_C[best] * (1 - TIE)
        for b in range(tops.shape[0]):
            # d of an unseen candidate only falls: a bound below the best cannot win.
            if step == 0 or (lazy and tops[b] < cut):
                continue
            for c in range(b * BLOCK, min((b + 1) * BLOCK, n)):
                if d_C[c] == -np.inf or (lazy and cannot_win(d_C, c, best, cut)):
                    continue
                if seen[c] < step:
                    evaluations += 1
                    d_C[c] = explain(z_ND, candidates[c], w_KD, seen[c], step, d_C[c], floor)
                    seen[c] = step
                if d_C[c] > d_C[best]:
                    best = c
                    cut = d_C[best] * (1 - TIE)
            tops[b] = block_top(d_C, b)
        best = first_of_ties(d_C, tops, best)
        x, d = candidates[best], d_C[best]
        indices[step], gains[step] = x, np.log(d)
        d_C[best] = -np.inf
        tops[best // BLOCK] = block_top(d_C, best // BLOCK)
        if d > floor and step + 1 < k:  # an exact duplicate without ridge carries nothing
            project(p_DD, z_ND, x, w_KD, step, np.sqrt(d))
    return indices, gains, evaluations


@njit(cache=True)
def logdet_greedy_kernel(kernel_NN, c_CK, d_C, floor, candidates, given, k, lazy):
    """k greedy picks of log det(K + λI) from a kernel (fast greedy MAP, Chen et al. 2018).

    c_v holds the row of the Cholesky factor of v; e = (K_xv - c_x·c_v)/√d_x, d_v -= e². The first
    ``given`` columns of c_CK belong to elements that were conditioned on.
    """
    n = candidates.shape[0]
    seen = np.zeros(n, np.int64)
    tops = block_tops(d_C)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    chosen, roots = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = n
    for step in range(k):
        best = first = highest(d_C, tops)
        cut = -np.inf
        for turn in range(-1, tops.shape[0]):  # the highest bound first, then block by block
            b = first // BLOCK if turn < 0 else turn
            start, stop = b * BLOCK, min((b + 1) * BLOCK, n)
            if turn < 0:
                start, stop = first, first + 1
            elif step == 0 or (lazy and tops[b] < cut):
                continue
            for c in range(start, stop):
                if d_C[c] == -np.inf or (lazy and turn >= 0 and cannot_win(d_C, c, best, cut)):
                    continue
                if seen[c] < step:
                    evaluations += 1
                while seen[c] < step:
                    t = seen[c]
                    x_c = chosen[t]
                    width = given + t
                    e = kernel_NN[candidates[x_c], candidates[c]]
                    e -= row_dot(c_CK, x_c, c_CK, c, width)
                    e = e / roots[t] if roots[t] > 0 else 0.0
                    c_CK[c, width] = e
                    d_C[c] = max(d_C[c] - e * e, floor)
                    seen[c] += 1
                if d_C[c] > d_C[best] or turn < 0:
                    best = c
                    cut = d_C[best] * (1 - TIE)
            if turn >= 0:
                tops[b] = block_top(d_C, b)
        best = first_of_ties(d_C, tops, best)
        chosen[step] = best
        roots[step] = np.sqrt(d_C[best]) if d_C[best] > floor else 0.0
        indices[step], gains[step] = candidates[best], np.log(d_C[best])
        d_C[best] = -np.inf
        tops[best // BLOCK] = block_top(d_C, best // BLOCK)
    return indices, gains, evaluations
