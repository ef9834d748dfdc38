"""The paper's tables as commands: declared once, filled from runs or records, never guessed."""

from __future__ import annotations

import csv
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from shasam.cli import main
from shasam.errors import DataError, SpecError
from shasam.pipeline import sweeps as sweeping
from shasam.report.published import printed_table
from shasam.reproduce import cost, filling, render, table1
from shasam.reproduce.artefact import (
    NAMES,
    Artefact,
    DataLocation,
    artefact,
    cells,
    identity,
    place_of,
)
from shasam.reproduce.filling import (
    RecordedRequest,
    made_with,
    majority_share,
    official_accuracy,
    official_counts,
    official_majority,
)
from shasam.runs.records import read_records
from shasam.spec import resolve

pytestmark = pytest.mark.needs_torch
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TABLES = [name for name in NAMES if artefact(name).kind == "table"]
OWN = """
title: One row
data: celeba
paper: table2
metrics: [eo_mean, accuracy]
base: {data: {n: 64, holdout_per_cell: 8}}
columns: {a/m: {data: {setting: a/m}}}
parts: {resnet: {CE: {method: ce}}}
"""


@pytest.mark.parametrize("profile", ["cpu", "paper"])
@pytest.mark.parametrize("name", TABLES)
def test_every_row_and_column_of_the_package_is_a_specification(name, profile):
    one = artefact(name, profile=profile)
    assert one.data is not None
    runs, refused = cells(one, DataLocation(one.data), profile=profile, seeds=1)
    assert not refused
    assert len(runs) == len(one.rows()) * len(one.columns)
    assert len({(run.identity, one.head(run.row)) for run in runs}) == len(runs)


@pytest.mark.parametrize("name", [name for name in TABLES if artefact(name).paper])
def test_rows_and_columns_that_the_paper_prints_are_found_in_its_table(name):
    one = artefact(name)
    assert one.printed is not None
    assert set(one.columns) == set(one.printed.columns)
    ours = {one.printed_row(row) for row in one.rows()}
    assert set(one.printed.rows) <= ours


def test_the_published_numbers_are_those_of_the_paper():
    table2, fairvit = printed_table("table2"), printed_table("fairvit")
    found = table2.get("SHaSaM FLCMI", "a/m&y", "eo_mean")
    assert found is not None
    assert (found.value, found.deviation) == (14.6, 0.3)
    parity = fairvit.get("FairViT", "a/br", "demographic_parity")
    assert parity is not None
    assert parity.value == pytest.approx(7.01)  # printed as 0.701 e-1
    assert table2.get("CE", "a/m", "demographic_parity") is None
    cells = fairvit.get("FairViT", "a/m", "cell_balanced_accuracy")  # its BA is over cells
    assert cells is not None
    assert cells.value == 79.96


def test_a_table_is_filled_from_records_and_a_cell_without_a_run_is_empty():
    one = artefact("utkface", profile="cpu")
    runs, refused = cells(one, DataLocation("utkface"), profile="cpu", seeds=3)
    done = {
        identity(resolve(run.spec.as_dict())): filling.RunResult(
            {None: {"accuracy": 0.8 + run.seed / 100, "eo_mean": 0.1}, "other": {"accuracy": 0.1}},
            "abc" * 8,
            {"images_seen": 96_000},
        )
        for run in runs
        if (run.row, run.column) == ("FSCL+", "alpha 4")
    }
    full = filling.fill(one, runs, done, profile="cpu", data="utkface", refused=refused)
    assert full.done == 3
    text = render.as_markdown(full)
    accuracy, odds = (line for line in text.splitlines() if line.startswith("| FSCL+ |"))
    assert accuracy == "| FSCL+ | 91.5 · | 92.2 · | 90.1 · 81.0 ± 1.0 (-9.1) |"
    assert odds == "| FSCL+ | 0.6 · | 1.0 · | 1.6 · 10.0 ± 0.0 (+8.4) |"
    for empty in (line for line in text.splitlines() if line.startswith("| MFD |")):
        assert not set(empty) - set("| MFD")
    assert f"3 of {len({run.identity for run in runs})} runs, seeds 0 to 2; data: utkface" in text
    rows = list(csv.DictReader(render.as_csv(full).splitlines()))
    own = [r for r in rows if (r["row"], r["column"]) == ("FSCL+", "alpha 4")]
    assert [r["seeds"] for r in own] == ["3", "3"]
    assert r"90.1 $\cdot$ 81.0 $\pm$ 1.0 (-9.1)" in render.as_latex(full)


