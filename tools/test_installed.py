"""Run the tests against the installed package, not the checkout: ``make test-pythons``.

Builds the wheel and the sdist. For each case a clean environment is made outside the checkout, the
package is installed into it, and the tests that the sdist carries are run there; the source tree
is not in reach. A case without torch is the plain install: the tests that need torch are skipped,
and its line in the table says so.

Cases: the wheel on every Python that is found (pyenv, then PATH); on the Python that runs this
file also the sdist, as the plain install: the wheel is built from the sdist, so that what needs
torch has been seen already. ``--newest`` leaves the constraints out but for torch: the newest
versions that the declared ranges allow. ``--oldest`` is the plain install with the oldest of them,
on the oldest Python that is found.

torch is installed where pip would take a CPU build of the constrained version, or everywhere with
``--torch`` (on Linux, PyPI's builds are for CUDA: about 5 GB for each Python).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
FULL, PLAIN = "torch,jpeg,test,test-torch", "test"


@dataclass(frozen=True)
class Case:
    version: str
    python: str
    package: Path  # wheel or sdist
    plain: bool = False  # without torch, whatever can be had


class StepFailed(Exception):
    """A command that must succeed before the tests can run; its words and output."""


def version_of(python: str) -> str:
    """'3.12', or nothing where it does not start (a pyenv shim that is not switched on)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def found_pythons() -> dict[str, str]:
    """version -> interpreter, for the supported versions that this machine has."""
    candidates = [sys.executable]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates += [str(path) for path in sorted(pyenv.glob("3.*/bin/python"), reverse=True)]
    candidates += [path for v in SUPPORTED if (path := shutil.which(f"python{v}"))]
    found: dict[str, str] = {}
    for path in candidates:
        version = version_of(path)
        if version in SUPPORTED:
            found.setdefault(version, path)
    return dict(sorted(found.items(), key=lambda item: SUPPORTED.index(item[0])))


