"""The tables and figures of the paper, declared in YAML, filled by runs, beside its numbers.

Tables come out of records without torch; only what trains or measures imports it.
"""

from __future__ import annotations
