"""An exponential moving average of the weights, offered to all methods alike."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Ema:
    """average <- d average + (1 - d) weights, with d = min(decay, (1 + n) / (10 + n)) at step n."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.count = 0
        self.average = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take in the weights after a step; counters are copied, not averaged."""
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        self.count += 1
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                self.average[name].lerp_(value, 1 - decay)
            else:
                self.average[name].copy_(value)

    def load(self, average: dict[str, Tensor], count: int) -> None:
        """Go on from a checkpoint."""
        for name, value in average.items():
            self.average[name].copy_(value)
        self.count = count
