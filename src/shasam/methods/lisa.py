"""Mix rows of one class from two groups, or rows of one group from two classes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from shasam.methods.base import Dial, Stage
from shasam.methods.baselines import CE, CEConfig
from shasam.registry import register
from shasam.types import Batch, Losses


@register("lisa", kind="method")
class LISA(CE):
    """CE(λ t + (1-λ) t', λ x + (1-λ) x'), λ ~ Beta(alpha, alpha), a number for every row.

    In a step, with probability ``within_class``, x' is a row of the batch with the class of x and
    another group; else one with the group of x and another class. A row that has no such partner
    stays as it is, as does one without a group. Batches hold every (target, group) cell equally, as
    the published ones.
    """

    summary = "cross-entropy on mixtures across groups of a class, or across classes of a group"
    groups_in_turns = True
    unknown_groups = True
    row_wise = False
    reference = "Yao et al., ICML 2022 (LISA)"
    dial = Dial("within_class", (0.0, 0.5, 1.0))

    class Config(CEConfig):
        within_class: float = Field(
            0.5, ge=0, le=1, description="Share of the steps that mix groups within a class."
        )
        alpha: float = Field(2.0, gt=0, description="Of the Beta distribution of the share λ.")

    config: Config

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",), sampling="balanced"),)

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        within = bool(torch.rand(()) < self.config.within_class)
        partner_B = partners(batch.t_VB, batch.s_VB, within)
        alpha = torch.tensor(self.config.alpha)
        share_B = torch.distributions.Beta(alpha, alpha).sample((len(partner_B),))
        share_B = share_B.to(batch.images.device)
        wide_B = share_B.view(-1, *[1] * (batch.images.ndim - 1)).to(batch.images.dtype)
        mixed = wide_B * batch.images + (1 - wide_B) * batch.images[partner_B]
        one_hot_BC = F.one_hot(batch.t_VB, self.classes).float()
        target_BC = share_B[:, None] * one_hot_BC + (1 - share_B[:, None]) * one_hot_BC[partner_B]
        loss = F.cross_entropy(self.classifier(self.encoder(mixed)).float(), target_BC)
        yield "main", Losses(loss, {"ce": loss.detach()})


def partners(t_B: Tensor, s_B: Tensor, within_class: bool) -> Tensor:
    """Draw for each row another one to mix with at random; the row itself if there is none."""
    same_t, same_s = t_B[:, None] == t_B, s_B[:, None] == s_B
    fits_BB = same_t & ~same_s if within_class else same_s & ~same_t
    known_B = s_B >= 0
    fits_BB = fits_BB & known_B[:, None] & known_B
    drawn_BB = torch.rand(len(t_B), len(t_B)).to(t_B.device).masked_fill(~fits_BB, -1.0)
    itself_B = torch.arange(len(t_B), device=t_B.device)
    return torch.where(fits_BB.any(1), drawn_BB.argmax(1), itself_B)
