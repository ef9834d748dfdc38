"""Which rows make a batch: the base class of batch plans.

A plan is a function of (seed, epoch, step). A run that was cut anywhere draws the same batches
again, whatever had been drawn before. A plan that carries something over (an embedding bank) puts
it into ``state``, which is part of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from shasam.mining.bank import Embed
from shasam.types import Triplet


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
