"""Run directories made for the tests of pages and tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.run_files import make_run


@pytest.fixture(scope="session")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="session")
def many_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("many")
    return [
        make_run(root, f"{method}{seed}", method=method, seed=seed, gap=gap, n=800)
        for method, gap in (("ce", 0.8), ("shasam", 0.1))
        for seed in range(3)
    ]
