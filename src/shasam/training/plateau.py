"""A stage that does not learn, noticed while it is under way.

At every tenth of a stage a few validation rows are read: by the method's own classifier in the last
stage, and by a linear probe of the encoder before it, so that one rule (``shasam.metrics.learnt``)
serves losses of every kind and scale. The looks end with the first that is better than chance.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import TrainingError
from shasam.keyed import keyed
from shasam.methods.base import Method
from shasam.metrics.learnt import Skill
from shasam.runs.directory import RunLog
from shasam.training.inference import TrainingData, evaluating, features_of, linear_guess, on_rows
from shasam.training.monitor import TrainingProgress, evenly
from shasam.training.runtime import Fabric, anybody
from shasam.training.stage import StageRun, State

OnPlateau = Literal["warn", "stop", "lower-rate"]
FEWEST_STEPS = 50  # of a stage that is watched
LOOKS = 10  # places of a stage, evenly spaced, at which it is looked at
ROWS = 384  # that a probe is fitted on, and as many that are read
SLOWER = 1 / 3  # of the rate, each time that it is lowered
LOW_RATE = 1e-4  # below, a plateau is more likely a matter of too small a rate
MOST_SLOWED = 2  # times that the rate of a stage is lowered


def target_skill(
    method: Method,
    run: StageRun,
    data: TrainingData,
    train: Tensor,
    val: Tensor,
    fabric: Fabric,
    seed: int,
    last: bool,
) -> Skill:
    """How well the target is known: by the method's own classifier where ``last``, else a probe.

    Read on validation rows, or on training rows that the probe was not fitted on where there are
    none.
    """
    t_N = data.manifest.t_N.astype(np.int64)
    fit = evenly(train.numpy(), t_N, ROWS, seed)
    others = val.numpy() if len(val) else np.setdiff1d(train.numpy(), fit)
    others = others if len(others) else train.numpy()  # so few that all were fitted on
    read = np.sort(keyed(seed, 1).permutation(others)[:ROWS])
    if last:
        guess = _own_guess(method, run, data, torch.from_numpy(read), fabric)
    else:
        found = features_of(method, data, torch.from_numpy(np.concatenate([fit, read])), fabric)
        x, read_x = found["encoder"].split([len(fit), len(read)])
        guess = linear_guess(x, torch.from_numpy(t_N[fit]), read_x, data.classes)
    return Skill.from_codes(t_N[read], guess.numpy(), data.classes)


def _own_guess(
    method: Method, run: StageRun, data: TrainingData, rows: Tensor, fabric: Fabric
) -> Tensor:
    if run.stage.inputs == "features":
        if not run.watched:
            run.watched = features_of(method, data, rows, fabric)
        with evaluating(method):
            features = {kind: x.to(fabric.device) for kind, x in run.watched.items()}
            return next(iter(method.classify(features).values())).argmax(1).cpu()
    scores = next(iter(on_rows(method.logits, method, data, rows, fabric).values()))
    return scores.argmax(1)


class PlateauWatch:
    """Says that a stage does not learn and what to change; stops it or lowers its rate if asked."""

    def __init__(
        self,
        state: State,
        log: RunLog,
        progress: TrainingProgress,
        first: bool,
        fabric: Fabric,
        on_plateau: OnPlateau,
    ) -> None:
        self.state, self.log, self.progress, self.first = state, log, progress, first
        self.fabric, self.on_plateau = fabric, on_plateau

    def begin(self, run: StageRun) -> None:
        """Start to count where a stage starts; go on with its rate where it goes on."""
        if self.state.step == 0:
            self.state.at_chance, self.state.slowed, self.state.found_target = 0, 0, False
        run.slower = SLOWER**self.state.slowed

    def due(self, run: StageRun) -> bool:
        """Whether the step that was just made ends a tenth of the stage."""
        step, total = self.state.step, run.total
        if self.state.found_target or total < FEWEST_STEPS or step == total:
            return False
        return LOOKS * step // total > LOOKS * (step - 1) // total

    def look(self, run: StageRun, skill: Skill | None) -> None:
        """Judge a look; ``skill`` is None in every process but the first, which follow it."""
        state = self.state
        state.found_target = anybody(skill is not None and skill.learnt, self.fabric)
        if state.found_target:
            return
        state.at_chance += 1
        if state.at_chance < 2:  # one look may be too early
            return
        lower = self.on_plateau == "lower-rate" and state.slowed < MOST_SLOWED
        advice = self._advice(run, skill) if skill is not None else ""
        if self.first and (lower or state.at_chance == 2):
            self.log.write("plateau", stage=run.stage.name, step=state.step, message=advice)
            self.progress.say("PLATEAU: " + advice, "bold red")
        if self.on_plateau == "stop":
            raise TrainingError((advice or "the run is on a plateau") + " (--on-plateau stop)")
        if lower:
            state.slowed += 1
            state.at_chance = 0
            run.slower = SLOWER**state.slowed

    def _advice(self, run: StageRun, skill: Skill) -> str:
        name, rate = run.stage.name, run.spec.lr * run.slower
        known = (
            f"{100 * skill.accuracy:.1f} % of {skill.rows} rows are right, the most "
            f"common class would be for {100 * skill.majority:.1f} %"
        )
        said = (
            f"after {self.state.step} of {run.total} steps stage {name} has found nothing of the "
            f"target ({known}). "
        )
        if self.on_plateau == "lower-rate" and self.state.slowed < MOST_SLOWED:
            return said + f"Its learning rate is lowered from {rate:g} to {rate * SLOWER:.2g}"
        flag = {"learn": "--lr", "classify": "--classify.lr"}.get(name, "the rate of that stage,")
        if rate < LOW_RATE:
            return said + f"Try a higher rate ({flag} {10 * rate:.1g}) or more steps"
        if math.isclose(run.slower, 1.0):
            lower = f"{flag} {rate * SLOWER:.1g}"
            return said + f"Try a lower rate ({lower}), --on-plateau lower-rate, or more steps"
        return said + "Lower rates have not helped: look at the labels, or train for longer"
