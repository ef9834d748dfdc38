"""Records: nothing is lost on the way in and out, and the tables of the docs come out of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments import (
    ages,
    attributes,
    curves,
    forest,
    fronts,
    heads,
    known,
    learns,
    learnt,
    mined,
    noise,
    paired,
    parts,
    settings,
    strata,
    table,
    tuned,
)
from shasam.documents import read_yaml
from shasam.errors import DataError
from shasam.pipeline.sweeps import expand_labelled, label_of, runs_of_experiment
from shasam.report import rows_of
from shasam.report.run_tables import as_markdown
from shasam.runs.records import by_label, holds_records, keep, read_records, unpack

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
ALIVE = EXPERIMENTS / "alive"
# name of a table -> the experiment whose page it is printed in, and how it is made
TABLES = {
    "earns its keep": ("earns-its-keep", lambda: table.table(EXPERIMENTS / "earns-its-keep")),
    "earns its keep, planned": (
        "earns-its-keep",
        lambda: paired.planned(EXPERIMENTS / "earns-its-keep"),
    ),
    "earns its keep, primary": (
        "earns-its-keep",
        lambda: paired.planned(EXPERIMENTS / "earns-its-keep", ["primary"]),
    ),
    "hidden strata": ("earns-its-keep", lambda: strata.table(EXPERIMENTS / "earns-its-keep")),
    "learns": ("learns", lambda: learns.table(EXPERIMENTS / "learns")),
    "learns, AVX2": ("learns-avx2", lambda: learns.table(EXPERIMENTS / "learns-avx2")),
    "learns, elsewhere": ("learns", learns.elsewhere),
    "utkface": ("utkface", lambda: table.table(EXPERIMENTS / "utkface")),
    "utkface-tuned": ("utkface-tuned", lambda: table.table(EXPERIMENTS / "utkface-tuned")),
    **{
        f"alive, {on}": ("alive", lambda on=on, off=off: paired.table(ALIVE, on, [off]))
        for on, off in (
            ("CelebA a by m, fdvae", "CelebA a by m, fdvae, off"),
            ("CelebA a by m, fairvit", "CelebA a by m, fairvit, off"),
            ("UTKFace, fairvit", "UTKFace, fairvit, off"),
            ("CelebA a by m, tadet", "CelebA a by m, tadet, off"),
            ("CelebA a by m, tadet-mmd", "CelebA a by m, tadet, off"),
            ("CelebA a by m, fscl+", "CelebA a by m, supcon"),
        )
    },
    "alive": ("alive", lambda: table.table(ALIVE)),
    "paper-profile": ("paper-profile", lambda: table.table(EXPERIMENTS / "paper-profile")),
    "tables-tuning": (
        "tables-tuning",
        lambda: table.table(EXPERIMENTS / "tables-tuning", "val"),
    ),
    "faces parts": ("faces", lambda: parts.table(EXPERIMENTS / "faces")),
    "faces heads": ("faces", lambda: heads.table_of(EXPERIMENTS / "faces" / "heads.json")),
    "faces tuning": ("faces-tuning", lambda: tuned.table(EXPERIMENTS / "faces-tuning")),
    "utkface paired": (
        "utkface",
        lambda: paired.table(
            EXPERIMENTS / "utkface", "shasam", ["ce", "fscl+", "balanced", "shasam-random"]
        ),
    ),
    "utkface-tuned paired": (
        "utkface-tuned",
        lambda: paired.table(
            EXPERIMENTS / "utkface-tuned",
            "shasam",
            ["balanced", "fscl+", "fscl+:encoder-balanced", "ce"],
        ),
    ),
    "runs that had not learnt": ("learns", learnt.table),
    "what group labels are worth": (
        "unknown-groups",
        lambda: known.table(EXPERIMENTS / "unknown-groups"),
    ),
    "age in years": (
        "age-in-years",
        lambda: ages.table(ages.values(EXPERIMENTS / "age-in-years")),
    ),
    "age in years, differences": (
        "age-in-years",
        lambda: ages.differences(ages.values(EXPERIMENTS / "age-in-years")),
    ),
    "several attributes": (
        "several-attributes",
        lambda: attributes.table(attributes.values(EXPERIMENTS / "several-attributes")),
    ),
    "several attributes, differences": (
        "several-attributes",
        lambda: attributes.differences(attributes.values(EXPERIMENTS / "several-attributes")),
    ),
    "wrong labels": ("embeddings-noise", lambda: noise.table(EXPERIMENTS / "embeddings-noise")),
    "pretrained": ("pretrained", lambda: table.table(EXPERIMENTS / "pretrained")),
    "every method on embeddings, paired": (
        "embeddings-all",
        lambda: paired.table(
            EXPERIMENTS / "embeddings-all",
            "shasam",
            ["ce", "balanced", "balanced-hidden", "fscl+", "fscl+:encoder-balanced", "mfd"],
        ),
    ),
    "forms of LEARN, on validation": (
        "mining-learn",
        lambda: mined.validated(EXPERIMENTS / "mining-learn"),
    ),
    "mined against random": ("mining", lambda: mined.against_random(EXPERIMENTS / "mining")),
    "mining variants": (
        "embeddings-mining",
        lambda: paired.table(
            EXPERIMENTS / "embeddings-mining",
            "nothing mined:val",
            [
                f"{label}:val"
                for label in by_label(read_records(EXPERIMENTS / "embeddings-mining"))
                if label != "nothing mined" and "4000" not in label
            ],
        ),
    ),
    "mining, longer": (
        "embeddings-mining",
        lambda: paired.table(
            EXPERIMENTS / "embeddings-mining",
            "nothing mined, 4000 steps:val",
            ["negatives flqmi, 4000 steps:val", "nothing mined:val"],
        ),
    ),
    **{
        question: ("earns-its-keep", lambda question=question: settings.table(question))
        for question in settings.QUESTIONS
    },
}


COMPARED = ["accuracy", "eo_mean", "worst_group_accuracy", "demographic_parity"]


def page(experiment: str) -> str:
    """The page of an experiment."""
    return (EXPERIMENTS / experiment / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_results_comes_out_of_the_records(name):
    where, make = TABLES[name]
    made = make()
    assert len(made.splitlines()) > 2
    assert made in page(where)


def test_the_comparison_of_all_methods_comes_out_of_the_records(tmp_path):
    runs = unpack(EXPERIMENTS / "faces", tmp_path)
    controls = {"balanced-hidden", "fdvae-off", "shasam-random"}
    shown = ["accuracy", "eo_mean", "balanced_accuracy"]
    shown += ["equal_opportunity", "demographic_parity", "worst_group_accuracy"]
    made = as_markdown(rows_of([r for r in runs if r.parent.name not in controls], shown))
    rows = [line.split(" | ", 1)[1] for line in made.splitlines() if " ± " in line and "|" in line]
    assert len([row for row in rows if row.endswith(" |")]) == 20
    for row in rows:
        assert row.startswith("brackets") or f"| {row}" in page("faces")


def test_the_comparison_on_embeddings_comes_out_of_the_records(tmp_path):
    made = as_markdown(rows_of(unpack(EXPERIMENTS / "embeddings-all", tmp_path), COMPARED))
    assert len(made.splitlines()) > 15
    assert made.strip() in page("embeddings-all")


def test_the_picture_of_the_settings_comes_out_of_the_records():
    assert forest.draw() == (ROOT / "docs" / "images" / "settings.svg").read_text(encoding="utf-8")


def test_the_recipes_time_to_accuracy_comes_out_of_its_records():
    assert curves.table(EXPERIMENTS / "recipe") in page("recipe")


def test_a_run_comes_back_as_it_was_kept(tmp_path):
    first = unpack(EXPERIMENTS / "faces-targets", tmp_path / "a")
    kept = keep(first, tmp_path / "experiment", {run.name: run.parent.name for run in first})
    assert kept == len(first)
    again = keep(first[:2], tmp_path / "experiment", {r.name: r.parent.name for r in first})
    assert again == 2  # replaced, not added
    second = unpack(tmp_path / "experiment", tmp_path / "b")
    assert [r.name for r in second] == [r.name for r in first]
    for a, b in zip(first, second, strict=True):
        for file in ("spec.yaml", "metrics.json", "provenance.json", "log.jsonl"):
            assert (a / file).read_bytes() == (b / file).read_bytes()
        one, two = (pq.read_table(run / "predictions.parquet") for run in (a, b))
        assert one.equals(two) and one.schema.metadata == two.schema.metadata


def test_records_do_not_say_where_the_runs_lay(tmp_path):
    (run, *_) = unpack(EXPERIMENTS / "faces-lnl-published", tmp_path / "é")
    command = [
        *("shasam", "train", "--config", str(run / "asked.yaml"), "--out", str(run.parent)),
        *(str(tmp_path / "other" / "grid.yaml"), f"--data.root={tmp_path / 'photos'}"),
    ]
    about = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    (run / "provenance.json").write_text(json.dumps({**about, "command": command}))
    keep([run], tmp_path / "kept", {run.name: "row"})
    (record,) = read_records(tmp_path / "kept")
    assert record.provenance["command"][2:] == [
        "--config", f"runs/{run.name}/asked.yaml", "--out", "runs", "grid.yaml",
        "--data.root=photos",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "experiment", sorted(p.parent.name for p in EXPERIMENTS.glob("*/records.parquet"))
)
def test_no_record_names_a_place_on_a_machine(experiment):
    for record in read_records(EXPERIMENTS / experiment):
        words = [word.rpartition("=")[2] for word in record.provenance.get("command", ())]
        assert not [word for word in words if Path(word).is_absolute()], record.run


# those without a grid belong to artefacts, see tests/reproduce/test_docs_tables.py
@pytest.mark.parametrize(
    "experiment",
    sorted({p.parent.name for p in EXPERIMENTS.glob("*/*.yaml") if holds_records(p.parent)}),
)
def test_every_record_is_a_run_of_its_grid_under_its_label(experiment):
    grid: dict[tuple[str, int], list] = {}
    for run in runs_of_experiment(EXPERIMENTS / experiment):
        grid.setdefault((run.label, run.spec.seed), []).append(run)
    records = read_records(EXPERIMENTS / experiment)
    # also where a default has changed since: then the grid must say what it was
    for record in records:
        own = grid.get((record.label, record.seed), [])
        assert label_of(record.spec, own) == record.label
    assert (EXPERIMENTS / experiment / "README.md").is_file()
    assert sum(map(len, by_label(records).values())) == len(records)


@pytest.mark.parametrize(
    "experiment",
    sorted({p.parent.name for p in EXPERIMENTS.glob("*/*.yaml") if not holds_records(p.parent)}),
)
def test_a_planned_experiment_can_be_run_and_says_what_it_expects(experiment):
    runs = runs_of_experiment(EXPERIMENTS / experiment)
    assert len({(run.label, run.spec.seed) for run in runs}) == len(runs)
    assert "Hypotheses, written before the runs" in page(experiment)


def test_the_area_under_a_front_and_its_reach_are_those_of_the_stairs():
    points = [(0.0, 0.5), (0.1, 0.8), (0.05, 0.7), (0.3, 0.9), (0.12, 0.6)]
    assert fronts.reach(points, 0.07) == 0.7
    assert fronts.reach(points, 0.12) == 0.8  # a worse point with a larger gap changes nothing
    assert fronts.area(points) == pytest.approx((0.05 * 0.5 + 0.05 * 0.7 + 0.1 * 0.8) / 0.2)


def test_a_table_of_fronts_is_made_of_records():
    made = fronts.table(fronts.measured(EXPERIMENTS / "faces-targets")).splitlines()
    labels = by_label(read_records(EXPERIMENTS / "faces-targets"))
    assert len(made) == 2 + len(labels)


def test_a_record_cannot_write_outside_its_folder(tmp_path):
    runs = unpack(EXPERIMENTS / "faces-lnl-published", tmp_path / "a")
    labels = {run.name: "../../escaped" for run in runs}
    keep(runs, tmp_path / "b", labels)
    with pytest.raises(DataError, match="that is no folder"):
        unpack(tmp_path / "b", tmp_path / "c" / "d")
    assert not (tmp_path / "escaped").exists()


def test_a_label_with_a_slash_is_one_folder(tmp_path):
    runs = unpack(EXPERIMENTS / "faces-lnl-published", tmp_path / "a")
    keep(runs, tmp_path / "b", {run.name: "a/m, ce" for run in runs})
    made = unpack(tmp_path / "b", tmp_path / "c")
    assert {run.relative_to(tmp_path / "c").parent.name for run in made} == {"a-m, ce"}
    assert len({run.name for run in made}) == len(runs)
    keep(runs[:1], tmp_path / "d", {runs[0].name: "/a"})
    with pytest.raises(DataError, match="that is no folder"):
        unpack(tmp_path / "d", tmp_path / "e")


def test_a_folder_without_records_says_what_to_give(tmp_path):
    with pytest.raises(DataError, match="such as experiments/utkface"):
        read_records(tmp_path)


def test_runs_are_kept_by_what_they_were_asked_to_do(tmp_path):
    from shasam.cli import app

    grid = "{profile: smoke, base: {train: {steps: 2}}, runs: [{label: plain, method: ce}]}"
    (tmp_path / "grid.yaml").write_text(grid)
    (made,) = expand_labelled(read_yaml(tmp_path / "grid.yaml"))
    run = unpack(EXPERIMENTS / "faces-lnl-published", tmp_path / "a")[0]
    (run / "spec.yaml").write_text(made.spec.as_yaml())
    (run / "DONE").touch()
    renamed = run.rename(run.parent / "ce-of-an-earlier-release")
    app(["records", "keep", str(renamed.parent), str(tmp_path)], result_action="return_value")
    assert [r.label for r in read_records(tmp_path)] == ["plain"]
