"""``shasam data``: look at data before anything is trained on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from rich.console import Console

    from shasam.data import Dataset, DataSpec

app = App(name="data", help="Check, describe and pack a data set before training on it.")


@Parameter(name="*")
@dataclass(frozen=True)
class Choice:
    """Which data, and how it is labelled and split."""

    data: str | None = None
    "faces, utkface, celeba, manifest or clusters; 'manifest' when --csv is given, else 'faces'."
    root: Path | None = None
    "Folder that holds the images."
    csv: Path | None = None
    "Table of your own images: CSV or Parquet with a path column and attributes."
    path_column: str = "path"
    "Column with the path of each image."
    id_column: str | None = None
    "Column with a unique id; the path without it."
    split_column: str | None = None
    "Column with train, val or test; 'split' is used when it is there."
    identity_column: str | None = None
    "Column that names the person: nobody will be in two splits."
    target: str | None = None
    "What is predicted: a column or a rule such as 'age<35', 'race==0', 'Big_Nose&Young'."
    sensitive: str | None = None
    "What must not matter: a column or a rule."
    setting: str | None = None
    "A named pair of target and sensitive attribute, such as CelebA's a/m."
    split: Literal["auto", "official", "balanced", "stratified"] = "auto"
    "How the splits are made."
    alpha: float | None = None
    "Bias of the training split: one class is alpha times the other in each group."
    flip_direction: bool = False
    "Bias towards the other class."
    n: int = 4000
    "Training faces to draw (faces)."
    n_per_group: int | None = None
    "Training images per sensitive group."
    holdout_per_cell: int | None = None
    "Images per cell for val, and for test."
    difficulty: float = 0.5
    "How alike the classes are (faces), 0 to 1."
    size: int = 64
    "Pixels of a side."
    seed: int = 0
    "Seed of the split."
    allow_missing: bool = False
    "Go on without images that are listed and not there."
    allow_bad: bool = False
    "Go on when more than 1 % of the images cannot be read."
    store: Path | None = None
    "Folder of the packed stores; $SHASAM_CACHE or the user's cache without it."

    def spec(self) -> DataSpec:
        from pydantic import ValidationError

        from shasam.data import DataSpec
        from shasam.errors import SpecError

        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "data"}
        name = self.data or ("manifest" if self.csv else "faces")
        try:
            return DataSpec(name=name, **values)
        except ValidationError as error:
            wrong = [f"--{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            raise SpecError("; ".join(wrong).replace("_", "-")) from error


_DEFAULT = Choice()


@app.command
def check(
    choice: Choice = _DEFAULT, *, show: Annotated[int, Parameter(help="Names per list.")] = 10
) -> None:
    """Read every image once and list what is wrong: names, files, duplicates, the packed store."""
    from shasam.data import make_source
    from shasam.data.survey import copies
    from shasam.errors import DataError

    console = _console()
    spec = choice.spec()
    source = make_source(spec)
    store = _packed(source, spec.size, console)
    ids, why = (store.index.column(name).to_pylist() for name in ("id", "reason"))
    bad = [(name, reason) for name, reason in zip(ids, why, strict=True) if reason]
    odd = [(item.id, item.reason) for item in source.listing.excluded]
    console.print(f"{len(ids):,} images listed, {len(ids) - len(bad):,} readable")
    for note in source.listing.notes:
        console.print(f"note: {note}", markup=False)
    _listed(console, "left out by their names or rows", odd, show)
    _listed(console, "cannot be read", bad, show)
    same = copies(source, store)
    console.print(
        f"{same.redundant:,} files are byte-identical to an earlier one "
        f"({same.files:,} files in {same.groups:,} groups; {same.conflicting:,} of them disagree "
        f"about an attribute)"
    )
    for group in same.examples[: min(show, 5)]:
        console.print("  " + " = ".join(group), markup=False)
    broken = store.verify()
    if broken:
        raise DataError(
            f"{len(broken)} files of the packed store are damaged ({', '.join(broken[:3])}); "
            f"remove {store.directory} and prepare again"
        )
    console.print("packed store: every hash is right")
    if len(bad) > 0.01 * len(ids) and not spec.allow_bad:
        raise DataError(
            f"{len(bad) / len(ids):.1%} of the images cannot be read; training stops above 1 % "
            f"unless --allow-bad is given"
        )


@app.command
def describe(
    choice: Choice = _DEFAULT,
    *,
    sheet: Annotated[Path | None, Parameter(help="Write a contact sheet here (PNG).")] = None,
    save: Annotated[Path | None, Parameter(help="Write the manifest here (Parquet).")] = None,
    show: Annotated[int, Parameter(help="Names per list.")] = 10,
) -> None:
    """Cells of target x sensitive x split, imbalance, correlations, what was left out and why."""
    from shasam.data.survey import reasons

    console = _console()
    data = _opened(choice, console)
    _cells(console, data)
    _associations(console, data)
    kinds = reasons(data.manifest.excluded)
    if kinds:
        console.print("left out:")
        for reason, count in kinds.most_common():
            console.print(f"  {count:,}  {reason}", markup=False, highlight=False)
        unusual = [
            (e["id"], e["reason"])
            for e in data.manifest.excluded
            if not e["reason"].startswith("duplicate")
        ]
        _listed(console, "left out, without duplicates", unusual, show)
    for note in data.manifest.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    if save is not None:
        data.manifest.save(save)
        console.print(f"manifest saved: {save}", markup=False)
    if sheet is not None:
        _sheet(console, data, sheet, "train")
    console.print(f"manifest {data.manifest.sha256}", highlight=False, soft_wrap=True)


@app.command
def prepare(choice: Choice = _DEFAULT) -> None:
    """Pack the images at the chosen size; stopped work goes on where it was."""
    from shasam.data import make_source

    console = _console()
    spec = choice.spec()
    source = make_source(spec)
    started = time.perf_counter()
    store = _packed(source, spec.size, console)
    seconds = time.perf_counter() - started
    weight = len(store) * store.size**2 * 3 / 2**20
    console.print(
        f"{len(store):,} images of {store.size} px, {weight:,.0f} MiB in {len(store.shards)} "
        f"shards, {seconds:.1f} s"
    )
    console.print(str(store.directory), markup=False, soft_wrap=True)


@app.command
def sheet(
    choice: Choice = _DEFAULT,
    *,
    out: Annotated[Path, Parameter(help="The picture to write (PNG).")] = Path("sheet.png"),
    of: Annotated[Literal["train", "val", "test"], Parameter(help="The split.")] = "train",
) -> None:
    """A contact sheet: pictures of every cell of a split."""
    console = _console()
    _sheet(console, _opened(choice, console), out, of)


def _console() -> Console:
    from rich.console import Console

    return Console()


def _opened(choice: Choice, console: Console) -> Dataset:
    from shasam.data.dataset import assemble, make_protocol, make_source

    spec = choice.spec()
    source = make_source(spec)
    protocol = make_protocol(source)
    return assemble(source, protocol, _packed(source, spec.size, console))


def _packed(source, size: int, console: Console):
    from shasam.data.packing import open_store

    with _progress(console) as report:
        return open_store(source, size, progress=report)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left, which appears when there is something to pack."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("packing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("packing", total=None, rate="", visible=False)
        first: list[float] = []

        def report(done: int, total: int) -> None:
            if not first:
                first.extend((time.perf_counter(), done))
            spent = time.perf_counter() - first[0]
            rate = f"{(done - first[1]) / spent:,.0f} images/s" if spent > 0.2 else ""
            bar.update(task, completed=done, total=total, visible=True, rate=rate)

        yield report


def _listed(console: Console, title: str, items: list[tuple[str, str]], show: int) -> None:
    if not items:
        return
    console.print(f"{len(items):,} {title}:", markup=False)
    for name, reason in items[:show]:
        console.print(f"  {name!r}: {reason}", markup=False, highlight=False)
    if len(items) > show:
        console.print(f"  ... and {len(items) - show:,} more (--show {len(items)})", markup=False)


def _cells(console: Console, data: Dataset) -> None:
    from rich.markup import escape
    from rich.table import Table

    from shasam.data.survey import cells

    found = cells(data)
    table = Table(title=escape(f"{data.spec.name}: {data.manifest.protocol['target']} / "
                               f"{data.manifest.protocol['sensitive']}"))  # fmt: skip
    table.add_column("target")
    table.add_column("sensitive")
    for part in found:
        table.add_column(part.split, justify="right")
    for t, target in enumerate(data.target_names):
        for s, group in enumerate(data.sensitive_names):
            counts = [f"{part.counts_CG[t, s]:,}" for part in found]
            table.add_row(escape(target), escape(group), *counts)
        table.add_section()
    table.add_row("all", "", *(f"{part.counts_CG.sum():,}" for part in found))
    for name, field in (
        ("largest / smallest class", "class_ratio"),
        ("largest / smallest group", "group_ratio"),
        ("largest / smallest cell", "cell_ratio"),
        ("Cramér's V, target - sensitive", "association"),
    ):
        table.add_row(name, "", *(f"{getattr(part, field):.2f}" for part in found))
    console.print(table)


def _associations(console: Console, data: Dataset) -> None:
    from rich.markup import escape
    from rich.table import Table

    from shasam.data.survey import associations

    rows = associations(data)[:8]
    if not rows:
        return
    table = Table(title="attributes that go with the labels (Cramér's V in train)")
    table.add_column("attribute")
    table.add_column("target", justify="right")
    table.add_column("sensitive", justify="right")
    for name, target, sensitive in rows:
        table.add_row(escape(name), f"{target:.2f}", f"{sensitive:.2f}")
    console.print(table)


def _sheet(console: Console, data: Dataset, path: Path, split: str) -> None:
    from shasam.data.sheet import contact_sheet

    console.print(f"contact sheet: {contact_sheet(data, path, split=split)}", markup=False)
