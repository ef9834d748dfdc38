"""Small random data sets whose (class, group) cells hold a given number of images each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from shasam.data.splits import SCHEMA, Manifest


def random_design(seed: int, most: int = 30) -> np.ndarray:
    """Images per cell (C, G), 1 to ``most``; in every fifth design one cell is empty."""
    rng = np.random.default_rng(seed)
    counts_CG = rng.integers(1, most + 1, (rng.integers(2, 5), rng.integers(2, 5)))
    counts_CG[0, 0] = 1  # the hardest case is in every design
    if seed % 5 == 0:
        counts_CG[-1, -1] = 0
    return counts_CG


class CellData:
    """Training images as ``counts_CG`` says; validation and test have four of every cell."""

    def __init__(self, counts_CG: np.ndarray, size: int = 16, seed: int = 0) -> None:
        self.classes, self.groups = counts_CG.shape
        rng = np.random.default_rng(seed)
        t, s, split = [], [], []
        for (i, j), count in np.ndenumerate(counts_CG):
            for name, n in (("train", count), ("val", 4), ("test", 4)):
                t += [i] * int(n)
                s += [j] * int(n)
                split += [name] * int(n)
        n = len(t)
        pixels = rng.integers(0, 256, (n, 3, size, size))
        pixels[:, 0] = pixels[:, 0] // 4 + 40 * np.array(t)[:, None, None]
        pixels[:, 1] = pixels[:, 1] // 4 + 40 * np.array(s)[:, None, None]
        self.pixels = torch.from_numpy(pixels.astype(np.uint8))
        ids = [f"cell-{row:04d}" for row in range(n)]
        table = pa.table(
            [ids, ids, [f"{row:064x}" for row in range(n)], t, s, split], schema=SCHEMA
        )
        names = tuple(f"class {i}" for i in range(self.classes))
        groups = tuple(f"group {j}" for j in range(self.groups))
        self.manifest = Manifest(table, names, groups, {"name": "cells"})

    def rows(self, split: str) -> Tensor:
        return torch.from_numpy(self.manifest.rows(split))

    def images(self, rows: Tensor) -> Tensor:
        return self.pixels[rows]
