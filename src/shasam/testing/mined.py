"""The part of ``check_method`` that is about mined batches: labels, embeddings, picks.

A walk over a few steps with a stand-in for the encoder, whose embeddings change at every step. So
it can be told of each embedding that a miner is given whose it is, and from which step.
"""

from __future__ import annotations

from collections.abc import Callable

from shasam.extras import need

need("torch", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor

from shasam.errors import ContractError
from shasam.methods.base import Method, Stage
from shasam.mining import Mined, Miner, RandomMiner
from shasam.mining.bank import Refresh
from shasam.sampling import Draw, MinedPlan
from shasam.testing.lab import Lab

STEPS, WIDTH = 10, 24
SETS = ("anchors", "positives", "negatives")

# raises ContractError where the picks are not those of the formula: (method, z_A, z_P, z_N, picks)
PickOracle = Callable[[Method, Tensor, Tensor, Tensor, Mined], None]


def check_mined(lab: Lab, oracle: PickOracle | None) -> str | None:
    """Walk through every mined stage; a reason where there is none."""
    stages = [stage for stage in lab.build().stages() if stage.sampling == "mined"]
    for stage in stages:
        _walk(lab, stage, oracle)
    return None if stages else "it mines nothing"


class Encoder:
    """Gives every row a direction that turns a little at each step, and remembers the last ones."""

    def __init__(self, rows: int) -> None:
        self.generator = torch.Generator().manual_seed(9)
        self.base_ND = torch.randn(rows, WIDTH, generator=self.generator)
        self.last_ND = torch.zeros(rows, WIDTH)  # what is known of each row
        self.made_N = torch.full((rows,), -1)  # in which step it was last seen

    def enter(self, step: int) -> None:
        self.step = step
        self.now_ND = self.base_ND + torch.randn(self.base_ND.shape, generator=self.generator)

    def __call__(self, rows: Tensor) -> Tensor:
        """Un-augmented images embedded by the present weights, as a trainer's ``embed`` does."""
        self._keep(rows, self.now_ND[rows])
        return self.now_ND[rows].clone().requires_grad_()

    def views(self, rows: Tensor, count: int) -> Tensor:
        """What a training step sees of the same rows: views (V*B, D) of unit length."""
        z = F.normalize(torch.cat([self.now_ND[rows].roll(v, 1) for v in range(count)]), dim=1)
        self._keep(rows, z.unflatten(0, (count, len(rows))).mean(0))
        return z

    def _keep(self, rows: Tensor, z: Tensor) -> None:
        self.last_ND[rows] = F.normalize(z, dim=1)
        self.made_N[rows] = self.step


class _Spy(Miner):
    """Passes everything on to a miner, and keeps what it was given and what it picked."""

    def __init__(self, miner: Miner) -> None:
        self.miner = miner
        self.calls: list[tuple[Tensor, Tensor, Tensor, Mined]] = []

    def pick(
        self, z_A: Tensor, z_P: Tensor, z_N: Tensor, k: int, generator: torch.Generator
    ) -> Mined:
        mined = self.miner.pick(z_A, z_P, z_N, k, generator)
        self.calls.append((z_A, z_P, z_N, mined))
        return mined


def _walk(lab: Lab, stage: Stage, oracle: PickOracle | None) -> None:
    method, encoder = lab.build(), Encoder(len(lab.t_N))
    plan = lab.plan(method, stage, 16)
    plan.total_steps = STEPS
    spy = None
    refresh: Refresh = "free"
    if isinstance(plan, MinedPlan):
        refresh = plan.config.refresh
        if not isinstance(plan.miner, RandomMiner):
            plan.miner = spy = _Spy(plan.miner)
    calls = 0
    for step in range(STEPS):
        encoder.enter(step)
        drawn = plan.draw(step // plan.steps_per_epoch, step, encoder)
        _labels(lab, drawn)
        while isinstance(plan, MinedPlan) and spy is not None and spy.calls:
            z_A, z_P, z_N, mined = spy.calls.pop()
            _picked(lab, refresh, encoder, drawn, (z_A, z_P, z_N), mined)
            if oracle is not None:
                oracle(method, z_A, z_P, z_N, mined)
            calls += 1
        if refresh == "live":  # nothing that a training step has left may be used
            plan.observe(drawn.rows_B, F.normalize(encoder.base_ND[drawn.rows_B], dim=1))
        else:
            plan.observe(drawn.rows_B, encoder.views(drawn.rows_B, stage.views))
    if spy is not None and calls == 0:
        raise ContractError(f"its miner was asked for nothing in {STEPS} steps")


def _labels(lab: Lab, drawn: Draw) -> None:
    if not drawn.triplets:
        raise ContractError("a mined batch has no triplets")
    for triplet in drawn.triplets:
        for name, same_t, same_s in zip(
            SETS, (True, True, False), (True, False, True), strict=True
        ):
            rows = drawn.rows_B[getattr(triplet, name)]
            fits = (lab.t_N[rows] == triplet.target) == same_t
            fits &= (lab.s_N[rows] == triplet.sensitive) == same_s
            if len(rows) == 0 or not bool(fits.all()):
                raise ContractError(
                    f"the {name} of target {triplet.target} and group {triplet.sensitive} are "
                    f"rows with other labels, or none"
                )


def _picked(
    lab: Lab,
    refresh: Refresh,
    encoder: Encoder,
    drawn: Draw,
    pools: tuple[Tensor, Tensor, Tensor],
    mined: Mined,
) -> None:
    """What the miner was given is young enough and has the right labels; its picks are used."""
    found = []
    for name, z in zip(SETS, pools, strict=True):
        if z.requires_grad:
            raise ContractError(f"the embeddings of the {name} that it mines have a gradient")
        cosine, rows = (F.normalize(z, dim=1) @ encoder.last_ND.T).max(dim=1)
        limit = 0 if refresh == "live" else refresh if isinstance(refresh, int) else STEPS
        if float(cosine.min()) < 1 - 1e-4 or int(encoder.made_N[rows].min()) < encoder.step - limit:
            raise ContractError(f"it mines {name} from embeddings older than refresh={refresh!r}")
        found.append(rows)
    t, s = int(lab.t_N[found[0][0]]), int(lab.s_N[found[0][0]])
    for name, rows, same in zip(
        SETS, found, ((True, True), (True, False), (False, True)), strict=True
    ):
        fits = ((lab.t_N[rows] == t) == same[0]) & ((lab.s_N[rows] == s) == same[1])
        if not bool(fits.all()):
            raise ContractError(f"candidates for {name} of target {t}, group {s} have other labels")
        chosen = rows[getattr(mined, name)]
        if not bool(torch.isin(chosen, drawn.rows_B).all()):
            raise ContractError(f"{name} that were picked are not in the batch")
