"""Features, scores and predictions of a method on rows of a dataset, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from shasam.data.manifest import Manifest
from shasam.methods.base import Method
from shasam.training.fabric import Fabric
from shasam.training.prepare import prepare_images
from shasam.types import Predictions

K = TypeVar("K", bound=Hashable)  # name of a tensor
BATCH = 256  # images that are scored together; docs/training.md says what another size changes


class TrainingData(Protocol):
    """What training needs of a dataset; ``shasam.data.open_data`` gives one."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def classes(self) -> int: ...

    @property
    def groups(self) -> int: ...

    def rows(self, split: str) -> np.ndarray | Tensor: ...

    def images(self, rows: Any) -> Tensor: ...


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


def on_images(
    apply: Callable[[Tensor], dict[K, Tensor]],
    method: Method,
    batches: Iterable[Tensor],
    fabric: Fabric,
) -> dict[K, Tensor]:
    """``apply`` to batches of uint8 images: named float tensors (n, D) on the CPU."""
    found: dict[K, list[Tensor]] = {}
    with evaluating(method), fabric.autocast():
        for images_u8 in batches:
            for name, value in apply(prepare_images(images_u8, fabric.device)).items():
                found.setdefault(name, []).append(value.float().cpu())
    return {name: torch.cat(parts) for name, parts in found.items()}


def on_rows(
    apply: Callable[[Tensor], dict[K, Tensor]],
    method: Method,
    data: TrainingData,
    rows: Tensor,
    fabric: Fabric,
    batch_size: int = BATCH,
) -> dict[K, Tensor]:
    """``apply`` to the images of ``rows``, in batches: named float tensors (n, D) on the CPU."""
    batches = (data.images(part) for part in rows.split(batch_size)) if len(rows) else ()
    return on_images(apply, method, batches, fabric)


def features_of(
    method: Method, data: TrainingData, rows: Tensor, fabric: Fabric, batch_size: int = BATCH
) -> dict[str, Tensor]:
    """The method's features of rows."""
    return on_rows(method.features, method, data, rows, fabric, batch_size)


def to_predictions(scores_nC: Tensor, data: TrainingData, rows: Tensor) -> Predictions:
    """Scores before the softmax to predictions, with the labels of the rows."""
    probabilities = torch.softmax(scores_nC.float(), dim=1)
    return Predictions(
        ids=data.manifest.table.column("id").take(rows.numpy()).to_numpy(zero_copy_only=False),
        target=data.manifest.t_N[rows.numpy()].astype(np.int64),
        prediction=probabilities.argmax(1).numpy().astype(np.int64),
        sensitive=data.manifest.s_N[rows.numpy()].astype(np.int64),
        scores=probabilities.numpy().astype(np.float32),
    )


def read_rows(
    method: Method, data: TrainingData, rows: Tensor, fabric: Fabric
) -> tuple[dict[str, Tensor], dict[str, Predictions]]:
    """Features and predictions of rows, by kind, before ``method.decide``; the first is its own."""

    def both(images: Tensor) -> dict[tuple[str, str], Tensor]:
        features = method.features(images)
        named = {("features", kind): value for kind, value in features.items()}
        named.update({("scores", k): v for k, v in method.classify(features).items()})
        return named

    found = on_rows(both, method, data, rows, fabric)
    features = {kind: value for (what, kind), value in found.items() if what == "features"}
    scores = {kind: value for (what, kind), value in found.items() if what == "scores"}
    return features, {kind: to_predictions(v, data, rows) for kind, v in scores.items()}
