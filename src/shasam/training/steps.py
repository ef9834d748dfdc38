"""One step of one parameter group: backward, average over processes, guard, clip, step."""

from __future__ import annotations

import math
from typing import cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from shasam.errors import TrainingError
from shasam.types import Losses


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
            f"{what} at {where}; the weights were not changed. Look at these images, or lower the "
            "learning rate (train.lr) or clip gradients (train.clip)"
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return value
