"""Keep oneDNN from instructions that a virtual machine announces and does not describe.

Some hypervisors announce AMX and hide CPUID leaf 0x1D, which gives the sizes of its tiles. oneDNN
then configures tiles of size 0, and the first product in bfloat16 ends the process with SIGILL. So
that leaf is read before torch is loaded; where it is empty, oneDNN is held to AVX-512.
"""

from __future__ import annotations

import os

WITHOUT_AMX = "AVX512_CORE_BF16"
_PROCESSOR = "/proc/cpuinfo"
TILES = (0x1D, 1)  # the leaf of the tiles; its eax is 0 if they are not described


def avoid_broken_amx(processor: str = _PROCESSOR) -> None:
    """Hold oneDNN to AVX-512 where AMX is announced without tiles; a user's own setting stands."""
    if "ONEDNN_MAX_CPU_ISA" in os.environ or "DNNL_MAX_CPU_ISA" in os.environ:
        return
    if _announces_amx(processor) and cpuid(*TILES) == 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = WITHOUT_AMX


def _announces_amx(processor: str) -> bool:
    try:
        with open(processor, encoding="utf-8", errors="replace") as file:
            first = file.read(8192)  # the flags of the first core; with 200 cores the file is long
    except OSError:  # not Linux
        return False
    return " amx_tile" in first


def cpuid(leaf: int, part: int) -> int:
    """Register eax of the instruction CPUID; 0 on a system that does not let it run from here."""
    import ctypes  # only where AMX is announced: ``import shasam`` is cheap elsewhere
    import mmap

    # push rbx; mov eax, leaf; mov ecx, part; cpuid; pop rbx; ret
    code = b"\x53\xb8%b\xb9%b\x0f\xa2\x5b\xc3" % (
        leaf.to_bytes(4, "little"),
        part.to_bytes(4, "little"),
    )
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            page.write(code)
            view = ctypes.c_char.from_buffer(page)
            try:
                start, size = ctypes.addressof(view), ctypes.c_size_t(mmap.PAGESIZE)
                executable = mmap.PROT_READ | mmap.PROT_EXEC
                if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), size, executable):
                    return 0
                return int(ctypes.CFUNCTYPE(ctypes.c_uint32)(start)())
            finally:
                del view  # a page that is looked at cannot be closed
    except (OSError, AttributeError):
        return 0
