"""Reliability test 8: run folders of somebody who means harm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.reliability.hostile_runs import CASES
from tests.reliability.measured import measured

from shasam.commands.evaluate import evaluate
from shasam.commands.train import train
from shasam.pipeline.load import load

pytestmark = pytest.mark.slow
TINY = ["data.n=80", "data.holdout_per_cell=10", "data.size=32", "train.steps=4"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("malicious")
    patch = pytest.MonkeyPatch()
    patch.setenv("SHASAM_CACHE", str(out / "cache"))
    train("ce", profile="smoke", set_=TINY, out=out / "runs", quiet=True, device="cpu")
    run = next((out / "runs").iterdir())
    load(run).predict(np.zeros((1, 32, 32, 3), np.uint8))  # everything is imported and warm
    evaluate(run, device="cpu", report=False)
    yield run
    patch.undo()


def snapshot(folder: Path) -> dict[str, tuple]:
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (content, info.st_mtime_ns, info.st_ino, info.st_mode)
    return found


def test_there_are_sixty() -> None:
    assert len(CASES) == 60


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_run_is_refused_and_touches_nothing_outside(made, tmp_path, name: str) -> None:
    run = Path(shutil.copytree(made, tmp_path / "run"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary").write_text("mine\n")
    CASES[name](run, outside)
    before = snapshot(outside)
    outcome = measured(lambda: evaluate(run, device="cpu", report=False))
    assert outcome.status == "refused", outcome
    assert snapshot(outside) == before  # nothing was made, changed or run
    assert outcome.seconds < 1, outcome
    assert outcome.grown < 200, outcome
    print(f"{name}: {outcome.seconds:.2f} s, {outcome.grown:.0f} MiB: {outcome.message[:150]}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
def test_the_good_run_it_was_made_from_is_accepted(made, tmp_path) -> None:
    run = Path(shutil.copytree(made, tmp_path / "run"))
    assert measured(lambda: evaluate(run, device="cpu", report=False)).status == "done"
