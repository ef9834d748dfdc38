"""``shasam doctor`` says what is there, finds what is broken, and tells nothing private."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from shasam.commands import doctor as module
from shasam.commands.doctor import doctor, extras, private
from shasam.errors import ShasamWarning


def test_a_working_install_is_all_well_and_every_part_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))
    doctor(self_test=False)
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith("all well")
    for word in ("shasam", "Python", "torch", "cache", "writable", "[jpeg]"):
        assert word in shown


def test_the_audit_of_the_self_test_works_without_torch(tmp_path):
    assert "known gap" in module._try_audit(tmp_path)


@pytest.mark.needs_torch
def test_the_self_test_mines_and_trains(tmp_path):
    assert "8 anchors" in module._try_mining(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShasamWarning)  # that four steps do not teach is no news
        assert "accuracy" in module._try_training(tmp_path)


def test_a_cache_that_cannot_be_written_and_a_failing_test_end_with_one(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SystemExit) as end:
        doctor(self_test=False)
    assert end.value.code == 1 and "broken: cache" in capsys.readouterr().out
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))

    def fails(folder: Path) -> str:
        raise ValueError("wrong number")

    for name in ("_try_audit", "_try_mining", "_try_training"):
        monkeypatch.setattr(module, name, fails)
    with pytest.raises(SystemExit):
        doctor()
    assert "FAILED: ValueError: wrong number" in capsys.readouterr().out


def test_a_missing_extra_is_named_with_its_install_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "_version", lambda name: "")
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path))
    found = {name: missing for name, missing, _ in extras()}
    assert "simplejpeg" in found["jpeg"] and "test" not in found
    doctor(self_test=False)
    assert "pip install 'shasam[jpeg]'" in capsys.readouterr().out


def test_user_names_and_home_folders_are_left_out(monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("USER", "alice")
    text = "/home/alice/.cache and /data/alice/x and /home/alicent"
    assert private(text) == "~/.cache and /data/USER/x and /home/alicent"
    assert os.path.expanduser("~") not in private(f"cache {Path.home()}/.cache/shasam")
