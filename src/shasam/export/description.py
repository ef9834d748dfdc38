"""What an exported file says about itself: names, inputs, outputs, and how it decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import shasam
from shasam.pipeline.load import Model

# of the machine that trained: not for readers of the file, and not needed to build the model
_PRIVATE = {"data": ("root", "csv", "features", "store"), "model": ("init",)}
_PIXELS = (
    "turn the image upright by its EXIF orientation, take the centre square, resize it to "
    "{size}x{size} with Pillow's bilinear filter, RGB; the file scales the pixels itself"
)
_VECTORS = "embeddings of the encoder that the model was trained on, as they were given"
_GROUP = "number of the sensitive group, in the order of groups"
_UNIFORM = (
    "a number in [0, 1) for each row, the coin of the randomised decision; shasam takes the first "
    "8 bytes of BLAKE2b('{seed}:<id>', digest_size=8) as a big-endian number, shifted right by 11, "
    "times 2^-53, so that an id always gets the same decision"
)


def input_shape(model: Model) -> tuple[int, ...]:
    """The shape of one row of the first input."""
    size, dim = model.spec.data.size, model.spec.data.features_dim
    return (size, size, 3) if dim is None else (dim,)


def description(model: Model, sha256: str | None = None) -> dict[str, Any]:
    """Plain values; ``config.json`` of a hub folder, and the metadata of the other formats."""
    spec = model.spec.as_dict()
    for part, fields in _PRIVATE.items():
        spec[part].update(dict.fromkeys(fields))
    options = spec["model"]["options"]
    source = Path(str(options.get("source") or ""))
    if source.is_absolute() or (source.name and source.is_dir()):  # of a pretrained network
        options["source"] = source.name
    body: dict[str, Any] = {
        "library_name": "shasam",
        "shasam_version": shasam.__version__,
        "architecture": f"{model.spec.method} on {model.spec.model.encoder}",
        "classes": list(model.classes),
        "groups": list(model.groups),
        "inputs": _inputs(model),
        "outputs": {
            "scores": _tensor("float32", (len(model.classes),), "probabilities of the classes"),
            "prediction": _tensor("int64", (), "number of the class"),
        },
        "decision": f"the rule of {model.spec.method}" if model.decides_by_group else "arg max",
        "spec": spec,
    }
    if sha256 is not None:
        body["model_sha256"] = sha256
    return body


def _inputs(model: Model) -> dict[str, Any]:
    shape = input_shape(model)
    if model.method.encoder.inputs == "vectors":
        inputs = {"vectors": _tensor("float32", shape, _VECTORS)}
    else:
        inputs = {"pixels": _tensor("uint8", shape, _PIXELS.format(size=model.spec.data.size))}
    if type(model.method).decides_by_group:
        seed = getattr(model.method.config, "seed", 0)
        inputs["group"] = _tensor("int64", (), _GROUP)
        inputs["uniform"] = _tensor("float64", (), _UNIFORM.format(seed=seed))
    return inputs


def _tensor(dtype: str, shape: tuple[int, ...], meaning: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": ["batch", *shape], "meaning": meaning}
