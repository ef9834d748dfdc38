"""The table of several attributes at once, on predictions with numbers that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments import attributes
from shasam.documents import read_yaml
from shasam.metrics import evaluate

GRID = Path(attributes.__file__).parent / "several-attributes" / "grid.yaml"


def test_groups_are_read_off_the_names_and_eo_is_that_of_the_catalogue():
    rng = np.random.default_rng(0)
    ages, races = rng.integers(1, 90, 900), rng.integers(0, 5, 900)
    ids = [f"{a}_0_{r}_x.jpg" for a, r in zip(ages, races, strict=True)]
    t_N, p_N = rng.integers(0, 2, (2, 900))
    found = attributes.groups(ids)
    assert found[attributes.AGE].tolist() == [int(int(i.split("_")[0]) < 35) for i in ids]
    for s_N in found.values():
        wanted = evaluate(t_N, p_N, s_N.astype(str), draws=100)["eo_mean"].value
        assert attributes.eo(t_N, p_N, s_N) == pytest.approx(wanted)
    assert len(np.unique(found[attributes.BOTH])) == 10


def test_differences_are_paired_over_seeds_and_the_tests_are_rows_of_the_grid():
    runs = read_yaml(GRID)["runs"]
    labels = {run["label"] for run in runs}
    assert {row for on, off, _ in attributes.PRIMARY for row in (on, off)} <= labels
    found = {
        label: {m: {s: 10.0 + s + (label == "ce") for s in (0, 1)} for m in attributes.MEASURES}
        for label in ("ce", "balanced, race")
    }
    assert "| ce | 2 | 11.5 ± 0.7 |" in attributes.table(found)
    line = attributes.differences(found).splitlines()[-1]
    assert line.startswith("| balanced, race | ce | EO age<35 | −1.0 (")
    assert attributes.differences({}) == "Differences need two seeds."
