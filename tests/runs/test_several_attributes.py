"""Several sensitive attributes at once, and rows without a group: from the command to the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import shasam
from shasam.cli import main
from shasam.data import open_data
from shasam.data.splits import Manifest
from shasam.errors import DataError, SpecError
from shasam.metrics import adjusted, as_json, evaluate
from shasam.output import markdown_text
from shasam.pipeline.build import build_method
from shasam.registry import entries
from shasam.report.runs import by_attribute
from shasam.runs.directory import RunDirectory
from shasam.sampling import TrainingRows
from shasam.spec import resolve
from shasam.spec.fields import DataSpec
from shasam.training.runtime import Runtime, one_process
from shasam.training.stage import PartlyKnownPlan, TurnsPlan, plan_of
from shasam.training.trainer import Trainer
from shasam.types import Batch

ROWS = 600
SHORT = ["--profile", "smoke", "--steps", "8", "--batch-views", "48", "--device", "cpu", "-q"]
BOTH = ["--sensitive", "race", "--sensitive", "age<35"]


def people(folder: Path, *, unknown: float = 0.0, rows: int = ROWS) -> Path:
    """Vectors and a table of people; a share of the races is not known."""
    rng = np.random.default_rng(3)
    smiling = np.arange(rows) % 2
    race = rng.choice(["asian", "black", "white"], rows, p=[0.2, 0.3, 0.5])
    age = rng.integers(18, 80, rows)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    x[:, 0] += 2 * smiling
    x[:, 1] += race == "black"
    np.save(folder / "x.npy", x)
    known = rng.random(rows) >= unknown
    cells = zip(smiling, np.where(known, race, ""), age, strict=True)
    lines = [f"{row},{','.join(map(str, cell))}" for row, cell in enumerate(cells)]
    (folder / "people.csv").write_text("\n".join(["id,smiling,race,age", *lines]) + "\n")
    return folder


def words(folder: Path, method: str, *more: str) -> list[str]:
    files = ["--features", str(folder / "x.npy"), "--csv", str(folder / "people.csv")]
    out = ["--target", "smiling", "--out", str(folder / "runs"), "--no-baseline"]
    return ["train", method, *files, *out, *SHORT, *more]


def run_of(folder: Path, method: str) -> RunDirectory:
    (path,) = (folder / "runs").glob(f"{method}-*")
    return RunDirectory(path)


def command(line: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert not ended.value.code


def refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert ended.value.code
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with race and age together, whose intersections are the groups."""
    folder = people(tmp_path_factory.mktemp("crossed"))
    command(words(folder, "shasam-random", *BOTH))
    return folder


# -- what is asked for ----------------------------------------------------------------------------


def test_one_attribute_is_stored_as_it_always_was():
    one = DataSpec(name="faces", sensitive="old").model_dump(mode="json")
    assert one["sensitive"] == "old" and "groups" not in one
    assert DataSpec(name="faces").model_dump(mode="json")["sensitive"] is None
    listed = resolve({"data": {"sensitive": ["old"]}}, profile="smoke")
    assert listed.key == resolve({"data": {"sensitive": "old"}}, profile="smoke").key
    both = resolve({"data": {"sensitive": ["old", "hat"]}}, profile="smoke")
    assert both.as_dict()["data"]["sensitive"] == ["old", "hat"]
    assert both.as_dict()["data"]["groups"] == "cross"
    assert resolve(both.as_dict()).key == both.key


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"sensitive": ["old", "old"]}, "old is given twice"),
        ({"sensitive": ["old"], "groups": "each"}, "name two or more"),
        ({"target": ["smile", "hat"]}, "train a model for each"),
    ],
)
def test_what_cannot_be_asked_for_is_a_sentence(data, says):
    with pytest.raises(SpecError, match=says):
        resolve({"data": data}, profile="smoke")


