"""Metrics that need class probabilities: calibration errors and areas between score curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.areas import score_areas
from shasam.metrics.calibration import BINS, Reliability, error_of
from shasam.metrics.counts import Counts
from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import directions_of, fold
from shasam.metrics.resampling import Resampling


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows with class probabilities, and the settings of intervals."""

    made: Resampling
    t: np.ndarray
    p: np.ndarray
    s: np.ndarray
    scores_NC: np.ndarray
    repeats: np.ndarray | None = None  # how many rows each entry stands for

    @property
    def counts(self) -> Counts:
        return self.made.counts

    def only(self, places: np.ndarray, made: Resampling) -> Scored:
        """The rows of these groups alone."""
        code_G = np.full(len(self.counts.groups), -1)
        code_G[places] = np.arange(len(places))
        s = code_G[self.s]
        kept = s >= 0
        repeats = None if self.repeats is None else self.repeats[kept]
        return Scored(made, self.t[kept], self.p[kept], s[kept], self.scores_NC[kept], repeats)

    @cached_property
    def reliability(self) -> Reliability:
        confidence = np.take_along_axis(self.scores_NC, self.p[:, None], 1)[:, 0]
        groups = len(self.counts.groups)
        return Reliability.of(self.p == self.t, confidence, self.s, groups, self.repeats)

    @cached_property
    def calibration_noise_DGB(self) -> np.ndarray:
        return self.reliability.noise_DGB(self.made.draws, self.made.seed)

    @cached_property
    def calibrated_DGB(self) -> np.ndarray:
        return self.reliability.by_chance_DGB(self.made.draws, self.made.seed)

    @cached_property
    def areas(self) -> dict[str, Estimate]:
        two = len(self.counts.classes) == 2
        columns_NK = self.scores_NC[:, 1:] if two else self.scores_NC
        made = self.made
        return score_areas(
            columns_NK, self.s, len(self.counts.groups),
            draws=made.draws, seed=made.seed, level=made.level, repeats=self.repeats,
        )  # fmt: skip


@dataclass(frozen=True)
class OfScores:
    """A metric of rows with scores."""

    estimate: Callable[[Scored], Estimate]


@dataclass(frozen=True)
class OfScoresByGroup:
    """A metric that every group g has; its name is ``<metric>_<group>``."""

    estimate: Callable[[Scored, int], Estimate]


def calibration_error(rows: Scored, g: int) -> Estimate:
    """ECE of one group."""
    size = int(rows.reliability.n_GB[g].sum())
    if not size:
        return Estimate.undefined(f"no row of group {rows.counts.groups[g]!r}")
    noise_DB, chance_DB = rows.calibration_noise_DGB[:, g], rows.calibrated_DGB[:, g]
    return _gated(rows.reliability.gaps_GB()[g], noise_DB, chance_DB, error_of, size, rows.made)


def largest_calibration_error(rows: Scored) -> Estimate:
    """The largest ECE of a group."""
    G = len(rows.counts.groups)
    draws = rows.made.draws

    def worst(flat: np.ndarray) -> np.ndarray:
        return error_of(flat.reshape(*flat.shape[:-1], G, BINS)).max(-1)

    noise, chance = (
        x.reshape(draws, -1) for x in (rows.calibration_noise_DGB, rows.calibrated_DGB)
    )
    smallest = int(rows.reliability.n_GB.sum(1).min())
    return _gated(rows.reliability.gaps_GB().reshape(-1), noise, chance, worst, smallest, rows.made)


def abcc(rows: Scored) -> Estimate:
    return rows.areas["abcc"]


def abpc(rows: Scored) -> Estimate:
    return rows.areas["abpc"]


def _gated(
    gaps_K: np.ndarray,
    noise_DK: np.ndarray,
    chance_DK: np.ndarray,
    norm: Callable[[np.ndarray], np.ndarray],
    support: int,
    made: Resampling,
) -> Estimate:
    """Value and interval of a calibration error; 0 belongs where a calibrated model does as ill."""
    value = float(norm(gaps_K))
    low, high = fold(value, noise_DK, norm, directions_of(gaps_K, noise_DK, norm), made.level)
    p = (1 + int((norm(chance_DK) >= value - 1e-12).sum())) / (1 + made.draws)
    low = 0.0 if p > 1 - made.level else low
    return Estimate(value, min(low, value), min(max(high, value), 1.0), support, p=p)


def checked_scores(scores: Any, rows: int, classes: int) -> np.ndarray:
    """Class probabilities (rows, C) as float64, or a sentence about what is wrong with them."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 1 and classes == 2:
        values = np.stack([1.0 - values, values], 1)
    if values.shape != (rows, classes):
        raise InputError(
            f"the scores have shape {values.shape}; {rows} rows of {classes} classes need "
            f"({rows}, {classes})"
        )
    bad = ~np.isfinite(values).all(1)
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {rows} rows have a score that is NaN or infinite, the first is "
            f"row {int(bad.argmax())}; leave those rows out or repair the scores"
        )
    if values.min() < -1e-6 or values.max() > 1 + 1e-6:
        raise InputError(
            f"the scores reach from {values.min():.4g} to {values.max():.4g}; they must be "
            "probabilities between 0 and 1 (apply softmax or a sigmoid first)"
        )
    return np.clip(values, 0.0, 1.0)
