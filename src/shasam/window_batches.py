"""Choose the rows of a batch over the windows of a sensitive number: balanced, or mined.

``balanced_plan`` and ``mined_plan`` take these plans where the attribute is a number, and those of
groups elsewhere. All randomness is keyed, as in ``shasam.sampling``.
"""

from __future__ import annotations

from dataclasses import replace

from shasam.extras import need

need("torch", __name__)

import torch
from torch import Tensor

from shasam.errors import Argument, DataError
from shasam.keyed import keyed, keyed_torch
from shasam.mining.pools import Embed, Ground, Pools, repeated
from shasam.mining.shasam_miner import MiningConfig
from shasam.sampling import ROLES, BalancedPlan, BatchPlan, Draw, MinedPlan, TrainingRows
from shasam.types import Triplet
from shasam.windows import spread


class SpreadPlan(BatchPlan):
    """Equal counts of every class, and in each class rows spread evenly over a sensitive number.

    A row is drawn by 1 / n_ts, the rows of its class in its window, and one from each of equal
    parts of the whole weight, in the order of the number. With windows that hold one value each
    these are equal counts of every (target, group) cell, to one row.
    """

    def __init__(self, data: TrainingRows) -> None:
        assert data.windows is not None
        rows, t_N = data.rows.cpu(), data.t_N.cpu()
        self.classes = [rows[t_N[rows] == t] for t in t_N[rows].unique()]
        if data.batch_size < len(self.classes):
            raise DataError(
                f"a balanced batch needs at least one image of each of the {len(self.classes)} "
                f"classes, but holds {data.batch_size}; ",
                *data.larger_batch(len(self.classes)),
            )
        self.windows, self.seed = data.windows, data.seed
        self.weights = [self.windows.counts(own, own).reciprocal() for own in self.classes]
        self.batch_size, self.steps_per_epoch = data.batch_size, data.steps_per_epoch
        # the order of each class in the present epoch, remembered because it is asked for often
        self._orders: dict[int, tuple[int, Tensor]] = {}

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        base, extra = divmod(self.batch_size, len(self.classes))
        parts = []
        for c, rows in enumerate(self.classes):
            # who has one more rotates over the steps
            size = base + ((c - step * extra) % len(self.classes) < extra)
            order = self._order(c, epoch)
            uniform = torch.from_numpy(keyed(self.seed, 6, step, c).random(size))
            parts.append(rows[order[spread(self.weights[c][order], uniform)]])
        return Draw(torch.cat(parts))

    def _order(self, c: int, epoch: int) -> Tensor:
        """Return the rows of a class by their number, equal ones mixed anew in every epoch."""
        if self._orders.get(c, (-1, None))[0] != epoch:
            rows = self.classes[c]
            mixed = torch.from_numpy(keyed(self.seed, 7, epoch, c).permutation(len(rows)))
            by_number = self.windows.r_N[rows[mixed]].argsort(stable=True)
            self._orders[c] = (epoch, mixed[by_number])
        return self._orders[c][1]


def balanced_plan(data: TrainingRows) -> BatchPlan:
    """Return batches that are balanced over cells, or over the windows of a sensitive number."""
    return BalancedPlan(data) if data.windows is None else SpreadPlan(data)


DRAWN_WINDOWS, MINED_WINDOWS = 8, 2  # of a step, where sets share a batch, and where they do not


