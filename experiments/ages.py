"""Rates along age in years, from the records of an experiment on UTKFace.

``python -m experiments.ages experiments/age-in-years`` prints accuracy, largest and mean gap of the
TPR and FPR curves between the 5 % and the 95 % quantile of age, and dependence (docs/metrics.md),
means over seeds, and the differences that README.md names, paired over seeds with Student's 95 %
interval. Ages are in the file names, so that rows that were trained on two groups are followed
along age too; p-values are adjusted by Holm over the differences.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from experiments.paired import compared, interval, shown
from shasam.metrics import evaluate_curves, holm
from shasam.runs.records import PREDICTIONS, by_label, read_records

MEASURES = {
    "accuracy": "accuracy",
    "curve_gap": "largest gap",
    "curve_mean_gap": "mean gap",
    "dependence": "dependence",
}
# the hypotheses of README.md, in their order: row, row that it is held against, measure
DIFFERENCES = (
    ("balanced by age", "balanced by the cut", "curve_mean_gap"),
    ("shasam-random by age", "shasam-random by the cut", "curve_mean_gap"),
    ("hsic by age", "ce", "dependence"),
    ("reweight by age", "ce", "curve_mean_gap"),
)

Values = dict[str, dict[str, dict[int, float]]]  # row -> measure -> seed -> value in per cent


def ages(ids: list[str]) -> np.ndarray:
    """The ages in names such as ``25_0_3_20170117.jpg.chip.jpg``."""
    return np.array([int(name.partition("_")[0]) for name in ids], dtype=np.float64)


def values(folder: Path) -> Values:
    """The measures of every record, of its test split."""
    table = pq.read_table(folder / PREDICTIONS, columns=["run", "id", "target", "prediction"])
    runs_N, t_N, p_N = (table[name].to_numpy() for name in ("run", "target", "prediction"))
    age_N, out = ages(table["id"].to_pylist()), Values()
    for label, records in by_label(read_records(folder)).items():
        for record in records:
            mine_N = runs_N == record.run
            found = evaluate_curves(
                t_N[mine_N], p_N[mine_N], age_N[mine_N], classes=("female", "male"), draws=100
            ).estimates
            for key in MEASURES:
                out.setdefault(label, {}).setdefault(key, {})[record.seed] = 100 * found[key].value
    return out


def table(found: Values) -> str:
    """Markdown: a line for every row, means over its seeds and their deviation."""
    out = [
        f"| row | seeds | {' | '.join(MEASURES.values())} |",
        f"|---|---|{'---|' * len(MEASURES)}",
    ]
    for label, row in found.items():
        cells = [_mean(row[key]) for key in MEASURES]
        out.append(f"| {label} | {len(row['accuracy'])} | {' | '.join(cells)} |")
    return "\n".join(out)


def _mean(seeds: Mapping[int, float]) -> str:
    many = list(seeds.values())
    spread = f" ± {statistics.stdev(many):.1f}" if len(many) > 1 else ""
    return f"{statistics.fmean(many):.1f}{spread}"


def differences(found: Values) -> str:
    """Markdown: the differences of the hypotheses and of their accuracy; they need two seeds."""
    asked = [(on, off, key) for on, off, key in DIFFERENCES if on in found and off in found]
    made = [compared(found[on][key], found[off][key]) for on, off, key in asked]
    if not made or made[0].support < 2:
        return "Differences need two seeds."
    out = ["| row | minus | measure | difference | p | p, Holm | accuracy |", "|---" * 7 + "|"]
    for (on, off, key), c, p in zip(asked, made, holm([c.p for c in made]), strict=True):
        accuracy = interval(compared(found[on]["accuracy"], found[off]["accuracy"]))
        out.append(
            f"| {on} | {off} | {MEASURES[key]} | {interval(c)} | {shown(c.p)} | {shown(p)} | "
            f"{accuracy} |"
        )
    return "\n".join(out)


if __name__ == "__main__":
    read = values(Path(sys.argv[1]))
    print(table(read), differences(read), sep="\n\n")
