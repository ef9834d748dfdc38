"""How often intervals hold the truth and verdicts are wrong: ``python -m bench.coverage --write``.

Three kinds of models are simulated over twelve designs: fair ones, ones whose gap is spread over
groups, and ones whose gap a few groups carry. Designs have 2, 6 or 20 groups, of equal or skewed
sizes, with two or four classes. Half of them sample rows; half fix the size of every (class, group)
cell. Further designs have few carriers and a fixed gap, the races of COMPAS with a group of 31 rows
among them. A second simulation asks the same of calibration errors. ``--write`` puts the tables
into ``experiments/coverage/README.md`` and the numbers into ``src/shasam/metrics/coverage.json``,
from which an interval knows that it is approximate.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shasam.metrics import Counts, catalogue, evaluate_counts, values
from shasam.metrics.resampling import Resampling
from shasam.metrics.scores import CALIBRATION_BINS, ScoreRows, calibration_error

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "experiments/coverage/README.md"
NUMBERS = ROOT / "src/shasam/metrics/coverage.json"
METRICS = (
    "accuracy",
    "worst_group_accuracy",
    "min_group_accuracy",
    "eo_mean",
    "eo_max",
    "equal_opportunity",
    "demographic_parity",
    "accuracy_gap",
    "selection_ratio",
)
SHOWN = ("eo_mean", "eo_max", "demographic_parity", "worst_group_accuracy", "accuracy")  # in docs
CLAIMED = ("eo_mean", "demographic_parity")  # gaps that are called real or not
SMALLEST, LARGEST = 30, 2000  # rows of the groups of a skewed design; equal ones have 400
BASE = {2: (0.7, 0.3), 4: (0.4, 0.3, 0.2, 0.1)}  # shares of the classes
MODELS = ("fair", "spread", "few")
OFF = 0.15  # by how much the groups of a named design are off, in one class
BATCH = 50  # models after which the tables are written again
ROWS = (20, 50, 200, 1000)  # of a group whose calibration is measured


@dataclass(frozen=True)
class Design:
    """How a test set comes about."""

    groups: int
    skewed: bool
    classes: int
    sampled: bool  # rows are sampled; otherwise the size of every cell is fixed
    rows: tuple[int, ...] = ()  # of each group, where they are neither 400 nor skewed
    off: int = 0  # groups that are off by OFF in one class; 0: the law draws them

    @property
    def name(self) -> str:
        sizes = "30 to 2,000" if self.skewed else "400 each"
        if self.rows:
            equal = len(set(self.rows)) == 1
            sizes = f"{self.rows[0]:,} each" if equal else f"{min(self.rows)} to {max(self.rows):,}"
            sizes += f", {self.off} off by {100 * OFF:.0f} points"
        rows = "sampled" if self.sampled else "fixed"
        return f"{self.groups} groups, {sizes}, {self.classes} classes, {rows}"

    @property
    def size_G(self) -> np.ndarray:
        if self.rows:
            return np.array(self.rows)
        if not self.skewed:
            return np.full(self.groups, 400)
        return np.geomspace(SMALLEST, LARGEST, self.groups).astype(int)


def designs() -> list[Design]:
    """Every combination of groups, sizes and classes; sampled and fixed ones alternate."""
    out = []
    for groups, skewed, classes in itertools.product((2, 6, 20), (False, True), (2, 4)):
        sampled = (groups == 6) ^ skewed ^ (classes == 4)
        out.append(Design(groups, skewed, classes, sampled))
    return out


def named_designs() -> list[Design]:
    """Designs in which one to four groups carry the gap, the usual case of harm."""
    return [
        Design(20, False, 2, True, (250,) * 20, 2),
        Design(6, False, 2, True, (1000,) * 6, 1),
        Design(20, False, 2, False, (400,) * 20, 4),
        Design(6, True, 2, True, (3175, 2103, 509, 343, 100, 31), 1),
    ]


def jobs_of() -> list[tuple[Design, str]]:
    """Every design with every kind of model; the named ones have few carriers only."""
    return [*itertools.product(designs(), MODELS), *((d, "few") for d in named_designs())]


@dataclass(frozen=True)
class Law:
    """What the rows are drawn from: classes within groups, predictions within cells."""

    mix_CG: np.ndarray
    share_CPG: np.ndarray


def law(design: Design, model: str, rng: np.random.Generator) -> Law:
    """A fair model predicts alike in all groups given the class, and base rates are alike.

    Where the gap is ``spread``, it is off by up to 0.15 in some groups and classes, and, where rows
    are sampled, base rates differ as well. Where ``few`` carry it, up to a fifth of the groups are
    worse by 0.05 to 0.25 in one class, and all others are equal.
    """
    C, G = design.classes, design.groups
    mix_CG = np.repeat(np.array(BASE[C])[:, None], G, 1)
    right_CG = np.repeat(rng.uniform(0.6, 0.95, C)[:, None], G, 1)
    if model == "few":
        number = design.off or int(rng.integers(1, max(1, G // 5) + 1))
        by = OFF if design.off else rng.uniform(0.05, 0.25)
        carriers = rng.choice(G, number, replace=False)
        right_CG[rng.integers(C), carriers] -= by
    if model == "spread":
        hit_G = rng.random(G) < rng.uniform(0.2, 1.0)
        hit_G[rng.integers(G)] = True
        off_CG = rng.uniform(-0.15, 0.15, (C, G)) * hit_G * rng.uniform(0.2, 1.0)
        right_CG = np.clip(right_CG + off_CG, 0.03, 0.97)
        if design.sampled:
            mix_CG = rng.dirichlet(40 * np.array(BASE[C]), G).T
    share_CPG = np.empty((C, C, G))
    for c in range(C):
        wrong_P = np.insert(rng.dirichlet(np.ones(C - 1)), c, 0.0)
        share_CPG[c] = wrong_P[:, None] * (1 - right_CG[c])
        share_CPG[c, c] = right_CG[c]
    return Law(mix_CG, share_CPG)


def fixed_cells(design: Design, of: Law) -> np.ndarray:
    return np.maximum(np.rint(design.size_G * of.mix_CG), 1).astype(int)


def draw(design: Design, of: Law, rng: np.random.Generator) -> Counts:
    """One test set; drawn again while a cell is empty, because equalized odds has no value then."""
    cells_CG = fixed_cells(design, of)
    while design.sampled:
        cells_CG = rng.multinomial(design.size_G, of.mix_CG.T).T
        if cells_CG.min() > 0:
            break
    n_CGP = rng.multinomial(cells_CG, np.moveaxis(of.share_CPG, 1, 2))
    return _counts(np.moveaxis(n_CGP, 2, 1))


def truth(design: Design, of: Law) -> dict[str, float]:
    """The metrics of the law itself, as of a test set that matches it exactly."""
    cells_CG = design.size_G * of.mix_CG if design.sampled else fixed_cells(design, of)
    return values(_counts(of.share_CPG * cells_CG[:, None, :]), METRICS, positive=1)


def _counts(n_CPG: np.ndarray) -> Counts:
    return Counts(n_CPG, *(tuple(map(str, range(n))) for n in n_CPG.shape[1:]))


@dataclass
class Tally:
    """What happened to the models of one design."""

    design: Design
    model: str
    models: int
    held: dict[str, float] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))
    called: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CLAIMED, 0))

    def add(self, other: Tally) -> None:
        self.models += other.models
        for own, more in ((self.held, other.held), (self.called, other.called)):
            for key in own:
                own[key] += more[key]


def simulate(job: tuple[Design, str], models: int, draws: int, seed: Sequence[int]) -> Tally:
    """Evaluate that many models of a design, one test set each."""
    design, model = job
    place = [MODELS.index(model), design.groups, design.skewed, design.classes, len(design.rows)]
    rng = np.random.default_rng([*seed, *place])
    tally = Tally(design, model, models)
    strata = "none" if design.sampled else "cell"
    for _ in range(models):
        of = law(design, model, rng)
        counts, true = draw(design, of, rng), truth(design, of)
        found = evaluate_counts(
            counts, positive=1, draws=draws, seed=int(rng.integers(2**31)), strata=strata,
            metrics=METRICS,
        )  # fmt: skip
        for name in METRICS:
            e = found[name]
            tally.held[name] += bool(e.low - 1e-9 <= true[name] <= e.high + 1e-9)
            if name in CLAIMED:
                tally.called[name] += e.low > 0
    return tally


def calibration(job: tuple[int, float], models: int, draws: int, seed: Sequence[int]) -> int:
    """How often the interval of a group's calibration error holds the truth; ``wrong`` is bias."""
    rows, wrong = job
    rng = np.random.default_rng([*seed, rows, int(100 * wrong)])
    score = (np.arange(200_000) + 0.5) / 200_000
    true = _ece(
        score, _chance(score, wrong), 6 * score * (1 - score)
    )  # Beta(2, 2) has that density
    held = 0
    for _ in range(models):
        score = rng.beta(2, 2, rows)
        t = (rng.random(rows) < _chance(score, wrong)).astype(int)
        p, s = (score > 0.5).astype(int), np.zeros(rows, int)
        counts = Counts.from_codes(t, p, s, ("a", "b"), ("x",))
        made = Resampling(counts, 1, draws, int(rng.integers(2**31)))
        e = calibration_error(ScoreRows(made, t, p, s, np.stack([1 - score, score], 1)), 0)
        held += e.low - 1e-9 <= true <= e.high + 1e-9
    return int(held)


