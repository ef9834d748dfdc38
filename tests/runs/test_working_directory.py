"""The working directory of somebody else: nothing in it is imported, whatever a command starts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from shasam import programs
from shasam.cli import app
from shasam.cluster import _nothing_of_the_working_directory
from shasam.pipeline.engines import ask_for, start_training
from shasam.runs.directory import RunDirectory
from shasam.spec import resolve

BODY = {
    "method": "ce",
    "data": {"n": 80, "holdout_per_cell": 10, "size": 32},
    "train": {"steps": 2},
}
FLAGS = ["--profile", "smoke", "--device", "cpu"]
# command -> its words in a folder that holds a grid and a specification; `compare` and `reproduce`
# start their runs as `sweep` does
STARTS = {
    "sweep": ["sweep", "grid.yaml", "--out", "runs", "--device", "cpu"],
    "inline": ["sweep", "grid.yaml", "--out", "runs", "--device", "cpu", "--engine", "inline"],
    "compare": ["compare", "--methods", "ce", "--seeds", "1", "--out", "runs", *FLAGS,
                "--set", "train.steps=2", "--set", "data.n=80"],
    "reproduce": ["reproduce", "utkface-age", "--profile", "smoke", "--seeds", "1",
                  "--out", "runs", "--to", "page"],
    "train": ["train", "--config", "spec.yaml", "--out", "runs", "--device", "cpu"],
    "restarted": ["train", "--config", "spec.yaml", "--out", "runs", "--reproducible"],
    "two processes": ["train", "--config", "spec.yaml", "--out", "runs", "--devices", "2",
                      "--device", "cpu"],
}  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder where every name that could be imported is a module that leaves its mark."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    names = sys.stdlib_module_names | packages_distributions().keys()
    mark = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + chr(10))\n"
    for name in {*names, "shasam", "sitecustomize", "usercustomize", "evil"} - {"__main__"}:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(mark)
    plugin = folder / "evil-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    kinds = ("methods", "encoders", "sources")
    (plugin / "entry_points.txt").write_text(
        "".join(f"[shasam.{kind}]\nevil = evil:run\n" for kind in kinds)
    )
    (folder / "spec.yaml").write_text(yaml.safe_dump({**BODY, "profile": "smoke"}))
    (folder / "grid.yaml").write_text(yaml.safe_dump({"profile": "smoke", "base": BODY}))
    return folder


def run_in(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """As the installed command would run; the marks of the folder are for the caller to look at."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"SHASAM_CACHE": str(folder.parent / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def imported_from(folder: Path) -> str:
    mark = folder.parent / "ran"
    return mark.read_text() if mark.exists() else ""


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    "command",
    [c if c in ("sweep", "restarted") else pytest.param(c, marks=pytest.mark.slow) for c in STARTS],
)
def test_no_command_imports_from_the_working_directory(hostile, command) -> None:
    done = run_in(hostile, [*programs.program_words("command"), *STARTS[command]])
    assert imported_from(hostile) == ""
    if command != "reproduce":  # which has no images here, and says so
        assert done.returncode == 0, done.stdout + done.stderr
        assert list((hostile / "runs").glob("*/DONE"))


@pytest.mark.needs_torch
@pytest.mark.parametrize("tied", [True, False])
def test_runs_that_are_not_forked_do_not_import_from_the_working_directory(hostile, tied) -> None:
    spec = resolve(BODY, profile="smoke")
    run = RunDirectory(Path("runs") / spec.name)
    ask_for(spec, RunDirectory(hostile / run.path))
    process = start_training(
        run, ["--device", "cpu", "--no-thumbnails"], {"PYTHONPATH": ""}, folder=hostile, tied=tied
    )
    assert process.wait(300) == 0, (hostile / run.file("output.txt")).read_text()
    assert imported_from(hostile) == ""
    assert (hostile / run.file("DONE")).is_file()


@pytest.mark.slow
@pytest.mark.needs_torch
def test_torchrun_as_the_docs_start_it_does_not_import_from_the_working_directory(hostile) -> None:
    """``torchrun --no-python shasam …``: what it starts is a program, run by its path."""
    code = "import sys; sys.path.pop(0); from torch.distributed.run import main; main()"
    words = [sys.executable, "-c", code, "--nnodes", "1", "--nproc-per-node", "2", "--no-python"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words += ["--master-port", port, *programs.program_words("command"), *STARTS["train"]]
    done = run_in(hostile, [*words, "--devices", "2"])
    assert imported_from(hostile) == ""
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_are_started_by_their_path_alone() -> None:
    """On every Python: -m and -c put the working directory on the path, -P is not in 3.10."""
    for name in ("command", "tied", "warm"):
        interpreter, path = programs.program_words(name)
        assert interpreter == sys.executable and Path(path).is_file() and Path(path).is_absolute()
    beside = {p.name for p in Path(programs.__file__).parent.iterdir()} - {"__pycache__"}
    assert beside == {"__init__.py", "shasam_command.py", "shasam_tied.py", "shasam_warm.py"}


def test_only_the_list_of_programs_names_the_interpreter() -> None:
    """A process that is started in another way could import from the working directory again."""
    source = Path(programs.__file__).parents[1]
    naming = {
        p.relative_to(source).as_posix()
        for p in source.rglob("*.py")
        if "sys.executable" in p.read_text(encoding="utf-8")
    }
    assert naming == {"programs/__init__.py", "runs/machine.py"}  # itself, once more


def test_workers_of_ray_do_not_import_from_the_working_directory(tmp_path, monkeypatch) -> None:
    """Ray takes the folder in which it is joined; see tests/cluster for a sweep of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    with _nothing_of_the_working_directory():
        assert os.getcwd() == os.path.abspath(os.sep)
    assert Path.cwd() == tmp_path
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with _nothing_of_the_working_directory():  # where this process imports from, workers may too
        assert Path.cwd() == tmp_path


def test_every_command_is_known_to_start_processes_or_not() -> None:
    """A new command is looked at here: does it start a process?"""
    alone = {"audit", "data", "doctor", "embed", "evaluate", "export", "methods", "mine", "predict",
             "records", "report", "select", "threshold"}  # fmt: skip
    names = {name for name in app if not name.startswith("-")}
    assert names == alone | {words[0] for words in STARTS.values()}, json.dumps(sorted(names))
