"""A set function and rows that kill a worker, in a module that workers can import."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import torch

from shasam.submodular import SetFunction


class Deadly(SetFunction):
    """Weights; the first worker that looks at element 0 is killed."""

    monotone = submodular = True

    def __init__(self, mark: Path) -> None:
        self.w_N = torch.linspace(1, 2, 40, dtype=torch.float64)
        self.n, self.device, self.dtype = 40, self.w_N.device, self.w_N.dtype
        self.mark, self.home = mark, os.getpid()

    def __call__(self, selected):
        return self.w_N[self.index(selected)].sum()

    def start(self, given=()):
        return None

    def gains(self, state, candidates):
        if os.getpid() != self.home and 0 in candidates and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.w_N[candidates]

    def add(self, state, v):
        return None


class DeadlyRows:
    """Rows of which the last range kills the first worker that reads it."""

    rows, dim = 900, 4

    def __init__(self, mark: Path) -> None:
        self.mark, self.home = mark, os.getpid()

    def read(self, first: int, last: int) -> np.ndarray:
        if os.getpid() != self.home and last == self.rows and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        z = np.random.default_rng(0).standard_normal((self.rows, self.dim), dtype=np.float32)
        return z[first:last]

    def texts(self, column: str, first: int, last: int) -> list[str]:
        return ["even" if row % 2 == 0 else "odd" for row in range(first, last)]

    def place(self, row: int) -> tuple[str, int]:
        return "rows", row