def _chance(score: np.ndarray, wrong: float) -> np.ndarray:
    """The true probability behind a score: nearer to one half by up to ``wrong``."""
    return score - wrong * np.sin(2 * np.pi * (score - 0.5))


def _ece(score: np.ndarray, chance: np.ndarray, weight: np.ndarray) -> float:
    confidence = np.maximum(score, 1 - score)
    right = np.where(score > 0.5, chance, 1 - chance)
    b = np.clip(np.ceil(confidence * CALIBRATION_BINS).astype(int) - 1, 0, CALIBRATION_BINS - 1)
    gap = np.bincount(b, weight * (right - confidence), CALIBRATION_BINS)
    return float(np.abs(gap).sum() / weight.sum())


def numbers(tallies: Iterable[Tally]) -> list[dict[str, Any]]:
    """Shares, design by design: what ``coverage.json`` holds."""
    return [
        asdict(t.design)
        | {
            "model": t.model,
            "models": t.models,
            "held": {k: round(n / t.models, 4) for k, n in t.held.items()},
            "called": {k: round(n / t.models, 4) for k, n in t.called.items()},
        }
        for t in tallies
    ]


def table(found: list[dict[str, Any]]) -> str:
    """Markdown: false alarms of the fair models, coverage of each kind of model."""
    labels = [catalogue.named(m).label for m in SHOWN]
    lines = [
        "| design | false alarms: EO | parity | " + " | ".join(labels) + " |",
        "|---|---|---|" + "---|" * len(SHOWN),
    ]
    for design in (*designs(), *named_designs()):
        of = {f["model"]: f for f in found if asdict(design).items() <= f.items()}
        alarms = [f"{100 * of['fair']['called'][m]:.1f}" if "fair" in of else "" for m in CLAIMED]
        held = [" / ".join(f"{100 * f['held'][m]:.1f}" for f in of.values()) for m in SHOWN]
        lines.append(f"| {' | '.join([design.name, *alarms, *held])} |")
    return "\n".join(lines)


