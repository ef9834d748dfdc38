"""What mining costs in a step of training: ``python -m bench.mining [V …]``.

SHaSaM's MINE (three sets of k = 16 of one pair, f over V, whole cells) for a ResNet-18 of width 16
and 64 on 96 views of 64 px. Three ways take turns step by step in one process, so that a busy
machine slows all alike: the kernel of V kept from step to step, kernels made anew in every step,
and the step of the network itself. Both ways see the same embeddings, so that their picks can be
compared. Processor time of one thread, medians; a kept kernel is made once an epoch, and a step's
share of that is counted in.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from shasam.methods.shasam import Shasam, ShasamConfig
from shasam.mining import MiningConfig, miners
from shasam.models import ResNet18
from shasam.sampling import Draw, MinedPlan, TrainingRows
from shasam.types import Batch

VIEWS, K, SIZE, WIDTHS, DIM = 96, 16, 64, (16, 64), 128
STEPS = 12
GREEDY = ("lazy", "stochastic")


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    made = work()
    return time.process_time() - start, made


class Mined:
    """A plan over a ground set of some rows, whose kernel is kept or made anew."""

    def __init__(self, rows: int, greedy: str, kept: bool) -> None:
        g = torch.Generator().manual_seed(0)
        count = 5 * rows  # V is a fifth of the training split
        t = torch.randint(0, 2, (count,), generator=g)
        s = torch.randint(0, 2, (count,), generator=g)
        z = torch.randn(count, DIM, generator=g)
        z[:, 0] += 2 * t
        z[:, 1] += 2 * s
        self.z, self.kept = F.normalize(z, dim=1), kept
        data = TrainingRows(t, s, torch.arange(count), VIEWS // 2, 0, views=2)
        config = MiningConfig(k=K, pairs="one", greedy=greedy)  # type: ignore[arg-type]
        self.plan = MinedPlan(data, config)
        self.plan.total_steps = 10**6

    def step(self, number: int) -> tuple[float, Draw]:
        largest = miners.LARGEST_KEPT
        miners.LARGEST_KEPT = largest if self.kept else 0
        took, draw = clock(lambda: self.plan.draw(0, number, self.z.__getitem__))
        miners.LARGEST_KEPT = largest
        return took, draw

    def observe(self, number: int, rows_B: torch.Tensor) -> None:
        """The embeddings of a batch after a step."""
        g = torch.Generator().manual_seed(number)
        drift = 0.05 * torch.randn(VIEWS, DIM, generator=g)
        self.plan.observe(rows_B, self.z[rows_B].repeat(2, 1) + drift)


def network(width: int) -> Callable[[Draw], float]:
    torch.manual_seed(0)
    method = Shasam(ShasamConfig(), ResNet18(width=width, embed_dim=None), 2, 2).train()
    moving = method.parameter_groups()["main"]
    optimizer = torch.optim.SGD(moving, lr=0.01, momentum=0.9)
    images = torch.randn(VIEWS, 3, SIZE, SIZE).contiguous(memory_format=torch.channels_last)

    def work(drawn: Draw) -> None:
        t, s = (torch.zeros(VIEWS // 2, dtype=torch.int64) for _ in range(2))
        batch = Batch(
            images=images, t_B=t, s_B=s, rows_B=drawn.rows_B, views=2, step=0, progress=1.0,
            triplets=drawn.triplets, observe=lambda z: None,
        )  # fmt: skip
        for _, losses in method.steps(batch, "learn"):
            losses.total.backward(inputs=moving)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return lambda drawn: clock(lambda: work(drawn))[0]


def measure(rows: int) -> list[str]:
    networks = {width: network(width) for width in WIDTHS}
    plans = {(greedy, kept): Mined(rows, greedy, kept) for greedy in GREEDY for kept in (0, 1)}
    took: dict[Any, list[float]] = {name: [] for name in (*plans, *networks)}
    same, picks = dict.fromkeys(GREEDY, 0), dict.fromkeys(GREEDY, 0)
    for number in range(STEPS + 1):
        draws = {}
        for name, mined in plans.items():
            seconds, draws[name] = mined.step(number)
            if number:  # the first step embeds V, compiles and makes the kernel
                took[name].append(seconds)
        for greedy in GREEDY:
            anew, kept = draws[greedy, 0].rows_B, draws[greedy, 1].rows_B
            same[greedy] += int((anew == kept).sum())
            picks[greedy] += len(kept)
            for way in (0, 1):
                plans[greedy, way].observe(number, kept)
        for width, step in networks.items():
            seconds = step(draws["lazy", 1])
            if number:
                took[width].append(seconds)
    median = {name: 1e3 * statistics.median(times) for name, times in took.items()}
    lines = []
    for greedy in GREEDY:
        plan = plans[greedy, 1].plan
        assert plan._held is not None and plan._held.kept is not None
        kernel = plan._held.kept
        once = 1e3 * clock(lambda: kernel.renew(kernel._given_VD))[0]  # noqa: B023
        per_step = once / plan.steps_per_epoch
        now, before = median[greedy, 1] + per_step, median[greedy, 0]
        shares = [
            f"{100 * cost / (cost + median[width]):.1f} %"
            for cost in (before, now)
            for width in WIDTHS
        ]
        lines.append(
            f"| {rows:,}, {greedy} | {before:.0f} | {median[greedy, 1]:.1f} + {per_step:.1f} "
            f"| {same[greedy]} of {picks[greedy]} | {' | '.join(shares)} |"
        )
    steps = " and ".join(f"{median[width]:.0f} ms (width {width})" for width in WIDTHS)
    return [*lines, f"V = {rows:,}: a step of the network takes {steps}"]


def main() -> None:
    parser = argparse.ArgumentParser(description="What mining costs in a step of training.")
    parser.add_argument("rows", nargs="*", type=int, default=[5_000, 8_000])
    torch.set_num_threads(1)
    print(
        "| V | made anew, ms | kept: a step + its share of the build, ms | picks equal "
        "| before, width 16 | width 64 | now, width 16 | width 64 |\n" + "|---" * 8 + "|"
    )
    for rows in parser.parse_args().rows:
        print("\n".join(measure(rows)), flush=True)


if __name__ == "__main__":
    main()