def compared(columns: int, seeds: int, own: str) -> list[filling.RowDifference]:
    """An artefact of two rows; CE's accuracy is 0.5, SHaSaM's grows by a point a seed or column."""
    one = artefact("table2", profile="smoke").only(["resnet"], None)
    one = one.only(None, list(one.columns)[:columns])
    runs, refused = cells(one, DataLocation("celeba"), profile="smoke", seeds=seeds)
    numbers = {column: i for i, column in enumerate(one.columns)}
    done = {}
    for run in runs:
        step = run.seed if own == "seed" else numbers[run.column]
        value = 0.5 + (0.02 + 0.01 * step if run.row == "LEARN (FL), negatives mined late" else 0.0)
        test = {None: {"official_accuracy": value, "eo_mean": 0.1}}
        if run.row != "FSCL+" and (run.row, run.seed) != ("CE", 0):  # one row and one seed missing
            done[run.identity] = filling.RunResult(test, "abc" * 8, {"images_seen": 96})
    full = filling.fill(one, runs, done, profile="smoke", data="celeba", refused=refused)
    return list(filling.differences(full))


def test_rows_are_compared_over_settings_or_seeds_whichever_there_are_more_of():
    pair = ("LEARN (FL), negatives mined late", "CE", "official_accuracy")
    settings = {(d.row, d.other, d.metric): d for d in compared(8, 3, "column")}
    assert (pair[0], "FSCL+", pair[2]) not in settings  # FSCL+ has no run
    found = settings[pair]
    assert (found.over, found.ours.support) == ("settings", 8)
    assert found.ours.difference == pytest.approx(2 + 3.5)  # points; the mean of 0 ... 7
    assert found.printed == pytest.approx(
        sum(b - a for a, b in zip(PAPER_CE, PAPER_SHASAM, strict=True)) / 8
    )
    seeds = {(d.row, d.other, d.metric): d for d in compared(2, 4, "seed")}
    found = seeds[pair]
    assert (found.over, found.ours.support) == ("seeds", 3)  # CE lacks the first of four
    assert found.ours.difference == pytest.approx(2 + 2)
    # Student's interval of 1, 2, 3 (standard deviation 1)
    assert found.ours.high - found.ours.difference == pytest.approx(4.303 / 3**0.5, abs=1e-3)


# accuracies of Table 2
PAPER_CE = (79.6, 79.8, 84.0, 84.5, 83.9, 83.8, 72.6, 79.5)
PAPER_SHASAM = (81.3, 79.6, 84.7, 87.0, 85.8, 84.4, 71.8, 79.5)


