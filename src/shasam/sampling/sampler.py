"""SHaSaM-MINE in a training loop of one's own: a batch sampler for ``torch.utils.data``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from shasam.errors import InputError
from shasam.mining.bank import Embed
from shasam.mining.config import MiningConfig
from shasam.mining.pools import cells_of, pools_of
from shasam.sampling.mined import MinedPlan
from shasam.sampling.plan import TrainingRows
from shasam.types import Triplet


def batch_triplets(t_B: Tensor, s_B: Tensor) -> tuple[Triplet, ...]:
    """Anchors, positives and negatives of every (target, group) pair that a batch can serve.

    They are positions in the batch, for ``shasam.losses.flcmi`` and ``logdetcmi``.

    >>> (one,) = batch_triplets(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]))
    >>> one.anchors.tolist(), one.positives.tolist(), one.negatives.tolist()
    ([0], [1], [2])
    """
    t_B, s_B = t_B.cpu(), s_B.cpu()
    found = [pools_of(t_B, s_B, *pair) for pair in cells_of(torch.arange(len(t_B)), t_B, s_B)]
    return tuple(
        Triplet(p.anchors, p.positives, p.negatives, p.target, p.sensitive, t_B, s_B)
        for p in found
        if p.smallest
    )


class MiningBatchSampler(Sampler[list[int]]):
    """Batches that are mined as SHaSaM mines them: ``DataLoader(..., batch_sampler=this)``.

    Every batch holds diverse anchors, hard positives and hard negatives of all pairs of class and
    group. Random at first, then harder, as ``mining`` says in shares of ``total_steps``. After each
    step tell it the embeddings: ``update(rows, embeddings)``. A row that no step has shown yet is
    taken for a typical one of its class and group, or embedded by ``embed(rows)`` where that is
    given. Iterating again goes on where the last epoch ended.

    >>> sampler = MiningBatchSampler([0, 1] * 40, [0, 0, 1, 1] * 20, batch_size=24, total_steps=9)
    >>> len(sampler), sorted(map(len, sampler))
    (3, [24, 24, 24])
    """

    def __init__(
        self,
        targets: Any,
        sensitive: Any,
        *,
        total_steps: int,
        batch_size: int = 96,
        mining: MiningConfig | Mapping[str, Any] | None = None,
        embed: Embed | None = None,
        seed: int = 0,
    ) -> None:
        t_N, s_N = _codes(targets, "targets"), _codes(sensitive, "sensitive")
        if len(t_N) != len(s_N):
            raise InputError(f"{len(t_N)} targets came with {len(s_N)} sensitive groups")
        if total_steps < 1:
            raise InputError(f"total_steps must be at least 1; got {total_steps}")
        config = mining if isinstance(mining, MiningConfig) else MiningConfig(**(mining or {}))
        rows = torch.arange(len(t_N))
        self.plan = MinedPlan(TrainingRows(t_N, s_N, rows, batch_size, seed), config)
        self.plan.total_steps = total_steps
        self.batch_size, self.step = batch_size, 0
        self._embed = embed or self._typical
        self._cell_N = t_N * (int(s_N.max()) + 1) + s_N
        self._seen_N = torch.zeros(len(t_N), dtype=torch.bool)

    def __len__(self) -> int:
        """Batches of an epoch: as many as show every row once on average."""
        return max(1, len(self._cell_N) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            epoch = self.step // self.plan.steps_per_epoch  # of the ground set, not of the loader
            draw = self.plan.draw(epoch, self.step, self._embed)
            self.step += 1
            yield draw.rows_B.tolist()

    def update(self, rows: Any, embeddings: Tensor) -> None:
        """See the embeddings (B, D) of a step, or (V*B, D) of V views, B rows apart."""
        rows_B = torch.as_tensor(rows, dtype=torch.int64).cpu()
        if not len(rows_B) or embeddings.ndim != 2 or len(embeddings) % len(rows_B):
            raise InputError(
                f"{len(rows_B)} rows came with embeddings {tuple(embeddings.shape)}; give (B, D), "
                "or (V*B, D) for V views"
            )
        if int(rows_B.min()) < 0 or int(rows_B.max()) >= len(self._seen_N):
            raise InputError(f"rows go from 0 to {len(self._seen_N) - 1}")
        if not bool(torch.isfinite(embeddings).all()):
            raise InputError("the embeddings hold NaN or infinity; stop before the next step")
        self.plan.observe(rows_B, embeddings)
        self._seen_N[rows_B] = True

    def _typical(self, rows: Tensor) -> Tensor:
        """For rows that were never seen: the mean of their cell, or of all that were."""
        z_ND = self.plan.bank.z_ND
        if z_ND is None or not bool(self._seen_N.any()):
            raise InputError(
                "mining begins and no embedding is known: call update(rows, embeddings) after "
                "every step, or give MiningBatchSampler embed="
            )
        z, cell = z_ND[self._seen_N], self._cell_N[self._seen_N]
        sums = torch.zeros(int(self._cell_N.max()) + 1, z.shape[1]).index_add_(0, cell, z)
        known = torch.zeros(len(sums), dtype=torch.bool)
        known[cell] = True
        sums[~known] = z.sum(dim=0)
        return sums[self._cell_N[rows]]

    def state_dict(self) -> dict[str, Tensor]:
        """For a checkpoint: with it a run that was cut draws the same batches again."""
        return {"step": torch.tensor(self.step), "seen": self._seen_N.clone(), **self.plan.state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state_dict`` of a sampler of the same labels and settings."""
        self.step, self._seen_N = int(state["step"]), state["seen"].clone()
        self.plan.load_state({k: v for k, v in state.items() if k not in ("step", "seen")})


def _codes(labels: Any, name: str) -> Tensor:
    """Labels of any kind as 0, 1, ... in the order of their values."""
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be one label for each row; got the shape {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} hold NaN or infinity; leave those rows out")
    return torch.from_numpy(np.unique(array, return_inverse=True)[1].astype(np.int64))
