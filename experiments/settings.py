"""The comparisons of earns-its-keep in several settings: ``python -m experiments.settings``.

One table for each question, one line for each setting. Differences are paired over seeds, with
Student's 95 % interval; p-values are adjusted by Holm over the settings of a table.
"""

from __future__ import annotations

from pathlib import Path

from experiments.paired import both, interval, shown
from shasam.metrics import holm
from shasam.runs.records import by_label, read_records

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "embeddings-utkface-4": "UTKFace, ethnicity, α = 4",
    "embeddings-utkface-20": "UTKFace, ethnicity, α = 20",
    "embeddings-races": "UTKFace, five races",
    "embeddings-race-age": "UTKFace, ten groups (race & age)",
    "embeddings-celeba-am": "CelebA a/m",
    "embeddings-celeba-bm": "CelebA b/m",
    "embeddings-celeba-amy": "CelebA a/m&y, four groups",
}
# question -> row, the row it is compared with, the metric that is tested, one that is shown beside
QUESTIONS = {
    "Is the representation fairer than that of a hidden layer? EO of the natural head": (
        "shasam:natural.projection",
        "balanced-hidden:natural.hidden",
        "eo_mean",
        "accuracy",
    ),
    "Is that the set objective's doing? EO of the natural head, against its weight 0": (
        "shasam:natural.projection",
        "shasam weight 0:natural.projection",
        "eo_mean",
        "accuracy",
    ),
    "Can the group still be read from it? Probes within a class, per cent": (
        "shasam:probe.projection",
        "balanced-hidden:probe.hidden",
        "linear_within_class",
        "mlp_within_class",
    ),
    "Does mining help? Accuracy": ("shasam", "shasam nothing mined", "accuracy", "eo_mean"),
    "Is the classifier fairer than balanced cross-entropy? EO": (
        "shasam",
        "balanced",
        "eo_mean",
        "accuracy",
    ),
    "Do all sets mined help? Accuracy": (
        "shasam all mined",
        "shasam nothing mined",
        "accuracy",
        "eo_mean",
    ),
}
NAMES = {
    "eo_mean": "EO",
    "accuracy": "accuracy",
    "linear_within_class": "linear probe",
    "mlp_within_class": "MLP probe",
}


def table(question: str) -> str:
    """Markdown: a line for every setting that was run."""
    on, off, tested, beside = QUESTIONS[question]
    lines = []
    for folder, name in SETTINGS.items():
        if (HERE / folder / "records.parquet").is_file():
            rows = by_label(read_records(HERE / folder))
            lines.append((name, both(rows, on, off, tested), both(rows, on, off, beside)))
    adjusted = holm([c.p for _, (c, _), _ in lines])
    out = [
        f"**{question}**: {on} minus {off}",
        "",
        f"| setting | seeds | {NAMES[tested]} | difference | p, Holm | "
        f"{NAMES[beside]} | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, (c, means), (aside, others)), p in zip(lines, adjusted, strict=True):
        cells = (name, str(c.support), " / ".join(means), interval(c), shown(p))
        out.append("| " + " | ".join((*cells, " / ".join(others), interval(aside))) + " |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print("\n".join(table(question) for question in QUESTIONS))
