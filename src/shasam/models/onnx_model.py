"""Any ONNX network of images as a frozen encoder: ``--encoder onnx:FILE``.

Face networks are handed around as ONNX files (ArcFace, MobileFaceNet, FaceNet). The graph is run by
onnxruntime and never trained. Its bytes are part of the weights, so that a trained run needs the
file no more; they are checked like a file whenever a session is made of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from shasam.errors import Argument, CheckpointError, FileError, InputError
from shasam.extras import need
from shasam.files import read_bytes
from shasam.models.encoder import HALF, IMAGENET, Encoder, EncoderConfig, Pixels
from shasam.models.processes import in_shares
from shasam.models.weights import InitReport
from shasam.registry import register

# -------------------------------------------------------------------------------------------------
# An ONNX file of an image network, read with care: what it takes, what it gives, and its bytes.
#
# A file may be somebody else's. Its size is judged before it is read. Operators of other domains
# than ONNX's own are refused, because a runtime would look for code to run them, and so is external
# data that lies outside of the file's folder.
# -------------------------------------------------------------------------------------------------

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
    """Read the file as one block of bytes, external data of its own folder put inside."""
    need("onnx", "an encoder from an ONNX file")
    path = Path(path)
    if not path.is_file():
        raise InputError(
            f"there is no ONNX file {path}; check ", Argument("model.encoder", "onnx:FILE")
        )
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
    """Parse the graph of a file, if nothing in it is to be refused; ``name`` is for messages."""
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
    """Return the input of the images, read off the graph."""
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
    """Return the output that is asked for, or the only one with two dimensions."""
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
            "one: ",
            Argument("model.output", "NAME"),
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
    """Return the SHA-256 of the bytes."""
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
    """Yield all nodes, those of inner graphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(inner)


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield all constant tensors, those of inner graphs included."""
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
    """Return what the first arithmetic on the input says about the range of its pixels."""
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


# -------------------------------------------------------------------------------------------------
# The encoder: a frozen network that onnxruntime carries out.
# -------------------------------------------------------------------------------------------------

# (mean, deviation) of pixels between 0 and 1 that bring them into a range
RANGES: dict[str, Pixels] = {
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "bytes": ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)),
    "half": HALF,
    "imagenet": IMAGENET,
}


class OnnxConfig(EncoderConfig):
    """Which file; what is null is filled in from its graph."""

    source: str = Field(description="The ONNX file.")
    layout: Literal["nchw", "nhwc"] | None = Field(
        None, description="Order of the input: channels first (nchw) or last (nhwc)."
    )
    range: Literal["unit", "bytes", "half", "imagenet"] | None = Field(
        None,
        description="Pixels that the network takes: 0 to 1 (unit), 0 to 255 (bytes), -1 to 1 "
        "(half), or with ImageNet's mean and deviation.",
    )
    channels: Literal["rgb", "bgr"] = Field("rgb", description="Order of the colours.")
    output: str | None = Field(
        None, description="Output with the vectors, where there are several."
    )
    width: int | None = Field(None, ge=1, le=1_000_000, description="Numbers in a vector.")
    side: int | None = Field(None, ge=1, le=4096, description="Side of the images in pixels.")
    batch: int | None = Field(
        None, ge=1, le=1_000_000, description="Images at a time, where the graph fixes it."
    )
    dtype: Literal["float32", "float16", "uint8"] | None = Field(
        None, description="Type of the input, filled in."
    )
    bytes: int | None = Field(None, ge=1, le=MAX_BYTES, description="Size of the graph, filled in.")
    sha256: str | None = Field(None, description="Hash of the graph, filled in.")

    @property
    def image_size(self) -> int | None:
        return self.side

    @property
    def is_complete(self) -> bool:
        needed = (self.sha256, self.bytes, self.layout, self.range, self.output)
        return None not in (*needed, self.width, self.dtype)

    def completed(self) -> OnnxConfig:
        """Add what the graph says; what neither it nor the user says is an error."""
        if self.is_complete:
            return self
        content = read_onnx(self.source)
        model = parse_onnx(content, self.source)
        taken, given = (
            image_input(model, self.source),
            vector_output(model, self.output, self.source),
        )
        found = {
            "layout": self.layout or taken.layout,
            "range": self.range or taken.range,
            "output": given.name,
            "width": self.width or given.width,
            "side": self.side or taken.side,
            "batch": self.batch or taken.batch,
            "dtype": taken.dtype,
            "bytes": len(content),
            "sha256": digest(content),
        }
        advice = {
            "layout": "nchw or nhwc",
            "range": "unit (0 to 1), bytes (0 to 255), half (-1 to 1) or imagenet",
            "width": "the numbers in a vector",
        }
        for key, words in advice.items():
            if found[key] is None:
                raise InputError(
                    f"the graph of {self.source} does not say its {key}; give it as ",
                    Argument(f"model.{key}", "…"),
                    f": {words}",
                )
        if taken.side is not None and found["side"] != taken.side:
            raise InputError(f"{self.source} takes images of {taken.side} px, not {self.side}")
        return self.model_validate({**self.model_dump(), **found})


@register("onnx", kind="encoder")
class OnnxEncoder(Encoder):
    """Images (B, 3, H, W) to the vectors (B, width) of an ONNX graph; no gradient, no taps."""

    Config = OnnxConfig
    graph: Tensor

    def __init__(self, config: OnnxConfig, image_size: int) -> None:
        super().__init__()
        config = config.completed()
        assert config.range is not None and config.width is not None and config.bytes is not None
        if config.side is not None and image_size != config.side:
            raise InputError(
                f"{config.source} takes images of {config.side} px; leave out ",
                Argument("data.size"),
                ", or give ",
                Argument("data.size", config.side),
            )
        self.config, self.out_dim, self.taps = config, config.width, {}
        self.mean, self.std = RANGES[config.range]
        self.register_buffer("graph", torch.zeros(config.bytes, dtype=torch.uint8))
        self._session: Any = None

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> OnnxEncoder:
        return cls(OnnxConfig.model_validate(config.model_dump()), image_size)

    def load_pretrained(self) -> InitReport | None:
        content = read_onnx(self.config.source)
        if digest(content) != self.config.sha256:
            raise InputError(
                f"{self.config.source} has changed since this specification was made; bring the "
                "old file back, or train again with the new one"
            )
        self.graph.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        tensors = len(parse_onnx(content, self.config.source).graph.initializer)
        return InitReport(self.config.source, tensors, (), (), ())

    def content(self) -> bytes:
        """Return the bytes of the graph, if they are those of the specification."""
        content = self.graph.cpu().numpy().tobytes()
        if digest(content) != self.config.sha256:
            raise CheckpointError(
                f"the graph of {self.config.source} is damaged: it does not have the SHA-256 of "
                "the specification"
            )
        return content

    def numbers(self, images: Tensor) -> np.ndarray:
        """Scale images between -1 and 1 as the graph takes them."""
        if self.config.dtype == "uint8":
            x = ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
        else:
            x = self.normalised(images.float())
        if self.config.channels == "bgr":
            x = x.flip(1)
        if self.config.layout == "nhwc":
            x = x.permute(0, 2, 3, 1)
        return np.ascontiguousarray(x.cpu().numpy(), dtype=self.config.dtype)

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        if images.is_meta:
            return images.new_empty(len(images), self.out_dim), {}
        given = self.numbers(images.detach())
        size = self.config.batch or len(given)
        parts = [self._run(given[at : at + size], size) for at in range(0, len(given), size)]
        vectors = np.concatenate(parts) if parts else np.empty((0, self.out_dim), np.float32)
        return torch.from_numpy(vectors).to(images.device), {}

    def _run(self, part: np.ndarray, size: int) -> np.ndarray:
        """Return the vectors of some images.

        Where the batch is fixed, the last one is filled up.
        """
        if self._session is None:
            self._session = open_session(self.content(), self.config.source)
        filled = np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])
        name = self._session.get_inputs()[0].name
        try:
            (found,) = self._session.run([self.config.output], {name: filled})
        except Exception as error:  # onnxruntime has no class of errors of its own
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{self.config.source} cannot be run on images of {part.shape}: {reason:.300}"
            ) from error
        vectors = np.asarray(found, np.float32).reshape(len(filled), -1)[: len(part)]
        if vectors.shape[1] != self.out_dim:
            raise InputError(
                f"{self.config.source} gives vectors of {vectors.shape[1]} numbers, not "
                f"{self.out_dim}; leave out model.width"
            )
        return vectors

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the session, which a copy makes anew."""
        return {**self.__dict__, "_session": None}


def open_session(content: bytes, name: str) -> Any:
    """Return a session of onnxruntime on a graph that was looked at first."""
    need("onnx", "an encoder from an ONNX file")
    import onnxruntime

    parse_onnx(content, name)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no class of errors of its own
        reason = str(error).splitlines()[0]
        raise InputError(f"onnxruntime cannot run {name}: {reason:.300}") from error
