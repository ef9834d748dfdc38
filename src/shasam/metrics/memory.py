"""What intervals cost in memory, estimated before anything is allocated.

Intervals come from resampled tables. Their size grows with the square of the number of classes:
every class can be taken for every other. Curves of scores grow with the square of the number of
groups: two attributes of 50 groups each cross to 2,500 groups and 3.1 million pairs of curves.
"""

from __future__ import annotations

from shasam.errors import MemoryLimitError
from shasam.memory import available_memory, readable

MOST_BYTES = 2 * 2**30  # that an evaluation takes unasked
FEWEST_DRAWS = 250  # an end of a 95 % interval then rests on 6 draws; fewer are not worth printing
_NUMBER = 8  # bytes of a float64 or int64
# arrays of one size that are alive at the same time, read off the peak with tracemalloc
_TABLES, _CELLS, _JOINT_CELLS, _CURVES = 3.1, 13.5, 18.0, 5.3
_CURVE_DRAWS, _CURVE_BINS = 500, 100  # of metrics.areas


def evaluation_bytes(classes: int, groups: int, draws: int, *, scores: bool = False) -> int:
    """Peak of ``evaluate`` beyond its inputs."""
    pairs = groups * (groups - 1) // 2
    tables = classes**2 * groups * draws
    cells = classes * groups * draws
    columns = 1 if classes == 2 else classes
    curves = columns * _CURVE_BINS * pairs * min(draws, _CURVE_DRAWS) if scores else 0
    return int(_NUMBER * max(_TABLES * tables, tables + _CELLS * cells, _CURVES * curves))


def comparison_bytes(classes: int, groups: int, draws: int) -> int:
    """Peak of ``compare`` beyond its inputs: joint tables of two models' answers."""
    joint, cells = classes**3 * groups * draws, classes * groups * draws
    return int(_NUMBER * max(_TABLES * joint, joint + _JOINT_CELLS * cells))


def memory_limit() -> int:
    """The smaller of 2 GiB and half of what is free."""
    free = available_memory()
    return MOST_BYTES if free is None else min(MOST_BYTES, free // 2)


def affordable_draws(classes: int, groups: int, draws: int, *, scores: bool = False) -> int:
    """``draws``, or as many as fit in memory; an error with the figure where too few fit."""
    limit = memory_limit()
    need = evaluation_bytes(classes, groups, draws, scores=scores)
    if need <= limit:
        return draws
    low, high = 0, draws
    while high - low > 1:
        middle = (low + high) // 2
        fits = evaluation_bytes(classes, groups, middle, scores=scores) <= limit
        low, high = (middle, high) if fits else (low, middle)
    if low < FEWEST_DRAWS:
        raise MemoryLimitError(
            f"intervals for {classes:,} classes and {groups:,} groups need {readable(need)} at "
            f"{draws:,} draws; the limit is {readable(limit)}. Merge groups or classes, or "
            "leave out an attribute"
        )
    return low


def check_evaluation(classes: int, groups: int, draws: int, *, scores: bool = False) -> None:
    """Refuse an evaluation that would not fit, with the number of draws that would."""
    fits = affordable_draws(classes, groups, draws, scores=scores)
    if fits < draws:
        need = evaluation_bytes(classes, groups, draws, scores=scores)
        raise MemoryLimitError(
            f"intervals for {classes:,} classes and {groups:,} groups need {readable(need)} at "
            f"{draws:,} draws; the limit is {readable(memory_limit())}. {fits:,} draws fit"
        )


def check_comparison(classes: int, groups: int, draws: int) -> None:
    """Refuse a comparison that would not fit."""
    need, limit = comparison_bytes(classes, groups, draws), memory_limit()
    if need > limit:
        raise MemoryLimitError(
            f"comparing two models over {classes:,} classes and {groups:,} groups needs "
            f"{readable(need)} at {draws:,} draws; the limit is {readable(limit)}. Compare "
            "fewer classes or groups, or use fewer draws"
        )
