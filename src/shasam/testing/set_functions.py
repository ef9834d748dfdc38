"""``check_set_function``: a set function keeps the laws that ``maximize`` and the measures rely on.

It raises ``ContractError`` for the first law that is broken and names a witness: the set, the
element and the two numbers that do not agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shasam.extras import need

need("torch", __name__)

import numpy as np
import torch
from torch import Tensor

from shasam.errors import ContractError, InputError
from shasam.submodular import SetFunction, maximize

_POOL = 24  # elements that the walks pick from: laws are local, large ground sets are sampled
_CHAINS = 24
_WALKS = 4


def check_set_function(f: SetFunction, *, seed: int = 0) -> tuple[str, ...]:
    """Check one set function over its own ground set; raise if it breaks a law.

    The laws: ``declarations``, ``empty set``, ``order``, ``strangers``, ``gains`` along random
    walks from ``start(given)``, ``add``, ``isolation`` of states, ``diminishing returns`` and
    ``monotonicity`` if declared, ``gradient`` if there is one, ``greedy walk``. Monotonicity,
    diminishing returns and the greedy walk are asked for only if ``check_maximizable`` lets the
    function be maximised.

    Parameters
    ----------
    f
        The set function.
    seed
        Seed of the random walks.

    Returns
    -------
    tuple[str, ...]
        Names of the laws that were checked.

    Examples
    --------
    >>> from shasam.submodular import FacilityLocation
    >>> "gains" in check_set_function(FacilityLocation([[1.0, 0.5], [0.5, 1.0]]))
    True
    """
    lab = _Lab(f, np.random.default_rng(seed))
    checked = []
    try:
        _declarations(lab)
        lab.measure()
        for name, law in _laws(f).items():
            law(lab)
            checked.append(name)
    except NotImplementedError as missing:
        raise ContractError(
            f"{lab.name} does not write all of __call__, start, gains and add; "
            "a set function needs the four"
        ) from missing
    return ("declarations", *checked)


def _laws(f: SetFunction) -> dict[str, Callable[[_Lab], None]]:
    laws: dict[str, Callable[[_Lab], None]] = {
        "empty set": _empty,
        "order": _order,
        "strangers": _strangers,
        "gains": _gains,
        "add": _add,
        "isolation": _isolation,
        "gradient": _gradient,
    }
    if _maximizable(f):
        if f.submodular:
            laws["diminishing returns"] = _diminishing
        if f.monotone:
            laws["monotonicity"] = _monotone
        laws["greedy walk"] = _greedy
    return laws


@dataclass
class _Lab:
    """The function under test, a pool of elements, and how close two numbers must be."""

    f: SetFunction
    random: np.random.Generator
    pool: list[int] = field(default_factory=list)
    tolerance: float = 0.0

    @property
    def name(self) -> str:
        return type(self.f).__name__

    def measure(self) -> None:
        """Choose the pool and learn the scale of f."""
        everything = np.arange(self.f.n) if self.f.candidates is None else self.f.candidates.cpu()
        chosen = self.random.permutation(np.asarray(everything))[:_POOL]
        self.pool = sorted(int(v) for v in chosen)
        sets = [self.pool, *([v] for v in self.pool), *(self.subset() for _ in range(8))]
        scale = max(abs(self.value(s)) for s in sets)
        self.tolerance = torch.finfo(self.f.dtype).eps ** 0.5 * max(scale, 1e-300)

    def subset(self, spare: int = 0) -> list[int]:
        """Return a random part of the pool in random order, with some elements left over."""
        most = max(len(self.pool) - spare, 0)
        size = int(self.random.integers(0, most + 1))
        return [int(v) for v in self.random.permutation(self.pool)[:size]]

    def rest(self, selected: list[int]) -> list[int]:
        left = [v for v in self.pool if v not in set(selected)]
        return [int(v) for v in self.random.permutation(left)]

    def value(self, selected: Any) -> float:
        value = self.f(selected)
        if not isinstance(value, Tensor) or value.ndim != 0:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ContractError(f"{self.name}: f(A) must be a scalar tensor; got {shape}")
        if value.dtype != self.f.dtype:
            raise ContractError(
                f"{self.name} declares dtype {self.f.dtype} but f(A) is {value.dtype}"
            )
        number = float(value.detach())
        if not np.isfinite(number):
            raise ContractError(f"{self.name}: f(A) is {number} for A = {list(selected)}")
        return number

    def gains(self, state: Any, candidates: list[int]) -> Tensor:
        index = torch.tensor(candidates, dtype=torch.int64, device=self.f.device)
        gains = self.f.gains(state, index)
        if not isinstance(gains, Tensor) or gains.shape != index.shape:
            shape = tuple(gains.shape) if isinstance(gains, Tensor) else type(gains).__name__
            raise ContractError(
                f"{self.name}: gains must hold one value per candidate, ({len(candidates)},); "
                f"got {shape}"
            )
        return gains.detach().double().cpu()

    def same(self, one: Tensor, other: Tensor, law: Callable[[int], str]) -> None:
        """Check that two rows of gains agree.

        ``law`` makes the sentence from the first that does not.
        """
        for c, (a, b) in enumerate(zip(one.tolist(), other.tolist(), strict=True)):
            if not abs(a - b) <= self.tolerance:
                raise ContractError(f"{self.name}: {law(c)}; {a:.9g} against {b:.9g}")


def _maximizable(f: SetFunction) -> bool:
    try:
        f.check_maximizable()
    except InputError:
        return False
    return True


def _declarations(lab: _Lab) -> None:
    f = lab.f
    for name, kind in (("n", int), ("device", torch.device), ("dtype", torch.dtype)):
        if not isinstance(getattr(f, name, None), kind):
            raise ContractError(f"{lab.name} must declare {name}, a {kind.__name__}")
    if f.n < 1:
        raise ContractError(f"{lab.name} declares n = {f.n}; a ground set has at least one element")
    if not isinstance(f.monotone, bool) or not isinstance(f.submodular, bool):
        raise ContractError(f"{lab.name} must declare monotone and submodular as True or False")
    if f.candidates is None:
        return
    picks = f.candidates.tolist()
    if not picks or min(picks) < 0 or max(picks) >= f.n or picks != sorted(set(picks)):
        raise ContractError(
            f"{lab.name}.candidates must be distinct indices within 0..{f.n - 1} in ascending "
            "order, and not empty"
        )


def _empty(lab: _Lab) -> None:
    value = lab.value([])
    if abs(value) > lab.tolerance:
        raise ContractError(f"{lab.name}: f(∅) must be 0; got {value:.9g}")


def _order(lab: _Lab) -> None:
    for _ in range(_WALKS):
        selected = lab.subset()
        value = lab.value(selected)
        turned = [int(v) for v in lab.random.permutation(selected)]
        whole = torch.tensor(turned, dtype=torch.int64, device=lab.f.device)
        for kind, other in (
            ("another order", turned),
            ("a tensor", whole),
            ("an array", np.array(turned, np.int64)),
            ("the same call again", selected),
        ):
            again = lab.value(other)
            if abs(again - value) > lab.tolerance:
                raise ContractError(
                    f"{lab.name}: f(A) depends on more than the set: {value:.9g} for "
                    f"A = {selected}, {again:.9g} for {kind}"
                )


def _strangers(lab: _Lab) -> None:
    for stranger in (-1, lab.f.n):
        try:
            lab.f([stranger])
        except Exception:  # noqa: S112 - any refusal will do, the sentence is the author's choice
            continue
        raise ContractError(
            f"{lab.name}: f([{stranger}]) must be refused, the ground set is 0..{lab.f.n - 1}; "
            "self.index(A) checks that"
        )


def _gains(lab: _Lab) -> None:
    for walk in range(_WALKS):
        given = [] if walk == 0 else lab.subset(spare=2)
        state, selected = lab.f.start(given), list(given)
        while left := lab.rest(selected):
            base = lab.value(selected)
            told = lab.gains(state, left)
            true = torch.tensor(
                [lab.value([*selected, v]) - base for v in left], dtype=torch.float64
            )
            lab.same(
                told,
                true,
                lambda c, left=left, selected=selected: (  # type: ignore[misc]
                    f"gains must be f(A + v) - f(A), but for v = {left[c]} given A = {selected} "
                    "they differ"
                ),
            )
            for part in (left[: len(left) // 2], left[-1:]):
                position = [left.index(v) for v in part]
                lab.same(
                    lab.gains(state, part),
                    told[position],
                    lambda c, part=part: (  # type: ignore[misc]
                        f"the gain of v = {part[c]} depends on the other candidates of the call, "
                        "or the call changed the state"
                    ),
                )
            state = lab.f.add(state, left[0])
            selected.append(left[0])


def _add(lab: _Lab) -> None:
    for _ in range(_WALKS):
        given = lab.subset(spare=2)
        left = lab.rest(given)
        if len(left) < 2:
            continue
        added = lab.f.add(lab.f.start(given), left[0])
        lab.same(
            lab.gains(added, left[1:]),
            lab.gains(lab.f.start([*given, left[0]]), left[1:]),
            lambda c, left=left, given=given: (  # type: ignore[misc]
                f"add(start(A), v) and start(A + v) disagree on {left[c + 1]} for A = {given}, "
                f"v = {left[0]}"
            ),
        )


def _isolation(lab: _Lab) -> None:
    for _ in range(_WALKS):
        given = lab.subset(spare=2)
        left = lab.rest(given)
        if len(left) < 2:
            continue
        state, other = lab.f.start(given), lab.f.start(given)
        before = lab.gains(other, left)
        lab.f.add(state, left[0])
        lab.same(
            lab.gains(other, left),
            before,
            lambda c, left=left, given=given: (  # type: ignore[misc]
                f"two states from start({given}) are not isolated: adding {left[0]} to one "
                f"changed the gain of {left[c]} in the other"
            ),
        )


def _diminishing(lab: _Lab) -> None:
    for chain in range(_CHAINS):
        large = lab.subset(spare=1)
        small = large[: int(lab.random.integers(0, len(large) + 1)) if chain else 0]
        left = lab.rest(large)
        if not left:
            continue
        early = lab.gains(lab.f.start(small), left)
        late = lab.gains(lab.f.start(large), left)
        worst = int((late - early).argmax())
        if float(late[worst] - early[worst]) > 2 * lab.tolerance:
            raise ContractError(
                f"{lab.name} declares submodular, but v = {left[worst]} gains "
                f"{float(early[worst]):.9g} given A = {small} and more, {float(late[worst]):.9g}, "
                f"given B = {large} ⊇ A; declare submodular = False"
            )


def _monotone(lab: _Lab) -> None:
    for chain in range(_CHAINS):
        selected = [] if chain == 0 else lab.subset(spare=1)
        left = lab.rest(selected)
        if not left:
            continue
        gains = lab.gains(lab.f.start(selected), left)
        worst = int(gains.argmin())
        if float(gains[worst]) < -2 * lab.tolerance:
            raise ContractError(
                f"{lab.name} declares monotone, but adding v = {left[worst]} to A = {selected} "
                f"changes f by {float(gains[worst]):.9g}; declare monotone = False"
            )


def _greedy(lab: _Lab) -> None:
    """Check ``maximize`` by the function's own walk: distinct picks, true gains, no better."""
    f, k = lab.f, min(len(lab.pool), 6)
    pool = torch.tensor(lab.pool, dtype=torch.int64, device=f.device)
    for optimizer in ("naive", "lazy") if f.submodular else ("naive",):
        walked = maximize(f, k, candidates=pool, optimizer=optimizer)
        picks = walked.indices.tolist()
        if len(picks) != k or not set(picks) <= set(lab.pool):
            raise ContractError(
                f"{lab.name}: the {optimizer} walk must pick {k} of the candidates; got {picks}"
            )
        for step, v in enumerate(picks):
            left = [u for u in lab.pool if u not in picks[:step]]
            gains = lab.gains(f.start(picks[:step]), left)
            own = float(gains[left.index(v)])
            best = int(gains.argmax())
            told = float(walked.gains[step])
            if abs(told - own) > lab.tolerance:
                raise ContractError(
                    f"{lab.name}: the {optimizer} walk says that pick {step}, v = {v}, gains "
                    f"{told:.9g}; it gains {own:.9g}"
                )
            if own < float(gains[best]) - lab.tolerance:
                raise ContractError(
                    f"{lab.name}: the {optimizer} walk picked v = {v} (gain {own:.9g}) at step "
                    f"{step} where {left[best]} gains {float(gains[best]):.9g}"
                )


def _gradient(lab: _Lab) -> None:
    """Check that a gradient, if f(A) has one, is finite."""
    with torch.enable_grad():
        value = lab.f(lab.pool)
    leaves = _leaves(value)
    if not leaves:
        return
    for gradient in torch.autograd.grad(value, leaves, allow_unused=True):
        if gradient is not None and not bool(torch.isfinite(gradient).all()):
            raise ContractError(
                f"{lab.name}: the gradient of f(A) is not finite for A = {lab.pool}"
            )


def _leaves(value: Tensor) -> list[Tensor]:
    """Return the tensors that f was made of and that ask for a gradient."""
    found: list[Tensor] = []
    seen, stack = set(), [value.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack.extend(parent for parent, _ in node.next_functions)
    return found
