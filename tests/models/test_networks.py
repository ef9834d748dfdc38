from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from shasam.errors import InputError, SpecError
from shasam.models import (
    Classifier,
    ModelSpec,
    ProjectionHead,
    ResNet18,
    ViT,
    build_encoder,
    load_weights,
)

# taken from torchvision.models.resnet18().state_dict(), without the classification layer
TORCHVISION_KEYS = {
    "conv1.weight": (64, 3, 7, 7),
    "bn1.running_var": (64,),
    "layer1.0.conv1.weight": (64, 64, 3, 3),
    "layer1.1.bn2.bias": (64,),
    "layer2.0.downsample.0.weight": (128, 64, 1, 1),
    "layer2.0.downsample.1.running_mean": (128,),
    "layer4.1.conv2.weight": (512, 512, 3, 3),
}
# taken from timm's vit_tiny_patch16_224
TIMM_KEYS = {
    "cls_token": (1, 1, 192),
    "pos_embed": (1, 197, 192),
    "patch_embed.proj.weight": (192, 3, 16, 16),
    "blocks.0.norm1.weight": (192,),
    "blocks.11.attn.qkv.weight": (576, 192),
    "blocks.11.attn.proj.bias": (192,),
    "blocks.5.mlp.fc1.weight": (768, 192),
    "blocks.5.mlp.fc2.weight": (192, 768),
    "norm.bias": (192,),
}


def test_resnet_has_the_keys_and_size_of_torchvision():
    state = ResNet18(embed_dim=None).state_dict()
    assert {k: tuple(state[k].shape) for k in TORCHVISION_KEYS} == TORCHVISION_KEYS
    assert len(state) == 120  # torchvision's 122 less fc.weight and fc.bias
    parameters = sum(p.numel() for p in ResNet18(embed_dim=None).parameters())
    assert parameters == 11_689_512 - 513_000


def test_vit_has_the_keys_and_size_of_timm():
    vit = ViT("tiny", 224, 16)
    state = vit.state_dict()
    assert {k: tuple(state[k].shape) for k in TIMM_KEYS} == TIMM_KEYS
    assert sum(p.numel() for p in vit.parameters()) == 5_717_416 - 193_000


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
@pytest.mark.parametrize("embed_dim", [None, 24])
def test_resnet_gives_embeddings_of_its_declared_size(stem, embed_dim):
    encoder = ResNet18(stem, width=8, embed_dim=embed_dim)
    assert encoder(torch.randn(2, 3, 32, 32)).shape == (2, encoder.out_dim)
    assert encoder.out_dim == (embed_dim or 64)


def test_resnet_taps_are_feature_maps_and_do_not_change_the_embedding():
    encoder = ResNet18(width=8).eval()
    images = torch.randn(2, 3, 64, 64)
    z, taps = encoder.forward_taps(images, ("layer2", "layer4"))
    assert torch.equal(z, encoder(images))
    assert taps["layer2"].shape == (2, 16, 8, 8)
    assert taps["layer4"].shape == (2, encoder.taps["layer4"], 2, 2)


def test_vit_query_tap_is_the_class_tokens_query_of_the_last_block():
    vit = ViT("tiny", 32, 8, depth=2).eval()
    images = torch.randn(2, 3, 32, 32)
    z, taps = vit.forward_taps(images, ("blocks.0", "query"))
    assert torch.equal(z, vit(images))
    assert taps["blocks.0"].shape == (2, 17, 192)
    # oracle: the first D rows of qkv applied to the normalised class token after block 0
    last = vit.blocks[1]
    token = last.norm1(taps["blocks.0"])[:, 0]
    expected = token @ last.attn.qkv.weight[:192].T + last.attn.qkv.bias[:192]
    assert torch.allclose(taps["query"], expected, atol=1e-5)


