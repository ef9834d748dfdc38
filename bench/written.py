"""Sections of docs/benchmarks.md: each bench replaces its own and leaves the others."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def write_section(title: str, text: str, page: Path = PAGE) -> None:
    """Put ``text`` below the heading ``## title``, in place of what is there, or at the end."""
    whole = page.read_text(encoding="utf-8")
    section = f"## {title}\n\n{text.strip()}\n\n"
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", whole, re.M | re.S)
    if found is None:
        whole = whole.rstrip() + "\n\n" + section
    else:
        whole = whole[: found.start()] + section + whole[found.end() :]
    draft = page.with_suffix(".md.tmp")
    draft.write_text(whole.rstrip() + "\n", encoding="utf-8")
    draft.replace(page)
