"""The page: what it says, what it leaves out, and what hostile names cannot do to it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from payloads import payloads
from run_files import make_run

from shasam.errors import DataError, InputError
from shasam.metrics import evaluate
from shasam.report import Run, model_card, write_model_card, write_report
from shasam.report.comparing import entry_of


class Elements(HTMLParser):
    """Counts elements and notes every attribute name."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            self.attributes[name] += 1
            if name in ("src", "href"):
                self.addresses.append(value or "")


def parsed(page: Path) -> Elements:
    found = Elements()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def test_the_verdict_says_how_accurate_how_unequal_and_how_sure(
    one_run: Path, tmp_path: Path
) -> None:
    text = write_report([one_run], tmp_path / "r.html").read_text(encoding="utf-8")
    e = Run(one_run).subject().estimates
    assert f"{100 * e['accuracy'].value:.1f} % are classified correctly" in text
    assert f"differs by {100 * e['eo_mean'].value:.1f} points on average" in text
    assert "what chance" in text
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


def test_a_run_without_optional_files_says_what_is_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, optional=False, n=200)
    text = write_report([run], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "The run has no mining.json: the mining explorer is left out." in text
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


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_two_hundred_hostile_names_add_nothing_to_the_page(tmp_path: Path, every: int) -> None:
    names = payloads()
    assert len(set(names)) == 200
    plain = make_run(
        tmp_path / "plain", "run", n=160, classes=tuple("abcd"), groups=tuple("wxyz"), source="mine"
    )
    base = parsed(write_report([plain], tmp_path / "plain.html", draws=100))
    for i in range(0, 200, 10 * every):
        some = names[i : i + 10]
        folder = re.sub(r"[/\x00\\\\]", "_", some[9])[:60].strip(". ") or "x"
        run = make_run(tmp_path / f"h{i}", folder, method=some[8], sensitive=some[9], n=160,
                       source="mine", classes=tuple(some[:4]), groups=tuple(some[4:8]))  # fmt: skip
        mining = json.loads((run / "mining.json").read_text(encoding="utf-8"))
        for k, name in enumerate(some[:6]):
            mining["iterations"][k]["sets"]["anchors"][0]["id"] = name
            mining["iterations"][k]["sets"]["anchors"][1]["thumb"] = name
        (run / "mining.json").write_text(json.dumps(mining), encoding="utf-8")
        found = parsed(write_report([run], tmp_path / "h.html", draws=100))
        for tag in ("script", "style", "iframe", "a", "form", "link", "meta", "base", "object",
                    "embed", "input", "body", "math", "button", "b", "mi"):  # fmt: skip
            assert found.tags[tag] == base.tags[tag], (tag, some)
        assert set(found.tags) <= set(base.tags)
        assert set(found.attributes) <= set(base.attributes)
        assert all(x.startswith(("#", "data:image/")) for x in found.addresses)
        card = model_card(Run(run), Run(run).subject(100))
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
    believed = [entry_of(Run(r), 200, 0).estimates["eo_mean"].value for r in runs]
    assert believed == [Run(r).subject(200).estimates["eo_mean"].value for r in runs]


def test_the_numbers_of_a_run_come_from_its_predictions(one_run: Path) -> None:
    p = Run(one_run).predicted
    g = p.groupings[0]
    again = evaluate(p.t, p.p, g.s, p.scores_NC, classes=p.classes, groups=g.names)
    assert Run(one_run).subject().estimates == again
    assert g.attribute == "ethnicity" and p.classes == ("female", "male")


def test_folders_that_are_no_runs_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run directory"):
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
    assert "Not for decisions about people" in text
