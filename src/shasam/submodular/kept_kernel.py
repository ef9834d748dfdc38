"""The kernel of a ground set V, kept while its embeddings change a few rows at a time.

Mining in training asks the same question in every step: which rows of a cell represent V best, or
overlap most with the anchors, where V is the same for an epoch and only the rows of the last
batches have new embeddings. So the kernel V × V is kept, as 16-bit codes; ``update`` renews the
rows and columns of what changed; and the gains of the last step, corrected for that, are upper
bounds in the next one. The picks are those of greedy maximisation over the codes, to the last tie.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import coded_loops
from shasam.submodular.coding import Coding, Product, aligned_codes, check_rows
from shasam.submodular.facility_location import FLQMI
from shasam.submodular.greedy import maximize
from shasam.submodular.kept_gains import KeptGains
from shasam.submodular.kernels import as_features, as_features_like, check_strength, unit_rows
from shasam.submodular.logdet import LogDet
from shasam.types import Selection

AnchorFunction = Literal["logdet", "fl"]
NegativeFunction = Literal["fl1mi", "flqmi"]

_TILE_ROWS, _TILE_COLUMNS = 512, 2048  # what is multiplied together: it is encoded from the cache
_STATES = 32  # sets of candidates whose gains are kept
_REBUILD = 0.25  # share of changed rows from which all are computed anew


@dataclass(frozen=True)
class MinedSets:
    """A, P and N of one pair, as rows of V in the order of the picks, with their gains."""

    anchors: Selection
    positives: Selection
    negatives: Selection


class KeptKernel:
    """Keep the similarities of the rows of z (V, D), in [0, 1], and pick greedily from them.

    Parameters
    ----------
    z
        Embeddings of V, one row each. At most 65,536 rows; memory is 2 V² bytes (``plan``).
    cells
        A label for each row. Rows with the same label lie together in memory, which makes it
        faster to choose among them; the picks are the same without.
    similarity
        "shifted_cosine", (1 + cos)/2, or "rbf".
    gamma
        γ of the RBF kernel exp(-γ d²).
    product
        "bfloat16" multiplies rounded embeddings, "float32" does not; "auto" takes bfloat16 where
        the processor has it. ``tolerance`` says how far a similarity can be from the exact one.

    Examples
    --------
    >>> z = torch.nn.functional.normalize(torch.randn(60, 8, generator=torch.manual_seed(0)))
    >>> kept = KeptKernel(z, product="float32")
    >>> mined = kept.mine(range(20), range(20, 40), range(40, 60), k=3)
    >>> [len(s) for s in (mined.anchors, mined.positives, mined.negatives)]
    [3, 3, 3]
    >>> kept.update([4, 5], z[[5, 4]])
    >>> float(kept.similarities([4])[0, 5]) < 1
    True
    """

    def __init__(
        self,
        z: Any,
        *,
        cells: Any = None,
        similarity: Literal["shifted_cosine", "rbf"] = "shifted_cosine",
        gamma: float | None = None,
        product: Product = "auto",
    ) -> None:
        z_VD = as_features(z).detach().float().cpu()
        self.n, self._coding = len(z_VD), Coding(similarity, gamma, product)
        check_rows(self.n, self.plan(self.n))
        order = np.arange(self.n) if cells is None else self._by_cell(cells)
        self._row_of = order  # the row of V at each place of the kernel
        self._place_of = np.empty(self.n, np.int64)
        self._place_of[order] = np.arange(self.n)
        self._z_VD = torch.empty_like(z_VD)
        self._width = -(-self.n // coded_loops.LANES) * coded_loops.LANES
        self._code_VR = aligned_codes(self.n, self._width)
        self._code_VR[:, self.n :] = 0
        self._kept: OrderedDict[tuple[Any, ...], KeptGains] = OrderedDict()
        self._read = 0
        self.renew(z_VD)

    @staticmethod
    def plan(rows: int) -> int:
        """The bytes of the kernel of so many rows.

        >>> KeptKernel.plan(32_000)
        2048000000
        """
        return 2 * rows * (-(-rows // coded_loops.LANES) * coded_loops.LANES)

    @property
    def tolerance(self) -> float:
        """The largest difference of a kept similarity to the exact one."""
        return self._coding.tolerance

    @property
    def product(self) -> str:
        """In which type embeddings are multiplied."""
        return self._coding.product

    @property
    def entries_read(self) -> int:
        """Kernel entries that the walks so far have read."""
        return self._read

    def similarities(self, rows: Any) -> Tensor:
        """(M, V): the kept similarities of some rows of V to all, in the order of V."""
        place = self._places(rows, "rows")
        return torch.from_numpy(self._coding.decode(self._code_VR[place][:, self._place_of]))

    def forget(self) -> None:
        """Drop the gains of earlier walks; the picks are the same without them."""
        self._kept.clear()

    def renew(self, z: Any) -> None:
        """Compute the whole kernel from new embeddings of all rows."""
        z_VD = self._embeddings(z, self.n)
        self._z_VD = z_VD[torch.from_numpy(self._row_of)]
        self._kept.clear()
        low_VD = self._coding.lowered(self._z_VD)
        scale, shift = self._coding.scale, self._coding.shift
        for top in range(0, self.n, _TILE_ROWS):
            bottom = min(top + _TILE_ROWS, self.n)
            edges = sorted({top, *range(bottom, self.n, _TILE_COLUMNS), self.n})
            for left, right in pairwise(edges):
                block = self._coding.products(low_VD[top:bottom], low_VD[left:right])
                coded_loops.write_codes(block, scale, shift, self._code_VR, top, left)

    def update(self, rows: Any, z_rows: Any) -> None:
        """New embeddings (M, D) of some rows of V: their rows and columns are computed anew."""
        place = self._places(rows, "rows")
        z_MD = self._embeddings(z_rows, len(place))
        if len(place) > _REBUILD * self.n:
            whole = torch.empty_like(self._z_VD)
            whole[torch.from_numpy(self._row_of)] = self._z_VD
            whole[torch.from_numpy(self._row_of[place])] = z_MD
            self.renew(whole)
            return
        self._z_VD[torch.from_numpy(place)] = z_MD
        code_MR = np.zeros((len(place), self._width), np.uint16)
        products = self._coding.products(
            self._coding.lowered(z_MD), self._coding.lowered(self._z_VD)
        )
        coded_loops.encode(products, self._coding.scale, self._coding.shift, code_MR)
        for kept in self._kept.values():
            kept.add(self._code_VR, place, -1)
        coded_loops.write_columns(code_MR, place, self._code_VR)
        for kept in self._kept.values():
            kept.add(self._code_VR, place, 1)
            kept.sum_anew(self._code_VR, place)

    def pick(
        self,
        candidates: Any,
        k: int,
        *,
        query: Any = None,
        private: Any = None,
        eta: float = 1.0,
        nu: float = 1.0,
    ) -> Selection:
        """k greedy picks of facility location over V, and of its measures.

        Without sets f(A) = Σ_{r∈V} max_{a∈A} K_ra; with ``private`` FLCG, with ``query`` FL1MI,
        with both FLCMI. All sets are rows of V; ties go to the candidate that is named first.
        """
        place = self._places(candidates, "candidates")
        if not 1 <= k <= len(place):
            raise InputError(f"cannot pick k = {k} of {len(place)} candidates")
        check_strength(eta, nu)
        lo_R, width_R = self._bounds(query, private, eta, nu)
        kept = self._kept_for(place, query is not None, private is not None, lo_R, width_R)
        kept.make_room(k)
        positions, sums, read = coded_loops.coded_walk(
            self._code_VR,
            lo_R,
            width_R,
            kept.lo_KR,
            kept.width_KR,
            kept.gains_KR,
            kept.valid_K,
            kept.runs,
            place,
            k,
        )
        self._read += int(read)
        return Selection(
            torch.from_numpy(self._row_of[place[positions]]),
            torch.from_numpy(sums / coded_loops.FULL).float(),
            -(-int(read) // self.n),
            "lazy",
        )

    def mine(
        self,
        anchors: Any,
        positives: Any,
        negatives: Any,
        k: int,
        *,
        anchor_function: AnchorFunction = "logdet",
        negative_function: NegativeFunction = "fl1mi",
        ridge: float = 1.0,
        nu: float = 1.0,
        eta: float = 1.0,
    ) -> MinedSets:
        """A, P and N out of three cells, given by their rows of V; Alg. 1, lines 19 to 21.

        A maximises f over the first cell (LogDet of the embeddings, or facility location over V),
        P the conditional gain FLCG given A over V, N the mutual information with A: FL1MI over V,
        or FLQMI, which compares with A alone.
        """
        chosen = self._anchors(anchors, k, anchor_function, ridge)
        given = chosen.indices
        hard = self.pick(positives, k, private=given, nu=nu)
        if negative_function == "fl1mi":
            near = self.pick(negatives, k, query=given, eta=eta)
        elif negative_function == "flqmi":
            near = self._nearest_to(negatives, given, k, eta)
        else:
            raise InputError(
                f"negatives are mined by 'fl1mi' or 'flqmi'; got {negative_function!r}"
            )
        return MinedSets(chosen, hard, near)

    def _anchors(self, rows: Any, k: int, function: str, ridge: float) -> Selection:
        if function == "fl":
            return self.pick(rows, k)
        if function != "logdet":
            raise InputError(f"anchors are mined by 'logdet' or 'fl'; got {function!r}")
        place = self._places(rows, "anchors")
        z_CD = self._z_VD[torch.from_numpy(place)]
        compared = "rbf" if self._coding.similarity == "rbf" else "cosine"
        f = LogDet.from_features(z_CD, ridge, similarity=compared, gamma=self._coding.gamma)  # type: ignore[arg-type]
        return self._renamed(maximize(f, k), place)

    def _nearest_to(self, rows: Any, query: Tensor, k: int, eta: float) -> Selection:
        place, near = self._places(rows, "negatives"), self._places(query, "query")
        cross_CQ = self._coding.decode(self._code_VR[near][:, place].T)
        f = FLQMI.from_cross(np.ascontiguousarray(cross_CQ), eta)
        return self._renamed(maximize(f, k), place)

    def _renamed(self, picked: Selection, place: np.ndarray) -> Selection:
        rows = torch.from_numpy(self._row_of[place[picked.indices.numpy()]])
        return Selection(rows, picked.gains, picked.evaluations, picked.optimizer)

    def _bounds(
        self, query: Any, private: Any, eta: float, nu: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Floors and widths of the represented rows; what only fills up a vector has width 0."""
        lo_R = np.zeros(self._width, np.int64)
        hi_R = np.full(self._width, coded_loops.FULL)
        if private is not None:
            lo_R = self._nearest_codes(private, "private", nu)
        if query is not None:
            hi_R = self._nearest_codes(query, "query", eta)
        width_R = np.maximum(hi_R - lo_R, 0)
        width_R[self.n :] = 0
        return lo_R.astype(np.uint16), width_R.astype(np.uint16)

    def _nearest_codes(self, rows: Any, name: str, strength: float) -> np.ndarray:
        place = self._places(rows, name)
        if len(place) == 0:
            raise InputError(f"the {name} set is empty; leave it out")
        nearest_R = self._code_VR[place].max(axis=0)
        if strength == 1.0:
            return nearest_R.astype(np.int64)
        return np.minimum(np.rint(nearest_R * strength), coded_loops.FULL).astype(np.int64)

    def _kept_for(
        self, place: np.ndarray, capped: bool, floored: bool, lo_R: np.ndarray, width_R: np.ndarray
    ) -> KeptGains:
        """The gains that were kept for these candidates, or new ones."""
        runs = self._runs(place)
        key = (capped, floored, runs.tobytes())
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            self._kept[key] = KeptGains(self._code_VR, runs, lo_R, width_R)
            self._read += sum(min(int(b), self.n) - int(a) for a, b in runs) * self.n
        while len(self._kept) > _STATES:
            self._kept.popitem(last=False)
        return self._kept[key]

    def _runs(self, place: np.ndarray) -> np.ndarray:
        """(M, 2): ranges of whole vectors that hold all candidates."""
        lanes = coded_loops.LANES
        taken = np.zeros(self._width // lanes + 2, np.int8)
        taken[place // lanes + 1] = 1
        edges = np.flatnonzero(np.diff(taken)) * lanes
        return np.ascontiguousarray(edges.reshape(-1, 2))

    def _places(self, rows: Any, name: str) -> np.ndarray:
        """Checked rows of V as places of the kernel, in their order."""
        if isinstance(rows, Tensor):
            rows = rows.detach().cpu().numpy()
        index = np.asarray(rows if isinstance(rows, np.ndarray) else list(rows))
        if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
            raise InputError(f"{name} must be row numbers of V, a list or an array of integers")
        index = index.astype(np.int64)
        if len(index) and not 0 <= index.min() <= index.max() < self.n:
            raise InputError(
                f"{name} must be within 0..{self.n - 1}; got {index.min()}..{index.max()}"
            )
        seen = np.zeros(self.n, np.bool_)
        seen[index] = True
        if np.count_nonzero(seen) != len(index):
            raise InputError(f"{name} hold a row more than once; remove the repeated ones")
        return self._place_of[index]

    def _by_cell(self, cells: Any) -> np.ndarray:
        label = cells.cpu().numpy() if isinstance(cells, Tensor) else np.asarray(cells)
        if label.shape != (self.n,):
            raise InputError(f"cells must hold one label for each of {self.n:,} rows")
        return np.argsort(label, kind="stable")

    def _embeddings(self, z: Any, rows: int) -> Tensor:
        z_MD = as_features_like(z, "embeddings", self._z_VD) if rows else self._z_VD[:0]
        if len(z_MD) != rows:
            raise InputError(f"{rows} rows need as many embeddings; got {len(z_MD)}")
        z_MD = z_MD.detach()
        return z_MD if self._coding.similarity == "rbf" else unit_rows(z_MD)
