"""TADeT and FairViT on transformers of others: the query and the masks reach the right layers."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.methods.oracles import tadet_oracle
from tests.models import hub

from shasam.methods.fairvit import FairViT, MaskedLinear, add_masks
from shasam.methods.tadet import TADeT
from shasam.models import build_encoder, start_weights
from shasam.spec import resolve
from shasam.testing import check_method


@pytest.fixture(params=["vit", "deit"])
def encoder(request, tmp_path):
    folder = hub.saved(tmp_path, request.param)
    spec = resolve({"method": "ce", "model": {"encoder": f"hf:{folder}"}})

    def make():
        made = build_encoder(spec.model, hub.SIDE)
        start_weights(made, spec.model)
        return made

    return make


def test_tadet_keeps_its_contract(encoder):
    report = check_method(TADeT, encoder=encoder, oracle=tadet_oracle, overfit=False)
    assert "objective" in report.checked


def test_fairvit_keeps_its_contract(encoder):
    report = check_method(FairViT, encoder=encoder, overfit=False)  # of the masks: see below
    assert "loss parts are alive" in report.checked


def test_masks_multiply_the_rows_of_every_head_and_layer(encoder):
    masked, plain = encoder().eval(), encoder().eval()
    names = [name for name, layer in plain.named_modules() if isinstance(layer, torch.nn.Linear)]
    state = add_masks(masked, 1)
    layers = {n: m for n, m in masked.named_modules() if isinstance(m, MaskedLinear)}
    assert set(layers) == set(names)
    owned = [name for name, layer in layers.items() if "scores" in dict(layer.named_parameters())]
    assert len(owned) == 4 * 3  # query with key and value, output, and two of the perceptron
    with torch.no_grad():
        for number, name in enumerate(owned):
            scores = layers[name].scores
            scores.copy_(torch.linspace(-0.3, 0.4, len(scores))[:, None] + 0.01 * number)
        state.weights_G = torch.ones(1)
        for name in names:
            layer, linear = layers[name], plain.get_submodule(name)
            mask = 1 + layer.owner[0].scores[:, 0]
            if len(mask) == 2:  # one for each head
                mask = mask.repeat_interleave(linear.out_features // 2)
            linear.weight.mul_(mask[:, None])
            linear.bias.mul_(mask)
        images = torch.rand(2, 3, hub.SIDE, hub.SIDE)
        assert torch.allclose(masked(images), plain(images), atol=1e-5)
        state.weights_G = None
        assert torch.allclose(masked(images), encoder().eval()(images), atol=1e-5)


def test_a_masked_encoder_is_saved_and_read_without_shared_tensors(encoder):
    masked = encoder()
    add_masks(masked, 2)
    state = masked.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    copy.deepcopy(masked).load_state_dict(state)
