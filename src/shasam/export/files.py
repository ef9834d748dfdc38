"""One writer for each format. Every file is checked against the model before it gets its name."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from shasam.errors import InputError
from shasam.export.description import description, input_shape
from shasam.export.graph import Graph, examples
from shasam.export.hub import write_hub
from shasam.extras import need
from shasam.files import make_folder, write_atomic
from shasam.pipeline.load import Model, load
from shasam.pipeline.saved import HEADER
from shasam.runs.directory import RunDirectory

TOLERANCE = 1e-5  # of probabilities, between the model and the file
_CHECKED = 16  # rows of the check
_OUTPUTS = ["scores", "prediction"]


def export(source: str | Path | RunDirectory, format: str, out: str | Path) -> Path:
    """Write a trained model as a file (or folder, for ``hub``); returns where it is."""
    if format not in FORMATS and format != "hub":
        raise InputError(f"there is no format {format!r}; there are {', '.join(FORMATS)} and hub")
    out = Path(out)
    if format == "onnx":
        need("export", "ONNX")
    make_folder(out.parent)  # before the work
    model = load(source)
    if format == "hub":
        path = source.path if isinstance(source, RunDirectory) else Path(source)
        write_hub(model, path, out)
    else:
        write_atomic(out, FORMATS[format](model))
    return out


def _onnx(model: Model) -> bytes:
    """ONNX, any batch size; what the file says of itself is in its metadata, as JSON."""
    import onnx

    graph = Graph(model)
    given = examples(input_shape(model), graph, len(model.groups))
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    with _quiet():
        program = torch.onnx.export(
            graph,
            given,
            dynamo=True,
            dynamic_shapes=tuple({0: batch} for _ in given),
            input_names=graph.names(),
            output_names=_OUTPUTS,
            verbose=False,
        )
    assert program is not None
    made = program.model_proto
    if not made.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise InputError(
            f"the encoder {model.spec.model.encoder} works on a fixed batch once it is exported; "
            "use tensor.shape[0] instead of len(tensor) in it"
        )
    for key, value in _metadata(model).items():
        made.metadata_props.add(key=key, value=value)
    made.producer_name = "shasam"
    content: bytes = made.SerializeToString()
    onnx.checker.check_model(content)
    _check(graph, model, _run_onnx(content, graph.names()))
    return content


def _run_onnx(content: bytes, names: Sequence[str]) -> Callable[..., list[np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(*inputs: Tensor) -> list[np.ndarray]:
        fed = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        found: list[np.ndarray] = session.run(_OUTPUTS, fed)
        return found

    return run


def _torchscript(model: Model) -> bytes:
    """A traced module with the description as an extra file; it needs torch, not shasam."""
    import io

    graph = Graph(model)
    given = examples(input_shape(model), graph, len(model.groups))
    buffer = io.BytesIO()
    with _quiet(), torch.no_grad():
        traced = torch.jit.trace(graph, given)
        torch.jit.save(traced, buffer, _extra_files={HEADER: _metadata(model)[HEADER]})
    _check(graph, model, lambda *x: [value.numpy() for value in traced(*x)])
    return buffer.getvalue()


def _safetensors(model: Model) -> bytes:
    """The weights, with the description in the header; ``shasam.load`` reads it back."""
    tensors = {k: v.cpu().contiguous() for k, v in model.method.state_dict().items()}
    return save(tensors, metadata=_metadata(model))


def _metadata(model: Model) -> dict[str, str]:
    """The description as JSON, and its names by themselves for readers who want no more."""
    body = description(model)
    short = {key: json.dumps(body[key]) for key in ("classes", "groups")}
    return {HEADER: json.dumps(body), **short}


def _check(graph: Graph, model: Model, run: Callable[..., list[Any]]) -> None:
    """The file must say what the model says, on another batch size than it was made with."""
    given = examples(input_shape(model), graph, len(model.groups), _CHECKED)
    with torch.no_grad():
        wanted = [value.numpy() for value in graph(*given)]
    got = run(*given)
    apart = float(np.abs(got[0] - wanted[0]).max())
    if not apart <= TOLERANCE:
        raise InputError(
            f"the exported file differs from the model by {apart:.2g} in a probability (at most "
            f"{TOLERANCE:g} is accepted), so it was not written; please report this"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporters log and warn about themselves (torchvision, its own deprecations)."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


FORMATS: dict[str, Callable[[Model], bytes]] = {
    "onnx": _onnx,
    "torchscript": _torchscript,
    "safetensors": _safetensors,
}
