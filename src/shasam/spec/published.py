"""What the authors of each method trained with: the entries of profile ``paper`` for rivals.

Lengths that the papers give in epochs stay epochs. ``docs/methods.md`` has the table with its
sources, and says where ours differs: MFD's rate follows a plateau there and a cosine here, and
FD-VAE's discriminator has other momenta there.
"""

from __future__ import annotations

from typing import Any

# crops and flips alone; the papers that say no more than "standard augmentation"
_CROPS = {"data": {"views": {"p_jitter": 0.0, "grayscale": 0.0}}}
_FIXED = {"schedule": "constant", "warmup": 0.0}
_SGD = {"optimizer": "sgd", "momentum": 0.9}


def _learn(**settings: Any) -> dict[str, Any]:
    return {"train": {"learn": settings}}


_CE = {**_CROPS, **_learn(epochs=20, batch_views=128, **_SGD, lr=0.1, weight_decay=1e-4)}
_FSCL = {
    "train": {
        "learn": {"epochs": 100, "batch_views": 256, **_SGD, "lr": 0.1, "weight_decay": 1e-4},
        "classify": {"epochs": 10, "batch_views": 256, **_SGD, "lr": 0.1, "weight_decay": 0.0},
    }
}
_TADET = {
    **_CROPS,
    **_learn(steps=20_000, batch_views=32, **_SGD, lr=3e-2, warmup=0.005, clip=1.0),
}

PUBLISHED: dict[str, dict[str, Any]] = {
    **{
        f"method={name}": _CE
        for name in ("ce", "balanced", "balanced-hidden", "reweight", "posthoc", "grl", "groupdro")
    },
    "method=supcon": _FSCL,
    "method=fscl": _FSCL,
    "method=fscl+": _FSCL,
    # unlearns from a baseline at a tenth of the baseline's rate
    "method=lnl": {
        **_CROPS,
        "options": {"start": "ce"},
        "train": {
            "learn": {
                "epochs": 100,
                "batch_views": 128,
                **_SGD,
                "lr": 1e-3,
                "weight_decay": 5e-4,
                "warmup": 0.0,
                "schedule": "step",
                "step_every": 0.4,
                "step_factor": 0.1,
            },
            "others": {
                "baseline": {
                    "epochs": 100,
                    "batch_views": 128,
                    **_SGD,
                    "lr": 1e-2,
                    "weight_decay": 5e-4,
                    "warmup": 0.0,
                    "schedule": "step",
                    "step_every": 0.4,
                    "step_factor": 0.1,
                }
            },
        },
    },
    "method=mfd": {**_CROPS, **_learn(epochs=50, batch_views=128, optimizer="adam", lr=1e-3)},
    "method=fdvae": {
        "data": {"size": 64},
        "options": {"start_deviation": 0.02},
        "train": {
            "learn": {
                "epochs": 100,
                "batch_views": 64,
                "optimizer": "adam",
                "lr": 1e-4,
                "weight_decay": 0.0,
                **_FIXED,
            },
            "classify": {
                "epochs": 50,
                "batch_views": 64,
                "optimizer": "adam",
                "lr": 1e-6,
                "weight_decay": 0.0,
                **_FIXED,
            },
        },
    },
    "method=tadet": _TADET,
    "method=tadet-mmd": _TADET,
    "method=fairvit": {
        **_CROPS,
        "model": {"drop_path": 0.1},
        **_learn(
            epochs=30,
            batch_views=32,
            **_SGD,
            lr=5e-4,
            warmup=0.0,
            schedule="step",
            step_every=1 / 6,
            step_factor=0.5,
        ),
    },
}
