"""Embeddings of a source's images in one Parquet file, computed in parts that outlive a kill.

The parts lie in a folder beside the file that is to be written, each whole or not there. When all
of them are there, they become the file, and the folder is deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from filelock import lock_descriptor
from torch import Tensor, nn

from shasam.data.dataset import BAD_SHARE, make_source
from shasam.data.source import Reading, Source
from shasam.data.vector_files import PARQUET
from shasam.errors import Argument, BusyError, DataError, FileError, InputError, SpecError
from shasam.files import atomic_file, make_folder, open_in_place, open_regular, remove_leftovers
from shasam.models import build_encoder, start_weights
from shasam.spec.fields import DataSpec, ModelSpec
from shasam.tables import read_parquet
from shasam.training.checkpoint import to_bytes
from shasam.training.inference import prepare, prepare_images

# -------------------------------------------------------------------------------------------------
# An encoder that turns images into vectors: a pretrained one by name, or that of a trained run.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Embedder:
    """Images of ``size`` pixels to vectors of ``width`` numbers."""

    name: str
    options: dict[str, Any]
    size: int
    width: int
    sha256: str  # of the weights
    device: torch.device
    encode: Callable[[Tensor], Tensor]
    model: dict[str, Any] | None = None  # the specification it was made from; None: of a run

    def __call__(self, images_u8: np.ndarray) -> np.ndarray:
        """Return vectors (B, D) float32 of images (B, H, W, 3)."""
        pixels = torch.from_numpy(images_u8).permute(0, 3, 1, 2)
        with torch.no_grad():
            return self.encode(prepare_images(pixels, self.device)).float().cpu().numpy()


def of_run(path: Path, device: str = "cpu") -> Embedder:
    """Return the encoder of a trained run."""
    from shasam.pipeline.load import load  # which can put an encoder before a model of vectors

    model = load(path, device)
    encoder, spec = model.method.encoder, model.spec

    def encode(images: Tensor) -> Tensor:
        with model.fabric.autocast():
            return model.method.features(images)["encoder"]

    return Embedder(
        f"{spec.model.encoder} of the run {spec.name}",
        dict(spec.model.options),
        spec.data.size,
        encoder.out_dim,
        _digest(encoder),
        model.fabric.device,
        encode,
    )


def by_name(model: ModelSpec, size: int, device: str = "cpu") -> Embedder:
    """Return a pretrained encoder, or another with the weights of ``model.init``."""
    encoder = build_encoder(model, size)
    if start_weights(encoder, model) is None:
        raise SpecError(
            f"the encoder {model.encoder} has random weights here, so its embeddings would be "
            "meaningless; name a pretrained encoder or a run directory, or give weights with ",
            Argument("model.init"),
        )
    prepare(encoder, device)
    options = dict(model.options)
    where, sha256 = torch.device(device), _digest(encoder)
    made_from = model.model_dump(mode="json")
    width = encoder.out_dim
    return Embedder(model.encoder, options, size, width, sha256, where, encoder, made_from)


def of_vectors(origin: Mapping[str, Any], encoder: str | None, device: str = "cpu") -> Embedder:
    """Load the encoder of vectors, from what ``shasam embed`` wrote beside them.

    ``encoder`` names it where it is read from a file or the hub: a model, perhaps of somebody else,
    does not choose what is read or downloaded. Another encoder, or one whose weights have changed,
    is an error: its vectors would mean something else.
    """
    made_from = origin.get("model")
    if not isinstance(made_from, Mapping):
        raise InputError(
            "the vectors of this model are those of a run, or of an earlier release of shasam "
            "embed, so their encoder is not known; compute them again with shasam embed ",
            Argument("model.encoder"),
            " NAME, or give vectors",
        )
    body = dict(made_from)
    if encoder is not None:
        name, _, source = encoder.partition(":")
        if name != body.get("encoder"):
            raise InputError(
                f"the vectors of this model were computed by {body.get('encoder')}, not {name}"
            )
        if source and body.get("init") is not None:
            body["init"] = source
        elif source:
            body["options"] = {**dict(body.get("options") or {}), "source": source}
    try:
        if encoder is None or not source:
            _names_no_file(body)
        found = by_name(ModelSpec.model_validate(body), int(origin["size"]), device)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the record of the vectors' encoder cannot be used: {error}") from error
    if found.sha256 != origin.get("weights_sha256"):
        raise InputError(
            f"{body.get('encoder')} has other weights than those that the vectors of this model "
            "were computed with"
        )
    return found


def _names_no_file(body: Mapping[str, Any]) -> None:
    """Refuse an encoder that a model names and that is read from a file or the hub."""
    named = body.get("init") or dict(body.get("options") or {}).get("source")
    if named is not None:
        raise InputError(
            "a model does not choose which files are read or downloaded; to read the encoder that "
            "it names for its vectors, give ",
            Argument("encoder", f"{body.get('encoder')}:{named!s:.200}"),
        )


def _digest(encoder: nn.Module) -> str:
    """Return SHA-256 of all tensors of an encoder."""
    return hashlib.sha256(to_bytes(encoder.state_dict())).hexdigest()


COLUMN = "embedding"
PART = 512  # rows that a kill costs at most
_TASK = 64  # rows that a thread reads at a time
_VERSION = 1
_ROW_GROUP = 8192


@dataclass(frozen=True)
class EmbeddingReport:
    """The file, and what came of the images."""

    path: Path
    rows: int
    width: int
    bad: int  # images that could not be read, and are not in the file
    computed: int  # rows that were computed now; the others were there
    seconds: float  # that these took


def embed(
    spec: DataSpec,
    embedder: Embedder,
    out: Path,
    *,
    batch: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> EmbeddingReport:
    """Write id, path, the attributes and the vector of every image that can be read."""
    source = make_source(spec)
    table = source.table()
    if COLUMN in table.column_names:
        raise DataError(
            f"the data has a column {COLUMN!r} already, which is where the vectors go; rename it"
        )
    about = describe(source, embedder)
    finished = _finished(out, about["key"])
    if finished is not None:
        return finished
    parts = Parts(out.with_name(f".{out.name}.parts"), about["key"], table, embedder.width)
    with parts.alone():
        began, computed, todo = time.perf_counter(), 0, parts.missing()
        done = table.num_rows - sum(len(parts.rows(number)) for number in todo)
        for number, reading in _ahead(source, parts, todo, embedder.size):
            parts.write(number, reading, _vectors(reading, embedder, batch))
            computed += len(reading.reasons)
            if progress:
                progress(done + computed, table.num_rows)
        seconds = time.perf_counter() - began
        bad = parts.bad(allowed=spec.allow_bad)
        _join(parts, out, {**about, "unreadable": str(bad)})
        parts.delete()
    return EmbeddingReport(out, table.num_rows - bad, embedder.width, bad, computed, seconds)


def describe(source: Source, embedder: Embedder) -> dict[str, str]:
    """Return what the vectors depend on, for the metadata; ``key`` is the hash of all of it."""
    table = source.table()
    listed = hashlib.sha256(source.stamps(table).tobytes())
    for rows in table.to_batches(max_chunksize=4096):
        listed.update(repr(rows.to_pydict()).encode())
    about = {
        "version": str(_VERSION),
        "encoder": embedder.name,
        "options": json.dumps(embedder.options, sort_keys=True),
        "weights_sha256": embedder.sha256,
        "size": str(embedder.size),
        "source": source.spec.name,
        "source_sha256": listed.hexdigest(),
    }
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    made_from = {} if embedder.model is None else {"model": json.dumps(embedder.model)}
    return {**about, **made_from, "key": key}


def origin_of(path: Path | None) -> dict[str, Any] | None:
    """Return what ``shasam embed`` wrote about the encoder of a file of vectors.

    None for other files.
    """
    if path is None or path.suffix.lower() not in PARQUET:
        return None
    try:
        with open_regular(path) as file:
            held = (pq.ParquetFile(file).schema_arrow.metadata or {}).get(b"shasam")
        about = json.loads(held or b"{}")
        found = {"weights_sha256": about["weights_sha256"], "size": int(about["size"])}
        if "model" in about:
            found["model"] = json.loads(about["model"])
        return found
    except (FileError, OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


class Parts:
    """The parts of one file: rows of ``table``, ``PART`` at a time, with their vectors."""

    def __init__(self, folder: Path, key: str, table: pa.Table, width: int) -> None:
        self.folder, self.key, self.table, self.width = folder, key, table, width

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out; delete what belongs to other images, weights or sizes."""
        make_folder(
            self.folder, within=self.folder.parent
        )  # else a link would have us delete there
        handle = open_in_place(self.folder / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            if not lock_descriptor(handle, blocking=False):
                raise BusyError(f"another process is writing to {self.folder}; wait for it")
            remove_leftovers(self.folder)
            for path in self.folder.glob("*.parquet"):
                if not path.name.startswith(self.key[:16]):
                    path.unlink(missing_ok=True)
            yield
        finally:
            os.close(handle)

    def __len__(self) -> int:
        return -(-self.table.num_rows // PART)

    def rows(self, number: int) -> pa.Table:
        return self.table.slice(number * PART, PART)

    def path(self, number: int) -> Path:
        return self.folder / f"{self.key[:16]}-{number:06d}.parquet"

    def missing(self) -> list[int]:
        return [number for number in range(len(self)) if self._whole(number) is None]

    def _whole(self, number: int) -> pa.Table | None:
        """Return a part that is there, whole and of these rows."""
        try:
            part = read_parquet(self.path(number), within=self.folder)
            same = part.column("id").equals(self.rows(number).column("id").cast(pa.string()))
            return part if same and part.field(COLUMN).type.list_size == self.width else None
        except (FileError, KeyError, AttributeError, pa.ArrowException):
            return None

    def read(self, number: int) -> pa.Table:
        """Read the attributes and vectors of a part, without the images that could not be read."""
        part = self._whole(number)
        if part is None:
            raise DataError(f"{self.path(number)} was changed meanwhile; run the command again")
        joined = self.rows(number).append_column(part.field(COLUMN), part.column(COLUMN))
        good = np.flatnonzero(part.column("reason").to_numpy(zero_copy_only=False) == "")
        return joined.take(pa.array(good))

    def write(self, number: int, reading: Reading, vectors_BD: np.ndarray) -> None:
        flat = pa.array(np.ascontiguousarray(vectors_BD, np.float32).reshape(-1))
        part = pa.table(
            {
                "id": self.rows(number).column("id").cast(pa.string()),
                "reason": pa.array(reading.reasons, pa.string()),
                COLUMN: pa.FixedSizeListArray.from_arrays(flat, self.width),
            }
        )
        with atomic_file(self.path(number)) as file:
            pq.write_table(part, file, use_dictionary=["reason"])

    def bad(self, *, allowed: bool) -> int:
        """Return how many images could not be read; an error where they are too many."""
        found = []
        for number in range(len(self)):
            part = read_parquet(
                self.path(number), columns=["id", "reason"], within=self.folder
            ).to_pylist()
            found += [row for row in part if row["reason"]]
        if len(found) == self.table.num_rows or (
            len(found) > BAD_SHARE * self.table.num_rows and not allowed
        ):
            first = "; ".join(f"{row['id']}: {row['reason']}" for row in found[:3])
            raise DataError(
                f"{len(found)} of {self.table.num_rows} images cannot be read ({first}, ...). "
                "Repair them, or leave them out with ",
                Argument("data.allow_bad"),
            )
        return len(found)

    def delete(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _vectors(reading: Reading, embedder: Embedder, batch: int) -> np.ndarray:
    """Return vectors of all rows of a reading; those of unreadable images are left out later."""
    images = reading.images
    found = [embedder(images[start : start + batch]) for start in range(0, len(images), batch)]
    vectors_BD = np.concatenate(found)
    wrong = np.flatnonzero(~np.isfinite(vectors_BD).all(1))
    if len(wrong):
        raise DataError(
            f"the encoder {embedder.name} gives NaN or infinity for {len(wrong)} images; its "
            "weights are damaged, or it is not an encoder of images"
        )
    return vectors_BD


def _ahead(
    source: Source, parts: Parts, todo: list[int], size: int
) -> Iterator[tuple[int, Reading]]:
    """Yield the readings of the parts; the next one is decoded while one is computed with."""

    def read(number: int) -> Reading:
        rows = parts.rows(number)
        starts = range(0, rows.num_rows, _TASK)
        pieces = list(
            readers.map(lambda start: source.read(rows.slice(start, _TASK), size), starts)
        )
        return Reading(
            np.concatenate([piece.images for piece in pieces]),
            [digest for piece in pieces for digest in piece.content_hash],
            [reason for piece in pieces for reason in piece.reasons],
        )

    with ThreadPoolExecutor(1) as next_one, ThreadPoolExecutor(os.cpu_count()) as readers:
        future = next_one.submit(read, todo[0]) if todo else None
        for place, number in enumerate(todo):
            assert future is not None
            reading = future.result()
            if place + 1 < len(todo):
                future = next_one.submit(read, todo[place + 1])
            yield number, reading


def _join(parts: Parts, out: Path, about: dict[str, str]) -> None:
    """Join all parts into one file, which takes its name when it is whole."""
    schema = parts.read(0).schema.with_metadata({"shasam": json.dumps(about)})
    plain = [name for name in schema.names if name != COLUMN]
    waiting: list[pa.Table] = []
    with (
        atomic_file(out) as file,
        pq.ParquetWriter(file, schema, use_dictionary=plain) as writer,  # vectors do not repeat
    ):
        for number in range(len(parts)):
            waiting.append(parts.read(number))
            if sum(map(len, waiting)) >= _ROW_GROUP or number == len(parts) - 1:
                writer.write_table(pa.concat_tables(waiting).cast(schema))
                waiting = []


def _finished(out: Path, key: str) -> EmbeddingReport | None:
    """Return the file that is there, if it holds these very vectors."""
    try:
        with open_regular(out) as file:
            found = pq.ParquetFile(file)
            about = json.loads((found.schema_arrow.metadata or {}).get(b"shasam", b"{}"))
            if about.get("key") != key:
                return None
            width = found.schema_arrow.field(COLUMN).type.list_size
            return EmbeddingReport(
                out, found.metadata.num_rows, width, int(about["unreadable"]), 0, 0.0
            )
    except (FileError, OSError, ValueError, KeyError, AttributeError, pa.ArrowException):
        return None  # none, or another file: it is replaced when all is computed
