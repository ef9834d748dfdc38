"""The goals of the benchmark, and whether a run reached them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# function -> (select-only bar, from this n on), (from-embeddings bar, from this n on)
PEERS = {
    "FL": ((60, 1_000), (25, 1_000)),
    "FLCG": ((40, 1_000), (20, 1_000)),
    "FL1MI": ((40, 1_000), (20, 1_000)),
    "FLQMI": ((20, 1_000), (5, 1_000)),
    "LogDet": ((20, 1_000), (100, 10_000)),
    "LogDetCG": ((20, 1_000), (100, 10_000)),
}
KEPT = {8_000: 8.0, 32_000: 80.0}  # rows of V -> milliseconds of one (A, P, N), kernel kept


@dataclass(frozen=True)
class Bar:
    """One goal: what was measured must be at least, or at most, so much."""

    name: str
    measured: float | None  # None: this run did not measure it
    goal: float
    at_least: bool
    unit: str = "×"

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        holds = self.measured >= self.goal if self.at_least else self.measured <= self.goal
        return "hold" if holds else "**miss**"

    def row(self) -> str:
        measured = "–" if self.measured is None else f"{self.measured:,.2f}{self.unit}"
        sign = "≥" if self.at_least else "≤"
        return f"| {self.name} | {measured} | {sign} {self.goal:,g}{self.unit} | {self.verdict} |"


def bars(found: dict[str, Any]) -> list[Bar]:
    """All goals, with what the run found."""
    return [
        *_peer_bars(found),
        *_limit_bars(found),
        *_thread_bars(found),
        *_kept_bars(found),
        *_memory_bars(found),
    ]


def _peer_bars(found: dict[str, Any]) -> list[Bar]:
    made = []
    for (name, n, k), told in found["times"].items():
        (select, select_from), (whole, whole_from) = PEERS[name]
        case = f"{name}, n = {n:,}, k = {k}"
        if n >= select_from:
            ratio = told.get("select_ratio")
            made.append(Bar(f"{case}, submodlib's select time over ours", ratio, select, True))
        if n >= whole_from:
            ratio = told.get("whole_ratio")
            made.append(Bar(f"{case}, submodlib from embeddings over ours", ratio, whole, True))
        if told.get("picks", "").startswith("differ"):
            made.append(Bar(f"{case}, picks {told['picks']}", 1, 0, False, ""))
    return made


def _limit_bars(found: dict[str, Any]) -> list[Bar]:
    made = []
    for n, told in found["limits"].items():
        if n < 4_000:
            continue
        gain = told["gain_pass"] / told["read"] if told else None
        build = told["build"] / told["half_gemm"] if told else None
        made.append(Bar(f"FL gain pass over reading the kernel, n = {n:,}", gain, 1.4, False))
        made.append(Bar(f"kernel build over half a GEMM, n = {n:,}", build, 1.8, False))
    return made


def _thread_bars(found: dict[str, Any]) -> list[Bar]:
    told = found.get("threads", {})
    held = found.get("contended", {})
    return [
        Bar("FL select, n = 10,000, one thread over two", told.get("ratio"), 1.7, True),
        *(
            Bar(f"{name}, n = 4,000, two threads over one, cores busy", held.get(name), 1.3, False)
            for name in ("build", "select", "gains")
        ),
    ]


def _kept_bars(found: dict[str, Any]) -> list[Bar]:
    made = []
    for rows, goal in KEPT.items():
        told = found.get("kept", {}).get(rows) or {}
        spent = told["next"] * 1e3 if told else None
        made.append(Bar(f"(A, P, N), f over V of {rows:,} rows", spent, goal, False, " ms"))
    losses = found.get("losses") or {}
    ratio = losses["logdetcmi"] / losses["supcon"] if losses else None
    made.append(Bar("LogDetCMI over SupCon, 8,192 views × 128", ratio, 2, False))
    return made


def _memory_bars(found: dict[str, Any]) -> list[Bar]:
    return [
        Bar(
            f"{name}, n = {n:,}: whole process",
            told["process"] / 2**20 if told else None,
            1024,
            False,
            " MiB",
        )
        for (name, n), told in found["large"].items()
    ]


def table(found: dict[str, Any]) -> list[str]:
    """Every goal with hold or miss, as a Markdown table."""
    lines = ["| what | measured | goal | |", "|---|---|---|---|"]
    return lines + [bar.row() for bar in bars(found)]
