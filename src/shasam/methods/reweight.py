"""Cross-entropy with inverse-frequency weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from shasam.methods.base import Stage
from shasam.methods.ce import CE, CEConfig
from shasam.models import Encoder
from shasam.registry import register
from shasam.sampling import TrainingRows
from shasam.types import Batch, Losses


@register("reweight", kind="method")
class Reweight(CE):
    """mean_i w(t_i, s_i) CE_i.

    ``inverse``: w(t, s) = n / (C·G·n_ts), each cell weighs the same in the long run;
    ``independence``: w(t, s) = n_t n_s / (n n_ts), as if target and group were independent.
    The counts are those of the training split (of the batch, where no plan has been asked for).
    """

    summary = "cross-entropy weighted by the inverse frequency of the (target, group) cell"
    reference = "Kamiran and Calders, KAIS 2012 (reweighing); inverse frequency: folklore"

    class Config(CEConfig):
        scheme: Literal["inverse", "independence"] = "inverse"

    config: Config
    counts_CG: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.register_buffer("counts_CG", torch.zeros(classes, groups, dtype=torch.float64))

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        each_B = F.cross_entropy(
            self.classifier(self.encoder(batch.images)), batch.t_B, reduction="none"
        )
        counts_CG = self.counts_CG if self.counts_CG.any() else self._count(batch.t_B, batch.s_B)
        weight_B = self._weights(counts_CG)[batch.t_B, batch.s_B].to(each_B.dtype)
        total = (weight_B * each_B).mean()
        yield "main", Losses(total, {"target": each_B.detach().mean()})

    def begin_stage(self, stage: Stage, data: TrainingRows) -> None:
        self.counts_CG.copy_(self._count(data.t_N[data.rows], data.s_N[data.rows]))

    def _count(self, t_B: Tensor, s_B: Tensor) -> Tensor:
        cell_B = t_B * self.groups + s_B
        counts_K = torch.bincount(cell_B, minlength=self.classes * self.groups)
        return counts_K.reshape(self.classes, self.groups).to(torch.float64)

    def _weights(self, n_CG: Tensor) -> Tensor:
        if self.config.scheme == "inverse":
            return n_CG.sum() / (self.classes * self.groups * n_CG.clamp(min=1))
        return n_CG.sum(1, keepdim=True) * n_CG.sum(0) / (n_CG.sum() * n_CG.clamp(min=1))
