"""Copy the small records of finished runs: ``python -m experiments.keep RUNS RECORDS``.

Specification, metrics, predictions, log and provenance; no weights, manifests, thumbnails or
embeddings. Each row of a table has a folder of its own, named by the method and, where a grid has
it more than once, by what is mined.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml

KEPT = ("spec.yaml", "metrics.json", "predictions.parquet", "provenance.json", "log.jsonl")


def row_of(spec: dict) -> str:
    """The folder of a run: a ViT, or a part that is switched off or added, is a row of its own."""
    if (spec.get("model") or {}).get("encoder") == "vit":
        return f"{spec['method']}@vit"
    options = spec.get("options") or {}
    if spec["method"] == "fdvae" and options["reversal"] == 0:
        return "fdvae-off"
    if spec["method"] == "balanced" and options["classifier_hidden"]:
        return "balanced-hidden"
    mining = options.get("mining") or {}
    if mining and all(mining[r] == "random" for r in ("anchors", "positives", "negatives")):
        return f"{spec['method']}-random"
    return str(spec["method"])


def keep(runs: Path, records: Path) -> int:
    """Copy what is done; returns how many runs."""
    done = [run for run in sorted(runs.iterdir()) if (run / "DONE").exists()]
    for run in done:
        spec = yaml.safe_load((run / "spec.yaml").read_text(encoding="utf-8"))
        target = records / row_of(spec) / run.name
        target.mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            shutil.copyfile(run / name, target / name)
    return len(done)


if __name__ == "__main__":
    print(keep(Path(sys.argv[1]), Path(sys.argv[2])), "runs kept")
