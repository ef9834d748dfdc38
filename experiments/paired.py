"""One row against others, paired over seeds.

``python -m experiments.paired experiments/utkface shasam ce fscl+ balanced`` prints the difference
of accuracy and EO (points) of ``shasam`` minus each of the others, Student's 95 % interval and p.
A row may name the kind of its predictions: ``fscl+:encoder-balanced``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shasam.metrics import compare_seeds
from shasam.runs.records import Record, by_label, read_records

METRICS = ("accuracy", "eo_mean")


def by_seed(rows: dict[str, list[Record]], name: str, metric: str) -> dict[int, float]:
    """The test metric of every seed of a row, in per cent."""
    label, _, kind = name.partition(":")
    split = f"test.{kind}" if kind else "test"
    return {r.seed: 100 * r.metrics[split][metric]["value"] for r in rows[label]}


def cell(on: dict[int, float], off: dict[int, float]) -> str:
    """``+2.8 (1.2 to 4.3), p 0.02``, over the seeds that both have."""
    seeds = sorted(on.keys() & off.keys())
    c = compare_seeds([on[s] for s in seeds], [off[s] for s in seeds])
    if len(seeds) < 2:
        return f"{c.difference:+.1f} (one seed)".replace("-", "−")
    p = f"{c.p:.2f}" if c.p >= 0.005 else f"{c.p:.3f}"
    return f"{c.difference:+.1f} ({c.low:.1f} to {c.high:.1f}), p {p}".replace("-", "−")


def table(experiment: Path, first: str, others: list[str]) -> str:
    """Markdown."""
    rows = by_label(read_records(experiment))
    out = [f"| `{first}` against | seeds | accuracy | EO (mean) |", "|---|---|---|---|"]
    for other in others:
        pairs = [(by_seed(rows, first, m), by_seed(rows, other, m)) for m in METRICS]
        shared = len(pairs[0][0].keys() & pairs[0][1].keys())
        out.append(f"| `{other}` | {shared} | " + " | ".join(cell(*p) for p in pairs) + " |")
    return "\n".join(out)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
