"""oneDNN is kept from AMX where a virtual machine announces it and does not describe its tiles."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from shasam import amx

x86 = pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="CPUID is an instruction of x86-64",
)


def announce(folder: Path, flags: str) -> str:
    file = folder / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
    return str(file)


@x86
def test_cpuid_says_what_linux_says():
    known = dict(
        line.split(":", 1)
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    )
    signature = amx.cpuid(1, 0)
    family = (signature >> 8 & 0xF) + (
        (signature >> 20 & 0xFF) if (signature >> 8 & 0xF) == 0xF else 0
    )
    model = (signature >> 4 & 0xF) | (signature >> 16 & 0xF) << 4
    told = {key.strip(): value.strip() for key, value in known.items()}
    assert (family, model) == (int(told["cpu family"]), int(told["model"]))


@pytest.mark.parametrize(
    ("flags", "tiles", "held"),
    [
        ("avx512_bf16 amx_tile amx_bf16", 0, "AVX512_CORE_BF16"),
        ("avx512_bf16 amx_tile amx_bf16", 8192 | 1024 << 16, None),
        ("avx512_bf16", 0, None),
    ],
)
def test_only_tiles_without_a_size_are_left_alone(monkeypatch, tmp_path, flags, tiles, held):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(amx, "cpuid", lambda leaf, part: tiles)
    amx.avoid_broken_amx(announce(tmp_path, flags))
    found = os.environ.pop("ONEDNN_MAX_CPU_ISA", None)
    assert found == held


def test_a_setting_of_the_user_stands(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")
    monkeypatch.setattr(amx, "cpuid", lambda leaf, part: 0)
    amx.avoid_broken_amx(announce(tmp_path, "amx_tile"))
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "ALL"


@pytest.mark.needs_torch
def test_products_in_bfloat16_do_not_end_the_process():
    environment = {key: value for key, value in os.environ.items() if "MAX_CPU_ISA" not in key}
    code = (
        "import shasam, torch; "
        "x = torch.ones(96, 64, dtype=torch.bfloat16); "
        "print(torch.nn.functional.linear(x, x).float().mean().item())"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == 64.0
