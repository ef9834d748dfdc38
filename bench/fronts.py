"""How often fronts hold the truth: ``python -m bench.fronts --write``.

Two models are simulated, three runs each. Scores are normal in every (class, group) cell; those of
some groups are shifted, by an amount that differs a little from run to run. The truth of a model as
it decides is its mean gap and accuracy over runs, without chance in the rows; that of thresholds
is the same of rules that are fitted on as many rows and decide new ones. Asked is how often all
points of both models, and their areas, lie in the simultaneous band, and the same of the front of
an audit, of one run. ``--write`` puts the table into ``experiments/coverage/README.md``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import erf, sqrt

import numpy as np

from bench.coverage import DOCS, put
from shasam.metrics.odds import (
    TOLERANCES,
    GroupRule,
    ModelFront,
    Reach,
    area,
    front_of_scores,
    fronts_of,
)
from shasam.metrics.resampling import average
from shasam.types import Predictions

RUNS = 3
APART = {"plain": 1.1, "worse": 0.9}  # of the classes' scores from 0, by model
SPREAD = 0.1  # of the shifts over runs
FITTED = 60  # rules whose mean is the truth
NARROW = np.array([150, 150])
SKEWED = np.array([40, 60, 90, 110, 270])


@dataclass(frozen=True)
class Design:
    """Rows of each class in each group, how far scores are shifted, and whose rows are tested."""

    rows_G: np.ndarray
    shift_G: np.ndarray
    shared: bool  # all runs have the same test rows

    @property
    def name(self) -> str:
        sizes = f"{self.rows_G.min()} to {self.rows_G.max()}"
        sizes = sizes if np.ptp(self.rows_G) else f"{self.rows_G[0]}"
        gap = "shifted" if self.shift_G.any() else "alike"
        return f"{len(self.rows_G)} groups {gap}, {sizes} rows a cell" + (
            ", the same in all runs" if self.shared else ""
        )


DESIGNS = (
    Design(NARROW, np.array([0.5, 0.0]), False),
    Design(NARROW, np.array([0.5, 0.0]), True),
    Design(SKEWED, np.array([0.5, 0.0, 0.0, -0.4, 0.0]), False),
    Design(SKEWED, np.zeros(5), False),
)


def rows_of(
    design: Design, apart: float, move_G: np.ndarray, rng: np.random.Generator
) -> Predictions:
    """Return the test rows of one run."""
    s_N = np.repeat(np.arange(len(design.rows_G)), 2 * design.rows_G)
    t_N = np.concatenate([np.repeat([0, 1], n) for n in design.rows_G])
    z_N = rng.normal(size=len(t_N)) + apart * (2 * t_N - 1) + move_G[s_N]
    p_N = 1 / (1 + np.exp(-z_N))
    scores = np.stack([1 - p_N, p_N], 1)
    groups = tuple(f"g{k}" for k in range(len(design.rows_G)))
    return Predictions(np.array([]), t_N, scores.argmax(1), s_N, scores, ("no", "yes"), groups)


def true_reach(design: Design, apart: float, move_G: np.ndarray, rule: GroupRule | None) -> Reach:
    """Return the gap and accuracy of decisions over infinitely many rows."""
    groups = len(design.rows_G)
    right_CG = np.zeros((2, groups))
    for g in range(groups):
        for c in (0, 1):
            centre = apart * (2 * c - 1) + move_G[g]
            if rule is None or not rule.fitted_G[g]:
                yes = _above(0.5, centre)
            else:
                p_ignore, constant, p0, at0, p1, at1 = rule.table[g]
                share = p0 * _above(at0, centre) + p1 * _above(at1, centre)
                yes = p_ignore * constant + (1 - p_ignore) * share
            right_CG[c, g] = yes if c else 1 - yes
    return float(average(right_CG).item()), float((right_CG * design.rows_G).sum()
                                                  / design.rows_G.sum() / 2)  # fmt: skip


def _above(threshold: float, centre: float) -> float:
    """Return how often a score with that centre is above a threshold of the probability."""
    if not 0 < threshold < 1:
        return float(threshold <= 0)
    return 0.5 * (1 + erf((centre - np.log(threshold / (1 - threshold))) / sqrt(2)))


def truths(design: Design, apart: float, rng: np.random.Generator) -> np.ndarray:
    """Return gap and accuracy (K, 2) as decided and with every tolerance, as means over runs."""
    found = []
    for _ in range(FITTED):
        move_G = design.shift_G + rng.normal(0, SPREAD, len(design.shift_G))
        rows = rows_of(design, apart, move_G, rng)
        given = rows.scores, rows.target, rows.sensitive, len(rows.groups)
        rules = [GroupRule.fit(*given, tolerance) for tolerance in TOLERANCES]
        found.append([true_reach(design, apart, move_G, rule) for rule in (None, *rules)])
    return np.mean(found, axis=0)


def simulate(design: Design, models: int, draws: int, seed: int) -> np.ndarray:
    """Return shares of simulations: band, areas, audit's gaps, its accuracies, false claims; and
    the mean half-width of an area.
    """
    rng = np.random.default_rng([seed, len(design.rows_G), int(design.shared)])
    truth = {name: truths(design, apart, rng) for name, apart in APART.items()}
    out = []
    for k in range(models):
        runs: dict[str, list[Predictions]] = {}
        moves: list[np.ndarray] = []
        for name, apart in APART.items():
            rows_seed = int(rng.integers(2**31))
            moves = [design.shift_G + rng.normal(0, SPREAD, len(design.shift_G))
                     for _ in range(RUNS)]  # fmt: skip
            runs[name] = [
                rows_of(design, apart, move, np.random.default_rng(
                    [rows_seed, 0 if design.shared else j]))
                for j, move in enumerate(moves)
            ]  # fmt: skip
        found = fronts_of(runs, draws=draws, seed=k)
        bands = all(_inside(found[name], truth[name]) for name in APART)
        areas = [found[name].area for name in APART]
        held = [low <= area([(0.0, 0.5), *map(tuple, truth[name].tolist())]) <= high
                for name, (_, low, high) in zip(APART, areas, strict=True)]  # fmt: skip
        wide = np.mean([(high - low) / 2 for _, low, high in areas])
        out.append([bands, all(held), *_audit(design, runs, moves, draws, k), wide])
    return np.mean(np.array(out, dtype=float), axis=0)


def _inside(front: ModelFront, truth_K2: np.ndarray) -> bool:
    return all(
        low <= value <= high
        for point, true in zip((front.own, *front.thresholds), truth_K2, strict=True)
        for value, (low, high) in zip(true, (point.gap_ends, point.accuracy_ends), strict=True)
    )


def _audit(
    design: Design, runs: dict[str, list[Predictions]], moves: list[np.ndarray], draws: int, k: int
) -> tuple[bool, bool, bool]:
    """Whether the front of the last run holds gaps and accuracies, and claims what is not so."""
    name, apart = list(APART.items())[-1]
    rows, move_G = runs[name][-1], moves[-1]
    found = front_of_scores(rows, draws=draws, seed=k)
    given = rows.scores, rows.target, rows.sensitive, len(rows.groups)
    own, _ = true_reach(design, apart, move_G, None)
    gaps, accuracies, false = [], [], False
    for point in found.points:
        rule = GroupRule.fit(*given, point.tolerance)
        gap, accuracy = true_reach(design, apart, move_G, rule)
        gaps.append(point.gap.low <= gap <= point.gap.high)
        accuracies.append(point.accuracy.low <= accuracy <= point.accuracy.high)
        false |= point.relief.shown and point.relief.high < 0 and gap >= own
    return all(gaps), all(accuracies), false


HEADS = ("design", "all points of two models", "their areas", "± of an area, points",
         "audit: all gaps", "audit: all accuracies", "audit: false claims")  # fmt: skip


def line(design: Design, found: np.ndarray) -> str:
    band, areas, gaps, accuracies, false, wide = 100 * found
    cells = [f"{band:.0f}", f"{areas:.0f}", f"{wide:.1f}", f"{gaps:.0f}", f"{accuracies:.0f}",
             f"{false:.0f}"]  # fmt: skip
    return f"| {' | '.join([design.name, *cells])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100, help="pairs of models of each design")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="into experiments/coverage/README.md")
    given = parser.parse_args()
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for design in DESIGNS:
        found = simulate(design, given.models, given.draws, given.seed)
        lines.append(line(design, found))
        print(lines[-1], flush=True)
    if given.write:
        told = f"{given.models:,} pairs of models of each design:\n\n" + "\n".join(lines)
        text = put(DOCS.read_text(encoding="utf-8"), "fronts", told)
        DOCS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
