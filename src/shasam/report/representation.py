"""What a page says about the frozen features of a run: leakage, and the natural head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shasam.report.runs import finite
from shasam.report.words import percent


def representation(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each kind of feature; what was not recorded is a dash."""
    probes, heads = (_mapping(metrics.get(key)) for key in ("probe", "natural_head"))
    rows = []
    for kind in dict.fromkeys([*probes, *heads]):
        probe = probes.get(kind)
        # before 0.1 a probe was its accuracy alone
        probe = probe if isinstance(probe, Mapping) else {"accuracy": probe}
        head = _mapping(_mapping(heads.get(kind)).get("test"))
        row = {
            "name": str(kind),
            "chance": _share(probe.get("chance")),
            "linear": _share(probe.get("accuracy", probe.get("value"))),
            "linear_within": _share(probe.get("linear_within_class")),
            "mlp_within": _share(probe.get("mlp_within_class")),
            "accuracy": _estimate(head.get("accuracy")),
            "eo": _estimate(head.get("eo_mean")),
        }
        if any(row[key] != "–" for key in ("linear", "accuracy")):
            rows.append(row)
    return rows


def strongest(metrics: Mapping[str, Any]) -> tuple[float, float | None] | None:
    """Accuracy and chance of the linear probe that reads most, if one was recorded."""
    found = []
    for entry in _mapping(metrics.get("probe")).values():
        probe = entry if isinstance(entry, Mapping) else {"accuracy": entry}
        accuracy = probe.get("accuracy", probe.get("value"))
        value = finite(accuracy.get("value") if isinstance(accuracy, Mapping) else accuracy)
        if value is not None:
            found.append((value, finite(probe.get("chance"))))
    return max(found, key=lambda pair: pair[0], default=None)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _share(value: Any) -> str:
    number = finite(value.get("value") if isinstance(value, Mapping) else value)
    return "–" if number is None else percent(number)


def _estimate(entry: Any) -> str:
    value, low, high = (finite(_mapping(entry).get(key)) for key in ("value", "low", "high"))
    if value is None:
        return "–"
    bounds = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
    return percent(value) + bounds
