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

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from shasam.cluster import connected
from shasam.errors import ClusterError, InputError, ShasamError
from shasam.registry import did_you_mean
from shasam.submodular import loops
from shasam.submodular.kernels import sample_rows
from shasam.submodular.loops import TIE
from shasam.submodular.set_function import SetFunction
from shasam.types import Selection

# -------------------------------------------------------------------------------------------------
# Greedy walks over any set function, with nothing but its `start`, `gains` and `add`.
#
# `maximize` uses them where a function has no compiled walk of its own, and for costs.
# -------------------------------------------------------------------------------------------------

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
    quotas: Quotas | None = None,
    progress: Progress | None = None,
) -> Selection:
    """Return at most k picks by gain, or by gain over cost; with costs, as long as something fits.

    Without costs exactly k picks are made, or as many as the quotas leave. With costs the walk
    stops where nothing that fits gains anything.
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
        if quotas is not None:
            keep_C &= quotas.open_after(v, pool)
        pool, bound_C = pool[keep_C], bound_C[keep_C]
        if progress is not None:
            progress(step + 1, k)
    return selection(f, indices, gains, evaluations, "lazy" if lazy else "naive")


class Quotas:
    """How many elements of each group may be picked: a partition matroid."""

    def __init__(self, f: SetFunction, groups: Any, at_most: Any) -> None:
        names = groups.tolist() if isinstance(groups, Tensor | np.ndarray) else list(groups)
        if len(names) != f.n:
            raise InputError(f"groups must name one group per element, {f.n}; got {len(names)}")
        known = list(dict.fromkeys(names))
        places = {name: place for place, name in enumerate(known)}
        asked = at_most if isinstance(at_most, Mapping) else dict.fromkeys(known, at_most)
        stray = [name for name in asked if name not in places]
        if stray:
            raise InputError(f"at_most names {stray[0]!r}, and no element is of that group")
        for name, many in asked.items():
            if isinstance(many, bool) or not isinstance(many, int | np.integer) or many < 0:
                raise InputError(f"at_most must be whole numbers; group {name!r} has {many!r}")
        self.group_N = torch.tensor([places[name] for name in names], device=f.device)
        self.left = [int(asked.get(name, f.n)) for name in known]  # what is not named is free

    def of(self, pool: Tensor) -> Tensor:
        """Return the elements of a pool that may be picked at all."""
        full = torch.tensor([left == 0 for left in self.left], device=pool.device)
        return pool[~full[self.group_N[pool]]]

    def most(self, pool: Tensor) -> int:
        """Return how many elements of a pool can be picked."""
        held = torch.bincount(self.group_N[pool], minlength=len(self.left)).tolist()
        return sum(map(min, held, self.left))

    def open_after(self, v: int, pool: Tensor) -> Tensor:
        """Count a pick; (C,): who can be picked still."""
        group = int(self.group_N[v])
        self.left[group] -= 1
        keep_C = torch.ones(len(pool), dtype=torch.bool, device=pool.device)
        return keep_C if self.left[group] else self.group_N[pool] != group


def _renew(
    f: SetFunction,
    state: object,
    pool: Tensor,
    bound_C: Tensor,
    weight_C: Tensor | None,
    lazy: bool,
) -> int:
    """Compute new gains in place: all of them, or as long as an old one could still win."""
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
    """Look in each step at a random n/k · log(1/ε) of what is left."""
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
    """Return the position of the largest gain; the first among those that tie with it."""
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


# -------------------------------------------------------------------------------------------------
# Greedy maximisation within a budget: every element has a cost.
# -------------------------------------------------------------------------------------------------


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
    """Take the better of two walks, by gain over cost and by gain, each as long as something fits.

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


