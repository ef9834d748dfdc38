"""The page and the figures of an audit: files side by side, each through each attribute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from shasam.files import write_atomic
from shasam.report import figures
from shasam.report.comparing import audit_settings
from shasam.report.detail import detail, tiles
from shasam.report.dots import forest
from shasam.report.explorer import Budget
from shasam.report.page import MOST_DETAILS, figures_of, note, render, tests_of
from shasam.report.paired import Pairing
from shasam.report.subject import Subject
from shasam.report.thresholds import RATES, Decided
from shasam.report.words import joined, verdict, verdict_over


def write_audit(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing], out: Path, command: str
) -> Path:
    """Write the page of an audit; returns ``out``."""
    write_atomic(Path(out), audit_page(subjects, pairs, command))
    return Path(out)


def audit_page(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing], command: str
) -> str:
    """The page of an audit: files side by side, each through each sensitive attribute."""
    single = len(subjects) == 1 and len(subjects[0]) == 1
    flat = [s for of_file in subjects for s in of_file]
    budget = Budget(0)
    details = [
        detail(s, None, f"d{i}", budget, brief=not single) | {"name": f"{s.name}, by {s.attribute}"}
        for i, s in enumerate(flat[:MOST_DETAILS])
    ]
    names = [of_file[0].name for of_file in subjects]
    one_model = len(subjects) == 1 and not single
    left = len(flat) - len(details)
    first = flat[0]
    settings = _audit_settings(subjects, pairs)
    context: dict[str, Any] = {
        "single": single,
        "title": f"Audit of {joined(names[:4])}",
        "kicker": f"shasam audit · {tests_of(first, len(subjects[0]))}",
        "verdict": _audit_verdict(subjects, settings),
        "tiles": tiles(first) if single else [],
        "settings": settings,
        "details": details,
        "unit": first.unit,
        "forests": _forests(subjects[0]) if one_model else [],
        "forest_says": "Combined groups come last."
        if one_model and " & " in flat[-1].attribute
        else "",
        "details_title": "Each attribute, closer" if len(names) == 1 else "Each model, closer",
        "details_left_out": f"{left} more are in the tables above." if left > 0 else "",
        "missing": [],
        "level": f"{100 * first.drawn.level:g}",
        "method_note": note(first),
        "recompute": command,
    }
    return render(context)


def write_audit_figures(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing], folder: Path
) -> None:
    """The figures of an audit as SVG files."""
    for name, figure in audit_figures(subjects, pairs).items():
        figures.save(figure, folder / f"{name}.svg")


def audit_figures(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing]
) -> dict[str, Markup]:
    """The figures of an audit by name."""
    flat = [s for of_file in subjects for s in of_file]
    settings = _audit_settings(subjects, pairs)
    found = figures_of(settings, flat)
    if not settings and len(flat) > 1:
        found |= {f"forest-{i}": f["figure"] for i, f in enumerate(_forests(flat))}
    for i, subject in enumerate(flat):
        found |= _of_audits(subject, i)
    return {name: figure for name, figure in found.items() if figure}


def _audit_settings(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing]
) -> list[dict[str, Any]]:
    # a figure with one point is left out
    return [] if len(subjects) == 1 else audit_settings(subjects, pairs)


def _audit_verdict(
    subjects: Sequence[Sequence[Subject]], settings: Sequence[dict[str, Any]]
) -> list[str]:
    if len(subjects) > 1:
        return [line for s in settings for line in s["verdict"]]
    return verdict(subjects[0][0]) if len(subjects[0]) == 1 else verdict_over(subjects[0])


def _forests(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """All attributes of one model in one picture for each error; of many classes, one for all."""
    first, classes = subjects[0], subjects[0].counts.classes
    if len(classes) != 2:
        return [{"title": "Wrong predictions", "figure": forest(subjects, None)}]
    return [
        {
            "title": f"{first.outcome or 'True class'} {classes[c]}, called {classes[1 - c]}",
            "figure": forest(subjects, c),
        }
        for c in (0, 1)
    ]


def _of_audits(subject: Subject, i: int) -> dict[str, Markup]:
    """Figures that the page of a run does not have."""
    out = {}
    if subject.timeline is not None:
        out[f"time-{i}"] = subject.timeline.figure()
    decided = Decided.of(subject)
    if decided is not None:
        out[f"roc-{i}"] = decided.roc()
        out |= {f"threshold-{rate}-{i}": decided.rate(rate) for rate in RATES}
    return out
