"""Run directories as ``docs/files.md`` describes them, made without training."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

from shasam.metrics import as_json, evaluate

CLASSES = ("female", "male")
GROUPS = ("Caucasian", "not Caucasian")


def thumbnail(rng: np.random.Generator, bright: int) -> str:
    """A small drawn patch as a data address."""
    pixels = np.clip(rng.normal(bright, 30, (24, 24, 3)), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def make_run(
    root: Path,
    name: str = "3f2a9c",
    *,
    method: str = "shasam",
    seed: int = 0,
    gap: float = 0.4,
    skill: float = 1.3,
    n: int = 1600,
    classes: tuple[str, ...] = CLASSES,
    groups: tuple[str, ...] = GROUPS,
    source: str = "utkface",
    target: str = "gender",
    sensitive: str = "ethnicity",
    optional: bool = True,
) -> Path:
    """A realistic finished run; ``gap`` shifts the second group's scores."""
    rng = np.random.default_rng(1000 + seed + sum(map(ord, method)))
    path = root / name
    path.mkdir(parents=True)
    C, G = len(classes), len(groups)
    t = np.arange(n) % C
    s = (np.arange(n) // C) % G
    logits = rng.normal(0, 1, (n, C))
    logits[np.arange(n), t] += skill
    logits[:, -1] += gap * (s - (G - 1) / 2)
    scores = np.exp(1.4 * logits)
    scores = (scores / scores.sum(1, keepdims=True)).astype(np.float32)
    p = scores.argmax(1)
    protocol = {"source": source, "target": target, "sensitive": sensitive, "alpha": 4.0, "seed": 0}
    metadata = {
        "sha256": "9f0c" * 16,
        "target_names": json.dumps(classes),
        "sensitive_names": json.dumps(groups),
        "protocol": json.dumps(protocol),
    }
    columns = {
        "id": [f"img{i:05d}" for i in range(n)],
        "target": t,
        "prediction": p,
        "sensitive": s,
        **{f"score_{c}": scores[:, c] for c in range(C)},
    }
    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, path / "predictions.parquet")
    spec = {
        "method": {"name": method},
        "data": {"name": source},
        "seed": seed,
        "train": {"steps": 1000},
    }
    (path / "spec.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    if not optional:
        return path
    estimates = evaluate(t, p, s, scores, classes=classes, groups=groups, draws=200)
    metrics = {
        "test": as_json(estimates),
        "probe": {
            "encoder": {"accuracy": 0.83, "linear_within_class": 0.81, "chance": 1 / G},
            "projection": {"accuracy": 0.56, "chance": 1 / G},
        },
        "natural_head": {"encoder": {"test": as_json(estimates)}},
    }
    (path / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    _write_log(path, rng)
    angle = rng.normal(0, 0.5, n) + np.pi * t
    radius = rng.normal(2.0, 0.4, n) + 0.3 * s
    rows = np.arange(min(n, 2000))
    embedding = {
        "id": columns["id"][: len(rows)],
        "x": (radius * np.cos(angle))[rows],
        "y": (radius * np.sin(angle))[rows],
        "target": t[rows],
        "sensitive": s[rows],
    }
    pq.write_table(pa.table(embedding), path / "embedding.parquet")
    _write_mining(path, rng, C, G)
    provenance = {
        "versions": {"shasam": "0.1.0", "torch": "2.13.0", "python": "3.11"},
        "command": ["shasam", "train", "--method", method],
        "seed": seed,
        "manifest_sha256": "9f0c" * 16,
        "wall_seconds": 431.2,
        "images_seen": 48_000,
        "parameters": 700_000,
        "mine_fraction": 0.08,
        "test_opened": ["2026-01-01T12:00:00Z"],
        "device": "cpu",
        "started": "2026-01-01T11:52:00Z",
        "ended": "2026-01-01T12:00:10Z",
    }
    (path / "provenance.json").write_text(json.dumps(provenance), encoding="utf-8")
    (path / "DONE").touch()
    return path


def _write_log(path: Path, rng: np.random.Generator) -> None:
    lines: list[dict[str, object]] = [{"event": "start"}]
    for epoch in range(12):
        lines.append(
            {
                "event": "epoch",
                "stage": "learn",
                "epoch": epoch,
                "step": 100 * (epoch + 1),
                "loss": 0.7 * 0.85**epoch + float(rng.normal(0, 0.01)),
                "active": 0.95 - 0.03 * epoch,
                "mean_cosine": 0.6 * 0.8**epoch,
                "effective_rank": 4 + 2.2 * epoch,
                "lr": 1e-3,
            }
        )
    for epoch in range(10):
        lines.append(
            {
                "event": "epoch",
                "stage": "classify",
                "epoch": epoch,
                "step": 40 * (epoch + 1),
                "loss": 0.45 * 0.9**epoch,
                "val": {"accuracy": 0.78 + 0.008 * epoch, "eo_mean": 0.05 - 0.002 * epoch},
            }
        )
    lines += [{"event": "test_opened"}, {"event": "end"}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "log.jsonl").write_text(text, encoding="utf-8")


def _write_mining(path: Path, rng: np.random.Generator, classes: int, groups: int) -> None:
    iterations = []
    for i, step in enumerate((0, 0, 300, 300, 600, 900)):
        sets = {}
        for name, bright, similar in (
            ("anchors", 120, 0.5),
            ("positives", 170, 0.1),
            ("negatives", 90, 0.8),
            ("random_anchors", 120, 0.4),
            ("random_positives", 170, 0.4),
            ("random_negatives", 90, 0.4),
        ):
            random = name.startswith("random")
            sets[name] = [
                {
                    "id": f"img{rng.integers(9999):05d}",
                    "gain": None if random else round(float(3 * 0.8**k), 3),
                    "similarity": round(float(np.clip(rng.normal(similar, 0.08), -1, 1)), 3),
                    "thumb": thumbnail(rng, bright),
                }
                for k in range(8)
            ]
        iterations.append(
            {"step": step, "target": i % classes, "sensitive": (i // 2) % groups, "sets": sets}
        )
    (path / "mining.json").write_text(json.dumps({"iterations": iterations}), encoding="utf-8")
