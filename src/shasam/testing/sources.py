"""``check_source``: the contract that every data source has to keep."""

from __future__ import annotations

import hashlib
import re

import numpy as np
import pyarrow as pa

from shasam.data.dataset import make_protocol, make_source
from shasam.data.source import Listing, Source
from shasam.data.splits import SPLITS
from shasam.errors import ContractError
from shasam.keyed import keys, uniform
from shasam.spec.fields import DataSpec

_HASH = re.compile(r"[0-9a-f]{64}")


def check_source(spec: DataSpec, *, sample: int = 24) -> None:
    """Check the data source of a specification; raise ``ContractError`` with a sentence.

    The table is the same each time and sorted by unique ids; a picture and its hash do not depend
    on the batch it is read in; labels can be made; a split does not depend on the order of rows,
    and no content is in two splits.

    Parameters
    ----------
    spec
        The source, its labels and its splits.
    sample
        Images that are read.

    Examples
    --------
    >>> from shasam.spec import DataSpec
    >>> check_source(DataSpec(name="faces", n=120, holdout_per_cell=6), sample=4)
    """
    source, again = make_source(spec), make_source(spec)
    _check_table(source, again)
    _check_reading(source, sample)
    _check_manifest(source)


def _need(fact: bool, sentence: str) -> None:
    if not fact:
        raise ContractError(sentence)


def _check_table(source: Source, again: Source) -> None:
    table = source.table()
    _need(isinstance(source, Source), "a source must be a subclass of shasam.data.Source")
    _need(table.column_names[:2] == ["id", "path"], "the table must begin with id and path")
    _need(table.num_rows > 0, "the table is empty")
    ids = table.column("id").to_pylist()
    _need(all(isinstance(i, str) and i for i in ids), "every id must be a text that is not empty")
    _need(ids == sorted(set(ids)), "ids must be unique, and sorted as texts")
    _need(table.equals(again.table()), "two sources of one specification list other tables")
    _need(source.pixels_key() == again.pixels_key(), "pixels_key() changes from call to call")
    stamps = source.stamps(table)
    _need(
        stamps.dtype == np.int64 and stamps.shape == (table.num_rows,),
        "stamps() must give one int64 for each row",
    )
    _need(bool(getattr(source, "summary", "")), "the source needs a one-line summary")


def _check_reading(source: Source, sample: int) -> None:
    table = source.table()
    order = np.argsort(uniform(keys(0, np.arange(table.num_rows)), 1)[:, 0])[:sample]
    part = table.take(pa.array(order))
    for size in (16, 40):
        reading = source.read(part, size)
        _need(
            reading.images.shape == (len(order), size, size, 3)
            and reading.images.dtype == np.uint8,
            f"read(table, {size}) must give uint8 images (n, {size}, {size}, 3), not "
            f"{reading.images.dtype} {reading.images.shape}",
        )
        _need(
            len(reading.content_hash) == len(reading.reasons) == len(order),
            "read() must give one content hash and one reason for each row",
        )
        for row, (digest, reason) in enumerate(
            zip(reading.content_hash, reading.reasons, strict=True)
        ):
            name = part.column("id")[row]
            _need(
                bool(reason) or bool(_HASH.fullmatch(digest)),
                f"{name}: a good image needs a SHA-256 in hexadecimal, not {digest!r}",
            )
            alone = source.read(part.slice(row, 1), size)
            _need(
                bool((alone.images[0] == reading.images[row]).all())
                and alone.content_hash[0] == digest,
                f"{name}: it reads otherwise alone than in a batch",
            )
    small, large = source.read(part, 16).content_hash, source.read(part, 40).content_hash
    _need(small == large, "the content hash must not depend on the size")


def _check_manifest(source: Source) -> None:
    table, protocol = source.table(), make_protocol(source)
    digest = {i: hashlib.sha256(i.encode()).hexdigest() for i in table.column("id").to_pylist()}

    def build(some: pa.Table):
        listed = Listing(some).table
        hashes = [digest[i] for i in listed.column("id").to_pylist()]
        return protocol.manifest(listed, hashes, labels=source.labels)

    manifest = build(table)
    backwards = build(table.take(pa.array(np.arange(table.num_rows)[::-1].copy())))
    _need(manifest.sha256 == backwards.sha256, "the split depends on the order of the rows")
    rows = [manifest.rows(split) for split in SPLITS]
    _need(
        sum(map(len, rows)) == len(manifest) and all(map(len, rows)),
        "train, val and test must each have rows",
    )
    for name, codes, names in (
        ("target", manifest.t_N, manifest.target_names),
        ("sensitive", manifest.s_N, manifest.sensitive_names),
    ):
        _need(
            bool(((codes >= 0) & (codes < len(names))).all()),
            f"a code of the {name} attribute has no name",
        )
    for setting, (target, sensitive) in source.settings.items():
        _need(bool(target and sensitive), f"the setting {setting!r} lacks a label")
