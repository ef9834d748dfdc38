"""Watch a run: progress bar, epoch lines of the log, collapse, learning curve, validation."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from shasam.errors import Argument, SpecError, TrainingError
from shasam.keyed import keyed
from shasam.methods.base import Method, Stage
from shasam.metrics import Counts, values
from shasam.metrics.counts import class_recalls, recalls
from shasam.metrics.learnt import Skill
from shasam.output import Screen
from shasam.runs.directory import RunLog
from shasam.training.inference import (
    TrainingData,
    effective_rank,
    evaluating,
    features_of,
    linear_guess,
    mean_cosine,
    on_rows,
    read_rows,
    within_class,
)
from shasam.training.runtime import Fabric, anybody
from shasam.training.stage import Ema, StageRun, State, learning_rate
from shasam.types import Head, Losses

# -------------------------------------------------------------------------------------------------
# Progress of training on the terminal: a bar, plain lines, or nothing.
# -------------------------------------------------------------------------------------------------

LINE_SECONDS = 30  # between lines where there is no terminal for a bar


class TrainingProgress:
    """A bar on a terminal; a line now and then elsewhere; silence with ``quiet``."""

    def __init__(self, quiet: bool = False, console: Screen | None = None) -> None:
        self.quiet = quiet
        self.console = console or Screen(stderr=True, soft_wrap=True)
        self._bar: Progress | None = None
        self._shown = 0.0
        self._stage, self._total, self._first, self._began = "", 0, 0, 0.0
        self._validated, self._told = "", 0.0

    def say(self, text: str, style: str | None = None) -> None:
        """Print a line that matters even between bars; warnings come through when quiet."""
        if not self.quiet or style:
            self.console.print(text, style=style)

    def start(self, stage: str, first: int, total: int) -> None:
        """Open the bar of a stage."""
        self.stop()
        self._stage, self._total, self._shown = stage, total, time.monotonic()
        self._first, self._began = first, self._shown
        if self.quiet or not self.console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            refresh_per_second=4,
        )
        self._bar.start()
        self._bar.add_task(stage, total=total, completed=first, note="")

    def step(self, done: int, loss: float, rate: float, mined: float | None) -> None:
        """Redraw after a step, a few times a second only."""
        if time.monotonic() - self._shown < (LINE_SECONDS if self._bar is None else 0.25):
            return
        self._shown = time.monotonic()
        note = f"{self._validated}loss {loss:.4f}  {rate:.0f} img/s"
        if mined is not None:
            note += f"  mining {mined:.0%}"
        if self._bar is None:
            spent = (self._shown - self._began) / max(done - self._first, 1)
            left = spent * (self._total - done) / 60
            self.say(f"{self._stage} step {done} of {self._total}: {note}  {left:.0f} min left")
            return
        task = self._bar.tasks[0].id
        self._bar.update(task, completed=done, note=note)

    def probe(self, stage: str, step: int, numbers: Mapping[str, float]) -> None:
        """Print a line about a linear probe of the validation split."""
        self._known(numbers, "by a linear probe ")
        self.say(f"{stage} step {step}: {self._validated}")

    def epoch(self, stage: str, number: int, loss: float, val: Mapping[str, float]) -> None:
        """Print a line at the end of an epoch that was validated, or after half a minute."""
        self._known(val)
        if not val and time.monotonic() - self._told < LINE_SECONDS:
            return
        self._told = time.monotonic()
        self.say(f"{stage} epoch {number}: {self._validated}loss {loss:.4g}")

    def _known(self, numbers: Mapping[str, float], how: str = "") -> None:
        """Keep what validation has shown, for the lines and the bar that follow."""
        accuracy, gap = numbers.get("accuracy"), numbers.get("eo_mean")
        if accuracy is None:
            return
        known = f"validation {how}{100 * accuracy:.1f} %"
        if gap is not None:  # NaN where a group lacks a class: a warning has said so
            known += ", gap undefined" if math.isnan(gap) else f", gap {100 * gap:.1f}"
        self._validated = known + "  "

    def stop(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            task = self._bar.tasks[0]
            self._bar.update(task.id, refresh=True)
            self._bar.stop()
            self._bar = None


# -------------------------------------------------------------------------------------------------
# The epoch lines of the log: means of an epoch, on file and on the screen.
# -------------------------------------------------------------------------------------------------

INACTIVE_STEPS = 50  # steps without any active term before a warning


class EpochLog:
    """Adds up what the steps of an epoch report and writes its line; rank 0 alone writes."""

    def __init__(self, state: State, log: RunLog, progress: TrainingProgress, first: bool) -> None:
        self.state, self.log, self.progress, self.first = state, log, progress, first

    def count(self, group: str, value: float, losses: Losses, several: bool) -> None:
        """Count a yield of a method: its parts and the share of terms that have a gradient."""
        for name, part in losses.parts.items():
            self.state.add(f"part.{name}", float(part))
        if several and group not in losses.parts:
            self.state.add(f"part.{group}", value)
        if losses.wrong_side is not None:
            self.state.add("wrong_side", float(losses.wrong_side))
        if losses.active is None:
            return
        self.state.add("active", float(losses.active))
        self.state.inactive = 0 if losses.active > 0 else self.state.inactive + 1
        if self.state.inactive == INACTIVE_STEPS and self.first:
            text = f"no term of the loss has had a gradient for {INACTIVE_STEPS} steps"
            self.log.write("warning", step=self.state.step, message=text)
            self.progress.say("warning: " + text, "yellow")

    def step(self, total: float) -> None:
        """End a step: its loss, summed over the groups."""
        self.state.add("loss", total)
        self.state.add("steps", 1.0)

    def close(
        self,
        run: StageRun,
        epoch: int,
        rate: float,
        meters: Mapping[str, float],
        val: Mapping[str, float] | None,
    ) -> None:
        """Write the line of an epoch and begin the next one."""
        sums, self.state.sums = self.state.sums, {}
        steps = sums.pop("steps")
        loss = sums.pop("loss") / steps
        active, wrong_side = (
            sums.pop(name) / steps if name in sums else None for name in ("active", "wrong_side")
        )
        parts = {k.removeprefix("part."): v / steps for k, v in sums.items()}
        if not self.first:
            return
        stage = run.stage
        line: dict[str, Any] = {
            "stage": stage.name,
            "epoch": epoch,
            "step": self.state.step,
            "loss": loss,
            "parts": parts or None,
            "active": active,
            "wrong_side": wrong_side,
            "lr": run.slower * learning_rate(run.spec, self.state.step - 1, run.total),
            "images_per_second": rate,
            "mine_fraction": self.state.mine_fraction if stage.sampling == "mined" else None,
            "plan": run.plan.counters() or None,
            **meters,
            "val": dict(val) if val is not None else None,
        }
        self.log.write("epoch", **line)
        if stage.inputs == "images" or self.state.step == run.total:
            self.progress.epoch(stage.name, epoch + 1, loss, val or {})


# -------------------------------------------------------------------------------------------------
# Collapse: all embeddings become nearly equal, and nothing can be learnt from them.
# -------------------------------------------------------------------------------------------------

PROBE_ROWS = 256  # validation images whose embeddings are measured every epoch


def spread_of_embeddings(
    method: Method, stage: Stage, data: TrainingData, val_rows: Tensor, fabric: Fabric
) -> dict[str, float]:
    """Return mean cosine and effective rank of the embeddings of up to 256 validation images."""
    if stage.inputs == "features" or len(val_rows) < 2:
        return {}
    # spread over the split, so that every class is among them
    picks = torch.linspace(0, len(val_rows) - 1, min(PROBE_ROWS, len(val_rows)))
    features = features_of(method, data, val_rows[picks.long()], fabric)
    z = features.get("projection", features.get("encoder"))
    return {} if z is None else {"mean_cosine": mean_cosine(z), "effective_rank": effective_rank(z)}


class CollapseWatch:
    """Announces a collapse once, with what to change, and ends the run where asked to."""

    def __init__(
        self,
        state: State,
        log: RunLog,
        progress: TrainingProgress,
        first: bool,
        limit: float,
        on_collapse: Literal["warn", "stop"],
    ) -> None:
        self.state, self.log, self.progress = state, log, progress
        self.first, self.limit, self.on_collapse = first, limit, on_collapse

    def look(self, method: Method, stage: Stage, meters: Mapping[str, float]) -> None:
        """Judge the meters of an epoch."""
        # encoder features behind a ReLU all point into one orthant: only projections are judged
        cosine = meters.get("mean_cosine", 0.0)
        if not hasattr(method, "projection") or not cosine > self.limit:
            self.state.collapsed = False
            return
        advice = (
            f"the embeddings have collapsed in stage {stage.name}: their mean cosine is "
            f"{cosine:.3f}, effective rank {meters['effective_rank']:.1f}. Try a smooth objective, "
            "a batch-normalised projection, a smaller learning rate, or a later start of mining"
        )
        if self.first and not self.state.collapsed:
            self.log.write("collapse", stage=stage.name, step=self.state.step, message=advice)
            self.progress.say("COLLAPSE: " + advice, "bold red")
        self.state.collapsed = True
        if self.on_collapse == "stop":
            raise TrainingError(advice + " (stopped by ", Argument("on_collapse", "stop"), ")")


# -------------------------------------------------------------------------------------------------
# How soon the target is learnt: a linear probe of the encoder while a stage is under way.
#
# The same measure for every method, whether or not it has a classifier of its own yet. It is
# fitted on a few training images, equally many of each (target, group) cell, and read on
# validation images.
# -------------------------------------------------------------------------------------------------

FIT = 1024  # images that a probe is fitted on, and as many that are read, at most


def target_probe(
    method: Method,
    data: TrainingData,
    train: Tensor,
    val: Tensor,
    fabric: Fabric,
    seed: int,
    most: int = FIT,
) -> dict[str, float]:
    """Return validation accuracy and EO of a linear classifier on the encoder's features."""
    t_N, s_N = data.manifest.t_N, data.manifest.s_N
    train, val = (rows[torch.from_numpy(s_N[rows.numpy()] >= 0)] for rows in (train, val))
    fit = evenly(train.numpy(), t_N * data.groups + s_N, most, seed)
    read = np.sort(keyed(seed, 1).permutation(val.numpy())[:most])
    found = features_of(method, data, torch.from_numpy(np.concatenate([fit, read])), fabric)
    x, read_x = found["encoder"].split([len(fit), len(read)])
    target = torch.from_numpy(t_N[fit].astype(np.int64))
    guess = linear_guess(x, target, read_x, data.classes).numpy()
    classes, groups = (tuple(map(str, range(n))) for n in (data.classes, data.groups))
    counts = Counts.from_codes(t_N[read], guess, s_N[read], classes, groups)
    return values(counts, ("accuracy", "eo_mean"))


