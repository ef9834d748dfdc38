from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from tests.tiny_data import TinyData

from shasam.errors import InputError, SpecError
from shasam.pipeline.execute import execute
from shasam.pipeline.replay import difference, open_record, says
from shasam.runs.machine import (
    REPRODUCIBLE,
    SETTINGS,
    computed_with,
    how_runs_compute,
    machine,
    restart_with,
    variables_of_runs,
)
from shasam.runs.records import keep
from shasam.spec import resolve
from shasam.training.runtime import Runtime


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    body = {"method": "ce", "data": {"size": 16}, "train": {"steps": 3}}
    return execute(
        resolve(body, profile="smoke"),
        tmp_path_factory.mktemp("runs"),
        runtime=Runtime(device="cpu", quiet=True),
        data=TinyData(),
    )


@pytest.fixture
def copy(run, tmp_path):
    """The same record once more, to be changed."""
    return shutil.copytree(run.path, tmp_path / "copy")


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_record_does_not_differ_from_itself(run, copy):
    found = difference(run.path, copy)
    assert found.same and found.images == 40 and not found.settings
    assert says(found) == [
        "scores     all 40 rows have the same scores, bit for bit",
        "decisions  0 of 40 differ",
        "metrics    the same",
    ]


def test_changed_scores_and_decisions_are_counted_whatever_their_order(run, copy):
    table = pq.read_table(copy / "predictions.parquet")
    score = table.column("score_0").to_numpy().copy()
    score[3] += 0.25
    flipped = table.column("prediction").to_numpy().copy()
    flipped[[3, 5]] = 1 - flipped[[3, 5]]
    for name, values in (("score_0", pa.array(score)), ("prediction", pa.array(flipped))):
        table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table.take(pc.sort_indices(table, [("id", "descending")])),
                   copy / "predictions.parquet")  # fmt: skip
    found = difference(run.path, copy)
    assert (found.scores, found.decisions) == (1, 2)
    assert found.largest == pytest.approx(0.25, abs=1e-6) and not found.same
    assert "1 of 40 rows differ, by up to 0.25" in says(found)[0]
    assert "please report this" in says(found)[-1]  # nothing that is recorded explains it


def test_what_could_explain_a_difference_is_named(run, copy):
    provenance = json.loads((copy / "provenance.json").read_text())
    versions = {**provenance["versions"], "torch": "2.6.0"}
    edit(copy / "provenance.json", cpu="Another CPU", threads=64, versions=versions)
    metrics = json.loads((copy / "metrics.json").read_text())
    metrics["test"]["accuracy"]["value"] = 0.5
    edit(copy / "metrics.json", test=metrics["test"])
    found = difference(run.path, copy)
    assert [name for name, _, _ in found.settings] == ["CPU", "threads", "version of torch"]
    text = "\n".join(says(found))
    assert f"CPU: {provenance['cpu']} -> Another CPU" in text
    assert "metric     accuracy" in text and "-> 50.00 %" in text
    (copy / "provenance.json").unlink()  # records of earlier versions tell less
    assert "CPU: not recorded" in "\n".join(says(difference(copy, run.path)))


def test_a_run_of_an_experiment_is_a_record_and_a_folder_of_something_else_is_not(run, tmp_path):
    keep([run.path], tmp_path / "experiment", {run.path.name: "ce"})
    folder = open_record(tmp_path / "experiment" / run.path.name, tmp_path)
    assert difference(run.path, folder).same
    with pytest.raises(InputError, match="records list"):
        open_record(tmp_path / "experiment" / "ce-000000000000", tmp_path)
    with pytest.raises(InputError, match="not a record"):
        open_record(tmp_path / "nothing", tmp_path)
    (folder / "metrics.json").unlink()
    with pytest.raises(InputError, match=r"has no metrics\.json"):
        open_record(folder, tmp_path)


def test_provenance_says_what_the_bits_depend_on(run):
    provenance = json.loads(run.file("provenance.json").read_text())
    assert set(SETTINGS) <= set(provenance)
    assert provenance["cpu"] and provenance["threads"] == torch.get_num_threads()
    assert provenance["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert "Pillow" in provenance["decoder"]


def test_tables_say_what_they_were_computed_with():
    one = {**machine(), "instructions": "AVX512", "threads": 2, "reproducible": False}
    assert computed_with([{}]) == ""  # a record that does not tell
    assert computed_with([one, one]).startswith("computed with AVX512, 2 threads; ")
    mixed = computed_with([one, one, {**one, "threads": 1}])
    assert "not all computed alike" in mixed and "1 runs with AVX512, 1 thread" in mixed
    assert computed_with([{**one, "reproducible": True}]).endswith("(AVX2, 1 thread)")


def test_jobs_change_threads_and_the_sweep_says_so(monkeypatch):
    monkeypatch.setattr("shasam.runs.machine.usable_cores", lambda: 4)
    line = how_runs_compute(2, None, False)
    assert "2 threads" in line and "--jobs" in line
    assert variables_of_runs(2, None, False)["OMP_NUM_THREADS"] == "2"
    assert REPRODUCIBLE.items() <= variables_of_runs(2, None, True).items()
    with pytest.raises(SpecError, match="one thread"):
        variables_of_runs(1, 4, True)


def test_the_instruction_set_cannot_be_chosen_once_torch_is_loaded(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    with pytest.raises(SpecError, match="before torch is loaded"):
        restart_with(REPRODUCIBLE)
    for name, value in REPRODUCIBLE.items():
        monkeypatch.setenv(name, value)
    restart_with(REPRODUCIBLE)  # nothing to do
