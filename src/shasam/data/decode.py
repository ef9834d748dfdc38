"""Guarded decoding: from the bytes of an untrusted file to a square RGB image, or a reason.

JPEG, PNG and WebP only; the size is read and judged before anything is decoded. simplejpeg decodes
plain JPEG when it is installed and Pillow does the rest, and whenever simplejpeg objects Pillow
judges, so that which images are readable does not depend on what is installed.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

try:
    import simplejpeg
except ImportError:  # the extra `jpeg` is optional
    simplejpeg = None

MAX_BYTES = 64 << 20
# A plain JPEG is scaled while it is decoded. The others are held whole: a progressive JPEG as
# coefficients of up to 8 bytes a pixel, PNG and WebP as pixels, WebP twice.
MAX_PIXELS = {
    "JPEG": 50_000_000,
    "progressive JPEG": 25_000_000,
    "PNG": 25_000_000,
    "WEBP": 16_000_000,
}
MAX_SIDE = 20_000
MIN_SIDE = 4
_JPEG = ("JPEG", "progressive JPEG")
_BAND = 1 << 20  # pixels that are converted at a time
_ORIENTATION = 0x0112  # of EXIF
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}  # fmt: skip
_OTHERS = (
    (b"GIF8", "GIF"), (b"BM", "BMP"), (b"SIMPLE  =", "FITS"), (b"8BPS", "PSD"), (b"%PDF", "PDF"),
    (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"PK\3\4", "ZIP"), (b"\x1f\x8b", "gzip"),
)  # fmt: skip


class BadImage(Exception):
    """A file that is not used; the message is the reason that is recorded."""


def decode(data: bytes, size: int, *, fast: bool = True) -> np.ndarray:
    """Return the centre square of an image, upright, resized to (size, size, 3) uint8."""
    kind = sniff(data)
    if kind == "JPEG" and _progressive(data):
        kind = "progressive JPEG"
    if kind in _JPEG and fast and simplejpeg is not None:
        picture = _plain_jpeg(data, size, kind)
        if picture is not None:
            return _square(picture, size)
    return _square(_with_pillow(data, size, kind), size)


def sniff(data: bytes) -> str:
    """Return JPEG, PNG or WEBP by the first bytes, whatever the file is called."""
    if not data:
        raise BadImage("0 bytes")
    if len(data) > MAX_BYTES:
        raise BadImage(f"{len(data) >> 20} MiB, the limit is {MAX_BYTES >> 20} MiB")
    if data[:3] == b"\xff\xd8\xff":
        return "JPEG"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    head = data[:512].lstrip().lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")) or b"<html" in head:
        raise BadImage("a web page saved under an image's name")
    for magic, name in _OTHERS:
        if data.startswith(magic):
            raise BadImage(f"{name}, not JPEG, PNG or WebP")
    raise BadImage("not JPEG, PNG or WebP")


def _progressive(data: bytes) -> bool:
    """Return whether the first frame of a JPEG is progressive: its start-of-frame marker says so.

    A file without that marker where it belongs is refused here: Pillow would look for it byte by
    byte, for seconds in a file of some megabytes.
    """
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return marker in (0xC2, 0xC6, 0xCA, 0xCE)
        if marker == 0xFF:  # a fill byte
            place += 1
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    raise BadImage("its header cannot be read")


def _check_size(kind: str, width: int, height: int) -> None:
    limit = MAX_PIXELS[kind]
    if width * height > limit or max(width, height) > MAX_SIDE:
        raise BadImage(f"{width}x{height} pixels, the limit of {kind} is {limit // 10**6} million")
    if min(width, height) < MIN_SIDE:
        raise BadImage(f"{width}x{height} pixels, too small")


def _plain_jpeg(data: bytes, size: int, kind: str) -> Image.Image | None:
    """Return simplejpeg's picture.

    None leaves the file to Pillow (EXIF, CMYK, anything unusual).
    """
    if b"Exif\0" in data[:65536]:
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    _check_size(kind, width, height)
    if colours not in ("YCbCr", "Gray"):
        return None
    # the scaled decoder only for pictures much larger than what is wanted
    least = 2 * size if min(height, width) >= 4 * size else 0
    try:
        pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=least, min_width=least)
    except ValueError:
        return None
    return Image.fromarray(pixels)


def _with_pillow(data: bytes, size: int, kind: str) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about metadata it cannot read
        try:
            with _opened(data, kind) as image:
                _check_size(kind, *image.size)
                if getattr(image, "n_frames", 1) > 1:
                    raise BadImage(f"animated: {image.n_frames} frames")
                if kind in _JPEG and min(image.size) >= 4 * size:
                    image.draft(None, (2 * size, 2 * size))
                image.load()
                turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
                picture = _to_rgb(image)
            return picture if turn is None else picture.transpose(turn)
        except BadImage:
            raise
        except Image.DecompressionBombError as error:
            limit = MAX_PIXELS[kind] // 10**6
            raise BadImage(f"more than {limit} million pixels") from error
        except Exception as error:  # whatever a broken file makes a decoder raise is its reason
            raise BadImage(_reason(error)) from error


def _opened(data: bytes, kind: str) -> Image.Image:
    if kind in _JPEG:
        # Image.open would make an MPO of a JPEG that is followed by more pictures, as cameras write
        # for depth or brightness; the first picture is the photograph, for both decoders
        return JpegImageFile(io.BytesIO(data))
    return Image.open(io.BytesIO(data), formats=(kind,))


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB band by band, so that a large image is never held in three copies."""
    if image.mode == "RGB":
        return image
    if image.width * image.height <= _BAND:
        return _band_to_rgb(image)
    picture = Image.new("RGB", image.size)
    rows = max(1, _BAND // image.width)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(image.height, top + rows)))
        picture.paste(_band_to_rgb(band), (0, top))
    return picture


def _band_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit gray: keep the high byte; Pillow would clip at 255
        high = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype("u1")
        return Image.fromarray(high).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white: Any = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _square(image: Image.Image, size: int) -> np.ndarray:
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    if (width, height) != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "cannot identify" in text:
        text = "its header cannot be read"
    return f"{text[:120] or type(error).__name__}"
