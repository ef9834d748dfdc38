"""How soon the target is learnt: a linear probe of the encoder while a stage is under way.

The same measure for every method, whether or not it has a classifier of its own yet. It is fitted
on a few training images, equally many of each (target, group) cell, and read on validation images.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shasam.keyed import keyed
from shasam.methods.base import Method
from shasam.metrics import Counts, values
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData, features_of
from shasam.training.probes import linear_guess

FIT, READ = 1024, 1024  # images, at most


def target_probe(
    method: Method, data: TrainingData, train: Tensor, val: Tensor, fabric: Fabric, seed: int
) -> dict[str, float]:
    """Validation accuracy and EO of a linear classifier on the encoder's features."""
    t_N, s_N = data.manifest.t_N, data.manifest.s_N
    fit = _evenly(train.numpy(), t_N * data.groups + s_N, FIT, seed)
    read = np.sort(keyed(seed, 1).permutation(val.numpy())[:READ])
    found = features_of(method, data, torch.from_numpy(np.concatenate([fit, read])), fabric)
    x, read_x = found["encoder"].split([len(fit), len(read)])
    target = torch.from_numpy(t_N[fit].astype(np.int64))
    guess = linear_guess(x, target, read_x, data.classes).numpy()
    classes, groups = (tuple(map(str, range(n))) for n in (data.classes, data.groups))
    counts = Counts.from_codes(t_N[read], guess, s_N[read], classes, groups)
    return values(counts, ("accuracy", "eo_mean"))


def _evenly(rows: np.ndarray, cell_N: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """At most ``limit`` rows, from each cell as many as from the others where it has them."""
    order = keyed(seed, 0).permutation(rows)
    cells = np.unique(cell_N[rows])
    share = max(1, limit // len(cells))
    return np.sort(np.concatenate([order[cell_N[order] == cell][:share] for cell in cells]))
