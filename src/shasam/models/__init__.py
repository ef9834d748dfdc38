"""Encoders and heads. ``build_encoder(ModelSpec(...), image_size)`` makes a registered one."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from torch import nn

from shasam.models.heads import Classifier, ProjectionHead
from shasam.models.init import InitReport, load_weights
from shasam.models.resnet import ResNet18
from shasam.models.spec import ModelSpec
from shasam.models.vit import ViT
from shasam.registry import lookup

__all__ = [
    "Classifier",
    "InitReport",
    "ModelSpec",
    "ProjectionHead",
    "ResNet18",
    "ViT",
    "build_encoder",
    "load_weights",
]


def build_encoder(spec: ModelSpec, image_size: int) -> nn.Module:
    """The encoder named by ``spec.encoder``, with random weights.

    An encoder maps images (B, 3, H, W) to (B, D), has ``out_dim`` = D and
    ``forward_taps(images, taps) -> (embedding, {tap: tensor})``.
    """
    return lookup("encoder", spec.encoder).from_spec(spec, image_size)
