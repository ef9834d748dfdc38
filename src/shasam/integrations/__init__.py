"""SHaSaM-MINE and SHaSaM-LEARN in other people's frameworks; each module needs its package."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)
