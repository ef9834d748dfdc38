"""docs/serving.md: the server and the batch job answer as the model does."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import numpy as np
import pytest
from tests.docs.pages import items
from tests.docs.world import make_world

pytestmark = pytest.mark.needs_torch

MODEL, SERVER, BATCH = (item.text for item in items("docs/serving.md") if item.kind == "python")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, a run and its ONNX file."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    import shasam
    from shasam.export import export

    folder = make_world(tmp_path_factory.mktemp("served"))
    with pytest.MonkeyPatch.context() as patch, pytest.warns(Warning, match="not learnt"):
        patch.chdir(folder)
        patch.setenv("SHASAM_CACHE", str(folder / "cache"))
        data = {"csv": "people.csv", "root": "photos", "target": "smiling", "sensitive": "gender"}
        few = {"train.steps": 2, "train.natural_head": False}
        run = shasam.train(
            "ce", data=data, profile="smoke", overrides=few, quiet=True, report=False
        )
        export(run, "onnx", "model.onnx", allow_chance=True)
    (folder / "run").symlink_to(folder / run.path)
    (folder / "model.py").write_text(MODEL)
    return folder


def test_the_batch_job_writes_what_the_model_predicts(place: Path, monkeypatch) -> None:
    import shasam

    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    Path("batch.py").write_text(BATCH)
    runpy.run_path("batch.py")
    with Path("served.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 240 and list(rows[0])[-2:] == ["prediction", "score"]
    wanted = shasam.load(place / "run").predict([f"photos/{row['path']}" for row in rows])
    scores = np.array([float(row["score"]) for row in rows])
    # docs/export.md: shasam scales JPEG files while it decodes them, so pixels differ a little
    assert np.abs(scores - wanted.scores.max(1)).max() < 0.02
    same = [row["prediction"] == label for row, label in zip(rows, wanted.labels, strict=True)]
    assert np.mean(same) > 0.95


def test_the_server_answers_and_refuses_what_is_no_image(place: Path, monkeypatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("python_multipart")
    pytest.importorskip("httpx")
    from fastapi.testclient import TestClient

    import shasam

    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    Path("serve.py").write_text(SERVER)
    served = runpy.run_path("serve.py")
    client = TestClient(served["app"])
    data = Path("new_photos/1.jpg").read_bytes()
    found = client.post("/predict", files={"file": data}).json()
    wanted = shasam.load(place / "run").predict(["new_photos/1.jpg"])
    assert found["prediction"] in ("no", "yes") and set(found["scores"]) == {"no", "yes"}
    assert np.allclose(list(found["scores"].values()), wanted.scores[0], atol=0.02)
    assert client.get("/about").json()["classes"] == ["no", "yes"]
    assert client.post("/predict", files={"file": b"<html>"}).status_code == 422
    assert (
        client.post("/predict", files={"file": b"x" * (served["LARGEST"] + 1)}).status_code == 413
    )
