"""Batches with the class and group shares of the training split."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.errors import DataError
from shasam.keyed import keyed
from shasam.mining.bank import Embed
from shasam.sampling.plan import BatchPlan, Draw, TrainingRows


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
