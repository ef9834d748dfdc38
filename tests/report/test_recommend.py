"""Which model to take: decided on validation, and no more certain than the seeds are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.report.run_files import make_run

from shasam.errors import SpecError
from shasam.report import write_report
from shasam.report.comparison import recommendations
from shasam.report.runs import opened_runs


def runs_of(folder: Path, values: dict[str, list[tuple[float, float]]]) -> list[Path]:
    """For each method validation accuracy and EO of its seeds."""
    paths = []
    for method, seeds in values.items():
        for seed, (accuracy, eo) in enumerate(seeds):
            path = make_run(folder, f"{method}-{seed}", method=method, seed=seed, n=200)
            spec = yaml.safe_load((path / "spec.yaml").read_text()) | {"seed": seed}
            (path / "spec.yaml").write_text(yaml.safe_dump(spec))
            metrics = json.loads((path / "metrics.json").read_text())
            metrics["val"] = {"accuracy": {"value": accuracy}, "eo_mean": {"value": eo}}
            (path / "metrics.json").write_text(json.dumps(metrics))
            paths.append(path)
    return paths


PLAIN = [(0.80, 0.20), (0.81, 0.21), (0.80, 0.19)]
FAIR = [(0.80, 0.05), (0.80, 0.06), (0.80, 0.04)]
NOISY = [(0.80, 0.30), (0.81, 0.02), (0.80, 0.10)]


def test_the_smallest_gap_within_a_point_of_accuracy_is_recommended_with_its_interval(
    tmp_path: Path,
) -> None:
    poor = [(0.60, 0.01)] * 3  # fair because it knows nothing
    runs = opened_runs(runs_of(tmp_path, {"ce": PLAIN, "fair": FAIR, "poor": poor}))
    (line,) = recommendations(runs)
    assert line.startswith("Take fair:") and "of the 2 methods within a point" in line
    assert "Against ce its EO is smaller by 15.0 points" in line and "3 seeds" in line
    assert "fair-2" in line  # the seed with the smallest gap on validation
    (line,) = recommendations(runs, "fair")
    assert "Against" in line  # it is the baseline itself: it is set against the next best
    with pytest.raises(SpecError, match="--baseline fiar"):
        recommendations(runs, "fiar")


def test_what_seeds_do_not_show_is_said_to_be_not_established(tmp_path: Path) -> None:
    runs = opened_runs(runs_of(tmp_path / "a", {"ce": PLAIN, "noisy": NOISY}))
    (line,) = recommendations(runs)
    assert line.startswith("Take noisy:") and "a smaller EO is not established" in line
    runs = opened_runs(runs_of(tmp_path / "b", {"ce": PLAIN[:1], "fair": FAIR[:1]}))
    (line,) = recommendations(runs)
    assert "the difference is not established: they have 1 seed in common" in line


def test_the_page_recommends_compares_with_the_baseline_asked_for_and_can_leave_out_pictures(
    tmp_path: Path,
) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "fair": FAIR})
    item = {"id": "x", "gain": 1.0, "similarity": 0.5, "thumb": "data:image/jpeg;base64,/9j/4AAQ"}
    sets = {"anchors": [item], "positives": [item], "negatives": [item]}
    body = {"iterations": [{"step": 1, "target": 0, "sensitive": 0, "sets": sets}]}
    (paths[-1] / "mining.json").write_text(json.dumps(body))
    page = write_report(paths, tmp_path / "a.html", baseline="fair").read_text()
    assert "Take fair:" in page and "ce against fair:" in page
    one = write_report(paths[-1:], tmp_path / "b.html").read_text()
    assert "base64,/9j/4AAQ" in one
    one = write_report(paths[-1:], tmp_path / "c.html", thumbnails=False).read_text()
    assert "base64,/9j/4AAQ" not in one and "left out to keep the page small" not in one
