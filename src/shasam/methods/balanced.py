"""Cross-entropy on batches with equal counts of every (target, group) cell."""

from __future__ import annotations

from shasam.methods.base import Stage
from shasam.methods.ce import CE
from shasam.registry import register


@register("balanced", kind="method")
class Balanced(CE):
    """The simplest remedy for a biased training set, and the rival that papers leave out."""

    summary = "cross-entropy on batches balanced over (target, group) cells"
    reference = "Idrissi et al., Simple data balancing, CLeaR 2022 (there: SUBG / RWG)"

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",), sampling="balanced"),)
