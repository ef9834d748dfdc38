"""``shasam.audit``: the audit of a table in memory, for notebooks and scripts.

It takes the path of the command line from table to result; only the beginning (a table in memory
instead of a file) and the end (an object instead of text) differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import pyarrow as pa

from shasam.errors import InputError, LimitError, ShasamWarning
from shasam.metrics import by_group
from shasam.report.along import NumberSubject, numbers_of_audit
from shasam.report.audits import AnySubject, as_document, broken_limits, limits_of, subjects_of
from shasam.report.bias_audit import BiasAudit, bias_audit, header_of
from shasam.report.columns import Columns
from shasam.report.predictions import read_predictions
from shasam.report.scenarios import (
    Scenario,
    ScenarioResult,
    judged,
    read_scenarios,
    scenario_lines,
    scenarios_of,
)
from shasam.report.subject import AuditOptions, Subject
from shasam.report.svg import framed
from shasam.report.verdict import verdict
from shasam.tables import MemoryTable, Missing


@overload
def audit(
    data: Any,
    *,
    standard: Literal["ll144"],
    sensitive: Sequence[str],
    prediction: str | None = None,
    score: str | Sequence[str] | None = None,
    threshold: float | None = None,
    positive: Any = None,
    about: Mapping[str, Any] | None = None,
    level: float = 0.95,
) -> BiasAudit: ...


@overload
def audit(
    data: Any,
    *,
    label: str | None = None,
    prediction: str | None = None,
    score: str | Sequence[str] | None = None,
    sensitive: str | Sequence[str] | None = None,
    threshold: float | None = None,
    positive: Any = None,
    classes: Sequence[Any] = (),
    missing: Missing = "error",
    counts: bool = False,
    weight: str | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    reference: str | Sequence[str] | None = None,
    time: str | None = None,
    period: Literal["day", "week", "month", "quarter", "year"] = "month",
    slices: str | Sequence[str] | None = None,
    min_slice: int = 50,
    front: bool = False,
    scenarios: str | Path | Sequence[Mapping[str, Any]] | None = None,
    standard: None = None,
    name: str = "the model",
    strata: Literal["none", "group", "cell"] = "none",
    min_group: int = 30,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Audit: ...


def audit(
    data: Any,
    *,
    label: str | None = None,
    prediction: str | None = None,
    score: str | Sequence[str] | None = None,
    sensitive: str | Sequence[str] | None = None,
    threshold: float | None = None,
    positive: Any = None,
    classes: Sequence[Any] = (),
    missing: Missing = "error",
    counts: bool = False,
    weight: str | None = None,
    continuous: str | Sequence[str] | None = None,
    discrete: str | Sequence[str] | None = None,
    reference: str | Sequence[str] | None = None,
    time: str | None = None,
    period: Literal["day", "week", "month", "quarter", "year"] = "month",
    slices: str | Sequence[str] | None = None,
    min_slice: int = 50,
    front: bool = False,
    scenarios: str | Path | Sequence[Mapping[str, Any]] | None = None,
    standard: Literal["ll144"] | None = None,
    about: Mapping[str, Any] | None = None,
    name: str = "the model",
    strata: Literal["none", "group", "cell"] = "none",
    min_group: int = 30,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Audit | BiasAudit:
    """Measure accuracy and fairness of predictions in a pandas, polars or Arrow table, or a dict.

    The arguments are the flags of ``shasam audit``.

    Parameters
    ----------
    data
        The table, one row per prediction.
    label
        Column of the true class (default: target, label or y_true).
    prediction
        Column of the predicted class (default: prediction, predicted or y_pred).
    score
        Column with the probability of the positive class, or one column per class. With a
        threshold, any score that ranks.
    sensitive
        Columns with a sensitive attribute, or rules such as "age<25"; several are also
        intersected.
    threshold
        Score from which the positive class is predicted.
    positive
        The favourable class (default: the last of two, sorted).
    classes
        Names of all classes, if the table does not contain every one.
    missing
        Rows without a label, prediction or group: "error", "drop", or (for a sensitive
        attribute) "group".
    counts
        The table is aggregated: column n says how many rows each line stands for.
    weight
        Column with what each row weighs.
    continuous
        Sensitive columns that are followed as numbers, without groups (default: those of more than
        20 different numbers).
    discrete
        Sensitive columns whose numbers are groups.
    reference
        Group that the others are compared with (default: the largest), one for each attribute.
    time
        Column with the date of each row: the gap is measured in every period.
    period
        Length of those periods.
    slices
        Columns, or rules such as "age<35", by which the worst slices are searched.
    min_slice
        Fewest rows of a slice.
    front
        Also try thresholds per group on the scores.
    scenarios
        Bias scenarios that were agreed: a YAML file, or a list of dicts with its fields. What was
        measured is in ``Audit.scenarios``.
    standard
        "ll144": the form of New York City's Local Law 144, which takes sex and race/ethnicity and
        needs no labels.
    about
        Fields of that form's header, such as {"auditor": "Acme"}.
    name
        Name of the model.
    strata
        Whose sizes resampling keeps: "none", "group" or "cell".
    min_group
        Groups with fewer rows are left out of comparisons.
    draws
        Resampled tables for intervals and tests.
    seed
        Seed of the resampling.
    level
        Confidence of the intervals.

    Returns
    -------
    Audit
        All numbers, the verdict, the figures and the page; with ``standard`` a ``BiasAudit``.

    Examples
    --------
    >>> import shasam
    >>> people = {"label": [0, 1] * 200, "prediction": [0, 1, 1, 1] * 100, "sex": ["f", "m"] * 200}
    >>> found = shasam.audit(people | {"group": ["a", "a", "b", "b"] * 100}, sensitive="group")
    >>> found["eo_mean"].value
    0.5
    """
    columns = Columns(
        label,
        prediction,
        _names(score),
        _names(sensitive),
        threshold,
        None if positive is None else str(positive),
        tuple(map(str, classes)),
        missing,
        counts,
        weight,
        time,
        _names(slices),
        continuous=_names(continuous),
        discrete=_names(discrete),
    )
    drawn = AuditOptions(
        draws, seed, level, strata, min_group, _names(reference), period, min_slice, front
    )
    if standard is not None:
        if standard != "ll144" or scenarios is not None:
            raise InputError("standard must be 'll144', and takes no scenarios")
        return bias_audit(MemoryTable.of(data), columns, header_of(about or {}), level)
    if about:
        raise InputError("about belongs to a form; add standard='ll144'")
    agreed = [] if scenarios is None else _agreed(scenarios)
    read = read_predictions(MemoryTable.of(data), columns, name, ids=False)
    subjects, numbers = subjects_of(read, drawn, tell=_warn), numbers_of_audit(read, drawn)
    found = judged(agreed, [*subjects, *numbers])
    return Audit(tuple(subjects), drawn, columns, tuple(found), tuple(numbers))


def _agreed(given: str | Path | Sequence[Mapping[str, Any]]) -> list[Scenario]:
    if isinstance(given, str | Path):
        return read_scenarios(Path(given))
    return scenarios_of(given, "scenarios")


@dataclass(frozen=True)
class Audit:
    """Hold what was found, one subject for each sensitive attribute and their intersection.

    Attributes that are followed without groups are ``numbers``; their ``found.curves`` hold the
    curves.
    """

    subjects: tuple[Subject, ...]
    drawn: AuditOptions
    columns: Columns = field(repr=False, default_factory=Columns)
    scenarios: tuple[ScenarioResult, ...] = ()
    numbers: tuple[NumberSubject, ...] = ()

    @property
    def everything(self) -> tuple[AnySubject, ...]:
        """List the subjects of all attributes, those with groups first."""
        return (*self.subjects, *self.numbers)

    def __getitem__(self, metric: str) -> Any:
        """Return the estimate of a metric; by attribute, where there are several."""
        found = {s.attribute: s.estimates[metric] for s in self.everything if metric in s.estimates}
        if not found:
            known = ", ".join(dict.fromkeys(k for s in self.everything for k in s.estimates))
            raise KeyError(f"there is no metric {metric!r} here; there are: {known}")
        return next(iter(found.values())) if len(self.everything) == 1 else found

    def __str__(self) -> str:
        return "\n".join(line for s in self.everything for line in self._verdict(s))

    def _verdict(self, subject: AnySubject) -> list[str]:
        lines = subject.lines if isinstance(subject, NumberSubject) else verdict(subject)
        return lines if len(self.everything) == 1 else [f"By {subject.attribute}:", *lines]

    def to_dict(self) -> dict[str, Any]:
        """Convert all numbers to plain JSON, the content of ``shasam audit --json``."""
        return as_document([list(self.subjects)], [], self.drawn, self.numbers)

    def to_frame(self) -> Any:
        """Make a frame with a row for each attribute and metric: pandas if there is, else Arrow."""
        rows = [
            {"attribute": s.attribute, "metric": key, **e.as_dict(), "p": e.p}
            for s in self.everything
            for key, e in s.estimates.items()
        ]
        return _framed(rows, ["attribute", "metric"])

    @cached_property
    def by_group(self) -> Any:
        """Make a frame of the rates of every group, as fairlearn's ``MetricFrame.by_group``.

        The index of a pandas frame is the group, and the attribute where there are several.
        """
        rows = []
        if not self.subjects:
            raise InputError("there are no groups: the attribute is followed as a number")
        for s in self.subjects:
            own = by_group(s.counts, positive=s.positive, level=s.drawn.level)
            accuracy = {r.group: r.estimate for r in s.groups if r.kind == "accuracy"}
            for g, group in enumerate(s.counts.groups):
                rates = {"accuracy": accuracy[group], **{k: v[g] for k, v in own.items()}}
                row: dict[str, Any] = {"attribute": s.attribute, "group": group}
                row["rows"] = int(s.counts.sizes_G[g])
                row |= {k: e.value if e.defined else None for k, e in rates.items()}
                rows.append(row)
        if len(self.subjects) > 1:
            return _framed(rows, ["attribute", "group"])
        attribute = self.subjects[0].attribute
        return _framed([{attribute: r.pop("group"), **_without(r, "attribute")} for r in rows],
                       [attribute])  # fmt: skip

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Draw the figures of the page, by name; a notebook shows the last value of a cell."""
        from shasam.report.page import audit_figures

        found = audit_figures([list(self.subjects)], [], self.numbers)
        return {key: Figure(str(figure)) for key, figure in found.items()}

    def check(self, limits: Mapping[str, float] | None = None, /, **more: float) -> Audit:
        """Raise ``LimitError`` if a metric is over its limit (below, for accuracies) or undefined.

        ``check(eo_mean=0.05)``; an end of the interval is ``check({"eo_mean.low": 0.05})``. The
        scenarios that were given are checked too.
        """
        given = {**(limits or {}), **more}
        if not given and not self.scenarios:
            raise InputError("give at least one limit, such as check(eo_mean=0.05)")
        asked = limits_of([f"{key}={value}" for key, value in given.items()], along=True)
        broken = broken_limits(asked, self.everything)
        broken += [f"scenario: {j.line}" for j in self.scenarios if j.broken]
        if broken:
            raise LimitError("; ".join(broken))
        return self

    def scenarios_table(self, path: str | Path | None = None) -> str:
        """Make the Markdown table of ``--scenarios-out``; write it to a file if one is named."""
        from shasam.files import write_named

        if not self.scenarios:
            raise InputError("this audit was given no scenarios: shasam.audit(..., scenarios=...)")
        text = "\n".join(scenario_lines(self.scenarios)) + "\n"
        if path is not None:
            write_named(Path(path), text)
        return text

    def to_html(self, path: str | Path | None = None) -> str:
        """Make the page of ``shasam audit --html``; write it to a file if one is named."""
        from shasam.files import write_named
        from shasam.report.page import audit_page

        page = audit_page([list(self.subjects)], [], self._call(), self.numbers)
        if path is not None:
            write_named(Path(path), page)
        return page

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its style and the notebook's do not mix."""
        return framed(self.to_html(), "shasam audit")

    def _call(self) -> str:
        """Return the Python call that gives the same page again."""
        words = ["data"]
        for given in (self.columns, self.drawn):
            for key, default in given.__dataclass_fields__.items():
                value = getattr(given, key)
                if value != default.default:
                    shown = list(value) if isinstance(value, tuple) else value
                    words.append(f"{'score' if key == 'scores' else key}={shown!r}")
        return f"shasam.audit({', '.join(words)})"


@dataclass(frozen=True)
class Figure:
    """A figure as SVG, which a notebook draws."""

    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        from markupsafe import Markup

        from shasam.report.svg import standalone

        return standalone(Markup(self.svg))  # noqa: S704 - made by shasam.report.charts

    def save(self, path: str | Path) -> None:
        """Write it as a file of its own."""
        from shasam.files import write_named

        write_named(Path(path), self._repr_svg_())


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k != key}


def _framed(rows: list[dict[str, Any]], index: list[str]) -> Any:
    """Return a pandas frame with that index, or an Arrow table where there is no pandas."""
    table = pa.Table.from_pylist(rows)
    try:
        return table.to_pandas().set_index(index)
    except ImportError:
        return table


def _warn(line: str) -> None:
    warnings.warn(line, ShasamWarning, stacklevel=2)
