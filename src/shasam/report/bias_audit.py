"""The bias audit of New York City's Local Law 144: impact ratios with bounds, header and hashes.

It needs no labels: a column of selections or of scores, and the sex and race/ethnicity of people.
The table is a file, or in memory (``shasam.audit(..., standard="ll144")``).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.table import Table as ScreenTable

import shasam
from shasam.documents import of_our_shape, read_json, read_yaml_value
from shasam.errors import Argument, DataError, InputError
from shasam.files import file_sha256, write_named
from shasam.metrics.counts import Estimate
from shasam.metrics.rates import ratio_of_rates
from shasam.output import Screen, csv_text, markdown_table, markdown_text, visible
from shasam.registry import did_you_mean
from shasam.report.columns import PREDICTIONS, Columns, absent_values
from shasam.report.page import style_hash
from shasam.report.svg import framed
from shasam.report.verdict import count, joined, percent
from shasam.tables import MISSING_WORDS, TableFile, open_table

UNKNOWN_WORDS = frozenset((*MISSING_WORDS, "unknown", "not specified", "declined to answer"))
HEADER = {
    "auditor": "Independent auditor",
    "audit_date": "Date of the audit",
    "tool": "Tool (AEDT)",
    "tool_version": "Version of the tool",
    "distribution_date": "Distribution date of the tool",
    "data_source": "Source of the data",
    "data_period": "Period of the data",
    "data_kind": "Historical or test data",
    "explanation": "Explanation",
}
KINDS = ("historical", "test")
FILE, COLUMNS = "file", "columns"  # what the first hash is of: a table in memory is no file
LEAST_SHARE = 0.02  # categories with a smaller share may be left out of the ratios
FOUR_FIFTHS = 0.8

# -------------------------------------------------------------------------------------------------
# Impact ratios: how often each category is selected against the most selected one.
#
# People whose category is unknown could change every ratio. Its bounds are the lowest and highest
# values over all that the unknown could be, with sampling error added at both ends.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Category:
    """One line of the table."""

    name: str
    assessed: int
    selected: int
    small: bool  # below two per cent of those whose category is known
    ratio: Estimate  # against the most selected category, with its sampling interval
    bounds: tuple[float, float]  # of the ratio, whatever the unknown are
    both: tuple[float, float]  # the bounds with sampling error
    shortfall: int  # how many more selections give it the rate of the most selected
    deviations: float  # standard deviations between the two rates; NaN for the most selected
    fisher: float  # two-sided p of Fisher's exact test

    @property
    def rate(self) -> float:
        return self.selected / self.assessed if self.assessed else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON, numbers rounded so that every machine writes the same."""
        return {
            "category": self.name,
            "assessed": self.assessed,
            "selected": self.selected,
            "rate": _rounded(self.rate),
            "under_two_per_cent": self.small,
            "impact_ratio": _rounded(self.ratio.value),
            "interval": [_rounded(self.ratio.low), _rounded(self.ratio.high)],
            "bounds_over_unknown": [_rounded(x) for x in self.bounds],
            "bounds_and_sampling_error": [_rounded(x) for x in self.both],
            "shortfall": self.shortfall,
            "standard_deviations": _rounded(self.deviations),
            "fisher_p": _rounded(self.fisher),
        }


@dataclass(frozen=True)
class Impact:
    """The table of one attribute: categories, the most selected, and who is unknown."""

    attribute: str
    categories: tuple[Category, ...]
    most_selected: str
    unknown: int
    unknown_selected: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "attribute": self.attribute,
            "most_selected": self.most_selected,
            "unknown": self.unknown,
            "unknown_selected": self.unknown_selected,
            "categories": [c.as_dict() for c in self.categories],
        }


