"""Mine triplets: pools of class and group, miners, the embedding bank, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer
from torch import Tensor

from shasam.errors import InputError
from shasam.registry import did_you_mean, lookup, names, register
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLQMI,
    FacilityLocation,
    LogDet,
    LogDetCG,
    LogDetMI,
    SetFunction,
    maximize,
)
from shasam.submodular.kernels import Similarity, check_finite, similarity_matrix
from shasam.types import Triplet

# -------------------------------------------------------------------------------------------------
# Pools: T_i∩S_j for anchors, T_i∩¬S_j for positives, ¬T_i∩S_j for negatives.
# -------------------------------------------------------------------------------------------------

PairSampling = Literal["uniform", "proportional", "round_robin"]


@dataclass(frozen=True)
class Pools:
    """The rows that each of the three sets of a pair (i, j) may be drawn from."""

    target: int
    sensitive: int
    anchors: Tensor
    positives: Tensor
    negatives: Tensor

    @property
    def smallest(self) -> int:
        return min(len(self.anchors), len(self.positives), len(self.negatives))


def cells_of(rows: Tensor, t_n: Tensor, s_n: Tensor) -> dict[tuple[int, int], Tensor]:
    """The rows of every (target, group) cell that has any, ordered by (target, group)."""
    pairs = sorted(set(zip(t_n.tolist(), s_n.tolist(), strict=True)))
    return {(i, j): rows[(t_n == i) & (s_n == j)] for i, j in pairs}


def pools_of(t_N: Tensor, s_N: Tensor, target: int, sensitive: int) -> Pools:
    """Labels of any cardinality: "other" means any other class, any other group."""
    same_t, same_s = t_N == target, s_N == sensitive
    return Pools(
        target,
        sensitive,
        (same_t & same_s).nonzero().flatten(),
        (same_t & ~same_s).nonzero().flatten(),
        (~same_t & same_s).nonzero().flatten(),
    )


def feasible_pairs(t_N: Tensor, s_N: Tensor, k: int = 1) -> list[tuple[int, int]]:
    """All (target, group) pairs whose three pools hold at least k rows each."""
    pairs = [
        (int(i), int(j))
        for i in t_N.unique()
        for j in s_N.unique()
        if pools_of(t_N, s_N, int(i), int(j)).smallest >= k
    ]
    if pairs:
        return pairs
    sizes = ", ".join(
        f"target {int(i)} × group {int(j)}: {int(((t_N == i) & (s_N == j)).sum())}"
        for i in t_N.unique()
        for j in s_N.unique()
    )
    raise InputError(
        f"no pair of target and group has {k} anchors, positives and negatives; rows per cell are "
        f"{sizes}. Lower k, or give labels with at least two classes and two groups"
    )


def draw_pair(
    t_N: Tensor,
    s_N: Tensor,
    k: int,
    how: PairSampling,
    step: int,
    generator: torch.Generator,
) -> tuple[int, int]:
    """One (i, j) for an iteration (Alg. 1, lines 16-18), among the feasible ones.

    paper: i and j are drawn from 1..|V| and only T_i∩S_j must not be empty; here all three pools
    must hold k rows, because otherwise there is nothing to mine.
    """
    pairs = feasible_pairs(t_N, s_N, k)
    if how == "round_robin":
        return pairs[step % len(pairs)]
    weights = torch.ones(len(pairs))
    if how == "proportional":
        weights = torch.tensor([float(((t_N == i) & (s_N == j)).sum()) for i, j in pairs])
    return pairs[int(torch.multinomial(weights, 1, generator=generator))]


# -------------------------------------------------------------------------------------------------
# The base class of all miners.
# -------------------------------------------------------------------------------------------------

SmallPool = Literal["redraw", "repeat", "shrink"]


@dataclass(frozen=True)
class MinedSets:
    """Positions picked from each pool, with the marginal gains of the picks."""

    anchors: Tensor
    positives: Tensor
    negatives: Tensor
    gains: dict[str, Tensor]


class Miner:
    """Picks k anchors, k positives and k negatives out of pools of unit-length embeddings."""

    def pick(
        self, z_A: Tensor, z_P: Tensor, z_N: Tensor, k: int, generator: torch.Generator
    ) -> MinedSets:
        """Positions within the three pools, exactly k distinct ones of each."""
        raise NotImplementedError

    def mine(
        self,
        z_ND: Tensor,
        t_N: Tensor,
        s_N: Tensor,
        k: int,
        generator: torch.Generator | None = None,
        *,
        pair: tuple[int, int] | None = None,
        pair_sampling: PairSampling = "uniform",
        small_pool: SmallPool = "redraw",
        step: int = 0,
    ) -> Triplet:
        """A checked triplet over the rows of z (N, D); the pair (i, j) is drawn if not given.

        Where a pool holds fewer than k rows: ``redraw`` another pair, ``repeat`` rows of it, or
        ``shrink`` that set to what there is.
        """
        if len(z_ND) != len(t_N) or len(t_N) != len(s_N):
            raise InputError(
                "embeddings, targets and groups must have one row each per image; got "
                f"{len(z_ND)}, {len(t_N)} and {len(s_N)}"
            )
        if k < 1:
            raise InputError(f"k must be at least 1; got {k}")
        check_finite(z_ND, "embeddings")  # here, where rows are those of the caller, not of a pool
        generator = generator or torch.Generator().manual_seed(0)
        need = k if small_pool == "redraw" else 1
        if pair is None:
            pair = draw_pair(t_N, s_N, need, pair_sampling, step, generator)
        pools = pools_of(t_N, s_N, *pair)
        if pools.smallest < need:
            raise InputError(
                f"target {pair[0]} and group {pair[1]} have {len(pools.anchors)} anchors, "
                f"{len(pools.positives)} positives and {len(pools.negatives)} negatives, but "
                f"{need} of each are needed; lower k, or use small_pool='repeat' or 'shrink'"
            )
        return Triplet(*self._sets(z_ND, pools, k, small_pool, generator), *pair, t_N, s_N)

    def comparable(self, z_ND: Tensor) -> Tensor:
        """Embeddings as they are compared: by direction."""
        return torch.nn.functional.normalize(z_ND.float(), dim=1)

    def _sets(
        self,
        z_ND: Tensor,
        pools: Pools,
        k: int,
        small_pool: SmallPool,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = (pools.anchors, pools.positives, pools.negatives)
        common = min(k, pools.smallest)
        z = self.comparable(z_ND)
        mined = self.pick(z[rows[0]], z[rows[1]], z[rows[2]], common, generator)
        picked = [
            r[p]
            for r, p in zip(rows, (mined.anchors, mined.positives, mined.negatives), strict=True)
        ]
        if common < k:
            # A pool with enough rows is not cut down to the smallest one.
            for number, row in enumerate(rows):
                if small_pool == "repeat":
                    picked[number] = picked[number].repeat(-(-k // common))[:k]
                elif len(row) > common:
                    rest = row[~torch.isin(row, picked[number])]
                    extra = torch.randperm(len(rest), generator=generator)[: k - common]
                    picked[number] = torch.cat([picked[number], rest[extra.to(rest.device)]])
        return picked[0], picked[1], picked[2]


# -------------------------------------------------------------------------------------------------
# `random`: k rows of each pool, drawn without replacement. The paper's ablation baseline.
# -------------------------------------------------------------------------------------------------


@register("random", kind="miner")
class RandomMiner(Miner):
    """No hardness at all."""

    def pick(
        self, z_A: Tensor, z_P: Tensor, z_N: Tensor, k: int, generator: torch.Generator
    ) -> MinedSets:
        def draw(z: Tensor) -> Tensor:
            return torch.randperm(len(z), generator=generator)[:k].to(z.device)

        return MinedSets(draw(z_A), draw(z_P), draw(z_N), {})


# -------------------------------------------------------------------------------------------------
# SHaSaM-MINE: diverse anchors, hard positives and hard negatives by submodular maximisation.
#
# A = argmax f(A) over T_i∩S_j (LogDet), P = argmax H_f(P | A) over T_i∩¬S_j (conditional gain),
# N = argmax I_f(N ; A) over ¬T_i∩S_j (mutual information); paper, Alg. 1, lines 19-21.
# -------------------------------------------------------------------------------------------------

AnchorRule = Literal["logdet", "fl", "random"]
PositiveRule = Literal["flcg", "logdetcg", "random"]
NegativeRule = Literal["flqmi", "fl1mi", "logdetmi", "semihard", "random"]
SEMIHARD = (0.5, 0.9)  # quantiles of a pool by nearness to the anchors, between which are drawn


@register("shasam", kind="miner")
@dataclass(frozen=True)
class ShasamMiner(Miner):
    """The default mines with facility location (``fl``); ``ShasamMiner.ld()`` with LogDet.

    paper: hard negatives maximise the FL mutual information; here FLQMI, because FL1MI is flat
    after one or two picks and then says nothing (``negatives="fl1mi"`` is the literal one).
    ``negatives="semihard"`` draws among the half that is nearer to the anchors, without its nearest
    tenth of the pool, where wrong labels and look-alikes are.
    """

    anchors: AnchorRule = "logdet"
    positives: PositiveRule = "flcg"
    negatives: NegativeRule = "flqmi"
    ridge: float = 1.0  # of LogDet; 1 makes it monotone
    nu: float = 1.0  # hardness of the positives
    eta: float = 1.0
    trim: float = 0.0  # share of each pool left out first: what is farthest from its own centre
    similarity: Literal["cosine", "rbf"] = "cosine"
    gamma: float | None = None  # of rbf

    @classmethod
    def ld(cls, **settings: float) -> ShasamMiner:
        """LogDet anchors, LogDetCG positives, LogDetMI negatives."""
        return cls(positives="logdetcg", negatives="logdetmi", **settings)  # type: ignore[arg-type]

    def pick(
        self, z_A: Tensor, z_P: Tensor, z_N: Tensor, k: int, generator: torch.Generator
    ) -> MinedSets:
        gains: dict[str, Tensor] = {}
        # The order of a pool decides ties: typical anchors, far positives, near negatives first.
        # Index order would mean the order of files on a disk.
        order_A = self._typical_first(z_A, k)
        anchors = self._select("anchors", self.anchors, z_A[order_A], None, k, generator, gains)
        anchors = order_A[anchors]
        z_sel = z_A[anchors]
        order_P = self._by_nearness(z_P, z_sel, k, nearest_first=False)
        positives = self._select(
            "positives", self.positives, z_P[order_P], z_sel, k, generator, gains
        )
        order_N = self._by_nearness(z_N, z_sel, k, nearest_first=True)
        if self.negatives == "semihard":
            order_N = _band(order_N, k)
        rule = "random" if self.negatives == "semihard" else self.negatives
        negatives = self._select("negatives", rule, z_N[order_N], z_sel, k, generator, gains)
        return MinedSets(anchors, order_P[positives], order_N[negatives], gains)

    def _function(self, rule: str, z: Tensor, given: Tensor | None) -> SetFunction:
        flat: Similarity = "rbf" if self.similarity == "rbf" else "shifted_cosine"
        gram: Similarity = "rbf" if self.similarity == "rbf" else "cosine"
        if rule == "logdet":
            return LogDet.from_features(z, self.ridge, similarity=gram, gamma=self.gamma)
        if rule == "fl":
            return FacilityLocation.from_features(z, similarity=flat, gamma=self.gamma)
        if rule == "flcg":
            return FLCG.from_features(z, given, self.nu, similarity=flat, gamma=self.gamma)
        if rule == "flqmi":
            return FLQMI.from_features(z, given, self.eta, similarity=flat, gamma=self.gamma)
        if rule == "fl1mi":
            return FL1MI.from_features(z, given, self.eta, similarity=flat, gamma=self.gamma)
        measure = LogDetCG if rule == "logdetcg" else LogDetMI
        scale = self.nu if rule == "logdetcg" else self.eta
        return measure.from_features(z, given, self.ridge, scale, similarity=gram, gamma=self.gamma)

    def _select(
        self,
        name: str,
        rule: str,
        z: Tensor,
        given: Tensor | None,
        k: int,
        generator: torch.Generator,
        gains: dict[str, Tensor],
    ) -> Tensor:
        if rule == "random":
            return torch.randperm(len(z), generator=generator)[:k].to(z.device)
        selection = maximize(self._function(rule, z, given), k)
        gains[name] = selection.gains
        return selection.indices

    def _kept(self, n: int, k: int) -> int:
        return max(k, n - int(self.trim * n))

    def _typical_first(self, z: Tensor, k: int) -> Tensor:
        """The pool by similarity to its own centre, without its farthest ``trim``."""
        near = (z @ z.mean(dim=0)).argsort(descending=True, stable=True)
        return near[: self._kept(len(z), k)]

    def _by_nearness(self, z: Tensor, z_sel: Tensor, k: int, *, nearest_first: bool) -> Tensor:
        kind: Similarity = "rbf" if self.similarity == "rbf" else "cosine"
        nearest = similarity_matrix(z, z_sel, kind, self.gamma).amax(dim=1)
        kept = self._typical_first(z, k)
        order = nearest[kept].argsort(descending=nearest_first, stable=True)
        return kept[order]


def _band(order: Tensor, k: int) -> Tensor:
    """Of rows from near to far those between the quantiles, at least k, from the near end."""
    low, high = (round((1 - q) * len(order)) for q in reversed(SEMIHARD))
    low = max(0, min(low, len(order) - k))
    return order[low : max(high, low + k)]


register("shasam-ld", kind="miner")(ShasamMiner.ld)


# -------------------------------------------------------------------------------------------------
# The embedding bank: the last known embedding of every training row, and how old it is.
# -------------------------------------------------------------------------------------------------

# rows (n,) of the manifest -> embeddings (n, D) of the un-augmented images, current weights
Embed = Callable[[Tensor], Tensor]
Refresh = Literal["live", "epoch", "free"] | int
_NEVER = -(2**40)


class EmbeddingBank:
    """Embeddings by row, refreshed by a policy and, for free, by every training step.

    ``live``: only an embedding of this very step will do. An integer n: one that is at most n steps
    old. ``epoch``: the ground set is embedded whenever it is drawn anew, and used until the next.
    ``free``: whatever a training step has left, however old; what was never seen is embedded once.
    """

    def __init__(self, rows: Tensor, refresh: Refresh) -> None:
        self.rows = rows.cpu()
        self.place = torch.full((int(self.rows.max()) + 1,), -1)
        self.place[self.rows] = torch.arange(len(self.rows))
        self.refresh = refresh
        self.z_ND: Tensor | None = None  # made when the first embedding tells the width
        self.stamp_N = torch.full((len(self.rows),), _NEVER)
        self.embedded = 0  # images that mining had to embed itself

    def observe(self, rows_B: Tensor, z: Tensor, step: int) -> None:
        """Keep the mean direction of the views (V*B, D) of a training step."""
        views = len(z) // len(rows_B)
        mean_BD = F.normalize(z.detach().float().reshape(views, len(rows_B), -1).mean(dim=0), dim=1)
        self._write(rows_B, mean_BD.cpu(), step)

    def refresh_all(self, rows: Tensor, embed: Embed, step: int, chunk: int = 512) -> None:
        """Embed the ground set anew (policy ``epoch``)."""
        for part in rows.split(chunk):
            self._write(part, self._embed(part, embed), step)

    def read(self, rows: Tensor, embed: Embed, step: int) -> Tensor:
        """Embeddings (n, D) young enough for the policy; the others are made now."""
        if isinstance(self.refresh, int):
            limit = self.refresh
        else:
            limit = 0 if self.refresh == "live" else 2**39
        stale = rows[step - self.stamp_N[self.place[rows]] > limit].unique()
        if len(stale):
            self._write(stale, self._embed(stale, embed), step)
        assert self.z_ND is not None
        return self.z_ND[self.place[rows]]

    def _embed(self, rows: Tensor, embed: Embed) -> Tensor:
        self.embedded += len(rows)
        return F.normalize(embed(rows).detach().float(), dim=1).cpu()

    def _write(self, rows: Tensor, z: Tensor, step: int) -> None:
        if self.z_ND is None:
            self.z_ND = torch.zeros(len(self.rows), z.shape[1])
        place = self.place[rows.cpu()]
        self.z_ND[place] = z
        self.stamp_N[place] = step

    def state(self) -> dict[str, Tensor]:
        """Only what a resumed run cannot make again."""
        if self.z_ND is None or self.refresh == "live":
            return {}
        known = (self.stamp_N > _NEVER).nonzero().flatten()
        return {"known": known, "z": self.z_ND[known], "stamp": self.stamp_N[known]}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if "known" not in state:
            return
        known = state["known"]
        self.z_ND = torch.zeros(len(self.rows), state["z"].shape[1])
        self.z_ND[known], self.stamp_N[known] = state["z"], state["stamp"]


# -------------------------------------------------------------------------------------------------
# The options of mining: functions, hardness, schedule, and age of the embeddings.
# -------------------------------------------------------------------------------------------------


class MiningConfig(BaseModel):
    """What is mined, how hard, from when, and from which embeddings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    miner: str = "shasam"  # any registered one; the seven keys below are those of "shasam" alone
    anchors: AnchorRule = "random"
    positives: PositiveRule = "random"
    negatives: NegativeRule = "flqmi"
    ridge: float = 1.0
    nu: float = 1.0
    eta: float = 1.0
    trim: float = Field(0.15, ge=0, lt=1)  # least typical of a pool: outliers, wrong labels
    start: float = Field(0.4, ge=0, le=1)  # share of the stage with random sets
    ramp: float = Field(0.2, ge=0, le=1)  # share of the stage over which pools grow to full size
    pool: float = Field(6.0, ge=1)  # candidates per pick at full hardness
    # images of each set (the paper's budget): the batch follows; null: as many as the batch holds
    k: int | None = Field(None, ge=1, le=100_000)
    refresh: Refresh = "free"
    pairs: Literal["all", "one"] = "all"  # Eq. 3: every (i, j) in a batch; Alg. 1: one
    pair_sampling: PairSampling = "uniform"
    small_pool: Literal["redraw", "repeat", "shrink"] = "repeat"
    ground: float = Field(0.2, gt=0, le=1)  # share of the training set that is V in an epoch
    ground_shrinks: bool = False  # paper, literally: sample(0.2) \ V_prev

    @field_validator("miner")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in names("miner"):
            raise ValueError(f"there is no miner {name!r}{did_you_mean(name, names('miner'))}")
        return name

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Without keys that were added later and are not used: older runs keep their names."""
        body: dict[str, Any] = dump(self)
        if self.k is None:
            body.pop("k", None)
        if self.miner == "shasam":
            body.pop("miner")
        return body

    def make_miner(self) -> Miner:
        if self.miner != "shasam":
            made: Miner = lookup("miner", self.miner)()
            return made
        rules = (self.anchors, self.positives, self.negatives)
        if rules == ("random",) * 3:
            return RandomMiner()
        return ShasamMiner(*rules, ridge=self.ridge, nu=self.nu, eta=self.eta, trim=self.trim)

    def picks(self, role: str) -> bool:
        """Whether the miner chooses among candidates for a role, or takes what is drawn."""
        return self.miner != "shasam" or getattr(self, role) != "random"
