"""Several threads, and eight candidates side by side, change the time and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from threading import Event, current_thread

import numpy as np
import pytest
import torch
from hard_kernels import features

from shasam.submodular import FL1MI, FLCG, FLQMI, FacilityLocation, SetFunction, loops, maximize

MAKERS = {
    "FacilityLocation": lambda z, q: FacilityLocation.from_features(z),
    "FacilityLocation, ties": lambda z, q: FacilityLocation.from_features(z.sign()),
    "few represented": lambda z, q: FacilityLocation.from_features(z, range(20)),
    "FL1MI": lambda z, q: FL1MI.from_features(z, q),
    "FLCG": lambda z, q: FLCG.from_features(z, q),
    "FLQMI": lambda z, q: FLQMI.from_features(z, q),
}


@pytest.fixture
def eager_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads are used for small problems too."""
    monkeypatch.setattr(loops, "_WORTH", 1)
    monkeypatch.setattr(loops, "free_now", lambda: 64)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def made(name: str, dtype: torch.dtype = torch.float32) -> SetFunction:
    return MAKERS[name](features(333, 6).to(dtype), features(5, 6, 1).to(dtype))


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_picks_and_gains_do_not_depend_on_the_number_of_threads(
    name: str, dtype: torch.dtype
) -> None:
    f = made(name, dtype)
    for optimizer in ("lazy", "naive", "stochastic"):
        told = []
        for number in (1, 2, 3, 7):
            torch.set_num_threads(number)
            assert loops.count(10**9) == number
            chosen = maximize(f, 25, optimizer=optimizer)  # type: ignore[arg-type]
            told.append((chosen.indices.tolist(), chosen.gains.tolist()))
        assert all(one == told[0] for one in told)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_a_gain_has_the_same_bits_alone_and_among_others(name: str, dtype: torch.dtype) -> None:
    f = made(name, dtype)
    state = f.start([3, 50])
    pool = torch.arange(f.n)
    together = f.gains(state, pool)
    for shift in range(8):  # every place among eight
        turned = f.gains(state, pool.roll(shift))
        assert torch.equal(turned, together.roll(shift))
    alone = torch.stack([f.gains(state, pool[v : v + 1])[0] for v in range(f.n)])
    assert torch.equal(alone, together)


def test_an_error_in_a_thread_is_raised() -> None:
    def fail(part: int) -> None:
        if part == 1:
            raise ValueError("part 1")

    with pytest.raises(ValueError, match="part 1"):
        loops.run(fail, [(0,), (1,)])


def test_only_free_cores_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for free, used in ((1, 1), (3, 3), (9, 4)):
            monkeypatch.setattr(loops, "free_now", lambda free=free: free)
            assert loops.count(10**9) == used
    finally:
        torch.set_num_threads(before)


def test_free_cores_are_at_least_one_and_at_most_all() -> None:
    assert 1 <= loops.free_now() <= (os.cpu_count() or 1)


def test_little_work_is_done_by_one_thread() -> None:
    assert loops.count(1000) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_process_forked_after_a_walk_with_threads_walks_too() -> None:
    code = """
import os, sys, torch
torch.set_num_threads(2)
from shasam.submodular import FacilityLocation, loops, maximize
loops._WORTH = 1
loops.free_now = lambda: 2
f = FacilityLocation.from_features(torch.randn(300, 4, generator=torch.Generator().manual_seed(0)))
picks = maximize(f, 5).indices.tolist()
child = os.fork()
if child == 0:
    os._exit(0 if maximize(f, 5).indices.tolist() == picks else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


def test_the_first_gains_of_a_signed_kernel_are_its_row_sums() -> None:
    k = (features(40, 5) @ features(40, 5).T).float()
    f = FacilityLocation(k)
    np.testing.assert_allclose(
        f.gains(f.start(), torch.arange(40)), k.double().sum(dim=1), rtol=1e-12, atol=1e-12
    )


@pytest.mark.usefixtures("eager_threads")
def test_parts_side_by_side_pick_the_same_and_leave_the_number_of_threads() -> None:
    f, told = FacilityLocation.from_features(features(400, 6).float()), []
    for number in (1, 2, 5):
        torch.set_num_threads(number)
        told.append(maximize(f, 6, partitions=7).indices.tolist())
        assert torch.get_num_threads() == number
    assert told[0] == told[1] == told[2]

    def fails(part: torch.Tensor) -> None:
        raise ValueError("a part that cannot be done")

    with pytest.raises(ValueError, match="cannot be done"):
        list(loops.each(fails, [torch.arange(3)] * 4))
    assert torch.get_num_threads() == 5


@pytest.mark.usefixtures("eager_threads")
def test_a_thread_that_cannot_begin_is_not_waited_for() -> None:
    """Its core is taken by other work, say: the calling thread does all pieces itself."""
    torch.set_num_threads(2)
    leave = Event()
    held = loops._workers(1).submit(leave.wait, 60)  # the only helper
    try:
        names = loops.run(lambda part: current_thread().name, [(0,), (1,), (2,)])
        f = FacilityLocation.from_features(features(300, 6).float())
        picks = maximize(f, 5).indices.tolist()
    finally:
        leave.set()
        held.result()
    assert set(names) == {current_thread().name}
    assert picks == maximize(f, 5).indices.tolist()


def test_threads_of_openmp_go_to_sleep_where_nothing_else_was_asked() -> None:
    ask = "import os, shasam; print(os.environ.get('GOMP_SPINCOUNT'))"
    clean = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    for asked, told in (({}, "1000"), ({"OMP_WAIT_POLICY": "active"}, "None")):
        answer = subprocess.run(
            [sys.executable, "-c", ask],
            env=clean | asked,
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.strip() == told
