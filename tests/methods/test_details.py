"""Promises of single methods that the contract does not see."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from shasam.errors import InputError
from shasam.methods.base import Stage
from shasam.methods.baselines import CE, GroupDRO, Reweight
from shasam.methods.fairvit import FairViT, MaskedLinear, MaskState, adaptive_mask, fit_boundary
from shasam.methods.fdvae import FDVAE
from shasam.methods.mfd import MFD
from shasam.methods.shasam import Shasam
from shasam.models import ResNet18, ViT
from shasam.models.networks import drop_path
from shasam.sampling import TrainingRows
from shasam.spec import StageSpec
from shasam.testing.bench import Lab, optimizers, take_steps
from shasam.training.stage import learning_rate
from shasam.types import Batch, Triplet


def small() -> ResNet18:
    return ResNet18("imagenet", 4, 8)


def test_mask_gradients_are_the_published_ones() -> None:
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 3, generator=g, requires_grad=True)
    weights, shares = torch.tensor([2.0, 1.0, 3.0]), torch.tensor([0.5, 0.25, 0.25])
    state = MaskState(weights, shares)
    upstream = torch.randn(5, generator=g)
    (adaptive_mask(scores, state) * upstream).sum().backward()
    for r in range(5):
        for k in range(3):
            assert float(scores.grad[r, k]) == pytest.approx(
                float(shares[k] * weights[k] * upstream[r]), rel=1e-5
            )
    for k in range(3):
        wanted = float(shares[k]) * sum(
            float(upstream[r] * scores.detach()[r, k]) for r in range(5)
        )
        assert float(state.gradient_G[k]) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("heads", [None, 2])
def test_a_new_masked_layer_is_the_layer_it_replaces(heads: int | None) -> None:
    linear, state = torch.nn.Linear(4, 12), MaskState(torch.full((3,), 2.0))
    masked = MaskedLinear.replacing(linear, 3, state, heads, parts=1 if heads is None else 3)
    x = torch.randn(5, 4)
    assert torch.allclose(masked(x), linear(x))
    with torch.no_grad():
        masked.scores[0, 0] = 0.5
    changed = (masked(x) != linear(x)).any(0).nonzero().flatten().tolist()
    assert changed == ([0] if heads is None else [0, 1, 4, 5, 8, 9])  # head 0 of q, k and v


def test_dropping_the_masks_at_test_is_an_option() -> None:
    def scores(masks_at_test: bool) -> Tensor:
        torch.manual_seed(0)
        config = FairViT.Config(masks_at_test=masks_at_test)
        method = FairViT(config, ViT("tiny", 32, 16, depth=2), 2, 2).eval()
        with torch.no_grad():
            for block in method.encoder.blocks:
                block.mlp.fc1.scores.fill_(0.3)
            return method.logits(torch.ones(2, 3, 32, 32))["encoder"]

    assert not torch.allclose(scores(True), scores(False))


def test_mask_weights_stay_in_their_range() -> None:
    lab = Lab(FairViT, FairViT.Config(weight_lr=1e6), None)
    method = lab.build()
    stage = method.stages()[0]
    take_steps(method, stage, lab.batches(method, stage, 3), optimizers(method, stage))
    assert float(method.mask_weights.detach().min()) >= 0.0
    assert float(method.mask_weights.detach().max()) <= 4.0
    assert float((method.mask_weights.detach() - 2.0).abs().max()) > 0.5


def test_boundary_is_the_logistic_regression_of_scikit_learn() -> None:
    g = torch.Generator().manual_seed(0)
    points = torch.randn(300, 2, generator=g, dtype=torch.float64)
    noise = torch.randn(300, generator=g, dtype=torch.float64)
    correct = (points[:, 0] - 0.5 * points[:, 1] + 0.5 * noise > 0).double()
    recent = torch.cat([points, correct[:, None], torch.ones(300, 1, dtype=torch.float64)], 1)
    padded = torch.cat([recent, torch.zeros(50, 4, dtype=torch.float64)])
    theirs = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(points, correct)
    ours = fit_boundary(padded).tolist()
    assert ours[:2] == pytest.approx(theirs.coef_[0].tolist(), rel=1e-4)
    assert ours[2] == pytest.approx(float(theirs.intercept_[0]), rel=1e-3, abs=1e-5)
    assert ours[3] == 1.0


@pytest.mark.parametrize("correct", [0.0, 1.0])
def test_no_boundary_where_all_answers_are_alike(correct: float) -> None:
    recent = torch.ones(10, 4, dtype=torch.float64)
    recent[:, 2] = correct
    assert fit_boundary(recent).tolist() == [0.0] * 4


def test_teacher_can_be_read_from_a_finished_run(tmp_path: Path) -> None:
    teacher = CE(CE.Config(), small(), 2, 2)
    path = tmp_path / "model.safetensors"
    save_file(teacher.state_dict(), path)
    student = MFD(MFD.Config(teacher=str(path)), small(), 2, 2)
    assert [s.name for s in student.stages()] == ["learn"]
    for name, value in teacher.encoder.state_dict().items():
        assert torch.equal(value, student.teacher["encoder"].state_dict()[name])
    assert not any(p.requires_grad for p in student.teacher.parameters())


def test_a_teacher_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(CE(CE.Config(), ResNet18("imagenet", 8, 8), 2, 2).state_dict(), path)
    with pytest.raises(InputError, match="does not fit"):
        MFD(MFD.Config(teacher=str(path)), small(), 2, 2)
    with pytest.raises(InputError, match=r"not a \.safetensors file that exists"):
        MFD(MFD.Config(teacher=str(tmp_path / "nothing.safetensors")), small(), 2, 2)


def test_teacher_stands_still_in_evaluation_mode_while_the_student_learns() -> None:
    lab = Lab(MFD, MFD.Config(), None)
    method = lab.build()
    stage = method.stages()[1]
    before = {k: v.clone() for k, v in method.teacher.state_dict().items()}
    take_steps(method, stage, lab.batches(method, stage, 2), optimizers(method, stage))
    assert all(torch.equal(v, before[k]) for k, v in method.teacher.state_dict().items())


def test_weights_come_from_the_counts_of_the_training_rows() -> None:
    method = Reweight(Reweight.Config(), small(), 2, 2)
    t, s = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0]), torch.tensor([0, 0, 0, 1, 0, 1, 1, 1])
    rows = torch.arange(7)  # the last row is not for training
    method.begin_stage(Stage("learn", ("main",)), TrainingRows(t, s, rows, 2, 0))
    assert method.counts_CG.tolist() == [[3.0, 1.0], [1.0, 2.0]]


@pytest.mark.parametrize("size", [64, 96, 128])
def test_fdvae_takes_images_of_any_size_from_64(size: int) -> None:
    method = FDVAE(FDVAE.Config(block=3, hidden=8), small(), 2, 2)
    assert method.features(torch.zeros(2, 3, size, size))["encoder"].shape == (2, 9)
    assert method.decoder(torch.zeros(2, 9)).shape == (2, 3, 64, 64)


def test_with_unequal_sets_the_mended_objective_counts_the_wrong_side_and_never_lacks_a_gradient():
    config = Shasam.Config(companion=0.0)
    method = Shasam(config, small(), 2, 7)
    t_B = torch.tensor([0] * 7 + [1])
    s_B = torch.tensor([0, *range(1, 7), 0])  # one anchor, six positives, one negative
    triplet = Triplet(torch.tensor([0]), torch.arange(1, 7), torch.tensor([7]), 0, 0, t_B, s_B)
    z = torch.tensor([[1.0, 0.0]] + [[0.0, 1.0]] * 6 + [[1.0, 0.0]])
    batch = Batch(torch.empty(0), t_B, s_B, torch.arange(8), 1, 0, 0.0, (triplet,), {})
    found = method.learn(z, batch)
    assert found.active is None and found.wrong_side == 1.0
    literal = Shasam(Shasam.Config(smooth="none"), small(), 2, 7).learn(z, batch)
    assert literal.active == 1.0 and literal.wrong_side is None


def test_fdvae_starts_as_published_where_it_is_asked_to() -> None:
    method = FDVAE(FDVAE.Config(start_deviation=0.02), small(), 2, 2)
    layers = [m for m in method.modules() if hasattr(m, "bias") and m.weight.numel() > 5000]
    assert len(layers) > 20
    for layer in layers:
        assert abs(float(layer.weight.detach().std()) - 0.02) < 0.001 and not layer.bias.any()


def test_fdvae_is_trained_on_the_images_as_they_are() -> None:
    assert not any(stage.augment for stage in FDVAE(FDVAE.Config(), small(), 2, 2).stages()[:1])


def test_the_rate_of_fairvits_mask_weights_is_constant() -> None:
    method = FairViT(FairViT.Config(), ViT("tiny", 32, 16, depth=2), 2, 2)
    learn = StageSpec(steps=100, lr=0.1, clip=1.0)
    spec = learn.model_copy(update=method.optimizer_overrides()["mask_weights"])
    assert {learning_rate(spec, step, 100) for step in range(100)} == {1.0}
    assert spec.clip is None and spec.optimizer == "sgd"


def test_group_dro_draws_balanced_batches_where_it_is_asked_to() -> None:
    stages = GroupDRO(GroupDRO.Config(sampling="balanced"), small(), 2, 2).stages()
    assert [stage.sampling for stage in stages] == ["balanced"]


def test_dropped_paths_keep_the_mean_and_are_for_training_alone() -> None:
    torch.manual_seed(0)
    x = torch.ones(4000, 2, 3)
    dropped = drop_path(x, 0.25)
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert abs(float(dropped.mean()) - 1) < 0.05
    vit = ViT("tiny", 32, 16, depth=3, drop_path=0.5)
    assert [block.drop for block in vit.blocks] == [0.0, 0.25, 0.5]
    images = torch.randn(8, 3, 32, 32)
    assert not torch.allclose(vit(images), vit(images))
    vit.eval()
    assert torch.equal(vit(images), vit(images))
