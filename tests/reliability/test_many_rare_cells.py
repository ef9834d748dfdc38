"""Rare cells: 50 random designs with cells of 1 to 30 images train to the end, over 40 epochs."""

from __future__ import annotations

import pytest
from tests.mining.test_rare_cells import train_design

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(50))
def test_a_random_design_trains_to_the_end(seed, tmp_path, monkeypatch):
    epochs, _ = train_design(seed, tmp_path, monkeypatch)
    learnt = [line for line in epochs if line["stage"] == "learn"]
    assert learnt[-1]["step"] == 40 and len(learnt) >= 10
