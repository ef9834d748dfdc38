"""Other processors, as far as the libraries let us act as one: docs/training.md, "Equal bits"."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.runs.elsewhere import measure
from tests.tiny_data import TinyData

from shasam.pipeline.execute import execute
from shasam.runs.directory import RunDirectory, read_predictions
from shasam.runs.machine import REPRODUCIBLE
from shasam.spec import resolve
from shasam.training.runtime import Runtime

SCORE_TOLERANCE = 1e-4  # of a probability, between processors and thread counts
TINY = ["data.n=80", "data.holdout_per_cell=10", "data.size=32", "train.steps=4"]
OLDEST = {
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "ATEN_CPU_CAPABILITY": "default",
    "NUMBA_CPU_NAME": "generic",
    "OMP_NUM_THREADS": "1",
}
# libraries held back alone, the oldest processor of all, and what `--reproducible` sets
SETTINGS = {
    "the oldest": OLDEST,
    "oneDNN AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "oneDNN SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "torch default": {"ATEN_CPU_CAPABILITY": "default"},
    "torch avx2, 2 threads": {"ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "2"},
    "reproducible": dict(REPRODUCIBLE),
}
ROOT = Path(__file__).parents[2]


def environment(variables, cache):
    """This process's, without the variables that we vary, and with ``variables``."""
    kept = {k: v for k, v in os.environ.items() if k not in REPRODUCIBLE}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "SHASAM_CACHE": str(cache), **variables}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    body = {"method": "supcon", "data": {"size": 32}, "train": {"steps": 20}}
    return execute(
        resolve(body, profile="smoke"),
        tmp_path_factory.mktemp("here"),
        runtime=Runtime(device="cpu", quiet=True),
        data=TinyData(size=32),
    )


def check_setting(run, variables, folder):
    out = folder / "there.npz"
    command = [sys.executable, "-m", "tests.runs.elsewhere", str(run.path), str(out)]
    subprocess.run(command, env=environment(variables, folder), check=True, timeout=300)
    here, there = measure(str(run.path)), np.load(out)
    assert int(there["threads"]) == int(variables.get("OMP_NUM_THREADS", there["threads"]))
    if platform.machine() in ("x86_64", "AMD64") and "ATEN_CPU_CAPABILITY" in variables:
        assert str(there["capability"]).lower() == variables["ATEN_CPU_CAPABILITY"].lower()
    assert np.ptp(here["scores"][:, 0]) > 100 * SCORE_TOLERANCE  # the images do not score alike
    assert np.abs(here["scores"] - there["scores"]).max() < SCORE_TOLERANCE
    assert np.allclose(here["features"], there["features"], rtol=1e-3, atol=1e-4)
    assert np.allclose(here["gains"], there["gains"], rtol=1e-5, atol=1e-6)


def test_one_model_scores_alike_on_the_oldest_processor_we_can_act_as(run, tmp_path):
    check_setting(run, OLDEST, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "the oldest"])
def test_one_model_scores_alike_under_every_setting(run, tmp_path, name):
    check_setting(run, SETTINGS[name], tmp_path)


def shasam(words, variables, cache):
    return subprocess.run(
        [sys.executable, "-m", "shasam.cli", *words],
        env=environment(variables, cache),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_reproducible_run_gives_the_same_bits_whatever_the_surroundings(tmp_path):
    words = ["train", "ce", "--profile", "smoke", "--quiet"]
    words += ["--device", "cpu", "--no-report", "--reproducible"]
    for pair in TINY:
        words += ["--set", pair]
    found = []
    for name, variables in (("old", {**OLDEST, "OMP_NUM_THREADS": "2"}), ("plain", {})):
        trained = shasam([*words, "--out", str(tmp_path / name)], variables, tmp_path)
        assert trained.returncode == 0, trained.stderr
        (run,) = (tmp_path / name).iterdir()
        if platform.machine() in ("x86_64", "AMD64"):
            assert RunDirectory(run).provenance()["reproducible"]
        found.append(read_predictions(run / "predictions.parquet"))
    old, plain = found
    assert np.array_equal(old.ids, plain.ids) and np.ptp(old.scores) > 0
    assert np.array_equal(old.scores, plain.scores)
