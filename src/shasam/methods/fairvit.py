"""FairViT: adaptive masks per group, a distance loss, and classifiers after late blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.errors import ContractError
from shasam.methods.base import Dial, Stage
from shasam.methods.baselines import CE, CEConfig
from shasam.models.encoder import Encoder
from shasam.registry import register
from shasam.types import Batch, Losses

# -------------------------------------------------------------------------------------------------
# Linear layers whose rows carry adaptive masks, one per group of training images (FairViT).
# -------------------------------------------------------------------------------------------------


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
    """Return the loss itself, from which ``state.loss_scale`` will be read."""
    return _Scale.apply(loss, state)


def adaptive_mask(scores_RG: Tensor, state: MaskState) -> Tensor:
    """Return M (R,) of scores m (R, G); see ``_Mask`` for the gradients."""
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
        """Return the layer with the same weight and bias (the same tensors), and masks.

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


RECENT = 1024  # latest training outputs that the correct/wrong boundary is fitted on
PUBLISHED_BATCH = 32  # images over which the distances are summed


@register("fairvit", kind="method")
class FairViT(CE):
    """CE(t) + supervision · Σ_b CE(t, head_b) + distance · 32 · mean_i d_i.

    Layers of the ViT are masked by M = 1 + Σ_g c_g m_g, g running over groups x chunks of images;
    m_g and c_g learn by the published gradients (``shasam.methods.fairvit``), c_g in a
    parameter group of its own. With δ the signed distance of (true logit, sum of the other top
    logits) to the line that separates correct from wrong answers:
    d = -2 if δ ≥ 10, -0.5 δ if δ ≥ 0, else -δ. The paper sums d over batches of 32; with the mean
    times 32 a larger batch does not drown the cross-entropy, which is a mean.
    The masks need no group at test; ``masks_at_test=False`` drops them as the released code does.
    """

    summary = "adaptive masks per group, distance loss and deep supervision (ViT)"
    reference = "Tian et al., ECCV 2024 (FairViT)"
    dial = Dial("distance", (0.03, 0.1, 0.3))
    needs_encoder = "vit"
    needs_images = True
    row_wise = False

    class Config(CEConfig):
        supervision: float = Field(
            1.0, ge=0, json_schema_extra={"weight": None},
            description="Weight of the classifiers on inner blocks.",
        )  # fmt: skip
        distance: float = Field(
            0.1, ge=0, json_schema_extra={"weight": None},
            description="Weight of the distance to the line between right and wrong answers.",
        )  # fmt: skip
        distance_from: float = Field(
            1 / 30, ge=0, le=1,
            description="Share of training before the distance counts (published: epoch 2).",
        )  # fmt: skip
        refit_every: int = Field(50, ge=1, description="Steps between fits of that line.")
        supervised_blocks: int = Field(
            5, ge=0, description="Last blocks with a classifier of their own (published: 8 to 12)."
        )
        chunks: int = Field(
            5, ge=1, description="Masks of each group (published: chunks of identities)."
        )
        weight_start: float = Field(2.0, description="Weight c_g of a mask at the start.")
        weight_ceiling: float = Field(4.0, gt=0, description="Largest weight of a mask.")
        weight_lr: float = Field(
            1.0, ge=0, description="Learning rate of the masks' weights (published: 1, README: 3)."
        )
        masks_at_test: bool = Field(
            True, description="false: predict without the masks, as the released code does."
        )

    config: Config
    recent: Tensor
    boundary: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        masks = groups * config.chunks
        self.state = add_masks(encoder, masks)
        self.mask_weights = nn.Parameter(torch.full((masks,), config.weight_start))
        first = max(0, len(encoder.layers) - config.supervised_blocks)
        self.taps = encoder.layers[first:]
        width = encoder.out_dim
        self.deep_heads = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes)) for _ in self.taps
        )
        # (true logit, other logits, correct, used) of the latest outputs; (θ1, θ2, b, fitted)
        self.register_buffer("recent", torch.zeros(RECENT, 4, dtype=torch.float64))
        self.register_buffer("boundary", torch.zeros(4, dtype=torch.float64))

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main", "mask_weights")),)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        main = [p for p in self.parameters() if p is not self.mask_weights]
        return {"main": main, "mask_weights": [self.mask_weights]}

    def optimizer_overrides(self) -> dict[str, dict[str, float | str | None]]:
        # as published: a constant rate, whatever the schedule of the network
        steady: dict[str, float | str | None]
        steady = {"schedule": "constant", "warmup": 0.0, "clip": None, "momentum": 0.0}
        rate = max(self.config.weight_lr, 1e-12)
        return {"mask_weights": {"optimizer": "sgd", "lr": rate, **steady}}

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        chunk_B = batch.rows_B.to(batch.s_B.device) % self.config.chunks
        group_B = batch.s_B * self.config.chunks + chunk_B
        shares_G = torch.bincount(group_B, minlength=len(self.mask_weights)) / len(group_B)
        self.state.weights_G, self.state.shares_G = self.mask_weights, shares_G
        features_BD, found = self.encoder.forward_taps(batch.images, self.taps)
        self.state.weights_G = self.state.shares_G = self.state.gradient_G = None
        scores_BC = self.classifier(features_BD).float()
        target = F.cross_entropy(scores_BC, batch.t_B)
        deep = torch.zeros_like(target)
        for tap, head in zip(self.taps, self.deep_heads, strict=True):
            deep = deep + F.cross_entropy(head(found[tap][:, 0]), batch.t_B)
        distance = self._distance(scores_BC, batch)
        total = target + self.config.supervision * deep + self.config.distance * distance
        parts = {"target": target.detach(), "deep": deep.detach(), "distance": distance.detach()}
        yield "main", Losses(note_scale(total, self.state), parts)

        gradient_G, scale = self.state.gradient_G, self.state.loss_scale
        if gradient_G is None or scale is None:
            raise ContractError("fairvit needs a backward pass of its first loss before its second")
        surrogate = (self.mask_weights * (gradient_G / scale)).sum()  # has just this gradient
        yield "mask_weights", Losses(surrogate)
        with torch.no_grad():
            self.mask_weights.clamp_(1e-8, self.config.weight_ceiling - 1e-8)

    def _distance(self, scores_BC: Tensor, batch: Batch) -> Tensor:
        """Return 32 · mean_i d_i, or 0 before the boundary is known; takes note of the outputs."""
        point_B2 = _points(scores_BC, batch.t_B)
        late = batch.progress >= self.config.distance_from
        if late and (batch.step % self.config.refit_every == 0 or not self.boundary[3]):
            self.boundary.copy_(fit_boundary(self.recent))
        correct_B = scores_BC.argmax(1) == batch.t_B
        fresh_B4 = torch.cat(
            [point_B2.detach(), correct_B[:, None], torch.ones_like(correct_B)[:, None]], dim=1
        )
        kept = self.recent.roll(len(fresh_B4), 0)
        kept[: len(fresh_B4)] = fresh_B4[:RECENT]
        self.recent.copy_(kept)
        if not late or not self.boundary[3]:
            return scores_BC.sum() * 0.0
        theta, bias = self.boundary[:2].to(point_B2.dtype), self.boundary[2].to(point_B2.dtype)
        delta_B = (point_B2 @ theta + bias) / theta.norm().clamp(min=1e-12)
        near_B = torch.where(delta_B >= 0, -0.5 * delta_B, -delta_B)
        d_B = torch.where(delta_B >= 10, torch.full_like(delta_B, -2.0), near_B)
        return PUBLISHED_BATCH * d_B.mean()

    def features(self, images: Tensor) -> dict[str, Tensor]:
        self.state.weights_G = self.mask_weights if self.config.masks_at_test else None
        features_BD = self.encoder(images)
        self.state.weights_G = None
        return {"encoder": features_BD}


