"""Contrastive rivals: SupCon, FSCL and FSCL+.

SupCon attracts views of one target class. FSCL takes negatives of the anchor's group only, so the
group does not help to tell them apart.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from shasam.losses import fscl, supcon
from shasam.methods.base import Dial, Stage
from shasam.methods.two_stage import TwoStage, TwoStageConfig
from shasam.registry import register
from shasam.types import Batch, Losses

# -------------------------------------------------------------------------------------------------
# SupCon: views of one target class attract each other, all others repel.
# -------------------------------------------------------------------------------------------------


@register("supcon", kind="method")
class SupCon(TwoStage):
    """-(τ/0.07) mean_i 1/|P(i)| Σ_{p∈P(i)} [ z_i·z_p/τ - log Σ_{a≠i} exp(z_i·z_a/τ) ].

    i runs over all views of the batch, P(i) are the other views of its target class. Then a
    classifier on the frozen features, as in every two-stage method.
    """

    summary = "supervised contrastive learning, no fairness term"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "Khosla et al., NeurIPS 2020 (SupCon)"

    class Config(TwoStageConfig):
        temperature: float = Field(
            0.1, gt=0, description="τ, which similarities are divided by; small: near ones count."
        )

    config: Config

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        loss = supcon(z, batch.t_VB, temperature=self.config.temperature)
        return Losses(loss, {"supcon": loss.detach()})


# -------------------------------------------------------------------------------------------------
# FSCL and FSCL+: negatives share the anchor's group, so the group does not separate them.
# -------------------------------------------------------------------------------------------------


@register("fscl", kind="method")
class FSCL(TwoStage):
    """-(τ/0.07) mean_i 1/|P(i)| Σ_{p∈P(i)} [ z_i·z_p/τ - log Σ_{n∈N(i)} exp(z_i·z_n/τ) ].

    P(i): the other views of i's target class; N(i): views of another class and of the same group.
    The positives are not in the denominator. Then a classifier on the frozen features. Every term
    of the first stage reads the group of its anchor, so rows without one are for the second alone.
    """

    summary = "supervised contrastive learning whose negatives share the group"
    groups_in_turns = True
    unknown_groups = True
    reference = "Park et al., CVPR 2022 (FSCL)"
    dial = Dial("projection_dim", (128, 32, 8))
    group_normalised: ClassVar[bool] = False

    class Config(TwoStageConfig):
        temperature: float = Field(
            0.1, gt=0, description="τ, which similarities are divided by; small: near ones count."
        )

    config: Config

    def compares_groups(self, stage: Stage) -> bool:
        return stage.name == "learn" or super().compares_groups(stage)

    def uses_unknown(self, stage: Stage) -> bool:
        return stage.name != "learn"

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        loss = fscl(
            z,
            batch.t_VB,
            batch.s_VB,
            temperature=self.config.temperature,
            group_normalised=self.group_normalised,
            classes=self.classes,
            groups=self.groups,
        )
        return Losses(loss, {"fscl": loss.detach()})


@register("fscl+", kind="method")
class FSCLPlus(FSCL):
    """FSCL with group-wise normalisation: every (target, group) cell weighs the same.

    l_ip is divided by g_p and g_i + 1, where g_x counts the other views of x's cell, and
    multiplied by V·B / (C·G²); see ``shasam.losses.fscl``.
    """

    summary = "FSCL with group-wise normalisation of anchors and positives"
    unknown_groups = True
    reference = "Park et al., CVPR 2022 (FSCL+)"
    group_normalised = True
