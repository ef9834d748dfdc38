"""The API reference: every public name has a page, and every argument of it is documented."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.docs.pages import ROOT

import shasam

pytestmark = pytest.mark.needs_torch

PACKAGES = ("shasam", "shasam.losses", "shasam.metrics", "shasam.submodular", "shasam.testing")
# examples that stand elsewhere, and why
EXAMPLES_ELSEWHERE = {
    "ExpectedLoss": "belongs to an oracle, docs/methods.md",
    "MethodReport": "what check_method returns",
    "check_method": "trains; docs/extending.md runs it",
    "register": "of metrics: it would stay registered; docs/extending.md runs it",
}


def public() -> dict[str, Any]:
    """Return every public callable by its name."""
    found: dict[str, Any] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        names = [name for name in module.__all__ if name != "__version__"]
        found |= {f"{package}.{name}": getattr(module, name) for name in names}
    return found


def with_estimator() -> dict[str, Any]:
    pytest.importorskip("sklearn")
    from shasam.sklearn import FairClassifier

    made = {f"shasam.sklearn.FairClassifier.{n}": getattr(FairClassifier, n) for n in ("fit",)}
    return {"shasam.sklearn.FairClassifier": FairClassifier, **made}


NAMES = {**public(), **with_estimator()} if importlib.util.find_spec("torch") else {}


def section(text: str, name: str) -> str:
    """Return the lines of a numpydoc section; empty if there is none."""
    found = re.search(rf"^{name}\n-+\n(.*?)(?=^\w+\n-{{3,}}|\Z)", text, flags=re.S | re.M)
    return found.group(1) if found else ""


def documented(text: str) -> set[str]:
    """Return the arguments that have an entry with a text."""
    entries = re.findall(r"^(\S.*)\n    \S", section(text, "Parameters"), flags=re.M)
    return {name.strip("* ") for entry in entries for name in entry.split(":")[0].split(",")}


def arguments(thing: Any) -> set[str]:
    if inspect.isclass(thing) and thing.__init__ in (object.__init__,):
        return set()
    parameters = inspect.signature(thing).parameters.values()
    return {p.name for p in parameters if p.name != "self"}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_argument_is_documented(name: str) -> None:
    thing = NAMES[name]
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        lacking = {key for key, field in thing.model_fields.items() if not field.description}
        assert lacking == set()  # the page has a table of the fields
    elif name != "shasam.Encoder":  # a base class: its subclasses have arguments
        assert documented(text) == arguments(thing)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_function_says_what_it_returns(name: str) -> None:
    thing = NAMES[name]
    if inspect.isclass(thing) or inspect.signature(thing).return_annotation in (None, "None"):
        return
    assert section(inspect.getdoc(thing) or "", "Returns").strip()


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_summary_and_an_example(name: str) -> None:
    text = inspect.getdoc(NAMES[name]) or ""
    summary = text.partition("\n\n")[0]
    assert "\n" not in summary and summary.endswith("."), "one line, one sentence"
    first = summary.split()[0]
    assert first[0].isupper() and first not in {"The", "A", "An", "What", "Which", "How", "One"}
    short = name.rpartition(".")[2]
    if short not in EXAMPLES_ELSEWHERE and name != "shasam.sklearn.FairClassifier.fit":
        assert doctest.DocTestParser().get_examples(text), f"{name} has no example"


def test_every_public_name_is_on_a_page_of_the_reference() -> None:
    pages = "\n".join(p.read_text(encoding="utf-8") for p in ROOT.glob("docs/api/*.md"))
    shown = set(re.findall(r"^      heading: (\S+)$", pages, flags=re.M))
    places = set(re.findall(r"^::: (\S+)$", pages, flags=re.M))
    for path in places:  # each is there
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path
    known = {name.rpartition(".")[2] for name in shown}
    lacking = {name for name in public() if name.rpartition(".")[2] not in known}
    assert lacking == set()


def test_every_page_of_docs_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    pages = [p.relative_to(ROOT / "docs").as_posix() for p in ROOT.glob("docs/*.md")]
    assert [page for page in pages if page not in navigation] == []


def lists_that_a_paragraph_swallows(text: str) -> list[str]:
    """Return first items without an empty line before them: the site shows them as running text."""
    found, previous, code = [], "", False
    for line in text.splitlines():
        code ^= line.strip().startswith("```")
        begins = re.match(r"(?:[-*]|\d+\.) ", line) is not None
        running = bool(previous.strip()) and not re.match(r" |[-*] |\d+\. |#", previous)
        if begins and not code and (running or previous.strip() == "```"):
            found.append(line)
        previous = line
    return found


def test_every_list_is_a_list_on_the_site() -> None:
    assert lists_that_a_paragraph_swallows("Steps:\n1. one\n2. two") == ["1. one"]
    assert lists_that_a_paragraph_swallows("1.  one\n\n    ```\n    ```\n2. two") == ["2. two"]
    sources = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("experiments/*/*.md")]
    sources += [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    swallowed = {name: lists_that_a_paragraph_swallows(text) for name, text in texts.items()}
    assert {name: items for name, items in swallowed.items() if items} == {}


def test_a_link_of_the_repository_leads_to_the_same_text_on_the_site() -> None:
    pytest.importorskip("mkdocs")
    from tools import docs_site

    assert doctest.testmod(docs_site).failed == 0
    text = docs_site.with_links_of_the_site("[x](../experiments/mining/README.md)", "docs/paper.md")
    assert text == "[x](experiments/mining/README.md)"
    assert docs_site.with_links_of_the_site("[x](no.md)", "README.md") == "[x](no.md)"  # fails
    assert "| `miner` |" in docs_site.table_of_fields("shasam.mining.shasam_miner.MiningConfig")
    commands = docs_site.command_page()
    assert "# Command line" in commands and "shasam data check [OPTIONS]" in commands


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"])
def test_every_file_of_the_package_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = [p.removeprefix("src/shasam/") for p in re.findall(r"`([\w/]+\.py)`", text)]
    source = Path(shasam.__file__).parent  # also where the package is installed
    assert [p for p in named if not any((f / p).exists() for f in (ROOT, source))] == []


def test_the_architecture_names_only_modules_that_exist() -> None:
    """First cells of the tables of packages, and the modules in their second cells."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = Path(shasam.__file__).parent  # also where the package is installed
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, flags=re.M)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) > 20
    assert [n for n in names if not any((source / f"{n}{e}").exists() for e in ("", ".py"))] == []
