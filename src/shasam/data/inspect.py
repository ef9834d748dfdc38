"""Describe a data set before training: cells, imbalance, correlations, a contact sheet."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image, ImageDraw, ImageFont

from shasam.data.dataset import Dataset
from shasam.data.source import Source
from shasam.data.splits import DAMAGED, DATE_OF_RANGE, SPLITS
from shasam.data.store import Store
from shasam.data.vector_files import VectorStore
from shasam.files import named_file
from shasam.keyed import keys, uniform

# -------------------------------------------------------------------------------------------------
# What is in a data set: cells, imbalance, correlations of labels, and what was left out.
# -------------------------------------------------------------------------------------------------

_BINS = 8  # a numeric attribute is cut at its quantiles to be compared with labels


@dataclass(frozen=True)
class Cells:
    """Counts (C, G) of one split, and three numbers that sum up how uneven they are."""

    split: str
    counts_CG: np.ndarray

    @property
    def class_ratio(self) -> float:
        """Largest class over the smallest; NaN if a class is empty."""
        return _ratio(self.counts_CG.sum(1))

    @property
    def group_ratio(self) -> float:
        return _ratio(self.counts_CG.sum(0))

    @property
    def cell_ratio(self) -> float:
        return _ratio(self.counts_CG.reshape(-1))

    @property
    def association(self) -> float:
        """Cramér's V of target and sensitive attribute: 0 is independent, 1 is the same."""
        return cramers_v(self.counts_CG)


def _ratio(counts: np.ndarray) -> float:
    return float(counts.max() / counts.min()) if counts.min() > 0 else float("nan")


def cramers_v(counts: np.ndarray) -> float:
    """Return sqrt(chi² / (n (min(rows, columns) - 1))).

    NaN if a whole row or column is empty.
    """
    counts = np.asarray(counts, dtype=np.float64)
    n, rows, cols = counts.sum(), counts.sum(1), counts.sum(0)
    if n == 0 or (rows == 0).any() or (cols == 0).any() or min(counts.shape) < 2:
        return float("nan")
    expected = rows[:, None] * cols[None, :] / n
    return float(np.sqrt(((counts - expected) ** 2 / expected).sum() / n / (min(counts.shape) - 1)))


def cells(data: Dataset) -> list[Cells]:
    """Return the table of cells for each split."""
    found = []
    for split in SPLITS:
        rows = data.rows(split)
        rows = rows[data.s_N[rows] >= 0]  # others are in no cell
        flat = data.t_N[rows] * data.groups + data.s_N[rows]
        counts = np.bincount(flat, minlength=data.classes * data.groups)
        found.append(Cells(split, counts.reshape(data.classes, data.groups)))
    return found


def associations(data: Dataset) -> list[tuple[str, float, float]]:
    """Return each attribute with its Cramér's V to the target and to the sensitive attribute, in
    train.
    """
    rows = data.rows("train")
    rows = rows[data.s_N[rows] >= 0]
    names = {"id", "path", "key", "split", "identity", data.spec.identity_column}
    table = data.attributes.take(pa.array(rows))
    found = []
    for name in table.column_names:
        codes = None if name in names else _codes(table.column(name))
        if codes is not None:
            pair = [cramers_v(_crosstab(codes, labels[rows])) for labels in (data.t_N, data.s_N)]
            found.append((name, pair[0], pair[1]))
    return sorted(found, key=lambda item: -np.nan_to_num(max(item[1], item[2])))


def _codes(column: pa.ChunkedArray) -> np.ndarray | None:
    """Return categories of a column; quantile bins of a numeric one; None for free text."""
    if column.null_count:
        return None
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        values = column.to_numpy()
        distinct = np.unique(values)
        if len(distinct) > _BINS:
            distinct = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[:-1]))
        return np.searchsorted(distinct, values, side="right") - 1
    if pa.types.is_string(column.type):
        values, codes = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)
        return codes if 1 < len(values) <= 64 else None
    return None


