"""UTKFace and CelebA as they are; run where they are, skipped with a reason where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tests.real_data import celeba_root, utkface_root

from shasam.data import DataSpec, make_source, open_data
from shasam.data.dataset import open_store
from shasam.data.inspect import copies
from shasam.errors import DataError
from shasam.testing import check_source

# files and bytes of the copies that experiments/manifests describes
UTKFACE, CELEBA = (23707, 118884149), (30000, 97925081)
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
pytestmark = [pytest.mark.real_data, pytest.mark.slow]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("SHASAM_CACHE")
    return Path(given) if given else tmp_path_factory.mktemp("stores")


def utk(cache: Path, **changes: object) -> DataSpec:
    return DataSpec(name="utkface", root=utkface_root(), store=cache, **changes)  # type: ignore[arg-type]


def cel(cache: Path, **changes: object) -> DataSpec:
    return DataSpec(name="celeba", root=celeba_root(), store=cache, **changes)  # type: ignore[arg-type]


def cells(data, split: str) -> list[int]:
    rows = data.rows(split)
    return np.bincount(data.t_N[rows] * data.groups + data.s_N[rows]).tolist()


def need_files_of_the_page(folder: Path, files: int, total: int) -> None:
    """experiments/manifests counts and hashes one copy of each set; another has other bytes."""
    sizes = [entry.stat().st_size for entry in os.scandir(folder)]
    if (len(sizes), sum(sizes)) != (files, total):
        pytest.skip(
            f"what experiments/manifests counts was not checked: {folder.name} is another copy"
        )


def test_utkface_names_and_copies(cache: Path) -> None:
    need_files_of_the_page(utkface_root(), *UTKFACE)
    source = make_source(utk(cache))
    assert len(source.listing.excluded) == 3  # the race is missing in three names
    assert len(source.listing.notes) == 2  # two more are irregular and have their labels
    found = copies(source, open_store(source, 64))
    assert (found.redundant, found.groups, found.files) == (390, 375, 765)
    assert found.conflicting == 531


@pytest.mark.parametrize(
    ("alpha", "train"),
    [(1, [2900] * 4), (2, [3867, 1933, 1933, 3867]), (3, [4350, 1450, 1450, 4350]),
     (4, [4583, 1146, 1146, 4583])],
)  # fmt: skip
def test_utkface_cells(cache: Path, alpha: float, train: list[int]) -> None:
    need_files_of_the_page(utkface_root(), *UTKFACE)
    data = open_data(utk(cache, alpha=alpha))
    assert cells(data, "train") == train
    assert cells(data, "val") == cells(data, "test") == [400] * 4
    hashes = data.manifest.table.column("content_hash").to_pylist()
    assert len(set(hashes)) == len(hashes)
    said = any("5729 instead of 5800" in note for note in data.manifest.notes)
    assert said == (alpha == 4)


def test_celeba_is_incomplete_and_says_so(cache: Path) -> None:
    there = len(os.listdir(celeba_root() / "img_align_celeba"))
    if there < 202_599:
        with pytest.raises(DataError, match=f"{202_599 - there} of 202599 images are missing"):
            make_source(cel(cache)).table()
    else:
        assert make_source(cel(cache)).table().num_rows == 202_599


def test_celeba_settings(cache: Path) -> None:
    for setting, shape in (("a/m", (2, 2)), ("e&b/m", (4, 2)), ("a/m&y", (2, 4))):
        data = open_data(cel(cache, setting=setting, allow_missing=True))
        assert (data.classes, data.groups) == shape
        hashes = data.manifest.table.column("content_hash").to_pylist()
        assert len(set(hashes)) == len(hashes)


def test_the_manifests_have_the_published_hashes(cache: Path) -> None:
    need_files_of_the_page(utkface_root(), *UTKFACE)
    need_files_of_the_page(celeba_root() / "img_align_celeba", *CELEBA)
    page = (EXPERIMENTS / "manifests" / "README.md").read_text(encoding="utf-8")
    assert open_data(utk(cache, alpha=4)).manifest.sha256 in page
    assert open_data(utk(cache, alpha=2)).manifest.sha256 in page
    assert open_data(cel(cache, setting="a/m", allow_missing=True)).manifest.sha256 in page


def test_both_keep_the_contract(cache: Path) -> None:
    check_source(utk(cache), sample=8)
    check_source(cel(cache, allow_missing=True), sample=8)
