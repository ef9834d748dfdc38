"""Predictions of many rows, as a stream: what is decoded ahead is bounded, whatever the input."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from shasam.data.decode import BadImage, decode
from shasam.data.features import Features, open_features
from shasam.data.files import EXTENSIONS, Folder
from shasam.data.vectors import NOT_FINITE
from shasam.errors import InputError
from shasam.output.csv_text import Cell
from shasam.pipeline.load import Model
from shasam.tables import open_table

AHEAD = 2  # batches that are decoded while one is predicted
_TASK = 16  # images that a thread decodes at a time
# files that people take for images; what cannot be read of them gets a row that says why
PICTURES = (*EXTENSIONS, ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jfif")


@dataclass(frozen=True)
class Item:
    """One row to predict: an image below a folder, and its group where a table tells it."""

    path: str
    group: object = None


def cores() -> int:
    """The processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def walk(folder: Path) -> Iterator[str]:
    """Files below a folder, relative, with /; a folder at a time, links to folders not followed."""
    for here, folders, files in os.walk(folder):
        folders.sort()
        base = Path(here).relative_to(folder).as_posix()
        yield from (name if base == "." else f"{base}/{name}" for name in sorted(files))


def is_picture(path: str) -> bool:
    return path.lower().endswith(PICTURES)


def count_files(folder: Path) -> tuple[int, Counter[str]]:
    """How many pictures a folder holds, and how many other files by the endings of their names."""
    pictures, others = 0, Counter[str]()
    for path in walk(folder):
        if is_picture(path):
            pictures += 1
        else:
            others[Path(path).suffix.lower()[:12] or "no ending"] += 1
    return pictures, others


def table_items(
    path: Path, folder: Folder, path_column: str, group_column: str | None
) -> Iterator[Item]:
    """The rows of a list of images."""
    table = open_table(path)
    columns = [path_column, *([group_column] if group_column else [])]
    for part in table.batches(columns):
        paths = part.column(path_column).to_pylist()
        groups = part.column(group_column).to_pylist() if group_column else [None] * len(paths)
        for name, group in zip(paths, groups, strict=True):
            text = "" if name is None else str(name).strip()
            yield Item(folder.relative(text) if text else "", group)


def image_rows(
    model: Model, items: Iterable[Item], folder: Folder, *, batch: int, jobs: int
) -> Iterator[list[Cell]]:
    """A row for each item, in their order: path, class, probabilities, and what is wrong."""
    size, waiting = model.spec.data.size, iter(items)
    ahead: deque[tuple[list[Item], list[Future[list[np.ndarray | str]]]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        while chunk := list(islice(waiting, batch)):
            parts = [chunk[k : k + _TASK] for k in range(0, len(chunk), _TASK)]
            ahead.append((chunk, [pool.submit(_decoded, part, folder, size) for part in parts]))
            if len(ahead) > AHEAD:
                yield from _scored(model, *ahead.popleft())
        while ahead:
            yield from _scored(model, *ahead.popleft())


def _decoded(items: list[Item], folder: Folder, size: int) -> list[np.ndarray | str]:
    """Pixels of each image, or why there are none."""
    found: list[np.ndarray | str] = []
    for item in items:
        try:
            found.append(decode(folder.read(item.path), size) if item.path else "no path")
        except BadImage as error:
            found.append(str(error))
    return found


def _scored(
    model: Model, items: list[Item], futures: list[Future[list[np.ndarray | str]]]
) -> Iterator[list[Cell]]:
    found = [one for future in futures for one in future.result()]
    names, groups = [item.path for item in items], [item.group for item in items]
    return _rows(model, names, groups, found)


def _rows(
    model: Model, names: list[str], groups: list[object], found: list[np.ndarray | str]
) -> Iterator[list[Cell]]:
    """Predict what can be predicted; the others keep their reason."""
    numbers: list[int] = []
    for place, group in enumerate(groups):
        number = model.group_number(group) if model.decides_by_group else 0
        numbers.append(0 if number is None else number)
        if number is None and not isinstance(found[place], str):
            found[place] = f"no group of this model: {group!r:.60}"
    good = [place for place, one in enumerate(found) if not isinstance(one, str)]
    answers: Iterator[tuple[str, np.ndarray]] = iter(())
    if good:
        answer = model.predict(
            np.stack([found[place] for place in good]),
            [numbers[place] for place in good],
            [names[place] for place in good],
        )
        answers = zip(answer.labels, answer.scores, strict=True)
    for name, one in zip(names, found, strict=True):
        if isinstance(one, str):
            yield [name, "", *("" for _ in model.classes), one]
        else:
            label, scores = next(answers)
            yield [name, label, *(f"{p:.6f}" for p in scores), ""]


def open_vectors(model: Model, path: Path) -> Features:
    """The vectors of a file, if they are as long as those that the model was trained on."""
    data = model.spec.data
    if data.features_dim is None:
        raise InputError(f"this model reads images, and {path.name} holds vectors")
    same = data.features is not None and data.features.suffix == path.suffix
    ids = (data.id_column,) if data.id_column else ("id", "ids")
    features = open_features(path, data.features_key if same else None, ids)
    if features.dim != data.features_dim:
        raise InputError(
            f"{path.name} has vectors of {features.dim} numbers and this model was trained on "
            f"{data.features_dim}"
        )
    return features


def vector_rows(
    model: Model, features: Features, groups: list[object] | None, *, batch: int
) -> Iterator[list[Cell]]:
    """A row for each vector: its id or row number, class, probabilities, and what is wrong."""
    for start in range(0, len(features), batch):
        rows = np.arange(start, min(start + batch, len(features)))
        x = features.take(rows)
        good = np.isfinite(x).all(1)
        found: list[np.ndarray | str] = [
            one if ok else NOT_FINITE for one, ok in zip(x, good, strict=True)
        ]
        names = [str(row) if features.ids is None else features.ids[row] for row in rows.tolist()]
        given = [None] * len(rows) if groups is None else groups[start : start + len(rows)]
        yield from _rows(model, names, list(given), found)
