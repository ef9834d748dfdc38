"""Mine triplets: pools of class and group, miners, the embedding bank, and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer
from torch import Tensor

from shasam.errors import InputError
from shasam.mining.herding import herd
from shasam.registry import did_you_mean, lookup, names, register
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLQMI,
    FacilityLocation,
    KeptKernel,
    LogDet,
    LogDetCG,
    LogDetMI,
    SetFunction,
    maximize,
)
from shasam.submodular.kernels import (
    Gram,
    Similarity,
    check_finite,
    kernel_matrix,
    similarity_matrix,
)
from shasam.submodular.set_function import Among
from shasam.types import Triplet

# -------------------------------------------------------------------------------------------------
# Pools: T_i∩S_j for anchors, T_i∩¬S_j for positives, ¬T_i∩S_j for negatives.
# -------------------------------------------------------------------------------------------------

PairSampling = Literal["uniform", "proportional", "round_robin"]


@dataclass(frozen=True)
class Pools:
    """Hold the rows that each of the three sets of a pair (i, j) may be drawn from.

    Parameters
    ----------
    target
        Class i.
    sensitive
        Group j.
    anchors
        Rows of class i and group j.
    positives
        Rows of class i in other groups.
    negatives
        Rows of other classes in group j.
    """

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
    """Collect the rows that may be anchors, positives and negatives of a pair.

    Labels may have any cardinality: "other" means any other class, any other group.

    Parameters
    ----------
    t_N
        Classes (N,).
    s_N
        Groups (N,).
    target
        Class i.
    sensitive
        Group j.

    Returns
    -------
    Pools
        Rows of the three pools.

    Examples
    --------
    >>> pools_of(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]), 0, 0).positives.tolist()
    [1]
    """
    same_t, same_s = t_N == target, s_N == sensitive
    return Pools(
        target,
        sensitive,
        (same_t & same_s).nonzero().flatten(),
        (same_t & ~same_s).nonzero().flatten(),
        (~same_t & same_s).nonzero().flatten(),
    )


def feasible_pairs(t_N: Tensor, s_N: Tensor, k: int = 1) -> list[tuple[int, int]]:
    """List all (class, group) pairs whose three pools hold at least k rows each.

    Parameters
    ----------
    t_N
        Classes (N,).
    s_N
        Groups (N,).
    k
        Fewest rows of a pool.

    Returns
    -------
    list[tuple[int, int]]
        Pairs (i, j).

    Examples
    --------
    >>> feasible_pairs(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    [(0, 0)]
    """
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
_LARGEST_KERNEL = 2**14  # rows of a ground set whose kernel is made for a step: 1 GiB
LARGEST_KEPT = 2**15  # rows of a ground set whose kernel is kept over an epoch: 2 GiB


@dataclass(frozen=True)
class Ground:
    """Hold the ground set V: embeddings of its rows as they are compared, and their labels.

    Parameters
    ----------
    z_VD
        Embeddings (V, D) of unit length.
    t_V
        Target classes (V,).
    s_V
        Sensitive groups (V,).
    """

    z_VD: Tensor  # (V, D), of unit length
    t_V: Tensor  # (V,) target class
    s_V: Tensor  # (V,) sensitive group
    shared: bool = False  # sets of several pairs are mined from it: its kernel is made once
    kept: KeptKernel | None = None  # its similarities, where they are kept from step to step
    _made: dict[Any, Gram] = field(default_factory=dict, init=False, repr=False, compare=False)

    def keeping(self, held: Ground | None) -> Ground:
        """The same with similarities that are kept: those of a former state of it, renewed."""
        if held is None or held.kept is None:
            cells = self.t_V * (int(self.s_V.max()) + 1) + self.s_V
            return replace(self, kept=KeptKernel(self.z_VD, cells=cells, product="exact"))
        held.kept.follow(self.z_VD)
        return replace(self, kept=held.kept)

    def kernel(self, similarity: Similarity, gamma: float | None) -> Gram | None:
        """V against V, for all sets that are mined from it; None where it is not shared or large.

        Every cell is candidates of several sets: cell by cell its rows would be multiplied anew for
        each. It is no older than the embeddings, so a resumed run has the same one.
        """
        if not self.shared or len(self.z_VD) > _LARGEST_KERNEL:
            return None
        if (similarity, gamma) not in self._made:
            made = kernel_matrix(self.z_VD.detach(), similarity, gamma)
            self._made[similarity, gamma] = Gram(made, nonnegative=similarity != "cosine")
        return self._made[similarity, gamma]


@dataclass(frozen=True)
class MinedSets:
    """Hold the rows of the ground set that were picked for each role.

    Parameters
    ----------
    anchors
        Anchors.
    positives
        Positives.
    negatives
        Negatives.
    gains
        Role to the marginal gain of each pick, if there are gains.
    skipped
        Reason to the number of candidates that were left out.
    """

    anchors: Tensor
    positives: Tensor
    negatives: Tensor
    gains: dict[str, Tensor]  # role -> marginal gain of each pick, where there are gains
    skipped: dict[str, int] = field(default_factory=dict)  # reason -> candidates left out


class Miner:
    """Define a miner: a subclass writes ``pick``."""

    def pick(self, ground: Ground, pools: Pools, k: int, generator: torch.Generator) -> MinedSets:
        """Pick k distinct rows of each pool; all rows of a pool that holds fewer.

        Everything in V may be looked at. The order of the rows must not matter, so a tie needs a
        rule of its own.

        Parameters
        ----------
        ground
            The ground set V.
        pools
            Rows of V that may be picked for each role.
        k
            Rows of each role.
        generator
            Source of random numbers.

        Returns
        -------
        MinedSets
            The picks, as rows of V.
        """
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
        """A checked triplet over the rows of z (N, D), which are V; the pair is drawn if not given.

        Where a pool holds fewer than k rows: ``redraw`` another pair, ``repeat`` rows of it, or
        ``shrink`` that set to what there is.
        """
        made, _ = self.explained(
            z_ND, t_N, s_N, k, generator,
            pair=pair, pair_sampling=pair_sampling, small_pool=small_pool, step=step,
        )  # fmt: skip
        return made

    def explained(
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
    ) -> tuple[Triplet, MinedSets]:
        """As ``mine``, with the gains of the picks and what was left out and why."""
        if len(z_ND) != len(t_N) or len(t_N) != len(s_N):
            raise InputError(
                "embeddings, targets and groups must have one row each per image; got "
                f"{len(z_ND)}, {len(t_N)} and {len(s_N)}"
            )
        if k < 1:
            raise InputError(f"k must be at least 1; got {k}")
        check_finite(z_ND, "embeddings")  # here, where rows are those of the caller
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
        mined = self.pick(Ground(self.comparable(z_ND), t_N, s_N), pools, k, generator)
        rows = [mined.anchors, mined.positives, mined.negatives]
        if small_pool == "repeat":
            rows = [repeated(part, k) for part in rows]
        return Triplet(rows[0], rows[1], rows[2], *pair, t_N, s_N), mined

    def comparable(self, z_ND: Tensor) -> Tensor:
        """Embeddings as they are compared: by direction."""
        return torch.nn.functional.normalize(z_ND.float(), dim=1)


def repeated(rows: Tensor, count: int) -> Tensor:
    """So many of the rows: each once before any comes again.

    >>> repeated(torch.tensor([7, 8]), 5).tolist()
    [7, 8, 7, 8, 7]
    """
    return rows.repeat(-(-count // max(len(rows), 1)))[:count]


# -------------------------------------------------------------------------------------------------
# `random`: k rows of each pool, drawn without replacement. The paper's ablation baseline.
# -------------------------------------------------------------------------------------------------


@register("random", kind="miner")
class RandomMiner(Miner):
    """Pick at random: no hardness at all.

    Examples
    --------
    >>> t, s = torch.tensor([0, 0, 1, 1] * 3), torch.tensor([0, 1] * 6)
    >>> triplet = RandomMiner().mine(torch.randn(12, 4), t, s, 2, pair=(0, 1))
    >>> t[triplet.anchors].tolist(), s[triplet.anchors].tolist()
    ([0, 0], [1, 1])
    """

    def pick(self, ground: Ground, pools: Pools, k: int, generator: torch.Generator) -> MinedSets:
        def draw(rows: Tensor) -> Tensor:
            return rows[torch.randperm(len(rows), generator=generator)[:k].to(rows.device)]

        return MinedSets(draw(pools.anchors), draw(pools.positives), draw(pools.negatives), {})


# -------------------------------------------------------------------------------------------------
# The embedding bank: the last known embedding of every training row, and how old it is.
# -------------------------------------------------------------------------------------------------

# rows (n,) of the manifest -> embeddings (n, D) of the un-augmented images, current weights
Embed = Callable[[Tensor], Tensor]
Refresh = Literal["live", "epoch", "free"] | int
_NEVER = -(2**40)


class EmbeddingBank:
    """Keep embeddings by row, refreshed by a policy and, for free, by every training step.

    ``live``: only an embedding of this very step will do. An integer n: one that is at most n steps
    old. ``epoch``: the ground set is embedded whenever it is drawn anew, and used until the next.
    ``free``: whatever a training step has left, however old; what was never seen is embedded once.

    Parameters
    ----------
    rows
        Rows of the manifest that the bank holds.
    refresh
        "live", "epoch", "free", or the number of steps that an embedding may be old.
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
        return self.z_ND.index_select(0, self.place[rows])

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
# The options of mining: functions, what is left out, schedule, and age of the embeddings.
#
# Every option has its one default here, and the defaults are Algorithm 1 of the paper: three sets
# mined over the whole ground set at every step. A method that wants something else names it.
# -------------------------------------------------------------------------------------------------

AnchorRule = Literal["logdet", "fl", "herding", "random"]
PositiveRule = Literal["flcg", "logdetcg", "fl", "herding", "random"]
NegativeRule = Literal["fl1mi", "flqmi", "logdetmi", "semihard", "fl", "herding", "random"]

# what decides nothing where nothing is mined: it names no other run there
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
        """Without what is not used: runs that compute the same have the same name."""
        body: dict[str, Any] = dump(self)
        if self.k is None:
            body.pop("k", None)
        if self.miner == "shasam":
            body.pop("miner", None)
        if self.pairs == "one":  # a pair that is alone has its roles to itself
            body.pop("roles", None)
        if not self.mines:
            for key in _OF_MINED_SETS:
                body.pop(key, None)
        return body

    def over(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Given keys laid over those that this one was made with."""
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
        """Whether the miner chooses among candidates for a role, or takes what is drawn."""
        if self.miner != "shasam":
            return self.miner != "random"
        return bool(getattr(self, role) != "random")


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
        """LogDet anchors, LogDetCG positives, LogDetMI negatives."""
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
        """Rows by similarity to their own centre, without the farthest ``trim`` of them."""
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
        """Negatives from near to far without those that a range, margin or vote leaves out.

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
        """Of candidates z: do most of the nearest rows of V have the anchors' class?"""
        asked = min(self.config.vote, len(ground.z_VD) - 1)
        found = []
        for part in z.split(_TILE):
            near = similarity_matrix(part, ground.z_VD, self._kind("cosine"), self.config.gamma)
            nearest = near.topk(asked + 1, dim=1).indices[:, 1:]  # the first is the row itself
            found.append((ground.t_V[nearest] == target).sum(dim=1) * 2 > asked)
        return torch.cat(found)

    def _nearest(self, z: Tensor, z_sel: Tensor) -> Tensor:
        """The similarity of each row to the nearest of a set."""
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
        """The function of a rule over candidates, given the rows of V that are the anchors."""
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
