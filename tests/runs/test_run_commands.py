from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import yaml
from PIL import Image

from shasam.commands.compare import compare
from shasam.commands.evaluate import evaluate
from shasam.commands.methods import methods
from shasam.commands.predict import predict
from shasam.commands.sweep import sweep
from shasam.commands.train import train
from shasam.errors import InputError, SpecError
from shasam.runs.machine import ExecutionOptions

TINY = ["data.n=80", "data.holdout_per_cell=10", "data.size=32", "train.steps=4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One run on a few embedded faces through the command."""
    out = tmp_path_factory.mktemp("commands")
    patch = pytest.MonkeyPatch()
    patch.setenv("SHASAM_CACHE", str(out / "cache"))
    train("ce", profile="smoke", set_=TINY, out=out / "runs", quiet=True, device="cpu")
    yield out
    patch.undo()


def test_train_ends_with_a_table_a_run_and_can_be_evaluated_again(trained, capsys):
    (run,) = (trained / "runs").iterdir()
    before = (run / "predictions.parquet").read_bytes()
    evaluate(run, device="cpu", report=False)
    shown = capsys.readouterr().out
    assert " acc " in shown and str(run) in shown.replace("\n", "")
    assert (run / "predictions.parquet").read_bytes() == before
    assert json.loads((run / "provenance.json").read_text())["test_opened"] == 2


def test_predict_writes_a_row_for_every_image_and_the_reason_for_a_bad_one(trained, tmp_path):
    (run,) = (trained / "runs").iterdir()
    (tmp_path / "in" / "sub").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "in" / "sub" / "face.png")
    Image.fromarray(pixels).save(tmp_path / "in" / "=cmd.png")
    (tmp_path / "in" / "broken.jpg").write_bytes(b"<html>")
    predict(run, tmp_path / "in", out=tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    by_path = {row["path"]: row for row in rows}
    assert set(by_path) == {"sub/face.png", "'=cmd.png", "broken.jpg"}
    assert by_path["broken.jpg"]["problem"] and not by_path["broken.jpg"]["prediction"]
    good = by_path["sub/face.png"]
    total = sum(float(v) for k, v in good.items() if k.startswith("p("))
    assert total == pytest.approx(1, abs=1e-5)
    with pytest.raises(InputError, match="holds no images"):
        predict(run, trained / "cache", out=tmp_path / "none.csv")


def test_print_config_shows_the_resolved_specification_and_trains_nothing(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("method: fscl\nseed: 3\nprofile: paper\n")
    train(config=tmp_path / "run.yaml", seed=9, set_=["train.ema=0.5"], print_config=True)
    body = yaml.safe_load(capsys.readouterr().out)
    assert (body["method"], body["seed"], body["train"]["ema"]) == ("fscl", 9, 0.5)
    assert body["data"]["size"] == 128 and body["options"]["temperature"] == 0.1


def test_an_unknown_method_is_answered_with_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'fscl"):
        train("fsccl", print_config=True)


def test_methods_lists_every_method_and_the_options_of_one(capsys):
    methods()
    assert "balanced" in capsys.readouterr().out
    methods("fscl")
    assert "temperature" in capsys.readouterr().out


def test_a_sweep_runs_what_is_not_done_and_skips_what_is(trained, tmp_path, capfd):
    grid = {
        "profile": "smoke",
        "base": {"data": {"n": 80, "holdout_per_cell": 10}, "train": {"steps": 4}},
        "runs": [{"method": "ce"}],
    }
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    # the first run is the one that is done: the same specification, found by its key
    sweep(tmp_path / "grid.yaml", out=trained / "runs")
    assert "skipped ce-" in capfd.readouterr().out
    grid["runs"] = [{"method": "balanced"}]
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    sweep(tmp_path / "grid.yaml", out=tmp_path / "runs", how=ExecutionOptions(device="cpu"))
    shown = capfd.readouterr().out
    assert "done    balanced-" in shown and "acc" in shown
    assert len(list((tmp_path / "runs").glob("*/DONE"))) == 1


def test_a_comparison_shows_each_method_once_and_skips_what_is_done(trained, tmp_path, capfd):
    page = tmp_path / "comparison.html"

    def go():
        compare(
            methods="ce,ce@vit",
            profile="smoke",
            seeds=1,
            set_=[*TINY, "model.depth=1"],
            out=tmp_path / "runs",
            page=page,
            how=ExecutionOptions(device="cpu"),
        )
        return capfd.readouterr().out

    first = go()
    assert first.count("done ") == 2 and "ce@vit" in first
    text = page.with_suffix(".md").read_text()
    assert "| ce" in text and "| ce@vit" in text and "| parameters |" in text
    assert page.read_text().startswith("<!doctype html>")
    assert go().count("skipped ") == 2
    with pytest.raises(SpecError, match="did you mean"):
        compare(methods="blanced", profile="smoke", out=tmp_path / "runs")


@pytest.mark.slow
def test_two_processes_train_like_one_where_there_is_no_batch_norm(trained, tmp_path):
    from safetensors.torch import load_file

    common = [sys.executable, "-m", "shasam.cli", "train", "ce", "--profile", "smoke", "--device"]
    common += ["cpu", "--no-report", "--encoder", "vit", "--out", str(tmp_path), "--quiet"]
    for pair in [*TINY, "model.depth=1", "model.patch=8", "train.optimizer=sgd", "train.lr=0.1"]:
        common += ["--set", pair]
    found = []
    for devices in ("1", "2"):
        subprocess.run([*common, "--devices", devices], check=True, timeout=300)
    for done in sorted(tmp_path.glob("*/DONE")):
        found.append(load_file(done.parent / "model.safetensors"))
    assert len(found) == 2
    for name, value in found[0].items():
        assert (value - found[1][name]).abs().max() < 1e-5 * (1 + value.abs().max())
