"""``MODEL_CARD.md``: intended use, accuracy by group, and limits of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from shasam.files import write_atomic
from shasam.metrics.catalogue import label_of
from shasam.output import markdown_code, markdown_table, markdown_text
from shasam.report.bias_audit import fields_of
from shasam.report.runs import finite, learnt_of, recorded_subject, subject_of
from shasam.report.subject import Subject
from shasam.report.verdict import count, interval, percent, verdict
from shasam.runs.directory import RunDirectory

INTENDED = {
    "use": "Intended use",
    "users": "Who may use it",
    "out_of_scope": "Not for",
    "limits": "Known limits",
    "oversight": "Human oversight",
    "review": "Next review",
    "contact": "Contact",
}
INTENDED_FILE = "intended.yaml"  # of a run: its fields are taken where no others are given
_RESEARCH = {
    "use": "Research on fair classification: comparing training methods on this data.",
    "out_of_scope": "Decisions about people.",
    "limits": "The labels are annotators' impressions, the groups are coarse and not of the "
    "persons' own choosing, and a model that is even between these groups may be uneven between "
    "others, in other data, or at their intersections.",
}


def model_card(
    run: RunDirectory,
    subject: Subject | None = None,
    place: str = "FOLDER",
    intended: Mapping[str, str] | None = None,
) -> str:
    """Return the card as Markdown, every number computed from the predictions.

    ``place`` is what the card calls the place that the model is loaded from. ``intended`` has the
    fields of ``INTENDED``; without it those of ``intended.yaml`` in the run, or the words for
    research.
    """
    own = run.path / INTENDED_FILE
    if not intended and own.is_file():
        intended = fields_of([str(own)], INTENDED, within=run.path)
    told = intended or _RESEARCH
    subject = subject or subject_of(run)
    lines = [
        f"# Model card: {markdown_text(run.name)}",
        "",
        *(f"> **{markdown_text(line)}**\n" for line in learnt_of(run).sentences(subject.unit)),
        *(markdown_text(line) for line in verdict(subject)),
        "",
        "## What it is",
        "",
        f"- Method: {markdown_text(run.method)}",
        f"- Data: {markdown_text(run.setting)}",
        f"- Classes: {markdown_text(', '.join(subject.counts.classes))}",
        f"- Groups ({markdown_text(subject.attribute)}): "
        f"{markdown_text(', '.join(subject.counts.groups))}",
    ]
    parameters = finite(run.provenance().get("parameters"))
    if parameters:
        lines.append(f"- Parameters: {count(int(parameters))}")
    lines += [
        f"- Manifest SHA-256: {markdown_code(run.manifest_sha256 or 'not recorded')}",
        "",
        "## Intended use and limits",
        "",
        *(
            f"- **{label}**: {markdown_text(told[key])}"
            for key, label in INTENDED.items()
            if key in told
        ),
        "",
        "## How well, for whom",
        "",
        *markdown_table(
            ["class", "group", subject.unit, "accuracy, %", "95 % interval"], _cells(subject)
        ),
        "",
        *markdown_table(["metric", "value", "95 % interval", "support"], _metrics(subject)),
    ]
    lines += [
        "",
        "Values in per cent and points. Recompute in this folder with "
        "`shasam audit predictions.parquet --strata cell --min-group 0`.",
        "",
        *_loading(place, subject.unit),
    ]
    return "\n".join(lines)


def _loading(place: str, unit: str) -> list[str]:
    files = ["image.jpg"] if unit == "images" else "x.npy"
    given = "images" if unit == "images" else "x.npy"
    said = "a folder or a list" if unit == "images" else "a file of vectors"
    where = "the folder that holds this card" if place == "FOLDER" else "a folder, or its hub id"
    return [
        "## How to load it",
        "",
        f"`{place}` is {where}.",
        "",
        "```python",
        "import shasam",
        "",
        f'model = shasam.load("{place}")',
        f"print(model.predict({json.dumps(files)}).labels)",
        "```",
        "",
        f"`shasam predict {place} {given} --out predictions.csv` predicts {said}. "
        f"`shasam export {place} --format onnx --out model.onnx` writes a file for programs "
        "without torch; its metadata names the inputs, classes and groups.",
        "",
    ]


def _cells(subject: Subject) -> list[list[str]]:
    rows = []
    for rate in subject.cells:
        e, names = rate.estimate, [markdown_text(str(rate.name)), markdown_text(rate.group)]
        if e.defined:
            rows.append([*names, count(e.support), percent(e.value), interval(e)])
        else:
            rows.append([*names, "0", f"undefined: {markdown_text(e.reason or '')}", ""])
    return rows


def _metrics(subject: Subject) -> list[list[str]]:
    rows = []
    for key, e in subject.estimates.items():
        name = f"{markdown_text(label_of(key))} ({markdown_code(key)})"
        if e.defined:
            rows.append([name, percent(e.value, 2), interval(e), count(e.support)])
        else:
            rows.append([name, "undefined", markdown_text(e.reason or ""), ""])
    return rows


def write_model_card(
    run: Path,
    out: Path | None = None,
    *,
    recorded: bool = False,
    intended: Mapping[str, str] | None = None,
) -> Path:
    """Write the card of a run directory, by default into it.

    Numbers are computed from the predictions. ``recorded`` takes those of ``metrics.json`` where
    they agree with the predictions: for the process that has just written them.
    """
    opened = RunDirectory.evaluated(run)
    out = Path(out) if out is not None else opened.path / "MODEL_CARD.md"
    subject = recorded_subject(opened, complete=True) if recorded else subject_of(opened)
    write_atomic(out, model_card(opened, subject, intended=intended))
    return out
