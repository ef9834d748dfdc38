"""Group DRO: the worst (target, group) cell weighs most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from shasam.methods.base import Stage
from shasam.methods.ce import CE, CEConfig
from shasam.models import Encoder
from shasam.registry import register
from shasam.types import Batch, Losses


@register("groupdro", kind="method")
class GroupDRO(CE):
    """Σ_c q_c · mean CE of cell c, after q_c ← q_c exp(step · mean CE of c), Σ_c q_c = 1.

    A cell that the batch lacks keeps its unnormalised weight and adds nothing.
    """

    summary = "minimises the loss of the worst (target, group) cell, online"
    row_wise = False
    reference = "Sagawa et al., ICLR 2020 (Group DRO)"

    class Config(CEConfig):
        step: float = Field(0.01, ge=0)  # of the exponentiated update
        # the published commands draw every cell equally often (--reweight_groups): "balanced"
        sampling: Literal["natural", "balanced"] = "natural"

    config: Config
    weights_K: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        cells = classes * groups
        self.register_buffer("weights_K", torch.full((cells,), 1 / cells, dtype=torch.float64))

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",), sampling=self.config.sampling),)

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        each_B = F.cross_entropy(
            self.classifier(self.encoder(batch.images)), batch.t_B, reduction="none"
        )
        cell_B = batch.t_B * self.groups + batch.s_B
        one_hot_BK = F.one_hot(cell_B, len(self.weights_K)).to(each_B.dtype)
        loss_K = (each_B @ one_hot_BK) / one_hot_BK.sum(0).clamp(min=1)
        with torch.no_grad():
            grown_K = self.weights_K * torch.exp(self.config.step * loss_K.double())
            self.weights_K.copy_(grown_K / grown_K.sum())
        total = (self.weights_K.to(loss_K.dtype) * loss_K).sum()
        parts = {"target": each_B.detach().mean(), "largest_weight": self.weights_K.max()}
        yield "main", Losses(total, parts)
