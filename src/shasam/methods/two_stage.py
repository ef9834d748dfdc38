"""Contrastive methods: learn an encoder and a projection, then classify with both frozen.

Stage "learn" moves encoder and projection head; stage "classify" trains one classifier on each
kind of feature with cross-entropy. SupCon, FSCL and SHaSaM inherit this and write ``learn``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shasam.methods.base import Method, MethodConfig, Stage
from shasam.models import Classifier, ProjectionHead
from shasam.types import Batch, Losses


class TwoStageConfig(MethodConfig):
    """Heads and the second stage, alike for all methods of this shape."""

    projection_dim: int = 128
    projection_hidden: int | None = None  # null: as wide as the encoder's output
    projection_batch_norm: bool = True
    classifier_hidden: int | None = 256  # null: a linear classifier
    # which features the method's own predictions come from; both are always evaluated
    primary_features: Literal["encoder", "projection"] = "encoder"
    stage2_sampling: Literal["natural", "balanced"] = "natural"
    stage2_augment: bool = False  # False: features are computed once, stage 2 takes seconds


class TwoStage(Method):
    """Base class; a subclass writes ``learn(z, batch)`` and, if need be, ``learn_stage()``."""

    Config = TwoStageConfig
    config: TwoStageConfig

    def __init__(
        self, config: TwoStageConfig, encoder: nn.Module, classes: int, groups: int
    ) -> None:
        super().__init__(config, encoder, classes, groups)
        inside = int(encoder.out_dim)  # type: ignore[arg-type]
        self.projection = ProjectionHead(
            inside, config.projection_hidden, config.projection_dim, config.projection_batch_norm
        )
        hidden = config.classifier_hidden
        self.classifiers = nn.ModuleDict(
            {
                "encoder": Classifier(inside, hidden, classes, standardise=True),
                "projection": Classifier(config.projection_dim, hidden, classes, standardise=True),
            }
        )

    def learn_stage(self) -> Stage:
        """Two views of each image, in batches as they come."""
        return Stage("learn", ("main",), views=2)

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        """The objective on unit-length projections z (V*B, D), views B rows apart."""
        raise NotImplementedError

    def stages(self) -> tuple[Stage, ...]:
        inputs: Literal["images", "features"] = (
            "images" if self.config.stage2_augment else "features"
        )
        sampling = self.config.stage2_sampling
        classify = Stage("classify", ("classifier",), sampling=sampling, inputs=inputs)
        return (self.learn_stage(), classify)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {
            "main": [*self.encoder.parameters(), *self.projection.parameters()],
            "classifier": list(self.classifiers.parameters()),
        }

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        if stage == "learn":
            z = self.features(batch.images)["projection"]
            losses = self.learn(z, batch)
            yield "main", replace(losses, z=z.detach())
            return
        features = batch.features
        if not features:
            with torch.no_grad():
                features = self.features(batch.images)
        # the classifiers share no parameter, so the sum trains each as if it were alone
        parts = {
            kind: F.cross_entropy(scores, batch.t_VB)
            for kind, scores in self.classify(features).items()
        }
        total = torch.stack(list(parts.values())).sum()
        yield "classifier", Losses(total, {kind: loss.detach() for kind, loss in parts.items()})

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """``encoder`` as it comes, ``projection`` at unit length."""
        h = self.encoder(images)
        z = F.normalize(self.projection(h).float(), dim=1)
        return {"encoder": h, "projection": z}

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        first = self.config.primary_features
        kinds = sorted(self.classifiers, key=lambda kind: kind != first)
        return {kind: self.classifiers[kind](features[kind]) for kind in kinds}

    def logits(self, images: Tensor) -> dict[str, Tensor]:
        return self.classify(self.features(images))
