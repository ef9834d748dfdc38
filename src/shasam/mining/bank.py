"""The embedding bank: the last known embedding of every training row, and how old it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

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
