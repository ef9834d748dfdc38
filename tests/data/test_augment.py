"""Views: keyed, not carried; and what the documented parameters say."""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest
import torch
from PIL import Image

from shasam.data import augment
from shasam.data.augment import augmented_views, boxes, luma, plain, resize_weights, turn_hue
from shasam.errors import InputError
from shasam.keyed import keys_torch, uniform_torch
from shasam.spec import ViewsSpec


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(24, 3, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, 32, mode="bicubic").clamp(0, 1)
    return (smooth * 255).to(torch.uint8).contiguous(memory_format=torch.channels_last)


def draws(n: int) -> torch.Tensor:
    return uniform_torch(keys_torch(3, torch.arange(n)), augment._DRAWS)


def test_a_view_does_not_depend_on_its_batch(pictures: torch.Tensor) -> None:
    rows = torch.arange(100, 124)
    whole = augmented_views(pictures, rows, seed=1, draw=2, size=32)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(5))
    shuffled = augmented_views(pictures[order], rows[order], seed=1, draw=2, size=32)
    again = torch.cat([order, order + 24])
    assert torch.equal(whole[again], shuffled)
    for row in (0, 7, 23):
        alone = augmented_views(
            pictures[row : row + 1], rows[row : row + 1], seed=1, draw=2, size=32
        )
        assert torch.equal(alone[0], whole[row]) and torch.equal(alone[1], whole[24 + row])


def test_a_view_does_not_depend_on_the_chunk(
    pictures: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.arange(24)
    whole = augmented_views(pictures, rows, seed=1, draw=0)
    monkeypatch.setattr(augment, "_CHUNK", 5 * 32 * 32)
    assert torch.equal(augmented_views(pictures, rows, seed=1, draw=0), whole)


def test_seed_epoch_row_and_view_each_change_it(pictures: torch.Tensor) -> None:
    one, rows = pictures[:1], torch.tensor([4])
    base = augmented_views(one, rows, seed=0, draw=0)
    assert not torch.equal(base[0], base[1])
    for changed in (
        augmented_views(one, rows, seed=1, draw=0),
        augmented_views(one, rows, seed=0, draw=1),
        augmented_views(one, rows + 1, seed=0, draw=0),
    ):
        assert not torch.equal(base[0], changed[0])


def test_views_of_one_image_stand_b_rows_apart(pictures: torch.Tensor) -> None:
    rows = torch.arange(24)
    three = augmented_views(pictures, rows, seed=0, draw=0, views=3, size=16)
    two = augmented_views(pictures, rows, seed=0, draw=0, views=2, size=16)
    assert three.shape == (72, 3, 16, 16)
    assert torch.equal(three[:48], two)


def test_the_crop_is_pillows_bilinear_resize_of_the_cropped_picture(pictures) -> None:
    box = (3, 5, 20, 17)  # top, left, height, width
    for size in (32, 9):
        top, left, height, width = (torch.tensor([float(v)]) for v in box)
        rows = resize_weights(top, height, 32, size)[0]
        cols = resize_weights(left, width, 32, size)[0]
        ours = torch.einsum("yh,chw,xw->cyx", rows, pictures[0].float(), cols)
        image = Image.fromarray(pictures[0].permute(1, 2, 0).numpy())
        image = image.crop((5, 3, 22, 23)).resize((size, size), Image.Resampling.BILINEAR)
        theirs = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
        assert (ours - theirs).abs().max() <= 1.5  # Pillow rounds twice


def torchvision_box(rng: np.random.Generator, height: int, width: int) -> list[int]:
    """RandomResizedCrop.get_params, written out."""
    for _ in range(10):
        area = height * width * rng.uniform(0.2, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return [int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1)), h, w]
    return [0, 0, height, width]


def test_crop_boxes_are_distributed_as_torchvisions() -> None:
    n = 8000
    ours = boxes(draws(n)[:, : 4 * augment._ATTEMPTS], 64, 64).numpy()
    rng = np.random.default_rng(0)
    theirs = np.array([torchvision_box(rng, 64, 64) for _ in range(n)])
    for column in range(4):
        grid = np.arange(65)
        a, b = ours[:, column, None] <= grid, theirs[:, column, None] <= grid
        gap = np.abs(a.mean(0) - b.mean(0))
        assert gap.max() < 1.95 * math.sqrt(2 / n)  # Kolmogorov-Smirnov at one in a thousand
    assert (ours[:, 0] + ours[:, 2] <= 64).all() and (ours[:, 1] + ours[:, 3] <= 64).all()


def test_a_box_that_never_fits_is_the_centre() -> None:
    flat = boxes(torch.full((1, 4 * augment._ATTEMPTS), 0.999), 10, 100)
    assert flat.tolist() == [[0.0, 43.0, 10.0, 13.0]]


