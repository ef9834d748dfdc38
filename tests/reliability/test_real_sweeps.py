"""Sweeps of real runs: signals to the whole process group, and two sweeps in one folder."""

from __future__ import annotations

import os
import signal

import pytest
from tests.runs.test_sweeps import LONG, check_signals, start_sweep

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGINT],
        [signal.SIGINT, signal.SIGTERM],
        [signal.SIGTERM],
        [signal.SIGTERM, signal.SIGTERM, signal.SIGINT],
    ],
)
def test_several_signals_to_the_group_save_every_run_once(tmp_path, cache, signals):
    check_signals(tmp_path, 2, signals)


def test_a_sweep_that_is_terminated_alone_takes_its_runs_with_it(tmp_path, cache):
    check_signals(tmp_path, 2, [signal.SIGTERM], send=os.kill)


def test_two_real_sweeps_finish_a_grid_together(tmp_path, cache):
    base = {**LONG["base"], "train": {"steps": 30}}
    grid = {"profile": "smoke", "base": base, "grid": {"seed": [0, 1, 2, 3]}}
    both = [start_sweep(tmp_path, grid, "--threads", "1") for _ in range(2)]
    shown = [process.communicate(timeout=300)[0].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count("done    ce-") for text in shown) == 4
    assert sum(text.count("skipped ce-") for text in shown) == 4
    assert not any("failed" in text for text in shown)
