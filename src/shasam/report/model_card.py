"""``MODEL_CARD.md``: what a model is for, how it does by group, and where it must not be used."""

from __future__ import annotations

from pathlib import Path

from shasam.files import write_atomic
from shasam.metrics.catalogue import label_of
from shasam.report.run import Run, finite
from shasam.report.subject import Subject
from shasam.report.tables import md
from shasam.report.words import count, interval, percent, verdict


def model_card(run: Run, subject: Subject | None = None) -> str:
    """The card as Markdown, every number recomputed from the predictions."""
    subject = subject or run.subject()
    lines = [
        f"# Model card: {md(run.name)}",
        "",
        *(md(line) for line in verdict(subject)),
        "",
        "## What it is",
        "",
        f"- Method: {md(run.method)}",
        f"- Data: {md(run.setting)}",
        f"- Classes: {md(', '.join(subject.counts.classes))}",
        f"- Groups ({md(subject.attribute)}): {md(', '.join(subject.counts.groups))}",
    ]
    parameters = finite(run.provenance.get("parameters"))
    if parameters:
        lines.append(f"- Parameters: {count(int(parameters))}")
    lines += [
        f"- Manifest SHA-256: `{md(run.manifest_sha256) or 'not recorded'}`",
        "",
        "## Intended use",
        "",
        "Research on fair classification: comparing training methods on this data. Not for "
        "decisions about people: the labels are annotators' impressions, the groups are coarse and "
        "not of the persons' own choosing, and a model that is even between these groups may be "
        "uneven between others, in other pictures, or at their intersections.",
        "",
        "## How well, for whom",
        "",
        "| class | group | images | accuracy, % | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for rate in subject.cells:
        e = rate.estimate
        if e.defined:
            numbers = f"{count(e.support)} | {percent(e.value)} | {interval(e)}"
        else:
            numbers = f"0 | undefined: {e.reason} | "
        lines.append(f"| {md(str(rate.name))} | {md(rate.group)} | {numbers} |")
    lines += ["", "| metric | value | 95 % interval | support |", "|---|---|---|---|"]
    for name, e in subject.estimates.items():
        if e.defined:
            lines.append(
                f"| {md(label_of(name))} (`{md(name)}`) | {percent(e.value, 2)} | {interval(e)} | "
                f"{count(e.support)} |"
            )
        else:
            lines.append(f"| {md(label_of(name))} | undefined | {md(e.reason or '')} | |")
    lines += [
        "",
        "Values in per cent and points. Recompute in this folder with "
        "`shasam audit predictions.parquet`.",
        "",
    ]
    return "\n".join(lines)


def write_model_card(run: Path, out: Path | None = None) -> Path:
    """Write the card of a run directory, by default into it."""
    opened = Run(Path(run))
    out = Path(out) if out is not None else opened.path / "MODEL_CARD.md"
    write_atomic(out, model_card(opened))
    return out
