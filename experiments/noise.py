"""Wrong labels in UTKFace, and what they do to the accuracy on the right ones.

``python -m experiments.noise utkface.parquet utkface-noisy.parquet`` copies a table of embeddings
and adds the column ``noisy``: the gender, with the labels of a tenth of the images exchanged. Which
ones follows from a hash of the name. ``python -m experiments.noise experiments/embeddings-noise``
compares the rows of the experiment by their accuracy on the genders that the file names have.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.paired import compared, interval, shown
from shasam.metrics import holm
from shasam.runs.records import PREDICTIONS, by_label, read_records

SHARE = 0.1
FIRST = "shasam nothing mined"


def is_wrong(name: str) -> bool:
    """Whether the label of an image is exchanged: a tenth of all names, always the same ones."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") < SHARE * 2**32


def add_noise(source: Path, out: Path) -> None:
    """Copy a table with the column ``noisy`` added."""
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow.append(pa.field("noisy", pa.int64()))
        with pq.ParquetWriter(out, schema) as writer:
            for batch in file.iter_batches(4096):
                wrong_B = np.array([is_wrong(name) for name in batch["id"].to_pylist()])
                noisy_B = np.where(wrong_B, 1 - batch["gender"].to_numpy(), batch["gender"])
                columns = [*batch.columns, pa.array(noisy_B, pa.int64())]
                writer.write_batch(pa.record_batch(columns, schema=schema))


def accuracies(folder: Path) -> dict[str, dict[int, float]]:
    """row -> seed -> per cent of the test images whose gender is predicted as the name has it."""
    table = pq.read_table(folder / PREDICTIONS, columns=["run", "id", "prediction"])
    runs_N = table["run"].to_numpy()
    # class 1 is gender == 0, as the target of the grid says
    true_N = np.array([int(name.split("_")[1]) == 0 for name in table["id"].to_pylist()])
    right_N = table["prediction"].to_numpy() == true_N
    return {
        label: {r.seed: 100 * float(right_N[runs_N == r.run].mean()) for r in records}
        for label, records in by_label(read_records(folder)).items()
    }


def table(folder: Path) -> str:
    """Markdown: accuracy on the right labels, minus that of SHaSaM with nothing mined."""
    rows = accuracies(folder)
    others = [(label, compared(rows[label], rows[FIRST])) for label in rows if label != FIRST]
    adjusted = holm([c.p for _, c in others])
    out = [
        "| row | seeds | accuracy on right labels | minus nothing mined | p, Holm |",
        "|---|---|---|---|---|",
        f"| {FIRST} | {len(rows[FIRST])} | {np.mean(list(rows[FIRST].values())):.1f} | | |",
    ]
    for (label, c), p in zip(others, adjusted, strict=True):
        mean = np.mean(list(rows[label].values()))
        out.append(f"| {label} | {c.support} | {mean:.1f} | {interval(c)} | {shown(p)} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    first, *rest = map(Path, sys.argv[1:])
    if rest:
        add_noise(first, rest[0])
    else:
        print(table(first), end="")
