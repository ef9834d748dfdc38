"""FD-VAE: latents for the target, for the group, and for what they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.losses import permute_blocks, reverse_gradient, standard_normal_kl, total_correlation
from shasam.methods.base import Dial, Method, MethodConfig, Stage
from shasam.models import Encoder
from shasam.models.processes import in_shares
from shasam.registry import register
from shasam.types import Batch, Losses

SIDE = 64  # pixels of the picture that is decoded


class LatentEncoder(Encoder):
    """Images (B, 3, H, W) to latent means (B, Z); ``stats`` gives the log variances as well."""

    def __init__(self, latents: int) -> None:
        super().__init__()
        widths = (3, 32, 32, 64, 64)
        self.down = nn.ModuleList(nn.Conv2d(a, b, 4, 2, 1) for a, b in pairwise(widths))
        self.wide = nn.Conv2d(64, 256, 4)
        self.last = nn.Conv2d(256, 2 * latents, 1)
        self.out_dim, self.taps = latents, {}

    @in_shares
    def stats(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = images
        for layer in self.down:
            x = F.relu(layer(x))
        x = F.adaptive_avg_pool2d(x, 4)  # 64 px arrive as 4 x 4 already
        mean_BZ, log_variance_BZ = self.last(F.relu(self.wide(x))).flatten(1).chunk(2, dim=1)
        return mean_BZ, log_variance_BZ

    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        return self.stats(images)[0], {}


class Decoder(nn.Module):
    """Latents (B, Z) to the logits of a picture (B, 3, 64, 64)."""

    def __init__(self, latents: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(latents, 256, 1)
        self.wide = nn.ConvTranspose2d(256, 64, 4)
        widths = (64, 64, 32, 32, 3)
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in pairwise(widths))

    def forward(self, z_BZ: Tensor) -> Tensor:
        x = self.wide(F.relu(self.first(z_BZ[:, :, None, None])))
        for layer in self.up:
            x = layer(F.relu(x))
        return x


def mlp(inside: int, hidden: int, outside: int, layers: int = 6) -> nn.Sequential:
    """Return linear layers with LeakyReLU(0.2) between them."""
    widths = [inside, *[hidden] * (layers - 1), outside]
    modules: list[nn.Module] = []
    for a, b in pairwise(widths):
        modules += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*modules[:-1])


def sampled(mean_BZ: Tensor, log_variance_BZ: Tensor) -> Tensor:
    """Return latents drawn from their normal distributions."""
    noise_BZ = torch.randn(mean_BZ.shape, dtype=mean_BZ.dtype).to(mean_BZ.device)
    return mean_BZ + noise_BZ * (0.5 * log_variance_BZ).exp()


@register("fdvae", kind="method")
class FDVAE(Method):
    """z = [target | mutual | protected], a third of the latents each.

    learn: BCE(x, decoder(z)) + KL + tc · E[D(z)_0 - D(z)_1]
      + attribute · [CE(t | target block) + CE(s | protected block)]
      + reversal · [CE(s | R(target block)) + CE(t | R(protected block))], and the discriminator D
      tells z from z with its mutual and protected blocks shuffled.
    classify, all this frozen, on sampled latents: m = linear(mutual block),
      target · CE(t | target block + mutual · m) + CE(s | R(m)).
    R reverses the gradient with factor 10. Predictions read latent means. Pictures are decoded at
    64 px whatever their size, and are not augmented.
    """

    summary = "VAE with target, mutual and protected latents; classifies without the protected"
    reference = "Park et al., AAAI 2021 (FD-VAE)"
    dial = Dial("reversal", (10.0, 100.0, 300.0))
    needs_images = True

    class Config(MethodConfig):
        block: int = Field(20, ge=1, description="Latents of each of the three blocks.")
        tc: float = Field(
            6.4, ge=0, json_schema_extra={"weight": None},
            description="Weight of the total correlation, which keeps the blocks independent.",
        )  # fmt: skip
        attribute: float = Field(
            5.0, ge=0, json_schema_extra={"weight": None},
            description="Weight of reading target and group from their own blocks.",
        )  # fmt: skip
        reversal: float = Field(
            10.0, ge=0, json_schema_extra={"weight": None},
            description="Weight of the adversaries that read each from the other's block.",
        )  # fmt: skip
        reversal_factor: float = Field(
            10.0, ge=0, description="What a reversed gradient is multiplied by."
        )
        target: float = Field(
            10.0, ge=0, json_schema_extra={"weight": None},
            description="Weight of the target in the second stage.",
        )  # fmt: skip
        mutual: float = Field(
            0.05, ge=0, json_schema_extra={"weight": None},
            description="Share of the mutual block that the classifier sees.",
        )  # fmt: skip
        hidden: int = Field(1000, ge=1, description="Units of every layer of the perceptrons.")
        start_deviation: float | None = Field(
            None, gt=0,
            description="Weights start as N(0, this), biases at 0 (published: 0.02); null: as "
            "torch starts them.",
        )  # fmt: skip

    config: Config
    encoder: LatentEncoder

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        # it has an encoder of its own; the one of the specification is not used
        own = LatentEncoder(3 * config.block)
        super().__init__(config, own, classes, groups)
        k, h = config.block, config.hidden
        self.decoder = Decoder(3 * k)
        self.heads = nn.ModuleDict(
            {
                "target": mlp(k, h, classes),
                "protected": mlp(k, h, groups),
                "target_adversary": mlp(k, h, groups),
                "protected_adversary": mlp(k, h, classes),
            }
        )
        self.discriminator = mlp(3 * k, h, 2)
        self.mutual = nn.Linear(k, k)
        self.mutual_adversary = mlp(k, h, groups)
        self.classifier = mlp(k, h, classes)
        if config.start_deviation is not None:
            self._start(config.start_deviation)

    def _start(self, deviation: float) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
                nn.init.normal_(module.weight, 0.0, deviation)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def stages(self) -> tuple[Stage, ...]:
        return (
            Stage("learn", ("vae", "discriminator"), augment=False),
            Stage("classify", ("classifier",), inputs="features"),
        )

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        members = {
            "vae": (self.encoder, self.decoder, self.heads),
            "discriminator": (self.discriminator,),
            "classifier": (self.mutual, self.mutual_adversary, self.classifier),
        }
        return {k: [p for m in modules for p in m.parameters()] for k, modules in members.items()}

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        if stage == "classify":
            yield "classifier", self._classifier_losses(batch)
            return
        mean_BZ, log_variance_BZ = self.encoder.stats(batch.images)
        mean_BZ, log_variance_BZ = mean_BZ.float(), log_variance_BZ.float()
        z_BZ = sampled(mean_BZ, log_variance_BZ)
        yield "vae", self._vae_losses(batch, mean_BZ, log_variance_BZ, z_BZ)
        real_BZ = z_BZ.detach()
        mixed_BZ = permute_blocks(real_BZ, (self.config.block,) * 3)
        label_B = torch.zeros_like(batch.t_B)
        told = F.cross_entropy(self.discriminator(real_BZ), label_B)
        told = told + F.cross_entropy(self.discriminator(mixed_BZ), label_B + 1)
        yield "discriminator", Losses(told, {"discriminator": told.detach()})

    def _vae_losses(
        self, batch: Batch, mean_BZ: Tensor, log_variance_BZ: Tensor, z_BZ: Tensor
    ) -> Losses:
        c, heads = self.config, self.heads
        target_BK, _, protected_BK = z_BZ.chunk(3, dim=1)
        picture = F.interpolate(batch.images, (SIDE, SIDE), mode="bilinear", antialias=True)
        picture = (picture * 0.5 + 0.5).clamp(0, 1)  # images come with mean = std = 0.5
        logits = self.decoder(z_BZ).float()
        parts = {
            "reconstruction": F.binary_cross_entropy_with_logits(
                logits, picture.to(logits.dtype), reduction="sum"
            )
            / len(picture),
            "kl": standard_normal_kl(mean_BZ, log_variance_BZ),
            "tc": total_correlation(self.discriminator(z_BZ)),
            "attribute": F.cross_entropy(heads["target"](target_BK), batch.t_B)
            + F.cross_entropy(heads["protected"](protected_BK), batch.s_B),
            "reversal": F.cross_entropy(
                heads["target_adversary"](reverse_gradient(target_BK, c.reversal_factor)), batch.s_B
            )
            + F.cross_entropy(
                heads["protected_adversary"](reverse_gradient(protected_BK, c.reversal_factor)),
                batch.t_B,
            ),
        }
        total = parts["reconstruction"] + parts["kl"] + c.tc * parts["tc"]
        total = total + c.attribute * parts["attribute"] + c.reversal * parts["reversal"]
        return Losses(total, {k: v.detach() for k, v in parts.items()})

    def _classifier_losses(self, batch: Batch) -> Losses:
        features = batch.features or self.stage_features(batch.images)
        # the adversaries saw samples: from a mean, much more of the group can be read
        z_BZ = sampled(features["encoder"].detach(), features["log_variance"].detach())
        target_BK, mutual_BK, _ = z_BZ.chunk(3, dim=1)
        shared_BK = self.mutual(mutual_BK)
        scores_BC = self.classifier(target_BK + self.config.mutual * shared_BK)
        target = F.cross_entropy(scores_BC, batch.t_B)
        reversed_BK = reverse_gradient(shared_BK, self.config.reversal_factor)
        group = F.cross_entropy(self.mutual_adversary(reversed_BK), batch.s_B)
        parts = {"target": target.detach(), "group": group.detach()}
        return Losses(self.config.target * target + group, parts)

    def stage_features(self, images: Tensor) -> dict[str, Tensor]:
        mean_BZ, log_variance_BZ = self.encoder.stats(images)
        return {"encoder": mean_BZ, "log_variance": log_variance_BZ}

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        target_BK, mutual_BK, _ = features["encoder"].chunk(3, dim=1)
        shared_BK = self.config.mutual * self.mutual(mutual_BK)
        return {"encoder": self.classifier(target_BK + shared_BK)}
