"""The contract finds what is broken: at least 95 % of the mutants, and the others are listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.methods import shasam_mutants  # adds its own to MUTANTS
from tests.methods.cases import CASES
from tests.methods.mutants import MUTANTS, Mutant
from tests.methods.mutants import SURVIVORS as OF_RIVALS

from shasam.errors import ContractError
from shasam.testing import check_method

SURVIVORS = {**OF_RIVALS, **shasam_mutants.SURVIVORS}
TIERS = [
    pytest.param(m, id=m.name, marks=pytest.mark.slow)
    if m.base.startswith("shasam") and m.name not in shasam_mutants.QUICK
    else pytest.param(m, id=m.name)
    for m in MUTANTS
]


@pytest.mark.parametrize("mutant", TIERS)
def test_contract_finds_the_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant.replacement is not None:
        monkeypatch.setattr(mutant.module, mutant.attribute, mutant.replacement)
    if mutant.name in SURVIVORS:
        report = check_method(mutant.cls, overfit=False, **CASES[mutant.base])
        assert "objective" in report.checked  # if it is found one day, take it off the list
        return
    with pytest.raises(ContractError):
        check_method(mutant.cls, overfit=False, **CASES[mutant.base])


def test_enough_mutants_are_killed() -> None:
    named = {m.name for m in MUTANTS}
    assert len(named) == len(MUTANTS) >= 120
    assert set(SURVIVORS) <= named
    assert 1 - len(SURVIVORS) / len(MUTANTS) >= 0.95
    found = len(MUTANTS) - len(SURVIVORS)
    told = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert f"`tests/methods` has {len(MUTANTS)} mutants" in told
    assert f"The contract detects {found};" in told
