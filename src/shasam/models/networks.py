"""Networks of the package: ResNet-18 and ViT for images, an MLP for vectors."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.errors import InputError
from shasam.models.encoder import HALF, IMAGENET, Encoder, EncoderConfig, MaskSite
from shasam.models.processes import in_shares
from shasam.registry import register

# -------------------------------------------------------------------------------------------------
# ResNet-18 (He et al., CVPR 2016) with the state-dict keys of torchvision.
# -------------------------------------------------------------------------------------------------


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
        """Return the embedding, and the feature maps (B, channels, h, w) after the named layers."""
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


# -------------------------------------------------------------------------------------------------
# Vision transformer (Dosovitskiy et al., ICLR 2021) with the state-dict keys of timm.
# -------------------------------------------------------------------------------------------------

# size -> (width, heads); depth is 12 for all of them
SIZES = {"tiny": (192, 3), "small": (384, 6), "base": (768, 12)}


class Attention(nn.Module):
    """Multi-head self-attention; ``qkv`` and ``proj`` are plain layers that may be replaced."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map tokens (B, n, D) to tokens and the class token's query (B, D), heads side by side."""
        B, n, D = x.shape
        qkv = self.qkv(x).reshape(B, n, 3, self.heads, D // self.heads)
        query = qkv[:, 0, 0].flatten(1)  # (B, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, n, D / heads)
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, n, D)
        return self.proj(x), query


