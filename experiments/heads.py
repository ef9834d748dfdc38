"""Are features fair, or only a classifier? The table of ``experiments/faces/heads.json``.

``python -m experiments.heads experiments/faces/heads.json`` prints each fairness part on against
off, as a classifier sees it that was trained on the frozen features and the biased training split
as it is (one hidden layer of 256, ten epochs, AdamW 1e-3), read on validation. Runs of today have
the same in ``metrics.json``, under ``natural_head``; these were made before.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from shasam.metrics import compare_seeds

# features of a method, and those of what is left of it when its fairness part is off
PAIRS = [
    (("grl", "encoder"), ("ce", "encoder")),
    (("lnl", "encoder"), ("ce", "encoder")),
    (("reweight", "encoder"), ("ce", "encoder")),
    (("groupdro", "encoder"), ("ce", "encoder")),
    (("balanced", "encoder"), ("ce", "encoder")),
    (("mfd", "encoder"), ("balanced", "encoder")),
    (("shasam", "encoder"), ("balanced", "encoder")),
    (("shasam", "projection"), ("balanced", "encoder")),
    (("balanced-hidden", "hidden"), ("balanced", "encoder")),
    # a layer of the same width between features and classes, without a set objective
    (("shasam", "projection"), ("balanced-hidden", "hidden")),
    (("fscl", "projection"), ("supcon", "projection")),
    (("fscl+", "projection"), ("supcon", "projection")),
    (("tadet@vit", "encoder"), ("balanced@vit", "encoder")),
    (("tadet-mmd@vit", "encoder"), ("balanced@vit", "encoder")),
    (("fairvit@vit", "encoder"), ("ce@vit", "encoder")),
]


def table(lines: list[dict]) -> str:
    """Markdown: accuracy and EO of the head on natural data, on against off."""
    found: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for line in lines:
        if line["head"] == "natural":
            seeds = found.setdefault((line["row"], line["features"]), {})
            seeds[line["seed"]] = (100 * line["accuracy"], 100 * line["eo_mean"])
    out = [
        "| features of | off | accuracy on | off | EO on | off | EO: on − off |",
        "|---|---|---|---|---|---|---|",
    ]
    for on, off in PAIRS:
        if on not in found or off not in found:
            continue
        seeds = sorted(found[on].keys() & found[off].keys())
        both = [[found[side][seed] for seed in seeds] for side in (on, off)]
        means = [statistics.fmean(v[k] for v in side) for k in (0, 1) for side in both]
        c = compare_seeds([v[1] for v in both[0]], [v[1] for v in both[1]])
        cells = [f"`{on[0]}`, {on[1]}", f"`{off[0]}`, {off[1]}", *(f"{m:.1f}" for m in means)]
        cells.append(f"{c.difference:+.1f} ({c.low:+.1f} to {c.high:+.1f})")
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def table_of(path: Path) -> str:
    """The table of a file that this script has written."""
    return table(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    print(table_of(Path(sys.argv[1])))
