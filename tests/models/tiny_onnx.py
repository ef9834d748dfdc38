"""Small ONNX networks of images, written node by node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 5


def graph(
    *,
    layout: str = "nchw",
    dtype: int = TensorProto.FLOAT,
    side: int | str = "side",
    batch: int | str = "batch",
    mean: float | None = None,
    domain: str = "",
    outputs: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """Mean colours, times a random matrix (3, WIDTH), through tanh."""
    shape = [batch, 3, side, side] if layout == "nchw" else [batch, side, side, 3]
    axes = [2, 3] if layout == "nchw" else [1, 2]
    weight = np.random.default_rng(seed).normal(size=(3, WIDTH)).astype(np.float32)
    constants = {"weight": weight, "axes": np.array(axes)}
    nodes = [helper.make_node("Cast", ["images"], ["x0"], to=TensorProto.FLOAT)]
    last = "x0"
    if mean is not None:
        constants["mean"] = np.full((1, 3, 1, 1) if layout == "nchw" else (3,), mean, np.float32)
        nodes.append(helper.make_node("Sub", [last, "mean"], ["x1"]))
        last = "x1"
    nodes += [
        helper.make_node("ReduceMean", [last, "axes"], ["colour"], keepdims=0),
        helper.make_node("MatMul", ["colour", "weight"], ["y"]),
        helper.make_node("Tanh", ["y"], ["features"], domain=domain),
    ]
    found = [helper.make_tensor_value_info("features", TensorProto.FLOAT, [batch, WIDTH])]
    if outputs > 1:
        found.append(helper.make_tensor_value_info("colour", TensorProto.FLOAT, [batch, 3]))
    made = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", dtype, shape)],
        found,
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    domains = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(made, opset_imports=domains, ir_version=9)


def saved(path: Path, **settings) -> Path:
    path.write_bytes(graph(**settings).SerializeToString())
    return path


def vectors(images_nhwc: np.ndarray, scale: float = 1 / 255, mean: float = 0.0, seed: int = 0):
    """What the network says of uint8 images, by numpy."""
    weight = np.random.default_rng(seed).normal(size=(3, WIDTH)).astype(np.float32)
    colour = (images_nhwc.astype(np.float64) * scale - mean).mean((1, 2))
    return np.tanh(colour @ weight)
