"""Choose the rows of a batch: as they come, balanced over cells, or mined as triplets.

All randomness is keyed by (seed, epoch, step), and what is carried over is in the state of a plan,
so a run that was cut draws the same batches again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shasam.extras import need

need("torch", __name__)

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from shasam.errors import Argument, DataError, InputError
from shasam.keyed import keyed, keyed_torch
from shasam.mining.pools import (
    LARGEST_KEPT,
    Embed,
    EmbeddingBank,
    Ground,
    MinedSets,
    Pools,
    RandomMiner,
    cells_of,
    draw_pair,
    explain,
    feasible_pairs,
    pools_of,
    repeated,
)
from shasam.mining.shasam_miner import MiningConfig
from shasam.types import Triplet
from shasam.windows import Windows

# -------------------------------------------------------------------------------------------------
# Which rows make a batch: the base class of batch plans.
#
# A plan is a function of (seed, epoch, step). A run that was cut anywhere draws the same batches
# again, whatever had been drawn before. A plan that carries something over (an embedding bank)
# puts it into `state`, which is part of the checkpoint.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingRows:
    """The training split of a stage: its rows and labels, and how they are to be drawn."""

    t_N: Tensor  # (N,) target class of every row of the manifest
    s_N: Tensor  # (N,) sensitive group of every row of the manifest
    rows: Tensor  # (n,) the rows of the training split
    batch_size: int  # images in a batch
    seed: int
    views: int = 1  # of each image
    batch_key: str = "train.learn.batch_views"  # the key that decides the size of a batch
    # reads rows as a network does, without augmentation; None where only their number matters
    images: Callable[[Tensor], Tensor] | None = field(default=None, repr=False, compare=False)
    # (N,) groups by each of several attributes that take turns, step by step; else ()
    turns: tuple[Tensor, ...] = ()
    # of a sensitive number, which takes the place of the groups; one for each of several turns
    all_windows: tuple[Windows, ...] = ()
    filled: float = 1.0  # share of a batch that these rows fill, where others stand beside them

    def larger_batch(self, images: int) -> list[object]:
        """Return the parts of what to do where a batch has to hold at least so many images."""
        needed = math.ceil(images / self.filled + (self.filled < 1)) * self.views
        return ["raise the size of a batch: ", Argument(self.batch_key, needed)]

    @property
    def steps_per_epoch(self) -> int:
        return max(1, len(self.rows) // self.batch_size)

    @property
    def windows(self) -> Windows | None:
        """The windows, of the first turn where there are several; None where there are groups."""
        return self.all_windows[0] if self.all_windows else None

    @property
    def known_n(self) -> Tensor:
        """Which of the rows have a group; that of others is -1."""
        return self.s_N[self.rows] >= 0


@dataclass(frozen=True)
class Draw:
    """The rows of one batch, and for mined batches the triplets over positions 0..B-1 of it."""

    rows_B: Tensor  # (B,) int64 rows of the manifest
    triplets: tuple[Triplet, ...] = ()


class BatchPlan:
    """Base of all plans. ``step`` counts from the start of the stage."""

    steps_per_epoch: int
    total_steps: int = 0  # of the stage, set by the trainer: schedules are shares of it
    batch_size: int = 0  # images in a batch, where the plan decides it; 0: as it was asked for

    def epoch_of(self, step: int) -> int:
        """Return the epoch that a step belongs to."""
        return step // self.steps_per_epoch

    def steps_of(self, epochs: int) -> int:
        """Return the steps of so many epochs from the start."""
        return epochs * self.steps_per_epoch

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        """Return the rows of a step."""
        raise NotImplementedError

    def observe(self, rows_B: Tensor, z: Tensor) -> None:
        """See the embeddings (V*B, D) of the step that has just been taken."""

    def says(self, sampling: str) -> str:
        """Name its batches, for the line that begins a stage."""
        return f"{sampling} batches"

    def counters(self) -> dict[str, float]:
        """Return numbers for the log, every epoch."""
        return {}

    def notes(self, step: int, embed: Embed) -> list[dict[str, object]]:
        """Return lines of the kind ``mining`` for the log: what a page shows of this step."""
        return []

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run cannot make again."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` gave."""


# -------------------------------------------------------------------------------------------------
# Batches with the class and group shares of the training split.
# -------------------------------------------------------------------------------------------------


