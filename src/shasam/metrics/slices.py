"""The worst slices: combinations of columns in which a model errs most, with chance allowed for.

Ten thousand slices hold a bad one by luck. So each is tested against the rest of the rows, and
Benjamini and Hochberg's procedure (1995) keeps the expected share of false finds among those that
are reported below a limit.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Estimate, checked_repeats, encode
from shasam.metrics.intervals import wilson_ends
from shasam.registry import did_you_mean
from shasam.rule_text import BINS, parsed_comparison

MOST_VALUES = 50  # of a column; a column with more is left to rules
MOST_SLICES = 200_000
_SIGNS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@dataclass(frozen=True)
class Slice:
    """Hold rows that share some values: how often the model errs there.

    Parameters
    ----------
    conditions
        Conditions, such as "sex = f" and "age<35".
    rate
        Error rate with Wilson's interval and its support.
    rest
        Error rate of all other rows.
    p
        One-sided p-value of as many errors or more.
    q
        Smallest false discovery rate at which it would be reported.

    Examples
    --------
    >>> from shasam.metrics import wilson
    >>> Slice(("sex = f", "age<35"), wilson(30, 100), 0.1, p=0.001, q=0.01).name
    'sex = f & age<35'
    """

    conditions: tuple[str, ...]  # "sex = f", "age<35"
    rate: Estimate  # of errors, with Wilson's interval and its support
    rest: float  # error rate of all other rows
    p: float  # one-sided: as many errors or more by chance
    q: float  # smallest share of false finds at which it would be reported

    @property
    def name(self) -> str:
        return " & ".join(self.conditions)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "slice": list(self.conditions), "error": self.rate.as_dict(), "rest": self.rest,
            "p": self.p, "q": self.q,
        }  # fmt: skip


@dataclass(frozen=True)
class Slices:
    """Hold the worst slices, worst first, and how many were searched.

    Parameters
    ----------
    found
        The worst of all, reported or not.
    searched
        Number of slices that were looked at.
    min_support
        Fewest rows of a slice.
    false_finds
        False discovery rate of what is reported.

    Examples
    --------
    >>> Slices((), searched=40, min_support=50, false_finds=0.05).reported
    ()
    """

    found: tuple[Slice, ...]  # the worst of all, reported or not
    searched: int
    min_support: int
    false_finds: float

    @property
    def reported(self) -> tuple[Slice, ...]:
        """Those that are worse than the rest beyond chance."""
        return tuple(s for s in self.found if s.q <= self.false_finds)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "searched": self.searched, "min_support": self.min_support,
            "false_finds": self.false_finds, "reported": len(self.reported),
            "worst": [s.as_dict() | {"reported": s in self.reported} for s in self.found],
        }  # fmt: skip


def worst_slices(
    wrong: Any,
    columns: Mapping[str, Any],
    rules: Sequence[str] = (),
    *,
    depth: int = 2,
    min_support: int = 50,
    false_finds: float = 0.05,
    most: int = 10,
    level: float = 0.95,
    repeats: Any = None,
) -> Slices:
    """Search all combinations of up to ``depth`` columns and rules for the highest error rates.

    The false discovery rate is controlled over everything that was searched. Slices that stand out
    come first, the worst of them first.

    Parameters
    ----------
    wrong
        Which rows the model got wrong (n,).
    columns
        Categories by name, each (n,) with at most 50 values.
    rules
        Rules such as ``age<35``, which cut any column in two.
    depth
        Most columns and rules that a slice combines.
    min_support
        Fewest rows of a slice; as many must be left outside it.
    false_finds
        False discovery rate of what is reported.
    most
        Most slices that are returned.
    level
        Confidence of the intervals.
    repeats
        How many rows each entry stands for.

    Returns
    -------
    Slices
        The worst slices, and how many were searched.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex, age = rng.choice(["f", "m"], 4000), rng.integers(18, 80, 4000)
    >>> wrong = rng.random(4000) < np.where((sex == "f") & (age < 35), 0.4, 0.1)
    >>> worst_slices(wrong, {"sex": sex, "age": age}, ["age<35"]).reported[0].name
    'sex = f & age<35'
    """
    wrong_N = np.asarray(wrong).astype(bool)
    if wrong_N.ndim != 1 or not len(wrong_N):
        raise InputError("a search for slices needs one column that tells which rows are wrong")
    if depth < 1 or min_support < 1 or not 0 < false_finds < 1:
        raise InputError("depth and support must be at least 1, the share of false finds in 0..1")
    cuts = _cuts(columns, rules, len(wrong_N))
    n_N = np.ones(len(wrong_N)) if repeats is None else checked_repeats(repeats, len(wrong_N))
    tried = [
        found
        for size in range(1, depth + 1)
        for chosen in itertools.combinations(cuts, size)
        if len({cut.column for cut in chosen}) == size
        for found in _of_combination(chosen, wrong_N, n_N, min_support)
    ]
    if len(tried) > MOST_SLICES:
        raise InputError(
            f"there are {len(tried):,} slices with {min_support} rows; search at most "
            f"{MOST_SLICES:,}: ask for more support, less depth or fewer columns"
        )
    total, errors = int(n_N.sum()), int(n_N[wrong_N].sum())
    tail = _Tail(total, errors)
    p = np.array([tail(n, k) for _, n, k in tried])
    q = benjamini_hochberg(p)
    rate = np.array([k / n for _, n, k in tried])
    reported = q <= false_finds
    order = np.lexsort((p, -rate, ~reported))[:most]
    out = []
    for i in order:
        conditions, n, k = tried[i]
        low, high = wilson_ends(rate[[i]], np.array([n]), level)
        e = Estimate(float(rate[i]), float(low[0]), float(high[0]), n)
        out.append(Slice(conditions, e, (errors - k) / (total - n), float(p[i]), float(q[i])))
    return Slices(tuple(out), len(tried), min_support, false_finds)


@dataclass(frozen=True)
class _Cut:
    """One way to sort the rows: a column by its values, or a rule by whether it holds."""

    column: str
    codes: np.ndarray
    conditions: tuple[str | None, ...]  # of each code; None is not a slice of its own


def _cuts(columns: Mapping[str, Any], rules: Sequence[str], rows: int) -> list[_Cut]:
    cuts = []
    for name, column in columns.items():
        values = np.asarray(column)
        if len(values) != rows:
            raise InputError(f"the column {name!r} has {len(values)} rows instead of {rows}")
        if values.dtype.kind == "f" and not (np.mod(values, 1) == 0).all():
            continue  # numbers are cut by rules
        [codes], names = encode({f"value of {name!r}": values}, None)
        if len(names) <= MOST_VALUES:
            cuts.append(_Cut(name, codes, tuple(f"{name} = {v}" for v in names)))
    cuts += [_rule(text, columns) for text in rules]
    if not cuts:
        raise InputError(
            f"no column has at most {MOST_VALUES} distinct values; cut numbers with rules such as "
            "age<35"
        )
    return cuts


def is_rule(text: str) -> bool:
    """Return whether it compares a column with a value, as ``age<35`` does."""
    return parsed_comparison(text) is not None or BINS.match(text) is not None


def column_of_rule(text: str) -> str:
    """Return the column that a rule compares or cuts into bins."""
    bins, compared = BINS.match(text), parsed_comparison(text)
    if bins:
        return bins["column"]
    if compared is None:
        raise InputError(
            f"{text!r} is not a rule; write it like age<35, region==north or age:[0,20,40]"
        )
    return compared[0]


def _rule(text: str, columns: Mapping[str, Any]) -> _Cut:
    """Parse ``age<35`` as a cut in two, whose rows for which it holds are a slice, or bins."""
    name = column_of_rule(text)
    if name not in columns:
        raise InputError(f"the rule {text!r} names no column{did_you_mean(name, columns)}")
    column = np.asarray(columns[name])
    bins = BINS.match(text)
    if bins:
        return _binned(name, bins["edges"], column)
    _, sign, value = parsed_comparison(text) or ("", "", "")
    if column.dtype.kind in "iufb":
        try:
            holds = _SIGNS[sign](column, float(value))
        except ValueError:
            raise InputError(f"the rule {text!r} compares numbers with {value!r}") from None
    elif sign in ("==", "!="):
        holds = _SIGNS[sign](column.astype(str), value)
    else:
        raise InputError(f"the rule {text!r} orders text; {name!r} does not hold numbers")
    return _Cut(name, np.where(holds, 0, 1), (f"{name}{sign}{value}", None))


def _binned(name: str, text: str, column: np.ndarray) -> _Cut:
    """Return ``age:[0,20,40]`` as a slice for each bin; rows below the first edge are in none."""
    try:
        edges = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"[{text}] must be numbers, such as {name}:[0,20,40]") from None
    if edges != sorted(set(edges)) or column.dtype.kind not in "iufb":
        raise InputError(f"{name}:[{text}] needs increasing edges and a column of numbers")
    codes = np.searchsorted(edges, column.astype(np.float64), side="right")
    names = [f"{name} {low:g}-{high:g}" for low, high in itertools.pairwise(edges)]
    return _Cut(name, codes, (None, *names, f"{name} >={edges[-1]:g}"))


def _of_combination(
    cuts: Sequence[_Cut], wrong_N: np.ndarray, n_N: np.ndarray, min_support: int
) -> list[tuple[tuple[str, ...], int, int]]:
    """Return conditions, rows and errors of each slice of a combination, by counting joint codes
    once.
    """
    sizes = [len(cut.conditions) for cut in cuts]
    joint = np.zeros(len(wrong_N), dtype=np.int64)
    for cut, size in zip(cuts, sizes, strict=True):
        joint = joint * size + cut.codes
    cells = math.prod(sizes)
    rows = np.bincount(joint, n_N, cells)
    errors = np.bincount(joint, n_N * wrong_N, cells)
    total = n_N.sum()
    out = []
    for code in np.flatnonzero((rows >= min_support) & (total - rows >= min_support)):
        places = np.unravel_index(code, sizes)
        conditions = [cut.conditions[i] for cut, i in zip(cuts, places, strict=True)]
        named = tuple(c for c in conditions if c is not None)
        if len(named) == len(conditions):
            out.append((named, int(rows[code]), int(errors[code])))
    return out


class _Tail:
    """P(at least k errors) when n of N rows with E errors are drawn: the hypergeometric tail."""

    EXACT = 2_000_000  # rows up to which logarithms of factorials are tabulated

    def __init__(self, total: int, errors: int) -> None:
        self.total, self.errors = total, errors
        self.log_factorial = None
        if total <= self.EXACT:
            self.log_factorial = np.append(0.0, np.cumsum(np.log(np.arange(1, total + 1))))

    def __call__(self, n: int, k: int) -> float:
        N, E = self.total, self.errors
        most = min(n, E)
        if k <= max(0, n + E - N):
            return 1.0
        if self.log_factorial is None:  # so many rows that the normal curve is exact enough
            mean = n * E / N
            spread = math.sqrt(n * E / N * (1 - E / N) * (N - n) / (N - 1))
            return 0.5 * math.erfc((k - 0.5 - mean) / (spread * math.sqrt(2)))
        f = self.log_factorial

        def log_choose(a: Any, b: Any) -> Any:
            return f[a] - f[b] - f[a - b]

        x = np.arange(k, most + 1)
        terms = log_choose(E, x) + log_choose(N - E, n - x) - log_choose(N, n)
        return float(min(1.0, np.exp(terms).sum()))


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Return the smallest share of false finds at which each would be reported.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.04, 0.04]
    """
    if not len(p):
        return p
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    out = np.empty(len(p))
    out[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return out
