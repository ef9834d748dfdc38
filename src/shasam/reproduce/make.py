"""Make an artefact: run what is missing, and write it again as runs finish; list what there is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from shasam.documents import of_our_shape, read_json
from shasam.errors import TrainingError
from shasam.files import write_atomic
from shasam.output import Screen, emit, say, shown_progress
from shasam.reproduce import filling, render
from shasam.reproduce.artefact import NAMES, Artefact, ArtefactRun, DataLocation, artefact, cells
from shasam.runs.machine import ExecutionOptions
from shasam.runs.records import holds_records, note_asked
from shasam.runs.records import keep as keep_records

# -------------------------------------------------------------------------------------------------
# The list of artefacts: what each shows and needs, how many runs it has, how long they take.
# -------------------------------------------------------------------------------------------------

_IMAGES = {"celeba": 162_770, "utkface": 11_458}  # of the whole training splits


def show_list(profile: str, seeds: int, hours: bool = False) -> None:
    """Print the list; for hours, the speed of this machine is measured by a few steps."""
    screen = Screen()
    speed = _measured_speed(profile, screen) if hours else None
    table = Table(box=box.SIMPLE)
    for head in ("artefact", "what it shows", "needs", "runs", *(["hours"] if hours else [])):
        table.add_column(head, justify="right" if head in ("runs", "hours") else "left")
    for name in NAMES:
        one = artefact(name, profile=profile)
        row, runs = [name, one.title, one.data or "nothing"], _distinct_runs(one, profile)
        row.append(str(seeds * len(runs)) if runs else "–")
        if speed is not None:
            row.append(f"{seeds * _hours(runs, speed):.1f}" if runs else "–")
        table.add_row(*row)
    screen.print(table)
    each = f"{seeds} seeds, profile {profile}"
    if speed is None:
        screen.print(f"Runs of {each}. --hours measures this machine and says how long they take.")
        return
    screen.print(
        f"Hours of the stages on images, one run after the other, {each}. Measured just now with "
        f"balanced cross-entropy: {speed['resnet18']:,.0f} views a second with ResNet-18 and "
        f"{speed['vit']:,.0f} with a ViT. Methods with several networks take longer.",
        soft_wrap=True,
    )


def _distinct_runs(one: Artefact, profile: str) -> list[ArtefactRun]:
    """Return the runs of one seed; rows can share them. Nothing is resolved, so no torch."""
    if one.kind != "table" or one.data is None:
        return []
    found, _ = cells(one, DataLocation(one.data), profile=profile, seeds=1, check=False)
    return list({cell.asked: cell for cell in found}.values())


def _measured_speed(profile: str, screen: Screen) -> dict[str, float]:
    from shasam.reproduce.cost import on_drawn_faces  # imports torch

    screen.print(f"measuring a few steps of the profile {profile} …")
    return {encoder: on_drawn_faces(profile, encoder) for encoder in ("resnet18", "vit")}


def _hours(runs: Sequence[ArtefactRun], speed: Mapping[str, float]) -> float:
    from shasam.reproduce.cost import views_of_training  # imports torch

    return (
        sum(
            views_of_training(cell.spec, _IMAGES[cell.spec.data.name])
            / speed["vit" if cell.spec.model.encoder == "vit" else "resnet18"]
            for cell in runs
        )
        / 3600
    )


# -------------------------------------------------------------------------------------------------
# Make an artefact: run what is missing, and write it again and again as it fills.
# -------------------------------------------------------------------------------------------------

WRITE_SECONDS = 10.0  # at least, between two versions of an artefact that fills


@dataclass(frozen=True)
class MakeOptions:
    """Where missing runs are made, and how."""

    out: Path
    how: ExecutionOptions
    dry: bool = False  # list them instead


@dataclass(frozen=True)
class RecordFolders:
    """Records to fill the artefact from, and an experiment to add those of finished runs to."""

    records: Path | None = None
    keep: Path | None = None


def table(
    artefact: Artefact,
    place: DataLocation,
    profile: str,
    seeds: int,
    to: Path,
    doing: MakeOptions,
    sources: RecordFolders,
) -> list[Path]:
    """Fill a table with what is done, run the rest, and return the files that were written."""
    recorded = sources.records is not None
    wanted, refused = cells(artefact, place, profile=profile, seeds=seeds, check=not recorded)
    data = place.name if place.features is None else f"embeddings of {place.name}"

    def here() -> dict[str, filling.RunResult]:
        return filling.from_folder(wanted, doing.out)

    def done() -> dict[str, filling.RunResult]:
        return kept if recorded else {**kept, **here()}

    # runs that another machine has done and kept are not done again
    keep = sources.keep
    kept: dict[str, filling.RunResult] = {}
    if sources.records is not None:
        kept = filling.from_records(sources.records)
    elif keep is not None and holds_records(keep):
        kept = filling.kept_runs(keep)

    def key(cell: ArtefactRun) -> str:
        return cell.asked if recorded else cell.identity

    def write() -> list[Path]:
        full = filling.fill(
            artefact, wanted, done(), profile=profile, data=data, refused=refused, key=key
        )
        return _write(full, to)

    found = done()
    runs = {key(cell): cell for cell in wanted}  # rows can share them
    missing = [cell for name, cell in runs.items() if name not in found]
    say(f"{artefact.title}: {len(runs) - len(missing)} of {len(runs)} runs are done")
    try:
        if doing.dry:
            for cell in missing:
                say(f"to do  {cell.row}, {cell.column}, seed {cell.seed}: {cell.spec.name}")
        elif missing and not recorded:
            _run(missing, doing, write)
    finally:  # also of what was done before a run failed or Ctrl-C
        if keep is not None and not recorded:
            found = here()
            _keep([cell for cell in wanted if cell.identity in found], doing.out, keep)
            _note(wanted, {**kept, **found}, keep)
        paths = write()
    return paths


def _run(missing: Sequence[ArtefactRun], doing: MakeOptions, write: Callable[[], object]) -> None:
    from shasam.pipeline.sweeps import Outcome, says, sweep  # imports torch

    written_at = -WRITE_SECONDS

    def tell(outcome: Outcome) -> None:
        nonlocal written_at
        say(says(outcome))
        if time.monotonic() - written_at >= WRITE_SECONDS:
            write()
            written_at = time.monotonic()

    how = doing.how.settled()
    say(how.line())
    outcomes = sweep(
        list({cell.spec.name: cell.spec for cell in missing}.values()),
        doing.out,
        how,
        tell=tell,
        say=say,
    )
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    if failed:
        raise TrainingError(f"{failed} runs failed; the same command tries them again")


def _keep(done: Sequence[ArtefactRun], out: Path, experiment: Path) -> None:
    labels = {cell.spec.name: cell.label for cell in done}
    keep_records([out / name for name in labels], experiment, labels)


def _note(
    wanted: Sequence[ArtefactRun], done: Mapping[str, filling.RunResult], experiment: Path
) -> None:
    """Write into the records what their runs were asked for with, by which they are found."""
    asked: dict[str, set[str]] = {}
    for cell in wanted:
        if cell.identity in done:
            asked.setdefault(done[cell.identity].run, set()).add(cell.asked)
    if asked:
        note_asked(experiment, asked)


def _write(full: filling.ArtefactTable, to: Path) -> list[Path]:
    name = full.artefact.name
    texts = {
        ".md": render.as_markdown(full),
        ".tex": render.as_latex(full),
        ".csv": render.as_csv(full),
    }
    paths = _texts(to, name, texts)
    figure = render.draw(full)
    return paths if figure is None else [*paths, *render.save(figure, to / f"{name}.svg")]


def objectives_table(to: Path) -> list[Path]:
    """Write table 1 on its example, and show it on the screen."""
    from shasam.reproduce import table1  # imports torch

    text = table1.as_markdown()
    emit(text)
    return _texts(to, "table1", {".md": text, ".csv": table1.as_csv()})


def cost_table(
    artefact: Artefact, place: DataLocation, profile: str, to: Path, records: Path | None
) -> list[Path]:
    """Return the cost of stage 1: measured now, or from the record of an earlier measurement."""
    from shasam.reproduce import cost  # imports torch

    if records is not None:
        path = records / "cost.json"
        with of_our_shape(path):
            costs = cost.from_json(read_json(path, within=records))
    else:
        wanted, _ = cells(artefact, place, profile=profile, seeds=1)
        with shown_progress() as named:
            costs = cost.measure_costs(artefact, wanted, profile, named("measuring in turns"))
    text = cost.as_markdown(costs)
    emit(text)
    record = json.dumps(cost.as_json(costs), indent=1) + "\n"
    return _texts(to, "cost", {".md": text, ".csv": cost.as_csv(costs), ".json": record})


def _texts(to: Path, name: str, texts: Mapping[str, str]) -> list[Path]:
    paths = {to / f"{name}{suffix}": text for suffix, text in texts.items()}
    for path, text in paths.items():
        write_atomic(path, text)
    return list(paths)
