"""What fuzzing once found stays mended."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.loop import corpus

from shasam.data.decode import BadImage
from shasam.errors import ShasamError

FOUND = [(name, k) for name, inputs in corpus().items() for k in range(len(inputs))]


@pytest.fixture(scope="module")
def named():
    from tests.fuzz.targets import targets

    return targets()


@pytest.mark.parametrize(("name", "k"), FOUND, ids=lambda part: str(part))
def test_what_once_failed_is_a_sentence(named, name: str, k: int) -> None:
    try:
        named[name](corpus()[name][k])
    except (ShasamError, BadImage) as error:
        assert str(error)


def test_every_folder_of_the_corpus_belongs_to_a_target(named) -> None:
    assert {p.name for p in (Path(__file__).parent / "corpus").iterdir()} <= set(named)