def test_vit_attention_equals_the_softmax_formula():
    attn = ViT("tiny", 32, 8, depth=1).blocks[0].attn
    x = torch.randn(2, 5, 192)
    q, k, v = attn.qkv(x).split(192, dim=-1)
    heads = []
    for h in range(3):
        part = slice(64 * h, 64 * (h + 1))
        weights = (q[..., part] @ k[..., part].transpose(1, 2) / 8.0).softmax(-1)
        heads.append(weights @ v[..., part])
    assert torch.allclose(attn(x)[0], attn.proj(torch.cat(heads, -1)), atol=1e-5)


def test_an_unknown_tap_or_encoder_is_answered_with_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'layer1'"):
        ResNet18(width=8).forward_taps(torch.randn(1, 3, 32, 32), ("layer_1",))
    with pytest.raises(SpecError, match="did you mean 'resnet18'"):
        build_encoder(ModelSpec(encoder="resnet"), 64)


def test_init_loads_by_key_and_reports_what_is_missing_and_unexpected(tmp_path):
    source = ResNet18(width=8, embed_dim=None)
    state = {k: v for k, v in source.state_dict().items() if k != "bn1.weight"}
    save_file(
        {**state, "fc.weight": torch.zeros(2, 2), "odd": torch.zeros(1)}, tmp_path / "w.safetensors"
    )
    encoder = ResNet18(width=8, embed_dim=16)
    report = load_weights(encoder, tmp_path / "w.safetensors")
    assert torch.equal(encoder.layer4[1].conv2.weight, source.layer4[1].conv2.weight)
    assert set(report.missing) == {"bn1.weight", "embed.weight", "embed.bias"}
    assert report.unexpected == ("odd",)
    assert "1 unexpected: odd" in str(report)


def test_init_of_another_shape_says_which_keys_and_what_to_set(tmp_path):
    save_file(ResNet18(width=4).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"conv1.*set model\.width"):
        load_weights(ResNet18(width=8), tmp_path / "w.safetensors")


def test_init_refuses_pickles_and_says_how_to_convert(tmp_path):
    (tmp_path / "w.pth").write_bytes(b"anything")
    with pytest.raises(InputError, match="Convert once"):
        load_weights(ResNet18(width=8), tmp_path / "w.pth")
    (tmp_path / "w.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(InputError, match="not a readable"):
        load_weights(ResNet18(width=8), tmp_path / "w.safetensors")


def test_vit_position_embeddings_are_interpolated_for_another_image_size(tmp_path):
    source = ViT("tiny", 64, 16, depth=1)
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    vit = ViT("tiny", 32, 16, depth=1)
    report = load_weights(vit, tmp_path / "w.safetensors")
    assert report.reshaped == ("pos_embed",)
    assert torch.equal(vit.pos_embed[:, 0], source.pos_embed[:, 0])


def test_projection_head_cannot_collapse_in_training_mode():
    head = ProjectionHead(16, 32, 8)
    z = head(torch.randn(64, 16))
    assert z.shape == (64, 8)
    assert torch.allclose(z.mean(0), torch.zeros(8), atol=1e-5)
    assert not list(head.bn2.parameters())


@pytest.mark.parametrize("hidden", [None, 12])
def test_classifier_gives_one_score_for_each_class(hidden):
    assert Classifier(8, hidden, 3)(torch.randn(5, 8)).shape == (5, 3)


@pytest.mark.parametrize(("patch", "side"), [(8, 4), (16, 2)])
def test_a_stem_of_convolutions_gives_as_many_tokens_as_patches(patch: int, side: int):
    vit = ViT("tiny", 32, patch, depth=1, stem="convolutions")
    assert vit.patch_embed(torch.randn(2, 3, 32, 32)).shape == (2, side**2, 192)
    halvings = [m for m in vit.patch_embed.proj if getattr(m, "stride", 1) == (2, 2)]
    assert 2 ** len(halvings) == patch
    assert vit(torch.randn(2, 3, 32, 32)).shape == (2, 192)


def test_a_stem_of_convolutions_needs_a_power_of_two():
    with pytest.raises(InputError, match="2, 4, 8, 16, not 12"):
        ViT("tiny", 48, 12, depth=1, stem="convolutions")
