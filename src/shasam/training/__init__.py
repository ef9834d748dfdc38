"""Training: the trainer, its checkpoints, and the one function that opens the test split."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)
