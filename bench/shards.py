"""Selection that no machine holds, at growing sizes: ``python -m bench.shards [--engine ray]``.

The rows are made from a seed where they are read, so that neither disk nor driver holds them. Every
size is a process of its own. With Ray one worker reads and picks; the peak of a process is what it
had resident at most. At the first size the value is compared with that of one machine that holds
all rows and picks from random parts of 2,500 of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import peak_bytes
from shasam.keyed import keyed

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 2**15  # rows that are made together
CENTRES = 300


@dataclass(frozen=True)
class MadeRows:
    """Rows around 300 centres, the largest 300 times the smallest, as in ``bench.million``."""

    rows: int
    dim: int
    peaks: str  # folder in which every process that reads leaves its peak and its time
    seed: int = 0

    def read(self, first: int, last: int) -> np.ndarray:
        z = np.empty((last - first, self.dim), np.float32)
        centres = keyed(self.seed, 0).standard_normal((CENTRES, self.dim), dtype=np.float32)
        share = 1 / np.arange(1, CENTRES + 1)
        for block in range(first // BLOCK, -(-last // BLOCK)):
            random = keyed(self.seed, 1, block)
            made = random.standard_normal((BLOCK, self.dim), dtype=np.float32)
            made *= 0.7
            made += centres[random.choice(CENTRES, BLOCK, p=share / share.sum())]
            start = block * BLOCK
            low, high = max(first, start), min(last, start + BLOCK)
            z[low - first : high - first] = made[low - start : high - start]
        used = f"{peak_bytes()} {time.process_time()}"
        (Path(self.peaks) / str(os.getpid())).write_text(used)
        return z

    def texts(self, column: str, first: int, last: int) -> list[str]:
        raise NotImplementedError

    def place(self, row: int) -> tuple[str, int]:
        return f"made:{self.seed}", row


def run(rows: int, k: int, engine: str, compare: bool) -> dict[str, Any]:
    """One selection with its exact value and bound; the answer of one machine, if asked for."""
    from shasam.submodular import FacilityLocation, maximize
    from shasam.submodular.shards import select_from_shards

    with tempfile.TemporaryDirectory() as peaks:
        source = MadeRows(rows, 64, peaks)
        joined: Any = nullcontext()
        if engine == "ray":
            import ray

            joined = ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
        with joined:
            wall, cpu = time.perf_counter(), time.process_time()
            found = select_from_shards(source, k, engine=engine)  # type: ignore[arg-type]
            told = {
                "rows": rows,
                "seconds": time.perf_counter() - wall,
                "cpu": time.process_time() - cpu,
                "driver": peak_bytes(),
                "value": found.value,
                "share": found.certificate and found.certificate.share,
                "picks": found.selection.indices.tolist()[:5],
            }
        others = [p for p in Path(peaks).iterdir() if p.name != str(os.getpid())]
        used = [p.read_text().split() for p in others]
        told["worker"] = max((int(peak) for peak, _ in used), default=None)
        told["cpu"] += sum(float(seconds) for _, seconds in used)
        if compare:
            f = FacilityLocation.from_features(source.read(0, rows))
            picks = maximize(f, k, partitions=max(rows // 2500, 1)).indices
            told["whole"] = float(f.gains_along(picks).double().sum())
    return told


def line(told: dict[str, Any]) -> str:
    def mib(size: int | None) -> str:
        return "–" if size is None else f"{size / 2**20:,.0f}"

    against = f"{told['value'] / told['whole']:.2%}" if "whole" in told else "–"
    return (
        f"| {told['rows']:,} | {told['seconds']:,.0f} | {told['cpu']:,.0f} | {mib(told['driver'])} "
        f"| {mib(told['worker'])} | {told['value']:,.0f} | {told['share']:.1%} | {against} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        compare = chosen.one == min(chosen.rows) <= 10**6
        told = run(chosen.one, chosen.k, chosen.engine, compare)
        print("RESULT " + json.dumps(told))
        return
    print(
        f"{chosen.engine}, one core, k = {chosen.k}, rows of 64 numbers, load "
        f"{os.getloadavg()[0]:.0f}\n\n| rows | seconds | CPU seconds | driver, MiB | worker, MiB "
        "| value | of the optimum, at least | of one machine's value |\n" + 8 * "|---" + "|"
    )
    for rows in chosen.rows:
        words = ["--one", str(rows), "-k", str(chosen.k), "--engine", chosen.engine]
        words += ["--rows", *map(str, chosen.rows)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.shards", *words],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        told = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
        if told:
            print(line(json.loads(told[0].removeprefix("RESULT "))), flush=True)
        else:
            print((done.stderr.strip().splitlines() or ["no output"])[-1], file=sys.stderr)


if __name__ == "__main__":
    main()
