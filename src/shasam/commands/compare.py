"""``shasam compare``: several methods on the same data, as one table and one page."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from shasam.commands.flags import (
    NO_DATA,
    NO_MODEL,
    NO_TRAIN,
    DataFlags,
    HowFlags,
    ModelFlags,
    SetFlag,
    TrainFlags,
    layer,
)
from shasam.errors import Argument, SpecError
from shasam.runs.machine import LOCALLY

if TYPE_CHECKING:
    from rich.table import Table

    from shasam.metrics.odds import ModelFront
    from shasam.output import Screen
    from shasam.pipeline.sweeps import Outcome
    from shasam.report.audits import Limit
    from shasam.report.run_tables import ResultRow
    from shasam.spec import RunSpec


def compare(
    *,
    methods: str = "all",
    data: DataFlags = NO_DATA,
    model: ModelFlags = NO_MODEL,
    train: TrainFlags = NO_TRAIN,
    profile: Literal["paper", "cpu", "quick", "short", "frozen", "smoke"] = "quick",
    seeds: int = 3,
    set_: SetFlag = None,
    out: Path = Path("runs"),
    page: Path = Path("comparison.html"),
    baseline: str | None = None,
    limit: Annotated[list[str] | None, Parameter(negative=())] = None,
    front: bool = False,
    trials: int = 0,
    time_limit: str | None = None,
    thumbnails: bool = True,
    how: HowFlags = LOCALLY,
) -> None:
    """Train several methods on the same splits and compare them.

    Runs that are already finished are not trained again.

    Parameters
    ----------
    methods
        Comma-separated names of methods, or all. ce@vit is ce with the encoder vit.
    profile
        Named set of defaults for every run.
    seeds
        Number of seeds (0, 1, ...) of each method; each seed also has its own split.
    out
        Folder in which run directories are made.
    page
        File of the comparison page; the figures are written beside it as SVG.
    baseline
        The method that others are compared with; cross-entropy without it, or the first.
    limit
        What a model is to keep, such as eo_mean=0.05: the most accurate model that is shown to
        keep it is named, with its price in accuracy. May be given several times.
    front
        Train every method at several values of its dial (`shasam methods` names them), and draw
        what each gap costs in accuracy.
    trials
        Search that many settings of every method with Optuna (its dial and its learning rate, on
        the validation split of seed 0), and compare the best of them as --front does.
    time_limit
        Stop training after this time, such as 90s, 10m or 2h; what was trained is compared, and
        what was left out is said. The same command continues it.
    thumbnails
        Keep and show pictures of mined images; --no-thumbnails leaves them out.
    """
    from shasam.files import check_writable
    from shasam.output import Screen
    from shasam.pipeline.sweeps import expand, says
    from shasam.pipeline.sweeps import sweep as carry_out
    from shasam.registry import lookup, names
    from shasam.report.advice import named_baseline
    from shasam.report.audits import limits_of
    from shasam.spec.run import inputs_of

    # the ViT methods are to be seen beside cross-entropy on a ViT, whose batches are theirs
    everything = [*names("method"), "ce@vit", "balanced@vit"]
    chosen = everything if methods == "all" else [m.strip() for m in methods.split(",")]
    if baseline is not None:
        named_baseline(chosen, baseline)  # before anything is trained
    limits = limits_of(limit or [])
    seconds = seconds_of(time_limit)
    if seeds < 1:
        raise SpecError(Argument("seeds"), f" must be at least 1; got {seeds}")
    if trials < 0:
        raise SpecError(Argument("trials"), f" must be 0 or more; got {trials}")
    base = layer(data, model, train, set_)
    console = Screen()
    if methods == "all" and inputs_of(base.get("data", {}).get("name")) == "vectors":
        tied = [m for m in chosen if "@" in m or lookup("method", m).needs_images]
        chosen = [m for m in chosen if m not in tied]
        console.print(f"left out, as they are tied to image networks: {', '.join(tied)}")
    grid = _grid(chosen, base, profile, seeds, front=front and not trials)
    for line in _with_starting_points(grid, base):
        console.print(line, soft_wrap=True)
    specs = expand(grid)
    check_writable(page)
    how = how.settled()
    console.print(how.line(), soft_wrap=True)
    trained = partial(
        carry_out,
        out=out,
        how=how,
        thumbnails=thumbnails,
        tell=lambda outcome: console.print(says(outcome)),
        say=lambda line: console.print(line, soft_wrap=True),
    )
    if trials:
        console.print(f"searching, {trials} trials each: {', '.join(chosen)}", soft_wrap=True)
        began, half = time.monotonic(), time.monotonic() + seconds / 2
        grid["runs"] = _searched(
            grid, trials, lambda some: trained(some, seconds=half - time.monotonic())
        )
        specs, seconds = expand(grid), seconds - (time.monotonic() - began)
    console.print(f"{len(specs)} runs in {out}")
    outcomes = trained(specs, seconds=seconds)
    done = [o.path for o in outcomes if o.status in ("done", "skipped")]
    for line in left_out([o.spec for o in outcomes if o.status == "left"], len(outcomes)):
        console.print(line, soft_wrap=True)
    if not done:
        raise SystemExit(1)
    _show(done, page, baseline, limits, thumbnails, console)
    if any(o.status == "failed" for o in outcomes):
        raise SystemExit(1)


def _searched(
    grid: Mapping[str, Any], trials: int, train: Callable[[list[RunSpec]], list[Outcome]]
) -> list[dict[str, Any]]:
    """Return the entries of a grid with the settings that a search has found, on its first seed."""
    from shasam.pipeline.search import search
    from shasam.pipeline.sweeps import expand
    from shasam.spec.layers import full_keys

    first = {**grid, "grid": {**grid["grid"], "seed": grid["grid"]["seed"][:1]}}

    def ended(specs: list[RunSpec]) -> dict[str, Path] | None:
        outcomes = train(specs)
        if any(o.status == "left" for o in outcomes):
            return None
        return {o.spec.key: o.path for o in outcomes if o.status in ("done", "skipped")}

    def specify(layer: dict[str, Any]) -> RunSpec:
        return expand({**first, "runs": [layer]})[0]

    return search([full_keys(run) for run in grid["runs"]], trials, specify, ended)


def seconds_of(text: str | None) -> float:
    """Convert ``90s``, ``10m`` or ``2h`` to seconds; without end where nothing is asked for."""
    if text is None:
        return math.inf
    found = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?)([smh])", text.strip())
    if found is None or not float(found[1]):
        raise SpecError(Argument("time_limit", text), ": write a time such as 90s, 10m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def left_out(specs: Sequence[RunSpec], runs: int) -> list[str]:
    """Say what the time was too short for, by method and dial, with the missing seeds."""
    if not specs:
        return []
    from shasam.registry import lookup

    seeds: dict[str, list[str]] = {}
    for spec in specs:
        dial = lookup("method", spec.method).dial
        options = spec.as_dict()["options"]
        turned = f" {dial.option}={options[dial.option]}" if dial and dial.option in options else ""
        seeds.setdefault(f"{spec.method}{turned}", []).append(str(spec.seed))
    named = "; ".join(f"{name}, seed {' '.join(found)}" for name, found in seeds.items())
    return [
        f"left out, as the time was over: {len(specs)} of {runs} runs ({named}). The same command "
        "continues them."
    ]


def _grid(
    methods: list[str], base: dict[str, Any], profile: str, seeds: int, *, front: bool = False
) -> dict[str, Any]:
    """Return every method with every seed, or every value of its dial.

    The split follows the seed.
    """
    from shasam.registry import lookup

    runs: list[dict[str, Any]] = []
    for asked in methods:
        name, _, encoder = asked.partition("@")
        run = {"method": name, **({"model": {"encoder": encoder}} if encoder else {})}
        dial = lookup("method", name).dial if front else None
        if dial is None:
            runs.append(run)
        else:
            runs += [run | {"options": {dial.option: value}} for value in dial.values]
    grid = {"seed": list(range(seeds)), "data.seed": "same as seed"}
    return {"profile": profile, "base": base, "grid": grid, "runs": runs}


def _with_starting_points(grid: dict[str, Any], base: dict[str, Any]) -> list[str]:
    """Lay the network for own images below each run that can take it; returns what to say."""
    from shasam.spec.layers import full_keys, lay, starting_point

    said, without, runs = [], [], []
    count = len(grid["runs"]) * len(grid["grid"]["seed"])
    for run in grid["runs"]:
        start = starting_point(lay(base, run), run["method"], grid["profile"], runs=count)
        runs.append(lay(lay(start.layer, full_keys(base)), full_keys(run)))
        said += [start.line] if start.line else []
        without += [] if start.layer else [run["method"]]
    said = list(dict.fromkeys(said))
    if len(without) < len(runs):
        grid["runs"], grid["base"] = runs, {}
        if without:
            said.append(f"with their own networks: {', '.join(without)}")
    return said


def _show(
    done: list[Path],
    page: Path,
    baseline: str | None,
    limits: Sequence[Limit],
    thumbnails: bool,
    console: Screen,
) -> None:
    """Show tables and the advice on the screen, as Markdown, and on the page."""
    from shasam.files import write_atomic
    from shasam.metrics import catalogue
    from shasam.output import markdown_text
    from shasam.report import rows_of, write_report
    from shasam.report.advice import named_baseline, recommendations
    from shasam.report.comparison import areas_in_words, fronts_of_runs
    from shasam.report.run_tables import as_markdown, rows_by_attribute
    from shasam.report.runs import opened_runs
    from shasam.runs.directory import RunDirectory
    from shasam.runs.machine import computed_with

    rows = rows_of(done, list(catalogue.shown("screen")))
    opened = opened_runs(done)
    fronts = fronts_of_runs(opened)
    _print_tables(rows, fronts, console)
    of_each = rows_by_attribute(done, list(catalogue.shown("screen")))
    for name, own in of_each.items():
        _wide(console).print(_quality(own, f"by {name}"))
    if settings := computed_with([RunDirectory(path).provenance() for path in done]):
        console.print(settings)
    text = page.with_suffix(".md")
    if baseline is not None:
        try:
            named_baseline([run.method for run in opened], baseline)
        except SpecError:
            console.print(f"no run of the baseline {baseline} has come to its end")
            baseline = None
    advice = recommendations(opened, baseline, limits)
    for line in advice:
        console.print(line)
    said = map(markdown_text, [*areas_in_words(fronts), *advice])
    tables = [as_markdown(rows).rstrip()]
    tables += [
        f"By {markdown_text(n)}:\n\n{as_markdown(own).rstrip()}" for n, own in of_each.items()
    ]
    write_atomic(text, "\n\n".join([*tables, *said]) + "\n")
    figures = page.parent / "figures"
    write_report(
        done,
        page,
        figures_dir=figures,
        baseline=baseline,
        thumbnails=thumbnails,
        limits=limits,
        fronts=fronts,
    )
    for kind, place in (("page", page), ("table", text), ("figures", figures)):
        console.print(f"{kind:11s}{place}", soft_wrap=True)


def _print_tables(
    rows: Sequence[ResultRow], fronts: Mapping[str, Mapping[str, ModelFront]], console: Screen
) -> None:
    """Print how good each method is, and what a run of it took."""
    from rich import box
    from rich.table import Table

    from shasam.report.comparison import AREA

    cost = Table(title="what a run took", box=box.SIMPLE)
    for column in ("method", "seeds", "minutes", "views", "parameters"):
        cost.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        cost.add_row(row.method, str(row.seeds), *(row.cost.words() if row.cost else ()))
    wide = _wide(console)
    wide.print(_quality(rows, "test split", fronts))
    if any(fronts.values()):
        wide.print(f"area: {AREA}", soft_wrap=True)
    wide.print(cost)


def _quality(
    rows: Sequence[ResultRow],
    what: str,
    fronts: Mapping[str, Mapping[str, ModelFront]] | None = None,
) -> Table:
    """Return the metrics of each method, and the area under its front where there is one."""
    from rich import box
    from rich.table import Table

    from shasam.metrics import catalogue
    from shasam.report.run_tables import plain
    from shasam.report.verdict import percent

    shown, areas = catalogue.shown("screen"), any((fronts or {}).values())
    table = Table(title=f"{what}, %: mean ± standard deviation over seeds", box=box.SIMPLE)
    for column in ("method", *(m.heading for m in shown.values()), *(["area"] if areas else [])):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        cells = [plain(row.cells[m], "±") for m in shown]
        if fronts is not None and areas:
            front = fronts[row.setting].get(row.method)
            cells.append("–" if front is None else percent(front.area[0]))
        table.add_row(row.name, *cells)
    return table


def _wide(console: Screen) -> Screen:
    """Keep numbers whole: a number that is cut off is worse than a wrap."""
    from shasam.output import Screen

    return Screen(width=max(console.width, 132))