def test_a_manifest_holds_each_attribute_and_the_intersections_that_have_rows(tmp_path):
    folder = people(tmp_path)
    asked = {"features": folder / "x.npy", "csv": folder / "people.csv", "target": "smiling"}
    data = open_data(DataSpec(**asked, sensitive=["race", "race==black", "age<35"]))
    manifest = data.manifest
    assert [a.name for a in manifest.attributes] == ["race", "race==black", "age<35"]
    # black goes with race==black alone: 3 times 2 intersections have rows, not 12
    assert data.groups == 6 and "black & race==black & age<35" in manifest.sensitive_names
    for row in range(0, len(data), 37):
        own = [
            a.groups[codes[row]]
            for a, codes in zip(manifest.attributes, manifest.attribute_codes, strict=True)
        ]
        assert manifest.sensitive_names[manifest.s_N[row]] == " & ".join(own)
    manifest.save(tmp_path / "manifest.parquet")
    again = Manifest.load(tmp_path / "manifest.parquet")
    assert again.attributes == manifest.attributes and again.sha256 == manifest.sha256


def test_too_many_intersections_are_refused_with_what_to_do(tmp_path):
    folder = people(tmp_path)
    asked = {"features": folder / "x.npy", "csv": folder / "people.csv", "target": "smiling"}
    bins = "age:[0,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62,64]"
    with pytest.raises(DataError, match=r"intersections with rows.*data.groups.*each"):
        open_data(DataSpec(**asked, sensitive=["race", bins]))


# -- intersections --------------------------------------------------------------------------------


def test_metrics_are_by_attribute_and_intersection_with_holm(crossed):
    run = run_of(crossed, "shasam-random")
    table = pq.read_table(run.file("predictions.parquet")).to_pydict()
    assert set(table["race"]) == {"asian", "black", "white"}
    groups = {
        "race": table["race"],
        "age<35": table["age<35"],
        "race & age<35": [
            f"{a} & {b}" for a, b in zip(table["race"], table["age<35"], strict=True)
        ],
    }
    recorded = run.metrics()["attributes"]
    assert list(recorded["test"]) == list(groups) == list(recorded["val"])
    found = [evaluate(table["target"], table["prediction"], s, draws=100) for s in groups.values()]
    for name, own in zip(groups, found, strict=True):
        value = recorded["test"][name]["eo_mean"]["value"]
        assert value == pytest.approx(own["eo_mean"].value, abs=1e-12)
    whole = run.metrics()["test"]
    assert whole["eo_mean"]["value"] == recorded["test"]["race & age<35"]["eo_mean"]["value"]
    subjects = by_attribute(run)
    assert [s.attribute for s in subjects] == list(groups)
    for subject in subjects:
        own = as_json(subject.estimates)["eo_mean"]
        assert own == recorded["test"][subject.attribute]["eo_mean"]
    alone = [run.metrics()["test"]["eo_mean"]["p"], recorded["test"]["race"]["eo_mean"]["p"]]
    assert recorded["test"]["race & age<35"]["eo_mean"]["p"] >= alone[0]
    assert adjusted([s.estimates for s in subjects])[0]["eo_mean"].p >= alone[1]


def test_the_page_and_an_audit_show_all_attributes_at_once(crossed, capsys, tmp_path):
    run = run_of(crossed, "shasam-random")
    page = run.file("report.html").read_text()
    assert "Each attribute, closer" in page and "<summary>By age&lt;35</summary>" in page
    assert "smiling by race &amp; age&lt;35" in page
    file = run.file("predictions.parquet")
    command(["audit", str(file), "--json", str(tmp_path / "audit.json")])
    audits = json.loads((tmp_path / "audit.json").read_text())["audits"]
    assert [a["attribute"] for a in audits] == ["race", "age<35", "race & age<35"]
    # as the page says; a small group whose draws have no predicted positive has no such rate there
    command(["audit", str(file), "--strata", "cell", "--min-group", "0"])
    command(["audit", str(file), "--sensitive", "race"])
    assert "by race" in capsys.readouterr().out


def test_training_says_the_gap_of_every_attribute_the_widest_first(crossed, capsys):
    command([*words(crossed, "shasam-random", *BOTH), "--no-report"])
    line = " ".join(capsys.readouterr().out.split()).partition("Gap by attribute, in points: ")[2]
    gaps = [float(part.split(" (")[0].split()[-1]) for part in line.partition(". ")[0].split("; ")]
    assert len(gaps) == 3 and gaps == sorted(gaps, reverse=True)


