"""YAML and JSON of strangers: refused with a sentence before they take memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from shasam.documents import MAX_VALUES, parse_json, parse_yaml, read_json, read_yaml
from shasam.errors import DataError, ShasamError, SpecError
from shasam.spec import parse_set

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefghi")
)


def test_multiplying_aliases_are_refused(tmp_path: Path) -> None:
    assert len(ALIASES) < 1000  # and 10^9 items
    (tmp_path / "a.yaml").write_text(ALIASES)
    with pytest.raises(SpecError, match=r"aliases \(\*a\) are not read"):
        read_yaml(tmp_path / "a.yaml")
    with pytest.raises(SpecError, match="alias"):
        parse_set(["options=[&a 1, *a]"])


@pytest.mark.parametrize(
    "text",
    ["seed: 2001-99-99", "seed: 2001-01-01", "seed: " + "9" * 5000, "seed: " + "9" * 40,
     "seed: !!binary 'x'", "seed: !!timestamp nonsense", "seed: .nan", "lr: -.inf", "1: 2",
     "null: 2", "true: 2", "? [1]\n: 2", "? {a: 1}\n: 2", "a: !!set {b}", "a: !!python/name:os",
     "a: \"\\ud800\"", "a: \"x\\0y\"", "[" * 5000, "- " * 3000, "a: !!int x", "a: !!float x",
     "a: !!bool x", "{" * 30, "a: b: c", "\t", "a: &x 1\nb: *y", "%YAML 9.9\n---\na: 1",
     "--- a\n--- b", "a: !!omap [b]", "a: !!pairs [b]", "a: !!map [b]", "<<: 3", "<<: [1]"],
)  # fmt: skip
def test_odd_scalars_are_sentences(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "the file")
    assert str(caught.value).startswith("the file")


def test_what_specifications_hold_is_read_as_before() -> None:
    text = "method: ce\ntrain: {lr: 0.1, steps: 5}\nseed: 0x10\nname: null\nflag: yes\nlist: [1, a]"
    assert parse_yaml(text, "x") == {
        "method": "ce", "train": {"lr": 0.1, "steps": 5}, "seed": 16, "name": None, "flag": True,
        "list": [1, "a"],
    }  # fmt: skip


def test_json_is_counted_before_it_is_built(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="more than 1,000,000 values"):
        parse_json(b"[" + b"[]," * MAX_VALUES + b"[]]", "metrics.json")
    with pytest.raises(DataError, match="is not JSON"):
        parse_json("[" * 900_000, "metrics.json")
    for content in (b"", b"[1]", b"\xff\xfe", b"nonsense", b"{"):
        (tmp_path / "p.json").write_bytes(content)
        with pytest.raises(ShasamError, match=r"p\.json"):
            read_json(tmp_path / "p.json")


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2", "a: {b: 1, b: 1}", "'a': 1\na: 2", "x: [{k: 1, k: 2}]"]
)
def test_a_key_that_is_there_twice_is_an_error(text: str) -> None:
    with pytest.raises(SpecError, match="is there twice"):
        parse_yaml(text, "the file")
    assert parse_yaml("a: {b: 1}\nc: {b: 1}", "x") == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_yaml_file_is_a_mistake_and_not_all_defaults(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"run\.yaml must hold keys and values.* is empty"):
        read_yaml(tmp_path / "run.yaml")
