"""Packed stores: exact pixels, whole or absent, resumable, and checked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.data.folders import make_folder

import shasam.data.store as store_module
from shasam.data import DataSpec, Store, make_source
from shasam.data.dataset import open_store, pack, store_directory
from shasam.errors import DataError


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 16 rows, so that a small folder has several."""
    monkeypatch.setattr(store_module, "_SHARD_BYTES", 16 * 16 * 3 * 16)


def spec(tmp_path: Path, store: str = "store") -> DataSpec:
    return DataSpec(
        name="table", root=tmp_path / "photos", csv=tmp_path / "photos" / "people.csv",
        target="smile", sensitive="age<35", store=tmp_path / store, size=16,
    )  # fmt: skip


def files(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir())}


@pytest.mark.usefixtures("small_shards")
def test_random_access_gives_the_pixels_that_were_read(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 70)
    source = make_source(spec(tmp_path))
    store = pack(source, 16)
    assert len(store.shards) == 5 and len(store) == 70
    rows = np.random.default_rng(0).integers(0, 70, 200)
    expected = source.read(source.table(), 16).images
    assert np.array_equal(store.images(rows), expected[rows])
    assert store.images(np.array([], dtype=int)).shape == (0, 16, 16, 3)
    with pytest.raises(DataError, match="rows must be in"):
        store.images(np.array([70]))


@pytest.mark.usefixtures("small_shards")
def test_the_store_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 70)
    made = []
    for workers in (1, 2, 5):
        store = pack(make_source(spec(tmp_path, f"store{workers}")), 16, workers=workers)
        made.append(files(store.directory))
    assert made[0] == made[1] == made[2]


@pytest.mark.usefixtures("small_shards")
def test_whole_shards_are_kept_and_torn_ones_made_anew(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 70)
    source = make_source(spec(tmp_path))
    store = pack(source, 16)
    before = files(store.directory)
    kept = store.directory / "shard-00001.bin"
    inode = kept.stat().st_ino
    (store.directory / "store.json").unlink()
    (store.directory / "shard-00002.arrow").unlink()
    torn = store.directory / "shard-00003.bin"
    torn.write_bytes(torn.read_bytes()[:-5])
    (store.directory / "shard-00004.arrow").write_bytes(b"half")
    seen: list[int] = []
    pack(make_source(spec(tmp_path)), 16, progress=lambda done, total: seen.append(done))
    assert files(store.directory) == before
    assert kept.stat().st_ino == inode and seen[0] == 32


@pytest.mark.usefixtures("small_shards")
def test_a_changed_file_is_read_again_and_an_unchanged_store_is_not_touched(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "photos", 40)
    first = open_store(make_source(spec(tmp_path)), 16)
    inode = (first.directory / "store.json").stat().st_ino
    assert open_store(make_source(spec(tmp_path)), 16) == first
    assert (first.directory / "store.json").stat().st_ino == inode
    (folder / "p003.jpg").write_bytes((folder / "p004.jpg").read_bytes())
    os.utime(folder / "p003.jpg", ns=(1, 1))
    again = open_store(make_source(spec(tmp_path)), 16)
    assert np.array_equal(*again.images(np.array([3, 4])))
    assert again.shards[0] != first.shards[0] and again.shards[1] == first.shards[1]


@pytest.mark.usefixtures("small_shards")
def test_one_flipped_bit_anywhere_is_found(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 40)
    store = pack(make_source(spec(tmp_path)), 16)
    assert store.verify() == []
    rng = np.random.default_rng(0)
    for name in ("shard-00001.bin", "shard-00002.arrow"):
        path = store.directory / name
        good = path.read_bytes()
        for place in rng.integers(0, len(good), 25):
            bad = bytearray(good)
            bad[place] ^= 1 << int(rng.integers(0, 8))
            path.write_bytes(bad)
            assert store.verify() == [name]
        path.write_bytes(good)


@pytest.mark.usefixtures("small_shards")
def test_two_packers_of_the_same_files_do_not_disturb_each_other(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 150)
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(lambda _: pack(make_source(spec(tmp_path)), 16), range(3)))
    rows = np.arange(150)
    assert np.array_equal(stores[0].images(rows), stores[2].images(rows))
    assert Store.open(stores[0].directory).verify() == []


