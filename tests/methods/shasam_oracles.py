"""SHaSaM's objective and its mining as naive loops, from the labels and the formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tests.methods.oracles import balanced, ce, projections, two_stage
from tests.submodular import naive
from torch import Tensor

from shasam.errors import ContractError
from shasam.methods.shasam import Shasam
from shasam.mining import MinedSets
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
    """Eq. of Table 1, or its mended form: one term for each anchor view."""
    tau, total = m.config.temperature, torch.zeros(())
    literal = m.config.smooth == "none"
    rows = [*sets[0], *sets[1], *sets[2]] if literal else sets[0]
    for row in rows:
        near = []
        for members in sets:
            sims = [(z[row] * z[other]).sum() for other in members]
            if literal:
                near.append(torch.stack(sims).max())
            else:
                near.append(tau * torch.log(sum(torch.exp(v / tau) for v in sims)))
        a, p, n = near
        if literal:
            total = total + torch.clamp(torch.minimum(a, n) - p, min=0)
        else:
            total = total + torch.log(1 + torch.exp((n - p) / tau))
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
    if m.config.mining.pairs == "all":
        balanced(b, m)
        pairs = [(i, j) for i in range(m.classes) for j in range(m.groups)]
    else:
        pairs = [(b.triplets[0].target, b.triplets[0].sensitive)]
    objective = flcmi if m.config.objective == "flcmi" else logdetcmi
    values = [objective(m, z, sets_of(i, j, t, s)) for i, j in pairs]
    total = m.config.weight_at(b.progress) * torch.stack(values).mean()
    if m.config.companion > 0:
        h = m.encoder(b.images)
        total = total + m.config.companion * ce(m.companion(h), b.t_B.repeat(b.views))
    return [total]


# -- mining ------------------------------------------------------------------------------------


def shasam_mined(m: Shasam, z_A: Tensor, z_P: Tensor, z_N: Tensor, mined: MinedSets) -> None:
    """Every pick of a mined set is the best one given those before it, by the definition."""
    rules = m.config.mining
    anchors = z_A[mined.anchors]
    k = len(anchors)
    if rules.anchors == "logdet":
        kernel = (z_A @ z_A.T).double()
        _greedy("anchors", naive.logdet(kernel, rules.ridge), mined.anchors, z_A, k, rules.trim)
    if rules.positives == "flcg":
        gain, pool = _over(z_P, anchors, lambda f, private: naive.conditional_gain(f, private))
        _greedy("positives", gain, mined.positives, pool, k, rules.trim)
    if rules.negatives == "flqmi":
        kernel = (1 + torch.cat([z_N, anchors]).double() @ torch.cat([z_N, anchors]).double().T) / 2
        query = list(range(len(z_N), len(z_N) + k))
        value = naive.flqmi(kernel, query, rules.eta)
        _greedy("negatives", value, mined.negatives, z_N, k, rules.trim)
    if rules.negatives == "fl1mi":
        gain, pool = _over(z_N, anchors, lambda f, query: naive.mutual_information(f, query))
        _greedy("negatives", gain, mined.negatives, pool, k, rules.trim)


def _over(z: Tensor, given: Tensor, measure: Callable) -> tuple[naive.Value, Tensor]:
    """A measure of facility location over a pool, with the anchors outside of it."""
    both = torch.cat([z, given]).double()
    outside = list(range(len(z), len(both)))
    f = naive.facility_location((1 + both @ both.T) / 2, range(len(z)))
    return measure(f, outside), z


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
