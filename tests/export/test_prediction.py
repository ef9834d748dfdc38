from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import shasam
from shasam.commands.predict import predict
from shasam.data.folder import Folder
from shasam.errors import FileError, InputError
from shasam.pipeline.load import Answer
from shasam.pipeline.prediction import AHEAD, Item, PredictionBlock, image_blocks


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        first = next(iter(csv.DictReader(path.open(newline=""))))
        return {row[next(iter(first))]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty pictures in two folders, a list of them, and what people also have in folders."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    lines = ["path,group"]
    for k in range(20):
        name = f"{'ab'[k % 2]}/{k}.png"
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(folder / name)
        lines.append(f"{name},{('dark', 'bright')[k // 2 % 2]}")
    Image.new("RGB", (16, 16)).save(folder / "a" / "moving.gif")
    Image.new("RGB", (16, 16)).save(folder / "a" / "scan.tif")
    (folder / "notes.txt").write_text("not a picture")
    (folder / "list.csv").write_text("\n".join(lines))
    return folder


def test_lists_and_folders_give_the_predictions_of_the_model(runs, photos, tmp_path, capsys):
    paths = [f"{'ab'[k % 2]}/{k}.png" for k in range(20)]
    wanted = shasam.load(runs["ce"]).predict([photos / p for p in paths])
    pq.write_table(pa.table({"file": paths}), tmp_path / "list.parquet")
    predict(str(runs["ce"]), photos / "list.csv", out=tmp_path / "1.csv", batch=7, jobs=2)
    predict(str(runs["ce"]), tmp_path / "list.parquet", root=photos, path_column="file",
            out=tmp_path / "2.csv")  # fmt: skip
    predict(str(runs["ce"]), photos, out=tmp_path / "3.csv")
    assert "images a second" in capsys.readouterr().out
    for name in ("1.csv", "2.csv", "3.csv"):
        found = rows_of(tmp_path / name)
        assert [found[p]["prediction"] for p in paths] == wanted.labels
        scores = [float(found[p]["p(lying)"]) for p in paths]
        np.testing.assert_allclose(scores, wanted.scores[:, 1], atol=2e-6)


def test_what_is_not_predicted_is_told(runs, photos, tmp_path, capsys):
    predict(str(runs["ce"]), photos, out=tmp_path / "out.csv")
    found = rows_of(tmp_path / "out.csv")
    assert "GIF" in found["a/moving.gif"]["problem"] and "TIFF" in found["a/scan.tif"]["problem"]
    shown = capsys.readouterr().out
    assert "20 predictions" in shown and "2 of 22 could not be used" in shown
    assert "skipped: 1 .csv, 1 .txt" in shown or "skipped: 1 .txt, 1 .csv" in shown


def test_a_model_that_decides_by_group_reads_the_column_of_groups(runs, photos, tmp_path):
    with pytest.raises(InputError, match="--group-column"):
        predict(str(runs["posthoc"]), photos / "list.csv", out=tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()
    predict(str(runs["posthoc"]), photos / "list.csv", group_column="group", batch=6,
            out=tmp_path / "out.csv")  # fmt: skip
    with (photos / "list.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    names = [row["path"] for row in listed]
    model = shasam.load(runs["posthoc"])
    wanted = model.predict([photos / n for n in names], [row["group"] for row in listed], names)
    found = rows_of(tmp_path / "out.csv")
    assert [found[n]["prediction"] for n in names] == wanted.labels
    text = (photos / "list.csv").read_text().replace("dark", "elsewhere")
    (tmp_path / "odd.csv").write_text(text)
    predict(str(runs["posthoc"]), tmp_path / "odd.csv", root=photos, group_column="group",
            out=tmp_path / "odd-out.csv")  # fmt: skip
    problems = [row["problem"] for row in rows_of(tmp_path / "odd-out.csv").values()]
    assert sum("no group of this model: 'elsewhere'" in p for p in problems) == 10


def test_vectors_are_predicted_and_a_bad_one_has_its_reason(vector_run, tmp_path):
    x = np.random.default_rng(1).normal(size=(50, 12)).astype(np.float32)
    x[3, 5] = np.nan
    np.save(tmp_path / "x.npy", x)
    predict(str(vector_run), tmp_path / "x.npy", out=tmp_path / "out.csv", batch=8)
    found = rows_of(tmp_path / "out.csv")
    assert len(found) == 50 and found["3"]["problem"] and not found["3"]["prediction"]
    wanted = shasam.load(vector_run).predict(np.delete(x, 3, 0)).labels
    assert [row["prediction"] for key, row in found.items() if key != "3"] == wanted


def test_vectors_of_which_none_can_be_used_all_have_their_reason(vector_run, tmp_path):
    x = np.full((3, 12), np.nan, np.float32)
    x[1] = 3e38  # finite, but their sum is not
    np.save(tmp_path / "x.npy", x)
    predict(str(vector_run), tmp_path / "x.npy", out=tmp_path / "p.csv")
    found = rows_of(tmp_path / "p.csv")
    assert [bool(row["problem"]) for row in found.values()] == [True, False, True]
    np.save(tmp_path / "x.npy", x[:1])
    predict(str(vector_run), tmp_path / "x.npy", out=tmp_path / "p.csv")
    assert rows_of(tmp_path / "p.csv")["0"]["prediction"] == ""


def test_an_endless_list_is_read_no_further_than_a_few_batches_ahead(runs, photos):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield Item("a/0.png")

    blocks = image_blocks(shasam.load(runs["ce"]), endless(), Folder(photos), batch=4, jobs=1)
    for number in range(1, 11):
        next(blocks)
        assert read <= 4 * (number + AHEAD)
    blocks.close()


def test_probabilities_are_written_as_python_formats_them():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.random(2000), [0, 1, 0.5, 5e-7, 1.5e-6, 1e-9, 1 - 2**-24]])
    for odd in ([], [float("nan")]):
        scores = np.append(p, odd).astype(np.float32)[:, None].repeat(2, 1)
        block = PredictionBlock(
            ["n"] * len(scores), Answer(["a"] * len(scores), scores, scores), {}
        )
        assert block.csv("ab") == "".join(f"n,a,{x:.6f},{x:.6f},\n" for x in scores[:, 0].tolist())


def test_a_target_that_cannot_be_written_is_an_error_before_the_work(photos, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")

    def never(*_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("shasam.pipeline.load.load", never)
    with pytest.raises(FileError, match="cannot be written"):
        predict("runs/ce", photos, out=tmp_path / "file" / "out.csv")


def test_nothing_to_predict_is_a_sentence(runs, vector_run, tmp_path):
    for run in (runs["ce"], vector_run):
        with pytest.raises(InputError, match="nothing to predict"):
            shasam.load(run).predict([])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        predict(str(runs["ce"]), tmp_path / "empty", out=tmp_path / "out.csv")
