"""Pretrained weights that stay as they are, or move more slowly."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from tests.training.test_trainer import SHORT, trainer

from shasam.errors import SpecError, Stopped
from shasam.methods.baselines import CE
from shasam.methods.fscl import SupCon
from shasam.models import ModelSpec, ResNet18, build_encoder, start_weights
from shasam.models.encoder import HALF, IMAGENET
from shasam.spec import resolve
from shasam.spec.fields import StageSpec, TrainSpec
from shasam.spec.run import stored_spec
from shasam.training.runtime import Interrupt
from shasam.training.stage import check_groups

OPTIONS = {"width": 8, "embed_dim": 16}


@pytest.fixture
def weights(tmp_path):
    """A file with all weights but those of the last linear layer, which therefore is random."""
    torch.manual_seed(1)
    state = ResNet18(width=8, embed_dim=None).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    return str(tmp_path / "w.safetensors")


def make(weights, freeze, kind=CE):
    torch.manual_seed(0)
    spec = ModelSpec(encoder="resnet18", init=weights, freeze=freeze, options=OPTIONS)
    encoder = build_encoder(spec, 16)
    start_weights(encoder, spec)
    return kind(kind.Config(), encoder, 2, 2)


def moved(method, before):
    """Names of the encoder's tensors that training has changed."""
    after = method.encoder.state_dict()
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def trained(method, spec=SHORT, **more):
    before = {k: v.clone() for k, v in method.encoder.state_dict().items()}
    trainer(method, spec, **more).fit()
    return moved(method, before)


@pytest.mark.parametrize("kind", [CE, SupCon])
def test_a_frozen_encoder_keeps_every_weight_and_running_mean(weights, kind):
    method = make(weights, "all", kind)
    assert trained(method) == {"embed.weight", "embed.bias"}  # these were random, so they learn


def test_the_last_blocks_learn_and_those_before_do_not(weights):
    method = make(weights, 2)
    changed = {name.split(".")[0] for name in trained(method)}
    assert changed == {"layer3", "layer4", "embed"}


def test_a_frozen_encoder_computes_no_gradient(weights):
    method = make(weights, "all")
    run = trainer(method)
    run._prepare(method.stages()[0], None)
    assert not method.encoder.layer4.training and method.encoder.embed.training
    pooled, taps = method.encoder.forward_taps(torch.randn(2, 3, 16, 16), ("layer4",))
    assert not taps["layer4"].requires_grad and pooled.requires_grad


def test_a_run_with_a_frozen_encoder_is_resumed_to_the_same_bits(weights, tmp_path, monkeypatch):
    whole = make(weights, 1)
    trained(whole)
    cut = make(weights, 1)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Interrupt, "asked", property(lambda self: run.state.step == 3))
        run = trainer(cut, directory=tmp_path)
        run.fit()
    again = make(weights, 1)
    trainer(again, directory=tmp_path).fit(resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_pretrained_weights_move_by_their_share_of_the_rate(weights):
    steps = {}
    for share in (1.0, 0.25):
        stage = StageSpec(steps=1, batch_views=32, optimizer="sgd", lr=0.1, warmup=0.0)
        stage = stage.model_copy(update={"pretrained_lr": share, "weight_decay": 0.0})
        method = make(weights, "none")
        before = {k: v.clone() for k, v in method.named_parameters()}
        trainer(method, TrainSpec(learn=stage)).fit()
        steps[share] = {k: v - before[k] for k, v in method.named_parameters()}
    for name, full in steps[1.0].items():
        old = name.startswith("encoder.") and "embed" not in name
        expected = full * 0.25 if old else full
        assert torch.allclose(steps[0.25][name], expected, rtol=1e-3, atol=1e-7), name


def test_what_cannot_be_frozen_is_said(weights):
    with pytest.raises(SpecError, match="starts from random"):
        start_weights(ResNet18(width=8), ModelSpec(freeze="all"))
    with pytest.raises(SpecError, match=r"has 4; give 1 to 4"):
        make(weights, 5)


def test_a_stage_that_is_left_without_parameters_is_refused(weights):
    class Headless(CE):
        def parameter_groups(self):
            inside = [p for p in self.encoder.parameters() if p not in set(self.encoder.frozen)]
            rest = [*inside, *self.classifier.parameters()]
            return {"main": list(self.encoder.frozen), "rest": rest}

    with pytest.raises(SpecError, match=r"leaves nothing to learn.*'main'"):
        check_groups(make(weights, "all", Headless))


def test_pretrained_weights_get_the_pixels_that_they_are_used_to(weights):
    given = ModelSpec(encoder="resnet18", init=weights, options=OPTIONS)
    assert (build_encoder(given, 16).mean, build_encoder(given, 16).std) == IMAGENET
    plain = build_encoder(ModelSpec(options=OPTIONS), 16)
    assert (plain.mean, plain.std) == HALF
    asked = given.model_copy(update={"normalisation": "half"})
    assert build_encoder(asked, 16).mean == HALF[0]
    # a run of an earlier release saw mean and deviation 0.5, and still does
    body = resolve({"method": "ce", "model": {"init": weights}}).as_dict()
    del body["model"]["normalisation"]
    assert stored_spec(body).model.normalisation == "half"