def test_a_comparison_of_a_row_that_is_not_there_is_an_error(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(f"{OWN}compare: [[CE, Ce]]\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"no row 'Ce'.*did you mean 'CE'"):
        artefact(str(own))


def test_a_row_shows_the_predictions_that_it_names():
    one = artefact("utkface", profile="cpu")
    runs, refused = cells(one, DataLocation("utkface"), profile="cpu", seeds=1)
    row = "FSCL+, balanced second stage"
    assert one.head(row) == "encoder-balanced" and one.head("FSCL+") is None
    own, other = ({r.identity for r in runs if r.row == name} for name in (row, "FSCL+"))
    assert own == other  # the same runs
    tests = {None: {"accuracy": 0.8}, "encoder-balanced": {"accuracy": 0.9}}
    done = {i: filling.RunResult(tests, "abc" * 8, {"images_seen": 1}) for i in own}
    full = filling.fill(one, runs, done, profile="cpu", data="utkface", refused=refused)
    assert full.get("FSCL+", "alpha 4", "accuracy").mean == pytest.approx(80)
    assert full.get(row, "alpha 4", "accuracy").mean == pytest.approx(90)


def test_where_the_data_lies_does_not_make_another_run():
    body = {"method": "ce", "data": {"name": "utkface", "alpha": 4}}
    here = resolve({**body, "data": {**body["data"], "root": "here"}}, profile="cpu")
    there = resolve({**body, "data": {**body["data"], "root": "there"}}, profile="cpu")
    other = resolve({**body, "data": {**body["data"], "root": "here", "alpha": 3}}, profile="cpu")
    assert here.key != there.key
    assert identity(here) == identity(there) != identity(other)


def test_without_a_folder_it_says_what_to_download_and_under_which_licence():
    with pytest.raises(DataError, match=r"celeba=.*non-commercial research.*data\.name=faces"):
        place_of(artefact("table2"))


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'table2'"):
        artefact("tabel2")
    with pytest.raises(SpecError, match="no setting 'a/x'"):
        artefact("table2").only(None, ["a/x"])


@pytest.mark.parametrize("name", ["utkface", "convergence", "table2"])
def test_figures_of_every_kind_are_drawn(name):
    one = artefact(name, profile="cpu")
    assert one.data is not None
    runs, refused = cells(one, DataLocation(one.data), profile="cpu", seeds=2)
    done = {
        run.identity: filling.RunResult(
            {None: {"accuracy": 0.7 + i % 7 / 100, "eo_mean": i % 11 / 100}},
            "0" * 64,
            {"images_seen": i},
        )
        for i, run in enumerate(runs)
    }
    full = filling.fill(one, runs, done, profile="cpu", data=one.data, refused=refused)
    figure = render.draw(full)
    assert figure is not None
    marks = ElementTree.fromstring(render.standalone(figure))
    assert sum("c0" in (mark.get("class") or "").split() for mark in marks.iter()) > 1


def test_a_picture_without_words_is_not_written(tmp_path, monkeypatch, capsys):
    pytest.importorskip("resvg_py")
    figure = render.picture(60, 20, [render.text(2, 15, "words")], "a word")
    render._draws_words.cache_clear()
    # as where no font is installed: a system that has some takes another for one that it lacks
    monkeypatch.setattr(render, "_png", lambda svg, zoom=1: b"the same picture")
    try:
        assert render.save(figure, tmp_path / "a.svg") == [tmp_path / "a.svg"]
    finally:
        render._draws_words.cache_clear()
    assert "no PNG of a.svg: this system has no fonts" in capsys.readouterr().out


def test_what_a_processor_makes_of_the_precision_does_not_make_another_run():
    body = {"method": "ce", "data": {"name": "utkface", "root": "here"}}
    one, two = (
        resolve({**body, "train": {"precision": word}}, profile="short")
        for word in ("32-true", "bf16-mixed")
    )
    assert one.key != two.key
    assert identity(one) == identity(two)


def test_a_part_of_the_images_is_asked_for_in_every_run():
    one = artefact("table2").only(["resnet"], ["a/m"])
    place = place_of(one, celeba=Path("here"), part=True)
    runs, _ = cells(one, place, profile="short", seeds=1)
    assert all(run.spec.data.allow_missing for run in runs)


def run(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0


def test_an_artefact_of_ones_own_runs_once_and_is_not_run_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))
    own = tmp_path / "own.yaml"
    own.write_text(OWN, encoding="utf-8")
    words = ["reproduce", str(own), "--data", "faces", "--profile", "smoke", "--seeds", "1"]
    words += ["--out", str(tmp_path / "runs")]
    to = ["--to", str(tmp_path / "to")]
    run([*words, *to, "--keep", str(tmp_path / "kept")])
    assert "0 of 1 runs are done" in capsys.readouterr().out
    first = (tmp_path / "to" / "own.md").read_text(encoding="utf-8")
    assert "1 of 1 runs, seeds 0 to 0; data: faces" in first
    run([*words, *to])
    assert "1 of 1 runs are done" in capsys.readouterr().out
    # neither profile nor seeds have to be said again
    again = ["--from-records", str(tmp_path / "kept"), "--to", str(tmp_path / "again")]
    run([*words[:4], *again])
    assert files(tmp_path / "again") == files(tmp_path / "to")
    # another machine, which has the records and not the runs
    capsys.readouterr()
    other = ["--out", str(tmp_path / "other"), "--to", str(tmp_path / "there")]
    run([*words[:-2], *other, "--keep", str(tmp_path / "kept")])
    assert "1 of 1 runs are done" in capsys.readouterr().out
    assert not (tmp_path / "other").exists()
    assert files(tmp_path / "there") == files(tmp_path / "to")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_records_were_made_with_is_found_out():
    def lies_in(one: Artefact, part: bool, vectors: bool) -> DataLocation:
        assert not vectors
        return place_of(one, celeba=Path("celeba"), part=part)

    def made(name: str, profile: str | None, columns: list[str] | None = None) -> RecordedRequest:
        def declared(profile: str) -> Artefact:
            return artefact(name, profile=profile).only(None, columns)

        records = EXPERIMENTS / "tables-celeba"
        return made_with(records, declared, lies_in, profile)

    assert made("budget", None) == RecordedRequest("short", part=True, seeds=3)
    found = made("convergence", None, ["50 steps"])  # a column of this profile alone
    assert found.profile == "short"
    with pytest.raises(SpecError, match="no setting '5 steps'"):
        made("convergence", None, ["5 steps"])
    with pytest.raises(DataError, match=r"no record of .* is a run of this artefact"):
        made("budget", "cpu")


def test_a_table_comes_out_of_records_without_torch(tmp_path):
    program = (
        "import sys; from shasam.cli import main\n"
        "try: main(['reproduce', 'table2', '--from-records', sys.argv[1], '--to', sys.argv[2]])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules"
    )
    words = [sys.executable, "-c", program, str(EXPERIMENTS / "tables-celeba"), str(tmp_path)]
    subprocess.run(words, check=True, capture_output=True)
    page = EXPERIMENTS.parent / "docs" / "tables" / "table2.md"
    assert (tmp_path / "table2.md").read_bytes() == page.read_bytes()


def test_rows_on_vectors_of_a_frozen_network_need_vectors(tmp_path, capsys):
    words = ["reproduce", "table2", "--profile", "frozen", "--celeba", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "--features FILE" in capsys.readouterr().err


def test_accuracy_is_weighed_to_the_shares_of_the_whole_test_split():
    protocol = {"target": "Attractive", "sensitive": "Male"}
    right = {(0, 0): (10, 5), (0, 1): (10, 10), (1, 0): (1000, 500), (1, 1): (4, 1)}
    counts = official_counts()["Attractive/Male"]
    total = sum(map(sum, counts))
    wanted = (0.5 * counts[0][0] + counts[0][1] + 0.5 * counts[1][0] + 0.25 * counts[1][1]) / total
    assert official_accuracy(protocol, right) == pytest.approx(wanted)
    assert majority_share(right) == pytest.approx(1004 / 1024)
    assert official_majority("Big_Nose", "Male") == pytest.approx(0.788, abs=5e-4)
    assert official_accuracy({"target": "Young", "sensitive": "Male"}, right) is None
    del right[1, 1]
    assert official_accuracy(protocol, right) is None  # a cell without test rows
    assert total == 19_962 == sum(map(sum, official_counts()["Male/Attractive"]))


def test_the_papers_accuracy_stands_beside_that_of_official_shares_alone():
    one = artefact("table2", profile="short").only(["resnet"], ["a/m"])
    runs, _ = cells(one, DataLocation("celeba"), profile="short", seeds=1, check=False)
    test = {None: {"accuracy": 0.9, "official_accuracy": 0.8, "eo_mean": 0.1}}
    done = {c.asked: filling.RunResult(test, "abc" * 8, {"images_seen": 9}, 0.547) for c in runs}
    how = {"profile": "short", "data": "celeba", "refused": {}}
    full = filling.fill(one, runs, done, **how, key=lambda cell: cell.asked)
    text = render.as_markdown(full)
    assert "| CE | 79.6 · 80.0 (+0.4) |" in text and "| CE | 90.0 |" in text
    assert "whole test split a/m 50.4; in ours a/m 54.7" in text


def test_what_is_done_is_written_and_kept_where_another_run_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))
    own = tmp_path / "own.yaml"
    own.write_text(
        OWN.replace("{CE: {method: ce}}", "{CE: {method: ce}, FSCL+: {method: fscl+}}"),
        encoding="utf-8",
    )
    words = ["reproduce", str(own), "--data", "faces", "--profile", "smoke", "--seeds", "1"]
    words += ["--out", str(tmp_path / "runs"), "--keep", str(tmp_path / "kept")]
    carried_out = sweeping.sweep

    def first_alone(specs, out, how, **more):
        (done,) = carried_out(specs[:1], out, how)  # nothing is told: no table on the way
        return [done, replace(done, spec=specs[1], status="failed")]

    monkeypatch.setattr(sweeping, "sweep", first_alone)
    with pytest.raises(SystemExit) as ended:
        main([*words, "--to", str(tmp_path / "to")])
    assert ended.value.code == 2
    assert "1 of 2 runs" in (tmp_path / "to" / "own.md").read_text(encoding="utf-8")
    assert [record.label for record in read_records(tmp_path / "kept")] == ["CE faces"]


