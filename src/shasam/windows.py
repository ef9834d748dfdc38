"""Windows along a sensitive number: how much a row belongs to the neighbourhood of another.

In place of "the same group" stands a membership between 0 and 1. With u the quantile of a row's
number among the training rows (equal numbers share the middle of their ranks) and h the bandwidth,

    near(i, j) = max(0, 1 - |u_i - u_j| / h),

which is 1 for equal numbers, and 0 from h on. It does not change under a monotone transformation
of the number, and every window away from the ends holds about as many rows. An attribute of few
values is the limit: with h below the distance of two values near(i, j) is [s_i = s_j].

Where the number is crossed with groups, such as age with race, near(i, j) is 0 between groups: the
ranks of each group begin beyond the reach of those before it, and everything else stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shasam.extras import need

need("torch", __name__)

import torch
from torch import Tensor

from shasam.errors import DataError


@dataclass(frozen=True)
class Windows:
    """Hold the ranks of a sensitive number, and how wide a window is.

    Parameters
    ----------
    r_N
        Twice the middle rank of every row among the training rows; -1 where a row has no number.
    n
        Training rows that have a number.
    bandwidth
        h, in quantiles.
    crossed
        Whether ranks of several groups lie apart, so that they are no quantiles.

    Examples
    --------
    >>> ages = torch.tensor([20.0, 30.0, 30.0, 60.0])
    >>> found = Windows.along(ages, torch.arange(4), 0.5)
    >>> found.near(torch.tensor([0]), torch.arange(4)).tolist()
    [[1.0, 0.25, 0.25, 0.0]]
    """

    r_N: Tensor  # (N,) int64
    n: int
    bandwidth: float
    crossed: bool = False

    @classmethod
    def along(
        cls, number_N: Tensor, rows: Tensor, bandwidth: float, group_N: Tensor | None = None
    ) -> Windows:
        """Rank numbers (N,) among those of the training rows; NaN is no number.

        Groups (N,), where they are given, keep windows apart; a row of -1 has none.
        """
        number_N = number_N.double()
        if group_N is not None:
            number_N = torch.where(group_N < 0, math.nan, number_N)
        known = number_N[rows][~number_N[rows].isnan()]
        if not len(known):
            raise DataError("no training row has a sensitive number; give numbers to some")
        ordered = known.sort().values
        below = torch.searchsorted(ordered, number_N)
        r_N = below + torch.searchsorted(ordered, number_N, right=True)
        if group_N is not None:  # windows reach 2·n·h in these units, and h is at most 1
            r_N = r_N + group_N.clamp_min(0) * 4 * (len(known) + 1)
        unknown_N = number_N.isnan()
        return cls(torch.where(unknown_N, -1, r_N), len(known), bandwidth, group_N is not None)

    @classmethod
    def of_groups(cls, group_N: Tensor, rows: Tensor) -> Windows:
        """Take every group (N,) as a window of its own; -1 is none."""
        number_N = torch.where(group_N < 0, math.nan, group_N.double())
        return cls.along(number_N, rows, 0.5 / max(len(rows), 1))

    @property
    def _reach(self) -> float:
        """The bandwidth, in the units of ``r_N``."""
        return 2 * self.n * self.bandwidth

    def quantile(self, rows: Tensor) -> Tensor:
        """Return the quantile of rows, between 0 and 1."""
        assert not self.crossed, "a crossed number has no quantile"
        return self.r_N[rows].double() / (2 * self.n)

    def near(self, rows: Tensor, others: Tensor) -> Tensor:
        """Compute the membership of rows (A,) in windows of others (B,), as (A, B) in float64."""
        a, b = self.r_N[rows], self.r_N[others]
        found = (1 - (a[:, None] - b[None, :]).abs().double() / self._reach).clamp_min(0)
        return torch.where((a[:, None] < 0) | (b[None, :] < 0), 0.0, found)

    def counts(self, rows: Tensor, among: Tensor) -> Tensor:
        """Count rows of ``among`` in the window of each row: sums of ``near``, in float64.

        Ranks are whole numbers, so where near is 0 or 1 these are counts without rounding.
        """
        others = self.r_N[among]
        ordered = others[others >= 0].sort().values
        sums = torch.cat([torch.zeros(1, dtype=torch.int64), ordered.cumsum(0)])
        r = self.r_N[rows]
        near = ordered.double()
        low = torch.searchsorted(near, r.double() - self._reach, right=True)
        middle = torch.searchsorted(ordered, r)
        high = torch.searchsorted(near, r.double() + self._reach).clamp_min(middle)
        low = low.clamp_max(middle)
        apart = r * (middle - low) - (sums[middle] - sums[low])
        apart += sums[high] - sums[middle] - r * (high - middle)
        found = (high - low).double() - apart.double() / self._reach
        return torch.where(r < 0, 0.0, found)

    def cell_counts(self, t_n: Tensor, rows: Tensor) -> Tensor:
        """Return n_ts: the rows of its own class in the window of each of ``rows`` (n,)."""
        found = torch.zeros(len(rows), dtype=torch.float64)
        for t in t_n.unique():
            found[t_n == t] = self.counts(rows[t_n == t], rows[t_n == t])
        return found

    def weights(self, t_n: Tensor, rows: Tensor, scheme: str = "inverse") -> Tensor:
        """Weigh each of ``rows``, of classes ``t_n``: windows of a class, not rows, count alike.

        inverse: n / (C·G·n_ts), with G = Σ_i 1/n_s(i) windows; independence: n_t n_s / (n n_ts).
        n_s counts the rows of all classes in a window. A row without a number weighs 1.
        """
        known = self.r_N[rows] >= 0
        some, weight_n = rows[known], torch.ones(len(rows), dtype=torch.float64)
        n_ts, n_s = self.cell_counts(t_n[known], some), self.counts(some, some)
        _, place, n_t = t_n[known].unique(return_inverse=True, return_counts=True)
        if scheme == "inverse":
            found = len(some) / (len(n_t) * n_s.reciprocal().sum() * n_ts)
        else:
            found = n_t[place] * n_s / (len(some) * n_ts)
        weight_n[known] = found
        return weight_n


def spread(weight_n: Tensor, uniform_K: Tensor) -> Tensor:
    """Return K places, one drawn by weight from each of K equal parts of the whole weight.

    >>> spread(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([0.2, 0.9])).tolist()
    [0, 2]
    """
    total = weight_n.double().cumsum(0)
    points = (torch.arange(len(uniform_K)) + uniform_K.double()) / len(uniform_K)
    found = torch.searchsorted(total, points * total[-1], right=True)
    return found.clamp_max(len(weight_n) - 1)
