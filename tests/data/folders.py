"""A folder of small photographs of nobody, with a table."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image


def make_folder(folder: Path, n: int, *, bad: int = 0) -> Path:
    """n JPEG files and ``people.csv`` (path, smile, age, person); the first ``bad`` are broken."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with open(folder / "people.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "smile", "age", "person"])
        for k in range(n):
            name = f"p{k:03d}.jpg"
            pixels = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((24, 24)).save(folder / name, quality=90)
            if k < bad:
                (folder / name).write_bytes(b"<html>not found</html>")
            table.writerow([name, rng.integers(0, 2), rng.integers(1, 80), f"n{k // 2}"])
    return folder
