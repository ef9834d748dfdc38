"""SHaSaM-MINE against Algorithm 1 of the paper, written from its text: naive greedy, f over V."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from shasam.mining import Ground, MiningConfig, ShasamMiner, pools_of
from shasam.mining.shasam_miner import herd
from shasam.sampling import MinedPlan, TrainingRows


def ground_set(n=90, d=8, seed=0, classes=2, groups=2):
    """A random V in float64 with clusters, so that sets are neither trivial nor all alike."""
    g = torch.Generator().manual_seed(seed)
    t = torch.randint(0, classes, (n,), generator=g)
    s = torch.randint(0, groups, (n,), generator=g)
    z = torch.randn(n, d, generator=g, dtype=torch.float64)
    z[:, 0] += 1.5 * t
    z[:, 1] += 1.5 * s
    return Ground(F.normalize(z, dim=1), t, s)


# -- the paper's text ------------------------------------------------------------------------------


def facility_location(S, A):
    """f(A) = sum over i in V of max over a in A of S_ia; 0 for the empty set."""
    return float(S[:, sorted(A)].max(axis=1).sum()) if A else 0.0


def log_determinant(S, A, ridge=1.0):
    A = sorted(A)
    return float(np.linalg.slogdet(S[np.ix_(A, A)] + ridge * np.eye(len(A)))[1])


def greedy(value, candidates, k):
    """k times: the candidate whose set has the largest value; the first where several have."""
    chosen = []
    for _ in range(k):
        left = [v for v in candidates if v not in chosen]
        values = np.array([value([*chosen, v]) for v in left])
        best = values.max()
        chosen.append(left[int(np.flatnonzero(values >= best - 1e-9)[0])])
    return chosen


def shasam_mine(ground, i, j, k):
    """Alg. 1, lines 16-22, for a pair (i, j)."""
    S = (ground.z_VD @ ground.z_VD.T).numpy()
    t, s = ground.t_V.numpy(), ground.s_V.numpy()
    of_T, of_S = t == i, s == j
    here = np.flatnonzero(of_T & of_S)
    # the first anchor is a tie of all unit vectors: the most typical one comes first
    typical = here[np.argsort(-(S[here][:, here].mean(axis=1)), kind="stable")]
    A = greedy(lambda X: log_determinant(S, X), list(typical), k)
    f = lambda X: facility_location(S, set(X))  # noqa: E731
    positives = np.flatnonzero(of_T & ~of_S)
    P = greedy(lambda X: f([*X, *A]) - f(A), list(positives), k)
    negatives = np.flatnonzero(~of_T & of_S)
    N = greedy(lambda X: f(X) + f(A) - f([*X, *A]), list(negatives), k)
    return A, P, N


@pytest.mark.parametrize("seed", range(12))
def test_the_sets_are_those_of_naive_greedy_over_the_whole_ground_set(seed):
    classes, groups = (2, 2) if seed % 3 else (3, 2)
    ground = ground_set(seed=seed, classes=classes, groups=groups, d=(4, 8, 16)[seed % 3])
    k = (3, 5, 8)[seed % 3]
    for i in range(classes):
        for j in range(groups):
            pools = pools_of(ground.t_V, ground.s_V, i, j)
            mined = ShasamMiner().pick(ground, pools, k, torch.Generator())
            found = [mined.anchors, mined.positives, mined.negatives]
            assert [rows.tolist() for rows in found] == list(
                map(list, shasam_mine(ground, i, j, k))
            )


def test_a_sum_over_the_candidates_alone_mines_other_sets():
    differ = 0
    for seed in range(6):
        ground = ground_set(seed=seed)
        pools = pools_of(ground.t_V, ground.s_V, 0, 0)
        sets = [
            ShasamMiner(represented=over).pick(ground, pools, 5, torch.Generator())
            for over in ("ground", "candidates")
        ]
        differ += set(sets[0].negatives.tolist()) != set(sets[1].negatives.tolist())
    assert differ >= 4


def test_stochastic_greedy_is_keyed_and_comes_near_to_exact_greedy():
    ground = ground_set(600, 12)
    pools = pools_of(ground.t_V, ground.s_V, 1, 0)
    S = (ground.z_VD @ ground.z_VD.T).numpy()
    exact = ShasamMiner().pick(ground, pools, 10, torch.Generator())
    miner = ShasamMiner(greedy="stochastic", epsilon=0.1)
    drawn = [miner.pick(ground, pools, 10, torch.Generator().manual_seed(n)) for n in (1, 1, 2)]
    assert torch.equal(drawn[0].negatives, drawn[1].negatives)
    assert set(drawn[0].negatives.tolist()) != set(drawn[2].negatives.tolist())
    A = drawn[0].anchors.tolist()
    for made in (exact, drawn[0]):
        assert len(made.positives.unique()) == 10
    # (1 - 1/e - epsilon) of the best in expectation; it is far better than that here
    gain = [
        facility_location(S, {*rows.tolist(), *A}) - facility_location(S, set(A))
        for rows in (drawn[0].positives, ShasamMiner(anchors="random").pick(
            ground, pools, 10, torch.Generator().manual_seed(0)).positives)
    ]  # fmt: skip
    assert gain[0] > 0.8 * gain[1]


# -- batches ---------------------------------------------------------------------------------------


def plan_of(n=900, batch=48, views=2, seed=0, total=40, shares=(0.5, 0.5), **settings):
    g = torch.Generator().manual_seed(seed)
    t = (torch.rand(n, generator=g) < shares[0]).long()
    s = (torch.rand(n, generator=g) < shares[1]).long()
    z = torch.randn(n, 12, generator=g)
    z[:, 0] += t
    data = TrainingRows(t, s, torch.arange(n), batch, 5, views)
    plan = MinedPlan(data, MiningConfig(**settings))
    plan.total_steps = total
    return plan, t, s, lambda rows: z[rows]


def test_a_batch_of_one_pair_is_the_algorithm_on_its_ground_set():
    plan, t, s, embed = plan_of(pairs="one", k=6, refresh="live")
    for step in range(8):
        drawn = plan.draw(plan.epoch_of(step), step, embed)
        (triplet,) = drawn.triplets
        V = plan.ground
        ground = Ground(F.normalize(embed(V).double(), dim=1), t[V], s[V])
        wanted = shasam_mine(ground, triplet.target, triplet.sensitive, 6)
        rows = drawn.rows_B
        sets = (triplet.anchors, triplet.positives, triplet.negatives)
        assert [rows[part].tolist() for part in sets] == [V[part].tolist() for part in wanted]


def drifting(plan, embed, steps):
    """The draws of some steps; embeddings of the batch change after each of them."""
    for step in steps:
        drawn = plan.draw(plan.epoch_of(step), step, embed)
        yield drawn.rows_B
        noise = torch.randn(len(drawn.rows_B), 12, generator=torch.Generator().manual_seed(step))
        plan.observe(drawn.rows_B, (embed(drawn.rows_B) + 0.3 * noise).repeat(2, 1))


@pytest.mark.parametrize("pairs", ["one", "all"])
@pytest.mark.parametrize("greedy_", ["lazy", "stochastic"])
def test_a_kept_kernel_mines_the_sets_of_one_that_is_made_anew(pairs, greedy_):
    kept, _, _, embed = plan_of(1500, pairs=pairs, greedy=greedy_)
    anew, *_ = plan_of(1500, pairs=pairs, greedy=greedy_)
    for rows, wanted in zip(
        drifting(kept, embed, range(9)), drifting(anew, embed, range(9)), strict=True
    ):
        assert torch.equal(rows, wanted)
        assert kept._held is not None
        anew._held = None
    assert kept.epoch_of(8) > 0  # V, and its kernel, have changed


@pytest.mark.parametrize("pairs", ["one", "all"])
def test_a_kept_kernel_mines_by_naive_greedy_up_to_its_rounding(pairs):
    """Every pick has the best gain of the paper's text, but for the 16 bits of a similarity."""
    plan, _, _, embed = plan_of(1500, pairs=pairs)
    for _ in drifting(plan, embed, range(4)):
        for _, ground, pools, mined in plan._choices:
            z = ground.z_VD.double()
            S, A = ((1 + z @ z.T) / 2).numpy(), mined.anchors.tolist()
            f = lambda X: facility_location(S, set(X))  # noqa: B023, E731
            slack = 2 * len(S) * ground.kept.tolerance
            for value, cell, picks in (
                (lambda X: f([*X, *A]) - f(A), pools.positives, mined.positives),  # noqa: B023
                (lambda X: f(X) + f(A) - f([*X, *A]), pools.negatives, mined.negatives),  # noqa: B023
            ):
                for n, pick in enumerate(picks.tolist()):
                    before = picks[:n].tolist()
                    left = [v for v in cell.tolist() if v not in before]
                    best = max(value([*before, v]) for v in left)
                    assert value([*before, pick]) >= best - slack


