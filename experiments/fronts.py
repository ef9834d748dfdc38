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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from experiments.paired import compared, interval
from experiments.paired import shown as p_shown
from shasam.metrics import holm
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


@dataclass(frozen=True)
class Measured:
    """What a run reaches, in per cent: by itself, and by thresholds where its EO is limited."""

    accuracy: float
    eo: float
    worst: float
    area: float
    at: Mapping[float, float]  # limit on the EO -> best accuracy of the front

    @classmethod
    def of(cls, rows: Predictions) -> Measured:
        """Measure the test predictions of a run."""
        points, right = points_of(rows), rows.prediction == rows.target
        cell = rows.target * len(rows.groups) + rows.sensitive
        gap, accuracy = points[1]
        return cls(
            100 * accuracy,
            100 * gap,
            100 * min(float(right[cell == k].mean()) for k in np.unique(cell)),
            100 * area(points),
            {limit: 100 * reach(points, limit) for limit in LIMITS},
        )

    @classmethod
    def mean(cls, runs: Sequence[Measured]) -> Measured:
        """The mean of several runs."""
        own = (statistics.mean(getattr(run, name) for run in runs) for name in MEASURES)
        return cls(
            *own, {limit: statistics.mean(run.at[limit] for run in runs) for limit in LIMITS}
        )


MEASURES = ("accuracy", "eo", "worst", "area")
Seeds = dict[int, Measured]
Settings = dict[str, dict[str, Seeds]]  # setting -> row -> seeds


def measured(experiment: Path) -> Settings:
    """Every run that is recorded."""
    records = {record.run: record for record in read_records(experiment)}
    found: Settings = {}
    for name, rows in predictions_of(experiment):
        setting, _, row = records[name].label.partition(", ")
        found.setdefault(setting, {}).setdefault(row, {})[records[name].seed] = Measured.of(rows)
    return found


def over_settings(found: Settings) -> dict[str, Seeds]:
    """The mean over all settings, of rows and seeds that all of them have."""
    out = {}
    for row in next(iter(found.values())):
        if all(row in rows for rows in found.values()):
            common = set.intersection(*(set(rows[row]) for rows in found.values()))
            runs = {s: [rows[row][s] for rows in found.values()] for s in sorted(common)}
            out[row] = {s: Measured.mean(of) for s, of in runs.items()}
    return out


def table(found: Settings) -> str:
    """Markdown: a line for each setting and row."""
    out = [
        "| setting | row | seeds | accuracy | EO | worst cell | area | price of EO ≤ 5 | price of "
        "EO ≤ 10 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for setting, rows in found.items():
        base = {seed: one.accuracy for seed, one in rows.get("ce", {}).items()}
        for row, seeds in rows.items():
            means = Measured.mean(list(seeds.values()))
            own = [f"{getattr(means, name):.1f}" for name in MEASURES]
            prices = [price({s: one.at[k] for s, one in seeds.items()}, base) for k in LIMITS]
            out.append("| " + " | ".join([setting, row, str(len(seeds)), *own, *prices]) + " |")
    return "\n".join(out)


def price(reached: dict[int, float], base: dict[int, float]) -> str:
    """Points of ``ce``'s accuracy that are paid, with the interval over seeds."""
    if not base:
        return "–"
    c = compared(base, reached)
    if c.support < 2:
        return f"{c.difference:.1f}".replace("-", "−")
    return f"{c.difference:.1f} ({c.low:.1f} to {c.high:.1f})".replace("-", "−")


def differences(found: Settings, pairs: Sequence[tuple[str, str]], measures: Sequence[str]) -> str:
    """Markdown: one row minus another in each setting, p adjusted by Holm over the settings."""
    out = [
        "| row − row | setting | seeds | " + " | ".join(measures) + " |",
        "|---|---|---|" + "---|" * len(measures),
    ]
    for on, off in pairs:
        settings = [s for s, rows in found.items() if len(rows[on].keys() & rows[off].keys()) > 1]
        by_measure = []
        for name in measures:
            of = [
                compared(
                    *(
                        {s: getattr(m, name) for s, m in found[setting][row].items()}
                        for row in (on, off)
                    )
                )
                for setting in settings
            ]
            adjusted = holm([c.p for c in of])
            by_measure.append(
                [f"{interval(c)}, p {p_shown(p)}" for c, p in zip(of, adjusted, strict=True)]
            )
        for i, setting in enumerate(settings):
            seeds = len(found[setting][on].keys() & found[setting][off].keys())
            cells = [f"{on} − {off}", setting, str(seeds), *(column[i] for column in by_measure)]
            out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def ahead_of_thresholds(found: Settings) -> str:
    """Markdown: the row whose front is highest above that of ``ce``, at each limit on the EO."""
    out = [
        "| setting | "
        + " | ".join(f"highest above ce at EO ≤ {100 * k:.0f}" for k in LIMITS)
        + " |",
        "|---|" + "---|" * len(LIMITS),
    ]
    for setting, rows in found.items():
        cells = []
        for limit in LIMITS:
            reached = {r: {s: m.at[limit] for s, m in seeds.items()} for r, seeds in rows.items()}
            above = {r: compared(of, reached["ce"]) for r, of in reached.items() if r != "ce"}
            best = max(above, key=lambda row: above[row].difference)
            cells.append(f"{best} {interval(above[best])}")
        out.append(f"| {setting} | " + " | ".join(cells) + " |")
    return "\n".join(out)


# the hypotheses of experiments/frontier: (row, against), what is read
PLANNED = [
    ([("relaxed odds", "ce")], ("eo", "accuracy")),
    ([("dfr", "balanced")], ("eo", "accuracy")),
    ([("scaling", "ce")], ("eo", "worst")),
    ([("jtt 6", "ce")], ("accuracy", "worst")),
    (
        [
            ("fscl+ balanced", "balanced"),
            ("shasam-random", "balanced"),
            ("shasam-random", "fscl+ balanced"),
        ],
        ("eo", "accuracy"),
    ),
]


def main(experiment: Path) -> None:
    """Print the mean over settings, what the hypotheses ask for, and every setting."""
    found = measured(experiment)
    print(table({"all": over_settings(found)}), end="\n\n")
    for pairs, measures in PLANNED:
        print(differences(found, pairs, measures), end="\n\n")
    print(ahead_of_thresholds(found), end="\n\n")
    print(table(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "frontier")
