"""Pools of anchors, positives and negatives; the base class of miners; the embedding bank.

The last section writes down what was mined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from shasam.errors import InputError
from shasam.registry import register
from shasam.submodular import KeptKernel
from shasam.submodular.kernels import (
    Gram,
    Similarity,
    check_finite,
    kernel_matrix,
)
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
    """Return the rows of every (target, group) cell that has any, ordered by (target, group)."""
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
    """Return one (i, j) for an iteration (Alg. 1, lines 16-18), among the feasible ones.

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
        """Keep the similarities: those of a former state of it, renewed."""
        if held is None or held.kept is None:
            cells = self.t_V * (int(self.s_V.max()) + 1) + self.s_V
            return replace(self, kept=KeptKernel(self.z_VD, cells=cells, product="exact"))
        held.kept.follow(self.z_VD)
        return replace(self, kept=held.kept)

    def kernel(self, similarity: Similarity, gamma: float | None) -> Gram | None:
        """Compare V with V, for all sets that are mined from it; None if it is not shared or large.

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
        """Mine a checked triplet over rows z (N, D), which are V; a pair is drawn if not given.

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
        """Mine as ``mine`` does.

        Also return the gains of the picks and what was left out and why.
        """
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
        """Return embeddings as they are compared: by direction."""
        return torch.nn.functional.normalize(z_ND.float(), dim=1)


def repeated(rows: Tensor, count: int) -> Tensor:
    """Return so many of the rows: each once before any comes again.

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
        """Return embeddings (n, D) young enough for the policy; the others are made now."""
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
        """Return only what a resumed run cannot make again."""
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
# What was mined, so that a page can show it: rows, gains, similarities, random beside them.
# -------------------------------------------------------------------------------------------------

_SETS = ("anchors", "positives", "negatives")


def explain(
    step: int, rows_V: Tensor, ground: Ground, pools: Pools, mined: MinedSets, drawn: MinedSets
) -> dict[str, object]:
    """Return one iteration for ``mining.json``: each pick with its row, gain and nearest anchor.

    ``rows_V`` names the rows of the ground set; ``drawn`` has random ones of the same pools.
    """
    sets: dict[str, list[dict[str, object]]] = {}
    z_VD = ground.z_VD
    for name in _SETS:
        # random picks are held against the anchors that the mined ones are held against
        for prefix, made in (("", mined), ("random_", drawn)):
            places: Tensor = getattr(made, name)
            own = name == "anchors"
            against = places if own else mined.anchors
            near = _nearest(z_VD[places], z_VD[against], own)
            gains = made.gains.get(name)
            sets[prefix + name] = [
                {
                    "row": row,
                    "gain": None if gains is None else float(gains[i]),
                    "similarity": near[i],
                }
                for i, row in enumerate(rows_V[places].tolist())
            ]
    return {"step": step, "target": pools.target, "sensitive": pools.sensitive, "sets": sets}


def _nearest(z: Tensor, z_anchors: Tensor, same: bool) -> list[float]:
    """Return the largest cosine to an anchor; for an anchor, to another one."""
    near = z @ z_anchors.T
    if same:
        near.fill_diagonal_(-1.0)
    return [float(value) for value in near.amax(dim=1)]
