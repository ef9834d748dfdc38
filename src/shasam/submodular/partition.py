"""Maximisation in two rounds over random parts of the ground set (GreeDi).

Round one picks k elements in each part by itself; round two picks k of those. Each part is a task
of its own, and ``maximize_parts`` takes the mapper that carries the tasks out: a part is made here,
with the rows that belong to it, and picked from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import threads
from shasam.submodular.rows import sample_rows
from shasam.submodular.set_function import SetFunction
from shasam.submodular.walks import Progress
from shasam.types import Selection

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
    """The mapper of one machine: several parts at the same time, with one thread each."""
    return threads.each(lambda index: pick(make(index)), parts)


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
    """Random parts of nearly equal size, each in ascending order."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise InputError(f"partitions must be a whole number of at least 1; got {partitions!r}")
    if partitions > len(pool):
        raise InputError(f"{len(pool)} candidates cannot make {partitions} parts")
    order = torch.randperm(len(pool), generator=generator).to(pool.device)
    return [pool[part.sort().values] for part in order.tensor_split(partitions)]


def part_of(f: SetFunction, index: Tensor) -> Part:
    """A part with what round one needs of f."""
    local = f.part(index)
    return Part(index, f, True) if local is None else Part(index, local, False)


def pick_from(part: Part, *, k: int, optimizer: str) -> Picked:
    """Round one: up to k elements of a part, and how many gains were computed."""
    from shasam.submodular.maximize import maximize

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
    from shasam.submodular.maximize import maximize

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
    """The represented rows of round two: all, as indices, or as many as fit."""
    width = f.represented_rows
    return sample_rows(width, min(width, max(_ENTRIES // rows, 1)), generator) if width else None
