"""Batches with equal counts of every (target, group) cell."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.errors import DataError
from shasam.keyed import keyed
from shasam.mining.bank import Embed
from shasam.mining.pools import cells_of
from shasam.sampling.plan import BatchPlan, Draw, TrainingRows


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
