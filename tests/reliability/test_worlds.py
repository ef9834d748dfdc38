"""Worlds of 1, 2 and 4 processes: the same loss, gradients and predictions for one global batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
NAMES = ("shasam", "fscl", "supcon", "ce")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    root = tmp_path_factory.mktemp("worlds")
    for count in (1, 2, 4):
        (root / str(count)).mkdir()
        command = [sys.executable, "-m", "tests.reliability.worlds", str(count)]
        command += [str(root / str(count)), *NAMES]
        subprocess.run(command, check=True, timeout=1200, cwd=ROOT)
    return root


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_loss_gradients_and_predictions_do_not_depend_on_the_number_of_processes(
    worlds, name, count
):
    one, many = (load_file(worlds / str(n) / f"{name}.safetensors") for n in (1, count))
    assert one.keys() == many.keys()
    assert torch.equal(one["predictions"], many["predictions"])
    first = slice(0, 1)  # of the same weights; later losses follow from the gradients
    torch.testing.assert_close(many["losses"][first], one["losses"][first], rtol=1e-6, atol=0)
    keys = [k for k in one if k.startswith("gradient.")]
    assert len(keys) > 10
    a, b = (torch.cat([x[k].double().flatten() for k in keys]) for x in (one, many))
    gap = float((a - b).norm() / a.norm())
    print(f"{name}, {count} processes: gradients differ by {gap:.1e} of their norm")
    assert gap <= 1e-6
