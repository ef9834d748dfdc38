"""``shasam select``: the rows of a file of embeddings that stand for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from shasam.errors import InputError
from shasam.runs.machine import MOST_THREADS

if TYPE_CHECKING:
    import numpy as np

    from shasam.data.vector_files import VectorRows
    from shasam.submodular.selection import SelectionResult


MOST_MEMORY = 2.0**33  # GiB; more bytes than 64 bits count
Function = Literal["fl", "gc", "logdet", "saturated", "features"]
Method = Literal[
    "auto", "exact", "partitioned", "sharded", "sampled", "stochastic", "sieve", "neighbours"
]
Similarity = Literal["cosine", "shifted_cosine", "rbf"]


def select(
    embeddings: list[str],
    /,
    *,
    k: Annotated[int | None, Parameter(name=["-k", "--k"])] = None,
    function: Function = "fl",
    method: Method = "auto",
    similarity: Similarity | None = None,
    query: Path | None = None,
    private: Path | None = None,
    partitions: int | None = None,
    sample: int | None = None,
    neighbours: int = 32,
    cost_column: str | None = None,
    budget: float | None = None,
    group_column: str | None = None,
    at_most: Annotated[list[str] | None, Parameter(negative=())] = None,
    id_column: str | None = None,
    table: Path | None = None,
    features_key: str | None = None,
    memory: float | None = None,
    threads: int | None = None,
    seed: int = 0,
    bound: bool = True,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    out: Path = Path("selected.parquet"),
) -> None:
    """Select the rows of a file of embeddings that represent all of them.

    Chooses a method from row count and free memory, and prints its cost before starting. The picks
    go to a Parquet file with their gains.

    Parameters
    ----------
    embeddings
        One row per element: .npy, .npz, .safetensors, Parquet or Arrow with a vector column; or
        Parquet files, or folders of them, whose rows count in the order of the files' names. They
        may lie on any file system of fsspec, such as s3://bucket/folder.
    k
        How many rows; with a budget, at most so many.
    function
        fl (facility location), gc (graph cut), logdet, saturated (saturated coverage) or features
        (feature-based, for numbers that are not negative).
    method
        auto, exact, partitioned, sharded (ranges of Parquet files, never all rows), sampled (of the
        represented rows), stochastic (sampled, and each step looks at random candidates), sieve
        (one pass), neighbours (near pairs only).
    similarity
        cosine, shifted_cosine or rbf; by default what suits the function.
    query
        A file of embeddings: pick rows like these (FLQMI, GCMI, LogDetMI).
    private
        A file of embeddings: pick rows unlike these (FLCG, GCCG, LogDetCG).
    partitions
        How many random parts, for the method partitioned.
    sample
        How many represented rows, for the methods sharded, sampled, stochastic and sieve.
    neighbours
        How many neighbours of each row are kept, for the method neighbours.
    cost_column
        Column of positive costs, for --budget.
    budget
        What the picks may cost together.
    group_column
        Column of groups, for --at-most; the method is sharded.
    at_most
        How many rows of a group may be picked: a number for all, or NAME=NUMBER, several times.
    id_column
        A column whose values are written beside the row numbers.
    table
        CSV or Parquet with those columns, one row per embedding; by default the embeddings' file.
    features_key
        The array or column of vectors, where the file has several.
    memory
        GiB that may be used beside the embeddings; by default half of what is free.
    threads
        Threads; by default as many as there are cores.
    seed
        Random seed (partitions, samples, candidates).
    bound
        Also compute how far the picks can be from the best ones.
    engine
        ray: parts or ranges are tasks of a Ray cluster, for the methods sharded and partitioned;
        the same picks.
    address
        Ray address: auto or HOST:PORT. Default: a temporary local Ray.
    out
        Parquet with rank, row, id, gain, value and cost; of shards also file, file_row and
        group.
    """
    from contextlib import nullcontext

    from shasam.cluster import connected
    from shasam.commands.flags import check_seed
    from shasam.files import check_writable
    from shasam.output import say, shown_progress

    if k is None and budget is None:
        raise InputError("say how many rows to select with -k, or give --cost-column and --budget")
    if address is not None and engine != "ray":
        raise InputError("--address belongs to --engine ray; leave it out, or add that")
    if threads is not None:
        import torch

        if not 1 <= threads <= MOST_THREADS:
            raise InputError(f"--threads must be 1 to {MOST_THREADS}; got {threads}")
        torch.set_num_threads(threads)
    if memory is not None and not 0 < memory < MOST_MEMORY:
        raise InputError(f"--memory is a number of GiB above 0; got {memory}")
    check_seed(seed)
    check_writable(out)
    limit = None if memory is None else int(memory * 2**30)
    alone = [function != "fl", query, private, cost_column, table, partitions]
    asked = method == "sharded" or group_column is not None or at_most is not None
    why = _why_sharded(embeddings, features_key, method, engine, asked, alone, limit)
    common: dict[str, Any] = {
        "similarity": similarity,
        "sample": sample,
        "memory": limit,
        "seed": seed,
        "bound": bound,
        "engine": engine,
        "announce": say,
    }
    ray = connected(address, "--engine ray") if engine == "ray" else nullcontext()
    with ray, shown_progress() as named:
        common["progress"] = named("selecting")
        ids, costs = None, None
        if why is not None:
            told = _from_shards(
                embeddings, k, features_key, group_column, at_most, id_column, common | {"why": why}
            )
        else:
            place = Path(embeddings[0])
            features = _open(place, features_key)
            beside = table or place
            costs = None if cost_column is None else _numbers(beside, cost_column, len(features))
            ids = None if id_column is None else _texts(beside, id_column, len(features))
            told = _from_rows(
                matrix(features), k, function, method, query, private, common,
                partitions=partitions, neighbours=neighbours, costs=costs, budget=budget,
            )  # fmt: skip
    named_by = ", ".join(Path(place).name for place in embeddings[:3])
    write(told, out, ids, costs, {"embeddings": named_by, "seed": seed, "k": k})
    for line in summary(told, out):
        say(line)


def _why_sharded(
    places: list[str],
    key: str | None,
    method: str,
    engine: str,
    asked: bool,
    alone: list[Any],
    memory: int | None,
) -> str | None:
    """Return why ranges of files are read and not all rows; None if they are read whole.

    ``alone`` are flags that the method sharded does not go with.
    """
    from shasam.data.vector_files import PARQUET, ParquetShards
    from shasam.memory import readable
    from shasam.submodular.selection import free_for_selection

    local = all("://" not in place for place in places)
    single = len(places) == 1 and local
    folder = single and Path(places[0]).is_dir()
    table = single and Path(places[0]).suffix.lower() in PARQUET and Path(places[0]).is_file()
    if asked or not single:
        if any(alone) or method not in ("auto", "sharded"):
            raise InputError(
                "several files, remote files, quotas and the method sharded are for the function "
                "fl alone: without --query, --private, --cost-column, --table and --partitions"
            )
        return "as asked" if asked else "the rows are in files of their own"
    if any(alone) or method != "auto" or not (table or folder):
        return None
    if engine == "ray" and folder:
        return "workers read the files"
    shards = ParquetShards.open(places, key)
    needed, most = 4 * shards.rows * shards.dim, memory or free_for_selection()
    if needed <= most:
        return None
    return f"the vectors take {readable(needed)} and {readable(most)} may be used"


def _from_shards(
    places: list[str],
    k: int | None,
    key: str | None,
    group_column: str | None,
    at_most: list[str] | None,
    id_column: str | None,
    common: dict[str, Any],
) -> SelectionResult:
    from shasam.data.vector_files import ParquetShards
    from shasam.submodular.shards import select_from_shards

    if k is None:
        raise InputError("say how many rows to select with -k")
    if (group_column is None) != (at_most is None):
        raise InputError("--group-column and --at-most belong together; give both")
    quotas = None if at_most is None else _quotas(at_most)
    return select_from_shards(
        ParquetShards.open(places, key),
        k,
        group_column=group_column,
        at_most=quotas,
        id_column=id_column,
        **common,
    )


def _quotas(words: list[str]) -> int | dict[str, int]:
    """Parse quotas: 10, or NAME=10 several times.

    >>> _quotas(["10"]), _quotas(["a=3", "b=4"])
    (10, {'a': 3, 'b': 4})
    """
    try:
        if len(words) == 1 and "=" not in words[0]:
            return int(words[0])
        pairs = [word.rpartition("=") for word in words]
        return {name: int(many) for name, _, many in pairs}
    except ValueError:
        raise InputError(
            f"--at-most is a whole number, or NAME=NUMBER several times; got {' '.join(words)[:80]}"
        ) from None


def _open(place: Path, key: str | None) -> VectorRows:
    from shasam.data.vector_files import open_features, open_shards

    return (open_shards if place.is_dir() else open_features)(place, key)


def _from_rows(
    z: np.ndarray,
    k: int | None,
    function: Function,
    method: Any,
    query: Path | None,
    private: Path | None,
    common: dict[str, Any],
    **settings: Any,
) -> SelectionResult:
    from shasam.data.vector_files import open_features
    from shasam.submodular.selection import select_rows

    return select_rows(
        z,
        k,
        function=function,
        method=method,
        query=None if query is None else matrix(open_features(query)),
        private=None if private is None else matrix(open_features(private)),
        **common,
        **settings,
    )


def matrix(features: VectorRows) -> np.ndarray:
    """Return float32 (N, D): the mapped file as is, or a copy where its type or parts need one."""
    import numpy as np

    part = features.parts[0]
    if len(features.parts) == 1 and part.dtype == np.float32:
        return part
    from shasam.memory import available_memory, readable

    need, free = 4 * len(features) * features.dim, available_memory()
    if free is not None and need > 0.8 * free:
        raise InputError(
            f"the embeddings take {readable(need)} as float32 and {readable(free)} are free; save "
            "them as a float32 .npy file, which is not read whole"
        )
    return features.take(np.arange(len(features)))


def _column(path: Path, name: str, rows: int) -> list[str]:
    from shasam.registry import did_you_mean
    from shasam.tables import open_table

    source = open_table(path)
    if name not in source.column_names:
        raise InputError(f"{path} has no column {name!r}{did_you_mean(name, source.column_names)}")
    values = source.read([name], text=[name]).column(name).to_pylist()
    if len(values) != rows:
        raise InputError(f"{path} has {len(values):,} rows and there are {rows:,} embeddings")
    return ["" if value is None else str(value) for value in values]


def _texts(path: Path, name: str, rows: int) -> list[str]:
    return _column(path, name, rows)


def _numbers(path: Path, name: str, rows: int) -> list[float]:
    found = []
    for row, text in enumerate(_column(path, name, rows)):
        try:
            found.append(float(text))
        except ValueError:
            raise InputError(
                f"row {row} of {path}, column {name!r}: {text[:40]!r} is not a number"
            ) from None
    return found


def write(
    told: SelectionResult,
    out: Path,
    ids: list[str] | None,
    costs: list[float] | None,
    facts: dict[str, Any],
) -> None:
    """Write one row per pick; what is known of all picks stands in the schema's metadata."""
    import json
    from dataclasses import asdict

    import pyarrow as pa
    import pyarrow.parquet as pq

    from shasam.files import named_file
    from shasam.submodular.shards import ShardedResult

    rows = told.selection.indices.tolist()
    gains = told.selection.gains.double()
    columns: dict[str, Any] = {
        "rank": pa.array(range(1, len(rows) + 1), pa.int32()),
        "row": pa.array(rows, pa.int64()),
    }
    shards = told if isinstance(told, ShardedResult) else None
    if shards is not None:
        columns["file"] = [name for name, _ in shards.places]
        columns["file_row"] = pa.array([row for _, row in shards.places], pa.int64())
        columns |= {"group": shards.groups} if shards.groups is not None else {}
        columns |= {"id": shards.ids} if shards.ids is not None else {}
    if ids is not None:
        columns["id"] = [ids[row] for row in rows]
    columns |= {"gain": gains.tolist(), "value": gains.cumsum(0).tolist()}
    if costs is not None:
        columns["cost"] = [costs[row] for row in rows]
    known = facts | {
        "function": told.function,
        "method": told.plan.method,
        "optimizer": told.selection.optimizer,
        "value": told.value,
        "certificate": told.certificate and asdict(told.certificate),
        "estimate": told.estimate and asdict(told.estimate),
    }
    table = pa.table(columns).replace_schema_metadata({"shasam": json.dumps(known)})
    with named_file(out) as file:
        pq.write_table(table, file)


def summary(told: SelectionResult, out: Path) -> list[str]:
    """Return what was reached, and how far it can be from the best."""
    lines = [f"{len(told.selection)} rows: {out}"]
    if told.estimate is not None:
        lines.append(f"from the sample: {told.estimate}")
    if told.certificate is not None:
        lines.append(f"on all rows: {told.certificate}")
    else:
        lines.append(f"on all rows: value {told.value:,.6g}; no bound of the best was computed")
    return lines
