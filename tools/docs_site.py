"""Pages of the documentation site that are no files of docs/: a hook of mkdocs (mkdocs.yml).

README, CHANGELOG, CONTRIBUTING and SECURITY stand in the root of the repository, the pages of
experiments beside their records and the promises beside their tests. They are added here with their
links set right, so that the same files read well on the site and in the repository. The page of the
command line is made from the commands themselves.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# file of the repository -> page of the site
HOME = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "tests/promises.md": "promises.md",
}
ORDER = ("faces", "embeddings", "audit", "submodular", "mining")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FIELDS = re.compile(r"<!-- fields of ([\w.]+) -->")
_LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def place_of(path: str) -> str | None:
    """Return the page that shows a file of the repository, or None if the site has none.

    >>> place_of("docs/data.md"), place_of("experiments/mining/README.md"), place_of("Makefile")
    ('data.md', 'experiments/mining/README.md', None)
    >>> place_of("experiments/mining")
    'experiments/mining/README.md'
    """
    if path in HOME:
        return HOME[path]
    if path.startswith("docs/notebooks/") and path.endswith(".ipynb") and (ROOT / path).is_file():
        return path.removeprefix("docs/").removesuffix(".ipynb") + ".md"
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    if path.startswith("experiments/"):
        page = path if path.endswith(".md") else f"{path}/README.md"
        return page if (ROOT / page).is_file() else None
    return None


def with_links_of_the_site(text: str, source: str, keep: str | None = None) -> str:
    """Rewrite the links of a page; ``source`` is its path in the repository, ``keep`` a link as is.

    A link to a file that is no page of the site, such as a grid, becomes its plain text. A link to
    a file that is not in the repository either stays as it is: the build then fails on it.

    >>> with_links_of_the_site("[data](docs/data.md#labels), [make](Makefile)", "README.md")
    '[data](data.md#labels), make'
    """
    page = place_of(source)
    assert page is not None, source

    def moved(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if target == keep or re.match(r"[a-z]+:|#", target):
            return link.group(0)
        path, mark, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = place_of(wanted)
        if place is None:
            return words if (ROOT / wanted).exists() else link.group(0)
        way = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{picture}[{words}]({way}{mark}{anchor})"

    return _LINK.sub(moved, text)


def command_page() -> str:
    """Write the reference of all commands and flags from the commands themselves."""
    from shasam.cli import app

    with mock.patch.object(sys, "argv", ["shasam"]):  # else it says "-m mkdocs" in every usage line
        text = app.generate_docs(output_format="markdown", recursive=True)
    before, _, rest = text.partition("## Table of Contents\n")  # the site has its own
    return before.replace("# shasam\n", "# Command line\n", 1) + rest[rest.index("\n**") :]


def table_of_fields(path: str) -> str:
    """Write the fields of a pydantic model as a table: key, default and description.

    The source is read, not imported: the site is built without torch.
    """
    module, _, name = path.rpartition(".")
    source = ROOT / "src" / f"{module.replace('.', '/')}.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    lines = ["| key | default | what it is |", "|---|---|---|"]
    for field in model.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.value, ast.Call):
            continue
        said = {k.arg: k.value for k in field.value.keywords}
        if "description" not in said:
            continue
        description = str(ast.literal_eval(said["description"])).replace("|", "\\|")
        default = field.value.args[0] if field.value.args else said.get("default")
        shown = "" if default is None else f"`{ast.unparse(default)}`"
        lines.append(f"| `{ast.unparse(field.target)}` | {shown} | {description} |")
    return "\n".join(lines)


def notebooks() -> list[Path]:
    """The notebooks, in the order in which people come to them."""
    found = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
    return sorted(found, key=lambda path: (*ORDER, path.stem).index(path.stem))


def page_of_notebook(path: Path) -> str:
    """Write a notebook with its stored outputs as a page."""
    book = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    head, _, rest = "\n\n".join(parts).partition("\n")
    link = f"[Download this notebook]({path.name}){{: download }}"
    return f"{head}\n\n{link}\n{rest}\n"


def _output(output: dict[str, Any]) -> str:
    """A picture, a table, or text; what a notebook shows of itself first, first."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img class="output" alt="" src="data:image/png;base64,{picture}">'
    if "text/html" in data and "<table" in (table := "".join(data["text/html"])):
        table = re.sub(r"<style.*?</style>", "", table, flags=re.S)
        table = table.replace(' border="1" class="dataframe"', "")
        # without empty lines, which would end the block of HTML
        return '<div class="output">' + re.sub(r"\n\s*", "", table) + "</div>"
    text = "".join(output.get("text") or data.get("text/plain") or [])
    return f"```text\n{re.sub(_COLOUR, '', text).rstrip()}\n```" if text.strip() else ""


def on_config(config: Any) -> Any:
    """Put every notebook into the navigation (called by mkdocs)."""
    entries = [{titled(path): f"notebooks/{path.stem}.md"} for path in notebooks()]
    config.nav.insert(1, {"Notebooks": entries})
    return config


def titled(path: Path) -> str:
    """The heading of a notebook."""
    first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    return first.splitlines()[0].removeprefix("# ")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files of docs/ (called by mkdocs)."""
    sources = [*HOME, *(p.relative_to(ROOT).as_posix() for p in ROOT.glob("experiments/*/*.md"))]
    for source in sources:
        page = place_of(source)
        assert page is not None
        text = (ROOT / source).read_text(encoding="utf-8")
        text = with_links_of_the_site(text, source)
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "api/commands.md", content=command_page()))
    for path in notebooks():
        source = path.relative_to(ROOT).as_posix()
        page = place_of(source)
        assert page is not None
        text = with_links_of_the_site(page_of_notebook(path), source, keep=path.name)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the links of docs/*.md right that leave docs/, and fill in fields (called by mkdocs)."""
    source = f"docs/{page.file.src_uri}"
    if not (ROOT / source).is_file():
        return markdown
    filled = _FIELDS.sub(lambda found: table_of_fields(found.group(1)), markdown)
    return with_links_of_the_site(filled, source)
