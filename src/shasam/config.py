"""The specification of a run: a profile, a YAML file, flags and ``--set``, checked all at once.

Later layers win. An unknown key is an error with the nearest known one, and all errors of a
specification are reported together. The hash of the resolved specification names the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shasam.data.spec import DataSpec
from shasam.documents import parse_yaml
from shasam.errors import SpecError
from shasam.models.spec import ModelSpec
from shasam.registry import did_you_mean, lookup, names
from shasam.training.profiles import PROFILES
from shasam.training.spec import SHORT, TrainSpec

_DEFAULTS = {"data.name": "faces", "method": "shasam"}  # of the keys that profiles tell apart


class RunSpec(BaseModel):
    """Everything that decides what a run gives."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = "shasam"
    options: dict[str, Any] = Field(
        default_factory=dict
    )  # of the method, all of them once resolved
    data: DataSpec = Field(default_factory=lambda: DataSpec.model_validate({}))
    model: ModelSpec = Field(default_factory=ModelSpec)
    train: TrainSpec = Field(default_factory=TrainSpec)
    seed: int = Field(default=0, ge=0, lt=2**31)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in ``spec.yaml``."""
        return self.model_dump(mode="json")

    def as_yaml(self) -> str:
        """The resolved specification as a YAML file that ``--config`` reads back."""
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


def resolve(*layers: Mapping[str, Any], profile: str | None = None) -> RunSpec:
    """Lay the layers over a profile, the last on top, and check everything.

    >>> resolve({"method": "ce", "train": {"steps": 5}}, profile="cpu").train.learn.steps
    5
    """
    asked: dict[str, Any] = {}
    chosen = profile
    for layer in layers:
        chosen = layer.get("profile") or chosen
        asked = merge(asked, {k: v for k, v in layer.items() if k != "profile"})
    asked = _with_encoder(asked)
    body = merge(_profile(chosen, asked), asked) if chosen is not None else asked
    errors: list[str] = []
    spec = None
    try:
        spec = RunSpec.model_validate(body)
    except ValidationError as error:
        errors += [_sentence(entry, RunSpec, ()) for entry in error.errors()]
    method = body.get("method", "shasam")
    if not isinstance(method, str) or method not in names("method"):
        errors.append(
            f"method: there is no method {method!r}{did_you_mean(str(method), names('method'))}"
        )
    elif isinstance(body.get("options", {}), dict):
        config = lookup("method", method).Config
        try:
            options = config.model_validate(body.get("options", {}))
            if spec is not None:
                spec = spec.model_copy(update={"options": options.model_dump(mode="json")})
        except ValidationError as error:
            errors += [_sentence(entry, config, ("options",)) for entry in error.errors()]
    if spec is not None and spec.model.encoder not in names("encoder"):
        near = did_you_mean(spec.model.encoder, names("encoder"))
        errors.append(f"model.encoder: there is no encoder {spec.model.encoder!r}{near}")
    if errors or spec is None:
        raise SpecError("the specification has errors:\n  " + "\n  ".join(errors))
    return spec


def _with_encoder(asked: dict[str, Any]) -> dict[str, Any]:
    """A method that cannot do without some encoder gets it where none is named."""
    method, model = asked.get("method"), asked.get("model", {})
    if method not in names("method") or not isinstance(model, Mapping) or "encoder" in model:
        return asked
    needed = lookup("method", method).needs_encoder
    return asked if needed is None else merge(asked, {"model": {"encoder": needed}})


def _profile(name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a profile says, with its special words where they are met by what is asked for."""
    if name not in PROFILES:
        raise SpecError(f"there is no profile {name!r}{did_you_mean(name, PROFILES)}")
    profile = dict(PROFILES[name])
    special = profile.pop("special", {})
    for key, words in special.items():
        where, _, wanted = key.partition("=")
        if _asked(where, asked) == wanted:
            profile = merge(profile, words)
    return profile


def _asked(where: str, asked: Any) -> Any:
    """The value of a dotted key, or its default where it is not given."""
    for part in where.split("."):
        asked = asked.get(part) if isinstance(asked, Mapping) else None
    return _DEFAULTS.get(where) if asked is None else asked


def parse_set(pairs: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """``["train.lr=0.1", "seed=3"]`` as nested keys; values are read as YAML."""
    body: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise SpecError(f"--set {pair!r}: write it as dotted.key=value")
        value = parse_yaml(text, f"--set {pair!r:.80}")
        if isinstance(value, str):
            value = _number(value)
        body = merge(body, nest(key, value))
    return body


def nest(key: str, value: Any) -> dict[str, Any]:
    """``nest("a.b", 1)`` is ``{"a": {"b": 1}}``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Dicts are merged key by key, everything else is replaced by what lies above."""
    result = dict(below)
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        # a stage has one length: the newer word for it wins
        if above.get(one) is not None and other not in above:
            result.pop(other, None)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return result


def _number(text: str) -> str | float:
    """YAML 1.1 reads 1e-3 as a string; people mean the number."""
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text


def _sentence(error: Any, model: type[BaseModel], prefix: tuple[str, ...]) -> str:
    where = ".".join(map(str, (*prefix, *error["loc"]))) or "specification"
    if error["type"] == "extra_forbidden":
        known = _fields(model, error["loc"][:-1])
        return f"{where}: no such key{did_you_mean(str(error['loc'][-1]), known)}"
    message = error["msg"].removeprefix("Value error, ")
    given = "" if isinstance(error["input"], dict) else f", not {error['input']!r:.200}"
    return f"{where}: {message[0].lower()}{message[1:]}{given}"


def _fields(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        inner = field.annotation if field is not None else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    short = list(SHORT) if model is TrainSpec else []
    return [*model.model_fields, *short]