class NaturalPlan(BatchPlan):
    """A fresh permutation of the rows every epoch; what does not fill a batch is left out."""

    def __init__(self, data: TrainingRows) -> None:
        if len(data.rows) < data.batch_size:
            raise DataError(
                f"a batch of {data.batch_size} images cannot be drawn from {len(data.rows)} "
                "training images; lower train.learn.batch_views or use more data"
            )
        self.rows, self.batch_size, self.seed = data.rows.cpu(), data.batch_size, data.seed
        self.steps_per_epoch = data.steps_per_epoch
        # the permutation of the current epoch, remembered only because it is asked for often
        self._order: tuple[int, Tensor] = (-1, self.rows)

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        per_pass = len(self.rows) // self.batch_size
        number, place = divmod(step, per_pass)  # passes over the rows, whatever an epoch is
        if self._order[0] != number:
            order = keyed(self.seed, number).permutation(len(self.rows))
            self._order = (number, self.rows[torch.from_numpy(order)])
        start = place * self.batch_size
        return Draw(self._order[1][start : start + self.batch_size])


# -------------------------------------------------------------------------------------------------
# Batches with equal counts of every (target, group) cell.
# -------------------------------------------------------------------------------------------------


class BalancedPlan(BatchPlan):
    """Equal counts of every (target, group) cell; each cell's permutation is cycled.

    Where the batch size is no multiple of the number of cells, the cells that get one image more
    rotate from step to step.
    """

    def __init__(self, data: TrainingRows) -> None:
        rows = data.rows.cpu()
        t, s = data.t_N.cpu()[rows], data.s_N.cpu()[rows]
        self.cells = list(cells_of(rows, t, s).values())
        if data.batch_size < len(self.cells):
            raise DataError(
                f"a balanced batch needs at least one image of each of the {len(self.cells)} "
                f"(target, group) cells, but holds {data.batch_size}; ",
                *data.larger_batch(len(self.cells)),
            )
        self.batch_size, self.seed = data.batch_size, data.seed
        self.steps_per_epoch = data.steps_per_epoch
        self._orders: dict[tuple[int, int], Tensor] = {}

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        parts = []
        for cell in range(len(self.cells)):
            first, last = self._drawn(cell, step), self._drawn(cell, step + 1)
            parts += self._members(cell, first, last)
        return Draw(torch.cat(parts))

    def _drawn(self, cell: int, step: int) -> int:
        """Return how many images of a cell the steps before ``step`` have used."""
        number, base = len(self.cells), self.batch_size // len(self.cells)
        extra = self.batch_size % number
        # step r gives its extras to the cells r*extra, r*extra + 1, ... (mod number)
        return step * base + (step * extra - cell + number - 1) // number

    def _members(self, cell: int, first: int, last: int) -> list[Tensor]:
        """Return the images number first..last-1 of a cell, counted over all passes through it."""
        rows, parts = self.cells[cell], []
        while first < last:
            number, place = divmod(first, len(rows))
            if (cell, number) not in self._orders:
                order = keyed(self.seed, cell, number).permutation(len(rows))
                self._orders.pop((cell, number - 2), None)
                self._orders[cell, number] = rows[torch.from_numpy(order)]
            part = self._orders[cell, number][place : place + last - first]
            parts.append(part)
            first += len(part)
        return parts


# -------------------------------------------------------------------------------------------------
# The batch plan of SHaSaM: ground set, candidates, hardness, and the triplets of every step.
#
# All randomness is keyed by (seed, epoch, step); what is carried over (cursors, the ground set,
# the bank) is in `state`, so that a run that was cut draws the same batches again.
# -------------------------------------------------------------------------------------------------

ROLES = ("anchors", "positives", "negatives")


class _Choice(NamedTuple):
    """What the miner was given for a pair at the present step, and what it picked."""

    rows_V: Tensor
    ground: Ground
    pools: Pools
    mined: MinedSets


