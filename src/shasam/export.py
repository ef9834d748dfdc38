"""Write trained models for other programs: ONNX, safetensors, a hub folder."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shasam.extras import need

need("torch", __name__)

import numpy as np
import torch
import yaml
from safetensors.torch import save
from torch import Tensor, nn

import shasam
from shasam.data.augment import plain
from shasam.errors import Argument, InputError
from shasam.files import make_folder, write_atomic, write_named
from shasam.methods.base import Method
from shasam.metrics.catalogue import label_of
from shasam.models import Identity, OnnxEncoder
from shasam.models.onnx_model import parse_onnx
from shasam.pipeline.load import CONFIG, HEADER, WEIGHTS, Model, load
from shasam.report.cards import model_card
from shasam.report.runs import subject_of
from shasam.report.subject import Subject
from shasam.runs.directory import RunDirectory

__all__ = ["FORMATS", "export"]

# -------------------------------------------------------------------------------------------------
# What an exported file says about itself: names, inputs, outputs, and how it decides.
# -------------------------------------------------------------------------------------------------

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
    """Return the shape of one row of the first input."""
    dim = model.spec.data.features_dim
    return (dim,) if dim is not None and model.front is None else (model.size, model.size, 3)


def description(model: Model, sha256: str | None = None) -> dict[str, Any]:
    """Describe a model in plain values: ``config.json`` of a hub folder, metadata elsewhere."""
    spec = model.spec.as_dict()
    for part, fields in _PRIVATE.items():
        spec[part].update(dict.fromkeys(fields))
    _shorten(spec["model"]["options"])
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
    if model.rule is not None:
        by_group = type(model.method).decides_by_group
        body["decision"] = "thresholds per group" if by_group else "arg max of merged scores"
        body["rule"] = dict(model.rule)
    if sha256 is not None:
        body["model_sha256"] = sha256
    if model.vectors is not None:
        vectors = copy.deepcopy(dict(model.vectors))
        _shorten((vectors.get("model") or {}).get("options") or {})
        body["vectors"] = vectors
    return body


def _shorten(options: dict[str, Any]) -> None:
    """Keep the name of a pretrained network alone, not where it lay on the machine that trained."""
    source = Path(str(options.get("source") or ""))
    if source.is_absolute() or (source.name and source.exists()):
        options["source"] = source.name


def _inputs(model: Model) -> dict[str, Any]:
    shape = input_shape(model)
    if model.inputs == "vectors":
        inputs = {"vectors": _tensor("float32", shape, _VECTORS)}
    else:
        inputs = {"pixels": _tensor("uint8", shape, _PIXELS.format(size=model.size))}
    if type(model.method).decides_by_group:
        seed = getattr(model.method, "coin_seed", 0)
        inputs["group"] = _tensor("int64", (), _GROUP)
        inputs["uniform"] = _tensor("float64", (), _UNIFORM.format(seed=seed))
    return inputs


def _tensor(dtype: str, shape: tuple[int, ...], meaning: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": ["batch", *shape], "meaning": meaning}


# -------------------------------------------------------------------------------------------------
# A trained model as one function of plain tensors, pre-processing and decision included.
# -------------------------------------------------------------------------------------------------


class Graph(nn.Module):
    """Inputs (B, ...) to class probabilities (B, C) and decisions (B,).

    Images are uint8 (B, size, size, 3), as Pillow gives them; vectors are float32 (B, D). Where a
    method decides by group, the numbers of the groups (B,) int64 and numbers in [0, 1) (B,) float64
    for its randomised decisions are inputs too.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        kind = type(model.method)
        if model.method.has_rule and kind.decision is Method.decision:
            raise InputError(
                f"{model.spec.method} cannot be exported: it has a rule of its own in decide(), "
                "which a file cannot hold; write that rule as decision(), of tensors"
            )
        self.method = copy.deepcopy(model.method).float().cpu().eval()
        self.vectors = model.inputs == "vectors"
        self.front: nn.Module | None = None  # the encoder of a model of vectors
        if model.front is not None:
            assert isinstance(model.front.encode, nn.Module)
            self.front = copy.deepcopy(model.front.encode).float().cpu().eval()
        self.by_group = kind.decides_by_group
        # buffers in float64 (rules of decisions) keep their precision
        for name, buffer in model.method.named_buffers():
            if buffer.dtype == torch.float64:
                self.method.get_buffer(name).data = buffer.detach().cpu().clone()

    def forward(
        self, inputs: Tensor, group: Tensor | None = None, uniform: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        x = inputs if self.vectors else plain(inputs.permute(0, 3, 1, 2))
        x = x if self.front is None else self.front(x)
        scores_BC = next(iter(self.method.logits(x).values()))
        scores_BC = self.method.probabilities(scores_BC.float())
        if group is None or uniform is None:
            return scores_BC, scores_BC.argmax(dim=1)
        return scores_BC, self.method.decision(scores_BC, group, uniform)

    def onnx_encoder(self) -> OnnxEncoder | None:
        """Return the encoder, where it is an ONNX graph already, which torch cannot write again."""
        first = self.method.encoder if self.front is None else self.front
        return first if isinstance(first, OnnxEncoder) else None

    def behind(self, encoder: OnnxEncoder) -> Graph:
        """Return what follows the encoder: a graph of its vectors."""
        rest = copy.deepcopy(self)
        rest.vectors = True
        if rest.front is None:
            rest.method.encoder = Identity(encoder.out_dim)
        rest.front = None
        return rest

    def names(self) -> list[str]:
        """Return the inputs in their order."""
        first = "vectors" if self.vectors else "pixels"
        return [first, "group", "uniform"] if self.by_group else [first]


def examples(shape: tuple[int, ...], graph: Graph, groups: int, n: int = 2) -> tuple[Tensor, ...]:
    """Draw ``n`` random inputs, alike at every call: to trace a graph and to check a file."""
    generator = torch.Generator().manual_seed(0)
    if graph.vectors:
        first = torch.randn(n, *shape, generator=generator)
    else:
        first = torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8)
    if not graph.by_group:
        return (first,)
    group = torch.randint(0, groups, (n,), generator=generator)
    return first, group, torch.rand(n, generator=generator, dtype=torch.float64)


