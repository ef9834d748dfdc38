"""What mining does, and which defaults validation chose: ``python -m experiments.mined``.

Labels are "setting, row". One table is of validation, by the rule of mining/README.md: a line
for each row with its means over settings and seeds. The other is of the test split: each row minus
random sets, paired over seeds, with Student's 95 % interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from experiments.paired import both, interval, read, shown
from shasam.metrics import holm
from shasam.metrics.paired import Comparison
from shasam.runs.records import Record, by_label, read_records

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "a/m": "CelebA a/m",
    "b/m": "CelebA b/m",
    "m/y": "CelebA m/y",
    "utkface 4": "UTKFace α = 4",
    "utkface 20": "UTKFace α = 20",
}
LIMIT = 0.5  # points of accuracy that a row may be behind the best one
HEADS = ("encoder", "projection")


def rows_of(experiment: Path) -> dict[str, dict[str, list[Record]]]:
    """Row -> setting -> records, for the rows that every setting of the experiment has."""
    found: dict[str, dict[str, list[Record]]] = {}
    for label, records in by_label(read_records(experiment)).items():
        setting, _, row = label.partition(", ")
        found.setdefault(row, {})[setting] = records
    settings = {setting for by_setting in found.values() for setting in by_setting}
    return {row: have for row, have in found.items() if have.keys() == settings}


def mean(records: Mapping[str, list[Record]], kind: str, metric: str) -> float:
    """The mean over seeds, then over settings, in per cent; of validation."""
    of_settings = [
        statistics.mean(100 * validation(record, kind, metric) for record in have)
        for have in records.values()
    ]
    return statistics.mean(of_settings)


def validation(record: Record, kind: str, metric: str) -> float:
    """A metric of a head, ``encoder`` or ``projection``, or of ``natural.projection``."""
    what, _, feature = kind.partition(".")
    if what == "natural":
        return float(record.metrics["natural_head"][feature]["val"][metric]["value"])
    return read(record.metrics, f"val.{kind}", metric)


def chosen(experiment: Path) -> tuple[str, str]:
    """The row and head with the smallest EO among those near the best accuracy."""
    scores = {
        (row, head): (mean(have, head, "cell_balanced_accuracy"), mean(have, head, "eo_mean"))
        for row, have in rows_of(experiment).items()
        for head in HEADS
    }
    best = max(accuracy for accuracy, _ in scores.values())
    near = {name: eo for name, (accuracy, eo) in scores.items() if accuracy >= best - LIMIT}
    return min(near, key=lambda name: near[name])


def validated(experiment: Path) -> str:
    """Markdown: accuracy with all cells alike / EO, by setting and in the mean."""
    rows = rows_of(experiment)
    settings = list(next(iter(rows.values())))
    out = [
        "| row | seeds | own head | "
        + " | ".join(SETTINGS[s] for s in settings)
        + " | mean | EO of the natural head, mean |",
        "|---" * (len(settings) + 5) + "|",
    ]
    choice = chosen(experiment)
    for row, have in rows.items():
        seeds = sorted({r.seed for records in have.values() for r in records})
        natural = mean(have, "natural.projection", "eo_mean")
        for head in HEADS:
            parts = [{s: have[s]} for s in settings] + [have]
            cells = [
                f"{mean(p, head, 'cell_balanced_accuracy'):.1f} / {mean(p, head, 'eo_mean'):.1f}"
                for p in parts
            ]
            if (row, head) == choice:
                cells[-1] = f"**{cells[-1]}**"
            shown = (row, str(len(seeds)), head, *cells, f"{natural:.1f}")
            out.append("| " + " | ".join(shown) + " |")
    return "\n".join(out)


# what is compared with random sets, on the test split
MEASURES = {
    "accuracy": ("", "accuracy"),
    "EO": ("", "eo_mean"),
    "worst cell": ("", "worst_group_accuracy"),
    "EO of the natural head": (":natural.projection", "eo_mean"),
}


def against_random(experiment: Path) -> str:
    """Markdown: each row minus ``random``, by setting; p is adjusted by Holm over the settings."""
    rows = by_label(read_records(experiment))
    names = [name for name in rows if not name.endswith(", random")]
    others = {name: f"{name.partition(', ')[0]}, random" for name in names}
    names = [name for name in names if others[name] in rows]
    cells: dict[str, list[str]] = {name: [] for name in names}
    seeds: dict[str, int] = {}
    for kind, metric in MEASURES.values():
        found = {name: both(rows, name + kind, others[name] + kind, metric) for name in names}
        for name, p in adjusted({name: c for name, (c, _) in found.items()}).items():
            c, means = found[name]
            seeds[name] = c.support
            said = f"{interval(c)}, p {shown(p)}" if c.support > 1 else "one seed"
            cells[name].append(f"{' / '.join(means)}: {said}")
    out = [
        "| setting | row | seeds | " + " | ".join(MEASURES) + " |",
        "|---" * (len(MEASURES) + 3) + "|",
    ]
    for name in names:
        setting, _, row = name.partition(", ")
        out.append(f"| {SETTINGS[setting]} | {row} | {seeds[name]} | {' | '.join(cells[name])} |")
    return "\n".join(out)


def adjusted(found: Mapping[str, Comparison]) -> dict[str, float]:
    """The p-values of a measure, adjusted by Holm over the settings of each row."""
    out: dict[str, float] = {}
    for row in {name.partition(", ")[2] for name in found}:
        of_row = {name: c.p for name, c in found.items() if name.partition(", ")[2] == row}
        out.update(zip(of_row, holm(list(of_row.values())), strict=True))
    return {name: out[name] for name in found}


if __name__ == "__main__":
    print(validated(HERE / "mining-learn"), "\n")
    print(against_random(HERE / "mining"))
