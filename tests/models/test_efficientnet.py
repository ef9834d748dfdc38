from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from shasam.errors import InputError, MissingExtraError
from shasam.extras import MODULES
from shasam.models import EfficientNetLite0, ResNet18, efficientnet
from shasam.models.encoder import IMAGENET
from shasam.spec import resolve

PACKAGE = MODULES["pretrained"][0]


def photo(name: str) -> torch.Tensor:
    """The middle of a photograph that comes with scikit-learn, 224 px, between -1 and 1."""
    image = Image.fromarray(load_sample_image(name))
    side = min(image.size)
    left = (image.width - side) // 2
    square = image.crop((left, 0, left + side, side)).resize((224, 224), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(square)).permute(2, 0, 1)[None]
    return pixels.float() / 127.5 - 1


@pytest.fixture(scope="module")
def network():
    pytest.importorskip(PACKAGE, reason="needs shasam[pretrained]")
    encoder = EfficientNetLite0()
    encoder.load_pretrained()
    return encoder.eval()


@pytest.fixture(scope="module")
def last_layer(network):
    weights = efficientnet.imagenet_weights()
    return lambda z: torch.nn.functional.linear(z, weights["_fc.weight"], weights["_fc.bias"])


# the class and its probability that the package's own network (efficientnet_lite_pytorch 0.1.0)
# gave for these pixels, read as (pixel - 127) / 128: palace and daisy
@pytest.mark.parametrize(
    ("name", "best", "probability"), [("china.jpg", 698, 0.3011), ("flower.jpg", 985, 0.2275)]
)
def test_efficientnet_names_photographs_as_the_published_network_does(
    network, last_layer, name, best, probability
):
    with torch.no_grad():
        scores = last_layer(network(photo(name))).softmax(1)[0]
    assert int(scores.argmax()) == best
    assert float(scores[best]) == pytest.approx(probability, abs=0.005)


def test_efficientnet_has_the_logits_of_the_packages_own_network(network, last_layer):
    theirs = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="the package with the published network is not here"
    )
    published = theirs.EfficientNet.from_name("efficientnet-lite0")
    published.load_state_dict(efficientnet.imagenet_weights())
    images = torch.cat([photo("china.jpg"), photo("flower.jpg")])
    with torch.no_grad():
        expected = published.eval()(((images + 1) * 127.5 - 127) / 128)
        assert torch.allclose(last_layer(network(images)), expected, atol=1e-4)


def test_efficientnet_takes_images_of_odd_sizes_and_its_taps_do_not_change_the_embedding():
    encoder = EfficientNetLite0(pretrained=False).eval()
    assert encoder.load_pretrained() is None
    for size in (33, 64):
        images = torch.randn(2, 3, size, size)
        z, taps = encoder.forward_taps(images, ("blocks.2", "head"))
        assert torch.equal(z, encoder(images)) and z.shape == (2, 1280)
        assert taps["blocks.2"].shape == (2, encoder.taps["blocks.2"], -(-size // 4), -(-size // 4))
        assert torch.equal(taps["head"].mean((2, 3)), z)


def test_only_the_known_weights_file_is_opened(monkeypatch):
    pytest.importorskip(PACKAGE, reason="needs shasam[pretrained]")
    monkeypatch.setattr(efficientnet, "WEIGHTS_SHA256", "0" * 64)
    monkeypatch.setattr(torch, "load", lambda *a, **k: pytest.fail("the file was opened"))
    with pytest.raises(InputError, match="not the expected file"):
        EfficientNetLite0().load_pretrained()


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("shasam.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shasam\[pretrained\]'"):
        EfficientNetLite0().load_pretrained()


def test_an_encoder_sees_pixels_with_its_own_mean_and_deviation():
    encoder = ResNet18(width=8).eval()
    pixels = torch.rand(2, 3, 32, 32)  # between 0 and 1
    images = 2 * pixels - 1
    assert encoder.normalised(images) is images  # mean and deviation 0.5: nothing to do
    plain = encoder(images)
    encoder.mean, encoder.std = IMAGENET
    mean, std = (torch.tensor(values)[None, :, None, None] for values in IMAGENET)
    assert torch.allclose(encoder.normalised(images), (pixels - mean) / std, atol=1e-6)
    assert not torch.allclose(encoder(images), plain)


def test_where_timm_cannot_be_imported_a_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"timm cannot be imported.*torchvision"):
        resolve({"method": "ce", "model": {"encoder": "timm:resnet18"}})
