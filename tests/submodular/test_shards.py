"""Selection from rows that no machine holds: what it picks, what it promises, what it reads."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from shasam import cli
from shasam.data import vector_files
from shasam.data.vector_files import ParquetShards
from shasam.errors import InputError
from shasam.submodular import FacilityLocation, certify, maximize, shards
from shasam.submodular.shards import plan_shards, select_from_shards

N, D = 3000, 6
GROUPS = np.array(["a", "b", "b", "c"])[np.random.default_rng(2).integers(0, 4, N)]
Z = np.random.default_rng(0).standard_normal((N, D), dtype=np.float32)
Z[:, 0] += (GROUPS == "b") * 2


class ArrayRows:
    """Rows of an array; remembers the largest range that was read."""

    def __init__(self, z: np.ndarray = Z, groups: np.ndarray = GROUPS) -> None:
        self.z, self.groups = z, groups
        self.rows, self.dim = z.shape
        self.most = 0

    def read(self, first: int, last: int) -> np.ndarray:
        self.most = max(self.most, last - first)
        return self.z[first:last]

    def texts(self, column: str, first: int, last: int) -> list[str]:
        return self.groups[first:last].tolist()

    def place(self, row: int) -> tuple[str, int]:
        return "array", row


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of 400 rows, parts of 100, samples below n: every round has something to do."""
    monkeypatch.setattr(shards, "_PART", 100)
    monkeypatch.setattr(shards, "_RANGE", 400)
    monkeypatch.setattr(shards, "_SAMPLE", 500)
    monkeypatch.setattr(shards, "_BOUND", 400)
    monkeypatch.setattr(shards, "_ENTRIES", 500 * 40)  # 40 rows, so 5 ranges of 8 picks together


def test_few_rows_are_picked_as_by_plain_greedy() -> None:
    told = select_from_shards(ArrayRows(Z[:800], GROUPS[:800]), 8)
    plain = maximize(FacilityLocation.from_features(Z[:800]), 8)
    assert told.selection.indices.tolist() == plain.indices.tolist()


def value(picks: list[int]) -> float:
    return float(FacilityLocation.from_features(Z.astype(np.float64))(picks))


def test_value_and_gains_are_exact_over_all_rows_and_near_those_of_one_machine(small) -> None:
    told = select_from_shards(ArrayRows(), 8)
    picks = told.selection.indices.tolist()
    assert len(set(picks)) == 8
    assert told.value == pytest.approx(value(picks), rel=1e-6)
    for step, gain in enumerate(told.selection.gains.tolist()):
        assert gain == pytest.approx(value(picks[: step + 1]) - value(picks[:step]), rel=1e-5)
    whole = maximize(FacilityLocation.from_features(Z), 8)
    assert told.value >= 0.985 * value(whole.indices.tolist())


def test_rows_are_read_by_ranges_and_the_driver_sees_picks_alone(small, monkeypatch) -> None:
    source, sent = ArrayRows(), []
    real = shards._rounds

    def spied(driver, work):
        def mapper(task, works):
            for told in map(task, works):
                sent.append(told)
                yield told

        driver.mapper = mapper
        return real(driver, work)

    monkeypatch.setattr(shards, "_rounds", spied)
    select_from_shards(source, 8)
    assert source.most == 400
    pools = [one for one in sent if hasattr(one, "row_N")]
    assert {len(pool.row_N) for pool in pools} == {8}
    assert len(pools) == 8 + 2  # of 8 ranges, then of 5 and of 3 of them


def test_the_picks_follow_from_the_seed_and_not_from_threads_or_files(small, tmp_path) -> None:
    plain = select_from_shards(ArrayRows(), 8)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        threads = select_from_shards(ArrayRows(), 8)
    finally:
        torch.set_num_threads(before)
    assert threads.selection.indices.tolist() == plain.selection.indices.tolist()
    write_shards(tmp_path / "few", [0, 1700, N])
    write_shards(tmp_path / "many", [0, 1, 399, 400, 400, 1201, 2999, N], group=130)
    for name in ("few", "many"):
        read = select_from_shards(ParquetShards.open([str(tmp_path / name)]), 8)
        assert read.selection.indices.tolist() == plain.selection.indices.tolist()
        assert read.value == pytest.approx(plain.value, rel=1e-9)
        assert read.certificate.optimum_at_most == pytest.approx(
            plain.certificate.optimum_at_most, rel=1e-6
        )
    other = select_from_shards(ArrayRows(), 8, seed=1)
    assert other.selection.indices.tolist() != plain.selection.indices.tolist()


