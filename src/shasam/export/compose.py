"""An ONNX encoder and what follows it as one ONNX file: pixels in, probabilities out."""

from __future__ import annotations

from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.models import OnnxEncoder
from shasam.models.onnx_file import parse_onnx

_PREFIX = "encoder/"  # of every name of the encoder's graph: the two graphs share none


def with_encoder(rest: Any, encoder: OnnxEncoder, size: int) -> Any:
    """The graph ``rest``, whose first input are vectors, behind the encoder.

    The input becomes ``pixels``, uint8 (batch, size, size, 3).
    """
    from onnx import TensorProto, checker, compose, helper

    config = encoder.config
    if config.batch is not None:
        raise InputError(
            f"{config.source} takes {config.batch} images at a time, so it cannot be part of a "
            "file for any number; export the network with a batch of any size"
        )
    seeing, rest = _of_one_version(parse_onnx(encoder.content(), config.source), rest)
    held = {tensor.name for tensor in seeing.graph.initializer}
    taken = next(value.name for value in seeing.graph.input if value.name not in held)
    seeing = compose.add_prefix(seeing, _PREFIX)
    before, constants = _preparation(encoder, f"{_PREFIX}{taken}")
    after = f"{_PREFIX}{config.output}"
    between = [
        helper.make_node("Cast", [after], [f"{after}_float"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", [f"{after}_float"], [rest.graph.input[0].name], axis=1),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["batch", size, size, 3])
    graph = helper.make_graph(
        [*before, *seeing.graph.node, *between, *rest.graph.node],
        rest.graph.name,
        [pixels, *rest.graph.input[1:]],
        list(rest.graph.output),
        [*constants, *seeing.graph.initializer, *rest.graph.initializer],
        sparse_initializer=[*seeing.graph.sparse_initializer, *rest.graph.sparse_initializer],
    )
    made = helper.make_model(graph, opset_imports=list(rest.opset_import))
    made.ir_version = max(seeing.ir_version, rest.ir_version)
    made.functions.extend(rest.functions)
    checker.check_model(made)
    return made


def _preparation(encoder: OnnxEncoder, taken: str) -> tuple[list[Any], list[Any]]:
    """Nodes and constants that bring ``pixels`` to what the encoder's input ``taken`` wants."""
    from onnx import TensorProto, helper, numpy_helper

    config = encoder.config
    steps: list[tuple[str, np.ndarray | None, dict[str, Any]]] = []
    if config.channels == "bgr":
        steps.append(("Gather", np.array([2, 1, 0]), {"axis": 3}))
    if config.dtype != "uint8":
        order = slice(None, None, -1 if config.channels == "bgr" else 1)
        mean, std = (np.float32(255 * np.asarray(v))[order] for v in (encoder.mean, encoder.std))
        steps.append(("Cast", None, {"to": TensorProto.FLOAT}))
        steps += [("Sub", mean, {}), ("Div", std, {})]
    if config.layout == "nchw":
        steps.append(("Transpose", None, {"perm": [0, 3, 1, 2]}))
    if config.dtype == "float16":
        steps.append(("Cast", None, {"to": TensorProto.FLOAT16}))
    nodes, constants, at = [], [], "pixels"
    for number, (kind, constant, settings) in enumerate(steps):
        made = f"pixels/{number}"
        given = [at]
        if constant is not None:
            given.append(f"{made}/constant")
            constants.append(numpy_helper.from_array(np.ascontiguousarray(constant), given[1]))
        nodes.append(helper.make_node(kind, given, [made], **settings))
        at = made
    return [*nodes, helper.make_node("Identity", [at], [taken])], constants


def _of_one_version(seeing: Any, rest: Any) -> tuple[Any, Any]:
    """Both graphs with operators of the newer version of the two."""
    from onnx import version_converter

    old, new = (
        max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
        for model in (seeing, rest)
    )
    try:
        if old < new:
            return version_converter.convert_version(seeing, new), rest
        return seeing, version_converter.convert_version(rest, old) if new < old else rest
    except Exception as error:  # of the converter, in C++: many kinds
        reason = str(error).splitlines()[0]
        raise InputError(
            f"the encoder has operators of version {old} and what follows it of version {new}, and "
            f"they could not be brought together ({reason:.200}); export the network with a newer "
            "version (opset)"
        ) from error
