"""``shasam reproduce``: the tables and figures of the paper, its numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shasam.commands.flags import HowFlags
from shasam.errors import SpecError
from shasam.runs.machine import LOCALLY

Comma = Annotated[str | None, Parameter(negative=())]
PROFILE, SEEDS = "cpu", 3  # where nothing else is said


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
    seeds: int | None = None,
    profile: Literal["paper", "cpu", "quick", "short", "frozen", "smoke"] | None = None,
    out: Path = Path("runs/reproduce"),
    to: Path = Path("reproduced"),
    from_records: Path | None = None,
    keep: Path | None = None,
    how: HowFlags = LOCALLY,
    dry: Annotated[bool, Parameter(negative=())] = False,
    show: Annotated[bool, Parameter(negative=())] = False,
    hours: Annotated[bool, Parameter(negative=())] = False,
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
        Allow missing images (implied by --from-records).
    data
        real for the paper's data, faces for the drawn faces of the package.
    rows
        Parts of the table with commas between them, such as resnet,vit; all by default.
    settings
        Columns with commas between them, such as a/m,a/y; all by default.
    seeds
        Each cell is run with the seeds 0, 1, ...; splits that are drawn follow the seed. 3 by
        default, or as many as the records have.
    profile
        Starting point of every run: paper for its settings, cpu (the default) for minutes a run,
        short for less than one, frozen for the rows on vectors of a pretrained network
        (--features). From records, that of the records.
    out
        Folder in which run directories are made.
    to
        Where the artefact is written: Markdown, LaTeX, CSV, SVG and, with the extra png, PNG.
    from_records
        Fill the artefact from the records of an experiment, without training.
    keep
        Add the records of finished runs to this experiment; runs that it holds already, perhaps of
        another machine, are not done again.
    dry
        Write the artefact from what is done already and list what is missing; run nothing.
    show
        Print the declaration of the artefact, to copy and change.
    hours
        Measure a few steps on this machine, and list how long the runs of each artefact take.
    """
    from shasam.output import emit, say
    from shasam.reproduce import make
    from shasam.reproduce.artefact import Artefact, DataLocation, declaration, place_of
    from shasam.reproduce.artefact import artefact as declared
    from shasam.reproduce.filling import RecordedRequest, made_with

    if artefact is None:
        make.show_list(profile or PROFILE, seeds or SEEDS, hours)
        return
    if show:
        emit(declaration(artefact))
        return
    name, faces = artefact, data == "faces"

    def declared_for(profile: str) -> Artefact:
        return declared(name, profile=profile, on_faces=faces).only(_words(rows), _words(settings))

    roots = {"celeba": celeba, "utkface": utkface}
    if from_records is not None:  # the folders are then only names
        roots = {source: root or Path(source) for source, root in roots.items()}

    def lies_in(one: Artefact, part: bool, vectors: bool = False) -> DataLocation:
        named = features or (Path("vectors.parquet") if vectors else None)
        return place_of(one, **roots, features=named, faces=faces, part=part)

    kind = declared(name, profile=profile or PROFILE, on_faces=faces).kind
    if kind == "objectives":
        written = make.objectives_table(to)
    elif kind == "scenes":
        from shasam.commands.mine import draw_scenes

        draw_scenes(to / "scenes", "all", k=10, seed=0)
        return
    elif kind == "cost":
        chosen = declared_for(profile or PROFILE)
        place = lies_in(chosen, allow_missing)
        written = make.cost_table(chosen, place, profile or PROFILE, to, from_records)
    else:
        how_made = RecordedRequest(profile or PROFILE, allow_missing, seeds or SEEDS)
        if from_records is not None:
            how_made = made_with(from_records, declared_for, lies_in, profile)
        else:
            _check_vectors(profile, features)
        chosen = declared_for(how_made.profile)
        written = make.table(
            chosen,
            lies_in(chosen, how_made.part, how_made.vectors),
            how_made.profile,
            seeds or how_made.seeds,
            to,
            make.MakeOptions(out, how, dry),
            make.RecordFolders(from_records, keep),
        )
    for path in written:
        say(str(path))


def _check_vectors(profile: str | None, features: Path | None) -> None:
    if profile == "frozen" and features is None:
        raise SpecError(
            "the profile frozen is for vectors of a pretrained network: write them with shasam "
            "embed --encoder efficientnet-lite0 (or onnx:FILE), and give --features FILE"
        )


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",")]
