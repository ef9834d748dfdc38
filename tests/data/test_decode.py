"""Strangers' files: handled rightly, or turned away with a reason."""

from __future__ import annotations

import io
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from shasam.data import decode as module
from shasam.data.decode import BadImage, decode


def picture(seed: int = 0, size: tuple[int, int] = (48, 48)) -> Image.Image:
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def saved(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def bomb_png(width: int, height: int) -> bytes:
    """A valid header that claims a huge picture; 70 bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rest = chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + rest


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_good_files_give_the_centre_square(kind: str) -> None:
    options = {"quality": 95} if kind != "PNG" else {}
    image = picture(size=(80, 40))
    got = decode(saved(image, kind, **options), 20)
    wanted = image.resize((20, 20), Image.Resampling.BILINEAR, box=(20, 0, 60, 40))
    assert got.shape == (20, 20, 3) and got.dtype == np.uint8
    assert np.abs(got.astype(int) - np.asarray(wanted)).mean() < 4


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("L", "JPEG"), ("CMYK", "JPEG"), ("L", "PNG"), ("P", "PNG"), ("1", "PNG"), ("LA", "PNG"),
     ("RGBA", "PNG"), ("RGBA", "WEBP")],
)  # fmt: skip
def test_other_colour_modes_become_rgb(mode: str, kind: str) -> None:
    image = picture().convert(mode)
    got = decode(saved(image, kind), 16)
    wanted = image.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
    assert np.abs(got.astype(int) - np.asarray(wanted)).mean() < 12


def test_transparent_pixels_are_white() -> None:
    clear = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    assert (decode(saved(clear, "PNG"), 8) == 255).all()


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    got = decode(saved(Image.fromarray(ramp), "PNG"), 32)[..., 0]
    assert np.abs(got.astype(int) - (ramp >> 8)).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_undone(orientation: int) -> None:
    upright = picture(3)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Image.Transpose that makes it so
    turned = upright.transpose(Image.Transpose(undo[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    got = decode(saved(turned, quality=95, exif=exif), 48)
    assert np.abs(got.astype(int) - np.asarray(upright)).mean() < 5


def animated(kind: str) -> bytes:
    frames = [picture(k) for k in range(3)]
    return saved(frames[0], kind, save_all=True, append_images=frames[1:])


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "0 bytes"),
    "web page": (lambda: b"<!DOCTYPE html><html>no</html>", "web page"),
    "late html": (lambda: b"\n\n  <HTML><body>", "web page"),
    "text": (lambda: b"hello", "not JPEG"),
    "gif": (lambda: saved(picture(), "GIF"), "GIF"),
    "bmp": (lambda: saved(picture(), "BMP"), "BMP"),
    "tiff": (lambda: saved(picture(), "TIFF"), "TIFF"),
    "fits": (lambda: b"SIMPLE  =                    T" + b" " * 3000, "FITS"),
    "psd": (lambda: b"8BPS\0\1" + b"\0" * 100, "PSD"),
    "zip": (lambda: b"PK\3\4" + b"\0" * 100, "ZIP"),
    "truncated jpeg": (lambda: saved(picture(), quality=95)[:700], "truncated"),
    "truncated png": (lambda: saved(picture(), "PNG")[:200], "."),
    "truncated webp": (lambda: saved(picture(), "WEBP")[:100], "."),
    "jpeg head only": (lambda: b"\xff\xd8\xff", "."),
    "bomb": (lambda: bomb_png(30_000, 30_000), "more than 25 million pixels"),
    "long bomb": (lambda: bomb_png(60_000, 4), "60000x4 pixels"),
    "tiny": (lambda: saved(picture(size=(1, 1)), "PNG"), "too small"),
    "animated webp": (lambda: animated("WEBP"), "animated: 3 frames"),
    "animated png": (lambda: animated("PNG"), "animated: 3 frames"),
}


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_turned_away_with_a_reason(name: str, fast: bool) -> None:
    make, reason = BAD[name]
    with pytest.raises(BadImage, match=reason):
        decode(make(), 16, fast=fast)


def test_a_file_beyond_the_byte_limit_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    with pytest.raises(BadImage, match="MiB"):
        decode(saved(picture()), 16)


@pytest.mark.parametrize("fast", [True, False])
def test_the_first_picture_of_several_in_one_jpeg_is_used_by_both_decoders(fast: bool) -> None:
    buffer = io.BytesIO()
    picture(1).save(buffer, "MPO", save_all=True, append_images=[picture(2)], quality=95)
    alone = decode(saved(picture(1), quality=95), 48)
    assert np.abs(decode(buffer.getvalue(), 48, fast=fast).astype(int) - alone).max() <= 2


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1", "L", "I;16"])
def test_a_picture_converted_in_bands_is_the_same(mode: str, monkeypatch) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.arange(48 * 48, dtype=np.uint16).reshape(48, 48) * 28)
    else:
        image = picture().convert("RGBA")
        image.putalpha(Image.fromarray(np.arange(48 * 48, dtype=np.uint8).reshape(48, 48)))
        image = image.convert(mode)
    data = saved(image, "PNG", **({"transparency": 3} if mode == "P" else {}))
    whole = decode(data, 20)
    monkeypatch.setattr(module, "_BAND", 100)
    assert np.array_equal(decode(data, 20), whole)


_LARGE = """
import io, resource, sys, zlib, struct
from PIL import Image
from shasam.data.decode import BadImage, decode
mode, side, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = open(sys.argv[4], "rb").read()
decode(data[:0] or open(sys.argv[5], "rb").read(), 64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode(data, 64)
    print("read", end=" ")
except BadImage as error:
    print("refused", end=" ")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_what_would_be_held_whole_has_a_smaller_limit() -> None:
    with pytest.raises(BadImage, match="the limit of PNG is 25 million"):
        decode(bomb_png(5000, 5001), 16)
    large = Image.new("L", (5000, 5001))
    for progressive in (True, False):
        data = saved(large, progressive=progressive)
        for fast in (True, False):
            assert verdict(data, fast) is not progressive


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "side", "kind", "verdict"),
    [
        ("RGBA", 5000, "PNG", "read"),
        ("LA", 7000, "PNG", "refused"),
        ("RGB", 7000, "JPEG", "read"),
        ("CMYK", 5000, "progressive JPEG", "read"),
        ("RGB", 7000, "progressive JPEG", "refused"),
        ("RGBA", 4000, "WEBP", "read"),
        ("RGBA", 5000, "WEBP", "refused"),
    ],
)
def test_large_pictures_take_bounded_memory(tmp_path, mode, side, kind, verdict) -> None:
    options: dict[str, object] = {
        "PNG": {"compress_level": 1},
        "JPEG": {},
        "progressive JPEG": {"progressive": True, "subsampling": 0},
        "WEBP": {"lossless": True, "method": 0},
    }[kind]
    kind = kind.removeprefix("progressive ")
    Image.new(mode, (side, side)).save(tmp_path / "large", kind, **options)
    picture().save(tmp_path / "small", kind)
    assert (tmp_path / "large").stat().st_size < 2 << 20
    command = [sys.executable, "-c", _LARGE, mode, str(side), kind]
    command += [str(tmp_path / "large"), str(tmp_path / "small")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == verdict and int(said[1]) < 300 * 1024  # KiB


def fuzzed(count: int) -> list[bytes]:
    """Good files of every kind, cut, flipped, spliced and padded."""
    rng = np.random.default_rng(0)
    exif = Image.Exif()
    exif[0x0112] = 6
    seeds = [
        saved(picture(), quality=90), saved(picture(), quality=90, progressive=True),
        saved(picture(), quality=90, exif=exif), saved(picture().convert("CMYK")),
        saved(picture().convert("L")), saved(picture(), "PNG"), saved(picture(), "WEBP"),
        saved(Image.fromarray(np.zeros((32, 32), np.uint16)), "PNG"), animated("WEBP"),
        animated("PNG"), bomb_png(30_000, 30_000),
    ]  # fmt: skip
    out = []
    for k in range(count):
        data = bytearray(seeds[k % len(seeds)])
        way = (k // len(seeds)) % 4
        if way == 0:
            del data[rng.integers(0, len(data)) :]
        elif way == 1:
            for place in rng.integers(0, len(data), rng.integers(1, 20)):
                data[place] ^= 1 << int(rng.integers(0, 8))
        elif way == 2:
            other = seeds[rng.integers(0, len(seeds))]
            data[rng.integers(0, len(data)) :] = other[rng.integers(0, len(other)) :]
        else:
            place = int(rng.integers(0, min(64, len(data))))
            data[place : place + 4] = rng.bytes(4)
        out.append(bytes(data))
    return out


def verdict(data: bytes, fast: bool) -> bool:
    try:
        image = decode(data, 32, fast=fast)
    except BadImage as error:
        assert str(error)
        return False
    assert image.shape == (32, 32, 3)
    return True


def test_a_thousand_fuzzed_files_neither_crash_nor_leak_and_both_decoders_agree() -> None:
    files = fuzzed(1000)
    verdict(files[0], True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fast = [verdict(data, True) for data in files]
    slow = [verdict(data, False) for data in files]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB on Linux
    assert fast == slow
    assert 100 < sum(fast) < 900  # the fuzz is neither harmless nor hopeless
    assert grown < 300 * 1024


def test_without_simplejpeg_the_pictures_are_nearly_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = saved(picture(size=(128, 128)), quality=90)
    with_it = decode(data, 64)
    monkeypatch.setattr(module, "simplejpeg", None)
    assert np.abs(with_it.astype(int) - decode(data, 64)).max() <= 2
