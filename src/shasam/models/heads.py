"""Heads on top of an encoder: projections and classifiers."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class ProjectionHead(nn.Module):
    """Linear, (batch norm,) ReLU, linear, (batch norm without affine): (B, in) to (B, out).

    The last normalisation has no scale or shift: it keeps the mean of the embeddings at zero, so
    that "all embeddings equal" cannot be reached in training mode.
    """

    def __init__(
        self, inside: int, hidden: int | None = None, out: int = 128, batch_norm: bool = True
    ) -> None:
        super().__init__()
        hidden = hidden or inside
        self.fc1 = nn.Linear(inside, hidden, bias=not batch_norm)
        self.bn1 = nn.BatchNorm1d(hidden) if batch_norm else nn.Identity()
        self.fc2 = nn.Linear(hidden, out, bias=not batch_norm)
        self.bn2 = nn.BatchNorm1d(out, affine=False) if batch_norm else nn.Identity()
        self.out_dim = out

    def forward(self, x: Tensor) -> Tensor:
        """Not normalised to length one; code that compares cosines does that."""
        return self.bn2(self.fc2(F.relu(self.bn1(self.fc1(x)))))


class Classifier(nn.Module):
    """Features (B, in) to class scores (B, C), with one hidden layer or none.

    ``standardise`` puts a batch norm without affine before it: frozen features of any scale
    (unit-length projections, pooled ReLUs) then suit one learning rate.
    """

    def __init__(
        self, inside: int, hidden: int | None, classes: int, standardise: bool = False
    ) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inside, affine=False) if standardise else nn.Identity()
        self.hidden = nn.Identity() if hidden is None else nn.Linear(inside, hidden)
        self.out = nn.Linear(inside if hidden is None else hidden, classes)

    def hidden_layer(self, x: Tensor) -> Tensor:
        """What the last linear layer reads (B, hidden)."""
        x = self.norm(x)
        return F.relu(self.hidden(x)) if isinstance(self.hidden, nn.Linear) else x

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.hidden_layer(x))