def build(out: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel made from it."""
    run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], cwd=out.parent)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def run(words: list[str], cwd: Path) -> None:
    """Quiet unless it fails."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StepFailed(f"{' '.join(words)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def has_cpu_torch(python: Path, torch: str) -> bool:
    """Whether pip would take a build of torch that does not bring CUDA packages."""
    words = [str(python), "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        done = subprocess.run(
            [*words, "--ignore-installed", "--report", report.name, torch],
            capture_output=True,
            check=False,
        )
        if done.returncode:
            return False
        metadata = json.load(report)["install"][0]["metadata"]
    needed = " ".join(metadata.get("requires_dist", []))
    return "+cpu" in metadata["version"] or not re.search(r"\b(nvidia|cuda)", needed)


def tests_of(sdist: Path, into: Path) -> Path:
    """The tests as the sdist carries them, without the source beside them."""
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    folder = next(into.iterdir())
    shutil.rmtree(folder / "src")
    return folder


def oldest(wheel: Path) -> str:
    """Constraints that hold every dependency of the plain install at the least that is declared."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    found = re.findall(r"^Requires-Dist: ([\w.-]+)>=([\w.]+)$", metadata, re.M)
    return "\n".join(f"{package}=={version}" for package, version in found)


def constraints_of(case: Case, options: argparse.Namespace) -> tuple[str, str]:
    """The constraints of a case, and the one of torch."""
    tested = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    torch = next(line for line in tested.splitlines() if line.startswith("torch=="))
    if options.oldest:
        return oldest(case.package), torch
    return (torch if options.newest else tested), torch


def test(case: Case, work: Path, sdist: Path, options: argparse.Namespace) -> tuple[str, bool]:
    """Install and run one case; the line of the table and whether it is green."""
    run([case.python, "-m", "venv", str(work / "env")], cwd=work)
    python = work / "env" / "bin" / "python"
    run([str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip"], cwd=work)
    constraints, torch = constraints_of(case, options)
    (work / "constraints.txt").write_text(constraints, encoding="utf-8")
    own_index = bool(os.environ.get("TORCH_CPU"))  # as in the Makefile
    full = not case.plain and (options.torch or own_index or has_cpu_torch(python, torch))
    if full and own_index:  # torch alone: a second index could answer for any name
        words = ["install", "-q", "--no-deps", "--index-url", TORCH_INDEX, torch]
        run([str(python), "-m", "pip", *words], cwd=work)
    wanted = f"shasam[{FULL if full else PLAIN}] @ {case.package.as_uri()}"
    run([str(python), "-m", "pip", "install", "-q", wanted, "-c", "constraints.txt"], cwd=work)
    run([str(python), "-m", "pip", "check"], cwd=work)
    folder = tests_of(sdist, work / "sdist")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "SHASAM_CACHE": str(work / "cache")}
    words = [str(python), "-m", "pytest", "-rs", "--junitxml", str(work / "result.xml")]
    green = not subprocess.run(
        [*words, *options.pytest], cwd=folder, env=environment, check=False
    ).returncode
    kind = "sdist" if case.package.name.endswith(".gz") else "wheel"
    with_torch = "with torch" if full else "without torch"
    word = "ok" if green else "FAILED"
    return f"{case.version:5} {kind:6} {with_torch:14} {word:7} {counted(work)}", green


def counted(work: Path) -> str:
    """'601 passed, 2 failed, 33 skipped', from the file that pytest wrote."""
    suite = ElementTree.parse(work / "result.xml").find("testsuite")
    assert suite is not None
    total, skipped, failed, errors = (
        int(suite.get(key, 0)) for key in ("tests", "skipped", "failures", "errors")
    )
    passed = total - skipped - failed - errors
    return f"{passed} passed, {failed + errors} failed, {skipped} skipped"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="only this version, such as 3.12")
    parser.add_argument("--torch", action="store_true", help="install torch everywhere")
    parser.add_argument("--newest", action="store_true", help="newest versions that are allowed")
    parser.add_argument("--oldest", action="store_true", help="oldest versions, without torch")
    parser.add_argument("--wheel-only", action="store_true", help="not the sdist")
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it")
    parser.add_argument("pytest", nargs="*", default=["-n", "2", "--dist", "worksteal"])
    options = parser.parse_args()
    root = options.keep or Path(tempfile.mkdtemp(prefix="shasam-installed-"))
    root.mkdir(parents=True, exist_ok=True)
    if ROOT in (root.resolve(), *root.resolve().parents):
        raise SystemExit("--keep must be outside the checkout")
    try:
        wheel, sdist = build(Path(tempfile.mkdtemp(prefix="dist-", dir=root)))
    except StepFailed as error:
        raise SystemExit(str(error)) from None
    pythons = found_pythons()
    cases = [
        Case(version, python, wheel)
        for version, python in pythons.items()
        if not options.python or version in options.python
    ]
    if not options.wheel_only and any(case.version == HERE for case in cases):
        cases.append(Case(HERE, pythons[HERE], sdist, plain=True))
    if options.oldest:
        cases = [replace(cases[0], plain=True)]
    missing = [v for v in SUPPORTED if v not in pythons]
    lines, green = [], True
    for case in cases:
        work = Path(tempfile.mkdtemp(prefix=f"py{case.version}-", dir=root))
        print(f"--- Python {case.version}, {case.package.name}", flush=True)
        try:
            line, ok = test(case, work, sdist, options)
        except StepFailed as error:
            print(error, flush=True)
            line, ok = f"{case.version:5} {case.package.name}: could not be installed", False
        lines.append(line)
        green &= ok
        if not options.keep:
            shutil.rmtree(work)
    if not options.keep:
        shutil.rmtree(root)
    print("\n".join(lines))
    if missing:
        print(f"not tried, because this machine has no such Python: {', '.join(missing)}")
    sys.exit(0 if green and cases else 1)


if __name__ == "__main__":
    main()
