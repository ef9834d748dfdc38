"""The built-in sources; importing this package registers them."""

from __future__ import annotations

from shasam.data.sources import clusters, embeddings, faces, hugging_face, public_faces, table

__all__ = ["clusters", "embeddings", "faces", "hugging_face", "public_faces", "table"]
