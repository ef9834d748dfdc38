"""The catalogue: one entry makes a metric known everywhere, also from another package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shasam.errors import SpecError
from shasam.metrics import Metric, catalogue, metrics, register
from shasam.metrics.curves import MEASURES

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
GUEST = """
from shasam.metrics import Metric
from shasam.metrics.catalogue import smallest_cell
from shasam.metrics.counts import empty_cell_or_one_group
from shasam.metrics.resampling import Gap, largest
from shasam.metrics.counts import right_by_class

def first_class(n_CPG, positive):
    return right_by_class(n_CPG)[..., :1, :, :]

first_gap = Metric("first_gap", "Gap on the first class", "points", "low", "gap on the first class",
                   Gap(first_class, largest), empty_cell_or_one_group, smallest_cell)
"""


def test_a_metric_of_another_package_is_evaluated_compared_limited_and_printed(
    tmp_path: Path,
) -> None:
    about = tmp_path / "guest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[shasam.metrics]\nfirst_gap = guest:first_gap\n")
    (tmp_path / "guest.py").write_text(GUEST)
    rows = ["label,prediction,group"] + ["a,a,x", "a,b,y", "a,a,y", "b,b,x", "b,b,y"] * 40
    (tmp_path / "p.csv").write_text("\n".join(rows))
    code = (
        "from shasam.metrics import compare, evaluate\n"
        "t, p, g = list('aaabb') * 20, list('ababb') * 20, list('xyyxy') * 20\n"
        "assert evaluate(t, p, g, draws=100)['first_gap'].value == 0.5\n"
        "assert compare(t, p, t, g, draws=100)['first_gap'].difference == 0.5\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    audit = ["-m", "shasam.cli", "audit", "p.csv", "--fail-over", "first_gap=0.4"]
    for words, ends in ((["-c", code], 0), (audit, 1)):
        done = subprocess.run(
            [sys.executable, *words],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == ends, done.stderr
    assert "first_gap ↓" in done.stdout and "first_gap = 0.5000 is over" in done.stderr


def test_a_name_that_is_taken_or_a_direction_that_is_none_is_refused() -> None:
    accuracy = metrics()["accuracy"]
    taken = Metric("accuracy", "Other", "%", "high", "", accuracy.value,
                   accuracy.undefined_because, accuracy.support)  # fmt: skip
    with pytest.raises(SpecError, match="registered twice"):
        register(taken)
    sideways = Metric("new", "New", "%", "sideways", "", accuracy.value,
                      accuracy.undefined_because, accuracy.support)  # fmt: skip
    with pytest.raises(SpecError, match="'high' or 'low'"):
        register(sideways)
    assert "new" not in metrics()


def test_every_metric_is_defined_in_the_documentation_and_nothing_else_is() -> None:
    table = DOCS.read_text(encoding="utf-8").split("## Definitions")[1].split("\n## ")[0]
    first = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    documented = {name for cell in first for name in re.findall(r"`(\w+)", cell)}
    of_curves = {f"{name}_RATE" for name in MEASURES}
    assert {name.removesuffix("_") for name in documented} == set(metrics()) | of_curves


def test_names_of_one_group_lead_to_their_metric() -> None:
    assert catalogue.label_of("ece_old men") == "Calibration error, old men"
    assert catalogue.named("ece_max").label == "Calibration error (max)"
    with pytest.raises(SpecError, match="did you mean 'eo_mean'"):
        catalogue.named("eo_men")
