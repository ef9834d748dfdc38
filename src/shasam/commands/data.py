"""``shasam data``: check, describe and pack data before training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from shasam.commands.flags import NO_SOURCE, SourceFlags
from shasam.spec.fields import DataSpec

if TYPE_CHECKING:
    from shasam.data import Dataset
    from shasam.data.source import Source
    from shasam.data.vector_files import VectorStore
    from shasam.output import Screen


app = App(
    name="data",
    help="Check, describe and pack a data set before training on it.",
    group_commands="Commands",
)


@app.command
def check(
    *, data: SourceFlags = NO_SOURCE, show: Annotated[int, Parameter(help="Names per list.")] = 10
) -> None:
    """Read every image or vector once and list what is wrong: names, files, duplicates, store."""
    from shasam.data import make_protocol
    from shasam.data.inspect import copies
    from shasam.data.splits import check_labels
    from shasam.errors import DataError

    console = _console()
    source = _source(data)
    if (data.target or source.target) and (data.sensitive or source.sensitive):
        check_labels(source, make_protocol(source))
    store = _packed(source, data.size, console)
    ids, why = (store.index.column(name).to_pylist() for name in ("id", "reason"))
    bad = [(name, reason) for name, reason in zip(ids, why, strict=True) if reason]
    odd = [(item.id, item.reason) for item in source.listing.excluded]
    vectors = source.inputs == "vectors"
    what, usable = ("vectors", "usable") if vectors else ("images", "readable")
    console.print(f"{len(ids):,} {what} listed, {len(ids) - len(bad):,} {usable}")
    for note in source.listing.notes:
        console.print(f"note: {note}")
    _listed(console, "left out by their names or rows", odd, show)
    cannot = "cannot be used" if vectors else "cannot be read"
    _listed(console, cannot, bad, show)
    if vectors:
        _columns(console, store)
    same, files = copies(source, store), "vectors" if vectors else "files"
    console.print(
        f"{same.redundant:,} {files} are byte-identical to an earlier one "
        f"({same.files:,} {files} in {same.groups:,} groups; {same.conflicting:,} of them disagree "
        f"about an attribute)"
    )
    for group in same.examples[: min(show, 5)]:
        console.print("  " + " = ".join(group))
    broken = store.verify()
    if broken and vectors:
        raise DataError(f"{store.directory} was changed while it was read; run the command again")
    if broken:
        raise DataError(
            f"{len(broken)} files of the packed store are damaged ({', '.join(broken[:3])}); "
            f"remove {store.directory} and prepare again"
        )
    if not vectors:
        console.print("packed store: every hash is right")
    if len(bad) > 0.01 * len(ids) and not data.allow_bad:
        raise DataError(
            f"{len(bad) / len(ids):.1%} of the {what} {cannot}; training stops above 1 % "
            f"unless --allow-bad is given"
        )


@app.command
def describe(
    *,
    data: SourceFlags = NO_SOURCE,
    sheet: Annotated[Path | None, Parameter(help="Write a contact sheet here (PNG).")] = None,
    save: Annotated[Path | None, Parameter(help="Write the manifest here (Parquet).")] = None,
    show: Annotated[int, Parameter(help="Names per list.")] = 10,
) -> None:
    """Count the images of every class, group and split; show imbalance and exclusions."""
    from shasam.data.inspect import REPEATED, dates_of_ranges, reasons
    from shasam.data.vector_files import VectorStore
    from shasam.files import check_writable

    check_writable(sheet)
    check_writable(save)
    console = _console()
    opened = _opened(data, console)
    if isinstance(opened.store, VectorStore):
        _columns(console, opened.store)
    _cells(console, opened)
    _associations(console, opened)
    kinds = reasons(opened.manifest.excluded)
    if kinds:
        console.print("left out:")
        for reason, count in kinds.most_common():
            console.print(f"  {count:,}  {reason}")
        unusual = [
            (e["id"], e["reason"])
            for e in opened.manifest.excluded
            if not e["reason"].startswith("duplicate") and not REPEATED.match(e["reason"])
        ]
        _listed(console, "left out, without duplicates and repeated rows", unusual, show)
    for note in (*opened.manifest.notes, *dates_of_ranges(opened.attributes)):
        console.print(f"note: {note}")
    if save is not None:
        opened.manifest.save(save)
        console.print(f"manifest saved: {save}")
    if sheet is not None:
        _sheet(console, opened, sheet, "train")
    console.print(f"manifest {opened.manifest.sha256}", soft_wrap=True)


@app.command
def prepare(*, data: SourceFlags = NO_SOURCE) -> None:
    """Decode and pack the images at the chosen size; a stopped command continues where it was."""
    console = _console()
    source = _source(data)
    if source.inputs == "vectors":
        console.print("vectors are read from their file; there is nothing to pack")
        return
    started = time.perf_counter()
    store = _packed(source, data.size, console)
    seconds = time.perf_counter() - started
    weight = len(store) * store.size**2 * 3 / 2**20
    console.print(
        f"{len(store):,} images of {store.size} px, {weight:,.0f} MiB in {len(store.shards)} "
        f"shards, {seconds:.1f} s"
    )
    console.print(str(store.directory), soft_wrap=True)


@app.command
def sheet(
    *,
    data: SourceFlags = NO_SOURCE,
    out: Annotated[Path, Parameter(help="The picture to write (PNG).")] = Path("sheet.png"),
    of: Annotated[Literal["train", "val", "test"], Parameter(help="The split.")] = "train",
) -> None:
    """Draw a contact sheet with example images of every class and group."""
    from shasam.files import check_writable

    check_writable(out)
    console = _console()
    _sheet(console, _opened(data, console), out, of)


def _console() -> Screen:
    from shasam.output import Screen

    return Screen()


def _source(data: DataSpec) -> Source:
    """Return the source of data as a run would open it: a number is followed without groups."""
    from shasam.data import make_source
    from shasam.registry import lookup

    completed = lookup("source", data.name).completed(data)
    # a column of paths that is found by itself is said, so it is left to be found
    return make_source(completed.model_copy(update={"path_column": data.path_column}))


def _opened(data: DataSpec, console: Screen) -> Dataset:
    from shasam.data.dataset import assemble, make_protocol
    from shasam.data.splits import check_labels

    source = _source(data)
    protocol = make_protocol(source)
    check_labels(source, protocol)
    return assemble(source, protocol, _packed(source, data.size, console))


def _packed(source, size: int, console: Screen):
    from shasam.data.dataset import open_store

    with _progress(console) as report:
        return open_store(source, size, progress=report)


@contextmanager
def _progress(console: Screen) -> Iterator[Callable[[int, int], None]]:
    """Yield a bar with rate and time left, which appears when there is something to pack."""
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


def _listed(console: Screen, title: str, items: list[tuple[str, str]], show: int) -> None:
    if not items:
        return
    console.print(f"{len(items):,} {title}:")
    for name, reason in items[:show]:
        console.print(f"  {name!r}: {reason}")
    if len(items) > show:
        console.print(f"  ... and {len(items) - show:,} more (--show {len(items)})")


def _columns(console: Screen, store: VectorStore) -> None:
    """Print the shape of the vectors, and columns that are constant."""
    kind = store.features.dtype
    said = "" if kind == "float32" else ", read as float32"
    console.print(f"vectors of {store.size:,} numbers, {kind}{said}, in {store.path.name}")
    constant = store.constant_columns
    if len(constant):
        shown = ", ".join(map(str, constant[:8].tolist())) + (", ..." if len(constant) > 8 else "")
        console.print(f"{len(constant):,} of {store.size:,} columns are constant: {shown}")


def _cells(console: Screen, data: Dataset) -> None:
    from rich.table import Table

    from shasam.data.inspect import cells

    found = cells(data)
    table = Table(title=f"{data.spec.name}: {data.manifest.protocol['target']} / "
                        f"{data.manifest.protocol['sensitive']}")  # fmt: skip
    table.add_column("target")
    table.add_column("sensitive")
    for part in found:
        table.add_column(part.split, justify="right")
    for t, target in enumerate(data.target_names):
        for s, group in enumerate(data.sensitive_names):
            counts = [f"{part.counts_CG[t, s]:,}" for part in found]
            table.add_row(target, group, *counts)
        table.add_section()
    table.add_row("all", "", *(f"{part.counts_CG.sum():,}" for part in found))
    without = [int((data.s_N[data.rows(part.split)] < 0).sum()) for part in found]
    if any(without):
        table.add_row("without a group", "", *(f"{count:,}" for count in without))
    for name, field in (
        ("largest / smallest class", "class_ratio"),
        ("largest / smallest group", "group_ratio"),
        ("largest / smallest cell", "cell_ratio"),
        ("Cramér's V, target - sensitive", "association"),
    ):
        table.add_row(name, "", *(f"{getattr(part, field):.2f}" for part in found))
    console.print(table)


def _associations(console: Screen, data: Dataset) -> None:
    from rich.table import Table

    from shasam.data.inspect import associations

    rows = associations(data)[:8]
    if not rows:
        return
    table = Table(title="attributes that go with the labels (Cramér's V in train)")
    table.add_column("attribute")
    table.add_column("target", justify="right")
    table.add_column("sensitive", justify="right")
    for name, target, sensitive in rows:
        table.add_row(name, f"{target:.2f}", f"{sensitive:.2f}")
    console.print(table)


def _sheet(console: Screen, data: Dataset, path: Path, split: str) -> None:
    from shasam.data.vector_files import VectorStore
    from shasam.errors import SpecError

    if isinstance(data.store, VectorStore):
        raise SpecError("vectors have no pictures; a contact sheet needs images")
    from shasam.data.inspect import contact_sheet

    console.print(f"contact sheet: {contact_sheet(data, path, split=split)}")