def test_what_is_not_a_store_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a complete packed store"):
        Store.open(tmp_path)
    (tmp_path / "store.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"store\.json is not JSON"):
        Store.open(tmp_path)
    record = {"version": 2, "size": 8, "shard_rows": 16, "sha256": "0" * 64}
    record["shards"] = [{"rows": 3, "pixels": "", "index": ""}]  # type: ignore[assignment]
    (tmp_path / "store.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match="fails its own hash"):
        Store.open(tmp_path)


def damage(path: Path, place: int, bit: int = 0) -> None:
    """Flip a bit as a failing disk or a broken copy does: a new file with other bytes."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.usefixtures("small_shards")
def test_zeroed_pixels_are_found_on_opening_named_and_packed_again(tmp_path: Path, caplog) -> None:
    make_folder(tmp_path / "photos", 40)
    good = open_store(make_source(spec(tmp_path)), 16)
    expected = good.images(np.arange(40))
    for path in good.directory.glob("*.bin"):
        path.write_bytes(bytes(path.stat().st_size))  # the size is as before
    again = open_store(make_source(spec(tmp_path)), 16)
    assert np.array_equal(again.images(np.arange(40)), expected)
    assert "3 files of the packed store" in caplog.text and "shard-00000.bin" in caplog.text
    caplog.clear()
    open_store(make_source(spec(tmp_path)), 16)
    assert not caplog.text


@pytest.mark.usefixtures("small_shards")
def test_sixty_flips_in_the_index_and_the_list_never_pass_or_crash(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 40)
    source = make_source(spec(tmp_path))
    store = open_store(source, 16)
    index = store.index.to_pydict()
    rng = np.random.default_rng(0)
    for k in range(60):
        name = ("shard-00000.arrow", "shard-00002.arrow", "store.json", "shard-00001.json")[k % 4]
        path = store.directory / name
        damage(path, int(rng.integers(0, path.stat().st_size)), int(rng.integers(0, 8)))
        assert open_store(source, 16).index.to_pydict() == index
    assert Store.open(store.directory).verify() == []


@pytest.mark.usefixtures("small_shards")
def test_an_unchanged_store_is_hashed_once_and_a_changed_file_again(tmp_path, monkeypatch) -> None:
    make_folder(tmp_path / "photos", 40)
    source = make_source(spec(tmp_path))
    pack(source, 16)
    hashed: list[str] = []
    original = store_module.file_sha256
    monkeypatch.setattr(store_module, "file_sha256", lambda p: hashed.append(p.name) or original(p))
    directory = open_store(source, 16).directory
    assert len(hashed) == 6
    open_store(source, 16)
    assert len(hashed) == 6
    os.utime(directory / "shard-00001.bin", ns=(1, 1))
    open_store(source, 16)
    assert hashed[6:] == ["shard-00001.bin"]
    (directory / ".verified.json").write_text("[]")  # only a cache
    open_store(source, 16)
    assert len(hashed) == 13


_FEW_FILES = """
import resource, sys
import numpy as np
import shasam.data.store as store_module
rows = int(sys.argv[4])
store_module.shard_rows = lambda size: rows
import shasam.data.dataset as packing_module
packing_module.shard_rows = store_module.shard_rows
from pathlib import Path
from shasam.data import DataSpec, make_source
from shasam.data.dataset import open_store
spec = DataSpec(name="clusters", size=8, store=Path(sys.argv[1]))
open_store(make_source(spec), 8)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
store = open_store(make_source(spec), 8)
rows = np.random.default_rng(0).permutation(len(store))
assert len(store.shards) == int(sys.argv[3]), len(store.shards)
assert store.images(rows).shape == (len(rows), 8, 8, 3) and store.index.num_rows == len(rows)
"""


def check_with_few_files(tmp_path: Path, limit: int, shards: int, rows: int = 16) -> None:
    words = [tmp_path, limit, shards, rows]
    command = [sys.executable, "-c", _FEW_FILES, *map(str, words)]
    subprocess.run(command, check=True, timeout=300)


def test_more_shards_than_a_process_may_have_files_open(tmp_path: Path) -> None:
    check_with_few_files(tmp_path, 30, 38)


def test_a_store_goes_to_another_process_without_its_pixels(tmp_path: Path) -> None:
    import pickle

    make_folder(tmp_path / "photos", 40)
    store = open_store(make_source(spec(tmp_path)), 16)
    store.images(np.arange(40))
    assert len(pickle.dumps(store)) < 3000
    assert np.array_equal(pickle.loads(pickle.dumps(store)).images([3]), store.images([3]))


def test_a_disk_that_is_too_small_is_told_before_packing(tmp_path: Path, monkeypatch) -> None:
    make_folder(tmp_path / "photos", 40)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(DataError, match=r"need 30\.0 KiB more"):
        pack(make_source(spec(tmp_path)), 16)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
def test_a_pipe_among_the_images_is_left_out_with_a_reason(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "photos", 40)
    (folder / "p003.jpg").unlink()
    os.mkfifo(folder / "p003.jpg")
    store = open_store(make_source(spec(tmp_path)), 16)
    reasons = store.index.column("reason").to_pylist()
    assert reasons[3] == "not a regular file" and not any(reasons[:3] + reasons[4:])


_PACKER = """
import sys
import shasam.data.store as store_module
store_module._SHARD_BYTES = 16 * 16 * 3 * 16
from pathlib import Path
from shasam.data import make_source
from shasam.data.dataset import pack
from tests.data.test_store import spec
pack(make_source(spec(Path(sys.argv[1]), sys.argv[2])), 16, workers=1,
     progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("small_shards")
def test_a_killed_packing_goes_on_and_ends_in_the_same_bytes(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 640)
    whole = files(pack(make_source(spec(tmp_path, "whole")), 16).directory)
    rng = np.random.default_rng(0)
    command = [sys.executable, "-c", _PACKER, str(tmp_path), "killed"]
    root = Path(__file__).parents[2]
    killed = 0
    for _ in range(8):
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
        time.sleep(float(rng.uniform(0, 0.15)))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    store = pack(make_source(spec(tmp_path, "killed")), 16)
    assert killed >= 3
    left = {k: v for k, v in files(store.directory).items() if not k.endswith(".tmp")}
    assert left == whole and store.verify() == []
    assert store.directory == store_directory(make_source(spec(tmp_path, "killed")), 16)
