"""Run directories whose every name is an attack, and a count of what their pages hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from tests.report.run_files import make_run

NAMES = 10  # of one run: 4 classes, 4 groups, method, attribute


class Elements(HTMLParser):
    """Counts elements and notes every attribute name."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: Counter[str] = Counter()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            self.attributes[name] += 1
            if name in ("src", "href"):
                self.addresses.append(value or "")


def parsed(page: Path) -> Elements:
    found = Elements()
    found.feed(page.read_text(encoding="utf-8"))
    return found


def plain_run(root: Path) -> Path:
    """What the hostile runs would be with friendly names."""
    return make_run(root, "run", n=160, classes=tuple("abcd"), groups=tuple("wxyz"), source="mine")


def file_name(name: str) -> str:
    """The payload as a file may be called."""
    return re.sub(r"[/\x00\\]", "_", name)[:60].strip(". ") or "x"


def hostile_run(root: Path, names: list[str]) -> Path:
    """Classes, groups, method, attribute, folder, mined ids and thumbnails are ``names``."""
    assert len(names) == NAMES
    run = make_run(root, file_name(names[9]), method=names[8], sensitive=names[9], n=160,
                   source="mine", classes=tuple(names[:4]), groups=tuple(names[4:8]))  # fmt: skip
    mining = json.loads((run / "mining.json").read_text(encoding="utf-8"))
    for k, name in enumerate(names[:6]):
        mining["iterations"][k]["sets"]["anchors"][0]["id"] = name
        mining["iterations"][k]["sets"]["anchors"][1]["thumb"] = name
    (run / "mining.json").write_text(json.dumps(mining), encoding="utf-8")
    return run


def assert_nothing_added(found: Elements, plain: Elements, names: object) -> None:
    """No element, attribute or address beyond those of the page with friendly names."""
    for tag in ("script", "style", "iframe", "a", "form", "link", "meta", "base", "object",
                "embed", "input", "body", "math", "button", "b", "mi"):  # fmt: skip
        assert found.tags[tag] == plain.tags[tag], (tag, names)
    assert set(found.tags) <= set(plain.tags), names
    assert set(found.attributes) <= set(plain.attributes), names
    assert all(x.startswith(("#", "data:image/")) for x in found.addresses), names
