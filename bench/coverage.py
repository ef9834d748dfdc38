"""How often intervals hold the truth and verdicts are wrong: ``python -m bench.coverage --write``.

Fair and unfair models are simulated over twelve designs: 2, 6 or 20 groups, of equal or skewed
sizes, with two or four classes. Half of the designs sample rows; half fix the size of every (class,
group) cell. A second simulation asks the same of calibration errors. ``--write`` puts the tables
into ``docs/metrics.md`` and the numbers into ``src/shasam/metrics/coverage.json``, from which an
interval knows that it is approximate.
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

from shasam.metrics import Counts, catalogue, claim_of, values
from shasam.metrics.resampling import Resampling
from shasam.metrics.scores import CALIBRATION_BINS, ScoreRows, calibration_error

ROOT = Path(__file__).parent.parent
DOCS, NUMBERS = ROOT / "docs" / "metrics.md", ROOT / "src/shasam/metrics/coverage.json"
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
CLAIMED = ("eo_mean", "demographic_parity")  # gaps that are called real or not
SMALLEST, LARGEST = 30, 2000  # rows of the groups of a skewed design; equal ones have 400
BASE = {2: (0.7, 0.3), 4: (0.4, 0.3, 0.2, 0.1)}  # shares of the classes
BATCH = 50  # models after which the tables are written again
ROWS = (20, 50, 200, 1000)  # of a group whose calibration is measured


@dataclass(frozen=True)
class Design:
    """How a test set comes about."""

    groups: int
    skewed: bool
    classes: int
    sampled: bool  # rows are sampled; otherwise the size of every cell is fixed

    @property
    def name(self) -> str:
        sizes = "30 to 2,000" if self.skewed else "400 each"
        rows = "sampled" if self.sampled else "fixed"
        return f"{self.groups} groups, {sizes}, {self.classes} classes, {rows}"

    @property
    def size_G(self) -> np.ndarray:
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


@dataclass(frozen=True)
class Law:
    """What the rows are drawn from: classes within groups, predictions within cells."""

    mix_CG: np.ndarray
    share_CPG: np.ndarray


def law(design: Design, fair: bool, rng: np.random.Generator) -> Law:
    """A fair model predicts alike in all groups given the class, and base rates are alike.

    An unfair one is off by up to 0.15 in some groups and classes; where rows are sampled, base
    rates differ as well.
    """
    C, G = design.classes, design.groups
    mix_CG = np.repeat(np.array(BASE[C])[:, None], G, 1)
    right_CG = np.repeat(rng.uniform(0.6, 0.95, C)[:, None], G, 1)
    if not fair:
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
    fair: bool
    models: int
    held: dict[str, float] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))
    called: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CLAIMED, 0))

    def add(self, other: Tally) -> None:
        self.models += other.models
        for own, more in ((self.held, other.held), (self.called, other.called)):
            for key in own:
                own[key] += more[key]


def simulate(job: tuple[Design, bool], models: int, draws: int, seed: Sequence[int]) -> Tally:
    """Evaluate that many models of a design, one test set each."""
    design, fair = job
    rng = np.random.default_rng([*seed, fair, design.groups, design.skewed, design.classes])
    tally = Tally(design, fair, models)
    strata = "none" if design.sampled else "cell"
    for _ in range(models):
        of = law(design, fair, rng)
        counts, true = draw(design, of, rng), truth(design, of)
        made = Resampling(counts, 1, draws, int(rng.integers(2**31)), 0.95, strata)
        for name in METRICS:
            e = catalogue.named(name).value.estimate(made, 0)  # type: ignore[union-attr]
            tally.held[name] += bool(e.low - 1e-9 <= true[name] <= e.high + 1e-9)
            if name in CLAIMED:
                claim = claim_of(counts, {"eo_mean": e})
                tally.called[name] += bool(claim and claim.real)
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
            "fair": t.fair,
            "models": t.models,
            "held": {k: round(n / t.models, 4) for k, n in t.held.items()},
            "called": {k: round(n / t.models, 4) for k, n in t.called.items()},
        }
        for t in tallies
    ]


def table(found: list[dict[str, Any]]) -> str:
    """Markdown: false alarms of the fair models, coverage of the fair and the unfair ones."""
    labels = [catalogue.named(m).label for m in METRICS]
    lines = [
        "| design | false alarms: EO | parity | " + " | ".join(labels) + " |",
        "|---|---|---|" + "---|" * len(METRICS),
    ]
    for design in designs():
        fair, unfair = (
            next(f for f in found if f["fair"] == kind and asdict(design).items() <= f.items())
            for kind in (True, False)
        )
        alarms = [f"{100 * fair['called'][m]:.1f}" for m in CLAIMED]
        held = [f"{100 * fair['held'][m]:.1f} / {100 * unfair['held'][m]:.1f}" for m in METRICS]
        lines.append(f"| {' | '.join([design.name, *alarms, *held])} |")
    return "\n".join(lines)


def put(text: str, name: str, into: str) -> str:
    """The document with what is between two marks replaced."""
    start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, rest = text.split(start)
    return before + start + into + end + rest.split(end, 1)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=1000, help="fair ones, and as many unfair")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="into docs and package")
    given = parser.parse_args()
    jobs = list(itertools.product(designs(), (True, False)))
    scored = list(itertools.product(ROWS, (0.0, 0.1)))
    tallies = [Tally(design, fair, 0) for design, fair in jobs]
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
    told = f"{models:,} fair and {models:,} unfair models a design:\n\n{table(found)}"
    print(told, calibrated, sep="\n\n", flush=True)
    if write:
        NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        text = put(DOCS.read_text(encoding="utf-8"), "coverage", told)
        DOCS.write_text(put(text, "calibration", calibrated), encoding="utf-8")


if __name__ == "__main__":
    main()
