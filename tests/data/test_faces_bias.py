"""The embedded faces have something to win: bias makes a gap, balance does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from shasam.data import Dataset, DataSpec, open_data
from shasam.data.augment import plain

pytestmark = pytest.mark.slow


def small_network() -> nn.Module:
    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU()]

    sizes = [(3, 16, 2), (16, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2), (64, 96, 1)]
    layers = [layer for size in sizes for layer in block(*size)]
    tail = [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(96 * 16, 2)]
    return nn.Sequential(*layers, *tail)


def cell_accuracy(data: Dataset, epochs: int = 5, batch: int = 64) -> np.ndarray:
    """Train with cross-entropy alone; accuracy (target, group) on the balanced test split."""
    torch.manual_seed(0)
    train, test = data.rows("train"), data.rows("test")
    x, y = plain(data.images(train)), torch.from_numpy(data.t_N[train])
    network, steps = small_network(), epochs * (len(train) // batch)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(train))[: len(train) // batch * batch].split(batch):
            images = x[rows].flip(3) if torch.rand(()) < 0.5 else x[rows]
            loss = nn.functional.cross_entropy(network(images), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        parts = plain(data.images(test)).split(200)
        guess = torch.cat([network(part) for part in parts]).argmax(1).numpy()
    t, s = data.t_N[test], data.s_N[test]
    return np.array([[(guess[(t == i) & (s == j)] == i).mean() for j in (0, 1)] for i in (0, 1)])


@pytest.mark.parametrize(("alpha", "least", "most"), [(None, 15, 45), (1, 0, 8)])
def test_the_default_bias_makes_a_gap_and_balance_does_not(
    tmp_path: Path, alpha: float | None, least: float, most: float
) -> None:
    accuracy = cell_accuracy(open_data(DataSpec(alpha=alpha, store=tmp_path)))
    gap = 100 * np.abs(accuracy[:, 0] - accuracy[:, 1]).mean()
    assert accuracy.mean() > 0.78
    assert least <= gap <= most
