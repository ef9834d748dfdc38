"""Torn checkpoints: 1,000 damages of a real one are found; rotation never loses the good one."""

from __future__ import annotations

import random
import shutil

import pytest
import torch
from tests.runs.killable import run_child

from shasam.errors import CheckpointError
from shasam.spec import resolve
from shasam.training.checkpoint import load_checkpoint, read_checkpoint, save_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The two checkpoints of a run that was killed in mid-stage: model, optimiser, bank, plan."""
    out = tmp_path_factory.mktemp("killed")
    layers = {
        "data": {"size": 16},
        "method": "shasam",
        "train": {"steps": 9},
        "options": {"mining": {"start": 0.0}},
    }
    spec = resolve(layers, profile="smoke")
    _, instants = run_child(out / "whole", layers, 0.0, None)
    run_child(out / "cut", layers, 0.0, instants // 4)
    folder = out / "cut" / spec.name / "checkpoints"
    found = sorted(folder.glob("*.json"))
    assert len(found) in (2, 3)  # three where the kill came before the oldest was deleted
    for old in found[:-2]:
        old.unlink()
        old.with_suffix(".safetensors").unlink()
    assert load_checkpoint(folder, pytest.fail).part("optimizer.main")
    return folder


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@pytest.mark.parametrize("how", ["cut", "flip"])
def test_250_damages_of_each_kind_are_found_and_the_checkpoint_before_is_used(
    real, tmp_path, kind, how
):
    folder = tmp_path / "checkpoints"
    shutil.copytree(real, folder)
    older, newer = sorted(folder.glob("*.json"))
    path = newer.with_suffix(f".{kind}")
    expected = read_checkpoint(older)
    good = path.read_bytes()
    rng, found = random.Random(f"{kind} {how}"), 0
    for _ in range(250):
        place = rng.randrange(len(good))
        flipped = bytes([good[place] ^ (1 << rng.randrange(8))])
        path.write_bytes(good[:place] + (b"" if how == "cut" else flipped + good[place + 1 :]))
        said: list[str] = []
        assert load_checkpoint(folder, said.append).state == expected.state
        assert len(said) == 1 and "\n" not in said[0] and "using the one before" in said[0]
        found += 1
    assert found == 250


def test_500_saves_with_damage_between_them_never_lose_the_newest_good_checkpoint(tmp_path):
    """Whatever is damaged between two saves, what was good before a save stays loadable."""
    rng = random.Random(0)
    good: list[int] = []  # values of the checkpoints on disk that nobody has damaged
    for value in range(500):
        save_checkpoint(tmp_path, {"w": torch.full((4,), float(value))}, {"value": value})
        if good:  # the newest good one before the save is still there
            kept = {load_value(p) for p in tmp_path.glob("*.json")}
            assert good[-1] in kept
        good.append(value)
        assert len(list(tmp_path.glob("*.json"))) <= 2 or len(good) <= 2
        if rng.random() < 0.4:
            newest = max(tmp_path.glob("*.json"))
            victim = newest.with_suffix(rng.choice([".json", ".safetensors"]))
            victim.write_bytes(b"damaged")
            good.pop()
            if not good:
                with pytest.raises(CheckpointError):
                    load_checkpoint(tmp_path, lambda text: None)
                continue
        assert load_checkpoint(tmp_path, lambda text: None).state == {"value": good[-1]}


def load_value(path):
    try:
        return read_checkpoint(path).state["value"]
    except CheckpointError:
        return None
