"""SupCon: views of one target class attract each other, all others repel."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from shasam.losses import supcon
from shasam.methods.two_stage import TwoStage, TwoStageConfig
from shasam.registry import register
from shasam.types import Batch, Losses


@register("supcon", kind="method")
class SupCon(TwoStage):
    """-(τ/0.07) mean_i 1/|P(i)| Σ_{p∈P(i)} [ z_i·z_p/τ - log Σ_{a≠i} exp(z_i·z_a/τ) ].

    i runs over all views of the batch, P(i) are the other views of its target class. Then a
    classifier on the frozen features, as in every two-stage method.
    """

    summary = "supervised contrastive learning, no fairness term"
    reference = "Khosla et al., NeurIPS 2020 (SupCon)"

    class Config(TwoStageConfig):
        temperature: float = Field(0.1, gt=0)

    config: Config

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        loss = supcon(z, batch.t_VB, temperature=self.config.temperature)
        return Losses(loss, {"supcon": loss.detach()})
