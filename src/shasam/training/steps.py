"""A training step: for each group that the method yields, backward, guard, clip and step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from shasam.errors import TrainingError
from shasam.methods.base import Method
from shasam.models.shared import Share, sharing
from shasam.training.bad_batch import name_batch
from shasam.training.epoch_log import EpochLog
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData
from shasam.training.optimizers import learning_rate, set_rate
from shasam.training.stage import StageRun
from shasam.types import Batch, Losses


class Stepper:
    """Takes the steps of a method: one optimiser step for each group that it yields."""

    def __init__(
        self,
        method: Method,
        groups: dict[str, list[nn.Parameter]],
        data: TrainingData,
        fabric: Fabric,
        share: Share | None,
        directory: Path | None,
    ) -> None:
        self.method, self.groups, self.data, self.fabric = method, groups, data, fabric
        self.share = share  # how the encoder's work on a batch is cut over processes
        self.directory = directory  # where a batch that cannot be used is written down

    def step(self, run: StageRun, batch: Batch, epoch_log: EpochLog) -> float:
        """All groups of one batch; returns the sum of their losses."""
        steps = self.method.steps(batch, run.stage.name)
        total = 0.0
        while True:
            with self.fabric.autocast(), sharing(self.share):
                yielded = next(steps, None)
            if yielded is None:
                return total
            name, losses = yielded
            value = self._move(run, batch, name, losses)
            total += value
            epoch_log.count(name, value, losses, len(run.optimizers) > 1)

    def _move(self, run: StageRun, batch: Batch, name: str, losses: Losses) -> float:
        stage = run.stage
        if name not in run.optimizers:
            raise TrainingError(
                f"stage {stage.name!r} of {type(self.method).__name__} yields the group "
                f"{name!r}, which it does not move; its groups are {stage.groups}"
            )
        spec, optimizer = run.specs[name], run.optimizers[name]
        set_rate(optimizer, learning_rate(spec, batch.step, run.total))
        where = f"step {batch.step} of stage {stage.name}, group {name}"
        try:
            parameters = self.groups[name]
            return step_group(
                losses, self.method, parameters, optimizer, self.fabric, spec.clip, where
            )
        except TrainingError as error:
            first = self.fabric.global_rank == 0
            raise name_batch(error, batch, self.data, first, self.directory) from error


def average_gradients(parameters: list[nn.Parameter], loss: Tensor, fabric: Fabric) -> Tensor:
    """Mean of the gradients and of the loss over processes; returns the mean loss."""
    if fabric.world_size == 1:
        return loss.detach()
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([loss.detach().reshape(1).float(), *(g.reshape(-1).float() for g in grads)])
    flat = cast("Tensor", fabric.all_reduce(flat, reduce_op="mean"))
    start = 1
    for grad in grads:
        grad.copy_(flat[start : start + grad.numel()].view_as(grad))
        start += grad.numel()
    return flat[0]


def step_group(
    losses: Losses,
    method: nn.Module,
    parameters: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    fabric: Fabric,
    clip: float | None,
    where: str,
) -> float:
    """Move one group by one step and return the loss; raises before the weights move.

    Only the gradients of this group are computed, so no other group can be polluted by them.
    """
    if not losses.total.requires_grad:
        raise TrainingError(f"the loss of {where} depends on no parameter that moves in this stage")
    fabric.backward(losses.total, inputs=parameters)
    loss = average_gradients(parameters, losses.total, fabric)
    if clip is not None:
        norm = fabric.clip_gradients(method, optimizer, max_norm=clip, error_if_nonfinite=False)
    else:
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    # with 16-bit scaling an infinite gradient is met by the scaler, which skips the step
    scaled = getattr(fabric.strategy.precision, "scaler", None) is not None
    value, length = float(loss), float(cast("Tensor", norm))
    if not math.isfinite(value) or not (scaled or math.isfinite(length)):
        what = f"loss is {value}" if not math.isfinite(value) else f"gradient norm is {length}"
        raise TrainingError(
            f"{what} at {where}; the weights were not changed. Look at these rows, or lower the "
            "learning rate (train.lr) or clip gradients (train.clip)"
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return value
