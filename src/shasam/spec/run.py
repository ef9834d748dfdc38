"""The specification of a run, resolved and checked all at once.

An unknown key is an error with the nearest known one, and all errors of a specification are
reported together. The hash of the resolved specification names the run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shasam.errors import SpecError
from shasam.registry import DEFAULT_METHOD, did_you_mean, entries, lookup, names
from shasam.spec.fields import DataSpec, ModelSpec, StageSpec, TrainSpec, with_source
from shasam.spec.layers import PROFILES, full_keys, lay, merge
from shasam.tables import UNKNOWN

# -------------------------------------------------------------------------------------------------
# What `train.precision: auto` means on this machine.
# -------------------------------------------------------------------------------------------------

_FLAGS = {"avx512_bf16", "amx_bf16"}  # instructions that multiply bfloat16, as Linux names them
_PROCESSOR = "/proc/cpuinfo"
# oneDNN reads uninitialised memory in bfloat16 convolutions on 1x1 maps, which smaller images have
SMALLEST = 32


def chosen_precision(inputs: str, size: int) -> Literal["32-true", "bf16-mixed"]:
    """Return bfloat16 for networks on images, where the processor has instructions for it."""
    if inputs == "images" and size >= SMALLEST and _FLAGS & usable_flags():
        return "bf16-mixed"
    return "32-true"


def usable_flags() -> set[str]:
    """Return instruction sets of the processor.

    None where oneDNN is held to older ones, or unknown.
    """
    held = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
    if held not in ("DEFAULT", "ALL") and not any(word in held for word in ("BF16", "AMX")):
        return set()
    try:
        with open(_PROCESSOR, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("flags"):
                    return set(line.partition(":")[2].split())
    except OSError:  # not Linux
        pass
    return set()


class RunSpec(BaseModel):
    """Describe everything that decides what a run gives.

    Examples
    --------
    >>> RunSpec(method="ce").method
    'ce'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = Field(DEFAULT_METHOD, description="What to train; `shasam methods` lists them.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the method; all of them once resolved."
    )
    data: DataSpec = Field(
        default_factory=lambda: DataSpec.model_validate({}),
        description="The data: fields of `DataSpec`.",
    )
    model: ModelSpec = Field(
        default_factory=lambda: ModelSpec.model_validate({}),
        description="The encoder: fields of `ModelSpec`.",
    )
    train: TrainSpec = Field(
        default_factory=TrainSpec, description="The training: fields of `TrainSpec`."
    )
    seed: int = Field(
        0, ge=0, lt=2**31, description="Decides the start weights, the batches and the views."
    )

    @model_validator(mode="after")
    def _every_stage_has_a_length(self) -> RunSpec:
        stages = {"learn": self.train.learn, "classify": self.train.classify, **self.train.others}
        for name, stage in stages.items():
            if stage.epochs is None and stage.steps is None:
                raise ValueError(f"train.{name}: give epochs or steps")
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as in ``spec.yaml``."""
        return self.model_dump(mode="json")

    def as_yaml(self) -> str:
        """Return the resolved specification as a YAML file that ``--config`` reads back."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True)

    @property
    def key(self) -> str:
        """12 hexadecimal digits of SHA-256 over all that matters; where stores are does not."""
        body = self.as_dict()
        body["data"].pop("store")
        text = json.dumps(body, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return f"{self.method}-{self.key}"


def resolve(
    *layers: Mapping[str, Any], profile: str | None = None, stored: bool = False
) -> RunSpec:
    """Merge layers over a profile, the last on top, and check everything.

    What the files that it names can tell is filled in.

    Parameters
    ----------
    layers
        Mappings with keys of a specification, nested or dotted.
    profile
        Named set of defaults under the layers.
    stored
        Look at no file and ask nothing of a network: the specification comes with a run,
        perhaps of somebody else.

    Returns
    -------
    RunSpec
        The complete specification.

    Examples
    --------
    >>> resolve({"method": "ce", "train": {"steps": 5}}, profile="cpu").train.learn.steps
    5
    """
    asked: dict[str, Any] = {}
    chosen = profile
    for layer in layers:
        chosen = layer.get("profile") or chosen
        asked = lay(asked, full_keys({k: v for k, v in layer.items() if k != "profile"}))
    if isinstance(asked.get("data"), Mapping):
        asked["data"] = with_source(asked["data"])
    asked = with_encoder(asked)
    body = lay(_profile(chosen, asked), asked) if chosen is not None else asked
    errors: list[str] = []
    spec = None
    try:
        spec = RunSpec.model_validate(body)
    except ValidationError as error:
        errors += sentences(error, RunSpec)
    method, model = body.get("method", DEFAULT_METHOD), body.get("model", {})
    options = _options("method", method, body.get("options", {}), "method", "options", errors)
    encoder_options: dict[str, Any] = {}
    if isinstance(model, Mapping):
        given = model.get("options", {})
        name = model.get("encoder", "resnet18")
        encoder_options = _options(
            "encoder", name, given, "model.encoder", "model.options", errors, stored
        )
    if not errors and spec is not None:
        errors += inputs_that_do_not_fit(spec) + groups_that_do_not_fit(spec)
    if errors or spec is None:
        raise SpecError("the specification has errors:\n  " + "\n  ".join(errors))
    full = spec.model.model_copy(update={"options": encoder_options})
    data = _with_size(spec.data, full, asked)
    data = data if stored else lookup("source", data.name).completed(data)
    train = spec.train
    if train.precision == "auto":  # what is stored, and names the run, is what it computes with
        chosen = chosen_precision(inputs_of(data.name), data.size)
        train = train.model_copy(update={"precision": chosen})
    update = {"options": options, "model": full, "data": data, "train": train}
    spec = spec.model_copy(update=update)
    if errors := groups_that_do_not_fit(spec):  # what the files have told may not fit
        raise SpecError("the specification has errors:\n  " + "\n  ".join(errors))
    return spec


def _with_size(data: DataSpec, model: ModelSpec, asked: Mapping[str, Any]) -> DataSpec:
    """Return the size that the pretrained encoder is used to, where none is asked for."""
    size = lookup("encoder", model.encoder).Config.model_validate(model.options).image_size
    if size is None or "size" in asked.get("data", {}):
        return data
    return data.model_copy(update={"size": size})


def stored_spec(body: Mapping[str, Any]) -> RunSpec:
    """Return the specification that a run was stored with, also by an earlier release.

    Releases before 0.2 wrote the options of every encoder side by side under ``model``; those of
    other encoders than the chosen one are left out. They fed all weights pixels with mean and
    deviation 0.5, and left out rows without a label. Before mining was done over the whole ground
    set, ``shasam`` was what ``shasam-random`` is now.
    """
    body = _with_earlier_mining(body)
    data = body.get("data")
    if isinstance(data, Mapping) and "missing" not in data:
        body = {**body, "data": {**data, "missing": "drop"}}
    model = body.get("model")
    if isinstance(model, Mapping) and "options" not in model:
        name = model.get("encoder", "resnet18")
        known = lookup("encoder", str(name)).Config.model_fields
        kept = {k: v for k, v in model.items() if k in known or k in ModelSpec.model_fields}
        body = {**body, "model": kept}
    model = body.get("model")
    # without pretrained weights `auto` is what was done before
    if isinstance(model, Mapping) and "normalisation" not in model and model.get("init"):
        body = {**body, "model": {**model, "normalisation": "half"}}
    return resolve(body, stored=True)


def _with_earlier_mining(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write out how sets were mined before there was a choice, under the name of today."""
    options = body.get("options")
    mining = options.get("mining") if isinstance(options, Mapping) else None
    if not isinstance(options, Mapping) or not isinstance(mining, Mapping) or "epoch" in mining:
        return body
    earlier = {"k": None, "represented": "candidates", "greedy": "lazy"}
    mining = {**earlier, **mining, "roles": "shared", "epoch": "images"}
    method = "shasam-random" if body.get("method") == "shasam" else body.get("method")
    return {**body, "method": method, "options": {**options, "mining": mining}}


def sentences(error: ValidationError, model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return what pydantic found wrong, one sentence a key."""
    return [_sentence(entry, model, prefix) for entry in error.errors()]


def _options(
    kind: str,
    name: Any,
    given: Any,
    where: str,
    prefix: str,
    errors: list[str],
    stored: bool = False,
) -> dict[str, Any]:
    """Return the options of a registered thing, completed; what is wrong is added to ``errors``."""
    if not isinstance(name, str) or name not in names(kind):
        errors.append(f"{where}: there is no {kind} {name!r}{did_you_mean(str(name), names(kind))}")
        return {}
    if not isinstance(given, Mapping):
        return {}
    config = lookup(kind, name).Config
    try:
        made = config.model_validate(dict(given))
        if kind == "encoder" and stored and not made.is_complete:
            errors.append(f"{prefix}: a run that was trained with {name} holds more of it")
        elif kind == "encoder" and not stored:
            made = made.completed()
        return made.model_dump(mode="json")
    except ValidationError as error:
        errors += sentences(error, config, prefix)
        return {}


def with_encoder(asked: dict[str, Any]) -> dict[str, Any]:
    """Name the encoder of methods that work with one only; vectors get an MLP."""
    method, model = asked.get("method"), asked.get("model", {})
    if not isinstance(model, Mapping) or "encoder" in model:
        return asked
    needed = lookup("method", method).needs_encoder if method in names("method") else None
    if needed is None and inputs_of(_asked("data.name", asked)) == "vectors":
        needed = "mlp"
    return asked if needed is None else merge(asked, {"model": {"encoder": needed}})


def inputs_that_do_not_fit(spec: RunSpec) -> list[str]:
    """Say what is wrong if a method or an encoder for images meets vectors, or the reverse."""
    given = inputs_of(spec.data.name)
    method, encoder = lookup("method", spec.method), lookup("encoder", spec.model.encoder)
    if given == "vectors" and method.needs_images:
        return [f"method: {spec.method} is tied to an image network and cannot read vectors"]
    if encoder.inputs == given:
        return []
    fitting = [name for name, kind in entries("encoder").items() if kind.inputs == given]
    return [
        f"model.encoder: {spec.model.encoder} reads {encoder.inputs} and {spec.data.name} gives "
        f"{given}; choose one of {', '.join(fitting)}"
    ]


def groups_that_do_not_fit(spec: RunSpec) -> list[str]:
    """Return what is wrong where a method meets groups that it cannot take."""
    method = lookup("method", spec.method)
    if spec.data.sensitive_as == "number" and not method.continuous:
        able = [name for name, kind in entries("method").items() if kind.continuous]
        rules = spec.data.sensitive or ("age",)
        what = f"{rules[0]} is" if len(rules) == 1 else f"one of {', '.join(rules)} is"
        rule = f"{rules[0] if len(rules) == 1 else 'age'}<35"
        return [
            f"data.sensitive: {spec.method} needs groups, and {what} followed as a number; make "
            f"groups of it by a rule, such as '{rule}', or choose one of {', '.join(able)}"
        ]
    several = len(spec.data.sensitive or ()) > 1
    if spec.data.sensitive_as == "number" and several and method.number_alone:
        able = [k for k, v in entries("method").items() if v.continuous and not v.number_alone]
        return [
            f"data.sensitive: {spec.method} takes a number as the only attribute; make groups of "
            f"it by a rule, or choose one of {', '.join(able)}"
        ]
    if spec.data.groups == "each" and not method.groups_in_turns:
        able = [name for name, kind in entries("method").items() if kind.groups_in_turns]
        return [
            f"data.groups: {spec.method} keeps something for every group and cannot take several "
            f"attributes in turn; say cross, or choose one of {', '.join(able)}"
        ]
    if spec.data.missing in UNKNOWN and not method.unknown_groups:
        able = [name for name, kind in entries("method").items() if kind.unknown_groups]
        return [
            f"data.missing: {spec.method} needs the group of every row; say drop or group, or "
            f"choose one of {', '.join(able)}"
        ]
    if spec.data.missing == "infer" and inputs_of(spec.data.name) != "vectors":
        return [
            f"data.missing: infer reads groups off vectors, and {spec.data.name} gives images; "
            "make vectors of them with shasam embed, or say use, drop or group"
        ]
    return []


def inputs_of(source: Any) -> str:
    """Return what a source gives, "images" or "vectors"."""
    return lookup("source", source).inputs if source in names("source") else "images"


def _profile(name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile, with its entries for the data, encoder and method that are asked for."""
    if name not in PROFILES:
        raise SpecError(f"there is no profile {name!r}{did_you_mean(name, PROFILES)}")
    profile = dict(PROFILES[name])
    cases = profile.pop("where", {})
    body = full_keys(profile)
    for condition, words in cases.items():
        key, _, wanted = condition.partition("=")
        if _asked(key, asked) == wanted:
            body = lay(body, full_keys(words))
    return body


def _asked(key: str, asked: Any) -> Any:
    """Return the value of a dotted key, or its default where it is not given."""
    for part in key.split("."):
        asked = asked.get(part) if isinstance(asked, Mapping) else None
    if asked is not None:
        return asked
    model: Any = RunSpec
    *parts, last = key.split(".")
    for part in parts:
        model = model.model_fields[part].annotation
    return model.model_fields[last].default


def _sentence(error: Any, model: type[BaseModel], prefix: str) -> str:
    where = ".".join(map(str, (*([prefix] if prefix else []), *error["loc"]))) or "specification"
    if error["type"] == "extra_forbidden":
        known = _fields(model, error["loc"][:-1])
        return f"{where}: no such key{did_you_mean(str(error['loc'][-1]), known)}"
    message = error["msg"].removeprefix("Value error, ")
    given = "" if isinstance(error["input"], dict | BaseModel) else f", not {error['input']!r:.200}"
    return f"{where}: {message[0].lower()}{message[1:]}{given}"


def _fields(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        inner = field.annotation if field is not None else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    short = list(StageSpec.model_fields) if model is TrainSpec else []
    return [*model.model_fields, *short]
