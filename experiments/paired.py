"""One row against others, paired over seeds.

``python -m experiments.paired experiments/utkface shasam ce fscl+ balanced`` prints the difference
of accuracy and EO (points) of ``shasam`` minus each of the others, Student's 95 % interval and p.
A row may name where it is read: ``fscl+:encoder-balanced`` (a kind of its predictions),
``shasam:natural.projection`` (the natural head on a kind of feature), ``shasam:probe.projection``
(leakage), ``shasam:val`` (the validation split). Without rows, the comparisons are those of
``comparisons.yaml`` in the experiment's folder (or, for its secondary settings, of earns-its-keep),
written before the runs, and p-values are adjusted by Holm within each of its families.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shasam.documents import read_yaml
from shasam.metrics import compare_seeds, holm
from shasam.metrics.paired import Comparison
from shasam.runs.records import Record, by_label, read_records

METRICS = ("accuracy", "eo_mean")


def by_seed(rows: dict[str, list[Record]], name: str, metric: str) -> dict[int, float]:
    """The test metric of every seed of a row, in per cent."""
    label, _, kind = name.partition(":")
    return {r.seed: 100 * read(r.metrics, kind, metric) for r in rows[label]}


def read(metrics: Mapping[str, Any], kind: str, metric: str) -> float:
    """A metric of the test split, of the predictions, natural head or probe that is named.

    ``val`` and ``val.<kind>`` are predictions of the validation split.
    """
    what, _, features = kind.partition(".")
    if what == "natural":
        found = metrics["natural_head"][features]["test"][metric]
    elif what == "probe":
        found = metrics["probe"][features][metric]
    elif what == "val":
        found = metrics[kind][metric]
    else:
        found = metrics[f"test.{kind}" if kind else "test"][metric]
    return float(found["value"] if isinstance(found, Mapping) else found)


def compared(on: dict[int, float], off: dict[int, float]) -> Comparison:
    """On minus off over the seeds that both have."""
    seeds = sorted(on.keys() & off.keys())
    return compare_seeds([on[s] for s in seeds], [off[s] for s in seeds])


def cell(on: dict[int, float], off: dict[int, float]) -> str:
    """``+2.8 (1.2 to 4.3), p 0.02``, over the seeds that both have."""
    c = compared(on, off)
    if c.support < 2:
        return f"{c.difference:+.1f} (one seed)".replace("-", "−")
    return f"{interval(c)}, p {shown(c.p)}"


def interval(c: Comparison) -> str:
    return f"{c.difference:+.1f} ({c.low:.1f} to {c.high:.1f})".replace("-", "−")


def shown(p: float) -> str:
    if p < 0.0005:
        return "< 0.001"
    return f"{p:.2f}" if p >= 0.005 else f"{p:.3f}"


def table(experiment: Path, first: str, others: list[str]) -> str:
    """Markdown."""
    rows = by_label(read_records(experiment))
    out = [f"| `{first}` against | seeds | accuracy | EO (mean) |", "|---|---|---|---|"]
    for other in others:
        pairs = [(by_seed(rows, first, m), by_seed(rows, other, m)) for m in METRICS]
        shared = len(pairs[0][0].keys() & pairs[0][1].keys())
        out.append(f"| `{other}` | {shared} | " + " | ".join(cell(*p) for p in pairs) + " |")
    return "\n".join(out)


def planned(experiment: Path, families: Sequence[str] | None = None) -> str:
    """Markdown: the families of ``comparisons.yaml``, as far as their rows were run."""
    rows = by_label(read_records(experiment))
    out = []
    plans = experiment / "comparisons.yaml"
    if not plans.is_file():
        plans = experiment.parent / "earns-its-keep" / "comparisons.yaml"
    for family, plan in read_yaml(plans).items():
        if families is not None and family not in families:
            continue
        tested, beside = [], []
        for entry in plan:
            on, off = entry["row"], entry["against"]
            if not {side.partition(":")[0] for side in (on, off)} <= rows.keys():
                continue
            for metric in (*entry["test"], *entry.get("beside", ())):
                c, means = both(rows, on, off, metric)
                into = tested if metric in entry["test"] else beside
                into.append((on, off, metric, c, means))
        adjusted = holm([line[3].p for line in tested])
        out += [
            f"**{family}**, {len(tested)} tests",
            "",
            "| on | off | metric | seeds | mean on | mean off | on − off | p | p, Holm |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for line, p in [*zip(tested, adjusted, strict=True), *((line, None) for line in beside)]:
            on, off, metric, c, means = line
            ps = ("", "") if p is None else (shown(c.p), shown(p))
            cells = (on, off, metric, str(c.support), *means, interval(c), *ps)
            out.append("| " + " | ".join(cells) + " |")
        out.append("")
    return "\n".join(out)


def both(
    rows: dict[str, list[Record]], on: str, off: str, metric: str
) -> tuple[Comparison, list[str]]:
    """The comparison of two rows, and their means over the seeds that both have."""
    sides = by_seed(rows, on, metric), by_seed(rows, off, metric)
    return compared(*sides), shared_means(*sides)


def shared_means(on: dict[int, float], off: dict[int, float]) -> list[str]:
    """The means of two rows over the seeds that both have."""
    shared = sorted(on.keys() & off.keys())
    return [f"{sum(side[s] for s in shared) / len(shared):.1f}" for side in (on, off)]


if __name__ == "__main__":
    where, *asked = sys.argv[1:]
    print(table(Path(where), asked[0], asked[1:]) if asked else planned(Path(where)))
