"""Cross-entropy and its variants: plain, cell-balanced, reweighted, and the worst cell first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.methods.base import Dial, Method, MethodConfig, Stage
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.sampling import TrainingRows
from shasam.types import Batch, Losses

# -------------------------------------------------------------------------------------------------
# Cross-entropy, end to end, without any fairness term.
# -------------------------------------------------------------------------------------------------


class CEConfig(MethodConfig):
    """Settings of cross-entropy."""

    classifier_hidden: int | None = None  # null: a linear classifier


@register("ce", kind="method")
class CE(Method):
    """L = -log softmax(logits)[t], mean over the batch."""

    summary = "cross-entropy end to end, no fairness term"
    reference = "the baseline of every table"
    Config: ClassVar[type[MethodConfig]] = CEConfig
    row_wise = True
    config: CEConfig

    def __init__(self, config: CEConfig, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        inside = encoder.out_dim
        self.classifier = Classifier(inside, config.classifier_hidden, classes)

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        scores = self.classifier(self.encoder(batch.images))
        loss = F.cross_entropy(scores.float(), batch.t_VB)
        yield "main", Losses(loss, {"ce": loss.detach()})

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """``encoder``, and ``hidden`` where the classifier has a hidden layer."""
        features = super().features(images)
        if isinstance(self.classifier.hidden, nn.Linear):
            features["hidden"] = self.classifier.hidden_layer(features["encoder"])
        return features

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"encoder": self.classifier(features["encoder"])}


# -------------------------------------------------------------------------------------------------
# Cross-entropy on batches with equal counts of every (target, group) cell.
# -------------------------------------------------------------------------------------------------


@register("balanced", kind="method")
class Balanced(CE):
    """The simplest remedy for a biased training set, and the rival that papers leave out."""

    summary = "cross-entropy on batches balanced over (target, group) cells"
    reference = "Idrissi et al., Simple data balancing, CLeaR 2022 (there: SUBG / RWG)"

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",), sampling="balanced"),)


# -------------------------------------------------------------------------------------------------
# Cell-balanced cross-entropy with a hidden layer: what SHaSaM's projection is compared with.
# -------------------------------------------------------------------------------------------------


@register("balanced-hidden", kind="method")
class BalancedHidden(Balanced):
    """The control for SHaSaM's representation: a layer as wide as its projection, no set objective.

    Part of what a projection does for fairness is done by any narrow layer between the encoder and
    the classes; ``hidden`` is that layer.
    """

    summary = "balanced with a hidden layer as wide as SHaSaM's projection; a control"
    reference = "ours: the control for a projection's features"

    class Config(CEConfig):
        classifier_hidden: int | None = 128


# -------------------------------------------------------------------------------------------------
# Cross-entropy with inverse-frequency weights.
# -------------------------------------------------------------------------------------------------


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


# -------------------------------------------------------------------------------------------------
# Group DRO: the worst (target, group) cell weighs most.
# -------------------------------------------------------------------------------------------------


@register("groupdro", kind="method")
class GroupDRO(CE):
    """Σ_c q_c · mean CE of cell c, after q_c ← q_c exp(step · mean CE of c), Σ_c q_c = 1.

    A cell that the batch lacks keeps its unnormalised weight and adds nothing.
    """

    summary = "minimises the loss of the worst (target, group) cell, online"
    row_wise = False
    reference = "Sagawa et al., ICLR 2020 (Group DRO)"
    dial = Dial("step", (0.001, 0.01, 0.1))

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
