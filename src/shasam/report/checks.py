"""What a build reads of an audit: JUnit XML, and a Markdown summary such as GitHub's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from shasam.files import append, write_atomic
from shasam.output.control import visible
from shasam.output.markdown import code, inline, table
from shasam.report.auditing import Limit
from shasam.report.paired import Pairing
from shasam.report.subject import Subject
from shasam.report.words import count, interval, percent, verdict

SHOWN = ("accuracy", "eo_mean", "demographic_parity", "worst_group_accuracy")


def write_junit(path: Path, subjects: Sequence[Subject], limits: Sequence[Limit]) -> None:
    """A test case for every limit and subject; a broken limit is a failure."""
    suite = ElementTree.Element("testsuite", name="shasam audit")
    failures = 0
    for subject in subjects:
        for limit in limits:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=visible(f"{subject.name}, by {subject.attribute}"),
                name=visible(limit.words),
            )
            broken = limit.broken(subject)
            if broken:
                failures += 1
                failure = ElementTree.SubElement(case, "failure", message=visible(broken))
                failure.text = visible("\n".join(verdict(subject)))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    ElementTree.indent(suite)
    write_atomic(path, ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n")


def add_summary(
    path: Path,
    subjects: Sequence[Subject],
    limits: Sequence[Limit],
    pairings: Sequence[Pairing],
) -> None:
    """Verdicts, headline metrics, limits and comparisons, added to the end of a file."""
    lines = ["## shasam audit", ""]
    for subject in subjects:
        lines += [f"### {inline(subject.name)}, by {inline(subject.attribute)}", ""]
        lines += [inline(" ".join(verdict(subject))), ""]
        rows = []
        for key in SHOWN:
            e = subject.estimates[key]
            numbers = (
                [percent(e.value), interval(e)] if e.defined else ["–", inline(e.reason or "")]
            )
            rows.append([code(key), *numbers, count(e.support)])
        lines += [*table(["metric, % and points", "value", "interval", "support"], rows), ""]
    if limits:
        rows = [
            [
                inline(f"{s.name}, by {s.attribute}"),
                code(limit.words),
                f"**failed**: {inline(broken)}" if (broken := limit.broken(s)) else "passed",
            ]
            for s in subjects
            for limit in limits
        ]
        lines += [*table(["audit", "limit", "result"], rows), ""]
    lines += [f"- {inline(p.line)} ({inline(p.attribute)})" for p in pairings]
    append(path, ("\n".join(lines) + "\n").encode())
