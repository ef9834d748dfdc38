"""The batch plan of SHaSaM: ground set, pools, hardness, and the triplets of every step.

All randomness is keyed by (seed, epoch, step); what is carried over (cursors, the ground set, the
bank) is in ``state``, so that a run that was cut draws the same batches again.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from shasam.errors import DataError
from shasam.keyed import keyed, keyed_torch
from shasam.mining.bank import Embed, EmbeddingBank
from shasam.mining.config import MiningConfig
from shasam.mining.explain import explain
from shasam.mining.pools import cells_of, draw_pair, feasible_pairs, pools_of
from shasam.mining.random import RandomMiner
from shasam.sampling.plan import BatchPlan, Draw, TrainingRows
from shasam.types import Triplet

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
