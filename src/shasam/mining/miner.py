"""The base class of all miners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.mining.pools import PairSampling, Pools, draw_pair, pools_of
from shasam.submodular.kernels import check_finite
from shasam.types import Triplet

SmallPool = Literal["redraw", "repeat", "shrink"]


@dataclass(frozen=True)
class Mined:
    """Positions picked from each pool, with the marginal gains of the picks."""

    anchors: Tensor
    positives: Tensor
    negatives: Tensor
    gains: dict[str, Tensor]


class Miner:
    """Picks k anchors, k positives and k negatives out of pools of unit-length embeddings."""

    def pick(
        self, z_A: Tensor, z_P: Tensor, z_N: Tensor, k: int, generator: torch.Generator
    ) -> Mined:
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
