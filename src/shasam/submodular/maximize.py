"""Greedy maximisation: k picks, or picks within a budget; gains in order.

naive       every gain at every step, batched
lazy        a gain is looked at again only if its old value could still win; exact for submodular f
stochastic  lazier than lazy greedy (Mirzasoleiman et al. 2015): each step looks at a random
            n/k · log(1/ε) of what is left
auto        lazy where that is exact, else naive

Ties, gains closer than 1e-10 relative, go to the lowest index: the answer depends neither on the
optimiser, as long as it is exact, nor on the device.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.registry import did_you_mean
from shasam.submodular.knapsack import maximize_within
from shasam.submodular.partition import Mapper, maximize_parts, side_by_side
from shasam.submodular.set_function import SetFunction
from shasam.submodular.walks import Progress, stochastic, walk
from shasam.types import Selection

Optimizer = Literal["auto", "naive", "lazy", "stochastic"]
Engine = Literal["local", "ray"]
_OPTIMIZERS = ("auto", "naive", "lazy", "stochastic")


@torch.no_grad()
def maximize(
    f: SetFunction,
    k: int | None = None,
    *,
    candidates: Any = None,
    initial: Any = None,
    costs: Any = None,
    budget: float | None = None,
    partitions: int | None = None,
    engine: Engine = "local",
    optimizer: Optimizer = "auto",
    generator: torch.Generator | None = None,
    epsilon: float = 0.1,
    progress: Progress | None = None,
) -> Selection:
    """Pick exactly k elements greedily; negative gains do not stop it.

    Parameters
    ----------
    k
        How many. For a monotone submodular f the value is at least 1 - 1/e of the best k.
    candidates
        What may be picked; by default all but query and private set.
    initial
        Elements that are already picked: k more are picked, and the gains are given them.
    costs, budget
        One positive cost per element; instead of k elements, or in addition to at most k, picks
        whose costs stay within the budget. The better of two walks, by gain over cost and by
        gain: at least (1 - 1/e)/2 of the best for a monotone submodular f. It stops where nothing
        that fits gains anything.
    partitions
        Two rounds over this many random parts (GreeDi), for more elements than a kernel fits:
        k picks in every part, then k of those. At least (1 - 1/e)/2 of the best in expectation
        for a monotone submodular f, where every part evaluates f exactly. Facility location over
        features does not: a part stands for itself, and round two for a sample of all rows where
        all do not fit in 1 GiB; the gains that are returned are exact. ``certify`` says how far
        the picks can be from the optimum.
    engine
        "ray" picks from the parts as tasks of Ray, which must be installed (``shasam[ray]``):
        of the cluster that ``ray.init`` has joined, or of this machine. The picks are the same.
    optimizer, generator, epsilon
        ``generator`` and ``epsilon`` belong to "stochastic", ``generator`` to the random parts.
    progress
        Called with (done, whole) after each part, or after each pick of a walk in Python.

    >>> from shasam.submodular import FacilityLocation
    >>> f = FacilityLocation.from_features([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> maximize(f, 2).indices.tolist()
    [1, 2]
    >>> maximize(f, 1, initial=[2]).indices.tolist()
    [0]
    >>> maximize(f, costs=[1.0, 5.0, 1.0], budget=2.0).indices.tolist()
    [0, 2]
    """
    if optimizer not in _OPTIMIZERS:
        raise InputError(
            f"there is no optimizer {optimizer!r}{did_you_mean(optimizer, _OPTIMIZERS)}"
        )
    pool = _pool(f, candidates)
    if initial is not None:
        given = f.index(initial)
        pool = pool[~torch.isin(pool, given)]
        f = f.after(given) if len(given) else f
    k = _check_k(k, len(pool), budget is not None or costs is not None)
    if optimizer == "lazy" and not f.submodular:
        raise InputError(
            f"{type(f).__name__} is not submodular, so an old gain is no upper bound and lazy "
            "greedy may miss the best pick; use optimizer='naive' or 'auto'"
        )
    if optimizer == "auto":
        optimizer = "lazy" if f.submodular else "naive"
    if partitions is not None:
        if costs is not None or budget is not None:
            raise InputError("partitions and costs cannot be combined; leave one of them out")
        if k == 0:
            raise InputError("k = 0 needs no partitions; leave them out")
        return maximize_parts(
            f,
            k,
            pool,
            partitions,
            optimizer=optimizer,
            generator=generator,
            progress=progress,
            mapper=_mapper(f, engine),
        )
    if engine != "local":
        raise InputError(f"engine={engine!r} shares out parts; say how many: partitions=…")
    f.check_maximizable()
    if costs is not None or budget is not None:
        if costs is None or budget is None or optimizer == "stochastic":
            raise InputError("costs and budget belong together, without optimizer='stochastic'")
        lazy = optimizer == "lazy"
        return maximize_within(f, pool, costs, budget, k, lazy=lazy, progress=progress)
    if optimizer == "stochastic":
        return stochastic(f, k, pool, generator, epsilon, progress)
    walked = f.greedy(k, pool, optimizer == "lazy") if k else None
    if walked is not None:
        indices, gains = torch.from_numpy(walked[0]), torch.from_numpy(walked[1]).to(f.dtype)
        return Selection(indices, gains, int(walked[2]), optimizer)
    return walk(f, k, pool, lazy=optimizer == "lazy", progress=progress)


def _mapper(f: SetFunction, engine: str) -> Mapper:
    if engine == "local":
        return side_by_side
    if engine != "ray":
        raise InputError(f"there is no engine {engine!r}; there are local and ray")
    if f.device.type != "cpu":
        raise InputError(
            f"engine='ray' picks on processors, and the function is on {f.device}; give it "
            "features on the CPU, or leave the engine out"
        )
    from shasam.submodular.ray_parts import on_ray

    return on_ray


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


def _check_k(k: int | None, most: int, has_budget: bool) -> int:
    if k is None and has_budget:
        return most
    if k is None:
        raise InputError("say how many to pick: maximize(f, k), or give costs and a budget")
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise InputError(f"k must be a whole number; got {k!r}")
    if k < 0:
        raise InputError(f"k must not be negative; got {k}")
    if k > most:
        raise InputError(f"cannot pick k = {k} of {most} candidates; ask for at most {most}")
    return int(k)
