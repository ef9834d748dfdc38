"""The Markdown writer against a CommonMark parser: names come out as the words they were."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.token import Token
from tests.payloads import payloads

from shasam.output import markdown_code, markdown_table, markdown_text, one_line

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def cells(tokens: list[Token]) -> list[list[Token]]:
    return [token.children or [] for token in tokens if token.type == "inline"]


def test_every_payload_in_a_table_is_text_and_nothing_else() -> None:
    for name in payloads():
        lines = markdown_table(["a", "b"], [[markdown_text(name), markdown_code(name)]])
        assert len(lines) == 3
        tokens = PARSER.parse("\n".join(lines))
        assert {t.tag for t in tokens} <= {"table", "thead", "tbody", "tr", "th", "td", ""}, name
        _, _, first, second = cells(tokens)
        assert {t.type for t in first} <= {"text", "text_special"}, name
        assert "".join(t.content for t in first) == one_line(name)
        assert {t.type for t in second} <= {"text", "text_special"} or markdown_code(
            name
        ) == f"`{name}`"


def test_every_payload_in_a_line_is_text_and_nothing_else() -> None:
    for name in payloads():
        (children,) = cells(PARSER.parse(f"- Name: {markdown_text(name)}"))
        assert {t.type for t in children} <= {"text", "text_special"}, name
        assert "".join(t.content for t in children) == f"Name: {one_line(name)}"


def test_addresses_are_not_made_into_links() -> None:
    assert "http://" not in markdown_text("see http://example.org") and "www." not in markdown_text(
        "www.x.org"
    )
