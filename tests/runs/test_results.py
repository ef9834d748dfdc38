"""The question of a fair representation: natural heads, leakage, and the learning curve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.tiny_data import TinyData

from shasam.errors import DataError
from shasam.pipeline.execute import execute
from shasam.pipeline.results import fit_head
from shasam.report.model_section import transfers
from shasam.report.page import write_report
from shasam.runs.directory import read_log
from shasam.spec import resolve
from shasam.training.inference import linear_guess, mlp_guess, within_class
from shasam.training.runtime import Runtime

QUIET = Runtime(device="cpu", quiet=True)


def ran(tmp_path, method="balanced-hidden", **train):
    body = {"method": method, "data": {"size": 16}, "train": {"steps": 6, **train}}
    return execute(resolve(body, profile="smoke"), tmp_path, runtime=QUIET, data=TinyData())


def test_a_natural_head_leans_on_the_group_where_the_features_show_it():
    rng = np.random.default_rng(0)
    t = rng.integers(0, 2, 1200)
    s = np.where(rng.random(1200) < 0.9, t, 1 - t)  # nine in ten agree, as in biased data
    fair = np.stack([t + rng.normal(0, 1, 1200), rng.normal(0, 1, 1200)], 1)
    told = np.stack([fair[:, 0], s + rng.normal(0, 0.2, 1200)], 1)
    target = torch.from_numpy(t)
    gaps = []
    for x in (fair, told):
        features = torch.from_numpy(x).float()
        head = fit_head(features, target, 2, key=1)
        same = fit_head(features, target, 2, key=1)
        with torch.no_grad():
            guess = head(features).argmax(1).numpy()
            assert torch.equal(head(features), same(features))  # keyed, whatever was drawn before
        rates = [[guess[(t == c) & (s == g)].mean() for g in (0, 1)] for c in (0, 1)]
        gaps.append(np.mean([abs(a - b) for a, b in rates]))
    assert gaps[0] < 0.15 and gaps[1] > 0.5


def test_leakage_within_a_class_is_not_what_the_class_says_about_the_group():
    rng = np.random.default_rng(0)
    t = rng.integers(0, 2, 1600)
    s = np.where(rng.random(1600) < 0.9, t, 1 - t)
    of_class = torch.from_numpy(rng.normal(0, 0.3, (1600, 4)) + t[:, None])
    circle = np.where(s[:, None] == 1, 3.0, 1.0) * _directions(rng, 1600)  # not linear

    def read(probe, x):
        return within_class(probe, (x[:800], t[:800], s[:800]), (x[800:], t[800:], s[800:]), 2)

    assert abs(read(linear_guess, of_class) - 0.5) < 0.12
    assert read(linear_guess, torch.from_numpy(circle)) < 0.65
    assert read(mlp_guess, torch.from_numpy(circle)) > 0.9
    one = np.zeros(800, dtype=np.int64)
    x = of_class[:800]
    assert within_class(linear_guess, (x, one, one), (x, one, one), 2) is None


def _directions(rng, n):
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], 1) + rng.normal(0, 0.1, (n, 2))


def test_every_run_reports_the_natural_head_of_every_kind_of_feature(tmp_path):
    run = ran(tmp_path, probe_every=3)
    metrics = run.metrics()
    assert set(metrics["natural_head"]) == set(metrics["probe"]) == {"encoder", "hidden"}
    for found in metrics["natural_head"].values():
        assert set(found) == {"test", "val"}
        assert found["test"]["eo_mean"]["low"] <= found["test"]["eo_mean"]["value"]
    for probe in metrics["probe"].values():
        assert {"linear_within_class", "mlp_within_class", "chance"} <= set(probe)
    log = read_log(run.file("log.jsonl"))
    assert sum(line["event"] == "test_opened" for line in log) == 1
    curve = [line for line in log if line["event"] == "curve"]
    assert [(line["step"], line["views"]) for line in curve] == [(3, 144), (6, 288)]
    assert all(0 <= line["accuracy"] <= 1 for line in curve)


def test_neither_the_natural_head_nor_the_curve_changes_what_is_learnt(tmp_path):
    bare = ran(tmp_path, natural_head=False)
    assert "natural_head" not in bare.metrics()
    full = ran(tmp_path, probe_every=2)
    for name in ("predictions.parquet", "model.safetensors"):
        assert bare.file(name).read_bytes() == full.file(name).read_bytes()


def people(folder, n=400):
    """Vectors that show a target, a group and another attribute, and their table."""
    rng = np.random.default_rng(0)
    t, s, young = (rng.integers(0, 2, n) for _ in range(3))
    young = np.where(rng.random(n) < 0.8, s, young)  # the group tells much about it
    vectors = np.stack([t, s, young], 1) + rng.normal(0, 0.4, (n, 3))
    np.save(folder / "x.npy", vectors.astype(np.float32))
    lines = [f"{a},{b},{c}" for a, b, c in zip(t, s, young, strict=True)]
    (folder / "labels.csv").write_text("\n".join(["t,s,Young", *lines]) + "\n", encoding="utf-8")
    return {"features": str(folder / "x.npy"), "csv": str(folder / "labels.csv")}


def test_heads_for_other_targets_are_reported_by_strength(tmp_path):
    data = {**people(tmp_path), "target": "t", "sensitive": "s"}
    body = {"method": "balanced-hidden", "data": data, "train": {"transfer": "young,t"}}
    spec = resolve(body, profile="smoke")
    assert spec.train.transfer == ("young", "t")
    assert "transfer" not in resolve({**body, "train": {}}, profile="smoke").as_dict()["train"]
    run = execute(spec, tmp_path, runtime=QUIET)
    found = run.metrics()["transfer"]
    assert list(found) == ["young", "t"]
    assert list(found["young"]["encoder"]) == ["linear", "small", "large"]
    head = found["young"]["encoder"]["large"]["test"]
    assert head["accuracy"]["value"] > found["young"]["majority"]
    assert head["eo_mean"]["value"] > 0.1  # the head leans on the group that the vectors show
    rows = transfers(run.metrics())
    assert [row["strength"] for row in rows[:3]] == ["linear", "small", "large"]
    write_report([run.path], run.path / "report.html")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Are they fair for another target?" in page and "512 hidden units" in page


def test_the_strengths_of_the_heads_are_a_choice_that_changes_no_head(tmp_path):
    data = {**people(tmp_path), "target": "t", "sensitive": "s"}
    body = {"method": "ce", "data": data, "train": {"transfer": "young", "natural_head": False}}
    full = resolve(body, profile="smoke")
    assert "transfer_heads" not in full.as_dict()["train"]
    train = {**body["train"], "transfer_heads": ["linear", "small"]}
    fewer = resolve({**body, "train": train}, profile="smoke")
    by_run = [
        execute(spec, tmp_path, runtime=QUIET).metrics()["transfer"]["young"]["encoder"]
        for spec in (full, fewer)
    ]
    assert list(by_run[1]) == ["linear", "small"]
    assert by_run[1] == {name: by_run[0][name] for name in ("linear", "small")}


def test_a_column_that_is_not_there_is_an_error_that_names_those_there_are(tmp_path):
    data = {**people(tmp_path), "target": "t", "sensitive": "s"}
    body = {"method": "ce", "data": data, "train": {"transfer": "youg"}}
    with pytest.raises(DataError, match="Young"):
        execute(resolve(body, profile="smoke"), tmp_path, runtime=QUIET)
