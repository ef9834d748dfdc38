"""An ONNX file of an image network, read with care: what it takes, what it gives, and its bytes.

A file may be somebody else's. Its size is judged before it is read. Operators of other domains than
ONNX's own are refused, because a runtime would look for code to run them, and so is external data
that lies outside of the file's folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shasam.errors import FileError, InputError
from shasam.extras import need
from shasam.files import read_bytes

MAX_BYTES = (2 << 30) - 1  # what protobuf can hold, external data included
_DOMAINS = ("", "ai.onnx")  # two names of ONNX's own operators
_FOLLOWED = ("Cast", "Identity", "Transpose", "Slice", "Gather", "Pad")  # change no pixel
_BYTES, _FRACTION = 1.5, 0.02  # a mean above, or a factor below: of pixels between 0 and 255


@dataclass(frozen=True)
class ImageInput:
    """The one input of a graph, as far as the graph says; None: it does not."""

    name: str
    dtype: str  # float32, float16 or uint8
    layout: str | None  # nchw or nhwc
    side: int | None
    batch: int | None  # images at a time, where that is fixed
    range: str | None  # unit (0 to 1) or bytes (0 to 255)


@dataclass(frozen=True)
class VectorOutput:
    """An output of a graph and the numbers of a vector; None: the graph does not say."""

    name: str
    width: int | None


def read_onnx(path: str | Path) -> bytes:
    """The file as one block of bytes, external data of its own folder put inside."""
    need("onnx", "an encoder from an ONNX file")
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no ONNX file {path}; check --encoder onnx:FILE")
    try:
        content = read_bytes(path, limit=MAX_BYTES)
    except FileError as error:
        raise InputError(str(error)) from error
    model = parse_onnx(content, path.name, external=True)
    outside = [tensor for tensor in _tensors(model.graph) if tensor.data_location == 1]
    if not outside:
        return content
    room = MAX_BYTES - len(content)
    for tensor in outside:
        room -= _put_inside(tensor, path, room)
    return bytes(model.SerializeToString())


def parse_onnx(content: bytes, name: str, *, external: bool = False) -> Any:
    """The graph of a file, if nothing in it is to be refused; ``name`` is for messages."""
    need("onnx", "an encoder from an ONNX file")
    import onnx

    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own kinds, which are those of its implementation
        raise InputError(f"{name} is not a readable ONNX file: {error}") from error
    if not model.graph.node:
        raise InputError(f"{name} is not an ONNX file of a network: its graph is empty")
    if model.functions:
        raise InputError(
            f"{name} has functions of its own; write it again with "
            "onnx.inliner.inline_local_functions"
        )
    foreign = sorted({node.domain for node in _nodes(model.graph)} - set(_DOMAINS))
    if foreign:
        raise InputError(
            f"{name} uses operators of the domain {foreign[0]!r:.60}, which are refused: only "
            "ONNX's own are run. Export the network again without optimisations of a runtime"
        )
    if not external and any(tensor.data_location == 1 for tensor in _tensors(model.graph)):
        raise InputError(f"{name} keeps weights in another file, which is not here")
    return model


def image_input(model: Any, name: str) -> ImageInput:
    """The input of the images, read off the graph."""
    import onnx

    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in held]
    if len(inputs) != 1:
        words = ", ".join(value.name for value in inputs[:5]) or "none"
        raise InputError(f"{name} should have one input, the images; it has {words}")
    kind = inputs[0].type.tensor_type
    types = {
        onnx.TensorProto.FLOAT: "float32",
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.UINT8: "uint8",
    }
    if kind.elem_type not in types:
        raise InputError(
            f"the input {inputs[0].name} of {name} holds "
            f"{onnx.TensorProto.DataType.Name(kind.elem_type).lower()}; an encoder of images "
            "takes float32, float16 or uint8"
        )
    dims = [dim.dim_value or None for dim in kind.shape.dim]
    if len(dims) != 4:
        raise InputError(
            f"the input {inputs[0].name} of {name} has {len(dims)} dimensions and should have "
            "four: images (batch, 3, H, W) or (batch, H, W, 3)"
        )
    layout = {(True, False): "nchw", (False, True): "nhwc"}.get((dims[1] == 3, dims[3] == 3))
    sides = dims[1:3] if layout == "nhwc" else dims[2:]
    if layout is not None and None not in sides and sides[0] != sides[1]:
        raise InputError(f"{name} takes images of {sides[1]}x{sides[0]}, which are not square")
    dtype = types[kind.elem_type]
    pixels = "bytes" if dtype == "uint8" else _range(model, inputs[0].name)
    side = sides[0] if layout is not None else None
    return ImageInput(inputs[0].name, dtype, layout, side, dims[0], pixels)


def vector_output(model: Any, asked: str | None, name: str) -> VectorOutput:
    """The output that is asked for, or the only one with two dimensions."""
    import onnx

    known = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.output}
    sizes = {
        key: [dim.dim_value or None for dim in value.type.tensor_type.shape.dim]
        for key, value in known.items()
    }
    if asked is not None and asked not in sizes:
        raise InputError(f"{name} has no output {asked!r}; it has {', '.join(sizes)}")
    flat = [key for key, dims in sizes.items() if len(dims) == 2]
    if asked is None and len(flat) == 1:
        asked = flat[0]
    if asked is None:
        raise InputError(
            f"{name} has {len(flat)} outputs of one vector an image ({', '.join(sizes)}); name "
            "one: --set model.output=NAME"
        )
    # a feature map of one pixel is a vector too
    dims = sizes[asked]
    whole = len(dims) >= 2 and all(dim == 1 for dim in dims[2:])
    if dims and not whole:
        raise InputError(
            f"the output {asked} of {name} has the shape {tuple(dims)} and should have one vector "
            "an image; name another, or export the network with its pooling layer"
        )
    return VectorOutput(asked, dims[1] if dims else None)


def digest(content: bytes) -> str:
    """SHA-256 of the bytes."""
    return hashlib.sha256(content).hexdigest()


def _put_inside(tensor: Any, path: Path, room: int) -> int:
    """Read the external data of a tensor into it; returns its length in bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    folder = path.parent
    try:
        if not location or Path(location).is_absolute():
            raise InputError(f"{path.name} names external data at {location!r:.80}")
        whole = read_bytes(folder / location, limit=MAX_BYTES, within=folder)
        start = int(entries.get("offset", 0))
        length = int(entries.get("length", len(whole) - start))
    except (FileError, ValueError) as error:
        raise InputError(
            f"the external data of {path.name} cannot be used: {error}; it must lie in the folder "
            "of the file"
        ) from error
    if start < 0 or length < 0 or start + length > len(whole):
        raise InputError(f"{location} ends before the weights of {path.name} do; copy it again")
    if length > room:
        raise InputError(f"{path.name} and its external data are larger than {MAX_BYTES >> 20} MiB")
    tensor.raw_data = whole[start : start + length]
    tensor.data_location = 0
    del tensor.external_data[:]
    return length


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes, those of inner graphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(inner)


