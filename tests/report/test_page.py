"""The page: what it says, what it leaves out, and what hostile names cannot do to it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from tests.payloads import payloads
from tests.report.hostile import (
    NAMES,
    assert_nothing_added,
    hostile_run,
    parsed,
    plain_run,
)
from tests.report.run_files import make_run

from shasam.errors import DataError, InputError
from shasam.metrics import evaluate
from shasam.report import model_card, write_model_card, write_report
from shasam.report.runs import predictions_of, recorded_subject, subject_of
from shasam.runs.directory import RunDirectory


def test_the_verdict_says_how_accurate_how_unequal_and_how_sure(
    one_run: Path, tmp_path: Path
) -> None:
    text = write_report([one_run], tmp_path / "r.html").read_text(encoding="utf-8")
    e = subject_of(RunDirectory(one_run)).estimates
    assert f"{100 * e['accuracy'].value:.1f} % are classified correctly" in text
    assert f"is recognised {100 * e['eo_mean'].value:.1f} points better in one group" in text
    assert "than chance gives" in text or "what chance alone gives" in text
    assert text.index('id="verdict"') < text.index("<svg class") if "<svg class" in text else True


def test_the_page_holds_every_section_and_stays_under_three_megabytes(
    one_run: Path, tmp_path: Path
) -> None:
    page = write_report([one_run], tmp_path / "r.html", figures_dir=tmp_path / "svg")
    text = page.read_text(encoding="utf-8")
    for section in ("verdict", "setting-0", "groups", "training", "mining", "provenance"):
        assert f'<section id="{section}"' in text or f'id="{section}"' in text
    assert page.stat().st_size < 3_000_000
    assert "FSCL+, published" in text
    assert "shasam audit" in text
    svgs = sorted(p.name for p in (tmp_path / "svg").iterdir())
    assert svgs == ["calibration-0.svg", "groups-0.svg", "scores-0.svg", "tradeoff-0.svg"]
    assert "xmlns" in (tmp_path / "svg" / "groups-0.svg").read_text(encoding="utf-8")


def test_the_page_is_the_same_to_the_byte_when_built_again(one_run: Path, tmp_path: Path) -> None:
    a = write_report([one_run], tmp_path / "r.html").read_bytes()
    assert a == write_report([one_run], tmp_path / "r.html").read_bytes()


def test_a_run_on_vectors_speaks_of_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path, source="embeddings")
    spec = run / "spec.yaml"
    spec.write_text(spec.read_text().replace("data:", "data:\n  features_dim: 8", 1))
    page = write_report([run], tmp_path / "r.html").read_text(encoding="utf-8")
    text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", "", page, flags=re.DOTALL)
    card = write_model_card(run).read_text(encoding="utf-8")
    for words in (text, card):
        assert not re.findall(r".{0,40}\b(?:images?|pictures?)\b", words, flags=re.IGNORECASE)
        assert "test rows" in words and "x.npy" in words


def test_a_run_without_optional_files_says_what_is_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, optional=False, n=200)
    text = write_report([run], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "mining.json" not in text  # nothing was mined, which is no loss to a reader
    assert "The run has no log.jsonl" in text
    assert '<section id="mining"' not in text


def test_the_policy_allows_our_style_and_script_by_hash_and_nothing_else(
    one_run: Path, tmp_path: Path
) -> None:
    text = write_report([one_run], tmp_path / "r.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    plain = policy[1].replace("&#39;", "'")
    assert plain.startswith("default-src 'none'; img-src data:;") and "unsafe" not in plain
    for tag in ("style", "script"):
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(blocks) == 1
        digest = base64.b64encode(hashlib.sha256(blocks[0].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in plain
    found = parsed(tmp_path / "r.html")
    assert not {a for a in found.attributes if a.startswith("on") or a == "style"}
    assert all(a.startswith(("#", "data:image/")) for a in found.addresses)


def test_a_sample_of_hostile_names_adds_nothing_to_the_page(tmp_path: Path) -> None:
    """All of them are in tests/reliability/test_report_injection.py."""
    plain = parsed(write_report([plain_run(tmp_path / "plain")], tmp_path / "p.html", draws=100))
    names = payloads()
    for i in range(0, len(names), 5 * NAMES):
        some = names[i : i + NAMES]
        run = hostile_run(tmp_path / f"h{i}", some)
        page = write_report([run], tmp_path / "h.html", draws=100)
        assert_nothing_added(parsed(page), plain, some)
        card = model_card(RunDirectory(run), subject_of(RunDirectory(run), 100))
        assert "<script" not in card and "<img" not in card


def test_a_comparison_pairs_seeds_and_names_the_baseline(
    many_runs: list[Path], tmp_path: Path
) -> None:
    page = write_report(many_runs, tmp_path / "c.html")
    text = page.read_text(encoding="utf-8")
    assert "shasam against ce" in text and "paired over 3 seeds" in text
    assert "Every run (6)" in text
    assert page.stat().st_size < 3_000_000


def test_metrics_that_disagree_with_the_predictions_are_not_believed(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"r{s}", seed=s, n=400) for s in (0, 1)]
    path = runs[1] / "metrics.json"
    metrics = json.loads(path.read_text(encoding="utf-8"))
    metrics["test"]["eo_mean"]["value"] = 0.77777
    path.write_text(json.dumps(metrics), encoding="utf-8")
    for run in map(RunDirectory, runs):
        believed = recorded_subject(run, 200).estimates["eo_mean"].value
        assert believed == subject_of(run, 200).estimates["eo_mean"].value


def test_the_numbers_of_a_run_come_from_its_predictions(one_run: Path) -> None:
    p = predictions_of(RunDirectory(one_run))
    again = evaluate(
        p.target, p.prediction, p.sensitive, p.scores, classes=p.classes, groups=p.groups
    )
    assert subject_of(RunDirectory(one_run)).estimates == again
    assert p.attribute == "ethnicity" and p.classes == ("female", "male")


def test_folders_that_are_no_runs_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run directory"):
        write_report([tmp_path / "none"], tmp_path / "r.html")
    with pytest.raises(DataError, match=r"no predictions\.parquet"):
        write_report([tmp_path], tmp_path / "r.html")
    with pytest.raises(InputError, match="at least one"):
        write_report([], tmp_path / "r.html")


def test_a_deep_or_broken_json_is_a_sentence_not_a_crash(tmp_path: Path) -> None:
    run = make_run(tmp_path, n=200)
    (run / "mining.json").write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(DataError, match=r"mining\.json is not JSON"):
        write_report([run], tmp_path / "r.html")


def test_the_model_card_lists_every_cell(one_run: Path, tmp_path: Path) -> None:
    text = write_model_card(one_run, tmp_path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert text.count("| female |") == 2 and text.count("| male |") == 2
    assert "**Not for**: Decisions about people." in text


def test_pages_of_one_specification_are_the_same_bytes_whenever_and_however_it_was_run(
    tmp_path: Path,
) -> None:
    """Times, commands and the share of time spent mining stay in provenance.json."""
    pages = []
    for folder in ("a", "somewhere/else"):
        run = make_run(tmp_path / folder, n=400)
        path = run / "provenance.json"
        facts = json.loads(path.read_text(encoding="utf-8"))
        facts |= {
            "started": f"2026-01-0{len(folder)}T11:52:00Z",
            "ended": f"2026-01-0{len(folder)}T12:00:00Z",
            "wall_seconds": 100.0 + len(folder),
            "mine_fraction": 0.01 * len(folder),
            "command": ["shasam", "train", "--out", str(tmp_path / folder)],
            "test_opened": [{"time": f"2026-01-0{len(folder)}T11:59:00Z"}],
        }
        path.write_text(json.dumps(facts), encoding="utf-8")
        page = write_report([run], run / "report.html", draws=200)
        pages.append((page.read_bytes(), write_model_card(run).read_bytes()))
    assert pages[0] == pages[1]
    assert b"provenance.json in the run" in pages[0][0] and b"1 time" in pages[0][0]


def test_the_step_that_the_mining_explorer_opens_with_has_its_pictures_first(
    one_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shasam.report.page.THUMB_BYTES", 120_000)  # enough for one of six steps
    text = write_report([one_run], tmp_path / "r.html").read_text(encoding="utf-8")
    steps = re.findall(
        r'<article class="step"[^>]* data-step="(\d+)".*?</article>', text, re.DOTALL
    )
    blocks = re.findall(r'<article class="step".*?</article>', text, re.DOTALL)
    pictures = [block.count("<img ") for block in blocks]
    assert steps == ["0", "0", "300", "300", "600", "900"]  # in their order
    assert pictures[-1] == 48 and pictures[0] == 0
    assert "thumbnails were left out" in text
