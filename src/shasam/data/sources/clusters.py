"""``clusters``: the paper's two-dimensional scenes, each point also drawn as a small picture."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from shasam.data.source import Label, Listing, Reading, Source
from shasam.keyed import keys, text_key, uniform
from shasam.registry import register


@dataclass(frozen=True)
class Scene:
    """Two clusters A and B: sizes, spreads, and the distance of their centres."""

    count: tuple[int, int]
    spread: tuple[float, float]
    apart: float


SCENES = {
    "imbalanced": Scene((500, 100), (1.0, 0.4), 4.0),
    "minority": Scene((100, 500), (0.4, 1.0), 4.0),
    "balanced": Scene((200, 200), (0.7, 0.7), 4.0),
    "overlap": Scene((500, 100), (1.0, 0.4), 2.0),
}
_REACH = 6.0  # a picture shows -6..6 in both directions


@register("clusters", kind="source")
class Clusters(Source):
    """Scenes of the paper's section on synthetic data: the target is the cluster.

    Cluster A has 500 points with a wide spread and B has 100 with a narrow one (alpha = 5);
    balanced has 200 and 200; overlap has closer centres. The paper names no sensitive
    attribute: here it is a fair coin for each point.
    """

    summary = "the paper's 2-D scenes: imbalanced, minority, balanced, overlap"
    labels: ClassVar[Mapping[str, Label]] = {
        "cluster": Label("cluster", ("A", "B")),
        "coin": Label("coin", ("heads", "tails")),
    }
    settings: ClassVar[Mapping[str, tuple[str, str]]] = {n: ("cluster", "coin") for n in SCENES}
    target, sensitive = "cluster", "coin"

    def list_images(self) -> Listing:
        name = self.spec.setting or "imbalanced"
        scene = SCENES[name]
        n = sum(scene.count)
        cluster = np.repeat([0, 1], scene.count)
        parts = uniform(keys(text_key(f"clusters/{name}"), self.spec.seed, np.arange(n)), 25)
        bell = parts[:, :24].astype(np.float64).reshape(n, 2, 12).sum(2) - 6
        spread = np.array(scene.spread)[cluster]
        centre = np.where(cluster == 0, -scene.apart / 2, scene.apart / 2)
        return Listing(
            pa.table(
                {
                    "id": [f"{name}-{self.spec.seed}-{i:04d}" for i in range(n)],
                    "path": [""] * n,
                    "x": centre + spread * bell[:, 0],
                    "y": spread * bell[:, 1],
                    "cluster": cluster,
                    "coin": (parts[:, 24] < 0.5).astype(np.int64),
                }
            )
        )

    def read(self, table: pa.Table, size: int) -> Reading:
        x, y = (table.column(name).to_numpy() for name in ("x", "y"))
        axis = ((np.arange(size) + 0.5) / size * 2 - 1) * _REACH
        far = (axis[None, None, :] - x[:, None, None]) ** 2
        far = far + (axis[None, :, None] - y[:, None, None]) ** 2
        dot = np.clip(1.5 - np.sqrt(far) / 0.5, 0, 1)
        images = np.repeat((235 - 200 * dot)[..., None], 3, 3).astype(np.uint8)
        recipe = np.stack([x, y], 1).astype("<f8")
        ids = table.column("id").to_pylist()
        hashes = [
            hashlib.sha256(i.encode() + row.tobytes()).hexdigest()
            for i, row in zip(ids, recipe, strict=True)
        ]
        return Reading(images, hashes, [""] * len(ids))

    def pixels_key(self) -> str:
        return f"clusters/1/{self.spec.setting or 'imbalanced'}/{self.spec.seed}"
