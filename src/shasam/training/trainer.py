"""The trainer: stages of steps, on Fabric, with keyed random numbers only.

Every random number is a function of (seed, stage, step, row), and what cannot be computed anew is
in the checkpoint. A run that is cut anywhere and resumed ends, on a CPU, with the same bits.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn

from shasam.data.augment import CellPartners, augmented_views, vector_views
from shasam.data.splits import QUARTER_OF, Manifest
from shasam.errors import TrainingError
from shasam.files import write_atomic
from shasam.keyed import seed_torch, text_key
from shasam.methods.base import Method, Stage
from shasam.metrics.counts import Counts
from shasam.metrics.evaluation import values
from shasam.metrics.learnt import Skill
from shasam.models.processes import Share, share_batch_norm, sharing
from shasam.runs.directory import RunLog
from shasam.sampling import Draw, TrainingRows
from shasam.spec import RunSpec
from shasam.spec.fields import TrainSpec, ViewsSpec
from shasam.training.cached_maps import CachedMaps
from shasam.training.checkpoint import Checkpoint, load_checkpoint, must_fit, save_checkpoint
from shasam.training.inference import TrainingData, evaluating, on_rows, prepare, prepare_images
from shasam.training.monitor import (
    FEWEST_STEPS,
    CollapseWatch,
    EpochLog,
    PlateauWatch,
    TrainingProgress,
    averaged,
    check_selection,
    group_leakage,
    leaks_less,
    merit,
    spread_of_embeddings,
    target_probe,
    target_skill,
    validate,
)
from shasam.training.runtime import (
    SHARE,
    Fabric,
    Interrupt,
    Runtime,
    agree,
    anybody,
    average_buffers,
    share_of,
    wait_at_most,
)
from shasam.training.stage import (
    StageRun,
    State,
    batch_size_of,
    begin,
    check_groups,
    learning_rate,
    plan_of,
    set_rate,
)
from shasam.types import Batch, Losses
from shasam.windows import Windows

# -------------------------------------------------------------------------------------------------
# The views of a batch: augmented images, or views of vectors.
# -------------------------------------------------------------------------------------------------


class Views:
    """Makes the views of a training split; ``stage`` says how many views there will be."""

    def __init__(self, method: Method, data: TrainingData, spec: ViewsSpec, size: int) -> None:
        self.data, self.spec, self.size = data, spec, size
        self.vectors = method.encoder.inputs == "vectors"
        self.unit = "vectors" if self.vectors else "images"
        self.partners: CellPartners | None = None
        self.cached = data if isinstance(data, CachedMaps) else None

    def begin(self, t_N: Tensor, s_N: Tensor, rows: Tensor) -> None:
        """Take the labels of all rows, and the rows of the training split."""
        if self.vectors and self.spec.mixing:
            self.partners = CellPartners(t_N, s_N, rows)

    def stage(self, stage: Stage) -> Stage:
        """Return the stage as it is carried out: vectors of which no view differs have one view."""
        if self.vectors and not self.spec.of_vectors:
            return replace(stage, views=1, augment=False)
        return stage

    def of(self, stage: Stage, rows: Tensor, seed: int, step: int, device: torch.device) -> Tensor:
        """Draw (V*B, ...) on the device, keyed by the step: a row drawn twice in an epoch gets
        new views each time."""
        if self.cached is not None and stage.augment:
            maps = self.cached.views(rows, seed, step, stage.views, self.spec.flip)
            return prepare_images(maps, device)
        if not stage.augment:
            return prepare_images(self.data.images(rows), device)
        if self.vectors:
            read, views = self.data.images, stage.views
            return vector_views(
                read, rows, self.partners, seed=seed, draw=step, views=views, spec=self.spec
            ).to(device)
        return augmented_views(
            self.data.images(rows).to(device),
            rows,
            seed=seed,
            draw=step,
            views=stage.views,
            size=self.size,
            spec=self.spec,
        ).contiguous(memory_format=torch.channels_last)


# -------------------------------------------------------------------------------------------------
# The batch of a step: images or features, labels and triplets of the rows that a plan drew.
# -------------------------------------------------------------------------------------------------


class BatchMaker:
    """Makes the batches of one process, and embeds rows for plans that mine."""

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        fabric: Fabric,
        views: Views,
        seed: int,
        in_turns: bool = False,
        windows: tuple[Windows, ...] = (),
    ) -> None:
        self.method, self.data, self.fabric = method, data, fabric
        self.windows = windows
        self.views, self.seed = views, seed
        manifest = data.manifest
        self.t_N, self.s_N = torch.tensor(manifest.t_N), torch.tensor(manifest.s_N)
        # groups by each of several attributes, whose turn comes with the step
        self.turns = tuple(map(torch.tensor, manifest.attribute_codes)) if in_turns else ()
        # a mean over rows is cut over processes; any other loss sees the whole batch in each of
        # them, and only the encoder's work is shared
        self.cut = fabric.world_size if method.row_wise else 1
        self.share = share_of(fabric) if fabric.world_size > 1 else None

    def make(self, run: StageRun, drawn: Draw, step: int) -> Batch:
        """Return the part of a batch that this process computes with."""
        rows = drawn.rows_B[self.fabric.global_rank % self.cut :: self.cut]
        device = self.fabric.device
        turn = step % len(self.turns) if self.turns else 0
        windows = self.windows[turn] if self.windows else None
        s_N = self.turns[turn] if self.turns else self.s_N
        images, features = torch.empty(0, device=device), {}
        if run.stage.inputs == "features":
            features = run.features_of(rows, device)
        else:
            key = text_key(self.seed, run.stage.name, "views")
            images = self.views.of(run.stage, rows, key, step, device)
        return Batch(
            images=images,
            t_B=self.t_N[rows].to(device),
            s_B=s_N[rows].to(device),
            rows_B=rows,
            views=run.stage.views,
            step=step,
            progress=step / run.total,
            triplets=drawn.triplets,
            features=features,
            turn=turn,
            windows=windows,
            observe=lambda z: run.plan.observe(drawn.rows_B, z.detach().float()),
        )

    def plain(self, rows: Tensor) -> Tensor:
        """Return the un-augmented images of rows, on the device."""
        return prepare_images(self.data.images(rows), self.fabric.device)

    def embed(self, rows: Tensor) -> Tensor:
        """Return ``Method.embed`` of un-augmented images with the current weights, for mining."""
        with evaluating(self.method), self.fabric.autocast(), sharing(self.share):
            return self.method.embed(self.plain(rows)).float()


# -------------------------------------------------------------------------------------------------
# `bad_batch.json`: the images of the batch that made a loss or a gradient infinite.
# -------------------------------------------------------------------------------------------------


def name_batch(
    error: TrainingError, batch: Batch, data: TrainingData, first: bool, directory: Path | None
) -> TrainingError:
    """Name the images of the batch in its error; rank 0 writes them into the run directory."""
    rows = batch.rows_B.tolist()
    ids = data.manifest.table.column("id").take(rows).to_pylist()
    if directory is not None and first:
        body = {"message": str(error), "rows": rows, "ids": ids}
        write_atomic(directory / "bad_batch.json", json.dumps(body, indent=1))
    shown = ", ".join(map(str, ids[:6])) + (f" and {len(ids) - 6} more" if len(ids) > 6 else "")
    return TrainingError(f"{error}. The batch: {shown} (rows {rows[:6]}...)")


# -------------------------------------------------------------------------------------------------
# A training step: for each group that the method yields, backward, guard, clip and step.
# -------------------------------------------------------------------------------------------------


class Stepper:
    """Takes the steps of a method: one optimiser step for each group that it yields."""

    def __init__(
        self,
        method: Method,
        groups: dict[str, list[nn.Parameter]],
        data: TrainingData,
        fabric: Fabric,
        share: Share | None,
        directory: Path | None,
    ) -> None:
        self.method, self.groups, self.data, self.fabric = method, groups, data, fabric
        self.share = share  # how the encoder's work on a batch is cut over processes
        self.directory = directory  # where a batch that cannot be used is written down

    def step(self, run: StageRun, batch: Batch, epoch_log: EpochLog) -> float:
        """Make a step of every group of a batch; return the sum of their losses."""
        steps = self.method.steps(batch, run.stage.name)
        total = 0.0
        while True:
            with self.fabric.autocast(), sharing(self.share):
                yielded = next(steps, None)
            if yielded is None:
                return total
            name, losses = yielded
            value = self._move(run, batch, name, losses)
            total += value
            epoch_log.count(name, value, losses, len(run.optimizers) > 1)

    def _move(self, run: StageRun, batch: Batch, name: str, losses: Losses) -> float:
        stage = run.stage
        if name not in run.optimizers:
            raise TrainingError(
                f"stage {stage.name!r} of {type(self.method).__name__} yields the group "
                f"{name!r}, which it does not move; its groups are {stage.groups}"
            )
        spec, optimizer = run.specs[name], run.optimizers[name]
        set_rate(optimizer, run.slower * learning_rate(spec, batch.step, run.total))
        where = f"step {batch.step} of stage {stage.name}, group {name}"
        try:
            parameters = self.groups[name]
            return step_group(
                losses, self.method, parameters, optimizer, self.fabric, spec.clip, where
            )
        except TrainingError as error:
            first = self.fabric.global_rank == 0
            raise name_batch(error, batch, self.data, first, self.directory) from error


def average_gradients(parameters: list[nn.Parameter], loss: Tensor, fabric: Fabric) -> Tensor:
    """Average the gradients and the loss over processes; return the mean loss."""
    if fabric.world_size == 1:
        return loss.detach()
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([loss.detach().reshape(1).float(), *(g.reshape(-1).float() for g in grads)])
    flat = cast("Tensor", fabric.all_reduce(flat, reduce_op="mean"))
    start = 1
    for grad in grads:
        grad.copy_(flat[start : start + grad.numel()].view_as(grad))
        start += grad.numel()
    return flat[0]


def step_group(
    losses: Losses,
    method: nn.Module,
    parameters: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    fabric: Fabric,
    clip: float | None,
    where: str,
) -> float:
    """Move one group by one step and return the loss; raises before the weights move.

    Only the gradients of this group are computed, so no other group can be polluted by them.
    """
    if not losses.total.requires_grad:
        raise TrainingError(f"the loss of {where} depends on no parameter that moves in this stage")
    fabric.backward(losses.total, inputs=parameters)
    loss = average_gradients(parameters, losses.total, fabric)
    if clip is not None:
        norm = fabric.clip_gradients(method, optimizer, max_norm=clip, error_if_nonfinite=False)
    else:
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    # with 16-bit scaling an infinite gradient is met by the scaler, which skips the step
    scaled = getattr(fabric.strategy.precision, "scaler", None) is not None
    value, length = float(loss), float(cast("Tensor", norm))
    if not math.isfinite(value) or not (scaled or math.isfinite(length)):
        what = f"loss is {value}" if not math.isfinite(value) else f"gradient norm is {length}"
        raise TrainingError(
            f"{what} at {where}; the weights were not changed. Look at these rows, or lower the "
            "learning rate (train.lr) or clip gradients (train.clip)"
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return value


# -------------------------------------------------------------------------------------------------
# What a checkpoint holds of a run under way, and how a run goes on from it.
# -------------------------------------------------------------------------------------------------

Weights = dict[str, Tensor]


def save_state(
    folder: Path, method: Method, best: Weights, state: State, log: RunLog, run: StageRun | None
) -> None:
    """Write a checkpoint; ``run`` is the stage that is under way, None between stages."""
    tensors = {f"model.{k}": v for k, v in method.state_dict().items()}
    tensors.update({f"best.{k}": v for k, v in best.items()})
    if run is not None:
        tensors.update(run.tensors())
    save_checkpoint(folder, tensors, {**vars(state), "log_bytes": log.size()})


def restore_state(checkpoint: Checkpoint, method: Method, log: RunLog) -> tuple[State, Weights]:
    """Restore weights and log as they were; return the numbers of the run and its best weights."""
    with must_fit():
        numbers = dict(checkpoint.state)
        size = int(numbers.pop("log_bytes"))
        state = State.of(numbers)
        method.load_state_dict(checkpoint.part("model"))
        best, own = checkpoint.part("best"), method.state_dict()
        if best and {k: v.shape for k, v in best.items()} != {k: v.shape for k, v in own.items()}:
            raise ValueError("its best weights are those of another network")
    log.cut(size)
    return state, best


def windows_of(
    manifest: Manifest, rows: Tensor, bandwidth: float, in_turns: bool
) -> tuple[Windows, ...]:
    """Return the windows of each turn, one where there are no turns; () where there is no number.

    A number among several attributes is crossed with the groups of the others; where they take
    turns, each group of another attribute is a window in that attribute's turn.
    """
    if manifest.number_N is None:
        return ()
    number_N = torch.tensor(manifest.number_N)
    named = zip(manifest.attributes, manifest.attribute_codes, strict=True)
    codes = [None if a.name == QUARTER_OF + manifest.number else torch.tensor(c) for a, c in named]
    if in_turns:
        return tuple(
            Windows.along(number_N, rows, bandwidth) if c is None else Windows.of_groups(c, rows)
            for c in codes
        )
    others = [c for c in codes if c is not None]
    if not others:
        return (Windows.along(number_N, rows, bandwidth),)
    group_N, known_N = torch.zeros_like(others[0]), torch.ones(len(number_N), dtype=torch.bool)
    for c in others:
        group_N, known_N = group_N * (int(c.max()) + 1) + c, known_N & (c >= 0)
    group_N = torch.where(known_N, group_N, -1)
    return (Windows.along(number_N, rows, bandwidth, group_N),)


LOG_STEPS = 50  # between lines of the log inside an epoch
GLANCES, GLANCED = 5, 256  # probes of a stage for the screen, and images of each


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
        in_turns: bool = False,
        bandwidth: float = 0.1,
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
        check_selection(spec.selection, data.manifest.s_N[self.val_rows.numpy()])
        self.views = Views(method, data, views or ViewsSpec(), image_size)
        windows = windows_of(data.manifest, self.train_rows, bandwidth, in_turns)
        self.batches = BatchMaker(method, data, fabric, self.views, seed, in_turns, windows)
        self.views.begin(self.batches.t_N, self.batches.s_N, self.train_rows)
        share = self.batches.share if self.batches.cut == 1 else None
        self.stepper = Stepper(method, check_groups(method), data, fabric, share, directory)
        self._saved_at = time.monotonic()
        prepare(method, fabric.device, training=True)
        if spec.sync_batchnorm and self.batches.share is not None:
            share_batch_norm(method, self.batches.share.gather)
        self._set_state(State())

    @classmethod
    def of_run(cls, spec: RunSpec, method: Method, data: TrainingData, **more: Any) -> Trainer:
        """Make the trainer that the specification of a run describes."""
        more |= {"seed": spec.seed, "image_size": spec.data.size, "views": spec.data.views}
        more |= {"in_turns": spec.data.groups == "each", "bandwidth": spec.data.bandwidth}
        return cls(method, data, spec.train, **more)

    def _set_state(self, state: State) -> None:
        """Set the numbers of the run, and the objects that count with them."""
        self.state = state
        shared = (state, self.log, self.progress, self.first)
        self.epoch_log = EpochLog(*shared)
        limit, on_collapse = self.spec.collapse_cosine, self.runtime.on_collapse
        self.collapse = CollapseWatch(*shared, limit, on_collapse)
        self.plateau = PlateauWatch(*shared, self.fabric, self.spec.on_plateau)

    # -- the whole run ---------------------------------------------------------------------------

    def fit(self, resume: bool = False) -> State:
        """Run all stages, from the start or from the newest good checkpoint."""
        checkpoint = None
        if resume and self._folder is not None:
            checkpoint = load_checkpoint(self._folder, lambda t: self.progress.say(t, "yellow"))
        # every process has read, and has read the same, before the first one writes
        at = "no checkpoint" if checkpoint is None else f"checkpoint {checkpoint.digest}"
        agree(self.fabric, "the checkpoint", at, *SHARE)
        wait_at_most(self.fabric, self.runtime.rank_timeout)
        if checkpoint is not None:
            self._restore(checkpoint)
        stages = [self.views.stage(stage) for stage in self.method.stages()]
        for stage in stages:  # a batch that cannot be drawn is an error now, not after hours
            plan_of(self.method, stage, self._training_rows(stage))
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
        self.plateau.begin(run)
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
            self._glance(run, last)
            if self.plateau.due(run):
                self.plateau.look(run, self._skill(run, last))
            rate = (done - began_step) * run.batch_size * stage.views / max(1e-9, trained)
            mined = self.state.mine_fraction if stage.sampling == "mined" else None
            self.progress.step(done, loss, rate, mined)
            epoch = run.plan.epoch_of(done - 1)
            ended = done == run.total or run.plan.epoch_of(done) != epoch
            if ended:
                self._end_epoch(run, epoch, rate, last)
            elif done % LOG_STEPS == 0 and self.first:  # an epoch may be hours
                self.log.write("step", stage=stage.name, step=done, loss=loss)
            if ended:
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
        drawn = run.plan.draw(run.plan.epoch_of(step), step, self.batches.embed)
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
        named = f"{key}.batch_views"
        turns, windows = self.batches.turns, self.batches.windows
        return TrainingRows(
            *labels, size, seed, stage.views, named, self.batches.plain, turns, windows
        )

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
        """Log a point of the learning curve every ``train.probe_every`` steps."""
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

    def _glance(self, run: StageRun, last: bool) -> None:
        """Tell the screen how much is known, in a stage whose own classifier is still to come."""
        step, total = self.state.step, run.total
        wanted = self.first and not self.progress.quiet and not last and len(self.val_rows)
        if not wanted or run.stage.inputs != "images" or total < FEWEST_STEPS or step == total:
            return
        if GLANCES * step // total > GLANCES * (step - 1) // total:
            rows = self.train_rows, self.val_rows
            seed = text_key(self.seed, "glance")
            found = target_probe(self.method, self.data, *rows, self.fabric, seed, GLANCED)
            self.progress.probe(run.stage.name, step, found)

    def _skill(self, run: StageRun, last: bool) -> Skill | None:
        """Measure how well the target is known now, in the first process."""
        if not self.first:
            return None
        rows, seed = (self.train_rows, self.val_rows), text_key(self.seed, "plateau")
        return target_skill(self.method, run, self.data, *rows, self.fabric, seed, last)

    def _end_stage(self, run: StageRun, last: bool) -> None:
        """Replace the weights by the averaged ones; the best ones do so at the very end."""
        if run.ema is not None:
            self.method.load_state_dict(run.ema.average)
        if last and self.best:
            self.method.load_state_dict(self.best)
            self.best = {}
        self.state.ema_count = 0

    def _validate(self, run: StageRun) -> dict[str, float]:
        """Measure accuracy and EO on the validation split.

        Remember the best weights if asked to.
        """
        with averaged(self.method, run.ema):
            counts = validate(self.method, run, self.data, self.val_rows, self.fabric)
            if self._prefers(run, counts):
                self.best = {k: v.detach().clone() for k, v in self.method.state_dict().items()}
        return values(counts, ("accuracy", "eo_mean"))

    def _prefers(self, run: StageRun, counts: Counts) -> bool:
        """Say whether this epoch is better than the one kept so far, by the rule of selection."""
        rule, state = self.spec.selection, self.state
        if rule == "last":
            return False
        found = merit(counts, rule)
        if rule == "least-leakage":
            key = text_key(self.seed, "leakage")
            args = (self.method, run, self.data, self.val_rows, self.fabric, key)
            return leaks_less(state, found, group_leakage(*args))
        better = state.best is None or found > state.best
        state.best = found if better else state.best
        return better

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