def test_a_kernel_is_kept_where_its_bits_can_be_made_again():
    keeps = {
        "the default": ({}, True),
        "all embeddings change in every step": ({"refresh": "live"}, False),
        "an exponential": ({"similarity": "rbf"}, False),
        "nothing is summed over V": ({"represented": "candidates"}, False),
        "nothing asks for it": ({"positives": "random", "negatives": "flqmi"}, False),
    }
    for why, (settings, kept) in keeps.items():
        plan, _, _, embed = plan_of(**settings)
        plan.draw(0, 0, embed)
        assert (plan._held is not None) == kept, why


@pytest.mark.parametrize("pairs", ["one", "all"])
@pytest.mark.parametrize("greedy_", ["lazy", "stochastic"])
@pytest.mark.parametrize("rules", [{}, {"anchors": "random", "positives": "random"}])
def test_no_image_is_in_a_batch_twice_and_every_pair_keeps_its_own_images(pairs, greedy_, rules):
    plan, _t, _s, embed = plan_of(pairs=pairs, greedy=greedy_, **rules)
    for step in range(30):
        drawn = plan.draw(plan.epoch_of(step), step, embed)
        assert len(drawn.rows_B) == 48 == len(drawn.rows_B.unique())
        used = torch.cat([torch.cat([x.anchors, x.positives, x.negatives]) for x in drawn.triplets])
        assert sorted(used.tolist()) == list(range(48))  # each image in one role of one pair
        assert len(drawn.triplets) == (1 if pairs == "one" else 4)
    assert plan.counters()["repeats"] == 0


