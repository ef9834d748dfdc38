"""Data classes that several packages share. Frozen; importing this file does not import torch.

Names of arrays end in the letters of their axes: ``z_ND`` has N rows of D numbers. A digit is an
axis of that length. A letter means one thing within a package (tests/test_structure.py reads this).

everywhere: B rows of a batch, N all rows, D numbers of an embedding, C target classes, G sensitive
    groups, K picks or chosen columns, V rows of the ground set (views in ``_VB``), H height,
    W width
submodular: A picked elements, C candidates, E edges, M rows of another set, P private set, Q query,
    R represented rows, S sums or sieves side by side, T rows of a tile, U concepts
mining: A anchors, C candidates, P positives
losses: M rows of a batch with its sets, R represented rows, X rows of one set
methods: M remembered rows, R rows with a score, Z latent numbers
metrics: A answers of a first model, B answers of a second one or bins, D resampled draws,
    K outcomes, P predictions, R rates, S strata, T thresholds or quantiles,
    V different values
report: P predictions, S seeds, T thresholds
training: P predictions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shasam.errors import ContractError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from shasam.windows import Windows


@dataclass(frozen=True)
class Selection:
    """Hold what ``maximize`` picked.

    Parameters
    ----------
    indices
        Picked elements (K,), in the order of picking.
    gains
        Marginal gain (K,) of each pick.
    evaluations
        Marginal gains that were computed.
    optimizer
        The greedy that was used.

    Examples
    --------
    >>> import torch
    >>> len(Selection(torch.tensor([4, 2]), torch.tensor([1.0, 0.5]), 9, "lazy"))
    2
    """

    indices: Tensor  # (K,) int64
    gains: Tensor  # (K,)
    evaluations: int  # marginal gains that were computed
    optimizer: str

    def __post_init__(self) -> None:
        if self.indices.shape != self.gains.shape or self.indices.ndim != 1:
            raise ContractError("a Selection needs one gain for each index")
        if len(set(self.indices.tolist())) != self.indices.shape[0]:
            raise ContractError("a Selection must not hold an index twice")

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class Triplet:
    """Rows of A from T_i∩S_j, P from T_i∩¬S_j, N from ¬T_i∩S_j; it checks its own labels."""

    anchors: Tensor  # (K,) int64 rows of the labels below
    positives: Tensor  # (K,)
    negatives: Tensor  # (K,)
    target: int  # i
    sensitive: int  # j
    t_N: Tensor = field(repr=False)  # target labels of all rows
    s_N: Tensor = field(repr=False)  # sensitive labels of all rows
    # how much each row belongs to A, P and N, where the sets are those of a window of a number; S_j
    # is then that window, which has no labels
    weights: tuple[Tensor, Tensor, Tensor] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        i, j = self.target, self.sensitive
        for name, rows, same_t, same_s in (
            ("anchors", self.anchors, True, True),
            ("positives", self.positives, True, False),
            ("negatives", self.negatives, False, True),
        ):
            ok = (self.t_N[rows] == i) == same_t
            if self.weights is None:
                ok &= (self.s_N[rows] == j) == same_s
            if not bool(ok.all()):
                wrong = int(rows[int((~ok).nonzero()[0, 0])])
                raise ContractError(
                    f"row {wrong} cannot be among the {name} of target {i}, group {j}: "
                    f"its labels are target {int(self.t_N[wrong])}, group {int(self.s_N[wrong])}"
                )


@dataclass(frozen=True)
class Batch:
    """One training step's images and labels. Views of one image stand B rows apart."""

    images: Tensor  # (V*B, 3, H, W) float, normalised, on the device
    t_B: Tensor  # (B,) int64 target class
    s_B: Tensor  # (B,) int64 sensitive group
    rows_B: Tensor  # (B,) int64 row in the manifest
    views: int  # V
    step: int  # global step of the stage, from 0
    progress: float  # share of the stage that is done, 0..1
    triplets: tuple[Triplet, ...] = ()  # over the rows 0..B-1 of this batch, for mined batches
    features: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # (B, D) each, where inputs="features"
    turn: int = 0  # which of several attributes the groups are of, where they take turns
    windows: Windows | None = None  # of a sensitive number, over the rows of the manifest
    # takes the embeddings (V*B, D) of this batch: a plan that mines keeps them for later steps
    observe: Callable[[Tensor], None] = field(default=lambda z: None, repr=False)

    @property
    def t_VB(self) -> Tensor:
        return self.t_B.repeat(self.views)

    @property
    def s_VB(self) -> Tensor:
        return self.s_B.repeat(self.views)


