"""Choose the rows of a batch: as they come, balanced over cells, or mined as triplets.

All randomness is keyed by (seed, epoch, step), and what is carried over is in the state of a plan,
so a run that was cut draws the same batches again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shasam.extras import need

need("torch", __name__)

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Sampler

from shasam.errors import DataError, InputError
from shasam.keyed import keyed, keyed_torch
from shasam.mining.miners import (
    Embed,
    EmbeddingBank,
    MinedSets,
    MiningConfig,
    RandomMiner,
    cells_of,
    draw_pair,
    feasible_pairs,
    pools_of,
)
from shasam.types import Triplet

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

    def larger_batch(self, images: int) -> str:
        """What to do where a batch has to hold at least so many images."""
        needed = images * self.views
        return f"raise {self.batch_key} to {needed} (--set {self.batch_key}={needed})"

    @property
    def steps_per_epoch(self) -> int:
        return max(1, len(self.rows) // self.batch_size)


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

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        """The rows of a step."""
        raise NotImplementedError

    def observe(self, rows_B: Tensor, z: Tensor) -> None:
        """See the embeddings (V*B, D) of the step that has just been taken."""

    def counters(self) -> dict[str, float]:
        """Numbers for the log, every epoch."""
        return {}

    def notes(self, step: int, embed: Embed) -> list[dict[str, object]]:
        """Lines of the kind ``mining`` for the log: what a page shows of this step."""
        return []

    def state(self) -> dict[str, Tensor]:
        """What a resumed run cannot make again."""
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
                f"(target, group) cells, but holds {data.batch_size}; "
                f"{data.larger_batch(len(self.cells))}"
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
        """How many images of a cell the steps before ``step`` have used."""
        number, base = len(self.cells), self.batch_size // len(self.cells)
        extra = self.batch_size % number
        # step r gives its extras to the cells r*extra, r*extra + 1, ... (mod number)
        return step * base + (step * extra - cell + number - 1) // number

    def _members(self, cell: int, first: int, last: int) -> list[Tensor]:
        """The images number first..last-1 of a cell, counted over all passes through it."""
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
# What was mined, so that a page can show it: rows, gains, similarities, random beside them.
# -------------------------------------------------------------------------------------------------

_SETS = ("anchors", "positives", "negatives")


def explain(
    step: int,
    pair: tuple[int, int],
    sides: dict[str, list[Tensor]],
    z: Sequence[Tensor],
    mined: MinedSets,
) -> dict[str, object]:
    """One iteration for ``mining.json``: each pick with its row, gain and nearest anchor.

    ``sides["pool"]`` holds the rows of the three pools, ``z`` their embeddings, and
    ``sides["random"]`` the first rows of each pool, which were drawn at random.
    """
    sets: dict[str, list[dict[str, object]]] = {}
    places = dict(zip(_SETS, (mined.anchors, mined.positives, mined.negatives), strict=True))
    for number, name in enumerate(_SETS):
        gains = mined.gains.get(name)
        near = _nearest(z[number][places[name]], z[0][mined.anchors], name == "anchors")
        rows = sides["pool"][number][places[name]].tolist()
        sets[name] = [
            {"row": row, "gain": None if gains is None else float(gains[i]), "similarity": near[i]}
            for i, row in enumerate(rows)
        ]
        shown = z[number][: len(sides["random"][number])]
        # random picks are held against the anchors that the mined ones are held against
        own = name == "anchors"
        near = _nearest(shown, shown if own else z[0][mined.anchors], own)
        sets[f"random_{name}"] = [
            {"row": row, "gain": None, "similarity": near[i]}
            for i, row in enumerate(sides["random"][number].tolist())
        ]
    return {"step": step, "target": pair[0], "sensitive": pair[1], "sets": sets}


def _nearest(z: Tensor, z_anchors: Tensor, same: bool) -> list[float]:
    """The largest cosine to an anchor; for an anchor, to another one."""
    near = z @ z_anchors.T
    if same:
        near.fill_diagonal_(-1.0)
    return [float(value) for value in near.amax(dim=1)]


# -------------------------------------------------------------------------------------------------
# The batch plan of SHaSaM: ground set, pools, hardness, and the triplets of every step.
#
# All randomness is keyed by (seed, epoch, step); what is carried over (cursors, the ground set,
# the bank) is in `state`, so that a run that was cut draws the same batches again.
# -------------------------------------------------------------------------------------------------

ROLES = ("anchors", "positives", "negatives")


class MinedPlan(BatchPlan):
    """Batches of ``batch_size`` images with their triplets; a budget ``k`` decides the batch.

    pairs = "one": k = batch/3 anchors, positives and negatives of one pair (i, j). pairs = "all":
    the batch is shared by all feasible pairs; each mines batch/(3·pairs) of every role (rounded,
    so that the batch is full), and the
    triplet of a pair consists of all images of the batch that fit it, so that every cell is the
    anchors once.
    """

    def __init__(self, data: TrainingRows, config: MiningConfig) -> None:
        self.t_N, self.s_N, self.rows = data.t_N.cpu(), data.s_N.cpu(), data.rows.cpu()
        self.seed, self.config, batch_size = data.seed, config, data.batch_size
        t, s = self.t_N[self.rows], self.s_N[self.rows]
        self.pairs = feasible_pairs(t, s)
        # pairs that lack anchors, positives or negatives in the whole training split
        self.skipped_pairs = len(t.unique()) * len(s.unique()) - len(self.pairs)
        served = len(self.pairs) if config.pairs == "all" else 1
        sharing = len(ROLES) * served
        if config.k is not None:
            batch_size = sharing * config.k
        self.batch_size = batch_size
        self.k, self.extra = divmod(batch_size, sharing)
        if self.k < 1:
            raise DataError(
                f"a batch of {batch_size} images cannot hold anchors, positives and negatives of "
                f"{served} pairs of class and group; {data.larger_batch(sharing)}"
            )
        self.size = max(batch_size, int(config.ground * len(self.rows)))
        self.steps_per_epoch = max(1, self.size // batch_size)
        self.miner, self.random = config.make_miner(), RandomMiner()
        self.bank = EmbeddingBank(self.rows, config.refresh)
        self.epoch = -1
        self.ground = torch.zeros(0, dtype=torch.int64)
        self.cells: dict[tuple[int, int], Tensor] = {}  # the order in which each cell is used
        self.cursor: dict[tuple[int, int], int] = {}
        self._roles: dict[tuple[tuple[int, int], str], list[tuple[int, int]]] = {}
        self.small_pools = 0  # pools that held fewer than k rows
        self._step = 0

    # -- a step ----------------------------------------------------------------------------------

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        self._step = step
        self._enter(epoch, step, embed)
        generator = keyed_torch(self.seed, 2, step)
        growth = self.growth(step)
        pairs = self.pairs
        if self.config.pairs == "one":
            pairs = [self._one_pair(step, generator)]
        parts = [
            self._sets(pair, self._sizes(number, len(pairs), step), growth, embed, generator)
            for number, pair in enumerate(pairs)
        ]
        rows_B = torch.cat([torch.cat(part) for part in parts])
        if self.config.pairs == "one":
            triplets: tuple[Triplet, ...] = (self._triplet(pairs[0], rows_B, parts[0]),)
        else:
            triplets = tuple(self._pooled(pair, rows_B) for pair in pairs)
        return Draw(rows_B, triplets)

    def _one_pair(self, step: int, generator: torch.Generator) -> tuple[int, int]:
        t, s = self.t_N[self.ground], self.s_N[self.ground]
        need = 1
        if self.config.small_pool == "redraw":
            # where no pair has k rows, the best-filled ones are drawn, and their rows repeat
            need = min(self.k, max(pools_of(t, s, *pair).smallest for pair in self.pairs))
        return draw_pair(t, s, need, self.config.pair_sampling, step, generator)

    def notes(self, step: int, embed: Embed) -> list[dict[str, object]]:
        """At four places of the stage: what full hardness picks, and random beside it.

        For the record alone: the pools are drawn by a key of their own and no cursor moves.
        """
        if isinstance(self.miner, RandomMiner):  # nothing is mined
            return []
        if step not in {round(share * self.total_steps) - 1 for share in (0.25, 0.5, 0.75, 1.0)}:
            return []
        made = []
        for number, pair in enumerate(self.pairs):
            pools = pools_of(self.t_N[self.ground], self.s_N[self.ground], *pair)
            rng = keyed(self.seed, 3, step, number)
            sides: dict[str, list[Tensor]] = {"pool": [], "random": []}
            for rows in (pools.anchors, pools.positives, pools.negatives):
                order = self.ground[rows[torch.from_numpy(rng.permutation(len(rows)))]]
                sides["pool"].append(order[: 8 * self.k])
                sides["random"].append(order[: self.k])
            sizes = [len(pool) for pool in sides["pool"]]
            if min(sizes) == 0:
                continue
            z = F.normalize(embed(torch.cat(sides["pool"])).float(), dim=1).cpu().split(sizes)
            generator = keyed_torch(self.seed, 4, step)
            mined = self.miner.pick(z[0], z[1], z[2], min(self.k, *sizes), generator)
            made.append(explain(step, pair, sides, z, mined))
        return made

    def growth(self, step: int) -> float:
        """Candidates per pick: 1 (random) until the start, then growing to ``pool``."""
        c, total = self.config, max(1, self.total_steps)
        done = step / total
        if done < c.start or isinstance(self.miner, RandomMiner):
            return 1.0
        share = 1.0 if c.ramp == 0 else min(1.0, (done - c.start) / c.ramp)
        return 1.0 + (c.pool - 1.0) * share

    def _sizes(self, number: int, pairs: int, step: int) -> list[int]:
        """How many anchors, positives and negatives a pair has: k, and one more for some of them.

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
        growth: float,
        embed: Embed,
        generator: torch.Generator,
    ) -> list[Tensor]:
        """Rows of A, P and N of a pair, mined where the pools are larger than the sets."""
        pools, k, step = [], max(sizes), self._step
        for role in ROLES:
            wanted = round(growth * k) if self.config.picks(role) else k
            pools.append(self._pool(pair, role, wanted))
        k = min(k, *(len(pool) for pool in pools))  # less only where pools shrink
        if growth <= 1.0:
            z = tuple(torch.zeros(len(p), 1) for p in pools)
            mined = self.random.pick(z[0], z[1], z[2], k, generator)
        else:
            z = self.bank.read(torch.cat(pools), embed, step).split([len(p) for p in pools])
            mined = self.miner.pick(z[0], z[1], z[2], k, generator)
        picks = (mined.anchors, mined.positives, mined.negatives)
        # the last picks of a greedy walk gain least: a smaller set does without them
        return [pool[pick[:n]] for pool, pick, n in zip(pools, picks, sizes, strict=True)]

    def _pool(self, pair: tuple[int, int], role: str, wanted: int) -> Tensor:
        """The next rows of the cells that fit a role; a cell that is used up starts again."""
        cells = self._cells_of_role(pair, role)
        have = sum(len(self.cells[cell]) for cell in cells)
        if have < self.k:
            self.small_pools += 1
            if self.config.small_pool == "shrink":
                wanted = have
        pool = torch.empty(wanted, dtype=torch.int64)
        # cells take turns, so that every other group, or class, has its share; the first one
        # changes with the step, because a pool may have fewer rows than there are cells
        for number, cell in enumerate(cells):
            first = (number - self._step) % len(cells)
            turns = len(range(first, wanted, len(cells)))
            pool[first :: len(cells)] = self._next(cell, turns)
        return pool

    def _next(self, cell: tuple[int, int], count: int) -> Tensor:
        """The next rows of a cell, which is shuffled whenever it is used up."""
        parts = []
        while count:
            if self.cursor[cell] == len(self.cells[cell]):
                self._shuffle(cell)
            place = self.cursor[cell]
            parts.append(self.cells[cell][place : place + count])
            self.cursor[cell] += len(parts[-1])
            count -= len(parts[-1])
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)

    def _cells_of_role(self, pair: tuple[int, int], role: str) -> list[tuple[int, int]]:
        """The filled cells that fit a role of a pair; the same for as long as the cells are."""
        if (pair, role) not in self._roles:
            filled = [cell for cell, rows in self.cells.items() if len(rows)]
            t_K, s_K = torch.tensor(filled).T
            fitting = getattr(pools_of(t_K, s_K, *pair), role)
            self._roles[pair, role] = [filled[place] for place in fitting]
        return self._roles[pair, role]

    def _triplet(self, pair: tuple[int, int], rows_B: Tensor, sets: list[Tensor]) -> Triplet:
        sizes = [len(part) for part in sets]
        a, p, n = torch.arange(len(rows_B)).split(sizes)
        return Triplet(a, p, n, pair[0], pair[1], self.t_N[rows_B], self.s_N[rows_B])

    def _pooled(self, pair: tuple[int, int], rows_B: Tensor) -> Triplet:
        t_B, s_B = self.t_N[rows_B], self.s_N[rows_B]
        pools = pools_of(t_B, s_B, *pair)
        return Triplet(pools.anchors, pools.positives, pools.negatives, *pair, t_B, s_B)

    # -- the ground set --------------------------------------------------------------------------

    def _enter(self, epoch: int, step: int, embed: Embed) -> None:
        if epoch == self.epoch:
            return
        order = keyed(self.seed, 0, epoch).permutation(len(self.rows))
        shuffled = self.rows[torch.from_numpy(order)]
        fresh = ~torch.isin(shuffled, self.ground)
        # the previous ground set comes last: it is used only where nothing else is left
        preferred = torch.cat([shuffled[fresh], shuffled[~fresh]])
        if self.config.ground_shrinks:
            drawn = torch.arange(len(shuffled)) < self.size
            ground = shuffled[drawn & fresh]
        else:
            ground = preferred[: self.size]
        ground = self._with_every_cell(ground, preferred)
        self.epoch, self.ground = epoch, ground
        t, s = self.t_N[ground], self.s_N[ground]
        self.cells, self._roles = cells_of(ground, t, s), {}
        self.cursor = {cell: 0 for cell in self.cells}
        if self.config.refresh == "epoch" and self.growth(step + self.steps_per_epoch) > 1.0:
            self.bank.refresh_all(ground, embed, step)

    def _with_every_cell(self, ground: Tensor, preferred: Tensor) -> Tensor:
        """The ground set, and where it lacks a cell of the training split, that cell's share.

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

    def counters(self) -> dict[str, float]:
        """For the log: pools of fewer than k rows so far, pairs of class and group that the
        training split cannot serve, and images embedded for mining alone."""
        return {
            "small_pools": float(self.small_pools),
            "skipped_pairs": float(self.skipped_pairs),
            "embedded": float(self.bank.embedded),
        }

    def state(self) -> dict[str, Tensor]:
        keep = {f"cell.{i}.{j}": rows for (i, j), rows in self.cells.items()}
        keep["cursor"] = torch.tensor([self.cursor[cell] for cell in self.cells] or [0])
        keep["ground"] = self.ground
        keep["numbers"] = torch.tensor([self.epoch, self.small_pools, self.bank.embedded])
        keep.update({f"bank.{name}": value for name, value in self.bank.state().items()})
        return keep

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if "numbers" not in state:
            return
        self.epoch, self.small_pools, self.bank.embedded = (int(x) for x in state["numbers"])
        self.ground = state["ground"]
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


# -------------------------------------------------------------------------------------------------
# SHaSaM-MINE in a training loop of one's own: a batch sampler for `torch.utils.data`.
# -------------------------------------------------------------------------------------------------


def batch_triplets(t_B: Tensor, s_B: Tensor) -> tuple[Triplet, ...]:
    """Anchors, positives and negatives of every (target, group) pair that a batch can serve.

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
    """Batches that are mined as SHaSaM mines them: ``DataLoader(..., batch_sampler=this)``.

    Every batch holds diverse anchors, hard positives and hard negatives of all pairs of class and
    group. Random at first, then harder, as ``mining`` says in shares of ``total_steps``. After each
    step tell it the embeddings: ``update(rows, embeddings)``. A row that no step has shown yet is
    taken for a typical one of its class and group, or embedded by ``embed(rows)`` where that is
    given. Iterating again goes on where the last epoch ended.

    >>> sampler = MiningBatchSampler([0, 1] * 40, [0, 0, 1, 1] * 20, batch_size=24, total_steps=9)
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
        rows = torch.arange(len(t_N))
        self.plan = MinedPlan(TrainingRows(t_N, s_N, rows, batch_size, seed), config)
        self.plan.total_steps = total_steps
        self.batch_size, self.step = batch_size, 0
        self._embed = embed or self._typical
        self._cell_N = t_N * (int(s_N.max()) + 1) + s_N
        self._seen_N = torch.zeros(len(t_N), dtype=torch.bool)

    def __len__(self) -> int:
        """Batches of an epoch: as many as show every row once on average."""
        return max(1, len(self._cell_N) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            epoch = self.step // self.plan.steps_per_epoch  # of the ground set, not of the loader
            draw = self.plan.draw(epoch, self.step, self._embed)
            self.step += 1
            yield draw.rows_B.tolist()

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
        """For rows that were never seen: the mean of their cell, or of all that were."""
        z_ND = self.plan.bank.z_ND
        if z_ND is None or not bool(self._seen_N.any()):
            raise InputError(
                "mining begins and no embedding is known: call update(rows, embeddings) after "
                "every step, or give MiningBatchSampler embed="
            )
        z, cell = z_ND[self._seen_N], self._cell_N[self._seen_N]
        sums = torch.zeros(int(self._cell_N.max()) + 1, z.shape[1]).index_add_(0, cell, z)
        known = torch.zeros(len(sums), dtype=torch.bool)
        known[cell] = True
        sums[~known] = z.sum(dim=0)
        return sums[self._cell_N[rows]]

    def state_dict(self) -> dict[str, Tensor]:
        """For a checkpoint: with it a run that was cut draws the same batches again."""
        return {"step": torch.tensor(self.step), "seen": self._seen_N.clone(), **self.plan.state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state_dict`` of a sampler of the same labels and settings."""
        self.step, self._seen_N = int(state["step"]), state["seen"].clone()
        self.plan.load_state({k: v for k, v in state.items() if k not in ("step", "seen")})


def _codes(labels: Any, name: str) -> Tensor:
    """Labels of any kind as 0, 1, ... in the order of their values."""
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
