"""Gains of earlier walks over a kept kernel, which bound those of the next walk."""

from __future__ import annotations

import numpy as np

from shasam.submodular import coded_loops, loops


class KeptGains:
    """Gains of the columns in ``runs`` in every step of a walk, under the bounds of that step.

    ``runs`` (M, 2) are ranges of columns in ascending order. The gains of the first step, under
    (lo, width), are summed here.
    """

    def __init__(
        self, code_VR: np.ndarray, runs: np.ndarray, lo_R: np.ndarray, width_R: np.ndarray
    ) -> None:
        self.runs = runs
        self.lo_KR, self.width_KR = lo_R[None].copy(), width_R[None].copy()
        self.gains_KR = np.zeros((1, len(lo_R)), np.uint32)  # by ``coded_loops.slot_of``
        self.valid_K = np.ones(1, np.bool_)
        for start, stop in runs:
            rows = np.arange(start, min(int(stop), len(code_VR)))
            parts = np.array_split(rows, loops.pieces(len(rows) * len(lo_R)))
            loops.run(
                coded_loops.keep_sums,
                [(code_VR, lo_R, width_R, part, self.gains_KR[0]) for part in parts],
            )

    def make_room(self, steps: int) -> None:
        """Hold at least so many steps."""
        more = steps - len(self.valid_K)
        if more > 0:
            for name in ("lo_KR", "width_KR", "gains_KR", "valid_K"):
                old = getattr(self, name)
                fresh = np.zeros((more, *old.shape[1:]), old.dtype)
                setattr(self, name, np.concatenate([old, fresh]))

    def add(self, code_VR: np.ndarray, place: np.ndarray, sign: int) -> None:
        """Put what rows of the kernel give into the gains, or take it out."""
        bounds_KM2 = np.stack([self.lo_KR[:, place], self.width_KR[:, place]], axis=2)
        for t in np.flatnonzero(self.valid_K):
            coded_loops.add_rows(code_VR, place, bounds_KM2[t], sign, self.runs, self.gains_KR[t])

    def sum_anew(self, code_VR: np.ndarray, place: np.ndarray) -> None:
        """Gains of the candidates at some places, whose rows have changed."""
        run = np.searchsorted(self.runs[:, 0], place, side="right") - 1
        inside = place[(run >= 0) & (place < self.runs[np.maximum(run, 0), 1])]
        for t in np.flatnonzero(self.valid_K):
            bounds = self.lo_KR[t], self.width_KR[t]
            coded_loops.keep_sums(code_VR, *bounds, inside, self.gains_KR[t])
