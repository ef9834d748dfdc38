"""Sixty crafted run folders: each changes a good one so that a careless reader would be harmed."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save as safetensors

from shasam.documents import parse_yaml

Change = Callable[[Path, Path], None]  # the run, and a folder outside with a canary


class _Runs:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def _tensors(header: dict | bytes, data: bytes = b"", claim: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if claim is None else claim) + text + data


def _spec(**changes: object) -> Change:
    def change(run: Path, outside: Path) -> None:
        body = parse_yaml((run / "spec.yaml").read_text(), "spec")
        for key, value in changes.items():
            *folders, last = key.split("__")
            place = body
            for folder in folders:
                place = place[folder]
            place[last] = str(outside / "x") if value is Path else value
        (run / "spec.yaml").write_text(json.dumps(body))

    return change


def _file(name: str, content: bytes | Callable[[Path], bytes]) -> Change:
    def change(run: Path, outside: Path) -> None:
        data = content(outside) if callable(content) else content
        (run / name).unlink(missing_ok=True)
        (run / name).write_bytes(data)

    return change


def _link(name: str, to: str = "canary") -> Change:
    def change(run: Path, outside: Path) -> None:
        place = run / name
        if place.is_dir():
            place.rename(run / "moved")
        else:
            place.unlink(missing_ok=True)
        place.symlink_to(outside / to)

    return change


def _hard(name: str) -> Change:
    def change(run: Path, outside: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.link(outside / "canary", run / name)

    return change


def _fifo(name: str) -> Change:
    def change(run: Path, outside: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return change


def _table(columns: dict, metadata: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


NAMES = {"sha256": "0", "target_names": '["a", "b"]', "sensitive_names": '["c", "d"]'}
ROWS = {"id": ["a"], "path": ["../../canary"], "content_hash": [""], "target": [0],
        "sensitive": [0], "split": ["test"]}  # fmt: skip
LONG = pa.DictionaryArray.from_arrays(np.zeros(10**6, np.int32), pa.array(["x" * 100_000]))
ALIASES = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (k + 1, k + 1, b",".join([b"*%c" % k] * 10)) for k in range(97, 105)
)
F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}

CASES: dict[str, Change] = {
    # weights
    "pickle as weights": _file("model.safetensors", lambda o: pickle.dumps(_Runs(o / "ran"))),
    "zip as weights": _file("model.safetensors", b"PK\3\4" + b"\0" * 100),
    "empty weights": _file("model.safetensors", b""),
    "4 GB header": _file("model.safetensors", _tensors(b"{}", claim=4 << 30)),
    "2^63 header": _file("model.safetensors", _tensors(b"{}", claim=2**63)),
    "overlapping offsets": _file("model.safetensors", _tensors({"a": F32, "b": F32}, b"\0" * 8)),
    "offsets beyond the end": _file(
        "model.safetensors", _tensors({"a": {**F32, "data_offsets": [0, 1 << 40]}})),
    "negative shape": _file("model.safetensors", _tensors({"a": {**F32, "shape": [-1]}}, bytes(4))),
    "shape of terabytes": _file(
        "model.safetensors", _tensors({"a": {**F32, "shape": [1 << 40, 1 << 20]}}, b"\0" * 4)),
    "deep header": _file("model.safetensors", _tensors(b"[" * 10**6)),
    "other tensors": _file("model.safetensors", safetensors({"x": np.zeros(3, np.float32)})),
    "long tensor name": _file("model.safetensors", _tensors({"x" * 10**6: F32}, b"\0" * 4)),
    "weights are a link": _link("model.safetensors"),
    "weights are a pipe": _fifo("model.safetensors"),
    # specification
    "aliases": _file("spec.yaml", ALIASES),
    "python object": _file("spec.yaml", b"!!python/object/apply:os.system ['true']"),
    "python name": _file("spec.yaml", b"method: !!python/name:os.system"),
    "deep yaml": _file("spec.yaml", b"[" * 40_000),
    "deep block yaml": _file("spec.yaml", b"- " * 20_000),
    "large yaml": _file("spec.yaml", b"a: 1\n" * 10**6),
    "number of 5,000 digits": _file("spec.yaml", b"seed: " + b"9" * 5000),
    "date that is none": _file("spec.yaml", b"seed: 2001-99-99"),
    "yaml of NULs": _file("spec.yaml", b"\0" * 1000),
    "binary yaml": _file("spec.yaml", bytes(range(256)) * 10),
    "wide model": _spec(model__options__width=5000),
    "very wide model": _spec(model__options__width=10**12),
    "unknown method": _spec(method="../../evil"),
    "method is a mapping": _spec(method={"a": 1}),
    "large pictures": _spec(data__size=10**9),
    "many options": _spec(options={f"o{k}": k for k in range(2000)}),
    "NUL in a path": _spec(data__root="a\0b"),
    "specification is a link": _link("spec.yaml"),
    "specification is a pipe": _fifo("spec.yaml"),
    # manifest
    "manifest of one long text": _file("manifest.parquet", lambda o: _table(
        {**{n: LONG for n in ("id", "path", "content_hash", "split")},
         "target": np.zeros(10**6, int), "sensitive": np.zeros(10**6, int)}, NAMES)),
    "manifest with another hash": _file("manifest.parquet", _table(ROWS, NAMES)),
    "manifest without names": _file("manifest.parquet", _table(ROWS, {"sha256": "0"})),
    "deep names": _file("manifest.parquet", _table(ROWS, {**NAMES, "target_names": "[" * 10**5})),
    "names are numbers": _file("manifest.parquet", _table(ROWS, {**NAMES, "target_names": "7"})),
    "other columns": _file("manifest.parquet", _table({"x": [1]}, NAMES)),
    "pickle as manifest": _file("manifest.parquet", lambda o: pickle.dumps(_Runs(o / "ran"))),
    "empty manifest": _file("manifest.parquet", b""),
    "torn manifest": _file("manifest.parquet", b"PAR1" + b"\xff" * 400 + b"PAR1"),
    "manifest is a link": _link("manifest.parquet"),
    "manifest is a pipe": _fifo("manifest.parquet"),
    # what evaluate reads and writes besides
    "provenance of 10^6 levels": _file("provenance.json", b"[" * 10**6),
    "provenance of 10^7 values": _file("provenance.json", b"[" + b"0," * 10**7 + b"0]"),
    "provenance of 100 MB": _file("provenance.json", b" " * 10**8),
    "provenance is a list": _file("provenance.json", b"[]"),
    "provenance is empty": _file("provenance.json", b""),
    "provenance of other data": _file("provenance.json", b'{"manifest_sha256": "00"}'),
    "provenance is a link": _link("provenance.json"),
    "provenance is a pipe": _fifo("provenance.json"),
    "log is a link": _link("log.jsonl"),
    "log is a hard link": _hard("log.jsonl"),
    "log is a pipe": _fifo("log.jsonl"),
    "log is a link to nothing": _link("log.jsonl", "made"),
    "lock is a link": _link(".lock"),
    "lock is a link to nothing": _link(".lock", "made"),
    "lock is a hard link": _hard(".lock"),
    "lock is a pipe": _fifo(".lock"),
}  # fmt: skip
