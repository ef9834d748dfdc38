"""The files of a run: its directory, log, predictions and records. Importing it needs no torch."""

from __future__ import annotations
