"""YAML and JSON from untrusted files: plain values only, their size checked before they are built.

A few hundred bytes of YAML can stand for gigabytes (``b: [*a, *a, *a]``, again and again), and a
few megabytes of JSON for millions of objects. Aliases are therefore refused, and depth and the
number of values are limited, with limits far above anything that the package writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from shasam.errors import DataError, FileError, ShasamError, SpecError
from shasam.files import MAX_TEXT, read_bytes

MAX_YAML_BYTES = 32_000  # a resolved specification has about 2,000
MAX_DEPTH = 20
MAX_VALUES = 1_000_000  # of a JSON document; each takes up to about 100 bytes
MAX_WHOLE = 2**63 - 1


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without aliases, and not deeper than MAX_DEPTH."""

    depth = 0

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuse a key that is there twice: YAML would silently take the last one."""
        seen: set[tuple[str, str]] = set()
        for key, _ in getattr(node, "value", ()):
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r:.60} is there twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                None,
                None,
                f"aliases (*{event.anchor}) are not read; write it out",
                event.start_mark,
            )
        if self.depth >= MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"more than {MAX_DEPTH} levels", event.start_mark
            )
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _DatesAsText(_PlainLoader):
    """The same, in which 2027-01-15 is a text, for files that people fill in."""


_DatesAsText.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
    for first, found in _PlainLoader.yaml_implicit_resolvers.items()
}


def parse_yaml(text: str, where: str, *, dates: bool = False) -> Any:
    """Parse a YAML text: dicts, lists, texts, numbers, booleans, null; nothing is run.

    A date is refused, or a text where ``dates`` are allowed.
    """
    if len(text) > MAX_YAML_BYTES:
        raise SpecError(f"{where} has more than {MAX_YAML_BYTES} characters: not a specification")
    try:
        loader = (_DatesAsText if dates else _PlainLoader)(text)
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
    except Exception as error:
        # besides YAMLError there is ValueError for the date 2001-99-99 or a number of 5,000
        # digits, KeyError for !!bool x, AttributeError for !!timestamp x, RecursionError
        raise SpecError(f"{where} is not valid YAML: {error}") from error
    _check_plain(value, where, ())
    return value


def read_yaml_value(path: str | Path, *, within: Path | None = None, dates: bool = False) -> Any:
    """Return the value of a YAML file, whatever it is."""
    try:
        text = read_bytes(path, limit=MAX_YAML_BYTES, within=within).decode("utf-8-sig")
    except FileError as error:
        raise SpecError(str(error)) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not valid YAML: {error}") from error
    return parse_yaml(text, str(path), dates=dates)


def read_yaml(path: str | Path, *, within: Path | None = None) -> dict[str, Any]:
    """Return a YAML file as a dict."""
    body = read_yaml_value(path, within=within)
    if not isinstance(body, dict):
        empty = " and is empty" if body is None else ""
        raise SpecError(f"{path} must hold keys and values, such as `method: ce`{empty}")
    return body


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the value of a JSON text; how many values it has is counted before any is built."""
    content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if sum(content.count(sign) for sign in (b",", b"[", b"{")) > MAX_VALUES:
        raise DataError(
            f"{where} holds more than {MAX_VALUES:,} values; shasam writes no such file"
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from error


def read_json(path: str | Path, *, within: Path | None = None) -> dict[str, Any]:
    """Return a JSON file that holds an object."""
    try:
        body = parse_json(read_bytes(path, limit=MAX_TEXT, within=within), str(path))
    except FileError as error:
        raise DataError(str(error)) from error
    if not isinstance(body, dict):
        raise DataError(f"{path} should hold a JSON object; write it again or leave it out")
    return body


@contextmanager
def of_our_shape(where: object) -> Iterator[None]:
    """Turn what a document of another shape makes its reader raise into a sentence about it."""
    try:
        yield
    except ShasamError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{where} is not as shasam writes it ({type(error).__name__}: {str(error)[:200]}); "
            "bring back the file that was there, or leave it out"
        ) from error


def _check_plain(value: Any, where: str, keys: tuple[str, ...]) -> None:
    """Admit only what a specification can hold; the error names the key."""
    place = f"{where}, {'.'.join(keys)}" if keys else where
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise SpecError(f"{place}: the key {key!r:.60} is not a text; put it in quotes")
            _check_text(key, place)
            _check_plain(inner, where, (*keys, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _check_plain(inner, where, (*keys, str(number)))
    elif isinstance(value, str):
        _check_text(value, place)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(f"{place}: {value} is not a number that can be used here")
    elif isinstance(value, int):
        if abs(value) > MAX_WHOLE:
            raise SpecError(f"{place}: a whole number beyond 2^63 cannot be used here")
    elif value is not None:
        kind = type(value).__name__
        raise SpecError(f"{place}: {kind} values are not used; put a text in quotes")


def _check_text(text: str, place: str) -> None:
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise SpecError(f"{place}: {text[:40]!a} holds an invalid character; remove it")
