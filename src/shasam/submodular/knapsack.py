"""Greedy maximisation within a budget: every element has a cost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.blocks import TIE
from shasam.submodular.set_function import SetFunction
from shasam.submodular.walks import Progress, walk
from shasam.types import Selection


def maximize_within(
    f: SetFunction,
    pool: Tensor,
    costs: Any,
    budget: float,
    k: int,
    *,
    lazy: bool,
    progress: Progress | None = None,
) -> Selection:
    """The better of two walks: by gain over cost, and by gain, each as long as something fits.

    For a monotone submodular f its value is at least (1 - 1/e)/2 of the best within the budget
    (Leskovec et al. 2007); either walk alone has no such bound.
    """
    costs_N = check_costs(costs, f)
    if not budget > 0:
        raise InputError(f"budget must be above 0; got {budget}")
    if float(costs_N[pool].min()) > budget:
        raise InputError(
            f"no candidate fits: the cheapest costs {float(costs_N[pool].min()):.6g} and the "
            f"budget is {budget:.6g}"
        )
    found = [
        walk(
            f,
            k,
            pool,
            lazy=lazy,
            costs_N=costs_N,
            budget=budget,
            by_ratio=by_ratio,
            progress=progress,
        )
        for by_ratio in (True, False)
    ]
    ratio, plain = found
    value, other = (float(chosen.gains.double().sum()) for chosen in found)
    best = plain if other > value + TIE * abs(value) else ratio
    looked = ratio.evaluations + plain.evaluations
    return Selection(best.indices, best.gains, looked, best.optimizer)


def check_costs(costs: Any, f: SetFunction) -> Tensor:
    """One positive number per element."""
    costs_N = torch.as_tensor(costs, dtype=torch.float64).to(f.device, f.sum_dtype).reshape(-1)
    if len(costs_N) != f.n:
        raise InputError(f"costs must hold one number per element, {f.n}; got {len(costs_N)}")
    wrong = (~(costs_N > 0) | torch.isinf(costs_N)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"costs must be positive numbers; element {first} costs {float(costs_N[first])} "
            f"({len(wrong)} such elements)"
        )
    return costs_N
