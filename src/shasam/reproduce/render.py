"""Render a filled artefact: Markdown, LaTeX, CSV and SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from markupsafe import Markup

from shasam import output
from shasam.files import write_atomic
from shasam.metrics import catalogue
from shasam.output import Cell, csv_text, one_line, say
from shasam.report.run_tables import tex
from shasam.report.svg import (
    COLOURS,
    FONT,
    element,
    line,
    marker,
    picture,
    polyline,
    standalone,
    text,
    ticks,
)
from shasam.reproduce.filling import (
    ArtefactNumber,
    ArtefactTable,
    RowDifference,
    differences,
    metric_label,
    official_majority,
    target_and_group,
)

# -------------------------------------------------------------------------------------------------
# A filled artefact as text: Markdown, LaTeX and CSV.
# -------------------------------------------------------------------------------------------------

_MARK = "†"  # a printed row that another place of the paper contradicts


def as_markdown(filled: ArtefactTable) -> str:
    """Write a table for each metric, in which a cell reads ``paper · ours ± deviation
    (difference)``.
    """
    a = filled.artefact
    lines = [f"## {output.markdown_text(a.title)}", ""]
    for metric in a.metrics:
        rows = [
            [
                output.markdown_text(_name(filled, row)),
                *(_cell(filled.get(row, column, metric), filled, " ± ") for column in a.columns),
            ]
            for row in a.rows()
        ]
        head = [metric_label(metric), *a.columns]
        lines += [*output.markdown_table([output.markdown_text(word) for word in head], rows), ""]
    lines += _compared(filled)
    lines += [*(f"{output.markdown_text(note)}\n" for note in notes(filled))]
    return "\n".join(lines)


def _compared(filled: ArtefactTable) -> list[str]:
    """Write each row against another over all settings, with intervals.

    Nothing where none was asked for.
    """
    found: dict[tuple[str, str], list[RowDifference]] = {}
    for one in differences(filled):
        found.setdefault((one.row, one.other), []).append(one)
    if not found:
        return []
    metrics = [metric_label(metric) for metric in filled.artefact.metrics]
    rows = []
    for (row, other), of_metric in found.items():
        by_metric = {one.metric: _points(one) for one in of_metric}
        cells = [by_metric.get(metric, "") for metric in filled.artefact.metrics]
        rows.append([output.markdown_text(f"{row} minus {other}"), _many(of_metric[0]), *cells])
    return [*output.markdown_table(["paired differences", "over", *metrics], rows), ""]


def _many(one: RowDifference) -> str:
    count = one.ours.support
    return f"{count} {one.over if count > 1 else one.over.removesuffix('s')}"


def _points(one: RowDifference) -> str:
    """Write the paper's, ours and its 95 % interval: ``-1.0 · -2.3 (-3.1 to -1.5)``."""
    ours = f"{one.ours.difference:+.1f}"
    if one.ours.support > 1:
        ours += f" ({one.ours.low:+.1f} to {one.ours.high:+.1f})"
    return ours if one.printed is None else f"{one.printed:+.1f} · {ours}"


def as_latex(filled: ArtefactTable) -> str:
    """Write a booktabs tabular with the same cells."""
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


def as_csv(filled: ArtefactTable) -> str:
    """Write a line for each number: what the paper prints, ours over seeds, and the difference."""
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


def notes(filled: ArtefactTable) -> list[str]:
    """Return what a reader has to know about the table, a sentence each."""
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
    out += _shares(filled)
    out += [f"{row} was not run: {reason.rstrip('.')}." for row, reason in filled.refused.items()]
    return [*out, *reached(filled)]


def _shares(filled: ArtefactTable) -> list[str]:
    """Return the accuracy of whoever always says the largest class: here, and on all of CelebA."""
    known = {c: share for c, share in filled.majority.items() if share == share}  # not NaN
    if not known:
        return []
    ours = ", ".join(f"{c} {100 * share:.1f}".strip() for c, share in known.items())
    if "official_accuracy" not in filled.artefact.metrics:
        return [f"Share of the largest class in the test split, per cent: {ours}."]
    theirs = {c: official_majority(*target_and_group(filled.artefact, c)) for c in known}
    whole = ", ".join(f"{c} {100 * share:.1f}" for c, share in theirs.items() if share is not None)
    return [
        f"Share of the largest class, per cent: in CelebA's whole test split {whole}; in ours "
        f"{ours}. Accuracy on official shares weighs the (target, group) cells of our test split "
        "as the whole one has them, and alone stands beside the paper's. Equalised odds needs no "
        "weights."
    ]


def reached(filled: ArtefactTable) -> list[str]:
    """Return how many views each row needs for the last accuracy of the row that is named."""
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


def _head(filled: ArtefactTable) -> list[str]:
    a = filled.artefact
    words: Callable[[str], str] = metric_label
    return [
        "",
        *(f"{column} {words(metric)}".strip() for column in a.columns for metric in a.metrics),
    ]


