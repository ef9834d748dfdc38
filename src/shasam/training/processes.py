"""What the processes of one run do together."""

from __future__ import annotations

import hashlib
from typing import cast

from torch import Tensor, int64, nn, tensor

from shasam.errors import TrainingError
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


def agree(fabric: Fabric, what: str, value: str, remedy: str) -> None:
    """An error in every process where one has another value of ``what`` than the first.

    Processes on several machines read files of their own; if those differ, the processes would
    train different things and average them.
    """
    if fabric.world_size == 1:
        return
    digest = int.from_bytes(hashlib.sha256(value.encode()).digest()[:8], "big", signed=True)
    own = tensor([digest], dtype=int64, device=fabric.device)
    digests = cast("Tensor", fabric.all_gather(own)).flatten().tolist()
    others = [str(rank) for rank, one in enumerate(digests) if one != digests[0]]
    if others:
        raise TrainingError(
            f"{what} of process {', '.join(others)} differs from that of process 0; this is "
            f"process {fabric.global_rank} of {fabric.world_size}, which has {value}. {remedy}"
        )


def average_buffers(module: nn.Module, fabric: Fabric) -> None:
    """Each process has running statistics of its own part; their mean is what is evaluated."""
    if fabric.world_size > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.copy_(cast("Tensor", fabric.all_reduce(buffer, reduce_op="mean")))
