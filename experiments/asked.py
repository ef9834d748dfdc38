"""Write into records what their runs were asked for with, found by the specification.

    python -m experiments.asked short experiments/tables-celeba

`shasam reproduce --keep` writes it by itself. This is for records of before, and for records whose
rows have been declared anew: a run that no artefact asks for any more loses the note.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shasam.reproduce.artefact import NAMES, artefact, cells, identity, place_of
from shasam.runs.records import note_asked, read_records
from shasam.spec import stored_spec


def main(profile: str, experiment: Path) -> None:
    records = read_records(experiment)
    names = {identity(stored_spec(record.spec)): record.run for record in records}
    data = {record.spec["data"]["name"] for record in records}
    part = any(record.spec["data"].get("allow_missing") for record in records)
    seeds = 1 + max(record.seed for record in records)
    found: dict[str, set[str]] = {}
    for name in NAMES:
        one = artefact(name, profile=profile)
        if one.kind != "table" or one.data not in data:
            continue
        place = place_of(one, celeba=Path("celeba"), utkface=Path("utkface"), part=part)
        for cell in cells(one, place, profile=profile, seeds=seeds)[0]:
            if cell.identity in names:
                found.setdefault(names[cell.identity], set()).add(cell.asked)
    note_asked(experiment, found, anew=True)
    print(f"{len(found)} of {len(records)} runs of {experiment} are those of an artefact")


if __name__ == "__main__":
    for folder in sys.argv[2:]:
        main(sys.argv[1], Path(folder))
