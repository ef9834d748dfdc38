"""Learning Not to Learn: forget the group in an intermediate feature map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.errors import SpecError
from shasam.losses import dann_ramp, negative_entropy, reverse_gradient
from shasam.methods.base import Dial, Stage
from shasam.methods.baselines import CE, CEConfig
from shasam.models import Encoder
from shasam.registry import register
from shasam.types import Batch, Losses


class BiasPredictor(nn.Module):
    """Feature map (B, channels, h, w) to group scores for each pixel (B, G, h, w)."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, groups, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(F.relu(self.bn1(self.conv1(x))))


@register("lnl", kind="method")
class LNL(CE):
    """Two updates a batch, with the predictor h on the map m of a middle layer.

    1. the network: CE(t) + entropy · E[Σ_g q_g log q_g], q = softmax h(m) at each pixel;
    2. CE(s, h(R(m))) at each pixel: the network through a gradient reversal of factor
       ``reversal``, the predictor as it is, both from the same pass, of rows with a known group.
    """

    summary = "entropy and gradient reversal against a group predictor on a middle feature map"
    reference = "Kim et al., CVPR 2019 (Learning Not to Learn)"
    dial = Dial("reversal", (0.1, 0.3, 1.0))
    row_wise = False  # the predictor normalises over the batch
    unknown_groups = True

    class Config(CEConfig):
        entropy: float = Field(
            0.01, ge=0, json_schema_extra={"weight": "ce"},
            description="Weight of the entropy of the group's predictions, which is raised.",
        )  # fmt: skip
        reversal: float = Field(
            0.1, ge=0, json_schema_extra={"weight": "ce"},
            description="How strongly the group predictor's gradient is reversed.",
        )  # fmt: skip
        slope: float | None = Field(
            None, gt=0, description="How soon the reversal reaches its strength; null: at once."
        )
        tap: str | None = Field(
            None,
            description="Layer whose map is read; null: layer2, or a ViT's middle block; last: the "
            "last of either.",
        )
        start: Literal["scratch", "ce"] = Field(
            "scratch",
            description="ce: unlearn from a network trained by cross-entropy first, as published.",
        )

    config: Config

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        layers = encoder.layers
        if not layers:
            raise SpecError(
                f"lnl reads a hidden layer, and {type(encoder).__name__} has none; set "
                "model.encoder to mlp for vectors, or to resnet18 or vit for images"
            )
        middle = layers[max(len(layers) // 2 - 1, 0)]  # layer2 of a ResNet, as published
        self.tap = config.tap or middle
        if config.tap == "last":
            self.tap = layers[-1]
        encoder.check_taps((self.tap,))
        self.predictor = BiasPredictor(encoder.taps[self.tap], groups)

    def stages(self) -> tuple[Stage, ...]:
        learn = Stage("learn", ("network", "predictor"))
        return (Stage("baseline", ("network",)), learn) if self.config.start == "ce" else (learn,)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        network = [*self.encoder.parameters(), *self.classifier.parameters()]
        return {"network": network, "predictor": list(self.predictor.parameters())}

    def compares_groups(self, stage: Stage) -> bool:
        return stage.name == "learn"

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        features_BD, map_BDHW = self._pass(batch.images)
        target = F.cross_entropy(self.classifier(features_BD), batch.t_B)
        if stage == "baseline":
            yield "network", Losses(target, {"target": target.detach()})
            return
        entropy = negative_entropy(self.predictor(map_BDHW))
        total = target + self.config.entropy * entropy
        yield "network", Losses(total, {"target": target.detach(), "entropy": entropy.detach()})

        _, map_BDHW = self._pass(batch.images)
        factor, slope = self.config.reversal, self.config.slope
        if factor > 0:  # with 0 the step would be empty but for momentum
            factor *= 1.0 if slope is None else dann_ramp(batch.progress, slope)
            hidden = self._group_loss(reverse_gradient(map_BDHW, factor), batch)
            yield "network", Losses(hidden, {"hidden_group": hidden.detach()})
        # the map from before the network's step: both move from the same point, as published
        group = self._group_loss(map_BDHW.detach(), batch)
        yield "predictor", Losses(group, {"group": group.detach()})

    def _pass(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features_BD, found = self.encoder.forward_taps(images, (self.tap,))
        return features_BD, self.encoder.as_map(found[self.tap])

    def _group_loss(self, map_BDHW: Tensor, batch: Batch) -> Tensor:
        scores_BGHW, known_B = self.predictor(map_BDHW), batch.s_B >= 0
        if not bool(known_B.all()):
            scores_BGHW = scores_BGHW[known_B]
        s_BHW = batch.s_B[known_B][:, None, None].expand(-1, *scores_BGHW.shape[2:])
        return F.cross_entropy(scores_BGHW, s_BHW)
