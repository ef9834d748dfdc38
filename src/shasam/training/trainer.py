"""The trainer: stages of steps, on Fabric, with keyed random numbers only.

Every random number is a function of (seed, stage, step, row), and what cannot be computed anew is
in the checkpoint. A run that is cut anywhere and resumed ends, on a CPU, with the same bits.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

import torch

from shasam.keyed import seed_torch, text_key
from shasam.methods.base import Method, Stage
from shasam.models.shared import sharing
from shasam.models.shared_norm import share_batch_norm
from shasam.runs.log import RunLog
from shasam.sampling import TrainingRows
from shasam.spec.train import TrainSpec
from shasam.spec.views import ViewsSpec
from shasam.training.batches import BatchMaker
from shasam.training.checkpoint import Checkpoint, load_checkpoint
from shasam.training.collapse import CollapseWatch, spread_of_embeddings
from shasam.training.curve import target_probe
from shasam.training.epoch_log import EpochLog, open_tensorboard
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData, on_rows
from shasam.training.interrupt import Interrupt
from shasam.training.modes import check_groups
from shasam.training.prepare import prepare
from shasam.training.processes import agree, anybody, average_buffers
from shasam.training.progress import TrainingProgress
from shasam.training.resume import Weights, restore_state, save_state
from shasam.training.runtime import Runtime, wait_at_most
from shasam.training.stage import StageRun, batch_size_of, begin
from shasam.training.state import State
from shasam.training.steps import Stepper
from shasam.training.validation import averaged, validate
from shasam.training.views import Views

LOG_STEPS = 50  # between lines of the log inside an epoch


class Trainer:
    """Trains a method on a dataset; ``directory`` is where checkpoints and the log go."""

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        spec: TrainSpec,
        *,
        seed: int,
        image_size: int,
        fabric: Fabric,
        views: ViewsSpec | None = None,
        runtime: Runtime | None = None,
        directory: Path | None = None,
        log: RunLog | None = None,
        progress: TrainingProgress | None = None,
    ) -> None:
        self.runtime = runtime or Runtime()
        self.method, self.data, self.spec, self.seed = method, data, spec, seed
        self.fabric, self.first, self.directory = fabric, fabric.global_rank == 0, directory
        self.log = log or RunLog(None)
        self.progress = progress or TrainingProgress(self.runtime.quiet or not self.first)
        self.best: Weights = {}
        self.train_rows = torch.as_tensor(data.rows("train")).clone()
        self.val_rows = torch.as_tensor(data.rows("val")).clone()
        self.views = Views(method, data, views or ViewsSpec(), image_size)
        self.batches = BatchMaker(method, data, fabric, self.views, seed)
        self.views.begin(self.batches.t_N, self.batches.s_N, self.train_rows)
        share = self.batches.share if self.batches.cut == 1 else None
        self.stepper = Stepper(method, check_groups(method), data, fabric, share, directory)
        self._saved_at = time.monotonic()
        writes_board = self.runtime.tensorboard and directory is not None and self.first
        self._board = open_tensorboard(directory) if writes_board and directory else None
        prepare(method, fabric.device, training=True)
        if spec.sync_batchnorm and self.batches.share is not None:
            share_batch_norm(method, self.batches.share.gather)
        self._set_state(State())

    def _set_state(self, state: State) -> None:
        """The numbers of the run, and the objects that count with them."""
        self.state = state
        shared = (state, self.log, self.progress, self.first)
        self.epoch_log = EpochLog(*shared, self._board)
        limit, on_collapse = self.spec.collapse_cosine, self.runtime.on_collapse
        self.collapse = CollapseWatch(*shared, limit, on_collapse)

    # -- the whole run ---------------------------------------------------------------------------

    def fit(self, resume: bool = False) -> State:
        """All stages, from the start or from the newest good checkpoint."""
        checkpoint = None
        if resume and self._folder is not None:
            checkpoint = load_checkpoint(self._folder, lambda t: self.progress.say(t, "yellow"))
        # every process has read, and has read the same, before the first one writes
        at = "no checkpoint" if checkpoint is None else f"checkpoint {checkpoint.digest}"
        agree(self.fabric, "the checkpoint", at, "Put --out on a folder that all machines share")
        wait_at_most(self.fabric, self.runtime.rank_timeout)
        if checkpoint is not None:
            self._restore(checkpoint)
        stages = [self.views.stage(stage) for stage in self.method.stages()]
        for stage in stages:  # a batch that cannot be drawn is an error now, not after hours
            self.method.batch_plan(stage, self._training_rows(stage))
        with Interrupt() as stop:
            while self.state.stage < len(stages):
                self._run_stage(stages[self.state.stage], checkpoint, stop)
                checkpoint = None
                self.state.stage += 1
                self.state.step = 0
                self._save()
                if anybody(stop.asked, self.fabric):
                    self._leave(f"after stage {stages[self.state.stage - 1].name}", stop)
        self.progress.stop()
        prepare(self.method, self.fabric.device)
        return self.state

    def _run_stage(self, stage: Stage, checkpoint: Checkpoint | None, stop: Interrupt) -> None:
        last = self.state.stage == len(self.method.stages()) - 1
        run = self._prepare(stage, checkpoint)
        self.progress.say(run.description(self.views.unit, self.fabric.world_size))
        self.progress.start(stage.name, self.state.step, run.total)
        per_epoch = run.plan.steps_per_epoch
        clock = time.perf_counter()
        trained, began_step = 0.0, self.state.step  # seconds of steps alone, for the rate
        while self.state.step < run.total:
            loss = self._step(run)
            self.state.step += 1
            now = time.perf_counter()
            self.state.seconds += now - clock
            self.state.learn_seconds += now - clock if stage.sampling == "mined" else 0.0
            trained += now - clock
            clock = now
            done = self.state.step
            self._curve(stage)
            rate = (done - began_step) * run.batch_size * stage.views / max(1e-9, trained)
            mined = self.state.mine_fraction if stage.sampling == "mined" else None
            self.progress.step(done, loss, rate, mined)
            if done % per_epoch == 0 or done == run.total:
                self._end_epoch(run, (done - 1) // per_epoch, rate, last)
            elif done % LOG_STEPS == 0 and self.first:  # an epoch may be hours
                self.log.write("step", stage=stage.name, step=done, loss=loss)
            if done % per_epoch == 0 or done == run.total:
                self.state.seconds += time.perf_counter() - clock
                clock = time.perf_counter()
            if anybody(stop.asked, self.fabric):
                self._save(run)
                self._leave(f"at step {done} of stage {stage.name}", stop)
            due = time.monotonic() - self._saved_at >= self.runtime.checkpoint_seconds
            if due and done < run.total:  # the end of a stage is saved by fit
                self._save(run)
                clock = time.perf_counter()
        self._end_stage(run, last)

    def _step(self, run: StageRun) -> float:
        step, stage = self.state.step, run.stage
        seed_torch(text_key(self.seed, stage.name, step), self.fabric.device)
        started = time.perf_counter()
        drawn = run.plan.draw(step // run.plan.steps_per_epoch, step, self.batches.embed)
        if stage.sampling == "mined":
            self.state.mine_seconds += time.perf_counter() - started
        for note in run.plan.notes(step, self.batches.embed) if self.runtime.notes else ():
            self.log.write("mining", **note)
        batch = self.batches.make(run, drawn, step)
        # keyed again: how many numbers mining has drawn must not matter to the step
        seed_torch(text_key(self.seed, stage.name, step, "step"), self.fabric.device)
        total = self.stepper.step(run, batch, self.epoch_log)
        average_buffers(self.method, self.fabric)  # mining must pick alike in every process
        if run.ema is not None:
            run.ema.update(self.method)
        if stage.inputs == "images":
            self.state.images_seen += len(drawn.rows_B) * stage.views
        self.epoch_log.step(total)
        return total

    # -- stages and epochs -----------------------------------------------------------------------

    def _training_rows(self, stage: Stage) -> TrainingRows:
        spec, key = self.spec.stage(stage.name), self.spec.stage_key(stage.name)
        size = batch_size_of(stage, spec, key, len(self.train_rows), self.fabric.world_size)
        seed = text_key(self.seed, stage.name, "plan")
        labels = (self.batches.t_N, self.batches.s_N, self.train_rows)
        return TrainingRows(*labels, size, seed, stage.views, f"{key}.batch_views")

    def _prepare(self, stage: Stage, checkpoint: Checkpoint | None) -> StageRun:
        rows, data = self.train_rows, self._training_rows(stage)
        under_way = checkpoint if self.state.step > 0 else None
        groups, ema_count = self.stepper.groups, self.state.ema_count
        run = begin(self.method, stage, self.spec, data, groups, self.fabric, under_way, ema_count)
        if stage.inputs == "features":
            what = f"features of {len(rows)} {self.views.unit}, computed once"
            self.progress.say(f"stage {stage.name}: {what}")
            with sharing(self.batches.share):
                features_of = self.method.stage_features
                found = on_rows(features_of, self.method, self.data, rows, self.fabric)
            run.keep_features(found, data)
        return run

    def _end_epoch(self, run: StageRun, epoch: int, rate: float, last: bool) -> None:
        meters = spread_of_embeddings(self.method, run.stage, self.data, self.val_rows, self.fabric)
        every, ending = self.spec.validate_every, self.state.step == run.total
        due = last and len(self.val_rows) and every and (ending or (epoch + 1) % every == 0)
        self.epoch_log.close(run, epoch, rate, meters, self._validate(run) if due else None)
        self.collapse.look(self.method, run.stage, meters)

    def _curve(self, stage: Stage) -> None:
        """A point of the learning curve in the log, every ``train.probe_every`` steps."""
        every = self.spec.probe_every
        if not every or self.state.step % every or stage.inputs != "images" or not self.first:
            return
        rows = self.train_rows, self.val_rows
        found = target_probe(
            self.method, self.data, *rows, self.fabric, text_key(self.seed, "curve")
        )
        views = self.state.images_seen
        self.log.write("curve", stage=stage.name, step=self.state.step, views=views, **found)
        self.progress.probe(stage.name, self.state.step, found)

    def _end_stage(self, run: StageRun, last: bool) -> None:
        """Averaged weights replace the weights; the best ones do so at the very end."""
        if run.ema is not None:
            self.method.load_state_dict(run.ema.average)
        if last and self.best:
            self.method.load_state_dict(self.best)
            self.best = {}
        self.state.ema_count = 0

    def _validate(self, run: StageRun) -> dict[str, float]:
        """Accuracy and EO on the validation split; remembers the best weights where asked to."""
        with averaged(self.method, run.ema):
            metrics = validate(self.method, run, self.data, self.val_rows, self.fabric)
            better = self.state.best is None or metrics["accuracy"] > self.state.best
            if self.spec.selection == "best" and better:
                self.state.best = metrics["accuracy"]
                self.best = {k: v.detach().clone() for k, v in self.method.state_dict().items()}
        return metrics

    # -- saving, leaving, going on ---------------------------------------------------------------

    @property
    def _folder(self) -> Path | None:
        return None if self.directory is None else self.directory / "checkpoints"

    def _save(self, run: StageRun | None = None) -> None:
        self._saved_at = time.monotonic()
        if run is not None and run.ema is not None:
            self.state.ema_count = run.ema.count
        if self._folder is not None and self.first:
            save_state(self._folder, self.method, self.best, self.state, self.log, run)

    def _restore(self, checkpoint: Checkpoint) -> None:
        state, self.best = restore_state(checkpoint, self.method, self.log)
        self._set_state(state)
        stages = self.method.stages()
        name = stages[state.stage].name if state.stage < len(stages) else "evaluation"
        self.log.write("resume", stage=name, step=state.step)
        self.progress.say(f"resuming at step {state.step} of stage {name}")

    def _leave(self, where: str, stop: Interrupt) -> NoReturn:
        self.progress.stop()
        if self.first:
            self.progress.say(f"stopped {where}; continue with --resume", "yellow")
        raise stop.reason()
