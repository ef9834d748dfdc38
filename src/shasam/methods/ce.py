"""Cross-entropy, end to end, without any fairness term."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from shasam.methods.base import Method, MethodConfig
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.types import Batch, Losses


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
