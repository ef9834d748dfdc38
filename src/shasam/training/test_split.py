"""The test split is opened here and nowhere else, and every opening is written to the log."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.runs.log import RunLog, read_log
from shasam.training.inference import TrainingData


def open_test(data: TrainingData, log: RunLog, reason: str) -> Tensor:
    """The rows of the test split; the opening is logged before they are handed out."""
    log.write("test_opened", reason=reason)
    return torch.as_tensor(data.rows("test"))


def times_opened(log: RunLog) -> int:
    """How often the test split of a run has been opened."""
    lines = read_log(log.path) if log.path is not None and log.path.exists() else log.lines
    return sum(line["event"] == "test_opened" for line in lines)
