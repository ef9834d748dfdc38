"""``shasam reproduce``: the tables and figures of the paper, its numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shasam.commands.flags import HowFlags
from shasam.runs.how import LOCALLY

Comma = Annotated[str | None, Parameter(negative=())]


def reproduce(
    artefact: str | None = None,
    /,
    *,
    celeba: Path | None = None,
    utkface: Path | None = None,
    features: Path | None = None,
    allow_missing: Annotated[bool, Parameter(negative=())] = False,
    data: Literal["real", "faces"] = "real",
    rows: Comma = None,
    settings: Comma = None,
    seeds: int = 3,
    profile: Literal["paper", "cpu", "quick", "short", "smoke"] = "cpu",
    out: Path = Path("runs/reproduce"),
    to: Path = Path("reproduced"),
    from_records: Path | None = None,
    keep: Path | None = None,
    how: HowFlags = LOCALLY,
    dry: Annotated[bool, Parameter(negative=())] = False,
    show: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Make a table or figure of the paper, its numbers beside ours.

    Runs what is missing; runs that are done are skipped, so the same command goes on where it was
    stopped. The files are written anew after every run. Without a name it lists what there is.

    Parameters
    ----------
    artefact
        table1, table2, utkface, table3, scenes, convergence, budget, cost, fairvit, utkface-vit,
        utkface-age, std; or a YAML file of your own, such as a changed copy of one (see --show).
    celeba
        Folder of CelebA: img_align_celeba, list_attr_celeba.txt, list_eval_partition.txt.
    utkface
        Folder of UTKFace's aligned and cropped faces.
    features
        Embeddings of the images that `shasam embed` wrote, instead of the images; rows that need
        images stay empty.
    allow_missing
        The folder of images has only some of them.
    data
        real for the paper's data, faces for the drawn faces of the package.
    rows
        Parts of the table with commas between them, such as resnet,vit; all by default.
    settings
        Columns with commas between them, such as a/m,a/y; all by default.
    seeds
        Each cell is run with the seeds 0, 1, ...; splits that are drawn follow the seed.
    profile
        Starting point of every run: paper for its settings, cpu for minutes a run, short for less
        than one.
    out
        Folder in which run directories are made.
    to
        Where the artefact is written: Markdown, LaTeX, CSV, SVG and, with the extra png, PNG.
    from_records
        Fill the artefact from the records of an experiment, without training.
    keep
        Add the records of finished runs to this experiment.
    dry
        Write the artefact from what is done already and list what is missing; run nothing.
    show
        Print the declaration of the artefact, to copy and change.
    """
    from shasam.output.terminal import emit, say
    from shasam.reproduce import make
    from shasam.reproduce.artefact import artefact as declared
    from shasam.reproduce.artefact import declaration
    from shasam.reproduce.cells import place_of
    from shasam.reproduce.listing import show_list

    if artefact is None:
        show_list(profile)
        return
    if show:
        emit(declaration(artefact))
        return
    chosen = declared(artefact, profile=profile, on_faces=data == "faces")
    chosen = chosen.only(_words(rows), _words(settings))
    if chosen.kind == "objectives":
        written = make.objectives_table(to)
    elif chosen.kind == "scenes":
        from shasam.commands.mine import draw_scenes

        draw_scenes(to / "scenes", "all", k=10, seed=0)
        return
    else:
        unseen = from_records is not None  # the folder is then only a name
        place = place_of(
            chosen,
            celeba=celeba or (Path("celeba") if unseen else None),
            utkface=utkface or (Path("utkface") if unseen else None),
            features=features,
            faces=data == "faces",
            part=allow_missing,
        )
        if chosen.kind == "cost":
            written = make.cost_table(chosen, place, profile, to, from_records)
        else:
            doing = make.Doing(out, how, dry)
            sources = make.Sources(from_records, keep)
            written = make.table(chosen, place, profile, seeds, to, doing, sources)
    for path in written:
        say(str(path))


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",")]