def check_costs(costs: Any, f: SetFunction, n: int | None = None) -> Tensor:
    """Return one positive number per element, or for the first n of them."""
    n = f.n if n is None else n
    costs_N = torch.as_tensor(costs, dtype=torch.float64).to(f.device, f.sum_dtype).reshape(-1)
    if len(costs_N) != n:
        raise InputError(f"costs must hold one number per element, {n}; got {len(costs_N)}")
    wrong = (~(costs_N > 0) | torch.isinf(costs_N)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"costs must be positive numbers; element {first} costs {float(costs_N[first])} "
            f"({len(wrong)} such elements)"
        )
    return costs_N


# -------------------------------------------------------------------------------------------------
# Maximisation in two rounds over random parts of the ground set (GreeDi).
#
# Round one picks k elements in each part by itself; round two picks k of those. Each part is a
# task of its own, and `maximize_parts` takes the mapper that carries the tasks out: a part is made
# here, with the rows that belong to it, and picked from anywhere.
# -------------------------------------------------------------------------------------------------

_ENTRIES = 2**28  # of the kernel of round two: 1 GiB of float32


@dataclass(frozen=True)
class Part:
    """Some elements of a ground set, and the function over them."""

    index: Tensor
    f: SetFunction
    whole: bool  # nothing is known of parts of f: it is all of f, with ``index`` as candidates


Picked = tuple[Tensor, int]  # elements, and how many gains were computed
# (make a part here, pick from it anywhere, the indices of all parts) -> what was picked, in order
Mapper = Callable[
    [Callable[[Tensor], Part], Callable[[Part], Picked], list[Tensor]], Iterable[Picked]
]


def side_by_side(
    make: Callable[[Tensor], Part], pick: Callable[[Part], Picked], parts: list[Tensor]
) -> Iterable[Picked]:
    """Return the mapper of one machine: several parts at the same time, with one thread each."""
    return loops.each(lambda index: pick(make(index)), parts)


def maximize_parts(
    f: SetFunction,
    k: int,
    pool: Tensor,
    partitions: int,
    *,
    optimizer: str,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    mapper: Mapper = side_by_side,
) -> Selection:
    """Split, pick from every part, pick from the picks; the best set that was seen is returned.

    For a monotone submodular f that every part evaluates exactly, the expected value is at least
    (1 - 1/e)/2 of the optimum (Barbosa et al. 2015, random partition). Facility location over
    features is not evaluated exactly: a part stands for itself, and round two for a sample of
    the represented rows if all of them do not fit. ``certify`` bounds what that costs.
    """
    generator = generator or torch.Generator().manual_seed(0)
    parts = split(pool, partitions, generator)
    picks, evaluations = [], 0
    for done, (chosen, looked) in enumerate(
        mapper(partial(part_of, f), partial(pick_from, k=k, optimizer=optimizer), parts), start=1
    ):
        picks.append(chosen.to(f.device))
        evaluations += looked
        if progress is not None:
            progress(done, len(parts) + 1)
    best, looked = merge_picks(f, picks, k, optimizer, generator)
    if progress is not None:
        progress(len(parts) + 1, len(parts) + 1)
    return Selection(
        best, f.gains_along(best), evaluations + looked, f"{optimizer}, {len(parts)} parts"
    )


