"""The batch of a step: images or features, labels and triplets of the rows that a plan drew."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.keyed import text_key
from shasam.methods.base import Method
from shasam.models.shared import sharing
from shasam.sampling import Draw
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData, evaluating
from shasam.training.prepare import prepare_images
from shasam.training.processes import share_of
from shasam.training.stage import StageRun
from shasam.training.views import Views
from shasam.types import Batch


class BatchMaker:
    """Makes the batches of one process, and embeds rows for plans that mine."""

    def __init__(
        self, method: Method, data: TrainingData, fabric: Fabric, views: Views, seed: int
    ) -> None:
        self.method, self.data, self.fabric = method, data, fabric
        self.views, self.seed = views, seed
        self.t_N, self.s_N = torch.tensor(data.manifest.t_N), torch.tensor(data.manifest.s_N)
        # a mean over rows is cut over processes; any other loss sees the whole batch in each of
        # them, and only the encoder's work is shared
        self.cut = fabric.world_size if method.row_wise else 1
        self.share = share_of(fabric) if fabric.world_size > 1 else None

    def make(self, run: StageRun, drawn: Draw, step: int) -> Batch:
        """The part of a batch that this process computes with."""
        rows = drawn.rows_B[self.fabric.global_rank % self.cut :: self.cut]
        device = self.fabric.device
        images, features = torch.empty(0, device=device), {}
        if run.stage.inputs == "features":
            features = run.features_of(rows, device)
        else:
            key = text_key(self.seed, run.stage.name, "views")
            images = self.views.of(run.stage, rows, key, step, device)
        return Batch(
            images=images,
            t_B=self.t_N[rows].to(device),
            s_B=self.s_N[rows].to(device),
            rows_B=rows,
            views=run.stage.views,
            step=step,
            progress=step / run.total,
            triplets=drawn.triplets,
            features=features,
            observe=lambda z: run.plan.observe(drawn.rows_B, z.detach().float()),
        )

    def embed(self, rows: Tensor) -> Tensor:
        """``Method.embed`` of un-augmented images with the current weights, for mining."""
        images = prepare_images(self.data.images(rows), self.fabric.device)
        with evaluating(self.method), self.fabric.autocast(), sharing(self.share):
            return self.method.embed(images).float()
