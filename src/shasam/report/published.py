"""Numbers that others have printed; ``published.json`` holds them all, table by table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from shasam.errors import SpecError
from shasam.registry import did_you_mean


@dataclass(frozen=True)
class PublishedResult:
    """One printed result, in per cent and points as printed."""

    method: str
    eo: float
    accuracy: float
    source: str


@dataclass(frozen=True)
class PublishedNumber:
    """One printed number, in per cent and points."""

    value: float
    deviation: float | None = None  # over the authors' runs, where they printed it


@dataclass(frozen=True)
class PublishedTable:
    """A table as it was printed: rows, columns (settings) and metrics by name."""

    name: str
    source: str
    metrics: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Mapping[str, list[list[float]]]
    deviations: Mapping[str, list[list[float]]]
    doubts: Mapping[str, str]  # row -> what contradicts its numbers elsewhere in the paper

    def get(self, row: str, column: str, metric: str) -> PublishedNumber | None:
        """Return a number of the table, or None if it was not printed."""
        if row not in self.rows or column not in self.columns or metric not in self.metrics:
            return None
        i, m = self.columns.index(column), self.metrics.index(metric)
        deviation = self.deviations[row][i][m] if row in self.deviations else None
        return PublishedNumber(self.rows[row][i][m], deviation)


def printed_table(name: str) -> PublishedTable:
    """Return a table by its name in ``published.json``, such as ``table2``."""
    tables = _data()["tables"]
    if name not in tables:
        raise SpecError(f"there is no published table {name!r}{did_you_mean(name, tables)}")
    body, sources = tables[name], _data()["sources"]
    source = sources[body["source"]]
    if "deviations" in body:
        source += f"; deviations: {sources[body['deviations_from']]}"
    return PublishedTable(
        name,
        source,
        tuple(body["metrics"]),
        tuple(body["columns"]),
        body["rows"],
        body.get("deviations", {}),
        body.get("doubts", {}),
    )


def published(protocol: Mapping[str, Any]) -> list[PublishedResult]:
    """Return the printed results for a protocol's data, target, sensitive attribute and bias.

    Of the tables that print EO and accuracy; where two have the same setting, the first one, which
    is the main table of the paper.
    """
    for name, body in _data()["tables"].items():
        if body["data"] != _plain(protocol.get("source")):
            continue
        for column, setting in body["columns"].items():
            same = all(_plain(protocol.get(k)) == setting[k] for k in ("target", "sensitive"))
            alpha = setting.get("alpha")
            if same and (alpha is None or alpha == protocol.get("alpha")):
                return _results(printed_table(name), column)
    return []


def _results(table: PublishedTable, column: str) -> list[PublishedResult]:
    out = []
    for row in table.rows:
        eo, accuracy = (table.get(row, column, metric) for metric in ("eo_mean", "accuracy"))
        if eo is not None and accuracy is not None:
            out.append(PublishedResult(row, eo.value, accuracy.value, table.source))
    return out


@cache
def _data() -> dict[str, Any]:
    text = files("shasam.report").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)


def _plain(value: Any) -> str:
    return str(value).lower().replace(" ", "_").replace("_&_", "&")
