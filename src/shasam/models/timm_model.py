"""Networks of ``timm``: ``--encoder timm:NAME``, with safetensors weights of the hub."""

from __future__ import annotations

from typing import Any, cast

from pydantic import Field
from torch import Tensor

from shasam.errors import InputError, MissingExtraError
from shasam.models.encoder import Encoder, EncoderConfig
from shasam.models.hub_folder import Three, weights_file
from shasam.models.init import InitReport, load_weights
from shasam.models.shared import in_shares
from shasam.registry import register


class TimmConfig(EncoderConfig):
    """Which model; what is null is filled in from what timm knows of it."""

    source: str = Field(description="Name of the model, as timm.list_models gives it.")
    mean: Three | None = Field(None, description="Mean of the pixels, between 0 and 1.")
    std: Three | None = Field(None, description="Deviation of the pixels.")
    side: int | None = Field(None, ge=1, le=4096, description="Side of the images in pixels.")

    @property
    def image_size(self) -> int | None:
        return self.side

    def completed(self) -> TimmConfig:
        """With the mean, the deviation and the size of the published weights."""
        if self.mean is not None and self.std is not None and self.side is not None:
            return self
        known = _published(self.source)
        found = {
            "mean": self.mean or tuple(known.mean),
            "std": self.std or tuple(known.std),
            "side": self.side or int(known.input_size[-1]),
        }
        return self.model_validate({**self.model_dump(), **found})


@register("timm", kind="encoder")
class Timm(Encoder):
    """Images (B, 3, H, W) to what timm's own classification layer reads; it has no taps."""

    Config = TimmConfig

    def __init__(self, config: TimmConfig, image_size: int) -> None:
        super().__init__()
        self.config = config.completed()
        assert self.config.mean is not None and self.config.std is not None
        self.mean, self.std = self.config.mean, self.config.std
        self.model = _network(config.source, image_size)
        self.out_dim, self.taps = int(cast("Any", self.model).num_features), {}

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> Timm:
        return cls(TimmConfig.model_validate(config.model_dump()), image_size)

    def load_pretrained(self) -> InitReport | None:
        hub = getattr(_published(self.config.source), "hf_hub_id", None)
        if not hub:
            raise InputError(
                f"timm has no weights on the hub for {self.config.source}; choose one of "
                "timm.list_pretrained()"
            )
        report = load_weights(self.model, weights_file(str(hub)))
        missing = tuple(f"model.{name}" for name in report.missing)
        return InitReport(
            self.config.source, report.loaded, missing, report.unexpected, report.reshaped
        )

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        features = self.model.forward_features(self.normalised(images))
        return self.model.forward_head(features, pre_logits=True), {}


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError(
            f"the encoder timm: cannot be used here, because timm cannot be imported ({error}): "
            "pip install 'shasam[timm]'; it needs torchvision too",
            name="timm",
        ) from error
    return timm


def _published(name: str) -> Any:
    """What timm knows of the weights of a model."""
    timm = _timm()
    known = timm.models.get_pretrained_cfg(name) if timm.models.is_model(name) else None
    if known is None:
        raise InputError(f"timm has no model {name!r} with published weights")
    return known


def _network(name: str, image_size: int) -> Any:
    timm = _timm()
    try:
        return timm.create_model(name, pretrained=False, num_classes=0, img_size=image_size)
    except TypeError:  # a convolutional network takes images of any size
        return timm.create_model(name, pretrained=False, num_classes=0)
