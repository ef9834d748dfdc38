"""Selection from data that is seen once, row by row: sieve-streaming++."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import kernels
from shasam.submodular.kernels import Similarity
from shasam.types import Selection

# -------------------------------------------------------------------------------------------------
# Compiled step of sieve-streaming: every candidate of a block against every sieve.
# -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=True)
def rise(block_CR, c, best_SR, s):
    """Return Σ_r max(K_cr - best_sr, 0) in float64."""
    total = 0.0
    for r in range(best_SR.shape[1]):
        total += max(block_CR[c, r] - best_SR[s, r], 0)
    return total


@njit(cache=True, nogil=True, fastmath=True)
def row_sums(block_CR):
    """Return what each candidate is worth alone, in float64."""
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


_TOGETHER = 1024  # rows that are compared with the represented ones at a time
# The guarantee needs no threshold below max(LB, Δ)/2k. But where one pick already covers half of
# every row, as with (1 + cos)/2, later gains are below it and those sieves stop far short of k.
_DEEPER = 16


class Sieve:
    """Select from a stream: at most k picks, each row is looked at once and forgotten.

    Several sieves run at the same time. The sieve with threshold τ keeps a row if that adds at
    least τ to its value, until it has k; the best sieve is the answer. The thresholds are the
    powers of 1 + ε between max(LB, Δ)/32k and Δ, where Δ is the largest value of a single row so
    far and LB the largest value of a sieve (Kazemi et al. 2019, after Badanidiyuru et al. 2014;
    theirs end at max(LB, Δ)/2k, the lower ones only add).

    The value is at least 1/2 - ε of the best k rows of the whole stream, in any order of the rows:
    a guarantee of one pass, where greedy needs k passes for 1 - 1/e. What it is a guarantee of is
    f(A) = Σ_{r∈R} max_{a∈A} K_ra over the ``represented`` features (R, D), which must be known
    beforehand: a random sample of similar data, for instance. Memory is R × O(log(k)/ε) + k/ε,
    whatever the length of the stream.

    Parameters
    ----------
    k
        At most so many picks.
    represented
        Features (R, D) that the picks should represent.
    epsilon
        ε of the guarantee; smaller values keep more sieves.
    similarity
        "shifted_cosine" or "rbf".
    gamma
        γ of "rbf", by default 1/D.

    Examples
    --------
    >>> sieve = Sieve(2, represented=[[1.0, 0.0], [0.0, 1.0]])
    >>> for block in ([[1.0, 0.1], [0.9, 0.1]], [[-1.0, 0.0], [0.1, 1.0]]):
    ...     sieve.see(block)
    >>> sieve.seen, sieve.selection().indices.tolist()
    (4, [0, 3])
    """

    def __init__(
        self,
        k: int,
        represented: Any,
        *,
        epsilon: float = 0.1,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number of at least 1; got {k!r}")
        if not 0 < epsilon < 0.5:
            raise InputError(f"epsilon must be between 0 and 1/2; got {epsilon}")
        kernels.check_similarity(similarity)
        if similarity == "cosine":
            raise InputError(
                "facility location needs similarities that are not negative; use "
                "similarity='shifted_cosine' or 'rbf'"
            )
        self.k, self.epsilon, self.similarity, self.gamma = k, epsilon, similarity, gamma
        self.z_RD = kernels.as_features(represented, "represented features").detach().cpu()
        self.seen, self.evaluations = 0, 0
        self._largest, self._reached = 0.0, 0.0  # Δ and LB
        kind = self.z_RD.numpy().dtype
        self._power = np.empty(0, np.int64)  # thresholds are (1 + ε)^power
        self._best_SR = np.zeros((0, len(self.z_RD)), kind)
        self._size = np.zeros(0, np.int64)
        self._value = np.zeros(0)
        self._picks, self._gains = np.zeros((0, k), np.int64), np.zeros((0, k))

    @property
    def sieves(self) -> int:
        """How many sieves there are now."""
        return len(self._power)

    @torch.no_grad()
    def see(self, z: Any) -> None:
        """Take the next rows (B, D) of the stream."""
        z_BD = kernels.as_features_like(z, "the rows of the stream", self.z_RD).detach()
        for z_CD in z_BD.split(_TOGETHER):
            block_CR = kernels.similarity_matrix(z_CD, self.z_RD, self.similarity, self.gamma)
            block = np.ascontiguousarray(block_CR.numpy())
            alone = row_sums(block)
            # Before a row raises Δ, the rows in front of it meet the thresholds of the old one.
            rises = np.flatnonzero(alone > np.maximum.accumulate([self._largest, *alone[:-1]]))
            edges = [0, *rises[rises > 0].tolist(), len(block)]
            for first, last in itertools.pairwise(edges):
                self._sift(block[first:last], alone[first:last])

    def _sift(self, block: np.ndarray, alone: np.ndarray) -> None:
        self._largest = max(self._largest, float(alone[0]))
        self._renew()
        self.evaluations += len(block) + sift(
            block,
            alone,
            self.seen,
            self._best_SR,
            (1 + self.epsilon) ** self._power.astype(np.float64),
            self._size,
            self._value,
            self._picks,
            self._gains,
        )
        self._reached = max(self._reached, float(self._value.max(initial=0.0)))
        self.seen += len(block)

    def _renew(self) -> None:
        """Make sieves for all thresholds between max(LB, Δ)/32k and Δ; the others go."""
        if self._largest <= 0:
            return
        step = math.log1p(self.epsilon)
        lowest = max(self._reached, self._largest) / (2 * self.k * _DEEPER)
        first = math.floor(math.log(lowest) / step)
        last = math.floor(math.log(self._largest) / step + 1e-9)
        keep = self._power >= first
        fresh = np.arange(max(first, int(self._power.max(initial=first - 1)) + 1), last + 1)
        if keep.all() and len(fresh) == 0:
            return

        def grown(array: np.ndarray) -> np.ndarray:
            new = np.zeros((len(fresh), *array.shape[1:]), array.dtype)
            return np.concatenate([array[keep], new])

        self._best_SR, self._size, self._value = map(
            grown, (self._best_SR, self._size, self._value)
        )
        self._picks, self._gains = grown(self._picks), grown(self._gains)
        self._power = np.concatenate([self._power[keep], fresh])

    def selection(self) -> Selection:
        """Return the best sieve: numbers of rows in the order of the stream, from 0; at most k."""
        if self.seen == 0:
            raise InputError("the stream has shown no row yet; there is nothing to select from")
        best = int(self._value.argmax()) if self.sieves else 0
        size = int(self._size[best]) if self.sieves else 0
        picks, gains = self._picks[best : best + 1, :size], self._gains[best : best + 1, :size]
        return Selection(
            torch.from_numpy(picks.reshape(-1).copy()),
            torch.from_numpy(gains.reshape(-1).copy()),
            self.evaluations,
            f"sieve-streaming++, {self.sieves} sieves",
        )


def select_from_stream(
    blocks: Iterable[Any], k: int, represented: Any, **settings: Any
) -> tuple[Selection, Tensor]:
    """Select rows in one pass over blocks of rows.

    Parameters
    ----------
    blocks
        Features (n, D) of the rows, block by block; each is looked at once.
    k
        At most so many picks.
    represented
        Features (R, D) that the picks should represent, known beforehand.
    settings
        Settings of ``Sieve``: ``epsilon``, ``similarity``, ``gamma``.

    Returns
    -------
    tuple[Selection, Tensor]
        The picks, numbered as they came, and their features (at most k, D).

    Examples
    --------
    >>> stream = ([[float(i), 1.0]] for i in range(-5, 6))
    >>> chosen, z = select_from_stream(stream, 2, represented=[[-1.0, 0.1], [1.0, 0.1]])
    >>> len(chosen) <= 2, tuple(z.shape) == (len(chosen), 2)
    (True, True)
    """
    sieve, kept = Sieve(k, represented, **settings), {}
    for block in blocks:
        first, z_BD = sieve.seen, kernels.as_features(block, "the rows of the stream")
        sieve.see(z_BD)
        for number in set(sieve._picks.ravel().tolist()):
            if first <= number < sieve.seen:
                kept[number] = z_BD[number - first].clone()
    chosen = sieve.selection()
    rows = [kept[number] for number in chosen.indices.tolist()]
    return chosen, torch.stack(rows) if rows else sieve.z_RD[:0]
