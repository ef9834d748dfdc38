"""The trainer: stages of steps, on Fabric, with nothing random that is not keyed.

Every random number is a function of (seed, stage, step, row), and what cannot be computed anew is
in the checkpoint. A run that is cut anywhere and resumed ends, on a CPU, with the same bits.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NoReturn

import torch
from lightning_fabric import Fabric
from torch import Tensor

from shasam.errors import TrainingError
from shasam.keyed import text_key
from shasam.methods.base import Method, Stage
from shasam.models.shared import sharing
from shasam.runs.log import RunLog
from shasam.sampling import Draw, TrainingRows
from shasam.spec.train import TrainSpec
from shasam.spec.views import ViewsSpec
from shasam.training.bad_batch import name_batch
from shasam.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from shasam.training.collapse import CollapseWatch, spread_of_embeddings
from shasam.training.curve import target_probe
from shasam.training.epoch_log import EpochLog, open_tensorboard
from shasam.training.inference import TrainingData, evaluating, features_of
from shasam.training.interrupt import Interrupt
from shasam.training.modes import check_groups
from shasam.training.optimizers import learning_rate, set_rate
from shasam.training.prepare import prepare, prepare_images
from shasam.training.processes import anybody, average_buffers, share_of
from shasam.training.progress import TrainingProgress
from shasam.training.runtime import Runtime, wait_at_most
from shasam.training.stage import StageRun, batch_size_of, begin
from shasam.training.state import State
from shasam.training.steps import step_group
from shasam.training.validation import averaged, validate
from shasam.training.views import Views
from shasam.types import Batch


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
        self.fabric = fabric
        self.views = Views(method, data, views or ViewsSpec(), image_size)
        self.first = fabric.global_rank == 0
        self.directory = directory
        self.log = log or RunLog(None)
        self.progress = progress or TrainingProgress(self.runtime.quiet or not self.first)
        self.best: dict[str, Tensor] = {}
        self.t_N, self.s_N = torch.tensor(data.manifest.t_N), torch.tensor(data.manifest.s_N)
        self.train_rows = torch.as_tensor(data.rows("train")).clone()
        self.val_rows = torch.as_tensor(data.rows("val")).clone()
        self.views.begin(self.t_N, self.s_N, self.train_rows)
        self.groups = check_groups(method)
        self._saved_at = time.monotonic()
        board = None
        if self.runtime.tensorboard and directory is not None and self.first:
            board = open_tensorboard(directory)
        self._board = board
        # a mean over rows is cut over processes; any other loss sees the whole batch in each of
        # them, and only the encoder's work is shared
        self.cut = fabric.world_size if method.row_wise else 1
        self.share = None if self.cut == fabric.world_size else share_of(fabric)
        prepare(method, fabric.device, training=True)

        self._set_state(State())

    def _set_state(self, state: State) -> None:
        """The numbers of the run, and those who count with them."""
        self.state = state
        who = (state, self.log, self.progress, self.first)
        self.epoch_log = EpochLog(*who, self._board)
        limit, on_collapse = self.spec.collapse_cosine, self.runtime.on_collapse
        self.collapse = CollapseWatch(*who, limit, on_collapse)

    # -- the whole run ---------------------------------------------------------------------------

    def fit(self, resume: bool = False) -> State:
        """All stages, from the start or from the newest good checkpoint."""
        checkpoint = None
        if resume and self._folder is not None:
            checkpoint = load_checkpoint(self._folder, lambda t: self.progress.say(t, "yellow"))
        self.fabric.barrier()  # every process has read before the first one writes
        wait_at_most(self.fabric, self.runtime.rank_timeout)
        if checkpoint is not None:
            self._restore(checkpoint)
        stages = self.method.stages()
        for stage in stages:  # a batch that cannot be drawn is an error now, not after hours
            self.method.batch_plan(stage, self._training_rows(stage))
        with Interrupt() as stop:
            while self.state.stage < len(stages):
                self._run_stage(stages[self.state.stage], checkpoint, stop)
                checkpoint = None
                self.state.stage += 1
                self.state.step = 0
                self._save({})
                if anybody(stop.asked, self.fabric):
                    self._leave(f"after stage {stages[self.state.stage - 1].name}", stop)
        self.progress.stop()
        prepare(self.method, self.fabric.device)
        return self.state

    def _run_stage(self, stage: Stage, checkpoint: Checkpoint | None, stop: Interrupt) -> None:
        stage = self.views.stage(stage)
        last = self.state.stage == len(self.method.stages()) - 1
        run = self._prepare(stage, checkpoint)
        world = self.fabric.world_size
        split = f" = {world} processes x {run.batch_size // world}" if world > 1 else ""
        self.progress.say(
            f"stage {stage.name}: {run.total} steps of {run.batch_size} {self.views.unit}{split} x "
            f"{stage.views} views, {stage.sampling} batches"
        )
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
            epoch_over = done % per_epoch == 0 or done == run.total
            if epoch_over:
                self._end_epoch(run, (done - 1) // per_epoch, rate, last)
                self.state.seconds += time.perf_counter() - clock
                clock = time.perf_counter()
            if anybody(stop.asked, self.fabric):
                self._save(self._tensors(run))
                self._leave(f"at step {done} of stage {stage.name}", stop)
            due = time.monotonic() - self._saved_at >= self.runtime.checkpoint_seconds
            if due and done < run.total:  # the end of a stage is saved by fit
                self._save(self._tensors(run))
                clock = time.perf_counter()
        self._end_stage(run, last)

    # -- a step ----------------------------------------------------------------------------------

    def _step(self, run: StageRun) -> float:
        step, stage = self.state.step, run.stage
        self._torch_seed(stage.name, step)
        started = time.perf_counter()
        drawn = run.plan.draw(step // run.plan.steps_per_epoch, step, self._embed)
        if stage.sampling == "mined":
            self.state.mine_seconds += time.perf_counter() - started
        for note in run.plan.notes(step, self._embed):
            self.log.write("mining", **note)
        batch = self._batch(run, drawn)
        steps = self.method.steps(batch, stage.name)
        total, z = 0.0, None
        # keyed again: how many numbers mining has drawn must not matter to the step
        self._torch_seed(stage.name, step, "step")
        while True:
            with self.fabric.autocast(), sharing(self.share):
                yielded = next(steps, None)
            if yielded is None:
                break
            name, losses = yielded
            if name not in run.optimizers:
                raise TrainingError(
                    f"stage {stage.name!r} of {type(self.method).__name__} yields the group "
                    f"{name!r}, which it does not move; its groups are {stage.groups}"
                )
            rate = learning_rate(run.specs[name], step, run.total)
            set_rate(run.optimizers[name], rate)
            where = f"step {step} of stage {stage.name}, group {name}"
            try:
                value = step_group(
                    losses,
                    self.method,
                    self.groups[name],
                    run.optimizers[name],
                    self.fabric,
                    run.specs[name].clip,
                    where,
                )
            except TrainingError as error:
                raise name_batch(error, batch, self.data, self.first, self.directory) from error
            total += value
            z = losses.z if losses.z is not None else z
            self.epoch_log.count(name, value, losses, len(run.optimizers) > 1)
        average_buffers(
            self.method, self.fabric
        )  # mining reads them, and must pick alike in every process
        if z is not None:
            run.plan.observe(drawn.rows_B, z.float())
        if run.ema is not None:
            run.ema.update(self.method)
        if stage.inputs == "images":
            self.state.images_seen += len(drawn.rows_B) * stage.views
        self.epoch_log.step(total)
        return total

    def _batch(self, run: StageRun, drawn: Draw) -> Batch:
        stage, step = run.stage, self.state.step
        rows = drawn.rows_B[self.fabric.global_rank % self.cut :: self.cut]
        device = self.fabric.device
        images, features = torch.empty(0, device=device), {}
        if stage.inputs == "features":
            assert run.place_N is not None
            place = run.place_N[rows]
            features = {kind: z[place].to(device) for kind, z in run.features.items()}
        else:
            images = self.views.of(stage, rows, self._key(stage.name, "views"), step, device)
        return Batch(
            images=images,
            t_B=self.t_N[rows].to(device),
            s_B=self.s_N[rows].to(device),
            rows_B=rows,
            views=stage.views,
            step=step,
            progress=step / run.total,
            triplets=drawn.triplets,
            features=features,
        )

    def _embed(self, rows: Tensor) -> Tensor:
        """Un-augmented projections (or encoder features) with the current weights, for mining."""
        images = prepare_images(self.data.images(rows), self.fabric.device)
        with evaluating(self.method), self.fabric.autocast():
            return self.method.embed(images).float()

    # -- stages and epochs -----------------------------------------------------------------------

    def _training_rows(self, stage: Stage) -> TrainingRows:
        spec, key = self.spec.stage(stage.name), self.spec.stage_key(stage.name)
        size = batch_size_of(stage, spec, key, len(self.train_rows), self.fabric.world_size)
        seed = self._key(stage.name, "plan")
        labels = (self.t_N, self.s_N, self.train_rows)
        return TrainingRows(*labels, size, seed, stage.views, f"{key}.batch_views")

    def _prepare(self, stage: Stage, checkpoint: Checkpoint | None) -> StageRun:
        rows, data = self.train_rows, self._training_rows(stage)
        under_way = checkpoint if self.state.step > 0 else None
        run = begin(
            self.method,
            stage,
            self.spec,
            data,
            self.groups,
            self.fabric,
            under_way,
            self.state.ema_count,
        )
        if stage.inputs == "features":
            what = f"features of {len(rows)} {self.views.unit}, computed once"
            self.progress.say(f"stage {stage.name}: {what}")
            run.features = features_of(self.method, self.data, rows, self.fabric)
            run.place_N = torch.full((len(self.t_N),), -1)
            run.place_N[rows] = torch.arange(len(rows))
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
        found = target_probe(self.method, self.data, *rows, self.fabric, self._key("curve"))
        views = self.state.images_seen
        self.log.write("curve", stage=stage.name, step=self.state.step, views=views, **found)

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

    # -- state -----------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path | None:
        return None if self.directory is None else self.directory / "checkpoints"

    def _tensors(self, run: StageRun) -> dict[str, Tensor]:
        if run.ema is not None:
            self.state.ema_count = run.ema.count
        return run.tensors()

    def _save(self, extra: dict[str, Tensor]) -> None:
        self._saved_at = time.monotonic()
        if self._folder is None or not self.first:
            return
        tensors = {f"model.{k}": v for k, v in self.method.state_dict().items()}
        tensors.update({f"best.{k}": v for k, v in self.best.items()})
        tensors.update(extra)
        state = {**vars(self.state), "log_bytes": self.log.size()}
        save_checkpoint(self._folder, tensors, state)

    def _leave(self, where: str, stop: Interrupt) -> NoReturn:
        self.progress.stop()
        if self.first:
            self.progress.say(f"stopped {where}; continue with --resume", "yellow")
        raise stop.reason()

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = dict(checkpoint.state)
        self.log.cut(int(state.pop("log_bytes")))
        self._set_state(State(**state))
        self.method.load_state_dict(checkpoint.part("model"))
        self.best = checkpoint.part("best")
        stages = self.method.stages()
        name = stages[self.state.stage].name if self.state.stage < len(stages) else "evaluation"
        self.log.write("resume", stage=name, step=self.state.step)
        self.progress.say(f"resuming at step {self.state.step} of stage {name}")

    def _key(self, *words: str) -> int:
        return text_key("/".join(map(str, (self.seed, *words))))

    def _torch_seed(self, *words: str | int) -> None:
        torch.manual_seed(self._key(*map(str, words)))
