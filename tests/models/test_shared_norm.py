"""Batch normalisation over the rows of all processes; tests/methods has it in two processes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shasam.errors import SpecError
from shasam.models import ResNet18
from shasam.models.processes import SharedBatchNorm, share_batch_norm


def alone(part: torch.Tensor) -> torch.Tensor:
    """The gather of a single process."""
    return part[None]


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.BatchNorm1d, (9, 4)), (nn.BatchNorm2d, (5, 4, 3, 2))]
)
@pytest.mark.parametrize(("momentum", "affine"), [(0.1, True), (None, False)])
def test_with_one_process_it_is_torchs_layer(layer, shape, momentum, affine):
    x = torch.randn(2, *shape).double()
    torchs = layer(4, momentum=momentum, affine=affine).double()
    shared = SharedBatchNorm(layer(4, momentum=momentum, affine=affine).double(), alone)
    for batch in x:
        a, b = batch.clone().requires_grad_(), batch.clone().requires_grad_()
        y, expected = shared(a), torchs(b)
        torch.testing.assert_close(y, expected)
        y.pow(3).sum().backward()
        expected.pow(3).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(dict(shared.named_buffers()), dict(torchs.named_buffers()))
    torch.testing.assert_close(shared.eval()(x[0]), torchs.eval()(x[0]))


def test_names_and_parameters_stay_those_of_the_network():
    network = ResNet18("imagenet", 8, 8)
    names, parameters = list(network.state_dict()), list(network.parameters())
    share_batch_norm(network, alone)
    assert list(network.state_dict()) == names
    assert all(a is b for a, b in zip(network.parameters(), parameters, strict=True))
    assert not any(type(module) is nn.BatchNorm2d for module in network.modules())


def test_a_layer_that_may_do_more_is_refused():
    class Activated(nn.BatchNorm2d):
        pass

    with pytest.raises(SpecError, match=r"sync_batchnorm cannot be used: 0 is a Activated"):
        share_batch_norm(nn.Sequential(Activated(2)), alone)
