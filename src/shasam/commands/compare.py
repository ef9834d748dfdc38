"""``shasam compare``: several methods on the same data, as one table and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter


def compare(
    *,
    methods: str = "all",
    data: str = "faces",
    root: Path | None = None,
    csv: Path | None = None,
    setting: str | None = None,
    target: str | None = None,
    sensitive: str | None = None,
    alpha: float | None = None,
    profile: Literal["paper", "cpu", "smoke"] = "cpu",
    steps: int | None = None,
    seeds: int = 3,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path = Path("runs"),
    page: Path = Path("comparison.html"),
    jobs: int = 1,
    threads: int | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
) -> None:
    """Train methods on the same splits, skip what is done, and put them side by side.

    Parameters
    ----------
    methods
        Names with commas between them, or all.
    data
        The source: faces, utkface, celeba, manifest, ...
    root
        The folder of the images.
    csv
        The table of --data manifest.
    setting
        A named pair of target and sensitive attribute.
    target
        What is predicted.
    sensitive
        What must not matter.
    alpha
        How biased the training split is.
    profile
        Starting point of every run.
    steps
        Length of the learning stage, the same for all.
    seeds
        Each method is trained with the seeds 0, 1, ...; the split follows the seed.
    set_
        Any key of the specification, for all runs.
    out
        The folder that holds run directories.
    page
        Where the comparison page is written; the figures go beside it as SVG.
    jobs
        Runs at the same time.
    threads
        Processor threads of each run; by default the cores are shared out.
    device
        Where to compute.
    """
    from rich.console import Console
    from rich.table import Table

    from shasam.config import merge, parse_set
    from shasam.registry import lookup, names
    from shasam.report import write_report
    from shasam.runs.comparison import COLUMNS, compared
    from shasam.runs.grid import expand
    from shasam.runs.sweep import says
    from shasam.runs.sweep import sweep as carry_out

    chosen = names("method") if methods == "all" else [m.strip() for m in methods.split(",")]
    given = {
        "name": data,
        "root": None if root is None else str(root),
        "csv": None if csv is None else str(csv),
        "setting": setting,
        "target": target,
        "sensitive": sensitive,
        "alpha": alpha,
    }
    base: dict[str, Any] = {"data": {k: v for k, v in given.items() if v is not None}}
    if steps is not None:
        base["train"] = {"steps": steps}
    base = merge(base, parse_set(set_ or []))
    runs = []
    for name in chosen:
        needs = lookup("method", name).needs_encoder
        runs.append({"method": name, **({"model": {"encoder": needs}} if needs else {})})
    specs = expand(
        {
            "profile": profile,
            "base": base,
            "grid": {"seed": list(range(seeds)), "data.seed": "same as seed"},
            "runs": runs,
        }
    )
    console = Console()
    console.print(f"{len(specs)} runs in {out}")
    outcomes = carry_out(
        specs,
        out,
        jobs=jobs,
        threads=threads,
        device=device,
        tell=lambda outcome: console.print(says(outcome), highlight=False),
    )
    done = [outcome.path for outcome in outcomes if outcome.status != "failed"]
    if not done:
        raise SystemExit(1)
    table = Table(title=f"{data}: mean ± standard deviation over seeds, %")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in compared(done):
        table.add_row(*row)
    console.print(table)
    figures = page.parent / "figures"
    write_report(done, page, figures_dir=figures)
    console.print(f"page       {page}\nfigures    {figures}")
    if len(done) < len(outcomes):
        raise SystemExit(1)