def test_predict_writes_the_intersection_of_each_row(crossed, tmp_path):
    run, out = run_of(crossed, "shasam-random"), tmp_path / "new.csv"
    table = ["--csv", str(crossed / "people.csv"), "--out", str(out)]
    command(["predict", str(run.path), str(crossed / "x.npy"), *table])
    head, first = out.read_text().splitlines()[:2]
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    assert cells["sensitive"].split(" & ")[0] == cells["race"]


def test_a_cell_of_one_row_is_trained_with_and_does_not_crash(tmp_path):
    folder = people(tmp_path)
    lines = (folder / "people.csv").read_text().splitlines()
    rare = [line.replace(",white,", ",black,") if ",white," in line else line for line in lines]
    rare[7] = "6,0,martian,20"
    (folder / "people.csv").write_text("\n".join(rare) + "\n")
    command(words(folder, "shasam", *BOTH, "--no-report"))
    command(words(folder, "balanced", *BOTH, "--no-report"))
    assert "martian & age<35" in run_of(folder, "shasam").metadata["sensitive_names"]


def test_a_batch_that_cannot_hold_every_cell_is_refused_before_training(tmp_path, capsys):
    folder = people(tmp_path)
    line = words(folder, "balanced", *BOTH)
    line[line.index("--batch-views") + 1] = "8"
    said = refused(line, capsys)
    assert "12 (target, group) cells" in said and "--batch-views 12" in said


def test_several_attributes_from_python_and_yaml(tmp_path):
    folder = people(tmp_path)
    run = shasam.train(
        "ce",
        data={
            "features": folder / "x.npy",
            "csv": folder / "people.csv",
            "target": "smiling",
            "sensitive": ["race", "age<35"],
        },
        profile="smoke",
        overrides={"train.steps": 4},
        out=folder / "runs",
        report=False,
        quiet=True,
        device="cpu",
    )
    assert run.spec().data.sensitive == ("race", "age<35")
    stored = run.file("spec.yaml").read_text()
    assert "sensitive:\n  - race\n  - age<35\n  groups: cross\n" in stored


# -- every attribute in turn ----------------------------------------------------------------------


def seen_batches(spec, data, stage: int = 0, steps: int = 6):
    """The batches of a run's first steps, as its method sees them."""
    method, _ = build_method(spec, data.classes, data.groups)
    fabric = one_process(spec.train, "cpu")
    trainer = Trainer.of_run(spec, method, data, fabric=fabric, runtime=Runtime(quiet=True))
    of_stage = trainer.views.stage(method.stages()[stage])
    rows = trainer._training_rows(of_stage)
    plan = plan_of(method, of_stage, rows)
    plan.total_steps = steps
    out = []
    for step in range(steps):
        drawn = plan.draw(plan.epoch_of(step), step, trainer.batches.embed)
        turns = trainer.batches.turns
        s_N = turns[step % len(turns)] if turns else trainer.batches.s_N
        plan.observe(drawn.rows_B, torch.randn(len(drawn.rows_B), 8))
        out.append((drawn, s_N))
    return plan, rows, out


def asked_for(folder: Path, method: str, **data):
    files = {"features": folder / "x.npy", "csv": folder / "people.csv", "target": "smiling"}
    body = {"method": method, "data": {**files, **data}, "train": {"batch_views": 48, "steps": 8}}
    spec = resolve(body, profile="smoke")
    return spec, open_data(spec.data)


