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
# width.yaml: rows at several widths, over two of the settings
WIDTHS = (8, 32, 128)
OF_WIDTHS: tuple[Row, ...] = (CONTROL, ("random sets, CE", "projection"))
AT_WIDTHS: Row = ("random sets, FLCMI + CE", "projection")
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


def majorities(records: Sequence[Record]) -> dict[str, float]:
    """For each pair: what always naming the later target's most common class gives, per cent."""
    found: dict[str, list[float]] = {}
    for record in records:
        setting = record.label.partition(", ")[0]
        for target, body in record.metrics["transfer"].items():
            found.setdefault(f"{setting} → {target}", []).append(100 * body["majority"])
    return {pair: statistics.fmean(values) for pair, values in found.items()}


def of_probes(records: Sequence[Record], row: Row, probe: str) -> dict[str, Values]:
    """For each setting: how well a probe reads the group within a class (chance is 50)."""
    label, kind = row
    found: dict[str, Values] = {}
    for record in records:
        setting, _, own = record.label.partition(", ")
        if own == label:
            found.setdefault(setting, {})[record.seed] = 100 * record.metrics["probe"][kind][probe]
    return found


def over_all(found: Mapping[str, Values], settings: Sequence[str] = SETTINGS) -> Values:
    """The mean over all that was measured, of each seed that every setting has."""
    if {name.partition(" → ")[0] for name in found} != set(settings):
        return {}
    shared = set.intersection(*(set(values) for values in found.values()))
    return {s: statistics.fmean(values[s] for values in found.values()) for s in sorted(shared)}


def means(records: Sequence[Record], row: Row, strength: str, metric: str) -> Values:
    """The mean over all pairs of each seed that every setting has, in per cent."""
    return over_all(of_heads(records, row, strength, metric))


def at_width(records: Sequence[Record], row: Row, width: int, metric: str) -> Values:
    """The mean of the small head over the seven pairs of width.yaml."""
    named = (f"{row[0]}, width {width}", row[1])
    return over_all(of_heads(records, named, "small", metric), SETTINGS[:2])


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
        if not means(records, SUBJECT, strength, "eo_mean"):
            continue  # the large head is a grid of its own
        rows = OTHERS if strength == "small" else (CONTROL, *OTHERS)
        out += [f"Secondary: the {strength} head", ""]
        out += family("against", names, against(rows, measures(strength)))
    pairs: dict[str, list[Sides]] = {}
    common = majorities(records)
    for metric in METRICS:
        on, off = (of_heads(records, row, "small", metric) for row in (SUBJECT, CONTROL))
        for pair in sorted(on.keys() & off.keys()):
            name = f"{pair} ({common[pair]:.1f})"
            pairs.setdefault(name, []).append((on[pair], off[pair]))
    out += ["Secondary: each pair by itself, small head, against the control", ""]
    out += family("pair (most common class)", names, pairs)
    leaks = [lambda row, p=p: over_all(of_probes(records, row, p)) for p in PROBES]
    out += ["Secondary: the group, read within a class (chance is 50)", ""]
    out += family("against", ("linear probe", "MLP probe"), against((CONTROL, *OTHERS), leaks))
    wide: dict[str, list[Sides]] = {}
    for width in WIDTHS:
        for other in OF_WIDTHS:
            sides = [
                (at_width(records, AT_WIDTHS, width, m), at_width(records, other, width, m))
                for m in METRICS
            ]
            wide[f"{width}: {', '.join(other)}"] = sides
    out += [f"Widths: {', '.join(AT_WIDTHS)}, against rows of the same width, small head", ""]
    out += family("width and row", names, wide)
    return "\n".join(out).rstrip()


if __name__ == "__main__":
    print(tables())
