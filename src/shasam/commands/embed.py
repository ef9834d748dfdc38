"""``shasam embed``: vectors of images from a pretrained encoder or a trained run, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shasam.commands.flags import (
    NO_MODEL,
    NO_SOURCE,
    ModelFlags,
    SetFlag,
    SourceFlags,
    given,
    layer,
)
from shasam.errors import SpecError


def embed(
    *,
    data: SourceFlags = NO_SOURCE,
    model: ModelFlags = NO_MODEL,
    set_: SetFlag = None,
    out: Path = Path("embeddings.parquet"),
    batch: int | None = None,
    device: Literal["cpu", "cuda", "mps"] = "cpu",
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Write embeddings of images and their attributes to a table.

    The table has id, path, every attribute of the data and the vector, in the column "embedding".
    A command that was stopped goes on where it was.

    Parameters
    ----------
    out
        The Parquet file to write.
    batch
        Images that are computed together: 16 on a CPU, whose cache they fit in, else 256.
    device
        Device to compute on.
    quiet
        Print no progress.
    """
    from shasam.files import check_writable
    from shasam.output import say, shown_progress
    from shasam.pipeline.embedding import by_name, of_run
    from shasam.pipeline.embedding import embed as compute
    from shasam.spec import resolve

    batch = (16 if device == "cpu" else 256) if batch is None else batch
    if batch < 1:
        raise SpecError(f"--batch must be at least 1; got {batch}")
    check_writable(out)
    asked = given(model)
    if "encoder" not in asked:
        raise SpecError(
            "name an encoder, such as --encoder efficientnet-lite0, or a run directory: "
            "--encoder runs/shasam-0123456789ab"
        )
    if (Path(asked["encoder"]) / "spec.yaml").is_file():
        embedder = of_run(Path(asked["encoder"]), device)
        flags = layer(data, set_=set_, method="ce")
        spec = resolve(flags).data
        if "size" in given(data) and spec.size != embedder.size:
            raise SpecError(f"this run was trained on {embedder.size} px; leave out --size")
    else:
        full = resolve(layer(data, model, set_=set_, method="ce"))
        spec = full.data
        embedder = by_name(full.model, spec.size, device)
    with shown_progress(unit="images") as named:
        told = None if quiet else named(f"embedding {spec.name} at {embedder.size} px")
        done = compute(spec, embedder, out, batch=batch, progress=told)
    left = f", {done.bad} images could not be read" if done.bad else ""
    rate = f", {done.computed / done.seconds:.0f} images per second" if done.computed else ""
    there = "" if done.computed else " is done already:"
    say(f"{out}{there} {done.rows:,} embeddings of {done.width} numbers{rate}{left}")
