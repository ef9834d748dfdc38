"""Embeddings of strangers: read as NumPy reads them, or refused before they take memory."""

from __future__ import annotations

import io
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.data.vector_files import write_all

from shasam.errors import ShasamError
from shasam.mining.offline import read_embeddings

X = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", ">f8", "i4", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path, dtype: str, order: str) -> None:
    x = np.asarray(100 * X, dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", x)
    np.savez_compressed(tmp_path / "b.npz", embeddings=x, other=np.zeros(3))
    np.savez(tmp_path / "c.npz", x)
    for name in ("a.npy", "b.npz", "c.npz"):
        assert np.array_equal(read_embeddings(tmp_path / name), x.astype(np.float32))


def test_embeddings_are_read_from_every_format_of_vectors(tmp_path: Path) -> None:
    for path in write_all(tmp_path, X.astype(np.float32)):
        assert np.array_equal(read_embeddings(path), X.astype(np.float32)), path.name


def test_two_megabytes_that_unpack_to_gigabytes_are_refused_at_once(tmp_path: Path) -> None:
    header = io.BytesIO()
    rows = 700_000_000
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (rows, 2)}
    )
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("embeddings.npy", "w", force_zip64=True) as file,
    ):
        file.write(header.getvalue())
        for _ in range(100):
            file.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ShasamError, match="measured numbers do not"):
        read_embeddings(tmp_path / "bomb.npz")
    (tmp_path / "claim.npy").write_bytes(header.getvalue() + bytes(1000))
    with pytest.raises(ShasamError, match="is too short"):
        read_embeddings(tmp_path / "claim.npy")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # KiB


def npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00\x10\x00", npy(b"{" * 900), npy(b"[1]"),
     npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}\n") + b"x" * 99,
     npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -8)}\n") + b"x" * 99,
     npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 8)}\n") + b"x" * 99,
     npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': 3}\n") + b"x" * 99,
     b"PK\x03\x04" + b"x" * 99],
)  # fmt: skip
def test_damaged_arrays_are_sentences(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    (tmp_path / "x.npz").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "y.npz", "w") as archive:
        archive.writestr("embeddings.npy", content)
    for name in ("x.npy", "x.npz", "y.npz"):
        with pytest.raises(ShasamError, match=name):
            read_embeddings(tmp_path / name)