class Mlp(nn.Module):
    """Linear, GELU, linear; ``fc1`` and ``fc2`` may be replaced."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


def drop_path(x_BnD: Tensor, rate: float) -> Tensor:
    """Leave a residual branch out for a share of the images, and scale it for the others."""
    kept_B = torch.rand(len(x_BnD)) >= rate  # on the CPU: the same numbers on every device
    return x_BnD * (kept_B.to(x_BnD) / (1 - rate))[:, None, None]


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, dim: int, heads: int, drop: float = 0.0) -> None:
        super().__init__()
        self.drop = drop
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, 4 * dim)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        attended, query = self.attn(self.norm1(x))
        x = x + self._dropped(attended)
        return x + self._dropped(self.mlp(self.norm2(x))), query

    def _dropped(self, branch: Tensor) -> Tensor:
        return drop_path(branch, self.drop) if self.training and self.drop else branch


class PatchEmbed(nn.Module):
    """Image (B, 3, H, W) to patch tokens (B, n, D).

    ``stem="linear"`` is the one layer of the paper. ``"convolutions"`` halves the image once for
    every factor of 2 in the patch, with 3x3 convolutions that end at the width of the tokens (Xiao
    et al., NeurIPS 2021): as many tokens, and a ViT that learns from scratch in minutes.
    """

    def __init__(self, patch: int, dim: int, stem: Literal["linear", "convolutions"]) -> None:
        super().__init__()
        self.proj: nn.Module
        if stem == "linear":
            self.proj = nn.Conv2d(3, dim, patch, patch)
            return
        halvings = patch.bit_length() - 1
        if patch != 2**halvings or halvings < 1:
            raise InputError(f"a stem of convolutions needs a patch of 2, 4, 8, 16, not {patch}")
        widths = [3, *(dim // 2**k for k in reversed(range(halvings)))]
        layers: list[nn.Module] = []
        for inside, outside in pairwise(widths):
            layers += [nn.Conv2d(inside, outside, 3, 2, 1, bias=False), nn.BatchNorm2d(outside)]
            layers += [nn.ReLU(inplace=True)]
        self.proj = nn.Sequential(*layers, nn.Conv2d(dim, dim, 1))

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)


class ViTConfig(EncoderConfig):
    """Settings of a vision transformer."""

    size: Literal["tiny", "small", "base"] = Field("tiny", description="Width: 192, 384 or 768.")
    patch: int = Field(16, ge=1, le=1024, description="Patch side in pixels.")
    patch_stem: Literal["linear", "convolutions"] = Field(
        "linear", description="How a patch becomes a token."
    )
    depth: int | None = Field(None, ge=1, le=200, description="Number of blocks; null means 12.")
    drop_path: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of images for which the last block's branches are left out in training; "
        "it grows linearly from the first block.",
    )


@register("vit", kind="encoder")
class ViT(Encoder):
    """Images (B, 3, H, W) to the normalised class token (B, D).

    Taps: ``"blocks.<n>"`` are the tokens (B, 1 + h*w, D) after a block, ``"query"`` (B, D) is the
    class token's query vector in the last block, which TADeT reads.
    """

    Config = ViTConfig
    published = HALF  # timm's ViTs; DeiT has that of ImageNet

    def __init__(
        self,
        size: Literal["tiny", "small", "base"] = "tiny",
        image_size: int = 224,
        patch: int = 16,
        depth: int | None = None,
        stem: Literal["linear", "convolutions"] = "linear",
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        if image_size % patch:
            raise InputError(
                f"images of {image_size} px cannot be cut into patches of {patch} px; "
                f"choose a patch that divides {image_size}"
            )
        dim, heads = SIZES[size]
        self.image_size = image_size
        self.patch_embed = PatchEmbed(patch, dim, stem)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (image_size // patch) ** 2, dim))
        rates = torch.linspace(0, drop_path, depth or 12, device="cpu").tolist()
        self.blocks = nn.ModuleList(Block(dim, heads, rate) for rate in rates)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.out_dim = dim
        self.layers = tuple(f"blocks.{n}" for n in range(len(self.blocks)))
        self.taps = {**dict.fromkeys(self.layers, dim), "query": dim}
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.normal_(self.cls_token, std=1e-6)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> ViT:
        options = ViTConfig.model_validate(config.model_dump())
        shape = (options.size, image_size, options.patch, options.depth, options.patch_stem)
        return cls(*shape, drop_path=options.drop_path)

    def as_map(self, tapped: Tensor) -> Tensor:
        """Return the patch tokens of (B, 1 + h*w, D) as a map (B, D, h, w)."""
        side = int((tapped.shape[1] - 1) ** 0.5)
        return tapped[:, 1:].transpose(1, 2).unflatten(2, (side, side))

    def mask_sites(self) -> list[MaskSite]:
        sites = []
        for block in self.blocks:
            assert isinstance(block, Block)
            sites.append(MaskSite(block.attn, "qkv", block.attn.heads, parts=3))
            sites.append(MaskSite(block.attn, "proj"))
            sites += [MaskSite(block.mlp, "fc1"), MaskSite(block.mlp, "fc2")]
        return sites

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        if images.shape[-1] != self.image_size or images.shape[-2] != self.image_size:
            raise InputError(
                f"this ViT takes images of {self.image_size} px, not {tuple(images.shape[-2:])}"
            )
        x = self.patch_embed(self.normalised(images))
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        found: dict[str, Tensor] = {}
        for number, block in enumerate(self.blocks):
            x, query = block(x)
            if f"blocks.{number}" in taps:
                found[f"blocks.{number}"] = x
        if "query" in taps:
            found["query"] = query
        return self.norm(x)[:, 0], found


# -------------------------------------------------------------------------------------------------
# Vectors as they are: heads and classifiers read them without a network in between.
# -------------------------------------------------------------------------------------------------

Normalise = Literal["standard", "unit", "none"]


class InputNorm(nn.Module):
    """What is done to vectors first.

    ``standard``: every column to mean 0 and deviation 1 by running statistics, so that vectors of
    any scale suit one learning rate. ``unit``: every row to length 1. ``none``: nothing.
    """

    def __init__(self, inside: int, kind: Normalise) -> None:
        super().__init__()
        self.kind = kind
        # without scale and shift: the layer that follows has both
        standard = kind == "standard"
        self.columns = nn.BatchNorm1d(inside, affine=False) if standard else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) if self.kind == "unit" else self.columns(x)


class IdentityConfig(EncoderConfig):
    """What is done to a vector before it is handed on."""

    normalise: Normalise = Field(
        "none", description="What is done to a vector: standard, unit or none."
    )


@register("identity", kind="encoder")
class Identity(Encoder):
    """Vectors (B, in) to the same vectors; nothing is learnt here."""

    Config = IdentityConfig
    inputs = "vectors"

    def __init__(self, inside: int, normalise: Normalise = "none") -> None:
        super().__init__()
        self.normalise = InputNorm(inside, normalise)
        self.out_dim, self.taps = inside, {}

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> Identity:
        return cls(image_size, **config.model_dump())

    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        return self.normalise(images), {}


# -------------------------------------------------------------------------------------------------
# A perceptron on vectors: the encoder of embeddings that were computed elsewhere.
# -------------------------------------------------------------------------------------------------


class MLPConfig(EncoderConfig):
    """Size and regularisation of the perceptron."""

    width: int = Field(256, ge=1, le=1_000_000, description="Units of a hidden layer.")
    depth: int = Field(1, ge=1, le=100, description="Hidden layers; the last is the embedding.")
    normalise: Normalise = Field(
        "standard", description="What is done to a vector first: standard, unit or none."
    )
    norm: Literal["batch", "layer", "none"] = Field(
        "batch", description="Normalisation behind each hidden layer."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of hidden units left out.")


@register("mlp", kind="encoder")
class MLP(Encoder):
    """Vectors (B, in) to embeddings (B, width): linear, normalisation, ReLU, dropout, each layer.

    The taps ``hidden1`` ... are the layers' outputs. Methods that read a middle layer of an image
    network read the last one here.
    """

    Config = MLPConfig
    inputs = "vectors"

    def __init__(
        self,
        inside: int,
        width: int = 256,
        depth: int = 1,
        normalise: Normalise = "standard",
        norm: Literal["batch", "layer", "none"] = "batch",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        norms = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.normalise = InputNorm(inside, normalise)
        self.linears = nn.ModuleList(
            nn.Linear(inside if number == 0 else width, width, bias=norm == "none")
            for number in range(depth)
        )
        self.norms = nn.ModuleList(
            norms[norm](width) if norm in norms else nn.Identity() for _ in range(depth)
        )
        self.dropout = nn.Dropout(dropout)
        self.out_dim = width
        self.taps = {f"hidden{number + 1}": width for number in range(depth)}
        self.last_map = f"hidden{depth}"
        self.layers = (self.last_map,)
        for module in self.linears.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> MLP:
        return cls(image_size, **config.model_dump())

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the last hidden layer (B, width), and the named ones."""
        self.check_taps(taps)
        x, found = self.normalise(images), {}
        for name, linear, norm in zip(self.taps, self.linears, self.norms, strict=True):
            x = self.dropout(F.relu(norm(linear(x))))
            if name in taps:
                found[name] = x
        return x, found

    def as_map(self, tapped: Tensor) -> Tensor:
        """Return a hidden layer as a feature map of one pixel (B, width, 1, 1)."""
        return tapped[:, :, None, None]
