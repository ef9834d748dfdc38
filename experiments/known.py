"""What group labels are worth: ``python -m experiments.known [experiments/unknown-groups]``.

Labels are "setting, row" where no group is read or all are, and "setting, row, use 5 %" or "...,
infer 5 %" where a share of the training rows has one. EO and accuracy are in points, means over
seeds; differences are paired over seeds, with Student's 95 % interval. ``worth`` is the share of
the EO between ``ce`` and the same row with all labels that is kept: 0 as without labels, 1 as with
all. The last columns are how often an inferred group is right on validation, and its calibration
error.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.paired import METRICS, by_seed, cell, compared, interval, shown
from shasam.metrics import holm
from shasam.runs.records import Record, by_label, read_records

HERE = Path(__file__).resolve().parent / "unknown-groups"
SETTINGS = ("utkface 4", "a/m")
WHOLE = "100 %"
# the primary tests of README.md: row, the row it is held against, in EO
PRIMARY = (
    ("balanced, infer 5 %", "ce"),
    ("balanced, infer 1 %", "balanced, use 1 %"),
)


def table(experiment: Path = HERE) -> str:
    """Markdown: a line for each setting and row."""
    records = read_records(experiment)
    rows = by_label(records)
    out = [
        "| setting | row | seeds | accuracy | EO | EO − ce | EO − 100 % | worth | right | error |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label in dict.fromkeys(record.label for record in records):
        setting, _, row = label.partition(", ")
        right, gap = (by_seed(rows, label, metric) for metric in METRICS)
        cells = [setting, row, str(len(gap)), mean(right.values()), mean(gap.values())]
        plain, whole = f"{setting}, ce", f"{setting}, {row.partition(',')[0]}, {WHOLE}"
        for other in (plain, whole):
            own = other in rows and other != label
            cells.append(cell(gap, by_seed(rows, other, "eo_mean")) if own else "–")
        both = label not in (plain, whole) and {plain, whole} <= rows.keys()
        cells.append(
            worth(*(by_seed(rows, x, "eo_mean") for x in (plain, label, whole))) if both else "–"
        )
        out.append("| " + " | ".join([*cells, *inference(rows[label])]) + " |")
    return "\n".join([*out, "", *primary(rows)])


def worth(none: dict[int, float], part: dict[int, float], whole: dict[int, float]) -> str:
    """The share of what all labels bring that some of them bring, from means over shared seeds."""
    seeds = sorted(none.keys() & part.keys() & whole.keys())
    a, b, c = (statistics.fmean(side[s] for s in seeds) for side in (none, part, whole))
    return f"{(a - b) / (a - c):.2f}".replace("-", "−") if seeds and a - c >= 1 else "–"


def inference(records: Sequence[Record]) -> list[str]:
    """How often an inferred group is right on validation, and its calibration error."""
    found = [
        r.metrics["inferred_groups"]["validation"]
        for r in records
        if "inferred_groups" in r.metrics
    ]
    return [mean(100 * one[key] for one in found) if found else "–" for key in ("accuracy", "ece")]


def mean(values: object) -> str:
    return f"{statistics.fmean(values):.1f}"  # type: ignore[call-overload]


def primary(rows: dict[str, list[Record]]) -> list[str]:
    """A line for each primary test that has two seeds, with p after Holm over all of them."""
    found = []
    for on, off in PRIMARY:
        for setting in SETTINGS:
            names = [f"{setting}, {row}" for row in (on, off)]
            if set(names) <= rows.keys():
                c = compared(*(by_seed(rows, name, "eo_mean") for name in names))
                if c.support > 1:
                    found.append((f"{setting}: EO of {on} minus {off}", c))
    adjusted = holm([c.p for _, c in found]) if found else []
    return [
        f"- {what}: {interval(c)}, p after Holm {shown(p)}"
        for (what, c), p in zip(found, adjusted, strict=True)
    ]


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
