"""Target, sensitive attribute and splits: from a listing of images to a manifest.

Ranks within a cell come from SHA-256 of (seed, id), so a split does not depend on the order of
files, the number of workers or a library's random generator.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from shasam.data.manifest import SCHEMA, SPLITS, Manifest
from shasam.data.rules import apply_rule, with_missing_group
from shasam.data.source import Exclusion, Label
from shasam.errors import DataError
from shasam.tables.missing import Missing

_NOT_DRAWN = "not drawn"
_SHARES = {"test": 0.2, "val": 0.1}  # of each cell, for split="stratified"


def cell_counts(n: int, alpha: float, classes: int, group: int, flip: bool) -> list[int]:
    """Training images of each class in a group of n: one class alpha times each other.

    Group j favours class j mod C (flipped: C - 1 - j mod C), as UTKFace's Caucasians favour men and
    the others women in FSCL's protocol.
    """
    minor = n / (alpha + classes - 1)
    favoured = group % classes
    favoured = classes - 1 - favoured if flip else favoured
    counts = [round(minor)] * classes
    counts[favoured] = n - round(minor) * (classes - 1)
    return counts


@dataclass(frozen=True)
class Protocol:
    """``Protocol(source, target, sensitive, alpha, split, seed)``; ``manifest`` builds the rows."""

    source: str
    target: str
    sensitive: str
    alpha: float = 1.0
    split: str = "stratified"  # official, balanced, stratified
    seed: int = 0
    n_per_group: int | None = None
    holdout_per_cell: int = 400
    flip_direction: bool = False

    def manifest(
        self,
        table: pa.Table,
        content_hash: Sequence[str],
        *,
        labels: Mapping[str, Label] | None = None,
        excluded: Sequence[Exclusion] = (),
        notes: Sequence[str] = (),
        missing: Missing = "drop",
    ) -> Manifest:
        """Label, drop duplicates, split. ``table`` holds readable images only, sorted by id."""
        ids = table.column("id").to_pylist()
        hashes = list(content_hash)
        t = apply_rule(self.target, table, labels, "target")
        s = apply_rule(self.sensitive, table, labels, "sensitive attribute")
        if missing == "group":
            s = with_missing_group(s)
        out = list(excluded)
        why: dict[int, str] = {}
        for labelling in (t, s):
            for row, reason in labelling.reasons.items():
                why.setdefault(row, reason)
        kept = np.array([row not in why for row in range(len(ids))], dtype=bool)
        why.update(duplicates(hashes, ids, t.codes, s.codes, kept))
        kept &= np.array([row not in why for row in range(len(ids))], dtype=bool)
        split, left, said = self._split(table, ids, t.codes, s.codes, kept, t.names, s.names)
        # images that were not drawn are counted; everything else is listed by name
        why.update({r: reason for r, reason in left.items() if not reason.startswith(_NOT_DRAWN)})
        counts = Counter(reason for reason in left.values() if reason.startswith(_NOT_DRAWN))
        said += [f"{count} rows {reason}" for reason, count in sorted(counts.items())]
        out += [Exclusion(ids[row], reason) for row, reason in sorted(why.items())]
        rows = np.flatnonzero(np.array([name in SPLITS for name in split]))
        if not len(rows):
            raise DataError("no row is left after labelling; see `shasam data check`")
        columns = [
            [ids[r] for r in rows],
            table.column("path").take(pa.array(rows)).to_pylist(),
            [hashes[r] for r in rows],
            t.codes[rows],
            s.codes[rows],
            [split[r] for r in rows],
        ]
        built = pa.table(
            [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )
        return Manifest(
            built, t.names, s.names, asdict(self), [vars(e) for e in out], [*notes, *said]
        )

    def _split(
        self,
        table: pa.Table,
        ids: list[str],
        t: np.ndarray,
        s: np.ndarray,
        kept: np.ndarray,
        t_names: tuple[str, ...],
        s_names: tuple[str, ...],
    ) -> tuple[list[str], dict[int, str], list[str]]:
        if self.split == "official":
            if "split" not in table.column_names:
                raise DataError(
                    f"{self.source} has no splits of its own; use --split stratified or balanced"
                )
            own = table.column("split").to_pylist()
            odd = {r: f"split {own[r]!r} is not one of {SPLITS}" for r in range(len(ids))
                   if kept[r] and own[r] not in SPLITS}  # fmt: skip
            return (
                [own[r] if kept[r] else "" for r in range(len(ids))],
                odd,
                _crossings(table, own, kept),
            )
        units = _units(table, ids, kept, self.seed)
        cell = t * len(s_names) + s
        cells = len(t_names) * len(s_names)
        have = np.bincount(cell[kept], minlength=cells)
        if self.split == "stratified":
            want = {name: np.floor(have * share).astype(int) for name, share in _SHARES.items()}
            split, left = _fill(units, cell, want, len(ids), exact=False)
            return split, left, []
        if self.split != "balanced":
            raise DataError(
                f"there is no split {self.split!r}; choose official, balanced or stratified"
            )
        return self._balanced(units, ids, cell, have, t_names, s_names)

    def _balanced(
        self,
        units: list[list[int]],
        ids: list[str],
        cell: np.ndarray,
        have: np.ndarray,
        t_names: tuple[str, ...],
        s_names: tuple[str, ...],
    ) -> tuple[list[str], dict[int, str], list[str]]:
        """Equal cells for val and test; a training split whose groups have n rows at bias alpha."""
        classes, groups, said = len(t_names), len(s_names), []
        names = [f"{a} / {b}" for a in t_names for b in s_names]
        hold = min(self.holdout_per_cell, int(have.min()) // 4)
        if hold < 1:
            small = names[int(have.argmin())]
            raise DataError(
                f"the cell {small} has {have.min()} rows, too few for a balanced split; "
                f"choose another target or sensitive attribute, or --split stratified"
            )
        if hold < self.holdout_per_cell:
            said.append(
                f"{hold} instead of {self.holdout_per_cell} rows per cell for val and for test: "
                f"{names[int(have.argmin())]} has only {have.min()}"
            )
        want = {"test": np.full(len(have), hold), "val": np.full(len(have), hold)}
        split, left = _fill(units, cell, want, len(ids), exact=True)
        free = np.bincount(
            [cell[r] for r in range(len(ids)) if split[r] == "train"], minlength=len(have)
        )

        def counts(n: int) -> np.ndarray:
            table = np.array(
                [cell_counts(n, self.alpha, classes, g, self.flip_direction) for g in range(groups)]
            )
            return table.T.reshape(-1)  # cell = class * groups + group

        wanted = self.n_per_group or int(free.sum())
        low, high = 0, wanted  # the largest n whose cells are all there
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if (counts(middle) <= free).all() else (low, middle - 1)
        if low < classes:
            raise DataError(
                "too few rows are left for training after those held out for val and test; lower "
                "--holdout-per-cell, or give more rows"
            )
        if self.n_per_group and low < self.n_per_group:
            short = int((free - counts(self.n_per_group)).argmin())
            said.append(
                f"{low} instead of {self.n_per_group} training rows per group: "
                f"{names[short]} has {free[short]} left and "
                f"{counts(self.n_per_group)[short]} were wanted"
            )
        quota = counts(low).tolist()
        for unit in units:
            for row in unit:
                if split[row] != "train":
                    continue
                if quota[cell[row]] > 0:
                    quota[cell[row]] -= 1
                else:
                    split[row] = ""
                    left[row] = f"{_NOT_DRAWN}: their cell is full"
        return split, left, said


def duplicates(
    hashes: Sequence[str], ids: Sequence[str], t: np.ndarray, s: np.ndarray, kept: np.ndarray
) -> dict[int, str]:
    """Rows to leave out: all but the first of equal files, or all of them if labels disagree."""
    groups: dict[str, list[int]] = defaultdict(list)
    for row, value in enumerate(hashes):
        if kept[row]:
            groups[value].append(row)
    out: dict[int, str] = {}
    for rows in groups.values():
        if len(rows) < 2:
            continue
        first = rows[0]
        if len({(int(t[r]), int(s[r])) for r in rows}) > 1:
            for r in rows:
                other = rows[1] if r == first else first
                out[r] = f"duplicate of {ids[other]} with another label"
        else:
            for r in rows[1:]:
                out[r] = f"duplicate of {ids[first]}"
    return out


def _units(table: pa.Table, ids: list[str], kept: np.ndarray, seed: int) -> list[list[int]]:
    """Rows that must stay together (one person), in the random order of the seed."""
    people: Sequence[object] = ids
    if "identity" in table.column_names:
        own = table.column("identity").to_pylist()
        people = [f"#{p}" if p is not None else i for p, i in zip(own, ids, strict=True)]
    units: dict[object, list[int]] = defaultdict(list)
    for row in np.flatnonzero(kept).tolist():
        units[people[row]].append(row)
    rank = {p: hashlib.sha256(f"{seed}\n{p}".encode()).digest() for p in units}
    return [units[p] for p in sorted(units, key=rank.__getitem__)]


def _fill(
    units: list[list[int]],
    cell: np.ndarray,
    want: Mapping[str, np.ndarray],
    rows: int,
    *,
    exact: bool,
) -> tuple[list[str], dict[int, str]]:
    """Give test and val what they want, the rest to train; a unit never crosses.

    With ``exact`` the rest of a person whose cell is full is not drawn; else it comes along.
    """
    split = [""] * rows
    left: dict[int, str] = {}
    quota = {name: counts.tolist() for name, counts in want.items()}
    for unit in units:
        for name in quota:
            if any(quota[name][cell[r]] > 0 for r in unit):
                for r in unit:
                    if quota[name][cell[r]] > 0 or not exact:
                        quota[name][cell[r]] -= 1
                        split[r] = name
                    else:
                        left[r] = f"{_NOT_DRAWN}: the same person is in {name}, whose cell is full"
                break
        else:
            for r in unit:
                split[r] = "train"
    return split, left


def _crossings(table: pa.Table, own: list[str], kept: np.ndarray) -> list[str]:
    if "identity" not in table.column_names:
        return []
    seen: dict[object, set[str]] = defaultdict(set)
    for row, person in enumerate(table.column("identity").to_pylist()):
        if kept[row] and person is not None:
            seen[person].add(own[row])
    crossing = [str(p) for p, splits in seen.items() if len(splits) > 1]
    if crossing:
        raise DataError(
            f"{len(crossing)} people are in more than one split of the table "
            f"({', '.join(crossing[:3])}, ...); put each in one split, or drop the split column"
        )
    return []
