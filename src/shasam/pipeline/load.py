"""A trained model, ready to use: ``shasam.load(run).predict(images)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shasam.data.decode import MAX_BYTES, BadImage, decode
from shasam.data.splits import Manifest
from shasam.data.vector_files import open_features
from shasam.documents import parse_json, read_json
from shasam.errors import CheckpointError, FileError, InputError, ShasamError
from shasam.extras import need
from shasam.files import open_regular, read_bytes
from shasam.methods.base import Method
from shasam.methods.posthoc import with_rule
from shasam.models.weights import read_weights
from shasam.pipeline.build import build_method, outline
from shasam.pipeline.embedding import Embedder, of_vectors
from shasam.runs.directory import RunDirectory
from shasam.spec import RunSpec, stored_spec
from shasam.training.inference import BATCH, on_images, prepare
from shasam.training.runtime import Fabric, one_process
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Where a trained model is kept: a run directory, an exported folder or file, a model of the hub.
#
# All four hold the same four things: the specification, the names of classes and groups, and a
# safetensors file with the weights. Whatever is read may be somebody else's; nothing of it is run.
# -------------------------------------------------------------------------------------------------

CONFIG, WEIGHTS = "config.json", "model.safetensors"
VECTORS = "vectors.json"  # of a run on vectors of `shasam embed`: the encoder that made them
HEADER = "shasam"  # the key of a safetensors file's metadata that holds what config.json holds
_HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


@dataclass(frozen=True)
class SavedModel:
    """What is needed to build a trained model, read and checked; the weights are not read yet."""

    where: str  # what messages call it
    spec: RunSpec
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    weights: Path
    sha256: str | None  # of the weights; None if it was never written down
    within: Path | None  # links may not lead out of this folder
    vectors: Mapping[str, Any] | None = None  # the encoder of the vectors, where it is known
    rule: Mapping[str, Any] | None = None  # of `shasam threshold`: limits, and how it decides


def find_saved(source: str | Path | RunDirectory) -> SavedModel:
    """Return the saved model at a path, or of a hub id such as ``owner/name``."""
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


def _of_run(run: RunDirectory) -> SavedModel:
    if not run.file(WEIGHTS).is_file():
        raise InputError(f"{run.path} has no model yet; finish it with `shasam train --resume`")
    manifest = Manifest.load(run.file("manifest.parquet"), within=run.path)
    sha256 = None  # not known of a copy of the weights alone
    if run.file("provenance.json").exists():
        sha256 = run.json("provenance.json").get("model_sha256")
    names = (manifest.target_names, manifest.sensitive_names)
    vectors = run.json(VECTORS) if run.file(VECTORS).exists() else None
    return SavedModel(
        str(run.path), run.spec(), *names, run.file(WEIGHTS), sha256, run.path, vectors
    )


def _of_folder(folder: Path, within: Path, where: str | None = None) -> SavedModel:
    config = read_json(folder / CONFIG, within=within)
    return _of_config(config, where or str(folder), folder / WEIGHTS, within)


def _of_file(path: Path) -> SavedModel:
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


def _of_hub(name: str) -> SavedModel:
    """Find a model of the hub in huggingface_hub's cache or the network: its two files alone."""
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


def _of_config(config: Any, where: str, weights: Path, within: Path | None) -> SavedModel:
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
    sha256, vectors = config.get("model_sha256"), config.get("vectors")
    vectors = vectors if isinstance(vectors, Mapping) else None
    rule = config.get("rule") if isinstance(config.get("rule"), Mapping) else None
    return SavedModel(where, spec, names[0], names[1], weights, sha256, within, vectors, rule)


SEEN = 16  # images that the encoder of vectors sees at a time, as `shasam embed` on a CPU
UNKNOWN = -1  # the group of an image whose group is not told


@dataclass(frozen=True)
class Answer:
    """What a model says of some images."""

    labels: list[str]  # names of the predicted classes
    prediction: np.ndarray  # (n,) their numbers
    scores: np.ndarray  # (n, C) class probabilities


