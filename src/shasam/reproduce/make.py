"""Make an artefact: run what is missing, and write it again and again as it fills."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shasam.documents import read_json
from shasam.errors import TrainingError
from shasam.files import write_atomic
from shasam.output.progress import shown_progress
from shasam.output.terminal import emit, say
from shasam.pipeline.sweep import Outcome, says, sweep
from shasam.reproduce import cost, drawn, filled, objectives, written
from shasam.reproduce.artefact import Artefact
from shasam.reproduce.cells import Cell, Place, cells
from shasam.runs.how import How
from shasam.runs.records import holds_records
from shasam.runs.records import keep as keep_records

WRITE_SECONDS = 10.0  # at least, between two versions of an artefact that fills


@dataclass(frozen=True)
class Doing:
    """Where missing runs are made, and how."""

    out: Path
    how: How
    dry: bool = False  # list them instead


@dataclass(frozen=True)
class Sources:
    """Records to fill the artefact from, and an experiment to add those of finished runs to."""

    records: Path | None = None
    keep: Path | None = None


def table(
    artefact: Artefact,
    place: Place,
    profile: str,
    seeds: int,
    to: Path,
    doing: Doing,
    sources: Sources,
) -> list[Path]:
    """Fill a table with what is done, run the rest, and return the files that were written."""
    wanted, refused = cells(artefact, place, profile=profile, seeds=seeds)
    data = place.name if place.features is None else f"embeddings of {place.name}"

    def here() -> dict[str, filled.Done]:
        return filled.from_folder(wanted, doing.out)

    def done() -> dict[str, filled.Done]:
        if sources.records is not None:
            return filled.from_records(sources.records)
        return {**kept, **here()}

    # runs that another machine has done and kept are not done again
    keep = sources.keep
    kept = filled.from_records(keep) if keep is not None and holds_records(keep) else {}

    def write() -> list[Path]:
        full = filled.fill(artefact, wanted, done(), profile=profile, data=data, refused=refused)
        return _write(full, to)

    found = done()
    runs = {cell.identity: cell for cell in wanted}  # rows can share them
    missing = [cell for identity, cell in runs.items() if identity not in found]
    say(f"{artefact.title}: {len(runs) - len(missing)} of {len(runs)} runs are done")
    try:
        if doing.dry:
            for cell in missing:
                say(f"to do  {cell.row}, {cell.column}, seed {cell.seed}: {cell.spec.name}")
        elif missing and sources.records is None:
            _run(missing, doing, write)
    finally:  # also of what was done before a run failed or Ctrl-C
        if keep is not None and sources.records is None:
            found = here()
            _keep([cell for cell in wanted if cell.identity in found], doing.out, keep)
        paths = write()
    return paths


def _run(missing: Sequence[Cell], doing: Doing, write: Callable[[], object]) -> None:
    written_at = -WRITE_SECONDS

    def tell(outcome: Outcome) -> None:
        nonlocal written_at
        say(says(outcome))
        if time.monotonic() - written_at >= WRITE_SECONDS:
            write()
            written_at = time.monotonic()

    say(doing.how.line())
    outcomes = sweep(
        list({cell.spec.name: cell.spec for cell in missing}.values()),
        doing.out,
        doing.how,
        tell=tell,
        say=say,
    )
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    if failed:
        raise TrainingError(f"{failed} runs failed; the same command tries them again")


def _keep(done: Sequence[Cell], out: Path, experiment: Path) -> None:
    labels = {cell.spec.name: cell.label for cell in done}
    keep_records([out / name for name in labels], experiment, labels)


def _write(full: filled.Filled, to: Path) -> list[Path]:
    name = full.artefact.name
    texts = {
        ".md": written.as_markdown(full),
        ".tex": written.as_latex(full),
        ".csv": written.as_csv(full),
    }
    paths = _texts(to, name, texts)
    figure = drawn.draw(full)
    return paths if figure is None else [*paths, *drawn.save(figure, to / f"{name}.svg")]


def objectives_table(to: Path) -> list[Path]:
    """Table 1 on its example, on the screen too."""
    text = objectives.as_markdown()
    emit(text)
    return _texts(to, "table1", {".md": text, ".csv": objectives.as_csv()})


def cost_table(
    artefact: Artefact, place: Place, profile: str, to: Path, records: Path | None
) -> list[Path]:
    """The cost of stage 1: measured now, or from the record of an earlier measurement."""
    if records is not None:
        costs = cost.from_json(read_json(records / "cost.json"))
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
