"""The batch plan: ground sets, cells, hardness, small pools, resume."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from shasam.errors import DataError
from shasam.mining import MiningConfig
from shasam.sampling import MinedPlan, TrainingRows

MINED = {"anchors": "logdet", "positives": "flcg", "negatives": "flqmi"}
RANDOM = {"anchors": "random", "positives": "random", "negatives": "random"}
NEGATIVES = {**RANDOM, "negatives": "flqmi", "represented": "candidates"}


def labels(n=600, classes=2, groups=2, seed=0):
    rng = np.random.default_rng(seed)
    t = torch.from_numpy(rng.integers(0, classes, n))
    s = torch.from_numpy(rng.integers(0, groups, n))
    return t, s, torch.arange(0, n, 1)[rng.permutation(n)[: n - 60]].sort().values


class Eye:
    """An encoder that gives every row its own fixed direction, and counts what it embeds."""

    def __init__(self, n=600):
        self.z = torch.randn(n, 16, generator=torch.Generator().manual_seed(0))
        self.calls = 0

    def __call__(self, rows):
        self.calls += len(rows)
        return self.z[rows]


def make(batch=48, total=60, n=600, classes=2, groups=2, **settings):
    t, s, rows = labels(n, classes, groups)
    plan = MinedPlan(TrainingRows(t, s, rows, batch, 7), MiningConfig(**settings))
    plan.total_steps = total
    return plan, t, s, rows


def walk(plan, embed, start, stop):
    out = []
    for step in range(start, stop):
        drawn = plan.draw(plan.epoch_of(step), step, embed)
        plan.observe(drawn.rows_B, torch.nn.functional.normalize(embed.z[drawn.rows_B], dim=1))
        out.append(drawn)
    return out


@pytest.mark.parametrize("pairs", ["all", "one"])
@pytest.mark.parametrize("mined", [RANDOM, NEGATIVES, MINED])
def test_every_batch_is_full_and_every_triplet_fits_its_labels(pairs, mined):
    plan, t, s, rows = make(pairs=pairs, start=0.2, ramp=0.2, pool=3, ground=0.5, **mined)
    for drawn in walk(plan, Eye(), 0, 60):
        assert len(drawn.rows_B) == 48
        assert set(drawn.rows_B.tolist()) <= set(rows.tolist())
        for triplet in drawn.triplets:
            sets = (triplet.anchors, triplet.positives, triplet.negatives)
            a, p, n = (drawn.rows_B[x] for x in sets)
            assert bool(((t[a] == triplet.target) & (s[a] == triplet.sensitive)).all())
            assert bool(((t[p] == triplet.target) & (s[p] != triplet.sensitive)).all())
            assert bool(((t[n] != triplet.target) & (s[n] == triplet.sensitive)).all())


def test_with_all_pairs_every_cell_is_the_anchors_once_and_cells_are_equal():
    plan, t, s, _ = make(**RANDOM, roles="shared")
    drawn = plan.draw(0, 0, Eye())
    assert {(x.target, x.sensitive) for x in drawn.triplets} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    cells = torch.stack([t[drawn.rows_B], s[drawn.rows_B]], dim=1).unique(dim=0, return_counts=True)
    assert cells[1].tolist() == [12, 12, 12, 12]


def test_more_classes_and_groups_share_a_batch():
    plan, *_ = make(batch=54, classes=3, groups=3, ground=1.0, **RANDOM)
    drawn = plan.draw(0, 0, Eye())
    assert len(drawn.triplets) == 9 and len(drawn.rows_B) == 54


def test_the_ground_set_is_a_fifth_and_disjoint_from_the_one_before():
    plan, *_ = make(**RANDOM)
    sets = []
    for epoch in range(4):
        plan.draw(epoch, epoch * plan.steps_per_epoch, Eye())
        sets.append(set(plan.ground.tolist()))
    assert all(len(x) == 108 for x in sets)
    assert all(not (a & b) for a, b in pairwise(sets))
    literal, *_ = make(ground_shrinks=True, **RANDOM)
    sizes = []
    for epoch in range(3):
        literal.draw(epoch, literal.steps_of(epoch) if epoch else 0, Eye())
        sizes.append(len(literal.ground))
    assert sizes[0] == 108 and sizes[1] < 108


def test_no_triplet_repeats_within_training():
    plan, *_ = make(pool=3, ground=0.5, represented="candidates", refresh="free", **MINED)
    drawn = [tuple(sorted(d.rows_B.tolist())) for d in walk(plan, Eye(), 0, 60)]
    assert len(set(drawn)) == len(drawn)


def test_nothing_is_embedded_before_mining_starts_and_live_embeds_the_pools_after():
    plan, *_ = make(start=0.5, pool=2.0, refresh="live", **NEGATIVES)
    eye = Eye()
    walk(plan, eye, 0, 30)
    assert eye.calls == 0
    walk(plan, eye, 30, 31)
    # 4 pairs x (4 anchors + 4 positives + 8 candidates for negatives), each image once
    assert 0 < eye.calls <= 4 * 16
    assert plan.counters()["embedded"] == eye.calls


@pytest.mark.parametrize("refresh,most", [("free", 40), (5, 64), ("live", 64)])
def test_an_embedding_that_a_training_step_left_is_used_for_free(refresh, most):
    plan, *_ = make(start=0.5, pool=2.0, ground=1.0, total=200, refresh=refresh, **NEGATIVES)
    eye = Eye()
    walk(plan, eye, 0, 100)
    before = eye.calls
    walk(plan, eye, 100, 110)
    used = (eye.calls - before) / 10
    assert used <= most
    if refresh == "free":
        assert used < 2  # nearly every row has been trained on by now
    if refresh == "live":
        assert used > 48


def test_hardness_grows_from_one_to_the_pool():
    plan, *_ = make(total=100, start=0.4, ramp=0.2, pool=3.0, ground=1.0)
    assert plan.hardness(39) == 0.0
    assert plan.hardness(50) == pytest.approx(0.5)
    assert plan.hardness(60) == pytest.approx(1.0)
    assert plan.hardness(99) == 1.0
    plan.draw(0, 0, Eye())
    plan._taken_N.zero_()
    sizes = [len(plan._candidates((0, 0), "negatives", 4, hard)) for hard in (0.0, 0.5, 1.0)]
    assert sizes == [4, 8, 12]
    whole, *_ = make(total=100, ground=1.0)
    whole.draw(0, 0, Eye())
    whole._taken_N.zero_()
    cell = whole.cells[1, 0]
    assert sorted(whole._candidates((0, 0), "negatives", 4, 1.0)) == sorted(cell)


@pytest.mark.parametrize("refresh", ["live", "epoch", "free", 7])
@pytest.mark.parametrize("cut", [3, 31, 47])
def test_a_plan_restored_from_its_state_draws_the_same_batches(refresh, cut):
    settings = dict(start=0.3, ramp=0.3, pool=3, ground=0.4, refresh=refresh, **MINED)
    whole, *_ = make(**settings)
    expected = walk(whole, Eye(), 0, 60)
    first, *_ = make(**settings)
    walk(first, Eye(), 0, cut)
    second, *_ = make(**settings)
    second.load_state({k: v.clone() for k, v in first.state().items()})
    for a, b in zip(expected[cut:], walk(second, Eye(), cut, 60), strict=True):
        assert torch.equal(a.rows_B, b.rows_B)
    assert second.counters() == whole.counters()


def test_a_pool_smaller_than_k_is_counted_and_follows_its_policy():
    t, s, rows = labels()
    rare = rows[(t[rows] == 0) & (s[rows] == 0)][:2]
    rows = torch.cat([rows[~((t[rows] == 0) & (s[rows] == 0))], rare])
    sizes = {}
    for policy in ("repeat", "shrink"):
        plan = MinedPlan(
            TrainingRows(t, s, rows, 48, 0), MiningConfig(small_pool=policy, ground=1.0, **RANDOM)
        )
        drawn = plan.draw(0, 0, Eye())
        sizes[policy] = len(drawn.rows_B)
        assert plan.counters()["small_pools"] > 0
    assert sizes["repeat"] == 48 > sizes["shrink"]


def test_a_batch_too_small_for_all_pairs_says_what_fits():
    with pytest.raises(DataError, match=r"raise the size of a batch: train\.learn\.batch_views=12"):
        make(batch=9)


@pytest.mark.parametrize("groups", [2, 3, 5, 7])
@pytest.mark.parametrize("pairs", ["all", "one"])
def test_a_batch_has_as_many_images_as_the_specification_says_for_any_number_of_groups(
    groups, pairs
):
    plan, t, s, _ = make(
        batch=47, groups=groups, ground=1.0, pairs=pairs, start=0.5, pool=3, **NEGATIVES
    )
    seen = torch.zeros(2, groups)
    for drawn in walk(plan, Eye(), 0, 60):
        assert len(drawn.rows_B) == 47
        for i, j in zip(t[drawn.rows_B], s[drawn.rows_B], strict=True):
            seen[i, j] += 1
    if pairs == "all":  # who has one image more rotates: no cell is drawn much more often
        assert float(seen.max() / seen.min()) < 1.2


@pytest.mark.parametrize(("pairs", "wanted"), [("all", 3 * 4 * 5), ("one", 3 * 5)])
def test_a_budget_decides_the_batch(pairs, wanted):
    plan, *_ = make(pairs=pairs, k=5, ground=0.5, **MINED)
    assert plan.batch_size == wanted and plan.k == 5
    for drawn in walk(plan, Eye(), 0, 3):
        assert len(drawn.rows_B) == wanted
        if pairs == "one":
            assert len(drawn.triplets[0].anchors) == 5