def split(pool: Tensor, partitions: int, generator: torch.Generator) -> list[Tensor]:
    """Return random parts of nearly equal size, each in ascending order."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise InputError(f"partitions must be a whole number of at least 1; got {partitions!r}")
    if partitions > len(pool):
        raise InputError(f"{len(pool)} candidates cannot make {partitions} parts")
    order = torch.randperm(len(pool), generator=generator).to(pool.device)
    return [pool[part.sort().values] for part in order.tensor_split(partitions)]


def part_of(f: SetFunction, index: Tensor) -> Part:
    """Return a part with what round one needs of f."""
    local = f.part(index)
    return Part(index, f, True) if local is None else Part(index, local, False)


def pick_from(part: Part, *, k: int, optimizer: str) -> Picked:
    """Round one: up to k elements of a part, and how many gains were computed."""

    pool = part.index if part.whole else None
    k = min(k, len(part.index))
    chosen = maximize(part.f, k, candidates=pool, optimizer=optimizer)  # type: ignore[arg-type]
    return chosen.indices if part.whole else part.index[chosen.indices], chosen.evaluations


def merge_picks(
    f: SetFunction,
    picks: list[Tensor],
    k: int,
    optimizer: str,
    generator: torch.Generator,
) -> tuple[Tensor, int]:
    """Round two: k of the picks of all parts; a part's own picks where they are worth more."""

    union = torch.cat(picks).sort().values
    judge = f.part(union, _columns(f, len(union), generator))
    if judge is None:
        chosen = maximize(f, k, candidates=union, optimizer=optimizer)  # type: ignore[arg-type]
        sets = [chosen.indices, *(p for p in picks if len(p) == k)]
        values = [float(f(found)) for found in sets]
        return sets[values.index(max(values))], chosen.evaluations
    chosen = maximize(judge, k, optimizer=optimizer)  # type: ignore[arg-type]
    sets = [union[chosen.indices], *(p for p in picks if len(p) == k)]
    values = [float(judge(torch.searchsorted(union, found.sort().values))) for found in sets]
    return sets[values.index(max(values))], chosen.evaluations


