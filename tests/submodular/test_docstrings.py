"""Every public name has a docstring with a formula or a rule and an example that runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import shasam.submodular as package

MODULES = [name for _, name, _ in pkgutil.iter_modules(package.__path__, "shasam.submodular.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("name", [n for n in package.__all__ if n != "Selection"])
def test_every_public_name_has_an_example(name: str) -> None:
    text = getattr(package, name).__doc__
    assert doctest.DocTestParser().get_examples(text), f"{name} has no example"
