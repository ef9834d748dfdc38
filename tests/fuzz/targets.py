"""What is fuzzed: functions of bytes that may raise nothing but our own errors."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from shasam.data import DataSpec, make_source
from shasam.data.decode import BadImage, decode
from shasam.documents import parse_json, parse_yaml
from shasam.errors import ShasamError
from shasam.mining.offline import read_embeddings, read_labels
from shasam.pipeline.build import outline
from shasam.pipeline.load import load
from shasam.pipeline.sweeps import expand
from shasam.report import write_report
from shasam.report.audits import subjects_of
from shasam.report.columns import Columns
from shasam.report.predictions import read_predictions
from shasam.report.runs import predictions_of
from shasam.report.subject import AuditOptions
from shasam.runs.directory import RunDirectory, read_log
from shasam.spec import resolve
from shasam.training.checkpoint import read_checkpoint, save_checkpoint

Target = Callable[[bytes], None]
RUN_FILES = (
    "spec.yaml", "manifest.parquet", "model.safetensors", "metrics.json",
    "provenance.json", "log.jsonl", "predictions.parquet", "embedding.parquet",
)  # fmt: skip


def image(data: bytes) -> None:
    """Both decoders give a picture, or both refuse."""
    verdicts = []
    for fast in (True, False):
        try:
            verdicts.append(decode(data, 16, fast=fast).shape == (16, 16, 3))
        except BadImage as error:
            verdicts.append(not str(error))
    if verdicts[0] != verdicts[1]:
        raise AssertionError("one decoder reads it and the other does not")


def specification(data: bytes) -> None:
    """A YAML specification, up to the outline of its model."""
    body = parse_yaml(data.decode(errors="replace"), "fuzz")
    if isinstance(body, dict):
        outline(resolve(body), 2, 2)


def grid(data: bytes) -> None:
    """A YAML grid."""
    body = parse_yaml(data.decode(errors="replace"), "fuzz")
    if isinstance(body, dict):
        expand(body)


def document(data: bytes) -> None:
    """JSON."""
    parse_json(data, "fuzz")


class Files:
    """Targets that read files: one folder, written again for every input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.good = _a_run(folder / "made")
        (folder / "photos").mkdir()
        Image.new("RGB", (20, 20)).save(folder / "photos" / "a.png")

    def _write(self, name: str, data: bytes) -> Path:
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def run_folder(self, data: bytes) -> None:
        """The first byte chooses a file of a finished run, the rest replaces it."""
        name = RUN_FILES[data[0] % len(RUN_FILES)] if data else RUN_FILES[0]
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.good, self.run)
        (self.run / name).write_bytes(data[1:])
        for work in (
            lambda: read_log(self.run / "log.jsonl"),
            lambda: load(self.run).predict(np.zeros((1, 16, 16, 3), np.uint8)),
            lambda: _read_all(RunDirectory(self.run)),
            # a page takes seconds: one in eight inputs gets there
            lambda: data[-1:] < b"\x20" and write_report([self.run], self.folder / "page.html"),
        ):
            try:
                work()
            except ShasamError:
                continue

    def audit_csv(self, data: bytes) -> None:
        """A CSV of predictions."""
        predicted = read_predictions(self._write("p.csv", data), Columns())
        subjects_of(predicted, AuditOptions(draws=100, strata="cell", min_group=2))

    def audit_parquet(self, data: bytes) -> None:
        """A Parquet file of predictions."""
        predicted = read_predictions(self._write("p.parquet", data), Columns())
        subjects_of(predicted, AuditOptions(draws=100, strata="cell", min_group=2))

    def audit_arrow(self, data: bytes) -> None:
        """An Arrow file of predictions."""
        read_predictions(self._write("p.arrow", data), Columns())

    def table(self, data: bytes) -> None:
        """The CSV of somebody's own images."""
        path = self._write("t.csv", data)
        spec = DataSpec(name="manifest", csv=path, root=self.folder / "photos", size=16)
        _ = make_source(spec).table()

    def labels(self, data: bytes) -> None:
        """The CSV of labels beside embeddings."""
        read_labels(self._write("l.csv", data), ["a"])

    def npy(self, data: bytes) -> None:
        """Embeddings."""
        read_embeddings(self._write("e.npy", data))

    def npz(self, data: bytes) -> None:
        """Packed embeddings."""
        read_embeddings(self._write("e.npz", data))

    def checkpoint(self, data: bytes) -> None:
        """The JSON of a checkpoint."""
        import torch

        folder = self.folder / "checkpoints"
        if not folder.is_dir():
            save_checkpoint(folder, {"w": torch.zeros(3)}, {"step": 1})
        read_checkpoint(self._write("checkpoints/00000001.json", data))


