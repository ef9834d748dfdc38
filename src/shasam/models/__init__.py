"""Encoders and heads. ``build_encoder(ModelSpec(...), image_size)`` makes a registered one."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from shasam.models.efficientnet import EfficientNetLite0
from shasam.models.encoder import (
    HALF,
    IMAGENET,
    Classifier,
    Encoder,
    EncoderConfig,
    MaskSite,
    ProjectionHead,
    set_cut,
    start_weights,
)
from shasam.models.hub import HuggingFace, Timm
from shasam.models.networks import MLP, Identity, ResNet18, ViT
from shasam.models.onnx_model import OnnxEncoder
from shasam.models.weights import InitReport, load_weights
from shasam.registry import lookup
from shasam.spec.fields import ModelSpec

__all__ = [
    "MLP",
    "Classifier",
    "EfficientNetLite0",
    "Encoder",
    "EncoderConfig",
    "HuggingFace",
    "Identity",
    "InitReport",
    "MaskSite",
    "OnnxEncoder",
    "ProjectionHead",
    "ResNet18",
    "Timm",
    "ViT",
    "build_encoder",
    "load_weights",
    "start_weights",
]


def build_encoder(spec: ModelSpec, image_size: int) -> Encoder:
    """Build the encoder that a specification names, with random weights.

    For vectors ``image_size`` is their length.
    """
    kind = lookup("encoder", spec.encoder)
    encoder = kind.build(kind.Config.model_validate(spec.options), image_size)
    pixels = {"half": HALF, "imagenet": IMAGENET}.get(spec.normalisation)
    if pixels is None and spec.init is not None:
        pixels = encoder.published
    if pixels is not None:
        encoder.mean, encoder.std = pixels
    set_cut(encoder, spec)
    return encoder
