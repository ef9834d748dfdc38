"""ResNet-18 (He et al., CVPR 2016) with the state-dict keys of torchvision."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from shasam.errors import InputError
from shasam.models.shared import in_shares
from shasam.models.spec import ModelSpec
from shasam.registry import did_you_mean, register


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


@register("resnet18", kind="encoder")
class ResNet18(nn.Module):
    """Images (B, 3, H, W) to embeddings (B, D).

    ``stem="imagenet"`` is the 7x7 stride-2 convolution with max-pooling, ``"cifar"`` the 3x3
    stride-1 convolution that SupCon's and FSCL's code use (16 times the arithmetic).
    """

    layers = ("layer1", "layer2", "layer3", "layer4")

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
        self.tap_channels = {n: width * 2**i for i, n in enumerate(self.layers)}
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @classmethod
    def from_spec(cls, spec: ModelSpec, image_size: int) -> ResNet18:
        """The encoder that a specification asks for; any image size will do."""
        return cls(spec.stem, spec.width, spec.embed_dim)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_taps(images, ())[0]

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The embedding, and the feature maps (B, channels, h, w) after the named layers."""
        for tap in taps:
            if tap not in self.layers:
                raise InputError(f"ResNet18 has no tap {tap!r}{did_you_mean(tap, self.layers)}")
        x = F.relu(self.bn1(self.conv1(images)), inplace=True)
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, 2, 1)
        found = {}
        for name in self.layers:
            x = self.get_submodule(name)(x)
            if name in taps:
                found[name] = x
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)  # (B, 8 * width)
        return self.embed(x), found
