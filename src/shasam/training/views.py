"""The views of a batch: augmented images, or views of vectors."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from shasam.data.vector_views import CellPartners, vector_views
from shasam.data.views import augmented_views
from shasam.methods.base import Method, Stage
from shasam.spec.views import ViewsSpec
from shasam.training.inference import TrainingData
from shasam.training.prepare import prepare_images


class Views:
    """Makes the views of a training split; ``stage`` says how many views there will be."""

    def __init__(self, method: Method, data: TrainingData, spec: ViewsSpec, size: int) -> None:
        self.data, self.spec, self.size = data, spec, size
        self.vectors = method.encoder.inputs == "vectors"
        self.unit = "vectors" if self.vectors else "images"
        self.partners: CellPartners | None = None

    def begin(self, t_N: Tensor, s_N: Tensor, rows: Tensor) -> None:
        """The labels of all rows, and the rows of the training split."""
        if self.vectors and self.spec.mixing:
            self.partners = CellPartners(t_N, s_N, rows)

    def stage(self, stage: Stage) -> Stage:
        """The stage as it is carried out: vectors of which no view differs have one view."""
        if self.vectors and not self.spec.of_vectors:
            return replace(stage, views=1, augment=False)
        return stage

    def of(self, stage: Stage, rows: Tensor, seed: int, step: int, device: torch.device) -> Tensor:
        """(V*B, ...) on the device, keyed by the step: a row that is drawn twice in an epoch gets
        new views each time."""
        if not stage.augment:
            return prepare_images(self.data.images(rows), device)
        if self.vectors:
            read, views = self.data.images, stage.views
            return vector_views(
                read, rows, self.partners, seed=seed, draw=step, views=views, spec=self.spec
            ).to(device)
        return augmented_views(
            self.data.images(rows).to(device),
            rows,
            seed=seed,
            draw=step,
            views=stage.views,
            size=self.size,
            spec=self.spec,
        ).contiguous(memory_format=torch.channels_last)
