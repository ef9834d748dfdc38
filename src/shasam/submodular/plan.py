"""Which way of selecting suits so many rows and so much memory, and what it will cost.

Facility location over n rows compares n² pairs. Where that kernel fits it is the best way; where
it does not, the rows are split into random parts whose kernels fit, so that an answer with a bound
comes instead of a refusal. Functions that need no kernel are always walked exactly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from shasam.errors import InputError
from shasam.memory import available_memory, readable

Method = Literal["auto", "exact", "partitioned", "sampled", "stochastic", "sieve", "neighbours"]
METHODS = get_args(Method)
_PASSES = 12  # times that a lazy walk reads its kernel, about
_SAMPLE = 8192  # represented rows of a sample; the bound narrows with its root
_RATE = 4e9  # bytes per second that a walk reads, a cautious figure
_SIEVES = 60
_PART = 2_500  # rows of a part: larger ones take longer and hardly gain (docs/benchmarks.md)
_PER_PICK = 10  # rows of a part for each pick, or round one would keep almost everything


@dataclass(frozen=True)
class Plan:
    """A method with its settings, and an estimate of what it takes."""

    method: str
    why: str
    memory: int  # bytes beside the features
    seconds: float  # of processor time, roughly
    partitions: int | None = None
    sample: int | None = None

    def __str__(self) -> str:
        return (
            f"method {self.method}: {self.why}; about {readable(self.memory)} of memory and "
            f"{_duration(self.seconds)} of processor time"
        )


def free_for_selection() -> int:
    """Half of the free memory, so that the rest of the machine goes on."""
    free = available_memory()
    return 4 << 30 if free is None else free // 2


def products_per_second(width: int) -> float:
    """Similarities of this many numbers each that one thread computes in a second, measured."""
    x = torch.rand(1024, width)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        x @ x.T
        best = min(best, time.process_time() - start)
    return 1024 * 1024 / max(best, 1e-6)


def plan(
    n: int,
    width: int,
    k: int,
    *,
    squares: bool,
    method: Method = "auto",
    partitions: int | None = None,
    sample: int | None = None,
    neighbours: int = 32,
    costs: bool = False,
    memory: int | None = None,
) -> Plan:
    """The way to select k of n rows; ``squares`` says whether the function compares all pairs.

    ``costs``: the picks have costs and a budget, which random parts cannot share.

    >>> plan(1_000, 64, 10, squares=True, memory=1 << 30).method
    'exact'
    >>> large = plan(1_000_000, 64, 100, squares=True, memory=1 << 30)
    >>> large.method, large.partitions
    ('partitioned', 400)
    """
    if method not in METHODS:
        raise InputError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    memory = free_for_selection() if memory is None else memory
    rate, kernel = products_per_second(width), 4 * n * n
    why = "as asked"
    if method == "auto":
        method, why = _automatic(kernel, squares, partitions, sample, costs, memory)
    sample = min(_SAMPLE if sample is None else sample, n)
    if method == "exact":
        if not squares:
            return Plan("exact", why, 16 * n * width, n * k / rate * 4)
        if kernel > memory:
            why += (
                f", though the kernel takes {readable(kernel)} and {readable(memory)} may be used"
            )
        return Plan("exact", why, kernel, n * n / rate / 2 + _PASSES * kernel / _RATE)
    if method == "partitioned":
        parts = partitions or fewest_parts(n, k, memory)
        rows = -(-n // parts)
        judged = min(parts * k * n, 2**28)
        seconds = n * rows / rate / 2 + judged / rate + _PASSES * 4 * (n * rows + judged) / _RATE
        threads = torch.get_num_threads()
        return Plan(
            "partitioned", why, 4 * (rows * rows * threads + judged), seconds, partitions=parts
        )
    if method == "sampled":
        kept = n * sample <= 2**28
        seconds = n * sample * ((1 if kept else _PASSES) / rate + _PASSES * 4 / _RATE)
        return Plan("sampled", why, 4 * n * sample if kept else 2**28, seconds, sample=sample)
    if method == "stochastic":
        seconds = 2.3 * n * sample * (1 / rate + 4 / _RATE)
        return Plan("stochastic", why, 2**28, seconds, sample=sample)
    if method == "sieve":
        seconds = n * sample * (1 / rate + _SIEVES * 4 / _RATE / 4)
        return Plan("sieve", why, 4 * sample * _SIEVES + 2**25, seconds, sample=sample)
    return Plan("neighbours", why, 24 * n * neighbours, n * n / rate)


def _automatic(
    kernel: int,
    squares: bool,
    partitions: int | None,
    sample: int | None,
    costs: bool,
    memory: int,
) -> tuple[Method, str]:
    if partitions is not None:
        return "partitioned", f"{partitions} parts were asked for"
    if not squares:
        return "exact", "the function needs no kernel"
    if kernel <= memory:
        return "exact", f"the kernel of {readable(kernel)} fits in {readable(memory)}"
    short = f"the kernel would take {readable(kernel)} and {readable(memory)} may be used, so "
    if costs or sample is not None:
        return "sampled" if costs else "stochastic", f"{short}a sample of the rows stands for all"
    return "partitioned", f"{short}picks come from random parts first, then from those picks"


def fewest_parts(n: int, k: int, memory: int) -> int:
    """Parts that fit side by side in half of the memory, of at most 2,500 rows or 10 per pick.

    >>> fewest_parts(1_000_000, 100, 4 << 30), fewest_parts(1_000_000, 1_000, 4 << 30)
    (400, 100)
    """
    side = int(np.sqrt(memory / 2 / 4 / torch.get_num_threads()))
    return -(-n // max(min(side, max(_PART, _PER_PICK * k)), 1))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
