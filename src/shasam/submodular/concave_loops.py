"""Compiled gains of functions that add up what they pick: a concave rise of a sum.

Sums run in float64, row by row, so that a gain has the same bits alone and among others.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shasam.submodular import threads

SQRT, LOG, SATURATE = 0, 1, 2  # φ(x) = √x, log(1 + x), x/(1 + x)


@njit(cache=True, nogil=True, fastmath=True)
def _rise(x_ND, v, sum_D, phi_D, weight_D, kind):
    total = 0.0
    if kind == SQRT:
        for d in range(sum_D.shape[0]):
            total += weight_D[d] * (np.sqrt(sum_D[d] + x_ND[v, d]) - phi_D[d])
    elif kind == LOG:
        for d in range(sum_D.shape[0]):
            total += weight_D[d] * (np.log1p(sum_D[d] + x_ND[v, d]) - phi_D[d])
    else:
        for d in range(sum_D.shape[0]):
            x = sum_D[d] + x_ND[v, d]
            total += weight_D[d] * (x / (1 + x) - phi_D[d])
    return total


@njit(cache=True, nogil=True)
def _concave_range(x_ND, sum_D, phi_D, weight_D, kind, candidates, gains, start, stop):
    for c in range(start, stop):
        gains[c] = _rise(x_ND, candidates[c], sum_D, phi_D, weight_D, kind)


@njit(cache=True, nogil=True, fastmath=True)
def _capped(kernel_NR, v, room_R):
    """Σ_r min(K_vr, room_r)."""
    total = 0.0
    for r in range(room_R.shape[0]):
        total += min(np.float64(kernel_NR[v, r]), room_R[r])
    return total


@njit(cache=True, nogil=True)
def _capped_range(kernel_NR, room_R, candidates, gains, start, stop):
    for c in range(start, stop):
        gains[c] = _capped(kernel_NR, candidates[c], room_R)


def concave_gains(x_ND, sum_D, phi_D, weight_D, kind, candidates):
    """Σ_d w_d (φ(sum_d + x_vd) - φ(sum_d)) for every candidate v."""
    gains = np.empty(len(candidates), np.float64)
    _split(_concave_range, (x_ND, sum_D, phi_D, weight_D, kind, candidates, gains))
    return gains


def capped_gains(kernel_NR, room_R, candidates):
    """Σ_r min(K_vr, room_r) for every candidate v, room being what is left below the cap."""
    gains = np.empty(len(candidates), np.float64)
    _split(_capped_range, (kernel_NR, room_R, candidates, gains))
    return gains


def _split(loop, arguments):
    matrix, gains = arguments[0], arguments[-1]
    parts = threads.count(len(gains) * matrix.shape[1])
    edges = [len(gains) * p // parts for p in range(parts + 1)]
    threads.run(loop, [(*arguments, edges[p], edges[p + 1]) for p in range(parts)])
