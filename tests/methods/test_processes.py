"""Two processes train every method as one does, to the last bits of a sum."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.methods.cases import CASES

ROOT = Path(__file__).parents[2]
FAST = ("ce", "fairvit", "fscl+", "shasam")  # cut batches, own gradients, pairs of rows, mining
SHARED_NORM = ("ce@resnet", "fscl+@resnet")  # train.sync_batchnorm, for both ways to cut a batch
REST = tuple(n for n in sorted(CASES) if n not in FAST)


def differences(names: tuple[str, ...], folder: Path) -> dict[str, float]:
    """Method -> the largest difference between the weights, beside the weights' own size."""
    for count in (1, 2):
        (folder / str(count)).mkdir()
        command = [sys.executable, "-m", "tests.methods.two_processes", str(count)]
        command += [str(folder / str(count)), *names]
        subprocess.run(command, check=True, timeout=300, cwd=ROOT)
    found = {}
    for name in names:
        one, two = (load_file(folder / n / f"{name}.safetensors") for n in ("1", "2"))
        assert one.keys() == two.keys()
        gaps = [
            (v.double() - two[k].double()).abs().max() / (1e-3 + v.double().abs().max())
            for k, v in one.items()
        ]
        found[name] = float(max(gaps))
    return found


@pytest.mark.parametrize("names", [FAST + SHARED_NORM, pytest.param(REST, marks=pytest.mark.slow)])
def test_two_processes_give_the_weights_of_one(names: tuple[str, ...], tmp_path: Path) -> None:
    found = differences(names, tmp_path)
    assert {name: gap for name, gap in found.items() if gap > 1e-3} == {}
