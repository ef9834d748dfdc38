"""The built-in sources; importing this package registers them."""

from __future__ import annotations

from shasam.data.sources import (
    celeba,
    clusters,
    embeddings,
    faces,
    hugging_face,
    table,
    utkface,
)

__all__ = ["celeba", "clusters", "embeddings", "faces", "hugging_face", "table", "utkface"]
