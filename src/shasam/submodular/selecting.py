"""Selection of rows as a whole: a function by its name, a plan, the picks, and their bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.certificate import Certificate, certify
from shasam.submodular.facility_location import FacilityLocation
from shasam.submodular.facility_location_measures import FLCG, FLCMI, FLQMI
from shasam.submodular.feature_based import FeatureBased
from shasam.submodular.graph_cut import GCCG, GCMI, GraphCut
from shasam.submodular.kernels import Similarity
from shasam.submodular.logdet import LogDet
from shasam.submodular.logdet_measures import LogDetCG, LogDetCMI, LogDetMI
from shasam.submodular.maximize import Engine, maximize
from shasam.submodular.neighbours import Neighbours
from shasam.submodular.plan import Method, Plan, plan
from shasam.submodular.sampled import Estimate, maximize_sampled
from shasam.submodular.saturated_coverage import SaturatedCoverage
from shasam.submodular.set_function import SetFunction
from shasam.submodular.sieve import Sieve
from shasam.submodular.sparse import SparseFacilityLocation
from shasam.submodular.walks import Progress
from shasam.types import Selection

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
class Selected:
    """Picks with the function and the plan that made them, and what is known of their value."""

    selection: Selection
    function: str
    plan: Plan
    value: float  # exact, over all rows
    certificate: Certificate | None  # None: the function has no such bound
    estimate: Estimate | None  # of a sampled represented set


def function_over(
    name: Function,
    z: Any,
    query: Any = None,
    private: Any = None,
    similarity: Similarity | None = None,
) -> SetFunction:
    """The set function of a name over features.

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
) -> Selected:
    """k rows of z by a function and a method of one's choice; ``announce`` hears the plan first.

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
    return Selected(chosen, type(f).__name__, made, float(gains.double().sum()), certificate, told)


def _pick(
    f: SetFunction,
    z: Any,
    k: int | None,
    made: Plan,
    function: str,
    neighbours: int,
    costs: Any,
    budget: float | None,
    generator: torch.Generator,
    progress: Progress | None,
    similarity: Similarity | None,
    engine: Engine,
) -> tuple[Selection, Estimate | None]:
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
    made: Plan,
    generator: torch.Generator,
    progress: Progress | None,
    similarity: Similarity | None,
) -> Selection:
    """One pass over the rows; a random sample of them is represented."""
    if type(f) is not FacilityLocation or k is None:
        raise InputError("the method sieve is for the function fl without query or private set")
    rows: Tensor = torch.randperm(f.n, generator=generator)[: made.sample].sort().values
    sieve = Sieve(k, z[rows.numpy()], similarity=similarity or "shifted_cosine")
    for start in range(0, f.n, _BLOCK):
        sieve.see(z[start : start + _BLOCK])
        if progress is not None:
            progress(min(start + _BLOCK, f.n), f.n)
    return sieve.selection()
