"""TADeT and TADeT-MMD: debias the class token's query in a ViT's last block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from shasam.errors import SpecError
from shasam.losses import conditional_group_mmd, dann_ramp, mean_alignment, reverse_gradient
from shasam.methods.base import Dial, Stage
from shasam.methods.baselines import CE, CEConfig
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.types import Batch, Losses


class QueryConfig(CEConfig):
    """Batches of both methods."""

    sampling: Literal["balanced", "natural"] = Field(
        "balanced",
        description="Batches with every cell equally often, as the only public code draws them, "
        "or as rows come.",
    )


class QueryMethod(CE):
    """A ViT with a linear classifier that reads the class token's query q."""

    Config = QueryConfig
    config: QueryConfig
    row_wise = False
    needs_encoder = "vit"
    needs_images = True

    def __init__(self, config: QueryConfig, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        if "query" not in encoder.taps:
            raise SpecError(
                f"{type(self).__name__} reads the class token's query, which "
                f"{type(encoder).__name__} does not have; set model.encoder to vit"
            )

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",), sampling=self.config.sampling),)

    def _pass(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return cross-entropy of the target, and q (B, D)."""
        features_BD, found = self.encoder.forward_taps(batch.images, ("query",))
        return F.cross_entropy(self.classifier(features_BD), batch.t_B), found["query"]


@register("tadet", kind="method")
class TADeT(QueryMethod):
    """CE(t) + CE(s, linear(R_λ(q))) + alignment · MSE(mean q | s=a, mean q | s=b).

    R_λ reverses the gradient with the ramp of GRL; more than two groups: all pairs, averaged.
    """

    summary = "adversary and alignment of group means on the class token's last query (ViT)"
    reference = "Sudhakar et al., 2023 (TADeT, arXiv 2302.04358)"
    dial = Dial("strength", (0.3, 1.0, 3.0))

    class Config(QueryConfig):
        strength: float = Field(
            1.0, ge=0, json_schema_extra={"weight": "ce"},
            description="How strongly the adversary's gradient is reversed at the end.",
        )  # fmt: skip
        alignment: float = Field(
            1.0, ge=0, json_schema_extra={"weight": "ce"},
            description="Weight of the distance between the groups' mean queries.",
        )  # fmt: skip
        slope: float = Field(10.0, gt=0, description="How soon the reversal reaches its strength.")

    config: Config

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.adversary = Classifier(encoder.out_dim, None, groups)

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        target, q_BD = self._pass(batch)
        factor = self.config.strength * dann_ramp(batch.progress, self.config.slope)
        group = F.cross_entropy(self.adversary(reverse_gradient(q_BD, factor)), batch.s_B)
        gap = mean_alignment(q_BD, batch.s_B)
        total = target + group + self.config.alignment * gap
        parts = {"target": target.detach(), "group": group.detach(), "alignment": gap.detach()}
        yield "main", Losses(total, parts)


@register("tadet-mmd", kind="method")
class TADeTMMD(QueryMethod):
    """CE(t) + strength · mean over y and pairs a < b of MMD²(q | y, a ; q | y, b)."""

    summary = "MMD between the groups' queries within each class instead of an adversary (ViT)"
    reference = "Sudhakar et al., 2023; MMD variant as in Tian et al., ECCV 2024"
    dial = Dial("strength", (0.3, 1.0, 3.0))

    class Config(QueryConfig):
        strength: float = Field(
            1.0, ge=0, json_schema_extra={"weight": "ce"},
            description="Weight of the distance between the groups' queries.",
        )  # fmt: skip
        sigma: float = Field(
            1.0, gt=0, description="Width of the kernel, times the mean squared distance."
        )

    config: Config

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        target, q_BD = self._pass(batch)
        gap = conditional_group_mmd(q_BD, batch.t_B, batch.s_B, sigma=self.config.sigma)
        total = target + self.config.strength * gap
        yield "main", Losses(total, {"target": target.detach(), "mmd": gap.detach()})
