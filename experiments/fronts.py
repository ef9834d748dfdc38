"""What fairness costs, row by row: ``python -m experiments.fronts [experiments/frontier]``.

Labels are "setting, row". For each run the front is that of its recorded test scores: thresholds
per group with several tolerances, every row decided by a rule of other rows, beside the run's own
decisions and a constant answer, whose gap is 0. So methods are compared at equal means of
post-processing ("unprocessing" of Cruz and Hardt, ICLR 2024). Numbers are means over seeds; the
price is that of ``ce``'s own accuracy, paired over seeds, with Student's 95 % interval.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from experiments.paired import compared
from shasam.metrics.counts import Counts
from shasam.metrics.evaluation import values
from shasam.metrics.odds import TOLERANCES, area, cross_fitted, front_reason, reach
from shasam.runs.records import PREDICTIONS, read_records
from shasam.types import Predictions

HERE = Path(__file__).resolve().parent
LIMITS = (0.05, 0.1)

Point = tuple[float, float]  # gap, accuracy


def points_of(rows: Predictions) -> list[Point]:
    """What can be had of a run: its own decisions, thresholds, and a constant."""
    decided = [rows.prediction]
    if not front_reason(rows):
        decided += [cross_fitted(rows, tolerance) for tolerance in TOLERANCES]
    found = [(0.0, float(np.bincount(rows.target).max() / len(rows)))]
    for prediction in decided:
        counts = Counts.from_codes(
            rows.target, prediction, rows.sensitive, rows.classes, rows.groups, None
        )
        value = values(counts, ["eo_mean", "accuracy"])
        found.append((value["eo_mean"], value["accuracy"]))
    return found


def predictions_of(experiment: Path) -> Iterator[tuple[str, Predictions]]:
    """The test predictions of every run that is recorded, by the run's name."""
    table = pq.read_table(experiment / PREDICTIONS)
    names = table.column("run").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    numbers = {
        column: table.column(column).to_numpy()[order]
        for column in table.column_names
        if column not in ("run", "id")
    }
    edges = np.append(np.flatnonzero(np.diff(codes[order], prepend=-1)), len(codes))
    for first, last in pairwise(edges.tolist()):
        own = {column: values[first:last] for column, values in numbers.items()}
        scores = [v for k, v in own.items() if k.startswith("score_") and np.isfinite(v).all()]
        target, group = own["target"].astype(np.int64), own["sensitive"].astype(np.int64)
        yield (
            names.dictionary[int(codes[order[first]])].as_py(),
            Predictions(
                ids=np.array([]),
                target=target,
                prediction=own["prediction"].astype(np.int64),
                sensitive=group,
                scores=np.stack(scores, axis=1).astype(np.float64),
                classes=tuple(map(str, range(len(scores)))),
                groups=tuple(map(str, range(int(group.max()) + 1))),
            ),
        )


def table(experiment: Path) -> str:
    """Markdown: a line for each setting and row."""
    records = {record.run: record for record in read_records(experiment)}
    found: dict[str, dict[str, dict[int, tuple[Point, list[Point], float]]]] = {}
    for name, rows in predictions_of(experiment):
        setting, _, row = records[name].label.partition(", ")
        points, right = points_of(rows), rows.prediction == rows.target
        cell = rows.target * len(rows.groups) + rows.sensitive
        worst = min(float(right[cell == k].mean()) for k in np.unique(cell))
        seeds = found.setdefault(setting, {}).setdefault(row, {})
        seeds[records[name].seed] = points[1], points, worst
    out = [
        "| setting | row | seeds | accuracy | EO | worst cell | area | price of EO ≤ 5 | price of "
        "EO ≤ 10 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for setting, by_row in found.items():
        base = {seed: 100 * own[1] for seed, (own, _, _) in by_row.get("ce", {}).items()}
        for row, seeds in by_row.items():
            owns = [own for own, _, _ in seeds.values()]
            prices = [
                price({s: 100 * reach(p, limit) for s, (_, p, _) in seeds.items()}, base)
                for limit in LIMITS
            ]
            shown = [
                statistics.mean(100 * own[1] for own in owns),
                statistics.mean(100 * own[0] for own in owns),
                statistics.mean(100 * worst for _, _, worst in seeds.values()),
                statistics.mean(100 * area(points) for _, points, _ in seeds.values()),
            ]
            cells = [f"{value:.1f}" for value in shown]
            out.append("| " + " | ".join([setting, row, str(len(seeds)), *cells, *prices]) + " |")
    return "\n".join(out)


def price(reached: dict[int, float], base: dict[int, float]) -> str:
    """Points of ``ce``'s accuracy that are paid, with the interval over seeds."""
    if not base:
        return "–"
    c = compared(base, reached)
    if c.support < 2:
        return f"{c.difference:.1f}".replace("-", "−")
    return f"{c.difference:.1f} ({c.low:.1f} to {c.high:.1f})".replace("-", "−")


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "frontier"))
