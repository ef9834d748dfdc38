"""Every command line, flag and Python block of README, CONTRIBUTING, docs and --help works.

In the fast tier command lines are parsed, Python blocks compiled and their imports looked up; the
slow tier runs each page from top to bottom in a folder of small data, with the profiles replaced by
``smoke``. Placeholders of the pages are the only words that are substituted.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from cyclopts import App
from tests.docs.pages import NOT_STARTED, PAGES, ROOT, Item, commands, items
from tests.docs.world import make_world

from shasam.cli import app

pytestmark = pytest.mark.needs_torch

PLUGIN = "needs the miner of the block above in an installed package, as tests/test_plugins.py has"
REPRODUCED = "hours; tests/reproduce runs an artefact of one row"
NODES = "needs two machines; tests/reliability/test_nodes.py has two agents on one"
HUB = "needs a model of the hub"
RAY = "needs Ray; make test-ray runs such commands"
# command lines that are only parsed, and why
FILE = "a network of the reader's; tests/models/test_onnx_model.py has its own"
ONLY_PARSED = {
    "shasam reproduce utkface --utkface DIR --seeds 5 --jobs 2": REPRODUCED,
    "shasam reproduce table2 --celeba DIR --settings a/m,a/y --rows resnet --seeds 3": REPRODUCED,
    "shasam reproduce table2 --data faces --profile quick": REPRODUCED,
    "shasam reproduce mine.yaml --utkface DIR": REPRODUCED,
    "shasam train shasam --data celeba --root DIR --devices 2 --out /shared/runs": NODES,
    "shasam train shasam --data celeba --root DIR --devices 2 --out /shared/runs --resume": NODES,
    "shasam sweep grid.yaml --out runs --engine ray": RAY,
    "shasam sweep grid.yaml --out runs --engine ray --address auto": RAY,
    "shasam compare --methods ce,fscl+ --engine ray --address 10.0.0.1:6379 --device cuda": RAY,
    "shasam select shards/ -k 1000 --engine ray": RAY,
    "shasam mine … --miner nearest": PLUGIN,
    "shasam train tadet --encoder hf:facebook/deit-tiny-patch16-224 --pretrained-lr 0.1": HUB,
    "shasam embed --encoder hf:facebook/dinov2-small --csv people.csv --root photos --out people.parquet": HUB,  # noqa: E501
    "shasam train balanced --data utkface --root DIR --encoder efficientnet-lite0 --size 96 --steps 250": "minutes",  # noqa: E501
    "shasam train --set options.mining.miner=nearest": PLUGIN,
    "shasam embed --encoder onnx:face.onnx --size 112 --set model.range=half --csv people.csv --root photos --out people.parquet": FILE,  # noqa: E501
    "shasam train balanced --data celeba --root DIR --setting a/m --encoder efficientnet-lite0 --size 96 --freeze 8 --cache --steps 400": "minutes",  # noqa: E501
    "shasam embed --encoder efficientnet-lite0 --data celeba --root DIR --allow-missing --size 128 --out celeba.parquet": "minutes",  # noqa: E501
    "shasam reproduce table2 --profile frozen --features celeba.parquet --seeds 10 --keep experiments/frozen-efficientnet": REPRODUCED,  # noqa: E501
    "shasam compare --trials 20": "half an hour; tests/runs/test_search.py has its own",
    "shasam select s3://bucket/shards -k 1000 --engine ray --group-column country --at-most 50": "needs a bucket",  # noqa: E501
    "shasam audit served.csv --label smiling --sensitive gender": "the run of this test has other classes; test_serving.py has its own",  # noqa: E501
}
# packages that pages use and that the tests do without: blocks with them are left out
NOT_INSTALLED = [name for name in ("datasets", "fastapi") if find_spec(name) is None]
# what a page leaves to its reader to define, before each of its Python blocks
LEFT_OPEN = {
    "docs/audit.md": (
        "import pandas as pd\nimport shasam\npeople = pd.read_csv('predictions.csv')\n"
        "if 'guess' in people:\n"
        "    found = shasam.audit(people, label='y', prediction='guess', sensitive=['sex'])\n"
    ),
    "docs/metrics.md": (
        "import numpy as np\nrng = np.random.default_rng(0)\n"
        "label, group = rng.integers(0, 2, (2, 400))\n"
        "prediction = np.where(rng.random(400) < 0.8, label, 1 - label)\n"
        "scores = np.stack([1 - prediction, prediction], 1) * 0.8 + 0.1\n"
    ),
    "docs/methods.md": (
        "import torch.nn.functional as F\nfrom shasam.methods.baselines import CE as MyMethod\n"
        "def naive_losses(m, batch, stage):\n"
        "    return [F.cross_entropy(m.classifier(m.encoder(batch.images)), batch.t_B)]\n"
    ),
    "docs/submodular.md": (
        "import torch\nfrom shasam.submodular import FacilityLocation\n"
        "my_function = FacilityLocation(torch.eye(8, dtype=torch.float64))\n"
    ),
}
BLOCKS = [item for page in PAGES for item in items(page) if item.kind == "python"]
LINES = commands()


def parse(words: list[str]) -> None:
    """As the command line does, without carrying it out."""
    app.parse_args(words[1:], exit_on_error=False, print_error=False)


def is_benchmark(item: Item) -> bool:
    """Benchmarks take minutes to an hour; it is only checked that they are there."""
    return item.words[:2] == ["python", "-m"] and item.words[2].startswith("bench.")


def is_name(item: Item) -> bool:
    """Whether a sentence only names a command."""
    return item.inline and len(item.words) == 2 and item.words[0] == "shasam"


def test_the_pages_have_what_is_tested() -> None:
    assert len(LINES) > 40 and len(BLOCKS) > 12
    stale = set(ONLY_PARSED) - {item.text for item in LINES}
    assert not stale, f"no page has these any more: {stale}"


@pytest.mark.parametrize("item", LINES, ids=lambda item: item.text[:70])
def test_a_printed_command_line_is_understood(item: Item) -> None:
    program, *rest = item.words
    if program == "shasam" and is_name(item):
        assert rest[0] in app
    elif program == "shasam":
        parse(item.words)
    elif program == "python":
        assert rest[0] == "-m" and importlib.util.find_spec(rest[1]) is not None
    elif program == "make":
        rules = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in rest:
            assert re.search(rf"^{target}\b[^=]*:", rules, flags=re.M), target
    else:
        assert program in NOT_STARTED


@pytest.mark.parametrize("item", BLOCKS, ids=lambda item: f"{item.page}:{item.line}")
def test_a_printed_python_block_compiles_and_finds_its_imports(item: Item) -> None:
    tree = ast.parse(item.text)
    if lacks(item):
        return
    own = set(re.findall(r"^# (\w+)\.py$", (ROOT / item.page).read_text("utf-8"), re.M))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module not in own:
            module = importlib.import_module(node.module)
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"  # a module of a package
                there = hasattr(module, alias.name) or importlib.util.find_spec(inner)
                assert there, f"{item}: no {alias.name} in {node.module}"


def lacks(item: Item) -> bool:
    """Whether a block imports a package that is not installed."""
    return any(re.search(rf"^(import|from) {name}\b", item.text, re.M) for name in NOT_INSTALLED)


def documented() -> Iterator[tuple[str, str]]:
    """Every command and its docstring, subcommands too."""
    todo = [("shasam", app)]
    while todo:
        name, group = todo.pop()
        for word in group:
            if word.startswith("-"):
                continue
            entry = group[word]
            yield f"{name} {word}", inspect.getdoc(entry.default_command) or str(entry.help)
            if isinstance(entry, App) and entry.default_command is None:
                todo.append((f"{name} {word}", entry))


def test_every_example_in_the_help_works(capsys: pytest.CaptureFixture[str]) -> None:
    found = 0
    texts = [*documented(), ("shasam", str(app.help))]
    for command, text in texts:
        for example in re.findall(r"`((?:shasam|--\w)[^`]*)`", text):
            words = (example if example.startswith("shasam") else f"{command} {example}").split()
            words = [w for w in words if w not in ("FILE", "--help", "COMMAND")]
            if len(words) == 2:  # only the name of a command
                assert words[1] in app
            elif words != ["shasam"]:
                parse(words)
            if "--set" in words:
                app([*words[1:], "--print-config"], result_action="return_value")
                assert "method:" in capsys.readouterr().out
            found += 1
    assert found >= 4


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every profile is a few steps on a few drawn faces, which all pages share."""
    from shasam.spec import PROFILES, merge

    few = {"data": {"n": 200, "holdout_per_cell": 20}}
    tiny = merge(PROFILES["smoke"], {"where": {"data.name=faces": few}, "train": {"steps": 3}})
    folder = tmp_path_factory.mktemp("stage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHASAM_CACHE", str(folder / "cache"))
        for name in PROFILES:
            patch.setitem(PROFILES, name, tiny)
        yield folder


