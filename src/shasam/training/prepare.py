"""Device and memory format of a method and its images, decided in one place.

Convolutions of the two memory formats are different kernels, whose sums are rounded differently on
some processors. So training, ``evaluate``, ``predict`` and ``load`` all prepare methods and images
here: the score of an image does not depend on which of them asks for it.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from shasam.data.views import plain

M = TypeVar("M", bound=nn.Module)


def prepare(method: M, device: torch.device | str, *, training: bool = False) -> M:
    """The method on the device in the memory format of all our computing.

    Unless it is to be trained (the trainer sets the modes of each stage), the method is put into
    evaluation mode and its parameters are frozen.
    """
    method.to(device)
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not training:
        method.eval()
        for p in method.parameters():
            p.requires_grad_(False)
    return method


def prepare_images(images_u8: Tensor, device: torch.device | str) -> Tensor:
    """Un-augmented images as the network reads them: (B, 3, H, W), -1 to 1; vectors as they are."""
    if images_u8.ndim == 2:
        return images_u8.to(device, torch.float32)
    return plain(images_u8.to(device)).contiguous(memory_format=torch.channels_last)
