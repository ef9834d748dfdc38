"""The contract finds what is broken: at least 95 % of the mutants, and the others are listed."""

from __future__ import annotations

import pytest
from tests.methods.cases import CASES
from tests.methods.mutants import MUTANTS, SURVIVORS, Mutant

from shasam.errors import ContractError
from shasam.testing import check_method


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
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
    assert len(named) == len(MUTANTS) >= 40
    assert set(SURVIVORS) <= named
    assert 1 - len(SURVIVORS) / len(MUTANTS) >= 0.95
