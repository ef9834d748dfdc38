"""A trained run is given thresholds for a limit without training, and leaves with them."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pyarrow.parquet as pq
import pytest

import shasam
from shasam.cli import app
from shasam.errors import InputError, ShasamError, ShasamWarning
from shasam.metrics.limits import rule_for
from shasam.pipeline.execute import execute
from shasam.spec import resolve
from shasam.thresholds import ThresholdRun
from shasam.training.runtime import Runtime


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """2,400 vectors whose group shifts the direction of the target; no bias in their counts."""
    folder = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(0)
    t, s = rng.integers(0, 2, 2400), rng.integers(0, 2, 2400)
    x = rng.normal(size=(2400, 6))
    x[:, 0] += 1.1 * (2 * t - 1) * (1 - 0.4 * s) + 0.7 * s
    x[:, 1] += 1.5 * s
    np.save(folder / "x.npy", x.astype(np.float32))
    lines = "".join(f"{a},{'ab'[b]}\n" for a, b in zip(t, s, strict=True))
    (folder / "labels.csv").write_text(f"t,s\n{lines}", encoding="utf-8")
    return folder


def trained(method: str, vectors, out):
    data = {"features": str(vectors / "x.npy"), "csv": str(vectors / "labels.csv"),
            "target": "t", "sensitive": "s"}  # fmt: skip
    spec = resolve(
        {"method": method, "data": data, "train": {"steps": 80, "natural_head": False}},
        profile="smoke",
    )
    return execute(spec, out, runtime=Runtime(device="cpu", quiet=True))


@pytest.mark.parametrize("method", ["ce", "shasam-random"])
def test_a_run_is_rethresholded_and_loaded_again(method, vectors, tmp_path, capsys):
    run = trained(method, vectors, tmp_path)
    app(["threshold", str(run.path), "--limit", "eo_mean=0.05", "--out", str(tmp_path / "new"),
         "--draws", "300"], result_action="return_value")  # fmt: skip
    said = " ".join(capsys.readouterr().out.split())
    assert "eo_mean=0.05: of the thresholds that" in said
    assert "It needs the group of every row at prediction." in said
    told = json.loads((tmp_path / "new" / "rule.json").read_text(encoding="utf-8"))
    assert told["limits"] == {"eo_mean": 0.05} and len(told["rule"]) == 2

    old, new = (pq.read_table(f / "predictions.parquet") for f in (run.path, tmp_path / "new"))
    assert old.drop_columns("prediction").equals(new.drop_columns("prediction"))
    assert old.column("prediction") != new.column("prediction")
    assert old.schema.metadata == new.schema.metadata

    model = shasam.load(tmp_path / "new")
    rows = np.load(vectors / "x.npy")[:50]
    with pytest.raises(InputError, match="group"):
        model.predict(rows)
    plain = shasam.load(run)
    answer = model.predict(rows, groups=["a", "b"] * 25)
    assert np.allclose(answer.scores, plain.predict(rows).scores, atol=1e-6)
    assert (answer.prediction != plain.predict(rows).prediction).any()
    for other in (copy.deepcopy(model.method), pickle.loads(pickle.dumps(model.method))):
        assert type(other) is type(model.method) and bool(other.fitted_G.all())


def test_the_rule_leaves_in_the_same_onnx_file(vectors, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    run = trained("ce", vectors, tmp_path)
    folder, file = tmp_path / "new", tmp_path / "model.onnx"
    app(["threshold", str(run.path), "--limit", "eo_mean=0.03", "--out", str(folder),
         "--draws", "300"], result_action="return_value")  # fmt: skip
    app(["export", str(folder), "--out", str(file)], result_action="return_value")
    session = onnxruntime.InferenceSession(file)
    assert [i.name for i in session.get_inputs()] == ["vectors", "group", "uniform"]
    rows, groups = np.load(vectors / "x.npy")[:64], np.arange(64) % 2
    from shasam.metrics.odds import uniform_by_id

    given = {"vectors": rows, "group": groups, "uniform": uniform_by_id(np.arange(64), 0)}
    answer = shasam.load(folder).predict(rows, groups=groups.tolist())
    assert (session.run(["prediction"], given)[0] == answer.prediction).all()


@pytest.mark.parametrize("method", ["ce", "shasam-random"])
def test_a_run_infers_the_group_and_its_file_asks_for_none(method, vectors, tmp_path, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    run = trained(method, vectors, tmp_path)
    folder, file = tmp_path / "new", tmp_path / "model.onnx"
    app(["threshold", str(run.path), "--limit", "eo_mean=0.05", "--infer-group", "--out",
         str(folder), "--draws", "300"], result_action="return_value")  # fmt: skip
    said = " ".join(capsys.readouterr().out.split())
    assert "It needs no group at prediction; on test the head infers" in said
    opened = [line for line in run.file("log.jsonl").read_text().splitlines() if "infer" in line]
    assert len(opened) == 1 and "test_opened" in opened[0]
    assert json.loads(run.file("provenance.json").read_text())["test_opened"] == 2

    model, rows = shasam.load(folder), np.load(vectors / "x.npy")[:64]
    answer = model.predict(rows)
    assert (answer.prediction != shasam.load(run).predict(rows).prediction).any()
    app(["export", str(folder), "--out", str(file)], result_action="return_value")
    session = onnxruntime.InferenceSession(file)
    assert [i.name for i in session.get_inputs()] == ["vectors"]
    scores, decided = session.run(["scores", "prediction"], {"vectors": rows})
    assert np.allclose(scores, answer.scores, atol=1e-5) and (decided == answer.prediction).all()

    table = pq.read_table(folder / "predictions.parquet")
    every = model.predict(np.load(vectors / "x.npy"))
    at = np.array([int(name.split("-")[-1]) for name in table.column("id").to_pylist()])
    assert (np.array(table.column("prediction")) == every.prediction[at]).all()
    other = pickle.loads(pickle.dumps(model.method))
    assert type(other) is type(model.method) and bool(other.offset_GC.any())


def test_the_method_thresholds_leaves_without_a_group_and_is_evaluated_alike(vectors, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    run = trained("thresholds", vectors, tmp_path)
    model, rows = shasam.load(run), np.load(vectors / "x.npy")[:64]
    assert bool(model.method.offset_GC.any()) and not model.decides_by_group
    file = tmp_path / "model.onnx"
    app(["export", str(run.path), "--out", str(file)], result_action="return_value")
    session = onnxruntime.InferenceSession(file)
    assert [i.name for i in session.get_inputs()] == ["vectors"]
    decided = session.run(["prediction"], {"vectors": rows})[0]
    assert (decided == model.predict(rows).prediction).all()


@pytest.mark.parametrize("method", ["thresholds", "scaling"])
def test_what_was_fitted_on_validation_is_fitted_alike_again(method, vectors, tmp_path):
    """The scores of an evaluation hold what was fitted before it."""
    run = trained(method, vectors, tmp_path)
    kept = {name: run.file(name).read_bytes() for name in ("predictions.parquet", "metrics.json")}
    app(["evaluate", str(run.path), "--no-report"], result_action="return_value")
    again = json.loads(run.file("metrics.json").read_bytes())
    for split in ("test", "val"):
        before = json.loads(kept["metrics.json"])[split]
        assert again[split]["accuracy"] == before["accuracy"]
        assert again[split]["eo_mean"] == before["eo_mean"]


@pytest.mark.parametrize("width", [0, -3, 10**9, "6", 2.5, None])
def test_a_foreign_width_of_features_is_refused(width, vectors, tmp_path):
    run = trained("ce", vectors, tmp_path)
    folder = tmp_path / "new"
    app(["threshold", str(run.path), "--limit", "eo_mean=0.05", "--infer-group", "--out",
         str(folder), "--draws", "300"], result_action="return_value")  # fmt: skip
    body = json.loads((folder / "config.json").read_text())
    body["rule"]["width"] = width
    (folder / "config.json").write_text(json.dumps(body))
    with pytest.raises(ShasamError, match=r"width of its features|do not fit"):
        shasam.load(folder)


def test_recorded_rows_that_are_not_the_test_split_are_refused(vectors, tmp_path):
    from shasam.thresholds import rethreshold

    run = trained("ce", vectors, tmp_path)
    table = pq.read_table(run.file("predictions.parquet"))
    ids = table.column("id").to_pylist()
    changed = table.set_column(table.column_names.index("id"), "id", [["x", *ids[1:]]])
    pq.write_table(changed, run.file("predictions.parquet"))
    with pytest.raises(InputError, match="has other rows than the test split"):
        rethreshold(run, {"eo_mean": 0.05}, infer_group=True)


@pytest.mark.parametrize("infer", [False, True])
@pytest.mark.parametrize("method", ["posthoc", "thresholds"])
def test_a_run_with_a_rule_of_its_own_is_refused(method, infer, vectors, tmp_path):
    run = trained(method, vectors, tmp_path)
    with pytest.raises(InputError, match="has a rule of its own"):
        from shasam.thresholds import rethreshold

        rethreshold(run, {"eo_mean": 0.05}, infer_group=infer)


def test_a_fair_classifier_infers_the_group():
    from shasam.sklearn import FairClassifier

    rng = np.random.default_rng(2)
    t, s = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    x = rng.normal(size=(4000, 4))
    x[:, 0] += 1.3 * (2 * t - 1) + 0.9 * s
    x[:, 1] += 2.0 * s

    def gap(model):
        right = model.predict(x[3000:]) == t[3000:]
        cells = [[right[(t[3000:] == c) & (s[3000:] == g)].mean() for g in (0, 1)] for c in (0, 1)]
        return np.mean([abs(a - b) for a, b in cells])

    ce, thresholds = (
        FairClassifier(method, steps=120, encoder="identity", options=options).fit(
            x[:3000], t[:3000], sensitive=s[:3000]
        )
        for method, options in (("ce", None), ("thresholds", {"limit": 0.03}))
    )
    assert gap(thresholds) <= max(gap(ce), 0.06)


def test_of_the_rules_that_keep_the_limit_the_most_accurate_is_taken():
    from tests.metrics.test_odds import scored

    rows = scored(4000, 11, bias=0.9)
    wide, tight = (rule_for(rows, {"eo_mean": bound}) for bound in (0.5, 0.02))
    assert wide.kept and wide.tolerance >= tight.tolerance
    assert tight.values["eo_mean"] <= 0.02 or not tight.kept
    never = rule_for(rows, {"accuracy": 0.999})
    assert not never.kept


def test_a_fair_classifier_takes_a_limit():
    from shasam.sklearn import FairClassifier

    rng = np.random.default_rng(1)
    t, s = rng.integers(0, 2, 3000), rng.integers(0, 2, 3000)
    x = rng.normal(size=(3000, 4))
    x[:, 0] += 1.3 * (2 * t - 1) + 0.9 * s

    def gap(prediction):
        right = prediction == t[2000:]
        cells = [[right[(t[2000:] == c) & (s[2000:] == g)].mean() for g in (0, 1)] for c in (0, 1)]
        return np.mean([abs(a - b) for a, b in cells])

    fit = {"sensitive": s[:2000]}
    plain = FairClassifier("ce", steps=120).fit(x[:2000], t[:2000], **fit)
    limited = FairClassifier("ce", steps=120, limit={"eo_mean": 0.05}).fit(
        x[:2000], t[:2000], **fit
    )
    assert gap(limited.predict(x[2000:], s[2000:])) < gap(plain.predict(x[2000:])) - 0.05
    with pytest.raises(ValueError, match="decides by group"):
        limited.predict(x[2000:])
    again = pickle.loads(pickle.dumps(limited))
    assert (again.predict(x, s) == limited.predict(x, s)).all()
    with pytest.warns(ShasamWarning, match="no thresholds per group kept the limit"):
        FairClassifier("ce", steps=60, limit={"accuracy": 0.999}).fit(x[:900], t[:900], s[:900])


def test_thresholds_are_not_written_through_a_link(tmp_path) -> None:
    """The folder beside a run may be somebody else's, as the run is."""
    (tmp_path / "elsewhere").mkdir()
    (link := tmp_path / "run-thresholds").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        ThresholdRun.write(object.__new__(ThresholdRun), link, {})
    assert list((tmp_path / "elsewhere").iterdir()) == []
