"""Protocols and manifests: exact cells, no leaks, one hash."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shasam.data.source import Listing
from shasam.data.splits import Manifest, Protocol, cell_counts
from shasam.errors import DataError


def people(n: int, seed: int = 0, **columns: object) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = [f"p{k:05d}" for k in range(n)]
    base = {"id": ids, "path": ids, "t": rng.integers(0, 2, n), "s": rng.integers(0, 2, n)}
    return pa.table({**base, **columns})


def hashes(table: pa.Table) -> list[str]:
    return [hashlib.sha256(i.encode()).hexdigest() for i in table.column("id").to_pylist()]


def balanced(**changes: object) -> Protocol:
    values = {"alpha": 2.0, "split": "balanced", "n_per_group": 300, "holdout_per_cell": 40}
    return Protocol("x", "t", "s", **{**values, **changes})  # type: ignore[arg-type]


def counts(manifest: Manifest, split: str) -> list[int]:
    rows = manifest.rows(split)
    return np.bincount(manifest.t_N[rows] * 2 + manifest.s_N[rows], minlength=4).tolist()


@pytest.mark.parametrize(("alpha", "major"), [(1, 2900), (2, 3867), (3, 4350), (4, 4640)])
def test_cells_of_the_published_sizes(alpha: float, major: int) -> None:
    assert cell_counts(5800, alpha, 2, 1, False) == [5800 - major, major]
    assert cell_counts(5800, alpha, 2, 0, False) == [major, 5800 - major]
    assert cell_counts(5800, alpha, 2, 1, True) == [major, 5800 - major]


@given(st.integers(8, 5000), st.floats(1, 9), st.integers(2, 5), st.integers(0, 5), st.booleans())
def test_cells_add_up_and_no_class_beats_the_favoured(n, alpha, classes, group, flip) -> None:
    cells = cell_counts(n, alpha, classes, group, flip)
    assert sum(cells) == n and min(cells) >= 0
    assert max(cells) - sorted(cells)[-2] >= -classes


def test_balanced_splits_have_equal_cells_and_a_biased_train() -> None:
    table = people(2000)
    manifest = balanced().manifest(table, hashes(table))
    assert counts(manifest, "val") == counts(manifest, "test") == [40] * 4
    assert counts(manifest, "train") == [200, 100, 100, 200]
    assert counts(balanced(flip_direction=True).manifest(table, hashes(table)), "train") == [
        100, 200, 200, 100,
    ]  # fmt: skip


def test_too_small_a_cell_gives_the_largest_feasible_size_and_says_so() -> None:
    table = people(800)
    manifest = balanced(n_per_group=5000).manifest(table, hashes(table))
    train = counts(manifest, "train")
    assert any("instead of 5000 training rows per group" in note for note in manifest.notes)
    free = (
        np.bincount(table.column("t").to_numpy() * 2 + table.column("s").to_numpy(), minlength=4)
        - 80
    )
    n = sum(train) // 2
    larger = [cell_counts(n + 1, 2.0, 2, g, False) for g in (0, 1)]
    assert any(larger[g][t] > free[t * 2 + g] for t in (0, 1) for g in (0, 1))


def test_the_hash_ignores_the_order_of_files() -> None:
    table = people(600)
    order = np.random.default_rng(1).permutation(600)
    shuffled = Listing(table.take(pa.array(order))).table
    one, two = (balanced(n_per_group=60).manifest(t, hashes(t)) for t in (table, shuffled))
    assert one.sha256 == two.sha256


def test_the_hash_sees_every_column_and_name() -> None:
    table = people(600)
    base = balanced(n_per_group=60).manifest(table, hashes(table))
    seen = {base.sha256, balanced(n_per_group=60, seed=1).manifest(table, hashes(table)).sha256}
    for name, value in (
        ("path", "elsewhere"), ("content_hash", "0" * 64), ("target", 1), ("sensitive", 1),
        ("split", "val"), ("id", "a"),
    ):  # fmt: skip
        column = base.table.column(name).to_pylist()
        column[0] = value if column[0] != value else (0 if value == 1 else "test")
        place = base.table.column_names.index(name)
        changed = base.table.set_column(place, base.table.schema.field(name), [column])
        seen.add(Manifest(changed, base.target_names, base.sensitive_names).sha256)
    seen.add(Manifest(base.table, ("x", "y"), base.sensitive_names).sha256)
    assert len(seen) == 9


def test_duplicates_are_out_before_the_split() -> None:
    table = people(400)
    digest = hashes(table)
    t, s = (table.column(c).to_numpy() for c in ("t", "s"))
    same = next(k for k in range(1, 400) if (t[k], s[k]) == (t[0], s[0]))
    other = next(k for k in range(1, 400) if (t[k], s[k]) != (t[1], s[1]) and k != same)
    digest[same], digest[other] = digest[0], digest[1]
    manifest = Protocol("x", "t", "s").manifest(table, digest)
    kept = set(manifest.table.column("id").to_pylist())
    assert "p00000" in kept and f"p{same:05d}" not in kept
    assert "p00001" not in kept and f"p{other:05d}" not in kept
    assert len(set(manifest.table.column("content_hash").to_pylist())) == len(manifest) == 397
    assert sum("another label" in e["reason"] for e in manifest.excluded) == 2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["balanced", "stratified"]))
def test_nobody_is_in_two_splits(seed: int, split: str) -> None:
    rng = np.random.default_rng(seed)
    table = people(500, seed, identity=[str(k) for k in rng.integers(0, 150, 500)])
    protocol = balanced(split=split, n_per_group=20, holdout_per_cell=10, seed=seed)
    manifest = protocol.manifest(table, hashes(table))
    who = dict(zip(table["id"].to_pylist(), table["identity"].to_pylist(), strict=True))
    people_of = {
        split: {who[manifest.table.column("id")[int(r)].as_py()] for r in manifest.rows(split)}
        for split in ("train", "val", "test")
    }
    assert not people_of["train"] & people_of["val"]
    assert not people_of["train"] & people_of["test"]
    assert not people_of["val"] & people_of["test"]
    if split == "stratified":
        assert len(manifest) == 500  # nobody's picture is thrown away


def test_an_official_split_where_somebody_crosses_is_refused() -> None:
    table = people(6, identity=["x"] * 6, split=["train", "val", "test"] * 2)
    with pytest.raises(DataError, match="more than one split"):
        Protocol("x", "t", "s", split="official").manifest(table, hashes(table))


def test_stratified_splits_keep_the_proportions_of_every_cell() -> None:
    table = people(4000)
    manifest = Protocol("x", "t", "s").manifest(table, hashes(table))
    have = np.bincount(table["t"].to_numpy() * 2 + table["s"].to_numpy())
    assert counts(manifest, "test") == (have * 0.2).astype(int).tolist()
    assert counts(manifest, "val") == (have * 0.1).astype(int).tolist()
    assert len(manifest) == 4000


def test_rows_without_a_label_are_listed() -> None:
    table = people(100, mood=["a", "b", None, "a"] * 25)
    manifest = Protocol("x", "mood", "s").manifest(table, hashes(table))
    assert [e["reason"] for e in manifest.excluded] == ["mood: no value"] * 25


def test_a_saved_manifest_comes_back_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    table = people(300)
    manifest = Protocol("x", "t", "s").manifest(table, hashes(table), notes=["said"])
    manifest.save(tmp_path / "m.parquet")
    again = Manifest.load(tmp_path / "m.parquet")
    assert again.sha256 == manifest.sha256 and again.notes == ["said"]
    assert again.protocol == manifest.protocol
    assert [p.name for p in tmp_path.iterdir()] == ["m.parquet"]
    stored = pq.read_table(tmp_path / "m.parquet")
    flipped = stored.set_column(3, "target", [1 - stored.column("target").to_numpy()])
    pq.write_table(flipped.replace_schema_metadata(stored.schema.metadata), tmp_path / "m.parquet")
    with pytest.raises(DataError, match="was changed"):
        Manifest.load(tmp_path / "m.parquet")
    (tmp_path / "m.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read"):
        Manifest.load(tmp_path / "m.parquet")
