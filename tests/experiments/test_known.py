"""The table of what group labels are worth, on records with numbers that are known."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.known import PRIMARY, SETTINGS, WHOLE

from experiments import known
from shasam.documents import read_yaml
from shasam.runs.records import Record
from shasam.spec import resolve

EO = {"ce": 0.2, f"balanced, {WHOLE}": 0.1, "balanced, use 1 %": 0.18, "balanced, infer 1 %": 0.125}
GRID = Path(known.HERE) / "grid.yaml"


def records() -> list[Record]:
    out = []
    for row, eo in EO.items():
        for seed in (0, 1, 2):
            metrics = {"test": {"eo_mean": {"value": eo + seed / 100}, "accuracy": {"value": 0.8}}}
            if "infer" in row:
                metrics["inferred_groups"] = {
                    "validation": {"accuracy": 0.7 + seed / 10, "ece": 0.03}
                }
            out.append(Record(f"a/m, {row}", "run", seed, {"metrics": json.dumps(metrics)}))
    return out


def test_worth_is_the_share_of_what_all_labels_bring(monkeypatch):
    monkeypatch.setattr("experiments.known.read_records", lambda folder: records())
    lines = {tuple(line.split(" | ")[:2]): line for line in known.table().splitlines()}
    infer = lines["| a/m", "balanced, infer 1 %"]
    # EO 21 without labels, 11 with all, 13.5 here
    assert "| 3 | 80.0 | 13.5 | −7.5 (" in infer and infer.endswith("| 0.75 | 80.0 | 3.0 |")
    assert lines["| a/m", "balanced, use 1 %"].endswith("| 0.20 | – | – |")
    assert lines["| a/m", "ce"].endswith("| – | – | – | – | – |")
    last = known.table().splitlines()[-1]
    assert last.startswith("- a/m: EO of balanced, infer 1 % minus balanced, use 1 %: −5.5 (")


def test_every_row_of_the_tests_is_in_the_grid_and_resolves():
    runs = read_yaml(GRID)["runs"]
    labels = {run["label"] for run in runs}
    assert len(labels) == len(runs) == len(SETTINGS) * 31
    for setting in SETTINGS:
        for pair in PRIMARY:
            assert {f"{setting}, {row}" for row in pair} <= labels
        for method in ("balanced", "groupdro", "fscl+", "shasam-random"):
            assert f"{setting}, {method}, {WHOLE}" in labels
    for run in runs:
        *_, how, share, sign = ["", *run["label"].split()]
        data = run["data"]
        if how in ("use", "infer"):
            assert (data["missing"], data["known_groups"], sign) == (how, int(share) / 100, "%")
        else:
            assert "missing" not in data and "known_groups" not in data
        body = {"method": run["method"], "data": {"name": "embeddings", "features_dim": 2, **data}}
        resolve({**body, "options": run.get("options", {})}, profile="frozen", stored=True)
