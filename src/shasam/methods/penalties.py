"""Cross-entropy with a penalty on what differs between groups of one class: scores or features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from shasam.losses import conditional_group_mmd, conditional_hsic, soft_gap
from shasam.methods.base import Dial
from shasam.methods.baselines import CE, CEConfig
from shasam.registry import register
from shasam.types import Batch, Losses


class PenaltyConfig(CEConfig):
    """Settings of a penalised cross-entropy."""

    strength: float = Field(
        1.0, ge=0, json_schema_extra={"weight": "ce"}, description="Weight of the penalty."
    )


class KernelConfig(PenaltyConfig):
    """Settings of a penalty that compares features by a kernel."""

    sigma: float = Field(
        1.0, gt=0, description="Width of the kernel, times the mean squared distance."
    )


def _near(batch: Batch, like: Tensor) -> Tensor | None:
    """Return how near rows of a batch are along a sensitive number; None where there are groups."""
    if batch.windows is None:
        return None
    rows = batch.rows_B.cpu()
    return batch.windows.near(rows, rows).to(like.device)


class PenaltyMethod(CE):
    """CE(t) + strength · penalty(features, scores, t, s); a subclass writes ``penalty``."""

    Config: ClassVar[type[PenaltyConfig]] = PenaltyConfig
    row_wise = False
    config: PenaltyConfig
    part: ClassVar[str]  # the name of the penalty in the log

    def penalty(self, features_BD: Tensor, scores_BC: Tensor, batch: Batch) -> Tensor:
        """Return what is to become 0."""
        raise NotImplementedError

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        features_BD = self.encoder(batch.images)
        scores_BC = self.classifier(features_BD)
        target = F.cross_entropy(scores_BC.float(), batch.t_B)
        features_BD, scores_BC = features_BD.float(), scores_BC.float()
        known_B = batch.s_B >= 0  # groups are compared over the rows that have one
        if not bool(known_B.all()):
            batch = replace(
                batch,
                t_B=batch.t_B[known_B],
                s_B=batch.s_B[known_B],
                rows_B=batch.rows_B[known_B.to(batch.rows_B.device)],
            )
            features_BD, scores_BC = features_BD[known_B], scores_BC[known_B]
        found = self.penalty(features_BD, scores_BC, batch)
        parts = {"target": target.detach(), self.part: found.detach()}
        yield "main", Losses(target + self.config.strength * found, parts)


@register("gap", kind="method")
class GapPenalty(PenaltyMethod):
    """CE(t) + strength · mean over classes y and pairs a < b of |E[q_y | y, a] - E[q_y | y, b]|.

    q is the softmax: the EO of probabilities instead of decisions, which has a gradient. Of a
    sensitive number a and b are windows of it, the further apart the more a pair weighs.
    """

    summary = "cross-entropy and a differentiable EO of the batch as a penalty"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "DiffEOdd of Han et al., FFB, NeurIPS 2023; here for any number of classes"
    dial = Dial("strength", (0.3, 1.0, 3.0))
    part = "gap"

    def penalty(self, features_BD: Tensor, scores_BC: Tensor, batch: Batch) -> Tensor:
        alike_BB = _near(batch, scores_BC)
        return soft_gap(torch.softmax(scores_BC, 1), batch.t_B, batch.s_B, alike_BB=alike_BB)


@register("mmd", kind="method")
class MMDPenalty(PenaltyMethod):
    """CE(t) + strength · mean over y and pairs a < b of MMD²(f | y, a ; f | y, b).

    Of a sensitive number a and b are windows of it, the further apart the more a pair weighs.
    """

    summary = "cross-entropy and the MMD between the groups' features within each class"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "Gretton et al., JMLR 2012; as a penalty: Louizos et al., ICLR 2016"
    dial = Dial("strength", (0.3, 1.0, 3.0))
    part = "mmd"

    Config = KernelConfig
    config: KernelConfig

    def penalty(self, features_BD: Tensor, scores_BC: Tensor, batch: Batch) -> Tensor:
        return conditional_group_mmd(
            features_BD, batch.t_B, batch.s_B, sigma=self.config.sigma,
            alike_BB=_near(batch, features_BD),
        )  # fmt: skip


@register("hsic", kind="method")
class HSICPenalty(PenaltyMethod):
    """CE(t) + strength · mean over classes y of HSIC(f, s | y), a Gaussian and a delta kernel.

    Of a sensitive number the second kernel is ``near`` of shasam.windows, a tent over quantiles.
    """

    summary = "cross-entropy and the dependence (HSIC) of features and group within each class"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "Gretton et al., ALT 2005; as a fairness penalty: Li et al., 2019, and FFB"
    dial = Dial("strength", (3.0, 10.0, 30.0))
    part = "hsic"

    Config = KernelConfig
    config: KernelConfig

    def penalty(self, features_BD: Tensor, scores_BC: Tensor, batch: Batch) -> Tensor:
        return conditional_hsic(
            features_BD, batch.t_B, batch.s_B, sigma=self.config.sigma,
            alike_BB=_near(batch, features_BD),
        )  # fmt: skip
