"""A dataset of a few hundred tiny images in memory: the target is stripes, the group a shade."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from shasam.data.splits import SCHEMA, Manifest


class TinyData:
    """Two classes, two groups; in the training split the two agree in ``bias`` of the images."""

    target_names = ("standing", "lying")
    sensitive_names = ("dark", "bright")
    classes = groups = 2

    def __init__(self, train: int = 160, held: int = 40, size: int = 16, bias: float = 0.8) -> None:
        rng = np.random.default_rng(0)
        n = train + 2 * held
        t = np.tile([0, 1], n)[:n]
        agree = rng.random(n) < bias
        agree[train:] = np.tile([True, True, False, False], n)[: n - train]
        s = np.where(agree, t, 1 - t)
        split = np.array(["train"] * train + ["val"] * held + ["test"] * held)
        pixels = rng.integers(90, 166, (n, 3, size, size))
        # stripes and shades survive the crops and flips of the augmentation; sides would not
        wave = 35 * np.sign(np.sin(np.arange(size) * np.pi / 2 + 0.1)).astype(int)
        pixels[t == 0] += wave[None, None, None, :]
        pixels[t == 1] += wave[None, None, :, None]
        pixels += (60 * s - 30)[:, None, None, None]
        self.pixels = torch.from_numpy(pixels.astype(np.uint8))
        ids = [f"tiny-{row:04d}" for row in range(n)]
        hashes = [f"{row:064x}" for row in range(n)]
        table = pa.table([ids, ids, hashes, t, s, split], schema=SCHEMA)
        self.manifest = Manifest(table, self.target_names, self.sensitive_names, {"name": "tiny"})
        self.t_N, self.s_N = torch.from_numpy(t), torch.from_numpy(s)

    def rows(self, split: str) -> Tensor:
        return torch.from_numpy(self.manifest.rows(split))

    def images(self, rows: Tensor) -> Tensor:
        return self.pixels[rows]
