"""Share one batch over several processes: rows to encode, and statistics of batch normalisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from shasam.errors import SpecError

# -------------------------------------------------------------------------------------------------
# One batch over several processes: each encodes a part of the rows, and all gather the result.
#
# The trainer puts a `Share` in force around the steps of a method whose loss compares the rows of
# a batch. Every process then computes that loss on the whole batch, with the gradients of a single
# process; only the encoder's work is divided. An encoder that is not decorated does all of the
# work in every process, and is right as well.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """Which part of a batch is this process's, and how the parts come together."""

    rank: int
    world: int
    gather: Callable[[Tensor], Tensor]  # (b, ...) to (world, b, ...), gradients going back to all


_current: Share | None = None


@contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """Put a share in force, or none."""
    global _current
    before, _current = _current, share
    try:
        yield
    finally:
        _current = before


def has_whole_batch() -> bool:
    """Return whether this process holds all rows of a batch, as it does outside of an encoder."""
    return _current is not None


def in_shares(encode: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate ``encode(self, images, ...)`` whose tensors have one row for each image."""

    @wraps(encode)
    def shared(self: Any, images: Tensor, *more: Any) -> Any:
        share = _current
        if share is None or len(images) % share.world:
            return encode(self, images, *more)
        with sharing(None):  # what is called inside has its part already
            own = encode(self, images.chunk(share.world)[share.rank], *more)
        return _together(own, share)

    return shared


def _together(own: Any, share: Share) -> Any:
    if isinstance(own, dict):
        return {name: _together(value, share) for name, value in own.items()}
    if isinstance(own, tuple):
        return tuple(_together(value, share) for value in own)
    return share.gather(own).flatten(0, 1)


# -------------------------------------------------------------------------------------------------
# Batch normalisation with the statistics of the whole batch, where processes have a part each.
#
# `torch.nn.SyncBatchNorm` does this on GPUs and refuses tensors of a CPU. The layer here is
# written with differentiable gathers only, so one implementation serves every device and its tests
# on a CPU are tests of what a GPU computes.
# -------------------------------------------------------------------------------------------------

Gather = Callable[[Tensor], Tensor]  # (...) to (world, ...), gradients going back to all


class SharedBatchNorm(_BatchNorm):
    """A batch normalisation layer whose mean and variance are those of all processes' rows."""

    def __init__(self, like: _BatchNorm, gather: Gather) -> None:
        super().__init__(
            like.num_features, like.eps, like.momentum, like.affine, like.track_running_stats
        )
        # the same objects, so that optimisers, checkpoints and names do not notice the exchange
        self._parameters, self._buffers = like._parameters, like._buffers
        self.training = like.training
        self.gather = gather

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of dimensions: the channels are the second."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, ...) of this process over the rows of all."""
        if not self.training or has_whole_batch():
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            wide = x if x.dtype == torch.float64 else x.float()
            return self._normalised(wide).to(x.dtype)

    def _normalised(self, x: Tensor) -> Tensor:
        others = [dim for dim in range(x.ndim) if dim != 1]
        shape = [1, -1] + [1] * (x.ndim - 2)
        count = x.new_full((1,), x.numel() / x.shape[1])
        sums = self.gather(torch.cat([x.sum(others), count])).sum(0)
        mean_C, n = sums[:-1] / sums[-1], sums[-1].detach()
        centred = x - mean_C.view(shape)
        # two passes: a mean of squares less the square of the mean would lose digits
        var_C = self.gather(centred.square().sum(others)).sum(0) / n
        self._remember(mean_C.detach(), var_C.detach() * (n / (n - 1)))
        y = centred * torch.rsqrt(var_C + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y

    def _remember(self, mean_C: Tensor, var_C: Tensor) -> None:
        """Update running statistics, as ``torch.nn.BatchNorm2d`` keeps them."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        new = self.momentum
        if new is None:  # the mean over all batches
            new = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean_C.to(self.running_mean.dtype), new)
        self.running_var.lerp_(var_C.to(self.running_var.dtype), new)


def share_batch_norm(module: nn.Module, gather: Gather) -> None:
    """Put a ``SharedBatchNorm`` in the place of every batch normalisation layer of a module."""
    for name, child in module.named_children():
        if not isinstance(child, _BatchNorm):
            share_batch_norm(child, gather)
        elif type(child) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            setattr(module, name, SharedBatchNorm(child, gather))
        else:
            raise SpecError(
                f"train.sync_batchnorm cannot be used: {name} is a {type(child).__name__}, which "
                "may do more than normalise a batch; choose another encoder or leave it out"
            )
