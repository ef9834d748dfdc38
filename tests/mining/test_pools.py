"""Miners: exact counts, labels, order, hardness."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shasam.errors import ContractError, InputError
from shasam.mining import (
    Ground,
    MinedSets,
    Miner,
    Pools,
    RandomMiner,
    ShasamMiner,
    feasible_pairs,
    pools_of,
)
from shasam.submodular import FL1MI, FLQMI, maximize
from shasam.testing import check_miner
from shasam.types import Triplet

NEGATIVES = {"anchors": "random", "positives": "random"}
MINERS = {
    "random": RandomMiner(),
    "fl": ShasamMiner(),
    "ld": ShasamMiner.ld(),
    "flqmi": ShasamMiner(negatives="flqmi"),
    "over the candidates": ShasamMiner(represented="candidates"),
    "stochastic": ShasamMiner(greedy="stochastic"),
    "trimmed": ShasamMiner(trim=0.2),
    "rbf": ShasamMiner(similarity="rbf"),
    "semihard": ShasamMiner(**NEGATIVES, negatives="semihard"),
    "representative": ShasamMiner(anchors="fl", positives="herding", negatives="herding"),
    "stochastic herding": ShasamMiner(anchors="herding", greedy="stochastic"),
    "negatives alone": ShasamMiner(**NEGATIVES, negatives="flqmi"),
    "all that is left out": ShasamMiner(
        margin=0.95, scores=(-0.5, 0.6), ranks=(0.05, 0.9), vote=5, trim=0.1
    ),
}


@pytest.mark.parametrize("name", MINERS)
def test_every_miner_keeps_the_contract(name):
    check_miner(MINERS[name])


class FirstRows(Miner):
    def pick(self, ground, pools, k, generator):
        return MinedSets(pools.anchors[:k], pools.positives[:k], pools.negatives[:k], {})


class TooFew(FirstRows):
    def pick(self, ground, pools, k, generator):
        found = super().pick(ground, pools, k, generator)
        return replace(found, anchors=found.anchors[1:])


class Twice(FirstRows):
    def pick(self, ground, pools, k, generator):
        found = super().pick(ground, pools, k, generator)
        return replace(found, anchors=found.anchors[:1].repeat(k))


class Moody(FirstRows):
    def pick(self, ground, pools, k, generator):
        found = super().pick(ground, pools, k, generator)
        return replace(found, anchors=pools.anchors[torch.randperm(len(pools.anchors))[:k]])


@pytest.mark.parametrize("broken", [FirstRows, TooFew, Twice, Moody])
def test_the_contract_fails_on_broken_miners(broken):
    with pytest.raises(ContractError):
        check_miner(broken())


def labels(n=240, classes=2, groups=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    z = torch.nn.functional.normalize(torch.randn(n, 32, generator=g), dim=1)
    t = torch.randint(0, classes, (n,), generator=g)
    return z, t, torch.randint(0, groups, (n,), generator=g)


def test_pools_are_the_three_intersections():
    _, t, s = labels(classes=3, groups=3)
    pools = pools_of(t, s, 1, 2)
    assert set(pools.anchors.tolist()) == {n for n in range(240) if t[n] == 1 and s[n] == 2}
    assert set(pools.positives.tolist()) == {n for n in range(240) if t[n] == 1 and s[n] != 2}
    assert set(pools.negatives.tolist()) == {n for n in range(240) if t[n] != 1 and s[n] == 2}


def test_a_triplet_with_a_wrong_label_is_refused():
    _, t, s = labels()
    pools = pools_of(t, s, 0, 0)
    with pytest.raises(ContractError, match="cannot be among the positives"):
        Triplet(pools.anchors[:3], pools.negatives[:3], pools.negatives[3:6], 0, 0, t, s)


def test_mined_negatives_are_nearer_and_logdetcg_positives_farther_than_random_ones():
    z, t, s = labels(2000)
    for pair in feasible_pairs(t, s, 16):
        mined = ShasamMiner.ld().mine(z, t, s, 16, pair=pair)
        fl = ShasamMiner(negatives="flqmi").mine(z, t, s, 16, pair=pair)
        rand = RandomMiner().mine(z, t, s, 16, pair=pair)

        def nearest(rows, anchors):
            return float((z[rows] @ z[anchors].T).amax(dim=1).mean())

        assert nearest(fl.negatives, fl.anchors) > nearest(rand.negatives, fl.anchors) + 0.05
        assert nearest(mined.positives, mined.anchors) < nearest(rand.positives, mined.anchors)


def test_fl_information_is_flat_over_the_candidates_and_not_over_the_ground_set():
    z, t, s = labels(1000)
    pools = pools_of(t, s, 0, 0)
    anchors, pool = z[pools.anchors[:16]], z[pools.negatives]
    literal = maximize(FL1MI.from_features(pool, anchors), 16)
    printed = maximize(FL1MI.from_features(pool, anchors, represented=z), 16)
    variant = maximize(FLQMI.from_features(pool, anchors), 16)
    # over the candidates alone the second half of the picks adds next to nothing
    assert float(literal.gains[8:].sum()) < 0.05 * float(literal.gains[0])
    # over V, as printed, every pick adds something; the picks are still not the hardest ones
    assert float(printed.gains.min()) > 1e-3 * float(printed.gains[1])
    rank = (pool @ anchors.T).amax(dim=1).argsort().argsort() / len(pool)
    assert float(rank[variant.indices].mean()) > 0.9
    assert float(rank[literal.indices].mean()) < float(rank[variant.indices].mean()) - 0.1


@pytest.mark.parametrize("policy,counts", [("repeat", (8, 8, 8)), ("shrink", (3, 8, 8))])
def test_a_pool_smaller_than_k_follows_its_policy(policy, counts):
    z, t, s = labels()
    keep = ~((t == 0) & (s == 0))
    keep[(~keep).nonzero().flatten()[:3]] = True
    z, t, s = z[keep], t[keep], s[keep]
    mined = ShasamMiner().mine(z, t, s, 8, pair=(0, 0), small_pool=policy)
    assert (len(mined.anchors), len(mined.positives), len(mined.negatives)) == counts
    with pytest.raises(InputError, match="3 anchors"):
        ShasamMiner().mine(z, t, s, 8, pair=(0, 0))


def test_one_class_or_one_group_is_refused_with_the_cells():
    z, t, s = labels()
    with pytest.raises(InputError, match="rows per cell"):
        ShasamMiner().mine(z, t, torch.zeros_like(s), 4)


@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_embedding_is_named_by_its_row_in_the_file_and_not_in_a_pool(name, value):
    z, t, s = labels()
    z[137, 5] = value
    with pytest.raises(InputError, match="embeddings has NaN or infinity in row 137 "):
        MINERS[name].mine(z, t, s, 4, pair=(int(t[137]), int(s[137])))


def test_pair_sampling_reaches_every_feasible_pair():
    z, t, s = labels(classes=3, groups=2)
    for how in ("uniform", "proportional", "round_robin"):
        generator = torch.Generator().manual_seed(0)
        seen = {
            (m.target, m.sensitive)
            for step in range(80)
            for m in [RandomMiner().mine(z, t, s, 4, generator, pair_sampling=how, step=step)]
        }
        assert seen == set(feasible_pairs(t, s, 4)), how


def test_index_tuples_carry_the_labels_metric_learning_expects():
    from shasam.integrations.pml import pair_tuple

    z, t, s = labels()
    a1, p, a2, n = pair_tuple(ShasamMiner().mine(z, t, s, 5, small_pool="shrink"))
    assert len(a1) == len(n) == 25
    assert bool((t[a1] == t[p]).all() and (s[a1] != s[p]).all())
    assert bool((t[a2] != t[n]).all() and (s[a2] == s[n]).all())


def test_semihard_negatives_are_near_but_not_the_nearest():
    z, _, _ = labels()
    generator = torch.Generator().manual_seed(0)
    miner = ShasamMiner(**NEGATIVES, negatives="semihard")
    ground = Ground(z, torch.zeros(len(z)), torch.zeros(len(z)))
    pools = Pools(0, 0, torch.arange(100, 104), torch.arange(104, 120), torch.arange(100))
    mined = miner.pick(ground, pools, 4, generator)
    near = (z[:100] @ z[100:104].T).amax(1).argsort(descending=True).tolist()
    ranks = [near.index(i) for i in mined.negatives.tolist()]
    assert min(ranks) >= 10 and max(ranks) < 50
    assert mined.skipped == {"ranks": 60}
    few = replace(pools, negatives=torch.arange(4))  # a pool as small as the set
    assert sorted(miner.pick(ground, few, 4, generator).negatives.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("greedy", ["lazy", "stochastic"])
@pytest.mark.parametrize("similarity", ["cosine", "rbf"])
def test_a_kernel_that_pairs_share_gives_the_picks_of_each_pair_alone(greedy, similarity):
    z, t, s = labels(n=400, classes=3, groups=2)
    z = torch.nn.functional.normalize(z)
    miner = ShasamMiner(greedy=greedy, similarity=similarity)
    shared = Ground(z, t, s, shared=True)
    for pair in [(i, j) for i in range(3) for j in range(2)]:
        pools = pools_of(t, s, *pair)
        alone, together = (
            miner.pick(ground, pools, 9, torch.Generator().manual_seed(1))
            for ground in (Ground(z, t, s), shared)
        )
        for role in ("anchors", "positives", "negatives"):
            assert getattr(together, role).tolist() == getattr(alone, role).tolist()
            assert torch.allclose(together.gains[role], alone.gains[role], rtol=1e-5)
    kinds = [similarity if similarity == "rbf" else "shifted_cosine"]
    assert [kind for kind, _ in shared._made] == kinds  # one kernel for all pairs
