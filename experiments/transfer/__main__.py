"""The tests of README.md: heads for other targets on one row's features against another's.

``python -m experiments.transfer`` reads the records of the experiment; nothing is trained.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from shasam.metrics import compare_seeds, holm
from shasam.runs.records import Record, read_records

HERE = Path(__file__).parent
SETTINGS = ("a-by-m", "b-by-m", "a-by-y", "gender-by-race")
SUBJECT = ("mined sets, FLCMI + CE", "projection")
CONTROL = ("balanced-hidden", "hidden")
OTHERS = (
    ("random sets, FLCMI + CE", "projection"),
    ("random sets, FLCMI", "projection"),
    ("random sets, CE", "projection"),
    ("fscl+, random sets", "projection"),
    ("ce", "encoder"),
    ("balanced", "encoder"),
    ("grl", "encoder"),
    ("lnl", "encoder"),
    ("mfd", "encoder"),
    ("mmd", "encoder"),
    ("hsic", "encoder"),
)
STRENGTHS = ("linear", "small", "large")
Row = tuple[str, str]  # label, kind of feature


def means(records: Sequence[Record], row: Row, strength: str, metric: str) -> dict[int, float]:
    """The mean over all pairs of each seed that every setting has, in per cent."""
    label, kind = row
    label += ", large head" if strength == "large" else ""  # has runs of its own
    by_seed: dict[int, dict[str, list[float]]] = {}
    for record in records:
        setting, _, own = record.label.partition(", ")
        if own != label:
            continue
        found = [
            100 * body[kind][strength]["test"][metric]["value"]
            for body in record.metrics["transfer"].values()
        ]
        by_seed.setdefault(record.seed, {})[setting] = found
    return {
        seed: statistics.fmean(value for setting in SETTINGS for value in found[setting])
        for seed, found in sorted(by_seed.items())
        if all(setting in found for setting in SETTINGS)
    }


def line(records: Sequence[Record], other: Row, strength: str) -> tuple[str, Mapping[str, float]]:
    """A row of the table: accuracy and EO of both, and the differences; with the p-values."""
    cells, p = [f"{other[0]}, {other[1]}", strength], {}
    for metric in ("eo_mean", "accuracy"):
        on, off = (means(records, row, strength, metric) for row in (SUBJECT, other))
        seeds = sorted(on.keys() & off.keys())
        if len(seeds) < 2:
            return "", {}
        c = compare_seeds([on[s] for s in seeds], [off[s] for s in seeds])
        both = (statistics.fmean(side[s] for s in seeds) for side in (on, off))
        cells.append(" / ".join(f"{value:.1f}" for value in both))
        cells.append(f"{c.difference:+.1f} ({c.low:+.1f} to {c.high:+.1f})")
        p[metric] = c.p
    return "| " + " | ".join(cells) + " |", p


def table(experiment: Path = HERE) -> str:
    """All comparisons, the primary one first."""
    records = read_records(experiment)
    head = "| against | head | EO | difference | accuracy | difference |"
    out = [head, "|---|---|---|---|---|---|"]
    primary, p = line(records, CONTROL, "small")
    out.append(primary)
    for strength in STRENGTHS:
        for other in (CONTROL, *OTHERS):
            if (other, strength) != (CONTROL, "small"):
                out.append(line(records, other, strength)[0])
    adjusted = holm(list(p.values()))
    words = ", ".join(f"{name} {value:.3f}" for name, value in zip(p, adjusted, strict=True))
    return "\n".join([*filter(None, out), "", f"Primary tests, p after Holm: {words}."])


if __name__ == "__main__":
    print(table())
