"""Time to accuracy on validation: ``python -m experiments.curves experiments/recipe``.

The views that each row needs until a linear probe of its encoder (``train.probe_every``) reaches an
accuracy on the validation split, and accuracy and EO of its own validation predictions at the end.
The accuracy is the highest, in half points, that every row reaches, or the second argument.
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

from shasam.runs.records import Record, by_label, read_records


def curve(record: Record) -> list[tuple[int, float]]:
    """Views and validation accuracy (%) of every probe."""
    lines = [line for line in record.log if line["event"] == "curve"]
    return [(line["views"], 100 * line["accuracy"]) for line in lines]


def views_until(record: Record, accuracy: float) -> int | None:
    """Views at the first probe that has the accuracy, or None."""
    return next((views for views, found in curve(record) if found >= accuracy), None)


def table(experiment: Path, accuracy: float | None = None) -> str:
    """Markdown."""
    rows = by_label(read_records(experiment))
    if accuracy is None:
        reached = (max(found for _, found in curve(r)) for row in rows.values() for r in row)
        accuracy = math.floor(2 * min(reached)) / 2
    out = [
        f"| row | seeds | steps | views until {accuracy:g} % | at the end: accuracy | EO (mean) |",
        "|---|---|---|---|---|---|",
    ]
    for label, records in rows.items():
        found = [views_until(r, accuracy) for r in records]
        known = [v for v in found if v is not None]
        shown = ", ".join(f"{v:,}" if v is not None else "not reached" for v in found)
        steps = {r.spec["train"]["learn"]["steps"] for r in records}
        ends = [
            f"{100 * statistics.fmean(r.metrics['val'][key]['value'] for r in records):.1f}"
            for key in ("accuracy", "eo_mean")
        ]
        cells = (
            label,
            str(len(records)),
            ", ".join(map(str, sorted(steps))),
            shown if known else "–",
        )
        out.append("| " + " | ".join((*cells, *ends)) + " |")
    return "\n".join(out)


if __name__ == "__main__":
    asked = float(sys.argv[2]) if len(sys.argv) > 2 else None
    print(table(Path(sys.argv[1]), asked))