def _columns(f: SetFunction, rows: int, generator: torch.Generator) -> Tensor | None:
    """Return the represented rows of round two: all, as indices, or as many as fit."""
    width = f.represented_rows
    return sample_rows(width, min(width, max(_ENTRIES // rows, 1)), generator) if width else None


# -------------------------------------------------------------------------------------------------
# Tasks of Ray, such as round one of a partitioned maximisation.
#
# Every part is sent once, with its own rows alone, and a few parts ahead of the workers: the
# cluster never holds more of the data than it is working on.
# -------------------------------------------------------------------------------------------------

T = TypeVar("T")
_AHEAD = 2  # parts for each processor that are sent before their turn
_RETRIES = 10  # of a part whose worker or node was lost


def on_ray(
    make: Callable[[Tensor], Part], pick: Callable[[Part], Picked], parts: list[Tensor]
) -> Iterator[Picked]:
    """Yield what is picked from every part, in the order of the parts."""
    with connected(None, "engine='ray'"):
        yield from map_on_ray(pick, map(make, parts))


def map_on_ray(work: Callable[[T], Any], tasks: Iterable[T]) -> Iterator[Any]:
    """Yield ``work`` of every task on the workers of a Ray that is joined; results in order.

    ``work`` is sent once, and a few tasks ahead of the workers. A task whose worker or node is
    lost is done again elsewhere, so ``work`` must give the same for the same task.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    remote = ray.remote(_with_one_thread).options(num_cpus=1, max_retries=_RETRIES)
    most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    shared = ray.put(work)
    sent: deque[Any] = deque()
    left = iter(tasks)
    try:
        while True:
            while len(sent) < most and (task := next(left, None)) is not None:
                sent.append(remote.remote(shared, task))
            if not sent:
                return
            yield ray.get(sent[0])
            sent.popleft()
    except RayTaskError as error:
        if isinstance(error.cause, ShasamError):
            raise error.cause from error
        raise
    except RayError as error:
        raise ClusterError(
            f"a part was lost on Ray {_RETRIES + 1} times ({type(error).__name__}); its "
            "workers may lack memory: choose more partitions, or look at Ray's logs"
        ) from error
    finally:
        for one in sent:
            ray.cancel(one, force=True)


def _with_one_thread(work: Callable[[Any], Any], task: Any) -> Any:
    """Run on a worker, which has one processor; so are parts picked from on one machine too."""
    import torch

    torch.set_num_threads(1)
    return work(task)


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
    groups: Any = None,
    at_most: Any = None,
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
    f
        The set function to maximise.
    k
        How many elements to pick. For a monotone submodular f the value is at least 1 - 1/e of
        the best k.
    candidates
        What may be picked; by default everything but the query and the private set.
    initial
        Elements that are already picked: k more are picked, and the gains are given them.
    costs
        One positive cost per element, for a ``budget``.
    budget
        Total cost that the picks must stay within, instead of k elements or in addition to at
        most k. The better of two walks is returned, by gain over cost and by gain: at least (1
        - 1/e)/2 of the best for a monotone submodular f. It stops if nothing that fits gains
        anything.
    groups
        One label per element, for ``at_most``.
    at_most
        How many elements of a group may be picked: a number, or label to number (groups that it
        does not name are free). Without k as many as the groups allow. At least 1/2 of the best
        for a monotone submodular f (Fisher, Nemhauser and Wolsey 1978).
    partitions
        Number of random parts for two rounds (GreeDi), if there are more elements than a kernel
        fits: k picks in every part, then k of those. At least (1 - 1/e)/2 of the best in
        expectation for a monotone submodular f, if every part evaluates f exactly. Facility
        location over features does not: a part stands for itself, and round two for a sample of
        all rows if all do not fit in 1 GiB; the gains that are returned are exact. ``certify``
        says how far the picks can be from the optimum.
    engine
        "local", or "ray" to pick from the parts as tasks of Ray, which must be installed
        (``shasam[ray]``): on the cluster that ``ray.init`` has joined, or on this machine. The
        picks are the same.
    optimizer
        "auto" takes the fastest greedy that is exact for f; "naive", "lazy" and "stochastic"
        name one.
    generator
        Source of random numbers, for "stochastic" and for random parts.
    epsilon
        Of "stochastic": the expected value is at least 1 - 1/e - epsilon of the best.
    progress
        Function that is called with (done, whole) after each part, or after each pick of a walk
        in Python.

    Returns
    -------
    Selection
        The picks and their marginal gains, in the order of picking.

    Examples
    --------
    >>> from shasam.submodular import FacilityLocation
    >>> f = FacilityLocation.from_features([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> maximize(f, 2).indices.tolist()
    [1, 2]
    >>> maximize(f, 1, initial=[2]).indices.tolist()
    [0]
    >>> maximize(f, costs=[1.0, 5.0, 1.0], budget=2.0).indices.tolist()
    [0, 2]
    >>> maximize(f, 2, groups=["a", "b", "b"], at_most=1).indices.tolist()
    [1, 0]
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
    quotas = None
    if groups is not None or at_most is not None:
        if groups is None or at_most is None or optimizer == "stochastic":
            raise InputError("groups and at_most belong together, without optimizer='stochastic'")
        if costs is not None or budget is not None or partitions is not None:
            raise InputError("at_most cannot be combined with costs or partitions; leave one out")
        quotas = Quotas(f, groups, at_most)
        pool = quotas.of(pool)
        k = _check_k(k, quotas.most(pool), True)
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
        raise InputError(f"engine={engine!r} requires partitions=N")
    f.check_maximizable()
    if costs is not None or budget is not None:
        if costs is None or budget is None or optimizer == "stochastic":
            raise InputError("costs and budget belong together, without optimizer='stochastic'")
        lazy = optimizer == "lazy"
        return maximize_within(f, pool, costs, budget, k, lazy=lazy, progress=progress)
    if optimizer == "stochastic":
        return stochastic(f, k, pool, generator, epsilon, progress)
    if quotas is not None:
        return walk(f, k, pool, lazy=optimizer == "lazy", quotas=quotas, progress=progress)
    walked = f.greedy(k, pool, optimizer == "lazy") if k else None
    if walked is not None:
        indices, gains = torch.from_numpy(walked[0]), _tensor(walked[1], f.dtype)
        return Selection(indices, gains, int(walked[2]), optimizer)
    return walk(f, k, pool, lazy=optimizer == "lazy", progress=progress)


def _tensor(gains: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Return gains in the type of a function.

    Numpy needs a third of torch's time for few of them.
    """
    if dtype is torch.float32:
        return torch.from_numpy(gains.astype(np.float32))
    return torch.from_numpy(gains).to(dtype)


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

    return on_ray


def _pool(f: SetFunction, candidates: Any) -> Tensor:
    """Return the candidates in ascending order."""
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
