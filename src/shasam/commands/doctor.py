"""``shasam doctor``: what is installed, where things are, and whether it works; for bug reports."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

_FOR_DEVELOPERS = {"test", "test-torch", "lint", "bench", "release"}
_OWN = ("numpy", "pyarrow", "pillow", "pydantic", "cyclopts", "rich")


def doctor(*, self_test: Annotated[bool, Parameter(negative="--no-self-test")] = True) -> None:
    """Say what is installed and whether it works.

    Versions, device, cache folder, optional parts, and a self-test of some seconds: what a bug
    report needs. Home folders and user names are left out. Exits with 1 if something is broken.

    Parameters
    ----------
    self_test
        Audit, mine and train on a few drawn faces in a temporary folder.
    """
    from shasam.output import say

    broken = []
    for name, words, ok in _findings(self_test):
        say(private(f"{name:12} {words}"))
        if not ok:
            broken.append(name.strip())
    if broken:
        say(f"broken: {', '.join(broken)}")
        sys.exit(1)
    say("all well")


Finding = tuple[str, str, bool]  # name, words, whether it is as it should be


def _findings(self_test: bool) -> Iterator[Finding]:
    import shasam

    yield "shasam", f"{shasam.__version__}, Python {platform.python_version()}", True
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}", True
    yield "packages", ", ".join(f"{name} {_version(name)}" for name in _OWN), True
    yield from _torch()
    yield _cache()
    for extra, missing, found in extras():
        words = f"{', '.join(found)}" if not missing else f"no {', '.join(missing)}"
        advice = f": pip install 'shasam[{extra}]'" if missing else ""
        yield f"[{extra}]", f"{words}{advice}", True
    if self_test:
        yield from _self_test()


def _torch() -> Iterator[Finding]:
    if find_spec("torch") is None:
        yield "torch", "not installed: pip install 'shasam[torch]' adds training and mining", True
        return
    try:
        import torch
    except Exception as error:  # a damaged install fails in any way
        yield "torch", f"cannot be imported: {error}"[:300], False
        return
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [
            f"cuda ({torch.cuda.get_device_name(k)})" for k in range(torch.cuda.device_count())
        ]
    if torch.backends.mps.is_available():
        devices.append("mps")
    yield "torch", f"{torch.__version__}, devices: {', '.join(devices)}", True
    threads = f"{torch.get_num_threads()} threads, {os.cpu_count()} cores"
    yield "threads", f"{threads}, {torch.backends.cpu.get_cpu_capability()}", True


def _cache() -> Finding:
    from shasam.errors import FileError
    from shasam.files import write_atomic
    from shasam.memory import readable
    from shasam.spec.fields import DataSpec

    folder = DataSpec.model_validate({}).store_root()
    probe = folder / ".doctor"
    try:
        write_atomic(probe, b"")
        probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
    except (FileError, OSError) as error:
        return (
            "cache",
            f"{folder} cannot be used: {error}; set SHASAM_CACHE to another folder",
            False,
        )
    words = f"{folder}, writable, {readable(free)} free"
    if free < 1 << 30:
        return "cache", f"{words}: less than 1 GiB; set SHASAM_CACHE to another folder", False
    return "cache", words, True


def extras() -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each extra of the installed package: what it lacks, and what there is of it."""
    try:
        needs = metadata.requires("shasam") or []
    except metadata.PackageNotFoundError:
        return  # run from a folder that was never installed
    names: dict[str, list[str]] = {}
    for text in needs:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", text)
        package = re.match(r"[\w.-]+", text)
        if extra is None or package is None or extra[1] in _FOR_DEVELOPERS:
            continue
        names.setdefault(extra[1], [])
        if package[0] != "shasam":
            names[extra[1]].append(package[0])
    for extra_name, packages in names.items():
        missing = [name for name in packages if not _version(name)]
        found = [f"{name} {_version(name)}" for name in packages if _version(name)]
        yield extra_name, missing, found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _self_test() -> Iterator[Finding]:
    steps: list[tuple[str, Callable[[Path], str]]] = [("audit", _try_audit)]
    if find_spec("torch") is not None:
        steps += [("mine", _try_mining), ("train", _try_training)]
    with tempfile.TemporaryDirectory(prefix="shasam-doctor-") as folder:
        for name, work in steps:
            began = time.perf_counter()
            try:
                words = work(Path(folder))
            except Exception as error:  # whatever is wrong is what the report needs
                reason = " ".join(str(error).split())[:300]
                yield f"test {name}", f"FAILED: {type(error).__name__}: {reason}", False
                continue
            yield f"test {name}", f"{words}, {time.perf_counter() - began:.1f} s", True


def _try_audit(folder: Path) -> str:
    import numpy as np

    from shasam.metrics import evaluate

    label, group = np.tile([0, 0, 1, 1], 50), np.tile([0, 1], 100)
    guess = np.where((np.arange(200) % 8 == 1), 1 - label, label)  # one group has the errors
    gap = evaluate(label, guess, group)["accuracy_gap"].value
    if not abs(gap - 0.25) < 1e-12:
        raise ValueError(f"a gap of 0.25 was measured as {gap}")
    return "a known gap is measured"


def _try_mining(folder: Path) -> str:
    import torch

    from shasam.mining import ShasamMiner

    z = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    t, s = torch.arange(200) % 2, torch.arange(200) // 2 % 2
    found = ShasamMiner().mine(z, t, s, 8)
    return f"{len(found.anchors)} anchors, positives and negatives"


def _try_training(folder: Path) -> str:
    import warnings

    from shasam.errors import ShasamWarning
    from shasam.pipeline.execute import train

    data = {"name": "faces", "n": 80, "holdout_per_cell": 10, "store": str(folder / "cache")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShasamWarning)  # in four steps nothing is learnt
        run = train(data=data, profile="smoke", overrides={"train.steps": 4},
                    out=folder / "runs", quiet=True, device="cpu")  # fmt: skip
    accuracy = run.metrics()["test"]["accuracy"]["value"]
    return f"4 steps, accuracy {accuracy:.0%} on 40 faces"


def private(text: str) -> str:
    """Leave out the home folder and the name of the user, wherever they stand in a path."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    user = next((os.environ[k] for k in ("USER", "LOGNAME", "USERNAME") if os.environ.get(k)), "")
    return re.sub(rf"(?<=[/\\]){re.escape(user)}(?![\w.-])", "USER", text) if user else text
