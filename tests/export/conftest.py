"""Trained runs of every kind that leaves the package another way: tiny, and shared by the tests."""

from __future__ import annotations

# what needs torch is imported where it is used: without torch, only the tests are left out
from pathlib import Path

import numpy as np
import pytest

from shasam.spec import resolve

CASES = {
    "shasam": {},  # encoder and classifier
    "ce": {"encoder": "vit", "patch": 8, "depth": 1},
    "posthoc": {},  # decides by group
}


class Runs(dict[str, Path]):
    """Trained when they are asked for."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out = out

    def __missing__(self, method: str) -> Path:
        from tests.tiny_data import TinyData

        from shasam.pipeline.execute import execute
        from shasam.training.runtime import Runtime

        body = {"method": method, "model": CASES[method]}
        spec = resolve({**body, "data": {"size": 16}, "train": {"steps": 24}}, profile="smoke")
        quiet = Runtime(device="cpu", quiet=True)
        self[method] = execute(spec, self.out, runtime=quiet, data=TinyData()).path
        return self[method]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def vector_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cross-entropy on vectors of 12 numbers, through the files that a user has."""
    from shasam.pipeline.execute import execute
    from shasam.training.runtime import Runtime

    folder = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(0)
    t, s = rng.integers(0, 2, (2, 400))
    x = rng.normal(size=(400, 12)).astype(np.float32)
    x[:, 0] += 2 * t
    np.save(folder / "x.npy", x)
    (folder / "labels.csv").write_text(
        "t,s\n" + "".join(f"{a},{b}\n" for a, b in zip(t, s, strict=True))
    )
    data = {"features": folder / "x.npy", "csv": folder / "labels.csv"}
    body = {"method": "ce", "data": {**data, "target": "t", "sensitive": "s"}}
    spec = resolve({**body, "train": {"steps": 4}}, profile="smoke")
    return execute(spec, folder / "runs", runtime=Runtime(device="cpu", quiet=True)).path
