"""A set function that keeps every law, and many that break one each.

``Coverage`` is the right one: f(A) = Σ_t w_t [some a ∈ A covers t]. Each class in ``BROKEN``
differs from it in one place; the pattern is what ``check_set_function`` must say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.submodular import SetFunction


class Coverage(SetFunction):
    monotone = True
    submodular = True

    def __init__(self, n: int = 12, topics: int = 20, seed: int = 3) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.covers_NT = (torch.rand(n, topics, generator=generator) < 0.3).double()
        self.weight_T = torch.rand(topics, generator=generator, dtype=torch.float64) + 0.1
        self.n, self.device, self.dtype = n, torch.device("cpu"), torch.float64

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        if len(index) == 0:
            return self.weight_T.new_zeros(())
        return self.covers_NT[index].amax(dim=0) @ self.weight_T

    def start(self, given: Any = ()) -> Tensor:
        state_T = torch.zeros_like(self.weight_T)
        for v in self.index(given).tolist():
            state_T = self.add(state_T, v)
        return state_T

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return (self.covers_NT[candidates] * (1 - state)) @ self.weight_T

    def add(self, state: Tensor, v: int) -> Tensor:
        return torch.maximum(state, self.covers_NT[v])


class CountsTheEmptySet(Coverage):
    def __call__(self, selected: Any) -> Tensor:
        return super().__call__(selected) + 1.0


class ReadsTheOrder(Coverage):
    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        rank = 1.0 / (1 + torch.arange(len(index), dtype=torch.float64))
        return (self.covers_NT[index].sum(dim=1) * rank).sum()


class RemembersCalls(Coverage):
    calls = 0

    def __call__(self, selected: Any) -> Tensor:
        self.calls += 1
        return super().__call__(selected) * (1 + 0.01 * self.calls)


class WrapsNegativeIndices(Coverage):
    def index(self, selected: Any) -> Tensor:
        return torch.as_tensor(np.array(selected, dtype=np.int64)).reshape(-1) % self.n


class GainsIgnoreTheState(Coverage):
    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return self.covers_NT[candidates] @ self.weight_T


class GainsOfTheWholeSet(Coverage):
    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return torch.maximum(self.covers_NT[candidates], state) @ self.weight_T


class GainsInTheirOwnOrder(Coverage):
    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return super().gains(state, candidates.sort().values)


class OneGainForAll(Coverage):
    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return super().gains(state, candidates).max()


class GainsForEverything(Coverage):
    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return super().gains(state, torch.arange(self.n))


class GainsDependOnTheBatch(Coverage):
    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        gains_C = super().gains(state, candidates)
        # True for the candidates that the walk asks for first, false for a part of them.
        return gains_C if len(candidates) > 1 else gains_C - 0.5


class GainsChangeTheState(Coverage):
    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        gains_C = super().gains(state, candidates)
        state.copy_(torch.maximum(state, self.covers_NT[candidates[0]]))
        return gains_C


class AddForgets(Coverage):
    def start(self, given: Any = ()) -> Tensor:
        index = self.index(given)
        if len(index) == 0:
            return torch.zeros_like(self.weight_T)
        return self.covers_NT[index].amax(dim=0)

    def add(self, state: Tensor, v: int) -> Tensor:
        return state


class StartIgnoresTheGiven(Coverage):
    def start(self, given: Any = ()) -> Tensor:
        return torch.zeros_like(self.weight_T)


class StatesAreShared(Coverage):
    def start(self, given: Any = ()) -> Tensor:
        if not hasattr(self, "kept"):
            self.kept = torch.zeros_like(self.weight_T)
        self.kept.zero_()
        for v in self.index(given).tolist():
            self.add(self.kept, v)
        return self.kept

    def add(self, state: Tensor, v: int) -> Tensor:
        return state.copy_(torch.maximum(state, self.covers_NT[v]))


class SquareOfTheSize(Coverage):
    """Supermodular: every further element gains more; it says the opposite."""

    def __call__(self, selected: Any) -> Tensor:
        return torch.tensor(float(len(self.index(selected))) ** 2, dtype=self.dtype)

    def start(self, given: Any = ()) -> Tensor:
        return torch.tensor(float(len(self.index(given))))

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return torch.full((len(candidates),), 2 * float(state) + 1, dtype=self.dtype)

    def add(self, state: Tensor, v: int) -> Tensor:
        return state + 1


class CostsMoreThanItGains(Coverage):
    """Coverage less a cost per element is submodular but not monotone."""

    def __call__(self, selected: Any) -> Tensor:
        return super().__call__(selected) - 1.5 * len(self.index(selected))

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return super().gains(state, candidates) - 1.5


class NotANumber(Coverage):
    def __call__(self, selected: Any) -> Tensor:
        value = super().__call__(selected)
        return value / (len(self.index(selected)) != 3)


class RowOfOne(Coverage):
    def __call__(self, selected: Any) -> Tensor:
        return super().__call__(selected)[None]


class AnotherType(Coverage):
    def __call__(self, selected: Any) -> Tensor:
        return super().__call__(selected).float()


class CandidatesOutside(Coverage):
    def __init__(self) -> None:
        super().__init__()
        self.candidates = torch.arange(1, self.n + 1)


class DeclaresNothing(Coverage):
    monotone = "yes"  # type: ignore[assignment]


class NoStart(SetFunction):
    def __init__(self) -> None:
        self.n, self.device, self.dtype = 4, torch.device("cpu"), torch.float64

    def __call__(self, selected: Any) -> Tensor:
        return 0.0 * self.index(selected).sum().double()


class WalkPicksTheFirst(Coverage):
    def greedy(self, k: int, candidates: Tensor, lazy: bool) -> tuple[np.ndarray, np.ndarray, int]:
        picks = candidates[:k]
        state, gains = self.start(), []
        for v in picks.tolist():
            gains.append(float(self.gains(state, torch.tensor([v]))[0]))
            state = self.add(state, v)
        return picks.numpy(), np.array(gains), k


class WalkInventsGains(Coverage):
    def greedy(self, k: int, candidates: Tensor, lazy: bool) -> tuple[np.ndarray, np.ndarray, int]:
        return candidates[:k].numpy(), np.ones(k), k


class WalkLeavesTheCandidates(Coverage):
    def greedy(self, k: int, candidates: Tensor, lazy: bool) -> tuple[np.ndarray, np.ndarray, int]:
        return np.arange(k) + int(candidates.max()), np.ones(k), k


class GradientBlowsUp(Coverage):
    def __init__(self) -> None:
        super().__init__()
        self.weight_T.requires_grad_()

    def __call__(self, selected: Any) -> Tensor:
        # √0 is 0 with an infinite slope: the value is right, the gradient is not.
        return super().__call__(selected) + (self.weight_T - self.weight_T).sum().sqrt()


BROKEN: list[tuple[type[SetFunction], str]] = [
    (CountsTheEmptySet, r"f\(∅\) must be 0; got 1"),
    (ReadsTheOrder, "depends on more than the set.*another order"),
    (RemembersCalls, "f\\(∅\\)|depends on more than the set"),
    (WrapsNegativeIndices, r"f\(\[-1\]\) must be refused"),
    (GainsIgnoreTheState, r"gains must be f\(A \+ v\) - f\(A\), but for v = \d+ given A = \["),
    (GainsOfTheWholeSet, r"gains must be f\(A \+ v\) - f\(A\)"),
    (GainsInTheirOwnOrder, r"gains must be f\(A \+ v\) - f\(A\)"),
    (OneGainForAll, "one value per candidate"),
    (GainsForEverything, r"gains must be f\(A \+ v\) - f\(A\)|one value per candidate"),
    (GainsDependOnTheBatch, "depends on the other candidates"),
    (GainsChangeTheState, "the call changed the state"),
    (AddForgets, r"gains must be f\(A \+ v\) - f\(A\)"),
    (StartIgnoresTheGiven, r"gains must be f\(A \+ v\) - f\(A\)"),
    (StatesAreShared, "are not isolated"),
    (SquareOfTheSize, "declares submodular, but v = .* declare submodular = False"),
    (CostsMoreThanItGains, "declares monotone, but adding v = .* declare monotone = False"),
    (NotANumber, r"f\(A\) is inf for A = "),
    (RowOfOne, r"must be a scalar tensor; got \(1,\)"),
    (AnotherType, "declares dtype torch.float64 but f\\(A\\) is torch.float32"),
    (CandidatesOutside, "candidates must be distinct indices within 0..11"),
    (DeclaresNothing, "must declare monotone and submodular"),
    (NoStart, "does not write all of"),
    (WalkPicksTheFirst, "walk picked v = .* at step"),
    (WalkInventsGains, "walk says that pick 0"),
    (WalkLeavesTheCandidates, "must pick 6 of the candidates"),
    (GradientBlowsUp, "gradient of f\\(A\\) is not finite"),
]