class WindowPlan(MinedPlan):
    """Mine batches over windows of a sensitive number in place of its groups.

    In each step the middles of some windows are drawn from the training rows, evenly over windows.
    For a class i and a window, A are the rows of class i in it, P those of class i outside, N those
    of other classes in it. A row is a candidate of the set that it belongs to more (near above
    1/2), so that the set functions are those of groups; the objective then weighs the rows of a set
    by near, those of P by 1 - near. Where nothing is mined, or roles are shared, every window has
    all rows of the batch that belong to a set at all, and a batch of drawn rows is that of
    ``SpreadPlan``.

    Parameters
    ----------
    data
        The training rows, their classes and the windows.
    config
        What is mined, and how.
    """

    def __init__(self, data: TrainingRows, config: MiningConfig) -> None:
        assert data.windows is not None
        self.windows = data.windows
        self.many = config.windows or (MINED_WINDOWS if config.mines else DRAWN_WINDOWS)
        super().__init__(data, config)
        # evenly over windows: a row by the rows of all classes in its own
        self._by_number = self.rows[self.windows.r_N[self.rows].argsort(stable=True)]
        self._even = self.windows.counts(self._by_number, self._by_number).reciprocal()
        self.drawn = SpreadPlan(replace(data, batch_size=self.batch_size))
        self.middles = self.rows[:0]  # of the windows of the present step

    def _pairs(self) -> tuple[list[tuple[int, int]], int]:
        """Return every class with every window of a step."""
        t_n = self.t_N[self.rows]
        all_n = self.windows.counts(self.rows, self.rows)
        own_n = self.windows.cell_counts(t_n, self.rows)
        if not bool((all_n > own_n).any()) or not bool((all_n < len(self.rows)).any()):
            raise DataError(
                "no window of the sensitive number has rows of two classes inside and rows "
                "outside; choose another ",
                Argument("data.bandwidth"),
            )
        return [(int(i), k) for i in t_n.unique() for k in range(self.many)], 0

    def _served(self) -> int:
        """Return the pairs that share a batch.

        Sets of drawn rows overlap, so it holds one window's.
        """
        return len(self.pairs) // (1 if self.config.mines else self.many)

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        self._step, self._choices = step, []
        self._enter(epoch, step, embed)
        uniform = torch.from_numpy(keyed(self.seed, 8, step).random(self.many))
        self.middles = self._by_number[spread(self._even, uniform)]
        pairs = self.pairs
        if self.config.pairs == "one":
            pairs = [pairs[int(keyed(self.seed, 9, step).integers(len(pairs)))]]
        parts: list[list[Tensor]] = []
        if self.config.mines:
            parts = self._mined_sets(pairs, step, embed)
        if not parts:
            rows_B = self.drawn.draw(epoch, step, embed).rows_B
        else:
            rows_B = torch.cat([torch.cat(part) for part in parts if part])
        if not parts or self.config.roles == "shared":
            whole = torch.arange(len(rows_B))
            found = [self._triplet(pair, rows_B, [whole, whole, whole]) for pair in pairs]
        else:
            lengths = [len(rows) for part in parts for rows in part]
            places = list(torch.arange(len(rows_B)).split(lengths))
            found = []
            for pair, part in zip(pairs, parts, strict=True):
                if part:
                    found.append(self._triplet(pair, rows_B, places[:3]))
                    places = places[3:]
        return Draw(rows_B, tuple(t for t in found if t is not None))

    def says(self, sampling: str) -> str:
        return f"{super().says(sampling)} in {self.many} windows"

    def _near(self, number: int, rows: Tensor) -> Tensor:
        """Return the membership of rows in a window of the present step."""
        return self.windows.near(rows, self.middles[number : number + 1])[:, 0]

    def _triplet(self, pair: tuple[int, int], rows_B: Tensor, sets: list[Tensor]) -> Triplet | None:
        """Return the weighted sets of a class and a window; None if one of them is empty."""
        (target, number), t_B = pair, self.t_N[rows_B]
        near_B = self._near(number, rows_B)
        fits = (t_B == target, t_B == target, t_B != target)
        belongs = [near_B * fits[0], (1 - near_B) * fits[1], near_B * fits[2]]
        kept = [places[own[places] > 0] for places, own in zip(sets, belongs, strict=True)]
        if not all(map(len, kept)):
            return None
        a, p, n = kept
        weights = (belongs[0][a].float(), belongs[1][p].float(), belongs[2][n].float())
        group = int(self.s_N[self.middles[number]])
        return Triplet(a, p, n, target, group, t_B, self.s_N[rows_B], weights)

    def _mined_sets(
        self, pairs: list[tuple[int, int]], step: int, embed: Embed
    ) -> list[list[Tensor]]:
        """Return rows of A, P and N of every pair.

        Nothing of a pair whose window lacks one of them.
        """
        hardness, generator = self.hardness(step), keyed_torch(self.seed, 2, step)
        whole = None
        if hardness > 0 and self.config.needs_ground:
            whole = self._whole_ground(embed, shared=len(pairs) > 1)
        self._taken_N.zero_()
        parts: list[list[Tensor]] = [[] for _ in pairs]
        for turn in range(len(pairs)):
            number = (turn + step) % len(pairs)
            pools = self._pools_in(self.ground, pairs[number])
            if not all(map(len, pools)):
                self.skipped["window"] = self.skipped.get("window", 0) + 1
                continue
            sizes = self._sizes(number, len(pairs), step)
            sets = [
                self._part_of(rows, role, size, hardness, generator)
                for rows, role, size in zip(pools, ROLES, sizes, strict=True)
            ]
            if hardness > 0:
                rows_V = self.ground if whole is not None else torch.cat(sets)
                ground = whole if whole is not None else self._embedded(rows_V, embed)
                named = (pairs[number][0], int(self.s_N[self.middles[pairs[number][1]]]))
                sets = self._picked(named, sets, sizes, rows_V, ground, generator)
            parts[number] = [
                self._completed(pool, rows, size)
                for pool, rows, size in zip(pools, sets, sizes, strict=True)
            ]
        return parts if any(parts) else []

    def _pools_in(self, rows: Tensor, pair: tuple[int, int]) -> list[Tensor]:
        """Return the rows that belong to A, to P and to N more than to another set."""
        inside, same = self._near(pair[1], rows) > 0.5, self.t_N[rows] == pair[0]
        return [rows[inside & same], rows[~inside & same], rows[inside & ~same]]

    def _part_of(
        self, pool: Tensor, role: str, size: int, hardness: float, generator: torch.Generator
    ) -> Tensor:
        """Return candidates that are not in the batch yet: as many as are looked at, mixed."""
        free = pool[~self._taken_N[pool]]
        free = free if len(free) else pool
        most = size
        if hardness > 0 and self.config.picks(role):
            most = len(free)
            if self.config.pool is not None:
                most = min(most, round(self.config.pool * size))
            most = size + int(hardness * max(0, most - size))
            if most >= len(free):
                return free
        return free[torch.randperm(len(free), generator=generator)[:most]]

    def _completed(self, pool: Tensor, rows: Tensor, size: int) -> Tensor:
        """Return a set with as many rows as it should have; what is missing is repeated."""
        fresh = int((~self._taken_N[rows]).sum())
        if fresh < size:
            self.small_pools += 1
            if self.config.small_pool != "shrink":
                others = pool[~torch.isin(pool, rows)]
                rows = repeated(torch.cat([rows, others]), size)
            self.repeats += len(rows) - fresh
        self._taken_N[rows] = True
        return rows

    def _whole_pools(self, ground: Ground, pools: Pools) -> Pools:
        """Return the same candidates: a window has no cell."""
        return pools


def mined_plan(data: TrainingRows, config: MiningConfig) -> MinedPlan:
    """Return mined batches over groups, or over the windows of a sensitive number."""
    return MinedPlan(data, config) if data.windows is None else WindowPlan(data, config)
