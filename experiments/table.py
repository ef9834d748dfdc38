"""The table of a results page: ``python -m experiments.table experiments/utkface``.

One line per row and kind of prediction: mean and standard deviation over seeds in per cent, from
``metrics.json``; the last logged mean cosine; the share of stage 1 that mining took.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from shasam.runs.records import Record, by_label, read_records


def spread(values: list[float]) -> str:
    """Mean ± standard deviation, in per cent."""
    shown = [100 * v for v in values]
    if len(shown) == 1:
        return f"{shown[0]:.1f}"
    return f"{statistics.mean(shown):.1f} ± {statistics.stdev(shown):.1f}"


def last_cosine(record: Record) -> float | None:
    """The mean cosine at the end of the learning stage."""
    found = None
    for line in record.log:
        found = line.get("mean_cosine", found)
    return found


def lines(label: str, records: list[Record], split: str) -> list[str]:
    """All kinds of prediction of one row."""
    metrics = [record.metrics for record in records]
    shares = [record.provenance["mine_fraction"] for record in records]
    cosines = [c for c in map(last_cosine, records) if c is not None]
    own = [k for k in metrics[0] if k.startswith(f"{split}.")] or [split]
    out = []
    for kind in own:
        feature = kind.removeprefix(f"{split}.").split("-")[0]
        probes = [m["probe"].get(feature) or next(iter(m["probe"].values())) for m in metrics]
        cells = [
            label,
            kind.removeprefix(f"{split}.") if "." in kind else "own head",
            str(len(records)),
            spread([m[kind]["accuracy"]["value"] for m in metrics]),
            spread([m[kind]["eo_mean"]["value"] for m in metrics]),
            spread([m[kind]["worst_group_accuracy"]["value"] for m in metrics]),
            spread([p["accuracy"] for p in probes]),
            f"{statistics.mean(cosines):.2f}" if cosines else "",
            f"{100 * statistics.mean(shares):.0f} %" if shares[0] is not None else "",
        ]
        out.append("| " + " | ".join(cells) + " |")
    return out + natural_heads(label, metrics, split)


def natural_heads(label: str, metrics: list[dict[str, Any]], split: str) -> list[str]:
    """The natural head on each kind of feature, where recorded; its probe is within the class."""
    out = []
    for kind in metrics[0].get("natural_head", {}):
        found = [m["natural_head"][kind][split] for m in metrics]
        shown = [
            spread([f[key]["value"] for f in found])
            for key in ("accuracy", "eo_mean", "worst_group_accuracy")
        ]
        leak = spread([m["probe"][kind]["linear_within_class"] for m in metrics])
        cells = [label, f"natural head, {kind}", str(len(metrics)), *shown, leak, "", ""]
        out.append("| " + " | ".join(cells) + " |")
    return out


def table(experiment: Path, split: str = "test") -> str:
    """Markdown."""
    head = (
        "| row | predictions from | seeds | accuracy | EO (mean) | worst cell | group probe | "
        "mean cosine | mining |\n|---|---|---|---|---|---|---|---|---|"
    )
    rows = by_label(read_records(experiment))
    body = (line for label, records in rows.items() for line in lines(label, records, split))
    return "\n".join([head, *body])


if __name__ == "__main__":
    print(table(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "test"))
