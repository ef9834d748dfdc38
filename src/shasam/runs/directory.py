"""Read and write a run directory: named by its specification, locked while it is written."""

from __future__ import annotations

import io
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import lock_descriptor

from shasam.documents import of_our_shape, read_json, read_yaml
from shasam.errors import (
    Argument,
    BusyError,
    CheckpointError,
    DataError,
    FileError,
    InputError,
    ShasamWarning,
)
from shasam.files import MAX_TEXT, append, open_in_place, open_regular, read_bytes, write_atomic
from shasam.metrics.learnt import Learnt
from shasam.spec import ModelSpec, RunSpec, stored_spec
from shasam.tables import read_parquet
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# `log.jsonl`: one JSON object a line, appended as things happen.
# -------------------------------------------------------------------------------------------------

# lines that stay when the log is cut back to a checkpoint: they did happen
_LASTING = ("test_opened", "resume", "start")


Listener = Callable[[str, Mapping[str, Any]], None]  # of the name of an event and its fields


class RunLog:
    """The log of a run; without a path it keeps the lines in memory only.

    Listeners hear every line, and what ``tell`` says, which is not written.
    """

    def __init__(self, path: Path | None, listeners: Sequence[Listener] = ()) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        self._listeners = list(listeners)

    def tell(self, event: str, **fields: Any) -> None:
        """Call the listeners; one that fails is warned of and not called again.

        Hours of training are worth more than a server that does not answer.
        """
        for listener in list(self._listeners):
            try:
                listener(event, fields)
            except Exception as error:  # of other people's code
                self._listeners.remove(listener)
                message = f"a logger failed at {event!r} and is not called again: {error!r}"
                warnings.warn(message, ShasamWarning, stacklevel=2)

    def write(self, event: str, **fields: Any) -> None:
        """Append one line; None is left out, NaN and infinity become null."""
        line = {"event": event, **{k: _plain(v) for k, v in fields.items() if v is not None}}
        self.lines.append(line)
        if self.path is not None:
            try:
                append(self.path, (json.dumps(line) + "\n").encode())
            except FileError as error:
                raise CheckpointError(f"the log could not be written: {error}") from error
        self.tell(**line)

    def whole(self) -> Iterator[dict[str, Any]]:
        """Yield the lines from the start of the run; those of the file, where there is one."""
        if self.path is None or not self.path.exists():
            return iter(self.lines)
        return stream_log(self.path, within=self.path.parent)

    def size(self) -> int:
        """Return the bytes so far: what a checkpoint remembers."""
        return self.path.stat().st_size if self.path and self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Cut back to ``size`` bytes, as at the checkpoint; a torn last line goes too."""
        if self.path is None or not self.path.exists():
            return
        content = read_bytes(self.path, within=self.path.parent)  # a link would be copied
        kept = content[:size]
        for line in content[size:].split(b"\n"):
            try:
                if json.loads(line)["event"] in _LASTING:
                    kept += line + b"\n"
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
        write_atomic(self.path, kept)


def read_log(path: Path, *, within: Path | None = None) -> list[dict[str, Any]]:
    """Read all whole lines of a log."""
    return list(stream_log(path, within=within))


def stream_log(path: Path, *, within: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a log, one at a time.

    Of a long one they would take 20 times its size.
    """
    with open_regular(path, within=within) as file:
        if (size := os.fstat(file.fileno()).st_size) > MAX_TEXT:
            raise FileError(path, f"{size >> 20} MiB, the limit is {MAX_TEXT >> 20} MiB")
        try:
            for line, _ in log_lines(file):
                yield line
        except OSError as error:
            raise FileError(path, f"cannot be read: {error.strerror}") from error


def log_lines(file: BinaryIO) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield lines that are JSON objects with an event, parsed and as they stand.

    A line that was cut short by a crash is left out.
    """
    for text in file:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):  # also of bytes that are no UTF-8
            continue
        if isinstance(line, dict) and isinstance(line.get("event"), str):
            yield line, text.rstrip(b"\r\n")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


# -------------------------------------------------------------------------------------------------
# Predictions as Parquet: id, target, prediction, sensitive, score_0 ... score_{C-1}.
# -------------------------------------------------------------------------------------------------


def predictions_table(
    predictions: Predictions,
    metadata: Mapping[str, str],
    attributes: Mapping[str, pa.Array] = MappingProxyType({}),
) -> pa.Table:
    """Return the table; ``metadata`` is that of the manifest: its hash, names and protocol.

    ``attributes`` are the names of the groups by each of several sensitive attributes.
    """
    columns = {
        "id": pa.array(predictions.ids, pa.string()),
        "target": pa.array(predictions.target, pa.int64()),
        "prediction": pa.array(predictions.prediction, pa.int64()),
        "sensitive": pa.array(predictions.sensitive, pa.int64(), mask=predictions.sensitive < 0),
    }
    for c in range(predictions.scores.shape[1]):
        columns[f"score_{c}"] = pa.array(predictions.scores[:, c], pa.float32())
    return pa.table({**columns, **attributes}).replace_schema_metadata(dict(metadata))


def table_bytes(table: pa.Table) -> bytes:
    """Encode a table as Parquet in memory, to be written atomically."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def read_predictions(path: str | Path) -> Predictions:
    """Return predictions from a file of a run."""
    try:
        table = read_parquet(path)
        scores = [n for n in table.column_names if n.startswith("score_")]
        scores.sort(key=lambda name: int(name.removeprefix("score_")))
        return Predictions(
            ids=table.column("id").to_numpy(zero_copy_only=False),
            target=table.column("target").to_numpy(),
            prediction=table.column("prediction").to_numpy(),
            sensitive=table.column("sensitive").fill_null(-1).to_numpy(),
            scores=np.stack([table.column(n).to_numpy() for n in scores], axis=1),
        )
    except (FileError, KeyError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path} does not hold predictions: {error}") from error


