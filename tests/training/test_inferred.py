"""Groups that are inferred from vectors: the head, its calibration, the file, the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from tests.runs.test_several_attributes import command, people, refused, run_of, words

import shasam
from shasam.data import open_data
from shasam.data.splits import Manifest
from shasam.errors import DataError, SpecError
from shasam.metrics import fit_temperature
from shasam.runs.directory import stream_log
from shasam.sklearn import Arrays
from shasam.spec import resolve
from shasam.spec.fields import DataSpec
from shasam.training.inferred import (
    FOLDS,
    GROUPS,
    STRENGTH,
    DataWithGroups,
    InferredGroups,
    cross_fitted,
    infer_groups,
    judged,
    unknown_rows,
)

RACE = ["--sensitive", "race==black", "--missing", "infer"]


def arrays(rows: int = 300, known: int = 120, groups: int = 3) -> tuple[Arrays, np.ndarray]:
    """Vectors whose group can be read in part; the last rows are validation."""
    rng = np.random.default_rng(4)
    s = rng.integers(0, groups, rows)
    x = rng.normal(size=(rows, 5)) + 1.5 * np.eye(groups, 5)[s]
    given = np.where(np.arange(rows) < known, s, -1)
    held = np.arange(rows) >= rows - 60
    given[held] = s[held]
    return Arrays(x, rng.integers(0, 2, rows), given.astype(np.int64), held), s


def scores_of(x: np.ndarray, s: np.ndarray, read: np.ndarray, groups: int) -> np.ndarray:
    """Centred scores of scikit-learn's regression with the same penalty."""
    mean, std = x.mean(0), x.std(0, ddof=1)
    # its C weighs a sum of losses against half of the squared weights
    head = LogisticRegression(C=1 / (2 * STRENGTH * len(x)), tol=1e-10, max_iter=5000)
    found = head.fit((x - mean) / std, s).decision_function((read - mean) / std)
    return found if groups > 2 else np.stack([-found / 2, found / 2], 1)


def test_no_row_is_judged_by_a_head_that_has_seen_it():
    data, s = arrays()
    known = np.arange(120)
    x = data.images(torch.from_numpy(known)).double()
    scores, fold = cross_fitted(x, torch.from_numpy(s[known]), 3, key=7)
    for k in range(FOLDS):
        out = fold == k
        assert abs(int(out.sum()) - 120 / FOLDS) <= 1
        for g in range(3):  # the same share of every group
            assert abs((s[known][out] == g).sum() - (s[known] == g).sum() / FOLDS) < 1
        expected = scores_of(x.numpy()[~out], s[known][~out], x.numpy()[out], 3)
        own = scores[torch.from_numpy(out)].numpy()
        np.testing.assert_allclose(own - own.mean(1, keepdims=True), expected, atol=1e-3)
    again, _ = cross_fitted(x, torch.from_numpy(s[known]), 3, key=7)
    assert torch.equal(scores, again)
    assert not torch.equal(scores, cross_fitted(x, torch.from_numpy(s[known]), 3, key=8)[0])


def test_a_row_gets_the_most_probable_group_if_that_is_probable_enough():
    data, s = arrays()
    found = infer_groups(data, seed=0)
    assert found.rows_n.tolist() == list(range(120, 240))
    x, known = data.x.double().numpy(), np.arange(120)
    scores, _ = cross_fitted(
        torch.from_numpy(x[known]), torch.from_numpy(s[known]), 3,
        shasam.keyed.text_key(0, "inferred groups"),
    )  # fmt: skip
    temperature = fit_temperature(torch.softmax(scores, 1).numpy(), s[known])
    raised = np.exp(scores_of(x[known], s[known], x[120:240], 3) / temperature)
    p = raised / raised.sum(1, keepdims=True)
    clear = abs(p.max(1) - 0.5) > 1e-3
    assert clear.sum() > 100 and (p.max(1) < 0.5).any()
    expected = np.where(p.max(1) >= 0.5, p.argmax(1), -1)
    assert found.group_n[clear].tolist() == expected[clear].tolist()
    np.testing.assert_allclose(found.probability_n, p.max(1), atol=1e-3)
    told = found.summary
    assert told["temperature"] == pytest.approx(temperature)
    assert told["inferred"] == (found.group_n >= 0).sum() and told["known"] == 120
    assert told["unknown"] == 120 - told["inferred"] > 0
    assert told["validation"]["rows"] == 60 and told["cross_fitted"]["rows"] == 120