def test_an_engine_may_run_the_tasks_in_any_order(small, monkeypatch) -> None:
    def backwards(task, works):
        works = list(works)
        return reversed([task(work) for work in reversed(works)])

    plain = select_from_shards(ArrayRows(), 8)
    monkeypatch.setattr(shards, "map", backwards, raising=False)
    assert select_from_shards(ArrayRows(), 8).selection.indices.tolist() == (
        plain.selection.indices.tolist()
    )


def best_value(z: np.ndarray, k: int, groups: list[str] | None = None, most: int = 9) -> float:
    f = FacilityLocation.from_features(z.astype(np.float64))
    sets = itertools.combinations(range(len(z)), k)
    if groups is not None:
        sets = (s for s in sets if all([groups[v] for v in s].count(g) <= most for g in groups))
    return max(float(f(list(chosen))) for chosen in sets)


@pytest.mark.parametrize("quota", [None, 1])
def test_the_bound_is_above_the_optimum(quota: int | None) -> None:
    """Exact where all rows are looked at, and found by trying all sets."""
    for seed in range(4):
        z = np.random.default_rng(seed).standard_normal((14, 3), dtype=np.float32)
        names = np.array(list("aabbbbbcccccca"))
        quotas = {} if quota is None else {"group_column": "g", "at_most": quota}
        told = select_from_shards(ArrayRows(z, names), 3, **quotas)
        best = best_value(z, 3, None if quota is None else names.tolist(), quota or 9)
        assert told.certificate.confidence == 1 and told.certificate.sample is None
        assert told.value <= best * (1 + 1e-6) <= told.certificate.optimum_at_most * (1 + 2e-6)
        if quota is not None:
            free = select_from_shards(ArrayRows(z, names), 3)
            assert told.certificate.optimum_at_most <= free.certificate.optimum_at_most + 1e-6


def test_the_sampled_bound_is_that_of_certify_and_rarely_below_the_exact_one(small) -> None:
    f = FacilityLocation.from_features(Z)
    below = 0
    for seed in range(10):
        told = select_from_shards(ArrayRows(), 8, seed=seed)
        exact = certify(f, told.selection.indices)
        assert told.certificate.sample == 400 and told.certificate.confidence == 0.95
        assert told.certificate.value == pytest.approx(exact.value, rel=1e-5)
        # exact is itself above the optimum; the sampled one is an estimate of it with a margin
        below += told.certificate.optimum_at_most < exact.optimum_at_most
        assert told.certificate.optimum_at_most == pytest.approx(exact.optimum_at_most, rel=0.1)
    assert below <= 2
    assert select_from_shards(ArrayRows(), 8, bound=False).certificate is None


@pytest.mark.parametrize("at_most", [3, {"b": 1}, {"a": 2, "b": 2, "c": 4}])
def test_quotas_hold_across_ranges(small, at_most) -> None:
    told = select_from_shards(ArrayRows(), 8, group_column="g", at_most=at_most)
    picks = told.selection.indices.tolist()
    assert told.groups == GROUPS[picks].tolist() and len(set(picks)) == 8
    for name in "abc":
        most = at_most if isinstance(at_most, int) else at_most.get(name, N)
        assert told.groups.count(name) <= most
    whole = maximize(FacilityLocation.from_features(Z), 8, groups=GROUPS.tolist(), at_most=at_most)
    assert told.value >= 0.98 * value(whole.indices.tolist())


def test_quotas_are_filled_by_groups_that_lie_in_one_range(small) -> None:
    """Rare groups, rows in the order of their groups: every part still gives what it can."""
    names = np.sort(np.array(["a"] * (N - 6) + ["b"] * 3 + ["c"] * 3))
    told = select_from_shards(ArrayRows(Z, names), 8, group_column="g", at_most=3)
    assert max(map(told.groups.count, "abc")) == 3 and min(map(told.groups.count, "abc")) == 2
    full = select_from_shards(ArrayRows(Z, names), 9, group_column="g", at_most=3)
    assert sorted(full.groups) == list("aaabbbccc")