# -------------------------------------------------------------------------------------------------
# A run directory: named by its specification, locked while it is written, DONE at the end.
#
# Reading needs no torch: pages and tables are made from these files alone.
# -------------------------------------------------------------------------------------------------

PREDICTIONS = "predictions.parquet"


class RunDirectory:
    """The files of one run; ``docs/files.md`` says what is in each.

    ``variant`` is what sets the run apart from other runs of its method, where several are shown
    together. ``tell_encoder=False`` keeps the encoder out of the name, because all of them have it.
    """

    def __init__(self, path: str | Path, variant: str = "", *, tell_encoder: bool = True) -> None:
        self.path, self.variant, self.tell_encoder = Path(path), variant, tell_encoder

    @classmethod
    def existing(cls, path: str | Path) -> RunDirectory:
        """Return a run that is there, or raise an error that says what was expected."""
        run = cls(path)
        if not run.file("spec.yaml").is_file():
            raise InputError(f"{path} is not a run directory: it has no spec.yaml")
        return run

    @classmethod
    def evaluated(cls, path: str | Path, variant: str = "") -> RunDirectory:
        """Return a run with test predictions, or raise an error that says what to do."""
        run = cls(path, variant)
        if not run.path.is_dir():
            raise DataError(
                f"{path} is not a run directory; give the folder that `shasam train` wrote"
            )
        if not run.file(PREDICTIONS).is_file():
            raise DataError(
                f"{path} has no {PREDICTIONS}: the run has not come to its test split yet; finish "
                "it with `shasam train`, or leave it out"
            )
        return run

    # -- writing ---------------------------------------------------------------------------------

    def file(self, name: str) -> Path:
        return self.path / name

    @property
    def done(self) -> bool:
        return self.file("DONE").is_file()

    @property
    def has_checkpoint(self) -> bool:
        folder = self.file("checkpoints")
        return folder.is_dir() and any(folder.glob("*.json"))

    def refuse_link(self) -> None:
        """Refuse a run whose folder is a link: what is written there would be somewhere else."""
        if self.path.is_symlink():
            raise CheckpointError(
                f"{self.path} is a link, and a run is written into a folder of its own; remove the "
                "link, or choose another place with ",
                Argument("out"),
            )

    def make(self) -> None:
        """Create the directory, or say why that cannot be."""
        self.refuse_link()
        try:
            write_atomic(self.file(".writable"), b"")
            self.file(".writable").unlink(missing_ok=True)
        except FileError as error:
            raise CheckpointError(
                f"the run directory {self.path} cannot be written ({error}); choose another with ",
                Argument("out"),
            ) from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        write_atomic(self.file(name), content, within=self.path)

    def write_json(self, name: str, body: Any) -> None:
        self.write(name, (json.dumps(body, indent=1, allow_nan=False) + "\n").encode())

    @contextmanager
    def lock(self, name: str = ".lock") -> Iterator[None]:
        """Keep other processes out; the system lets go of the lock when the process dies."""
        handle = open_in_place(self.file(name), os.O_RDWR | os.O_CREAT)
        try:
            if not lock_descriptor(handle, blocking=False):
                raise BusyError(
                    f"another process is working on {self.path}; wait for it, or train with "
                    "another seed or ",
                    Argument("out"),
                )
            yield
        finally:
            os.close(handle)

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Hold the lock of a sweep while it carries out a run, from before its start to its end.

        The run itself takes the lock. A claim is refused while another sweep has claimed the run,
        and while any process has its lock.
        """
        self.refuse_link()
        with self.lock(".claim"):
            with self.lock():
                pass
            yield

    # -- reading ---------------------------------------------------------------------------------

    def json(self, name: str) -> dict[str, Any]:
        """Return a JSON file of the run, or raise an error that says what is wrong with it."""
        return read_json(self.file(name), within=self.path)

    def spec(self) -> RunSpec:
        """Return the specification, checked again as it is read."""
        return stored_spec(read_yaml(self.file("spec.yaml"), within=self.path))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The specification as it stands in the file, for what is only shown; {} without one."""
        path = self.file("spec.yaml")
        return read_yaml(path, within=self.path) if path.is_file() else {}

    @property
    def unit(self) -> str:
        """What was classified: "images", or "rows" where they are vectors."""
        data = self.settings.get("data")
        vectors = isinstance(data, dict) and data.get("features_dim") is not None
        return "rows" if vectors else "images"

    def metrics(self) -> dict[str, Any]:
        """Return ``metrics.json``: {"test": {"accuracy": {"value": ...}, ...}, "val": ..., ...}."""
        return self._mapping("metrics.json")

    def learnt(self) -> Learnt | None:
        """Return whether the model has learnt its target, as it was judged at the end of training.

        None if that is not recorded, as in runs of early versions: ``shasam.report.runs`` then
        judges their predictions.
        """
        return Learnt.from_dict(self.metrics().get("learnt"))

    def provenance(self) -> dict[str, Any]:
        """Return ``provenance.json``; {} where there is none, as in records of early versions."""
        return self._mapping("provenance.json")

    def log(self) -> Iterator[dict[str, Any]]:
        """Yield the whole lines of ``log.jsonl``, one at a time."""
        path = self.file("log.jsonl")
        return stream_log(path, within=self.path) if path.is_file() else iter(())

    def mining(self) -> list[dict[str, Any]]:
        """Return the iterations of ``mining.json``."""
        found = self._mapping("mining.json").get("iterations", [])
        return [i for i in found if isinstance(i, dict) and isinstance(i.get("sets"), dict)]

    def embedding(self) -> dict[str, np.ndarray] | None:
        """Return ``embedding.parquet``.

        It has x, y, target and sensitive of the rows with finite x and y.
        """
        path = self.file("embedding.parquet")
        if not path.is_file():
            return None
        try:
            names = ["x", "y", "target", "sensitive"]
            table = read_parquet(path, columns=names, within=self.path)
        except FileError as error:
            raise DataError(
                f"{self.path.name}/embedding.parquet cannot be read: {error}"
            ) from error
        with of_our_shape(path):
            for field in table.schema:
                if not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
                    raise TypeError(f"{field.name} holds {field.type}")
            columns = {name: table.column(name).to_numpy() for name in names}
            finite = np.isfinite(columns["x"]) & np.isfinite(columns["y"])
            shown = {name: values[finite] for name, values in columns.items()}
        return shown if finite.any() else None

    @cached_property
    def metadata(self) -> dict[str, str]:
        """What ``predictions.parquet`` says of the data: hash, names, protocol."""
        path = self.file(PREDICTIONS)
        try:
            with open_regular(path, within=self.path) as file:
                found = pq.read_schema(file).metadata or {}
        except (FileError, OSError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        return {
            k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in found.items()
        }

    @cached_property
    def protocol(self) -> dict[str, Any]:
        try:
            found = json.loads(self.metadata.get("protocol", "{}"))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def encoder(self) -> str:
        """The name of the encoder, or that of the default where the specification has none."""
        model = self.settings.get("model")
        named = model.get("encoder") if isinstance(model, Mapping) else None
        return named if isinstance(named, str) else ModelSpec().encoder

    @property
    def method(self) -> str:
        name = _named(self.settings.get("method")) or self.path.name
        if self.tell_encoder and self.encoder != ModelSpec().encoder:
            name = f"{name}@{self.encoder}"  # only the default goes without saying
        return f"{name} ({self.variant})" if self.variant else name

    @cached_property
    def seed(self) -> int | None:
        seed = self.settings.get("seed", self.provenance().get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def name(self) -> str:
        return self.method if self.seed is None else f"{self.method}, seed {self.seed}"

    @property
    def setting(self) -> str:
        """Data, target, sensitive attribute and bias: runs of one setting may be compared."""
        data = str(self.protocol.get("source") or _named(self.settings.get("data")) or "data")
        target, sensitive = self.protocol.get("target"), self.protocol.get("sensitive")
        alpha = self.protocol.get("alpha")
        words = data if not target else f"{data}: {target} by {sensitive}"
        biased = isinstance(alpha, int | float) and alpha != 1
        return f"{words}, bias {alpha:g}" if biased else words

    @property
    def manifest_sha256(self) -> str:
        return str(self.provenance().get("manifest_sha256") or self.metadata.get("sha256") or "")

    def _mapping(self, name: str) -> dict[str, Any]:
        return self.json(name) if self.file(name).is_file() else {}


def _named(part: Any) -> str | None:
    """Return the name in a part of a specification, which is a string or has one."""
    if isinstance(part, Mapping):
        part = part.get("name") or part.get("source") or part.get("kind")
    return str(part) if isinstance(part, str) else None
