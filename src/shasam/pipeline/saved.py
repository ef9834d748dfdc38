"""Where a trained model is kept: a run directory, an exported folder or file, a model of the hub.

All four hold the same four things: the specification, the names of classes and groups, and a
safetensors file with the weights. Whatever is read may be somebody else's; nothing of it is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from shasam.data.manifest import Manifest
from shasam.documents import parse_json, read_json
from shasam.errors import CheckpointError, InputError, ShasamError
from shasam.extras import need
from shasam.files import open_regular
from shasam.runs.directory import RunDirectory
from shasam.spec import RunSpec, stored_spec

CONFIG, WEIGHTS = "config.json", "model.safetensors"
HEADER = "shasam"  # the key of a safetensors file's metadata that holds what config.json holds
_HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


@dataclass(frozen=True)
class Saved:
    """What is needed to build a trained model, read and checked; the weights are not read yet."""

    where: str  # what messages call it
    spec: RunSpec
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    weights: Path
    sha256: str | None  # of the weights; None where it was never written down
    within: Path | None  # links may not lead out of this folder


def find_saved(source: str | Path | RunDirectory) -> Saved:
    """The saved model at a path, or of a hub id such as ``owner/name``."""
    if isinstance(source, RunDirectory):
        return _of_run(source)
    path = Path(source)
    if path.is_file() and path.suffix == ".safetensors":
        return _of_file(path)
    if path.is_dir() and not (path / "spec.yaml").is_file() and (path / CONFIG).is_file():
        return _of_folder(path, within=path)
    # a mistyped runs/ce-0123 looks like a hub id too: where runs/ is a folder here, it is a path
    if not path.exists() and not path.parent.is_dir() and _HUB_ID.fullmatch(str(source)):
        return _of_hub(str(source))
    return _of_run(RunDirectory.existing(path))


def _of_run(run: RunDirectory) -> Saved:
    if not run.file(WEIGHTS).is_file():
        raise InputError(f"{run.path} has no model yet; finish it with `shasam train --resume`")
    manifest = Manifest.load(run.file("manifest.parquet"), within=run.path)
    sha256 = None  # not known of a copy of the weights alone
    if run.file("provenance.json").exists():
        sha256 = run.json("provenance.json").get("model_sha256")
    names = (manifest.target_names, manifest.sensitive_names)
    return Saved(str(run.path), run.spec(), *names, run.file(WEIGHTS), sha256, run.path)


def _of_folder(folder: Path, within: Path, where: str | None = None) -> Saved:
    config = read_json(folder / CONFIG, within=within)
    return _of_config(config, where or str(folder), folder / WEIGHTS, within)


def _of_file(path: Path) -> Saved:
    with open_regular(path):  # no pipe
        pass
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(HEADER)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error
    if text is None:
        raise InputError(
            f"{path} holds weights without a specification; give a run directory, or a file that "
            "`shasam export --format safetensors` wrote"
        )
    config = parse_json(text, f"the header of {path}")
    return _of_config(config, str(path), path, None)


def _of_hub(name: str) -> Saved:
    """A model of the hub, from huggingface_hub's cache or the network: its two files alone."""
    need("hub", f"{name} is no folder here; to load it from the hub, shasam")
    import huggingface_hub

    try:
        snapshot = Path(huggingface_hub.snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:  # of the network, the hub and the cache: dozens of kinds
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{name} is not a folder, and could not be downloaded from the hub: {reason}"
        ) from error
    # the files of a snapshot are links into the folder of their model, two levels up
    return _of_folder(snapshot, within=snapshot.parent.parent, where=name)


def _of_config(config: Any, where: str, weights: Path, within: Path | None) -> Saved:
    try:
        if not isinstance(config, Mapping) or config.get("library_name") != "shasam":
            raise InputError("it was not written by `shasam export`")
        spec = stored_spec(config["spec"])
        names = [tuple(str(name) for name in config[key]) for key in ("classes", "groups")]
        if min(map(len, names)) < 1 or max(map(len, names)) > 100_000:
            raise InputError("it has no names of classes or groups")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the description of {where} cannot be used: {error!r}") from error
    except ShasamError as error:
        raise InputError(f"the description of {where} cannot be used: {error}") from error
    if not weights.is_file():
        raise InputError(f"{where} has no {weights.name}")
    sha256 = config.get("model_sha256")
    return Saved(where, spec, names[0], names[1], weights, sha256, within)
