"""``random``: k rows of each pool, drawn without replacement. The paper's ablation baseline."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.mining.miner import Mined, Miner
from shasam.registry import register


@register("random", kind="miner")
class RandomMiner(Miner):
    """No hardness at all."""

    def pick(
        self, z_A: Tensor, z_P: Tensor, z_N: Tensor, k: int, generator: torch.Generator
    ) -> Mined:
        def draw(z: Tensor) -> Tensor:
            return torch.randperm(len(z), generator=generator)[:k].to(z.device)

        return Mined(draw(z_A), draw(z_P), draw(z_N), {})
