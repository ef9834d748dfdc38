"""What this machine can do at best, measured now: sgemm and reading memory, one thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import torch
from numba import njit


def best_of(run: Callable[[], object], repeats: int = 5) -> float:
    """The shortest of some runs, in seconds of processor time; the first only warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


@njit(cache=True, fastmath=True)
def _sum(values: np.ndarray) -> float:
    total = np.float32(0)
    for i in range(values.shape[0]):  # by index: an iterator is not vectorised
        total += values[i]
    return total


def read_bandwidth(floats: int, repeats: int = 5) -> float:
    """Bytes per second of summing an array of this many float32; the faster of two sums."""
    values = np.ones(floats, np.float32)
    tensor = torch.from_numpy(values)
    return values.nbytes / min(
        best_of(lambda: _sum(values), repeats), best_of(lambda: tensor.sum(), repeats)
    )


def sgemm_rate(n: int = 2048, d: int = 2048) -> float:
    """Floating-point operations per second of a square float32 product."""
    x, y, out = torch.randn(n, d), torch.randn(d, n), torch.empty(n, n)
    return 2 * n * n * d / best_of(lambda: torch.mm(x, y, out=out), 3)


def machine() -> str:
    """The machine in a few words, without names: how many cores of which vector width."""
    width = "cores"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "").split()
        if "avx512f" in flags:
            width = "AVX-512 cores"
        elif "avx2" in flags:
            width = "AVX2 cores"
    except OSError:
        pass
    return f"{os.cpu_count()} {width}"
