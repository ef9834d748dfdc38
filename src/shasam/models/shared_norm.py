"""Batch normalisation with the statistics of the whole batch, where processes have a part each.

``torch.nn.SyncBatchNorm`` does this on GPUs and refuses tensors of a CPU. The layer here is written
with differentiable gathers only, so one implementation serves every device and its tests on a CPU
are tests of what a GPU computes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from shasam.errors import SpecError
from shasam.models.shared import has_whole_batch

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
        """Any number of dimensions: the channels are the second."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, ...) of this process, normalised over the rows of all."""
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
        """Running statistics, as ``torch.nn.BatchNorm2d`` keeps them."""
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