def test_accuracy_and_calibration_error_by_hand():
    p = np.array([[0.9, 0.1], [0.3, 0.7], [0.72, 0.28], [0.55, 0.45]])
    s = np.array([0, 0, 0, 1])
    # 0.9 alone in its bin; 0.7 and 0.72 together in (10/15, 11/15]: one right; 0.55 wrong
    ece = (abs(1 - 0.9) + abs(1 - 0.7 - 0.72) + abs(0 - 0.55)) / 4
    found = judged(p, s)
    assert found == {"rows": 4, "accuracy": 0.5, "majority": 0.75, "ece": pytest.approx(ece)}
    assert judged(p[:0], s[:0]) is None


def test_labels_of_validation_and_test_are_for_judging_alone():
    data, _ = arrays()
    found = infer_groups(data, seed=0)
    s_N = data.manifest.s_N.copy()
    s_N[240:] = (s_N[240:] + 1) % 3
    table = data.manifest.table
    place = table.schema.get_field_index("sensitive")
    manifest = replace(data.manifest, table=table.set_column(place, "sensitive", [s_N]))
    other = infer_groups(DataWithGroups(data, manifest), seed=0)
    assert np.array_equal(found.group_n, other.group_n)
    assert found.summary["validation"] != other.summary["validation"]
    taught = found.manifest(data.manifest)
    assert taught.s_N[240:].tolist() == data.manifest.s_N[240:].tolist()
    assert taught.s_N[:120].tolist() == data.manifest.s_N[:120].tolist()
    assert taught.s_N[120:240].tolist() == found.group_n.tolist()


def test_two_known_groups_are_needed():
    data, _ = arrays(known=1)
    with pytest.raises(DataError, match=r"1 training rows have a group, of 1 kinds"):
        infer_groups(data, seed=0)


def test_the_file_is_of_its_manifest(tmp_path: Path):
    data, _ = arrays()
    found = infer_groups(data, seed=0)
    path = tmp_path / GROUPS
    path.write_bytes(found.as_bytes(data.manifest))
    again = InferredGroups.load(path, data.manifest, tmp_path)
    assert np.array_equal(again.group_n, found.group_n) and again.summary == found.summary
    with pytest.raises(DataError, match="other rows"):
        InferredGroups.load(path, arrays(known=110)[0].manifest, tmp_path)
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cannot be read as inferred groups"):
        InferredGroups.load(path, data.manifest, tmp_path)


@pytest.mark.parametrize("how", ["nulls", "fractions", "lists", "no summary"])
def test_a_file_of_groups_of_another_hand_is_a_sentence(tmp_path, how):
    data, _ = arrays()
    table = pq.read_table(pa.BufferReader(infer_groups(data, seed=0).as_bytes(data.manifest)))
    n, place = table.num_rows, table.column_names.index("sensitive")
    columns = {
        "nulls": pa.nulls(n, pa.int64()),
        "fractions": pa.array([0.5] * n),
        "lists": pa.array([[1]] * n),
    }
    if how in columns:
        table = table.set_column(place, "sensitive", columns[how])
    else:
        table = table.replace_schema_metadata(dict(table.schema.metadata) | {b"inferred": b"[1]"})
    pq.write_table(table, tmp_path / GROUPS)
    with pytest.raises(DataError, match=r"no whole numbers|how its groups were inferred"):
        InferredGroups.load(tmp_path / GROUPS, data.manifest, tmp_path)


# -- hidden groups --------------------------------------------------------------------------------


def test_a_specification_without_hidden_groups_is_what_it_was():
    body = DataSpec(name="faces").model_dump(mode="json")
    assert "known_groups" not in body
    # the hash of this specification before groups could be hidden or inferred
    spec = resolve({"method": "ce", "train": {"precision": "32-true"}}, profile="smoke")
    assert spec.key == "f2d0a8a3e17c"
    spec = resolve(
        {"method": "ce", "data": {"known_groups": 0.5, "missing": "use"}}, profile="smoke"
    )
    assert resolve(spec.as_dict()).key == spec.key
    for data, says in (
        ({"known_groups": 0.5}, "say missing=use"),
        ({"missing": "infer"}, "make vectors of them with shasam embed"),
        ({"missing": "infer", "sensitive": ["old", "hat"]}, "infers one sensitive attribute"),
    ):
        with pytest.raises(SpecError, match=says):
            resolve({"method": "ce", "data": data}, profile="smoke")


