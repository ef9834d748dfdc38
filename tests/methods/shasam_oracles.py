"""SHaSaM's objective and its mining as naive loops, from the labels and the formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tests.methods.oracles import balanced, ce, projections, two_stage
from tests.submodular import naive
from torch import Tensor

from shasam.errors import ContractError
from shasam.methods.shasam import Shasam
from shasam.mining import Ground, MinedSets, Pools
from shasam.types import Batch

Sets = tuple[list[int], list[int], list[int]]


def sets_of(i: int, j: int, t: list[int], s: list[int]) -> Sets:
    """A = T_i∩S_j, P = T_i∩¬S_j, N = ¬T_i∩S_j of a batch, by its labels alone."""
    rows = range(len(t))
    return (
        [r for r in rows if t[r] == i and s[r] == j],
        [r for r in rows if t[r] == i and s[r] != j],
        [r for r in rows if t[r] != i and s[r] == j],
    )


def flcmi(m: Shasam, z: Tensor, sets: Sets) -> Tensor:
    """Eq. of Table 1, or a smooth form of it: one term for each represented view."""
    c, total = m.config, torch.zeros(())
    tau = c.temperature
    rows = [*sets[0], *sets[1], *sets[2]] if c.represented == "batch" else sets[0]
    for row in rows:
        sims = [[(z[row] * z[other]).sum() for other in members] for members in sets]
        if c.smooth == "none":
            a, p, n = (torch.stack(values).max() for values in sims)
            total = total + torch.clamp(torch.minimum(a, n) - p, min=0)
            total = total + c.conditional_gain * torch.clamp(a - p, min=0)
            continue
        a, p, n = (sum(torch.exp(v / tau) for v in values) for values in sims)
        if c.smooth == "exact":
            total = total + tau * torch.log(1 + a * n / (p * (a + n + p)))
        elif c.smooth == "linear":
            total = total + tau * torch.log(n) - sum(sims[1]) / len(sims[1])
        else:
            total = total + torch.log(1 + n / p)
        total = total + c.conditional_gain * tau * torch.log(1 + a / p)
    return total / len(rows)


def logdetcmi(m: Shasam, z: Tensor, sets: Sets) -> Tensor:
    """I(A; N | P) - μ·I(A; P) of log-determinants, each over the number of its views."""

    def ld(*members: list[int]) -> Tensor:
        chosen = [r for part in members for r in part]
        kernel = torch.stack(
            [torch.stack([(z[a] * z[b]).sum() for b in chosen]) for a in chosen]
        ).double()
        return torch.linalg.slogdet(kernel + m.config.ridge * torch.eye(len(chosen))).logabsdet

    a, p, n = sets
    value = (ld(a, p) + ld(n, p) - ld(a, p, n) - ld(p)) / (len(a) + len(p) + len(n))
    return (value - m.config.attraction * (ld(a) + ld(p) - ld(a, p)) / (len(a) + len(p))).float()


def shasam_oracle(m: Shasam, b: Batch, stage: str) -> Sequence:
    if stage == "classify":
        if m.config.stage2_sampling == "balanced":
            balanced(b, m)
        return two_stage(m, b)
    z, t, s = projections(m, b)
    mining, size = m.config.mining, len(b.t_B)
    if mining.pairs == "all":
        balanced(b, m)
        pairs = [(i, j) for i in range(m.classes) for j in range(m.groups)]
        assert [(x.target, x.sensitive) for x in b.triplets] == pairs
    else:
        pairs = [(b.triplets[0].target, b.triplets[0].sensitive)]
    objective = flcmi if m.config.objective == "flcmi" else logdetcmi
    if mining.pairs == "all" and mining.roles == "apart":
        # a batch is its pairs one after the other, each its anchors, positives and negatives
        per, each = size // len(pairs), size // (3 * len(pairs))
        chosen = []
        for number in range(len(pairs)):
            first = number * per
            places = [range(first + role * each, first + (role + 1) * each) for role in range(3)]
            chosen.append(
                tuple([i + v * size for v in range(b.views) for i in part] for part in places)
            )
        for (i, j), (anchors, positives, negatives) in zip(pairs, chosen, strict=True):
            whole = [set(part) for part in sets_of(i, j, t, s)]
            assert set(anchors) <= whole[0] and set(positives) <= whole[1]
            assert set(negatives) <= whole[2]
    else:
        chosen = [sets_of(i, j, t, s) for i, j in pairs]
    values = [objective(m, z, sets) for sets in chosen]
    total = m.config.weight_at(b.progress) * torch.stack(values).mean()
    if m.config.companion > 0:
        h = m.encoder(b.images)
        total = total + m.config.companion * ce(m.companion(h), b.t_B.repeat(b.views))
    return [total]


# -- mining ------------------------------------------------------------------------------------


def shasam_mined(m: Shasam, ground: Ground, pools: Pools, k: int, mined: MinedSets) -> None:
    """Every pick of a mined set is the best one given those before it, by the definition."""
    rules, z_VD = m.config.mining, ground.z_VD
    if rules.greedy != "lazy":
        return  # each pick is the best of a part that is drawn
    anchors = z_VD[mined.anchors]
    z_A, z_P, z_N = (z_VD[rows] for rows in (pools.anchors, pools.positives, pools.negatives))
    picks = [
        (pool[:, None] == rows).nonzero()[:, 0][(pool[:, None] == rows).nonzero()[:, 1].argsort()]
        for pool, rows in (
            (pools.anchors, mined.anchors),
            (pools.positives, mined.positives),
            (pools.negatives, mined.negatives),
        )
    ]
    over = z_VD if rules.represented == "ground" else None
    if rules.anchors == "logdet":
        kernel = (z_A @ z_A.T).double()
        _greedy("anchors", naive.logdet(kernel, rules.ridge), picks[0], z_A, k, rules.trim)
    if rules.positives == "flcg":
        gain = _over(z_P, anchors, over, lambda f, private: naive.conditional_gain(f, private))
        _greedy("positives", gain, picks[1], z_P, k, rules.trim)
    if rules.negatives == "flqmi":
        kernel = (1 + torch.cat([z_N, anchors]).double() @ torch.cat([z_N, anchors]).double().T) / 2
        query = list(range(len(z_N), len(z_N) + len(anchors)))
        value = naive.flqmi(kernel, query, rules.eta)
        _greedy("negatives", value, picks[2], z_N, k, rules.trim)
    if rules.negatives == "fl1mi":
        gain = _over(z_N, anchors, over, lambda f, query: naive.mutual_information(f, query))
        _greedy("negatives", gain, picks[2], z_N, k, rules.trim)


def _over(z: Tensor, given: Tensor, over: Tensor | None, measure: Callable) -> naive.Value:
    """A measure of facility location over V, or over the candidates alone."""
    represented = z if over is None else over
    both = torch.cat([z, given, represented]).double()
    outside = list(range(len(z), len(z) + len(given)))
    rows = range(len(z) + len(given), len(both))
    return measure(naive.facility_location((1 + both @ both.T) / 2, rows), outside)


def _greedy(name: str, value: naive.Value, picks: Tensor, z: Tensor, k: int, trim: float) -> None:
    typical = (z @ z.mean(0)).argsort(descending=True).tolist()
    pool = sorted(typical[: max(k, len(z) - int(trim * len(z)))])
    own = picks.tolist()
    if not set(own) <= set(pool):
        raise ContractError(f"{name} are picked that are not typical enough")
    for place, pick in enumerate(own):  # each is as good as any, given those before it
        before = own[:place]
        best = max(value([*before, v]) for v in pool if v not in before)
        if value([*before, pick]) < best - 1e-4 * max(1.0, abs(best)):
            raise ContractError(f"pick {place + 1} of the {name} is not the best that there is")