def _points(scores_BC: Tensor, t_B: Tensor) -> Tensor:
    """Return (true logit, sum of the two largest logits without the true one), (B, 2)."""
    top_B2, which_B2 = scores_BC.topk(min(2, scores_BC.shape[1]), dim=1)
    others_B = (top_B2 * (which_B2 != t_B[:, None])).sum(1)
    return torch.stack([scores_BC.gather(1, t_B[:, None])[:, 0], others_B], dim=1)


def fit_boundary(recent_M4: Tensor, rounds: int = 25) -> Tensor:
    """Fit a logistic regression (ridge 1, intercept free) by Newton steps: (θ1, θ2, b, fitted)."""
    used_M4 = recent_M4[recent_M4[:, 3] > 0]
    x_M3 = torch.cat([used_M4[:, :2], torch.ones_like(used_M4[:, :1])], dim=1)
    y_M = used_M4[:, 2]
    answer = torch.zeros(4, dtype=recent_M4.dtype, device=recent_M4.device)
    if len(y_M) == 0 or bool((y_M == y_M[0]).all()):
        return answer  # nothing to separate: the distance loss waits
    ridge = torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=x_M3.dtype, device=x_M3.device))
    beta = answer[:3].clone()
    for _ in range(rounds):
        p_M = torch.sigmoid(x_M3 @ beta)
        curve_M = (p_M * (1 - p_M)).clamp(min=1e-9)
        hessian = (x_M3 * curve_M[:, None]).T @ x_M3 + ridge
        beta = beta - torch.linalg.solve(hessian, x_M3.T @ (p_M - y_M) + ridge @ beta)
    answer[:3], answer[3] = beta, 1.0
    return answer if bool(torch.isfinite(beta).all()) else torch.zeros_like(answer)
