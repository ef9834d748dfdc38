"""Each fairness part on against off: ``python -m experiments.parts experiments/faces``.

Both sides share seeds, splits, encoder and budget. Off is the method that is left when the part's
weight is 0: cross-entropy, cross-entropy on cell-balanced batches, or SupCon.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from shasam.metrics import compare_seeds
from shasam.runs.records import Record, by_label, read_records

OFF = {
    "balanced": "ce",
    "reweight": "ce",
    "groupdro": "ce",
    "posthoc": "ce",
    "grl": "ce",
    "lnl": "ce",
    "mfd": "balanced",
    "fscl": "supcon",
    "fscl+": "supcon",
    "shasam": "balanced",
    "shasam-ld": "balanced",
    "fdvae": "fdvae-off",
    "tadet@vit": "balanced@vit",
    "tadet-mmd@vit": "balanced@vit",
    "fairvit@vit": "ce@vit",
}


def by_seed(records: list[Record], metric: str) -> dict[int, float]:
    """The test metric of every seed of a row, in per cent."""
    return {r.seed: 100 * r.metrics["test"][metric]["value"] for r in records}


def difference(on: dict[int, float], off: dict[int, float]) -> str:
    """On minus off over the seeds that both have."""
    seeds = sorted(set(on) & set(off))
    c = compare_seeds([on[s] for s in seeds], [off[s] for s in seeds])
    if len(seeds) < 2:
        return f"{c.difference:+.1f} (one seed)"
    return f"{c.difference:+.1f} ({c.low:+.1f} to {c.high:+.1f})"


def mean(values: dict[int, float]) -> str:
    return f"{statistics.fmean(values.values()):.1f}"


def table(experiment: Path) -> str:
    """Markdown."""
    rows = by_label(read_records(experiment))
    lines = [
        "| on | off | seeds | EO on | EO off | EO: on − off | accuracy on | accuracy off |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for on, off in OFF.items():
        if on not in rows or off not in rows:
            continue
        eo = [by_seed(rows[row], "eo_mean") for row in (on, off)]
        accuracy = [by_seed(rows[row], "accuracy") for row in (on, off)]
        shared = len(set(eo[0]) & set(eo[1]))
        lines.append(
            f"| `{on}` | `{off}` | {shared} | {mean(eo[0])} | {mean(eo[1])} | {difference(*eo)} "
            f"| {mean(accuracy[0])} | {mean(accuracy[1])} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
