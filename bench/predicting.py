"""``shasam predict`` against the bare forward pass: images or vectors per second of processor time.

``python -m bench.predicting`` prints a table. "forward" is the network alone, on pixels that are in
memory; "decode" is reading and decoding the same JPEG files, which no prediction of files can do
without; "predict" is all of it, as the command does it. Processor time, because other work on the
machine does not change it much; the threads that decode use it beside the network.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from bench.data import photographs
from shasam.data.decode import decode
from shasam.data.folder import Folder
from shasam.data.vector_files import open_features
from shasam.pipeline.build import build_method
from shasam.pipeline.load import Model
from shasam.pipeline.prediction import Item, PredictionBlock, image_blocks, vector_blocks
from shasam.spec import resolve
from shasam.training.inference import prepare, prepare_images
from shasam.training.runtime import one_process

ROUNDS, BATCH = 2, 256


def spent(work: Callable[[], object]) -> float:
    """Least processor seconds of some rounds."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def untrained(body: dict, profile: str) -> Model:
    spec = resolve({"method": "ce", **body}, profile=profile)
    method, _ = build_method(spec, 2, 2)
    fabric = one_process(spec.train, "cpu")
    return Model(spec, prepare(method, "cpu"), ("a", "b"), ("c", "d"), fabric)


def forward(model: Model, x: torch.Tensor) -> None:
    with torch.no_grad():
        for part in x.split(BATCH):
            scores = next(iter(model.method.logits(prepare_images(part, "cpu")).values()))
            torch.softmax(scores, dim=1).numpy()


def lines(model: Model, blocks: Iterable[PredictionBlock]) -> int:
    """The bytes that the command would write."""
    return sum(len(block.csv(model.classes).encode()) for block in blocks)


def of_images(folder: Path, name: str, profile: str, n: int) -> str:
    model = untrained({}, profile)
    size, inside = model.spec.data.size, Folder(folder)
    paths = [f"{k:06d}.jpg" for k in range(n)]
    pixels = np.stack([decode(inside.read(path), size) for path in paths])
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    items = [Item(path) for path in paths]
    bare = spent(lambda: forward(model, x))
    decoding = spent(lambda: [decode(inside.read(path), size) for path in paths])
    whole = spent(lambda: lines(model, image_blocks(model, items, inside, batch=BATCH, jobs=2)))
    return row(name, n, bare, decoding, whole)


def of_vectors(folder: Path, n: int = 50_000, dim: int = 512) -> str:
    x = np.random.default_rng(0).normal(size=(n, dim)).astype(np.float32)
    np.save(folder / "x.npy", x)
    (folder / "t.csv").write_text("t,s\n" + "0,0\n0,1\n1,0\n1,1\n" * (n // 4))
    data = {"features": folder / "x.npy", "csv": folder / "t.csv", "target": "t", "sensitive": "s"}
    model = untrained({"data": data}, "cpu")
    features = open_features(folder / "x.npy")
    bare = spent(lambda: forward(model, torch.from_numpy(x)))
    whole = spent(lambda: lines(model, vector_blocks(model, features, None, batch=BATCH)))
    return row(f"{n:,} vectors of {dim}", n, bare, 0.0, whole)


def row(name: str, n: int, bare: float, decoding: float, whole: float) -> str:
    rates = " | ".join(f"{n / s:,.0f}" if s else "-" for s in (bare, decoding, whole))
    both = bare + decoding
    return f"| {name} | {rates} | {bare / whole:.2f} | {both / whole:.2f} |"


def main() -> None:
    torch.set_num_threads(1)
    print("| what | forward /s | decode /s | predict /s | predict / forward | predict / both |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        photographs(root / "photos", 1024, 128)
        print(of_vectors(root))
        print(of_images(root / "photos", "profile cpu, 64 px", "cpu", 1024))
        print(of_images(root / "photos", "profile paper, 128 px", "paper", 64))


if __name__ == "__main__":
    main()
