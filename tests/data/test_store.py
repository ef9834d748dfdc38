"""Packed stores: exact pixels, whole or absent, resumable, and checked."""

from __future__ import annotations

import json
import os
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
from shasam.data.packing import open_store, pack, store_directory
from shasam.errors import DataError


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 16 rows, so that a small folder has several."""
    monkeypatch.setattr(store_module, "_SHARD_BYTES", 16 * 16 * 3 * 16)


def spec(tmp_path: Path, store: str = "store") -> DataSpec:
    return DataSpec(
        name="manifest", root=tmp_path / "photos", csv=tmp_path / "photos" / "people.csv",
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
    with pytest.raises(DataError, match="not a whole packed store"):
        Store.open(tmp_path)
    (tmp_path / "store.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="not a whole packed store"):
        Store.open(tmp_path)
    record = {"version": 1, "size": 8, "shard_rows": 16}
    record["shards"] = [{"rows": 3, "pixels": "", "index": ""}]  # type: ignore[assignment]
    (tmp_path / "store.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match="should have 576 bytes"):
        Store.open(tmp_path)


_PACKER = """
import sys
import shasam.data.store as store_module
store_module._SHARD_BYTES = 16 * 16 * 3 * 16
from pathlib import Path
from shasam.data import make_source
from shasam.data.packing import pack
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
