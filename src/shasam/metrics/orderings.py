"""What must be so between metrics by their definitions, and intervals that respect it.

EO's mean is never above its maximum, so neither end of its interval may be. Where two intervals
disagree, the one of a gap is widened, because both may be right; the upper end of a lowest rate or
of a ratio is lowered to what others allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from shasam.metrics.counts import Estimate

PARTS = ("equal_opportunity", "tpr_gap", "fnr_gap")  # of equalized odds, in the positive class
OTHER_PARTS = ("fpr_gap", "tnr_gap")  # in the other one of two classes
RATES = ("selection", "tpr", "fnr", "fpr", "tnr", "ppv")


@dataclass(frozen=True)
class AtMost:
    """``lower`` is never above ``times`` × ``upper``."""

    lower: str
    upper: str
    times: float = 1.0


def gap_orderings(classes: int, groups: int, positive: int | None) -> list[AtMost]:
    """Orderings of gaps, whichever cells are compared; ``groups`` is the most of any class."""
    out = [
        AtMost("eo_mean", "eo_mean_range"),
        AtMost("eo_mean_range", "eo_max"),
        AtMost("eo_max", "eo_sum"),
        AtMost("eo_max", "eo_mean_range", classes),
        AtMost("eo_mean_range", "eo_mean", groups / 2),
        AtMost("selection_gap", "demographic_parity"),
    ]
    if positive is not None:
        parts = [*PARTS, *(OTHER_PARTS if classes == 2 else ())]
        out += [AtMost(part, "eo_max") for part in parts]
        out += [AtMost(part, "eo_mean_range", classes) for part in parts]
    return out


def average_orderings() -> list[AtMost]:
    """Orderings of averages and minima; they hold where every cell is compared."""
    return [
        AtMost("worst_group_accuracy", "min_group_accuracy"),
        AtMost("worst_group_accuracy", "balanced_accuracy"),
        AtMost("worst_group_accuracy", "cell_balanced_accuracy"),
        AtMost("min_group_accuracy", "accuracy"),
        AtMost("worst_group_accuracy", "accuracy"),
    ]


def relatives(names: Iterable[str]) -> set[str]:
    """The metrics whose intervals may change those of ``names``, and these themselves."""
    wanted = set(names)
    equalized = {"eo_mean", "eo_max", "eo_sum", "eo_mean_range", *PARTS, *OTHER_PARTS}
    averages = {x for o in average_orderings() for x in (o.lower, o.upper)}
    lowest = {"worst_group_accuracy", "min_group_accuracy"}
    if wanted & lowest:
        wanted |= averages | {"eo_max"}
    wanted |= {f"{rate}_gap" for rate in RATES if f"{rate}_ratio" in wanted}
    if wanted & equalized:
        wanted |= equalized
    if wanted & {"demographic_parity", "selection_gap"}:
        wanted |= {"demographic_parity", "selection_gap"}
    return wanted


def in_order(
    found: Mapping[str, Estimate],
    *,
    classes: int,
    groups: int,
    positive: int | None,
    complete: bool,
) -> dict[str, Estimate]:
    """The estimates with ends in order; ``complete`` says that every cell is compared."""
    out = dict(found)
    gaps = gap_orderings(classes, groups, positive)
    for _ in range(len(gaps)):  # a widened end may widen the next
        before = dict(out)
        for o in gaps:
            _widen(out, o)
        if out == before:
            break
    if complete:
        _same_scale(out, "eo_mean", "eo_sum")
        for o in reversed(average_orderings()):
            _cap(out, o.lower, o.upper)
    _under(out, "worst_group_accuracy", "eo_max")
    for rate in RATES:
        _under(out, f"{rate}_ratio", f"{rate}_gap")
    return out


def _both(found: Mapping[str, Estimate], a: str, b: str) -> tuple[Estimate, Estimate] | None:
    x, y = found.get(a), found.get(b)
    return (x, y) if x is not None and y is not None and x.defined and y.defined else None


def _widen(found: dict[str, Estimate], o: AtMost) -> None:
    """Widen two gaps: the lower one downwards, the upper one upwards."""
    both = _both(found, o.lower, o.upper)
    if both is None:
        return
    lower, upper = both
    found[o.lower] = replace(lower, low=min(lower.low, o.times * upper.low))
    found[o.upper] = replace(upper, high=max(upper.high, lower.high / o.times))


def _cap(found: dict[str, Estimate], lower: str, upper: str) -> None:
    """Lower both ends of a lowest rate to those of an average that it cannot exceed."""
    both = _both(found, lower, upper)
    if both is not None:
        a, b = both
        found[lower] = replace(a, low=min(a.low, b.low), high=min(a.high, b.high))


def _under(found: dict[str, Estimate], rate: str, gap: str) -> None:
    """Lower both ends of a rate or ratio that is at most 1 minus a gap."""
    both = _both(found, rate, gap)
    if both is not None:
        a, b = both
        found[rate] = replace(a, low=min(a.low, 1 - b.high), high=min(a.high, 1 - b.low))


def _same_scale(found: dict[str, Estimate], mean: str, total: str) -> None:
    """Give a sum the ends of the mean of the same terms."""
    both = _both(found, mean, total)
    if both is not None and both[0].value > 0:
        a, b = both
        times = b.value / a.value
        found[total] = replace(b, low=times * a.low, high=times * a.high)
