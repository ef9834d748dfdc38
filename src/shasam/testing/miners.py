"""``check_miner``: the contract that every miner has to keep, built-in or your own."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

import torch

from shasam.errors import ContractError
from shasam.mining.pools import Miner


def check_miner(miner: Miner, *, k: int = 6, seed: int = 0) -> None:
    """Check a miner; raise ``ContractError`` with the law that it breaks.

    The laws: exactly k distinct rows of every pool, or all of a pool that has fewer; labels as
    T_i∩S_j, T_i∩¬S_j and ¬T_i∩S_j demand, for many classes and groups; the same answer for the same
    seed; the same images whatever the order of the rows (random miners excepted); duplicated, zero
    and single-pool rows.

    Parameters
    ----------
    miner
        The miner.
    k
        Rows of each set.
    seed
        Seed of the test data.

    Examples
    --------
    >>> from shasam.mining import ShasamMiner
    >>> check_miner(ShasamMiner(), k=3)
    """
    generator = torch.Generator().manual_seed(seed)
    z_ND = torch.nn.functional.normalize(torch.randn(240, 16, generator=generator), dim=1)
    t_N = torch.randint(0, 3, (240,), generator=generator)
    s_N = torch.randint(0, 2, (240,), generator=generator)
    hard = z_ND.clone()
    hard[::7], hard[1::7] = hard[0], 0.0
    for name, z in (("random embeddings", z_ND), ("duplicates and zeros", hard)):
        for pair in ((0, 0), (1, 1), (2, 0)):
            first = miner.mine(z, t_N, s_N, k, torch.Generator().manual_seed(1), pair=pair)
            for part in ("anchors", "positives", "negatives"):
                rows = getattr(first, part)
                if len(rows) != k or len(rows.unique()) != k:
                    raise ContractError(
                        f"{part} on {name}: {len(rows.unique())} distinct picks instead of {k}"
                    )
            again = miner.mine(z, t_N, s_N, k, torch.Generator().manual_seed(1), pair=pair)
            if any(
                not torch.equal(getattr(first, part), getattr(again, part))
                for part in ("anchors", "positives", "negatives")
            ):
                raise ContractError(f"two calls with one seed differ on {name}")
    _check_order(miner, z_ND, t_N, s_N, k)
    cell = int(((t_N == 0) & (s_N == 0)).sum())
    everything = miner.mine(
        z_ND, t_N, s_N, cell, torch.Generator().manual_seed(1), pair=(0, 0), small_pool="shrink"
    )
    if len(everything.anchors.unique()) != cell:
        raise ContractError("k as large as the pool must take the whole pool")


def _check_order(
    miner: Miner, z_ND: torch.Tensor, t_N: torch.Tensor, s_N: torch.Tensor, k: int
) -> None:
    """Check that the order of the rows, that of files on a disk, does not decide what is mined."""
    seeds = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    with_other_seed = [miner.mine(z_ND, t_N, s_N, k, g, pair=(0, 1)) for g in seeds]
    if set(with_other_seed[0].negatives.tolist()) != set(with_other_seed[1].negatives.tolist()):
        return  # it draws at random, so order cannot be told from chance
    order = torch.randperm(len(z_ND), generator=torch.Generator().manual_seed(3))
    there = miner.mine(
        z_ND[order], t_N[order], s_N[order], k, torch.Generator().manual_seed(1), pair=(0, 1)
    )
    here = with_other_seed[0]
    for part in ("anchors", "positives", "negatives"):
        if set(order[getattr(there, part)].tolist()) != set(getattr(here, part).tolist()):
            raise ContractError(f"{part} change when the rows are put in another order")
