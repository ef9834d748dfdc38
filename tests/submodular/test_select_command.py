"""``shasam select``: from a file of vectors to a Parquet of picks with their bound."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from shasam import cli
from shasam.data.vector_files import open_shards
from shasam.errors import InputError
from shasam.submodular import FLCG, FLQMI, FacilityLocation, maximize
from shasam.submodular.selection import fewest_parts, function_over, plan, select_rows

Z = np.random.default_rng(0).standard_normal((300, 8), dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    np.save("z.npy", Z)
    np.savez("z.npz", embeddings=Z)
    np.save("wide.npy", Z.astype(np.float64))
    np.save("q.npy", Z[:3] + 0.1)
    cost = np.random.default_rng(1).random(300) + 0.1
    names = [f"row-{i}" for i in range(300)]
    table = {"embedding": list(Z), "name": names, "cost": cost}
    pq.write_table(pa.table(table), "z.parquet")
    yield tmp_path
    torch.set_num_threads(before)


def run(*words: str) -> tuple[pa.Table, dict]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["select", *words])
    assert ended.value.code == 0
    table = pq.read_table("selected.parquet")
    return table, json.loads(table.schema.metadata[b"shasam"])


@pytest.mark.parametrize("name", ["z.npy", "z.npz", "wide.npy", "z.parquet"])
def test_the_picks_of_any_format_are_those_of_maximize(name: str, folder: Path) -> None:
    table, known = run(name, "-k", "6", "--threads", "1")
    plain = maximize(FacilityLocation.from_features(Z), 6)
    assert table.column("row").to_pylist() == plain.indices.tolist()
    np.testing.assert_allclose(table.column("gain"), plain.gains, rtol=1e-5)
    np.testing.assert_allclose(table.column("value"), plain.gains.double().cumsum(0), rtol=1e-5)
    assert table.column("rank").to_pylist() == list(range(1, 7))
    assert known["method"] == "exact" and known["function"] == "FacilityLocation"
    assert known["certificate"]["optimum_at_most"] >= known["value"] > 0


def test_query_and_private_sets_costs_and_ids(folder: Path) -> None:
    for flag, made in (("--query", FLQMI), ("--private", FLCG)):
        table, known = run("z.npy", "-k", "4", flag, "q.npy")
        plain = maximize(made.from_features(Z, Z[:3] + 0.1), 4)
        assert known["function"] == made.__name__
        assert table.column("row").to_pylist() == plain.indices.tolist()
    table, known = run("z.parquet", "--cost-column", "cost", "--budget", "2", "--id-column", "name")
    assert 1 < sum(table.column("cost").to_pylist()) <= 2
    rows, ids = table.column("row").to_pylist(), table.column("id").to_pylist()
    assert ids == [f"row-{row}" for row in rows] and known["certificate"] is None
    beside = ("--table", "z.parquet", "--id-column", "name")
    assert run("z.npy", "-k", "2", *beside)[0].column("id").to_pylist()[0].startswith("row-")


def shard(name: str, rows: np.ndarray, width: int = 8) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    vectors = pa.FixedSizeListArray.from_arrays(Z[rows, :width].astype(np.float64).ravel(), width)
    pq.write_table(pa.table({"z": vectors, "name": [f"row-{row}" for row in rows]}), name)


def test_a_folder_of_parquet_files_is_one_file_in_the_order_of_the_names(folder: Path) -> None:
    for name, rows in zip("bca", np.split(np.arange(300), [90, 90]), strict=True):
        shard(f"shards/{name}/part.parquet", rows)  # c has no rows, and a the last ones
    order = [*range(90, 300), *range(90)]
    table, _ = run("shards", "-k", "6", "--id-column", "name")
    plain = maximize(FacilityLocation.from_features(Z[order]), 6)
    assert table.column("row").to_pylist() == plain.indices.tolist()
    names = [f"row-{order[row]}" for row in plain.indices.tolist()]
    assert table.column("id").to_pylist() == names


def test_a_folder_that_is_not_one_table_is_one_sentence(folder: Path) -> None:
    Path("none").mkdir()
    shard("empty/a.parquet", np.arange(0))
    shard("mixed/a.parquet", np.arange(9))
    shard("mixed/b.parquet", np.arange(9), width=5)
    for name, sentence in (
        ("none", "holds no Parquet files"),
        ("empty", "have no rows"),
        ("mixed", "b.parquet has 9 vectors of 5 numbers and should have 9 of 8"),
    ):
        with pytest.raises(InputError, match=sentence):
            open_shards(Path(name))


@pytest.mark.parametrize(
    "words",
    [
        ["--memory", "0.0001"],
        ["--memory", "0.0001", "--sample", "120"],
        ["--method", "sampled", "--sample", "120"],
        ["--partitions", "5"],
        ["--method", "sieve", "--sample", "120"],
        ["--method", "neighbours", "--neighbours", "60"],
    ],
    ids=["auto", "auto with a sample", "sampled", "partitioned", "sieve", "neighbours"],
)
def test_every_method_is_near_the_exact_one_and_has_a_bound(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture
) -> None:
    known = run("z.npy", "-k", "8", *words)[1]
    best = maximize(FacilityLocation.from_features(Z), 8).gains.sum()
    assert known["value"] >= 0.93 * float(best)
    assert known["certificate"]["optimum_at_most"] >= float(best)
    printed = capsys.readouterr().out
    assert "of memory and" in printed and "of the optimum" in printed
    if "--sample" in words and known["method"] != "sieve":
        told = known["estimate"]
        assert told["low"] <= known["value"] <= told["high"] and told["sample"] == 120
    if words[0] == "--memory":
        assert known["method"] == ("stochastic" if "--sample" in words else "partitioned")
        assert "the kernel would take" in printed


def test_a_plan_says_what_it_takes() -> None:
    small = plan(1000, 64, 10, squares=True, memory=1 << 30)
    assert small.method == "exact" and small.memory == 4_000_000
    assert plan(10**6, 64, 10, squares=False, memory=1 << 30).method == "exact"
    parts = plan(10**6, 64, 100, squares=True, partitions=50, memory=1 << 30)
    assert parts.method == "partitioned" and parts.partitions == 50
    assert "may be used" in plan(10**5, 8, 9, squares=True, method="exact", memory=1 << 20).why
    assert fewest_parts(50_000, 9, 1 << 20) > fewest_parts(50_000, 9, 1 << 30)
    large = plan(10**6, 64, 100, squares=True, memory=4 << 30)
    assert (large.method, large.partitions) == ("partitioned", 400)
    assert large.memory < 4 << 30
    # a part of 2,500 rows would keep 1,000 of them; parts cannot share a budget
    assert plan(10**6, 64, 1000, squares=True, memory=4 << 30).partitions == 100
    assert plan(10**6, 64, 100, squares=True, costs=True, memory=1 << 30).method == "sampled"


WRONG = {
    "neither k nor budget": (["z.npy"], "say how many rows"),
    "too many": (["z.npy", "-k", "400"], "at most 300"),
    "no such column": (["z.parquet", "-k", "2", "--id-column", "nam"], "did you mean"),
    "rows": (["q.npy", "-k", "2", "--table", "z.parquet", "--id-column", "name"], "300 rows and"),
    "no numbers": (["z.parquet", "--cost-column", "name", "--budget", "2"], "is not a number"),
    "no threads": (["z.npy", "-k", "2", "--threads", "0"], "must be 1 to 1024"),
    "a billion threads": (["z.npy", "-k", "2", "--threads", "1000000000"], "must be 1 to 1024"),
    "memory, no number": (["z.npy", "-k", "2", "--memory", "nan"], "GiB above 0; got nan"),
    "memory without end": (["z.npy", "-k", "2", "--memory", "inf"], "GiB above 0; got inf"),
    "no memory": (["z.npy", "-k", "2", "--memory", "0"], "GiB above 0; got 0"),
    "budget, no number": (["z.parquet", "--cost-column", "cost", "--budget", "nan"], "budget"),
    "saturated with a query": (
        ["z.npy", "-k", "2", "--function", "saturated", "--query", "q.npy"],
        "does not take a query",
    ),
    "costs and parts": (
        ["z.parquet", "--cost-column", "cost", "--budget", "2", "--partitions", "3"],
        "cannot be combined",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_done_is_one_sentence(
    name: str, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    words, sentence = WRONG[name]
    with pytest.raises(SystemExit) as ended:
        cli.main(["select", *words])
    assert ended.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (folder / "selected.parquet").exists()


def test_functions_have_names() -> None:
    for name in ("fl", "gc", "logdet", "saturated"):
        assert len(select_rows(Z, 3, function=name, bound=False).selection) == 3
    assert len(select_rows(np.abs(Z), 3, function="features").selection) == 3
    with pytest.raises(InputError, match="there is no function"):
        function_over("fll", Z)  # type: ignore[arg-type]
