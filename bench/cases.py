"""One measurement per process: ``python -m bench.cases time FL 4000 5 16`` prints one object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from bench import limits, peers
from shasam.losses.rivals import supcon
from shasam.losses.sets import flcmi, logdetcmi
from shasam.submodular import FacilityLocation, KeptKernel, SetFunction, maximize
from shasam.submodular.facility_location import clamped_gains
from shasam.submodular.kernels import kernel_matrix


def clock(run: Callable[[], object]) -> float:
    """Seconds of processor time: one thread, whatever else the machine is doing."""
    start = time.process_time()
    run()
    return time.process_time() - start


def turn(run: Callable[[], object]) -> float:
    """One turn of a run; a short one is repeated and averaged: the clock must not matter."""
    first = clock(run)
    if first > 0.02:
        return first
    repeats = min(20, int(0.02 / max(first, 1e-6)))
    return clock(lambda: [run() for _ in range(repeats)]) / repeats


def peak_bytes() -> int:
    """The largest resident size so far, of this process alone."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def warm(name: str, theirs: bool) -> None:
    """Import, compile, load and touch everything once, on a small pool."""
    z, y = peers.embeddings(64)
    maximize(peers.ours(name, z, y), 4)
    if theirs:
        peers.submodlib_picks(peers.submodlib(name, z, y), 4)


def time_case(name: str, n: int, repeats: int, budgets: list[int]) -> dict[str, Any]:
    """Ours and submodlib in turns, select-only and from embeddings; medians of ratios by k."""
    z, y = peers.embeddings(n)
    warm(name, True)
    f = peers.ours(name, z, y)
    made: list[Any] = []
    built = [clock(lambda: made.append(peers.submodlib(name, z, y)))]
    theirs = made[0]
    if n <= 1000:  # their construction is repeated only where it is cheap
        built += [clock(lambda: peers.submodlib(name, z, y)) for _ in range(4)]
    own = [clock(lambda: peers.submodlib_from_embeddings(name, z, y))]
    if n <= 1000:
        own += [clock(lambda: peers.submodlib_from_embeddings(name, z, y)) for _ in range(4)]
    return {
        str(k): _budget(name, f, theirs, z, y, k, repeats, (median(own), median(built)))
        for k in budgets
    }


def _budget(
    name: str,
    f: SetFunction,
    theirs: Any,
    z: torch.Tensor,
    y: torch.Tensor,
    k: int,
    repeats: int,
    builds: tuple[float, float],
) -> dict[str, Any]:
    maximize(f, k)
    picks = peers.submodlib_picks(theirs, k)
    select, their_select, whole = [], [], []
    for _ in range(repeats):
        select.append(turn(lambda: maximize(f, k)))
        their_select.append(turn(lambda: peers.submodlib_picks(theirs, k)))
        whole.append(turn(lambda: maximize(peers.ours(name, z, y), k)))
    own, given = builds
    their_whole = [own + selected for selected in their_select]
    told = {
        "select": median(select),
        "their_select": median(their_select),
        "select_ratio": _ratio(their_select, select),
        "whole": median(whole),
        "their_whole": median(their_whole),
        "whole_ratio": _ratio(their_whole, whole),
        "given_ratio": _ratio([given + selected for selected in their_select], whole),
        "picks": peers.agreement(f, name, k, picks),
        "evaluations": maximize(f, k).evaluations,
    }
    return told | (_apricot(f, z, k) if name == "FL" else {})


def _ratio(theirs: list[float], mine: list[float]) -> float:
    return median(a / b for a, b in zip(theirs, mine, strict=True))


