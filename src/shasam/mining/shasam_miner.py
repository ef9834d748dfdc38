"""SHaSaM-MINE and its options: anchors, hard positives and hard negatives that cover the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer
from torch import Tensor

from shasam.mining.pools import Ground, MinedSets, Miner, PairSampling, Pools, Refresh
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
from shasam.submodular.kernels import (
    Similarity,
    similarity_matrix,
)
from shasam.submodular.set_function import Among

# -------------------------------------------------------------------------------------------------
# The options of mining: functions, what is left out, schedule, and age of the embeddings.
#
# Every option has its one default here, and the defaults are Algorithm 1 of the paper: three sets
# mined over the whole ground set at every step. A method that wants something else names it.
# -------------------------------------------------------------------------------------------------

AnchorRule = Literal["logdet", "fl", "herding", "random"]
PositiveRule = Literal["flcg", "logdetcg", "fl", "herding", "random"]
NegativeRule = Literal["fl1mi", "flqmi", "logdetmi", "semihard", "fl", "herding", "random"]

# what decides nothing if nothing is mined: it names no other run there
_OF_MINED_SETS = (
    "represented", "greedy", "epsilon", "similarity", "gamma", "ridge", "nu", "eta", "trim",
    "margin", "scores", "ranks", "vote", "start", "ramp", "pool", "refresh",
)  # fmt: skip


class MiningConfig(BaseModel):
    """Describe what is mined, how hard, from when, and from which embeddings.

    Examples
    --------
    >>> MiningConfig(negatives="flqmi", margin=0.95).anchors
    'logdet'
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    miner: str = Field(
        "shasam",
        description="The miner: any registered one; the keys down to `vote` belong to `shasam`.",
    )
    anchors: AnchorRule = Field(
        "logdet",
        description="Anchors: logdet (diverse, as in the paper), fl or herding (representative of "
        "the cell), or random.",
    )
    positives: PositiveRule = Field(
        "flcg",
        description="Positives: flcg (the paper's conditional gain), logdetcg, fl or herding "
        "(representative of the cell), or random.",
    )
    negatives: NegativeRule = Field(
        "fl1mi",
        description="Negatives: fl1mi (the paper's mutual information), flqmi, logdetmi, semihard "
        "(drawn among the near ones), fl or herding (representative), or random.",
    )
    represented: Literal["ground", "candidates"] = Field(
        "ground",
        description="The rows that facility location sums over: the ground set V, as in the "
        "paper, or the candidates of the set alone.",
    )
    greedy: Literal["lazy", "stochastic"] = Field(
        "lazy",
        description="lazy: exact greedy; stochastic: each pick is the best of a random part "
        "(Mirzasoleiman et al. 2015), so that sets differ while features stand still.",
    )
    epsilon: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Of stochastic greedy: each pick looks at n/k · log(1/ε) of the candidates.",
    )
    similarity: Literal["cosine", "rbf"] = Field(
        "cosine", description="How two embeddings are compared."
    )
    gamma: float | None = Field(
        None,
        gt=0,
        description="Of rbf and of herding; null: 1/D, and for herding 1/mean distance².",
    )
    ridge: float = Field(1.0, ge=0, description="λ of LogDet; 1 makes it monotone.")
    nu: float = Field(1.0, ge=0, description="ν: how much positives have to differ from anchors.")
    eta: float = Field(1.0, ge=0, description="η: how much nearness to the anchors counts.")
    trim: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of each set of candidates that is left out first: the least typical, "
        "where outliers and wrong labels are.",
    )
    margin: float | None = Field(
        None,
        gt=0,
        le=1,
        description="A negative is left out where it is more than this times as similar to an "
        "anchor as that anchor's nearest positive (0.95 is usual); null: never.",
    )
    scores: tuple[float, float] = Field(
        (-1.0, 1.0),
        description="Negatives whose similarity to the nearest anchor is outside of this range "
        "are left out.",
    )
    ranks: tuple[float, float] = Field(
        (0.0, 1.0),
        description="Negatives between these shares of the candidates from near (0) to far (1) "
        "are kept; 0.05, 1 leaves the nearest twentieth out.",
    )
    vote: int = Field(
        0,
        ge=0,
        description="False negatives: a candidate is left out where most of this many nearest rows "
        "of the ground set have the anchors' class; 0: not asked.",
    )
    start: float = Field(
        0.0, ge=0, le=1, description="Share of the stage with random sets, before mining begins."
    )
    ramp: float = Field(
        0.0, ge=0, le=1, description="Share of the stage over which the candidates then grow."
    )
    pool: float | None = Field(
        None,
        ge=1,
        description="Candidates per pick at full hardness; null: the whole cell, as in the paper.",
    )
    k: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Images of each set (the paper's budget): the batch follows; null: as many as "
        "the batch holds.",
    )
    refresh: Refresh = Field(
        "epoch",
        description="Age of the embeddings: live (this step), a number of steps, epoch (made anew "
        "with the ground set), or free (whatever training has left).",
    )
    pairs: Literal["all", "one"] = Field(
        "all",
        description="Pairs of class and group in a batch: all of them (Eq. 3) or one (Alg. 1).",
    )
    roles: Literal["apart", "shared"] = Field(
        "apart",
        description="With all pairs: every pair has the images that were chosen for it, or shares "
        "all images of the batch that fit it.",
    )
    windows: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="Of a sensitive number: windows in a step; null: 8 where sets share the batch, "
        "2 where each has its own images.",
    )
    pair_sampling: PairSampling = Field("uniform", description="How one pair is drawn.")
    small_pool: Literal["redraw", "repeat", "shrink"] = Field(
        "repeat",
        description="Where a cell holds too few images: draw another pair, repeat them, or take "
        "fewer.",
    )
    ground: float = Field(
        0.2, gt=0, le=1, description="Share of the training set that is V in an epoch."
    )
    ground_shrinks: bool = Field(
        False,
        description="true: V is the sample without the one before, so that it and its epoch "
        "shrink, as printed; false: V is disjoint from the one before and keeps its size.",
    )
    epoch: Literal["views", "images"] = Field(
        "views",
        description="What b counts in the |V|/b steps of an epoch: views (the paper's 96), or "
        "images, which shows every image of V once.",
    )

    @field_validator("miner")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in names("miner"):
            raise ValueError(f"there is no miner {name!r}{did_you_mean(name, names('miner'))}")
        return name

    @field_validator("scores", "ranks")
    @classmethod
    def _ordered(cls, between: tuple[float, float]) -> tuple[float, float]:
        if between[0] >= between[1]:
            raise ValueError(f"the first number must be below the second; got {list(between)}")
        return between

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Leave out what is not used: runs that compute the same have the same name."""
        body: dict[str, Any] = dump(self)
        if self.k is None:
            body.pop("k", None)
        if self.windows is None:
            body.pop("windows", None)
        if self.miner == "shasam":
            body.pop("miner", None)
        if self.pairs == "one":  # a pair that is alone has its roles to itself
            body.pop("roles", None)
        if not self.mines:
            for key in _OF_MINED_SETS:
                body.pop(key, None)
        return body

    def over(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Lay given keys over those that this one was made with."""
        own = {key: getattr(self, key) for key in self.model_fields_set}
        return {**own, **given}

    @property
    def mines(self) -> bool:
        """Whether any set is chosen at all, or all are drawn at random."""
        return any(map(self.picks, ("anchors", "positives", "negatives")))

    @property
    def needs_ground(self) -> bool:
        """Whether the embeddings of the whole ground set are asked for."""
        return self.miner != "shasam" or self.represented == "ground" or self.vote > 0

    @property
    def keeps_kernel(self) -> bool:
        """Whether similarities within the ground set can be kept from step to step.

        Not where all embeddings change in every step, and not for rbf: an exponential that is
        computed again need not have the same last bit, which a resumed run has to have.
        """
        over_ground = self.miner == "shasam" and self.represented == "ground"
        asked = self.positives == "flcg" or self.negatives == "fl1mi"
        return over_ground and asked and self.similarity == "cosine" and self.refresh != "live"

    def make_miner(self) -> Miner:
        kind = lookup("miner", self.miner)
        if not self.mines:
            kind = lookup("miner", "random")
        made: Miner = kind(self) if self.miner == "shasam" and self.mines else kind()
        return made

    def picks(self, role: str) -> bool:
        """Return whether the miner chooses among candidates for a role, or takes what is drawn."""
        if self.miner != "shasam":
            return self.miner != "random"
        return bool(getattr(self, role) != "random")


