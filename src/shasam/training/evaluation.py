"""Features, scores and predictions of a method on rows of a dataset, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from shasam.data.manifest import Manifest
from shasam.data.views import plain
from shasam.methods.base import Method
from shasam.types import Predictions


class TrainingData(Protocol):
    """What training needs of a dataset; ``shasam.data.open_data`` gives one."""

    manifest: Manifest
    t_N: Tensor
    s_N: Tensor
    classes: int
    groups: int

    def rows(self, split: str) -> Tensor: ...

    def images(self, rows: Tensor) -> Tensor: ...


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients; afterwards every submodule is as it was."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, mode in modes:
            m.training = mode


def to_device(images_u8: Tensor, fabric: Fabric) -> Tensor:
    """Un-augmented images as the network reads them."""
    return plain(images_u8.to(fabric.device)).contiguous(memory_format=torch.channels_last)


def on_rows(
    apply: Callable[[Tensor], dict[str, Tensor]],
    method: Method,
    data: TrainingData,
    rows: Tensor,
    fabric: Fabric,
    batch_size: int = 256,
) -> dict[str, Tensor]:
    """``apply`` to the images of ``rows``, in batches: named float tensors (n, D) on the CPU."""
    found: dict[str, list[Tensor]] = {}
    with evaluating(method), fabric.autocast():
        for start in range(0, len(rows), batch_size):
            images = to_device(data.images(rows[start : start + batch_size]), fabric)
            for name, value in apply(images).items():
                found.setdefault(name, []).append(value.float().cpu())
    return {name: torch.cat(parts) for name, parts in found.items()}


def features_of(
    method: Method, data: TrainingData, rows: Tensor, fabric: Fabric, batch_size: int = 256
) -> dict[str, Tensor]:
    """The method's features of rows."""
    return on_rows(method.features, method, data, rows, fabric, batch_size)


def to_predictions(scores_nC: Tensor, data: TrainingData, rows: Tensor) -> Predictions:
    """Scores before the softmax to predictions, with the labels of the rows."""
    probabilities = torch.softmax(scores_nC.float(), dim=1)
    return Predictions(
        ids=data.manifest.table.column("id").take(rows.numpy()).to_numpy(zero_copy_only=False),
        target=data.t_N[rows].numpy().astype(np.int64),
        prediction=probabilities.argmax(1).numpy().astype(np.int64),
        sensitive=data.s_N[rows].numpy().astype(np.int64),
        scores=probabilities.numpy().astype(np.float32),
    )


def predict(
    method: Method, data: TrainingData, rows: Tensor, fabric: Fabric
) -> dict[str, Predictions]:
    """Predictions of rows by feature kind, before ``method.decide``; the first is its own."""
    scores = on_rows(method.logits, method, data, rows, fabric)
    return {kind: to_predictions(value, data, rows) for kind, value in scores.items()}
