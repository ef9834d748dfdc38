"""A set function that kills a worker, in a module that workers can import."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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
