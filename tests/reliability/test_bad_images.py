"""Reliability test 7: a thousand broken image files through the whole way of packing."""

from __future__ import annotations

import csv
import io
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.test_decode import animated, bomb_png, fuzzed, picture, saved
from tests.reliability.measured import measured

from shasam.data import DataSpec, make_source
from shasam.data.dataset import open_store
from shasam.errors import DataError

pytestmark = pytest.mark.slow


def _mpo() -> bytes:
    buffer = io.BytesIO()
    picture(1).save(buffer, "MPO", save_all=True, append_images=[picture(2)])
    return buffer.getvalue()


def _deep_png() -> bytes:
    """A compressed text chunk that unpacks to a gigabyte."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    data = saved(picture(), "PNG")
    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 28), 9))
    return data[:33] + text + data[33:]


SPECIAL = {
    "empty.jpg": b"",
    "page.jpg": b"<!DOCTYPE html><html></html>",
    "fits.jpg": b"SIMPLE  =" + b" " * 3000,
    "psd.png": b"8BPS\0\1" + b"\0" * 200,
    "zip.png": b"PK\3\4" + b"\0" * 99,
    "bomb.png": bomb_png(30_000, 30_000),
    "long.png": bomb_png(60_000, 4),
    "text.png": _deep_png(),
    "gif.jpg": saved(picture(), "GIF"),
    "tiff.jpg": saved(picture(), "TIFF"),
    "animated.webp": animated("WEBP"),
    "animated.png": animated("PNG"),
    "jpeg-head.jpg": b"\xff\xd8\xff",
}
READABLE = {
    "cmyk.jpg": saved(picture().convert("CMYK")), "mpo.jpg": _mpo(),
    "sixteen.png": saved(Image.fromarray(np.zeros((32, 32), np.uint16)), "PNG"),
}  # fmt: skip


def _folder(root: Path) -> dict[str, bytes]:
    """1,000 broken or odd files and 100 good ones, with their table."""
    files = {**SPECIAL, **READABLE}
    for k, data in enumerate(fuzzed(1000 - len(files))):
        files[f"fuzzed-{k:04d}.jpg"] = data
    for k in range(100):
        files[f"good-{k:03d}.jpg"] = saved(picture(k), quality=90)
    root.mkdir()
    with open(root / "people.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "smile", "old"])
        for k, (name, data) in enumerate(sorted(files.items())):
            (root / name).write_bytes(data)
            table.writerow([name, k % 2, k // 2 % 2])
    return files


def test_a_thousand_bad_files_are_packed_with_a_reason_each(
    tmp_path: Path, record_property
) -> None:
    files = _folder(tmp_path / "photos")
    spec = DataSpec(name="manifest", csv=tmp_path / "photos" / "people.csv", size=64,
                    target="smile", sensitive="old", store=tmp_path / "store")  # fmt: skip
    began = time.process_time()
    outcome = measured(lambda: open_store(make_source(spec), 64), limit=600)
    assert outcome.status == "done", outcome.message
    assert outcome.grown < 300  # MiB
    index = open_store(make_source(spec), 64).index.to_pydict()
    reasons = dict(zip(index["id"], index["reason"], strict=True))
    assert len(reasons) == len(files) == 1100
    assert all(reasons[name] for name in SPECIAL)
    assert not any(reasons[name] for name in READABLE)
    assert not any(reason for name, reason in reasons.items() if name.startswith("good"))
    milliseconds = 1000 * outcome.seconds / len(files)
    assert milliseconds < 50
    print(f"{sum(map(bool, reasons.values()))} of 1,100 left out with a reason, "
          f"{milliseconds:.1f} ms of processor a file, {outcome.grown:.0f} MiB grown, "
          f"{time.process_time() - began:.0f} s")  # fmt: skip
    from shasam.data import open_data

    with pytest.raises(DataError, match=r"cannot be read .*data\.allow_bad"):
        open_data(spec)
