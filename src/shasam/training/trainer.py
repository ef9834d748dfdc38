"""The trainer: stages of steps, on Fabric, with nothing random that is not keyed.

Every random number is a function of (seed, stage, step, row), and what cannot be computed anew is
in the checkpoint. A run that is cut anywhere and resumed ends, on a CPU, with the same bits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

from shasam.data.views import two_views
from shasam.errors import SpecError, TrainingError
from shasam.files import make_folder, write_atomic
from shasam.keyed import text_key
from shasam.methods.base import Method, Stage
from shasam.metrics import Counts, values
from shasam.models.shared import Share, sharing
from shasam.sampling import BatchPlan, Draw, TrainingRows
from shasam.spec.train import StageSpec, TrainSpec
from shasam.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from shasam.training.ema import Ema
from shasam.training.evaluation import TrainingData, evaluating, features_of, on_rows
from shasam.training.interrupt import Interrupt
from shasam.training.log import RunLog
from shasam.training.meters import effective_rank, mean_cosine
from shasam.training.modes import check_groups, set_modes
from shasam.training.optimizers import (
    learning_rate,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rate,
)
from shasam.training.prepare import prepare, prepare_images
from shasam.training.progress import TrainingProgress
from shasam.training.runtime import Runtime, wait_at_most
from shasam.training.steps import step_group
from shasam.types import Batch

PROBE_ROWS = 256  # validation images whose embeddings are measured every epoch
INACTIVE_STEPS = 50  # steps without any active term before a warning


@dataclass
class State:
    """Where training stands: all of it goes into the checkpoint as JSON."""

    stage: int = 0
    step: int = 0
    images_seen: int = 0
    seconds: float = 0.0
    learn_seconds: float = 0.0
    mine_seconds: float = 0.0
    inactive: int = 0
    ema_count: int = 0
    best: float | None = None
    collapsed: bool = False
    sums: dict[str, float] = field(default_factory=dict)  # of the epoch that is under way


@dataclass
class _StageRun:
    """A stage under way: what is made anew at its start or restored from a checkpoint."""

    stage: Stage
    spec: StageSpec
    plan: BatchPlan
    total: int
    batch_size: int
    optimizers: dict[str, torch.optim.Optimizer]
    groups: dict[str, list[torch.nn.Parameter]]
    specs: dict[str, StageSpec]
    ema: Ema | None
    features: dict[str, Tensor]


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
        runtime: Runtime | None = None,
        directory: Path | None = None,
        log: RunLog | None = None,
        progress: TrainingProgress | None = None,
    ) -> None:
        self.runtime = runtime or Runtime()
        self.method, self.data, self.spec, self.seed = method, data, spec, seed
        self.image_size, self.fabric = image_size, fabric
        self.first = fabric.global_rank == 0
        self.directory = directory
        self.log = log or RunLog(None)
        self.progress = progress or TrainingProgress(self.runtime.quiet or not self.first)
        self.state = State()
        self.best: dict[str, Tensor] = {}
        self.t_N, self.s_N = torch.tensor(data.manifest.t_N), torch.tensor(data.manifest.s_N)
        self.train_rows = torch.as_tensor(data.rows("train")).clone()
        self.val_rows = torch.as_tensor(data.rows("val")).clone()
        self.groups = check_groups(method)
        self._saved_at = time.monotonic()
        self._tensorboard = self._open_tensorboard()
        # a mean over rows is cut over processes; any other loss sees the whole batch in each of
        # them, and only the encoder's work is shared
        self.cut = fabric.world_size if method.row_wise else 1
        self.share = None if self.cut == fabric.world_size else _share(fabric)
        prepare(method, fabric.device, training=True)

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
        with Interrupt() as stop:
            while self.state.stage < len(stages):
                self._run_stage(stages[self.state.stage], checkpoint, stop)
                checkpoint = None
                self.state.stage += 1
                self.state.step = 0
                self._save({})
                if self._anybody(stop.asked):
                    self._leave(f"after stage {stages[self.state.stage - 1].name}", stop)
        self.progress.stop()
        prepare(self.method, self.fabric.device)
        return self.state

    def _run_stage(self, stage: Stage, checkpoint: Checkpoint | None, stop: Interrupt) -> None:
        last = self.state.stage == len(self.method.stages()) - 1
        run = self._prepare(stage, checkpoint)
        world = self.fabric.world_size
        split = f" = {world} processes x {run.batch_size // world}" if world > 1 else ""
        self.progress.say(
            f"stage {stage.name}: {run.total} steps of {run.batch_size} images{split} x "
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
            rate = (done - began_step) * run.batch_size * stage.views / max(1e-9, trained)
            mined = self._mine_fraction() if stage.sampling == "mined" else None
            self.progress.step(done, loss, rate, mined)
            epoch_over = done % per_epoch == 0 or done == run.total
            if epoch_over:
                self._end_epoch(run, (done - 1) // per_epoch, rate, last)
                self.state.seconds += time.perf_counter() - clock
                clock = time.perf_counter()
            if self._anybody(stop.asked):
                self._save(self._tensors(run))
                self._leave(f"at step {done} of stage {stage.name}", stop)
            due = time.monotonic() - self._saved_at >= self.runtime.checkpoint_seconds
            if due and done < run.total:  # the end of a stage is saved by fit
                self._save(self._tensors(run))
                clock = time.perf_counter()
        self._end_stage(run, last)

    # -- a step ----------------------------------------------------------------------------------

    def _step(self, run: _StageRun) -> float:
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
                raise self._name_batch(error, batch) from error
            total += value
            z = losses.z if losses.z is not None else z
            self._count(name, value, losses.parts, losses.active, len(run.optimizers) > 1)
        self._average_buffers()  # mining reads them, and must pick alike in every process
        if z is not None:
            run.plan.observe(drawn.rows_B, z.float())
        if run.ema is not None:
            run.ema.update(self.method)
        if stage.inputs == "images":
            self.state.images_seen += len(drawn.rows_B) * stage.views
        self._add("loss", total)
        self._add("steps", 1.0)
        return total

    def _batch(self, run: _StageRun, drawn: Draw) -> Batch:
        stage, step = run.stage, self.state.step
        rows = drawn.rows_B[self.fabric.global_rank % self.cut :: self.cut]
        device = self.fabric.device
        images, features = torch.empty(0, device=device), {}
        if stage.inputs == "features":
            place = self._place[rows]
            features = {kind: z[place].to(device) for kind, z in run.features.items()}
        else:
            # the step stands for the epoch in the key: an image that is drawn twice in an epoch
            # gets new views each time
            images = two_views(
                self.data.images(rows).to(device),
                rows,
                seed=self._key(stage.name, "views"),
                epoch=step,
                views=stage.views,
                size=self.image_size,
            ).contiguous(memory_format=torch.channels_last)
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

    def _prepare(self, stage: Stage, checkpoint: Checkpoint | None) -> _StageRun:
        spec = self.spec.stage(stage.name)
        batch_size = max(1, spec.batch_views // stage.views)
        world = self.fabric.world_size
        if batch_size % world:
            raise SpecError(
                f"a batch of {batch_size} images cannot be cut into {world} equal parts; "
                f"make batch_views of stage {stage.name} a multiple of {world * stage.views}"
            )
        rows = self.train_rows
        if stage.inputs == "features":
            batch_size = min(batch_size, len(rows))
        seed = self._key(stage.name, "plan")
        labelled = TrainingRows(self.t_N, self.s_N, rows, batch_size, seed)
        self.method.begin_stage(stage, labelled)
        plan = self.method.batch_plan(stage, labelled)
        total = spec.steps if spec.steps is not None else (spec.epochs or 1) * plan.steps_per_epoch
        plan.total_steps = total
        set_modes(self.method, stage)
        overrides = self.method.optimizer_overrides()
        specs = {g: spec.model_copy(update=overrides.get(g, {})) for g in stage.groups}
        optimizers = {g: make_optimizer(self.groups[g], specs[g]) for g in stage.groups}
        run = _StageRun(
            stage,
            spec,
            plan,
            total,
            batch_size,
            {g: self.fabric.setup_optimizers(o) for g, o in optimizers.items()},  # type: ignore[misc]
            self.groups,
            specs,
            Ema(self.method, self.spec.ema) if self.spec.ema and stage.inputs == "images" else None,
            {},
        )
        if checkpoint is not None and self.state.step > 0:
            plan.load_state(checkpoint.part("plan"))
            for group, optimizer in optimizers.items():
                load_optimizer_tensors(optimizer, checkpoint.part(f"optimizer.{group}"))
            if run.ema is not None:
                run.ema.load(checkpoint.part("ema"), self.state.ema_count)
        if stage.inputs == "features":
            self.progress.say(f"stage {stage.name}: features of {len(rows)} images, computed once")
            run.features = features_of(self.method, self.data, rows, self.fabric)
            self._place = torch.full((len(self.t_N),), -1)
            self._place[rows] = torch.arange(len(rows))
            self._val_features: dict[str, Tensor] = {}
        return run

    def _end_epoch(self, run: _StageRun, epoch: int, rate: float, last: bool) -> None:
        stage, sums = run.stage, self.state.sums
        steps = sums.pop("steps")
        loss = sums.pop("loss") / steps
        active = sums.pop("active") / steps if "active" in sums else None
        parts = {k.removeprefix("part."): v / steps for k, v in sums.items()}
        self.state.sums = {}
        meters = self._meters(stage)
        val = None
        every = self.spec.validate_every
        ending = self.state.step == run.total
        if last and len(self.val_rows) and every and (ending or (epoch + 1) % every == 0):
            val = self._validate(run)
        line: dict[str, Any] = {
            "stage": stage.name,
            "epoch": epoch,
            "step": self.state.step,
            "loss": loss,
            "parts": parts or None,
            "active": active,
            "lr": learning_rate(run.spec, self.state.step - 1, run.total),
            "images_per_second": rate,
            "mine_fraction": self._mine_fraction() if stage.sampling == "mined" else None,
            "plan": run.plan.counters() or None,
            **meters,
            "val": val,
        }
        if self.first:
            self.log.write("epoch", **line)
            self._to_tensorboard(line)
            shown = {"loss": loss, "active": active, **meters}
            shown.update({f"val {k}": v for k, v in (val or {}).items()})
            if stage.inputs == "images" or ending:
                self.progress.epoch(stage.name, epoch + 1, shown)
        self._watch_collapse(stage, meters)

    def _end_stage(self, run: _StageRun, last: bool) -> None:
        """Averaged weights replace the weights; the best ones do so at the very end."""
        if run.ema is not None:
            self.method.load_state_dict(run.ema.average)
        if last and self.best:
            self.method.load_state_dict(self.best)
            self.best = {}
        self.state.ema_count = 0

    def _validate(self, run: _StageRun) -> dict[str, float]:
        """Accuracy and EO on the validation split; remembers the best weights where asked to."""
        kept = self._swap_in_average(run)
        if run.stage.inputs == "features":
            if not self._val_features:
                self._val_features = features_of(self.method, self.data, self.val_rows, self.fabric)
            with evaluating(self.method):
                device = self.fabric.device
                features = {k: v.to(device) for k, v in self._val_features.items()}
                scores = next(iter(self.method.classify(features).values())).cpu()
        else:
            found = on_rows(self.method.logits, self.method, self.data, self.val_rows, self.fabric)
            scores = next(iter(found.values()))
        t, s = self.t_N[self.val_rows], self.s_N[self.val_rows]
        names = [tuple(map(str, range(n))) for n in (self.data.classes, self.data.groups)]
        counts = Counts.from_codes(t.numpy(), scores.argmax(1).numpy(), s.numpy(), *names)
        metrics = values(counts, ("accuracy", "eo_mean"))
        better = self.state.best is None or metrics["accuracy"] > self.state.best
        if self.spec.selection == "best" and better:
            self.state.best = metrics["accuracy"]
            self.best = {k: v.detach().clone() for k, v in self.method.state_dict().items()}
        if kept is not None:
            self.method.load_state_dict(kept)
        return metrics

    def _swap_in_average(self, run: _StageRun) -> dict[str, Tensor] | None:
        if run.ema is None:
            return None
        kept = {k: v.detach().clone() for k, v in self.method.state_dict().items()}
        self.method.load_state_dict(run.ema.average)
        return kept

    # -- meters ----------------------------------------------------------------------------------

    def _meters(self, stage: Stage) -> dict[str, float]:
        if stage.inputs == "features" or len(self.val_rows) < 2:
            return {}
        # spread over the split, so that every class is among them
        picks = torch.linspace(0, len(self.val_rows) - 1, min(PROBE_ROWS, len(self.val_rows)))
        rows = self.val_rows[picks.long()]
        features = features_of(self.method, self.data, rows, self.fabric)
        z = features.get("projection", features.get("encoder"))
        if z is None:
            return {}
        return {"mean_cosine": mean_cosine(z), "effective_rank": effective_rank(z)}

    def _watch_collapse(self, stage: Stage, meters: Mapping[str, float]) -> None:
        # encoder features behind a ReLU all point into one orthant: only projections are judged
        cosine = meters.get("mean_cosine", 0.0)
        if not hasattr(self.method, "projection") or not cosine > self.spec.collapse_cosine:
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
        if self.runtime.on_collapse == "stop":
            raise TrainingError(advice + " (stopped by --on-collapse stop)")

    def _count(
        self,
        group: str,
        value: float,
        parts: Mapping[str, float | Tensor],
        active: float | None,
        several: bool,
    ) -> None:
        for name, part in parts.items():
            self._add(f"part.{name}", float(part))
        if several and group not in parts:
            self._add(f"part.{group}", value)
        if active is None:
            return
        self._add("active", float(active))
        self.state.inactive = 0 if active > 0 else self.state.inactive + 1
        if self.state.inactive == INACTIVE_STEPS and self.first:
            text = f"no term of the loss has had a gradient for {INACTIVE_STEPS} steps"
            self.log.write("warning", step=self.state.step, message=text)
            self.progress.say("warning: " + text, "yellow")

    def _add(self, name: str, value: float) -> None:
        self.state.sums[name] = self.state.sums.get(name, 0.0) + value

    def _mine_fraction(self) -> float | None:
        seconds = self.state.learn_seconds
        return self.state.mine_seconds / seconds if seconds else None

    # -- state -----------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path | None:
        return None if self.directory is None else self.directory / "checkpoints"

    def _tensors(self, run: _StageRun) -> dict[str, Tensor]:
        """What a stage under way adds to the checkpoint."""
        tensors = {f"plan.{k}": v for k, v in run.plan.state().items()}
        for group, optimizer in run.optimizers.items():
            for name, value in optimizer_tensors(optimizer).items():
                tensors[f"optimizer.{group}.{name}"] = value
        if run.ema is not None:
            tensors.update({f"ema.{k}": v for k, v in run.ema.average.items()})
            self.state.ema_count = run.ema.count
        return tensors

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
        self.state = State(**state)
        self.method.load_state_dict(checkpoint.part("model"))
        self.best = checkpoint.part("best")
        stages = self.method.stages()
        name = stages[self.state.stage].name if self.state.stage < len(stages) else "evaluation"
        self.log.write("resume", stage=name, step=self.state.step)
        self.progress.say(f"resuming at step {self.state.step} of stage {name}")

    def _anybody(self, asked: bool) -> bool:
        """True on all processes as soon as it is true on one, so that they stop together."""
        if self.fabric.world_size == 1:
            return asked
        flag = torch.tensor(float(asked), device=self.fabric.device)
        return float(cast("Tensor", self.fabric.all_reduce(flag, reduce_op="sum"))) > 0

    def _average_buffers(self) -> None:
        """Running statistics are those of each process; the mean of them is evaluated."""
        if self.fabric.world_size > 1:
            for buffer in self.method.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(cast("Tensor", self.fabric.all_reduce(buffer, reduce_op="mean")))

    def _name_batch(self, error: TrainingError, batch: Batch) -> TrainingError:
        rows = batch.rows_B.tolist()
        ids = self.data.manifest.table.column("id").take(rows).to_pylist()
        if self.directory is not None and self.first:
            body = {"message": str(error), "rows": rows, "ids": ids}
            write_atomic(self.directory / "bad_batch.json", json.dumps(body, indent=1))
        shown = ", ".join(map(str, ids[:6])) + (f" and {len(ids) - 6} more" if len(ids) > 6 else "")
        return TrainingError(f"{error}. The batch: {shown} (rows {rows[:6]}...)")

    def _key(self, *words: str) -> int:
        return text_key("/".join(map(str, (self.seed, *words))))

    def _torch_seed(self, *words: str | int) -> None:
        torch.manual_seed(self._key(*map(str, words)))

    # -- tensorboard -----------------------------------------------------------------------------

    def _open_tensorboard(self) -> Any:
        if not self.runtime.tensorboard or self.directory is None or not self.first:
            return None
        make_folder(self.directory / "tensorboard", within=self.directory)
        try:
            from lightning_fabric.loggers import TensorBoardLogger

            return TensorBoardLogger(self.directory, name="", version="tensorboard")
        except ModuleNotFoundError as error:
            raise SpecError(
                f"--tensorboard needs `pip install shasam[tensorboard]`: {error}"
            ) from error

    def _to_tensorboard(self, line: Mapping[str, Any]) -> None:
        if self._tensorboard is None:
            return
        flat = {f"{line['stage']}/{k}": v for k, v in line.items() if isinstance(v, float)}
        flat.update({f"val/{k}": v for k, v in (line.get("val") or {}).items()})
        self._tensorboard.log_metrics(flat, step=self.state.images_seen)


def _share(fabric: Fabric) -> Share:
    def gather(part: Tensor) -> Tensor:
        return cast("Tensor", fabric.all_gather(part.contiguous(), sync_grads=True))

    return Share(fabric.global_rank, fabric.world_size, gather)
