"""Which runs of the committed records had not learnt their target, by the rule of today.

``python -m experiments.learnt`` prints the table of experiments/learns;
``python -m experiments.learnt experiments/faces`` lists the runs of one experiment.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from shasam.metrics.learnt import Skill
from shasam.runs.records import PREDICTIONS, RECORDS, holds_records

EXPERIMENTS = Path(__file__).parent


@dataclass(frozen=True)
class Judged:
    """A run of the records and its skill."""

    label: str
    run: str
    seed: int
    skill: Skill


def judged(experiment: Path) -> list[Judged]:
    """All runs of an experiment, judged by their test predictions."""
    columns = ["run", "target", "prediction"]
    predictions = pq.read_table(experiment / PREDICTIONS, columns=columns)
    runs = predictions.column("run").combine_chunks().dictionary_encode()
    code_R = runs.indices.to_numpy(zero_copy_only=False)
    order_R = np.argsort(code_R, kind="stable")
    ends = np.cumsum(np.bincount(code_R, minlength=len(runs.dictionary)))
    place = {name: i for i, name in enumerate(runs.dictionary.to_pylist())}
    values = {c: predictions.column(c).to_numpy().astype(np.int64)[order_R] for c in columns[1:]}
    names = ["label", "run", "seed", "predictions_metadata"]
    found = []
    for row in pq.read_table(experiment / RECORDS, columns=names).to_pylist():
        i = place[row["run"]]
        own = slice(ends[i - 1] if i else 0, ends[i])
        t, p = (values[name][own] for name in columns[1:])
        about = json.loads(row["predictions_metadata"])
        classes = max(int(t.max()), int(p.max())) + 1
        if "target_names" in about:
            classes = max(classes, len(json.loads(about["target_names"])))
        skill = Skill.from_codes(t, p, classes)
        found.append(Judged(row["label"], row["run"], row["seed"], skill))
    return found


def table() -> str:
    """How many runs of each experiment had not learnt, and of which rows."""
    lines = ["| experiment | runs | not learnt | of these rows |", "|---|---|---|---|"]
    whole, poor = 0, 0
    for experiment in sorted(p for p in EXPERIMENTS.iterdir() if holds_records(p)):
        runs = judged(experiment)
        failed = [run for run in runs if not run.skill.learnt]
        whole, poor = whole + len(runs), poor + len(failed)
        if failed:
            lines.append(f"| {experiment.name} | {len(runs)} | {len(failed)} | {_rows(runs)} |")
    lines.append(f"| all | {whole} | {poor} | |")
    return "\n".join(lines)


def _rows(runs: list[Judged]) -> str:
    of_label: dict[str, list[Judged]] = {}
    for run in runs:
        of_label.setdefault(run.label, []).append(run)
    counted = {
        label: (sum(not run.skill.learnt for run in members), len(members))
        for label, members in of_label.items()
    }
    return ", ".join(f"{label} {n} of {m}" for label, (n, m) in counted.items() if n)


def main(words: list[str]) -> None:
    """Print the table, or the runs of the experiments that are named."""
    if not words:
        print(table())
    for word in words:
        for run in judged(Path(word)):
            state = "" if run.skill.learnt else "  NOT LEARNT"
            print(
                f"{run.label}  seed {run.seed}  accuracy {100 * run.skill.accuracy:.1f}  "
                f"correlation {run.skill.correlation:.2f} (at least {run.skill.low:.2f}){state}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
