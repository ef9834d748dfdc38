"""Small files of vectors with labels, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

ROWS, WIDTH = 240, 6


def vectors(rows: int = ROWS, width: int = WIDTH) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (n, D) float32, target and group; group and target go together in training."""
    rng = np.random.default_rng(0)
    t = np.arange(rows) % 2
    s = np.where(rng.random(rows) < 0.7, t, 1 - t)
    x = rng.normal(size=(rows, width))
    x[:, 0] += 3 * t
    x[:, 1] += 3 * s
    return x.astype(np.float32), t, s


def write_labels(path: Path, t: np.ndarray, s: np.ndarray, ids: list[str] | None = None) -> Path:
    names = ["person"] * (ids is not None) + ["smiles", "group", "age"]
    ages = np.arange(len(t)) % 70
    cells = zip(np.array(["no", "yes"])[t], np.array(["a", "b"])[s], ages, strict=True)
    lines = [",".join(names)]
    for row, cell in enumerate(cells):
        start = [] if ids is None else [ids[row]]
        lines.append(",".join([*start, *map(str, cell)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_all(folder: Path, x: np.ndarray) -> list[Path]:
    """The same vectors in every format."""
    from safetensors.numpy import save_file

    np.save(folder / "x.npy", x)
    np.savez(folder / "plain.npz", x=x, other=np.zeros(3))
    np.savez_compressed(folder / "packed.npz", x=x)
    save_file({"x": x, "scale": np.ones(3, np.float32)}, folder / "x.safetensors")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
    table = pa.table({"x": fixed})
    pq.write_table(table, folder / "x.parquet")
    pq.write_table(pa.table({"x": pa.array(list(x))}), folder / "lists.parquet")
    with pa.ipc.new_file(folder / "x.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    names = ("x.npy", "plain.npz", "packed.npz", "x.safetensors", "x.parquet", "lists.parquet")
    return [folder / name for name in (*names, "x.arrow")]
