"""Facility location over a million embeddings, every method: ``python -m bench.million [--write]``.

Each method is a process of its own that reads a memory-mapped file. Its value is computed exactly
on all rows afterwards, outside of the time. The table goes to docs/benchmarks.md with ``--write``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.bars import Bar
from bench.cases import peak_bytes
from bench.written import write_section

ROOT = Path(__file__).resolve().parent.parent
METHODS = {
    "partitioned, 100 parts": ("parts", 100),
    "partitioned, 200 parts": ("parts", 200),
    "partitioned, 400 parts": ("parts", 400),
    "sample of 2,048 rows, lazy": ("lazy", 2048),
    "sample of 8,192 rows, stochastic": ("stochastic", 8192),
    "sample of 32,768 rows, stochastic": ("stochastic", 32768),
    "64 nearest of 2,000 candidates": ("sparse", 2000),
    "sieve-streaming++, 4,096 rows": ("sieve", 4096),
    "random": ("random", 0),
}
DATA = ("clusters", "gaussian")
CENTRES = 300
AUTOMATIC = "partitioned, 400 parts"  # what `shasam select` takes by itself at k = 100


def make(kind: str, n: int, d: int, path: Path) -> None:
    """Rows around 300 centres of very different sizes, or without any structure."""
    random = np.random.default_rng(0)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    centres = random.standard_normal((CENTRES, d), dtype=np.float32)
    share = 1 / np.arange(1, CENTRES + 1)
    for start in range(0, n, 50_000):
        size = min(50_000, n - start)
        rows = random.standard_normal((size, d), dtype=np.float32)
        if kind == "clusters":
            which = random.choice(CENTRES, size, p=share / share.sum())
            rows = centres[which] + 0.7 * rows
        out[start : start + size] = rows
    out.flush()


def pick(method: str, setting: int, z: np.ndarray, k: int) -> torch.Tensor:
    from shasam.submodular import (
        FacilityLocation,
        Neighbours,
        Sieve,
        SparseFacilityLocation,
        maximize,
        maximize_sampled,
    )

    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(len(z), generator=generator)[:setting].sort().values
    if method == "parts":
        f = FacilityLocation.from_features(z)
        return maximize(f, k, partitions=setting, generator=generator).indices
    if method in ("lazy", "stochastic"):
        f = FacilityLocation.from_features(z)
        chosen, _ = maximize_sampled(f, k, sample=setting, optimizer=method, generator=generator)
        return chosen.indices
    if method == "sparse":
        f = SparseFacilityLocation(Neighbours(z, 64, among=some))
        return maximize(f, k).indices
    if method == "sieve":
        sieve = Sieve(k, z[some.numpy()])
        for start in range(0, len(z), 10_000):
            sieve.see(z[start : start + 10_000])
        return sieve.selection().indices
    return torch.randperm(len(z), generator=generator)[:k]


def run(path: str, method: str, setting: int, k: int) -> dict[str, Any]:
    """One method, timed; its exact value afterwards."""
    from shasam.submodular import FacilityLocation, maximize

    small = FacilityLocation.from_features(torch.randn(1500, 8))
    maximize(small, 3, partitions=2)  # compiled loops are loaded
    z = np.load(path, mmap_mode="r")
    wall, cpu = time.perf_counter(), time.process_time()
    picks = pick(method, setting, z, k)
    told = {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": peak_bytes(),
        "picks": len(picks),
    }
    gains = FacilityLocation.from_features(z).gains_along(picks)
    return told | {"value": float(gains.double().sum())}


def table(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    lines = []
    for kind, told in found.items():
        best = max(row["value"] for row in told.values() if row)
        lines += [
            f"### {kind}\n",
            "| method | value | of the best | CPU seconds | on the clock | peak, MiB | picks |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {name} | {row['value']:,.0f} | {row['value'] / best:.2%} | {row['cpu']:,.0f} "
            f"| {row['seconds']:,.0f} | {row['peak'] / 2**20:,.0f} | {row['picks']} |"
            for name, row in told.items()
            if row
        ]
        lines.append("")
    return lines


def goals(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Whether what `shasam select` takes by itself is within time and memory, and near the best."""
    lines = ["| what | measured | goal | |", "|---|---|---|---|"]
    for kind, told in found.items():
        row = told.get(AUTOMATIC) or {}
        best = max((other["value"] for other in told.values() if other), default=0.0)
        for bar in (
            Bar(f"{kind}: clock", row.get("seconds"), 300, False, " s"),
            Bar(f"{kind}: whole process", row and row["peak"] / 2**20, 4096, False, " MiB"),
            Bar(f"{kind}: share of the best value", row and row["value"] / best, 0.99, True, ""),
        ):
            lines.append(bar.row() if row else f"| {bar.name} | – | | not measured |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--only", default="", help="methods whose name contains this")
    parser.add_argument("--data", default="", help="clusters or gaussian; both by default")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        path, method, setting = chosen.one
        print("RESULT " + json.dumps(run(path, method, int(setting), chosen.k)))
        return
    found: dict[str, dict[str, dict[str, Any]]] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        for kind in [chosen.data] if chosen.data else DATA:
            path = Path(folder) / f"{kind}.npy"
            make(kind, chosen.rows, 64, path)
            found[kind] = {}
            for name, (method, setting) in METHODS.items():
                if chosen.only in name:
                    found[kind][name] = told = case(path, method, setting, chosen.k)
                    print(f"{kind}: {name}: {told}", file=sys.stderr, flush=True)
            path.unlink()
    text = "\n".join(
        [
            f"n = {chosen.rows:,} × 64 float32 from a memory-mapped file, k = {chosen.k}, two "
            f"threads, {os.cpu_count()} cores with a load of {load:.0f} at the start. Made by "
            f"`python -m bench.million --write`. *clusters*: rows around {CENTRES} centres, the "
            f"largest {CENTRES} times the smallest; *gaussian*: no structure, where even random "
            "rows do well.\n",
            *table(found),
            *goals(found),
        ]
    )
    print(text)
    if chosen.write:
        write_section("A million embeddings", text)


def case(path: Path, method: str, setting: int, k: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.million", "--one", str(path), method, str(setting),
         "-k", str(k)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    print((done.stderr.strip().splitlines() or ["no output"])[-1], file=sys.stderr)
    return {}


if __name__ == "__main__":
    main()