def _crosstab(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.zeros((int(a.max()) + 1, int(b.max()) + 1))
    np.add.at(out, (a, b), 1)
    return out[out.sum(1) > 0][:, out.sum(0) > 0]


@dataclass(frozen=True)
class Copies:
    """Byte-identical files of a whole source, before any label or split."""

    groups: int  # contents that occur more than once
    files: int  # files that share their content with another
    redundant: int  # files beyond the first of each content
    conflicting: int  # files in groups whose attributes disagree
    examples: Sequence[Sequence[str]]


def copies(source: Source, store: Store | VectorStore) -> Copies:
    """Count the duplicates of a source by their content hash."""
    hashes = store.index.column("content_hash").to_pylist()
    table = source.table()
    by_hash: Mapping[str, list[int]] = defaultdict(list)
    for row, value in enumerate(hashes):
        if value:
            by_hash[value].append(row)
    groups = [rows for rows in by_hash.values() if len(rows) > 1]
    labels = table.drop_columns(
        [c for c in ("id", "path", "split", "identity", "key") if c in table.column_names]
    )
    conflicting = 0
    for rows in groups:
        values = {tuple(sorted(r.items())) for r in labels.take(pa.array(rows)).to_pylist()}
        conflicting += len(rows) if len(values) > 1 else 0
    ids = table.column("id")
    files = sum(map(len, groups))
    return Copies(
        len(groups), files, files - len(groups), conflicting,
        [[str(ids[r]) for r in rows] for rows in groups[:5]],
    )  # fmt: skip


REPEATED = re.compile(r"row \d+ repeats row \d+\Z")


def dates_of_ranges(table: pa.Table) -> list[str]:
    """Return a sentence for each column whose ranges a spreadsheet has made dates of."""
    said = []
    for name in table.column_names:
        column = table.column(name)
        if name in ("id", "path") or not pa.types.is_string(column.type):
            continue
        values = pc.unique(column).to_pylist()
        dates = [v for v in values if v is not None and DATE_OF_RANGE.match(v.strip())]
        if dates:
            rows = sum(v in set(dates) for v in column.to_pylist())
            shown = ", ".join(map(repr, dates[:3]))
            said.append(f"the column {name!r} has {shown} ({rows:,} rows): {DAMAGED}")
    return said


def reasons(excluded: Iterable[Mapping[str, str]]) -> Counter[str]:
    """Return how many images were left out for which kind of reason (names of files taken off)."""
    kinds: Counter[str] = Counter()
    for item in excluded:
        words = item["reason"]
        if words.startswith("duplicate of "):
            words = "duplicate" + (" with another label" if "another label" in words else "")
        elif REPEATED.match(words):
            words = "repeats an earlier row"
        kinds[words] += 1
    return kinds


# -------------------------------------------------------------------------------------------------
# A contact sheet: some pictures of each cell (target x sensitive) of a split.
# -------------------------------------------------------------------------------------------------

_MARGIN, _TITLE = 8, 22
_INK, _PAPER = (40, 40, 40), (255, 255, 255)


def contact_sheet(
    data: Dataset, path: Path, *, split: str = "train", columns: int = 12, rows: int = 2
) -> Path:
    """Write a PNG with ``rows`` x ``columns`` pictures per cell; the same ones for a seed."""
    size = data.spec.size
    zoom = max(1, round(72 / size))
    tile = size * zoom
    block = _TITLE + rows * (tile + 2) + _MARGIN
    cells = [(t, s) for t in range(data.classes) for s in range(data.groups)]
    width = 2 * _MARGIN + columns * (tile + 2)
    sheet = Image.new("RGB", (width, _TITLE + _MARGIN + block * len(cells)), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    mark = f"{data.spec.name}, {split}, manifest {data.manifest.sha256[:12]}"
    draw.text((_MARGIN, 4), mark, fill=_INK, font=font)
    among = data.rows(split)
    for number, (t, s) in enumerate(cells):
        here = among[(data.t_N[among] == t) & (data.s_N[among] == s)]
        order = np.argsort(uniform(keys(data.spec.seed, here), 1)[:, 0], kind="stable")
        chosen = here[order[: rows * columns]]
        top = _TITLE + _MARGIN + number * block
        title = f"{data.target_names[t]} / {data.sensitive_names[s]}: {len(here):,}"
        draw.text((_MARGIN, top), title, fill=_INK, font=font)
        pixels = data.store.images(data.store_rows[chosen])
        for k, picture in enumerate(pixels):
            image = Image.fromarray(picture)
            image = image.resize((tile, tile), Image.Resampling.BICUBIC) if zoom > 1 else image
            x = _MARGIN + (k % columns) * (tile + 2)
            sheet.paste(image, (x, top + _TITLE + (k // columns) * (tile + 2)))
    with named_file(path) as file:
        sheet.save(file, format="PNG")
    return path
