from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from shasam.errors import InputError
from shasam.losses import flcmi, unit_length
from shasam.mining import MiningConfig
from shasam.sampling import MiningBatchSampler, batch_triplets

N = 240


def labels() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randint(0, 3, (N,), generator=g), torch.randint(0, 2, (N,), generator=g)


def test_batches_of_a_loader_hold_triplets_of_every_pair():
    t, s = labels()
    sampler = MiningBatchSampler(t, s, batch_size=48, total_steps=10)
    loader = DataLoader(TensorDataset(torch.arange(N), t, s), batch_sampler=sampler)
    assert len(loader) == len(sampler) == 5
    for rows, t_B, s_B in loader:
        assert len(rows) == 48
        found = batch_triplets(t_B, s_B)
        assert {(m.target, m.sensitive) for m in found} == {
            (i, j) for i in range(3) for j in (0, 1)
        }
        sampler.update(rows, torch.randn(48, 8))
    assert sampler.step == 5


def test_negatives_are_hard_once_embeddings_are_known():
    """Some negatives lie among the anchors: mined batches hold more of them than random ones."""
    t, s = labels()
    z = torch.nn.functional.one_hot(t, 4).float() + 0.1 * torch.randn(N, 4)
    hard = torch.arange(N) % 5 == 0
    z[hard] = torch.tensor([0.4, 0.4, 0.4, 0.0]) + 0.05 * torch.randn(int(hard.sum()), 4)
    shares = {}
    for start in (0.0, 1.0):  # mined from the first step on, and never
        mining = {"start": start, "negatives": "flqmi", "ground": 1.0}
        sampler = MiningBatchSampler(t, s, batch_size=36, total_steps=1000, mining=mining, seed=3)
        sampler.update(torch.arange(N), z)
        rows = torch.tensor([batch for _ in range(5) for batch in sampler]).flatten()
        shares[start] = float(hard[rows].float().mean())
    assert shares[0.0] > 1.3 * shares[1.0]


def test_a_cut_loop_draws_the_same_batches_again():
    t, s = labels()

    def made() -> MiningBatchSampler:
        mining = MiningConfig(start=0.1, ramp=0.1)
        return MiningBatchSampler(t, s, batch_size=48, total_steps=15, mining=mining)

    def go(sampler: MiningBatchSampler, epochs: range) -> list[list[int]]:
        seen = []
        for _ in epochs:
            for rows in sampler:
                g = torch.Generator().manual_seed(sampler.step)
                sampler.update(rows, torch.randn(len(rows), 8, generator=g))
                seen.append(rows)
        return seen

    whole = go(made(), range(3))
    first, second = made(), made()
    go(first, range(1))
    second.load_state_dict(first.state_dict())
    assert go(second, range(1, 3)) == whole[5:]


def test_the_loop_of_the_readme_learns():
    torch.manual_seed(0)
    t, s = labels()
    x = torch.randn(N, 16)
    x[:, :3] += 2 * torch.nn.functional.one_hot(t, 3)
    x[:, 3] += 3 * s
    net = torch.nn.Linear(16, 8)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    sampler = MiningBatchSampler(t, s, batch_size=48, total_steps=60)
    losses = []
    for _ in range(12):
        for rows in sampler:
            z = unit_length(net(x[rows]))
            parts = [flcmi(z, m.anchors, m.positives, m.negatives) for m in sampler.triplets(rows)]
            loss = torch.stack(parts).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sampler.update(rows, z)
            losses.append(float(loss))
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_misuse_is_a_sentence():
    t, s = labels()
    with pytest.raises(InputError, match="240 targets came with 10"):
        MiningBatchSampler(t, s[:10], total_steps=5)
    sampler = MiningBatchSampler(t, s, batch_size=48, total_steps=4)
    with pytest.raises(InputError, match="call update"):
        list(sampler)
    with pytest.raises(InputError, match="NaN"):
        sampler.update([0], torch.full((1, 4), float("nan")))
    with pytest.raises(InputError, match="came with embeddings"):
        sampler.update([0, 1], torch.zeros(3, 4))
    with pytest.raises(InputError, match="rows go from 0"):
        sampler.update([N], torch.zeros(1, 4))