def put(text: str, name: str, into: str) -> str:
    """The document with what is between two marks replaced."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, rest = text.split(start)
    return before + start + into + end + rest.split(end, 1)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1000, help="of each kind and design")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="into docs and package")
    given = parser.parse_args()
    jobs = jobs_of()
    scored = list(itertools.product(ROWS, (0.0, 0.1)))
    tallies = [Tally(design, model, 0) for design, model in jobs]
    held = dict.fromkeys(scored, 0)
    with ProcessPoolExecutor(given.jobs) as pool:
        for start in range(0, given.models, BATCH):
            more = min(BATCH, given.models - start)
            seed = (given.seed, start // BATCH)
            found = pool.map(partial(simulate, models=more, draws=given.draws, seed=seed), jobs)
            for tally, other in zip(tallies, found, strict=True):
                tally.add(other)
            right = pool.map(
                partial(calibration, models=more, draws=given.draws, seed=seed), scored
            )
            for job, n in zip(scored, right, strict=True):
                held[job] += n
            report(tallies, {job: n / (start + more) for job, n in held.items()}, given.write)


def report(tallies: list[Tally], held: dict[tuple[int, float], float], write: bool) -> None:
    """What was found so far, on the screen and, where that is asked for, in docs and package."""
    lines = ["| rows of the group | calibrated | off by up to 0.1 |", "|---|---|---|"]
    for rows in ROWS:
        shown = [f"{100 * held[rows, wrong]:.1f}" for wrong in (0.0, 0.1)]
        lines.append(f"| {rows:,} | {' | '.join(shown)} |")
    found, calibrated = numbers(tallies), "\n".join(lines)
    models = tallies[0].models
    told = f"{models:,} models of each kind and design:\n\n{table(found)}"
    print(told, calibrated, sep="\n\n", flush=True)
    if write:
        NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        text = put(DOCS.read_text(encoding="utf-8"), "coverage", told)
        DOCS.write_text(put(text, "calibration", calibrated), encoding="utf-8")


if __name__ == "__main__":
    main()
