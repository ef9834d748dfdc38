"""Write ``report.html``: one self-contained page for a run, a comparison or an audit."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import shasam
from shasam.errors import InputError, ShasamError
from shasam.files import write_atomic, write_named
from shasam.metrics.odds import ModelFront
from shasam.output import visible
from shasam.report import charts
from shasam.report.along import NOTE, NumberSubject
from shasam.report.answer import RunAnswer
from shasam.report.audits import Limit, Pairing
from shasam.report.charts import RATES, DecisionScores, bars, forest
from shasam.report.comparison import audit_settings, settings_of
from shasam.report.fronts import ThresholdFront
from shasam.report.model_section import Budget, detail, strongest, tiles
from shasam.report.runs import (
    by_attribute,
    by_number,
    learnt_of,
    opened_runs,
    recorded_subject,
    subject_of,
)
from shasam.report.subject import Subject
from shasam.report.svg import COLOURS, marker
from shasam.report.verdict import (
    count,
    in_short,
    joined,
    percent,
    probed,
    verdict,
    verdict_over,
)
from shasam.runs.directory import RunDirectory

# -------------------------------------------------------------------------------------------------
# `report.html`: one self-contained page for a run or a comparison of runs.
# -------------------------------------------------------------------------------------------------

THUMB_BYTES = 1_700_000
MOST_DETAILS = 12
_KEPT = {
    "cell": "with the size of every (class, group) cell kept",
    "group": "with the size of every group kept",
    "none": "with the number of rows kept",
}


def note(subject: Subject) -> str:
    return (
        "Values are computed from predictions. "
        f"Intervals of averages are percentiles of {count(subject.drawn.draws)} Bayesian bootstrap "
        f"draws from the counts, {_KEPT[subject.drawn.strata]}. Intervals of gaps are inverted "
        "tests, so that they can include 0; they start at 0 where shuffling the groups within each "
        "class gives as large a gap in more than one of twenty cases. Intervals of single rates "
        "are Wilson's. A number that is undefined is given with the reason, and is never 0."
    )


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    figures_dir: Path | None = None,
    draws: int = 2000,
    seed: int = 0,
    recorded: bool = False,
    baseline: str | None = None,
    thumbnails: bool = True,
    limits: Sequence[Limit] = (),
    fronts: Mapping[str, Mapping[str, ModelFront]] | None = None,
) -> Path:
    """Build the page of one run or a comparison of many from their files; returns ``out``.

    Numbers are computed from the predictions. ``recorded`` takes those of ``metrics.json`` where
    they agree with the predictions: for the process that has just written them.
    ``baseline`` is the method that others are compared with, ``limits`` are those that a model is
    to keep, and ``thumbnails=False`` leaves out pictures of people. ``fronts`` are those of
    ``fronts_of_runs``, where they are known.
    """
    if not runs:
        raise InputError("a report needs at least one run directory")
    opened = opened_runs([Path(path) for path in runs])
    out = Path(out)
    single, along = len(opened) == 1, None
    chosen = opened if single else _representatives(opened)
    if recorded:
        subjects = [recorded_subject(run, draws, seed, complete=True) for run in chosen]
    else:
        subjects = [subject_of(run, draws, seed) for run in chosen]
    known = {run.path: s for run, s in zip(chosen, subjects, strict=True)}
    settings = settings_of(
        opened, known, draws=draws, seed=seed, baseline=baseline, limits=limits, fronts=fronts
    )
    if single:  # a figure with one point is left out
        settings = [s for s in settings if s["published"]]
    budget = Budget(THUMB_BYTES, thumbnails)
    details = [
        detail(s, r, f"d{i}", budget, brief=not single, dots=2000 if single else 700)
        for i, (s, r) in enumerate(zip(subjects, chosen, strict=True))
    ]
    run = opened[0]
    context: dict[str, Any] = {
        "single": single,
        "settings": settings,
        "details": details,
        "unit": subjects[0].unit,
    }
    if single:
        context |= _of_one(run, subjects[0], details[0])
        context |= _of_attributes(by_attribute(run, draws, seed))
        along = by_number(run, draws, seed)
    else:
        context |= _comparison(opened, settings)
    left = len({r.method for r in opened}) - len(chosen)
    context |= {
        "details_title": "Each method, closer",
        "details_left_out": f"{left} more methods are in the tables above." if left > 0 else "",
        "missing": _missing(opened),
        "level": f"{100 * subjects[0].drawn.level:g}",
        "method_note": note(subjects[0]),
        "recompute": "\n".join(
            f"shasam audit {_shown(r.path, out)}/predictions.parquet --strata cell --min-group 0"
            for r in opened[:8]
        )
        + (f"\n# and so on for {len(opened) - 8} more runs" if len(opened) > 8 else ""),
    }
    if along is not None:
        context |= _of_number(along, context)
    # in a run's own folder: whatever lies there under its name
    own = out.parent in {run.path for run in opened}
    (write_atomic if own else write_named)(out, render(context))
    if figures_dir is not None:
        for name, figure in figures_of(settings, subjects).items():
            charts.save(figure, figures_dir / f"{name}.svg")
    return out


def _comparison(runs: Sequence[RunDirectory], settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return title and verdict of a page about several runs."""
    methods = list(dict.fromkeys(r.method for r in runs))
    named = joined(methods) if len(methods) <= 6 else f"{len(methods)} methods"
    return {
        "title": f"{len(runs)} runs of {named}",
        "kicker": f"shasam comparison · {joined([s['name'] for s in settings[:3]])}",
        "verdict": [line for s in settings for line in s["verdict"]],
        "tiles": [],
    }


