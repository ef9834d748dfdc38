"""What ``train.precision: auto`` means on this machine."""

from __future__ import annotations

import os
from typing import Literal

_FLAGS = {"avx512_bf16", "amx_bf16"}  # instructions that multiply bfloat16, as Linux names them
_PROCESSOR = "/proc/cpuinfo"
# oneDNN reads uninitialised memory in bfloat16 convolutions on 1x1 maps, which smaller images have
SMALLEST = 32


def chosen_precision(inputs: str, size: int) -> Literal["32-true", "bf16-mixed"]:
    """bfloat16 for networks on images, where the processor has instructions for it."""
    if inputs == "images" and size >= SMALLEST and _FLAGS & usable_flags():
        return "bf16-mixed"
    return "32-true"


def usable_flags() -> set[str]:
    """Instruction sets of the processor; none where oneDNN is held to older ones, or unknown."""
    held = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
    if held not in ("DEFAULT", "ALL") and not any(word in held for word in ("BF16", "AMX")):
        return set()
    try:
        with open(_PROCESSOR, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("flags"):
                    return set(line.partition(":")[2].split())
    except OSError:  # not Linux
        pass
    return set()
