"""A real full disk: a small file system in memory, mounted where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.folders import make_folder

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of one MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def shasam(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shasam.cli", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    )


def is_a_sentence(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 2 and "Traceback" not in done.stderr and "shasam:" in done.stderr


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)


def fill(disk: Path, leave: int) -> None:
    """Leave so many bytes."""
    free = shutil.disk_usage(disk).free
    (disk / "filler").write_bytes(bytes(max(0, free - leave)))


def test_packing_says_that_the_disk_is_full_and_goes_on_when_there_is_room(small_disk, tmp_path):
    make_folder(tmp_path / "photos", 300)
    words = ["data", "prepare", "--csv", tmp_path / "photos" / "people.csv", "--size", 32]
    words += ["--store", small_disk / "store"]
    fill(small_disk, 500_000)
    done = shasam(*words)
    assert is_a_sentence(done) and "free" in done.stderr, done.stderr
    (small_disk / "filler").unlink()
    # the check of the space passes and the disk fills while shards are written
    fill(small_disk, 300 * 32 * 32 * 3 + 4096)
    done = shasam(*words)
    assert is_a_sentence(done) and "No space left on device" in done.stderr, done.stderr
    grow(small_disk)
    assert shasam(*words).returncode == 0


def test_training_says_that_the_disk_is_full_and_resumes_when_there_is_room(small_disk, tmp_path):
    words = ["train", "ce", "--profile", "smoke", "--steps", 4, "--device", "cpu", "--quiet"]
    words += ["--set", "data.n=80", "--set", "data.holdout_per_cell=10", "--out", small_disk]
    words += ["--no-report", "--resume"]
    cache = str(tmp_path / "cache")
    done = shasam(*words, SHASAM_CACHE=cache)
    assert is_a_sentence(done) and "No space left on device" in done.stderr, done.stderr
    assert not list(small_disk.rglob("DONE"))
    assert not list(small_disk.rglob("*.tmp"))
    grow(small_disk)
    done = shasam(*words, SHASAM_CACHE=cache)
    assert done.returncode == 0, done.stderr
    whole = tmp_path / "whole"
    words[words.index("--out") + 1] = whole
    assert shasam(*words, SHASAM_CACHE=cache).returncode == 0
    (one,), (other,) = small_disk.glob("*/model.safetensors"), whole.glob("*/model.safetensors")
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("command", ["audit", "report", "mine", "sheet", "manifest"])
def test_every_command_that_writes_says_so_in_a_sentence(small_disk, tmp_path, command):
    from tests.report.run_files import make_run

    fill(small_disk, 0)
    target = small_disk / "out"
    if command in ("audit", "report"):
        run = make_run(tmp_path)
        words = {"audit": ["audit", run / "predictions.parquet", "--html", target],
                 "report": ["report", run, "--out", target]}[command]  # fmt: skip
    elif command == "mine":
        words = ["mine", "--scene", "balanced", "--out", target]
    else:
        flag = {"sheet": "--sheet", "manifest": "--save"}[command]
        words = ["data", "describe", "--n", 80, "--holdout-per-cell", 10, flag, target]
    done = shasam(*words, SHASAM_CACHE=str(tmp_path / "cache"))
    assert is_a_sentence(done) and "No space left on device" in done.stderr, done.stderr