@dataclass(frozen=True)
class Model:
    """Predict with a trained method and the names of its classes and groups."""

    spec: RunSpec
    method: Method
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    fabric: Fabric  # device and precision, as in training
    vectors: Mapping[str, Any] | None = None  # the encoder of the vectors, where it is known
    front: Embedder | None = None  # that encoder, in front of a model of vectors
    rule: Mapping[str, Any] | None = None  # of `shasam threshold`: limits, and how it decides

    @property
    def inputs(self) -> str:
        """What the model is given, "images" or "vectors"."""
        return "images" if self.front is not None else self.method.encoder.inputs

    @property
    def size(self) -> int:
        """The side of the images in pixels."""
        return self.spec.data.size if self.front is None else self.front.size

    def seeing(self, encoder: str | None = None) -> Model:
        """Put the encoder in front of a model of vectors, so that it takes images.

        The vectors must be those of ``shasam embed``. ``encoder`` (such as ``onnx:FILE``) names
        the encoder where it is read from a file or the hub, which a model does not choose; its
        weights must be those that made the vectors.
        """
        if self.inputs == "images":
            if encoder is not None:
                raise InputError("this model reads images already; leave out the encoder")
            return self
        if self.vectors is None:
            raise InputError(
                "this model was trained on vectors that shasam embed did not write, so their "
                "encoder is not known; give vectors"
            )
        front = of_vectors(self.vectors, encoder, str(self.fabric.device))
        if front.width != self.spec.data.features_dim:
            raise InputError(
                f"{front.name} gives {front.width} numbers and this model was trained on "
                f"{self.spec.data.features_dim}; the vectors were changed after shasam embed"
            )
        return replace(self, front=front)

    def predict(
        self,
        images: Any,
        groups: Sequence[int] | Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
    ) -> Answer:
        """Predict the classes of images or vectors.

        Parameters
        ----------
        images
            Files, or uint8 arrays (n, 3, H, W) or (n, H, W, 3) of the run's size. A model of
            vectors takes an array (n, D), or a file of vectors.
        groups
            Sensitive groups (n,), by name or number, for methods whose decisions need them.
        ids
            Ids (n,) that decide the coin of each row if decisions are randomised; by default 0,
            1, ...

        Returns
        -------
        Answer
            Names and numbers of the predicted classes, and class probabilities.
        """
        pixels = self._pixels(images)
        n = len(pixels)
        given = self._groups(groups, n)
        if ids is not None and len(ids) != n:
            raise InputError(f"{n} rows came with {len(ids)} ids; give one for each")
        return self.answer(pixels, given, [str(i) for i in (range(n) if ids is None else ids)])

    def answer(
        self, pixels: Tensor, groups: np.ndarray, ids: Sequence[str], batch: int = BATCH
    ) -> Answer:
        """Predict inputs that were checked: tensors, numbers of groups (n,), and ids."""
        scores = np.zeros((0, len(self.classes)), np.float32)
        if len(pixels) and self.front is not None:
            pixels = self._seen(pixels)
        if len(pixels):
            scores_nC = next(iter(self._apply(self.method.logits, pixels, batch).values()))
            scores = self.method.probabilities(scores_nC).numpy()
        decided = scores.argmax(1)
        if self.method.has_rule:
            unknown = np.full(len(pixels), UNKNOWN)
            asked = Predictions(np.array(ids), unknown, decided, groups, scores)
            decided = self.method.decide(asked).prediction
        return Answer([self.classes[c] for c in decided.tolist()], decided, scores)

    @property
    def decides_by_group(self) -> bool:
        """Whether ``predict`` needs the group of each image."""
        return self.method.decides_by_group or self.method.has_rule

    def group_number(self, group: Any) -> int | None:
        """Return the number of a group that is given by its name or number.

        None if there is none.
        """
        if str(group) in self.groups:
            return self.groups.index(str(group))
        if isinstance(group, float) and group.is_integer():  # a column that lacks some groups
            return self.group_number(int(group))
        whole = isinstance(group, (int, np.integer)) and not isinstance(group, bool)
        return int(group) if whole and 0 <= group < len(self.groups) else None

    def _groups(self, groups: Sequence[int] | Sequence[str] | None, n: int) -> np.ndarray:
        if groups is None:
            if self.decides_by_group:
                raise InputError(
                    f"{self.spec.method} decides by group: give predict(…, groups) the group of "
                    f"each row, as a name or number of {list(self.groups)}"
                )
            return np.full(n, UNKNOWN)
        if len(groups) != n:
            raise InputError(f"{n} rows came with {len(groups)} groups; give one for each")
        listed = np.asarray(groups).tolist()  # numbers of a tensor or an array are not Python's
        found = [self.group_number(group) for group in listed]
        if None in found:
            raise InputError(
                f"there is no group {listed[found.index(None)]!r:.80}; the groups of this model "
                f"are {list(self.groups)}, or their numbers from 0"
            )
        return np.asarray(found, dtype=np.int64)

    def features(self, images: Any) -> dict[str, np.ndarray]:
        """Compute the named features (n, D) of images, given as for ``predict``."""
        pixels = self._pixels(images)
        inputs = pixels if self.front is None else self._seen(pixels)
        found = self._apply(self.method.features, inputs)
        return {kind: value.numpy() for kind, value in found.items()}

    def _apply(
        self, apply: Callable[[Tensor], dict[str, Tensor]], pixels: Tensor, batch: int = BATCH
    ) -> dict[str, Tensor]:
        return on_images(apply, self.method, pixels.split(batch), self.fabric)

    def _seen(self, pixels: Tensor) -> Tensor:
        """Return vectors of images, as many at a time as ``shasam embed`` takes."""
        assert self.front is not None
        parts = [self.front(part.permute(0, 2, 3, 1).numpy()) for part in pixels.split(SEEN)]
        return torch.from_numpy(np.concatenate(parts))

    def _pixels(self, images: Any) -> Tensor:
        if isinstance(images, (list, tuple)) and not images:
            raise InputError("there is nothing to predict: the list is empty")
        dim = self.spec.data.features_dim
        if dim is not None and self.front is None:
            return vectors_of(images, dim)
        size = self.size
        if isinstance(images, (str, Path)):
            images = [images]
        if isinstance(images, (list, tuple)) and all(isinstance(x, (str, Path)) for x in images):
            return torch.from_numpy(np.stack([_read(Path(x), size) for x in images])).permute(
                0, 3, 1, 2
            )
        pixels = torch.as_tensor(np.asarray(images))
        if pixels.ndim == 3:
            pixels = pixels[None]
        if pixels.ndim == 4 and pixels.shape[1] != 3 and pixels.shape[3] == 3:
            pixels = pixels.permute(0, 3, 1, 2)
        if pixels.ndim != 4 or pixels.shape[1] != 3 or pixels.dtype != torch.uint8:
            raise InputError(
                f"predict takes paths of images, or uint8 arrays (n, 3, {size}, {size}), not "
                f"{pixels.dtype} {tuple(pixels.shape)}"
            )
        if tuple(pixels.shape[-2:]) != (size, size):
            raise InputError(
                f"this model was trained on {size} px and these images are "
                f"{tuple(pixels.shape[-2:])}; resize them, or give paths and they are resized"
            )
        return pixels


