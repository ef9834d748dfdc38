"""Writing and reading among strangers' files: nothing half-written, no link followed, no pipe."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import shasam.files as files
from shasam.errors import FileError


def test_a_write_is_whole_or_leaves_what_was_there(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "new" / "a.json"
    files.write_atomic(path, "first")
    assert path.read_text() == "first" and os.listdir(path.parent) == ["a.json"]

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"a\.json: cannot be written: No space left on device"):
        files.write_atomic(path, b"second")
    assert path.read_text() == "first" and os.listdir(path.parent) == ["a.json"]


def test_a_link_in_place_of_a_file_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("mine")
    link = tmp_path / "run" / "metrics.json"
    link.parent.mkdir()
    link.symlink_to(canary)
    files.write_atomic(link, "new", within=link.parent)
    assert canary.read_text() == "mine" and not link.is_symlink() and link.read_text() == "new"


def test_links_laid_under_every_guessable_temporary_name_are_not_followed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("a.json.tmp", f".a.json.{os.getpid()}.tmp", ".a.json.tmp"):
        (run / name).symlink_to(canary)
    files.write_atomic(run / "a.json", "new")
    assert canary.read_text() == "mine"


def test_a_folder_that_a_link_puts_outside_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoints").symlink_to(outside)
    for write in (
        lambda: files.write_atomic(run / "checkpoints" / "1.json", "x", within=run),
        lambda: files.write_atomic(run / "checkpoints" / "deep" / "1.json", "x", within=run),
        lambda: files.make_folder(run / "checkpoints", within=run),
        lambda: files.write_atomic(run / ".." / "outside" / "1.json", "x", within=run),
    ):
        with pytest.raises(FileError, match="leads out of"):
            write()
    assert not list(outside.iterdir())


def test_appending_follows_neither_soft_nor_hard_links(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("mine")
    (tmp_path / "soft").symlink_to(canary)
    os.link(canary, tmp_path / "hard")
    with pytest.raises(FileError, match="is a link"):
        files.append(tmp_path / "soft", b"x")
    with pytest.raises(FileError, match="hard link"):
        files.append(tmp_path / "hard", b"x")
    assert canary.read_text() == "mine"
    files.append(tmp_path / "log", b"one\n")
    files.append(tmp_path / "log", b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code = (
        "import sys; from shasam.errors import FileError; from shasam.files import *\n"
        "for work in (lambda: read_bytes(sys.argv[1]), lambda: append(sys.argv[1], b'x')):\n"
        "    try: work()\n"
        "    except FileError as e: print(e.reason)\n"
    )
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        command = [sys.executable, "-c", code, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert len(done.stdout.splitlines()) == 2, path


def test_reading_checks_the_size_first_and_stays_inside(tmp_path: Path) -> None:
    big = tmp_path / "big"
    with open(big, "wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(FileError, match="the limit is 64 MiB"):
        files.read_bytes(big)
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / "spec.yaml").symlink_to(tmp_path / "big")
    with pytest.raises(FileError, match="leads out of"):
        files.read_bytes(inside / "spec.yaml", within=inside)
    with pytest.raises(FileError, match="cannot be read: No such file"):
        files.read_bytes(tmp_path / "nobody")
    with pytest.raises(FileError, match="null"):
        files.read_bytes("a\0b")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="Linux")
@pytest.mark.parametrize("name", ["mem", "status"])
def test_files_of_the_system_that_have_no_size_are_not_read_as_empty(name: str) -> None:
    with pytest.raises(FileError, match=r"cannot be read|has no size"):
        files.read_bytes(f"/proc/self/{name}")


def test_leftovers_of_killed_writers_are_removed_and_links_only_themselves(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".a.json.0011.tmp").write_text("half")
    (run / ".b.json.0022.tmp").symlink_to(canary)
    files.remove_leftovers(run, older_than=3600)
    assert len(list(run.iterdir())) == 2
    files.remove_leftovers(run)
    assert not list(run.iterdir()) and canary.read_text() == "mine"


def _a_pipe(place: Path) -> tuple[Path, list[bytes]]:
    """A FIFO and what a reader gets from it."""
    os.mkfifo(place)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(place.read_bytes()), daemon=True)
    thread.start()
    return place, got


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
def test_a_pipe_that_a_user_names_is_written_to(tmp_path: Path) -> None:
    pipe, got = _a_pipe(tmp_path / "pipe")
    files.write_named(pipe, "all of it")
    for _ in range(500):
        if got:
            break
        time.sleep(0.01)
    assert got == [b"all of it"] and stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError as error:
        pytest.skip(f"device nodes cannot be made or used here: {error}")
    files.write_named(device, "gone")
    files.append_named(device, b"gone")
    with pytest.raises(FileError, match="is a device, which is not replaced"):
        files.write_atomic(device, "x")
    link = tmp_path / "link"
    link.symlink_to(device)
    files.write_named(link, "gone")
    with pytest.raises(FileError, match="is a device"):
        files.write_atomic(link, "x")
    assert stat.S_ISCHR(device.lstat().st_mode) and link.is_symlink()


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_names_of_standard_output_are_standard_output(name: str, tmp_path: Path) -> None:
    code = f"from shasam.files import write_named; write_named({name!r}, 'x'); print('y')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == "xy\n" and not list(tmp_path.iterdir())
    with open(tmp_path / "file", "w") as file:  # a shell's "> file"
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "file").read_text() == "xy\n"
    assert os.path.islink("/dev/stdout")


@pytest.mark.parametrize("target", ["mine", "nothing", "."])
def test_a_link_that_a_user_names_is_refused_before_the_work(tmp_path: Path, target: str) -> None:
    (tmp_path / "mine").write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    with pytest.raises(FileError, match=r"is a link to .*; name that file itself"):
        files.check_writable(link)
    with pytest.raises(FileError, match="is a link"):
        files.write_named(link, "x")
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "nothing").exists()


def test_a_small_limit_is_told_in_bytes(tmp_path):
    (tmp_path / "long.yaml").write_bytes(b"x" * 40)
    with pytest.raises(FileError, match="40 bytes, the limit is 32 bytes"):
        files.read_bytes(tmp_path / "long.yaml", limit=32)
