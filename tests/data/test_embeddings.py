"""Vectors of one's own as a data source: every format alike, and bad input in one sentence."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.data.vector_files import ROWS, WIDTH, vectors, write_all, write_labels

from shasam.cli import main
from shasam.data import DataSpec, open_data
from shasam.data.vector_files import ALL_ZERO, NOT_FINITE, open_features, width_of
from shasam.errors import ShasamError
from shasam.spec import resolve

X, T, S = vectors()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    write_labels(tmp_path / "labels.csv", T, S)
    return tmp_path


def spec_of(folder: Path, **changes: object) -> DataSpec:
    given = {"features": folder / "x.npy", "csv": folder / "labels.csv", "target": "smiles",
             "sensitive": "group"}  # fmt: skip
    return DataSpec.model_validate({**given, **changes})


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert not end.value.code


def test_every_format_gives_the_same_rows_and_the_same_manifest(folder: Path) -> None:
    hashes = set()
    for path in write_all(folder, X):
        data = open_data(spec_of(folder, features=path, features_key=None))
        rows = data.rows("val")
        places = [int(name) for name in data.manifest.table.column("id").take(rows).to_pylist()]
        assert np.array_equal(data.images(rows).numpy(), X[places])
        hashes.add(data.manifest.sha256)
    assert len(hashes) == 1


def test_files_that_allow_it_are_mapped_and_not_read(folder: Path) -> None:
    write_all(folder, X)
    for name in ("x.npy", "plain.npz", "x.safetensors"):
        part = open_features(folder / name).parts[0]
        while part.base is not None and not isinstance(part, np.memmap):
            part = part.base
        assert isinstance(part, np.memmap), name


@pytest.mark.parametrize("kind", ["f8", "f2", "i4", "u1"])
def test_other_numbers_are_read_as_float32_and_that_is_said(folder: Path, kind: str) -> None:
    other = (10 * np.abs(X)).astype(kind)
    np.save(folder / "x.npy", other)
    data = open_data(spec_of(folder))
    assert data.images(data.rows("test")).dtype.is_floating_point
    assert any("read as float32" in note for note in data.manifest.notes)


def test_rows_are_matched_by_ids_that_both_have(folder: Path) -> None:
    ids = [f"p{row:03d}" for row in range(ROWS)]
    write_labels(folder / "labels.csv", T, S, ids)
    order = np.random.default_rng(1).permutation(ROWS)
    mixed = pa.array([X[row] for row in order])
    table = pa.table({"person": [ids[row] for row in order], "embedding": mixed})
    pq.write_table(table, folder / "e.parquet")
    data = open_data(spec_of(folder, features=folder / "e.parquet", id_column="person"))
    rows = data.rows("train")
    names = data.manifest.table.column("id").take(rows).to_pylist()
    assert np.array_equal(data.images(rows).numpy(), X[[int(name[1:]) for name in names]])


def test_the_width_is_known_without_reading_the_rows(folder: Path) -> None:
    assert {width_of(path) for path in write_all(folder, X)} == {WIDTH}


def test_a_parquet_with_vectors_and_labels_works_alone(folder: Path) -> None:
    table = pa.table({"embedding": pa.array(list(X)), "smiles": T, "group": S, "age": T * 40})
    pq.write_table(table, folder / "e.parquet")
    data = open_data(spec_of(folder, features=folder / "e.parquet", csv=None, target="age<35"))
    assert data.target_names == ("age>=35", "age<35") and len(data) == ROWS


def test_a_changed_file_is_another_run_and_the_old_run_says_so(folder: Path) -> None:
    body = {"method": "ce", "data": {"features": folder / "x.npy", "csv": folder / "labels.csv",
            "target": "smiles", "sensitive": "group"}}  # fmt: skip
    before = resolve(body, profile="smoke")
    assert before.data.name == "embeddings" and before.model.encoder == "mlp"
    assert before.data.features_dim == WIDTH
    np.save(folder / "x.npy", X + 1)
    assert resolve(body, profile="smoke").key != before.key
    with pytest.raises(ShasamError, match="has changed since this specification"):
        open_data(before.data)


def test_rows_that_are_no_embeddings_are_left_out_by_name(folder: Path) -> None:
    x = X.copy()
    x[:, 4] = 5
    x[3, 2], x[7], x[11] = np.nan, 0, x[12]
    np.save(folder / "x.npy", x)
    data = open_data(spec_of(folder, allow_bad=True))
    reasons = {entry["id"]: entry["reason"] for entry in data.manifest.excluded}
    assert NOT_FINITE in reasons["0000003"] and ALL_ZERO in reasons["0000007"]
    assert "duplicate" in reasons.get("0000011", "") + reasons.get("0000012", "")
    assert data.store.constant_columns.tolist() == [4]


def test_check_reports_bad_rows_duplicates_and_constant_columns(folder: Path, capsys) -> None:
    x = X.copy()
    x[3, 2], x[11], x[:, 4] = np.inf, x[12], 5
    np.save(folder / "x.npy", x)
    flags = ["--features", str(folder / "x.npy"), "--csv", str(folder / "labels.csv")]
    run("data", "check", *flags)
    said = " ".join(capsys.readouterr().out.split())
    assert "240 vectors listed, 239 usable" in said and NOT_FINITE in said
    assert "1 vectors are byte-identical" in said and "1 of 6 columns are constant: 4" in said
    run("data", "describe", *flags, "--target", "smiles", "--sensitive", "group")
    assert "vectors of 6 numbers, float32" in capsys.readouterr().out


def npy(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x, allow_pickle=x.dtype == object)
    return file.getvalue()


BAD = {
    "too few rows": ("x.npy", npy(X[:-1]), "has 240 rows and x.npy has 239 vectors"),
    "one dimension too many": ("x.npy", npy(X[:, :, None]), r"\(240, 6, 1\)"),
    "images": ("x.npy", npy(np.zeros((240, 3, 4, 4), np.uint8)), r"data\.csv and data\.root"),
    "one dimension too few": ("x.npy", npy(X[:, 0]), "reshape or pool"),
    "pickled objects": ("x.npy", npy(np.array([{}] * 3, object)), "could run code"),
    "complex numbers": ("x.npy", npy(X.astype(complex)), "must hold real numbers"),
    "cut off": ("x.npy", npy(X)[:-9], "too short|ends"),
    "empty": ("x.npy", b"", "x.npy is empty"),
    "no array": ("x.npy", b"hello there", "not a readable NumPy array"),
    "no rows": ("x.npy", npy(X[:0]), "has no rows"),
    "no safetensors": ("x.safetensors", b"\x08\0\0\0\0\0\0\0{}", "not a whole safetensors"),
    "lying safetensors": (
        "x.safetensors",
        b"\x44" + bytes(7) + b'{"x":{"dtype":"F32","shape":[9,2],"data_offsets":[0,72]}}'.ljust(68),
        "ends before its numbers do",
    ),
    "no archive": ("x.npz", b"PK\x03\x04 no", "not a readable .npz"),
    "no parquet": ("x.parquet", b"PAR1 no", "cannot be read"),
    "another kind of file": ("x.pt", b"no", "is not a file of vectors"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_vectors_are_a_sentence_and_nothing_is_written(folder: Path, case: str) -> None:
    name, content, said = BAD[case]
    path = folder / name
    path.write_bytes(content)
    before = sorted(folder.iterdir())
    with pytest.raises(ShasamError, match=said):
        open_data(spec_of(folder, features=path))
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("ids", "held", "said"),
    [
        (["a"] * 2, ["a", "b"], "there twice in the column 'person'"),
        (["a", "b"], ["a", "a"], "there twice in the ids of"),
        (["a", "b"], ["c", "d"], "no id of labels.csv"),
        (["a", "b"], ["a", "d"], "1 of 2 rows of labels.csv have no vector"),
        (["a", ""], ["a", "b"], "no value in row 2"),
    ],
)
def test_ids_that_do_not_match_are_a_sentence(folder: Path, ids, held, said) -> None:
    write_labels(folder / "labels.csv", T[:2], S[:2], ids)
    table = pa.table({"person": held, "x": pa.array(list(X[:2]))})
    pq.write_table(table, folder / "e.parquet")
    with pytest.raises(ShasamError, match=said):
        open_data(spec_of(folder, features=folder / "e.parquet", id_column="person"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features_key": "y", "features": "plain.npz"}, "no 'y'"),
        ({"features_key": "y", "features": "x.safetensors"}, "no 'y'"),
        ({"features_key": "y", "features": "x.parquet"}, "no 'y'"),
        ({"features_key": "y"}, "without a name"),
        ({"target": "smile"}, "did you mean 'smiles'"),
        ({"csv": None}, "no labels; give a table"),
        ({"features": None, "name": "embeddings"}, "needs vectors"),
        ({"split_column": "part"}, "no column 'part'"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, changes: dict, said: str) -> None:
    write_all(folder, X)
    if isinstance(changes.get("features"), str):
        changes = {**changes, "features": folder / changes["features"]}
    with pytest.raises(ShasamError, match=said):
        open_data(spec_of(folder, **changes))


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"method": "fdvae"}, "tied to an image network"),
        ({"method": "tadet"}, "tied to an image network"),
        ({"model": {"encoder": "resnet18"}}, "resnet18 reads images .* choose one of .*mlp"),
        ({"data": {"name": "faces"}, "model": {"encoder": "mlp"}}, "mlp reads vectors"),
        ({"data": {"name": "faces", "features": "x.npy"}}, "leave out the source faces"),
    ],
)
def test_images_and_vectors_do_not_mix(folder: Path, body: dict, said: str) -> None:
    own = {"features": folder / "none.npy", "csv": folder / "labels.csv"}  # nothing is read
    with pytest.raises(ShasamError, match=said):
        resolve({"data": own, **body}, profile="smoke")
