"""Models of vectors that are given images: the encoder of the vectors goes in front."""

# ruff: noqa: E402
from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("onnx", reason="needs shasam[export]")
pytest.importorskip("onnxscript", reason="needs shasam[export]")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs shasam[export]")

from tests.data.folders import make_folder
from tests.fuzz.folders import no_network
from tests.models import tiny_onnx

import shasam
from shasam.cli import main
from shasam.commands.embed import embed
from shasam.commands.predict import predict
from shasam.data.decode import decode
from shasam.errors import InputError
from shasam.export import export
from shasam.pipeline import embedding
from shasam.pipeline.execute import execute
from shasam.spec import resolve
from shasam.spec.fields import DataSpec, ModelSpec
from shasam.training.runtime import Runtime

SIDE = 8
QUIET = Runtime(device="cpu", quiet=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Photos, an ONNX encoder, its vectors of the photos, and a run on them."""
    folder = tmp_path_factory.mktemp("world")
    photos = make_folder(folder / "photos", 60)
    network = tiny_onnx.saved(folder / "net.onnx", side=SIDE)
    embed(
        data=DataSpec(csv=photos / "people.csv", root=photos),
        model=ModelSpec(encoder=f"onnx:{network}"),
        set_=["model.range=unit"],
        out=folder / "people.parquet",
        quiet=True,
    )
    return folder, photos, trained(folder, "ce")


def named(folder):
    """Name the encoder of the vectors: a model does not choose which files are read."""
    return f"onnx:{folder / 'net.onnx'}"


def trained(folder, method):
    data = {"features": str(folder / "people.parquet"), "target": "smile", "sensitive": "age>=40"}
    spec = resolve(
        {"method": method, "data": data, "train": {"steps": 30, "batch_views": 16}}, profile="smoke"
    )
    return execute(spec, folder / "runs", runtime=QUIET).path


def pixels(photos, n=6):
    paths = sorted(photos.glob("*.jpg"))[:n]
    return paths, np.stack([decode(path.read_bytes(), SIDE) for path in paths])


def test_a_run_on_vectors_predicts_images_as_it_predicts_their_vectors(world):
    folder, photos, run = world
    paths, images = pixels(photos)
    model = shasam.load(run)
    wanted = model.predict(tiny_onnx.vectors(images).astype(np.float32))
    seeing = model.seeing(named(folder))
    assert wanted.scores.std() > 1e-3
    assert np.abs(seeing.predict([str(p) for p in paths]).scores - wanted.scores).max() < 1e-5
    assert np.abs(seeing.predict(images).scores - wanted.scores).max() < 1e-5
    assert seeing.features(images)["encoder"].shape[0] == len(images)


def test_the_command_predicts_a_folder_of_photos(world, tmp_path):
    folder, photos, run = world
    paths, images = pixels(photos)
    predict(str(run), photos, out=tmp_path / "found.csv", encoder=named(folder))
    lines = (tmp_path / "found.csv").read_text().splitlines()
    assert lines[0].startswith("path,prediction") and len(lines) == 61
    wanted = shasam.load(run).predict(tiny_onnx.vectors(images).astype(np.float32))
    found = {line.split(",")[0]: float(line.split(",")[2]) for line in lines[1:]}
    for path, scores in zip(paths, wanted.scores, strict=True):
        assert abs(found[path.name] - scores[0]) < 1e-5


@pytest.mark.parametrize("method", ["ce", "posthoc"])
def test_encoder_and_head_leave_as_one_file(world, tmp_path, method):
    folder, photos, _ = world
    run = trained(folder, method)
    out = tmp_path / "model.onnx"
    file = export(run, "onnx", out, images=True, encoder=named(folder), allow_chance=True)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["shasam"])
    assert about["inputs"]["pixels"]["shape"] == ["batch", SIDE, SIDE, 3]
    assert str(folder) not in json.dumps(about)
    _, images = pixels(photos)
    fed = {"pixels": images}
    if method == "posthoc":
        fed |= {"group": np.zeros(len(images), np.int64), "uniform": np.full(len(images), 0.5)}
    scores, _ = session.run(None, fed)
    model = shasam.load(run)
    vectors = tiny_onnx.vectors(images).astype(np.float32)
    wanted = model.predict(vectors, groups=[0] * len(images) if method == "posthoc" else None)
    assert np.abs(scores - wanted.scores).max() < 1e-5


def test_a_run_on_images_with_an_onnx_encoder_leaves_as_one_file(world, tmp_path):
    _folder, photos, _ = world
    data = {"csv": str(photos / "people.csv"), "root": str(photos), "target": "smile"}
    data |= {"sensitive": "age>=40", "store": str(tmp_path)}
    network = tiny_onnx.saved(tmp_path / "net.onnx", layout="nhwc", side=SIDE)
    model = {"encoder": f"onnx:{network}", "range": "half", "channels": "bgr"}
    body = {
        "method": "supcon",
        "data": data,
        "model": model,
        "train": {"steps": 4, "batch_views": 16},
    }
    run = execute(resolve(body, profile="smoke"), tmp_path, runtime=QUIET).path
    file = export(run, "onnx", tmp_path / "model.onnx", allow_chance=True)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    _, images = pixels(photos)
    wanted = shasam.load(run).predict(images).scores
    assert wanted.std() > 1e-4
    assert np.abs(session.run(None, {"pixels": images})[0] - wanted).max() < 1e-5


def test_a_hub_folder_finds_the_encoder_where_it_is_said_to_be(world, tmp_path):
    folder, photos, run = world
    hub = export(run, "hub", tmp_path / "hub", allow_chance=True)
    _, images = pixels(photos)
    found = [shasam.load(one).seeing(named(folder)).predict(images) for one in (hub, run)]
    assert np.array_equal(found[0].scores, found[1].scores)


@pytest.mark.parametrize(
    "change",
    [{}, {"encoder": "hf", "options": {"source": "owner/name"}},
     {"encoder": "timm", "options": {"source": "resnet18"}},
     {"encoder": "resnet18", "options": {}, "init": "/etc/passwd"}],
)  # fmt: skip
def test_a_model_of_vectors_does_not_choose_what_is_read(world, tmp_path, monkeypatch, change):
    _, photos, run = world
    copy = tmp_path / run.name
    shutil.copytree(run, copy)
    origin = json.loads((copy / "vectors.json").read_text())
    origin["model"] |= change
    (copy / "vectors.json").write_text(json.dumps(origin))
    monkeypatch.setattr(embedding, "by_name", lambda *words: pytest.fail("it was looked for"))
    with pytest.raises(InputError, match=r"does not choose .* give encoder="):
        shasam.load(copy).seeing()
    with no_network(), pytest.raises(SystemExit):
        main(["predict", str(copy), str(photos), "--out", str(tmp_path / "p.csv")])


def test_another_encoder_is_refused(world, tmp_path):
    _, _, run = world
    other = tiny_onnx.saved(tmp_path / "other.onnx", side=SIDE, seed=1)
    with pytest.raises(InputError, match="has changed"):
        shasam.load(run).seeing(f"onnx:{other}")
    with pytest.raises(InputError, match="computed by onnx, not vit"):
        shasam.load(run).seeing("vit")


def test_vectors_of_others_have_no_encoder(tmp_path):
    torch.manual_seed(0)
    rows = "".join(f"{i % 2},{i // 2 % 2}\n" for i in range(80))
    (tmp_path / "labels.csv").write_text("t,s\n" + rows)
    np.save(tmp_path / "x.npy", torch.randn(80, 4).numpy())
    data = {"features": str(tmp_path / "x.npy"), "csv": str(tmp_path / "labels.csv")}
    data |= {"target": "t", "sensitive": "s"}
    run = execute(resolve({"method": "ce", "data": data}, profile="smoke"), tmp_path, runtime=QUIET)
    with pytest.raises(InputError, match="shasam embed did not write"):
        shasam.load(run).seeing()
