"""A folder that can be pushed to a model hub as it is, and that ``shasam.load`` reads back.

``config.json`` describes the model, ``model.safetensors`` holds its weights, and ``README.md`` is
the model card with the results of the test split in the hub's schema (``model-index``).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import save

from shasam.errors import InputError
from shasam.export.description import description
from shasam.files import make_folder, write_atomic
from shasam.metrics.catalogue import label_of
from shasam.pipeline.load import Model
from shasam.pipeline.saved import CONFIG, WEIGHTS
from shasam.report.cards import model_card
from shasam.report.runs import subject_of
from shasam.report.subject import Subject
from shasam.runs.directory import RunDirectory

_TASKS = {"images": "image-classification", "vectors": "tabular-classification"}


def write_hub(model: Model, run: Path, out: Path) -> None:
    """Write the folder; one that holds other things than an earlier export is left alone."""
    if not (run / "predictions.parquet").is_file():
        raise InputError(f"{run} has no predictions.parquet; a hub folder is made of a whole run")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give a folder as --out")
    strange = [p.name for p in out.iterdir()] if out.is_dir() else []
    if strange and not (out / CONFIG).is_file():
        raise InputError(f"{out} holds {strange[0][:80]} and other things; give an empty folder")
    make_folder(out)
    tensors = {k: v.cpu().contiguous() for k, v in model.method.state_dict().items()}
    weights = save(tensors, metadata={"format": "pt"})
    body = description(model, hashlib.sha256(weights).hexdigest())
    opened = RunDirectory.evaluated(run)
    subject = subject_of(opened)
    write_atomic(out / WEIGHTS, weights, within=out)
    write_atomic(out / CONFIG, json.dumps(body, indent=1) + "\n", within=out)
    head = yaml.safe_dump(_metadata(model, opened, subject), sort_keys=False, allow_unicode=True)
    card = model_card(opened, subject, place="OWNER/NAME")
    write_atomic(out / "README.md", f"---\n{head}---\n\n{card}", within=out)


def _metadata(model: Model, run: RunDirectory, subject: Subject) -> dict[str, Any]:
    """The YAML head of a model card: https://huggingface.co/docs/hub/model-cards."""
    task = _TASKS.get(model.method.encoder.inputs, "image-classification")
    dataset = {
        "type": re.sub(r"[^\w.-]", "-", model.spec.data.name),
        "name": run.setting,
        "split": "test",
        "revision": run.manifest_sha256,
    }
    metrics = [
        {
            "type": key,
            "name": label_of(key),
            "value": round(float(e.value), 6),
            "args": {"interval_95": [_number(e.low), _number(e.high)], "support": int(e.support)},
        }
        for key, e in subject.estimates.items()
        if e.defined
    ]
    result = {"task": {"type": task}, "dataset": dataset, "metrics": metrics}
    return {
        "library_name": "shasam",
        "pipeline_tag": task,
        "tags": ["shasam", "fairness", model.spec.method],
        "model-index": [{"name": run.path.name, "results": [result]}],
    }


def _number(value: float | None) -> float | None:
    return None if value is None else round(float(value), 6)
