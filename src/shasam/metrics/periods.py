"""A metric over time: the gap of every month, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics import catalogue
from shasam.metrics.counts import encode_rows
from shasam.metrics.estimate import Estimate
from shasam.metrics.evaluation import evaluate
from shasam.registry import did_you_mean

PERIODS = {"day": "D", "week": "W", "month": "M", "quarter": "M", "year": "Y"}
MOST_PERIODS = 1000


@dataclass(frozen=True)
class Period:
    """One stretch of time."""

    name: str  # 2024-03, 2024-Q1, 2024, or the first day of a week
    rows: int
    estimate: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"period": self.name, "rows": self.rows, **self.estimate.as_dict()}


def over_time(
    label: Any,
    prediction: Any,
    group: Any,
    when: Any,
    *,
    metric: str = "eo_mean",
    period: str = "month",
    classes: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    positive: int | None = None,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    strata: str = "none",
    min_group: int = 0,
    repeats: Any = None,
    weights: Any = None,
) -> list[Period]:
    """One metric for each period that has rows, in order; undefined ones say why.

    ``when`` holds dates: numpy or Python dates, or text such as ``2024-03-18``. ``repeats`` and
    ``weights`` are those of ``evaluate``.

    >>> found = over_time([0, 1] * 40, [0, 1] * 40, [0, 0, 1, 1] * 20,
    ...                   ["2024-01-05"] * 40 + ["2024-02-05"] * 40, metric="accuracy")
    >>> [(p.name, p.rows, p.estimate.value) for p in found]
    [('2024-01', 40, 1.0), ('2024-02', 40, 1.0)]
    """
    catalogue.named(metric)
    t, p, s, class_names, group_names = encode_rows(label, prediction, group, classes, groups)
    if len(when) != len(t):
        raise InputError(f"there are {len(when)} dates for {len(t)} rows; each row needs one")
    codes, names = periods_of(when, period)
    out = []
    for code, name in enumerate(names):
        rows = codes == code
        times, w = (None if x is None else np.asarray(x)[rows] for x in (repeats, weights))
        found = evaluate(
            t[rows], p[rows], s[rows], classes=class_names, groups=group_names, positive=positive,
            draws=draws, seed=seed, level=level, strata=strata, min_group=min_group,
            repeats=times, weights=w, metrics=[metric],
        )  # fmt: skip
        size = int(rows.sum()) if times is None else int(times.sum())
        out.append(Period(name, size, found[metric]))
    return out


def periods_of(when: Any, period: str) -> tuple[np.ndarray, list[str]]:
    """The code of each row's period, and the names of the periods in order."""
    if period not in PERIODS:
        raise InputError(f"there is no period {period!r}{did_you_mean(period, PERIODS)}")
    day = days_of(when)
    unit = day.astype(f"datetime64[{PERIODS[period]}]")
    if period == "quarter":
        month = unit.astype(np.int64)
        found, codes = np.unique(month // 3, return_inverse=True)
        names = [f"{1970 + q // 4}-Q{q % 4 + 1}" for q in found.tolist()]
    else:
        found, codes = np.unique(unit, return_inverse=True)
        shown = found.astype("datetime64[D]") if period == "week" else found
        names = [str(v) for v in shown]
    if len(names) > MOST_PERIODS:
        raise InputError(f"there are {len(names):,} periods; take a longer one than {period!r}")
    return codes, names


def days_of(when: Any) -> np.ndarray:
    """Dates, times or whole years as days; a year is its first day.

    >>> days_of(["2024-03-18 23:10"]).astype(str).tolist(), days_of([2019]).astype(str).tolist()
    (['2024-03-18'], ['2019-01-01'])
    """
    values = np.asarray(when)
    if values.dtype.kind in "iuf":
        if not ((values >= 1000) & (values <= 9999) & (np.mod(values, 1) == 0)).all():
            raise InputError("numbers are dates only if they are years; write 2024-03-18")
        values = values.astype(np.int64).astype(str)
    try:
        day = np.asarray(values, dtype="datetime64[us]").astype("datetime64[D]")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the dates cannot be read ({error}); write them like 2024-03-18"
        ) from None
    if np.isnat(day).any():
        missing = np.isnat(day)
        raise InputError(
            f"{int(missing.sum())} of {len(day)} rows have no date, the first is row "
            f"{int(missing.argmax())}; leave those rows out"
        )
    return day
