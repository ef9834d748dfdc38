"""Select rows: a function by its name, a method that suits the rows and the memory, the picks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.memory import available_memory, readable
from shasam.submodular.bounds import Certificate, SampledValue, certify, maximize_sampled
from shasam.submodular.concave import FeatureBased, SaturatedCoverage
from shasam.submodular.facility_location import FLCG, FLCMI, FLQMI, FacilityLocation
from shasam.submodular.graph_cut import GCCG, GCMI, GraphCut
from shasam.submodular.greedy import Engine, Progress, maximize
from shasam.submodular.kernels import Similarity
from shasam.submodular.logdet import LogDet, LogDetCG, LogDetCMI, LogDetMI
from shasam.submodular.set_function import SetFunction
from shasam.submodular.sieve import Sieve
from shasam.submodular.sparse import Neighbours, SparseFacilityLocation
from shasam.types import Selection

# -------------------------------------------------------------------------------------------------
# Which way of selecting suits so many rows and so much memory, and what it will cost.
#
# Facility location over n rows compares n² pairs. Where that kernel fits it is the best way; where
# it does not, the rows are split into random parts whose kernels fit, so that an answer with a
# bound comes instead of a refusal. Functions that need no kernel are always walked exactly.
# -------------------------------------------------------------------------------------------------

Method = Literal["auto", "exact", "partitioned", "sampled", "stochastic", "sieve", "neighbours"]
METHODS = get_args(Method)
_PASSES = 12  # times that a lazy walk reads its kernel, about
_SAMPLE = 8192  # represented rows of a sample; the bound narrows with its root
_RATE = 4e9  # bytes per second that a walk reads, a cautious figure
_SIEVES = 60
_PART = 2_500  # rows of a part: larger ones take longer and hardly gain (docs/benchmarks.md)
_PER_PICK = 10  # rows of a part for each pick, or round one would keep almost everything


@dataclass(frozen=True)
class SelectionPlan:
    """A method with its settings, and an estimate of what it takes."""

    method: str
    why: str
    memory: int  # bytes beside the features
    seconds: float  # of processor time, roughly
    partitions: int | None = None
    sample: int | None = None

    def __str__(self) -> str:
        return (
            f"method {self.method}: {self.why}; about {readable(self.memory)} of memory and "
            f"{_duration(self.seconds)} of processor time"
        )


def free_for_selection() -> int:
    """Return half of the free memory, so that the rest of the machine goes on."""
    free = available_memory()
    return 4 << 30 if free is None else free // 2


def products_per_second(width: int) -> float:
    """Measure how many similarities of so many numbers each one thread computes in a second."""
    x = torch.rand(1024, width)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        x @ x.T
        best = min(best, time.process_time() - start)
    return 1024 * 1024 / max(best, 1e-6)


def plan(
    n: int,
    width: int,
    k: int,
    *,
    squares: bool,
    method: Method = "auto",
    partitions: int | None = None,
    sample: int | None = None,
    neighbours: int = 32,
    costs: bool = False,
    memory: int | None = None,
) -> SelectionPlan:
    """Choose the way to select k of n rows; ``squares`` says if the function compares all pairs.

    ``costs``: the picks have costs and a budget, which random parts cannot share.

    >>> plan(1_000, 64, 10, squares=True, memory=1 << 30).method
    'exact'
    >>> large = plan(1_000_000, 64, 100, squares=True, memory=1 << 30)
    >>> large.method, large.partitions
    ('partitioned', 400)
    """
    if method not in METHODS:
        raise InputError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    memory = free_for_selection() if memory is None else memory
    rate, kernel = products_per_second(width), 4 * n * n
    why = "as asked"
    if method == "auto":
        method, why = _automatic(kernel, squares, partitions, sample, costs, memory)
    sample = min(_SAMPLE if sample is None else sample, n)
    if method == "exact":
        if not squares:
            return SelectionPlan("exact", why, 16 * n * width, n * k / rate * 4)
        if kernel > memory:
            why += (
                f", though the kernel takes {readable(kernel)} and {readable(memory)} may be used"
            )
        return SelectionPlan("exact", why, kernel, n * n / rate / 2 + _PASSES * kernel / _RATE)
    if method == "partitioned":
        parts = partitions or fewest_parts(n, k, memory)
        rows = -(-n // parts)
        judged = min(parts * k * n, 2**28)
        seconds = n * rows / rate / 2 + judged / rate + _PASSES * 4 * (n * rows + judged) / _RATE
        threads = torch.get_num_threads()
        return SelectionPlan(
            "partitioned", why, 4 * (rows * rows * threads + judged), seconds, partitions=parts
        )
    if method == "sampled":
        kept = n * sample <= 2**28
        seconds = n * sample * ((1 if kept else _PASSES) / rate + _PASSES * 4 / _RATE)
        return SelectionPlan(
            "sampled", why, 4 * n * sample if kept else 2**28, seconds, sample=sample
        )
    if method == "stochastic":
        seconds = 2.3 * n * sample * (1 / rate + 4 / _RATE)
        return SelectionPlan("stochastic", why, 2**28, seconds, sample=sample)
    if method == "sieve":
        seconds = n * sample * (1 / rate + _SIEVES * 4 / _RATE / 4)
        return SelectionPlan("sieve", why, 4 * sample * _SIEVES + 2**25, seconds, sample=sample)
    return SelectionPlan("neighbours", why, 24 * n * neighbours, n * n / rate)


def _automatic(
    kernel: int,
    squares: bool,
    partitions: int | None,
    sample: int | None,
    costs: bool,
    memory: int,
) -> tuple[Method, str]:
    if partitions is not None:
        return "partitioned", f"{partitions} parts were asked for"
    if not squares:
        return "exact", "the function needs no kernel"
    if kernel <= memory:
        return "exact", f"the kernel of {readable(kernel)} fits in {readable(memory)}"
    short = f"the kernel would take {readable(kernel)} and {readable(memory)} may be used, so "
    if costs or sample is not None:
        return "sampled" if costs else "stochastic", f"{short}a sample of the rows stands for all"
    return "partitioned", f"{short}picks come from random parts first, then from those picks"


def fewest_parts(n: int, k: int, memory: int) -> int:
    """Count parts that fit side by side in half of the memory, of up to 2,500 rows or 10 per pick.

    >>> fewest_parts(1_000_000, 100, 4 << 30), fewest_parts(1_000_000, 1_000, 4 << 30)
    (400, 100)
    """
    side = int(np.sqrt(memory / 2 / 4 / torch.get_num_threads()))
    return -(-n // max(min(side, max(_PART, _PER_PICK * k)), 1))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# -------------------------------------------------------------------------------------------------
# Selection of rows as a whole: a function by its name, a plan, the picks, and their bound.
# -------------------------------------------------------------------------------------------------

Function = Literal["fl", "gc", "logdet", "saturated", "features"]
# function -> the class without given sets, with a query, with a private set, with both
_CLASSES: dict[str, tuple[Any, Any, Any, Any]] = {
    "fl": (FacilityLocation, FLQMI, FLCG, FLCMI),
    "gc": (GraphCut, GCMI, GCCG, None),
    "logdet": (LogDet, LogDetMI, LogDetCG, LogDetCMI),
    "saturated": (SaturatedCoverage, None, None, None),
    "features": (FeatureBased, None, None, None),
}
_BLOCK = 10_000  # rows of a stream


@dataclass(frozen=True)
class SelectionResult:
    """Picks with the function and the plan that made them, and what is known of their value."""

    selection: Selection
    function: str
    plan: SelectionPlan
    value: float  # exact, over all rows
    certificate: Certificate | None  # None: the function has no such bound
    estimate: SampledValue | None  # of a sampled represented set


def function_over(
    name: Function,
    z: Any,
    query: Any = None,
    private: Any = None,
    similarity: Similarity | None = None,
) -> SetFunction:
    """Return the set function of a name over features.

    >>> type(function_over("fl", [[1.0, 0.0], [0.0, 1.0]], query=[[1.0, 1.0]])).__name__
    'FLQMI'
    """
    if name not in _CLASSES:
        raise InputError(f"there is no function {name!r}; there are {', '.join(_CLASSES)}")
    place = (query is not None) + 2 * (private is not None)
    made = _CLASSES[name][place]
    if made is None:
        given = ("", "a query", "a private set", "a query and a private set")[place]
        raise InputError(f"the function {name} does not take {given}; fl and logdet do")
    if made is FeatureBased:
        return FeatureBased(z)
    sets = [given for given in (query, private) if given is not None]
    return made.from_features(z, *sets, similarity=similarity)


def select_rows(
    z: Any,
    k: int | None,
    *,
    function: Function = "fl",
    method: Method = "auto",
    query: Any = None,
    private: Any = None,
    similarity: Similarity | None = None,
    partitions: int | None = None,
    sample: int | None = None,
    neighbours: int = 32,
    costs: Any = None,
    budget: float | None = None,
    memory: int | None = None,
    seed: int = 0,
    bound: bool = True,
    engine: Engine = "local",
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> SelectionResult:
    """Select k rows of z by a function and a method; ``announce`` hears the plan first.

    With the engine "ray" the method is "partitioned", and Ray's workers pick from the parts.

    >>> z = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    >>> told = select_rows(z, 5, memory=1 << 30)
    >>> told.plan.method, len(told.selection), told.certificate.share > 0.8
    ('exact', 5, True)
    """
    if engine != "local" and method not in ("auto", "partitioned"):
        raise InputError(f"the engine {engine} is for the method partitioned, not for {method}")
    f = function_over(function, z, query, private, similarity)
    compares_all = function in ("fl", "saturated") and query is None
    made = plan(
        f.n,
        np.shape(z)[1],
        k or 100,
        squares=compares_all or similarity == "rbf",
        method=method if engine == "local" else "partitioned",
        partitions=partitions,
        sample=sample,
        neighbours=neighbours,
        costs=costs is not None,
        memory=memory,
    )
    if costs is not None and made.method in ("partitioned", "sieve"):
        raise InputError(f"costs cannot be combined with the method {made.method}")
    if announce is not None:
        announce(f"{type(f).__name__} over {f.n:,} rows, {made}")
    generator = torch.Generator().manual_seed(seed)
    picked, told = _pick(
        f, z, k, made, function, neighbours, costs, budget, generator, progress, similarity, engine
    )
    gains = f.gains_along(picked.indices) if len(picked) else picked.gains
    chosen = Selection(picked.indices, gains, picked.evaluations, picked.optimizer)
    certificate = None
    if bound and costs is None and len(chosen) and f.monotone and f.submodular:
        certificate = certify(f, chosen, generator=torch.Generator().manual_seed(seed + 1))
    return SelectionResult(
        chosen, type(f).__name__, made, float(gains.double().sum()), certificate, told
    )


def _pick(
    f: SetFunction,
    z: Any,
    k: int | None,
    made: SelectionPlan,
    function: str,
    neighbours: int,
    costs: Any,
    budget: float | None,
    generator: torch.Generator,
    progress: Progress | None,
    similarity: Similarity | None,
    engine: Engine,
) -> tuple[Selection, SampledValue | None]:
    if made.method in ("sampled", "stochastic"):
        return maximize_sampled(
            f,
            k,
            sample=made.sample or f.n,
            optimizer="stochastic" if made.method == "stochastic" and costs is None else "auto",
            costs=costs,
            budget=budget,
            generator=generator,
            progress=progress,
        )
    if made.method == "sieve":
        return _stream(f, z, k, made, generator, progress, similarity), None
    if made.method == "neighbours":
        if type(f) not in (FacilityLocation, GraphCut):
            raise InputError(
                f"the method neighbours is for the functions fl and gc without query or private "
                f"set; {type(f).__name__} is neither"
            )
        near = Neighbours(z, neighbours, similarity or "shifted_cosine", progress=progress)
        f = SparseFacilityLocation(near) if function == "fl" else GraphCut(near)
        progress = None
    return maximize(
        f,
        k,
        costs=costs,
        budget=budget,
        partitions=made.partitions,
        engine=engine,
        generator=generator,
        progress=progress,
    ), None


def _stream(
    f: SetFunction,
    z: Any,
    k: int | None,
    made: SelectionPlan,
    generator: torch.Generator,
    progress: Progress | None,
    similarity: Similarity | None,
) -> Selection:
    """Pass once over the rows; a random sample of them is represented."""
    if type(f) is not FacilityLocation or k is None:
        raise InputError("the method sieve is for the function fl without query or private set")
    rows: Tensor = torch.randperm(f.n, generator=generator)[: made.sample].sort().values
    sieve = Sieve(k, z[rows.numpy()], similarity=similarity or "shifted_cosine")
    for start in range(0, f.n, _BLOCK):
        sieve.see(z[start : start + _BLOCK])
        if progress is not None:
            progress(min(start + _BLOCK, f.n), f.n)
    return sieve.selection()
