"""``faces``: drawn faces with a chosen bias; the default data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from shasam.data.faces import ATTRIBUTES, VERSION, render
from shasam.data.protocol import cell_counts
from shasam.data.source import Label, Listing, Reading, Source
from shasam.errors import DataError
from shasam.keyed import keys, text_key, uniform
from shasam.registry import did_you_mean, register

# how often an attribute is there when it is neither target nor sensitive
_RATES = {
    "smile": 0.5, "glasses": 0.25, "beard": 0.22, "long_hair": 0.45, "hat": 0.12,
    "dark_skin": 0.5, "old": 0.3,
}  # fmt: skip
_CLEAR = 2.2  # distance of the two means from the middle, in standard deviations
_SLOPE = 0.18  # strength = 1/2 + slope * latent, cut to 0..1


@register("faces", kind="source")
class Faces(Source):
    """Drawn faces: exact cells, ambiguous target, clear sensitive attribute.

    The strength of an attribute is 1/2 + 0.18 (±d + noise) with noise of unit variance; d = 2.2 for
    all but the target, whose d falls with ``difficulty`` from 2.2 to 0.4. So the target is drawn
    and confused as in life, and a classifier gains by leaning on the sensitive attribute.
    """

    summary = "drawn faces, made on the spot; the default"
    labels: ClassVar[Mapping[str, Label]] = {
        "smile": Label("smile", ("serious", "smiling")),
        "glasses": Label("glasses", ("no glasses", "glasses")),
        "beard": Label("beard", ("no beard", "beard")),
        "long_hair": Label("long_hair", ("short hair", "long hair")),
        "hat": Label("hat", ("no hat", "hat")),
        "dark_skin": Label("dark_skin", ("light skin", "dark skin")),
        "old": Label("old", ("young", "old")),
    }
    target, sensitive, split, alpha = "smile", "dark_skin", "official", 4.0

    def list_images(self) -> Listing:
        spec = self.spec
        target = _parts(spec.target or self.target, "target")
        sensitive = _parts(spec.sensitive or self.sensitive, "sensitive attribute")
        if set(target) & set(sensitive):
            raise DataError("the target and the sensitive attribute of faces must differ")
        t, s, split = self._design(2 ** len(target), 2 ** len(sensitive))
        n = len(t)
        key = keys(text_key("faces"), spec.seed, np.arange(n))
        chance = uniform(keys(text_key("faces/attributes"), spec.seed, np.arange(n)), 16)
        columns: dict[str, np.ndarray] = {}
        for k, name in enumerate(ATTRIBUTES):
            columns[name] = (chance[:, k] < _RATES[name]).astype(np.int64)
        # few beards go with long hair, as in life, unless either is what is studied
        rare = (columns["long_hair"] == 1) & (chance[:, 15] < 0.85)
        columns["beard"] = np.where(rare, 0, columns["beard"])
        for names, codes in ((target, t), (sensitive, s)):
            for bit, name in enumerate(names):
                columns[name] = (codes >> bit) & 1
        for name in ATTRIBUTES:
            d = _CLEAR - 1.8 * spec.difficulty if name in target else _CLEAR
            # twelve uniform numbers: a bell made by additions alone, equal on every machine
            parts = uniform(keys(text_key(f"faces/{name}"), spec.seed, np.arange(n)), 12)
            latent = parts.astype(np.float64).sum(1) - 6 + d * (2 * columns[name] - 1)
            columns[f"{name}_strength"] = np.clip(0.5 + _SLOPE * latent, 0, 1)
        ids = [f"face-{spec.seed}-{i:07d}" for i in range(n)]
        table = {"id": ids, "path": [""] * n, "key": key, **columns, "split": split}
        return Listing(pa.table(table))

    def _design(self, classes: int, groups: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        spec = self.spec
        hold = spec.holdout_per_cell or self.holdout_per_cell
        per_group = spec.n_per_group or spec.n // groups
        alpha = spec.alpha if spec.alpha is not None else self.alpha
        t, s, split = [], [], []
        for name in ("train", "val", "test"):
            for group in range(groups):
                counts = [hold] * classes
                if name == "train":
                    counts = cell_counts(per_group, alpha, classes, group, spec.flip_direction)
                for label, count in enumerate(counts):
                    t += [label] * count
                    s += [group] * count
                    split += [name] * count
        return np.array(t), np.array(s), split

    def read(self, table: pa.Table, size: int) -> Reading:
        key = table.column("key").to_numpy()
        strengths = {n: table.column(f"{n}_strength").to_numpy() for n in ATTRIBUTES}
        recipe = np.stack([strengths[name] for name in ATTRIBUTES], 1).astype("<f8")
        hashes = [
            hashlib.sha256(f"faces/{VERSION}/{int(k)}/".encode() + row.tobytes()).hexdigest()
            for k, row in zip(key, recipe, strict=True)
        ]
        return Reading(render(strengths, key, size), hashes, [""] * len(key))

    def pixels_key(self) -> str:
        spec = self.spec
        wanted = spec.model_dump(
            mode="json",
            include={"target", "sensitive", "alpha", "flip_direction", "n", "n_per_group",
                     "holdout_per_cell", "difficulty", "seed"},
        )  # fmt: skip
        return f"faces/{VERSION}/{sorted(wanted.items())}"


def _parts(rule: str, what: str) -> list[str]:
    names = [part.strip() for part in rule.split("&")]
    for name in names:
        if name not in ATTRIBUTES:
            raise DataError(
                f"faces have no {name!r} for the {what}{did_you_mean(name, ATTRIBUTES)}"
            )
    return names
