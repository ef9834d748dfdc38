"""Rows a second of the trainer against a bare PyTorch loop; same network, batch and views.

Two cases: cross-entropy with a ResNet-18 on images, and SHaSaM with mining on 50,000 vectors of 512
numbers, where the bare loop calls the same plan and the same losses.

``python -m bench.training``: the two take turns in blocks of steps in one process, so that a busy
machine slows both alike. Processor time is compared, with the wall clock beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric

from shasam.data.augment import augmented_views
from shasam.data.splits import SCHEMA, Manifest
from shasam.methods.base import Method
from shasam.methods.baselines import CE, CEConfig
from shasam.methods.shasam import Shasam, ShasamConfig, ShasamMining
from shasam.models import MLP, ResNet18
from shasam.runs.directory import RunLog
from shasam.sampling import TrainingRows
from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.runtime import Interrupt, Runtime
from shasam.training.stage import make_optimizer
from shasam.training.trainer import Trainer
from shasam.types import Batch

SIZE, WIDTH, BATCH, IMAGES = 64, 16, 96, 2000
BLOCK, ROUNDS = 10, 12
VECTORS, NUMBERS = 50_000, 512


class Noise:
    """Random pictures or vectors in memory."""

    classes = groups = 2

    def __init__(self, pixels: np.ndarray) -> None:
        rng = np.random.default_rng(0)
        self.pixels, count = torch.from_numpy(pixels), len(pixels)
        ids = [f"{row:06d}" for row in range(count)]
        t, s = rng.integers(0, 2, count), rng.integers(0, 2, count)
        split = ["train"] * (count - 100) + ["val"] * 100
        table = pa.table([ids, ids, ids, t, s, split], schema=SCHEMA)
        self.manifest = Manifest(table, ("a", "b"), ("c", "d"))

    def rows(self, split: str) -> np.ndarray:
        return self.manifest.rows(split)

    def images(self, rows: torch.Tensor) -> torch.Tensor:
        return self.pixels[rows]


def make() -> CE:
    torch.manual_seed(0)
    return CE(CEConfig(), ResNet18(width=WIDTH, embed_dim=None), 2, 2)


def trained(method: Method, data: Noise, spec: TrainSpec) -> Callable[[], None]:
    """A block of steps of the trainer."""
    trainer = Trainer(
        method,
        data,
        spec,
        seed=0,
        image_size=SIZE,
        fabric=Fabric(accelerator="cpu", devices=1),
        runtime=Runtime(quiet=True),
        log=RunLog(None),
    )
    run = trainer._prepare(trainer.views.stage(method.stages()[0]), None)

    def block() -> None:
        with Interrupt():
            for _ in range(BLOCK):
                trainer._step(run)
                trainer.state.step += 1

    return block


def compare(title: str, ours: Callable[[], None], bare: Callable[[], None]) -> None:
    names = {"trainer": ours, "bare loop": bare}
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
    rows = BLOCK * BATCH
    print(f"{title}, {BATCH} views, {torch.get_num_threads()} threads")
    for name in names:
        c, w = statistics.median(cpu[name]), statistics.median(wall[name])
        print(f"{name:10s} {rows / c:7.0f} rows per CPU second, {rows / w:7.0f} per second")
    pairs = zip(cpu["bare loop"], cpu["trainer"], strict=True)
    print(f"trainer / bare loop: {statistics.median(b / a for b, a in pairs):.3f} (goal: 0.90)")


def images() -> None:
    rng = np.random.default_rng(0)
    data = Noise(rng.integers(0, 256, (IMAGES, 3, SIZE, SIZE), dtype=np.uint8))
    spec = TrainSpec(learn=StageSpec(steps=10_000, batch_views=BATCH))
    bare = make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = make_optimizer(list(bare.parameters()), spec.learn)
    rows_N, t_N = torch.from_numpy(data.rows("train")), torch.from_numpy(data.manifest.t_N.copy())
    count = 0

    def plain_loop() -> None:
        nonlocal count
        for _ in range(BLOCK):
            rows = rows_N[torch.randperm(len(rows_N))[:BATCH]]
            found = augmented_views(data.images(rows), rows, seed=0, draw=count, views=1, size=SIZE)
            found = found.contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(bare.classifier(bare.encoder(found)), t_N[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            count += 1

    compare(f"ResNet-18 width {WIDTH}, {SIZE} px", trained(make(), data, spec), plain_loop)


def perceptron() -> Shasam:
    torch.manual_seed(0)
    # hard from the first step on
    mining = ShasamMining(negatives="flqmi", start=0.0, ramp=0.0)
    config = ShasamConfig(mining=mining)
    return Shasam(config, MLP(NUMBERS), 2, 2)


def vectors() -> None:
    x = np.random.default_rng(0).normal(size=(VECTORS, NUMBERS)).astype(np.float32)
    data = Noise(x)
    spec = TrainSpec(learn=StageSpec(steps=10_000, batch_views=BATCH))
    bare = perceptron().train()
    stage = bare.stages()[0]
    moving = bare.parameter_groups()["main"]
    optimizer = make_optimizer(moving, spec.learn)
    t_N, s_N = (torch.from_numpy(v.copy()) for v in (data.manifest.t_N, data.manifest.s_N))
    plan = bare.batch_plan(
        stage, TrainingRows(t_N, s_N, torch.from_numpy(data.rows("train")), BATCH, seed=0)
    )
    plan.total_steps, count = 10_000, 0

    def embed(rows: torch.Tensor) -> torch.Tensor:
        bare.eval()
        with torch.no_grad():
            found = bare.embed(data.images(rows))
        bare.train()
        return found

    def plain_loop() -> None:
        nonlocal count
        for _ in range(BLOCK):
            drawn = plan.draw(plan.epoch_of(count), count, embed)
            rows = drawn.rows_B
            batch = Batch(
                images=data.images(rows),
                t_B=t_N[rows],
                s_B=s_N[rows],
                rows_B=rows,
                views=1,
                step=count,
                progress=0.0,
                triplets=drawn.triplets,
                observe=partial(plan.observe, rows),
            )
            for _, losses in bare.steps(batch, "learn"):
                losses.total.backward(inputs=moving)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            count += 1

    title = f"SHaSaM with mining, MLP, {VECTORS:,} x {NUMBERS} vectors"
    compare(title, trained(perceptron(), data, spec), plain_loop)


if __name__ == "__main__":
    images()
    vectors()
