"""Cell-balanced cross-entropy with a hidden layer: what SHaSaM's projection is compared with."""

from __future__ import annotations

from shasam.methods.balanced import Balanced
from shasam.methods.ce import CEConfig
from shasam.registry import register


@register("balanced-hidden", kind="method")
class BalancedHidden(Balanced):
    """The control for SHaSaM's representation: a layer as wide as its projection, no set objective.

    Part of what a projection does for fairness is done by any narrow layer between the encoder and
    the classes; ``hidden`` is that layer.
    """

    summary = "balanced with a hidden layer as wide as SHaSaM's projection; a control"
    reference = "ours: the control for a projection's features"

    class Config(CEConfig):
        classifier_hidden: int | None = 128