def _apricot(f: SetFunction, z: torch.Tensor, k: int) -> dict[str, Any]:
    kernel_time = clock(lambda: kernel_matrix(z, "shifted_cosine"))
    kernel = kernel_matrix(z, "shifted_cosine").numpy()
    try:
        picked: list[list[int]] = []
        fit = clock(lambda: picked.append(peers.apricot_picks(kernel, k)))
        mine = clock(lambda: maximize(f, k))
        whole = clock(lambda: maximize(peers.ours("FL", z, z[:1]), k))
    except ImportError:
        return {}
    return {
        "apricot_select_ratio": fit / mine,
        "apricot_whole_ratio": (fit + kernel_time) / whole,
        "apricot_picks": peers.agreement(f, "FL", k, picked[0]),
    }


def memory_case(library: str, name: str, n: int, k: int) -> dict[str, Any]:
    """Growth of the resident peak from embeddings to picks, and the whole process."""
    warm(name, library == "submodlib")
    z, y = peers.embeddings(n)
    before = peak_bytes()
    start = time.process_time()
    if library == "shasam":
        maximize(peers.ours(name, z, y), k)
    else:
        peers.submodlib_picks(peers.submodlib(name, z, y), k)
    seconds = time.process_time() - start
    return {"growth": peak_bytes() - before, "process": peak_bytes(), "seconds": seconds}


def _gain_pass(z: torch.Tensor, repeats: int) -> float:
    f, n = FacilityLocation.from_features(z), len(z)
    rows, state = f.kernel_NR.numpy(), f.start([0]).numpy()
    bonus, out, pool = np.zeros(n), np.empty(n), np.arange(n)
    return limits.best_of(lambda: clamped_gains(rows, state, None, bonus, pool, out), repeats)


def limit_case(n: int) -> dict[str, Any]:
    """One FL gain pass against reading the kernel; the kernel build against half a product."""
    z, _ = peers.embeddings(n)
    repeats = 9 if n <= 4000 else 4
    gain_pass = _gain_pass(z, repeats)
    bandwidth = limits.read_bandwidth(n * n, repeats)
    build = limits.best_of(lambda: kernel_matrix(z, "shifted_cosine"), repeats)
    unit, product = torch.nn.functional.normalize(z), torch.empty(n, n)
    gemm = limits.best_of(lambda: torch.mm(unit, unit.T, out=product), repeats)
    return {
        "gain_pass": gain_pass,
        "read": n * n * 4 / bandwidth,
        "bandwidth": bandwidth,
        "build": build,
        "half_gemm": gemm / 2,
        # A new matrix costs this much before anything is computed.
        "touch": limits.best_of(lambda: np.empty((n, n), np.float32).fill(0), repeats),
        "sgemm": limits.sgemm_rate(),
    }


def threads_case(n: int) -> dict[str, Any]:
    """The same selection with one thread and with two, in turns; wall and processor time."""
    z, _ = peers.embeddings(n)
    f = FacilityLocation.from_features(z)
    wall: dict[int, list[float]] = {1: [], 2: []}
    spent: dict[int, list[float]] = {1: [], 2: []}
    shares = []
    for turn_number in range(10):
        for number in (1, 2):
            torch.set_num_threads(number)
            start, cpu = time.perf_counter(), time.process_time()
            own = time.thread_time()
            maximize(f, 16)
            if turn_number:  # the first turn compiles and starts the threads
                wall[number].append(time.perf_counter() - start)
                spent[number].append(time.process_time() - cpu)
                if number == 2:
                    share = (time.thread_time() - own) / spent[2][-1]
                    shares.append(max(share, 1 - share))
    return {
        "one": min(wall[1]),
        "two": min(wall[2]),
        "ratio": min(wall[1]) / min(wall[2]),
        "one_cpu": min(spent[1]),
        "two_cpu": min(spent[2]),
        "share": median(shares),
    }


_BUSY = "while True: pass"


