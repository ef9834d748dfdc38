"""``shasam predict``: a trained model on images or vectors of one's own, to a CSV file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from shasam.pipeline.load import Model
    from shasam.pipeline.prediction import OtherColumns, PredictionBlock


TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather")


def predict(
    run: str,
    images: Path,
    *,
    out: Path = Path("predictions.csv"),
    root: Path | None = None,
    path_column: str | None = None,
    group_column: str | None = None,
    keep: str = "all",
    csv: Path | None = None,
    encoder: str | None = None,
    batch: int = 256,
    jobs: int | None = None,
    device: Literal["cpu", "cuda", "mps"] = "cpu",
) -> None:
    """Predict images or vectors with a trained model.

    The CSV file has a row for each image or vector, with the probabilities of all classes. Rows are
    written as they are predicted, so that any number of images can be predicted.

    Parameters
    ----------
    run
        The run directory of a trained model, a folder that export wrote, or a hub id.
    images
        A folder, searched with its subfolders; one image; or a table with paths (CSV, Parquet or
        Arrow). For a model of vectors: a file of them (.npy, .npz, .safetensors, Parquet, Arrow),
        or, where `shasam embed` made them, images as well (a folder, an image or a CSV table).
    out
        The CSV file to write.
    root
        The folder that the paths of a table are relative to; else the folder of the table.
    path_column
        The column of a table with the path of each image; else the one of training.
    group_column
        The column with the sensitive group, for models that decide by group (posthoc).
    keep
        Other columns of a table that are written beside the predictions: all, none, or names with
        commas. `shasam audit` reads such a file; where the columns of the model's target and
        groups are there, it needs no flags.
    csv
        For vectors: the table with the group column and those to keep, a row for each vector.
    encoder
        For a model of vectors and images: the encoder of the vectors, such as onnx:FILE or
        hf:NAME, where it is read from a file or the hub.
    batch
        Images or vectors that the model reads at a time.
    jobs
        Threads that read and decode images; else one for each core.
    device
        Device to compute on.
    """
    import shlex
    import time

    from shasam.errors import InputError
    from shasam.files import named_file
    from shasam.output import csv_text, say, shown_progress
    from shasam.pipeline.load import load

    if not images.exists():
        raise InputError(f"there is no file or folder {images}")
    if batch < 1 or (jobs is not None and jobs < 1):
        raise InputError("--batch and --jobs must be at least 1")
    with named_file(out) as file, shown_progress() as named:  # fails here, before the work
        model = load(run, device)
        if model.decides_by_group and group_column is None:
            raise InputError(
                f"{model.spec.method} decides by group: name the column of the groups with "
                f"--group-column; its values are {', '.join(model.groups)[:200]}, or their numbers"
            )
        if model.inputs == "vectors" and not _is_vectors(images):
            model = model.seeing(encoder)
        elif encoder is not None:
            raise InputError("--encoder is for a model of vectors that is given images")
        head = ["row" if model.inputs == "vectors" else "path", "prediction"]
        head += [*(f"p({name})" for name in model.classes), "problem"]
        if model.inputs == "vectors":
            kept = _kept(model, csv or images, keep, head)
            blocks, total, left = _vectors(model, images, csv, group_column, batch, kept)
        else:
            path_column = _path_column(model, images, path_column)
            kept = _kept(model, images, keep, [*head, path_column])
            blocks, total, left = _pictures(
                model, images, root, path_column, group_column, batch, jobs, kept
            )
        head += kept.head if kept is not None else []
        file.write(csv_text([head]).encode())
        told, began, done, reasons = named(f"predicting {images}"), time.perf_counter(), 0, 0
        for block in blocks:
            file.write(block.csv(model.classes).encode())
            done += len(block.names)
            reasons += len(block.problems)
            told(done, max(total or 0, done))
        seconds = time.perf_counter() - began
    rate = done / max(seconds, 1e-9)
    say(f"{done - reasons} predictions in {out}, {rate:,.0f} {model.inputs} a second")
    if reasons:
        say(f"{reasons} of {done} could not be used; the column problem says why")
    if left:
        say(f"skipped: {left}")
    numbers = [name for name in kept.truth if name not in ("target", "sensitive")] if kept else []
    if kept is not None and ({"target", "sensitive"} <= set(kept.head) or numbers):
        missing = " --missing drop" if reasons else ""
        by = f" --sensitive {shlex.quote(numbers[0])}" if numbers else ""
        say(f"Next: shasam audit {shlex.quote(str(out))}{by}{missing} --html audit.html")


def _path_column(model: Model, images: Path, asked: str | None) -> str:
    """Return the column that is asked for, the one of training, or one that looks like it."""
    from shasam.data.folder import PATH, check_named, path_column
    from shasam.tables import open_table

    if images.is_dir() or images.suffix.lower() not in TABLES:
        return asked or PATH
    table = open_table(images)
    trained = model.spec.data.path_column
    if asked is None:
        asked = trained if trained in table.column_names else PATH
    found = path_column(asked, table.column_names)
    check_named({PATH: found}, table.column_names, table.name)
    return found


def _kept(model: Model, path: Path, keep: str, used: list[str]) -> OtherColumns | None:
    """Return what is kept of a table; folders, single images and arrays have no columns."""
    from shasam.data.vector_files import TABLES as VECTOR_TABLES
    from shasam.errors import InputError
    from shasam.pipeline.prediction import other_columns
    from shasam.tables import open_table

    if path.is_dir() or path.suffix.lower() not in (*TABLES, *VECTOR_TABLES):
        if keep not in ("all", "none"):
            raise InputError(f"--keep names columns of a table, and {path.name} is none")
        return None
    if _is_vectors(path) and keep == "all":
        keep = ""  # columns of vectors would be written as text
    return other_columns(model, open_table(path), keep, used)


def _is_vectors(path: Path) -> bool:
    from shasam.data.vector_files import SUFFIXES

    return path.is_file() and path.suffix.lower() in SUFFIXES


def _vectors(
    model: Model,
    path: Path,
    csv: Path | None,
    group_column: str | None,
    batch: int,
    kept: OtherColumns | None,
) -> tuple[Iterator[PredictionBlock], int | None, str]:
    from shasam.data.vector_files import SUFFIXES, TABLES
    from shasam.errors import InputError
    from shasam.pipeline.prediction import open_vectors, vector_blocks
    from shasam.tables import open_table

    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"this model reads vectors; give a file of them ({', '.join(SUFFIXES)})")
    features = open_vectors(model, path)
    groups = None
    if group_column is not None:
        if csv is None and path.suffix.lower() not in TABLES:
            raise InputError(f"{path.name} has no columns; give the table of the groups as --csv")
        groups = open_table(csv or path).read([group_column]).column(group_column).to_pylist()
        if len(groups) != len(features):
            raise InputError(f"there are {len(features)} vectors and {len(groups)} groups")
    blocks = vector_blocks(model, features, groups, batch=batch)
    if kept is not None and kept.head:
        blocks = kept.beside(blocks)
    return blocks, len(features), ""


def _pictures(
    model: Model,
    images: Path,
    root: Path | None,
    path_column: str,
    group_column: str | None,
    batch: int,
    jobs: int | None,
    kept: OtherColumns | None,
) -> tuple[Iterator[PredictionBlock], int | None, str]:
    """Return the rows, how many there will be if that is known, and which files are left alone."""
    from shasam.data.folder import Folder
    from shasam.errors import InputError
    from shasam.pipeline.prediction import (
        PICTURES,
        Item,
        cores,
        count_files,
        image_blocks,
        is_picture,
        table_items,
        walk,
    )

    total, left = None, ""
    if images.is_dir():
        if group_column is not None:
            raise InputError("--group-column needs a table with paths and groups, not a folder")
        total, others = count_files(images)
        if not total:
            raise InputError(f"{images} holds no images ({', '.join(PICTURES)})")
        left = ", ".join(f"{count} {ending}" for ending, count in others.most_common(8))
        folder, items = Folder(images), (Item(path) for path in walk(images) if is_picture(path))
    elif images.suffix.lower() in TABLES:
        folder = Folder(root or images.parent)
        items = (item for item in table_items(images, folder, path_column, group_column, kept))
    else:
        if group_column is not None:
            raise InputError("--group-column needs a table with paths and groups, not an image")
        folder, items, total = Folder(images.parent), (Item(p) for p in (images.name,)), 1
    blocks = image_blocks(model, items, folder, batch=batch, jobs=jobs or cores())
    return blocks, total, left
