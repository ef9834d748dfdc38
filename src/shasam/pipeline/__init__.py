"""From a specification to results: build a method, train it, evaluate it, load it, repeat it.

What is written here is read by ``shasam.runs``, which needs no torch.
"""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)
