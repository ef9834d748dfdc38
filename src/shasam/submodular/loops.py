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

BLOCK = 32  # candidates whose largest bound is kept, so that a scan skips them together
# Sums and maxima may be reordered, so that they are vectorised; infinities keep their meaning.
_REORDER = {"nnan", "nsz", "reassoc", "contract"}
TIE = 1e-10  # gains closer than this, relative to the best, are a tie


@njit(cache=True, fastmath=_REORDER)
def row_norms(x_ND):
    """|x_n| in float64."""
    norm_N = np.empty(x_ND.shape[0], np.float64)
    for n in range(x_ND.shape[0]):
        total = 0.0
        for d in range(x_ND.shape[1]):
            total += np.float64(x_ND[n, d]) * np.float64(x_ND[n, d])
        norm_N[n] = np.sqrt(total)
    return norm_N


@njit(cache=True)
def scale_rows(cross_NM, norm_N, shifted):
    """Divide row n by norm_n, in place; ``shifted`` maps the cosine c to (1 + c)/2."""
    for n in range(cross_NM.shape[0]):
        scale, shift = 1 / norm_N[n], 0.0
        if shifted:
            scale, shift = scale / 2, 0.5
        for m in range(cross_NM.shape[1]):
            cross_NM[n, m] = cross_NM[n, m] * scale + shift


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


# ``hi_R`` None is no cap; numba then compiles the walk without one. A row is named by its array and
# its number: a slice would count references, which costs more than a short row does.
@njit(cache=True, fastmath=True)
def clamped_gain(kernel_NR, v, lo_R, hi_R):
    """Σ_r clamp(K_vr, lo_r, hi_r) - lo_r in float64."""
    total = 0.0
    if hi_R is None:
        for r in range(lo_R.shape[0]):
            total += max(kernel_NR[v, r], lo_R[r]) - lo_R[r]
    else:
        for r in range(lo_R.shape[0]):
            total += min(max(kernel_NR[v, r], lo_R[r]), hi_R[r]) - lo_R[r]
    return total


@njit(cache=True)
def clamped_gains(kernel_NR, lo_R, hi_R, bonus_N, candidates, gains):
    """The gain of every candidate, in their order."""
    for c in range(candidates.shape[0]):
        v = candidates[c]
        gains[c] = clamped_gain(kernel_NR, v, lo_R, hi_R) + bonus_N[v]


@njit(cache=True)
def raise_floor(kernel_NR, v, lo_R, hi_R):
    """Picking v lifts every represented row to its similarity with v, up to the cap."""
    for r in range(lo_R.shape[0]):
        lo_R[r] = max(kernel_NR[v, r], lo_R[r])
    if hi_R is not None:
        for r in range(lo_R.shape[0]):
            lo_R[r] = min(lo_R[r], hi_R[r])


@njit(cache=True, fastmath=_REORDER)
def block_top(value_C, b):
    """The largest value of a block; the picked hold -inf."""
    top = -np.inf
    for c in range(b * BLOCK, min((b + 1) * BLOCK, value_C.shape[0])):
        top = max(top, value_C[c])
    return top


@njit(cache=True)
def block_tops(value_C):
    """The largest value of every block: what lies below the cut is skipped a block at a time."""
    tops_B = np.empty((value_C.shape[0] + BLOCK - 1) // BLOCK, np.float64)
    for b in range(tops_B.shape[0]):
        tops_B[b] = block_top(value_C, b)
    return tops_B


@njit(cache=True)
def position(value_C, b, value):
    """The first position of a value that is in block b."""
    c = b * BLOCK
    while value_C[c] != value:
        c += 1
    return c


@njit(cache=True)
def highest(value_C, tops_B):
    """The first position of the largest value."""
    top = 0
    for b in range(1, tops_B.shape[0]):
        if tops_B[b] > tops_B[top]:
            top = b
    return position(value_C, top, tops_B[top])


@njit(cache=True)
def first_of_ties(value_C, tops_B, best):
    """The lowest position whose value ties with the best one; the first such is up to date."""
    cut = value_C[best] - TIE * abs(value_C[best])
    for b in range(best // BLOCK + 1):
        if tops_B[b] >= cut:
            for c in range(b * BLOCK, min((b + 1) * BLOCK, best)):
                if value_C[c] >= cut:
                    return c
    return best


@njit(cache=True)
def cannot_win(value_C, c, best, cut):
    """Is an old value, which is an upper bound, too low to be picked before the best one?"""
    return value_C[c] < cut or (c > best and value_C[c] <= value_C[best])


@njit(cache=True)
def clamped_greedy(kernel_NR, lo_R, hi_R, bonus_N, candidates, k, lazy):
    """k greedy picks of the clamped facility location; candidates are in ascending order."""
    n = candidates.shape[0]
    bound = np.empty(n, np.float64)
    clamped_gains(kernel_NR, lo_R, hi_R, bonus_N, candidates, bound)
    tops = block_tops(bound)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    open_B = np.empty(BLOCK, np.int64)  # those of a block that could still win
    evaluations = n
    for step in range(k):
        best = highest(bound, tops)
        if step > 0:  # the highest bound first: it is likely to stay the highest
            v = candidates[best]
            bound[best] = clamped_gain(kernel_NR, v, lo_R, hi_R) + bonus_N[v]
            evaluations += 1
            cut = bound[best] - TIE * abs(bound[best])
            for b in range(tops.shape[0]):
                if lazy and tops[b] < cut:
                    continue
                # Gathered without a branch and then evaluated in one go: where rows are short, a
                # mispredicted branch costs more than a gain.
                waiting = 0
                least = cut if lazy else -np.finfo(np.float64).max
                for c in range(b * BLOCK, min((b + 1) * BLOCK, n)):
                    open_B[waiting] = c
                    waiting += bound[c] >= least
                for i in range(waiting):
                    v = candidates[open_B[i]]
                    bound[open_B[i]] = clamped_gain(kernel_NR, v, lo_R, hi_R) + bonus_N[v]
                evaluations += waiting
                tops[b] = block_top(bound, b)
                if tops[b] > bound[best]:
                    best = position(bound, b, tops[b])
                    cut = bound[best] - TIE * abs(bound[best])
        best = first_of_ties(bound, tops, best)
        v = candidates[best]
        indices[step], gains[step] = v, bound[best]
        bound[best] = -np.inf
        tops[best // BLOCK] = block_top(bound, best // BLOCK)
        raise_floor(kernel_NR, v, lo_R, hi_R)
    return indices, gains, evaluations


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
