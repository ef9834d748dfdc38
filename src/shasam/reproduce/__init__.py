"""The tables and figures of the paper, declared in YAML, filled by runs, beside its numbers."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)