def test_shares_of_flips_grays_and_jitters() -> None:
    # a picture dark on its left half and saturated shows each of the three
    picture = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    picture[:, 0, :, 8:] = 200
    whole = ViewsSpec(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0))
    n = 6000
    many, rows = picture.expand(n, 3, 16, 16), torch.arange(n)
    out = augmented_views(many, rows, seed=0, draw=0, views=1, spec=whole)
    out = (out + 1) / 2
    flipped = (out[..., 0].mean((1, 2)) > out[..., -1].mean((1, 2))).float().mean()
    gray = ((out[:, 0] - out[:, 2]).abs().amax((1, 2)) < 1e-4).float().mean()
    plainly = ((out[:, 0].amax((1, 2)) - 200 / 255).abs() < 1e-4) & (out[:, 2].amax((1, 2)) < 1e-4)
    assert abs(float(flipped) - 0.5) < 0.022
    assert abs(float(gray) - 0.2) < 0.018
    assert abs(float(plainly.float().mean()) - 0.2 * 0.8) < 0.018  # neither jittered nor gray


def test_settings_of_the_views_do_what_they_say(pictures: torch.Tensor) -> None:
    rows = torch.arange(24)
    still = ViewsSpec(crop_scale=(1, 1), crop_ratio=(1, 1), flip=0, p_jitter=0, grayscale=0)
    same = augmented_views(pictures, rows, seed=0, draw=0, views=1, spec=still)
    assert torch.allclose(same, plain(pictures), atol=1e-5)
    mirrored = still.model_copy(update={"flip": 1.0})
    turned = augmented_views(pictures, rows, seed=0, draw=0, views=1, spec=mirrored)
    assert torch.allclose(turned, same.flip(3), atol=1e-5)
    gray = augmented_views(
        pictures, rows, seed=0, draw=0, views=1, spec=still.model_copy(update={"grayscale": 1.0})
    )
    assert torch.allclose(gray[:, 0], gray[:, 2])
    large = ViewsSpec(crop_scale=(0.5, 1.0))
    box = boxes(draws(500)[:, : 4 * augment._ATTEMPTS], 64, 64, large)
    share = box[:, 2] * box[:, 3] / 64**2
    assert 0.48 < float(share.min()) < 0.56 and float(share.max()) <= 1


def naive_jitter(x: np.ndarray, factors: np.ndarray, order: np.ndarray) -> np.ndarray:
    """One picture (3, H, W), step by step, with colorsys for the hue."""
    weights = np.array([0.2989, 0.587, 0.114])[:, None, None]
    for which in np.argsort(order, kind="stable"):
        f = 1 + 0.4 * (2 * factors[which] - 1)
        gray = (x * weights).sum(0, keepdims=True)
        if which == 0:
            x = np.clip(x * f, 0, 1)
        elif which == 1:
            x = np.clip(x * f + (1 - f) * gray.mean(), 0, 1)
        elif which == 2:
            x = np.clip(x * f + (1 - f) * gray, 0, 1)
        else:
            turn = 0.1 * (2 * factors[3] - 1)
            flat = x.reshape(3, -1).T
            hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in flat]
            rgb = [colorsys.hsv_to_rgb((h + turn) % 1, s, v) for h, s, v in hsv]
            x = np.array(rgb).T.reshape(x.shape)
    return x


def test_jitter_is_the_naive_one_in_every_order() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(12, 3, 5, 5, generator=generator)
    factors, order = torch.rand(2, 12, 4, generator=generator)
    ours = augment._jitter(x.clone(), torch.zeros(12), factors, order)
    for k in range(12):
        expected = naive_jitter(x[k].double().numpy(), factors[k].numpy(), order[k].numpy())
        assert np.abs(ours[k].numpy() - expected).max() < 1e-5
    untouched = augment._jitter(x.clone(), torch.ones(12), factors, order)
    assert torch.allclose(untouched, x, atol=1e-6)


def test_turning_the_hue_keeps_gray_gray_and_a_full_circle_is_nothing() -> None:
    gray = torch.full((1, 3, 4, 4), 0.3)
    assert torch.allclose(turn_hue(gray, torch.tensor([0.1])), gray)
    x = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(turn_hue(x, torch.tensor([1.0])), x, atol=1e-5)
    assert luma(x).shape == (1, 1, 4, 4)


def test_plain_maps_0_and_255_to_minus_one_and_one() -> None:
    x = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 3, 2, 2)
    assert plain(x).amin((1, 2, 3)).tolist() == [-1.0, 1.0]


def test_wrong_tensors_are_refused_with_a_sentence(pictures: torch.Tensor) -> None:
    with pytest.raises(InputError, match="uint8 images"):
        augmented_views(pictures.float(), torch.arange(24), seed=0, draw=0)
    with pytest.raises(InputError, match="one row each"):
        augmented_views(pictures, torch.arange(3), seed=0, draw=0)
