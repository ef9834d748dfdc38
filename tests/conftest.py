"""Without the extra [torch] the tests that need it are skipped, and the summary counts them.

A file is skipped where importing it asks for a module of the extra, a test where it ends with such
a request. Neither holds for the tests in ``CORE``: what they test must work without torch. A test
that needs torch in another process is marked ``@pytest.mark.needs_torch``. Where torch is installed
nothing is skipped by this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from shasam.extras import MODULES

# `shasam train` leaves a number that is set as it is; otherwise the load of the machine decides
# it, and the tests of one process would change each other's
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))

REASON = "needs shasam[torch], which is not installed"
CORE = {
    "metrics",
    "report",
    "test_extras.py",
    "test_structure.py",
    "test_table_files.py",
    "test_packaging.py",
}


def skip_if_torch_is_missing(error: BaseException | None, path: Path) -> None:
    """Skip where the error says that a module of the extra is not installed."""
    name = (getattr(error, "name", None) or "") if isinstance(error, ModuleNotFoundError) else ""
    wanted = name.split(".")[0]
    core = CORE & {path.name, path.parent.name}
    if wanted in MODULES["torch"] and find_spec(wanted) is None and not core:
        pytest.skip(REASON, allow_module_level=True)


class TestFile(pytest.Module):
    def collect(self):
        try:
            return super().collect()
        except self.CollectError as error:
            skip_if_torch_is_missing(error.__cause__, self.path)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return TestFile.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except ModuleNotFoundError as error:
        skip_if_torch_is_missing(error, item.path)
        raise


pytest_runtest_setup = pytest_runtest_call  # fixtures may need it too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("needs_torch"):
                item.add_marker(pytest.mark.skip(reason=REASON))
