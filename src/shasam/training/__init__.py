"""Training: the trainer, its checkpoints, and the only door to the test split."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)
