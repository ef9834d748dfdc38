"""Without the extra [torch] the tests that need it are skipped, and the summary counts them.

A whole file is skipped where importing it asks for a module of the extra; a test in another file
carries ``@pytest.mark.needs_torch``. Where torch is installed nothing is skipped by this.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from shasam.extras import MODULES

REASON = "needs shasam[torch], which is not installed"


class TestFile(pytest.Module):
    def collect(self):
        try:
            return super().collect()
        except self.CollectError as error:
            missing = getattr(error.__cause__, "name", None) or ""
            if missing.split(".")[0] in MODULES["torch"]:
                pytest.skip(REASON, allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return TestFile.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("needs_torch"):
                item.add_marker(pytest.mark.skip(reason=REASON))
