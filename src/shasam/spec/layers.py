"""Layers of a specification: a profile, a YAML file, flags and ``--set``; the last one wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shasam.documents import parse_yaml
from shasam.errors import SpecError
from shasam.spec.model import ModelSpec
from shasam.spec.train import StageSpec


def parse_set(pairs: Sequence[str]) -> dict[str, Any]:
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
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merge(old, value)
        else:
            result[key] = value
    return result


def lay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One layer on another, both with full keys; a stage keeps the length that lies above."""
    result = merge(below, above)
    train = above.get("train")
    for path, stage in _stages(train if isinstance(train, Mapping) else {}):
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if stage.get(one) is not None and stage.get(other) is None:
                result = merge(result, nest(f"train.{path}.{other}", None))
    return result


def full_keys(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer with dotted and short keys written out.

    >>> full_keys({"train.lr": 0.1, "model": {"width": 8}})
    {'train': {'learn': {'lr': 0.1}}, 'model': {'options': {'width': 8}}}
    """
    body: dict[str, Any] = {}
    for key, value in layer.items():
        body = merge(body, nest(str(key), value))
    _move(body, "train", "learn", lambda key: key in StageSpec.model_fields)
    _name_the_source(body)
    _move(body, "model", "options", lambda key: key not in ModelSpec.model_fields)
    return body


def _name_the_source(body: dict[str, Any]) -> None:
    """``encoder: hf:NAME`` is short for ``encoder: hf`` and ``options.source: NAME``."""
    model = body.get("model")
    name = model.get("encoder") if isinstance(model, Mapping) else None
    if isinstance(model, Mapping) and isinstance(name, str) and ":" in name:
        kind, _, source = name.partition(":")
        body["model"] = {**model, "encoder": kind, "source": source}


def _move(body: dict[str, Any], part: str, inner: str, short: Any) -> None:
    """``part.key`` becomes ``part.inner.key`` where ``key`` is a short one."""
    given = body.get(part)
    if not isinstance(given, Mapping):
        return
    moved = {key: value for key, value in given.items() if short(key)}
    if not moved or not isinstance(given.get(inner, {}), Mapping):
        return
    kept = {key: value for key, value in given.items() if key not in moved}
    # a short key is the plainer wish: it wins over the long one of the same layer
    long = {inner: kept.get(inner) or {}}
    body[part] = {**kept, **lay({"train": long}, {"train": {inner: moved}})["train"]}


def _stages(train: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    others = train.get("others")
    named = others.items() if isinstance(others, Mapping) else ()
    found = [(name, train.get(name)) for name in ("learn", "classify")]
    found += [(f"others.{name}", stage) for name, stage in named]
    return [(path, stage) for path, stage in found if isinstance(stage, Mapping)]


def _number(text: str) -> str | float:
    """YAML 1.1 reads 1e-3 as a string; people mean the number."""
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text
