"""A child process that trains on tiny images and kills itself at the n-th instant.

An instant is a step, a write to the log, an fsync or a rename: so the knife falls inside saves,
between the two files of a checkpoint, in validation, at the change of stage and in evaluation.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "shasam.pipeline.execute", "shasam.methods"])


def train_until(
    out: str, layers: dict[str, Any], seconds: float, kill_at: int | None, tally: Any, steps: Any
) -> None:
    import torch
    from tests.tiny_data import TinyData

    from shasam.pipeline import results
    from shasam.pipeline.execute import execute
    from shasam.runs.directory import RunLog
    from shasam.spec import resolve
    from shasam.training.runtime import Runtime
    from shasam.training.trainer import Trainer

    torch.set_num_threads(1)
    # intervals cost more than the tiny run itself, and fewer draws test as much here
    results.evaluate = functools.partial(results.evaluate, draws=100)  # type: ignore[attr-defined]
    count = 0

    def watch(original: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return wrapped

    one_step = Trainer._step

    def counted(self: Trainer, run: Any) -> float:
        loss = one_step(self, run)
        steps.value += 1
        return loss

    os.fsync, os.replace = watch(os.fsync), watch(os.replace)
    Trainer._step = watch(counted)  # type: ignore[method-assign]
    RunLog.write = watch(RunLog.write)  # type: ignore[method-assign]
    spec = resolve(layers, profile="smoke")
    runtime = Runtime(device="cpu", quiet=True, checkpoint_seconds=seconds)
    execute(spec, out, runtime=runtime, resume=True, data=TinyData())
    tally.value = count


def run_child(
    out: Path, layers: dict[str, Any], seconds: float, kill_at: int | None
) -> tuple[int, int]:
    """Exit code and number of instants of a child."""
    code, instants, _ = run_and_count(out, layers, seconds, kill_at)
    return code, instants


def run_and_count(
    out: Path, layers: dict[str, Any], seconds: float, kill_at: int | None
) -> tuple[int, int, int]:
    """The same, and the number of steps that were finished, whether or not the child was killed."""
    tally, steps = CONTEXT.Value("i", 0), CONTEXT.Value("i", 0)
    args = (str(out), layers, seconds, kill_at, tally, steps)
    child = CONTEXT.Process(target=train_until, args=args)
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode, tally.value, steps.value
