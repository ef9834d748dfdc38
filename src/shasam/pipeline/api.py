"""Training from Python: ``shasam train`` as a function."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shasam.pipeline.execute import execute
from shasam.runs.directory import RunDirectory
from shasam.spec import resolve
from shasam.training.runtime import Device, Runtime


def train(
    method: str = "shasam",
    *,
    data: str | Mapping[str, Any] = "faces",
    options: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    profile: str = "cpu",
    seed: int = 0,
    out: str | Path = "runs",
    resume: bool = True,
    quiet: bool = False,
    device: Device = "auto",
) -> RunDirectory:
    """Train and evaluate a method; a run that is done already is returned as it is.

    ``data`` is the name of a source or the fields of a ``DataSpec``, ``options`` those of the
    method, ``overrides`` dotted keys of the specification.

    >>> run = train("ce", profile="smoke", overrides={"train.steps": 4}, quiet=True)
    >>> 0 <= run.metrics()["test"]["accuracy"]["value"] <= 1
    True
    >>> from shasam import load
    >>> load(run).classes
    ('serious', 'smiling')
    """
    body: dict[str, Any] = {
        "method": method,
        "data": {"name": data} if isinstance(data, str) else dict(data),
        "options": dict(options or {}),
        "seed": seed,
    }
    spec = resolve(body, overrides or {}, profile=profile)
    runtime = Runtime(device=device, quiet=quiet)
    return execute(spec, out, runtime=runtime, resume=resume)
