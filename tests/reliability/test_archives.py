"""Reliability test 9: no archive is ever unpacked; a .npz is read in memory, by name.

Twenty-five archives are offered wherever a file is read: as images, tables, weights and
embeddings. None leaves a file anywhere.
"""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.reliability.measured import measured

from shasam.data.decode import decode
from shasam.documents import read_yaml
from shasam.mining.offline import read_embeddings
from shasam.report.columns import Columns
from shasam.report.predictions import read_predictions

pytestmark = pytest.mark.slow


def _npy(rows: int = 2) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((rows, 3)))
    return buffer.getvalue()


def _zip(*members: tuple[str, bytes], mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, method
            archive.writestr(info, data)
    return buffer.getvalue()


def _tar(name: str, link: str | None = None, kind: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=kind) as archive:
        info = tarfile.TarInfo(name)
        if link is None:
            info.size = 4
        else:
            info.type, info.linkname = tarfile.SYMTYPE, link
        archive.addfile(info, io.BytesIO(b"evil"))
    return buffer.getvalue()


LINK = stat.S_IFLNK | 0o777
ESCAPES = ("../x.npy", "../../x.npy", "/tmp/shasam-x.npy", "a/../../x.npy", "..\\x.npy",
           "C:\\x.npy", "a\x00b.npy", "~/x.npy")  # fmt: skip
ARCHIVES = {
    **{f"zip {name!r}": _zip((name, _npy()), ("b.npy", _npy())) for name in ESCAPES},
    "zip of a link": _zip(("x.npy", b"/etc/passwd"), ("y.npy", _npy()), mode=LINK),
    "only a link": _zip(("embeddings.npy", b"/etc/passwd"), mode=LINK),
    "same name twice": _zip(("embeddings.npy", _npy()), ("embeddings.npy", _npy())),
    "ratio 1000": _zip(("embeddings.npy", _npy(20_000_000))),
    "zip in zip": _zip(("embeddings.npy", _zip(("x", bytes(10**7))))),
    "empty zip": _zip(),
    "torn zip": _zip(("embeddings.npy", _npy()))[:-10],
    "not an array": _zip(("embeddings.npy", b"evil")),
    "pickled objects": _zip(("embeddings.npy", _npy().replace(b"<f8", b"|O "))),
    "bzip2": _zip(("embeddings.npy", b"x"), method=zipfile.ZIP_BZIP2),
    "tar ..": _tar("../x"), "tar /": _tar("/tmp/shasam-x"), "tar link": _tar("x", "/etc/passwd"),
    "tar.gz": _tar("../x", kind="w:gz"), "tar.xz": _tar("../x", kind="w:xz"),
    "gzip": b"\x1f\x8b\x08" + bytes(100), "7z": b"7z\xbc\xaf\x27\x1c" + bytes(100),
}  # fmt: skip


def test_there_are_twenty_five() -> None:
    assert len(ARCHIVES) == 25


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_refused_wherever_it_is_offered(tmp_path: Path, name: str) -> None:
    data = ARCHIVES[name]
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    for suffix in ("npz", "npy", "csv", "parquet", "yaml"):
        (inside / f"x.{suffix}").write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    for work in (
        lambda: decode(data, 16),
        lambda: read_embeddings(inside / "x.npz"),
        lambda: read_embeddings(inside / "x.npy"),
        lambda: read_predictions(inside / "x.csv", Columns()),
        lambda: read_predictions(inside / "x.parquet", Columns()),
        lambda: read_yaml(inside / "x.yaml"),
    ):
        outcome = measured(work)
        assert outcome.status == "refused", outcome
        assert outcome.seconds < 1 and outcome.grown < 200, outcome
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/shasam-x").exists() and not Path("/tmp/shasam-x.npy").exists()
