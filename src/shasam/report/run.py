"""A run directory, read from its files without torch; what is missing stays out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shasam.documents import parse_json, read_json, read_yaml
from shasam.errors import DataError, FileError
from shasam.files import open_regular, read_bytes
from shasam.parquet import read_parquet
from shasam.report.columns import Columns
from shasam.report.predictions import Predicted, read_predictions
from shasam.report.subject import Subject

MOST_DIFFERENCES = 3  # that a name tells
ENCODER = "model.encoder"


@dataclass(frozen=True)
class Run:
    """The files of one run; only ``predictions.parquet`` has to be there."""

    path: Path
    variant: str = ""  # what sets it apart from other runs of its method, see opened_runs

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise DataError(f"{self.path} is no run directory; give the folder that `train` wrote")
        if not (self.path / "predictions.parquet").is_file():
            raise DataError(
                f"{self.path} has no predictions.parquet: the run has not come to its test split "
                "yet; finish it with `shasam train`, or leave it out"
            )

    @cached_property
    def spec(self) -> dict[str, Any]:
        path = self.path / "spec.yaml"
        return read_yaml(path, within=self.path) if path.is_file() else {}

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return self._mapping("metrics.json")

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return self._mapping("provenance.json")

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        lines = []
        for line in (self._text("log.jsonl") or "").splitlines():
            try:
                entry = parse_json(line, "log.jsonl")
            except DataError:
                continue  # the last line of a run that was cut off may be half a line
            if isinstance(entry, dict):
                lines.append(entry)
        return lines

    @cached_property
    def mining(self) -> list[dict[str, Any]]:
        found = self._mapping("mining.json").get("iterations", [])
        return [i for i in found if isinstance(i, dict) and isinstance(i.get("sets"), dict)]

    @cached_property
    def predicted(self) -> Predicted:
        return read_predictions(self.path / "predictions.parquet", Columns(), self.name)

    @cached_property
    def embedding(self) -> dict[str, np.ndarray] | None:
        path = self.path / "embedding.parquet"
        if not path.is_file():
            return None
        try:
            names = ["x", "y", "target", "sensitive"]
            table = read_parquet(path, columns=names, within=self.path)
        except FileError as error:
            raise DataError(
                f"{self.path.name}/embedding.parquet cannot be read: {error}"
            ) from error
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        finite = np.isfinite(columns["x"]) & np.isfinite(columns["y"])
        return {name: values[finite] for name, values in columns.items()} if finite.any() else None

    @cached_property
    def metadata(self) -> dict[str, str]:
        path = self.path / "predictions.parquet"
        try:
            with open_regular(path, within=self.path) as file:
                found = pq.read_schema(file).metadata or {}
        except (FileError, OSError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        return {
            k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in found.items()
        }

    @cached_property
    def protocol(self) -> dict[str, Any]:
        try:
            found = json.loads(self.metadata.get("protocol", "{}"))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def method(self) -> str:
        name = _named(self.spec.get("method")) or self.path.name
        return f"{name} ({self.variant})" if self.variant else name

    @property
    def seed(self) -> int | None:
        seed = self.provenance.get("seed", self.spec.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def name(self) -> str:
        return self.method if self.seed is None else f"{self.method}, seed {self.seed}"

    @property
    def setting(self) -> str:
        """What the model was asked: the runs of one setting may be compared."""
        data = str(self.protocol.get("source") or _named(self.spec.get("data")) or "data")
        target, sensitive = self.protocol.get("target"), self.protocol.get("sensitive")
        alpha = self.protocol.get("alpha")
        words = data if not target else f"{data}: {target} by {sensitive}"
        biased = isinstance(alpha, int | float) and alpha != 1
        return f"{words}, bias {alpha:g}" if biased else words

    @property
    def manifest_sha256(self) -> str:
        return str(self.provenance.get("manifest_sha256") or self.metadata.get("sha256") or "")

    def subject(self, draws: int = 2000, seed: int = 0, level: float = 0.95) -> Subject:
        """All metrics, recomputed from the predictions."""
        p = self.predicted
        g = p.groupings[0]
        return Subject.of(
            self.name,
            g.attribute,
            p.t,
            p.p,
            g.s,
            p.scores_NC,
            p.classes,
            g.names,
            positive=p.positive,
            draws=draws,
            seed=seed,
            level=level,
            ids=p.ids,
        )

    def epochs(self) -> list[dict[str, Any]]:
        return [e for e in self.log if e.get("event") == "epoch"]

    def _text(self, name: str) -> str | None:
        path = self.path / name
        if not path.is_file():
            return None
        return read_bytes(path, within=self.path).decode(errors="replace")

    def _mapping(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_json(path, within=self.path) if path.is_file() else {}


def opened_runs(paths: Sequence[Path]) -> list[Run]:
    """Runs to be shown together: where those of one method differ, each is told by its difference.

    Seeds, and where the data lies, are no difference; the data itself is the setting. An encoder
    that tells all variants apart is enough: profiles give each encoder settings of its own.
    """
    runs = [Run(Path(path)) for path in paths]
    flat = {run.path: dict(_flat(run.spec)) for run in runs}
    out = []
    for run in runs:
        kin = [flat[r.path] for r in runs if (r.setting, r.method) == (run.setting, run.method)]
        keys = dict.fromkeys(key for spec in kin for key in spec)
        own = flat[run.path]
        differ = [k for k in keys if len({repr(spec.get(k)) for spec in kin}) > 1]
        if ENCODER in differ and _kinds(kin, [ENCODER]) == _kinds(kin, differ):
            differ = [ENCODER]
        words = [f"{k.rsplit('.', 1)[-1]} {own.get(k)}" for k in differ[:MOST_DIFFERENCES]]
        if len(differ) > MOST_DIFFERENCES:
            words.append(f"{len(differ) - MOST_DIFFERENCES} more")
        out.append(Run(run.path, ", ".join(words)))
    return out


def _kinds(specs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    """How many different specifications there are if only ``keys`` are looked at."""
    return len({tuple(repr(spec.get(k)) for k in keys) for spec in specs})


def _flat(spec: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a specification, without seeds and data."""
    for key, value in spec.items():
        name = f"{prefix}{key}"
        if name == "data" or name.endswith("seed"):
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, name + ".")
        else:
            yield name, value


def found_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories; a folder that is none stands for the finished runs inside it."""
    out: list[Path] = []
    for path in paths:
        if path.is_dir() and not (path / "predictions.parquet").is_file():
            inside = sorted(p.parent for p in path.glob("*/predictions.parquet"))
            if inside:
                out += inside
                continue
        out.append(path)
    return out


def finite(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _named(part: Any) -> str | None:
    """The name in a part of a specification, which is a string or has one."""
    if isinstance(part, Mapping):
        part = part.get("name") or part.get("source") or part.get("kind")
    return str(part) if isinstance(part, str) else None
