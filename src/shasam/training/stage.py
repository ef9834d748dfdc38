"""A stage under way: its batch plan, optimisers and averaged weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from shasam.errors import SpecError
from shasam.methods.base import Method, Stage
from shasam.sampling import BatchPlan, TrainingRows
from shasam.spec.train import StageSpec, TrainSpec
from shasam.training.checkpoint import Checkpoint
from shasam.training.ema import Ema
from shasam.training.fabric import Fabric
from shasam.training.modes import pretrained, set_modes
from shasam.training.optimizers import load_optimizer_tensors, make_optimizer, optimizer_tensors


@dataclass
class StageRun:
    """What is made at the start of a stage, or restored from a checkpoint."""

    stage: Stage
    spec: StageSpec
    plan: BatchPlan
    total: int  # steps
    batch_size: int
    optimizers: dict[str, Any]  # by parameter group, as Fabric wraps them
    specs: dict[str, StageSpec]  # by parameter group
    ema: Ema | None
    features: dict[str, Tensor] = field(default_factory=dict)  # of the training rows, by kind
    place_N: Tensor | None = None  # row of the manifest -> row of ``features``
    val_features: dict[str, Tensor] = field(default_factory=dict)

    def description(self, unit: str, world: int) -> str:
        """One line for the start of the stage."""
        split = f" = {world} processes x {self.batch_size // world}" if world > 1 else ""
        return (
            f"stage {self.stage.name}: {self.total} steps of {self.batch_size} {unit}{split} x "
            f"{self.stage.views} views, {self.stage.sampling} batches"
        )

    def keep_features(self, features: dict[str, Tensor], data: TrainingRows) -> None:
        """Keep the features of the training rows, for a stage that reads nothing else."""
        self.features = features
        self.place_N = torch.full((len(data.t_N),), -1)
        self.place_N[data.rows] = torch.arange(len(data.rows))

    def features_of(self, rows: Tensor, device: torch.device) -> dict[str, Tensor]:
        """The features of training rows that were computed at the start of the stage."""
        assert self.place_N is not None
        place = self.place_N[rows]
        return {kind: z[place].to(device) for kind, z in self.features.items()}

    def tensors(self) -> dict[str, Tensor]:
        """What the stage adds to a checkpoint."""
        tensors = {f"plan.{k}": v for k, v in self.plan.state().items()}
        for group, optimizer in self.optimizers.items():
            for name, value in optimizer_tensors(optimizer).items():
                tensors[f"optimizer.{group}.{name}"] = value
        if self.ema is not None:
            tensors.update({f"ema.{k}": v for k, v in self.ema.average.items()})
        return tensors


def batch_size_of(stage: Stage, spec: StageSpec, key: str, rows: int, world: int) -> int:
    """Images in a batch: the views of the specification over the views of the stage."""
    size = max(1, spec.batch_views // stage.views)
    if size % world:
        raise SpecError(
            f"a batch of {size} images cannot be cut into {world} equal parts; "
            f"make {key}.batch_views a multiple of {world * stage.views}"
        )
    return min(size, rows) if stage.inputs == "features" else size


def begin(
    method: Method,
    stage: Stage,
    train: TrainSpec,
    data: TrainingRows,
    groups: dict[str, list[nn.Parameter]],
    fabric: Fabric,
    checkpoint: Checkpoint | None,
    ema_count: int,
) -> StageRun:
    """Start a stage, or go on with it where ``checkpoint`` was written in the middle of it."""
    spec = train.stage(stage.name)
    method.begin_stage(stage, data)
    plan = method.batch_plan(stage, data)
    total = spec.steps if spec.steps is not None else (spec.epochs or 1) * plan.steps_per_epoch
    plan.total_steps = total
    set_modes(method, stage)
    overrides = method.optimizer_overrides()
    specs = {g: spec.model_copy(update=overrides.get(g, {})) for g in stage.groups}
    plain: dict[str, torch.optim.Optimizer] = {
        g: make_optimizer(groups[g], specs[g], pretrained(method)) for g in stage.groups
    }
    wrapped = {g: fabric.setup_optimizers(o) for g, o in plain.items()}
    ema = Ema(method, train.ema) if train.ema and stage.inputs == "images" else None
    if checkpoint is not None:
        plan.load_state(checkpoint.part("plan"))
        for group, optimizer in plain.items():
            load_optimizer_tensors(optimizer, checkpoint.part(f"optimizer.{group}"))
        if ema is not None:
            ema.load(checkpoint.part("ema"), ema_count)
    size = plan.batch_size or data.batch_size
    return StageRun(stage, spec, plan, total, size, wrapped, specs, ema)
