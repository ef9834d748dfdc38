"""ResNet-18 (He et al., CVPR 2016) with the state-dict keys of torchvision."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.models.encoder import IMAGENET, Encoder, EncoderConfig
from shasam.models.processes import in_shares
from shasam.registry import register


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the identity (or a 1x1 convolution) beside them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.bn2(self.conv2(x))
        return F.relu(x + identity, inplace=True)


class ResNetConfig(EncoderConfig):
    """Settings of ResNet-18."""

    stem: Literal["imagenet", "cifar"] = Field(
        "imagenet",
        description="First layers: 7x7 stride 2 and pooling, or 3x3 stride 1 (SupCon, FSCL).",
    )
    width: int = Field(
        64, ge=1, le=65_536, description="Channels of layer1; 64 is the standard network."
    )
    embed_dim: int | None = Field(
        256,
        ge=1,
        le=1_000_000,
        description="Size of the embedding; null keeps the 8 * width pooled channels.",
    )


@register("resnet18", kind="encoder")
class ResNet18(Encoder):
    """Images (B, 3, H, W) of any size to embeddings (B, D).

    ``stem="imagenet"`` is the 7x7 stride-2 convolution with max-pooling, ``"cifar"`` the 3x3
    stride-1 convolution that SupCon's and FSCL's code use (16 times the arithmetic).
    """

    Config = ResNetConfig
    layers = ("layer1", "layer2", "layer3", "layer4")
    last_map = "layer4"
    published = IMAGENET  # torchvision's

    def __init__(
        self,
        stem: Literal["imagenet", "cifar"] = "imagenet",
        width: int = 64,
        embed_dim: int | None = 256,
    ) -> None:
        super().__init__()
        self.stem = stem
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inside = width
        for number, name in enumerate(self.layers):
            outside = width * 2**number
            stride = 1 if number == 0 else 2
            blocks = [BasicBlock(inside, outside, stride), BasicBlock(outside, outside, 1)]
            self.add_module(name, nn.Sequential(*blocks))
            inside = outside
        self.embed = nn.Identity() if embed_dim is None else nn.Linear(inside, embed_dim)
        self.out_dim = inside if embed_dim is None else embed_dim
        self.taps = {n: width * 2**i for i, n in enumerate(self.layers)}
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> ResNet18:
        return cls(**config.model_dump())

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The embedding, and the feature maps (B, channels, h, w) after the named layers."""
        self.check_taps(taps)
        x = F.relu(self.bn1(self.conv1(self.normalised(images))), inplace=True)
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, 2, 1)
        found = {}
        for name in self.layers:
            x = self.get_submodule(name)(x)
            if name in taps:
                found[name] = x
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)  # (B, 8 * width)
        return self.embed(x), found
