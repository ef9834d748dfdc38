"""The analysis of the transfer experiment, on records with numbers that are known."""

from __future__ import annotations

import json

import pytest
from experiments.transfer.__main__ import CONTROL, HERE, OTHERS, SETTINGS, SUBJECT, means, tables

from shasam.documents import read_yaml
from shasam.runs.records import Record


def record(setting: str, row: tuple[str, str], seed: int, eo: float, accuracy: float) -> Record:
    test = {"test": {"eo_mean": {"value": eo}, "accuracy": {"value": accuracy}}}
    heads = dict.fromkeys(("linear", "small", "large"), test)
    metrics = {
        "transfer": {"Young": {"majority": 0.7, row[1]: heads}},
        "probe": {row[1]: {"linear_within_class": eo + 0.5, "mlp_within_class": eo + 0.6}},
    }
    return Record(f"{setting}, {row[0]}", "run", seed, {"metrics": json.dumps(metrics)})


def records() -> list[Record]:
    out = []
    for number, setting in enumerate(SETTINGS):
        for seed in (40, 41, 42):
            out.append(record(setting, SUBJECT, seed, 0.1 + number / 100, 0.8))
            out.append(record(setting, CONTROL, seed, 0.2 + number / 100 + seed / 1e4, 0.81))
    return out


def test_a_seed_counts_with_the_mean_of_its_settings():
    found = means(records(), SUBJECT, "small", "eo_mean")
    assert list(found) == [40, 41, 42] and found[40] == pytest.approx(11.5)
    less = [r for r in records() if (r.seed, r.label[:6]) != (41, SETTINGS[0])]
    assert list(means(less, SUBJECT, "small", "eo_mean")) == [40, 42]


def test_a_row_that_lacks_a_setting_is_in_no_mean():
    less = [r for r in records() if not r.label.startswith(SETTINGS[0])]
    assert means(less, SUBJECT, "small", "eo_mean") == {}


def test_the_primary_comparison_stands_first_and_pairs_and_probes_follow(monkeypatch):
    monkeypatch.setattr("experiments.transfer.__main__.read_records", lambda folder: records())
    lines = tables().splitlines()
    assert lines[0] == "Primary"
    primary = "11.5 / 21.9: −10.4 (−10.4 to −10.4), p < 0.001 | 80.0 / 81.0: −1.0"
    assert lines[4].startswith(f"| balanced-hidden, hidden | 3 | {primary}")
    assert any(
        line.startswith("| a-by-m → Young (70.0) | 3 | 10.0 / 20.4: −10.4") for line in lines
    )
    assert any("61.5 / 71.9: −10.4" in line and "71.5 / 81.9: −10.4" in line for line in lines)


def test_widths_are_compared_over_the_two_settings_of_their_grid(monkeypatch):
    def of(name: str, eo: float) -> list[Record]:
        row = (f"{name}, width 8", dict([CONTROL, *OTHERS])[name])
        return [record(s, row, seed, eo, 0.8) for s in SETTINGS[:2] for seed in (50, 51)]

    made = [*of("random sets, FLCMI + CE", 0.1), *of("balanced-hidden", 0.3)]
    monkeypatch.setattr("experiments.transfer.__main__.read_records", lambda folder: made)
    assert (
        tables()
        .splitlines()[-1]
        .startswith("| 8: balanced-hidden, hidden | 2 | 10.0 / 30.0: −20.0")
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_row_of_the_analysis_is_in_the_grids(setting):
    labels = {run["label"] for run in read_yaml(HERE / f"{setting}.yaml")["runs"]}
    assert labels == {f"{setting}, {label}" for label, _ in (SUBJECT, CONTROL, *OTHERS)}
    large = {
        run["label"].removesuffix(", large head") for run in read_yaml(HERE / "large.yaml")["runs"]
    }
    assert {label for label in large if label.startswith(f"{setting}, ")} < labels


def test_the_tables_of_the_page_come_out_of_the_records():
    assert tables() in (HERE / "README.md").read_text(encoding="utf-8")
