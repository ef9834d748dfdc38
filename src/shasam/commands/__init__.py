"""One file per command of the command line."""

from __future__ import annotations
