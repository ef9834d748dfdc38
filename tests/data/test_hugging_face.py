"""The source ``datasets``: what save_to_disk writes, read with and without that package."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import shasam
from shasam.cli import app
from shasam.data import DataSpec, from_datasets, open_data
from shasam.errors import DataError, ShasamError
from shasam.spec import resolve
from shasam.testing import check_source

COLORS = ("blue", "red")


def png(t: int, s: int, seed: int) -> bytes:
    """A picture whose class is a side and whose group is a colour."""
    pixels = np.random.default_rng(seed).integers(0, 90, (16, 16, 3), dtype=np.uint8)
    pixels[:, 8 * t : 8 * t + 8] += 120
    pixels[..., 2 * s] += 40
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def columns(n: int, start: int = 0) -> dict[str, list[Any]]:
    rows = range(start, start + n)
    return {
        "image": [{"bytes": png(k % 2, k // 2 % 2, k), "path": None} for k in rows],
        "side": [k % 2 for k in rows],
        "color": [COLORS[k // 2 % 2] for k in rows],
        "age": [20 + k % 50 for k in rows],
    }


INFO = {
    "image": {"_type": "Image"},
    "side": {"names": ["left", "right"], "_type": "ClassLabel"},
    "color": {"dtype": "string", "_type": "Value"},
    "age": {"dtype": "int64", "_type": "Value"},
}


def write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def saved(folder: Path, n: int = 120, start: int = 0, info: dict[str, Any] | None = None) -> Path:
    """The layout of ``Dataset.save_to_disk``, in two files."""
    folder.mkdir(parents=True)
    names = [f"data-0000{k}-of-00002.arrow" for k in range(2)]
    for k, name in enumerate(names):
        table = pa.table(columns(n // 2, start + k * (n // 2)))
        with (
            pa.OSFile(str(folder / name), "wb") as file,
            pa.ipc.new_stream(file, table.schema) as w,
        ):
            w.write_table(table)
    (folder / "dataset_info.json").write_text(json.dumps({"features": info or INFO}))
    state = {"_fingerprint": "0", "_data_files": [{"filename": name} for name in names]}
    (folder / "state.json").write_text(json.dumps(state))
    return folder


def spec(root: Path, **changes: Any) -> DataSpec:
    values = {
        "name": "datasets", "root": root, "target": "side", "sensitive": "color", "size": 16,
        "store": root.parent / "store",
    }  # fmt: skip
    return DataSpec(**{**values, **changes})


def test_it_keeps_the_contract_of_a_source(tmp_path: Path) -> None:
    check_source(spec(saved(tmp_path / "d")))


def test_images_labels_and_groups_are_those_of_the_columns(tmp_path: Path) -> None:
    data = open_data(spec(saved(tmp_path / "d")))
    assert data.target_names == ("left", "right") and data.sensitive_names == COLORS
    rows = data.rows("train")
    numbers = [int(i) for i in data.manifest.table.column("id").to_pylist()]
    wanted = np.asarray(Image.open(io.BytesIO(png(*np.divmod(numbers[rows[0]] % 4, 2)[::-1],
                                                   numbers[rows[0]]))))  # fmt: skip
    assert np.array_equal(data.images(rows[:1])[0].permute(1, 2, 0).numpy(), wanted)
    assert [numbers[r] % 2 for r in rows] == data.t_N[rows].tolist()
    young = open_data(spec(tmp_path / "d", sensitive="age<40"))
    assert young.groups == 2


def test_the_parts_of_a_dict_are_the_splits(tmp_path: Path) -> None:
    sizes = {"train": 60, "validation": 20, "test": 40}
    for k, (name, n) in enumerate(sizes.items()):
        saved(tmp_path / "d" / name, n, 100 * k)
    (tmp_path / "d" / "dataset_dict.json").write_text(json.dumps({"splits": list(sizes)}))
    data = open_data(spec(tmp_path / "d"))
    assert [len(data.rows(split)) for split in ("train", "val", "test")] == [60, 20, 40]
    (tmp_path / "d" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(DataError, match="has the splits train, test; give train, validation and"):
        open_data(spec(tmp_path / "d"))


def test_another_content_is_another_run_and_the_old_one_says_so(tmp_path: Path) -> None:
    given = {"method": "ce", "data": spec(saved(tmp_path / "d")).model_dump(exclude_unset=True)}
    before = resolve(given)
    info = {**INFO, "side": {"names": ["left", "east"], "_type": "ClassLabel"}}
    (tmp_path / "d" / "dataset_info.json").write_text(json.dumps({"features": info}))
    assert resolve(given).name != before.name
    with pytest.raises(DataError, match="has changed since this specification was made"):
        open_data(before.data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path_column": "imge"}, r"no column of images 'imge'; did you mean 'image'"),
        ({"identity_column": "persn"}, "no column 'persn'"),
        ({"target": "sides"}, "'sides'"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, change: dict[str, str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        open_data(spec(saved(tmp_path / "d"), **change))


def test_folders_that_are_none_and_names_that_leave_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="save_to_disk"):
        open_data(spec(tmp_path))
    root = saved(tmp_path / "d")
    state = {"_data_files": [{"filename": "../../secret.arrow"}]}
    (root / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match="is no file of it"):
        open_data(spec(root))
    (root / "state.json").write_text(json.dumps({"files": []}))
    with pytest.raises(DataError):
        open_data(spec(root))
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": "x.arrow"}]}))
    (root / "x.arrow").write_bytes(b"\xff" * 64)
    with pytest.raises(DataError, match="cannot be read as an Arrow stream"):
        open_data(spec(root))


def test_a_row_without_an_image_is_left_out_with_its_reason(tmp_path: Path) -> None:
    root = saved(tmp_path / "d")
    table = columns(60, 60)
    table["image"][3] = None
    schema = pa.table(columns(1)).schema
    write(root / "data-00001-of-00002.arrow", pa.table(table, schema=schema))
    data = open_data(spec(root))
    (left,) = data.manifest.excluded
    assert left["id"] == "000000063" and "no bytes of an image" in left["reason"]


def test_train_and_predict_from_the_command_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "d")
    flags = "--data datasets --root d --target side --sensitive color --profile smoke -q"
    app(f"train ce {flags} --allow-chance --no-report --store cache".split(),
        result_action="return_value")  # fmt: skip
    (run,) = Path("runs").iterdir()
    assert shasam.load(run).classes == ("left", "right")


# -------------------------------------------------------------------------------------------------
# With the package.
# -------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A data set in memory, shuffled, so that its rows are reached through indices."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))
    kinds = datasets.Features(
        image=datasets.Image(),
        side=datasets.ClassLabel(names=["left", "right"]),
        color=datasets.Value("string"),
        age=datasets.Value("int64"),
    )
    return datasets.Dataset.from_dict(columns(120), features=kinds).shuffle(seed=3)


def test_a_data_set_in_memory_gives_the_rows_that_it_shows(made: Any) -> None:
    fields = from_datasets(made, target="side", sensitive="color", size=16)
    data = open_data(DataSpec(**fields))
    row = int(data.rows("test")[0])
    shown = made[int(data.manifest.table.column("id")[row].as_py())]
    assert data.target_names[data.t_N[row]] == ("left", "right")[shown["side"]]
    pixels = data.images(np.array([row]))[0].permute(1, 2, 0).numpy()
    assert np.array_equal(pixels, np.asarray(shown["image"].convert("RGB")))
    assert from_datasets(made, target="side")["root"] == fields["root"]  # written once


def test_a_dict_of_data_sets_trains(made: Any) -> None:
    import datasets

    first = made.train_test_split(0.4, seed=0)
    second = first["test"].train_test_split(0.5, seed=0)
    parts = datasets.DatasetDict(
        train=first["train"], validation=second["train"], test=second["test"]
    )
    fields = from_datasets(parts, target="side", sensitive="color")
    few = {"train.steps": 2}
    with pytest.warns(Warning, match="not learnt"):
        run = shasam.train(
            "ce", data=fields, profile="smoke", overrides=few, report=False, quiet=True,
            out=Path(fields["root"]).parent / "runs",
        )  # fmt: skip
    assert run.metrics()["test"]["accuracy"]["value"] >= 0


def _relinked(folder: Path, name: str, outside: Path) -> None:
    (folder / name).rename(outside / name)
    (folder / name).symlink_to(outside / name)


def _piped(folder: Path, name: str, outside: Path) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


def _huge_header(folder: Path, name: str, outside: Path) -> None:
    (folder / name).write_bytes(
        b"\xff\xff\xff\xff" + (2**31 - 8).to_bytes(4, "little") + b"\0" * 64
    )


@pytest.mark.parametrize("damage", [_relinked, _piped, _huge_header])
@pytest.mark.parametrize("name", ["data-00000-of-00002.arrow", "dataset_info.json", "state.json"])
def test_links_pipes_and_huge_heads_are_a_sentence(tmp_path: Path, damage, name: str) -> None:
    (outside := tmp_path / "outside").mkdir()
    damage(folder := saved(tmp_path / "data"), name, outside)
    with pytest.raises(ShasamError, match=name):
        open_data(spec(folder))


@pytest.mark.parametrize(
    ("column", "values"),
    [("image", "x"), ("image", [1]), ("image", {"path": "/etc/passwd"}), ("side", "left"),
     ("side", [0]), ("color", ["red"]), ("color", {"a": "red"}), ("color", None)],
)  # fmt: skip
def test_columns_of_another_shape_are_a_sentence(tmp_path: Path, column: str, values: Any) -> None:
    folder = saved(tmp_path / "data")
    for path in folder.glob("*.arrow"):
        table = pa.table(columns(60))
        place = table.column_names.index(column)
        other = pa.array([values] * 60)
        made = table.remove_column(place)
        write(path, made if values is None else table.set_column(place, column, other))
    with pytest.raises(DataError, match=f"the column '{column}' of"):
        open_data(spec(folder))
