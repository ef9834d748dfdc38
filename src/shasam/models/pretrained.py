"""Where an encoder's weights start from, and which of them stay as they are."""

from __future__ import annotations

from torch import nn

from shasam.errors import SpecError
from shasam.models.encoder import Encoder
from shasam.models.init import InitReport, load_weights
from shasam.spec.model import ModelSpec


def start_weights(encoder: Encoder, spec: ModelSpec) -> InitReport | None:
    """Load ``model.init``, or the weights that the encoder comes with; then freeze.

    None where there are neither: the encoder keeps its random start.
    """
    if spec.init is not None:
        report: InitReport | None = load_weights(encoder, spec.init)
    else:
        report = encoder.load_pretrained()
    if report is not None:
        random = set(report.missing)
        encoder.pretrained = [p for name, p in encoder.named_parameters() if name not in random]
    encoder.frozen = _frozen(encoder, spec)
    return report


def _frozen(encoder: Encoder, spec: ModelSpec) -> list[nn.Parameter]:
    if spec.freeze == "none":
        return []
    if not encoder.pretrained:
        raise SpecError(
            f"model.freeze is {spec.freeze}, and the encoder {spec.encoder} starts from random "
            "weights, which must be trained; name a pretrained encoder, or give weights with "
            "model.init"
        )
    if spec.freeze == "all":
        return list(encoder.pretrained)
    blocks = len(encoder.layers)
    if spec.freeze > blocks:
        raise SpecError(
            f"model.freeze = {spec.freeze} trains the last {spec.freeze} blocks, but the encoder "
            f"{spec.encoder} has {blocks}; give 1 to {blocks}, all or none"
        )
    # parameters are in the order of depth: what comes before the first free block is frozen
    first = next(encoder.block(encoder.layers[-spec.freeze]).parameters())
    pretrained, before = {id(p) for p in encoder.pretrained}, []
    for p in encoder.parameters():
        if p is first:
            break
        before.append(p)
    return [p for p in before if id(p) in pretrained]
