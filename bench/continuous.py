"""How often audits of a sensitive number are right: ``python -m bench.continuous --write``.

Models are simulated whose TPR and FPR are flat along the number, change in a straight line, or dip
at one place. The number is confounded with the class: that of positive rows is larger by 1.4
standard deviations. ``--write`` puts the table into ``experiments/coverage/README.md``.

Bands and gaps are about the smoothed curve, so the truth is the smoothed true rate; "of the law"
takes the gap of the true rate itself, between the same quantiles.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bench.coverage import DOCS, put
from shasam.metrics.curves import (
    GRID,
    Along,
    distance_covariance,
    distance_scale,
    evaluate_curves,
)
from shasam.metrics.resampling import average, largest

SHAPES = ("flat", "line", "bump")
ROWS = (500, 2000)
RATES = ("tpr", "fpr")
APART = 1.4  # standard deviations between the classes
HELD = {
    "band": "band",
    "curve_gap": "largest gap",
    "law": "largest gap of the law",
    "curve_mean_gap": "mean gap",
    "curve_slope": "slope",
    "dependence": "dependence",
}
BATCH = 25


def rate(shape: str, s_N: np.ndarray, base: float) -> np.ndarray:
    """The true rate at each number: base, or up to 0.2 less."""
    away = {
        "flat": np.zeros_like(s_N),
        "line": np.clip((s_N + 2.0) / 4.0, 0.0, 1.0),
        "bump": np.exp(-0.5 * (s_N / 0.4) ** 2),
    }[shape]
    return base - 0.2 * away


def draw(
    shape: str, rows: int, base: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes, predictions and numbers of one test set."""
    t = rng.integers(0, 2, rows)
    s = rng.normal(APART * (t - 0.5), 1.0)
    right = rng.random(rows) < rate(shape, s, base)
    return t, np.where(right, t, 1 - t), s


@dataclass
class Tally:
    """What happened to the test sets of one shape and size."""

    models: int = 0
    checks: int = 0  # curves: two of a test set
    held: dict[str, int] = field(default_factory=lambda: dict.fromkeys(HELD, 0))
    called: dict[str, int] = field(default_factory=lambda: {"dependence": 0, "curve_gap": 0})

    def add(self, other: Tally) -> None:
        self.models, self.checks = self.models + other.models, self.checks + other.checks
        for own, more in ((self.held, other.held), (self.called, other.called)):
            for key in own:
                own[key] += more[key]


def truth(t: np.ndarray, s: np.ndarray, shape: str, base: float, key: str) -> dict[str, object]:
    """Every metric of the true rates at the numbers that were drawn."""
    yes = key == "tpr"
    own = s[t == yes]
    chance = rate(shape, own, base) if yes else 1.0 - rate(shape, own, base)
    along = Along.of(own, np.zeros(len(own), bool), None)
    # the true rate of a bin is the mean of its rows; weights carry it through the same binning
    place = np.argsort(own, kind="stable")
    cut = np.cumsum(along.n_B)[:-1]
    rates_B = np.array([part.mean() for part in np.split(chance[place], cut)])
    smooth_T = along.smoother @ rates_B
    exact_T = np.interp(np.quantile(own, GRID), own[place], chance[place])
    scale = distance_scale(along, float(chance.mean()))
    return {
        "band": smooth_T,
        "curve_gap": float(largest(smooth_T[None])),
        "law": float(largest(exact_T[None])),
        "curve_mean_gap": float(average(smooth_T[None])),
        "curve_slope": float(along.slope_B @ rates_B),
        "dependence": float(distance_covariance(along, rates_B) / scale),
    }


def simulate(job: tuple[str, int], models: int, draws: int, seed: Sequence[int]) -> Tally:
    shape, rows = job
    rng = np.random.default_rng([*seed, SHAPES.index(shape), rows])
    tally = Tally(models)
    for _ in range(models):
        base = rng.uniform(0.75, 0.95)
        t, p, s = draw(shape, rows, base, rng)
        found = evaluate_curves(
            t, p, s, classes=("no", "yes"), draws=draws, seed=int(rng.integers(2**31))
        )
        curves = {c.rate: c for c in found.curves}
        for key in tally.called:
            tally.called[key] += (found.estimates[key].p or 0.0) <= 0.05
        for key in RATES:
            tally.checks += 1
            for name, true in truth(t, s, shape, base, key).items():
                if name == "band":
                    c = curves[key]
                    tally.held[name] += bool(((c.low <= true) & (true <= c.high)).all())
                    continue
                e = found.estimates[f"{'curve_gap' if name == 'law' else name}_{key}"]
                tally.held[name] += bool(e.low - 1e-9 <= true <= e.high + 1e-9)
    return tally


def table(found: dict[tuple[str, int], Tally]) -> str:
    """Markdown."""
    heads = ["rate", "rows", "dependence is shown", "gap is shown", *HELD.values()]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (shape, rows), t in found.items():
        cells = [f"{100 * n / t.models:.1f}" for n in t.called.values()]
        cells += [f"{100 * n / t.checks:.1f}" for n in t.held.values()]
        lines.append(f"| {' | '.join([shape, f'{rows:,}', *cells])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200, help="of each shape and size")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="into experiments/coverage/README.md")
    given = parser.parse_args()
    found = {job: Tally() for job in itertools.product(SHAPES, ROWS)}
    with ProcessPoolExecutor(given.jobs) as pool:
        for start in range(0, given.models, BATCH):
            more = min(BATCH, given.models - start)
            work = partial(
                simulate, models=more, draws=given.draws, seed=(given.seed, start // BATCH)
            )
            for job, tally in zip(found, pool.map(work, found), strict=True):
                found[job].add(tally)
    told = f"{given.models:,} test sets of each:\n\n{table(found)}"
    print(told, flush=True)
    if given.write:
        text = put(DOCS.read_text(encoding="utf-8"), "continuous", told)
        DOCS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
