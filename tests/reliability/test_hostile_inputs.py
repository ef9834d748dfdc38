"""A hundred hostile inputs of every command that reads: a sentence, one second, 200 MB each."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.data.test_decode import bomb_png
from tests.reliability.hostile_runs import ALIASES, LONG
from tests.reliability.measured import measured
from tests.report.run_files import make_run
from tests.tiny_data import TinyData

from shasam.commands.audit import audit
from shasam.commands.report import report
from shasam.commands.train import train
from shasam.data import open_data
from shasam.data.decode import decode
from shasam.mining.offline import read_embeddings
from shasam.pipeline.execute import execute
from shasam.spec import resolve
from shasam.training.runtime import Runtime

pytestmark = pytest.mark.slow
QUIET = Runtime(device="cpu", quiet=True)

YAML = [
    ALIASES,
    b"a: &a [*a]",
    b"<<: &a {<<: *a}",
    b"[" * 31_000,
    b"{" * 31_000,
    b"- " * 15_000,
    b"? " * 15_000,
    b"a: {" * 7_500,
    b"'" * 31_000,
    b'"' * 31_001,
    b": " * 15_000,
    b"a: 1\n" * 6_000,
    b"a: [" + b"1," * 15_000 + b"]",
    b"a: [" + b"[]," * 10_000 + b"]",
    b"x" * 31_999,
    b"\t" * 1000,
    b"a: " + b"9" * 31_000,
    b"a: 0x" + b"f" * 31_000,
    b"a: 1" + b":1" * 15_000,
    b"a: !!binary " + b"A" * 30_000,
    b"a: !!python/object/new:os.system [x]",
    b"a: !!timestamp x",
    b"a: " + b"1_" * 15_000,
    b"\xff" * 1000,
    b"\0" * 1000,
    b"a: |\n" + b" x\n" * 10_000,
    b"%TAG ! tag:x,2000:\n---\na: 1",
    b"a: .nan",
    b"seed: -.inf",
    b"seed: 1e400",
    b"&a a: &b b",
    b"--- 1\n--- 2\n" * 1000,
    b"a: !<" + b"x" * 10_000 + b"> 1",
    b" " * 10**6,
    b"method: " + b"x" * 30_000,
    b"data: {" + b",".join(b"k%d: 1" % k for k in range(2500)) + b"}",
]
SPECS = [
    {"model": {"options": {"width": 5000}}},
    {"model": {"options": {"width": 65_536}}},
    {"model": {"options": {"width": 10**18}}},
    {"model": {"options": {"embed_dim": 10**6, "width": 9999}}},
    {"model": {"encoder": "vit", "options": {"depth": 10**9}}},
    {"model": {"options": {"width": -1}}},
    {"method": "fscl", "options": {"projection_dim": 10**12}},
    {"method": "fscl", "options": {"projection_hidden": 10**12}},
    {"method": "fscl", "options": {"classifier_hidden": 10**12}},
    {"method": "grl", "options": {"hidden": 10**12}},
    {"method": "fdvae", "options": {"hidden": 10**12}},
    {"method": "fdvae", "options": {"block": 10**12}},
    {"method": "shasam", "options": {"projection_dim": 2**62}},
    {"train": {"learn": {"steps": 1, "batch_views": 10**10}}},
    {"data": {"n": 10**15}},
    {"data": {"size": 10**6}},
    {"data": {"holdout_per_cell": 10**15}},
    {"data": {"n_per_group": 10**15}},
    {"train": {"ema": 7}},
    {"seed": 2**80},
    {"train": {"learn": {"steps": 10**400}}},
    {"method": "fscl", "options": {"projection_dim": -7}},
    {"train": {"devices": 1000}},
    {"data": {"target": "a" * 10**5}},
    {"data": {"name": "../x"}},
    {"method": "x" * 10**6},
]
CSV = [
    b"",
    b"\0" * 10**6,
    b"label,prediction,sensitive\n",
    b"label," * 10_000,
    b'"' * 10**6,
    b"label\n" * 10**5,
    b"label,prediction,sensitive\n" + b"inf,1,a\n" * 1000,
    b"label,prediction,sensitive\n" + b"1e999,1,a\n",
    b"label,prediction,sensitive\n" + b"".join(b"%d,%d,a\n" % (k, k) for k in range(15_000)),
    b"label,prediction,sensitive\n" + b"".join(b"%d,1,g%d\n" % (k % 2, k) for k in range(15_000)),
    b"\xff\xfelabel,prediction,sensitive\n1,1,a\n",
    b"label,label,sensitive\n1,1,a\n",
    b"PK\3\4" + b"\0" * 1000,
    b"label,prediction,sensitive\n" + b"1,1\n" * 1000,
]


def _parquet(**columns: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def _zipped(size: int) -> bytes:
    buffer = io.BytesIO()
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (size // 8, 1)}
    )
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("embeddings.npy", head.getvalue() + bytes(size))
    return buffer.getvalue()


def _header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def _png(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("LA", (side, side)).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


ZEROS = np.zeros(10**6, int)
TABLES = [
    _parquet(label=LONG, prediction=LONG, sensitive=LONG),
    _parquet(x=ZEROS[:10]),
    b"PAR1" * 100,
    _parquet(label=ZEROS, prediction=ZEROS, sensitive=ZEROS)[:-30],
]
ARRAYS = {
    "bomb.npz": _zipped(300 << 20),
    "empty.npz": b"",
    "torn.npz": _zipped(1000)[:-9],
    "claim.npy": _header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 9)}\n"),
    "objects.npy": _header(b"{'descr': '|O', 'fortran_order': False, 'shape': (9,)}\n")
    + b"\0" * 999,
    "deep.npy": _header(b"(" * 9000),
    "code.npy": _header(b"__import__('os').abort()\n"),
}
IMAGES = [
    bomb_png(30_000, 30_000),
    bomb_png(5000, 5000),
    _png(7000),
    b"\xff\xd8\xff" * 10**6,
    b"RIFF\xff\xff\xff\xffWEBP" + b"VP8X" * 1000,
    b"\x89PNG\r\n\x1a\n" + b"\xff" * 10**6,
]
RUNS = [
    ("spec.yaml", ALIASES),
    ("metrics.json", b"[" * 10**6),
    ("metrics.json", b"[" + b"[]," * 10**6 + b"0]"),
    ("provenance.json", b"{" * 10**6),
    ("mining.json", b"[" + b"{}," * 2 * 10**6 + b"{}]"),
    ("predictions.parquet", TABLES[0]),
    ("embedding.parquet", b"PAR1" * 99),
]


def test_there_are_a_hundred() -> None:
    kinds = (YAML, SPECS, CSV, TABLES, ARRAYS, IMAGES, RUNS)
    assert sum(map(len, kinds)) == 100


def check_cheaply_refused(work, name: object) -> None:
    outcome = measured(work)
    assert outcome.status == "refused", (name, outcome)
    assert outcome.seconds < 1, (name, outcome)
    assert outcome.grown < 200, (name, outcome)
    print(f"{name}: {outcome.seconds:.2f} s, {outcome.grown:.0f} MiB: {outcome.message[:120]}")


def test_specifications_as_yaml(tmp_path: Path) -> None:
    for k, text in enumerate(YAML):
        (tmp_path / "x.yaml").write_bytes(text)
        check_cheaply_refused(
            lambda: train(config=tmp_path / "x.yaml", print_config=True), ("yaml", k)
        )


def test_specifications_that_ask_for_too_much(tmp_path: Path) -> None:
    data = TinyData()
    execute(resolve({"method": "ce", "data": {"size": 16}, "train": {"steps": 1}}, profile="smoke"),
            tmp_path, runtime=QUIET, data=data)  # fmt: skip
    for body in SPECS:

        def work(body: dict = body) -> None:
            spec = resolve({"method": "ce", **body}, profile="smoke")
            if "data" in body:
                open_data(spec.data)
            execute(spec, tmp_path, runtime=QUIET, data=data)

        check_cheaply_refused(work, json.dumps(body)[:80])


def test_tables_to_audit(tmp_path: Path) -> None:
    for suffix, contents in (("csv", CSV), ("parquet", TABLES)):
        for k, content in enumerate(contents):
            path = tmp_path / f"{k}.{suffix}"
            path.write_bytes(content)
            check_cheaply_refused(lambda path=path: audit([path]), path.name)


def test_embeddings_to_mine(tmp_path: Path) -> None:
    for name, content in ARRAYS.items():
        (tmp_path / name).write_bytes(content)
        check_cheaply_refused(lambda name=name: read_embeddings(tmp_path / name), name)


def test_images_to_decode() -> None:
    for k, content in enumerate(IMAGES):
        check_cheaply_refused(lambda content=content: decode(content, 64), ("image", k))


def test_runs_to_report(tmp_path: Path) -> None:
    report([make_run(tmp_path / "good")])  # everything is imported and warm
    for k, (name, content) in enumerate(RUNS):
        run = make_run(tmp_path / str(k))
        (run / name).write_bytes(content)
        check_cheaply_refused(lambda run=run: report([run]), (name, k))
