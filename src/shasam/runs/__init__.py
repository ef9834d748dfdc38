"""Run directories: executing a specification, loading a trained model, sweeping a grid."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)
