"""Greedy maximisation under a cardinality constraint: exactly k picks, gains in order.

naive       every gain at every step, batched
lazy        a gain is looked at again only if its old value could still win; exact for submodular f
stochastic  lazier than lazy greedy (Mirzasoleiman et al. 2015): each step looks at a random
            n/k · log(1/ε) of what is left
auto        lazy where that is exact, else naive

Ties, gains closer than 1e-10 relative, go to the lowest index: the answer depends neither on the
optimiser, as long as it is exact, nor on the device.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.registry import did_you_mean
from shasam.submodular.blocks import TIE
from shasam.submodular.set_function import SetFunction
from shasam.types import Selection

Optimizer = Literal["auto", "naive", "lazy", "stochastic"]
_OPTIMIZERS = ("auto", "naive", "lazy", "stochastic")
_CHUNK = 64  # candidates that lazy looks at together where there is no compiled walk


@torch.no_grad()
def maximize(
    f: SetFunction,
    k: int,
    *,
    candidates: Any = None,
    optimizer: Optimizer = "auto",
    generator: torch.Generator | None = None,
    epsilon: float = 0.1,
) -> Selection:
    """Pick exactly k elements greedily; negative gains do not stop it.

    Parameters: ``candidates`` restricts the picks (default: all but query and private set);
    ``generator`` and ``epsilon`` belong to ``stochastic``.

    >>> from shasam.submodular import FacilityLocation
    >>> f = FacilityLocation.from_features([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> maximize(f, 2).indices.tolist()
    [1, 2]
    """
    if optimizer not in _OPTIMIZERS:
        raise InputError(
            f"there is no optimizer {optimizer!r}{did_you_mean(optimizer, _OPTIMIZERS)}"
        )
    pool = _pool(f, candidates)
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise InputError(f"k must be a whole number; got {k!r}")
    if k < 0:
        raise InputError(f"k must not be negative; got {k}")
    if k > len(pool):
        raise InputError(
            f"cannot pick k = {k} of {len(pool)} candidates; ask for at most {len(pool)}"
        )
    if optimizer == "lazy" and not f.submodular:
        raise InputError(
            f"{type(f).__name__} is not submodular, so an old gain is no upper bound and lazy "
            "greedy may miss the best pick; use optimizer='naive' or 'auto'"
        )
    f.check_maximizable()
    if optimizer == "auto":
        optimizer = "lazy" if f.submodular else "naive"
    if optimizer == "stochastic":
        return _stochastic(f, int(k), pool, generator, epsilon)
    walked = f.greedy(int(k), pool, optimizer == "lazy") if k else None
    if walked is not None:
        indices, gains = torch.from_numpy(walked[0]), torch.from_numpy(walked[1]).to(f.dtype)
        return Selection(indices, gains, int(walked[2]), optimizer)
    return (_lazy if optimizer == "lazy" else _naive)(f, int(k), pool)


def _pool(f: SetFunction, candidates: Any) -> Tensor:
    """The candidates in ascending order."""
    if candidates is None:
        # numpy's arange: a walk over few represented rows is shorter than torch's own
        everything = torch.from_numpy(np.arange(f.n)) if f.candidates is None else f.candidates
        return everything.to(f.device)
    pool = f.index(candidates).sort().values
    if len(pool) == 0:
        raise InputError("the candidate set is empty; there is nothing to select from")
    if f.candidates is not None:
        stray = pool[~torch.isin(pool, f.candidates)]
        if len(stray):
            raise InputError(
                f"candidate {int(stray[0])} belongs to the query or private set "
                f"({len(stray)} such candidates); leave them out"
            )
    return pool


def _best(gains_C: Tensor, unit: float) -> int:
    """The position of the largest gain; the first among those that tie with it."""
    top = gains_C.max()
    slack = TIE * max(abs(float(top)), unit) if math.isfinite(float(top)) else 0.0
    return int((gains_C >= top - slack).to(torch.uint8).argmax())


def _naive(f: SetFunction, k: int, pool: Tensor) -> Selection:
    state, indices, gains, evaluations = f.start(), [], [], 0
    for _ in range(k):
        gains_C = f.gains(state, pool)
        evaluations += len(pool)
        best = _best(gains_C, f.gain_unit)
        v = int(pool[best])
        indices.append(v)
        gains.append(float(gains_C[best]))
        state = f.add(state, v)
        pool = torch.cat([pool[:best], pool[best + 1 :]])
    return _selection(f, indices, gains, evaluations, "naive")


def _lazy(f: SetFunction, k: int, pool: Tensor) -> Selection:
    state, indices, gains = f.start(), [], []
    bound_C = f.gains(state, pool)
    evaluations = len(pool)
    for step in range(k):
        if step > 0:
            fresh_C = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
            while True:
                top = (
                    bound_C[fresh_C].max()
                    if bool(fresh_C.any())
                    else bound_C.new_tensor(-torch.inf)
                )
                slack = TIE * max(abs(float(top)), f.gain_unit) if bool(fresh_C.any()) else 0.0
                open_C = (~fresh_C & (bound_C >= top - slack)).nonzero().flatten()
                if len(open_C) == 0:
                    break
                chunk = open_C[bound_C[open_C].argsort(descending=True)[:_CHUNK]]
                bound_C[chunk] = f.gains(state, pool[chunk])
                evaluations += len(chunk)
                fresh_C[chunk] = True
        best = _best(bound_C, f.gain_unit)
        v = int(pool[best])
        indices.append(v)
        gains.append(float(bound_C[best]))
        state = f.add(state, v)
        keep_C = torch.ones(len(pool), dtype=torch.bool, device=pool.device)
        keep_C[best] = False
        pool, bound_C = pool[keep_C], bound_C[keep_C]
    return _selection(f, indices, gains, evaluations, "lazy")


def _stochastic(
    f: SetFunction, k: int, pool: Tensor, generator: torch.Generator | None, epsilon: float
) -> Selection:
    if not 0 < epsilon < 1:
        raise InputError(f"epsilon must be between 0 and 1; got {epsilon}")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    size = math.ceil(len(pool) / max(k, 1) * math.log(1 / epsilon))
    state, indices, gains, evaluations = f.start(), [], [], 0
    for _ in range(k):
        order = torch.randperm(len(pool), generator=generator, device=generator.device)
        sample = order[:size].sort().values.to(pool.device)
        gains_C = f.gains(state, pool[sample])
        evaluations += len(sample)
        chosen = _best(gains_C, f.gain_unit)
        best = int(sample[chosen])
        v = int(pool[best])
        indices.append(v)
        gains.append(float(gains_C[chosen]))
        state = f.add(state, v)
        pool = torch.cat([pool[:best], pool[best + 1 :]])
    return _selection(f, indices, gains, evaluations, "stochastic")


def _selection(
    f: SetFunction, indices: list[int], gains: list[float], evaluations: int, optimizer: str
) -> Selection:
    return Selection(
        torch.tensor(indices, dtype=torch.int64, device=f.device),
        torch.tensor(gains, dtype=f.dtype, device=f.device),
        evaluations,
        optimizer,
    )