def test_a_share_of_the_training_groups_is_known_and_larger_shares_hold_smaller_ones(tmp_path):
    folder = people(tmp_path)
    asked = {"features": folder / "x.npy", "csv": folder / "people.csv", "target": "smiling"}
    asked |= {"sensitive": "race", "missing": "use"}
    whole = open_data(DataSpec(**asked)).manifest
    train, known = whole.rows("train"), {}
    for share in (0.05, 0.2, 1.0):
        manifest = open_data(DataSpec(**asked, known_groups=share)).manifest
        for column in ("id", "target", "split"):
            assert manifest.table.column(column).equals(whole.table.column(column))
        s = manifest.s_N
        known[share] = set(train[s[train] >= 0].tolist())
        assert len(known[share]) == round(share * len(train))
        assert all(s[row] == whole.s_N[row] for row in known[share])
        for split in ("val", "test"):
            assert np.array_equal(s[manifest.rows(split)], whole.s_N[manifest.rows(split)])
    assert known[0.05] < known[0.2] < known[1.0]
    other = open_data(DataSpec(**asked, known_groups=0.2, seed=1)).manifest
    rows = other.rows("train")
    ids = other.table.column("id").to_pylist()
    assert {ids[r] for r in rows[other.s_N[rows] >= 0]} != {
        whole.table.column("id")[r].as_py() for r in known[0.2]
    }


# -- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inferred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = people(tmp_path_factory.mktemp("inferred"))
    command(words(folder, "groupdro", *RACE, "--known-groups", "0.3"))
    return folder


def test_a_run_infers_once_and_says_how_well(inferred, capsys):
    run = run_of(inferred, "groupdro")
    manifest = Manifest.load(run.file("manifest.parquet"))
    rows = unknown_rows(manifest)
    assert len(rows) == pytest.approx(0.7 * len(manifest.rows("train")), abs=1)
    (told,) = [
        line for line in stream_log(run.file("log.jsonl")) if line["event"] == "inferred_groups"
    ]
    summary = run.metrics()["inferred_groups"]
    assert told["validation"] == pytest.approx(summary["validation"], rel=1e-5)
    assert told.keys() - {"event"} == summary.keys()
    assert summary["inferred"] + summary["unknown"] == len(rows)
    found = InferredGroups.load(run.file(GROUPS), manifest, run.path)
    assert found.rows_n.tolist() == rows.tolist()
    page = run.file("report.html").read_text()
    assert f"the groups of {summary['known']} rows and" in page and "calibration error" in page
    # test metrics are of known groups: no test group was hidden, and none inferred
    assert run.metrics()["test"]["accuracy"]["support"] == len(manifest.rows("test"))


def test_a_run_that_is_cut_goes_on_with_the_groups_of_its_start(inferred, tmp_path, monkeypatch):
    from shasam.pipeline import execute as module

    whole = run_of(inferred, "groupdro")
    spec = whole.spec()

    class Cut(Exception):
        pass

    def cut(*args, **more):
        raise Cut

    monkeypatch.setattr(module, "evaluate_run", cut)
    with pytest.raises(Cut):
        module.execute(spec, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(module, "infer_groups", cut)  # it must not be needed again
    run = module.execute(spec, tmp_path, resume=True)
    for name in ("model.safetensors", GROUPS, "metrics.json"):
        assert run.file(name).read_bytes() == whole.file(name).read_bytes()


def test_where_all_groups_are_known_nothing_is_inferred(tmp_path):
    folder = people(tmp_path)
    for missing in ("use", "infer"):
        command(words(folder, "balanced", "--sensitive", "race", "--missing", missing))
    first, second = sorted((folder / "runs").glob("balanced-*"))
    assert (
        first.joinpath("model.safetensors").read_bytes()
        == second.joinpath("model.safetensors").read_bytes()
    )
    for path in (first, second):
        assert not (path / GROUPS).exists()
        assert "inferred_groups" not in json.loads((path / "metrics.json").read_text())


def test_one_target_is_asked_for(tmp_path, capsys):
    folder = people(tmp_path)
    said = refused(words(folder, "ce", "--sensitive", "race", "--target", "age<35"), capsys)
    assert "there is one target; train a model for each" in said