def _tensors(graph: Any) -> Iterator[Any]:
    """All constant tensors, those of inner graphs included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _tensors(inner)


def _range(model: Any, name: str) -> str | None:
    """What the first arithmetic on the input says about the range of its pixels."""
    reader = {value: node for node in model.graph.node for value in node.input}
    node = reader.get(name)
    for _ in model.graph.node:
        if node is None or node.op_type not in _FOLLOWED or node.input[0] != name:
            break
        name = node.output[0]
        node = reader.get(name)
    if node is None or len(node.input) != 2 or node.input[0] == node.input[1]:
        return None
    values = _constant(model, next(one for one in node.input if one != name))
    if values is None or not values.size:
        return None
    largest = float(np.abs(values).max())
    if node.op_type in ("Sub", "Add") and largest > 0:
        return (
            "bytes" if largest > _BYTES else "unit" if float(np.abs(values).min()) > 0.2 else None
        )
    if node.op_type == "Mul":
        return "bytes" if largest < _FRACTION else "unit" if largest > 100 else None
    if node.op_type == "Div" and largest > 100:
        return "bytes"
    return None


def _constant(model: Any, name: str) -> np.ndarray | None:
    from onnx import numpy_helper

    for tensor in model.graph.initializer:
        if tensor.name == name:
            return np.asarray(numpy_helper.to_array(tensor))
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            held = next((a.t for a in node.attribute if a.name == "value"), None)
            return None if held is None else np.asarray(numpy_helper.to_array(held))
    return None
