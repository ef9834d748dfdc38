from __future__ import annotations

import json
import shutil

import pytest
import torch
from tests.models import hub

from shasam.errors import InputError, SpecError
from shasam.models import build_encoder, start_weights
from shasam.models.hub import FAMILIES
from shasam.spec import resolve


def spec_of(folder, **model):
    return resolve({"method": "ce", "model": {"encoder": f"hf:{folder}", **model}})


def built(folder, size=None, **model):
    spec = spec_of(folder, **model)
    encoder = build_encoder(spec.model, size or spec.data.size)
    return encoder.eval(), start_weights(encoder, spec.model)


@pytest.mark.parametrize("family", hub.CONFIGS)
def test_an_encoder_gives_what_the_model_gives_for_its_own_pixels(tmp_path, family):
    folder = hub.saved(tmp_path, family)
    encoder, report = built(folder)
    assert report.missing == () and not [k for k in report.unexpected if "pooler" not in k]
    pixels = torch.rand(2, 3, hub.SIDE, hub.SIDE)
    mean, std = (torch.tensor(v)[None, :, None, None] for v in (hub.MEAN, hub.STD))
    theirs = hub.transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        out = theirs((pixels - mean) / std)
        z, taps = encoder.forward_taps(2 * pixels - 1, encoder.layers)
    unpooled = family in ("vit", "deit")
    expected = out.last_hidden_state[:, 0] if unpooled else out.pooler_output.flatten(1)
    assert z.shape == (2, encoder.out_dim) and torch.allclose(z, expected, atol=1e-4)
    for layer in encoder.layers:
        assert encoder.as_map(taps[layer]).shape[:2] == (2, encoder.taps[layer])


def test_every_family_has_a_test():
    assert set(FAMILIES) - {"convnextv2"} == set(hub.CONFIGS)


@pytest.mark.parametrize("family", [f for f, first in FAMILIES.items() if first])
def test_the_query_is_that_of_the_class_token_in_the_last_block(tmp_path, family):
    encoder, _ = built(hub.saved(tmp_path, family))
    seen = {}
    last = encoder.block(encoder.layers[-1])
    query = next(m for name, m in last.named_modules() if name.endswith(("q_proj", "query")))
    query.register_forward_hook(lambda m, given, out: seen.update(token=given[0][:, 0]))
    _, taps = encoder.forward_taps(torch.rand(2, 3, hub.SIDE, hub.SIDE), ("query",))
    expected = torch.nn.functional.linear(seen["token"], query.weight, query.bias)
    assert torch.allclose(taps["query"], expected, atol=1e-5)


def test_a_run_is_described_without_its_folder_and_known_by_its_weights(tmp_path):
    folder = hub.saved(tmp_path / "model", "vit")
    spec = spec_of(folder)
    assert spec.data.size == hub.SIDE and spec.model.options["mean"] == list(hub.MEAN)
    shutil.rmtree(folder)
    again = resolve(spec.as_dict())  # as a trained run is read
    assert again.key == spec.key
    assert build_encoder(again.model, 32).out_dim == 16
    other = hub.saved(tmp_path / "model", "deit")
    assert spec_of(other).key != spec.key
    with pytest.raises(InputError, match="have changed since"):
        start_weights(build_encoder(again.model, 32), again.model)


@pytest.mark.parametrize("family", ["vit", "deit", "dinov2", "clip_vision_model"])
def test_positions_are_interpolated_for_another_size(tmp_path, family):
    folder = hub.saved(tmp_path, family)
    encoder, _ = built(folder, size=48)
    assert encoder(torch.rand(1, 3, 48, 48)).shape == (1, 16)
    with pytest.raises(InputError, match=r"patches of 8 px.*such as 40"):
        built(folder, size=42)
    with pytest.raises(InputError, match="built for images of 48 px"):
        encoder(torch.rand(1, 3, 32, 32))


def test_the_tower_that_sees_is_taken_out_of_a_model_of_images_and_texts(tmp_path):
    vision = {k: v for k, v in hub.CONFIGS["clip_vision_model"][1].items()}
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"intermediate_size": 16, "vocab_size": 20}
    config = hub.transformers.CLIPConfig(vision_config=vision, text_config=text)
    clip = hub.transformers.CLIPModel(config).eval()
    clip.save_pretrained(tmp_path)
    encoder, report = built(tmp_path, mean=[0.5] * 3, std=[0.5] * 3)
    assert report.missing == ()
    images = torch.rand(2, 3, hub.SIDE, hub.SIDE)
    with torch.no_grad():
        expected = clip.vision_model(images).pooler_output
        assert torch.allclose(encoder(images), expected, atol=1e-5)


def test_weights_that_are_not_there_stay_random_and_are_named(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = hub.saved(tmp_path, "vit")
    state = load_file(folder / "model.safetensors")
    gone = next(key for key in state if key.endswith("layernorm.weight"))
    del state[gone]
    save_file({**state, "strange": torch.zeros(2)}, folder / "model.safetensors")
    encoder, report = built(folder, freeze="all")
    assert report.missing == ("model.layernorm.weight",)
    assert "strange" in report.unexpected and "1 missing: model.layernorm.weight" in str(report)
    free = {id(p) for p in encoder.parameters()} - {id(p) for p in encoder.frozen}
    assert free == {id(encoder.model.layernorm.weight)}


def test_what_is_no_model_is_said_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="is not a model of transformers: it has no config"):
        spec_of(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        spec_of(tmp_path / "nowhere")
    folder = hub.saved(tmp_path / "a", "vit", pixels=False)
    with pytest.raises(InputError, match=r"image_mean.*give them as model\.mean="):
        spec_of(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(InputError, match="a model of the type 'bert'"):
        spec_of(folder)
    folder = hub.saved(tmp_path / "b", "vit")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"no \.safetensors file"):
        spec_of(folder)


def test_code_that_comes_with_a_model_is_never_run(tmp_path):
    folder = hub.saved(tmp_path / "model", "vit")
    trace = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(trace)!r}, 'w')\nclass M: pass\nclass C: pass\n")
    body = json.loads((folder / "config.json").read_text())
    body["auto_map"] = {"AutoModel": "evil.M", "AutoConfig": "evil.C"}
    (folder / "config.json").write_text(json.dumps(body))
    built(folder)
    assert not trace.exists()
    assert "auto_map" not in spec_of(folder).model.options["architecture"]


def test_fairvit_refuses_a_network_without_a_class_token(tmp_path):
    encoder, _ = built(hub.saved(tmp_path, "siglip_vision_model"))
    with pytest.raises(SpecError, match="no class token"):
        encoder.mask_sites()
