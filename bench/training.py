"""Images a second of the trainer against a bare PyTorch loop; same network, batch and views.

``python -m bench.training``: the two take turns in blocks of steps in one process, so that a busy
machine slows both alike. Processor time is compared, with the wall clock beside it.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric

from shasam.data.manifest import SCHEMA, Manifest
from shasam.data.views import augmented_views
from shasam.methods.ce import CE, CEConfig
from shasam.models import ResNet18
from shasam.runs.log import RunLog
from shasam.spec.train import StageSpec, TrainSpec
from shasam.training.interrupt import Interrupt
from shasam.training.optimizers import make_optimizer
from shasam.training.runtime import Runtime
from shasam.training.trainer import Trainer

SIZE, WIDTH, BATCH, IMAGES = 64, 16, 96, 2000
BLOCK, ROUNDS = 10, 12


class Noise:
    """Random pictures in memory."""

    classes = groups = 2

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.pixels = torch.from_numpy(
            rng.integers(0, 256, (IMAGES, 3, SIZE, SIZE), dtype=np.uint8)
        )
        ids = [f"{row:06d}" for row in range(IMAGES)]
        t, s = rng.integers(0, 2, IMAGES), rng.integers(0, 2, IMAGES)
        split = ["train"] * (IMAGES - 100) + ["val"] * 100
        table = pa.table([ids, ids, ids, t, s, split], schema=SCHEMA)
        self.manifest = Manifest(table, ("a", "b"), ("c", "d"))

    def rows(self, split: str) -> np.ndarray:
        return self.manifest.rows(split)

    def images(self, rows: torch.Tensor) -> torch.Tensor:
        return self.pixels[rows]


def make() -> CE:
    torch.manual_seed(0)
    return CE(CEConfig(), ResNet18(width=WIDTH, embed_dim=None), 2, 2)


def main() -> None:
    data = Noise()
    spec = TrainSpec(learn=StageSpec(steps=10_000, batch_views=BATCH))
    fabric = Fabric(accelerator="cpu", devices=1)
    trainer = Trainer(
        make(),
        data,
        spec,
        seed=0,
        image_size=SIZE,
        fabric=fabric,
        runtime=Runtime(quiet=True),
        log=RunLog(None),
    )
    run = trainer._prepare(trainer.method.stages()[0], None)

    def ours() -> None:
        with Interrupt():
            for _ in range(BLOCK):
                trainer._step(run)
                trainer.state.step += 1

    bare = make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = make_optimizer(list(bare.parameters()), spec.learn)
    rows_N, t_N = torch.from_numpy(data.rows("train")), torch.from_numpy(data.manifest.t_N.copy())
    count = 0

    def plain_loop() -> None:
        nonlocal count
        for _ in range(BLOCK):
            rows = rows_N[torch.randperm(len(rows_N))[:BATCH]]
            images = augmented_views(
                data.images(rows), rows, seed=0, draw=count, views=1, size=SIZE
            )
            images = images.contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(bare.classifier(bare.encoder(images)), t_N[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            count += 1

    names = {"trainer": ours, "bare loop": plain_loop}
    for work in names.values():
        work()
    cpu: dict[str, list[float]] = {name: [] for name in names}
    wall: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name, work in names.items():
            c, w = time.process_time(), time.perf_counter()
            work()
            cpu[name].append(time.process_time() - c)
            wall[name].append(time.perf_counter() - w)
    images = BLOCK * BATCH
    print(f"ResNet-18 width {WIDTH}, {SIZE} px, {BATCH} views, {torch.get_num_threads()} threads")
    for name in names:
        c, w = statistics.median(cpu[name]), statistics.median(wall[name])
        print(f"{name:10s} {images / c:7.0f} images per CPU second, {images / w:7.0f} per second")
    pairs = zip(cpu["bare loop"], cpu["trainer"], strict=True)
    print(f"trainer / bare loop: {statistics.median(b / a for b, a in pairs):.3f} (goal: 0.90)")


if __name__ == "__main__":
    main()
