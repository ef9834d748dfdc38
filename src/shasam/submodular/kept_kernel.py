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
import torch.nn.functional as F
from torch import Tensor

from shasam.errors import InputError, MemoryLimitError
from shasam.memory import available_memory, readable
from shasam.submodular import coded_loops, loops
from shasam.submodular.coded_loops import FULL
from shasam.submodular.facility_location import FLQMI
from shasam.submodular.greedy import maximize
from shasam.submodular.kernels import (
    as_features,
    as_features_like,
    check_similarity,
    check_strength,
    similarity_matrix,
    unit_rows,
)
from shasam.submodular.logdet import LogDet
from shasam.submodular.set_function import SetFunction
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
        "exact" multiplies in float64 on a grid where no sum is rounded: the codes then have the
        same bits whichever rows were renewed, when, and on which machine.

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
        self._given_VD = self._low_VD = z_VD  # as given, and as multiplied: in the order of places
        self._width = -(-self.n // coded_loops.LANES) * coded_loops.LANES
        self._code_VR = aligned_codes(self.n, self._width)
        self._code_VR[:, self.n :] = 0
        self._kept: OrderedDict[tuple[Any, ...], KeptGains] = OrderedDict()
        self._read = 0
        self.renew(z_VD)

    @staticmethod
    def plan(rows: int) -> int:
        """Return the bytes of the kernel of so many rows.

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
        """Return (M, V): the kept similarities of some rows of V to all, in the order of V."""
        place = self._places(rows, "rows")
        return torch.from_numpy(self._coding.decode(self._code_VR[place][:, self._place_of]))

    def forget(self) -> None:
        """Drop the gains of earlier walks; the picks are the same without them."""
        self._kept.clear()

    def renew(self, z: Any) -> None:
        """Compute the whole kernel from new embeddings of all rows."""
        self._given_VD = self._checked(z, self.n).clone()
        self._kept.clear()
        low_VD = self._lowered(self._given_VD[torch.from_numpy(self._row_of)])
        scale, shift = self._coding.scale, self._coding.shift
        for top in range(0, self.n, _TILE_ROWS):
            bottom = min(top + _TILE_ROWS, self.n)
            edges = sorted({top, *range(bottom, self.n, _TILE_COLUMNS), self.n})
            for left, right in pairwise(edges):
                block = self._coding.products(low_VD[top:bottom], low_VD[left:right])
                coded_loops.write_codes(block, scale, shift, self._code_VR, top, left)
        self._low_VD = low_VD

    def follow(self, z: Any) -> int:
        """Take new embeddings of all rows and renew those that changed; how many did."""
        z_VD = self._checked(z, self.n)
        changed = (z_VD != self._given_VD).any(dim=1).nonzero().flatten()
        self.update(changed, z_VD[changed])
        return len(changed)

    def update(self, rows: Any, z_rows: Any) -> None:
        """Take new embeddings (M, D) of some rows of V; compute their rows and columns anew."""
        place = self._places(rows, "rows")
        z_MD = self._checked(z_rows, len(place))
        self._given_VD[torch.from_numpy(self._row_of[place])] = z_MD
        if len(place) > _REBUILD * self.n:
            self.renew(self._given_VD)
            return
        low_MD = self._lowered(z_MD)
        self._low_VD[torch.from_numpy(place)] = low_MD
        code_MR = np.zeros((len(place), self._width), np.uint16)
        products = self._coding.products(low_MD, self._low_VD)
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
        """Return k greedy picks of facility location over V, and of its measures.

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

    def function(
        self, *, query: Any = None, private: Any = None, eta: float = 1.0, nu: float = 1.0
    ) -> KeptFacilityLocation:
        """Return the function that ``pick`` maximises, over the rows of V, for ``maximize``."""
        return KeptFacilityLocation(self, query, private, eta, nu)

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
        """Return A, P and N out of three cells, given by their rows of V; Alg. 1, lines 19 to 21.

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
        z_CD = self._given_VD[torch.from_numpy(self._row_of[place])]
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

    def _sums(self, lo_R: np.ndarray, width_R: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what some rows of V gain in codes, under floors and widths of the represented
        rows.
        """
        place, found = self._place_of[rows], np.empty(len(rows), np.int64)
        step = -(-len(place) // loops.pieces(len(place) * self.n)) or 1
        ends = [(a, min(a + step, len(place))) for a in range(0, len(place), step)]
        loops.run(
            coded_loops.sum_some,
            [(self._code_VR, lo_R, width_R, place, a, b, found) for a, b in ends],
        )
        self._read += len(place) * self.n
        return found

    def _bounds(
        self, query: Any, private: Any, eta: float, nu: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return floors and widths of the represented rows.

        What only fills up a vector has width 0.
        """
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
        """Return the gains that were kept for these candidates, or new ones."""
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
        """Return (M, 2): ranges of whole vectors that hold all candidates."""
        lanes = coded_loops.LANES
        taken = np.zeros(self._width // lanes + 2, np.int8)
        taken[place // lanes + 1] = 1
        edges = np.flatnonzero(np.diff(taken)) * lanes
        return np.ascontiguousarray(edges.reshape(-1, 2))

    def _places(self, rows: Any, name: str) -> np.ndarray:
        """Check rows of V and return them as places of the kernel, in their order."""
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

    def _checked(self, z: Any, rows: int) -> Tensor:
        if rows == 0:
            return self._given_VD[:0]
        z_MD = as_features_like(z, "embeddings", self._given_VD).detach()
        if len(z_MD) != rows:
            raise InputError(f"{rows} rows need as many embeddings; got {len(z_MD)}")
        return z_MD

    def _lowered(self, z_MD: Tensor) -> Tensor:
        """Return embeddings as they are multiplied: of length 1, in the type of the product."""
        if self._coding.similarity == "rbf":
            return z_MD
        if self._coding.product == "exact":  # the length of a row must not depend on the others
            return self._coding.lowered(F.normalize(z_MD.double(), dim=1))
        return self._coding.lowered(unit_rows(z_MD))


class KeptFacilityLocation(SetFunction):
    """Facility location over V, or one of its measures, out of a kept kernel.

    ``f(A) = Σ_{r∈V} max( min(max_{a∈A} K_ra, η max_{q∈Q} K_rq) - ν max_{p∈P} K_rp, 0 )``

    over similarities K of 16 bits. Its elements are the rows of V. A gain is a sum of whole
    numbers, so no two machines differ in it. Query and private set are those of the kernel at the
    time it was made.

    >>> z = torch.nn.functional.normalize(torch.randn(60, 8, generator=torch.manual_seed(0)))
    >>> kept = KeptKernel(z, product="exact")
    >>> f = kept.function(private=[3])
    >>> maximize(f, 2).indices.tolist() == maximize(f, 2, optimizer="naive").indices.tolist()
    True
    """

    monotone = submodular = True
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, kept: KeptKernel, query: Any, private: Any, eta: float, nu: float) -> None:
        check_strength(eta, nu)
        self.kept, self.n = kept, kept.n
        self._sets: dict[str, Any] = {"query": query, "private": private, "eta": eta, "nu": nu}
        self._bounds = kept._bounds(query, private, eta, nu)

    def __call__(self, selected: Any) -> Tensor:
        risen = int(self.start(selected)[0].sum(dtype=np.int64))
        return torch.tensor((risen - int(self._bounds[0].sum(dtype=np.int64))) / coded_loops.FULL)

    def start(self, given: Any = ()) -> tuple[np.ndarray, np.ndarray]:
        state = self._bounds[0].copy(), self._bounds[1].copy()
        for v in self.index(given).tolist():
            state = self.add(state, v)
        return state

    def gains(self, state: tuple[np.ndarray, np.ndarray], candidates: Tensor) -> Tensor:
        return torch.from_numpy(self.kept._sums(*state, candidates.numpy()) / coded_loops.FULL)

    def add(self, state: tuple[np.ndarray, np.ndarray], v: int) -> tuple[np.ndarray, np.ndarray]:
        coded_loops.raise_codes(self.kept._code_VR, self.kept._place_of[v], *state)
        return state

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if not lazy:
            return None
        picked = self.kept.pick(candidates, k, **self._sets)
        return picked.indices.numpy(), picked.gains.numpy(), picked.evaluations


# -------------------------------------------------------------------------------------------------
# Similarities within 0..1 as 16-bit codes, code = round(65535 · K), and how they are computed.
# -------------------------------------------------------------------------------------------------

LARGEST = 65_536  # rows whose sums of codes fit in 32 bits
Product = Literal["auto", "float32", "bfloat16", "exact"]
_GRID = 2.0**26  # steps of a coordinate to 1: products of unit vectors are whole multiples of 2^-52


def has_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 numbers itself."""
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(asked()) if asked is not None else False


class Coding:
    """From embeddings to codes: the similarity, and the type in which embeddings are multiplied."""

    def __init__(self, similarity: str, gamma: float | None, product: str) -> None:
        check_similarity(similarity)
        if similarity not in ("shifted_cosine", "rbf"):
            raise InputError(
                f"a kept kernel holds similarities within 0..1, and {similarity!r} has negative "
                "ones; use 'shifted_cosine' or 'rbf'"
            )
        if product not in ("auto", "float32", "bfloat16", "exact"):
            raise InputError(
                f"product is 'auto', 'float32', 'bfloat16' or 'exact'; got {product!r}"
            )
        if product == "exact" and similarity == "rbf":
            raise InputError("product='exact' needs 'shifted_cosine': no exponential is exact")
        if product == "auto":
            product = "bfloat16" if has_bfloat16() else "float32"
        self.similarity, self.gamma = similarity, gamma
        self.product = "float32" if similarity == "rbf" else product
        # From a product to its code: scale · product + shift, of which the half rounds.
        whole = FULL if similarity == "rbf" else FULL / 2
        self.scale = np.float32(whole)
        self.shift = np.float32(0.5 if similarity == "rbf" else whole + 0.5)

    @property
    def tolerance(self) -> float:
        """The largest difference of a coded similarity to the exact one."""
        rounding = 0.5 / FULL + 1e-6
        # Two factors and the cosine are each rounded by 2^-9 at most; a cosine counts half.
        return rounding + (1.5 * 2**-9 * (1 + 2**-9) if self.product == "bfloat16" else 0.0)

    def lowered(self, z_MD: Tensor) -> Tensor:
        """Return embeddings in the type in which they are multiplied."""
        if self.product == "exact":
            # No partial sum exceeds 2 = 2^53 · 2^-52, so float64 holds each of them to the bit, in
            # whatever order and blocks they are summed.
            return (z_MD.double() * _GRID).round_().div_(_GRID)
        return z_MD.bfloat16() if self.product == "bfloat16" else z_MD

    def products(self, x_MD: Tensor, y_ND: Tensor) -> np.ndarray:
        """Return (M, N): what is coded, the cosine or the rbf similarity."""
        if self.similarity == "rbf":
            return similarity_matrix(x_MD, y_ND, "rbf", self.gamma).numpy()
        found = x_MD @ y_ND.T
        return (found if self.product == "exact" else found.float()).numpy()

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return codes as similarities."""
        return codes.astype(np.float32) / np.float32(FULL)


def aligned_codes(rows: int, columns: int) -> np.ndarray:
    """Return a matrix of codes whose rows begin at whole cache lines."""
    flat = np.empty(2 * rows * columns + 64, np.uint8)
    start = -flat.ctypes.data % 64
    return flat[start : start + 2 * rows * columns].view(np.uint16).reshape(rows, columns)


def check_rows(rows: int, need: int) -> None:
    """Refuse a kernel of too many rows, or of more bytes than are free."""
    if rows > LARGEST:
        raise InputError(
            f"a kept kernel has at most {LARGEST:,} rows and V has {rows:,}; "
            "draw a smaller V, or use maximize_sampled"
        )
    free = available_memory()
    if free is not None and need > 0.9 * free:
        raise MemoryLimitError(
            f"the kernel of {rows:,} rows needs {readable(need)} and {readable(free)} are "
            f"free; up to {int((0.45 * free) ** 0.5):,} rows fit. Draw a smaller V"
        )


# -------------------------------------------------------------------------------------------------
# Gains of earlier walks over a kept kernel, which bound those of the next walk.
# -------------------------------------------------------------------------------------------------


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
        """Compute gains anew of the candidates at some places, whose rows have changed."""
        run = np.searchsorted(self.runs[:, 0], place, side="right") - 1
        inside = place[(run >= 0) & (place < self.runs[np.maximum(run, 0), 1])]
        for t in np.flatnonzero(self.valid_K):
            bounds = self.lo_KR[t], self.width_KR[t]
            coded_loops.keep_sums(code_VR, *bounds, inside, self.gains_KR[t])
