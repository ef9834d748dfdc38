"""The measures of the log-determinant in closed form: LogDetMI, LogDetCG, LogDetCMI."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numba import njit
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.kernels import Similarities, Similarity, check_strength
from shasam.submodular.loops import (
    BLOCK,
    TIE,
    block_top,
    block_tops,
    cannot_win,
    first_of_ties,
    highest,
)
from shasam.submodular.set_function import SetFunction, SimilarityFunction

# -------------------------------------------------------------------------------------------------
# Compiled greedy walks of the log-determinant, over features and over a kernel.
#
# LogDet keeps d_v, the conditional variance of v given what was picked; its gain is log d_v. Sums
# run in float64: whatever the order of summation, two devices then agree on every gain that
# differs by more than TIE; below that the lowest index wins.
# -------------------------------------------------------------------------------------------------


HIGHEST = 3  # bounds that are computed first in a step, so that the best of them rules out the rest


@njit(cache=True, fastmath=True)
def row_dot(x, i, y, j, width):
    """Return x_i·y_j over the first columns, in float64."""
    total = 0.0
    for t in range(width):
        total += x[i, t] * y[j, t]
    return total


@njit(cache=True)
def project(p_DD, z_ND, x, w_KD, step, root):
    """Set w_step = (P - Σ_{t<step} w_t w_t') z_x / root, in float64; an empty P is the identity."""
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
    """Return d_v after the picks seen..step-1 are known: d -= (z_v·w_t)² each."""
    for t in range(seen, step):
        e = row_dot(z_ND, v, w_KD, t, z_ND.shape[1])
        d = max(d - e * e, floor)
    return d


@njit(cache=True, fastmath=True)
def rough_products(z_ND, v, rough_KD, t, e):
    """Set z_v·w_t in the type of Z, of four rows v with picks t of their own."""
    v0, v1, v2, v3 = v[0], v[1], v[2], v[3]
    t0, t1, t2, t3 = t[0], t[1], t[2], t[3]
    e0 = e1 = e2 = e3 = z_ND.dtype.type(0)
    for i in range(z_ND.shape[1]):
        e0 += z_ND[v0, i] * rough_KD[t0, i]
        e1 += z_ND[v1, i] * rough_KD[t1, i]
        e2 += z_ND[v2, i] * rough_KD[t2, i]
        e3 += z_ND[v3, i] * rough_KD[t3, i]
    e[0], e[1], e[2], e[3] = e0, e1, e2, e3


@njit(cache=True)
def rule_out(shared, rough_KD, slack_K, known, step, bound_C, tops, cut):
    """Lower the bounds that reach the cut by picks that they do not know of, one in each round."""
    z_ND, candidates, floor = shared
    waiting, count = np.empty(len(bound_C) + 1, np.int64), 0
    for b in range(tops.shape[0]):
        if tops[b] >= cut:
            for c in range(b * BLOCK, min((b + 1) * BLOCK, len(bound_C))):
                waiting[count] = c  # without a branch: it would be mispredicted
                count += (bound_C[c] >= cut) & (known[c] < step)
    v, t, e = np.empty(4, np.int64), np.empty(4, np.int64), np.empty(4, z_ND.dtype)
    while count > 0:
        left = 0
        for i in range(0, count, 4):
            for j in range(4):
                c = waiting[min(i + j, count - 1)]
                v[j], t[j] = candidates[c], known[c]
            rough_products(z_ND, v, rough_KD, t, e)
            for j in range(min(4, count - i)):
                c = waiting[i + j]
                least = max(abs(e[j]) - slack_K[known[c]], 0.0)
                bound_C[c] = max(bound_C[c] - least * least, floor)
                known[c] += 1
                waiting[left] = c
                left += (bound_C[c] >= cut) & (known[c] < step)
        count = left
    for b in range(tops.shape[0]):
        if tops[b] >= cut:
            tops[b] = block_top(bound_C, b)


@njit(cache=True)
def logdet_greedy_features(z_ND, p_DD, d_N, norm, eps, floor, candidates, k, lazy):
    """Return k greedy picks of log det(K + λI), K = Z P Z', from features alone.

    With P the residual metric at the start and w_t = (P - Σ_{s<t} w_s w_s') z_x / √d_x for each
    pick x, d_v -= (z_v·w_t)². One pass over Z a pick at most, and no n×n nor n×k matrix. Most
    candidates are ruled out by bounds of d from products in the type of Z, whose unit of rounding
    is ``eps``; ``norm`` is the largest |z_v|.
    """
    n, width = candidates.shape[0], z_ND.shape[1]
    w_KD, rough_KD = np.zeros((k, width)), np.zeros((k, width), z_ND.dtype)
    slack_K, d_C = np.zeros(k), np.empty(n)
    for c in range(n):
        d_C[c] = max(d_N[candidates[c]], floor)
    bound_C, tops = d_C.copy(), block_tops(d_C)
    # How many picks d_v and its bound know of.
    seen, known = np.zeros(n, np.int64), np.zeros(n, np.int64)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = n
    for step in range(k):
        best, cut = -1, -np.inf
        for turn in range(-HIGHEST if step > 0 else -1, tops.shape[0] if step > 0 else 0):
            if turn < 0:  # the highest bounds first, then block by block
                start = highest(bound_C, tops)
                stop = start + 1
            else:
                if turn == 0 and lazy:
                    rough = (rough_KD, slack_K, known, step)
                    rule_out((z_ND, candidates, floor), *rough, bound_C, tops, cut)
                # d of an unseen candidate only falls: a bound below the best cannot win.
                if lazy and tops[turn] < cut:
                    continue
                start, stop = turn * BLOCK, min((turn + 1) * BLOCK, n)
            for c in range(start, stop):
                if bound_C[c] == -np.inf:
                    continue
                if lazy and turn >= 0 and cannot_win(bound_C, c, best, cut):
                    continue
                if seen[c] < step:
                    evaluations += 1
                    d_C[c] = explain(z_ND, candidates[c], w_KD, seen[c], step, d_C[c], floor)
                    bound_C[c], seen[c], known[c] = d_C[c], step, step
                if best < 0 or d_C[c] > d_C[best]:
                    best, cut = c, d_C[c] * (1 - TIE)
            tops[start // BLOCK] = block_top(bound_C, start // BLOCK)
        best = first_of_ties(bound_C, tops, best)
        x, d = candidates[best], d_C[best]
        indices[step], gains[step] = x, np.log(d)
        bound_C[best] = -np.inf
        tops[best // BLOCK] = block_top(bound_C, best // BLOCK)
        if d > floor and step + 1 < k:  # an exact duplicate without ridge carries nothing
            project(p_DD, z_ND, x, w_KD, step, np.sqrt(d))
            rough_KD[step] = w_KD[step]
            # w is rounded, and so is every product and partial sum.
            length = np.sqrt(row_dot(w_KD, step, w_KD, step, width))
            slack_K[step] = (width + 2) * eps * norm * length
    return indices, gains, evaluations


@njit(cache=True)
def logdet_greedy_kernel(kernel_NN, c_CK, d_C, floor, candidates, given, k, lazy):
    """Return k greedy picks of log det(K + λI) from a kernel (fast greedy MAP, Chen et al. 2018).

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


# -------------------------------------------------------------------------------------------------
# The log-determinant: f(A) = log det(K_A + λI), over a kernel or over features alone.
# -------------------------------------------------------------------------------------------------

FLOOR = 1e-12  # of the conditional variance: what is left of an exact duplicate without ridge
_LOG_FLOOR = float(np.log(FLOOR))
_INDEFINITE = 1e-6  # of the largest variance: what is this far below 0 is not rounding


def logdet(matrix: Tensor) -> Tensor:
    """Compute log det of a symmetric positive definite (M, M), in float64 where the device has it.

    -inf for a singular one; an indefinite one is refused, since it is no similarity of anything.

    >>> round(float(logdet(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))), 4)
    1.7918
    """
    if matrix.shape[-1] == 0:
        return matrix.new_zeros(())
    wide = matrix if matrix.device.type == "mps" else matrix.double()
    factor, info = torch.linalg.cholesky_ex(wide)
    if int(info) == 0:
        return 2 * factor.diagonal().log().sum().to(matrix.dtype)
    lowest = float(torch.linalg.eigvalsh(wide.detach())[0])
    largest = float(wide.detach().diagonal().amax())
    if lowest < -_INDEFINITE * max(largest, 1e-300):
        raise InputError(
            f"the kernel is not positive semi-definite (smallest eigenvalue {lowest:.3g}); "
            f"use a Gram matrix or rbf, or a ridge above {-lowest:.3g}"
        )
    return matrix.new_full((), -torch.inf)


def logdet_of_products(product_DD: Tensor, rows: int, ridge: float) -> Tensor:
    """Return log det(λI + XX') of X (rows, D) with more rows than D, from X'X (D, D); λ above 0.

    XX' and X'X have the same eigenvalues but for rows - D zeros:
    log det(λI + XX') = (rows - D)·log λ + log det(λI + X'X).

    >>> x = torch.tensor([[1.0], [1.0], [0.0]])
    >>> round(float(logdet_of_products(x.T @ x, 3, 1.0)), 4)  # log 3
    1.0986
    """
    width = len(product_DD)
    eye_DD = torch.eye(width, dtype=product_DD.dtype, device=product_DD.device)
    return (rows - width) * math.log(ridge) + logdet(product_DD + ridge * eye_DD)


@dataclass(frozen=True)
class LogDetState:
    """d_v = K_vv + λ - (what the given and the picked explain), and what is needed to go on."""

    d_N: Tensor  # below 0 by more than rounding only where the kernel is indefinite
    metric_DD: Tensor | None  # features: residual metric P
    rows_KN: Tensor | None  # kernel: rows of the Cholesky factor
    given: Tensor  # the set that was conditioned on, its similarities to others times ``factor``
    factor: Tensor
    picked: tuple[int, ...] = ()


class LogDet(SimilarityFunction):
    """Measure the diversity of a set by the volume that its rows span.

    ``f(A) = log det(K_A + λI)``

    The ridge λ belongs to the definition: with unit diagonal and λ = 0 every gain is ≤ 0, with λ ≥
    1 the function is monotone. From cosine features z (N, D) no N×N matrix is made: with ``P = I -
    Z_A'(K_A + λI)⁻¹Z_A`` and ``d_v = λ + z_v'P z_v``, the gain of v is log d_v.

    Parameters
    ----------
    kernel
        Symmetric, positive semi-definite similarities (N, N).
    ridge
        λ, added to the diagonal.

    Examples
    --------
    >>> f = LogDet([[1.0, 0.5], [0.5, 1.0]], ridge=1.0)
    >>> round(float(f([0])), 4), round(float(f([0, 1])), 4)
    (0.6931, 1.3218)
    >>> from shasam.submodular import maximize
    >>> maximize(LogDet.from_features([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 2).indices.tolist()
    [0, 2]
    """

    compared_by: ClassVar[Similarity] = "cosine"
    submodular = True
    gain_unit = 1.0

    def __init__(self, kernel: Any, ridge: float = 1.0) -> None:
        gram, _ = Similarities.of(kernel).gram()
        if not ridge >= 0:
            raise InputError(f"ridge must not be negative; got {ridge}")
        self.similarities, self.ridge = gram, float(ridge)
        self.n, self.device, self.dtype = gram.n, gram.device, gram.dtype
        self.monotone = ridge >= 1.0
        self._wide_copy: Tensor | None = None
        self._own_N: Tensor | None = None
        self._largest: float | None = None
        self._empty: LogDetState | None = None

    def __call__(self, selected: Any) -> Tensor:
        index, mapped_ND = self.index(selected), self.similarities.mapped_ND
        if mapped_ND is not None and self.ridge > 0 and len(index) > mapped_ND.shape[1]:
            x_AD = mapped_ND[index].to(self.sum_dtype)
            return logdet_of_products(x_AD.T @ x_AD, len(index), self.ridge).to(self.dtype)
        return logdet(self._ridged(index))

    def residual(self, index: Tensor, given: Tensor, factor_G: Tensor) -> Tensor:
        """Return K_A + λI - u'(K_G + λI)⁻¹u, u = factor · K_GA: the kernel of A given a set G."""
        block = self._ridged(index)
        if len(given) == 0:
            return block
        cross = self.similarities.block(index, given) * factor_G
        return block - cross @ torch.linalg.solve(self._ridged(given), cross.T)

    def _ridged(self, index: Tensor) -> Tensor:
        """Return K_A + λI."""
        block = self.similarities.block(index, index)
        return block + self.ridge * torch.eye(len(index), dtype=block.dtype, device=block.device)

    def start(self, given: Any = ()) -> LogDetState:
        index = self.index(given)
        state = self.conditioned(index, torch.ones(len(index), dtype=self.dtype))
        nothing = self.index(())
        return replace(state, given=nothing, factor=state.factor[:0], picked=tuple(index.tolist()))

    def conditioned(self, given: Tensor, factor_G: Tensor) -> LogDetState:
        """Return the state given a set whose similarities to all others are multiplied by a factor.

        d_v = K_vv + λ - u_v'(K_G + λI)⁻¹u_v with u_v = factor · K_Gv; the factor is η for a query
        and ν for a private set.
        """
        wide, d_N = self._wide(), self._variances()
        by_features = self.similarities.mapped_ND is not None
        eye_DD = torch.eye(wide.shape[1] if by_features else 0, dtype=wide.dtype).to(self.device)
        if len(given) == 0:
            rows_KN = None if by_features else wide.new_zeros(0, self.n)
            return LogDetState(d_N, eye_DD if by_features else None, rows_KN, given, factor_G)
        side_GD = wide[given]
        block_GG = side_GD @ side_GD.T if by_features else side_GD[:, given]
        ridge_GG = self.ridge * torch.eye(len(given), dtype=wide.dtype, device=self.device)
        lower_GG, info = torch.linalg.cholesky_ex(block_GG + ridge_GG)
        if int(info):
            raise InputError(
                "the kernel of the given set is singular (duplicates, or more rows than "
                "dimensions); use a ridge above 0"
            )
        factor_G1 = factor_G.to(wide)[:, None]
        side_GD = torch.linalg.solve_triangular(lower_GG, factor_G1 * side_GD, upper=False)
        explained_GN = side_GD @ wide.T if by_features else side_GD
        d_N = d_N - explained_GN.square().sum(dim=0)
        if not by_features:
            return LogDetState(d_N, None, explained_GN, given, factor_G)
        return LogDetState(d_N, eye_DD - side_GD.T @ side_GD, None, given, factor_G)

    def _wide(self) -> Tensor:
        """Return features or kernel in the type in which sums are made, kept once made."""
        if self._wide_copy is None:
            self._wide_copy = self.similarities.base.detach().to(self.sum_dtype)
        return self._wide_copy

    def _variances(self) -> Tensor:
        """Return k_vv + λ; unit vectors have exactly 1, whatever their rounding."""
        if self._own_N is None:
            self._own_N = self.similarities.diagonal(self.sum_dtype)
        return self._own_N + self.ridge

    def _norm(self) -> float:
        """Return at least the largest norm of a row of the features, made once."""
        if self._largest is None:
            assert self._own_N is not None
            self._largest = 1.001 * math.sqrt(float(self._own_N.max()))  # unit rows are rounded
        return self._largest

    def gains(self, state: LogDetState, candidates: Tensor) -> Tensor:
        d_C = state.d_N[candidates]
        if len(d_C) and float(d_C.min()) <= FLOOR:
            self._check_value(state, int(candidates[int(d_C.argmin())]))
        return d_C.clamp_min(FLOOR).log()

    def _check_value(self, state: LogDetState, v: int) -> None:
        """Refuse A + v as f(A + v) does where the kernel given the set is indefinite."""
        index = self.index([*state.picked, v])
        logdet(self.residual(index, state.given, state.factor.to(self.dtype)).detach())

    def add(self, state: LogDetState, v: int) -> LogDetState:
        d_v, picked = state.d_N[v], (*state.picked, v)
        if float(d_v) <= FLOOR:  # an exact duplicate without ridge carries nothing
            self._check_value(state, v)
            return replace(state, picked=picked)
        root = d_v.sqrt()
        if state.metric_DD is not None:
            z_ND = self._wide()
            w_D = state.metric_DD @ z_ND[v] / root
            e_N = z_ND @ w_D
            metric_DD, rows_KN = state.metric_DD - torch.outer(w_D, w_D), None
        else:
            assert state.rows_KN is not None
            row_N = self._wide()[v]
            e_N = (row_N - state.rows_KN[:, v] @ state.rows_KN) / root
            metric_DD, rows_KN = None, torch.cat([state.rows_KN, e_N[None]])
        d_N = state.d_N - e_N.square()
        return replace(state, d_N=d_N, metric_DD=metric_DD, rows_KN=rows_KN, picked=picked)

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.device.type != "cpu":
            return None
        return self.greedy_from(self._fresh(), k, candidates, lazy)

    def _fresh(self) -> LogDetState:
        """Return an empty state, made once, without the float64 copy that ``add`` needs."""
        if self._empty is None:
            nothing, one = self.index(()), torch.empty(0, dtype=self.dtype)
            empty_DD = torch.empty(0, 0, dtype=torch.float64)  # the loop reads it as I
            rows_KN = torch.zeros(0, self.n, dtype=torch.float64)
            by_features = self.similarities.mapped_ND is not None
            metric_DD, known_KN = (empty_DD, None) if by_features else (None, rows_KN)
            self._empty = LogDetState(self._variances(), metric_DD, known_KN, nothing, one)
        return self._empty

    def greedy_from(
        self, state: LogDetState, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the compiled walk from a given state; the state is not changed."""
        d_N, picks = state.d_N.numpy(), candidates.numpy()
        if state.metric_DD is not None:
            z_ND = np.ascontiguousarray(self.similarities.base.detach().numpy())
            metric_DD = state.metric_DD.numpy()
            eps = float(np.finfo(z_ND.dtype).eps)
            walked = logdet_greedy_features(
                z_ND, metric_DD, d_N, self._norm(), eps, FLOOR, picks, k, lazy
            )
        else:
            assert state.rows_KN is not None
            given = len(state.rows_KN)
            c_CK = np.zeros((len(picks), given + k), np.float64)
            c_CK[:, :given] = state.rows_KN.T[candidates].numpy()
            kernel = np.ascontiguousarray(self.similarities.base.detach().numpy())
            d_C = np.maximum(d_N[picks], FLOOR)
            walked = logdet_greedy_kernel(kernel, c_CK, d_C, FLOOR, picks, given, k, lazy)
        if len(walked[1]) and walked[1].min() <= _LOG_FLOOR:
            first = int(np.flatnonzero(walked[1] <= _LOG_FLOOR)[0])
            before = tuple(int(v) for v in walked[0][:first])
            self._check_value(replace(state, picked=before), int(walked[0][first]))
        return walked

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        return LogDet(self.similarities.part(index), self.ridge)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        if eta == 1.0 and nu == 1.0:
            return self
        return LogDet(self.similarities.magnified(query, eta, private, nu), self.ridge)


State = tuple[LogDetState, LogDetState | None]


class _LogDetMeasure(SimilarityFunction):
    """log det of A given one set, less log det of A given another, by Schur complements."""

    compared_by: ClassVar[Similarity] = "cosine"
    gain_unit = 1.0

    def __init__(
        self, kernel: Any, query: Any, private: Any, ridge: float, eta: float, nu: float
    ) -> None:
        s = Similarities.of(kernel)
        check_strength(eta, nu)
        gram, (q, p) = s.gram(*s.sets(query, private))
        self.f = f = LogDet(gram, ridge)
        self.n, self.device, self.dtype = f.n, f.device, f.dtype
        self.candidates = gram.candidates(q, p)
        nu_P = torch.full((len(p),), nu, dtype=f.dtype, device=f.device)
        eta_Q = torch.full((len(q),), eta, dtype=f.dtype, device=f.device)
        self.plus = f.conditioned(p, nu_P)
        self.minus: LogDetState | None = None
        if query is not None:
            self.minus = f.conditioned(torch.cat([q, p]), torch.cat([eta_Q, nu_P]))
        # log d given P, less log d given Q and P: a difference of submodular functions.
        self.submodular = query is None
        if query is None:
            self.monotone = nu <= 1.0 and f.ridge >= 1.0
        else:  # two different factors need not leave a positive semi-definite kernel
            self.monotone = eta <= 1.0 and (private is None or eta == nu)

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        both = self.plus if self.minus is None else self.minus
        gram = self.f.similarities.part(torch.cat([index, both.given]))
        members = len(both.given) - len(self.plus.given)  # of the query, which comes first
        query, private = len(index) + members, len(index) + len(both.given)
        return _LogDetMeasure(
            gram,
            None if self.minus is None else range(len(index), query),
            None if query == private else range(query, private),
            self.f.ridge,
            float(both.factor[0]),
            float(both.factor[-1]),
        )

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        value = logdet(self.f.residual(index, self.plus.given, self.plus.factor))
        if self.minus is None:
            return value
        return value - logdet(self.f.residual(index, self.minus.given, self.minus.factor))

    def start(self, given: Any = ()) -> State:
        state = (self.plus, self.minus)
        for v in self.index(given).tolist():
            state = self.add(state, v)
        return state

    def gains(self, state: State, candidates: Tensor) -> Tensor:
        for part in state:
            if part is not None:
                self._check_strength(part.d_N[candidates])
        gains_C = self.f.gains(state[0], candidates)
        return gains_C if state[1] is None else gains_C - self.f.gains(state[1], candidates)

    def add(self, state: State, v: int) -> State:
        for part in state:
            if part is not None:
                self._check_strength(part.d_N[v])
        minus = None if state[1] is None else self.f.add(state[1], v)
        return self.f.add(state[0], v), minus

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.minus is not None or self.device.type != "cpu":
            return None
        self._check_strength(self.plus.d_N.numpy()[candidates.numpy()])
        walked = self.f.greedy_from(self.plus, k, candidates, lazy)
        self._check_strength(np.exp(walked[1]))
        return walked

    def _check_strength(self, d: Tensor | np.ndarray) -> None:
        """Check that a conditional variance is at least the ridge; η or ν can break the kernel."""
        if self.f.ridge > FLOOR and 0 not in d.shape and float(d.min()) <= FLOOR * (1 + 1e-9):
            factor = self.plus.factor if self.minus is None else self.minus.factor
            raise InputError(
                f"eta and nu ({factor.unique().tolist()}) leave no positive semi-definite kernel "
                "here; use values up to 1, or a larger ridge"
            )


class LogDetMI(_LogDetMeasure):
    """Measure the volume that a set shares with the query.

    ``I(A; Q) = log det(K_A) - log det(K_A - η² K_AQ K_Q⁻¹ K_QA), each block with its ridge``

    Not submodular in A: lazy greedy would be wrong, and ``maximize`` refuses it.

    Parameters
    ----------
    kernel
        Symmetric, positive semi-definite similarities (N, N); ``from_features`` takes features
        (N, D).
    query
        Indices of the query; from features its features (Q, D).
    ridge
        λ, added to the diagonal of each block.
    eta
        η, a factor of the similarities to the query.

    Examples
    --------
    >>> f = LogDetMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0])
    >>> round(float(f([1])), 4), round(float(f([2])), 4)
    (0.0645, 0.0)
    >>> LogDetMI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]).submodular
    False
    """

    def __init__(self, kernel: Any, query: Any, ridge: float = 1.0, eta: float = 1.0) -> None:
        super().__init__(kernel, query, None, ridge, eta, 1.0)


class LogDetCG(_LogDetMeasure):
    """Measure the volume that a set adds to a private set.

    ``H(A | P) = log det(K_A - ν² K_AP K_P⁻¹ K_PA), each block with its ridge``

    Parameters
    ----------
    kernel
        Symmetric, positive semi-definite similarities (N, N); ``from_features`` takes features
        (N, D).
    private
        Indices of the private set; from features its features (P, D).
    ridge
        λ, added to the diagonal of each block.
    nu
        ν, a factor of the similarities to the private set.

    Examples
    --------
    >>> f = LogDetCG([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], private=[0])
    >>> round(float(f([1])), 4), round(float(f([2])), 4)
    (0.6286, 0.6931)
    >>> LogDetCG.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]).candidates.tolist()
    [0, 1]
    """

    def __init__(self, kernel: Any, private: Any, ridge: float = 1.0, nu: float = 1.0) -> None:
        super().__init__(kernel, None, private, ridge, 1.0, nu)


class LogDetCMI(_LogDetMeasure):
    """Measure the volume that a set shares with the query beyond a private set.

    ``I(A; Q | P) = log det(K_A | P) - log det(K_A | Q ∪ P)``

    Equal to the ratio in the paper's Table 1.

    Parameters
    ----------
    kernel
        Symmetric, positive semi-definite similarities (N, N); ``from_features`` takes features
        (N, D).
    query
        Indices of the query; from features its features (Q, D).
    private
        Indices of the private set; from features its features (P, D).
    ridge
        λ, added to the diagonal of each block.
    eta
        η, a factor of the similarities to the query.
    nu
        ν, a factor of the similarities to the private set.

    Examples
    --------
    >>> f = LogDetCMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0], private=[2])
    >>> round(float(f([1])), 4)
    0.069
    >>> LogDetCMI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], [[1.0, -1.0]]).n
    4
    """

    def __init__(
        self,
        kernel: Any,
        query: Any,
        private: Any,
        ridge: float = 1.0,
        eta: float = 1.0,
        nu: float = 1.0,
    ) -> None:
        super().__init__(kernel, query, private, ridge, eta, nu)