@pytest.mark.parametrize(
    "rules", [{}, dict.fromkeys(("anchors", "positives", "negatives"), "random")]
)
def test_a_cell_that_is_too_small_shows_each_image_once_before_any_comes_again(rules):
    plan, t, s, embed = plan_of(400, shares=(0.5, 0.04), pairs="one", ground=1.0, **rules)
    rare = int(((t == 0) & (s == 1)).sum())
    assert 0 < rare < 16
    for step in range(20):
        drawn = plan.draw(plan.epoch_of(step), step, embed)
        (triplet,) = drawn.triplets
        for name in ("anchors", "positives", "negatives"):
            rows = drawn.rows_B[getattr(triplet, name)]
            have = int(((t == t[rows[0]]) & (s == s[rows[0]])).sum())
            counts = rows.unique(return_counts=True)[1]
            assert len(counts) == min(16, have)
            assert int(counts.max()) - int(counts.min()) <= 1
    assert plan.counters()["repeats"] > 0


def test_an_epoch_has_as_many_steps_as_printed():
    # |V|/b: a fifth of 9,000 images, b = 48 images of 2 views
    plan, *_ = plan_of(9000, pairs="one")
    assert plan.steps_per_epoch == 1800 // 96
    assert plan.steps_of(20) == 20 * 18
    by_images, *_ = plan_of(9000, pairs="one", epoch="images")
    assert by_images.steps_per_epoch == 1800 // 48


def test_a_ground_set_that_shrinks_shortens_its_epoch():
    plan, _, _, embed = plan_of(9000, pairs="one", ground_shrinks=True, refresh="free")
    sizes, step = [], 0
    for epoch in range(6):
        assert plan.epoch_of(step) == epoch
        plan.draw(epoch, step, embed)
        sizes.append(len(plan.ground))
        step += max(1, sizes[-1] // 96)
        assert plan.epoch_of(step - 1) == epoch
    assert step == plan.steps_of(6) == sum(size // 96 for size in sizes)
    # sample(0.2) without the one before: 0.2, and then about 0.2 (1 - 0.16) to 0.2 (1 - 0.2)
    assert sizes[0] == 1800 and all(1380 <= size <= 1540 for size in sizes[1:])


@pytest.mark.parametrize("settings", [
    {"refresh": "live", "ground_shrinks": True, "pairs": "one", "k": 8},
    {"refresh": "epoch", "greedy": "stochastic"},
    {"refresh": 3, "margin": 0.95, "vote": 5, "trim": 0.1, "start": 0.2, "ramp": 0.4},
])  # fmt: skip
def test_a_plan_that_was_cut_draws_the_same_sets_again(settings):
    def walk(plan, embed, steps):
        drawn = []
        for step in steps:
            drawn.append(plan.draw(plan.epoch_of(step), step, embed))
            noise = torch.randn(96, 12, generator=torch.Generator().manual_seed(step))
            z = embed(drawn[-1].rows_B).repeat(2, 1)
            plan.observe(drawn[-1].rows_B, F.normalize(z + 0.3 * noise[: len(z)], dim=1))
        return drawn

    whole, _, _, embed = plan_of(**settings)
    expected = walk(whole, embed, range(24))
    for cut in (1, 9, 17):
        first, second = plan_of(**settings)[0], plan_of(**settings)[0]
        walk(first, embed, range(cut))
        second.load_state({name: part.clone() for name, part in first.state().items()})
        again = walk(second, embed, range(cut, 24))
        for a, b in zip(expected[cut:], again, strict=True):
            assert torch.equal(a.rows_B, b.rows_B)
        assert second.counters() == whole.counters()


# -- what is left out ------------------------------------------------------------------------------


def test_a_margin_leaves_out_negatives_that_are_nearer_than_the_positives_allow():
    ground = ground_set(400)
    pools = pools_of(ground.t_V, ground.s_V, 0, 0)
    mined = ShasamMiner(margin=0.8, negatives="flqmi").pick(ground, pools, 5, torch.Generator())
    S = ground.z_VD @ ground.z_VD.T
    of_positives = S[mined.anchors][:, mined.positives].amax(dim=1)
    limit = of_positives - 0.2 * of_positives.abs()
    assert bool((S[mined.negatives][:, mined.anchors] <= limit).all())
    assert mined.skipped["margin"] > 0
    # with negative similarities too: a limit above the positives would leave nothing out
    far = Ground(F.normalize(torch.tensor([[1.0, 0], [-1, 0.1], [-1, 0.2], [-1, 0.05]]), dim=1),
                 torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 0]))  # fmt: skip
    found = ShasamMiner(margin=0.99).pick(
        far, pools_of(far.t_V, far.s_V, 0, 0), 1, torch.Generator()
    )
    assert found.negatives.tolist() == [3]


