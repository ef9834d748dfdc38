"""Rates that are compared between groups, with one test and one set of draws for all their metrics.

Equalized odds, equal opportunity and the gaps in TPR and FPR look at the same rates. They are
tested as one family: by a permutation test of every rate, adjusted for the number of rates
(Westfall and Young 1993). So the largest gap is shown wherever one of its parts is, and a part only
where the largest is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.metrics.counts import Counts, Table, divide, predicted, rates, right_by_class
from shasam.metrics.intervals import sure_gaps
from shasam.metrics.resampling import Resampling

FAMILIES: tuple[Table, ...] = (right_by_class, predicted)  # looked through in this order


@dataclass(frozen=True, eq=False)
class Tested:
    """Rates (R, G) with their noise, p and sure gaps; NaN where a rate has too few rows."""

    rates_RG: np.ndarray
    noise_DRG: np.ndarray  # around the true rates
    p_R: np.ndarray  # of 'all groups have the same rate', adjusted for all rates of the family
    sure_R: np.ndarray  # by how much two groups differ at least, for all rates at once
    keys: tuple[Any, ...]  # which counts the rates are made of, the outcomes in either order

    @property
    def p(self) -> float:
        """Of 'all rates are alike in all groups'."""
        return float(self.p_R.min())

    def only(self, rows: Sequence[int]) -> Tested:
        """Some of the rates, still adjusted for all."""
        return Tested(
            self.rates_RG[rows],
            self.noise_DRG[:, rows],
            self.p_R[rows],
            self.sure_R[rows],
            tuple(self.keys[r] for r in rows),
        )


def compared_rates(
    counts: Counts, table: Table, positive: int | None, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rates (R, G) that are compared, NaN where they have fewer than ``least`` rows; those rows."""
    n_SKG = counts.outcomes(table, positive)
    rates_RG = rates(n_SKG)
    size_SG = n_SKG.sum(-2)
    size_RG = np.repeat(size_SG, len(rates_RG) // len(size_SG), axis=0)
    return np.where(size_RG >= max(least, 1e-9), rates_RG, np.nan), size_RG


def tested(made: Resampling, table: Table) -> Tested:
    """The rates of a table, tested with those of the family that they belong to."""
    if ("tested", table) not in made.made:
        made.made["tested", table] = _of_a_family(made, table) or _tested(made, table)
    return made.made["tested", table]


def _of_a_family(made: Resampling, table: Table) -> Tested | None:
    if table in FAMILIES:
        return None
    wanted = _keys(made, table)
    for other in FAMILIES:
        family = tested(made, other)
        if set(wanted) <= set(family.keys):
            return family.only([family.keys.index(key) for key in wanted])
    return None


def _tested(made: Resampling, table: Table) -> Tested:
    rates_RG, _ = compared_rates(made.counts, table, made.positive, made.least)
    drawn, expected = made.noise(table)
    noise_DRG = np.where(np.isnan(rates_RG), np.nan, rates(drawn) - rates(expected))
    return Tested(
        rates_RG,
        noise_DRG,
        permutation_p(rates_RG, *made.by_chance(table)),
        sure_gaps(rates_RG, noise_DRG, made.level),
        _keys(made, table),
    )


def _keys(made: Resampling, table: Table) -> tuple[Any, ...]:
    """What each rate is made of: counts of its outcome and of all others, the smaller list first.

    The false positive rate and the true negative rate have the same key: their gaps are equal.
    """
    n_SKG = np.round(made.counts.outcomes(table, made.positive), 6)
    out = []
    for n_KG in n_SKG:
        for n_G in n_KG[:1] if len(n_KG) == 2 else n_KG:
            both = (tuple(n_G.tolist()), tuple(np.round(n_KG.sum(0) - n_G, 6).tolist()))
            out.append((min(both), max(both)))
    return tuple(out)


def permutation_p(
    rates_RG: np.ndarray, by_chance_DRG: np.ndarray, mean_R1: np.ndarray
) -> np.ndarray:
    """How often groups dealt out by chance differ as much on each rate, adjusted for all rates.

    Two statistics of every rate share the error: the sum of squares of the groups' standardised
    distances from the mean finds gaps that are spread over groups, their largest finds one group
    that stands apart. p is the share of permutations whose smallest single p is as small.
    """
    kept_RG = ~np.isnan(rates_RG)
    spread_RG = by_chance_DRG.std(0)
    whole = np.concatenate([rates_RG[None], by_chance_DRG])
    away = divide(whole - mean_R1, np.broadcast_to(spread_RG, whole.shape), nothing=0.0)
    away = np.where(kept_RG & (spread_RG > 1e-12), away, 0.0)
    found = np.stack([(away**2).sum(-1), np.abs(away).max(-1)], -1)  # (1 + D, R, 2)
    tests = found.reshape(len(found), -1)
    single = np.empty_like(tests)
    for column, out in zip(tests.T, single.T, strict=True):
        reached = np.searchsorted(np.sort(column), column - 1e-9 * (1 + np.abs(column)))
        out[:] = (len(column) - reached) / len(column)
    smallest = np.sort(single.min(1))
    own_R = single[0].reshape(len(rates_RG), 2).min(1)
    return np.searchsorted(smallest, own_R + 1e-12, side="right") / len(smallest)
