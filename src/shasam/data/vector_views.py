"""Training views of vectors: feature dropout, Gaussian noise, mixing within a cell.

Every random number is keyed by (seed, draw, row, view), as those of image views are: a view does
not depend on the batch it stands in.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shasam.extras import need

need("torch", __name__)

import torch
from torch import Tensor

from shasam.keyed import keys_torch, uniform_torch
from shasam.spec.views import ViewsSpec

_MIX = 2  # numbers that mixing draws for a view: the partner and its share


class CellPartners:
    """For every training row the rows of its (target, group) cell, one of which it may meet."""

    def __init__(self, t_N: Tensor, s_N: Tensor, rows: Tensor) -> None:
        cell_N = t_N * (int(s_N.max()) + 1) + s_N
        order = rows[cell_N[rows].argsort(stable=True)]
        self.rows = order  # of the training split, cell by cell
        cells, counts = cell_N[order].unique_consecutive(return_counts=True)
        size = int(cell_N.max()) + 1
        self.count_K = torch.zeros(size, dtype=torch.int64).scatter_(0, cells, counts)
        self.start_K = torch.zeros(size, dtype=torch.int64).scatter_(
            0, cells, counts.cumsum(0) - counts
        )
        self.cell_N = cell_N

    def pick(self, rows: Tensor, u: Tensor) -> Tensor:
        """A row of the cell of each of ``rows``, by numbers in [0, 1)."""
        cell = self.cell_N[rows]
        place = (u * self.count_K[cell]).long().clamp(max=self.count_K[cell] - 1)
        return self.rows[self.start_K[cell] + place]


def vector_views(
    read: Callable[[Tensor], Tensor],
    rows: Tensor,
    partners: CellPartners | None,
    *,
    seed: int,
    draw: int,
    views: int,
    spec: ViewsSpec,
) -> Tensor:
    """Views (V*B, D) of the vectors of ``rows``; views of one row stand B rows apart.

    Mixing comes first, then noise, then dropout. ``read`` gives the vectors of any rows.
    """
    x = read(rows).to(torch.float32)
    out = x.repeat(views, 1)
    view_V1 = torch.arange(views, dtype=torch.int64)[:, None]
    key = keys_torch(seed, draw, rows[None, :], view_V1).reshape(-1)  # (V*B,)
    width = x.shape[1]
    if spec.mixing and partners is not None:
        u = uniform_torch(key, _MIX)
        other = read(partners.pick(rows.repeat(views), u[:, 0])).to(torch.float32)
        out = torch.lerp(out, other, (spec.mixing * u[:, 1:2]))
    if spec.noise:
        u, v = uniform_torch(keys_torch(seed, draw, rows[None, :], view_V1, 1).reshape(-1),
                             2 * width).split(width, dim=1)  # fmt: skip
        # Box and Muller; 1 - u is never 0
        normal = torch.sqrt(-2 * torch.log1p(-u)) * torch.cos(2 * math.pi * v)
        scale = out.square().mean(1, keepdim=True).sqrt()
        out = out + spec.noise * scale * normal
    if spec.feature_dropout:
        u = uniform_torch(keys_torch(seed, draw, rows[None, :], view_V1, 2).reshape(-1), width)
        kept = u >= spec.feature_dropout
        out = out * kept / (1 - spec.feature_dropout)
    return out
