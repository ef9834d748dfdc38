"""Speed of the data room: drawing, packing, random reads, views; memory of a million rows.

``python -m bench.data`` prints one table. "per core" divides by processor time, which other work
on the machine does not change much; "wall" is what a user waits for, with all cores.
``--million`` adds a store of 1,000,000 rows of 16 px.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from shasam.data import DataSpec, Store, make_source
from shasam.data.augment import augmented_views
from shasam.data.dataset import pack
from shasam.data.sources.faces import ATTRIBUTES, render
from shasam.data.store import Shard, finish, shard_rows, write_shard
from shasam.keyed import keys


def timed(work: Callable[[], object], items: int, repeats: int = 3) -> tuple[float, float]:
    """Best items per second of processor time and of wall time."""
    work()
    best = [0.0, 0.0]
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        spent = time.process_time() - cpu, time.perf_counter() - wall
        best = [max(b, items / s) for b, s in zip(best, spent, strict=True)]
    return best[0], best[1]


def faces() -> tuple[float, float]:
    strengths = {name: np.full(256, 0.5) for name in ATTRIBUTES}
    key = keys(0, np.arange(256))
    return timed(lambda: render(strengths, key, 64), 256)


def photographs(folder: Path, n: int, size: int) -> None:
    """JPEG files of drawn faces, about as large as those of UTKFace, with a table."""
    strengths = {name: np.linspace(0, 1, 64) for name in ATTRIBUTES}
    pictures = [Image.fromarray(p) for p in render(strengths, keys(0, np.arange(64)), size)]
    folder.mkdir(parents=True)
    lines = ["path,t,s"]
    for k in range(n):
        buffer = io.BytesIO()
        pictures[k % 64].save(buffer, "JPEG", quality=85 + k % 10)
        (folder / f"{k:06d}.jpg").write_bytes(buffer.getvalue())
        lines.append(f"{k:06d}.jpg,{k % 2},{k // 2 % 2}")
    (folder / "people.csv").write_text("\n".join(lines))


def packing(root: Path, n: int = 6000) -> tuple[float, float]:
    photographs(root / "photos", n, 128)
    runs = iter(range(100))

    def work() -> None:
        spec = DataSpec(name="manifest", csv=root / "photos/people.csv",
                        store=root / f"store{next(runs)}", target="t", sensitive="s")  # fmt: skip
        pack(make_source(spec), 64)

    return timed(work, n, 2)


def random_store(root: Path, rows: int, size: int) -> Store:
    """A store of random pixels, written shard by shard."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(0)
    shards: list[Shard] = []
    step = shard_rows(size)
    for number, start in enumerate(range(0, rows, step)):
        n = min(step, rows - start)
        ids = [f"{k:09d}" for k in range(start, start + n)]
        hashes = [hashlib.sha256(i.encode()).hexdigest() for i in ids]
        index = pa.table(
            {"id": ids, "path": ids, "stamp": [0] * n, "content_hash": hashes, "reason": [""] * n}
        )
        pixels = rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8)
        shards.append(write_shard(root, number, pixels, index))
    finish(root, size, shards)
    return Store.open(root)


def reading(root: Path) -> tuple[float, float]:
    store = random_store(root / "reads", 8192, 64)
    rows = np.random.default_rng(1).integers(0, 8192, 4096)
    store.images(np.arange(8192))  # warm
    return timed(lambda: [store.images(part) for part in np.split(rows, 32)], 4096)


def views() -> tuple[float, float]:
    torch.set_num_threads(1)
    images = torch.randint(0, 256, (128, 64, 64, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    rows = torch.arange(128)
    return timed(lambda: augmented_views(images, rows, seed=0, draw=0, size=64), 256)


def memory(kind: str) -> float:
    """MiB of this process: RssAnon is its own, RssFile is the page cache that it looks at."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) / 1024
    return float("nan")


def million(root: Path, console: Console) -> None:
    for rows in (10_000, 1_000_000):
        random_store(root / f"rows{rows}", rows, 16)
        before = memory("RssAnon")
        started = time.perf_counter()
        store = Store.open(root / f"rows{rows}")
        count = store.index.num_rows
        opened = time.perf_counter() - started
        rng = np.random.default_rng(0)
        started = time.perf_counter()
        for _ in range(2000):
            store.images(rng.integers(0, count, 256))
        rate = 2000 * 256 / (time.perf_counter() - started)
        console.print(
            f"{count:,} rows of 16 px: opened in {opened * 1000:.0f} ms, {rate:,.0f} random "
            f"images/s, own memory +{memory('RssAnon') - before:.1f} MiB, "
            f"mapped files {memory('RssFile'):.0f} MiB"
        )


def main() -> None:
    console = Console()
    table = Table(title=f"data room, {os.cpu_count()} cores")
    for name in ("what", "per core /s", "wall /s", "wanted /s"):
        table.add_column(name, justify="left" if name == "what" else "right")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, rates, wanted in (
            ("faces drawn, 64 px", faces(), "500 per core"),
            ("images packed, 128 px JPEG to 64 px", packing(root), "1,500 wall, 2 cores"),
            ("random reads, 64 px, warm", reading(root), "50,000"),
            ("views, 64 px", views(), "2,000 per core"),
        ):
            table.add_row(name, *(f"{rate:,.0f}" for rate in rates), wanted)
        console.print(table)
        if "--million" in sys.argv:
            million(root, console)


if __name__ == "__main__":
    main()
