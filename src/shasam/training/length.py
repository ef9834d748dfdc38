"""How long a method trains, before it does."""

from __future__ import annotations

import torch

from shasam.methods.base import Method
from shasam.sampling import TrainingRows
from shasam.spec.train import TrainSpec
from shasam.training.stage import batch_size_of


def views_on_images(method: Method, train: TrainSpec, images: int) -> int:
    """The views that all stages on images see, on a number of training images.

    Stage 1 alone for most methods; a teacher or a baseline before it counts too. How long an epoch
    is, the method's own batch plan says: one of mined batches goes over a fifth of the images.
    """
    rows = torch.arange(images)
    # equal cells: they decide which rows are drawn, not how many
    t_N, s_N = rows % method.classes, rows // method.classes % method.groups
    total = 0
    for stage in method.stages():
        if stage.inputs != "images":
            continue
        spec = train.stage(stage.name)
        size = batch_size_of(stage, spec, train.stage_key(stage.name), images, world=1)
        plan = method.batch_plan(stage, TrainingRows(t_N, s_N, rows, size, 0, stage.views))
        steps = spec.steps or (spec.epochs or 1) * plan.steps_per_epoch
        total += steps * (plan.batch_size or size) * stage.views
    return total
