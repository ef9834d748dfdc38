"""Compiled step of sieve-streaming: every candidate of a block against every sieve."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, fastmath=True)
def rise(block_CR, c, best_SR, s):
    """Σ_r max(K_cr - best_sr, 0) in float64."""
    total = 0.0
    for r in range(best_SR.shape[1]):
        total += max(block_CR[c, r] - best_SR[s, r], 0)
    return total


@njit(cache=True, nogil=True, fastmath=True)
def row_sums(block_CR):
    """What each candidate is worth alone, in float64."""
    sum_C = np.empty(block_CR.shape[0], np.float64)
    for c in range(block_CR.shape[0]):
        total = 0.0
        for r in range(block_CR.shape[1]):
            total += block_CR[c, r]
        sum_C[c] = total
    return sum_C


@njit(cache=True, nogil=True)
def sift(block_CR, alone_C, first, best_SR, threshold_S, size_S, value_S, pick_SK, gain_SK):
    """Add each candidate to the sieves whose threshold its gain reaches, in the order of arrival.

    ``alone_C``, the gain over nothing, bounds every gain: sieves above it are not looked at.
    Returns how many gains were computed.
    """
    k, looked = pick_SK.shape[1], 0
    for c in range(block_CR.shape[0]):
        for s in range(threshold_S.shape[0]):
            if size_S[s] == k or alone_C[c] < threshold_S[s]:
                continue
            gain = rise(block_CR, c, best_SR, s)
            looked += 1
            if gain < threshold_S[s]:
                continue
            pick_SK[s, size_S[s]], gain_SK[s, size_S[s]] = first + c, gain
            size_S[s] += 1
            value_S[s] += gain
            for r in range(best_SR.shape[1]):
                best_SR[s, r] = max(best_SR[s, r], block_CR[c, r])
    return looked
