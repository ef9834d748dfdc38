"""Accuracy of subgroups that no method saw, from the records of an experiment on UTKFace.

``python -m experiments.strata experiments/earns-its-keep`` prints the table.

The cells of UTKFace's setting are gender by (Caucasian, other). Its file names also hold age and
race, so the test predictions of a record can be split further: races inside "other", bands of age.
No method balances over these strata. If diverse selection helped rare people inside a cell, it
would show here. Differences are paired over seeds, with Student's 95 % interval; p-values are
adjusted by Holm over the table.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from experiments.paired import compared, interval, shared_means, shown
from shasam.metrics import holm
from shasam.runs.records import PREDICTIONS, by_label, read_records

RACES = ("Caucasian", "Black", "Asian", "Indian", "other race")
AGES = {"age 0–9": (0, 9), "age 10–59": (10, 59), "age 60 and more": (60, 200)}
ROWS = ("shasam", "shasam all mined", "balanced-hidden")
AGAINST = "shasam nothing mined"


def strata(ids: list[str]) -> dict[str, np.ndarray]:
    """Which rows belong to each stratum, from names such as ``25_0_3_20170117.jpg.chip.jpg``."""
    parts = [name.split("_") for name in ids]
    age_N = np.array([int(part[0]) for part in parts])
    race_N = np.array([int(part[2]) for part in parts])
    found = {name: race_N == code for code, name in enumerate(RACES)}
    found |= {name: (age_N >= low) & (age_N <= high) for name, (low, high) in AGES.items()}
    return found


def accuracies(folder: Path) -> dict[str, dict[str, dict[int, float]]]:
    """stratum -> row -> seed -> accuracy in per cent, of the test split."""
    table = pq.read_table(folder / PREDICTIONS, columns=["run", "id", "target", "prediction"])
    runs_N = table["run"].to_numpy()
    right_N = (table["target"].to_numpy() == table["prediction"].to_numpy()).astype(float)
    inside = strata(table["id"].to_pylist())
    out: dict[str, dict[str, dict[int, float]]] = {}
    for label, records in by_label(read_records(folder)).items():
        for record in records:
            mine_N = runs_N == record.run
            for name, in_N in inside.items():
                row = out.setdefault(name, {}).setdefault(label, {})
                row[record.seed] = 100 * float(right_N[mine_N & in_N].mean())
    return out


def table(folder: Path) -> str:
    """Markdown: a line for every stratum and row, minus ``shasam nothing mined``."""
    lines = []
    for stratum, rows in accuracies(folder).items():
        for row in ROWS:
            if row not in rows:
                continue
            c = compared(rows[row], rows[AGAINST])
            lines.append((stratum, row, c, shared_means(rows[row], rows[AGAINST])))
    adjusted = holm([c.p for _, _, c, _ in lines])
    out = [
        f"| stratum | row | seeds | accuracy | {AGAINST} | difference | p | p, Holm |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (stratum, row, c, (on, off)), p in zip(lines, adjusted, strict=True):
        out.append(
            f"| {stratum} | {row} | {c.support} | {on} | {off} | {interval(c)} | "
            f"{shown(c.p)} | {shown(p)} |"
        )
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(table(Path(sys.argv[1])), end="")
