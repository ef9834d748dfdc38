"""EO by race, by ``age<35`` and by their intersections, from the records of an experiment.

``python -m experiments.attributes experiments/several-attributes`` prints accuracy and EO (mean) of
each row, means over seeds, and the differences that README.md names, paired over seeds with
Student's 95 % interval. Race and age are in the names of UTKFace's files, so that rows that were
trained on one attribute are measured by both; p-values are adjusted by Holm over the primary tests.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from experiments.paired import compared, interval, shown
from shasam.metrics import holm
from shasam.metrics.counts import Counts
from shasam.metrics.evaluation import values as metrics_of_counts
from shasam.runs.records import PREDICTIONS, by_label, read_records

ACCURACY, RACE, AGE, BOTH = "accuracy", "EO race", "EO age<35", "EO intersections"
MEASURES = (ACCURACY, RACE, AGE, BOTH)
# the primary tests of README.md, in their order: row, row that it is held against, measure
PRIMARY = (
    ("balanced, cross", "balanced, race", BOTH),
    ("balanced, cross", "balanced, age<35", BOTH),
    ("shasam-random, cross", "shasam-random, race", BOTH),
    ("shasam-random, cross", "shasam-random, age<35", BOTH),
    ("balanced, cross", "balanced, each", BOTH),
    ("shasam-random, cross", "shasam-random, each", BOTH),
    ("balanced, race", "ce", AGE),
    ("balanced, age<35", "ce", RACE),
)

Values = dict[str, dict[str, dict[int, float]]]  # row -> measure -> seed -> value in per cent


def groups(ids: list[str]) -> dict[str, np.ndarray]:
    """The groups of names such as ``25_0_3_20170117.jpg.chip.jpg``: age, gender, race."""
    parts = [name.split("_") for name in ids]
    race_N = np.array([int(part[2]) for part in parts])
    young_N = np.array([int(part[0]) < 35 for part in parts]).astype(np.int64)
    return {RACE: race_N, AGE: young_N, BOTH: 2 * race_N + young_N}


def eo(t_N: np.ndarray, p_N: np.ndarray, s_N: np.ndarray) -> float:
    """EO (mean) over the groups that there are."""
    names, s_N = np.unique(s_N, return_inverse=True)
    counts = Counts.from_codes(t_N, p_N, s_N, ("0", "1"), tuple(map(str, names.tolist())))
    return metrics_of_counts(counts)["eo_mean"]


def values(folder: Path) -> Values:
    """The measures of every record, of its test split."""
    table = pq.read_table(folder / PREDICTIONS, columns=["run", "id", "target", "prediction"])
    runs_N, t_N, p_N = (table[name].to_numpy() for name in ("run", "target", "prediction"))
    groups_N, out = groups(table["id"].to_pylist()), Values()
    for label, records in by_label(read_records(folder)).items():
        for record in records:
            own = runs_N == record.run
            found = {ACCURACY: float((t_N[own] == p_N[own]).mean())}
            found |= {key: eo(t_N[own], p_N[own], s_N[own]) for key, s_N in groups_N.items()}
            for key, value in found.items():
                out.setdefault(label, {}).setdefault(key, {})[record.seed] = 100 * value
    return out


def table(found: Values) -> str:
    """Markdown: a line for every row, means over its seeds and their deviation."""
    out = [f"| row | seeds | {' | '.join(MEASURES)} |", f"|---|---|{'---|' * len(MEASURES)}"]
    for label, row in sorted(found.items()):
        cells = [_mean(row[key]) for key in MEASURES]
        out.append(f"| {label} | {len(row[ACCURACY])} | {' | '.join(cells)} |")
    return "\n".join(out)


def _mean(seeds: Mapping[int, float]) -> str:
    many = list(seeds.values())
    spread = f" ± {statistics.stdev(many):.1f}" if len(many) > 1 else ""
    return f"{statistics.fmean(many):.1f}{spread}"


def differences(found: Values) -> str:
    """Markdown: the primary tests, and the accuracy of each pair; they need two seeds."""
    asked = [(on, off, key) for on, off, key in PRIMARY if on in found and off in found]
    made = [compared(found[on][key], found[off][key]) for on, off, key in asked]
    if not made or made[0].support < 2:
        return "Differences need two seeds."
    out = ["| row | minus | measure | difference | p | p, Holm | accuracy |", "|---" * 7 + "|"]
    for (on, off, key), c, p in zip(asked, made, holm([c.p for c in made]), strict=True):
        accuracy = interval(compared(found[on][ACCURACY], found[off][ACCURACY]))
        out.append(
            f"| {on} | {off} | {key} | {interval(c)} | {shown(c.p)} | {shown(p)} | {accuracy} |"
        )
    return "\n".join(out)


if __name__ == "__main__":
    read = values(Path(sys.argv[1]))
    print(table(read), differences(read), sep="\n\n")