def impact_ratios(
    attribute: str,
    names: Sequence[str],
    assessed: Sequence[int],
    selected: Sequence[int],
    *,
    unknown: int = 0,
    unknown_selected: int = 0,
    level: float = 0.95,
) -> Impact:
    """Return the impact ratio of every category, with what the unknown and chance could make of it.

    The lowest value gives all unknown who were not selected to the category, and all who were to
    the one that it is compared with; the highest does the opposite. A ratio against the most
    selected category is the lowest over all others, and 1 at most.

    >>> found = impact_ratios("sex", ["f", "m"], [100, 100], [30, 50], unknown=20)
    >>> f = found.categories[0]
    >>> round(f.ratio.value, 2), [round(x, 2) for x in f.bounds], f.shortfall
    (0.6, [0.5, 0.72], 20)
    """
    total = sum(assessed)
    if not total or not sum(selected):
        raise InputError(f"nobody with a known {attribute} was selected, so there is no ratio")
    small = [n < LEAST_SHARE * total for n in assessed]
    compared = [g for g in range(len(names)) if assessed[g] and not small[g]]
    if not compared:
        raise InputError(f"no category of {attribute} has two per cent of the people")
    most = max(compared, key=lambda g: selected[g] / assessed[g])
    if not selected[most]:
        raise InputError(f"nobody in a category of {attribute} of two per cent was selected")
    left = unknown - unknown_selected
    out = []
    for g, name in enumerate(names):
        k, n = selected[g], assessed[g]
        own = ratio_of_rates(k, n, selected[most], assessed[most], level)
        if small[g] or not n:
            own = Estimate.undefined("it has too few people to be compared", n)
            nothing = (math.nan, math.nan)
            out.append(Category(name, n, k, True, own, nothing, nothing, 0, math.nan, math.nan))
            continue
        if g == most:
            own = Estimate(1.0, math.nan, math.nan, n)
        worst, best, ends = 1.0, 1.0, [1.0, 1.0]
        for h in compared:
            if h == g:
                continue
            # All who were not selected join g, all who were join h; then the other way round.
            low = ratio_of_rates(
                k, n + left, selected[h] + unknown_selected, assessed[h] + unknown_selected, level
            )
            high = ratio_of_rates(
                k + unknown_selected, n + unknown_selected, selected[h], assessed[h] + left, level
            )
            worst, ends[0] = min(worst, low.value), min(ends[0], low.low)
            if high.defined:
                best, ends[1] = min(best, high.value), min(ends[1], high.high)
        base = selected[most] / assessed[most]
        apart = g == most
        out.append(
            Category(
                name,
                n,
                k,
                False,
                own,
                (worst, best),
                (ends[0], ends[1]),
                0 if apart else max(0, math.ceil(n * base - k - 1e-9)),
                math.nan if apart else deviations(k, n, selected[most], assessed[most]),
                math.nan if apart else fisher(k, n, selected[most], assessed[most]),
            )
        )
    return Impact(attribute, tuple(out), names[most], unknown, unknown_selected)


def deviations(k: int, n: int, other_k: int, other_n: int) -> float:
    """Return standard deviations between two rates, from their pooled rate.

    >>> round(deviations(30, 100, 50, 100), 2)
    -2.89
    """
    pooled = (k + other_k) / (n + other_n)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / other_n))
    return (k / n - other_k / other_n) / spread if spread else 0.0


