"""A comparison of cross-entropy with one method says the gap before and after, and draws it."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from run_files import make_run

from shasam.metrics import over_seeds
from shasam.report import write_report
from shasam.report.runs import opened_runs, subject_of


def verdict_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return unescape(text[text.index('id="verdict"') : text.index('id="setting-0"')])


def test_two_methods_are_told_as_before_and_after(many_runs: list[Path], tmp_path: Path) -> None:
    verdict = verdict_of(write_report(many_runs, tmp_path / "c.html"))
    for word, method in (("Before", "ce"), ("After", "shasam")):
        runs = [run for run in opened_runs(many_runs) if run.method == method]
        subjects = [subject_of(run, 200, 0) for run in runs]
        gap, right = (
            f"{100 * over_seeds([s.estimates[key] for s in subjects]).mean:.1f}"
            for key in ("eo_mean", "accuracy")
        )
        (line,) = re.findall(rf"<p>({word}, with [a-z-]*\W*{method}\b.*?)</p>", verdict)
        assert f"a gap of {gap} points" in line and f"{right} %" in line


def test_the_lines_of_the_picture_are_as_long_as_the_gaps(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, m, method=m, gap=g) for m, g in (("ce", 1.0), ("shasam", 0.1))]
    verdict = verdict_of(write_report(runs, tmp_path / "c.html"))
    figure = verdict[verdict.index("<svg", verdict.index("legend")) :]
    ends = re.findall(r'd="M([\d.]+) [\d.]+L([\d.]+) [\d.]+" class="whisker"', figure)
    labels = [float(label) for label in re.findall(r">gap ([\d.]+)<", figure)]
    lengths = [100 * (float(b) - float(a)) / 384 for a, b in ends]
    assert len(labels) == 4  # two classes, two methods
    assert lengths == pytest.approx(labels, abs=0.1)


def test_three_methods_have_no_before_and_after(many_runs: list[Path], tmp_path: Path) -> None:
    third = make_run(tmp_path, "fscl", method="fscl", seed=0, gap=0.4, n=800)
    verdict = verdict_of(write_report([*many_runs, third], tmp_path / "c.html"))
    assert "Before" not in verdict
