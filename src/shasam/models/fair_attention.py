"""Linear layers whose rows carry adaptive masks, one per group of training images (FairViT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shasam.models.encoder import Encoder


@dataclass
class MaskState:
    """What all masked layers of one network share during a pass."""

    weights_G: Tensor | None = None  # c_g; None: masks are left out
    shares_G: Tensor | None = None  # share of the batch in each group; None: not training
    gradient_G: Tensor | None = None  # of c_g, summed over layers by the backward pass
    loss_scale: Tensor | None = None  # by which a gradient scaler multiplied the loss


class _Mask(torch.autograd.Function):
    """M = 1 + Σ_g c_g m_g, with the gradients that Tian et al. (ECCV 2024) publish.

    m_g receives share_g · c_g · dL/dM and c_g receives share_g · <dL/dM, m_g>: the ordinary
    gradient times the share of the batch that belongs to g, so a mask learns from its own group.

    c_g is stepped by an optimiser of its own, so its gradient is left in the shared state.
    """

    @staticmethod
    def forward(ctx: Any, scores_RG: Tensor, state: MaskState) -> Tensor:
        weights_G, shares_G = state.weights_G.detach(), state.shares_G  # type: ignore[union-attr]
        ctx.save_for_backward(scores_RG, weights_G, shares_G)
        ctx.state = state
        return 1 + scores_RG @ weights_G

    @staticmethod
    def backward(ctx: Any, grad_R: Tensor) -> tuple[Tensor, None]:
        scores_RG, weights_G, shares_G = ctx.saved_tensors
        own_G = shares_G * (grad_R @ scores_RG)
        before_G = ctx.state.gradient_G
        ctx.state.gradient_G = own_G if before_G is None else before_G + own_G
        return grad_R[:, None] * (shares_G * weights_G), None


class _Scale(torch.autograd.Function):
    """The identity on a loss; the backward pass leaves the scale of the loss in the state."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, state: MaskState) -> Tensor:
        ctx.state = state
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.state.loss_scale = grad.detach().clone()
        return grad, None


def note_scale(loss: Tensor, state: MaskState) -> Tensor:
    """The loss itself, from which ``state.loss_scale`` will be read."""
    return _Scale.apply(loss, state)


def adaptive_mask(scores_RG: Tensor, state: MaskState) -> Tensor:
    """M (R,) of scores m (R, G); see ``_Mask`` for the gradients."""
    # the sum is small against 1: half precision would lose the masks
    with torch.autocast(scores_RG.device.type, enabled=False):
        if state.shares_G is None:
            return 1 + scores_RG @ state.weights_G  # type: ignore[operator]
        return _Mask.apply(scores_RG, state)


class MaskedLinear(nn.Linear):
    """A linear layer with weight rows and bias multiplied by M.

    There is one mask entry per output, or with ``heads`` one per head, the same for each of the
    ``parts`` (query, key, value) that the layer holds. ``scores`` start at 0, so that the layer
    starts as the one it replaces.
    """

    scores: nn.Parameter

    @classmethod
    def replacing(
        cls,
        linear: nn.Linear,
        groups: int,
        state: MaskState,
        heads: int | None = None,
        parts: int = 1,
        masks_of: MaskedLinear | None = None,
    ) -> MaskedLinear:
        """The layer with the same weight and bias (the same tensors), and masks.

        With ``masks_of`` it has the masks of that layer and none of its own.
        """
        layer = cls(linear.in_features, linear.out_features, linear.bias is not None)
        layer.weight, layer.bias = linear.weight, linear.bias
        rows = linear.out_features if heads is None else heads
        if masks_of is None:
            layer.scores = nn.Parameter(torch.zeros(rows, groups))
        layer.owner = (layer if masks_of is None else masks_of,)
        layer.heads, layer.parts, layer.state = heads, parts, state
        return layer

    heads: int | None
    parts: int
    state: MaskState
    owner: tuple[MaskedLinear]  # the layer with the scores; in a tuple it is no submodule

    def forward(self, x: Tensor) -> Tensor:
        if self.state.weights_G is None:
            return F.linear(x, self.weight, self.bias)
        mask_R = adaptive_mask(self.owner[0].scores, self.state)
        if self.heads is not None:  # outputs are ordered (q | k | v), each by heads
            per_head = self.out_features // self.parts // self.heads
            mask_R = mask_R.repeat_interleave(per_head).repeat(self.parts)
        bias = None if self.bias is None else self.bias * mask_R
        return F.linear(x, self.weight * mask_R[:, None], bias)


def add_masks(encoder: Encoder, groups: int) -> MaskState:
    """Replace the encoder's maskable linear layers by masked ones; return what they share."""
    state = MaskState()
    for site in encoder.mask_sites():
        linear = getattr(site.owner, site.name)
        masked = MaskedLinear.replacing(linear, groups, state, site.heads, site.parts)
        setattr(site.owner, site.name, masked)
        for name in site.shared:
            other = getattr(site.owner, name)
            also = MaskedLinear.replacing(other, groups, state, site.heads, masks_of=masked)
            setattr(site.owner, name, also)
    return state