def fisher(k: int, n: int, other_k: int, other_n: int) -> float:
    """Return two-sided p of Fisher's exact test: all tables that are no likelier than this one.

    >>> round(fisher(30, 100, 50, 100), 4)
    0.0059
    """
    hits = k + other_k

    def log_chance(x: int) -> float:
        return _log_choose(n, x) + _log_choose(other_n, hits - x)

    lowest, highest = max(0, hits - other_n), min(n, hits)
    whole = _log_choose(n + other_n, hits)
    seen = log_chance(k) + 1e-7
    p = math.fsum(
        math.exp(c - whole) for x in range(lowest, highest + 1) if (c := log_chance(x)) <= seen
    )
    return min(1.0, p)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _rounded(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


# -------------------------------------------------------------------------------------------------
# The audit: who is counted, by which columns, and what is hashed.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BiasAudit:
    """What the form needs: header, tables, and what was done with which data."""

    header: dict[str, str]
    asked: dict[str, Any]
    impacts: tuple[Impact, ...]
    rows: int
    rate: str  # "selection" or "scoring"
    median: float | None
    data_sha256: str
    hashed: str = FILE  # what that is of

    @property
    def result(self) -> dict[str, Any]:
        """What the second hash is of."""
        return {
            "standard": "ll144",
            "asked": self.asked,
            "header": self.header,
            "rows": self.rows,
            "rate": self.rate,
            "median_score": None if self.median is None else round(self.median, 9),
            "tables": [i.as_dict() for i in self.impacts],
        }

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON, with the hashes of data and result."""
        return {
            "made_by": f"shasam {shasam.__version__}",
            "data_sha256": self.data_sha256,
            "data_hashed": self.hashed,
            "result_sha256": hash_of(self.result),
            "result": self.result,
        }

    def __str__(self) -> str:
        lines = []
        for impact in self.impacts:
            lines += [f"By {impact.attribute}:", *says(self, impact)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Convert the form to plain JSON, the content of ``--json``."""
        return self.as_dict()

    def to_csv(self, path: str | Path | None = None) -> str:
        """Make the table of ``--csv``; write it to a file if one is named."""
        return _kept(bias_audit_csv(self), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Make the text of ``--markdown``; write it to a file if one is named."""
        return _kept(bias_audit_markdown(self), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """Make the page of ``--html``; write it to a file if one is named."""
        return _kept(bias_audit_page(self), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Make the document of ``--json``, which ``shasam audit --verify`` computes again."""
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        return _kept(text, path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own."""
        return framed(self.to_html(), "bias audit")


def _kept(text: str, path: str | Path | None) -> str:
    if path is not None:
        write_named(path, text)
    return text


def hash_of(result: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a result as JSON with sorted keys and no spaces."""
    text = json.dumps(result, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def header_of(given: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    """Return the header of the form from ``field=text`` and YAML files, or from its fields."""
    named = given if isinstance(given, Mapping) else fields_of(given, HEADER)
    out = checked_fields(named, HEADER)
    if out.get("data_kind", KINDS[0]) not in KINDS:
        raise InputError(f"data_kind is {out['data_kind']!r}; it must be historical or test")
    return out


def fields_of(
    texts: Sequence[str], known: Mapping[str, str], *, within: Path | None = None
) -> dict[str, str]:
    """Return fields from ``field=text`` and from YAML files, later ones over earlier ones.

    Files of somebody else's folder are read ``within`` it only.
    """
    out: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and within is None:
            given: Any = {name.strip(): value.strip()}
        else:
            given = read_yaml_value(text, within=within, dates=True)
        if not isinstance(given, dict):
            raise InputError(f"{text} must hold fields such as '{next(iter(known))}: text'")
        out |= checked_fields(given, known)
    return out


def checked_fields(given: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """Return the fields as texts, if each is known."""
    for key in given:
        if key not in known:
            raise InputError(f"there is no field {key!r}{did_you_mean(str(key), known)}")
    return {key: str(field) for key, field in given.items()}


def bias_audit(
    path: Path | TableFile, columns: Columns, header: Mapping[str, str], level: float = 0.95
) -> BiasAudit:
    """Audit a table of people: selections or scores, by sex, race/ethnicity and both together."""
    source = path if isinstance(path, TableFile) else open_table(path)
    if len(columns.sensitive) != 2:
        raise InputError(
            Argument("standard", "ll144"),
            " compares sex, race/ethnicity and both together: name the two columns with ",
            Argument("sensitive"),
            ", sex first",
        )
    outcome = _outcome(source, columns)
    rows = source.read(list(dict.fromkeys([outcome, *columns.sensitive])))
    if not rows.num_rows:
        raise DataError(f"{source.name} has no rows; there is nothing to audit")
    selected, rate, median = _selected(rows, outcome, columns, source.name)
    names = [_categories(rows, column, source) for column in columns.sensitive]
    both = np.where((names[0] == "") | (names[1] == ""), "", _joined(names[0], names[1]))
    attributes = (*columns.sensitive, " & ".join(columns.sensitive))
    impacts = tuple(
        _impact(attribute, categories, selected, level)
        for attribute, categories in zip(attributes, (*names, both), strict=True)
    )
    asked = {
        "prediction": columns.prediction,
        "score": list(columns.scores),
        "threshold": columns.threshold,
        "positive": columns.positive,
        "sensitive": list(columns.sensitive),
        "level": level,
    }
    hashed = FILE if source.path.is_file() and not isinstance(path, TableFile) else COLUMNS
    data = _data_sha256(source, hashed, columns)
    return BiasAudit(dict(header), asked, impacts, rows.num_rows, rate, median, data, hashed)


def _data_sha256(source: TableFile, hashed: str, columns: Columns) -> str:
    """Hash the file, or the names and texts of the columns that are used, as CSV (SHA-256)."""
    if hashed == FILE:
        return file_sha256(source.path)
    rows = source.read(list(dict.fromkeys([_outcome(source, columns), *columns.sensitive])))
    values = (column.to_pylist() for column in rows.columns)
    lines = [rows.column_names, *zip(*values, strict=True)]
    return hashlib.sha256(csv_text(lines).encode()).hexdigest()


def verify(document: Path, data: Path) -> list[str]:
    """Compare a bias audit in a JSON file with the same audit of the data; return what differs."""
    told = read_json(document)
    try:
        with of_our_shape(document):
            result, asked = told["result"], told["result"]["asked"]
            columns = Columns(
                prediction=asked["prediction"],
                scores=tuple(map(str, asked["score"])),
                threshold=asked["threshold"],
                positive=asked["positive"],
                sensitive=tuple(map(str, asked["sensitive"])),
            )
            header, level = header_of(result["header"]), float(asked["level"])
    except DataError:
        raise InputError(
            f"{document} is no bias audit of shasam: write one with ", Argument("json")
        ) from None
    differ = []
    if told.get("result_sha256") != hash_of(result):
        differ.append("the result was changed after its hash was made")
    source = open_table(data)
    with of_our_shape(document):
        again = bias_audit(data, columns, header, level)
    hashed = COLUMNS if told.get("data_hashed") == COLUMNS else again.hashed
    if told.get("data_sha256") != _data_sha256(source, hashed, columns):
        differ.append(f"{data.name} is not the {hashed} that was audited (another SHA-256)")
    if json.loads(json.dumps(again.result)) != result:
        differ.append("computed again, the numbers differ")
    return differ


def _outcome(source: TableFile, columns: Columns) -> str:
    """Return the column of selections or scores."""
    usual = [c for c in (*PREDICTIONS, "selected", "score") if c in source.column_names]
    given = columns.prediction or (columns.scores[0] if columns.scores else None)
    if given is None and not usual:
        raise InputError(
            f"{source.name} has neither selections nor scores; name one with ",
            Argument("prediction"),
            " or ",
            Argument("score"),
        )
    for column in (given or usual[0], *columns.sensitive):
        if column not in source.column_names:
            raise InputError(
                f"{source.name} has no column {column!r}{did_you_mean(column, source.column_names)}"
            )
    return given or usual[0]


def _selected(
    rows: pa.Table, outcome: str, columns: Columns, where: str
) -> tuple[np.ndarray, str, float | None]:
    """Return who is selected, or scores above the median of all."""
    values = rows.column(outcome)
    if absent_values(values).any():
        raise InputError(f"some rows of {where} have no value in the column {outcome!r}")
    is_score = outcome in columns.scores or (columns.prediction is None and outcome == "score")
    if is_score:
        if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            raise InputError(f"the score column {outcome!r} of {where} does not hold numbers")
        x = values.to_numpy(zero_copy_only=False).astype(np.float64)
        if columns.threshold is not None:
            return x >= columns.threshold, "selection", None
        median = float(np.median(x))
        return x > median, "scoring", median
    texts = np.array([str(v) for v in values.to_pylist()])
    known = sorted(set(texts.tolist()))
    positive = columns.positive or (known[-1] if len(known) == 2 else "")
    if positive not in known:
        raise InputError(
            "say with ",
            Argument("positive"),
            f" which value of {outcome!r} means selected: {', '.join(known[:8])}",
        )
    return texts == positive, "selection", None


def _categories(rows: pa.Table, column: str, source: TableFile) -> np.ndarray:
    """Return the category of each row, empty where it is unknown."""
    texts = ["" if v is None else str(v).strip() for v in rows.column(column).to_pylist()]
    names = np.array(["" if t.lower() in UNKNOWN_WORDS else t for t in texts], dtype=object)
    distinct = set(names.tolist()) - {""}
    if not 2 <= len(distinct) <= 50:
        raise InputError(
            f"the column {column!r} of {source.name} has {len(distinct)} categories; it needs 2 "
            "to 50"
        )
    return names


def _joined(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([f"{x} & {y}" for x, y in zip(a, b, strict=True)], dtype=object)


def _impact(attribute: str, names: np.ndarray, selected: np.ndarray, level: float) -> Impact:
    known = sorted(set(names.tolist()) - {""})
    assessed = [int((names == name).sum()) for name in known]
    chosen = [int(selected[names == name].sum()) for name in known]
    missing = names == ""
    return impact_ratios(
        attribute, known, assessed, chosen,
        unknown=int(missing.sum()), unknown_selected=int(selected[missing].sum()), level=level,
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------
# A bias audit on the terminal, as CSV, as Markdown and as a page that prints on paper.
# -------------------------------------------------------------------------------------------------

_HEAD = (
    "category", "assessed", "selected", "rate, %", "impact ratio", "95 % interval",
    "bounds over the unknown", "bounds with sampling error", "shortfall", "SD", "Fisher p",
)  # fmt: skip


_NARROW = (1, 2, 3, 4, 7, 8, 10)  # columns on the terminal; files have all


def says(found: BiasAudit, impact: Impact) -> list[str]:
    """Say what the table of one attribute shows, in sentences."""
    lines = []
    below = [c for c in impact.categories if not c.small and c.ratio.value < FOUR_FIFTHS]
    unsure = [
        c
        for c in impact.categories
        if not c.small and c.ratio.value >= FOUR_FIFTHS and c.both[0] < FOUR_FIFTHS
    ]
    if below:
        named = joined([f"{c.name} ({c.ratio.value:.2f})" for c in below])
        lines.append(f"Below four fifths of the rate of {impact.most_selected}: {named}.")
    else:
        lines.append(f"No category is below four fifths of the rate of {impact.most_selected}.")
    if unsure:
        named = joined([f"{c.name} (as low as {c.both[0]:.2f})" for c in unsure])
        lines.append(
            f"At or above it, but not for sure, given the unknown and sampling error: {named}."
        )
    small = [f"{c.name} ({count(c.assessed)})" for c in impact.categories if c.small]
    if small:
        lines.append(
            f"Under {100 * LEAST_SHARE:g} % of the people and in no comparison: {joined(small)}."
        )
    share = impact.unknown / found.rows
    lines.append(
        f"Left out because {impact.attribute} is unknown: {count(impact.unknown)} of "
        f"{count(found.rows)} people ({percent(share)} %), {count(impact.unknown_selected)} of "
        "them selected."
    )
    return lines


def _cells(c: Category, most: str) -> list[str]:
    small = " (under 2 %)" if c.small else ""
    numbers = [c.name + small, count(c.assessed), count(c.selected), percent(c.rate)]
    if c.small:
        return [*numbers, *["–"] * 7]
    if c.name == most:
        return [*numbers, "1.00", "most selected", _span(c.bounds), _span(c.both), "", "", ""]
    p = "< 0.001" if c.fisher < 0.001 else f"{c.fisher:.3f}"
    return [
        *numbers, f"{c.ratio.value:.2f}", _span((c.ratio.low, c.ratio.high)), _span(c.bounds),
        _span(c.both), count(c.shortfall), f"{c.deviations:.1f}".replace("-", "−"), p,
    ]  # fmt: skip


def _span(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} – {ends[1]:.2f}"


def _header_rows(found: BiasAudit) -> list[tuple[str, str]]:
    rows = [(label, found.header.get(key, "not given")) for key, label in HEADER.items()]
    rate = "selection rate"
    if found.median is not None:
        rate = f"scoring rate: share above the median score of the sample, {found.median:g}"
    return [
        *rows,
        ("People assessed", count(found.rows)),
        ("Rate", rate),
        ("Made by", f"shasam {shasam.__version__}"),
        ("SHA-256 of the data", found.data_sha256),
        ("SHA-256 of the result", hash_of(found.result)),
    ]


def print_bias_audit(found: BiasAudit, screen: Screen) -> None:
    """Print header, sentences and tables on the terminal."""
    for label, value in _header_rows(found):
        screen.print(f"{label}: {value}")
    for impact in found.impacts:
        screen.print()
        screen.print(f"By {impact.attribute}", style="bold")
        for line in says(found, impact):
            screen.print(line)
        shown = ScreenTable(box=box.SIMPLE_HEAD)
        shown.add_column(_HEAD[0], overflow="fold", min_width=16)
        for i in _NARROW:
            shown.add_column(_HEAD[i], justify="right")
        for c in impact.categories:
            cells = _cells(c, impact.most_selected)
            narrow = [cells[0], *(cells[i] for i in _NARROW)]
            shown.add_row(*narrow, style="dim" if c.small else None)
        screen.print(shown)


def bias_audit_csv(found: BiasAudit) -> str:
    """Return a line for each category of each table."""
    head: list[Any] = ["attribute"]
    head += [k for k in found.impacts[0].categories[0].as_dict()]
    lines: list[list[Any]] = [head]
    for impact in found.impacts:
        for c in impact.categories:
            values = [
                " to ".join(str(x) for x in v if x is not None) if isinstance(v, list) else v
                for v in c.as_dict().values()
            ]
            lines.append([impact.attribute, *values])
    for impact in found.impacts:
        lines.append([impact.attribute, "(unknown)", impact.unknown, impact.unknown_selected])
    return csv_text(lines)


def bias_audit_markdown(found: BiasAudit) -> str:
    """Return the form as Markdown."""
    lines = ["# Bias audit (NYC Local Law 144)", ""]
    lines += markdown_table(
        ["", ""], [[markdown_text(a), markdown_text(b)] for a, b in _header_rows(found)]
    )
    for impact in found.impacts:
        lines += ["", f"## By {markdown_text(impact.attribute)}", ""]
        lines += [f"- {markdown_text(line)}" for line in says(found, impact)]
        rows = [
            [markdown_text(x) for x in _cells(c, impact.most_selected)] for c in impact.categories
        ]
        lines += ["", *markdown_table([markdown_text(h) for h in _HEAD], rows)]
    return "\n".join(lines) + "\n"


def bias_audit_page(found: BiasAudit) -> str:
    """Return the form as one page that loads nothing and prints on paper."""
    folder = files("shasam.report").joinpath("templates")
    style = folder.joinpath("form.css").read_text(encoding="utf-8").strip()
    environment = Environment(
        loader=PackageLoader("shasam.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("form.html.j2").render(
        style=Markup(style),  # noqa: S704 - our own file
        csp=style_hash(style),
        version=shasam.__version__,
        header=_header_rows(found),
        head=_HEAD,
        tables=[
            {
                "title": f"By {impact.attribute}",
                "says": says(found, impact),
                "rows": [
                    {"cells": _cells(c, impact.most_selected), "small": c.small}
                    for c in impact.categories
                ],
            }
            for impact in found.impacts
        ],
    )


def write_bias_audit(
    found: BiasAudit, *, json_file: Path | None, html: Path | None, csv: Path | None,
    markdown: Path | None,
) -> list[str]:  # fmt: skip
    """Write the files that were asked for; returns lines that say where they are."""
    made = (
        ("numbers", json_file, found.to_json),
        ("page", html, found.to_html),
        ("table", csv, found.to_csv),
        ("text", markdown, found.to_markdown),
    )
    lines = []
    for what, file, write in made:
        if file is not None:
            write(file)
            lines.append(f"{what}: {file}")
    return lines
