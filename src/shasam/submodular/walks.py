"""Greedy walks over any set function, with nothing but its ``start``, ``gains`` and ``add``.

``maximize`` uses them where a function has no compiled walk of its own, and for costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.blocks import TIE
from shasam.submodular.set_function import SetFunction
from shasam.types import Selection

_CHUNK, _MOST = 64, 4096  # candidates that lazy looks at together, at first and at most

Progress = Callable[[int, int], None]  # called with what is done and the whole


def walk(
    f: SetFunction,
    k: int,
    pool: Tensor,
    *,
    lazy: bool,
    costs_N: Tensor | None = None,
    budget: float = math.inf,
    by_ratio: bool = False,
    progress: Progress | None = None,
) -> Selection:
    """At most k picks by gain, or by gain over cost; with costs, as long as something fits.

    Without costs exactly k picks are made. With costs the walk stops where nothing that fits
    gains anything.
    """
    state, indices, gains, left = f.start(), [], [], budget
    bound_C = f.gains(state, pool)
    evaluations = len(pool)
    for step in range(k):
        if costs_N is not None:
            fits_C = costs_N[pool] <= left
            pool, bound_C = pool[fits_C], bound_C[fits_C]
        if len(pool) == 0:
            break
        weight_C = 1 / costs_N[pool].to(bound_C.dtype) if by_ratio and costs_N is not None else None
        if step > 0:
            evaluations += _renew(f, state, pool, bound_C, weight_C, lazy)
        score_C = bound_C if weight_C is None else bound_C * weight_C
        best = first_best(score_C, f.gain_unit)
        if costs_N is not None and float(bound_C[best]) <= 0:
            break
        v = int(pool[best])
        indices.append(v)
        gains.append(float(bound_C[best]))
        left -= 0.0 if costs_N is None else float(costs_N[v])
        state = f.add(state, v)
        keep_C = torch.ones(len(pool), dtype=torch.bool, device=pool.device)
        keep_C[best] = False
        pool, bound_C = pool[keep_C], bound_C[keep_C]
        if progress is not None:
            progress(step + 1, k)
    return selection(f, indices, gains, evaluations, "lazy" if lazy else "naive")


def _renew(
    f: SetFunction,
    state: object,
    pool: Tensor,
    bound_C: Tensor,
    weight_C: Tensor | None,
    lazy: bool,
) -> int:
    """New gains, in place: all of them, or as long as an old one could still win."""
    if not lazy:
        bound_C[:] = f.gains(state, pool)
        return len(pool)
    fresh_C = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    evaluations, size = 0, _CHUNK
    while True:
        score_C = bound_C if weight_C is None else bound_C * weight_C
        cut = -math.inf
        if bool(fresh_C.any()):
            top = float(score_C[fresh_C].max())
            cut = top - TIE * max(abs(top), f.gain_unit)
        open_C = (~fresh_C & (score_C >= cut)).nonzero().flatten()
        if len(open_C) == 0:
            return evaluations
        chunk = open_C[score_C[open_C].topk(min(size, len(open_C))).indices]
        size = min(2 * size, _MOST)  # many that could win: fewer scans of all bounds
        bound_C[chunk] = f.gains(state, pool[chunk])
        evaluations += len(chunk)
        fresh_C[chunk] = True


def stochastic(
    f: SetFunction,
    k: int,
    pool: Tensor,
    generator: torch.Generator | None,
    epsilon: float,
    progress: Progress | None = None,
) -> Selection:
    """Each step looks at a random n/k · log(1/ε) of what is left."""
    if not 0 < epsilon < 1:
        raise InputError(f"epsilon must be between 0 and 1; got {epsilon}")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    size = math.ceil(len(pool) / max(k, 1) * math.log(1 / epsilon))
    state, indices, gains, evaluations = f.start(), [], [], 0
    for step in range(k):
        order = torch.randperm(len(pool), generator=generator, device=generator.device)
        sample = order[:size].sort().values.to(pool.device)
        gains_C = f.gains(state, pool[sample])
        evaluations += len(sample)
        chosen = first_best(gains_C, f.gain_unit)
        best = int(sample[chosen])
        v = int(pool[best])
        indices.append(v)
        gains.append(float(gains_C[chosen]))
        state = f.add(state, v)
        pool = torch.cat([pool[:best], pool[best + 1 :]])
        if progress is not None:
            progress(step + 1, k)
    return selection(f, indices, gains, evaluations, "stochastic")


def first_best(gains_C: Tensor, unit: float) -> int:
    """The position of the largest gain; the first among those that tie with it."""
    top = gains_C.max()
    slack = TIE * max(abs(float(top)), unit) if math.isfinite(float(top)) else 0.0
    return int((gains_C >= top - slack).to(torch.uint8).argmax())


def selection(
    f: SetFunction, indices: list[int], gains: list[float], evaluations: int, optimizer: str
) -> Selection:
    return Selection(
        torch.tensor(indices, dtype=torch.int64, device=f.device),
        torch.tensor(gains, dtype=f.dtype, device=f.device),
        evaluations,
        optimizer,
    )
