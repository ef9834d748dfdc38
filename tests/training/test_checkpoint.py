from __future__ import annotations

import os

import pytest
import torch

from shasam.errors import CheckpointError
from shasam.runs.directory import RunLog, read_log
from shasam.training.checkpoint import load_checkpoint, read_checkpoint, save_checkpoint, to_bytes


def tensors(value):
    return {"model.w": torch.full((3, 4), float(value)), "plan.n": torch.tensor([value])}


def test_tensors_and_state_come_back_exactly(tmp_path):
    state = {"stage": 1, "loss": 0.1 + 0.2, "sums": {"a": 1e-300}}
    save_checkpoint(tmp_path, tensors(7), state)
    found = load_checkpoint(tmp_path, print)
    assert found.state == state
    assert torch.equal(found.part("model")["w"], torch.full((3, 4), 7.0))


def test_only_the_last_two_are_kept(tmp_path):
    for value in range(5):
        save_checkpoint(tmp_path, tensors(value), {"value": value})
    assert sorted(os.listdir(tmp_path)) == [
        f"{number:08d}.{kind}" for number in (4, 5) for kind in ("json", "safetensors")
    ]


@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_the_good_checkpoint_outlives_a_damaged_newer_one(tmp_path, kind):
    save_checkpoint(tmp_path, tensors(1), {"value": 1})
    save_checkpoint(tmp_path, tensors(2), {"value": 2})
    (tmp_path / f"00000002.{kind}").write_bytes(b"damaged")
    assert load_checkpoint(tmp_path, lambda text: None).state == {"value": 1}
    newest = save_checkpoint(tmp_path, tensors(3), {"value": 3})
    newest.write_bytes(b"damaged too")
    assert load_checkpoint(tmp_path, lambda text: None).state == {"value": 1}


def test_damage_that_nobody_has_read_yet_costs_no_good_checkpoint(tmp_path):
    for value in (1, 2, 3):
        save_checkpoint(tmp_path, tensors(value), {"value": value})
    (tmp_path / "00000003.safetensors").write_bytes(b"damaged while training goes on")
    save_checkpoint(tmp_path, tensors(4), {"value": 4})
    (tmp_path / "00000004.json").unlink()
    assert load_checkpoint(tmp_path, lambda text: None).state == {"value": 2}


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@pytest.mark.parametrize("how", ["cut", "flip"])
def test_any_torn_byte_is_found_and_the_checkpoint_before_is_used(tmp_path, kind, how):
    save_checkpoint(tmp_path, tensors(1), {"value": 1})
    save_checkpoint(tmp_path, tensors(2), {"value": 2})
    path = tmp_path / f"00000002.{kind}"
    good = path.read_bytes()
    for offset in range(0, len(good), max(1, len(good) // 60)):
        flipped = good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1 :]
        path.write_bytes(good[:offset] if how == "cut" else flipped)
        said = []
        assert load_checkpoint(tmp_path, said.append).state == {"value": 1}
        assert len(said) == 1 and "using the one before" in said[0]


def test_a_flipped_letter_that_leaves_a_number_as_it_was_is_damage_all_the_same(tmp_path):
    save_checkpoint(tmp_path, tensors(1), {"loss": 0.5})
    path = save_checkpoint(tmp_path, tensors(2), {"loss": 1e-05})
    path.write_bytes(path.read_bytes().replace(b"1e-05", b"1E-05"))
    assert load_checkpoint(tmp_path, lambda text: None).state == {"loss": 0.5}


def test_when_no_checkpoint_can_be_trusted_that_is_an_error_and_not_a_new_start(tmp_path):
    save_checkpoint(tmp_path, tensors(1), {})
    (tmp_path / "00000001.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="none of the 1 checkpoints"):
        load_checkpoint(tmp_path, lambda text: None)
    assert load_checkpoint(tmp_path / "nothing", print) is None


def test_a_full_disk_is_a_clear_error_and_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path, tensors(1), {"value": 1})

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_checkpoint(tmp_path, tensors(2), {"value": 2})
    assert read_checkpoint(path).state == {"value": 1}
    assert load_checkpoint(tmp_path, print).state == {"value": 1}


def test_tensors_that_share_memory_are_written_for_each_name():
    w = torch.arange(4.0)
    from safetensors.torch import load

    found = load(to_bytes({"a": w, "b": w}))
    assert torch.equal(found["a"], w) and torch.equal(found["b"], w)


def test_a_log_is_cut_back_to_the_checkpoint_but_keeps_that_the_test_was_opened(tmp_path):
    log = RunLog(tmp_path / "log.jsonl")
    log.write("epoch", loss=float("nan"), epoch=0, val=None)
    size = log.size()
    log.write("epoch", epoch=1)
    log.write("test_opened", reason="end")
    with open(log.path, "a") as file:
        file.write('{"event": "ep')  # a line that a crash has cut
    log.cut(size)
    assert read_log(log.path) == [
        {"event": "epoch", "loss": None, "epoch": 0},
        {"event": "test_opened", "reason": "end"},
    ]
