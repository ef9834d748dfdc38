from __future__ import annotations

import pytest
import torch

from shasam.errors import InputError
from shasam.losses import flcmi, logdetcmi, unit_length

pml = pytest.importorskip("pytorch_metric_learning", reason="needs shasam[pml]")
from pytorch_metric_learning import losses, miners  # noqa: E402

from shasam.integrations.pml import ShasamLoss, ShasamTuples  # noqa: E402


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(60, 8, generator=g)
    return z, torch.randint(0, 3, (60,), generator=g), torch.randint(0, 2, (60,), generator=g)


def test_the_miner_gives_their_losses_tuples_with_the_right_labels(batch):
    z, t, s = batch
    a1, p, a2, n = ShasamTuples(k=4)(z, t, sensitive=s)
    assert (t[a1] == t[p]).all() and (s[a1] != s[p]).all()
    assert (t[a2] != t[n]).all() and (s[a2] == s[n]).all()
    a, _, _ = triplets = ShasamTuples(k=3, output="triplets")(z, t, sensitive=s)
    assert len(a) == 6 * 3**3  # every pair of class and group
    for loss, tuples in (
        (losses.ContrastiveLoss(), (a1, p, a2, n)),
        (losses.TripletMarginLoss(), triplets),
    ):
        assert torch.isfinite(loss(z, t, tuples))


@pytest.mark.parametrize(("name", "function"), [("flcmi", flcmi), ("logdetcmi", logdetcmi)])
def test_the_loss_is_the_mean_of_the_objective_over_the_pairs(batch, name, function):
    z, t, s = batch
    z = z.requires_grad_()
    value = ShasamLoss(name)(z, t, sensitive=s)
    unit, wanted = unit_length(z), []
    for i in range(3):
        for j in range(2):
            a = ((t == i) & (s == j)).nonzero().flatten()
            p = ((t == i) & (s != j)).nonzero().flatten()
            n = ((t != i) & (s == j)).nonzero().flatten()
            wanted.append(function(unit, a, p, n))
    assert float(value) == pytest.approx(float(sum(wanted)) / 6, rel=1e-5)
    value.backward()
    assert z.grad is not None and float(z.grad.abs().sum()) > 0


def test_the_loss_takes_the_tuples_of_its_miner_and_of_theirs(batch):
    z, t, s = batch
    learn, mined = ShasamLoss(), ShasamTuples(k=2)(z, t, sensitive=s)
    assert float(learn(z, t, mined, sensitive=s)) != float(learn(z, t, sensitive=s))
    theirs = miners.TripletMarginMiner(margin=0.2)(z, t)
    assert torch.isfinite(learn(z, t, theirs, sensitive=s))
    whole = ShasamTuples(k=1000)(z, t, sensitive=s)  # every row of each pool: nothing is left out
    wanted = float(learn(z, t, sensitive=s))
    assert float(learn(z, t, whole, sensitive=s)) == pytest.approx(wanted, rel=1e-5)


def test_a_batch_that_can_serve_no_pair_costs_nothing_and_misuse_is_a_sentence(batch):
    z, t, s = batch
    one = torch.zeros_like(t)
    assert all(len(part) == 0 for part in ShasamTuples()(z, one, sensitive=s))
    assert float(ShasamLoss()(z.requires_grad_(), one, sensitive=s)) == 0
    for call in (ShasamTuples(), ShasamLoss()):
        with pytest.raises(InputError, match="sensitive="):
            call(z, t)
        with pytest.raises(InputError, match="came with sensitive groups"):
            call(z, t, sensitive=s[:5])
        with pytest.raises(InputError, match="reference embeddings"):
            call(z, t, ref_emb=z, ref_labels=t, sensitive=s)
