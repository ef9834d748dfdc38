"""The hot loops on the CPU, compiled by numba and cached on disk.

Facility location and its measures share one gain: Σ_r clamp(K_vr, lo_r, hi_r) - lo_r + bonus_v.
LogDet keeps d_v, the conditional variance of v given what was picked; its gain is log d_v.
Kernel entries stay in their own type, sums run in float64: whatever the order of summation, two
devices then agree on every gain that differs by more than TIE; below that the lowest index wins.

"Lazy" here is a scan instead of a heap: a candidate is looked at again only if its old gain, which
is an upper bound for a submodular function, could still win. Naive and lazy call the same gain,
so they return the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

TIE = 1e-10  # gains closer than this, relative to the best, are a tie


@njit(cache=True)
def mirror_rows(kernel_NN, start, stop):
    """Copy rows start..stop, right of the diagonal block, below it; 32×32 tiles stay in L1."""
    n, side = kernel_NN.shape[0], 32
    for jb in range(stop, n, side):
        for ib in range(start, stop, side):
            for j in range(jb, min(jb + side, n)):
                for i in range(ib, min(ib + side, stop)):
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


@njit(cache=True, fastmath=True)
def clamped_gain(row_R, lo_R, hi_R):
    """Σ_r clamp(K_vr, lo_r, hi_r) - lo_r in float64; an empty hi_R is no cap."""
    total = 0.0
    if hi_R.shape[0] == 0:
        for r in range(row_R.shape[0]):
            total += max(row_R[r], lo_R[r]) - lo_R[r]
        return total
    for r in range(row_R.shape[0]):
        total += min(max(row_R[r], lo_R[r]), hi_R[r]) - lo_R[r]
    return total


@njit(cache=True)
def clamped_gains(kernel_NR, lo_R, hi_R, bonus_N, candidates, gains):
    """The gain of every candidate, in their order."""
    for c in range(candidates.shape[0]):
        v = candidates[c]
        gains[c] = clamped_gain(kernel_NR[v], lo_R, hi_R) + bonus_N[v]


@njit(cache=True)
def raise_floor(row_R, lo_R, hi_R):
    """Picking v lifts every represented row to its similarity with v, up to the cap."""
    for r in range(row_R.shape[0]):
        lo_R[r] = max(row_R[r], lo_R[r])
    for r in range(hi_R.shape[0]):
        lo_R[r] = min(lo_R[r], hi_R[r])


@njit(cache=True)
def highest(bound_C):
    """The position of the largest value; the picked ones hold -inf."""
    best = 0
    for c in range(1, bound_C.shape[0]):
        if bound_C[c] > bound_C[best]:
            best = c
    return best


@njit(cache=True)
def first_of_ties(value_C, best):
    """The lowest position whose value ties with the best one; all before it are up to date."""
    cut = value_C[best] - TIE * abs(value_C[best])
    for c in range(best):
        if value_C[c] >= cut:
            return c
    return best


@njit(cache=True)
def clamped_greedy(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy):
    """k greedy picks of the clamped facility location; candidates are in ascending order."""
    n = candidates.shape[0]
    bound = np.empty(n, np.float64)
    clamped_gains(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = n
    for step in range(k):
        best = highest(bound)
        if step > 0:  # the highest bound first: it is likely to stay the highest
            first = best
            v = candidates[first]
            bound[first] = clamped_gain(kernel_NR[v], lo_R, hi_R) + bonus_N[v]
            evaluations += 1
            cut = bound[best] - TIE * abs(bound[best]) if lazy else -np.inf
            for c in range(n):
                # An old gain is an upper bound: below the cut it cannot win. -inf is picked.
                if bound[c] < cut or bound[c] == -np.inf or c == first:
                    continue
                v = candidates[c]
                bound[c] = clamped_gain(kernel_NR[v], lo_R, hi_R) + bonus_N[v]
                evaluations += 1
                if bound[c] > bound[best]:
                    best = c
                    if lazy:
                        cut = bound[best] - TIE * abs(bound[best])
        best = first_of_ties(bound, best)
        v = candidates[best]
        indices[step], gains[step] = v, bound[best]
        bound[best] = -np.inf
        raise_floor(kernel_NR[v], lo_R, hi_R)
    return indices, gains, evaluations


@njit(cache=True, fastmath=True)
def dot(x_D, y_D):
    """x·y in float64."""
    total = 0.0
    for i in range(x_D.shape[0]):
        total += x_D[i] * y_D[i]
    return total


@njit(cache=True)
def project(p_DD, x_D, out_D):
    """out = P x, in float64."""
    for i in range(p_DD.shape[0]):
        out_D[i] = dot(p_DD[i], x_D)


@njit(cache=True)
def logdet_greedy_features(z_ND, p_DD, d_C, floor, candidates, k, lazy):
    """k greedy picks of log det(K + λI), K = Z P Z', from features alone.

    With P the residual metric, d_v = λ + z_v'P z_v. Picking x: w = P z_x, P -= w w'/d_x,
    d_v -= (z_v·w)²/d_x. One pass over Z a pick at most, and no n×n nor n×k matrix.
    """
    n, width = candidates.shape[0], z_ND.shape[1]
    w_KD = np.zeros((k, width), np.float64)
    seen = np.zeros(n, np.int64)  # how many picks d_v already knows of
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = n
    for step in range(k):
        best = first = highest(d_C)
        cut = -np.inf
        for turn in range(-1, n):  # the highest bound first, then all in order
            c = first if turn < 0 else turn
            # d of an unseen candidate only falls: a bound below the best cannot win.
            if d_C[c] < cut or d_C[c] == -np.inf:
                continue
            if seen[c] < step:
                evaluations += 1
                x = candidates[c]
                while seen[c] < step:
                    e = dot(z_ND[x], w_KD[seen[c]])
                    d_C[c] = max(d_C[c] - e * e, floor)
                    seen[c] += 1
            if d_C[c] > d_C[best] or turn < 0:
                best = c
                if lazy:
                    cut = d_C[best] * (1 - TIE)
        best = first_of_ties(d_C, best)
        x, d = candidates[best], d_C[best]
        indices[step], gains[step] = x, np.log(d)
        d_C[best] = -np.inf
        if d > floor:  # else an exact duplicate without ridge: it carries nothing
            project(p_DD, z_ND[x], w_KD[step])
            root = np.sqrt(d)
            for i in range(width):
                w_KD[step, i] /= root
            for i in range(width):
                for j in range(width):
                    p_DD[i, j] -= w_KD[step, i] * w_KD[step, j]
    return indices, gains, evaluations


@njit(cache=True)
def logdet_greedy_kernel(kernel_NN, c_CK, d_C, floor, candidates, given, k, lazy):
    """k greedy picks of log det(K + λI) from a kernel (fast greedy MAP, Chen et al. 2018).

    c_v holds the row of the Cholesky factor of v; e = (K_xv - c_x·c_v)/√d_x, d_v -= e². The first
    ``given`` columns of c_CK belong to elements that were conditioned on.
    """
    n = candidates.shape[0]
    seen = np.zeros(n, np.int64)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    chosen, roots = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = n
    for step in range(k):
        best = first = highest(d_C)
        cut = -np.inf
        for turn in range(-1, n):  # the highest bound first, then all in order
            c = first if turn < 0 else turn
            if d_C[c] < cut or d_C[c] == -np.inf:
                continue
            if seen[c] < step:
                evaluations += 1
            while seen[c] < step:
                t = seen[c]
                x_c = chosen[t]
                width = given + t
                e = kernel_NN[candidates[x_c], candidates[c]]
                e -= dot(c_CK[x_c, :width], c_CK[c, :width])
                e = e / roots[t] if roots[t] > 0 else 0.0
                c_CK[c, width] = e
                d_C[c] = max(d_C[c] - e * e, floor)
                seen[c] += 1
            if d_C[c] > d_C[best] or turn < 0:
                best = c
                if lazy:
                    cut = d_C[best] * (1 - TIE)
        best = first_of_ties(d_C, best)
        chosen[step] = best
        roots[step] = np.sqrt(d_C[best]) if d_C[best] > floor else 0.0
        indices[step], gains[step] = candidates[best], np.log(d_C[best])
        d_C[best] = -np.inf
    return indices, gains, evaluations