@dataclass(frozen=True)
class Losses:
    """A differentiable total and its named parts, detached numbers for the log."""

    total: Tensor
    parts: Mapping[str, float | Tensor] = field(default_factory=dict)
    active: float | None = None  # share of terms that have a gradient, where that can be 0
    # share of terms with nearer negatives than positives, where every term has a gradient
    wrong_side: float | None = None


@dataclass(frozen=True)
class Head:
    """A classifier on frozen features: which features, and how it weighs the cells.

    ``sampling`` is None if the classifier sees the cells as the specification says, else the
    other way, "natural" or "balanced".

    >>> Head("encoder", "balanced").name, Head.named("projection")
    ('encoder-balanced', Head(features='projection', sampling=None))
    """

    features: str
    sampling: str | None = None

    @property
    def name(self) -> str:
        return self.features if self.sampling is None else f"{self.features}-{self.sampling}"

    @classmethod
    def named(cls, name: str) -> Head:
        features, _, sampling = name.partition("-")
        return cls(features, sampling or None)


@dataclass(frozen=True)
class Context:
    """Other columns of a test set: what rows weigh, when they are from, what they are sliced by."""

    weight: str = ""  # name of the column
    weights: np.ndarray | None = None  # (n,) float
    time: str = ""  # name of the column
    when: np.ndarray | None = None  # (n,) dates
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # by whose values to slice
    rules: tuple[str, ...] = ()  # such as age<35


@dataclass(frozen=True)
class Predictions:
    """A test set with a model's predictions, seen through one sensitive attribute.

    Labels, predictions and groups are codes; ``classes`` and ``groups`` name them. Every metric is
    computed from these, without torch.
    """

    ids: np.ndarray  # (n,) str, or empty where rows have no ids
    target: np.ndarray  # (n,) int
    prediction: np.ndarray  # (n,) int
    sensitive: np.ndarray  # (n,) int
    scores: np.ndarray  # (n, C) class probabilities, or (n, 0) where there are none
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attribute: str = "sensitive"  # what the groups are groups of
    positive: int | None = None  # the favourable class
    repeats: np.ndarray | None = None  # (n,) rows that each entry stands for, where counted
    name: str = ""  # the model, or the file it came from
    outcome: str = ""  # what the classes are values of, where that has a telling name
    threshold: float | None = None  # of the positive class's score, where it decided
    span: tuple[float, float] | None = None  # of scores that are no probabilities, scaled to 0..1
    bins: np.ndarray | None = None  # (n, columns) that scores were put in, where rows were counted
    context: Context = field(default_factory=Context)
    # (n, G) probabilities of the groups, where the model infers them
    inferred: np.ndarray | None = None
    numbers: np.ndarray | None = None  # (n,) the attribute itself, where it is not cut into groups

    def __len__(self) -> int:
        return len(self.target)

    @property
    def total(self) -> int:
        """Rows, each entry as often as it was counted."""
        return len(self) if self.repeats is None else int(self.repeats.sum())

    @property
    def scored(self) -> bool:
        """True where there are class probabilities."""
        return self.scores.shape[1] > 0

    def only(self, kept: np.ndarray) -> Predictions:
        """Return the rows of a mask (n,) or list.

        The same predictions where it keeps all of them.
        """
        if kept.dtype == bool and kept.all():
            return self
        context = replace(
            self.context,
            weights=None if self.context.weights is None else self.context.weights[kept],
            when=None if self.context.when is None else self.context.when[kept],
            columns={name: column[kept] for name, column in self.context.columns.items()},
        )
        return replace(
            self,
            ids=self.ids[kept] if len(self.ids) else self.ids,
            target=self.target[kept],
            prediction=self.prediction[kept],
            sensitive=self.sensitive[kept],
            scores=self.scores[kept],
            repeats=None if self.repeats is None else self.repeats[kept],
            context=context,
            inferred=None if self.inferred is None else self.inferred[kept],
        )

    @property
    def with_group(self) -> Predictions:
        """The rows whose group is known; that of others is -1."""
        return self.only(self.sensitive >= 0)

    @property
    def row_by_row(self) -> bool:
        """True where each entry is one row, False where rows were counted beforehand."""
        return self.repeats is None


def attribute_columns(names: Sequence[str]) -> list[str]:
    """Name the columns of several sensitive attributes in a file of predictions.

    Each is named as its attribute, or nearly.

    >>> attribute_columns(["age<35", "target"])
    ['age<35', 'target (attribute)']
    """
    own = {"id", "target", "prediction", "sensitive"}
    return [
        f"{name} (attribute)" if name in own or name.startswith("score_") else name
        for name in names
    ]
