"""Speed of submodular selection: ``python -m bench.submodular [--quick] [--write]``.

One table: time from embeddings to picks and select-only time, picks equal or not, peak memory,
ratios to submodlib and apricot, to the limits of this machine, and the exponent with n. Each case
is a process of its own with one thread; inside it our runs and the peer's take turns, and what
counts is the median of the ratios. With ``--write`` the table goes to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import bars
from shasam.memory import available_memory, readable

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ("FL", "FLCG", "FL1MI", "FLQMI", "LogDet", "LogDetCG")
SIZES, BUDGETS = (1_000, 4_000, 10_000), (16, 100)
REPEATS = {1_000: 15, 4_000: 5, 10_000: 3}


def case(*arguments: object, cores: int = 1) -> dict[str, Any]:
    """Run one case in a process of its own; {} and a line on stderr where it fails."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, "-m", "bench.cases", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | dict.fromkeys(names, str(cores)),
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            print(f"  {' '.join(map(str, arguments))}", file=sys.stderr)
            return json.loads(line.removeprefix("RESULT "))
    reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
    print(f"  {' '.join(map(str, arguments))}: failed, {reason}", file=sys.stderr)
    return {}


def peer_fits(name: str, n: int, from_embeddings: bool) -> bool:
    """Is there memory for submodlib's case? If not, say so in a line; the run goes on without."""
    # Bytes per pair that it took at n = 10,000: lists of Python numbers, then copies of a kernel.
    need = 0 if name == "FLQMI" else (200 if from_embeddings else 62) * n * n
    free = available_memory()
    if free is None or need < 0.85 * free:
        return True
    print(
        f"  {name} {n}: submodlib is left out, it needs about {readable(need)} and "
        f"{readable(free)} are free",
        file=sys.stderr,
    )
    return False


def measure(sizes: tuple[int, ...]) -> dict[str, Any]:
    times, memory = {}, {}
    for n in sizes:
        for name in FUNCTIONS:
            fits = peer_fits(name, n, True)
            told = case("time", name, n, REPEATS[n], *BUDGETS) if fits else {}
            for k in BUDGETS:
                times[name, n, k] = told.get(str(k), {})
            memory[name, n] = {
                library: case("memory", library, name, n, BUDGETS[0])
                if library == "shasam" or peer_fits(name, n, False)
                else {}
                for library in ("shasam", "submodlib")
            }
    return {
        "times": times,
        "memory": memory,
        "limits": {n: case("limits", n) for n in sizes},
        "threads": case("threads", 10_000, cores=2),
        "contended": case("contended", 4_000, cores=2),
        "kept": {rows: case("kept", rows, 5) for rows in bars.KEPT},
        "losses": case("losses", 8_192),
        "large": {
            (name, 100_000): case("memory", "shasam", name, 100_000, k)
            for name, k in (("LogDet", 16), ("FLQMI", 16))
        },
    }


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def megabytes(told: dict[str, Any], key: str = "growth") -> str:
    return f"{told[key] / 2**20:,.0f}" if key in told else "–"


def times_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| function | n | k | select, ms | submodlib | ratio | from embeddings, ms | submodlib "
        "| ratio | given our kernel | picks | peak, MiB | submodlib |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, n, k), told in found["times"].items():
        memory = found["memory"][name, n]
        lines.append(
            f"| {name} | {n:,} | {k} | {milliseconds(told.get('select'))} "
            f"| {milliseconds(told.get('their_select'))} "
            f"| **{told.get('select_ratio', math.nan):.1f}** "
            f"| {milliseconds(told.get('whole'))} | {milliseconds(told.get('their_whole'))} "
            f"| **{told.get('whole_ratio', math.nan):.1f}** "
            f"| {told.get('given_ratio', math.nan):.1f} | {told.get('picks', '–')} "
            f"| {megabytes(memory['shasam'])} | {megabytes(memory['submodlib'])} |"
        )
    return lines


def apricot_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| FL, lazy | n | k | select ratio | from embeddings | picks |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| apricot | {n:,} | {k} | {told['apricot_select_ratio']:.0f} "
        f"| {told['apricot_whole_ratio']:.0f} | {told['apricot_picks']} |"
        for (name, n, k), told in found["times"].items()
        if name == "FL" and "apricot_select_ratio" in told
    ]
    return lines


def limits_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| n | FL gain pass, ms | reading the kernel | ratio | kernel build, ms | half a GEMM "
        "| ratio | touching fresh memory, ms | read, GB/s | sgemm, GFLOP/s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for n, told in found["limits"].items():
        if told:
            lines.append(
                f"| {n:,} | {milliseconds(told['gain_pass'])} | {milliseconds(told['read'])} "
                f"| **{told['gain_pass'] / told['read']:.2f}** | {milliseconds(told['build'])} "
                f"| {milliseconds(told['half_gemm'])} "
                f"| **{told['build'] / told['half_gemm']:.2f}** | {milliseconds(told['touch'])} "
                f"| {told['bandwidth'] / 1e9:.0f} | {told['sgemm'] / 1e9:.0f} |"
            )
    return lines


