"""A rate that cannot learn is caught by every message, and a run that learns is not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.data.vector_files import vectors, write_labels

from shasam.cli import main
from shasam.errors import InputError, ShasamWarning
from shasam.export import export
from shasam.report.advice import recommendations
from shasam.report.cards import model_card
from shasam.report.comparison import settings_of
from shasam.report.page import write_report
from shasam.report.run_tables import as_markdown, rows_of
from shasam.report.runs import learnt_of
from shasam.runs.directory import RunDirectory, read_log
from shasam.sklearn import FairClassifier

X, T, S = vectors(600)
BROKEN = ["--lr", "1e-12", "--classify.lr", "1e-12"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("not-learnt")
    np.save(made / "x.npy", X)
    write_labels(made / "labels.csv", T, S)
    return made


def words(folder: Path, method: str, *more: str) -> list[str]:
    data = ["--features", str(folder / "x.npy"), "--csv", str(folder / "labels.csv")]
    asked = ["--target", "smiles", "--sensitive", "group", "--out", str(folder / "runs")]
    return ["train", method, *data, *asked, "--steps", "60", "--threads", "1", *more]


def trained(folder: Path, method: str, *more: str) -> tuple[RunDirectory, int]:
    """A run and its exit code; the newest folder is the run."""
    code = 0
    try:
        main(words(folder, method, *more))
    except SystemExit as end:
        code = int(end.code or 0)
    runs = sorted((folder / "runs").glob(f"{method}-*"), key=lambda p: p.stat().st_mtime_ns)
    return RunDirectory(runs[-1]), code


@pytest.fixture(scope="module")
def broken(folder: Path) -> RunDirectory:
    run, code = trained(folder, "ce", *BROKEN)
    assert code == 3
    return run


@pytest.fixture(scope="module")
def good(folder: Path) -> RunDirectory:
    run, code = trained(folder, "balanced")
    assert code == 0
    return run


def test_the_terminal_says_it_first_and_the_exit_code_is_3(folder, broken, capsys) -> None:
    capsys.readouterr()
    _, code = trained(folder, "ce", *BROKEN)  # done already: said again
    out = capsys.readouterr().out
    assert code == 3 and out.lstrip().startswith("The model has not learnt")
    _, code = trained(folder, "ce", *BROKEN, "--allow-chance")
    assert code == 0


def test_the_metrics_keep_the_verdict(broken, good) -> None:
    assert broken.metrics()["learnt"]["learnt"] is False and good.metrics()["learnt"]["learnt"]
    assert broken.learnt() == learnt_of(broken) and good.learnt().ok


def test_a_run_without_a_verdict_is_judged_by_its_predictions(broken, tmp_path) -> None:
    copy = tmp_path / broken.path.name
    copy.mkdir()
    for name in ("spec.yaml", "predictions.parquet", "provenance.json", "log.jsonl"):
        (copy / name).write_bytes(broken.file(name).read_bytes())
    body = {key: value for key, value in broken.metrics().items() if key != "learnt"}
    (copy / "metrics.json").write_text(json.dumps(body))
    old = RunDirectory(copy)
    assert old.learnt() is None and learnt_of(old).own == broken.learnt().own


def test_the_page_and_the_card_begin_with_it(broken, good, tmp_path) -> None:
    for run, said in ((broken, True), (good, False)):
        page = write_report([run.path], tmp_path / "page.html").read_text(encoding="utf-8")
        verdict = page[page.index('id="verdict"') :]
        assert ("The model has not learnt" in verdict[:400]) is said
        card = model_card(run)
        assert ("has not learnt" in card[: card.index("## What it is")]) is said
        assert ("has not learnt" in run.file("MODEL_CARD.md").read_text(encoding="utf-8")) is said


def test_export_refuses_unless_it_is_told_to(broken, good, tmp_path) -> None:
    with pytest.raises(InputError, match=r"has not learnt.*allow_chance="):
        export(broken.path, "safetensors", tmp_path / "m.safetensors")
    assert not (tmp_path / "m.safetensors").exists()
    export(broken.path, "safetensors", tmp_path / "m.safetensors", allow_chance=True)
    export(good.path, "safetensors", tmp_path / "good.safetensors")
    with pytest.raises(SystemExit) as end:
        main(["export", str(broken.path), "--out", str(tmp_path / "m.onnx")])
    assert end.value.code == 2


def test_a_comparison_marks_it_and_does_not_recommend_it(broken, good, tmp_path) -> None:
    runs = [broken, good]
    (advice,) = recommendations(runs)
    assert "ce@mlp is left out: 1 of its 1 run has not learnt" in advice
    assert "Take" not in advice
    assert "ce (1 of 1 not learnt)" in as_markdown(rows_of([run.path for run in runs]))
    (block,) = settings_of(runs, {}, draws=200, seed=0)
    assert [row["mark"] for row in block["rows"]] == ["not learnt", ""]
    assert (
        "not learnt" in block["figure"]
        and "ce@mlp is not shown to have learnt" in block["verdict"][0]
    )


def test_the_plateau_is_said_once_while_it_lasts(folder, broken, good) -> None:
    said = [e for e in read_log(broken.file("log.jsonl")) if e["event"] == "plateau"]
    assert (
        len(said) == 1
        and said[0]["step"] == 12
        and "higher rate (--lr 1e-11)" in said[0]["message"]
    )
    assert not [e for e in read_log(good.file("log.jsonl")) if e["event"] == "plateau"]


def test_a_second_stage_that_does_not_learn_is_named(folder) -> None:
    run, code = trained(folder, "supcon", "--classify.lr", "1e-12", "--classify.epochs", "60")
    learnt = run.learnt()
    assert code == 3 and learnt is not None and learnt.features is not None
    assert learnt.features.learnt and "it is the classifier that has not" in learnt.sentences()[0]
    said = [e for e in read_log(run.file("log.jsonl")) if e["event"] == "plateau"]
    assert [e["stage"] for e in said] == ["classify"] and "--classify.lr" in said[0]["message"]


def test_a_plateau_stops_the_run_where_asked_to(folder, capsys) -> None:
    _, code = trained(folder, "ce", *BROKEN, "--on-plateau", "stop")
    assert code == 2 and "--on-plateau stop" in capsys.readouterr().err


def test_the_rate_is_lowered_twice_and_the_log_has_it(folder) -> None:
    run, code = trained(folder, "ce", *BROKEN, "--on-plateau", "lower-rate")
    log = read_log(run.file("log.jsonl"))
    said = [e for e in log if e["event"] == "plateau"]
    assert code == 3 and [e["step"] for e in said][:2] == [12, 24]
    assert "lowered from 1e-12 to 3.3e-13" in said[0]["message"]
    assert run.spec().train.on_plateau == "lower-rate"
    rates = [e["lr"] for e in log if e["event"] == "epoch"]
    assert rates[-1] < 1e-12 / 9


def test_the_default_leaves_the_name_of_a_run_as_it_was(good) -> None:
    assert "on_plateau" not in good.file("spec.yaml").read_text(encoding="utf-8")


# an untrained network of this seed has the classes the wrong way round
def test_the_estimator_warns_and_is_silent_where_it_learns() -> None:
    with pytest.warns(ShasamWarning, match=r"has not learnt.*training rows"):
        FairClassifier("ce", steps=60, lr=1e-12, random_state=2).fit(X, T, sensitive=S)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShasamWarning)
        model = FairClassifier("balanced", steps=60).fit(X, T, sensitive=S)
    assert model.skill_.learnt
