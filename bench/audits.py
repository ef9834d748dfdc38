"""Time and memory of audits of many rows: ``python -m bench.audits``.

Ten million rows with scores in a Parquet and in a CSV file, and a thousand million rows as counts.
Each audit is a process of its own, started as a user starts it; memory is its largest resident
size.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

PART = 1_000_000


def write_rows(path: Path, rows: int) -> None:
    """Labels, predictions, scores and two attributes."""
    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, rows, PART):
        n = min(PART, rows - start)
        y, sex, race = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.integers(0, 5, n)
        score = np.clip(0.35 + 0.3 * y + 0.03 * sex + rng.normal(0, 0.2, n), 0, 1)
        table = pa.table(
            {
                "label": y,
                "prediction": (score >= 0.5).astype(np.int64),
                "score": score,
                "sex": pa.array(np.array(["f", "m"])[sex]),
                "race": pa.array(np.array(list("abcde"))[race]),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def write_text(rows: Path, path: Path) -> None:
    """The same rows as CSV."""
    source = pq.ParquetFile(rows)
    with pacsv.CSVWriter(path, source.schema_arrow) as writer:
        for batch in source.iter_batches(PART):
            writer.write_batch(batch)


def write_counts(path: Path, rows: int) -> None:
    """The same question as counts: one line for each combination."""
    rng = np.random.default_rng(0)
    cells = [(t, p, g, r) for t in (0, 1) for p in (0, 1) for g in "fm" for r in "abcde"]
    n = rng.multinomial(rows, rng.dirichlet(np.full(len(cells), 20.0)))
    lines = [f"{t},{p},{g},{r},{k}" for (t, p, g, r), k in zip(cells, n, strict=True)]
    path.write_text("\n".join(["label,prediction,sex,race,n", *lines]) + "\n", encoding="utf-8")


def measure(name: str, words: list[str]) -> None:
    """Run ``shasam audit`` with these words; print seconds on the clock and of CPU, and memory."""
    begun = time.perf_counter()
    done = subprocess.Popen(
        [sys.executable, "-m", "shasam.cli", "audit", *words], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(done.pid, 0)
    if status:
        raise SystemExit(f"{name}: the audit failed")
    cpu = used.ru_utime + used.ru_stime
    clock = time.perf_counter() - begun
    print(f"| {name} | {clock:.1f} | {cpu:.1f} | {used.ru_maxrss / 1024:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    print("| audit | seconds | CPU-seconds | MiB |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        counts, rows = Path(folder) / "counts.csv", Path(folder) / "rows.parquet"
        write_counts(counts, 1_000_000_000)
        measure("1,000,000,000 rows as counts", ["--counts", str(counts), "--sensitive", "sex"])
        write_rows(rows, given.rows)
        measure(f"{given.rows:,} rows with scores", [str(rows), "--sensitive", "sex"])
        text = Path(folder) / "rows.csv"
        write_text(rows, text)
        measure(f"{given.rows:,} rows as CSV", [str(text), "--sensitive", "sex"])


if __name__ == "__main__":
    main()
