"""Does every method learn, on every seed? The table of methods, profiles and seeds.

``python -m experiments.learns`` trains what is missing, one thread a run, keeps the records here
and prints the table; stopped and started again, it goes on. ``--dry`` prints the table of what is
kept. More data: ``--utkface DIR``, or ``--features``, ``--csv``, ``--target`` and ``--sensitive``;
``--only vectors`` leaves the drawn faces out. ``--reproducible`` holds every library to AVX2 and
marks the rows; the same specifications have the same names, so they are kept in a folder of their
own (``--keep experiments/learns-avx2``). ``--elsewhere`` prints what other experiments recorded.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.learnt import Judged, judged
from shasam.pipeline.sweeps import GridRun, expand_labelled, says, sweep
from shasam.registry import lookup, names
from shasam.runs.machine import ExecutionOptions
from shasam.runs.records import holds_records, keep, read_records

HERE = Path(__file__).parent
PROFILES = ("cpu", "quick", "short")
AVX2 = " (AVX2)"  # behind the name of the data where libraries were held to it
NEAR = 0.05  # of cross-entropy's accuracy on the same seed
# a method that needs another encoder is compared with cross-entropy on it
BASELINE = {"vit": "ce@vit"}


def runs_of(
    data: dict[str, Any], name: str, methods: list[str], profile: str, seeds: range
) -> list[GridRun]:
    """Every method with every seed of a profile on a data set; labels are data, profile, method."""
    entries = []
    for method in methods:
        plain, _, encoder = method.partition("@")
        model = {"model": {"encoder": encoder}} if encoder else {}
        entries.append({"label": f"{name}, {profile}, {method}", "method": plain, **model})
    return expand_labelled(
        {
            "profile": profile,
            "base": {"data": data},
            "grid": {"seed": list(seeds)},
            "runs": entries,
        }
    )


def asked_for(words: argparse.Namespace) -> list[GridRun]:
    """All runs, the first seeds of everything before the next."""
    everywhere: dict[str, dict[str, Any]] = {"faces": {"name": "faces"}}
    if words.utkface:
        everywhere["utkface"] = {"name": "utkface", "root": words.utkface, "alpha": 4}
    if words.features:
        given = ("features", "csv", "target", "sensitive")
        everywhere["vectors"] = {"name": "embeddings"} | {k: getattr(words, k) for k in given}
    chosen = words.methods.split(",") if words.methods else [*names("method"), "ce@vit"]
    found: list[GridRun] = []
    for name, data in everywhere.items():
        if words.only not in (None, name):
            continue
        on_images = name != "vectors"
        own = [m for m in chosen if on_images or not ("@" in m or lookup("method", m).needs_images)]
        for profile in words.profiles.split(","):
            seeds = range(words.first, words.seeds)
            found += runs_of(data, name + AVX2 * words.reproducible, own, profile, seeds)
    return sorted(found, key=lambda run: run.spec.seed)


def table(experiment: Path = HERE) -> str:
    """For each method: how many seeds have learnt, and how many are near cross-entropy."""
    records = {record.run: record for record in read_records(experiment)}
    skill: dict[str, dict[int, Any]] = {}
    eo: dict[str, list[float]] = {}
    encoder: dict[str, str] = {}
    for run in judged(experiment):
        record = records[run.run]
        skill.setdefault(run.label, {})[run.seed] = run.skill
        eo.setdefault(run.label, []).append(record.metrics["test"]["eo_mean"]["value"])
        encoder[run.label] = str(record.spec["model"]["encoder"])
    lines = [
        "| data | profile | method | seeds | learnt | near ce | accuracy | lowest | EO |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for label, found in sorted(skill.items()):
        data, profile, method = label.split(", ")
        base = skill.get(f"{data}, {profile}, {BASELINE.get(encoder[label], 'ce')}", {})
        shared = [seed for seed in found if seed in base]
        near = sum(found[seed].accuracy >= base[seed].accuracy - NEAR for seed in shared)
        accuracy = [100 * one.accuracy for one in found.values()]
        cells = [
            *(data, profile, method, str(len(found))),
            str(sum(one.learnt for one in found.values())),
            f"{near} of {len(shared)}" if shared else "–",
            f"{statistics.mean(accuracy):.1f}",
            f"{min(accuracy):.1f}",
            f"{100 * statistics.mean(eo[label]):.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def of_other_experiments() -> Iterator[tuple[str, str, str, Judged]]:
    """Yield runs that were made for other questions: experiment, setting, row, verdict."""
    for run in judged(HERE.parent / "faces"):
        yield "drawn faces, quick", "", run.label, run
    for run in judged(HERE.parent / "tables-utkface"):
        row, _, alpha = run.label.rpartition(" alpha ")
        yield "UTKFace, images, short", alpha, row, run
    for run in judged(HERE.parent / "frontier"):
        setting, _, row = run.label.partition(", ")
        if setting.startswith("utkface"):
            yield "UTKFace, vectors, frozen", setting, row, run


def elsewhere() -> str:
    """Judge records of other experiments: a line for each row over its settings."""
    base: dict[tuple[str, str, bool, int], float] = {}
    rows: dict[tuple[str, str], list[tuple[str, Judged]]] = {}
    for data, setting, row, run in of_other_experiments():
        rows.setdefault((data, row), []).append((setting, run))
        if row.lower() in ("ce", "ce@vit", "ce (vit)"):
            base[data, setting, _on_vit(row), run.seed] = run.skill.accuracy
    lines = [
        "| data and profile | row | runs | learnt | near ce | accuracy | lowest |",
        "|---|---|---|---|---|---|---|",
    ]
    for (data, row), found in rows.items():
        pairs = [
            (run.skill.accuracy, base[key])
            for setting, run in found
            if (key := (data, setting, _on_vit(row), run.seed)) in base
        ]
        accuracy = [100 * run.skill.accuracy for _, run in found]
        cells = [
            *(data, row, str(len(found))),
            str(sum(run.skill.learnt for _, run in found)),
            f"{sum(own >= ce - NEAR for own, ce in pairs)} of {len(pairs)}",
            f"{statistics.mean(accuracy):.1f}",
            f"{min(accuracy):.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _on_vit(row: str) -> bool:
    return "vit" in row.lower()


def main(words: list[str] | None = None) -> None:
    """Train what is missing, keep it, print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.learns", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/learns"))
    parser.add_argument("--keep", type=Path, default=HERE)
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--methods", default="")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=20, help="the seed after the last")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--utkface", type=Path)
    parser.add_argument("--only", choices=("faces", "utkface", "vectors"))
    for name in ("features", "csv", "target", "sensitive"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--reproducible", action="store_true")
    parser.add_argument("--engine", choices=("local", "inline"), default="local")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--elsewhere", action="store_true")
    given = parser.parse_args(words)
    if given.elsewhere:
        print(elsewhere())
        return
    if not given.dry:
        runs = asked_for(given)
        kept = {r.run for r in read_records(given.keep)} if holds_records(given.keep) else set()
        missing = [run for run in runs if run.spec.name not in kept]
        print(f"{len(runs)} runs, {len(runs) - len(missing)} of them kept in {given.keep}")
        labels = {run.spec.name: run.label for run in missing}
        how = ExecutionOptions(
            jobs=given.jobs if given.engine == "local" else None,  # inline is one after the other
            threads=1,
            reproducible=given.reproducible,
            engine=given.engine,
        )
        done = sweep([run.spec for run in missing], given.out, how, tell=lambda o: print(says(o)))
        keep([o.path for o in done if o.status != "failed"], given.keep, labels)
    print(table(given.keep))
