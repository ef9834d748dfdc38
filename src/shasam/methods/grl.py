"""Gradient reversal: features from which an adversary cannot predict the group."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch.nn.functional as F
from pydantic import Field

from shasam.losses import dann_ramp, reverse_gradient
from shasam.methods.base import Dial, Stage
from shasam.methods.baselines import CE, CEConfig
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.types import Batch, Losses


@register("grl", kind="method")
class GRL(CE):
    """CE(t, classifier(f)) + CE(s, adversary(R_λ(f))), f = encoder(x).

    R_λ is the identity; its gradient is multiplied by -λ(p), with the ramp
    λ(p) = strength·(2 / (1 + exp(-slope·p)) - 1) over the share p of training that is done.
    The adversary has one output per group, however many there are, and is asked for the groups that
    are known. Of a sensitive number it has one output, and its loss is the squared error of the
    number's quantile, scaled to variance 1.
    """

    summary = "cross-entropy, and an adversary behind a gradient reversal that reads the group"
    unknown_groups = True
    continuous = True
    number_alone = True
    reference = "Raff and Sylvester, DSAA 2018 (GRAD-pred); ramp: Ganin et al., JMLR 2016"
    dial = Dial("strength", (0.3, 1.0, 3.0))

    class Config(CEConfig):
        strength: float = Field(
            1.0, ge=0, json_schema_extra={"weight": "ce"},
            description="How strongly the adversary's gradient is reversed at the end.",
        )  # fmt: skip
        slope: float = Field(10.0, gt=0, description="How soon the reversal reaches its strength.")
        hidden: int = Field(128, ge=1, description="Units of the adversary's layer.")

    config: Config

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        inside = encoder.out_dim
        self.adversary = Classifier(inside, config.hidden, groups or 1)

    def compares_groups(self, stage: Stage) -> bool:
        return True

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        features_BD = self.encoder(batch.images)
        target = F.cross_entropy(self.classifier(features_BD), batch.t_B)
        factor = self.config.strength * dann_ramp(batch.progress, self.config.slope)
        read, known_B = self.adversary(reverse_gradient(features_BD, factor)), batch.s_B >= 0
        if not bool(known_B.all()):
            read = read[known_B]
        if batch.windows is None:
            group = F.cross_entropy(read, batch.s_B[known_B])
        else:
            u_B = batch.windows.quantile(batch.rows_B.cpu())[known_B.cpu()]
            scaled_B = ((u_B - 0.5) * math.sqrt(12)).to(read)  # the deviation of a uniform number
            group = F.mse_loss(read[:, 0].float(), scaled_B.float())
        yield "main", Losses(target + group, {"target": target.detach(), "group": group.detach()})
