"""Cells of a few images: no epoch is left without them, and training goes on to its end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.mining.rare_cells import CellData, random_design

from shasam.keyed import keyed
from shasam.mining import MiningConfig, feasible_pairs
from shasam.pipeline import results
from shasam.pipeline.execute import execute
from shasam.runs.directory import read_log
from shasam.sampling import MinedPlan, TrainingRows
from shasam.spec import resolve
from shasam.training.runtime import Runtime


def plan_of(counts_CG, batch=48, **config):
    data = CellData(counts_CG, size=1)
    t, s = torch.tensor(data.manifest.t_N), torch.tensor(data.manifest.s_N)
    plan = MinedPlan(TrainingRows(t, s, data.rows("train"), batch, 7), MiningConfig(**config))
    plan.total_steps = 200 * plan.steps_per_epoch
    return plan, t, s


def embed(rows):
    return torch.randn(len(rows), 8, generator=torch.Generator().manual_seed(int(rows.sum())))


def served_pairs(plan, epochs):
    """Pairs of each epoch's first batch, as sets."""
    for epoch in range(epochs):
        drawn = plan.draw(epoch, epoch * plan.steps_per_epoch, embed)
        yield {(x.target, x.sensitive) for x in drawn.triplets}


@pytest.mark.parametrize("shrinks", [False, True])
def test_every_epoch_serves_every_pair_of_a_cell_of_sixteen_among_a_thousand(shrinks):
    # the smallest cell is expected 3.2 times in a fifth of the data, and missing in 3 % of epochs
    plan, *_ = plan_of(np.array([[484, 16], [16, 484]]), ground_shrinks=shrinks)
    for served in served_pairs(plan, 80):
        assert served == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("config", [{}, {"pairs": "one"}, {"pairs": "one", "small_pool": "redraw"}])
def test_every_pair_of_a_random_design_is_served_in_every_epoch(seed, config):
    plan, t, s = plan_of(random_design(seed), **config)
    rows = plan.rows
    feasible = set(feasible_pairs(t[rows], s[rows]))
    for served in served_pairs(plan, 25):
        assert served <= feasible
        if plan.config.pairs == "all":
            assert served == feasible
        ground = plan.ground
        assert set(feasible_pairs(t[ground], s[ground])) == feasible
        assert len(ground.unique()) == len(ground)


def test_a_ground_set_that_has_every_cell_stays_as_it_was_drawn():
    plan, *_ = plan_of(np.full((2, 2), 100))
    before = torch.zeros(0, dtype=torch.int64)
    for epoch, _ in enumerate(served_pairs(plan, 20)):
        order = keyed(7, 0, epoch).permutation(len(plan.rows))
        shuffled = plan.rows[torch.from_numpy(order)]
        fresh = ~torch.isin(shuffled, before)
        before = torch.cat([shuffled[fresh], shuffled[~fresh]])[: plan.size]
        assert torch.equal(plan.ground, before)


def test_a_pair_that_the_training_split_cannot_serve_is_skipped_and_counted():
    # group 2 is seen with class 0 alone: nobody in it can be a negative of (0, 2)
    plan, *_ = plan_of(np.array([[9, 9, 9], [9, 9, 0]]))
    assert next(served_pairs(plan, 1)) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert plan.counters()["skipped_pairs"] == 2


def train_design(seed, out, monkeypatch):
    """A whole run on a random design; its log and its data."""
    monkeypatch.setattr(results, "evaluate", quick(results.evaluate))
    method = ("shasam", "shasam-ld", "shasam-literal")[seed % 3]
    layers = {
        "method": method,
        "seed": seed,
        "data": {"size": 16},
        "train": {"steps": 40, "learn": {"batch_views": 96}, "classify": {"epochs": 2}},
    }
    data = CellData(random_design(seed), seed=seed)
    runtime = Runtime(device="cpu", quiet=True)
    run = execute(resolve(layers, profile="smoke"), out, runtime=runtime, data=data)
    assert run.done
    return [line for line in read_log(run.file("log.jsonl")) if line["event"] == "epoch"], data


def quick(original):
    """Intervals from few draws: they cost more than the tiny run itself."""
    return lambda *args, **kwargs: original(*args, **{**kwargs, "draws": 100})


@pytest.mark.parametrize("seed", range(3))
def test_random_designs_with_cells_of_1_to_30_images_train_to_the_end(seed, tmp_path, monkeypatch):
    epochs, data = train_design(seed, tmp_path, monkeypatch)
    assert max(line["step"] for line in epochs if line["stage"] == "learn") == 40
    rows = data.rows("train").numpy()
    t, s = torch.tensor(data.manifest.t_N[rows]), torch.tensor(data.manifest.s_N[rows])
    skipped = data.classes * data.groups - len(feasible_pairs(t, s))
    assert epochs[0]["plan"]["skipped_pairs"] == skipped