@pytest.fixture(scope="module")
def finished_run(stage: Path) -> Path:
    from shasam.pipeline.execute import train

    return train("ce", out=stage / "runs", quiet=True).path


@pytest.fixture
def world(
    page: str,
    stage: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Path:
    monkeypatch.chdir(make_world(tmp_path))
    if any("RUN" in item.text for item in items(page)):
        (tmp_path / "RUN").symlink_to(request.getfixturevalue("finished_run"))
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    return tmp_path


SHORT_PAGES = ("docs/benchmarks.md", "docs/files.md")


@pytest.mark.parametrize(
    "page",
    [p if p in SHORT_PAGES else pytest.param(p, marks=pytest.mark.slow) for p in PAGES],
)
def test_a_page_runs_from_top_to_bottom_as_it_is_printed(page: str, world: Path) -> None:
    for item in items(page):
        if item.kind == "yaml":
            name = item.text.split(":")[0].removeprefix("# ")
            (world / name).write_text(item.text.replace("DIR", "utkface"), encoding="utf-8")
        elif item.kind == "python":
            if lacks(item):
                continue
            named = re.match(r"# (\w+\.py)\n", item.text)  # others import it
            script = world / (named[1] if named else "block.py")
            script.write_text(LEFT_OPEN.get(page, "") + item.text, encoding="utf-8")
            check_start([sys.executable, str(script)], item)
        elif not (
            item.text in ONLY_PARSED
            or item.words[0] in NOT_STARTED
            or is_name(item)
            or is_benchmark(item)
        ):
            run(substituted(item, world), item)


def substituted(item: Item, world: Path) -> list[str]:
    """DIR is the folder of a data set, RUN and runs/… the run of a page, <run> any run's name."""
    words = item.words
    if "DIR" in words:
        words[words.index("DIR")] = words[words.index("--data") + 1]
    for place, word in enumerate(words):
        if re.match(r"runs/\w+-", word):
            method = word.removeprefix("runs/").split("-")[0]
            words[place] = str(next(world.glob(f"runs/{method}-*")))
        if "<run>" in word:
            before, after = word.split("<run>")
            words[place] = str(next(world.glob(f"{before}*{after}")))
    if words[:2] == ["shasam", "sweep"] and "experiments/" in words[2]:
        words.append("--dry")  # the grids of the results take hours
    if words[:2] in (["shasam", "train"], ["shasam", "export"]):
        words.append("--allow-chance")  # three steps learn nothing
    return words


def run(words: list[str], item: Item) -> None:
    if words[0] == "python":
        check_start([sys.executable, *words[1:]], item, cwd=ROOT)
        return
    try:
        app(words[1:], result_action="return_value")
    except SystemExit as end:
        # --fail-over says with 1 that a limit is crossed: that is what the page shows
        assert end.code in ((0, 1) if "--fail-over" in words else (0, None)), str(item)
    except Exception as error:
        raise AssertionError(f"{item} failed: {error!r}") from error


def check_start(command: list[str], item: Item, cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, f"{item}\n{done.stderr[-2000:]}"
