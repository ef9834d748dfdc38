"""A filled artefact as text: Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Callable

from shasam.metrics import catalogue
from shasam.output import markdown
from shasam.output.control import one_line
from shasam.output.csv_text import Cell, csv_text
from shasam.report.tables import tex
from shasam.reproduce.differences import Difference, differences
from shasam.reproduce.filled import Entry, Filled

_MARK = "†"  # a printed row that another place of the paper contradicts


def as_markdown(filled: Filled) -> str:
    """A table for each metric, in which a cell reads ``paper · ours ± deviation (difference)``."""
    a = filled.artefact
    lines = [f"## {markdown.inline(a.title)}", ""]
    for metric in a.metrics:
        rows = [
            [
                markdown.inline(_name(filled, row)),
                *(_cell(filled.get(row, column, metric), filled, " ± ") for column in a.columns),
            ]
            for row in a.rows()
        ]
        head = [catalogue.label_of(metric), *a.columns]
        lines += [*markdown.table([markdown.inline(word) for word in head], rows), ""]
    lines += _compared(filled)
    lines += [*(f"{markdown.inline(note)}\n" for note in notes(filled))]
    return "\n".join(lines)


def _compared(filled: Filled) -> list[str]:
    """Row against row over all settings, with intervals; nothing where none was asked for."""
    found: dict[tuple[str, str], list[Difference]] = {}
    for one in differences(filled):
        found.setdefault((one.row, one.other), []).append(one)
    if not found:
        return []
    metrics = [catalogue.label_of(metric) for metric in filled.artefact.metrics]
    rows = [
        [
            markdown.inline(f"{row} minus {other}"),
            _many(of_metric[0]),
            *(_points(one) for one in of_metric),
        ]
        for (row, other), of_metric in found.items()
    ]
    return [*markdown.table(["paired differences", "over", *metrics], rows), ""]


def _many(one: Difference) -> str:
    count = one.ours.support
    return f"{count} {one.over if count > 1 else one.over.removesuffix('s')}"


def _points(one: Difference) -> str:
    """``-1.0 · -2.3 (-3.1 to -1.5)``: the paper's, ours and its 95 % interval."""
    ours = f"{one.ours.difference:+.1f}"
    if one.ours.support > 1:
        ours += f" ({one.ours.low:+.1f} to {one.ours.high:+.1f})"
    return ours if one.printed is None else f"{one.printed:+.1f} · {ours}"


def as_latex(filled: Filled) -> str:
    """A booktabs tabular with the same cells."""
    a = filled.artefact
    many = len(a.columns) * len(a.metrics)
    lines = [*(f"% {one_line(note)}" for note in notes(filled))]
    lines += [r"\begin{tabular}{l" + "r" * many + "}", r"\toprule"]
    lines += [" & ".join(tex(head) for head in _head(filled)) + r" \\", r"\midrule"]
    for row in a.rows():
        found = (
            _cell(filled.get(row, column, metric), filled, r" $\pm$ ").replace(" · ", r" $\cdot$ ")
            for column in a.columns
            for metric in a.metrics
        )
        lines.append(" & ".join([tex(_name(filled, row)), *found]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def as_csv(filled: Filled) -> str:
    """A line for each number: what the paper prints, ours over seeds, and the difference."""
    head: list[Cell] = [
        "row", "column", "metric", "paper", "paper_sd", "seeds", "mean", "sd", "difference",
    ]  # fmt: skip
    lines = [head]
    for (row, column, metric), entry in filled.entries.items():
        printed = entry.printed
        numbers = (
            printed.value if printed else None,
            printed.deviation if printed else None,
            len(entry.ours),
            entry.mean,
            entry.deviation,
            entry.difference,
        )
        lines.append([row, column, metric, *(_rounded(value) for value in numbers)])
    return csv_text(lines)


def notes(filled: Filled) -> list[str]:
    """What a reader has to know about the table, a sentence each."""
    a, printed = filled.artefact, filled.artefact.printed
    out = [
        f"{filled.done} of {filled.asked} runs, seeds 0 to {filled.seeds - 1}; data: "
        f"{filled.data}; profile {filled.profile}. "
        f"Manifests: {' '.join(filled.manifests) or 'none yet'}."
    ]
    if printed is not None:
        out.append(
            "A cell reads: paper · ours ± standard deviation over seeds (ours minus the paper's). "
            f"Per cent and points. Paper: {printed.source}. A cell without a run is empty."
        )
        rows = {a.printed_row(row) for row in a.rows()}
        out += [f"{_MARK} {row}: {text}." for row, text in printed.doubts.items() if row in rows]
    else:
        out.append(
            "Mean ± standard deviation over seeds, per cent and points; the paper prints no "
            "numbers for this."
        )
    if any(differences(filled)):
        out.append(
            "Paired differences: the first row minus the second, where both have runs"
            + (", the paper's before ours" if printed is not None else "")
            + ". Brackets are Student's 95 % interval over settings (each the mean of its seeds) "
            "or over seeds (each the mean of its settings), whichever there are more of."
        )
    out += [f"{row} was not run: {reason.rstrip('.')}." for row, reason in filled.refused.items()]
    return [*out, *reached(filled)]


def reached(filled: Filled) -> list[str]:
    """How many views each row needs for the last accuracy of the row that is named."""
    a = filled.artefact
    if a.reach is None:
        return []
    columns = list(a.columns)
    goal = filled.get(a.reach, columns[-1], "accuracy").mean
    if goal is None:
        return []
    out = []
    for row in a.rows():
        need = next(
            (
                filled.views[row, c]
                for c in columns
                if (mean := filled.get(row, c, "accuracy").mean) is not None and mean >= goal
            ),
            None,
        )
        words = "does not reach it" if need is None else f"reaches it within {need:,.0f} views"
        out.append(f"{a.reach}'s last accuracy is {goal:.1f} %: {row} {words}.")
    return out


def _head(filled: Filled) -> list[str]:
    a = filled.artefact
    words: Callable[[str], str] = catalogue.label_of
    return [
        "",
        *(f"{column} {words(metric)}".strip() for column in a.columns for metric in a.metrics),
    ]


def _name(filled: Filled, row: str) -> str:
    printed = filled.artefact.printed
    doubted = printed is not None and filled.artefact.printed_row(row) in printed.doubts
    return f"{row} {_MARK}" if doubted else row


def _cell(entry: Entry, filled: Filled, plus_minus: str) -> str:
    """``5.5 · 6.3 ± 0.4 (+0.8)``; what is not there is left out."""
    printed = ours = ""
    if entry.printed is not None:
        printed = f"{entry.printed.value:.1f}"
        if filled.artefact.deviations and entry.printed.deviation is not None:
            printed += f"{plus_minus}{entry.printed.deviation:.1f}"
    if entry.mean is not None:
        ours = f"{entry.mean:.1f}"
        if entry.deviation is not None:
            ours += f"{plus_minus}{entry.deviation:.1f}"
        if entry.difference is not None:
            ours += f" ({entry.difference:+.1f})"
    if filled.artefact.printed is None or not (printed or ours):
        return ours
    return f"{printed or '–'} · {ours}".rstrip()


def _rounded(value: float | int | None) -> Cell:
    return round(value, 4) if isinstance(value, float) else value
