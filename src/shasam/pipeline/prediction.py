"""Predictions of many rows, as a stream: what is decoded ahead is bounded, whatever the input."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shasam.data.decode import BadImage, decode
from shasam.data.folder import EXTENSIONS, Folder
from shasam.data.vector_files import NOT_FINITE, VectorRows, open_features
from shasam.errors import InputError
from shasam.output import cell_text, text_cells
from shasam.pipeline.load import UNKNOWN, Answer, Model
from shasam.tables import open_table

AHEAD = 2  # batches that are decoded while one is predicted
_TASK = 16  # images that a thread decodes at a time
_BATCHES = 16  # batches of vectors that are read and written at a time
# files that people take for images; what cannot be read of them gets a row that says why
PICTURES = (*EXTENSIONS, ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jfif")


@dataclass(frozen=True)
class Item:
    """One row to predict: an image below a folder, and its group where a table tells it."""

    path: str
    group: object = None


@dataclass(frozen=True)
class PredictionBlock:
    """Some rows that were predicted together."""

    names: list[str]  # path, id or number of every row
    answer: Answer  # of the rows without a problem, in their order
    problems: dict[int, str]  # place of a row -> why there is no prediction

    def csv(self, classes: Sequence[str]) -> str:
        """A line for each row: name, class, probabilities, and what is wrong."""
        labels = {name: cell_text(name) for name in classes}
        rows = zip(self.answer.labels, _decimals(self.answer.scores), strict=True)
        if not self.problems:
            whole = zip(text_cells(self.names), rows, strict=True)
            return "".join([f"{name},{labels[c]}{scores},\n" for name, (c, scores) in whole])
        answers = [f",{labels[label]}{scores},\n" for label, scores in rows]
        nothing = "," * (2 + len(classes))
        for place, why in sorted(self.problems.items()):
            answers.insert(place, f"{nothing}{cell_text(why)}\n")
        lines = zip(text_cells(self.names), answers, strict=True)
        return "".join([name + answer for name, answer in lines])


def _decimals(scores_nC: np.ndarray) -> list[str]:
    """Each row as in ",0.123456,0.876544"; number by number takes three times as long.

    The rounding is that of "%.6f", because a million times a float32 is exact in float64.
    """
    if not np.isfinite(scores_nC).all():
        return ["".join(f",{p:.6f}" for p in row) for row in scores_nC.tolist()]
    millionths = np.rint(scores_nC.astype(np.float64) * 1e6).astype(np.int64)
    text = np.full((*scores_nC.shape, len(",0.123456")), ord("."), np.uint8)
    text[..., 0] = ord(",")
    for place in (1, 3, 4, 5, 6, 7, 8):
        text[..., place] = ord("0") + millionths // 10 ** min(6, 8 - place) % 10
    width, whole = text.shape[1] * text.shape[2], text.tobytes().decode("ascii")
    return [whole[at : at + width] for at in range(0, len(whole), width)]


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


def image_blocks(
    model: Model, items: Iterable[Item], folder: Folder, *, batch: int, jobs: int
) -> Iterator[PredictionBlock]:
    """The images in their order, ``batch`` at a time; the next ones are decoded meanwhile."""
    size, waiting = model.size, iter(items)
    ahead: deque[tuple[list[Item], list[Future[list[np.ndarray | str]]]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        while chunk := list(islice(waiting, batch)):
            parts = [chunk[k : k + _TASK] for k in range(0, len(chunk), _TASK)]
            ahead.append((chunk, [pool.submit(_decoded, part, folder, size) for part in parts]))
            if len(ahead) > AHEAD:
                yield _of_images(model, *ahead.popleft())
        while ahead:
            yield _of_images(model, *ahead.popleft())


def _decoded(items: list[Item], folder: Folder, size: int) -> list[np.ndarray | str]:
    """Pixels of each image, or why there are none."""
    found: list[np.ndarray | str] = []
    for item in items:
        try:
            found.append(decode(folder.read(item.path), size) if item.path else "no path")
        except BadImage as error:
            found.append(str(error))
    return found


def _of_images(
    model: Model, items: list[Item], futures: list[Future[list[np.ndarray | str]]]
) -> PredictionBlock:
    found = [one for future in futures for one in future.result()]
    problems = {place: one for place, one in enumerate(found) if isinstance(one, str)}
    read = [one for one in found if not isinstance(one, str)]
    pixels = torch.from_numpy(np.stack(read)).permute(0, 3, 1, 2) if read else torch.empty(0)
    groups = [item.group for item in items]
    return _block(model, [item.path for item in items], groups, pixels, problems, len(items))


def _block(
    model: Model,
    names: list[str],
    groups: list[object] | None,
    inputs: Tensor,
    problems: dict[int, str],
    batch: int,
) -> PredictionBlock:
    """Predict the ``inputs``, which are those of the rows without a problem."""
    numbers = np.full(len(inputs), UNKNOWN)
    if not problems and not model.decides_by_group:
        return PredictionBlock(names, model.answer(inputs, numbers, names, batch), problems)
    good = [place for place in range(len(names)) if place not in problems]
    if model.decides_by_group and groups is not None:
        known = [model.group_number(groups[place]) for place in good]
        for place, number in zip(good, known, strict=True):
            if number is None:
                problems[place] = f"no group of this model: {groups[place]!r:.60}"
        kept = [at for at, number in enumerate(known) if number is not None]
        inputs, good = inputs[kept], [good[at] for at in kept]
        numbers = np.array([known[at] for at in kept], dtype=np.int64)
    ids = [names[place] for place in good] if problems else names
    answer = model.answer(inputs, numbers, ids, batch)
    return PredictionBlock(names, answer, problems)


def open_vectors(model: Model, path: Path) -> VectorRows:
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


def vector_blocks(
    model: Model, features: VectorRows, groups: list[object] | None, *, batch: int
) -> Iterator[PredictionBlock]:
    """The vectors in their order, some batches at a time; named by their id or number."""
    for start in range(0, len(features), _BATCHES * batch):
        stop = min(start + _BATCHES * batch, len(features))
        x = np.require(features.take(slice(start, stop)), requirements="W")
        problems: dict[int, str] = {}
        with np.errstate(over="ignore", invalid="ignore"):
            sums = x.sum(1)
        if not np.isfinite(sums).all():  # finite sums have no NaN or infinity in them
            finite = np.isfinite(x).all(1)
            problems = dict.fromkeys(np.flatnonzero(~finite).tolist(), NOT_FINITE)
            x = x[finite]
        ids = features.ids
        names = [str(row) for row in range(start, stop)] if ids is None else ids[start:stop]
        given = None if groups is None else groups[start:stop]
        yield _block(model, names, given, torch.from_numpy(x), problems, batch)