def _name(filled: ArtefactTable, row: str) -> str:
    printed = filled.artefact.printed
    doubted = printed is not None and filled.artefact.printed_row(row) in printed.doubts
    return f"{row} {_MARK}" if doubted else row


def _cell(entry: ArtefactNumber, filled: ArtefactTable, plus_minus: str) -> str:
    """Write ``5.5 · 6.3 ± 0.4 (+0.8)``; what is not there is left out."""
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
    if filled.artefact.printed is None or not (printed or ours) or not entry.comparable:
        return ours
    return f"{printed or '–'} · {ours}".rstrip()


def _rounded(value: float | int | None) -> Cell:
    return round(value, 4) if isinstance(value, float) else value


# -------------------------------------------------------------------------------------------------
# The figure of an artefact as SVG: a plane for each setting, bars, or lines; and as PNG.
# -------------------------------------------------------------------------------------------------

PANEL, HEIGHT, GAP, LEFT, TOP = 260.0, 190.0, 56.0, 48.0, 58.0
ACROSS = 4  # panels beside each other
# resvg knows fonts by their names alone; some of these are on every desktop and most servers
FONTS_BY_NAME = "DejaVu Sans,Liberation Sans,Noto Sans,Arial,Helvetica,Segoe UI,sans-serif"

Scale = Callable[[float], float]


def draw(filled: ArtefactTable) -> Markup | None:
    """Draw the figure, or return None if no run has ended yet."""
    if not any(entry.ours for entry in filled.entries.values()):
        return None
    return {"plane": _planes, "bars": _bars, "lines": _lines}[filled.artefact.figure](filled)


def save(figure: Markup, path: Path) -> list[Path]:
    """Write ``path`` as SVG, and beside it a PNG where ``resvg-py`` is installed (extra png)."""
    svg = standalone(figure)
    write_atomic(path, svg)
    if find_spec("resvg_py") is None:
        return [path]
    if not _draws_words():
        say(f"no PNG of {path.name}: this system has no fonts; install one, such as DejaVu Sans")
        return [path]
    write_atomic(path.with_suffix(".png"), _png(svg, zoom=2))
    return [path, path.with_suffix(".png")]


def _png(svg: str, zoom: float = 1) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg.replace(FONT, FONTS_BY_NAME), zoom=zoom))


@cache
def _draws_words() -> bool:
    """Return whether resvg finds a font: without one it leaves all words out and says nothing."""
    empty, word = (standalone(picture(20, 20, [text(2, 15, t)], "")) for t in ("", "a"))
    return _png(empty) != _png(word)


def _planes(filled: ArtefactTable) -> Markup:
    """Draw the accuracy against EO, a panel for each setting.

    Hollow marks are the paper's numbers.
    """
    a = filled.artefact
    across, up = (
        ("eo_mean", "accuracy") if "eo_mean" in a.metrics else (a.metrics[-1], a.metrics[0])
    )
    up = "official_accuracy" if "official_accuracy" in a.metrics else up
    panels = []
    for column in a.columns:
        marks = []
        for kind, row in enumerate(a.rows()):
            x, y = filled.get(row, column, across), filled.get(row, column, up)
            if x.printed is not None and y.printed is not None:
                marks.append((kind, x.printed.value, y.printed.value, "open", f"{row}, paper"))
            if x.mean is not None and y.mean is not None:
                marks.append((kind, x.mean, y.mean, "fill", row))
        panels.append((column, _plane(marks)))
    words = f"{metric_label(up)} (up) against {metric_label(across)} (across)"
    note = f"{words}; filled: ours, hollow: the paper's" if a.printed else words
    return _page(filled, panels, note)


def _plane(marks: Sequence[tuple[int, float, float, str, str]]) -> str:
    if not marks:
        return _frame() + text(PANEL / 2, HEIGHT / 2, "no run yet", "muted", "middle")
    px, across = _scale([m[1] for m in marks], 0.0, PANEL)
    py, up = _scale([m[2] for m in marks], HEIGHT, 0.0)
    body = _frame() + _ticks(across, px, up, py)
    for kind, x, y, look, name in sorted(marks, key=lambda m: m[3] != "open"):
        told = f"{name}: {y:.1f} and {x:.1f}"
        body += marker(kind, px(x), py(y), 4.5, f"c{kind % COLOURS} {look}", told)
    return body


