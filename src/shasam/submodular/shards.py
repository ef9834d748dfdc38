"""Select from rows that no machine holds: workers read ranges of them, the driver gets the picks.

The function is facility location over all n rows, f(A) = Σ_i max_{a∈A} K_ia. The rows are cut into
ranges; a task reads its range, and nothing of size n is ever sent or kept.

1. Two random samples of the rows are fetched: one stands for all rows in the later rounds, the
   other in the bound alone.
2. Every range is split into random parts of 2,500 rows. A part stands for itself and gives k picks,
   as round one of GreeDi does (Mirzasoleiman et al. 2013; Barbosa et al. 2015).
3. The picks of the parts, then those of ranges, then those of groups of ranges are reduced to k
   by greedy on the first sample, until the rest fits on the driver, which picks the last k.
4. One more pass computes f and the gains of the k picks over all rows, exactly, and the gain that
   every other row would add on the second sample. The k largest of those bound the optimum, as in
   ``certify``. Where groups have quotas, so do they.

Ranges, parts, samples and groups follow from the seed and the numbers of rows. So the picks depend
neither on the number of workers, nor on the order in which they finish, nor on how rows are spread
over files. A task whose worker is lost is done again. With quotas every part gives a maximal set
within them, which spans the part; so the union of the picks holds a set as large as there is.

Böther et al. (MLSys 2025) drop rows between rounds by bounds of their gains. Their function is a
sum over pairs of near rows; in facility location the lower bound of almost every row is 0, because
another row is as near, and the bounds would drop nothing. They bound the optimum here instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from shasam.cluster import connected
from shasam.errors import InputError
from shasam.keyed import keyed
from shasam.memory import readable
from shasam.registry import did_you_mean
from shasam.submodular import loops
from shasam.submodular.bounds import Certificate, serfling
from shasam.submodular.facility_location import FacilityLocation, clamped_gains
from shasam.submodular.greedy import Engine, Progress, map_on_ray, maximize
from shasam.submodular.kernels import Similarity, as_tensor, similarity_matrix
from shasam.submodular.selection import (
    SelectionPlan,
    SelectionResult,
    free_for_selection,
    products_per_second,
)
from shasam.types import Selection

_PART, _PER_PICK = 2_500, 10  # rows of a part, or so many for each pick
_RANGE, _BYTES = 2**18, 2**28  # rows and bytes of a range at most
_SAMPLE, _BOUND = 8_192, 4_096  # rows that stand for all, in the later rounds and in the bound
_ENTRIES = 2**26  # of the kernel of a later round: 256 MiB of float32
_BLOCK = 1_024  # rows that are compared at a time in the last pass
T = TypeVar("T")
_SPLIT, _JUDGES, _WITNESSES = 1, 2, 3  # keys of random numbers


class RowSource(Protocol):
    """Rows in a fixed order that any worker can read by ranges."""

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def dim(self) -> int:
        """Numbers in a row."""

    def read(self, first: int, last: int) -> np.ndarray:
        """Return the vectors of the rows first..last, float32."""

    def texts(self, column: str, first: int, last: int) -> list[str]:
        """Return another column of those rows."""

    def place(self, row: int) -> tuple[str, int]:
        """Name the file of a row, and its number there."""


@dataclass(frozen=True)
class ShardedResult(SelectionResult):
    """Picks from a source, and what is known of each."""

    places: list[tuple[str, int]]  # its file, and its row there
    groups: list[str] | None  # where there are quotas
    ids: list[str] | None  # where a column was asked for


@dataclass(frozen=True)
class _Pool:
    """Some rows that may be picked, with their vectors and the numbers of their groups."""

    row_N: np.ndarray
    z_ND: np.ndarray
    group_N: np.ndarray
    evaluations: int = 0

    def take(self, index: np.ndarray) -> _Pool:
        return _Pool(self.row_N[index], self.z_ND[index], self.group_N[index])


def _union(pools: Iterable[_Pool]) -> _Pool:
    pools = list(pools)
    return _Pool(
        np.concatenate([pool.row_N for pool in pools]),
        np.concatenate([pool.z_ND for pool in pools]),
        np.concatenate([pool.group_N for pool in pools]),
        sum(pool.evaluations for pool in pools),
    )


@dataclass(frozen=True)
class _Quotas:
    """How many rows of each group may be picked; the column that names the groups."""

    column: str
    numbers: Mapping[str, int]  # of the groups
    most_G: np.ndarray

    def of(self, source: RowSource, first: int, last: int) -> np.ndarray:
        numbers = self.numbers
        return np.array([numbers[name] for name in source.texts(self.column, first, last)])


@dataclass(frozen=True)
class _Work:
    """Hold what every worker receives once."""

    source: RowSource
    k: int
    part: int
    similarity: Similarity
    seed: int
    quotas: _Quotas | None
    represented_RD: np.ndarray

    @property
    def fits(self) -> int:
        """Rows of a pool that are compared with the sample at once."""
        return max(_ENTRIES // len(self.represented_RD), 2 * self.k)

    def pick(self, pool: _Pool, whole: bool = False) -> _Pool:
        """Return k rows of a pool that stand for the pool itself, or for the ``whole``."""
        k, groups, most = min(self.k, len(pool.row_N)), None, None
        if self.quotas is not None:
            held = np.bincount(pool.group_N, minlength=len(self.quotas.most_G))
            k = min(k, int(np.minimum(held, self.quotas.most_G).sum()))
            most = {int(g): int(self.quotas.most_G[g]) for g in np.flatnonzero(held)}
            groups = pool.group_N
        if k == 0:
            return pool.take(np.empty(0, np.int64))
        others = self.represented_RD if whole else None
        f = FacilityLocation.from_features(pool.z_ND, others, similarity=self.similarity)
        found = maximize(f, k, groups=groups, at_most=most)
        kept = pool.take(found.indices.numpy())
        return replace(kept, evaluations=pool.evaluations + found.evaluations)

    def reduce(self, pool: _Pool, key: int) -> _Pool:
        """Return k rows of a pool on the sample; in rounds, until what is left fits."""
        turn = 0
        while len(pool.row_N) > self.fits:
            turn += 1
            parts = _split(len(pool.row_N), self.fits, self.seed, key, turn)
            pool = _union(self.pick(pool.take(part), whole=True) for part in parts)
        return self.pick(pool, whole=True)

    def first_round(self, ends: tuple[int, int]) -> _Pool:
        """Return k rows of a range: from each of its random parts, then from the picks of these."""
        first, last = ends
        z_ND = _read(self.source, first, last)
        group_N = np.zeros(last - first, np.int64)
        if self.quotas is not None:
            group_N = self.quotas.of(self.source, first, last)
        pool = _Pool(np.arange(first, last), z_ND, group_N)
        parts = _split(last - first, self.part, self.seed, first, 0)
        found = loops.each(lambda part: self.pick(pool.take(part)), parts)
        return self.reduce(_union(found), first)

    def later_round(self, pools: list[_Pool]) -> _Pool:
        """Return k rows of what several ranges gave."""
        return self.reduce(_union(pools), int(pools[0].row_N.min(initial=0)))


def _split(n: int, size: int, *key: int) -> list[np.ndarray]:
    """Return random parts of nearly equal size, at most ``size``, each in ascending order."""
    order = keyed(_SPLIT, *key).permutation(n)
    return [np.sort(part) for part in np.array_split(order, -(-n // size))]


def _read(source: RowSource, first: int, last: int) -> np.ndarray:
    z_ND = source.read(first, last)
    if not np.isfinite(z_ND.sum(dtype=np.float64)):
        for row in np.flatnonzero(~np.isfinite(z_ND).all(1)):
            name, place = source.place(first + int(row))
            raise InputError(
                f"{name} has NaN, infinity or no vector in row {place}; drop such rows or repair "
                "what made them"
            )
    return z_ND


# -------------------------------------------------------------------------------------------------
# The last pass: the exact value of the picks, and what bounds the optimum.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RangeSums:
    """Sums over the rows of a range, or of several."""

    gain_K: np.ndarray  # Σ_i of what each pick raised, in their order
    lowest: float  # min_i max_a K_ia
    rise_N: np.ndarray  # the largest gains of further rows on the sample, within the quotas
    group_N: np.ndarray  # of those


@dataclass(frozen=True)
class _Judge:
    """Hold what every worker receives for the last pass."""

    work: _Work
    picks_KD: np.ndarray
    witness_RD: np.ndarray  # none, where no bound is wanted
    best_R: np.ndarray  # similarity of each witness to its nearest pick

    def judge(self, ends: tuple[int, int]) -> _RangeSums:
        first, last = ends
        source, quotas = self.work.source, self.work.quotas
        z_ND = _read(source, first, last)
        blocks = [z_ND[start : start + _BLOCK] for start in range(0, last - first, _BLOCK)]
        gains, lows, rises = zip(*loops.each(self._block, blocks), strict=True)
        group_N = np.zeros(last - first, np.int64)
        if quotas is not None and len(self.witness_RD):
            group_N = quotas.of(source, first, last)
        told = _RangeSums(np.sum(gains, 0), min(lows), np.concatenate(rises), group_N)
        return self.largest(told)

    @torch.no_grad()
    def _block(self, z_BD: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        rows_BD = as_tensor(z_BD, "rows")
        best_BK = (
            similarity_matrix(rows_BD, as_tensor(self.picks_KD, "picks"), self.work.similarity)
            .cummax(1)
            .values
        )
        gain_K = best_BK.sum(0, dtype=torch.float64).diff(prepend=torch.zeros(1).double())
        rise_B = np.zeros(len(z_BD))
        if len(self.witness_RD):
            witness_RD = as_tensor(self.witness_RD, "the sample")
            kernel_BR = similarity_matrix(rows_BD, witness_RD, self.work.similarity).numpy()
            everything = np.arange(len(z_BD))
            clamped_gains(kernel_BR, self.best_R, None, np.zeros(len(z_BD)), everything, rise_B)
        return gain_K.numpy(), float(best_BK[:, -1].min()), rise_B

    def largest(self, told: _RangeSums) -> _RangeSums:
        """Keep the k largest rises that the quotas allow together."""
        order = np.argsort(-told.rise_N, kind="stable")
        if self.work.quotas is not None:
            allowed = [
                order[told.group_N[order] == group][:most]
                for group, most in enumerate(self.work.quotas.most_G.tolist())
            ]
            order = np.concatenate(allowed)
            order = order[np.argsort(-told.rise_N[order], kind="stable")]
        order = order[: self.work.k]
        return replace(told, rise_N=told.rise_N[order], group_N=told.group_N[order])

    def join(self, one: _RangeSums, other: _RangeSums) -> _RangeSums:
        return self.largest(
            _RangeSums(
                one.gain_K + other.gain_K,
                min(one.lowest, other.lowest),
                np.concatenate([one.rise_N, other.rise_N]),
                np.concatenate([one.group_N, other.group_N]),
            )
        )


# -------------------------------------------------------------------------------------------------
# The driver.
# -------------------------------------------------------------------------------------------------


@dataclass
class _Driver:
    """Send tasks over ranges, and count those that are done."""

    source: RowSource
    width: int  # rows of a range
    mapper: Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
    progress: Progress | None
    passes: int
    done: int = 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        starts = range(0, self.source.rows, self.width)
        return [(start, min(start + self.width, self.source.rows)) for start in starts]

    def each(self, work: Callable[[Any], Any], tasks: list[Any] | None = None) -> Iterator[Any]:
        """Yield ``work`` of every task, in their order; of every range, where none are named."""
        whole = self.passes * len(self.ranges)
        for told in self.mapper(work, self.ranges if tasks is None else tasks):
            self.done += 1
            if self.progress is not None:
                self.progress(min(self.done, whole), whole)
            yield told

    def rows(self, row_N: np.ndarray, read: Callable[[int, int], Any]) -> np.ndarray:
        """Return what ``read(first, last)`` gives for some rows, which ascend."""
        number_N = row_N // self.width
        ranges = self.ranges
        tasks = [
            (*ranges[number], row_N[number_N == number]) for number in np.unique(number_N).tolist()
        ]
        return np.concatenate(list(self.each(partial(_some, read), tasks)))


def _some(read: Callable[[int, int], Any], task: tuple[int, int, np.ndarray]) -> np.ndarray:
    first, last, row_N = task
    return np.asarray(read(first, last))[row_N - first]


def _counts(source: RowSource, column: str, ends: tuple[int, int]) -> dict[str, int]:
    names, counts = np.unique(np.array(source.texts(column, *ends), str), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _draw(rows: int, size: int, *key: int) -> np.ndarray:
    """Return distinct rows, with memory of the sample and not of all rows."""
    if size >= rows:
        return np.arange(rows)
    return np.sort(keyed(*key).choice(rows, size, replace=False, shuffle=False))


def _quotas(driver: _Driver, column: str, at_most: int | Mapping[str, int], k: int) -> _Quotas:
    """Return quotas of the groups that there are; the rows of each are counted first."""
    held: dict[str, int] = {}
    for counts in driver.each(partial(_counts, driver.source, column)):
        for name, count in counts.items():
            held[name] = held.get(name, 0) + count
    names = sorted(held)
    asked = at_most if isinstance(at_most, Mapping) else dict.fromkeys(names, at_most)
    for name, many in asked.items():
        if name not in held:
            known = did_you_mean(name, names)
            raise InputError(f"there is a quota for {name!r}, and no row of that group{known}")
        if many < 0:
            raise InputError(f"a quota must not be negative; group {name!r} has {many}")
    most = [min(asked.get(name, held[name]), held[name]) for name in names]
    if k > sum(most):
        raise InputError(f"cannot pick k = {k:,} rows: the quotas leave {sum(most):,}")
    return _Quotas(column, {name: number for number, name in enumerate(names)}, np.array(most))


def plan_shards(
    rows: int, dim: int, k: int, *, sample: int | None, bound: bool, memory: int | None, why: str
) -> SelectionPlan:
    """Return what a selection from so many rows takes, of each worker; refused where no part fits.

    >>> plan_shards(10**9, 64, 100, sample=None, bound=True, memory=4 << 30, why="").memory >> 20
    384
    """
    part, sample = max(_PART, _PER_PICK * k), min(_SAMPLE if sample is None else sample, rows)
    most = free_for_selection() if memory is None else memory
    if 4 * part * part > most:
        raise InputError(
            f"a part has {_PER_PICK} rows for each of k = {k:,} picks, and its kernel takes "
            f"{readable(4 * part * part)}; {readable(most)} may be used. Ask for fewer rows, or "
            "for more memory"
        )
    rate = products_per_second(dim)
    pairs = part / 2 + sample * k / part + k + (_BOUND if bound else 0)
    kernel = 4 * max(part * part * torch.get_num_threads(), _ENTRIES, 2 * k * sample)
    held = 2 * 4 * dim * min(_width(dim, part), rows)  # a range, and its parts
    seconds = rows * pairs * (1 / rate + 4 * 4 / 4e9)
    return SelectionPlan("sharded", why, kernel + held, seconds, sample=sample)


def select_from_shards(
    source: RowSource,
    k: int,
    *,
    similarity: Similarity | None = None,
    sample: int | None = None,
    group_column: str | None = None,
    at_most: int | Mapping[str, int] | None = None,
    id_column: str | None = None,
    memory: int | None = None,
    seed: int = 0,
    bound: bool = True,
    confidence: float = 0.95,
    engine: Engine = "local",
    why: str = "as asked",
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> ShardedResult:
    """Return k rows of a source by facility location over all of them; no machine holds the rows.

    ``sample`` rows stand for all in the later rounds. ``at_most`` is how many rows of a group may
    be picked, one number or one for each name of ``group_column``; groups that it does not name are
    free. The engine "ray" reads and picks on the workers of a cluster; the picks are the same.
    """
    similarity = similarity or "shifted_cosine"
    if similarity == "cosine":
        raise InputError(
            "facility location needs similarities that are not negative; use "
            "similarity='shifted_cosine' or 'rbf'"
        )
    if (group_column is None) != (at_most is None):
        raise InputError("quotas need both a column of groups and how many rows of each")
    if not 1 <= k <= source.rows:
        raise InputError(f"cannot pick k = {k:,} of {source.rows:,} rows")
    made = plan_shards(
        source.rows, source.dim, k, sample=sample, bound=bound, memory=memory, why=why
    )
    if announce is not None:
        announce(f"FacilityLocation over {source.rows:,} rows, {made}")
    part = max(_PART, _PER_PICK * k)
    with connected(None, "engine='ray'") if engine == "ray" else nullcontext():
        mapper = map_on_ray if engine == "ray" else map
        passes = 3 + (group_column is not None)
        driver = _Driver(source, _width(source.dim, part), mapper, progress, passes)
        quotas = None
        if group_column is not None and at_most is not None:
            quotas = _quotas(driver, group_column, at_most, k)
        judges = _draw(source.rows, made.sample or 1, _JUDGES, seed)
        witnesses = _draw(source.rows, _BOUND if bound else 0, _WITNESSES, seed)
        both = np.union1d(judges, witnesses)
        z_MD = driver.rows(both, partial(_read, source))
        judge_RD = z_MD[np.searchsorted(both, judges)]
        witness_RD = z_MD[np.searchsorted(both, witnesses)]
        work = _Work(source, k, part, similarity, seed, quotas, judge_RD)
        picks = _rounds(driver, work)
        judge = _Judge(work, picks.z_ND, witness_RD, _nearest(witness_RD, picks, similarity))
        told = reduce(judge.join, driver.each(judge.judge))
        ids = None
        if id_column is not None:
            ids = _texts(driver, picks.row_N, id_column)
    return _result(work, made, picks, told, len(witness_RD), confidence, ids)


def _width(dim: int, part: int) -> int:
    """Return rows of a range: as many as a worker holds with ease, and several parts."""
    return max(min(_RANGE, _BYTES // (4 * dim)), 4 * part)


def _rounds(driver: _Driver, work: _Work) -> _Pool:
    """Return the picks: rounds over groups of what came before, until the rest fits here."""
    found, many = driver.each(work.first_round), len(driver.ranges)
    together = max(work.fits // work.k, 2)
    while many * work.k > work.fits:
        found = driver.mapper(work.later_round, _batches(found, together))
        many = -(-many // together)
    return work.reduce(_union(found), 0)


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


@torch.no_grad()
def _nearest(witness_RD: np.ndarray, picks: _Pool, similarity: Similarity) -> np.ndarray:
    """Return the similarity of each witness to its nearest pick."""
    if not len(witness_RD):
        return np.zeros(0, np.float32)
    witness, picked = as_tensor(witness_RD, "the sample"), as_tensor(picks.z_ND, "picks")
    return similarity_matrix(witness, picked, similarity).amax(1).numpy()


def _texts(driver: _Driver, row_N: np.ndarray, column: str) -> list[str]:
    order = np.argsort(row_N)
    found = np.empty(len(order), object)
    found[order] = driver.rows(row_N[order], partial(driver.source.texts, column))
    return [str(text) for text in found]


def _result(
    work: _Work,
    made: SelectionPlan,
    picks: _Pool,
    told: _RangeSums,
    sample: int,
    confidence: float,
    ids: list[str] | None,
) -> ShardedResult:
    """Return the picks with their exact gains, and the bound."""
    value, rows, certificate = float(told.gain_K.sum()), work.source.rows, None
    if sample:
        rise, whole = float(told.rise_N.sum()) * rows / sample, sample == rows
        if not whole:
            rise += serfling(rows, sample, 1.0 - told.lowest, confidence)
        certificate = Certificate(
            value, value + rise, 1.0 if whole else confidence, None if whole else sample
        )
    groups = None
    if work.quotas is not None:
        names = list(work.quotas.numbers)
        groups = [names[number] for number in picks.group_N.tolist()]
    many = len(range(0, rows, _width(work.source.dim, work.part)))
    how = f"lazy, parts of {work.part:,} rows in {many:,} ranges"
    indices, gains = torch.tensor(picks.row_N), torch.tensor(told.gain_K)
    selection = Selection(indices, gains, picks.evaluations, how)
    places = [work.source.place(row) for row in picks.row_N.tolist()]
    return ShardedResult(
        selection, "FacilityLocation", made, value, certificate, None, places, groups, ids
    )
