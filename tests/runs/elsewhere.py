"""A child process under other environment variables: scores of a run, a forward and a greedy walk.

Usage: python -m tests.runs.elsewhere RUN OUT.npz
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from tests.tiny_data import TinyData

import shasam
from shasam.submodular import FacilityLocation, maximize


def measure(run: str) -> dict[str, np.ndarray]:
    """What must not depend on the processor by more than docs/training.md says."""
    model = shasam.load(run)
    images = TinyData(size=model.spec.data.size).pixels.numpy()
    points = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    chosen = maximize(FacilityLocation.from_features(points), 20)
    return {
        "scores": model.predict(images).scores,
        "features": model.features(images)["encoder"],
        "gains": np.asarray(chosen.gains, dtype=np.float64),
        "capability": np.array(torch.backends.cpu.get_cpu_capability()),
        "threads": np.array(torch.get_num_threads()),
    }


if __name__ == "__main__":
    np.savez(sys.argv[2], **measure(sys.argv[1]))