# -------------------------------------------------------------------------------------------------
# An ONNX encoder and what follows it as one ONNX file: pixels in, probabilities out.
# -------------------------------------------------------------------------------------------------

_PREFIX = "encoder/"  # of every name of the encoder's graph: the two graphs share none


def with_encoder(rest: Any, encoder: OnnxEncoder, size: int) -> Any:
    """Return the graph ``rest``, whose first input are vectors, behind the encoder.

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
    """Return nodes and constants that turn ``pixels`` into the encoder's input ``taken``."""
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
    """Return both graphs with operators of the newer version of the two."""
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


# -------------------------------------------------------------------------------------------------
# A folder that can be pushed to a model hub as it is, and that `shasam.load` reads back.
#
# `config.json` describes the model, `model.safetensors` holds its weights, and `README.md` is
# the model card with the results of the test split in the hub's schema (`model-index`).
# -------------------------------------------------------------------------------------------------

_TASKS = {"images": "image-classification", "vectors": "tabular-classification"}


def write_hub(model: Model, run: Path, out: Path) -> None:
    """Write the folder; one that holds other things than an earlier export is left alone."""
    if not (run / "predictions.parquet").is_file():
        raise InputError(f"{run} has no predictions.parquet; a hub folder is made of a whole run")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give a folder as ", Argument("out"))
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
    head = yaml.safe_dump(
        _card_metadata(model, opened, subject), sort_keys=False, allow_unicode=True
    )
    card = model_card(opened, subject, place="OWNER/NAME")
    write_atomic(out / "README.md", f"---\n{head}---\n\n{card}", within=out)


def _card_metadata(model: Model, run: RunDirectory, subject: Subject) -> dict[str, Any]:
    """Return the YAML head of a model card: https://huggingface.co/docs/hub/model-cards."""
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


# -------------------------------------------------------------------------------------------------
# One writer for each format. Every file is checked against the model before it gets its name.
# -------------------------------------------------------------------------------------------------

TOLERANCE = 1e-5  # of probabilities, between the model and the file
_CHECKED = 16  # rows of the check
_OUTPUTS = ["scores", "prediction"]


def export(
    source: str | Path | RunDirectory,
    format: str,
    out: str | Path,
    *,
    allow_chance: bool = False,
    images: bool = False,
    encoder: str | None = None,
) -> Path:
    """Write a trained model as a file (or folder, for ``hub``); returns where it is.

    A run whose model is no better than chance is refused unless ``allow_chance``.
    With ``images``, a model of vectors leaves with their encoder in front (``Model.seeing``).
    """
    if format not in FORMATS and format != "hub":
        raise InputError(f"there is no format {format!r}; there are {', '.join(FORMATS)} and hub")
    out = Path(out)
    if format == "onnx":
        need("export", "ONNX")
    run = source if isinstance(source, RunDirectory) else RunDirectory(source)
    learnt = run.learnt()
    if learnt is not None and not learnt.ok and not allow_chance:
        raise InputError(
            f"{run.path}: {learnt.own.sentence(run.unit)} It was not exported; train it better, or "
            "add ",
            Argument("allow_chance"),
        )
    make_folder(out.parent)  # before the work
    model = load(source)
    if images or encoder is not None:
        if format != "onnx":
            raise InputError(
                Argument("images"),
                f" is for onnx; {format} holds the model alone, and names the encoder of "
                "its vectors",
            )
        model = model.seeing(encoder)
    if format == "hub":
        path = source.path if isinstance(source, RunDirectory) else Path(source)
        write_hub(model, path, out)
    else:
        write_named(out, FORMATS[format](model))
    return out


def _onnx(model: Model) -> bytes:
    """Write ONNX, any batch size; the metadata says what the file is, as JSON."""
    import onnx

    graph = Graph(model)
    encoder = graph.onnx_encoder()
    if encoder is None:
        made = _written(graph, input_shape(model), len(model.groups))
    else:
        rest = _written(graph.behind(encoder), (encoder.out_dim,), len(model.groups))
        made = with_encoder(rest, encoder, model.size)
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


def _written(graph: Graph, shape: tuple[int, ...], groups: int) -> Any:
    """Return a graph of torch as ONNX."""
    given = examples(shape, graph, groups)
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
    return program.model_proto


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


def _safetensors(model: Model) -> bytes:
    """Return the weights, with the description in the header; ``shasam.load`` reads it back."""
    tensors = {k: v.cpu().contiguous() for k, v in model.method.state_dict().items()}
    return save(tensors, metadata=_metadata(model))


def _metadata(model: Model) -> dict[str, str]:
    """Return the description as JSON, and its names by themselves for readers who want no more."""
    body = description(model)
    short = {key: json.dumps(body[key]) for key in ("classes", "groups")}
    return {HEADER: json.dumps(body), **short}


def _check(graph: Graph, model: Model, run: Callable[..., list[Any]]) -> None:
    """Refuse a file that does not say what the model says, on another batch size than its own."""
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
    """Silence torch's exporters, which log and warn about themselves."""
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
    "safetensors": _safetensors,
}
