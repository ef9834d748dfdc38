"""Two rounds over parts: what they pick, what they promise, and the bound that goes with it."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.submodular.broken import Coverage
from tests.submodular.hard_kernels import features

from shasam.errors import InputError, MemoryLimitError
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLCMI,
    FLQMI,
    GCCG,
    GCMI,
    FacilityLocation,
    GraphCut,
    LogDet,
    LogDetCG,
    LogDetCMI,
    LogDetMI,
    SetFunction,
    certify,
    kernels,
    maximize,
)
from shasam.submodular.greedy import maximize_parts, merge_picks, part_of, pick_from, split

N = 60
Z, Q, P = features(N, 5), features(3, 5, 1), features(4, 5, 2)
MAKERS = {
    "FacilityLocation": lambda: FacilityLocation.from_features(Z),
    "FacilityLocation of others": lambda: FacilityLocation.from_features(Z, P),
    "FacilityLocation of some": lambda: FacilityLocation.from_features(Z, range(7)),
    "FacilityLocation over a kernel": lambda: FacilityLocation(kernels.kernel_matrix(Z, "rbf")),
    "GraphCut": lambda: GraphCut.from_features(Z, 0.4),
    "LogDet": lambda: LogDet.from_features(Z),
    "FL1MI": lambda: FL1MI.from_features(Z, Q),
    "FLCG": lambda: FLCG.from_features(Z, P),
    "FLCMI": lambda: FLCMI.from_features(Z, Q, P),
    "FLQMI": lambda: FLQMI.from_features(Z, Q),
    "GCMI": lambda: GCMI.from_features(Z, Q),
    "GCCG": lambda: GCCG.from_features(Z, P),
    "LogDetMI": lambda: LogDetMI.from_features(Z, Q),
    "LogDetCG": lambda: LogDetCG.from_features(Z, P, nu=0.9),
    "LogDetCMI": lambda: LogDetCMI.from_features(Z, Q, P, eta=0.9, nu=0.8),
    "somebody else's": lambda: Coverage(N),
}
LOCAL = {"FacilityLocation", "FL1MI", "FLCG", "FLCMI"}  # a part stands for itself


@pytest.mark.parametrize("name", MAKERS)
def test_one_part_picks_what_the_plain_walk_picks(name: str) -> None:
    f = MAKERS[name]()
    plain, parted = maximize(f, 6), maximize(f, 6, partitions=1)
    assert parted.indices.tolist() == plain.indices.tolist()
    np.testing.assert_allclose(parted.gains, plain.gains, rtol=1e-9, atol=1e-9)
    assert parted.optimizer.endswith("1 parts")


@pytest.mark.parametrize("name", MAKERS)
def test_several_parts_pick_distinct_candidates_and_tell_their_true_gains(name: str) -> None:
    f = MAKERS[name]()
    parted = maximize(f, 6, partitions=4)
    picks = parted.indices.tolist()
    allowed = range(f.n) if f.candidates is None else f.candidates.tolist()
    assert len(set(picks)) == 6 and set(picks) <= set(allowed)
    for step in range(6):
        true = float(f(picks[: step + 1])) - float(f(picks[:step]))
        assert float(parted.gains[step]) == pytest.approx(true, rel=1e-9, abs=1e-9)
    again = maximize(f, 6, partitions=4)
    assert again.indices.tolist() == picks
    assert float(parted.gains.sum()) >= 0.9 * float(maximize(f, 6).gains.sum())


@pytest.mark.parametrize("name", MAKERS)
def test_a_part_has_the_values_of_the_whole_on_its_elements(name: str) -> None:
    f = MAKERS[name]()
    index = torch.tensor([1, 5, 8, 20, 33, 57])
    part = f.part(index)
    if part is None:
        assert name == "somebody else's"
        return
    for selected in ([], [2], [0, 3, 5]):
        if name in LOCAL:
            rows = torch.arange(N) if selected else None  # all columns: exact again
            part = f.part(index, torch.arange(N)) if rows is not None else part
        assert float(part(selected)) == pytest.approx(float(f(index[selected])), rel=1e-9, abs=1e-9)


def test_a_part_of_features_stands_for_itself() -> None:
    index = torch.tensor([1, 5, 8, 20])
    part = FacilityLocation.from_features(Z).part(index)
    own = FacilityLocation.from_features(Z[index])
    assert float(part([0, 2])) == pytest.approx(float(own([0, 2])), rel=1e-12)


def test_parts_are_random_disjoint_and_of_equal_size() -> None:
    pool = torch.arange(100, 203)
    parts = split(pool, 5, torch.Generator().manual_seed(3))
    assert sorted(torch.cat(parts).tolist()) == pool.tolist()
    assert {len(part) for part in parts} == {20, 21}
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)
    other = split(pool, 5, torch.Generator().manual_seed(4))
    assert [p.tolist() for p in parts] != [p.tolist() for p in other]


def test_the_parts_can_be_picked_elsewhere() -> None:
    f = FacilityLocation.from_features(Z)
    seen = []

    def reversed_map(make, pick, parts):  # an engine may run the parts in any order
        done = {i: pick(make(part)) for i, part in reversed(list(enumerate(parts)))}
        seen.append(len(done))
        return [done[i] for i in range(len(parts))]

    pool, made = torch.arange(N), torch.Generator().manual_seed
    here = maximize_parts(f, 5, pool, 4, optimizer="lazy", generator=made(1))
    there = maximize_parts(f, 5, pool, 4, optimizer="lazy", generator=made(1), mapper=reversed_map)
    assert seen == [4] and there.indices.tolist() == here.indices.tolist()


def test_a_part_with_fewer_than_k_gives_what_it_has() -> None:
    f = LogDet.from_features(Z)
    chosen, _ = pick_from(part_of(f, torch.tensor([3, 9])), k=5, optimizer="lazy")
    assert sorted(chosen.tolist()) == [3, 9]
    assert len(maximize(f, 5, partitions=20)) == 5


def test_the_best_part_is_kept_where_round_two_is_worse() -> None:
    class Misled(Coverage):
        """Round two, which sees more than one part, walks into a bad set."""

        def greedy(self, k, candidates, lazy):
            if len(candidates) <= 6:
                return None
            return candidates[-k:].numpy(), np.zeros(k), k

    f = Misled(20)
    picks = [maximize(f, 3, candidates=range(s, s + 5)).indices for s in (0, 5, 10)]
    best, _ = merge_picks(f, picks, 3, "lazy", torch.Generator().manual_seed(0))
    assert float(f(best)) == max(float(f(p)) for p in picks)


@pytest.mark.parametrize("seed", range(5))
def test_the_expected_share_of_the_optimum_is_reached(seed: int) -> None:
    z = features(12, 3, seed)
    for f in (LogDet.from_features(z), FacilityLocation.from_features(z, features(6, 3, 9))):
        best = max(float(f(list(a))) for a in itertools.combinations(range(12), 3))
        reached = [
            float(
                maximize(f, 3, partitions=3, generator=torch.Generator().manual_seed(s)).gains.sum()
            )
            for s in range(8)
        ]
        assert np.mean(reached) >= (1 - 1 / math.e) / 2 * best


def test_features_that_fit_no_kernel_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shasam.submodular.kernels._FEW_ROWS", 10_000)
    monkeypatch.setattr(kernels, "available_bytes", lambda device: 1_200_000)
    f = FacilityLocation.from_features(features(1500, 4).float())
    with pytest.raises(MemoryLimitError, match=r"maximize\(f, k, partitions=…\)"):
        maximize(f, 5)
    monkeypatch.setattr("shasam.submodular.greedy._ENTRIES", 100_000)
    chosen = maximize(f, 5, partitions=10)
    monkeypatch.undo()
    exact = maximize(f, 5)
    assert float(chosen.gains.sum()) >= 0.98 * float(exact.gains.sum())
    assert float(chosen.gains.sum()) == pytest.approx(float(f(chosen.indices)), rel=1e-5)


def test_without_a_kernel_values_gains_and_states_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y = features(3, 5, 1)
    for make in (
        lambda: FacilityLocation.from_features(Z),
        lambda: FLCMI.from_features(Z, y, features(2, 5, 7)),
        lambda: FL1MI.from_features(Z, y, represented=range(9)),
    ):
        made = make()
        assert made.kernel_NR.shape[0] == N
        with monkeypatch.context() as patch:
            patch.setattr("shasam.submodular.kernels._FEW_ROWS", 0)
            patch.setattr("shasam.submodular.kernels._ROW_TILE", 64)  # several pieces
            lazy = make()
            pool = torch.arange(N)
            for given in ([], [4, 9]):
                torch.testing.assert_close(lazy(given), made(given), rtol=1e-12, atol=1e-12)
                torch.testing.assert_close(
                    lazy.gains(lazy.start(given), pool),
                    made.gains(made.start(given), pool),
                    rtol=1e-12,
                    atol=1e-12,
                )
            torch.testing.assert_close(
                lazy.add(lazy.start([4]), 9), made.start([4, 9]), rtol=1e-12, atol=1e-12
            )
            lazily = maximize(lazy, 4, optimizer="stochastic")
            assert lazy.rows._kernel_NR is None
        assert lazily.indices.tolist() == maximize(made, 4, optimizer="stochastic").indices.tolist()


def test_a_memory_mapped_file_is_read_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", Z.float().numpy())
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = maximize(FacilityLocation.from_features(mapped), 5, partitions=3)
    plain = maximize(FacilityLocation.from_features(Z.float()), 5, partitions=3)
    assert chosen.indices.tolist() == plain.indices.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_certificate_bounds_the_optimum(seed: int) -> None:
    z = features(11, 3, seed)
    for f in (
        FacilityLocation.from_features(z),
        FLCG.from_features(z, features(2, 3, 8)),
        FLQMI.from_features(z, features(2, 3, 8)),
        LogDet.from_features(z),
        GraphCut.from_features(z, 0.4),
    ):
        best = max(float(f(list(a))) for a in itertools.combinations(range(11), 3))
        for picks in (maximize(f, 3), [0, 1, 2]):
            told = certify(f, picks)
            index = picks if isinstance(picks, list) else picks.indices
            assert told.value == pytest.approx(float(f(index)), rel=1e-9)
            assert told.optimum_at_most >= best - 1e-9
            assert told.confidence == 1.0 and 0 < told.share <= 1 + 1e-12


def test_the_sampled_certificate_holds_as_often_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shasam.submodular.kernels._FEW_ROWS", 0)
    # one row in twenty is far from all picks: a sample sees few of them or many
    z = torch.cat([features(190, 4) + 3, features(10, 4, 1) - 3])
    f = FacilityLocation.from_features(z)
    picks = [0, 1]
    plain = FacilityLocation(f.kernel_NR)
    best = max(float(plain(list(a))) for a in itertools.combinations(range(200), 2))
    f = FacilityLocation.from_features(z)
    told = [
        certify(f, picks, confidence=0.9, sample=20, generator=torch.Generator().manual_seed(s))
        for s in range(60)
    ]
    assert all(t.sample == 20 and t.confidence == 0.9 for t in told)
    assert "with 90% confidence" in str(told[0])
    assert all(t.value == pytest.approx(float(plain(picks)), rel=1e-9) for t in told)
    held = [t.optimum_at_most >= best for t in told]
    assert np.mean(held) >= 0.9
    wide = certify(f, picks, sample=150)
    assert best <= wide.optimum_at_most < np.mean([t.optimum_at_most for t in told])


REFUSED = {
    "no parts": (lambda f: maximize(f, 2, partitions=0), "whole number of at least 1; got 0"),
    "too many": (lambda f: maximize(f, 2, partitions=61), "60 candidates cannot make 61 parts"),
    "nothing": (lambda f: maximize(f, 0, partitions=2), "k = 0 needs no partitions"),
    "with costs": (
        lambda f: maximize(f, 2, partitions=2, costs=[1.0] * 60, budget=3),
        "partitions and costs cannot be combined",
    ),
    "certainty": (lambda f: certify(f, [0], confidence=1.0), "confidence must be between 0 and 1"),
    "not monotone": (
        lambda f: certify(LogDet.from_features(Z, 0.5), [0]),
        "needs a monotone submodular function; LogDet is declared monotone = False",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_split_is_refused(name: str) -> None:
    act, sentence = REFUSED[name]
    f: SetFunction = FacilityLocation.from_features(Z)
    with pytest.raises(InputError, match=sentence):
        act(f)
