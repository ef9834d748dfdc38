"""Any ONNX network of images as a frozen encoder: ``--encoder onnx:FILE``.

Face networks are handed around as ONNX files (ArcFace, MobileFaceNet, FaceNet). The graph is run by
onnxruntime and never trained. Its bytes are part of the weights, so that a trained run needs the
file no more; they are checked like a file whenever a session is made of them.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from shasam.errors import CheckpointError, InputError
from shasam.extras import need
from shasam.models.encoder import HALF, IMAGENET, Encoder, EncoderConfig, Pixels
from shasam.models.onnx_file import (
    MAX_BYTES,
    digest,
    image_input,
    parse_onnx,
    read_onnx,
    vector_output,
)
from shasam.models.processes import in_shares
from shasam.models.weights import InitReport
from shasam.registry import register

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

    def completed(self) -> OnnxConfig:
        """With what the graph says; what neither it nor the user says is an error."""
        if self.sha256 is not None:
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
                    f"the graph of {self.source} does not say its {key}; give it as "
                    f"--set model.{key}=…: {words}"
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
                f"{config.source} takes images of {config.side} px; leave out --size, or give "
                f"--size {config.side}"
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
        """The bytes of the graph, if they are those of the specification."""
        content = self.graph.cpu().numpy().tobytes()
        if digest(content) != self.config.sha256:
            raise CheckpointError(
                f"the graph of {self.config.source} is damaged: it does not have the SHA-256 of "
                "the specification"
            )
        return content

    def numbers(self, images: Tensor) -> np.ndarray:
        """Images between -1 and 1 as the graph takes them."""
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
        """The vectors of some images; where the batch is fixed, the last one is filled up."""
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
        """Without the session, which a copy makes anew."""
        return {**self.__dict__, "_session": None}


def open_session(content: bytes, name: str) -> Any:
    """A session of onnxruntime on a graph that was looked at first."""
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