WRONG = {
    "k": ({"k": N + 1}, "cannot pick k = 3,001 of 3,000 rows"),
    "cosine": ({"similarity": "cosine"}, "not negative"),
    "column alone": ({"group_column": "g"}, "both a column of groups"),
    "stray": ({"group_column": "g", "at_most": {"bb": 1}}, "no row of that group"),
    "few": ({"group_column": "g", "at_most": 2}, "the quotas leave 6"),
    "negative": ({"group_column": "g", "at_most": -1}, "must not be negative"),
    "memory": ({"memory": 1000}, "a part has 10 rows for each of k = 8 picks"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_done_is_one_sentence(name: str) -> None:
    settings, sentence = WRONG[name]
    with pytest.raises(InputError, match=sentence):
        select_from_shards(ArrayRows(), **({"k": 8} | settings))


def test_a_plan_grows_with_the_rows_in_time_and_not_in_memory() -> None:
    made = [
        plan_shards(n, 64, 100, sample=None, bound=True, memory=4 << 30, why="as asked")
        for n in (10**6, 10**9)
    ]
    assert made[0].memory == made[1].memory < 1 << 30
    assert made[1].seconds > 100 * made[0].seconds


# -------------------------------------------------------------------------------------------------
# Parquet files.
# -------------------------------------------------------------------------------------------------


def write_shards(folder: Path, edges: list[int], group: int = 10_000, z: np.ndarray = Z) -> None:
    folder.mkdir(parents=True)
    for number, (first, last) in enumerate(itertools.pairwise(edges)):
        vectors = pa.FixedSizeListArray.from_arrays(z[first:last].ravel(), D)
        names = [f"row-{row}" for row in range(first, last)]
        table = pa.table({"z": vectors, "name": names, "g": GROUPS[first:last].tolist()})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=group)


def test_any_range_of_shards_is_read_and_only_its_row_groups(tmp_path, monkeypatch) -> None:
    write_shards(tmp_path / "s", [0, 700, 700, 701, N], group=100)
    source = ParquetShards.open([str(tmp_path / "s")])
    assert (source.rows, source.dim, source.key) == (N, D, "z")
    for first, last in [(0, N), (0, 1), (699, 702), (650, 850), (N - 1, N), (701, 801)]:
        np.testing.assert_array_equal(source.read(first, last), Z[first:last])
        assert source.texts("name", first, last) == [f"row-{row}" for row in range(first, last)]
    assert source.place(700) == (str(tmp_path / "s" / "part-2.parquet"), 0)
    seen, real = [], vector_files.pq.ParquetFile.iter_batches

    def spied(self, *args, row_groups, **more):
        seen.append(row_groups)
        return real(self, *args, row_groups=row_groups, **more)

    monkeypatch.setattr(vector_files.pq.ParquetFile, "iter_batches", spied)
    source.read(250, 410)
    assert seen == [[2, 3, 4]]


def test_shards_of_another_file_system(small) -> None:
    memory = fsspec.filesystem("memory")
    for number, (first, last) in enumerate(itertools.pairwise([0, 1000, N])):
        with memory.open(f"/shards/part-{number}.parquet", "wb") as file:
            pq.write_table(pa.table({"z": list(Z[first:last])}), file)
    source = ParquetShards.open(["memory://shards"])
    assert source.names[1].startswith("memory://") and source.rows == N
    np.testing.assert_array_equal(source.read(990, 1010), Z[990:1010])
    listed = ParquetShards.open(
        ["memory://shards/part-1.parquet", "memory://shards/part-0.parquet"]
    )
    np.testing.assert_array_equal(listed.read(0, 3), Z[1000:1003])
    assert ParquetShards.open(["memory://shards/part-*.parquet"]).rows == N
    with pytest.raises(InputError, match="holds no Parquet files"):
        ParquetShards.open(["memory://shards/other-*.parquet"])


def test_shards_that_cannot_be_used_are_named(small, tmp_path) -> None:
    bad = Z.copy()
    bad[1234, 2] = np.nan
    write_shards(tmp_path / "nan", [0, 1000, N], z=bad)
    with pytest.raises(
        InputError, match=r"part-1.parquet has NaN, infinity or no vector in row 234"
    ):
        select_from_shards(ParquetShards.open([str(tmp_path / "nan")]), 8)
    write_shards(tmp_path / "cut", [0, 1000, N])
    source = ParquetShards.open([str(tmp_path / "cut")])
    write_shards(tmp_path / "short", [0, 500])
    (tmp_path / "short" / "part-0.parquet").rename(tmp_path / "cut" / "part-0.parquet")
    with pytest.raises(InputError, match="is damaged, or was changed"):
        source.read(0, 1000)
    pq.write_table(pa.table({"z": list(Z[:9, :4])}), tmp_path / "cut" / "part-0.parquet")
    mixed = [str(tmp_path / "cut" / f"part-{number}.parquet") for number in (1, 0)]
    with pytest.raises(InputError, match="do not have one length: 4, 6"):
        ParquetShards.open(mixed).read(1990, 2005)
    other = pa.table({"z": pa.array([b"12345678"] * 9)})  # of another type than the first file's
    pq.write_table(other, tmp_path / "cut" / "part-0.parquet")
    with pytest.raises(InputError, match="are binary, and not lists of numbers"):
        ParquetShards.open(mixed).read(1990, 2005)
    (tmp_path / "text.csv").write_text("a,b\n")
    with pytest.raises(InputError, match="is no Parquet file"):
        ParquetShards.open([str(tmp_path / "text.csv")])
    with pytest.raises(InputError, match="has no column 'nam'; did you mean"):
        source.texts("nam", 1000, 1001)


# -------------------------------------------------------------------------------------------------
# The command.
# -------------------------------------------------------------------------------------------------


def run(*words: str) -> tuple[pa.Table, dict]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["select", *words, "-k", "8", "--threads", "1"])
    assert ended.value.code == 0
    table = pq.read_table("selected.parquet")
    return table, json.loads(table.schema.metadata[b"shasam"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_shards(tmp_path / "s", [0, 1100, 2400, N])
    before = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(before)


def test_the_command_selects_from_shards_with_ids_files_quotas_and_a_bound(
    small, folder, capsys
) -> None:
    words = ["s", "--method", "sharded", "--id-column", "name"]
    table, known = run(*words, "--group-column", "g", "--at-most", "a=2", "--at-most", "b=3")
    printed = capsys.readouterr().out
    assert "method sharded: as asked" in printed and "of the optimum" in printed
    rows = table.column("row").to_pylist()
    assert table.column("id").to_pylist() == [f"row-{row}" for row in rows]
    assert table.column("group").to_pylist() == GROUPS[rows].tolist()
    assert GROUPS[rows].tolist().count("a") <= 2 and GROUPS[rows].tolist().count("b") <= 3
    for row, name, place in zip(rows, *map(table.column, ("file", "file_row")), strict=True):
        read = pq.read_table(name.as_py()).column("name").to_pylist()
        assert read[place.as_py()] == f"row-{row}"
    assert known["certificate"]["value"] == known["value"] == pytest.approx(value(rows), rel=1e-6)


def test_files_one_by_one_and_a_folder_that_does_not_fit_are_sharded(small, folder, capsys) -> None:
    plain, known = run("s")
    assert known["method"] == "exact"
    names = [f"s/part-{number}.parquet" for number in range(3)]
    listed, known = run(*names)
    assert known["method"] == "sharded"
    table, known = run("s", "--memory", "0.00006")
    assert known["method"] == "sharded"
    assert "the vectors take 70.3 KiB and 62.9 KiB may be used" in " ".join(
        capsys.readouterr().out.split()
    )
    assert table.column("row").to_pylist() == listed.column("row").to_pylist()
    assert "file" not in plain.column_names


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "sharded", "--function", "gc"], "for the function fl alone"),
        (["s/part-0.parquet", "--query", "q.npy"], "for the function fl alone"),
        (["--at-most", "3"], "belong together"),
        (["--group-column", "g", "--at-most", "a=x"], "a whole number, or NAME=NUMBER"),
        (["--group-column", "gg", "--at-most", "3"], "has no column 'gg'"),
    ],
)
def test_what_the_command_cannot_shard_is_one_sentence(words, sentence, folder, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["select", "s", *words, "-k", "3"])
    assert ended.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
