"""Which rows make a batch. A plan is a function of (seed, epoch, step): nothing is carried over.

So a run that was cut anywhere draws the same batches again, whatever had been drawn before. A plan
that does learn something on the way (an embedding bank) says so through ``state``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shasam.extras import need

need("torch", __name__)

import torch
from torch import Tensor

from shasam.errors import DataError
from shasam.types import Triplet

# rows (n,) of the manifest -> embeddings (n, D) of the un-augmented images, current weights
Embed = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Draw:
    """The rows of one batch, and for mined batches the triplets over positions 0..B-1 of it."""

    rows_B: Tensor  # (B,) int64 rows of the manifest
    triplets: tuple[Triplet, ...] = ()


class BatchPlan:
    """Base of all plans. ``step`` counts from the start of the stage."""

    steps_per_epoch: int
    total_steps: int = 0  # of the stage, set by the trainer: schedules are shares of it

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


def keyed_generator(*key: int) -> np.random.Generator:
    """Random numbers that depend on the key alone."""
    return np.random.default_rng(np.random.SeedSequence([int(k) for k in key]))


class NaturalPlan(BatchPlan):
    """A fresh permutation of the rows every epoch; what does not fill a batch is left out."""

    def __init__(
        self, rows: Tensor, batch_size: int, seed: int, steps_per_epoch: int | None = None
    ) -> None:
        if len(rows) < batch_size:
            raise DataError(
                f"a batch of {batch_size} images cannot be drawn from {len(rows)} training images; "
                "lower train.batch_views or use more data"
            )
        self.rows, self.batch_size, self.seed = rows.cpu(), batch_size, seed
        self.steps_per_epoch = steps_per_epoch or len(rows) // batch_size
        # the permutation of the current epoch, remembered only because it is asked for often
        self._order: tuple[int, Tensor] = (-1, rows)

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        per_pass = len(self.rows) // self.batch_size
        number, place = divmod(step, per_pass)  # passes over the rows, whatever an epoch is
        if self._order[0] != number:
            order = keyed_generator(self.seed, number).permutation(len(self.rows))
            self._order = (number, self.rows[torch.from_numpy(order)])
        start = place * self.batch_size
        return Draw(self._order[1][start : start + self.batch_size])


class BalancedPlan(BatchPlan):
    """Equal counts of every (target, group) cell; each cell's permutation is cycled.

    Where the batch size is no multiple of the number of cells, the cells that get one image more
    rotate from step to step.
    """

    def __init__(
        self,
        t_N: Tensor,
        s_N: Tensor,
        rows: Tensor,
        batch_size: int,
        seed: int,
        steps_per_epoch: int | None = None,
    ) -> None:
        rows = rows.cpu()
        t, s = t_N.cpu()[rows], s_N.cpu()[rows]
        cells = sorted(set(zip(t.tolist(), s.tolist(), strict=True)))
        self.cells = [rows[(t == i) & (s == j)] for i, j in cells]
        if batch_size < len(self.cells):
            raise DataError(
                f"a balanced batch needs at least one image of each of the {len(self.cells)} "
                f"(target, group) cells, but holds {batch_size}; raise train.batch_views"
            )
        self.batch_size, self.seed = batch_size, seed
        self.steps_per_epoch = steps_per_epoch or max(1, len(rows) // batch_size)
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
                order = keyed_generator(self.seed, cell, number).permutation(len(rows))
                self._orders.pop((cell, number - 2), None)
                self._orders[cell, number] = rows[torch.from_numpy(order)]
            part = self._orders[cell, number][place : place + last - first]
            parts.append(part)
            first += len(part)
        return parts
