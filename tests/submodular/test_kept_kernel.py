"""A kept kernel picks what greedy maximisation over its codes picks, however it came to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from shasam.errors import InputError, MemoryLimitError
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLCMI,
    FLQMI,
    FacilityLocation,
    KeptKernel,
    SetFunction,
    kept_kernel,
    maximize,
)
from shasam.submodular.set_function import Among
from shasam.testing import check_set_function


def embeddings(n: int, clusters: int, seed: int, width: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, width, generator=generator)
    if clusters:
        z = 0.5 * z + torch.randn(clusters, width, generator=generator)[torch.arange(n) % clusters]
    return torch.nn.functional.normalize(z, dim=1)


def codes_of(kept: KeptKernel) -> np.ndarray:
    return np.rint(kept.similarities(range(kept.n)).double().numpy() * 65535).astype(np.int64)


def brute_force(
    code_VV: np.ndarray, rows: Any, k: int, lo: Any = 0, hi: Any = 65535
) -> tuple[list[int], list[int]]:
    """Every gain summed anew in each step; ties go to what is named first."""
    rows, best, picked, gains = list(rows), np.minimum(lo, hi) * np.ones(len(code_VV)), [], []
    for _ in range(k):
        sums = np.maximum(np.minimum(code_VV[rows], np.maximum(hi, lo)) - best, 0).sum(axis=1)
        sums[[i for i, v in enumerate(rows) if v in picked]] = -1
        winner = int(sums.argmax())
        picked.append(rows[winner])
        gains.append(int(sums[winner]))
        best = np.maximum(best, np.minimum(code_VV[rows[winner]], np.maximum(hi, lo)))
    return picked, gains


def check_agrees(
    kept: KeptKernel, rows: Any, k: int, query: Any = None, private: Any = None
) -> None:
    code_VV = codes_of(kept)
    lo = 0 if private is None else code_VV[private].max(axis=0)
    hi = 65535 if query is None else code_VV[query].max(axis=0)
    picked, gains = brute_force(code_VV, rows, k, lo, np.maximum(hi, lo))
    found = kept.pick(rows, k, query=query, private=private)
    assert found.indices.tolist() == picked
    np.testing.assert_allclose(found.gains.numpy(), np.array(gains) / 65535, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clusters", [0, 6])
@pytest.mark.parametrize("n", [50, 333])  # less than two vectors, and no multiple of one
def test_picks_are_those_of_brute_force(n: int, clusters: int) -> None:
    kept = KeptKernel(embeddings(n, clusters, seed=n), cells=np.arange(n) % 3)
    a, b = [3, 9, 12], [4, 7]
    for rows in (range(1, n, 3), np.random.default_rng(0).permutation(n)[: n // 2]):
        check_agrees(kept, rows, 9)
        check_agrees(kept, rows, 9, private=a)
        check_agrees(kept, rows, 9, query=a)
        check_agrees(kept, rows, 9, query=a, private=b)


def test_picks_stay_exact_while_embeddings_and_anchors_change() -> None:
    """Gains of earlier steps are bounds only; a wrong one would show in the picks."""
    n, rng = 400, np.random.default_rng(5)
    z = embeddings(n, 8, seed=1)
    kept = KeptKernel(z, cells=np.arange(n) % 4)
    cells = [np.arange(c, n, 4) for c in range(4)]
    anchors = cells[0][:6].copy()
    for k in (6, 6, 9, 2, 6, 12, 12, 12):  # steps that were kept, and steps that were not
        check_agrees(kept, cells[1], k, private=anchors)
        check_agrees(kept, cells[2], k, query=anchors)
        check_agrees(kept, cells[3], k)
        rows = rng.choice(n, 11, replace=False)
        noise = torch.from_numpy(rng.standard_normal((11, z.shape[1])).astype(np.float32))
        z[rows] = torch.nn.functional.normalize(z[rows] + 0.3 * noise, dim=1)
        kept.update(rows, z[rows])
        kept.update([], z[:0])  # a batch without rows of V
        anchors[rng.integers(6)] = cells[0][rng.integers(6, len(cells[0]))]


def test_an_updated_kernel_is_that_of_the_new_embeddings() -> None:
    z = embeddings(300, 0, seed=2)
    for changed in (7, 200):  # a few rows, and so many that all are computed anew
        kept = KeptKernel(z, product="float32", cells=torch.arange(300) % 5)
        new = embeddings(changed, 3, seed=changed)
        rows = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:changed]
        kept.update(rows, new)
        z_new = z.clone()
        z_new[rows] = new
        code_VV, fresh_VV = codes_of(kept), codes_of(KeptKernel(z_new, product="float32"))
        assert np.abs(code_VV - fresh_VV).max() <= 1
        assert (code_VV == code_VV.T).all()


def test_exact_codes_do_not_depend_on_when_and_with_what_rows_were_renewed() -> None:
    """A run that was cut makes the kernel at once that the whole run came to row by row."""
    rng, z = np.random.default_rng(3), embeddings(700, 0, seed=2, width=128)
    z[5] = 0  # without a direction
    kept = KeptKernel(z, product="exact", cells=np.arange(700) % 3)
    for count in (1, 3, 48, 200, 96):  # the fourth computes all anew
        rows = rng.choice(700, count, replace=False)
        z[rows] = torch.from_numpy(rng.standard_normal((count, 128)).astype(np.float32))
        assert kept.follow(z) == count
    assert kept.follow(z) == 0
    fresh = KeptKernel(z, product="exact", cells=np.arange(700) % 3)
    assert (codes_of(kept) == codes_of(fresh)).all()
    turned = KeptKernel(z.flip(0), product="exact")
    assert (codes_of(turned)[::-1, ::-1] == codes_of(fresh)).all()


@pytest.mark.parametrize("sets", [{}, {"private": [3, 9]}, {"query": [4, 7]}])
def test_the_function_of_a_kept_kernel_keeps_the_laws_and_every_greedy_agrees(sets: Any) -> None:
    kept = KeptKernel(embeddings(160, 5, seed=7), product="exact", cells=np.arange(160) % 4)
    f = kept.function(**sets)
    assert "greedy walk" in check_set_function(f)
    rows = torch.randperm(160, generator=torch.Generator().manual_seed(1))[:90]
    similar = kept.similarities(range(160)).double()
    exact: SetFunction = FacilityLocation(similar)
    if sets:
        exact = FLCG(similar, **sets) if "private" in sets else FL1MI(similar, **sets)
    lazy = maximize(Among(f, rows), 8)
    naive = maximize(Among(f, rows), 8, optimizer="naive")
    assert lazy.indices.tolist() == naive.indices.tolist()
    drawn = [
        maximize(Among(g, rows), 8, optimizer="stochastic", generator=torch.manual_seed(4))
        for g in (f, exact)
    ]
    assert maximize(Among(exact, rows), 8).indices.tolist() == lazy.indices.tolist()
    assert drawn[0].indices.tolist() == drawn[1].indices.tolist()
    torch.testing.assert_close(drawn[0].gains, drawn[1].gains.float())


@pytest.mark.parametrize("product", ["float32", "bfloat16", "exact"])
def test_similarities_are_within_the_tolerance(product: Any) -> None:
    z = embeddings(700, 0, seed=4, width=128)
    kept = KeptKernel(z, product=product)
    exact = (1 + z.double() @ z.double().T) / 2
    error = (kept.similarities(range(700)).double() - exact).abs().max()
    assert float(error) <= kept.tolerance
    assert kept.tolerance < (0.003 if product == "bfloat16" else 1e-5)


def test_mined_sets_are_those_of_the_plain_functions() -> None:
    z = embeddings(900, 12, seed=6, width=32)
    a, p, n = (np.arange(start, 900, 3) for start in range(3))
    kept = KeptKernel(z, product="float32", cells=np.arange(900) % 3)
    mined = kept.mine(a, p, n, k=5)
    given = z[mined.anchors.indices]
    hard = maximize(FLCG.from_features(z[p], given, represented=z), 5)
    near = maximize(FL1MI.from_features(z[n], given, represented=z), 5)
    assert mined.positives.indices.tolist() == p[hard.indices].tolist()
    assert mined.negatives.indices.tolist() == n[near.indices].tolist()
    slack = 900 * 2 * kept.tolerance
    assert float((mined.positives.gains - hard.gains).abs().max()) < slack
    other = kept.mine(a, p, n, k=5, anchor_function="fl", negative_function="flqmi")
    central = maximize(FacilityLocation.from_features(z[a], represented=z), 5)
    assert other.anchors.indices.tolist() == a[central.indices].tolist()
    nearest = maximize(FLQMI.from_features(z[n], z[other.anchors.indices]), 5)
    assert other.negatives.indices.tolist() == n[nearest.indices].tolist()


def test_both_sets_at_once_are_flcmi() -> None:
    z = embeddings(200, 4, seed=8)
    kept = KeptKernel(z, product="float32")
    f = FLCMI.from_features(z[:90], z[100:105], z[110:113], represented=z)
    picked = kept.pick(range(90), 4, query=range(100, 105), private=range(110, 113))
    assert picked.indices.tolist() == maximize(f, 4).indices.tolist()


def test_a_second_question_reads_less_of_the_kernel() -> None:
    z = embeddings(2048, 20, seed=9)
    kept = KeptKernel(z, cells=np.arange(2048) % 4)
    a, p, n = (np.arange(start, 2048, 4) for start in range(3))
    first = kept.mine(a, p, n, 8)
    read_first = kept.entries_read
    again = kept.mine(a, p, n, 8)
    assert again.positives.indices.tolist() == first.positives.indices.tolist()
    # Two whole passes, the first gains of both cells, are not read again.
    assert kept.entries_read - read_first <= read_first - 2 * 512 * 2048


def test_rbf_is_kept_too() -> None:
    z = embeddings(120, 0, seed=10)
    kept = KeptKernel(z, similarity="rbf", gamma=0.7)
    exact = torch.exp(-0.7 * torch.cdist(z.double(), z.double()).square())
    assert float((kept.similarities(range(120)).double() - exact).abs().max()) <= kept.tolerance
    check_agrees(kept, range(0, 120, 2), 5, private=[1, 3])


def test_what_cannot_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    z = embeddings(40, 0, seed=11)
    kept = KeptKernel(z)
    wrong: list[tuple[Any, str]] = [
        (lambda: KeptKernel(z, similarity="cosine"), "negative"),  # type: ignore[arg-type]
        (lambda: KeptKernel(z, product="float64"), "product is"),  # type: ignore[arg-type]
        (lambda: KeptKernel(z, similarity="rbf", product="exact"), "no exponential"),
        (lambda: KeptKernel(z, cells=[1, 2]), "one label for each"),
        (lambda: kept.pick([1, 1, 2], 2), "more than once"),
        (lambda: kept.pick([1, 40], 1), "within 0..39"),
        (lambda: kept.pick([1, 2], 3), "k = 3 of 2"),
        (lambda: kept.pick([0.5], 1), "row numbers"),
        (lambda: kept.update([1, 2], z[:3]), "as many embeddings"),
        (lambda: kept.pick([1, 2], 1, private=[]), "private set is empty"),
        (lambda: kept.mine([1], [2], [3], 1, negative_function="x"), "fl1mi"),  # type: ignore[arg-type]
    ]
    for make, message in wrong:
        with pytest.raises(InputError, match=message):
            make()
    monkeypatch.setattr(kept_kernel, "available_memory", lambda: 2000)
    with pytest.raises(MemoryLimitError, match="rows fit"):
        KeptKernel(z)
