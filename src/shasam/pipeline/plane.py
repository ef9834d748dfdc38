"""Features projected to two dimensions, for the figure on the page."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LIMIT = 2000


def plane(features: Tensor) -> np.ndarray:
    """The first two principal components (n, 2), with signs that do not depend on the solver."""
    centred = features.double() - features.double().mean(0)
    _, _, components = torch.linalg.svd(centred, full_matrices=False)
    components = components[:2]
    largest = components.abs().argmax(1, keepdim=True)
    components = components * components.gather(1, largest).sign()
    points = (centred @ components.T).numpy()
    return points if points.shape[1] == 2 else np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def spread_rows(n: int, limit: int = LIMIT) -> np.ndarray:
    """At most ``limit`` of n rows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, limit)).astype(np.int64))
