"""Hostile folders, generated: for every command that reads one, from a good one and a seed.

A case is a command, its folder, and one to three changes to it: links, pipes, damaged bytes, values
of another type in JSON and YAML, columns of another type in Parquet. Whatever the folder holds, the
command must end with an exit code or one of our errors. Nothing outside of the folder may be read
into a result or changed, and no network may be asked.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.ipc
import pyarrow.parquet as pq
import yaml
from PIL import Image
from tests.fuzz.mutate import mutated

SECRET = "secret-of-somebody-else"
TINY = ["--profile", "smoke", "--set", "data.n=80", "--set", "data.holdout_per_cell=10",
        "--set", "data.size=32", "--set", "train.steps=2"]  # fmt: skip
CPU = ["--device", "cpu"]
PICTURES = ["--data", "table", "--root", "pictures/photos", "--csv", "pictures/people.csv",
            "--target", "smiling", "--sensitive", "group", "--size", "32"]  # fmt: skip
DATASET = [
    "--data",
    "datasets",
    "--root",
    "dataset",
    "--target",
    "smiling",
    "--sensitive",
    "group",
    "--size",
    "32",
]
VECTORS = ["--features", "vectors/x.npy", "--csv", "vectors/y.csv", "--target", "target",
           "--sensitive", "sensitive"]  # fmt: skip
TWO_STEPS = ["--quiet", *CPU, "--profile", "smoke", "--set", "train.steps=2"]
ALONG = [*VECTORS[:-1], "age", "--sensitive-as", "number"]
TAUGHT = ["train", "balanced", *VECTORS[:-1], "race", "--missing", "infer", "--known-groups", "0.5",
          "--out", "taught", "--no-baseline", *TWO_STEPS]  # fmt: skip
# command -> (the folder that is hostile, the words); RUN is the run in runs/
READS: dict[str, list[tuple[str, list[str]]]] = {
    "audit": [("runs", ["audit", "RUN/predictions.parquet", "--min-group", "0", "--draws", "100",
                        "--json", "out/a.json"]),
              ("vectors", ["audit", "vectors/y.csv", "--label", "target", "--prediction", "target",
                           "--sensitive", "sensitive", "--min-group", "0", "--draws", "100"]),
              ("runs", ["audit", "RUN/predictions.parquet", "--min-group", "0", "--draws", "100",
                        "--front", "--abstain", "--html", "out/a.html"]),
              ("forms", ["audit", "vectors/y.csv", "--label", "target", "--prediction", "target",
                         "--sensitive", "sensitive", "--min-group", "0", "--draws", "100",
                         "--scenarios", "forms/agreed.yaml", "--scenarios-out", "out/s.md"]),
              ("forms", ["audit", "forms/people.csv", "--verify", "forms/form.json"]),
              ("forms", ["audit", "forms/people.csv", "--standard", "ll144", "--about",
                         "forms/about.yaml", "--prediction", "selected", "--sensitive", "sex",
                         "--sensitive", "race", "--json", "out/f.json"])],
    "compare": [("runs", ["compare", "--methods", "ce", "--seeds", "1", "--out", "runs",
                          "--page", "out/c.html", *CPU, *TINY]),
                ("runs", ["compare", "--methods", "ce", "--seeds", "1", "--out", "runs", "--trials",
                          "1", "--engine", "inline", "--page", "out/c.html", *CPU, *TINY])],
    "data check": [("pictures", ["data", "check", *PICTURES]),
                   ("dataset", ["data", "check", *DATASET])],
    "data describe": [("pictures", ["data", "describe", *PICTURES, "--save", "out/m.parquet"])],
    "data prepare": [("pictures", ["data", "prepare", *PICTURES])],
    "data sheet": [("pictures", ["data", "sheet", *PICTURES, "--out", "out/s.png"])],
    "embed": [("runs", ["embed", "--encoder", "RUN", *PICTURES[:-2], "--out", "out/e.parquet"]),
              ("pictures", ["embed", "--encoder", "RUN", *PICTURES[:-2], "--out", "out/e"])],
    "evaluate": [("runs", ["evaluate", "RUN", *CPU, "--no-report"])],
    "export": [("runs", ["export", "RUN", "--format", "safetensors", "--out", "out/m.safetensors"]),
               ("model", ["export", "model", "--format", "safetensors", "--out", "out/m"])],
    "mine": [("vectors", ["mine", "vectors/x.npy", "vectors/y.csv", "-k", "2", "--out", "out/t"])],
    "predict": [("runs", ["predict", "RUN", "pictures/photos", "--out", "out/p.csv"]),
                ("model", ["predict", "model", "pictures/photos", "--out", "out/p.csv"]),
                ("pictures", ["predict", "RUN", "pictures/people.csv", "--root", "pictures/photos",
                              "--out", "out/p.csv"])],
    "records keep": [("runs", ["records", "keep", "runs", "experiment"]),
                     ("experiment", ["records", "keep", "runs", "experiment"])],
    "records list": [("experiment", ["records", "list", "experiment"])],
    "records unpack": [("experiment", ["records", "unpack", "experiment", "out/unpacked"])],
    "report": [("runs", ["report", "RUN"]), ("runs", ["report", "runs", "--format", "csv"])],
    "reproduce": [("experiment", ["reproduce", "table2", "--from-records", "experiment",
                                  "--to", "out"])],
    "select": [("vectors", ["select", "vectors/x.npy", "-k", "2", "--out", "out/s.parquet"]),
               ("shards", ["select", "shards", "-k", "2", "--group-column", "group", "--at-most",
                           "1", "--id-column", "id", "--out", "out/s.parquet"])],
    "sweep": [("runs", ["sweep", "grid.yaml", "--out", "runs", *CPU]),
              ("begun", ["sweep", "grid.yaml", "--out", "begun", "--engine", "inline", *CPU])],
    "threshold": [("runs", ["threshold", "RUN", "--limit", "eo_mean=0.3", "--draws", "100"]),
                  ("runs", ["threshold", "RUN", "--limit", "eo_mean=0.05", "--draws", "100",
                            "--out", "out/t"]),
                  ("runs", ["threshold", "RUN", "--limit", "tpr_min>=0.3", "--draws", "100",
                            "--infer-group", "--out", "out/t"])],
    "train": [("dataset", ["train", "ce", *DATASET, "--out", "out", "--quiet", *CPU,
                           "--profile", "smoke", "--set", "train.steps=2"]),
              ("runs", ["train", "ce", "--out", "runs", "--resume", "--quiet", *CPU, *TINY]),
              ("begun", ["train", "ce", "--out", "begun", "--resume", "--quiet", *CPU, *TINY]),
              ("taught", [*TAUGHT, "--resume"]),
              ("vectors", ["train", "ce", *VECTORS, "--out", "out", *TWO_STEPS]),
              ("vectors", ["train", "balanced", *ALONG, "--out", "out", *TWO_STEPS])],
}  # fmt: skip
READS_NONE = {"doctor", "methods"}  # commands that take no file or folder


def commands() -> set[str]:
    """Every command of the command line, with its subcommands."""
    from shasam.cli import app

    found = set()
    for name in app:
        inner = [one for one in app[name] if not one.startswith("-")]
        if not name.startswith("-"):
            found |= {f"{name} {one}" for one in inner} or {name}
    return found


def make_world(place: Path) -> Path:
    """Good folders of every kind: runs, also unfinished ones, a model, records, data, forms."""
    from shasam.commands.train import train
    from shasam.export import export
    from shasam.runs.records import keep

    place.mkdir(parents=True)
    settings = [word for word in TINY[2:] if word != "--set"]
    train("ce", profile="smoke", set_=settings, seed=0, out=place / "runs", quiet=True,
          device="cpu")  # fmt: skip
    run = next((place / "runs").iterdir())
    export(run, "hub", place / "model", allow_chance=True)
    body = dict(word.split("=") for word in settings)
    grid = {"profile": "smoke", "base": {"method": "ce", "seed": 0}}
    grid["base"] |= {key: int(value) for key, value in body.items()}
    for path in (place / "grid.yaml", place / "experiment" / "grid.yaml"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(grid))
    keep([run], place / "experiment", {run.name: "ce"})
    draw = np.random.default_rng(0)
    (place / "vectors").mkdir()
    np.save(place / "vectors" / "x.npy", draw.normal(size=(120, 6)).astype(np.float32))
    rows = "".join(f"{i % 2},{i // 2 % 2},{i % 47 + 18},{'abc'[i % 3]}\n" for i in range(120))
    (place / "vectors" / "y.csv").write_text(f"target,sensitive,age,race\n{rows}")
    _shards(place, draw)
    _unfinished(place)
    (place / "pictures" / "photos").mkdir(parents=True)
    lines = ["path,smiling,group"]
    for i in range(24):
        pixels = draw.integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(place / "pictures" / "photos" / f"{i}.png")
        lines.append(f"{i}.png,{i % 2},{'ab'[i // 2 % 2]}")
    (place / "pictures" / "people.csv").write_text("\n".join(lines) + "\n")
    _data_set(place)
    _forms(place)
    (place / "out").mkdir()
    return place


def _shards(place: Path, draw: np.random.Generator) -> None:
    (place / "shards").mkdir()
    for number in range(2):
        vectors = draw.normal(size=(60, 6)).astype(np.float32).tolist()
        table = {
            "id": [f"{number}-{i}" for i in range(60)],
            "group": list("ab" * 30),
            "embedding": pa.array(vectors, pa.list_(pa.float32(), 6)),
        }
        pq.write_table(pa.table(table), place / "shards" / f"{number}.parquet")


def _unfinished(place: Path) -> None:
    """Runs that were ended after their last checkpoint, one of them with groups it inferred."""
    from shasam.cli import main

    shutil.copytree(place / "runs", place / "begun")
    here = Path.cwd()
    os.chdir(place)
    try:
        main(TAUGHT)
    except SystemExit as ended:
        assert not ended.code, ended
    finally:
        os.chdir(here)
    for folder in ("begun", "taught"):
        next((place / folder).glob("*/DONE")).unlink()


def _data_set(place: Path) -> None:
    """The pictures again, as ``datasets`` saves them."""
    (folder := place / "dataset").mkdir()
    table = pc.read_csv(place / "pictures" / "people.csv")
    photos = place / "pictures" / "photos"
    images = [{"bytes": (photos / name).read_bytes()} for name in table["path"].to_pylist()]
    table = table.drop_columns(["path"]).append_column("image", pa.array(images))
    with (
        pa.OSFile(str(folder / "data.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as stream,
    ):
        stream.write_table(table)
    kinds = {"smiling": "Value", "group": "Value", "image": "Image"}
    features = {"features": {name: {"_type": kind} for name, kind in kinds.items()}}
    (folder / "dataset_info.json").write_text(json.dumps(features))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))


def _forms(place: Path) -> None:
    """What people fill in for an audit, and a form that was written."""
    from shasam.report.bias_audit import bias_audit, header_of
    from shasam.report.columns import Columns

    (folder := place / "forms").mkdir()
    people = "".join(f"{'fm'[i % 2]},{'abc'[i % 3]},{int(i % 7 > 3)}\n" for i in range(210))
    (folder / "people.csv").write_text(f"sex,race,selected\n{people}")
    (folder / "about.yaml").write_text("auditor: Acme\naudit_date: 2027-01-15\n")
    (folder / "agreed.yaml").write_text("- {metric: eo_mean, at_most: 0.5, review: 2027-01-15}\n")
    columns = Columns(prediction="selected", sensitive=("sex", "race"))
    header = header_of([str(folder / "about.yaml")])
    bias_audit(folder / "people.csv", columns, header).to_json(folder / "form.json")


class Case:
    """A command in a world of its own, one folder of which is hostile."""

    def __init__(self, world: Path, place: Path, command: str, seed: str) -> None:
        self.random = random.Random(f"{command}/{seed}")
        self.place, self.outside = place / "world", place / "outside"
        shutil.copytree(world, self.place)
        (self.outside / "inner").mkdir(parents=True)
        for name in ("canary", "inner/canary"):
            (self.outside / name).write_text(f'{{"event": "{SECRET}"}}\nlabel,{SECRET}\n')
        self.folder, words = self.random.choice(READS[command])
        run = next((self.place / "runs").iterdir()).relative_to(self.place)
        self.words = [word.replace("RUN", str(run)) for word in words]
        self.changes = [self._change() for _ in range(self.random.choice((1, 1, 2, 3)))]

    def _change(self) -> str:
        files = sorted(p for p in (self.place / self.folder).rglob("*") if not p.is_dir())
        if not files:
            return "nothing is left"
        path = self.random.choice(files)
        how = self.random.choice(CHANGES)
        if not path.is_file() or path.is_symlink():
            return "changed already"
        how(self, path)
        return f"{how.__name__} {path.relative_to(self.place)}"

    def __str__(self) -> str:
        return f"shasam {' '.join(self.words)} with {'; '.join(self.changes)}"

    def run(self) -> None:
        """Carry out the command; AssertionError where it does what it must not."""
        from shasam.cli import main
        from shasam.errors import ShasamError

        before, here = _listed(self.outside), Path.cwd()
        os.chdir(self.place)
        try:
            with no_network():
                main(self.words)
        except (ShasamError, SystemExit):
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise AssertionError(f"{self}: {type(error).__name__}: {error}") from error
        finally:
            os.chdir(here)
        assert _listed(self.outside) == before, f"{self} changed what is outside"
        for path in self.place.rglob("*"):
            if path.is_file() and not path.is_symlink():
                assert SECRET.encode() not in path.read_bytes(), f"{self} put a secret into {path}"


def _listed(folder: Path) -> list[tuple[Any, ...]]:
    found = []
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found.append((path.name, content, info.st_mode, info.st_ino, info.st_mtime_ns))
    return found


@contextmanager
def no_network() -> Iterator[None]:
    """A connection to anywhere is an error of another kind than ours."""

    def connect(self: socket.socket, address: Any) -> None:
        raise AssertionError(f"the network was asked: {address}")

    kept, offline = socket.socket.connect, os.environ.get("HF_HUB_OFFLINE")
    socket.socket.connect = connect  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        socket.socket.connect = kept  # type: ignore[method-assign]
        assert os.environ.get("HF_HUB_OFFLINE") == offline


# -- changes to one file -----------------------------------------------------------------------


def link_outside(case: Case, path: Path) -> None:
    path.unlink()
    targets = ["canary", "inner", "nothing", "inner/canary"]
    path.symlink_to(case.outside / case.random.choice(targets))


def link_folder_outside(case: Case, path: Path) -> None:
    """The folder of the file, where that is not the hostile folder itself."""
    if path.parent == case.place / case.folder:
        return link_outside(case, path)
    shutil.rmtree(path.parent)
    path.parent.symlink_to(case.outside / "inner")
    return None


def pipe(case: Case, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder_instead(case: Case, path: Path) -> None:
    path.unlink()
    path.mkdir()


def gone(case: Case, path: Path) -> None:
    path.unlink()


def damage(case: Case, path: Path) -> None:
    path.write_bytes(mutated(case.random, [path.read_bytes()]))


def another_file(case: Case, path: Path) -> None:
    others = [p for p in (case.place / case.folder).rglob("*") if p.is_file()]
    path.write_bytes(case.random.choice(others).read_bytes())


def endless(case: Case, path: Path) -> None:
    path.write_bytes(
        case.random.choice([b"[" * 10**5, b"0," * 10**5, b'{"a":' * 10**4, b"\0" * 99])
    )


VALUES: list[Any] = [
    None, True, -1, 0, 2**63, 2**70, 1e308, float("nan"), "", "x", "../../outside/canary", "/etc",
    "owner/name", "a\0b", "\ud800", [], [1], {}, {"a": [None]}, "é" * 300, [[[]]], "2001-99-99",
    {"encoder": "hf", "options": {"source": "/etc"}},
    {"encoder": "hf", "options": {"source": "owner/name", "architecture": {"model_type": "bert"}}},
]  # fmt: skip


def other_value(case: Case, path: Path) -> None:
    """A value of a JSON or YAML document, or of the first lines of a log, becomes another."""
    if path.suffix not in (".json", ".yaml", ".jsonl"):
        return damage(case, path)
    try:
        text = path.read_text()
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        body = yaml.safe_load(lines[0]) if path.suffix == ".yaml" else json.loads(lines[0])
    except (ValueError, IndexError, yaml.YAMLError):
        return damage(case, path)
    places = list(_places(body))
    if not places:
        return damage(case, path)
    parent, key = case.random.choice(places)
    parent[key] = case.random.choice(VALUES)
    lines[0] = json.dumps(body, default=str)  # YAML has dates
    path.write_text("\n".join(lines) + "\n")
    return None


def _places(body: Any) -> Iterator[tuple[Any, Any]]:
    items = (
        body.items()
        if isinstance(body, dict)
        else enumerate(body if isinstance(body, list) else ())
    )
    for key, value in list(items):
        yield body, key
        yield from _places(value)


def other_column(case: Case, path: Path) -> None:
    """A column of a Parquet file becomes one of another type, or goes; its metadata may go too."""
    if path.suffix != ".parquet":
        return other_value(case, path)
    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()))
    except (pa.ArrowException, OSError):
        return damage(case, path)
    n, name = table.num_rows, case.random.choice(table.column_names)
    place = table.column_names.index(name)
    columns = [
        pa.nulls(n), pa.array([[1]] * n), pa.array([{"x": None}] * n), pa.array(["../x"] * n),
        pa.array([2**62] * n), pa.array([float("nan")] * n), pa.array([b"\xff"] * n),
        pa.array([[0.5, None]] * n), pa.array(["a\0b\x1b[2J"] * n), pa.array([""] * n),
    ]  # fmt: skip
    kind = case.random.randrange(len(columns) + 2)
    if kind < len(columns):
        table = table.set_column(place, name, columns[kind])
    elif kind == len(columns):
        table = table.drop_columns([name])
    else:
        keys = list(table.schema.metadata or {})
        about = dict(table.schema.metadata or {})
        if keys:
            about[case.random.choice(keys)] = case.random.choice([b"", b"[]", b"7", b"\xff", b"{}"])
        table = table.replace_schema_metadata(about)
    pq.write_table(table, path)
    return None


CHANGES: list[Callable[[Case, Path], None]] = [
    link_outside, link_folder_outside, pipe, folder_instead, gone, damage, another_file, endless,
    other_value, other_value, other_value, other_column, other_column, other_column,
]  # fmt: skip
