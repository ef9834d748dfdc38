"""Bias scenarios: what was agreed before the audit, what was measured, and what follows.

A YAML file lists them: group or attribute, metric, threshold, mitigation and review date, as the
drafts of European standards for the AI Act name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shasam.documents import read_yaml_value
from shasam.errors import InputError
from shasam.files import write_named
from shasam.metrics import Estimate, by_group, catalogue
from shasam.metrics.curves import measure_of
from shasam.metrics.rates import RATES
from shasam.output import markdown_table, markdown_text
from shasam.registry import did_you_mean
from shasam.report.along import NumberSubject
from shasam.report.audits import AnySubject
from shasam.report.subject import Subject
from shasam.report.verdict import percent

KEYS = (
    "attribute", "group", "metric", "at_most", "at_least", "hazard", "mitigation", "review",
    "agreed", "owner",
)  # fmt: skip
_ENDINGS = ("_difference", "_ratio")


@dataclass(frozen=True)
class Scenario:
    """One line of the file."""

    metric: str
    bound: float
    upper: bool  # at_most, otherwise at_least
    attribute: str = ""  # empty: every attribute that is audited
    group: str = ""
    told: Mapping[str, str] | None = None  # hazard, mitigation, review, agreed, owner

    @property
    def limit(self) -> str:
        return f"{'at most' if self.upper else 'at least'} {percent(self.bound)}"


@dataclass(frozen=True)
class ScenarioResult:
    """A scenario with what was measured."""

    scenario: Scenario
    attribute: str
    measured: Estimate

    @property
    def broken(self) -> bool:
        """The value is beyond the threshold, or there is none."""
        return not self.measured.defined or self._beyond(self.measured.value)

    @property
    def verdict(self) -> str:
        """What may be said: the interval decides whether it is sure."""
        e = self.measured
        if not e.defined:
            return f"not measured: {e.reason}"
        sides = {self._beyond(e.low), self._beyond(e.high)}
        sure = "surely" if sides == {self.broken} else "not surely"
        return f"{'exceeded' if self.broken else 'met'}, {sure}"

    @property
    def line(self) -> str:
        """One sentence."""
        s = self.scenario
        who = s.group or "all groups"
        return f"{self.attribute}, {who}: {s.metric} {s.limit}: {self.verdict}"

    def _beyond(self, value: float) -> bool:
        limit = self.scenario
        return value > limit.bound if limit.upper else value < limit.bound

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        s = self.scenario
        return {
            "attribute": self.attribute, "group": s.group or None, "metric": s.metric,
            "limit": s.limit, "measured": self.measured.as_dict(), "verdict": self.verdict,
            **(s.told or {}),
        }  # fmt: skip


def read_scenarios(path: Path) -> list[Scenario]:
    """Read the scenarios of a YAML file: a list, or a list under ``scenarios``."""
    given = read_yaml_value(path, dates=True)
    return scenarios_of(given.get("scenarios") if isinstance(given, dict) else given, str(path))


def scenarios_of(entries: Any, where: str) -> list[Scenario]:
    """Return the scenarios of a list of fields."""
    if not isinstance(entries, list | tuple) or not entries:
        raise InputError(f"{where} lists no scenarios; see docs/audit.md for an example")
    return [_scenario(entry, f"scenario {i + 1} of {where}") for i, entry in enumerate(entries)]


def _scenario(entry: Any, where: str) -> Scenario:
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} must have fields such as metric and at_most")
    for key in entry:
        if key not in KEYS:
            raise InputError(f"{where} has an unknown field {key!r}{did_you_mean(str(key), KEYS)}")
    metric, group = str(entry.get("metric", "")), str(entry.get("group", ""))
    if group:
        known = [r.name + end for r in RATES for end in ("", *_ENDINGS)]
        if metric not in known:
            raise InputError(
                f"{where}: {metric!r} is no rate of a group{did_you_mean(metric, known)}"
            )
    elif measure_of(metric) is None:
        catalogue.named(metric)
    bounds = [key for key in ("at_most", "at_least") if key in entry]
    bound = entry[bounds[0]] if len(bounds) == 1 else None
    if not isinstance(bound, int | float) or isinstance(bound, bool):
        raise InputError(f"{where} needs one threshold: at_most or at_least, 5 points are 0.05")
    told = {k: str(entry[k]) for k in KEYS[5:] if k in entry}
    attribute = str(entry.get("attribute", ""))
    return Scenario(metric, float(bound), bounds[0] == "at_most", attribute, group, told)


def judged(scenarios: Sequence[Scenario], subjects: Sequence[AnySubject]) -> list[ScenarioResult]:
    """Judge every scenario by what was measured, through each attribute that it is about."""
    known = [s.attribute for s in subjects]
    out = []
    for scenario in scenarios:
        if scenario.attribute and scenario.attribute not in known:
            hint = did_you_mean(scenario.attribute, known)
            raise InputError(f"a scenario is about {scenario.attribute!r}{hint}")
        about = [s for s in subjects if scenario.attribute in ("", s.attribute)]
        if scenario.group:
            about = [
                s for s in about if isinstance(s, Subject) and scenario.group in s.counts.groups
            ]
        else:
            about = [s for s in about if scenario.metric in s.estimates] or about
        if not about:
            raise InputError(f"a scenario is about the group {scenario.group!r}, which is nowhere")
        out += [ScenarioResult(scenario, s.attribute, _measured(scenario, s)) for s in about]
    return out


def _measured(scenario: Scenario, subject: AnySubject) -> Estimate:
    if isinstance(subject, NumberSubject):
        found = subject.estimates.get(scenario.metric)
        return found or Estimate.undefined(subject.missing(scenario.metric))
    if not scenario.group:
        found = subject.estimates.get(scenario.metric)
        return found or Estimate.undefined("it needs scores")
    ending = next((e for e in _ENDINGS if scenario.metric.endswith(e)), "")
    rate = scenario.metric.removesuffix(ending) if ending else scenario.metric
    place = subject.counts.groups.index(scenario.group)
    if not ending:
        rates = by_group(subject.counts, positive=subject.positive, level=subject.drawn.level)
        found = rates[rate][place] if rates else Estimate.undefined("it needs a positive class")
    else:
        reference = subject.reference
        others = [] if reference is None else reference.rates[rate]
        own = next((a for a in others if a.group == scenario.group), None)
        if own is None:
            return Estimate.undefined("the group is the reference itself")
        found = own.difference if ending == "_difference" else own.ratio
    if found.defined and subject.few(found):
        reason = f"it rests on {found.support} rows, fewer than {subject.drawn.min_group}"
        return Estimate.undefined(reason, found.support)
    return found


def scenario_lines(found: Sequence[ScenarioResult]) -> list[str]:
    """Return the signed-off table as Markdown."""
    head = ["about", "metric", "agreed limit", "measured", "verdict", "hazard", "mitigation",
            "review", "owner"]  # fmt: skip
    rows = []
    for j in found:
        s, told = j.scenario, j.scenario.told or {}
        about = f"{j.attribute}: {s.group}" if s.group else j.attribute
        e = j.measured
        value = f"{percent(e.value)} ({percent(e.low)} to {percent(e.high)})" if e.defined else "–"
        limit = s.limit + (f", agreed {told['agreed']}" if "agreed" in told else "")
        rest = [told.get(k, "") for k in ("hazard", "mitigation", "review", "owner")]
        rows.append([about, s.metric, limit, value, j.verdict, *rest])
    lines = ["## Bias scenarios, in % and points", ""]
    lines += markdown_table(head, [[markdown_text(cell) for cell in row] for row in rows])
    return [*lines, "", "Signed off by: ____________________  Date: ____________"]


def write_scenarios(path: Path, found: Sequence[ScenarioResult]) -> None:
    """Write the table in a Markdown file."""
    write_named(path, "\n".join(scenario_lines(found)) + "\n")
