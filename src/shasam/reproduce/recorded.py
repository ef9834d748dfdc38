"""What the records of an experiment were made with, so that nobody has to say it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shasam.errors import DataError, SpecError
from shasam.reproduce.artefact import Artefact
from shasam.reproduce.cells import Cell, Place, cells
from shasam.reproduce.filled import from_records


@dataclass(frozen=True)
class MadeWith:
    """How the runs of an artefact were asked for."""

    profile: str
    part: bool  # with --allow-missing
    seeds: int


def made_with(
    experiment: Path,
    artefact: Callable[[str], Artefact],
    place: Callable[[Artefact, bool], Place],
    profiles: Sequence[str],
    parts: Sequence[bool],
) -> MadeWith:
    """The profile, and whether images were missing, that most records agree with.

    ``artefact`` is the declaration under a profile, ``place`` its data; ``profiles`` and ``parts``
    are the candidates, one where the user has said it.
    """
    found = from_records(experiment)

    def kept(profile: str, part: bool, seeds: int) -> list[Cell]:
        try:
            one = artefact(profile)
        except SpecError:  # without a column or row that is asked for
            return []
        wanted, _ = cells(one, place(one, part), profile=profile, seeds=seeds)
        return [cell for cell in wanted if cell.identity in found]

    # the first seed is enough to tell them apart
    candidates = [(profile, part) for profile in profiles for part in parts]
    profile, part = max(candidates, key=lambda each: len(kept(each[0], each[1], 1)))
    most = 1 + max((int(run.provenance["seed"]) for run in found.values()), default=0)
    own = kept(profile, part, most)
    if not own:
        raise DataError(
            f"no record of {experiment} is a run of {artefact(profile).name} with the data, "
            f"profile and seeds that were asked for; `shasam records list {experiment}` shows what "
            "it holds"
        )
    return MadeWith(profile, part, 1 + max(cell.seed for cell in own))
