"""The columns of a user's table that say which row is which, who it shows and where it belongs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from shasam.data.manifest import SPLITS
from shasam.errors import DataError
from shasam.registry import did_you_mean
from shasam.spec.data import DataSpec
from shasam.tables import TableFile

_SPLIT_WORDS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "dev": "val", "test": "test", "testing": "test",
}  # fmt: skip


def text(value: object) -> str:
    """A cell as an id or a path."""
    return "" if value is None else str(value).strip()


def split_and_identity(spec: DataSpec, known: Sequence[str]) -> dict[str, str | None]:
    """The columns of the split and of the person, where there are some."""
    return {
        "split": spec.split_column or ("split" if "split" in known else None),
        "identity": spec.identity_column,
    }


def check_named(named: dict[str, str | None], known: Sequence[str], file: str) -> None:
    """Every column that is named must be there."""
    for name in named.values():
        if name is not None and name not in known:
            raise DataError(f"{file} has no column {name!r}{did_you_mean(name, known)}")


def read_own(
    source: TableFile,
    spec: DataSpec,
    named: dict[str, str | None],
    first: dict[str, object],
    leave_out: Sequence[str] = (),
) -> pa.Table:
    """``first`` (id, path), then split and identity, then every other column of the table."""
    known = [name for name in source.column_names if name not in leave_out]
    named_text = [name for name in named.values() if name and name in known]
    table = source.read(known, text=named_text).replace_schema_metadata()
    columns = dict(first)
    for role in ("split", "identity"):
        name = named.get(role)
        if name:
            values = [None if v is None else str(v) for v in table.column(name).to_pylist()]
            made = split_words(values, name, source.name, spec) if role == "split" else values
            columns[role] = made
    for name in known:
        if name not in columns and name != named.get("path"):
            columns[name] = table.column(name)
    return pa.table(columns)


def split_words(values: Sequence[str | None], column: str, file: str, spec: DataSpec) -> list[str]:
    """train, val, test or nothing for every row; another word, or a split without rows, is an
    error before anything is read."""
    given = [(v or "").strip() for v in values]
    words = [_SPLIT_WORDS.get(word.lower(), word) for word in given]
    if spec.split not in ("auto", "official"):
        return words  # the splits are drawn, and the column is an attribute like others
    odd = sorted(set(words) - {*SPLITS, ""})
    if odd:
        shown = ", ".join(repr(word) for word in odd[:5])
        raise DataError(
            f"the column {column!r} of {file} holds {shown}; write train, val or "
            "test, leave the cell empty to leave a row out, or name another column with "
            "--split-column"
        )
    missing = [split for split in SPLITS if split not in words]
    if missing:
        raise DataError(
            f"the column {column!r} of {file} has no row of "
            f"{' and '.join(missing)}; give each split some rows, or rename the column to let "
            "the splits be drawn"
        )
    return words
