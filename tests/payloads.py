"""Names that try to become markup, script, formula, path or a command to the terminal."""

from __future__ import annotations

_BODIES = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "</svg><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<iframe src=javascript:alert(1)>",
    "<body onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "<math><mi xlink:href='javascript:alert(1)'>",
    "<details open ontoggle=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<object data=x>",
    "<embed src=x>",
    "<link rel=stylesheet href=//x>",
    "<meta http-equiv=refresh content=0>",
    "<base href=//x>",
    "<form action=//x><button>",
    "<style>*{display:none}</style>",
    "{{ 7*7 }}",
    "{% for x in y %}",
    "${7*7}",
    "<!--",
    "-->",
    "]]>",
    "&lt;script&gt;",
    "&#60;b&#62;",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\\input{x}",
    "\u202eevil",
    "name\u2028line",
    "<b\xa0onclick=x>",
    "a|b|c",
    "../../x",
    "\x1b[31mred\x1b[0m",  # terminals: colour, title, clipboard, cursor, screen
    "\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "[/b]",  # rich markup, closing what was never opened
    "[bold red link=file:///etc/passwd]x[/]",
    ":skull:",
    "two\rlines",  # a bare carriage return ends a row for some readers of CSV
    '=HYPERLINK("http://x","y")\n=1',
)
_WRAPS = ("{}", '"{}', "'{}", '">{}', "x' y={} ")


def payloads() -> list[str]:
    """Each body as it is, and breaking out of quotes and tags."""
    return [wrap.replace("{}", body) for wrap in _WRAPS for body in _BODIES]
