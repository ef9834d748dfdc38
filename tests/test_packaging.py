"""pyproject.toml, constraints.txt, the changelog and the code agree."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.test_extras import names_in
from tools.audit_dependencies import problems

import shasam
from shasam.extras import MODULES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
OPTIONAL = ("export", "hub", "pml", "test-torch")
# extras that make test, lint and docs install
TESTED = ("torch", "jpeg", *OPTIONAL, "test", "lint", "docs")


def applies(requirement: Requirement, python: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"python_version": python})


def declared(python: str) -> list[Requirement]:
    texts = [*PROJECT["dependencies"]]
    for extra in TESTED:
        texts += PROJECT["optional-dependencies"][extra]
    return [r for r in map(Requirement, texts) if applies(r, python) and r.name != "shasam"]


def pinned(python: str) -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins: dict[str, str] = {}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        requirement = Requirement(line)
        if applies(requirement, python):
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", line
            assert canonicalize_name(requirement.name) not in pins, f"{line} is pinned twice"
            pins[canonicalize_name(requirement.name)] = specifier.version
    return pins


def workflows() -> dict[str, str]:
    folder = ROOT / ".github" / "workflows"
    if not folder.is_dir():
        pytest.skip("the sdist has no workflows")
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yml"))}


def test_actions_of_others_are_pinned_by_commit() -> None:
    """A tag or a branch can be moved to other code, also in the job that may publish."""
    for name, text in workflows().items():
        used = re.findall(r"^\s*-? *uses: *(\S+)(.*)$", text, re.M)
        assert used, name
        for action, comment in used:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), f"{name}: {action}"
            assert re.search(r"# v\d", comment), f"{name}: {action} does not say its version"


def test_no_package_can_come_from_two_indexes() -> None:
    """With a second index any name may be answered by either; torch alone has another one."""
    texts = {**workflows(), "Makefile": (ROOT / "Makefile").read_text(encoding="utf-8")}
    texts["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
    texts["tools"] = (ROOT / "tools" / "test_installed.py").read_text(encoding="utf-8")
    for name, text in texts.items():
        assert "extra-index-url" not in text.lower().replace("_", "-"), name
        for line in text.replace("\\\n", " ").splitlines():
            if "--index-url" in line:
                assert "--no-deps" in line and "torch" in line.lower(), f"{name}: {line}"


def test_a_release_is_checked_for_known_vulnerabilities_and_lists_what_was_tested() -> None:
    release = workflows()["release.yml"]
    assert release.index("make audit-dependencies") < release.index("publish:")
    assert "sbom.cdx.json" in release
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = make.split("\naudit-dependencies:")[1].split("\n\n")[0]
    assert "tools/audit_dependencies.py" in recipe


def test_a_package_that_was_not_looked_up_is_not_taken_for_a_safe_one() -> None:
    safe = {"name": "numpy", "version": "2.4.6", "vulns": []}
    ours = {"name": "shasam", "skip_reason": "distribution marked as editable"}
    lost = {"name": "pillow", "skip_reason": "Dependency not found on PyPI"}
    hole = {"id": "CVE-1", "fix_versions": ["3.2"], "aliases": [], "description": ""}
    holed = {"name": "jinja2", "version": "3.1", "vulns": [hole]}
    assert problems({"dependencies": [safe, ours]}) == []
    assert problems({"dependencies": [safe, holed]}) == ["jinja2 3.1: CVE-1, mended in 3.2"]
    (line,) = problems({"dependencies": [safe, ours, lost]})
    assert line.startswith("1 of 3 packages could not be looked up (pillow)")


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned_once_within_its_declared_range(python):
    pins = pinned(python)
    for requirement in declared(python):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} does not allow {version}"


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_that_can_be_installed_on_is_advertised(python):
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    assert python in Requirement(f"x{PROJECT['requires-python']}").specifier


def test_the_core_has_no_torch_and_the_extra_has_the_modules_that_need_names():
    names = {Requirement(text).name for text in PROJECT["optional-dependencies"]["torch"]}
    assert names == {module.replace("_", "-") for module in MODULES["torch"]}
    assert not names & {Requirement(text).name for text in PROJECT["dependencies"]}


def test_nothing_is_imported_that_the_core_or_an_extra_does_not_declare():
    # where the name to import is another one
    module = {"pillow": "PIL", "pyyaml": "yaml", "scikit-learn": "sklearn", "faiss-cpu": "faiss"}
    texts = [*PROJECT["dependencies"]]
    optional = (
        "torch",
        "jpeg",
        "tensorboard",
        "pretrained",
        "hf",
        "timm",
        "png",
        "sklearn",
        "ray",
        "faiss",
        "remote",
        "tune",
        *OPTIONAL,
    )
    for extra in optional:
        texts += PROJECT["optional-dependencies"][extra]
    names = [Requirement(text).name for text in texts]
    brought = {"shasam", *(module.get(name, name.replace("-", "_")) for name in names)}
    imported = {
        name.split(".")[0]
        for path in Path(shasam.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in names_in(node)
    }
    assert imported - set(sys.stdlib_module_names) <= brought


def test_the_version_stands_once_and_the_changelog_begins_with_it():
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = next(line for line in log.splitlines() if line.startswith("## "))
    assert first.split()[1] == shasam.__version__
