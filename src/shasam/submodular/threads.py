"""Several threads for compiled loops that release the interpreter lock.

A plain pool of Python threads, not numba's own: that one ends a process which was forked after its
first use. As many threads as torch uses (``torch.set_num_threads``, OMP_NUM_THREADS).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

_WORTH = 1_000_000  # kernel entries per thread, below which handing over costs more than it saves
T = TypeVar("T")
_pool: ThreadPoolExecutor | None = None
_size = 0


def count(entries: int) -> int:
    """How many threads a loop over this many kernel entries is worth."""
    return max(1, min(torch.get_num_threads(), entries // _WORTH))


def run(loop: Callable[..., Any], parts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call ``loop`` with each tuple of arguments at the same time; the results in order."""
    if len(parts) == 1:
        return [loop(*parts[0])]
    waiting = [_workers(len(parts) - 1).submit(loop, *part) for part in parts[1:]]
    return [loop(*parts[0]), *(work.result() for work in waiting)]


def each(task: Callable[[T], Any], works: Sequence[T]) -> Iterator[Any]:
    """``task`` of every work, several at the same time with one thread each; results in order.

    Whole tasks side by side do not wait for each other; threads inside a short task would.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(works) == 1:
        yield from map(task, works)
        return
    torch.set_num_threads(1)  # a thread takes this over when it first computes
    try:
        with ThreadPoolExecutor(min(threads, len(works)), thread_name_prefix="part") as pool:
            try:
                yield from pool.map(task, works)
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        torch.set_num_threads(threads)


def _workers(size: int) -> ThreadPoolExecutor:
    global _pool, _size
    if _pool is None or size > _size:
        _pool, _size = ThreadPoolExecutor(size, thread_name_prefix="shasam"), size
    return _pool


def _forget() -> None:
    """A forked child has no threads but its own."""
    global _pool, _size
    _pool, _size = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