def _of_one(run: RunDirectory, subject: Subject, own: dict[str, Any]) -> dict[str, Any]:
    """Return title, verdict and numbers of a page about one run."""
    short, rest = in_short(subject)
    return {
        "title": f"{run.name} on {run.setting}",
        "kicker": f"shasam report · {tests_of(subject)}",
        "alarm": learnt_of(run).sentences(subject.unit),
        "verdict": short,
        "more": rest,
        "tiles": tiles(subject),
        **_answered(run, subject, own),
    }


def _of_attributes(subjects: Sequence[Subject]) -> dict[str, Any]:
    """Say what a run with several sensitive attributes says: all, the widest gap first."""
    if not subjects:
        return {}
    *single, _ = subjects  # the whole page is about the intersection, which is last
    return {
        "verdict": verdict_over(subjects),
        "more": verdict(subjects[-1]),
        "forests": _forests(subjects),
        "forest_says": "Combined groups come last.",
        "attributes": [
            detail(s, None, f"a{i}", Budget(0), brief=True) for i, s in enumerate(single)
        ],
    }


def _of_number(along: NumberSubject, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run with a sensitive number says first: its curves, and what its groups are."""
    audit = str(context["recompute"]).partition(" --strata")[0]
    return {
        "verdict": [*along.in_short, *context["verdict"]],
        "beside": [line for line in context.get("beside", []) if line not in along.in_short],
        # how often the model is right stands above, with the interval of its groups
        "numbers": [along.section() | {"verdict": along.of_classes}],
        "method_note": f"{context['method_note']} {NOTE}",
        "recompute": f"{context['recompute']}\n{audit} --sensitive {shlex.quote(along.attribute)}",
    }


def _answered(run: RunDirectory, subject: Subject, own: dict[str, Any]) -> dict[str, list[str]]:
    """Return the plain model beside the run, and what to do first.

    What a probe says goes to its part.
    """
    own["probe_says"] = " ".join(_probe_line(run, subject))
    try:
        found = RunAnswer.of(run)
    except ShasamError:
        return {}
    return {"beside": found.lines()[1:], "to_do": found.to_do()}


def _probe_line(run: RunDirectory, subject: Subject) -> list[str]:
    """Return what the features still tell, from the probe that reads most."""
    found = strongest(run.metrics())
    return [] if found is None else [probed(subject.attribute, subject.unit, *found)]


def render(context: dict[str, Any]) -> str:
    """Render the template, escaping always; only our own style and script are allowed, by hash."""
    folder = files("shasam.report").joinpath("templates")
    style = folder.joinpath("style.css").read_text(encoding="utf-8").strip()
    script = folder.joinpath("script.js").read_text(encoding="utf-8").strip()
    environment = Environment(
        loader=PackageLoader("shasam.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    csp = (
        f"default-src 'none'; img-src data:; style-src '{style_hash(style)}'; "
        f"script-src '{style_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    toc = [("verdict", "Verdict")]
    toc += [("numbers", f"Along {n['attribute']}") for n in context.get("numbers", [])[:1]]
    toc += [(s["id"], s["short"]) for s in context["settings"][:6]]
    if context["single"]:
        d = context["details"][0]
        toc.append(("groups", "Groups"))
        if context.get("attributes"):
            toc.append(("attributes", "Attributes"))
        if d["curves"] or d["maps"] or d["probe"] or d["mining"]:
            toc.append(("training", "Research"))
    elif context["details"] or context.get("regressions"):
        toc.append(("details", "Closer"))
    toc.append(("provenance", "Provenance"))
    return environment.get_template("report.html.j2").render(
        **{
            "alarm": [],
            "beside": [],
            "more": [],
            "to_do": [],
            "forests": [],
            "forest_says": "",
            "attributes": [],
            "regressions": [],
            "numbers": [],
        }
        | context,
        toc=toc,
        csp=csp,
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        version=shasam.__version__,
        percent=percent,
        count=count,
        mark=lambda i: Markup(marker(i, 0, 0, 4.6, f"fill c{i % COLOURS}")),  # noqa: S704
    )


def _shown_text(value: Any) -> Any:
    """Spell out control characters; Markup and numbers stay as they are."""
    return visible(value) if type(value) is str else value


def style_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _representatives(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    """Return the first run of each method, at most twelve."""
    first: dict[tuple[str, str], RunDirectory] = {}
    for run in runs:
        first.setdefault((run.setting, run.method), run)
    return list(first.values())[:MOST_DETAILS]


def tests_of(subject: Subject, attributes: int = 1) -> str:
    groups = len(subject.counts.groups)
    seen = f"{groups} groups" if attributes == 1 else f"{attributes} attributes"
    return f"{count(subject.rows.total)} test {subject.unit}, {seen}"


def _shown(path: Path, out: Path) -> str:
    """Return the run as seen from the page, so that the page does not tell where it was made."""
    try:
        return Path(os.path.relpath(path.resolve(), out.resolve().parent)).as_posix()
    except ValueError:  # another drive
        return path.name


def _missing(runs: Sequence[RunDirectory]) -> list[str]:
    if len(runs) > 1:
        return []
    run, lines = runs[0], []
    for name, what in (
        ("log.jsonl", "training curves are"),
        ("embedding.parquet", "the map of features is"),
        ("provenance.json", "versions and times are"),
    ):  # mining.json is there only if something was mined
        if not (run.path / name).is_file():
            lines.append(f"The run has no {name}: {what} left out.")
    return lines


def figures_of(
    settings: Sequence[dict[str, Any]], subjects: Sequence[Subject]
) -> dict[str, Markup]:
    """Draw every figure that is also a file, by its name."""
    found = {f"tradeoff-{i}": s["figure"] for i, s in enumerate(settings)}
    found |= {f"front-of-methods-{i}": s["front"] for i, s in enumerate(settings)}
    for i, subject in enumerate(subjects):
        found[f"groups-{i}"] = bars(subject)
        found[f"scores-{i}"] = charts.score_curves(subject, subject.counts.classes[-1])
        found[f"calibration-{i}"] = charts.calibration(subject)
    return {name: figure for name, figure in found.items() if figure}


# -------------------------------------------------------------------------------------------------
# The page and the figures of an audit: files side by side, each through each attribute.
# -------------------------------------------------------------------------------------------------


def write_audit(
    subjects: Sequence[Sequence[Subject]],
    pairs: Sequence[Pairing],
    out: Path,
    command: str,
    numbers: Sequence[NumberSubject] = (),
) -> Path:
    """Write the page of an audit; returns ``out``."""
    write_named(Path(out), audit_page(subjects, pairs, command, numbers))
    return Path(out)


def audit_page(
    subjects: Sequence[Sequence[Subject]],
    pairs: Sequence[Pairing],
    command: str,
    numbers: Sequence[NumberSubject] = (),
) -> str:
    """Return the page of an audit: files side by side, each through each sensitive attribute.

    ``numbers`` are the attributes that are followed without groups.
    """
    subjects = [of_file for of_file in subjects if of_file]
    if not subjects:
        return render(_of_numbers(numbers, command))
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
    if numbers:
        context["numbers"] = [s.section() for s in numbers]
        context["method_note"] += f" {NOTE}"
        shown = [line for s in numbers if (line := s.headline) is not None]
        context["verdict"] = [*shown, *context["verdict"]]  # what is sure comes first
    return render(context)


def _of_numbers(numbers: Sequence[NumberSubject], command: str) -> dict[str, Any]:
    """Return the page of an audit whose attributes are all followed as numbers."""
    first = numbers[0]
    names = list(dict.fromkeys(s.name for s in numbers))
    return {
        "single": False,
        "title": f"Audit of {joined(names[:4])}",
        "kicker": f"shasam audit · {count(first.rows.total)} test {first.unit}, "
        f"along {joined(list(dict.fromkeys(s.attribute for s in numbers)))}",
        "verdict": first.lines if len(numbers) == 1 else [
            f"{s.name}, by {s.attribute}: {line}" for s in numbers for line in s.lines[:-2]
        ],
        "tiles": [],
        "settings": [],
        "details": [],
        "numbers": [s.section() for s in numbers],
        "unit": first.unit,
        "details_title": "",
        "details_left_out": "",
        "missing": [],
        "level": f"{100 * first.drawn.level:g}",
        "method_note": NOTE,
        "recompute": command,
    }  # fmt: skip


def write_audit_figures(
    subjects: Sequence[Sequence[Subject]],
    pairs: Sequence[Pairing],
    folder: Path,
    numbers: Sequence[NumberSubject] = (),
) -> None:
    """Write the figures of an audit as SVG files."""
    for name, figure in audit_figures(subjects, pairs, numbers).items():
        charts.save(figure, folder / f"{name}.svg")


def audit_figures(
    subjects: Sequence[Sequence[Subject]],
    pairs: Sequence[Pairing],
    numbers: Sequence[NumberSubject] = (),
) -> dict[str, Markup]:
    """Return the figures of an audit by name."""
    subjects = [of_file for of_file in subjects if of_file]
    flat = [s for of_file in subjects for s in of_file]
    settings = _audit_settings(subjects, pairs)
    found = figures_of(settings, flat)
    if not settings and len(flat) > 1:
        found |= {f"forest-{i}": f["figure"] for i, f in enumerate(_forests(flat))}
    for i, subject in enumerate(flat):
        found |= _of_audits(subject, i)
    for i, number in enumerate(numbers):
        curves = number.drawn_curves()
        found |= {f"curve-{i}-{k}": number.figure(c) for k, c in enumerate(curves)}
    return {name: figure for name, figure in found.items() if figure}


def _audit_settings(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing]
) -> list[dict[str, Any]]:
    # a figure with one point is left out
    return [] if len(subjects) < 2 else audit_settings(subjects, pairs)


def _audit_verdict(
    subjects: Sequence[Sequence[Subject]], settings: Sequence[dict[str, Any]]
) -> list[str]:
    if len(subjects) > 1:
        return [line for s in settings for line in s["verdict"]]
    return verdict(subjects[0][0]) if len(subjects[0]) == 1 else verdict_over(subjects[0])


def _forests(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """Draw all attributes of one model in one picture for each error.

    Of many classes there is one for all.
    """
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
    """Return figures that the page of a run does not have."""
    out = {}
    if subject.timeline is not None:
        out[f"time-{i}"] = subject.timeline.figure()
    if (front := ThresholdFront.of(subject)) is not None:
        out[f"front-{i}"] = front.figure()
    decided = DecisionScores.of(subject)
    if decided is not None:
        out[f"roc-{i}"] = decided.roc()
        out |= {f"threshold-{rate}-{i}": decided.rate(rate) for rate in RATES}
    return out