def test_table_1_shows_what_the_printed_objectives_cannot_tell_apart():
    rows = {row[:2]: row[2:] for row in table1.rows()}
    for (_, _), (printed, definition, _) in rows.items():
        assert printed == pytest.approx(definition, abs=1e-9)
    for name in ("FLCMI", "LogDetCMI"):
        apart = rows["target separated", name]
        exchanged = rows["anchors and negatives exchanged", name]
        assert apart[0] == pytest.approx(exchanged[0], abs=1e-9)
        assert exchanged[2] > apart[2] + 0.01
    assert rows["all embeddings equal", "FLCMI"][0] == pytest.approx(0, abs=1e-9)
    assert rows["all embeddings equal", "FLCMI"][2] == pytest.approx(0.6931, abs=1e-3)


def test_the_speed_of_this_machine_is_measured_by_a_few_steps():
    assert cost.on_drawn_faces("smoke", "resnet18") > 0


@pytest.mark.parametrize(
    ("method", "views"),
    [
        ("balanced", 20 * 9600),
        ("shasam", 20 * 1920),  # |V|/b steps of b views
        ("shasam-random", 20 * 1920 * 2),  # two views of each image of a fifth
        ("fscl+", 100 * 9600 * 2),
        ("mfd", 2 * 50 * 9600),  # teacher and student
        ("tadet", 20_000 * 32),  # steps, whatever the number of images
    ],
)
def test_the_estimate_counts_every_view_of_every_stage_on_images(method, views):
    spec = resolve({"method": method, "data": {"name": "utkface"}}, profile="paper")
    assert cost.views_of_training(spec, images=9600) == views