@pytest.mark.parametrize("method", ["shasam", "shasam-random", "balanced"])
def test_every_attribute_has_its_own_sets_and_balanced_batches_in_turn(tmp_path, method):
    spec, data = asked_for(people(tmp_path), method, sensitive=["race", "age<35"], groups="each")
    plan, _, batches = seen_batches(spec, data)
    assert isinstance(plan, TurnsPlan)
    t_N = torch.tensor(data.t_N)
    for step, (drawn, s_N) in enumerate(batches):
        groups = len(data.manifest.attributes[step % 2].groups)
        if method == "balanced":
            cells = t_N[drawn.rows_B] * groups + s_N[drawn.rows_B]
            counts = torch.bincount(cells, minlength=2 * groups)
            assert len(counts) == 2 * groups and int(counts.max() - counts.min()) <= 1
            continue
        assert {triplet.sensitive for triplet in drawn.triplets} == set(range(groups))
        for triplet in drawn.triplets:  # Triplet checks its rows against these labels
            assert torch.equal(triplet.s_N, s_N[drawn.rows_B])
    # what is carried over is in the state of the plan
    again = plan_of(*_parts(spec, data))
    again.total_steps = plan.total_steps
    again.load_state(plan.state())
    step = len(batches)
    drawn = [
        p.draw(p.epoch_of(step), step, lambda rows: torch.ones(len(rows), 8)) for p in (plan, again)
    ]
    assert torch.equal(drawn[0].rows_B, drawn[1].rows_B)


def _parts(spec, data):
    method, _ = build_method(spec, data.classes, data.groups)
    fabric = one_process(spec.train, "cpu")
    trainer = Trainer.of_run(spec, method, data, fabric=fabric, runtime=Runtime(quiet=True))
    stage = trainer.views.stage(method.stages()[0])
    return method, stage, trainer._training_rows(stage)


def test_the_second_stage_weighs_cells_by_the_attribute_whose_turn_it_is(tmp_path):
    spec, data = asked_for(people(tmp_path), "fscl", sensitive=["race", "age<35"], groups="each")
    method, _ = build_method(spec, data.classes, data.groups)
    fabric = one_process(spec.train, "cpu")
    trainer = Trainer.of_run(spec, method, data, fabric=fabric, runtime=Runtime(quiet=True))
    stage = method.stages()[1]
    method.begin_stage(stage, trainer._training_rows(stage))
    rows = data.rows("train")
    for turn, s_N in enumerate(data.manifest.attribute_codes):
        t, s = data.t_N[rows], s_N[rows]
        cells = len(np.unique(t * 10 + s))
        weight = method.reweight_KCG[turn].numpy()[t, s]
        for cell in np.unique(t * 10 + s):
            assert weight[t * 10 + s == cell].sum() == pytest.approx(len(rows) / cells, rel=1e-5)


def test_a_method_that_cannot_take_turns_is_refused_by_name(tmp_path, capsys):
    folder = people(tmp_path)
    said = refused(words(folder, "groupdro", *BOTH, "--groups", "each"), capsys)
    assert "groupdro keeps something for every group" in said and "say cross" in said
    able = {name for name, kind in entries("method").items() if kind.groups_in_turns}
    assert able == {
        "balanced", "balanced-hidden", "ce", "fscl", "gap", "hsic", "jtt", "lisa", "mmd", "shasam",
        "shasam-ld", "shasam-literal", "shasam-random", "supcon",
    }  # fmt: skip


def test_each_ends_in_a_model_and_a_page(tmp_path, capsys):
    folder = people(tmp_path)
    command(words(folder, "shasam-random", *BOTH, "--groups", "each"))
    run = run_of(folder, "shasam-random")
    assert run.spec().data.groups == "each"
    assert list(run.metrics()["attributes"]["test"]) == ["race", "age<35", "race & age<35"]
    assert "Each attribute, closer" in run.file("report.html").read_text()


def test_compare_has_a_table_of_each_attribute(tmp_path, capsys):
    folder = people(tmp_path)
    words_of = words(folder, "ce", *BOTH)
    files = words_of[2 : words_of.index("--out")]
    places = ["--out", str(folder / "runs"), "--page", str(folder / "c.html")]
    asked = ["--profile", "smoke", "--steps", "8", "--batch-views", "48", "--seeds", "1"]
    command(["compare", "--methods", "ce,balanced", *files, *places, *asked, *BOTH])
    shown, text = capsys.readouterr().out, (folder / "c.md").read_text()
    for name in ("race", "age<35", "race & age<35"):
        assert f"by {name}, %" in shown
        part = text.split(f"By {markdown_text(name)}:")
        assert len(part) == 2
        lines = [line for line in part[1].splitlines() if line.startswith("|")][2:4]
        for line, method in zip(lines, ("ce", "balanced"), strict=True):
            eo = run_of(folder, method).metrics()["attributes"]["test"][name]["eo_mean"]["value"]
            assert method in line and f"{100 * eo:.1f}" in line


