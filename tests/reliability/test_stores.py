"""Stores at full figures: a thousand flips, hundreds of shards at 64 open files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.data.folders import make_folder
from tests.data.test_store import check_with_few_files, damage, spec

import shasam.data.store as store_module
from shasam.data import Store, make_source
from shasam.data.dataset import pack
from shasam.errors import DataError

pytestmark = pytest.mark.slow


def test_a_thousand_flips_in_any_file_of_a_store_are_all_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(store_module, "_SHARD_BYTES", 16 * 16 * 3 * 16)
    make_folder(tmp_path / "photos", 70)
    store = pack(make_source(spec(tmp_path)), 16)
    names = sorted([*store.files(), "store.json"])
    rng = np.random.default_rng(0)
    for k in range(1000):
        path = store.directory / names[k % len(names)]
        good = path.read_bytes()
        damage(path, int(rng.integers(0, len(good))), int(rng.integers(0, 8)))
        with pytest.raises(DataError, match="damaged"):
            Store.open(store.directory)
        path.write_bytes(good)
    assert Store.open(store.directory).verify() == []


def test_hundreds_of_shards_work_at_64_open_files(tmp_path: Path) -> None:
    check_with_few_files(tmp_path, 64, 600, rows=1)
