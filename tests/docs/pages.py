"""What README, CONTRIBUTING and docs print: command lines, Python blocks, YAML files."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]

# programs whose command lines stand in the pages
PROGRAMS = ("shasam", "python", "make", "git", "pip", "pre-commit", "twine")

# programs that no test starts, and why
NOT_STARTED = {
    "make": "its targets are run by hand and by continuous integration",
    "git": "would change this checkout",
    "pip": "would change this environment; tests of the installed package have their own",
    "pre-commit": "would change this checkout",
    "twine": "publishes",
}

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", flags=re.S | re.M)
_INLINE = re.compile(r"`((?:" + "|".join(PROGRAMS) + r") [^`]+)`")


@dataclass(frozen=True)
class Item:
    """One thing to run: ``kind`` is "command", "python" or "yaml"."""

    page: str
    line: int
    kind: str
    text: str
    inline: bool = False  # in a sentence, where `shasam audit` may only name a command

    @property
    def words(self) -> list[str]:
        """Of a command: without the … that stands for more words, and without a redirection."""
        words = shlex.split(self.text)
        return words[: words.index(">")] if ">" in words else [w for w in words if w != "…"]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def items(page: str) -> list[Item]:
    """Everything that a page prints to be run, in its order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for block in _FENCE.finditer(text):
        _, language, body = block.groups()
        first = text.count("\n", 0, block.start()) + 2
        if language in ("python", "yaml"):
            found.append(Item(page, first, language, body))
        elif language in ("", "sh", "console"):
            joined = re.sub(r"\\\n", lambda _: "\0", body)  # a command over several lines
            for number, line in enumerate(joined.splitlines()):
                command = re.sub(r"\s+# .*", "", re.sub(r"\0\s*", "", line)).strip()
                command = command.partition(" --no-python ")[2] or command  # after torchrun's words
                if command.split(" ")[0] in PROGRAMS:
                    found.append(Item(page, first + number, "command", command))
    prose = _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block.group(0)), text)
    for span in _INLINE.finditer(prose):
        line = prose.count("\n", 0, span.start()) + 1
        found.append(Item(page, line, "command", " ".join(span.group(1).split()), True))
    return sorted(found, key=lambda item: item.line)


def commands() -> list[Item]:
    """Of all pages, each text once."""
    once: dict[str, Item] = {}
    for page in PAGES:
        for item in items(page):
            if item.kind == "command":
                once.setdefault(item.text, item)
    return list(once.values())
