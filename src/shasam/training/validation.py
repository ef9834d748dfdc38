"""Two numbers for the eye while a model trains; reports are made by ``shasam.metrics``."""

from __future__ import annotations

from torch import Tensor


def quick_metrics(prediction: Tensor, t: Tensor, s: Tensor) -> dict[str, float]:
    """Accuracy, and EO as the mean over classes and pairs of groups of the gap in cell accuracy."""
    right = (prediction == t).double()
    gaps = []
    groups = s.unique().tolist()
    for i in t.unique().tolist():
        cells = [right[(t == i) & (s == j)] for j in groups]
        rates = [float(cell.mean()) for cell in cells if len(cell)]
        gaps += [abs(a - b) for n, a in enumerate(rates) for b in rates[n + 1 :]]
    return {
        "accuracy": float(right.mean()),
        "eo_mean": sum(gaps) / len(gaps) if gaps else float("nan"),
    }
