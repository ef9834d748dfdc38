"""Every command meets generated hostile folders; a new command is in the list, or this fails."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.fuzz.folders import READS, READS_NONE, Case, commands, make_world
from tests.reliability.measured import measured

FEW, MANY = 1, 60  # cases of each command, in the fast tier and in the slow one


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    place = tmp_path_factory.mktemp("folders")
    patch.setenv("SHASAM_CACHE", str(place / "cache"))
    yield make_world(place / "world")
    patch.undo()


def test_every_command_is_attacked_or_reads_nothing() -> None:
    assert commands() == READS.keys() | READS_NONE


def attack(world: Path, command: str, seeds: range) -> list[str]:
    """What went wrong; each case in a process of its own, which may take a minute."""
    wrong = []
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="shasam-case-") as place:
            case = Case(world, Path(place), command, str(seed))
            outcome = measured(case.run, limit=180)
            if outcome.status in ("traceback", "killed"):
                wrong.append(f"seed {seed}: {case}: {outcome.message}")
    return wrong


@pytest.mark.parametrize("command", READS)
def test_generated_folders_end_every_command_in_order(world, command) -> None:
    assert attack(world, command, range(FEW)) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", READS)
def test_many_generated_folders_end_every_command_in_order(world, command) -> None:
    assert attack(world, command, range(FEW, FEW + MANY)) == []
