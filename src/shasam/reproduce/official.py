"""Accuracy as it would be on CelebA's whole test split, from a test split that is a part of it.

The part that is at hand may have other shares of classes and groups than the whole (the images of
CelebA-HQ do), and accuracy depends on them. The accuracy of each (target, group) cell does not, so
those are averaged with the shares of the whole test split, which ``official_counts.json`` holds.
Equalised odds compares cells and needs no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from shasam.metrics import catalogue
from shasam.registry import lookup
from shasam.reproduce.artefact import Artefact

Cells = Mapping[tuple[int, int], tuple[int, int]]  # (target, group) -> rows, right ones


@cache
def official_counts() -> dict[str, list[list[int]]]:
    """``target/sensitive`` -> images of CelebA's test split by class and group."""
    held = files("shasam.reproduce").joinpath("official_counts.json")
    return json.loads(held.read_text(encoding="utf-8"))


def official_accuracy(protocol: Mapping[str, Any], cells: Cells) -> float | None:
    """The accuracy of cells, weighted by their official shares; None where they are not known."""
    counts = official_counts().get(f"{protocol.get('target')}/{protocol.get('sensitive')}")
    if counts is None or not cells:
        return None
    total = right = 0.0
    for t, line in enumerate(counts):
        for s, count in enumerate(line):
            rows, hits = cells.get((t, s), (0, 0))
            if count and not rows:
                return None
            total += count
            right += count * hits / rows if rows else 0.0
    return right / total


def majority_share(cells: Cells) -> float | None:
    """The share of the largest class: the accuracy of a classifier that always says it."""
    by_class: dict[int, int] = {}
    for (t, _), (rows, _) in cells.items():
        by_class[t] = by_class.get(t, 0) + rows
    return max(by_class.values()) / sum(by_class.values()) if by_class else None


def official_majority(target: str, sensitive: str) -> float | None:
    """The same of CelebA's whole test split."""
    counts = official_counts().get(f"{target}/{sensitive}")
    if counts is None:
        return None
    sums = [sum(line) for line in counts]
    return max(sums) / sum(sums)


def target_and_group(artefact: Artefact, column: str) -> tuple[str, str]:
    """What a column of an artefact predicts, and its sensitive attribute."""
    data = {**(artefact.base.get("data") or {}), **(artefact.columns[column].get("data") or {})}
    source = lookup("source", str(artefact.data))
    target, sensitive = source.settings.get(data.get("setting"), (source.target, source.sensitive))
    return str(data.get("target") or target), str(data.get("sensitive") or sensitive)


def metric_label(name: str) -> str:
    """The label of a metric of an artefact."""
    return "Accuracy, official shares" if name == "official_accuracy" else catalogue.label_of(name)