class MinedPlan(BatchPlan):
    """Mine batches of ``batch_size`` images with their triplets.

    pairs = "one": k = batch/3 anchors, positives and negatives of one pair (i, j). pairs = "all":
    the batch is shared by all feasible pairs; each has batch/(3·pairs) images of every role
    (rounded, so that the batch is full). roles = "apart": the triplet of a pair consists of the
    images that were chosen for it. roles = "shared": of all images of the batch that fit it, so
    that every cell is the anchors once.

    No image is in a batch twice, unless the cells that fit a role hold too few: then each of their
    images comes once before any is repeated, and the repeats are counted.

    Parameters
    ----------
    data
        The training rows and their labels.
    config
        What is mined, and how.

    Examples
    --------
    >>> t, s = torch.tensor([0, 0, 1, 1] * 9), torch.tensor([0, 1] * 18)
    >>> data = TrainingRows(t, s, torch.arange(36), batch_size=12, seed=0)
    >>> MinedPlan(data, MiningConfig()).config.negatives
    'fl1mi'
    """

    def __init__(self, data: TrainingRows, config: MiningConfig) -> None:
        self.t_N, self.s_N, self.rows = data.t_N.cpu(), data.s_N.cpu(), data.rows.cpu()
        self.seed, self.config, batch_size = data.seed, config, data.batch_size
        # and how many pairs lack anchors, positives or negatives in the whole training split
        self.pairs, self.skipped_pairs = self._pairs()
        served = self._served() if config.pairs == "all" else 1
        sharing = len(ROLES) * served
        if config.k is not None:
            batch_size = sharing * config.k
        self.batch_size = batch_size
        self.k, self.extra = divmod(batch_size, sharing)
        if self.k < 1:
            raise DataError(
                f"a batch of {batch_size} images cannot hold anchors, positives and negatives of "
                f"{served} pairs of class and group; ",
                *data.larger_batch(sharing),
            )
        self.size = max(batch_size, int(config.ground * len(self.rows)))
        self.counted = batch_size * (data.views if config.epoch == "views" else 1)  # b of |V|/b
        self.steps_per_epoch = max(1, self.size // self.counted)
        self._ends: list[int] = []  # the step after the last one of each epoch, where V shrinks
        self._last_sized = torch.zeros(0, dtype=torch.int64)
        self.miner, self.random = config.make_miner(), RandomMiner()
        self.bank = EmbeddingBank(self.rows, config.refresh)
        self.epoch = -1
        self.ground = torch.zeros(0, dtype=torch.int64)
        self.cells: dict[tuple[int, int], Tensor] = {}  # the order in which each cell is used
        self.cursor: dict[tuple[int, int], int] = {}
        self._roles: dict[tuple[tuple[int, int], str], list[tuple[int, int]]] = {}
        self.small_pools = 0  # sets whose cells held fewer images than they needed
        self.repeats = 0  # images that came again in their batch for want of others
        self.skipped: dict[str, int] = {}  # reason -> candidates that the miner left out
        self._taken_N = torch.zeros(len(self.t_N), dtype=torch.bool)  # is it in this batch?
        self._place_N = torch.zeros(len(self.t_N), dtype=torch.int64)  # of a row in rows_V
        self._choices: list[_Choice] = []
        self._held: Ground | None = None  # the ground set of the last step, with its kept kernel
        self.blind = False  # True: no embedding is known yet, so nothing can be mined
        self._step = 0

    def _served(self) -> int:
        """Return the pairs that share a batch."""
        return len(self.pairs)

    def _pairs(self) -> tuple[list[tuple[int, int]], int]:
        """Return every (class, group) that the training split can serve, and how many it cannot."""
        t, s = self.t_N[self.rows], self.s_N[self.rows]
        pairs = feasible_pairs(t, s)
        return pairs, len(t.unique()) * len(s.unique()) - len(pairs)

    # -- a step ----------------------------------------------------------------------------------

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        self._step, self._choices = step, []
        self._enter(epoch, step, embed)
        generator = keyed_torch(self.seed, 2, step)
        pairs = self.pairs
        if self.config.pairs == "one":
            pairs = [self._one_pair(step, generator)]
        whole = None
        if self.hardness(step) > 0 and self.config.needs_ground:
            whole = self._whole_ground(embed, shared=len(pairs) > 1)
        self._taken_N.zero_()
        parts: list[list[Tensor]] = [[] for _ in pairs]
        for turn in range(len(pairs)):  # who comes first changes: the first has all candidates
            number = (turn + step) % len(pairs)
            sizes = self._sizes(number, len(pairs), step)
            parts[number] = self._sets(pairs[number], sizes, whole, embed, generator)
        rows_B = torch.cat([torch.cat(part) for part in parts])
        t_B, s_B = self.t_N[rows_B], self.s_N[rows_B]
        if self.config.roles == "apart" or self.config.pairs == "one":
            places = torch.arange(len(rows_B)).split([len(rows) for part in parts for rows in part])
            sets = [
                (places[first], places[first + 1], places[first + 2])
                for first in range(0, len(places), 3)
            ]
        else:
            found = [pools_of(t_B, s_B, *pair) for pair in pairs]
            sets = [(p.anchors, p.positives, p.negatives) for p in found]
        triplets = (
            Triplet(a, p, n, *pair, t_B, s_B) for pair, (a, p, n) in zip(pairs, sets, strict=True)
        )
        return Draw(rows_B, tuple(triplets))

    def _one_pair(self, step: int, generator: torch.Generator) -> tuple[int, int]:
        t, s = self.t_N[self.ground], self.s_N[self.ground]
        need = 1
        if self.config.small_pool == "redraw":
            # where no pair has k rows, the best-filled ones are drawn, and their rows repeat
            need = min(self.k, max(pools_of(t, s, *pair).smallest for pair in self.pairs))
        return draw_pair(t, s, need, self.config.pair_sampling, step, generator)

    def notes(self, step: int, embed: Embed) -> list[dict[str, object]]:
        """Note at four places of the stage what was mined for this step, and random beside it."""
        if step not in {round(share * self.total_steps) - 1 for share in (0.25, 0.5, 0.75, 1.0)}:
            return []
        made = []
        for rows_V, ground, pools, mined in self._choices:
            whole = self._whole_pools(ground, pools)
            generator = keyed_torch(self.seed, 4, step, pools.target, pools.sensitive)
            drawn = self.random.pick(ground, whole, len(mined.anchors), generator)
            made.append(explain(step, rows_V, ground, pools, mined, drawn))
        return made

    def _whole_pools(self, ground: Ground, pools: Pools) -> Pools:
        """Return whole cells: the candidates of a set that is not mined are that set."""
        return pools_of(ground.t_V, ground.s_V, pools.target, pools.sensitive)

    def hardness(self, step: int) -> float:
        """Return 0 (random sets) until the start, then growing to 1: all candidates."""
        c, done = self.config, step / max(1, self.total_steps)
        if done < c.start or not c.mines or self.blind:
            return 0.0
        return 1.0 if c.ramp == 0 else min(1.0, (done - c.start) / c.ramp)

    def _sizes(self, number: int, pairs: int, step: int) -> list[int]:
        """Count the anchors, positives and negatives of a pair: k, and one more for some of them.

        A batch that is no multiple of the sets is filled up; who has more rotates over the steps.
        """
        slots = len(ROLES) * pairs
        first = step * self.extra  # the slots from here on have one more
        places = (len(ROLES) * number + role for role in range(len(ROLES)))
        return [self.k + ((place - first) % slots < self.extra) for place in places]

    def _sets(
        self,
        pair: tuple[int, int],
        sizes: list[int],
        whole: Ground | None,
        embed: Embed,
        generator: torch.Generator,
    ) -> list[Tensor]:
        """Return rows of A, P and N of a pair, mined if there are more candidates than needed."""
        hardness = self.hardness(self._step)
        sets = [
            self._candidates(pair, role, size, hardness)
            for role, size in zip(ROLES, sizes, strict=True)
        ]
        if hardness > 0:
            rows_V, ground = self.ground, whole
            if ground is None:
                rows_V = torch.cat(sets)
                ground = self._embedded(rows_V, embed)
            sets = self._picked(pair, sets, sizes, rows_V, ground, generator)
        return [
            self._filled(pair, role, rows, size)
            for role, rows, size in zip(ROLES, sets, sizes, strict=True)
        ]

    def _picked(
        self,
        pair: tuple[int, int],
        sets: list[Tensor],
        sizes: list[int],
        rows_V: Tensor,
        ground: Ground,
        generator: torch.Generator,
    ) -> list[Tensor]:
        """Return what the miner picks among the candidates of a pair."""
        self._place_N[rows_V] = torch.arange(len(rows_V))
        pools = Pools(*pair, *(self._place_N[rows] for rows in sets))
        mined = self.miner.pick(ground, pools, max(sizes), generator)
        self._choices.append(_Choice(rows_V, ground, pools, mined))
        for reason, many in mined.skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + many
        # the last picks of a greedy walk gain least: a smaller set does without them
        picks = (mined.anchors, mined.positives, mined.negatives)
        return [rows_V[pick[:size]] for pick, size in zip(picks, sizes, strict=True)]

    def _embedded(self, rows: Tensor, embed: Embed, shared: bool = False) -> Ground:
        z_VD = self.bank.read(rows, embed, self._step)
        return Ground(z_VD, self.t_N[rows], self.s_N[rows], shared)

    def _whole_ground(self, embed: Embed, shared: bool) -> Ground:
        """Make the ground set once an epoch, then renew it, with its kernel if that is kept.

        A resumed run makes it from the embeddings of the checkpoint. Its bits depend on nothing
        else, so the picks are those of the run that was not cut.
        """
        ground = self._embedded(self.ground, embed, shared)
        if self.config.keeps_kernel and len(self.ground) <= LARGEST_KEPT:
            ground = self._held = ground.keeping(self._held)
        return ground

    def _candidates(self, pair: tuple[int, int], role: str, size: int, hardness: float) -> Tensor:
        """Return rows of the cells that fit a role and are not in the batch yet, each once.

        As many as the set needs where it is not mined; more where it is, up to all of them.
        """
        cells = self._cells_of_role(pair, role)
        free = [self.cells[cell][~self._taken_N[self.cells[cell]]] for cell in cells]
        have = sum(map(len, free))
        if have == 0:  # all of them are in the batch: they come again
            return torch.cat([self.cells[cell] for cell in cells])[:size]
        wanted = size
        if hardness > 0 and self.config.picks(role):
            most = have if self.config.pool is None else min(have, round(self.config.pool * size))
            wanted = size + int(hardness * max(0, most - size))
            if wanted >= have:
                return torch.cat(free)
        # cells take turns, so that every other group, or class, has its share; the first one
        # changes with the step, because a set may have fewer rows than there are cells
        order = [(number + self._step) % len(cells) for number in range(len(cells))]
        shares = _in_turns([len(free[number]) for number in order], wanted)
        parts = [
            self._next(cells[number], share) for number, share in zip(order, shares, strict=True)
        ]
        return torch.cat(parts)

    def _next(self, cell: tuple[int, int], count: int) -> Tensor:
        """Take the next rows of a cell that are not in the batch; used up, it is shuffled anew."""
        parts: list[Tensor] = []
        passed_N = self._taken_N.clone() if count else self._taken_N
        while count:
            if self.cursor[cell] == len(self.cells[cell]):
                self._shuffle(cell)
            place = self.cursor[cell]
            rows = self.cells[cell][place : place + count]
            self.cursor[cell] += len(rows)
            rows = rows[~passed_N[rows]]
            passed_N[rows] = True
            parts.append(rows)
            count -= len(rows)
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)

    def _filled(self, pair: tuple[int, int], role: str, rows: Tensor, size: int) -> Tensor:
        """Return the set of a role, filled up: what is missing is repeated."""
        fresh = int((~self._taken_N[rows]).sum())
        if fresh < size:
            self.small_pools += 1
            if self.config.small_pool != "shrink":
                cells = self._cells_of_role(pair, role)
                others = torch.cat([self.cells[cell] for cell in cells])
                others = others[~torch.isin(others, rows)]
                rows = repeated(torch.cat([rows, others]), size)
            self.repeats += len(rows) - fresh
        self._taken_N[rows] = True
        return rows

    def _cells_of_role(self, pair: tuple[int, int], role: str) -> list[tuple[int, int]]:
        """Return the filled cells that fit a role of a pair, the same as long as the cells are."""
        if (pair, role) not in self._roles:
            filled = [cell for cell, rows in self.cells.items() if len(rows)]
            t_K, s_K = torch.tensor(filled).T
            fitting = getattr(pools_of(t_K, s_K, *pair), role)
            self._roles[pair, role] = [filled[place] for place in fitting]
        return self._roles[pair, role]

    # -- the ground set --------------------------------------------------------------------------

    def epoch_of(self, step: int) -> int:
        if not self.config.ground_shrinks:
            return super().epoch_of(step)
        while not self._ends or step >= self._ends[-1]:
            self._size_next()
        return sum(step >= end for end in self._ends)

    def steps_of(self, epochs: int) -> int:
        if not self.config.ground_shrinks:
            return super().steps_of(epochs)
        while len(self._ends) < epochs:
            self._size_next()
        return self._ends[epochs - 1]

    def _size_next(self) -> None:
        """Add the length of one epoch more: |V|/b of its own ground set."""
        self._last_sized = self._ground_of(len(self._ends), self._last_sized)
        steps = max(1, len(self._last_sized) // self.counted)
        self._ends.append((self._ends[-1] if self._ends else 0) + steps)

    def _enter(self, epoch: int, step: int, embed: Embed) -> None:
        if epoch == self.epoch:
            return
        ground = self._ground_of(epoch, self.ground)
        self.epoch, self.ground, self._held = epoch, ground, None
        t, s = self.t_N[ground], self.s_N[ground]
        self.cells, self._roles = cells_of(ground, t, s), {}
        self.cursor = {cell: 0 for cell in self.cells}
        # for mining that begins within this epoch
        if self.config.refresh == "epoch" and self.hardness(step + self.steps_per_epoch) > 0:
            self.bank.refresh_all(ground, embed, step)

    def _ground_of(self, epoch: int, previous: Tensor) -> Tensor:
        """Return the ground set of an epoch; that of the epoch before comes last, or not."""
        order = keyed(self.seed, 0, epoch).permutation(len(self.rows))
        shuffled = self.rows[torch.from_numpy(order)]
        fresh = ~torch.isin(shuffled, previous)
        # the previous ground set comes last: it is used only where nothing else is left
        preferred = torch.cat([shuffled[fresh], shuffled[~fresh]])
        if self.config.ground_shrinks:
            drawn = torch.arange(len(shuffled)) < self.size
            ground = shuffled[drawn & fresh]
        else:
            ground = preferred[: self.size]
        return self._with_every_cell(ground, preferred)

    def _with_every_cell(self, ground: Tensor, preferred: Tensor) -> Tensor:
        """Add to the ground set, if it lacks a cell of the training split, that cell's share.

        A sample of a fifth often misses a cell of a few images, and a pair without anchors,
        positives or negatives could not be served. A ground set that has every cell stays as drawn.
        """
        parts = [ground]
        cell_of = self.t_N * (int(self.s_N.max()) + 1) + self.s_N
        for cell in cell_of[self.rows].unique():
            if not bool((cell_of[ground] == cell).any()):
                members = preferred[cell_of[preferred] == cell]
                parts.append(members[: max(1, round(self.config.ground * len(members)))])
        return torch.cat(parts)

    def _shuffle(self, cell: tuple[int, int]) -> None:
        rows = self.cells[cell]
        order = keyed(self.seed, 1, self._step, *cell).permutation(len(rows))
        self.cells[cell] = rows[torch.from_numpy(order)]
        self.cursor[cell] = 0

    # -- what others ask -------------------------------------------------------------------------

    def observe(self, rows_B: Tensor, z: Tensor) -> None:
        if not isinstance(self.miner, RandomMiner) and self.config.refresh != "live":
            self.bank.observe(rows_B, z, self._step)

    def says(self, sampling: str) -> str:
        return super().says(sampling) if self.config.mines else "batches of random sets"

    def counters(self) -> dict[str, float]:
        """Count for the log the sets whose cells were too small, and images that were repeated for
        it, pairs of class and group that the training split cannot serve, images embedded for
        mining alone, and candidates that the miner left out, by reason."""
        return {
            "small_pools": float(self.small_pools),
            "repeats": float(self.repeats),
            "skipped_pairs": float(self.skipped_pairs),
            "embedded": float(self.bank.embedded),
            **{f"skipped {reason}": float(many) for reason, many in sorted(self.skipped.items())},
        }

    def state(self) -> dict[str, Tensor]:
        keep = {f"cell.{i}.{j}": rows for (i, j), rows in self.cells.items()}
        keep["cursor"] = torch.tensor([self.cursor[cell] for cell in self.cells] or [0])
        keep["ground"] = self.ground
        counted = [self.epoch, self.small_pools, self.bank.embedded, self.repeats]
        keep["numbers"] = torch.tensor(counted)
        keep.update({f"skipped.{name}": torch.tensor(n) for name, n in self.skipped.items()})
        keep.update({f"bank.{name}": value for name, value in self.bank.state().items()})
        return keep

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if "numbers" not in state:
            return
        counted = [int(x) for x in state["numbers"]]
        self.epoch, self.small_pools, self.bank.embedded, self.repeats = counted
        self.ground, self._held = state["ground"], None
        self.skipped = {
            name.removeprefix("skipped."): int(many)
            for name, many in state.items()
            if name.startswith("skipped.")
        }
        names = sorted(name for name in state if name.startswith("cell."))
        self.cells, self._roles = {}, {}
        for name in names:
            _, i, j = name.split(".")
            self.cells[int(i), int(j)] = state[name]
        # the order of the cells is that of (class, group), as it was when they were made
        self.cells = dict(sorted(self.cells.items()))
        self.cursor = dict(zip(self.cells, map(int, state["cursor"]), strict=True))
        self.bank.load_state(
            {k.removeprefix("bank."): v for k, v in state.items() if k.startswith("bank.")}
        )


def _in_turns(free: list[int], wanted: int) -> list[int]:
    """Return how many each gives where they take turns; one that has no more is passed over.

    >>> _in_turns([5, 1, 5], 6)
    [3, 1, 2]
    """
    given = [0] * len(free)
    while wanted > 0 and any(has > gave for has, gave in zip(free, given, strict=True)):
        for place, has in enumerate(free):
            if wanted > 0 and has > given[place]:
                given[place] += 1
                wanted -= 1
    return given


# -------------------------------------------------------------------------------------------------
# SHaSaM-MINE in a training loop of one's own: a batch sampler for `torch.utils.data`.
# -------------------------------------------------------------------------------------------------

_REMEMBERED = 64  # batches whose triplets are kept: a loader may be some batches ahead


def batch_triplets(t_B: Tensor, s_B: Tensor) -> tuple[Triplet, ...]:
    """Return anchors, positives and negatives of every (target, group) pair that a batch can serve.

    They are positions in the batch, for ``shasam.losses.flcmi`` and ``logdetcmi``.

    >>> (one,) = batch_triplets(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    >>> one.anchors.tolist(), one.positives.tolist(), one.negatives.tolist()
    ([0], [1], [2])
    """
    t_B, s_B = t_B.cpu(), s_B.cpu()
    found = [pools_of(t_B, s_B, *pair) for pair in cells_of(torch.arange(len(t_B)), t_B, s_B)]
    return tuple(
        Triplet(p.anchors, p.positives, p.negatives, p.target, p.sensitive, t_B, s_B)
        for p in found
        if p.smallest
    )


class MiningBatchSampler(Sampler[list[int]]):
    """Mine batches as SHaSaM does, for ``DataLoader(..., batch_sampler=this)``.

    Every batch holds diverse anchors, hard positives and hard negatives of all pairs of class and
    group; ``triplets(rows)`` says which are which. ``mining`` takes the options of
    ``MiningConfig``, its schedule in shares of ``total_steps``. After each step tell it the
    embeddings: ``update(rows, embeddings)``. The first batch is random, and a row that no step has
    shown yet is taken for a typical one of its class and group. Where ``embed(rows)`` is given, it
    embeds what is asked for instead. Iterating again goes on where the last epoch ended.

    >>> z = torch.randn(80, 8, generator=torch.Generator().manual_seed(0))
    >>> sampler = MiningBatchSampler(
    ...     [0, 1] * 40, [0, 0, 1, 1] * 20, batch_size=24, total_steps=9, embed=lambda rows: z[rows]
    ... )
    >>> len(sampler), sorted(map(len, sampler))
    (3, [24, 24, 24])
    """

    def __init__(
        self,
        targets: Any,
        sensitive: Any,
        *,
        total_steps: int,
        batch_size: int = 96,
        mining: MiningConfig | Mapping[str, Any] | None = None,
        embed: Embed | None = None,
        seed: int = 0,
    ) -> None:
        t_N, s_N = _codes(targets, "targets"), _codes(sensitive, "sensitive")
        if len(t_N) != len(s_N):
            raise InputError(f"{len(t_N)} targets came with {len(s_N)} sensitive groups")
        if total_steps < 1:
            raise InputError(f"total_steps must be at least 1; got {total_steps}")
        config = mining if isinstance(mining, MiningConfig) else MiningConfig(**(mining or {}))
        if embed is None:  # nothing can be embedded anew: what the steps have left has to do
            config = config.model_copy(update={"refresh": "free"})
        rows = torch.arange(len(t_N))
        self.plan = MinedPlan(TrainingRows(t_N, s_N, rows, batch_size, seed), config)
        self.plan.total_steps = total_steps
        self.batch_size, self.step = self.plan.batch_size, 0
        self._embed, self._told = embed or self._typical, embed is not None
        self._recent: dict[tuple[int, ...], tuple[Triplet, ...]] = {}
        self._cell_N = t_N * (int(s_N.max()) + 1) + s_N
        self._seen_N = torch.zeros(len(t_N), dtype=torch.bool)

    def __len__(self) -> int:
        """Return batches of an epoch: as many as show every row once on average."""
        return max(1, len(self._cell_N) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            epoch = self.plan.epoch_of(self.step)  # of the ground set, not of the loader
            self.plan.blind = not self._told and not bool(self._seen_N.any())
            if self.plan.blind and self.plan.config.mines and self.step > 0:
                raise InputError(
                    "a step is over and no embedding is known: call update(rows, embeddings) after "
                    "every step, or give MiningBatchSampler embed="
                )
            draw = self.plan.draw(epoch, self.step, self._embed)
            self.step += 1
            rows = draw.rows_B.tolist()
            self._recent[tuple(rows)] = draw.triplets
            while len(self._recent) > _REMEMBERED:
                self._recent.pop(next(iter(self._recent)))
            yield rows

    def triplets(self, rows: Any) -> tuple[Triplet, ...]:
        """Return anchors, positives and negatives of a batch that was drawn, as positions in it."""
        key = tuple(torch.as_tensor(rows).tolist())
        if key not in self._recent:
            raise InputError(
                f"these rows are none of the last {_REMEMBERED} batches; give a batch as it was "
                "drawn, with all its rows in their order"
            )
        return self._recent[key]

    def update(self, rows: Any, embeddings: Tensor) -> None:
        """See the embeddings (B, D) of a step, or (V*B, D) of V views, B rows apart."""
        rows_B = torch.as_tensor(rows, dtype=torch.int64).cpu()
        if not len(rows_B) or embeddings.ndim != 2 or len(embeddings) % len(rows_B):
            raise InputError(
                f"{len(rows_B)} rows came with embeddings {tuple(embeddings.shape)}; give (B, D), "
                "or (V*B, D) for V views"
            )
        if int(rows_B.min()) < 0 or int(rows_B.max()) >= len(self._seen_N):
            raise InputError(f"rows go from 0 to {len(self._seen_N) - 1}")
        if not bool(torch.isfinite(embeddings).all()):
            raise InputError("the embeddings hold NaN or infinity; stop before the next step")
        self.plan.observe(rows_B, embeddings)
        self._seen_N[rows_B] = True

    def _typical(self, rows: Tensor) -> Tensor:
        """Return for rows that were never seen the mean of their cell, or of all that were."""
        z_ND = self.plan.bank.z_ND
        assert z_ND is not None  # the first batch is drawn blind
        z, cell = z_ND[self._seen_N], self._cell_N[self._seen_N]
        sums = torch.zeros(int(self._cell_N.max()) + 1, z.shape[1]).index_add_(0, cell, z)
        known = torch.zeros(len(sums), dtype=torch.bool)
        known[cell] = True
        sums[~known] = z.sum(dim=0)
        return sums[self._cell_N[rows]]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: with it a run that was cut draws the same batches."""
        return {"step": torch.tensor(self.step), "seen": self._seen_N.clone(), **self.plan.state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state_dict`` of a sampler of the same labels and settings."""
        self.step, self._seen_N = int(state["step"]), state["seen"].clone()
        self.plan.load_state({k: v for k, v in state.items() if k not in ("step", "seen")})


def _codes(labels: Any, name: str) -> Tensor:
    """Return labels of any kind as 0, 1, ... in the order of their values."""
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be one label for each row; got the shape {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} hold NaN or infinity; leave those rows out")
    return torch.from_numpy(np.unique(array, return_inverse=True)[1].astype(np.int64))


# -------------------------------------------------------------------------------------------------
# Batch plans: which rows make each batch (natural, cell-balanced or mined).
# -------------------------------------------------------------------------------------------------

__all__ = [
    "BalancedPlan",
    "BatchPlan",
    "Draw",
    "MinedPlan",
    "MiningBatchSampler",
    "MiningConfig",
    "NaturalPlan",
    "TrainingRows",
    "batch_triplets",
]
