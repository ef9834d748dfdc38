"""What was tried on validation: ``python -m experiments.tuned experiments/faces-tuning``.

Validation accuracy and EO of every run, by method, what was tried, and seed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shasam.runs.records import Record, read_records

TRIED = ("strength", "reversal", "reversal_factor", "entropy", "slope", "tap", "distance")
RATES = ("lr", "warmup", "clip")  # of the learning stage


def last_validation(record: Record) -> str:
    """Accuracy / EO in per cent at the end of training."""
    val = [line["val"] for line in record.log if line.get("val")][-1]
    return f"{100 * val['accuracy']:.1f} / {100 * val['eo_mean']:.1f}"


def table(experiment: Path) -> str:
    """Markdown, one column for each seed."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for record in read_records(experiment):
        options, learn = record.spec["options"], record.spec["train"]["learn"]
        tried = [f"{key} {options[key]}" for key in TRIED if options.get(key) is not None]
        tried += [f"{key} {learn[key]}" for key in RATES]
        row = found.setdefault((record.label, ", ".join(tried)), {})
        row[record.seed] = last_validation(record)
    seeds = sorted({seed for row in found.values() for seed in row})
    out = [
        f"| method | setting | {' | '.join(f'seed {seed}' for seed in seeds)} |",
        f"|---|---|{'---|' * len(seeds)}",
    ]
    for (name, tried), row in sorted(found.items()):
        out.append(f"| `{name}` | {tried} | {' | '.join(row.get(s, '') for s in seeds)} |")
    return "\n".join(out)


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
