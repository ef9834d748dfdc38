"""The labels of a source, looked at before any image is read: what is missing, what is written in
two ways, and a target that is the sensitive attribute."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict

import numpy as np

from shasam.data.manifest import Manifest
from shasam.data.protocol import Protocol
from shasam.data.rules import NO_VALUE_REASON, Labelling, apply_rule
from shasam.data.source import Source
from shasam.errors import DataError, ShasamWarning
from shasam.tables.missing import MISSING_WORDS, advice

_TARGET, _SENSITIVE = "target", "sensitive attribute"
_SHOWN = 5  # names in a message


def check_labels(source: Source, protocol: Protocol) -> None:
    """Refuse labels that nothing can be learnt from; warn about names that look alike."""
    table = source.table()
    if protocol.split == "official" and "split" in table.column_names:
        kept = [bool(word) for word in table.column("split").to_pylist()]
        table = table.filter(kept)  # rows without a split are left out in any case
    where = source.spec.csv.name if source.spec.csv is not None else source.spec.name
    found = {}
    for what, rule in ((_TARGET, protocol.target), (_SENSITIVE, protocol.sensitive)):
        labelling = found[what] = apply_rule(rule, table, source.labels, what)
        _missing(labelling, source, what, where, table.num_rows)
        for warning in odd_names(labelling.names, what, rule, where):
            warnings.warn(warning, ShasamWarning, stacklevel=3)
    _differ(found[_TARGET], found[_SENSITIVE], protocol)


def warn_of_empty_cells(manifest: Manifest) -> None:
    """Say before training on which split equalised odds will have no value."""
    cells = manifest.t_N * len(manifest.sensitive_names) + manifest.s_N
    names = [
        f"{t!r} in group {s!r}" for t in manifest.target_names for s in manifest.sensitive_names
    ]
    for split in ("val", "test"):
        count = np.bincount(cells[manifest.rows(split)], minlength=len(names))
        empty = [f"class {names[cell]}" for cell in np.flatnonzero(count == 0)]
        if empty:
            more = f" and {len(empty) - _SHOWN} other cells" if len(empty) > _SHOWN else ""
            warnings.warn(
                f"the {split} split has no row of {', '.join(empty[:_SHOWN])}{more}: equalised "
                "odds is undefined there. Merge small groups by a rule, or give more rows",
                ShasamWarning,
                stacklevel=3,
            )


def _missing(labelling: Labelling, source: Source, what: str, where: str, total: int) -> None:
    rows = Counter(
        reason.removesuffix(NO_VALUE_REASON)
        for reason in labelling.reasons.values()
        if reason.endswith(NO_VALUE_REASON)
    )
    group = source.spec.missing == "group" and what == _SENSITIVE
    if not rows or group or source.spec.missing == "drop":
        return
    (column, count), *_ = rows.most_common()
    raise DataError(advice(column, count, total, where))


def odd_names(names: tuple[str, ...], what: str, rule: str, where: str) -> list[str]:
    """Sentences about classes that differ by case or spaces, and about words for "no value"."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[" ".join(name.split()).casefold()].append(name)
    said = [
        f"the {what} {rule!r} has {_quoted(same)} as classes of their own, which differ only by "
        f"case or spaces; spell them alike in {where} if they mean the same"
        for same in alike.values()
        if len(same) > 1
    ]
    empty = [name for plain, same in alike.items() if plain in MISSING_WORDS for name in same]
    if empty:
        said.append(
            f"the {what} {rule!r} has {_quoted(empty)} as a class of its own; if it means that "
            f"there is no value, leave the cell of {where} empty and say --missing drop"
        )
    return said


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")


def _differ(target: Labelling, sensitive: Labelling, protocol: Protocol) -> None:
    """Each class has images of two groups, or equalised odds cannot be asked for."""
    both = (target.codes >= 0) & (sensitive.codes >= 0)
    cells_CG = np.zeros((len(target.names), len(sensitive.names)), dtype=bool)
    cells_CG[target.codes[both], sensitive.codes[both]] = True
    if protocol.target != protocol.sensitive and (cells_CG.sum(1) > 1).any():
        return
    raise DataError(
        f"the target {protocol.target!r} and the sensitive attribute {protocol.sensitive!r} say "
        "the same: no class has rows of two groups, so groups cannot be compared. Choose another "
        "column or rule with --target or --sensitive"
    )