def contended_case(n: int) -> dict[str, Any]:
    """Kernel and selection with one thread and with two, while another process holds each core."""
    z, _ = peers.embeddings(n)
    f = FacilityLocation.from_features(z)
    runs: dict[str, Callable[[], object]] = {
        "build": lambda: kernel_matrix(z, "shifted_cosine"),
        "select": lambda: maximize(f, 16),
        "gains": lambda: f.gains(f.start([0]), torch.arange(n)),
    }
    wall: dict[tuple[str, int], list[float]] = {(name, t): [] for name in runs for t in (1, 2)}
    rivals = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        for turn_number in range(8):
            for (name, number), times in wall.items():
                torch.set_num_threads(number)
                start = time.perf_counter()
                for _ in range(10):  # longer than a slice of time that the system gives
                    runs[name]()
                if turn_number:  # the first turn compiles
                    times.append(time.perf_counter() - start)
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
    return {name: median(wall[name, 2]) / median(wall[name, 1]) for name in runs}


def kept_case(rows: int, repeats: int) -> dict[str, Any]:
    """One (A, P, N) with f over V out of a kept kernel, and the floating-point way beside it."""
    z, _ = peers.embeddings(rows)
    cell_V = torch.arange(rows) % 4
    a, p, n = ((cell_V == c).nonzero().flatten() for c in range(3))
    KeptKernel(z[:256], cells=cell_V[:256]).mine(range(0, 60), range(60, 120), range(120, 180), 4)
    made: list[KeptKernel] = []
    build = clock(lambda: made.append(KeptKernel(z, cells=cell_V)))
    kept = made[0]
    told: dict[str, list[float]] = {key: [] for key in ("first", "next", "update", "passes")}
    generator = torch.Generator().manual_seed(0)
    cell_entries = len(p) * rows
    for _ in range(repeats):
        kept.forget()
        told["first"].append(clock(lambda: kept.mine(a, p, n, 16)))
        changed = torch.randperm(rows, generator=generator)[:96]
        drifted = z[changed] + 0.05 * torch.randn(96, z.shape[1], generator=generator)
        told["update"].append(clock(lambda: kept.update(changed, drifted)))  # noqa: B023
        read = kept.entries_read
        told["next"].append(clock(lambda: kept.mine(a, p, n, 16)))
        told["passes"].append((kept.entries_read - read) / cell_entries)
    bandwidth = limits.read_bandwidth(min(cell_entries, 2**27))
    return {key: median(values) for key, values in told.items()} | {
        "build": build,
        "read": 2 * len(p) * rows * 2 / bandwidth,
        "bytes": KeptKernel.plan(rows),
        "product": kept.product,
    }


def losses_case(views: int) -> dict[str, Any]:
    """Forward and backward of objectives over many views."""
    z = torch.nn.functional.normalize(torch.randn(views, peers.WIDTH), dim=1)
    sets, target = list(torch.arange(views).tensor_split(3)), torch.arange(views) % 2

    def step(loss: Callable[[torch.Tensor], torch.Tensor]) -> float:
        z_grad = z.clone().requires_grad_()
        return clock(lambda: loss(z_grad).backward())

    losses: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "logdetcmi": lambda x: logdetcmi(x, *sets, attraction=0.3),
        "flcmi": lambda x: flcmi(x, *sets),
        "supcon": lambda x: supcon(x, target),
    }
    return {name: median([step(loss) for _ in range(3)]) for name, loss in losses.items()}


def main(arguments: list[str]) -> None:
    kind, *rest = arguments
    torch.set_num_threads(1)
    if kind == "time":
        told = time_case(rest[0], int(rest[1]), int(rest[2]), [int(k) for k in rest[3:]])
    elif kind == "memory":
        told = memory_case(rest[0], rest[1], int(rest[2]), int(rest[3]))
    elif kind == "threads":
        told = threads_case(int(rest[0]))
    elif kind == "contended":
        told = contended_case(int(rest[0]))
    elif kind == "losses":
        told = losses_case(int(rest[0]))
    elif kind == "kept":
        told = kept_case(int(rest[0]), int(rest[1]))
    else:
        told = limit_case(int(rest[0]))
    print("RESULT " + json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
