"""Decide which image is in which split with which labels, with one SHA-256 for all of it."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shasam.data.rules import (
    NO_VALUE_REASON,
    Labelling,
    along,
    apply_rule,
    crossed,
    number_rule,
    with_missing_group,
)
from shasam.data.source import Exclusion, Label, Source
from shasam.errors import Argument, DataError, FileError, ShasamWarning
from shasam.files import atomic_file
from shasam.tables import MISSING_WORDS, UNKNOWN, MissingInTraining, advice, read_parquet

# -------------------------------------------------------------------------------------------------
# Which image is in which split with which labels, and one SHA-256 for the whole.
#
# The hash is over the rows in the order of their ids and over the names of classes and groups;
# where the files are, in which order they were listed and by how many workers read does not enter.
# -------------------------------------------------------------------------------------------------

SPLITS = ("train", "val", "test")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("path", pa.string()),
        ("content_hash", pa.string()),
        ("target", pa.int64()),
        ("sensitive", pa.int64()),
        ("split", pa.string()),
    ]
)


@dataclass(frozen=True)
class Attribute:
    """One of several sensitive attributes: the rule that it was asked for by, and its groups."""

    name: str
    groups: tuple[str, ...]


def schema_of(attributes: int = 0, number: bool = False) -> pa.Schema:
    """Name the columns of a manifest; with several attributes ``sensitive`` is their intersection.

    Of a sensitive ``number`` it is the quarter of the rows, and the number has its own column.
    """
    more = [pa.field(f"attribute_{k}", pa.int64()) for k in range(attributes)]
    more += [pa.field("number", pa.float64())] if number else []
    return pa.schema([*SCHEMA, *more])


@dataclass(frozen=True)
class Manifest:
    """Rows sorted by id; what was left out and why stands beside them in ``excluded``.

    With several sensitive attributes ``attributes`` names them, and the table has a column of codes
    for each. ``number`` names a sensitive attribute that is followed as a number; among several the
    attribute is the quarter of it.
    """

    table: pa.Table = field(repr=False)
    target_names: tuple[str, ...]
    sensitive_names: tuple[str, ...]
    protocol: Mapping[str, Any] = field(default_factory=dict, repr=False)
    excluded: Sequence[Mapping[str, str]] = field(default_factory=list, repr=False)
    notes: Sequence[str] = field(default_factory=list)
    attributes: tuple[Attribute, ...] = ()
    number: str = ""

    def __post_init__(self) -> None:
        wanted = schema_of(len(self.attributes), bool(self.number)).names
        if self.table.schema.names != wanted:
            raise DataError(
                f"a manifest has the columns {', '.join(wanted)}; this table has "
                f"{', '.join(self.table.schema.names)}"
            )
        ids = self.table.column("id").to_numpy(zero_copy_only=False)
        if len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all()):
            raise DataError("the ids of a manifest must be sorted and unique")

    def __len__(self) -> int:
        return self.table.num_rows

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        names: list[Any] = [list(self.target_names), list(self.sensitive_names)]
        names += [[a.name, *a.groups] for a in self.attributes]
        names += [self.number] if self.number else []
        digest.update(json.dumps(names, ensure_ascii=True).encode())
        for batch in self.table.to_batches(max_chunksize=4096):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                digest.update(json.dumps(row, ensure_ascii=True).encode() + b"\n")
        return digest.hexdigest()

    @cached_property
    def t_N(self) -> np.ndarray:
        return self.table.column("target").to_numpy()

    @cached_property
    def s_N(self) -> np.ndarray:
        return self.table.column("sensitive").to_numpy()

    @cached_property
    def attribute_codes(self) -> tuple[np.ndarray, ...]:
        """The groups (N,) of every row by each of several attributes; none if there is one."""
        count = len(self.attributes)
        return tuple(self.table.column(f"attribute_{k}").to_numpy() for k in range(count))

    @cached_property
    def number_N(self) -> np.ndarray | None:
        """The sensitive number (N,) of every row, NaN if a row has none; None of groups."""
        if not self.number:
            return None
        return self.table.column("number").to_numpy(zero_copy_only=False).astype(np.float64)

    def rows(self, split: str) -> np.ndarray:
        """Return row numbers (int64) of a split."""
        if split not in SPLITS:
            raise DataError(f"there is no split {split!r}; there are {', '.join(SPLITS)}")
        return np.flatnonzero(self._split == split).astype(np.int64)

    @cached_property
    def _split(self) -> np.ndarray:
        return self.table.column("split").to_numpy(zero_copy_only=False)

    def metadata(self) -> dict[str, str]:
        """Hash, names and protocol: what every Parquet file of a run says about its data."""
        several = bool(self.attributes)
        return {
            "sha256": self.sha256,
            "target_names": json.dumps(list(self.target_names)),
            "sensitive_names": json.dumps(list(self.sensitive_names)),
            "protocol": json.dumps(dict(self.protocol), sort_keys=True),
            **({"attributes": json.dumps(list(map(asdict, self.attributes)))} if several else {}),
            **({"number": self.number} if self.number else {}),
        }

    def save(self, path: str | Path) -> None:
        """Write Parquet, whole or not at all."""
        metadata = {
            **self.metadata(),
            "excluded": json.dumps([dict(e) for e in self.excluded]),
            "notes": json.dumps(list(self.notes)),
        }
        with atomic_file(path) as file:
            pq.write_table(self.table.replace_schema_metadata(metadata), file)

    @classmethod
    def load(cls, path: str | Path, *, within: Path | None = None) -> Manifest:
        """Read a manifest and check that its rows still have the hash they were saved with."""
        try:
            table = read_parquet(path, within=within)
            metadata = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        except (FileError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read as a manifest: {error}") from error
        missing = {"sha256", "target_names", "sensitive_names"} - set(metadata)
        if missing:
            raise DataError(f"{path} is not a manifest: its metadata lacks {sorted(missing)}")
        try:
            attributes = tuple(
                Attribute(str(found["name"]), tuple(map(str, found["groups"])))
                for found in json.loads(metadata.get("attributes", "[]"))
            )
            number = metadata.get("number", "")
            schema = schema_of(len(attributes), bool(number))
            manifest = cls(
                table.replace_schema_metadata(None).cast(schema).combine_chunks(),
                tuple(json.loads(metadata["target_names"])),
                tuple(json.loads(metadata["sensitive_names"])),
                json.loads(metadata.get("protocol", "{}")),
                json.loads(metadata.get("excluded", "[]")),
                json.loads(metadata.get("notes", "[]")),
                attributes,
                number,
            )
        except (ValueError, TypeError, KeyError, pa.ArrowException, RecursionError) as error:
            raise DataError(f"{path} is not a manifest: {error}") from error
        if manifest.sha256 != metadata["sha256"]:
            raise DataError(
                f"{path} was changed after it was written: its rows hash to "
                f"{manifest.sha256[:16]}, its metadata says {metadata['sha256'][:16]}"
            )
        return manifest


# -------------------------------------------------------------------------------------------------
# Target, sensitive attribute and splits: from a listing of images to a manifest.
#
# Ranks within a cell come from SHA-256 of (seed, id), so a split does not depend on the order of
# files, the number of workers or a library's random generator.
# -------------------------------------------------------------------------------------------------

_TARGET, _SENSITIVE = "target", "sensitive attribute"
_NOT_DRAWN = "not drawn"
QUARTER_OF = "quarter of "  # the groups of a number that stands among several attributes
_SHARES = {"test": 0.2, "val": 0.1}  # of each cell, for split="stratified"


def cell_counts(n: int, alpha: float, classes: int, group: int, flip: bool) -> list[int]:
    """Return training images of each class in a group of n: one class alpha times each other.

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
    attributes: tuple[str, ...] = ()  # several, of which ``sensitive`` is the intersection
    known_groups: float | None = None  # share of the training rows whose group is not hidden
    number: bool = False  # one of the rules is a column that is followed as a number

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of the sensitive attributes, one or several."""
        return self.attributes or (self.sensitive,)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; what is new is left out where it is not used."""
        body = asdict(self)
        if not self.attributes:
            body.pop("attributes")
        if self.known_groups is None:
            body.pop("known_groups")
        if not self.number:
            body.pop("number")
        return body

    def manifest(
        self,
        table: pa.Table,
        content_hash: Sequence[str],
        *,
        labels: Mapping[str, Label] | None = None,
        excluded: Sequence[Exclusion] = (),
        notes: Sequence[str] = (),
        missing: MissingInTraining = "drop",
    ) -> Manifest:
        """Label, drop duplicates, split. ``table`` holds readable images only, sorted by id."""
        ids = table.column("id").to_pylist()
        hashes = list(content_hash)
        t = apply_rule(self.target, table, labels, "target")
        found, followed, number = self._groups(table, labels)
        if missing == "group":
            found = [with_missing_group(labelling) for labelling in found]
        s = found[0] if len(found) == 1 else crossed(found)
        out, why = list(excluded), _without_labels(t, s, missing)
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
        hidden = self._hidden(ids, split, s.codes)
        if hidden.any():
            said.append(f"the group of {hidden.sum()} training rows is hidden")
        codes = [np.where(hidden, -1, labelling.codes)[rows] for labelling in (s, *found)]
        columns = [
            [ids[r] for r in rows],
            table.column("path").take(pa.array(rows)).to_pylist(),
            [hashes[r] for r in rows],
            t.codes[rows],
            codes[0],
            [split[r] for r in rows],
            *(codes[1:] if self.attributes else ()),
            *([] if number is None else [np.where(hidden, np.nan, number)[rows]]),
        ]
        schema = schema_of(len(self.attributes), self.number)
        built = pa.table(
            [pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )
        named = zip(self.attributes, found, strict=bool(self.attributes))
        protocol = self.as_dict() | ({"missing": missing} if missing in UNKNOWN else {})
        return Manifest(
            built,
            t.names,
            s.names,
            protocol,
            [vars(e) for e in out],
            [*notes, *said],
            tuple(
                Attribute(QUARTER_OF + rule if rule == followed else rule, labelling.names)
                for rule, labelling in named
            ),
            followed or "",
        )

    def _groups(
        self, table: pa.Table, labels: Mapping[str, Label] | None
    ) -> tuple[list[Labelling], str | None, np.ndarray | None]:
        """Return the groups of every attribute, the rule that is a number, and its values."""
        followed = number_rule(self.rules, table) if self.number else None
        number: np.ndarray | None = None
        found = []
        for rule in self.rules:
            if rule == followed:
                quarters, number = along(rule, table, _SENSITIVE)
                found.append(quarters)
            else:
                found.append(apply_rule(rule, table, labels, _SENSITIVE))
        return found, followed, number

    def _hidden(self, ids: list[str], split: list[str], s: np.ndarray) -> np.ndarray:
        """Return the training rows whose group is hidden.

        A larger share knows those of a smaller one.
        """
        hidden = np.zeros(len(ids), dtype=bool)
        if self.known_groups is not None:
            rows = [r for r in np.flatnonzero(s >= 0).tolist() if split[r] == "train"]
            rows.sort(
                key=lambda r: hashlib.sha256(f"{self.seed}\ngroup\n{ids[r]}".encode()).digest()
            )
            hidden[rows[max(1, round(self.known_groups * len(rows))) :]] = True
        return hidden

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
                    f"{self.source} has no splits of its own; use ",
                    Argument("data.split", "stratified"),
                    " or balanced",
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
        if (s[kept] < 0).any():  # rows without a group are a cell of each class, after the others
            if self.split == "balanced":
                raise DataError(
                    "a balanced split needs the group of every row; leave out those without one "
                    "with ",
                    Argument("data.missing", "drop"),
                    ", or use ",
                    Argument("data.split", "stratified"),
                )
            cell = np.where(s < 0, cells + t, cell)
            cells += len(t_names)
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
        """Return equal cells for val and test.

        A training split whose groups have n rows at bias alpha.
        """
        classes, groups, said = len(t_names), len(s_names), []
        names = [f"{a} / {b}" for a in t_names for b in s_names]
        hold = min(self.holdout_per_cell, int(have.min()) // 4)
        if hold < 1:
            small = names[int(have.argmin())]
            raise DataError(
                f"the cell {small} has {have.min()} rows, too few for a balanced split; "
                f"choose another target or sensitive attribute, or ",
                Argument("data.split", "stratified"),
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
                "too few rows are left for training after those held out for val and test; lower ",
                Argument("data.holdout_per_cell"),
                ", or give more rows",
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
    """Return rows to leave out: all but the first of equal files, or all of them if labels
    disagree.
    """
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
    """Return rows that must stay together (one person), in the random order of the seed."""
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


# -------------------------------------------------------------------------------------------------
# The labels of a source, looked at before any image is read: what is missing, what is written in
#
# two ways, and a target that is the sensitive attribute.
# -------------------------------------------------------------------------------------------------

_SHOWN = 5  # names in a message
MOST_INTERSECTIONS = 64  # of several sensitive attributes


def check_labels(source: Source, protocol: Protocol) -> None:
    """Refuse labels that nothing can be learnt from; warn about names that look alike."""
    table = source.table()
    if protocol.split == "official" and "split" in table.column_names:
        kept = [bool(word) for word in table.column("split").to_pylist()]
        table = table.filter(kept)  # rows without a split are left out in any case
    where = source.spec.csv.name if source.spec.csv is not None else source.spec.name
    rules = [(_TARGET, protocol.target), *((_SENSITIVE, rule) for rule in protocol.rules)]
    found, problems = label_problems(source, table, rules)
    if problems:
        raise all_of(problems, where)
    for (what, rule), labelling in zip(rules, found, strict=True):
        for warning in odd_names(labelling.names, what, rule, where):
            warnings.warn(warning, ShasamWarning, stacklevel=3)
    target, *attributes = found
    for rule, labelling in zip(protocol.rules, attributes, strict=True):
        _differ(target, labelling, protocol.target, rule)
    if len(attributes) > 1 and source.spec.groups == "cross":
        _few_enough(crossed(attributes), protocol.rules)


def label_problems(
    source: Source, table: pa.Table, rules: Sequence[tuple[str, str]]
) -> tuple[list[Labelling], list[DataError]]:
    """Return the labels that the rules make of a table, and an error for each that cannot be used.

    ``rules`` are pairs of what is labelled, "target" or "sensitive attribute", and its rule.
    """
    where = source.spec.csv.name if source.spec.csv is not None else source.spec.name
    found: list[Labelling] = []
    problems: dict[str, DataError] = {}
    followed = None
    if source.spec.sensitive_as == "number":
        followed = number_rule([rule for what, rule in rules if what == _SENSITIVE], table)
    for what, rule in rules:
        try:
            if what == _SENSITIVE and rule == followed:
                found.append(along(rule, table, what)[0])
            else:
                found.append(apply_rule(rule, table, source.labels, what))
            _missing(found[-1], source, what, where, table.num_rows, rule == followed)
        except DataError as error:
            problems.setdefault(str(error), error)
    return found, list(problems.values())


def all_of(problems: Sequence[DataError], where: str) -> DataError:
    """Return all that is wrong with a table as one error, so that it is mended in one go."""
    if len(problems) == 1:
        return problems[0]
    parts: list[object] = [f"{where} has {len(problems)} problems:"]
    for number, problem in enumerate(problems, 1):
        parts += [f"\n  {number}. ", problem]
    return DataError(*parts)


def warn_of_empty_cells(manifest: Manifest) -> None:
    """Say before training on which split equalised odds will have no value."""
    cells = manifest.t_N * len(manifest.sensitive_names) + manifest.s_N
    known = manifest.s_N >= 0
    names = [
        f"{t!r} in group {s!r}" for t in manifest.target_names for s in manifest.sensitive_names
    ]
    for split in ("val", "test"):
        rows = manifest.rows(split)
        count = np.bincount(cells[rows[known[rows]]], minlength=len(names))
        empty = [f"class {names[cell]}" for cell in np.flatnonzero(count == 0)]
        if empty:
            more = f" and {len(empty) - _SHOWN} other cells" if len(empty) > _SHOWN else ""
            warnings.warn(
                f"the {split} split has no row of {', '.join(empty[:_SHOWN])}{more}: equalised "
                "odds is undefined there. Merge small groups by a rule, or give more rows",
                ShasamWarning,
                stacklevel=3,
            )


def _without_labels(t: Labelling, s: Labelling, missing: MissingInTraining) -> dict[int, str]:
    """Return rows that lack a target, or a group where it must be known, and why."""
    why = dict(t.reasons)
    for row, reason in s.reasons.items():
        if not (missing in UNKNOWN and reason.endswith(NO_VALUE_REASON)):
            why.setdefault(row, reason)
    return why


def _missing(
    labelling: Labelling, source: Source, what: str, where: str, total: int, number: bool
) -> None:
    rows = Counter(
        reason.removesuffix(NO_VALUE_REASON)
        for reason in labelling.reasons.values()
        if reason.endswith(NO_VALUE_REASON)
    )
    group = source.spec.missing in ("group", *UNKNOWN) and what == _SENSITIVE
    if not rows or group or source.spec.missing == "drop":
        return
    (column, count), *_ = rows.most_common()
    ways = advice(column, count, total, where, groups=not number)
    if what == _SENSITIVE:
        ways += [", or let them train the target alone with ", Argument("missing", "use")]
    raise DataError(*ways)


# 3-9 and 10-19 become 03-Sep and Oct-19 where a spreadsheet opens a table
DATE_OF_RANGE = re.compile(
    r"(\d{1,2}[-. ](jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"|(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[-. ]\d{1,2})\Z",
    re.IGNORECASE,
)
DAMAGED = (
    "these look like ranges, such as 3-9, that a spreadsheet has turned into dates; write the "
    "ranges again, and read the column as text next time"
)


def odd_names(names: tuple[str, ...], what: str, rule: str, where: str) -> list[str]:
    """Tell of classes that differ by case or spaces, and of words for "no value", in sentences."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[" ".join(name.split()).casefold()].append(name)
    said = [
        f"the {what} {rule!r} has {_quoted(same)} as classes of their own, which differ only by "
        f"case or spaces; spell them alike in {where} if they mean the same"
        for same in alike.values()
        if len(same) > 1
    ]
    dates = [name for name in names if DATE_OF_RANGE.match(name.strip())]
    if dates:
        said.append(f"the {what} {rule!r} has {_quoted(dates)}: {DAMAGED}")
    empty = [name for plain, same in alike.items() if plain in MISSING_WORDS for name in same]
    if empty:
        said.append(
            f"the {what} {rule!r} has {_quoted(empty)} as a class of its own; if it means that "
            f"there is no value, leave the cell of {where} empty and say missing=drop"
        )
    return said


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")


def _few_enough(cross: Labelling, rules: Sequence[str]) -> None:
    """Refuse more intersections than a batch, and a reader, can hold."""
    if len(cross.names) > MOST_INTERSECTIONS:
        raise DataError(
            f"{' and '.join(map(repr, rules))} make {len(cross.names)} intersections with rows, "
            f"and at most {MOST_INTERSECTIONS} can be groups; give every attribute its own with ",
            Argument("data.groups", "each"),
            f", or write rules that make fewer, such as '{rules[0]}:[0,20,40]'",
        )


def _differ(target: Labelling, sensitive: Labelling, target_rule: str, rule: str) -> None:
    """Check that each class has images of two groups, or equalised odds cannot be asked for."""
    both = (target.codes >= 0) & (sensitive.codes >= 0)
    cells_CG = np.zeros((len(target.names), len(sensitive.names)), dtype=bool)
    cells_CG[target.codes[both], sensitive.codes[both]] = True
    if target_rule != rule and (cells_CG.sum(1) > 1).any():
        return
    raise DataError(
        f"the target {target_rule!r} and the sensitive attribute {rule!r} say "
        "the same: no class has rows of two groups, so groups cannot be compared. Choose another "
        "column or rule with ",
        Argument("data.target"),
        " or ",
        Argument("data.sensitive"),
    )
