"""What was tried on validation: ``python -m experiments.tuned RECORDS``.

Validation accuracy and EO of every run, by method, what was tried, and seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from experiments.keep import row_of

TRIED = ("strength", "reversal", "reversal_factor", "entropy", "slope", "tap", "distance")
RATES = ("lr", "warmup", "clip")  # of the learning stage


def last_validation(run: Path) -> str:
    """Accuracy / EO in per cent at the end of training."""
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    val = [found["val"] for found in map(json.loads, lines) if found.get("val")][-1]
    return f"{100 * val['accuracy']:.1f} / {100 * val['eo_mean']:.1f}"


def table(records: Path) -> str:
    """Markdown, one column for each seed."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for run in sorted(records.glob("*/*")):
        spec = yaml.safe_load((run / "spec.yaml").read_text(encoding="utf-8"))
        options, learn = spec["options"], spec["train"]["learn"]
        tried = [f"{key} {options[key]}" for key in TRIED if options.get(key) is not None]
        tried += [f"{key} {learn[key]}" for key in RATES]
        row = found.setdefault((row_of(spec), ", ".join(tried)), {})
        row[spec["seed"]] = last_validation(run)
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
