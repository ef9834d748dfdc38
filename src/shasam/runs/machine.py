"""What a result was computed with: processor, instruction set, threads, commit, decoder."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import shasam
from shasam.runs.reproducible import INSTRUCTIONS, THREADS, is_reproducible

# keys of `machine()` that change bits, with the words for them
SETTINGS = {
    "cpu": "CPU",
    "instructions": "instruction set of torch",
    "environment": "environment variables",
    "threads": "threads",
    "device": "device",
    "processes": "processes",
    "decoder": "image decoder",
    "commit": "commit of shasam",
}


def machine() -> dict[str, Any]:
    """The part of ``provenance.json`` that says what the bits of a result depend on."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    read = (*INSTRUCTIONS, *THREADS)
    return {
        "cpu": cpu_name(),
        "instructions": capability,
        "environment": {name: os.environ[name] for name in read if name in os.environ},
        "threads": torch.get_num_threads(),
        # a processor without AVX2 computes with less, whatever the variables say
        "reproducible": is_reproducible() and capability == "AVX2",
        "commit": _commit(),
        "decoder": _decoder(),
    }


def cpu_name() -> str:
    """The model of the processor, as far as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def computed_with(provenances: Sequence[Mapping[str, Any]]) -> str:
    """One line for under a table: what the runs were computed with, and what that changes."""
    ways = Counter(_way(p) for p in provenances if p.get("threads") is not None)
    if not ways:
        return ""
    if len(ways) > 1:
        each = "; ".join(f"{count} runs with {way}" for way, count in ways.most_common())
        return f"not all computed alike, which can change decisions: {each}"
    (way,) = ways
    if way.startswith("--reproducible"):
        return f"computed with {way}"
    return f"computed with {way}; other CPUs or threads can change decisions"


def _way(provenance: Mapping[str, Any]) -> str:
    if provenance.get("reproducible"):
        return "--reproducible (AVX2, 1 thread)"
    threads = provenance["threads"]
    return f"{provenance['instructions']}, {threads} thread{'' if threads == 1 else 's'}"


def _decoder() -> str:
    """What reads JPEG; Pillow also reads what simplejpeg leaves."""
    pillow = f"Pillow {version('pillow')}"
    try:
        return f"simplejpeg {version('simplejpeg')}, {pillow}"
    except PackageNotFoundError:
        return pillow


def _commit() -> str | None:
    """The commit of a checkout of shasam; None for an installed package or without git."""
    root = Path(shasam.__file__).resolve().parents[2]
    if not (root / ".git").exists() or not (root / "src" / "shasam").is_dir():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return f"{head} with changes" if _git(root, "status", "--porcelain", "src") else head
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(  # noqa: S603 - fixed words, no shell
        ["git", "-C", str(root), *words],  # noqa: S607 - git is where the user has it
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.strip()
