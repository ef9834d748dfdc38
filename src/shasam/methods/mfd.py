"""MMD-based fair distillation: every group's features should look like the teacher's class."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.errors import CheckpointError, InputError
from shasam.losses import distillation_mmd
from shasam.methods.base import Dial, Stage
from shasam.methods.baselines import CE, CEConfig
from shasam.models import Encoder
from shasam.models.weights import read_weights
from shasam.registry import register
from shasam.types import Batch, Losses


@register("mfd", kind="method")
class MFD(CE):
    """CE(t) + (strength/2) Σ_y Σ_a MMD²(F_T | y ; F_S | y, a).

    F is the last convolutional map, flattened (a ViT's class token); the teacher F_T has the same
    architecture, is trained by cross-entropy in a stage of its own (or read from the weights of a
    finished run) and does not move afterwards. Batches hold each (target, group) cell equally; rows
    without a group are in no term but CE(t).
    """

    summary = "distils a cross-entropy teacher so that each group's features match their class"
    row_wise = False
    unknown_groups = True
    reference = "Jung et al., CVPR 2021 (Fair Feature Distillation)"
    dial = Dial("strength", (1.0, 3.0, 10.0))

    class Config(CEConfig):
        strength: float = Field(
            3.0, ge=0, json_schema_extra={"weight": "ce"},
            description="Weight of the distance to the teacher's features (published: 3 on "
            "UTKFace, 7 on CelebA).",
        )  # fmt: skip
        sigma: float = Field(
            1.0, gt=0, description="Width of the kernel, times the mean squared distance."
        )
        teacher: str | None = Field(
            None, description="model.safetensors of a finished run; null: train a teacher first."
        )

    config: Config

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.tap = encoder.last_map
        self.teacher = nn.ModuleDict(
            {"encoder": copy.deepcopy(encoder), "classifier": copy.deepcopy(self.classifier)}
        )
        if config.teacher is not None:
            self._read_teacher(Path(config.teacher))
            self.teacher.requires_grad_(False)

    def stages(self) -> tuple[Stage, ...]:
        learn = Stage("learn", ("main",), sampling="balanced")
        return (learn,) if self.config.teacher else (Stage("teacher", ("teacher",)), learn)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        main = [*self.encoder.parameters(), *self.classifier.parameters()]
        return {"main": main, "teacher": list(self.teacher.parameters())}

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        if stage == "teacher":
            features_BD = self.teacher["encoder"](batch.images)
            target = F.cross_entropy(self.teacher["classifier"](features_BD), batch.t_B)
            yield "teacher", Losses(target, {"target": target.detach()})
            return
        features_BD, student = self._pass(self.encoder, batch.images)
        encoder = self.teacher["encoder"]
        assert isinstance(encoder, Encoder)
        with torch.no_grad():
            _, teacher = self._pass(encoder, batch.images)
        target = F.cross_entropy(self.classifier(features_BD), batch.t_B)
        labels = (batch.t_B, batch.s_B)
        known_B = batch.s_B >= 0
        if not bool(known_B.all()):
            student, teacher = student[known_B], teacher[known_B]
            labels = (batch.t_B[known_B], batch.s_B[known_B])
        gap = distillation_mmd(student, teacher, *labels, sigma=self.config.sigma)
        total = target + self.config.strength / 2 * gap
        yield "main", Losses(total, {"target": target.detach(), "mmd": gap.detach()})

    def _pass(self, encoder: Encoder, images: Tensor) -> tuple[Tensor, Tensor]:
        if self.tap is None:
            features_BD = encoder(images)
            return features_BD, features_BD
        features_BD, found = encoder.forward_taps(images, (self.tap,))
        return features_BD, found[self.tap].flatten(1)

    def _read_teacher(self, path: Path) -> None:
        if path.suffix != ".safetensors" or not path.is_file():
            raise InputError(
                f"the teacher {path} is not a .safetensors file that exists; "
                "give the model.safetensors of a finished run of the same encoder"
            )
        try:
            given = read_weights(path)
            wanted = {k: v for k, v in given.items() if k.startswith(("encoder.", "classifier."))}
            self.teacher.load_state_dict(wanted)
        except (CheckpointError, RuntimeError) as error:
            raise InputError(
                f"the teacher {path} does not fit: {str(error)[:300]}; it needs the same encoder, "
                "the same classes, and an end-to-end method such as ce"
            ) from error