# -- rows without a group -------------------------------------------------------------------------

USE = ["--sensitive", "race", "--missing", "use"]


@pytest.fixture(scope="module")
def half_known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which half of the races are empty."""
    folder = people(tmp_path_factory.mktemp("half"), unknown=0.5)
    command(words(folder, "shasam", *USE))
    return folder


def test_empty_cells_are_an_error_that_offers_three_ways_out(half_known, capsys):
    said = refused(words(half_known, "ce", "--sensitive", "race"), capsys)
    assert "have no value in the column 'race'" in said
    for way in ("--missing drop", "--missing group", "--missing use"):
        assert way in said


def test_rows_without_a_group_are_split_scored_and_left_out_of_metrics(
    half_known, capsys, tmp_path
):
    run = run_of(half_known, "shasam")
    manifest = Manifest.load(run.file("manifest.parquet"))
    assert len(manifest) == ROWS and manifest.sensitive_names == ("asian", "black", "white")
    for split, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):  # each has its unknown rows
        s = manifest.s_N[manifest.rows(split)]
        assert len(s) == pytest.approx(share * ROWS, abs=15) and 0.4 < (s < 0).mean() < 0.6
    table = pq.read_table(run.file("predictions.parquet")).to_pydict()
    known = [s is not None for s in table["sensitive"]]
    metrics = run.metrics()
    assert metrics["without_group"]["test"] == known.count(False) > 0
    kept = {
        k: np.array(table[k], dtype=object)[known] for k in ("target", "prediction", "sensitive")
    }
    own = evaluate(*(column.astype(np.int64) for column in kept.values()), draws=100)
    assert metrics["test"]["accuracy"]["support"] == known.count(True)
    for name in ("accuracy", "eo_mean", "worst_group_accuracy"):
        assert metrics["test"][name]["value"] == pytest.approx(own[name].value, abs=1e-12)
    assert np.sum(metrics["cells"]["test"]["rows"]) == known.count(True)
    page = run.file("report.html").read_text()
    assert f"{known.count(False)} more test rows have no group" in page
    command(["audit", str(run.file("predictions.parquet")), "--json", str(tmp_path / "a.json")])
    assert "are left out" in " ".join(capsys.readouterr().err.split())
    (audit,) = json.loads((tmp_path / "a.json").read_text())["audits"]
    assert audit["rows"] == known.count(True)


@pytest.mark.parametrize("method", ["shasam", "shasam-random", "balanced"])
def test_rows_without_a_group_train_the_target_and_enter_no_role_and_no_cell(tmp_path, method):
    folder = people(tmp_path, unknown=0.4)
    spec, data = asked_for(folder, method, sensitive="race", missing="use")
    plan, rows, batches = seen_batches(spec, data, steps=30)
    assert isinstance(plan, PartlyKnownPlan)
    size = rows.batch_size
    seen = []
    for drawn, s_N in batches:
        s_B = s_N[drawn.rows_B]
        known = int((s_B >= 0).sum())
        assert len(drawn.rows_B) == size and bool((s_B[:known] >= 0).all())
        assert size - known == plan.beside == pytest.approx(0.4 * size, abs=2)
        for triplet in drawn.triplets:
            for role in (triplet.anchors, triplet.positives, triplet.negatives):
                assert int(role.max()) < known
        if method == "balanced":
            cells = torch.bincount(s_B[:known], minlength=3)
            assert int(cells.max() - cells.min()) <= 2
        seen.append(drawn.rows_B[known:])
    counts = torch.bincount(torch.cat(seen))[plan.others]
    assert int(counts.max() - counts.min()) <= 1  # each once before any comes again


def test_a_method_without_a_companion_leaves_them_to_the_second_stage(tmp_path):
    folder = people(tmp_path, unknown=0.4)
    spec, data = asked_for(folder, "shasam-literal", sensitive="race", missing="use")
    method, _ = build_method(spec, data.classes, data.groups)
    learn, classify = method.stages()
    assert not method.uses_unknown(learn) and method.uses_unknown(classify)
    _, _, batches = seen_batches(spec, data, steps=2)
    assert all(bool((s_N[drawn.rows_B] >= 0).all()) for drawn, s_N in batches)


def test_unknown_groups_change_no_weight_and_no_penalty():
    """A row without a group adds its cross-entropy and nothing else."""
    spec = resolve(
        {"method": "mmd", "data": {"name": "embeddings", "features_dim": 5}}, profile="smoke"
    )
    method = build_method(spec, 2, 2)[0].eval()  # in batch normalisation rows depend on others
    x, t, s = torch.randn(12, 5), torch.arange(12) % 2, torch.arange(12) // 2 % 2
    rows = torch.arange(12)
    s_unknown = s.clone()
    s_unknown[8:] = -1

    def parts(s_B, kept):
        batch = Batch(x[kept], t[kept], s_B[kept], rows[kept], 1, 0, 0.0)
        return next(method.steps(batch, "learn"))[1].parts

    everything = slice(None)
    found = parts(s_unknown, everything)
    assert float(found["mmd"]) == pytest.approx(float(parts(s, slice(8))["mmd"]), abs=1e-6)
    assert float(found["target"]) == pytest.approx(float(parts(s, everything)["target"]), abs=1e-6)
    reweight, _ = build_method(spec.model_copy(update={"method": "reweight", "options": {}}), 2, 2)
    labels = TrainingRows(t, s_unknown, rows, batch_size=4, seed=0)
    reweight.begin_stage(reweight.stages()[0], labels)
    assert int(reweight.counts_CG.sum()) == 8


def test_methods_that_need_every_group_refuse_unknown_ones(tmp_path, capsys):
    said = refused(words(people(tmp_path, unknown=0.4), "posthoc", *USE), capsys)
    assert "posthoc needs the group of every row; say drop or group" in said
    able = {name for name, kind in entries("method").items() if kind.unknown_groups}
    assert able == {
        "balanced", "balanced-hidden", "ce", "dfr", "fscl", "fscl+", "gap", "grl", "groupdro",
        "hsic", "jtt", "lisa", "lnl", "mfd", "mmd", "reweight", "scaling", "shasam", "shasam-ld",
        "shasam-literal", "shasam-random", "supcon",
    }  # fmt: skip


@pytest.mark.parametrize("groups", ["cross", "each"])
def test_several_attributes_with_unknown_ones(tmp_path, groups, capsys):
    folder = people(tmp_path, unknown=0.4)
    line = words(folder, "shasam-random", *BOTH, "--missing", "use", "--groups", groups)
    if groups == "cross":  # what is advised is enough
        needed = refused(line, capsys).split("--batch-views ")[1].split()[0]
        line[line.index("--batch-views") + 1] = needed
        shutil.rmtree(folder / "runs")
    command(line)
    run = run_of(folder, "shasam-random")
    found = run.metrics()["attributes"]["test"]
    rows = pq.read_table(run.file("predictions.parquet")).num_rows
    assert found["age<35"]["accuracy"]["support"] == rows  # all ages are known
    assert found["race"]["accuracy"]["support"] < rows
    assert found["race"]["accuracy"]["support"] == found["race & age<35"]["accuracy"]["support"]


def test_a_run_without_missing_values_is_the_same_whatever_missing_says(tmp_path):
    folder = people(tmp_path)
    found = []
    for missing in ("error", "use"):
        spec, data = asked_for(folder, "shasam-random", sensitive="race", missing=missing)
        plan, _, batches = seen_batches(spec, data)
        assert type(plan).__name__ == "MinedPlan"
        found.append(torch.cat([drawn.rows_B for drawn, _ in batches]))
    assert torch.equal(*found)
