"""Contrastive methods: learn an encoder and a projection, then classify with both frozen.

Stage "learn" moves encoder and projection head; stage "classify" trains classifiers on each kind
of feature with cross-entropy. SupCon, FSCL and SHaSaM inherit this and write ``learn``.

How often stage 2 sees each (target, group) cell decides as much as the features do, so both ways
are always trained: ``encoder`` and ``projection`` on batches as ``stage2_sampling`` says, beside
them ``encoder-balanced`` or ``encoder-natural`` (likewise for the projection), whose cells are
re-weighted to the other way. They share no parameter: each is trained as if it were alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_serializer, model_validator
from torch import Tensor, nn

from shasam.losses.sets import unit_length
from shasam.methods.base import Method, MethodConfig, Stage
from shasam.mining import MiningConfig
from shasam.models import Classifier, Encoder, ProjectionHead
from shasam.sampling import BatchPlan, TrainingRows
from shasam.types import Batch, Head, Losses
from shasam.window_batches import mined_plan


class TwoStageConfig(MethodConfig):
    """Batches, heads and the second stage, alike for all methods of this shape."""

    sampling: Literal["natural", "mined"] = Field(
        "natural", description="Batches of stage 1: as they come, or the sets that SHaSaM mines."
    )
    mining: MiningConfig = Field(
        MiningConfig(), description="How the sets of mined batches are chosen."
    )
    projection_dim: int = Field(128, description="Numbers of an embedding, on which stage 1 acts.")
    projection_hidden: int | None = Field(
        None, description="Units of the projection's layer; null: as wide as the encoder's output."
    )
    projection_batch_norm: bool = Field(
        True, description="Whether the projection normalises over the batch."
    )
    classifier_hidden: int | None = Field(
        256, description="Units of the classifier's layer; null: a linear classifier."
    )
    primary_features: Literal["encoder", "projection"] = Field(
        "encoder",
        description="Features that the method's own predictions come from; both are evaluated.",
    )
    stage2_sampling: Literal["natural", "balanced"] = Field(
        "natural",
        description="How often the method's own classifier sees each cell; the other way is "
        "evaluated beside it.",
    )
    stage2_augment: bool = Field(
        False, description="false: features are computed once, and stage 2 takes seconds."
    )

    @field_validator("mining", mode="before")
    @classmethod
    def _over_its_own(cls, given: Any) -> Any:
        """Keep the method's own value of a key of mining that is not given."""
        own: MiningConfig = cls.model_fields["mining"].default
        return own.over(given) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _mining_is_used(self) -> TwoStageConfig:
        if self.sampling == "natural" and "mining" in self.model_fields_set:
            raise ValueError("mining is for mined batches; add options.sampling=mined")
        return self

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Leave out what is not used: runs from before every method could mine keep their names."""
        body: dict[str, Any] = dump(self)
        if self.sampling == type(self).model_fields["sampling"].default:
            body.pop("sampling", None)
        if self.sampling == "natural":
            body.pop("mining", None)
        return body


class TwoStage(Method):
    """Base class; a subclass writes ``learn(z, batch)`` and, if need be, ``learn_stage()``."""

    Config = TwoStageConfig
    config: TwoStageConfig
    reweight_KCG: Tensor

    def __init__(self, config: TwoStageConfig, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        inside = encoder.out_dim
        self.projection = ProjectionHead(
            inside, config.projection_hidden, config.projection_dim, config.projection_batch_norm
        )
        self.other = "natural" if config.stage2_sampling == "balanced" else "balanced"
        self.classifiers = nn.ModuleDict()
        self.heads: list[Head] = []
        for kind, width in (("encoder", inside), ("projection", config.projection_dim)):
            for head in (Head(kind), Head(kind, self.other)):
                self.heads.append(head)
                self.classifiers[head.name] = Classifier(
                    width, config.classifier_hidden, classes, standardise=True
                )
        self.heads.sort(key=lambda head: head.name != config.primary_features)
        # what a row of a cell weighs for the classifiers of the other way, by each attribute that
        # takes turns; set with the batch plan
        self.register_buffer("reweight_KCG", torch.ones(1, classes, groups), persistent=False)
        # what each row weighs for them, where the sensitive attribute is a number
        self.reweight_KN: Tensor | None = None

    def learn_stage(self) -> Stage:
        """Return two views of each image, in batches as they come or as they are mined."""
        return Stage("learn", ("main",), views=2, sampling=self.config.sampling)

    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        if stage.sampling == "mined":
            return mined_plan(data, self.config.mining)
        return super().batch_plan(stage, data)

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        """Return the objective on unit-length projections z (V*B, D), views B rows apart."""
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

    def begin_stage(self, stage: Stage, data: TrainingRows) -> None:
        """Count the weights of the cells for the classifiers of the other way."""
        if stage.name != "classify":
            return
        if data.all_windows:
            rows = data.rows.cpu()
            self.reweight_KN = torch.ones(len(data.all_windows), len(data.t_N))
            for weight_N, windows in zip(self.reweight_KN, data.all_windows, strict=True):
                weight_n = windows.weights(data.t_N.cpu()[rows], rows)
                weight_n = weight_n.reciprocal() if self.other == "natural" else weight_n
                weight_N[rows] = weight_n.float()
            return
        turns = data.turns or (data.s_N,)
        groups = max(self.groups, *(int(s_N.max()) + 1 for s_N in turns))
        found = [self._reweighted(data, s_N, groups) for s_N in turns]
        self.reweight_KCG = torch.stack(found).to(self.reweight_KCG.device)

    def _reweighted(self, data: TrainingRows, s_N: Tensor, groups: int) -> Tensor:
        """Return what a row of each (target, group) cell weighs (C, G), by one attribute."""
        rows = data.rows[s_N[data.rows] >= 0]
        cells = data.t_N[rows] * groups + s_N[rows]
        count_CG = torch.bincount(cells.cpu(), minlength=self.classes * groups).float()
        share_CG = count_CG.view(self.classes, groups) / len(rows)
        equal = share_CG.count_nonzero().clamp_min(1).reciprocal()
        ratio_CG = share_CG / equal if self.other == "natural" else equal / share_CG
        return torch.where(share_CG > 0, ratio_CG, torch.zeros(()))

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        if stage == "learn":
            z = self.features(batch.images)["projection"]
            batch.observe(z)
            yield "main", self.learn(z, batch)
            return
        features = batch.features
        if not features:
            with torch.no_grad():
                features = self.features(batch.images)
        weight_B = self._weight_of(batch)
        parts = {}
        for kind, scores in self.classify(features).items():
            loss_B = F.cross_entropy(scores, batch.t_VB, reduction="none")
            weighed = Head.named(kind).sampling is not None
            parts[kind] = (loss_B * weight_B if weighed else loss_B).mean()
        total = torch.stack(list(parts.values())).sum()
        yield "classifier", Losses(total, {kind: loss.detach() for kind, loss in parts.items()})

    def _weight_of(self, batch: Batch) -> Tensor:
        """Return what the rows of a batch weigh for the classifiers of the other way."""
        if batch.windows is not None and self.reweight_KN is None:
            return torch.ones_like(batch.t_VB, dtype=torch.float32)
        if self.reweight_KN is not None:
            weight_B = self.reweight_KN[batch.turn, batch.rows_B.cpu()].to(batch.t_B.device)
            return weight_B.repeat(batch.views)
        weight_B = self.reweight_KCG[batch.turn, batch.t_VB, batch.s_VB]
        return torch.where(batch.s_VB < 0, 1.0, weight_B)  # one without a group is in no cell

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Return ``encoder`` as it comes, ``projection`` at unit length."""
        h = self.encoder(images)
        z = unit_length(self.projection(h).float())
        return {"encoder": h, "projection": z}

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {h.name: self.classifiers[h.name](features[h.features]) for h in self.heads}
