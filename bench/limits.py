"""What this machine can do at best, measured now: sgemm and reading memory, one thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from numba import njit


def best_of(run: Callable[[], object], repeats: int = 5) -> float:
    """The shortest of some runs, in seconds; the first one warms up and does not count."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@njit(cache=True, fastmath=True)
def _sum(values: np.ndarray) -> float:
    total = np.float32(0)
    for value in values:
        total += value
    return total


def read_bandwidth(floats: int) -> float:
    """Bytes per second of summing an array of this many float32."""
    values = np.ones(floats, np.float32)
    return values.nbytes / best_of(lambda: _sum(values))


def sgemm_rate(n: int = 2048, d: int = 2048) -> float:
    """Floating-point operations per second of a square float32 product."""
    x, y, out = torch.randn(n, d), torch.randn(d, n), torch.empty(n, n)
    return 2 * n * n * d / best_of(lambda: torch.mm(x, y, out=out), 3)
