"""tests/promises.md: every test that it names exists, and no page is without a promise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT

PAGE = (ROOT / "tests" / "promises.md").read_text(encoding="utf-8")


def promises() -> list[tuple[str, str, list[str]]]:
    """Return the page, the sentence and the tests of every promise."""
    found = []
    for section in PAGE.split("\n## ")[1:]:
        page, _, body = section.partition("\n")
        for item in re.split(r"^- ", body, flags=re.M)[1:]:
            found.append((page, item.partition("\n")[0], re.findall(r"`(tests/[^`]+)`", item)))
    return found


PROMISES = promises()


def names_in(path: Path) -> set[str]:
    """Names of the tests of a file, without importing it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[1][:60])
def test_every_named_test_exists(promise: tuple[str, str, list[str]]) -> None:
    page, _, tests = promise
    assert page in PAGES, f"there is no page {page}"
    assert tests, "a promise has one or more tests below it"
    for test in tests:
        assert_there(test)


def test_a_promise_is_an_item_of_a_list_below_its_page() -> None:
    assert len(PROMISES) > 150
    assert "\n|" not in PAGE  # a row of a table would not be read


def assert_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file(), f"there is no file {path}"
    assert name in names_in(ROOT / path), f"there is no test {name} in {path}"


@pytest.mark.parametrize("page", [*PAGES, "experiments/reliability/README.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for test in re.findall(r"tests/[\w/]+\.py::\w+", text):
        assert_there(test)
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / path).is_file(), f"there is no file {path}"


def test_no_page_is_left_out() -> None:
    said = {page for page, _, _ in PROMISES}
    linked = {f"docs/{name}" for name in re.findall(r"\]\(\.\./docs/(\w+\.md)\)", PAGE)}
    assert said | linked == set(PAGES)


SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
HELD = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in SECURITY.split("## Which test holds which sentence")[1].splitlines()
    if line.startswith("| ") and not line.startswith("| sentence |")
]


@pytest.mark.parametrize("row", HELD, ids=lambda row: row[0][:60])
def test_every_sentence_of_the_security_page_has_a_test(row: list[str]) -> None:
    assert len(row) == 2, "a row has a sentence and its tests"
    for test in row[1].split(", "):
        if "::" in test:
            assert_there(test)
        else:
            assert names_in(ROOT / test), f"{test} holds no test"


def test_every_source_of_the_threat_model_is_in_the_list_of_tests() -> None:
    """A new row of the threat model brings a row of tests."""
    model = SECURITY.split("## Threat model")[1].split("## Which test")[0]
    rows = [line for line in model.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 12 and len(HELD) >= len(rows)


@pytest.mark.needs_torch
def test_the_limits_of_the_security_page_are_those_of_the_code() -> None:
    from shasam.data.decode import MAX_BYTES, MAX_PIXELS
    from shasam.models.hub import FAMILIES
    from shasam.pipeline.sweeps import MOST_RUNS
    from shasam.training.runtime import MOST_PROCESSES

    plain, progressive, png, webp = (
        MAX_PIXELS[kind] // 10**6 for kind in ("JPEG", "progressive JPEG", "PNG", "WEBP")
    )
    assert progressive == png
    words = {4: "four", 10: "ten"}
    for said in (
        f"up to {MAX_BYTES >> 20} MiB and {plain} million pixels (plain JPEG), {png} million "
        f"(progressive JPEG, PNG) or {webp} million (WebP)",
        f"be of {words[len(FAMILIES)]} families",
        f"more than {words[MOST_PROCESSES]} processes a core",
        f"a grid of more than {MOST_RUNS:,} runs",
    ):
        assert said in SECURITY, said
