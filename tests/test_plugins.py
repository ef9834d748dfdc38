"""Methods, miners and set functions of other packages, found through their entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.needs_torch

NEAREST = """
import torch
from shasam.mining import MinedSets, Miner
from shasam.registry import register

@register("nearest", kind="miner")
class Nearest(Miner):
    def pick(self, ground, pools, k, generator):
        near = ground.z_VD @ ground.z_VD[pools.anchors].mean(0)
        sets = (pools.anchors, pools.positives, pools.negatives)
        return MinedSets(*(rows[near[rows].argsort(descending=True)[:k]] for rows in sets), {})
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed package with a good miner, and with a method that cannot be imported."""
    folder = tmp_path / "site"
    about = folder / "guest-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[shasam.miners]\nnearest = guest_miner:Nearest\n\n"
        "[shasam.methods]\nlost = guest_method:Lost\n"
    )
    (folder / "guest_miner.py").write_text(NEAREST)
    (folder / "guest_method.py").write_text("import a_module_that_nobody_has\n")
    return folder


def run(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), *sys.path])
    return subprocess.run(
        [sys.executable, "-m", "shasam.cli", *words],
        env={**os.environ, "PYTHONPATH": path},
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plugin_that_cannot_be_imported_is_named_in_one_line_and_left_out(package: Path) -> None:
    done = run(package, "methods", "ce")
    assert done.returncode == 0 and "cross-entropy" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("shasam: the plugin 'lost'")
    assert "a_module_that_nobody_has" in line and "package guest" in line
    asked = run(package, "methods", "lost")
    assert asked.returncode == 2 and "Traceback" not in asked.stderr
    assert "method 'lost' cannot be used: loading guest_method:Lost failed" in asked.stderr


def test_an_own_miner_is_named_in_a_specification_and_on_the_command_line(package: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(package / "z.npy", rng.normal(size=(80, 8)).astype(np.float32))
    rows = "\n".join(f"{rng.integers(2)},{rng.integers(2)}" for _ in range(80))
    (package / "labels.csv").write_text("target,sensitive\n" + rows + "\n")
    mined = run(package, "mine", "z.npy", "labels.csv", "--miner", "nearest", "-k", "4")
    assert "miner nearest" in mined.stdout, mined.stderr
    assert len((package / "triplets.csv").read_text().splitlines()) == 1 + 4 * 3 * 4
    train = ("train", "--print-config", "--set")
    assert "miner: nearest" in run(package, *train, "options.mining.miner=nearest").stdout
    wrong = run(package, *train, "options.mining.miner=nearst")
    assert wrong.returncode == 2
    assert "there is no miner 'nearst'; did you mean 'nearest'?" in wrong.stderr
