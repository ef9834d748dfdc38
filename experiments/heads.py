"""Are features fair, or only a classifier?

``python -m experiments.heads experiments/faces/grid.yaml RUN... > experiments/faces/heads.json``

On the frozen features of finished runs, the second stage of the contrastive methods (one hidden
layer of 256, ten epochs, AdamW 1e-3) is trained twice: on the biased training split as it is, and
with its cells weighed alike. A classifier on natural data leans on the group wherever the features
show it. ``scores`` are the method's own class scores taken as features, ``hidden`` the hidden layer
of its classifier where it has one. Read on the validation
split, so that no test split is opened again. ``--table heads.json`` prints each fairness part on
against off, as the head on natural data sees it.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from shasam.data import open_data
from shasam.documents import read_yaml
from shasam.metrics import Counts, compare_seeds, values
from shasam.models import Classifier
from shasam.pipeline.grid import expand_labelled
from shasam.pipeline.load import load
from shasam.training.inference import on_rows

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


def head(x_nD: torch.Tensor, t_n: torch.Tensor, weight_n: torch.Tensor, seed: int) -> Classifier:
    """A classifier on features, its rows weighed."""
    torch.manual_seed(seed)
    classes = int(t_n.max()) + 1
    classifier = Classifier(x_nD.shape[1], 256, classes, standardise=True).train()
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=1e-3)
    for _ in range(10):
        for rows in torch.randperm(len(x_nD)).split(256):
            loss_n = F.cross_entropy(classifier(x_nD[rows]), t_n[rows], reduction="none")
            optimizer.zero_grad()
            (loss_n * weight_n[rows]).mean().backward()
            optimizer.step()
    return classifier.eval()


def heads(run: str, labels: dict[str, str]) -> list[dict[str, object]]:
    """Validation accuracy and EO by kind of features and of head."""
    model = load(run)
    data = open_data(model.spec.data)
    t_N, s_N = torch.tensor(data.manifest.t_N), torch.tensor(data.manifest.s_N)
    rows = {split: torch.as_tensor(data.rows(split)).clone() for split in ("train", "val")}

    def read(images: torch.Tensor) -> dict[str, torch.Tensor]:
        features = model.method.features(images)
        scores = next(iter(model.method.logits(images).values()))
        own = getattr(model.method, "classifier", None)
        if isinstance(own, Classifier) and isinstance(own.hidden, torch.nn.Linear):
            features["hidden"] = F.relu(own.hidden(own.norm(features["encoder"])))
        return {**features, "scores": scores}

    found = {k: on_rows(read, model.method, data, r, model.fabric) for k, r in rows.items()}
    t_n, s_n = t_N[rows["train"]], s_N[rows["train"]]
    cell_n = t_n * (int(s_N.max()) + 1) + s_n
    count = torch.bincount(cell_n).float()
    alike_n = (len(cell_n) / (count.count_nonzero() * count))[cell_n]
    out = []
    for kind in found["train"]:
        for name, weight_n in (("natural", torch.ones(len(t_n))), ("balanced", alike_n)):
            classifier = head(found["train"][kind], t_n, weight_n, model.spec.seed)
            with torch.no_grad():
                guess = classifier(found["val"][kind]).argmax(1)
            codes = [x.numpy() for x in (t_N[rows["val"]], guess, s_N[rows["val"]])]
            names = data.manifest.target_names, data.manifest.sensitive_names
            metrics = values(Counts.from_codes(*codes, *names), ("accuracy", "eo_mean"))
            who = {"row": labels[model.spec.name], "seed": model.spec.seed}
            out.append({**who, "features": kind, "head": name, **metrics})
    return out


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
    torch.set_num_threads(1)
    if sys.argv[1] == "--table":
        print(table_of(Path(sys.argv[2])))
    else:
        known = {r.spec.name: r.label for r in expand_labelled(read_yaml(sys.argv[1]))}
        print(json.dumps([line for run in sys.argv[2:] for line in heads(run, known)], indent=1))
