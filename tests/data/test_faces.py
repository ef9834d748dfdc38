"""Drawn faces: by their own key, with exact cells, and the same on every machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from shasam.data import DataSpec, make_source, open_data
from shasam.data.sources.faces import ATTRIBUTES, render
from shasam.errors import DataError
from shasam.keyed import keys


def half(n: int) -> dict[str, np.ndarray]:
    return {name: np.full(n, 0.5) for name in ATTRIBUTES}


def test_a_face_looks_the_same_in_every_batch() -> None:
    key = keys(0, np.arange(37))
    whole = render(half(37), key)
    assert np.array_equal(render(half(37), key[::-1])[::-1], whole)
    for row in (0, 15, 16, 36):
        assert np.array_equal(render(half(1), key[row : row + 1])[0], whole[row])


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_shows(name: str) -> None:
    key = keys(0, np.arange(24))
    low, high = half(24), half(24)
    for other in ("glasses", "beard", "hat"):  # nothing in front of what is looked for
        low[other] = high[other] = np.zeros(24)
    low[name], high[name] = np.full(24, 0.1), np.full(24, 0.9)
    change = np.abs(render(high, key).astype(int) - render(low, key)).max((1, 2, 3))
    assert (change > 25).all()


def test_faces_differ_and_fill_the_picture() -> None:
    faces = render(half(32), keys(1, np.arange(32)))
    assert len({face.tobytes() for face in faces}) == 32
    assert 60 < faces.mean() < 190 and faces.std() > 30


@pytest.mark.parametrize("size", [16, 32, 96])
def test_any_size_can_be_drawn_and_the_scene_stays(size: int) -> None:
    key = keys(0, np.arange(4))
    small = render(half(4), key, size).mean((1, 2))
    assert np.abs(small - render(half(4), key, 64).mean((1, 2))).max() < 6


def test_cells_are_exact(tmp_path: Path) -> None:
    spec = DataSpec(n=80, holdout_per_cell=5, size=16, store=tmp_path, alpha=3)
    data = open_data(spec)
    train = data.rows("train")
    cells = np.bincount(data.t_N[train] * 2 + data.s_N[train])
    assert cells.tolist() == [30, 10, 10, 30]
    for split in ("val", "test"):
        rows = data.rows(split)
        assert np.bincount(data.t_N[rows] * 2 + data.s_N[rows]).tolist() == [5, 5, 5, 5]
    assert data.target_names == ("serious", "smiling")


def test_flipping_the_direction_swaps_the_cells(tmp_path: Path) -> None:
    source = make_source(DataSpec(n=80, holdout_per_cell=5, store=tmp_path, flip_direction=True))
    table = source.table()
    train = np.array(table.column("split").to_pylist()) == "train"
    smile, skin = (table.column(c).to_numpy()[train] for c in ("smile", "dark_skin"))
    assert np.bincount(smile * 2 + skin).tolist() == [8, 32, 32, 8]


def test_composite_labels_make_four_groups(tmp_path: Path) -> None:
    spec = DataSpec(
        n=80, holdout_per_cell=3, size=16, store=tmp_path, target="glasses", sensitive="old&beard"
    )
    data = open_data(spec)
    assert (data.classes, data.groups) == (2, 4)
    assert data.sensitive_names[1] == "old & no beard"
    rows = data.rows("test")
    assert np.bincount(data.t_N[rows] * 4 + data.s_N[rows]).tolist() == [3] * 8


def test_the_target_gets_harder_with_difficulty() -> None:
    right = []
    for difficulty in (0.0, 0.5, 1.0):
        table = make_source(DataSpec(difficulty=difficulty)).table()
        told = (table.column("smile_strength").to_numpy() > 0.5) == table.column("smile").to_numpy()
        right.append(told.mean())
    assert right[0] > 0.97 and 0.86 < right[1] < 0.93 and 0.6 < right[2] < 0.72


def test_other_attributes_do_not_tell_the_target() -> None:
    table = make_source(DataSpec()).table()
    smile = table.column("smile").to_numpy()
    for name in set(ATTRIBUTES) - {"smile", "dark_skin"}:
        assert abs(np.corrcoef(smile, table.column(name).to_numpy())[0, 1]) < 0.04


def test_the_recipe_of_the_default_is_the_same_everywhere() -> None:
    table = make_source(DataSpec()).table()
    digest = hashlib.sha256()
    for name in ("key", *(f"{a}_strength" for a in ATTRIBUTES)):
        digest.update(table.column(name).to_numpy().tobytes())
    assert digest.hexdigest()[:16] == "dd76cd44e4219175"


def test_unknown_attributes_are_answered_with_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'smile'"):
        make_source(DataSpec(target="smiles")).table()
    with pytest.raises(DataError, match="must differ"):
        make_source(DataSpec(target="hat", sensitive="hat")).table()
