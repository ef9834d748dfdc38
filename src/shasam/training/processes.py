"""What the processes of one run do together."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn, tensor

from shasam.models.shared import Share
from shasam.training.fabric import Fabric


def share_of(fabric: Fabric) -> Share:
    """The part of a batch that this process encodes, and how all parts come together."""

    def gather(part: Tensor) -> Tensor:
        return cast("Tensor", fabric.all_gather(part.contiguous(), sync_grads=True))

    return Share(fabric.global_rank, fabric.world_size, gather)


def anybody(asked: bool, fabric: Fabric) -> bool:
    """True on all processes as soon as it is true on one, so that they stop together."""
    if fabric.world_size == 1:
        return asked
    flag = tensor(float(asked), device=fabric.device)
    return float(cast("Tensor", fabric.all_reduce(flag, reduce_op="sum"))) > 0


def average_buffers(module: nn.Module, fabric: Fabric) -> None:
    """Each process has running statistics of its own part; their mean is what is evaluated."""
    if fabric.world_size > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.copy_(cast("Tensor", fabric.all_reduce(buffer, reduce_op="mean")))