def _bars(filled: ArtefactTable) -> Markup:
    """Draw a panel for each metric.

    Bars are grouped by setting; whiskers are one standard deviation.
    """
    a = filled.artefact
    panels = []
    for metric in a.metrics:
        found = [filled.get(row, c, metric) for c in a.columns for row in a.rows()]
        tops = [e.mean + (e.deviation or 0) for e in found if e.mean is not None]
        low = 50.0 if _is_better_high(metric) and min(tops) > 50 else 0.0
        py, up = _scale([low, *tops], HEIGHT, 0.0, pad=False)
        body = _frame(2) + _ticks([], px=lambda v: v, up=up, py=py)
        group = 2 * PANEL / len(a.columns)
        width = 0.86 * group / len(a.rows())
        for c, column in enumerate(a.columns):
            for kind, row in enumerate(a.rows()):
                entry = filled.get(row, column, metric)
                if entry.mean is None:
                    continue
                x, y = c * group + 0.07 * group + kind * width, py(entry.mean)
                bar = element("title", f"{row}, {column}: {entry.mean:.1f}")
                body += element(
                    "rect", bar, x=x, y=y, width=0.9 * width, height=max(0.0, HEIGHT - y),
                    cls=f"c{kind % COLOURS} bar",
                )  # fmt: skip
                middle = x + 0.45 * width  # the mark of the legend stands on the foot of the bar
                body += marker(kind, middle, HEIGHT - 9, 4, f"c{kind % COLOURS} open")
                if entry.deviation:
                    ends = (
                        py(entry.mean + entry.deviation),
                        py(max(low, entry.mean - entry.deviation)),
                    )
                    body += line(middle, ends[0], middle, ends[1], "whisker")
            body += text((c + 0.5) * group, HEIGHT + 17, column, "muted small", "middle")
        panels.append((metric_label(metric), body))
    return _page(filled, panels, "bars: mean over seeds, whiskers: one standard deviation", wide=2)


def _is_better_high(metric: str) -> bool:
    return metric == "official_accuracy" or catalogue.named(metric).better == "high"


def _lines(filled: ArtefactTable) -> Markup:
    """Draw a panel for each metric: its mean against the views that stage 1 has seen."""
    a = filled.artefact
    panels = []
    for metric in a.metrics:
        curves = {
            kind: [
                (filled.views[row, c], e.mean)
                for c in a.columns
                if (e := filled.get(row, c, metric)).mean is not None
            ]
            for kind, row in enumerate(a.rows())
        }
        points = [p for curve in curves.values() for p in curve]
        px, across = _scale([0.0, *(x for x, _ in points)], 0.0, 2 * PANEL)
        py, up = _scale([y for _, y in points if y is not None], HEIGHT, 0.0)
        body = _frame(2) + _ticks(across, px, up, py)
        for kind, curve in curves.items():
            places = [(px(x), py(y)) for x, y in curve if y is not None]
            body += element("g", polyline(places, "line"), cls=f"c{kind % COLOURS}")
            body += "".join(marker(kind, x, y, 4, f"c{kind % COLOURS} fill") for x, y in places)
        panels.append((f"{metric_label(metric)} against views", body))
    return _page(filled, panels, "mean over seeds", wide=2)


def _page(
    filled: ArtefactTable, panels: Sequence[tuple[str, str]], note: str, *, wide: int = 1
) -> Markup:
    """Put panels in rows, the title above and the legend below."""
    a = filled.artefact
    columns = min(len(panels), ACROSS // wide)
    step = wide * PANEL + GAP
    body = [text(LEFT, 22, a.title, "b", most=120), text(LEFT, 40, note, "muted small", most=160)]
    for i, (title, drawn) in enumerate(panels):
        x = LEFT + (i % columns) * step
        y = TOP + 16 + (i // columns) * (HEIGHT + GAP)
        inner = text(0, -8, title, "b") + drawn
        body.append(element("g", inner, transform=f"translate({x:.1f} {y:.1f})"))
    rows = -(-len(panels) // columns)
    width = LEFT + columns * step
    y = TOP + 16 + rows * (HEIGHT + GAP)
    x = LEFT
    for kind, row in enumerate(a.rows()):
        need = 30 + 6.6 * len(row)
        if x + need > width and x > LEFT:
            x, y = LEFT, y + 20
        body.append(marker(kind, x + 5, y - 4, 4.5, f"c{kind % COLOURS} fill"))
        body.append(text(x + 15, y, row, "small", most=60))
        x += need
    return picture(max(width, 520.0), y + 16, body, f"{a.title}: {note}")


def _frame(wide: int = 1) -> str:
    return element("rect", x=0.0, y=0.0, width=wide * PANEL, height=HEIGHT, cls="axis")


def _ticks(across: Sequence[float], px: Scale, up: Sequence[float], py: Scale) -> str:
    body = ""
    for v in across:
        body += line(px(v), HEIGHT, px(v), HEIGHT + 4, "axis")
        shown = f"{v / 1000:g}k" if v >= 10_000 else f"{v:g}"
        body += text(px(v), HEIGHT + 17, shown, "muted small", "middle")
    for v in up:
        body += line(-4, py(v), 0, py(v), "axis") + text(
            -7, py(v) + 4, f"{v:g}", "muted small", "end"
        )
    return body


def _scale(
    values: Sequence[float], start: float, end: float, *, pad: bool = True
) -> tuple[Scale, list[float]]:
    """Return a map from numbers to a stretch of pixels, and round numbers for its ticks."""
    low, high = min(values), max(values)
    room = max(0.08 * (high - low), 0.5)
    low, high = (low - room if pad and low != 0 else low), high + room

    def place(value: float) -> float:
        return start + (value - low) / (high - low) * (end - start)

    return place, ticks(low, high, 5)
