"""A method from a specification: encoder, start weights, method, all from the seed."""

from __future__ import annotations

import torch

from shasam.config import RunSpec
from shasam.data.keyed import text_key
from shasam.methods.base import Method
from shasam.models import InitReport, build_encoder, load_weights
from shasam.registry import lookup


def build_method(
    spec: RunSpec, classes: int, groups: int, start: bool = True
) -> tuple[Method, InitReport | None]:
    """The untrained method; ``start=False`` leaves ``model.init`` unread (weights follow)."""
    torch.manual_seed(text_key(f"{spec.seed}/init"))
    encoder = build_encoder(spec.model, spec.data.size)
    report = None
    if start and spec.model.init is not None:
        report = load_weights(encoder, spec.model.init)
    kind = lookup("method", spec.method)
    return kind(kind.Config.model_validate(spec.options), encoder, classes, groups), report
