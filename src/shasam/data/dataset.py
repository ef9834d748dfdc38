"""A data set that is ready to use: manifest, labels, and images from the packed store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shasam.data.packing import open_store
from shasam.data.source import Exclusion, Progress, Source
from shasam.data.splits import Manifest, Protocol, check_labels, warn_of_empty_cells
from shasam.data.store import Store
from shasam.data.vector_files import VectorStore
from shasam.errors import DataError, SpecError
from shasam.registry import did_you_mean, lookup
from shasam.spec.fields import DataSpec

if TYPE_CHECKING:
    from torch import Tensor


BAD_SHARE = 0.01  # more unreadable images than this stop the work


@dataclass(frozen=True)
class Dataset:
    """Rows are those of the manifest; ``images`` reads them in any order."""

    spec: DataSpec
    manifest: Manifest
    store: Store | VectorStore = field(repr=False)
    store_rows: np.ndarray = field(repr=False)  # row of the store for each row of the manifest
    attributes: pa.Table = field(repr=False)  # the source's columns for each row of the manifest

    @property
    def t_N(self) -> np.ndarray:
        return self.manifest.t_N

    @property
    def s_N(self) -> np.ndarray:
        return self.manifest.s_N

    @property
    def target_names(self) -> tuple[str, ...]:
        return self.manifest.target_names

    @property
    def sensitive_names(self) -> tuple[str, ...]:
        return self.manifest.sensitive_names

    @property
    def classes(self) -> int:
        return len(self.target_names)

    @property
    def groups(self) -> int:
        return len(self.sensitive_names)

    def __len__(self) -> int:
        return len(self.manifest)

    def rows(self, split: str) -> np.ndarray:
        """Row numbers of "train", "val" or "test"."""
        return self.manifest.rows(split)

    def images(self, rows: np.ndarray | Tensor) -> Tensor:
        """uint8 (B, 3, H, W), a view of channels-last memory; vectors are float32 (B, D)."""
        import torch

        read = self.store.images(self.store_rows[np.asarray(rows, dtype=np.int64)])
        found = torch.from_numpy(np.require(read, requirements="W"))
        return found if found.ndim == 2 else found.permute(0, 3, 1, 2)


def make_source(spec: DataSpec) -> Source:
    """The registered source of a specification."""
    return lookup("source", spec.name)(spec)


def make_protocol(source: Source) -> Protocol:
    """The protocol that a specification means for its source."""
    spec = source.spec
    target, sensitive = source.target, source.sensitive
    if spec.setting is not None:
        if spec.setting not in source.settings:
            raise SpecError(
                f"{spec.name} has no setting {spec.setting!r}"
                f"{did_you_mean(spec.setting, source.settings)}"
            )
        target, sensitive = source.settings[spec.setting]
    target, sensitive = spec.target or target, spec.sensitive or sensitive
    if not target or not sensitive:
        columns = [c for c in source.table().column_names if c not in ("id", "path", "split")]
        raise SpecError(
            f"{spec.name} needs a target and a sensitive attribute; its columns are: "
            f"{', '.join(columns)}"
        )
    return Protocol(
        source=spec.name,
        target=target,
        sensitive=sensitive,
        alpha=spec.alpha if spec.alpha is not None else source.alpha,
        split=_split_rule(source),
        seed=spec.seed,
        n_per_group=spec.n_per_group or source.n_per_group,
        holdout_per_cell=spec.holdout_per_cell or source.holdout_per_cell,
        flip_direction=spec.flip_direction,
    )


def _split_rule(source: Source) -> str:
    """What split="auto" means: the source's own partition, bias only where it is asked for."""
    spec = source.spec
    if spec.split != "auto":
        return spec.split
    biased = (spec.alpha, spec.n_per_group, spec.holdout_per_cell) != (None, None, None)
    if "split" in source.table().column_names:
        if biased and source.split != "official":
            raise SpecError(
                "the data has splits of its own, which alpha, n_per_group and holdout_per_cell "
                "would change; to replace them, add --split balanced"
            )
        return "official"
    return "balanced" if biased else source.split


def open_data(spec: DataSpec, *, progress: Progress | None = None) -> Dataset:
    """Open a data set; images are packed first if they are not packed yet.

    Parameters
    ----------
    spec
        The source, its labels and its splits.
    progress
        Function that is called with (done, whole) while images are packed.

    Returns
    -------
    Dataset
        Rows by split, labels, and images as arrays.

    Examples
    --------
    >>> data = open_data(DataSpec(name="faces", n=200, holdout_per_cell=10))
    >>> len(data.rows("train")) > 0, data.target_names
    (True, ('serious', 'smiling'))
    """
    source = make_source(spec)
    protocol = make_protocol(source)
    check_labels(source, protocol)
    store = open_store(source, spec.size, progress=progress)
    return assemble(source, protocol, store)


def assemble(source: Source, protocol: Protocol, store: Store | VectorStore) -> Dataset:
    """Leave out what could not be read, build the manifest, tie its rows to the store's."""
    spec, table, index = source.spec, source.table(), store.index
    reasons = index.column("reason").to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(reasons != "")
    what = "images" if source.inputs == "images" else "vectors"
    ids = index.column("id")
    if len(bad) > BAD_SHARE * len(reasons) and not spec.allow_bad:
        first = "; ".join(f"{ids[int(r)]}: {reasons[r]}" for r in bad[:3])
        raise DataError(
            f"{len(bad)} of {len(reasons)} {what} ({len(bad) / len(reasons):.1%}) cannot be read "
            f"({first}, ...). Repair them, or leave them out with --allow-bad"
        )
    good = np.flatnonzero(reasons == "")
    excluded = [*source.listing.excluded]
    excluded += [Exclusion(str(ids[int(r)]), f"unreadable: {reasons[r]}") for r in bad]
    manifest = protocol.manifest(
        table.take(pa.array(good)),
        index.column("content_hash").take(pa.array(good)).to_pylist(),
        labels=source.labels,
        excluded=excluded,
        notes=source.listing.notes,
        missing=spec.missing,
    )
    warn_of_empty_cells(manifest)
    store_rows = _places(manifest.table.column("id"), ids)
    return Dataset(spec, manifest, store, store_rows, table.take(pa.array(store_rows)))


def _places(ids: pa.ChunkedArray, among: pa.ChunkedArray) -> np.ndarray:
    import pyarrow.compute as pc

    return pc.index_in(ids, value_set=among).to_numpy(zero_copy_only=False).astype(np.int64)
