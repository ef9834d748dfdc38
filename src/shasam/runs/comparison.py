"""What a comparison shows of its runs: one row per method, over its seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import yaml

_METRICS = {
    "accuracy": "accuracy",
    "EO": "eo_mean",
    "BA": "balanced_accuracy",
    "EOpp": "equal_opportunity",
    "DP": "demographic_parity",
    "worst cell": "worst_group_accuracy",
}
COLUMNS = ("method", "seeds", *_METRICS, "minutes", "views seen", "parameters")


def compared(runs: Sequence[Path]) -> list[tuple[str, ...]]:
    """Rows for COLUMNS, the methods in the order in which they were asked for."""
    grouped: dict[str, list[Path]] = {}
    for run in runs:
        spec = yaml.safe_load((run / "spec.yaml").read_text(encoding="utf-8"))
        grouped.setdefault(spec["method"], []).append(run)
    return [(method, *_row(members)) for method, members in grouped.items()]


def _row(members: list[Path]) -> tuple[str, ...]:
    tests = [json.loads((run / "metrics.json").read_text())["test"] for run in members]
    made = [json.loads((run / "provenance.json").read_text()) for run in members]
    cells = [_spread([test[name]["value"] for test in tests]) for name in _METRICS.values()]
    minutes = statistics.mean(p["wall_seconds"] for p in made) / 60
    views, parameters = made[0]["images_seen"], made[0]["parameters"]
    return (str(len(members)), *cells, f"{minutes:.1f}", f"{views:,}", f"{parameters:,}")


def _spread(values: list[float | None]) -> str:
    known = [100 * v for v in values if v is not None]
    if len(known) < len(values):
        return "undefined"
    if len(known) == 1:
        return f"{known[0]:.1f}"
    return f"{statistics.mean(known):.1f} ± {statistics.stdev(known):.1f}"