def targets() -> dict[str, Target]:
    """All of them, by the name of their folder in the corpus."""
    files = Files(Path(tempfile.mkdtemp(prefix="fuzz-")))
    named: dict[str, Target] = {
        "image": image,
        "specification": specification,
        "grid": grid,
        "document": document,
    }
    for name in ("run_folder", "audit_csv", "audit_parquet", "audit_arrow", "table", "labels"):
        named[name] = getattr(files, name)
    for name in ("npy", "npz", "checkpoint"):
        named[name] = getattr(files, name)
    return named


def seeds() -> dict[str, list[bytes]]:
    """Good inputs of every target, to be mutated."""
    run = _a_run(Path(tempfile.mkdtemp(prefix="fuzz-")) / "run")
    pictures = []
    small = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 20, 3), np.uint8))
    for kind, mode, more in (
        ("JPEG", "RGB", {}), ("JPEG", "CMYK", {}), ("JPEG", "RGB", {"progressive": True}),
        ("PNG", "RGBA", {}), ("PNG", "P", {}), ("PNG", "I;16", {}), ("WEBP", "RGB", {}),
        ("MPO", "RGB", {"save_all": True, "append_images": [small]}),
        ("PNG", "RGB", {"save_all": True, "append_images": [small]}),
    ):  # fmt: skip
        one = small.convert("L").convert("I;16") if mode == "I;16" else small.convert(mode)
        pictures.append(_saved(one, kind, more))
    array = io.BytesIO()
    np.save(array, np.arange(12.0).reshape(4, 3))
    packed = io.BytesIO()
    np.savez_compressed(packed, embeddings=np.arange(12.0).reshape(4, 3))
    predictions = b"label,prediction,sensitive,score\n" + b"".join(
        b"%d,%d,%s,0.%d\n" % (i % 2, i % 3 % 2, b"ab"[i % 2 : i % 2 + 1], i) for i in range(1, 10)
    )
    audited = pa.table(
        {"label": [0, 1, 1, 0], "prediction": [0, 1, 0, 0], "sensitive": list("abab")}
    )
    table, arrow = io.BytesIO(), io.BytesIO()
    pq.write_table(audited, table)
    with pa.ipc.new_file(arrow, audited.schema) as writer:
        writer.write_table(audited)
    spec = (run / "spec.yaml").read_bytes()
    return {
        "image": pictures,
        "specification": [spec, b"method: fscl\nprofile: smoke\noptions: {temperature: 0.2}\n"],
        "grid": [b"profile: smoke\nbase: {data.alpha: 4}\ngrid: {seed: [0, 1], data.seed: same as "
                 b"seed}\nruns:\n  - {method: ce}\n  - {method: fscl, train.lr: 0.1}\n"],
        "document": [(run / "metrics.json").read_bytes()],
        "run_folder": [bytes([k]) + (run / name).read_bytes() for k, name in enumerate(RUN_FILES)],
        "audit_csv": [predictions],
        "audit_parquet": [table.getvalue()],
        "audit_arrow": [arrow.getvalue()],
        "table": [b"path,smile,age\na.png,1,30\nb.png,0,50\n", b"path;x\na.png;'\"\n"],
        "labels": [b"a,b\n1,2\n3,4\n"],
        "npy": [array.getvalue()],
        "npz": [packed.getvalue()],
        "checkpoint": [b'{"state": {"step": 1}, "tensors_sha256": "00", "sha256": "00"}'],
    }  # fmt: skip


def _read_all(run: RunDirectory) -> None:
    _ = run.settings, run.metrics(), run.provenance(), run.log(), run.mining(), run.embedding()
    _ = run.protocol, run.setting, run.name, predictions_of(run)


def _saved(picture: Image.Image, kind: str, more: dict) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **more)
    return buffer.getvalue()


def _a_run(out: Path) -> Path:
    """A small finished run on generated stripes."""
    from tests.tiny_data import TinyData

    from shasam.pipeline.execute import execute
    from shasam.training.runtime import Runtime

    body = {"method": "ce", "data": {"size": 16}, "train": {"steps": 2}}
    quiet = Runtime(device="cpu", quiet=True)
    data = TinyData(train=64, held=16)
    return execute(resolve(body, profile="smoke"), out, runtime=quiet, data=data).path