def load(source: str | Path | RunDirectory, device: str = "cpu") -> Model:
    """Load a trained model, in the precision it was trained in.

    Parameters
    ----------
    source
        A run directory, a folder or .safetensors file that ``shasam export`` wrote, or the id
        of a model on the hub.
    device
        "cpu", "cuda" or "mps".

    Returns
    -------
    Model
        The model, which predicts images or vectors.

    Examples
    --------
    >>> from shasam import train
    >>> run = train("ce", profile="smoke", overrides={"train.steps": 4}, quiet=True)
    >>> load(run).classes
    ('serious', 'smiling')
    """
    saved = find_saved(source)
    spec, sizes = saved.spec, (len(saved.classes), len(saved.groups))
    outlined = outline(spec, *sizes)
    if saved.rule is not None and outlined is not None:
        outlined = with_rule(outlined, saved.rule)
    _check_weights(saved, outlined)
    method, _ = build_method(spec, *sizes, start=False)
    if saved.rule is not None:
        method = with_rule(method, saved.rule)
    weights = read_weights(saved.weights, sha256=saved.sha256, within=saved.within)
    try:
        method.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"the weights of {saved.where} do not fit its specification: {error}"
        ) from error
    fabric = one_process(spec.train, device)
    names = (saved.classes, saved.groups)
    ready = prepare(method, fabric.device)
    return Model(spec, ready, *names, fabric, saved.vectors, rule=saved.rule)


def _check_weights(saved: SavedModel, outlined: Method | None) -> None:
    """Check that the file holds the specification's tensors, before memory is taken for either."""
    path = saved.weights
    with open_regular(path, within=saved.within):
        pass
    try:
        with safe_open(path, framework="pt") as file:
            held = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error
    if outlined is None:
        return
    wanted = {name: list(tensor.shape) for name, tensor in outlined.state_dict().items()}
    for name in sorted(wanted.keys() | held.keys()):
        if wanted.get(name) != held.get(name):
            raise CheckpointError(
                f"the weights of {saved.where} do not fit its specification: {name[:80]} has "
                f"the shape {held.get(name, 'none')} and should have {wanted.get(name, 'none')}"
            )


def vectors_of(given: Any, dim: int) -> Tensor:
    """Return float32 (n, D) of an array or of a file of vectors, all of them finite."""
    if isinstance(given, (str, Path)):
        features = open_features(Path(given))
        given = features.take(np.arange(len(features)))
    try:
        array = np.asarray(given)
        array = array[None] if array.ndim == 1 else array
        if array.dtype.kind not in "fiu" or array.ndim != 2 or array.shape[1] != dim:
            raise InputError(
                f"this model was trained on vectors of {dim} numbers, (n, {dim}); got "
                f"{str(array.dtype)[:40]} {array.shape}"
            )
        with np.errstate(over="ignore"):
            x = torch.from_numpy(np.array(array, dtype=np.float32))
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"predict takes an array of numbers (n, {dim}): {error}") from error
    bad = (~torch.isfinite(x).all(1)).nonzero().flatten()
    if len(bad):
        raise InputError(
            f"{len(bad)} of {len(x)} vectors hold NaN or infinity (row {int(bad[0])} is the first)"
        )
    return x


def _read(path: Path, size: int) -> np.ndarray:
    try:
        return decode(read_bytes(path, limit=MAX_BYTES), size)
    except FileError as error:
        raise InputError(str(error)) from error
    except BadImage as error:
        raise InputError(f"{path} cannot be used: {error}") from error