def test_ranges_trim_and_votes_leave_out_what_they_say_and_count_it():
    ground = ground_set(400)
    pools = pools_of(ground.t_V, ground.s_V, 0, 0)
    S = ground.z_VD @ ground.z_VD.T
    g = torch.Generator()
    scored = ShasamMiner(scores=(-1.0, 0.5), negatives="flqmi").pick(ground, pools, 5, g)
    near = S[pools.negatives][:, scored.anchors].amax(dim=1)
    assert float(S[scored.negatives][:, scored.anchors].max()) <= 0.5
    assert scored.skipped == {"scores": int((near > 0.5).sum())}
    ranked = ShasamMiner(ranks=(0.25, 1.0), negatives="flqmi").pick(ground, pools, 5, g)
    nearest = S[pools.negatives][:, ranked.anchors].amax(dim=1).argsort(descending=True)
    hidden = pools.negatives[nearest[: round(0.25 * len(nearest))]]
    assert not set(hidden.tolist()) & set(ranked.negatives.tolist())
    voted = ShasamMiner(vote=7, negatives="flqmi").pick(ground, pools, 5, g)
    for row in voted.negatives.tolist():
        others = S[row].argsort(descending=True)[1:8]
        assert int((ground.t_V[others] == 0).sum()) <= 3
    assert voted.skipped["vote"] > 0
    trimmed = ShasamMiner(trim=0.2).pick(ground, pools, 5, g)
    sizes = [len(pools.anchors), len(pools.positives), len(pools.negatives)]
    assert trimmed.skipped == {"trim": sum(int(0.2 * size) for size in sizes)}


def test_where_too_few_are_left_the_easiest_come_back():
    ground = ground_set(60)
    pools = pools_of(ground.t_V, ground.s_V, 0, 0)
    found = ShasamMiner(scores=(0.99, 1.0)).pick(ground, pools, 4, torch.Generator())
    near = (ground.z_VD @ ground.z_VD[found.anchors].T).amax(dim=1)
    wanted = sorted(pools.negatives.tolist(), key=lambda row: float(near[row]))[:4]
    assert sorted(found.negatives.tolist()) == sorted(wanted)
    assert found.skipped["put back"] == 4


# -- representative sets ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_herding_is_greedy_minimisation_of_the_mmd(seed):
    z = F.normalize(torch.randn(40, 5, generator=torch.Generator().manual_seed(seed)), dim=1)
    gamma = 0.7
    K = torch.exp(-gamma * torch.cdist(z, z).square()).double()

    def mmd(rows):
        return float(K.mean() - 2 * K[rows].mean() + K[rows][:, rows].mean())

    chosen = []
    for _ in range(8):
        chosen.append(
            min((v for v in range(40) if v not in chosen), key=lambda v: mmd([*chosen, v]))
        )
    assert herd(z, 8, gamma)[0].tolist() == chosen
    g = torch.Generator().manual_seed(9)
    drawn = sorted(mmd(torch.randperm(40, generator=g)[:8].tolist()) for _ in range(200))
    assert mmd(chosen) < drawn[10]


def test_representative_rules_cover_their_own_cell():
    ground = ground_set(300)
    pools = pools_of(ground.t_V, ground.s_V, 1, 1)
    S = (1 + (ground.z_VD @ ground.z_VD.T).numpy()) / 2
    for rule in ("fl", "herding"):
        miner = ShasamMiner(anchors=rule, positives=rule, negatives=rule)
        mined = miner.pick(ground, pools, 6, torch.Generator())
        for name in ("anchors", "positives", "negatives"):
            cell = getattr(pools, name).numpy()

            def covered(rows, cell=cell):
                return S[np.ix_(cell, rows)].max(axis=1).mean()

            g = np.random.default_rng(0)
            random = [covered(g.choice(cell, 6, replace=False)) for _ in range(50)]
            assert covered(getattr(mined, name).numpy()) > np.mean(random)
