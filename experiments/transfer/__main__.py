"""The tests of README.md: heads for other targets on one row's features against another's.

``python -m experiments.transfer`` reads the records of the experiment; nothing is trained.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from experiments.paired import compared, interval, shared_means, shown

from shasam.metrics import holm
from shasam.metrics.paired import Comparison
from shasam.runs.records import Record, read_records

HERE = Path(__file__).parent
SETTINGS = ("a-by-m", "b-by-m", "a-by-y", "gender-by-race")
Row = tuple[str, str]  # label, kind of feature
SUBJECT: Row = ("mined sets, FLCMI + CE", "projection")
CONTROL: Row = ("balanced-hidden", "hidden")
OTHERS: tuple[Row, ...] = (
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
PROBES = ("linear_within_class", "mlp_within_class")
METRICS = ("eo_mean", "accuracy")
Values = dict[int, float]  # seed -> per cent


def of_heads(records: Sequence[Record], row: Row, strength: str, metric: str) -> dict[str, Values]:
    """For each pair "setting → later target": the metric of the head of every seed."""
    label, kind = row
    label += ", large head" if strength == "large" else ""  # has runs of its own
    found: dict[str, Values] = {}
    for record in records:
        setting, _, own = record.label.partition(", ")
        if own != label:
            continue
        for target, body in record.metrics["transfer"].items():
            value = 100 * body[kind][strength]["test"][metric]["value"]
            found.setdefault(f"{setting} → {target}", {})[record.seed] = value
    return found


def of_probes(records: Sequence[Record], row: Row, probe: str) -> dict[str, Values]:
    """For each setting: how well a probe reads the group within a class (chance is 50)."""
    label, kind = row
    found: dict[str, Values] = {}
    for record in records:
        setting, _, own = record.label.partition(", ")
        if own == label:
            found.setdefault(setting, {})[record.seed] = 100 * record.metrics["probe"][kind][probe]
    return found


def over_all(found: Mapping[str, Values]) -> Values:
    """The mean over all that was measured, of each seed that every setting has."""
    if {name.partition(" → ")[0] for name in found} != set(SETTINGS):
        return {}
    shared = set.intersection(*(set(values) for values in found.values()))
    return {s: statistics.fmean(values[s] for values in found.values()) for s in sorted(shared)}


def means(records: Sequence[Record], row: Row, strength: str, metric: str) -> Values:
    """The mean over all pairs of each seed that every setting has, in per cent."""
    return over_all(of_heads(records, row, strength, metric))


Sides = tuple[Values, Values]


def family(title: str, columns: Sequence[str], lines: Mapping[str, Sequence[Sides]]) -> list[str]:
    """A table of differences, a line each; p is adjusted by Holm over all tests of the table."""
    complete = {name: sides for name, sides in lines.items() if all(_tested(*s) for s in sides)}
    found = {name: [compared(*s) for s in sides] for name, sides in complete.items()}
    adjusted = iter(holm([c.p for tests in found.values() for c in tests]))
    out = [
        f"| {title} | seeds | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for name, tests in found.items():
        cells = [
            f"{' / '.join(shared_means(*sides))}: {_said(c, next(adjusted))}"
            for c, sides in zip(tests, complete[name], strict=True)
        ]
        out.append(f"| {name} | {tests[0].support} | " + " | ".join(cells) + " |")
    return [*out, ""]


def _tested(on: Values, off: Values) -> bool:
    return len(on.keys() & off.keys()) > 1


def _said(c: Comparison, p: float) -> str:
    return f"{interval(c)}, p {shown(p)}"


def against(
    others: Iterable[Row], measures: Sequence[Callable[[Row], Values]]
) -> dict[str, list[Sides]]:
    """Of each row: the subject's and its own values in every measure."""
    subject = [measure(SUBJECT) for measure in measures]
    return {
        ", ".join(other): list(zip(subject, (m(other) for m in measures), strict=True))
        for other in others
    }


def tables(experiment: Path = HERE) -> str:
    """All comparisons, the primary one first."""
    records = read_records(experiment)

    def measures(strength: str) -> list[Callable[[Row], Values]]:
        return [lambda row, m=m: means(records, row, strength, m) for m in METRICS]

    names = ("EO", "accuracy")
    out = ["Primary", "", *family("against", names, against([CONTROL], measures("small")))]
    for strength in STRENGTHS:
        rows = OTHERS if strength == "small" else (CONTROL, *OTHERS)
        out += [f"Secondary: the {strength} head", ""]
        out += family("against", names, against(rows, measures(strength)))
    pairs: dict[str, list[Sides]] = {}
    for metric in METRICS:
        on, off = (of_heads(records, row, "small", metric) for row in (SUBJECT, CONTROL))
        for pair in sorted(on.keys() & off.keys()):
            pairs.setdefault(pair, []).append((on[pair], off[pair]))
    out += ["Secondary: each pair by itself, small head, against the control", ""]
    out += family("pair", names, pairs)
    leaks = [lambda row, p=p: over_all(of_probes(records, row, p)) for p in PROBES]
    out += ["Secondary: the group, read within a class (chance is 50)", ""]
    out += family("against", ("linear probe", "MLP probe"), against((CONTROL, *OTHERS), leaks))
    return "\n".join(out).rstrip()


if __name__ == "__main__":
    print(tables())