# -------------------------------------------------------------------------------------------------
# Representative rows of a cell: kernel herding, which is greedy minimisation of the MMD.
#
# The squared MMD between k picks S and a cell C is mean K_CC - 2 mean K_SC + mean K_SS. With K_vv
# the same for all rows, the v that makes it smallest for S + v, of m + 1 picks, is the one with
# the largest mean_{c∈C} K_vc - Σ_{s∈S} K_vs / (m + 1): the rule of kernel herding (Chen, Welling
# and Smola 2010). Under conditions on the kernel the gain is submodular (Kim, Khanna and
# Koyejo 2016).
# -------------------------------------------------------------------------------------------------


def herd(
    z_CD: Tensor,
    k: int,
    gamma: float | None = None,
    *,
    epsilon: float | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Pick k rows of a cell whose distribution is nearest to the cell's; return their scores too.

    ``gamma`` is that of the rbf kernel; None: 1 over the mean squared distance of the cell. With
    ``epsilon`` each pick is the best of a random n/k · log(1/ε) of the rows. Ties go to the first.

    >>> rows, _ = herd(torch.tensor([[0.0], [0.1], [0.2], [9.0]]), 2, gamma=1.0)
    >>> rows.tolist()
    [1, 3]
    """
    if gamma is None:
        gamma = 1 / max(
            float(2 * (z_CD.square().sum(1).mean() - z_CD.mean(0).square().sum())), 1e-12
        )
    kernel_CC = similarity_matrix(z_CD, z_CD, "rbf", gamma).double()
    mean_C, covered_C = kernel_CC.mean(dim=1), torch.zeros(len(z_CD), dtype=torch.float64)
    free_C = torch.ones(len(z_CD), dtype=torch.bool)
    picks, scores = [], []
    for number in range(k):
        score_C = mean_C - covered_C / (number + 1)
        looked = free_C.nonzero().flatten()
        if epsilon is not None:
            size = math.ceil(len(z_CD) / k * math.log(1 / epsilon))
            looked = looked[torch.randperm(len(looked), generator=generator)[:size]].sort().values
        best = score_C[looked].max()
        # what differs by rounding alone is a tie
        first = int((score_C[looked] >= best - 1e-10).to(torch.uint8).argmax())
        pick = int(looked[first])
        picks.append(pick)
        scores.append(float(score_C[pick]))
        free_C[pick] = False
        covered_C += kernel_CC[pick]
    return torch.tensor(picks), torch.tensor(scores)


# -------------------------------------------------------------------------------------------------
# SHaSaM-MINE: diverse anchors, hard positives and hard negatives by submodular maximisation.
#
# A = argmax f(A) over T_i∩S_j (LogDet), P = argmax H_f(P | A) over T_i∩¬S_j (conditional gain), N
# = argmax I_f(N ; A) over ¬T_i∩S_j (mutual information); paper, Alg. 1, lines 19-21, with facility
# location summed over the ground set V.
# -------------------------------------------------------------------------------------------------

SEMIHARD = (0.1, 0.5)  # shares of a pool from near to far, between which are drawn
_TILE = 2048  # candidates that are compared with the ground set together


@register("shasam", kind="miner")
class ShasamMiner(Miner):
    """Mine diverse anchors, hard positives and hard negatives as the paper does.

    ``ShasamMiner()`` has facility location, ``ShasamMiner.ld()`` log-determinants in its place.

    Parameters
    ----------
    config
        All settings.
    settings
        Keys of ``MiningConfig`` in place of a config, such as ``negatives="flqmi"``.

    Examples
    --------
    >>> t, s = torch.tensor([0, 0, 1, 1] * 3), torch.tensor([0, 1] * 6)
    >>> triplet = ShasamMiner().mine(torch.randn(12, 4), t, s, 2, pair=(0, 1))
    >>> t[triplet.negatives].tolist(), s[triplet.negatives].tolist()
    ([1, 1], [1, 1])
    """

    def __init__(self, config: MiningConfig | None = None, **settings: Any) -> None:
        self.config = config if config is not None else MiningConfig(**settings)

    @classmethod
    def ld(cls, **settings: Any) -> ShasamMiner:
        """Return LogDet anchors, LogDetCG positives, LogDetMI negatives."""
        return cls(**{"positives": "logdetcg", "negatives": "logdetmi", **settings})

    def pick(self, ground: Ground, pools: Pools, k: int, generator: torch.Generator) -> MinedSets:
        c, z_VD = self.config, ground.z_VD
        gains: dict[str, Tensor] = {}
        skipped: dict[str, int] = {}
        # The order of candidates decides ties: typical anchors, far positives, near negatives
        # first. The order of the rows would mean the order of files on a disk.
        rows_A = self._typical(z_VD, pools.anchors, k, skipped)
        anchors = self._select("anchors", c.anchors, ground, rows_A, None, k, generator, gains)
        z_sel = z_VD[anchors]
        rows_P = self._typical(z_VD, pools.positives, k, skipped)
        rows_P = rows_P[self._nearest(z_VD[rows_P], z_sel).argsort(stable=True)]
        positives = self._select(
            "positives", c.positives, ground, rows_P, anchors, k, generator, gains
        )
        rows_N = self._typical(z_VD, pools.negatives, k, skipped)
        rows_N = self._allowed(ground, pools, rows_N, z_sel, z_VD[positives], k, skipped)
        negatives = self._select(
            "negatives", c.negatives, ground, rows_N, anchors, k, generator, gains
        )
        return MinedSets(anchors, positives, negatives, gains, skipped)

    # -- what may be picked ----------------------------------------------------------------------

    def _typical(self, z_VD: Tensor, rows: Tensor, k: int, skipped: dict[str, int]) -> Tensor:
        """Return rows by similarity to their own centre, without the farthest ``trim`` of them."""
        z = z_VD[rows]
        order = (z @ z.mean(dim=0)).argsort(descending=True, stable=True)
        kept = max(min(k, len(rows)), len(rows) - int(self.config.trim * len(rows)))
        _count(skipped, "trim", len(rows) - kept)
        return rows[order[:kept]]

    def _allowed(
        self,
        ground: Ground,
        pools: Pools,
        rows: Tensor,
        z_A: Tensor,
        z_P: Tensor,
        k: int,
        skipped: dict[str, int],
    ) -> Tensor:
        """Return negatives from near to far without those that a range, margin or vote leaves out.

        Where fewer than k would be left, the easiest of those that were left out come back.
        """
        c, similarity = self.config, self._kind("cosine")
        z = ground.z_VD[rows]
        near = self._nearest(z, z_A)
        order = near.argsort(descending=True, stable=True)
        rows, near, z = rows[order], near[order], z[order]
        out = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)

        def leave_out(reason: str, which: Tensor) -> None:
            _count(skipped, reason, int((which & ~out).sum()))
            out.logical_or_(which)

        if c.scores != (-1.0, 1.0):
            leave_out("scores", (near < c.scores[0]) | (near > c.scores[1]))
        band = SEMIHARD if c.negatives == "semihard" else c.ranks
        if band != (0.0, 1.0):
            low, high = (round(share * len(rows)) for share in band)
            place = torch.arange(len(rows), device=rows.device)
            leave_out("ranks", (place < low) | (place >= high))
        if c.margin is not None:
            of_positives = similarity_matrix(z_A, z_P, similarity, c.gamma).amax(dim=1)
            # also right where the similarity is negative: the limit is always below it
            limit_A = of_positives - (1 - c.margin) * of_positives.abs()
            cross = similarity_matrix(z, z_A, similarity, c.gamma)
            leave_out("margin", (cross > limit_A).any(dim=1))
        if c.vote:
            leave_out("vote", self._outvoted(ground, pools.target, z))
        kept = (~out).nonzero().flatten()
        missing = min(k, len(rows)) - len(kept)
        if missing > 0:
            back = out.nonzero().flatten().flip(0)[:missing]
            _count(skipped, "put back", len(back))
            kept = torch.cat([kept, back]).sort().values
        return rows[kept]

    def _outvoted(self, ground: Ground, target: int, z: Tensor) -> Tensor:
        """Say of candidates z whether most of the nearest rows of V have the anchors' class."""
        asked = min(self.config.vote, len(ground.z_VD) - 1)
        found = []
        for part in z.split(_TILE):
            near = similarity_matrix(part, ground.z_VD, self._kind("cosine"), self.config.gamma)
            nearest = near.topk(asked + 1, dim=1).indices[:, 1:]  # the first is the row itself
            found.append((ground.t_V[nearest] == target).sum(dim=1) * 2 > asked)
        return torch.cat(found)

    def _nearest(self, z: Tensor, z_sel: Tensor) -> Tensor:
        """Return the similarity of each row to the nearest of a set."""
        return similarity_matrix(z, z_sel, self._kind("cosine"), self.config.gamma).amax(dim=1)

    # -- what is picked --------------------------------------------------------------------------

    def _kind(self, plain: Similarity) -> Similarity:
        return "rbf" if self.config.similarity == "rbf" else plain

    def _select(
        self,
        role: str,
        rule: str,
        ground: Ground,
        rows: Tensor,
        given: Tensor | None,
        k: int,
        generator: torch.Generator,
        gains: dict[str, Tensor],
    ) -> Tensor:
        k = min(k, len(rows))
        if rule in ("random", "semihard"):
            return rows[torch.randperm(len(rows), generator=generator)[:k].to(rows.device)]
        stochastic = self.config.greedy == "stochastic" and k < len(rows)
        epsilon = self.config.epsilon
        if rule == "herding":
            picks, gains[role] = herd(
                ground.z_VD[rows], k, self.config.gamma,
                epsilon=epsilon if stochastic else None, generator=generator,
            )  # fmt: skip
            return rows[picks]
        selection = maximize(
            self._function(rule, ground, rows, given),
            k,
            optimizer="stochastic" if stochastic else "auto",
            generator=generator,
            epsilon=epsilon,
        )
        gains[role] = selection.gains
        return rows[selection.indices]

    def _function(
        self, rule: str, ground: Ground, rows: Tensor, given: Tensor | None
    ) -> SetFunction:
        """Make the function of a rule over candidates, given the rows of V that are the anchors."""
        c, z = self.config, ground.z_VD[rows]
        z_given = None if given is None else ground.z_VD[given]
        flat: dict[str, Any] = {"similarity": self._kind("shifted_cosine"), "gamma": c.gamma}
        gram: dict[str, Any] = {"similarity": self._kind("cosine"), "gamma": c.gamma}
        if rule == "logdet":
            return LogDet.from_features(z, c.ridge, **gram)
        if rule == "fl":  # representative of the cell, whatever the others represent
            return FacilityLocation.from_features(z, **flat)
        if rule == "flqmi":
            return FLQMI.from_features(z, z_given, c.eta, **flat)
        if rule == "logdetcg":
            return LogDetCG.from_features(z, z_given, c.ridge, c.nu, **gram)
        if rule == "logdetmi":
            return LogDetMI.from_features(z, z_given, c.ridge, c.eta, **gram)
        measure, strength = (FLCG, c.nu) if rule == "flcg" else (FL1MI, c.eta)
        if c.represented == "candidates":
            return measure.from_features(z, z_given, strength, **flat)
        if ground.kept is not None:
            sets = {"private": given, "nu": c.nu} if rule == "flcg" else {"query": given}
            return Among(ground.kept.function(eta=c.eta, **sets), rows)
        kernel = ground.kernel(**flat)
        if kernel is None:
            return measure.from_features(z, z_given, strength, **flat, represented=ground.z_VD)
        return Among(measure(kernel, given, strength), rows)


def _count(skipped: dict[str, int], reason: str, many: int) -> None:
    if many:
        skipped[reason] = skipped.get(reason, 0) + many


register("shasam-ld", kind="miner")(ShasamMiner.ld)
