"""Kill anywhere: 200 SIGKILLs over 12 methods, every run ends with the bits of the uncut one."""

from __future__ import annotations

import random
import signal

import pytest
from tests.runs.killable import run_and_count, run_child
from tests.runs.test_kill_and_resume import outcome

from shasam.spec import resolve
from shasam.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow
VIT = {"model": {"depth": 1, "patch": 8}}
METHODS = {
    "shasam": {"options": {"mining": {"start": 0.2}}},
    "shasam-ld": {},
    "shasam-literal": {},
    "supcon": {},
    "fscl+": {"options": {"stage2_augment": True}},
    "ce": {"train": {"ema": 0.9, "selection": "best"}},
    "balanced": {},
    "groupdro": {},
    "posthoc": {},
    "mfd": {},
    "lnl": {},
    "fairvit": VIT,
}
KILLS = 17  # of each method: 12 x 17 = 204


def layers_of(method: str) -> dict:
    own = METHODS[method]
    train = {"steps": 6, "classify": {"epochs": 2}, **own.get("train", {})}
    return {"data": {"size": 16}, **own, "method": method, "train": train}


@pytest.mark.parametrize("method", METHODS)
def test_killed_runs_end_with_the_same_bits(method, tmp_path):
    layers = layers_of(method)
    name = resolve(layers, profile="smoke").name
    uncut, instants = {}, {}
    for seconds in (0.0, 60.0):  # a checkpoint after every step, and at the end of a stage alone
        code, instants[seconds] = run_child(tmp_path / f"whole-{seconds}", layers, seconds, None)
        assert code == 0
        uncut[seconds] = outcome(tmp_path / f"whole-{seconds}" / name)
    assert uncut[0.0] == uncut[60.0]
    rng, deaths, number = random.Random(method), 0, 0
    while deaths < KILLS:
        number += 1
        out, seconds = tmp_path / f"cut-{number}", rng.choice((0.0, 60.0))
        for _ in range(4):  # deaths of one run, each at a random instant
            code, _ = run_child(out, layers, seconds, rng.randint(1, instants[seconds]))
            assert code in (0, -signal.SIGKILL)
            deaths += code != 0
        code, _ = run_child(out, layers, seconds, None)
        assert code == 0
        assert outcome(out / name) == uncut[0.0]


def test_a_kill_costs_at_most_the_step_after_the_last_checkpoint(tmp_path):
    layers = {"data": {"size": 16}, "method": "ce", "train": {"steps": 40}}
    folder = tmp_path / resolve(layers, profile="smoke").name / "checkpoints"
    rng, saved, deaths = random.Random(0), 0, 0
    while True:  # a checkpoint is written after every step
        code, _, steps = run_and_count(tmp_path, layers, 0.0, rng.randint(10, 60))
        found = load_checkpoint(folder, pytest.fail)
        if code == 0 or (found is not None and found.state["stage"] == 1):
            break
        now = 0 if found is None else found.state["step"]
        assert saved + steps - now <= 1
        saved, deaths = now, deaths + 1
    assert deaths >= 3