def exponent(found: dict[str, Any], name: str, k: int, key: str) -> float:
    """The slope of log time over log n between the smallest and the largest size."""
    known = [
        (n, told[key])
        for (f, n, b), told in found["times"].items()
        if f == name and b == k and told
    ]
    if len(known) < 2:
        return math.nan
    (n0, t0), (n1, t1) = known[0], known[-1]
    return math.log(t1 / t0) / math.log(n1 / n0)


def exponents_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| time ~ n^x, k = 16 | select | submodlib | from embeddings | submodlib |",
        "|---|---|---|---|---|",
    ]
    for name in FUNCTIONS:
        cells = [
            f"{exponent(found, name, 16, key):.2f}"
            for key in ("select", "their_select", "whole", "their_whole")
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def large_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| n = 100,000, k = 16, from embeddings | ms | growth of the peak, MiB "
        "| whole process, MiB |",
        "|---|---|---|---|",
    ]
    for (name, _), told in found["large"].items():
        lines.append(
            f"| {name} | {milliseconds(told.get('seconds'))} | {megabytes(told)} "
            f"| {megabytes(told, 'process')} |"
        )
    return lines


def threads_table(found: dict[str, Any]) -> list[str]:
    told = found["threads"]
    if not told:
        return ["Not measured in this run."]
    return [
        "| FL, n = 10,000, k = 16 | one thread | two threads | ratio |",
        "|---|---|---|---|",
        f"| select, ms on the clock | {milliseconds(told['one'])} | {milliseconds(told['two'])} "
        f"| **{told['ratio']:.2f}** |",
        f"| select, ms of processor time | {milliseconds(told['one_cpu'])} "
        f"| {milliseconds(told['two_cpu'])} | {told['one_cpu'] / told['two_cpu']:.2f} |",
        f"| larger share of a thread | 1 | {told['share']:.2f} | |",
    ]


def kept_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| rows of V | kernel, MB | its product | build, ms | first (A, P, N), ms "
        "| after 96 new rows, ms | passes over a cell × V | renewing 96 rows, ms "
        "| reading both cells once, ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rows, told in found["kept"].items():
        if told:
            lines.append(
                f"| {rows:,} | {told['bytes'] / 1e6:,.0f} | {told['product']} "
                f"| {milliseconds(told['build'])} | {milliseconds(told['first'])} "
                f"| **{milliseconds(told['next'])}** | {told['passes']:.1f} "
                f"| {milliseconds(told['update'])} | {milliseconds(told['read'])} |"
            )
    return lines


def page(found: dict[str, Any], command: str) -> str:
    from bench.limits import machine

    parts = [
        "# Benchmarks",
        "How fast is submodular selection here, compared with submodlib and apricot and with the "
        "limits of the hardware?",
        "`make bench` runs this benchmark, `python -m bench.training` (results in "
        "docs/training.md) and `python -m bench.data` (docs/data.md). It takes about 40 minutes, "
        "most of them in submodlib's construction at n = 10,000 (19 GB). `--quick` stops at "
        "n = 4,000. A case of submodlib that would not fit in the free memory is skipped and "
        "named.",
        f"The tables below were made by `{command}` on {machine()} with one thread. Embeddings are "
        "random, 128-dimensional, float32; there are 16 queries or private elements.",
        "- A *ratio* is the other library's time divided by ours: above 1, we are faster. It is "
        "the median over runs that alternate in one process.\n"
        "- *select*: both libraries start from the same similarity kernel.\n"
        "- *from embeddings*: both start from the embeddings, as a user would.\n"
        "- *given our kernel*: from the embeddings too, but submodlib gets the kernel that our "
        "code built.\n"
        "- *peak*: growth of the resident set from embeddings to picks at k = 16; submodlib's "
        "with our kernel.",
        "\n".join(times_table(found)),
        "## apricot\n\napricot compiles again in each `fit`. That time is included, because its "
        "users wait for it. One run each.",
        "\n".join(apricot_table(found)),
        "## Limits of the machine",
        "\n".join(limits_table(found)),
        "## Growth with n",
        "\n".join(exponents_table(found)),
        "## Without an n×n matrix",
        "\n".join(large_table(found)),
        "## Threads\n\nRuns alternate. The share is the part of the processor time that the "
        "busier of the two threads used. With a share of 0.5 and equal processor times, two idle "
        "cores are twice as fast. On a busy machine, time on the clock is not comparable.",
        "\n".join(threads_table(found)),
        "## Mining with f over V\n\nWhole cells of a quarter of V, k = 16, 128 dimensions, the "
        "kernel kept; processor time of one thread.",
        "\n".join(kept_table(found)),
        "## Goals",
        "\n".join(bars.table(found)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="n = 1,000 and 4,000 only")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    chosen = parser.parse_args()
    command = "python -m bench.submodular" + (" --quick" if chosen.quick else "")
    text = page(measure(SIZES[:2] if chosen.quick else SIZES), command + " --write")
    print(text)
    if chosen.write:
        target = ROOT / "docs" / "benchmarks.md"
        draft = target.with_suffix(".md.tmp")
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)


if __name__ == "__main__":
    main()
