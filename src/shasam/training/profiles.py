"""Named starting points: everything in them may be overridden."""

from __future__ import annotations

from typing import Any

PROFILES: dict[str, dict[str, Any]] = {
    # the paper's settings: 128 px, SGD 0.4, 20 + 10 epochs, 96 views; the stem is FSCL's
    "paper": {
        "data": {"size": 128},
        "model": {"stem": "cifar", "width": 64, "embed_dim": 256},
        "train": {
            "learn": {"epochs": 20, "batch_views": 96, "optimizer": "sgd", "lr": 0.4},
            "classify": {
                "epochs": 10,
                "batch_views": 128,
                "optimizer": "sgd",
                "lr": 0.1,
                "schedule": "constant",
                "warmup": 0.0,
                "weight_decay": 0.0,
            },
        },
    },
    # minutes on two cores
    "cpu": {
        "data": {"size": 64},
        "model": {"stem": "imagenet", "width": 16, "embed_dim": None},
        "train": {
            "learn": {"steps": 1000, "batch_views": 96, "optimizer": "adamw", "lr": 1e-3},
            "classify": {"epochs": 10, "batch_views": 256, "optimizer": "adamw", "lr": 1e-3},
        },
    },
    # all methods beside each other within an hour on two cores: easier embedded faces, short runs,
    # and a ViT of four blocks
    "quick": {
        "data": {"size": 64, "difficulty": 0.25},
        "model": {"stem": "imagenet", "width": 16, "embed_dim": None, "depth": 4},
        "train": {
            "learn": {"steps": 400, "batch_views": 96, "optimizer": "adamw", "lr": 1e-3},
            "classify": {"epochs": 10, "batch_views": 256, "optimizer": "adamw", "lr": 1e-3},
        },
    },
    # seconds: does it run at all?
    "smoke": {
        "data": {"size": 32, "n": 400},
        "model": {"stem": "imagenet", "width": 8, "embed_dim": None},
        "train": {
            "learn": {"steps": 12, "batch_views": 48, "optimizer": "adamw", "lr": 1e-3},
            "classify": {"epochs": 2, "batch_views": 64, "optimizer": "adamw", "lr": 1e-3},
        },
    },
}
