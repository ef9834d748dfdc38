"""SHaSaM for pytorch-metric-learning: a miner and a loss that also read the sensitive attribute.

mine, learn = ShasamTuples(k=8), ShasamLoss()
loss = learn(embeddings, labels, mine(embeddings, labels, sensitive=s), sensitive=s)

The miner's tuples suit any loss of that package, and the loss takes the tuples of any miner.
"""

from __future__ import annotations

from typing import Any, Literal

from shasam.extras import need

need("pml", __name__)

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.miners import BaseMiner
from torch import Tensor

from shasam.errors import InputError
from shasam.losses import flcmi, logdetcmi, unit_length
from shasam.mining import Miner, ShasamMiner
from shasam.sampling import batch_triplets
from shasam.types import Triplet

# -------------------------------------------------------------------------------------------------
# Triplets as tuples of indices, the form that pytorch-metric-learning uses.
# -------------------------------------------------------------------------------------------------


def triplet_tuple(triplet: Triplet) -> tuple[Tensor, Tensor, Tensor]:
    """Return (anchor, positive, negative) of every combination: k³ entries."""
    a, p, n = torch.meshgrid(triplet.anchors, triplet.positives, triplet.negatives, indexing="ij")
    return a.flatten(), p.flatten(), n.flatten()


def pair_tuple(triplet: Triplet) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (anchor, positive, anchor, negative) of every pair: k² entries each."""
    a1, p = torch.meshgrid(triplet.anchors, triplet.positives, indexing="ij")
    a2, n = torch.meshgrid(triplet.anchors, triplet.negatives, indexing="ij")
    return a1.flatten(), p.flatten(), a2.flatten(), n.flatten()


class ShasamTuples(BaseMiner):
    """Hard tuples by SHaSaM-MINE, of every pair of class and group that the batch can serve.

    ``k`` anchors, positives and negatives of each pair; ``output="pairs"`` gives (a1, p, a2, n),
    ``"triplets"`` (a, p, n). A batch that can serve no pair gives empty tuples.
    """

    def __init__(
        self,
        miner: Miner | None = None,
        k: int = 8,
        output: Literal["pairs", "triplets"] = "pairs",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.miner, self.k, self.output = miner or ShasamMiner(), k, output
        self.generator = torch.Generator().manual_seed(seed)
        self._sensitive: Tensor | None = None

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        *,
        sensitive: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Compute the loss; ``sensitive`` (B,) is the group of each row."""
        _no_references(ref_emb)
        self._sensitive = _groups(sensitive, labels)
        found: tuple[Tensor, ...] = super().forward(embeddings, labels)
        return found

    def mine(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor
    ) -> tuple[Tensor, ...]:
        z, t_B, s_B = embeddings.cpu().float(), labels.cpu(), self._sensitive
        assert s_B is not None
        tuple_of = pair_tuple if self.output == "pairs" else triplet_tuple
        made = []
        for cell in batch_triplets(t_B, s_B):
            mined = self.miner.mine(
                z, t_B, s_B, self.k, self.generator,
                pair=(cell.target, cell.sensitive), small_pool="shrink",
            )  # fmt: skip
            made.append(tuple_of(mined))
        width = 4 if self.output == "pairs" else 3
        if not made:
            return tuple(torch.zeros(0, dtype=torch.int64) for _ in range(width))
        return tuple(torch.cat(parts).to(embeddings.device) for parts in zip(*made, strict=True))


class ShasamLoss(BaseMetricLossFunction):
    """SHaSaM-LEARN: the mean of I_f(A; N | P) over the pairs of class and group.

    Without tuples, the sets of a pair are all rows of the batch that fit it. With them, anchors are
    taken together by class and group, with the positives and negatives that the tuples give them.
    ``settings`` are those of ``shasam.losses.flcmi`` or ``logdetcmi``.
    """

    def __init__(
        self,
        objective: Literal["flcmi", "logdetcmi"] = "flcmi",
        settings: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if objective not in ("flcmi", "logdetcmi"):
            raise InputError(f"there is no objective {objective!r}; there are flcmi and logdetcmi")
        self.objective = flcmi if objective == "flcmi" else logdetcmi
        self.settings = settings or {}
        self._sensitive: Tensor | None = None

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        *,
        sensitive: Tensor | None = None,
    ) -> Tensor:
        """Pick the tuples; ``sensitive`` (B,) is the group of each row."""
        _no_references(ref_emb)
        self._sensitive = _groups(sensitive, labels)
        loss: Tensor = super().forward(embeddings, labels, indices_tuple)
        return loss

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None,
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> dict[str, dict[str, Any]]:
        t_B, s_B = labels.cpu(), self._sensitive
        assert s_B is not None
        sets: list[tuple[Tensor, ...]]
        if indices_tuple is None:
            sets = [(c.anchors, c.positives, c.negatives) for c in batch_triplets(t_B, s_B)]
        else:
            sets = _sets_of(indices_tuple, t_B, s_B)
        if not sets:
            return self.zero_losses()
        z = unit_length(embeddings)
        device = embeddings.device
        terms = [self.objective(z, *(x.to(device) for x in s), **self.settings) for s in sets]
        value = torch.stack(terms).mean()
        return {"loss": {"losses": value, "indices": None, "reduction_type": "already_reduced"}}


def _sets_of(tuples: tuple[Tensor, ...], t_B: Tensor, s_B: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the sets (A, P, N) of each cell of anchors that has positives and negatives."""
    if len(tuples) == 3:
        a, p, n = (part.cpu() for part in tuples)
        tuples = (a, p, a, n)
    if len(tuples) != 4:
        raise InputError(f"indices_tuple must have 3 or 4 parts; it has {len(tuples)}")
    a1, p, a2, n = (part.cpu() for part in tuples)
    sets: list[tuple[Tensor, ...]] = []
    for t, s in sorted(set(zip(t_B[a1].tolist(), s_B[a1].tolist(), strict=True))):
        first, second = ((t_B[a] == t) & (s_B[a] == s) for a in (a1, a2))
        anchors = torch.cat([a1[first], a2[second]]).unique()
        found = (anchors, p[first].unique(), n[second].unique())
        if all(len(part) for part in found):
            sets.append(found)
    return sets


def _groups(sensitive: Tensor | None, labels: Tensor) -> Tensor:
    if sensitive is None:
        raise InputError("give the sensitive group of each row: sensitive=…")
    groups = torch.as_tensor(sensitive).cpu()
    if groups.shape != labels.shape:
        raise InputError(
            f"{len(labels)} labels came with sensitive groups of the shape {tuple(groups.shape)}"
        )
    return groups


def _no_references(ref_emb: Tensor | None) -> None:
    if ref_emb is not None:
        raise InputError("reference embeddings are not supported: give one batch of all rows")
