"""The built-in sources; importing this package registers them."""

from __future__ import annotations

from shasam.data.sources import drawn

__all__ = ["drawn"]