def evenly(rows: np.ndarray, cell_N: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """Pick at most ``limit`` rows, from each cell as many as from the others if it has them."""
    order = keyed(seed, 0).permutation(rows)
    cells = np.unique(cell_N[rows])
    share = max(1, limit // len(cells))
    return np.sort(np.concatenate([order[cell_N[order] == cell][:share] for cell in cells]))


# -------------------------------------------------------------------------------------------------
# Accuracy and EO on the validation split while a stage is under way.
# -------------------------------------------------------------------------------------------------


# rules that keep the best epoch and read the groups of validation rows
BY_GROUP = ("worst-cell", "minimax", "optimum", "least-leakage")
ACCURACY_TOLERANCE = 0.01  # below the best epoch, that the one with the least leakage may be


def merit(counts: Counts, rule: str) -> float:
    """Return how good an epoch is by a rule of ``train.selection``.

    Cells without rows do not count.
    """
    n_CPG = counts.n_CPG
    if rule == "worst-class":
        return float(np.nanmin(class_recalls(n_CPG)))
    if rule == "worst-cell":
        return float(np.nanmin(recalls(n_CPG)))
    if rule == "minimax":
        right_G = np.einsum("ccg->g", n_CPG)[counts.sizes_G > 0]
        return float((right_G / counts.sizes_G[counts.sizes_G > 0]).min())
    if rule == "optimum":
        found = values(counts, ("accuracy", "eo_mean"))
        # a gap that validation cannot tell is not taken for none
        return -math.hypot(1 - found["accuracy"], np.nan_to_num(found["eo_mean"], nan=1.0))
    return float(values(counts, ("accuracy",))["accuracy"])


def group_leakage(
    method: Method, run: StageRun, data: TrainingData, rows: Tensor, fabric: Fabric, seed: int
) -> float:
    """Return how well a linear probe reads the group from validation features within a class.

    Each half of the rows is read by a probe of the other half. 1 where it cannot be told.
    """
    if run.leakage is not None:
        return run.leakage
    cell_N = data.manifest.t_N * data.groups + data.manifest.s_N
    known = rows.numpy()[data.manifest.s_N[rows.numpy()] >= 0]
    chosen = keyed(seed).permutation(evenly(known, cell_N, 2 * FIT, seed))
    found, scored = read_rows(method, data, torch.from_numpy(chosen), fabric)
    own = found[Head.named(next(iter(scored))).features]  # what the method's own scores are of
    t_n, s_n = (v[chosen].astype(np.int64) for v in (data.manifest.t_N, data.manifest.s_N))
    a, b = ((own[h::2], t_n[h::2], s_n[h::2]) for h in (0, 1))
    read = [within_class(linear_guess, *pair, data.groups) for pair in ((a, b), (b, a))]
    told = [v for v in read if v is not None]
    leakage = sum(told) / len(told) if told else 1.0
    if run.stage.inputs == "features":
        run.leakage = leakage
    return leakage


def leaks_less(state: State, accuracy: float, leakage: float) -> bool:
    """Return whether an epoch is to be kept: the least leakage within a point of the best accuracy.

    Of equal leakage the higher accuracy. ``state`` has the numbers of the epoch kept so far, and
    is brought up to date.
    """
    state.top_accuracy = max(accuracy, state.top_accuracy or 0.0)
    least = state.top_accuracy - ACCURACY_TOLERANCE - 1e-12
    kept = state.best_accuracy
    worse = accuracy < least or (leakage, -accuracy) >= (-(state.best or 0.0), -(kept or 0.0))
    if kept is not None and kept >= least and worse:
        return False
    state.best, state.best_accuracy = -leakage, accuracy
    return True


def check_selection(rule: str, s_V: np.ndarray) -> None:
    """Refuse a rule that reads groups where the validation rows are all of one."""
    if rule in BY_GROUP and len(np.unique(s_V[s_V >= 0])) < 2:
        raise SpecError(
            f"train.selection: {rule} compares groups, and the validation rows have fewer than "
            "two; best and worst-class need no groups"
        )


def validate(
    method: Method, run: StageRun, data: TrainingData, rows: Tensor, fabric: Fabric
) -> Counts:
    """Count the method's own predictions of ``rows``."""
    scores = _own_scores(method, run, data, rows, fabric, run.val_features)
    t, s = data.manifest.t_N[rows.numpy()], data.manifest.s_N[rows.numpy()]
    classes, groups = (tuple(map(str, range(n))) for n in (data.classes, data.groups))
    known = s >= 0
    guess = scores.argmax(1).numpy()
    return Counts.from_codes(t[known], guess[known], s[known], classes, groups)


def _own_scores(
    method: Method,
    run: StageRun,
    data: TrainingData,
    rows: Tensor,
    fabric: Fabric,
    kept: dict[str, Tensor],
) -> Tensor:
    """Compute the scores of the method's own classifier.

    A stage on features takes them from ``kept``, which is filled when it is empty.
    """
    if run.stage.inputs != "features":
        return next(iter(on_rows(method.logits, method, data, rows, fabric).values()))
    if not kept:
        kept.update(features_of(method, data, rows, fabric))
    with evaluating(method):
        features = {kind: x.to(fabric.device) for kind, x in kept.items()}
        return next(iter(method.classify(features).values())).cpu()


@contextmanager
def averaged(method: Method, ema: Ema | None) -> Iterator[None]:
    """Put the averaged weights in place of the weights, if there are averaged ones."""
    if ema is None:
        yield
        return
    kept = {k: v.detach().clone() for k, v in method.state_dict().items()}
    method.load_state_dict(ema.average)
    try:
        yield
    finally:
        method.load_state_dict(kept)


# -------------------------------------------------------------------------------------------------
# A stage that does not learn, noticed while it is under way.
#
# At every tenth of a stage a few validation rows are read: by the method's own classifier in the
# last stage, and by a linear probe of the encoder before it, so that one rule
# (``shasam.metrics.learnt``) serves losses of every kind and scale. The looks end with the first
# that is better than chance.
# -------------------------------------------------------------------------------------------------

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
    """Measure how well the target is known, by the method's own classifier if ``last``, or a probe.

    Read on validation rows, or on training rows that the probe was not fitted on where there are
    none.
    """
    t_N = data.manifest.t_N.astype(np.int64)
    fit = evenly(train.numpy(), t_N, ROWS, seed)
    others = val.numpy() if len(val) else np.setdiff1d(train.numpy(), fit)
    others = others if len(others) else train.numpy()  # so few that all were fitted on
    read = np.sort(keyed(seed, 1).permutation(others)[:ROWS])
    if last:
        rows = torch.from_numpy(read)
        guess = _own_scores(method, run, data, rows, fabric, run.watched).argmax(1)
    else:
        found = features_of(method, data, torch.from_numpy(np.concatenate([fit, read])), fabric)
        x, read_x = found["encoder"].split([len(fit), len(read)])
        guess = linear_guess(x, torch.from_numpy(t_N[fit]), read_x, data.classes)
    return Skill.from_codes(t_N[read], guess.numpy(), data.classes)


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
        """Return whether the step that was just made ends a tenth of the stage."""
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
            raise TrainingError(
                (advice or "the run is on a plateau") + " (",
                Argument("train.on_plateau", "stop"),
                ")",
            )
        if lower:
            state.slowed += 1
            state.at_chance = 0
            run.slower = SLOWER**state.slowed

    def _advice(self, run: StageRun, skill: Skill) -> str:
        name, rate = run.stage.name, run.spec.lr * run.slower
        known = (
            f"{100 * skill.accuracy:.1f} % of {skill.rows} rows are right; always naming the most "
            f"common class would be for {100 * skill.majority:.1f} %"
        )
        said = (
            f"after {self.state.step} of {run.total} steps stage {name} is hardly better than a "
            f"guess at the target ({known}). "
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
