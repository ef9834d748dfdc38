"""Partitioned selection on a Ray with two workers: the picks are those of one machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.cluster.deadly import Deadly, DeadlyRows
from tests.submodular.test_partition import MAKERS

pytest.importorskip("ray", reason="needs shasam[ray]: make test-ray")

from shasam import cli
from shasam.cluster import connected
from shasam.errors import InputError
from shasam.submodular import FacilityLocation, maximize, shards
from shasam.submodular.shards import select_from_shards

pytestmark = pytest.mark.slow  # a Ray takes seconds to start


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with connected(None, "the tests"):
        yield


@pytest.mark.parametrize("name", MAKERS)
def test_parts_on_ray_pick_what_parts_here_pick(name: str) -> None:
    f = MAKERS[name]()
    made = torch.Generator().manual_seed
    here = maximize(f, 6, partitions=4, generator=made(3))
    there = maximize(f, 6, partitions=4, generator=made(3), engine="ray")
    assert there.indices.tolist() == here.indices.tolist()
    assert there.gains.tolist() == here.gains.tolist()
    assert there.evaluations == here.evaluations


def test_progress_and_more_parts_than_are_sent_ahead() -> None:
    z = np.random.default_rng(1).standard_normal((900, 6), dtype=np.float32)
    f, seen = FacilityLocation.from_features(z), []
    there = maximize(f, 5, partitions=30, engine="ray", progress=lambda *p: seen.append(p))
    assert seen == [(done, 31) for done in range(1, 32)]
    assert there.indices.tolist() == maximize(f, 5, partitions=30).indices.tolist()


def test_a_part_whose_worker_is_killed_is_picked_from_again(tmp_path: Path) -> None:
    f = Deadly(tmp_path / "killed")
    there = maximize(f, 5, partitions=4, engine="ray")
    assert f.mark.exists()
    assert there.indices.tolist() == [39, 38, 37, 36, 35]


def test_what_a_part_refuses_is_the_same_sentence_as_here() -> None:
    kernel = torch.eye(40, dtype=torch.float64)
    kernel[3, 5] = kernel[5, 3] = -0.5
    with pytest.raises(InputError, match="similarities that are not negative") as told:
        maximize(FacilityLocation(kernel), 3, partitions=2, engine="ray")
    assert "Traceback" not in str(told.value)


def test_a_folder_of_parquet_shards_gives_the_picks_of_one_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    z = np.random.default_rng(0).standard_normal((300, 8), dtype=np.float32)
    np.save("z.npy", z)
    for number, rows in enumerate(np.split(np.arange(300), [90, 90, 210])):
        place = tmp_path / "shards" / f"day={number}"
        place.mkdir(parents=True)
        names = [f"row-{row}" for row in rows]
        vectors = pa.FixedSizeListArray.from_arrays(z[rows].ravel(), 8)
        pq.write_table(pa.table({"embedding": vectors, "name": names}), place / "part-0.parquet")

    def run(*words: str) -> tuple[list[int], pa.Table, dict]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["select", *words, "-k", "7", "--partitions", "5", "--seed", "2"])
        assert ended.value.code == 0
        table = pq.read_table("selected.parquet")
        known = json.loads(table.schema.metadata[b"shasam"])
        return table.column("row").to_pylist(), table, known

    here, plain, _ = run("z.npy")
    there, table, known = run("shards", "--engine", "ray", "--id-column", "name")
    assert there == here
    assert table.column("gain").to_pylist() == plain.column("gain").to_pylist()
    assert table.column("id").to_pylist() == [f"row-{row}" for row in there]
    assert known["method"] == "partitioned" and known["certificate"]["value"] > 0
    assert run("shards")[0] == here


def test_ranges_of_shards_are_read_by_workers_and_a_lost_one_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_PART", 50)  # of 18 ranges; what fits is 40 rows
    monkeypatch.setattr(shards, "_RANGE", 50)
    monkeypatch.setattr(shards, "_PER_PICK", 1)
    monkeypatch.setattr(shards, "_ENTRIES", 900 * 40)
    source = DeadlyRows(tmp_path / "killed")
    settings = {"group_column": "kind", "at_most": 4, "id_column": "kind"}
    here = select_from_shards(source, 7, **settings)
    assert not source.mark.exists()
    there = select_from_shards(source, 7, engine="ray", **settings)
    assert source.mark.exists()
    assert there.selection.indices.tolist() == here.selection.indices.tolist()
    assert there.selection.gains.tolist() == here.selection.gains.tolist()
    assert there.certificate == here.certificate and there.groups == there.ids == here.groups


def test_workers_read_a_folder_by_themselves(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    z = np.random.default_rng(0).standard_normal((300, 8), dtype=np.float32)
    for number, rows in enumerate(np.split(np.arange(300), [90, 210])):
        Path("shards").mkdir(exist_ok=True)
        vectors = pa.FixedSizeListArray.from_arrays(z[rows].ravel(), 8)
        pq.write_table(pa.table({"embedding": vectors}), f"shards/part-{number}.parquet")
    found = []
    for words in (["--engine", "ray"], ["--method", "sharded"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["select", "shards", "-k", "7", *words])
        assert ended.value.code == 0
        table = pq.read_table("selected.parquet")
        assert json.loads(table.schema.metadata[b"shasam"])["method"] == "sharded"
        found.append(table.column("row").to_pylist())
    assert found[0] == found[1]
    assert "workers read the files" in capsys.readouterr().out


def test_other_methods_are_not_shared_out(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("z.npy", np.eye(20, dtype=np.float32))
    with pytest.raises(SystemExit) as ended:
        cli.main(["select", "z.npy", "-k", "3", "--engine", "ray", "--method", "sieve"])
    assert ended.value.code == 2
    assert "is for the method partitioned, not for sieve" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_selection_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.random.default_rng(0).standard_normal((100_000, 32)))
    before = set(Path("/tmp").glob("shasam-ray-*"))
    command = [sys.executable, "-u", "-m", "shasam.cli", "select", str(tmp_path / "z.npy")]
    command += ["-k", "50", "--partitions", "40", "--engine", "ray", "--threads", "1"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True, cwd=tmp_path, text=True
    )
    assert process.stdout is not None
    assert "method partitioned" in process.stdout.readline()  # Ray is there, and picks from now on
    process.terminate()  # Ctrl-C is ignored by whatever a script has put in the background
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    left = subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True, check=False)
    assert left.stdout == b"" and set(Path("/tmp").glob("shasam-ray-*")) == before
    assert not (tmp_path / "selected.parquet").exists()
