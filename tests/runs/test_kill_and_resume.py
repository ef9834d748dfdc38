from __future__ import annotations

import random
import signal

import pytest
from safetensors.torch import load_file
from tests.runs.killable import run_child

from shasam.runs.directory import read_log
from shasam.spec import resolve
from shasam.training.checkpoint import load_checkpoint

SMALL = {"data": {"size": 16}, "train": {"steps": 9, "classify": {"epochs": 3}}}
CASES = {
    "mined": {"method": "shasam", "options": {"mining": {"start": 0.2, "refresh": "epoch"}}},
    "ce, average and best": {
        "method": "ce",
        "train": {"steps": 9, "ema": 0.9, "selection": "best"},
    },
    "two stages": {"method": "supcon"},
    "two stages, augmented, balanced": {
        "method": "fscl",
        "options": {"stage2_augment": True, "stage2_sampling": "balanced"},
        "train": {"steps": 9, "optimizer": "sgd", "lr": 0.1, "classify": {"epochs": 2}},
    },
}
TIMED = ("images_per_second", "time", "mine_fraction")


def outcome(folder):
    """Everything a run decides: weights, predictions, metrics, and the log without its clock."""
    lines = [
        {k: v for k, v in line.items() if k not in TIMED}
        for line in read_log(folder / "log.jsonl")
        if line["event"] not in ("resume", "test_opened")
    ]
    files = [p for p in sorted(folder.iterdir()) if p.suffix == ".parquet"]
    return {
        "model": {
            k: v.numpy().tobytes() for k, v in load_file(folder / "model.safetensors").items()
        },
        "files": {p.name: p.read_bytes() for p in [*files, folder / "metrics.json"]},
        "log": lines,
    }


def check_kills(tmp_path, name, kills, seconds):
    layers = {**SMALL, **CASES[name]}
    spec = resolve(layers, profile="smoke")
    code, instants = run_child(tmp_path / "whole", layers, seconds, None)
    assert code == 0
    whole = outcome(tmp_path / "whole" / spec.name)
    rng = random.Random(name)
    for number in range(kills):
        out = tmp_path / f"cut-{number}"
        # two deaths in one run, each at a random instant
        for _ in range(2):
            code, _ = run_child(out, layers, seconds, rng.randint(1, instants))
            assert code in (0, -signal.SIGKILL)
        code, _ = run_child(out, layers, seconds, None)
        assert code == 0
        assert outcome(out / spec.name) == whole


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_ends_with_the_same_bits_after_resume(tmp_path, name):
    check_kills(tmp_path, name, kills=1, seconds=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["save every step", "save every epoch"])
def test_many_killed_runs_end_with_the_same_bits(tmp_path, name, seconds):
    check_kills(tmp_path, name, kills=12, seconds=seconds)


def test_two_checkpoints_are_kept_and_the_test_split_was_opened_once(tmp_path):
    layers = {**SMALL, **CASES["two stages"]}
    spec = resolve(layers, profile="smoke")
    run_child(tmp_path, layers, 0.0, None)
    folder = tmp_path / spec.name / "checkpoints"
    assert len(list(folder.glob("*.json"))) == len(list(folder.glob("*.safetensors"))) == 2
    assert load_checkpoint(folder, print).state["stage"] == 2
    events = [line["event"] for line in read_log(tmp_path / spec.name / "log.jsonl")]
    assert events.count("test_opened") == 1
