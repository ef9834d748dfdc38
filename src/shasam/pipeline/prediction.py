"""Predictions of many rows, as a stream: what is decoded ahead is bounded, whatever the input."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.data.decode import BadImage, decode
from shasam.data.folder import EXTENSIONS, Folder, check_named
from shasam.data.rules import Labelling, apply_rule, crossed
from shasam.data.vector_files import NOT_FINITE, VectorRows, open_features
from shasam.errors import DataError, InputError
from shasam.output import cell_text, text_cells
from shasam.pipeline.load import UNKNOWN, Answer, Model
from shasam.rule_text import columns_of_rule
from shasam.tables import NO_VALUE, TableFile, open_table
from shasam.types import attribute_columns

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
    others: str = ""  # the cells of the row that are kept, each with a comma in front


@dataclass(frozen=True)
class PredictionBlock:
    """Some rows that were predicted together."""

    names: list[str]  # path, id or number of every row
    answer: Answer  # of the rows without a problem, in their order
    problems: dict[int, str]  # place of a row -> why there is no prediction
    others: list[str] | None = None  # cells that are kept, each with a comma in front

    def csv(self, classes: Sequence[str]) -> str:
        """Return a line for each row.

        Name, class, probabilities, what is wrong, and what is kept.
        """
        labels = {name: cell_text(name) for name in classes}
        rows = zip(self.answer.labels, _decimals(self.answer.scores), strict=True)
        answers = [f",{labels[label]}{scores}," for label, scores in rows]
        nothing = "," * (2 + len(classes))
        for place, why in sorted(self.problems.items()):
            answers.insert(place, f"{nothing}{cell_text(why)}")
        if self.others is not None:
            pairs = zip(answers, self.others, strict=True)
            answers = [f"{answer}{cells}" for answer, cells in pairs]
        lines = zip(text_cells(self.names), answers, strict=True)
        return "".join([f"{name}{answer}\n" for name, answer in lines])


def _decimals(scores_nC: np.ndarray) -> list[str]:
    """Return each row as in ",0.123456,0.876544"; number by number takes three times as long.

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
    """Return the processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def walk(folder: Path) -> Iterator[str]:
    """Yield files below a folder, relative, with /.

    A folder at a time, links to folders not followed.
    """
    for here, folders, files in os.walk(folder):
        folders.sort()
        base = Path(here).relative_to(folder).as_posix()
        yield from (name if base == "." else f"{base}/{name}" for name in sorted(files))


def is_picture(path: str) -> bool:
    return path.lower().endswith(PICTURES)


def count_files(folder: Path) -> tuple[int, Counter[str]]:
    """Return how many pictures a folder holds, and how many other files by the endings of their
    names.
    """
    pictures, others = 0, Counter[str]()
    for path in walk(folder):
        if is_picture(path):
            pictures += 1
        else:
            others[Path(path).suffix.lower()[:12] or "no ending"] += 1
    return pictures, others


@dataclass(frozen=True)
class OtherColumns:
    """The columns of a table that are written beside the predictions, as they were read.

    Where the columns are there that the model's target and groups were made of, both are written
    too, under the names that an audit looks for.
    """

    table: TableFile
    names: Sequence[str]  # of the table
    truth: Mapping[str, Sequence[str]]  # target, sensitive -> a name for each row, "" for none

    @property
    def head(self) -> list[str]:
        return [*self.truth, *self.names]

    def cells(self) -> Iterator[str]:
        """Yield what is added to the line of each row."""
        made = zip(*self.truth.values(), strict=True) if self.truth else repeat(())
        for part in self.table.batches(self.names, text=self.names) if self.names else ():
            kept = zip(*(part.column(name).to_pylist() for name in self.names), strict=True)
            for row in kept:
                yield "".join(f",{cell_text(_plain(v))}" for v in (*next(made), *row))
        if not self.names:
            yield from ("".join(f",{cell_text(v)}" for v in row) for row in made)

    def beside(self, blocks: Iterable[PredictionBlock]) -> Iterator[PredictionBlock]:
        """Yield the blocks with the cells of their rows."""
        cells = self.cells()
        for block in blocks:
            own = list(islice(cells, len(block.names)))
            if len(own) < len(block.names):
                raise InputError(f"{self.table.name} has fewer rows than there are vectors")
            yield replace(block, others=own)


def other_columns(model: Model, table: TableFile, keep: str, used: Sequence[str]) -> OtherColumns:
    """Choose columns: ``keep`` is all, none or names with commas; ``used`` the output has anyway.

    With an empty ``keep`` the target and the groups are written and no column as it is.
    """
    known = [name for name in table.column_names if table.column_names.count(name) == 1]
    wanted = known if keep == "all" else []
    if keep not in ("all", "none", ""):
        wanted = [word.strip() for word in keep.split(",")]
        check_named({name: name for name in wanted}, table.column_names, table.name)
    truth = {} if keep == "none" else _truth(model, table)
    taken = {*used, *truth}
    return OtherColumns(table, [name for name in wanted if name not in taken], truth)


def _truth(model: Model, table: TableFile) -> dict[str, list[str]]:
    """Return the target and the group of each row, where the table has the columns for both.

    A sensitive number stays a number, under its own name; so do attributes beside it.
    """
    data = model.spec.data
    found: dict[str, list[str]] = {}
    for role, rules, names in (
        ("target", (data.target,) if data.target else (), model.classes),
        ("sensitive", data.sensitive or (), model.groups),
    ):
        if role == "sensitive" and data.sensitive_as == "number":
            of_each = [_as_written(rule, table) for rule in rules]
            if any(values is None for values in of_each):
                return {}
            found |= zip(attribute_columns(rules), of_each, strict=True)  # type: ignore[arg-type]
            continue
        labelled = [_labelled(rule, role, table) for rule in rules]
        known = [labelling for labelling in labelled if labelling is not None]
        if not rules or len(known) < len(rules):
            return {}
        made = known[0] if len(known) == 1 else crossed(known)
        if not set(made.names) <= {*names, NO_VALUE}:
            return {}
        found[role] = [made.names[code] if code >= 0 else "" for code in made.codes.tolist()]
    return found


def _as_written(rule: str, table: TableFile) -> list[str] | None:
    """Return a column as it is, or the groups of a rule; None where the table lacks the column."""
    if rule in table.column_names:
        values = table.read([rule]).column(rule).to_pylist()
        return ["" if value is None else str(value) for value in values]
    found = _labelled(rule, "sensitive", table)
    if found is None:
        return None
    return [found.names[code] if code >= 0 else "" for code in found.codes.tolist()]


def _labelled(rule: str, role: str, table: TableFile) -> Labelling | None:
    """Return the labels that a rule makes of a table.

    None if it lacks a column or makes one group.
    """
    columns = columns_of_rule(rule, table.column_names)
    if rule in table.column_names:
        columns = [rule]
    if columns is None or not set(columns) <= set(table.column_names):
        return None
    try:
        return apply_rule(rule, table.read(list(dict.fromkeys(columns))), what=role)
    except DataError:  # one value only, say: nothing that groups could be compared by
        return None


def _plain(value: Any) -> Any:
    """Return a cell of a table as something that a CSV can hold."""
    return value if value is None or isinstance(value, int | float | str) else str(value)


def table_items(
    path: Path,
    folder: Folder,
    path_column: str,
    group_column: str | None,
    kept: OtherColumns | None = None,
) -> Iterator[Item]:
    """Yield the rows of a list of images."""
    table = open_table(path)
    columns = [path_column, *([group_column] if group_column else [])]
    others = repeat("") if kept is None else kept.cells()
    for part in table.batches(columns, text=[path_column]):
        paths = part.column(path_column).to_pylist()
        groups = part.column(group_column).to_pylist() if group_column else [None] * len(paths)
        for name, group in zip(paths, groups, strict=True):
            text = "" if name is None else str(name).strip()
            yield Item(folder.relative(text) if text else "", group, next(others))


def image_blocks(
    model: Model, items: Iterable[Item], folder: Folder, *, batch: int, jobs: int
) -> Iterator[PredictionBlock]:
    """Yield the images in their order, ``batch`` at a time; the next ones are decoded meanwhile."""
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
    """Return pixels of each image, or why there are none."""
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
    names = [item.path for item in items]
    block = _block(model, names, groups, pixels, problems, len(items))
    return replace(block, others=[item.others for item in items])


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
    """Return the vectors of a file, if they are as long as those that the model was trained on."""
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
    """Yield the vectors in their order, some batches at a time; named by their id or number."""
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
