"""A run on vectors from the file to predictions: train, load, predict, stop and resume."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.data.vector_files import vectors, write_labels

from shasam import load, train
from shasam.cli import main
from shasam.errors import InputError, ShasamWarning
from shasam.runs.directory import RunDirectory
from shasam.spec.fields import ViewsSpec

X, T, S = vectors(600)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunDirectory]:
    folder = tmp_path_factory.mktemp("vectors")
    np.save(folder / "x.npy", X)
    labels = write_labels(folder / "labels.csv", T, S)
    data = {"features": folder / "x.npy", "csv": labels, "target": "smiles", "sensitive": "group"}
    data["views"] = ViewsSpec(noise=0.1).model_dump()
    mined = {"options.mining.negatives": "flqmi"}
    run = train(
        "shasam", data=data, profile="smoke", overrides=mined, out=folder / "runs", quiet=True
    )
    return folder, run


def test_a_run_on_vectors_has_metrics_a_manifest_and_mined_sets(finished) -> None:
    _, run = finished
    assert run.metrics()["test"]["accuracy"]["value"] > 0.8
    assert run.file("report.html").is_file()
    mined = run.json("mining.json")["iterations"]
    assert mined and mined[0]["sets"]["anchors"][0]["thumb"] is None


def test_a_loaded_model_predicts_arrays_as_the_run_did(finished) -> None:
    _, run = finished
    model = load(run)
    table = pq.read_table(run.file("predictions.parquet"))
    rows = [int(name) for name in table.column("id").to_pylist()]
    answer = model.predict(X[rows].astype(np.float64))
    assert np.allclose(answer.scores[:, 1], table.column("score_1").to_numpy(), atol=1e-6)
    assert set(answer.labels) <= {"no", "yes"}
    for wrong in (X[:, :3], X[:, :, None], X.astype(str), np.full_like(X, np.nan), "none.npy"):
        with pytest.raises(InputError):
            model.predict(wrong)


def test_the_command_predicts_files_of_vectors(finished) -> None:
    folder, run = finished
    x = X[:5].copy()
    x[2, 0] = np.nan
    np.save(folder / "new.npy", x)
    out = folder / "predictions.csv"
    with pytest.raises(SystemExit) as end:
        main(["predict", str(run.path), str(folder / "new.npy"), "--out", str(out)])
    assert not end.value.code
    with open(out, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == list("01234")
    assert [bool(row["problem"]) for row in rows] == [False, False, True, False, False]


def test_all_methods_are_compared_but_those_of_image_networks(finished, capsys) -> None:
    folder, _ = finished
    flags = ["--features", str(folder / "x.npy"), "--csv", str(folder / "labels.csv")]
    flags += ["--target", "smiles", "--sensitive", "group", "--profile", "smoke", "--seeds", "1"]
    page = folder / "x.npy" / "c.html"  # no folder, so it ends before anything is trained
    with pytest.raises(SystemExit):
        main(["compare", *flags, "--out", str(folder / "none"), "--page", str(page)])
    said = " ".join(capsys.readouterr().out.split())
    assert "image networks: fairvit, fdvae, tadet, tadet-mmd, ce@vit, balanced@vit" in said


@pytest.mark.parametrize("method", ["ce", pytest.param("groupdro", marks=pytest.mark.slow)])
def test_fifty_groups_of_thirty_rows_are_trained_to_the_page(tmp_path, method) -> None:
    draw = np.random.default_rng(0)
    t, s = draw.integers(0, 2, 1500), draw.integers(0, 50, 1500)
    np.save(tmp_path / "x.npy", (draw.normal(size=(1500, 8)) + 2 * t[:, None]).astype(np.float32))
    rows = "".join(f"{a},g{b}\n" for a, b in zip(t, s, strict=True))
    (tmp_path / "y.csv").write_text(f"t,s\n{rows}")
    data = {"features": tmp_path / "x.npy", "csv": tmp_path / "y.csv", "target": "t"}
    with pytest.warns(ShasamWarning, match="split has no row of"):
        run = train(
            method, data={**data, "sensitive": "s"}, profile="smoke", out=tmp_path, quiet=True
        )
    assert run.metrics()["test"]["accuracy"]["value"] > 0.8
    assert run.file("report.html").is_file()
