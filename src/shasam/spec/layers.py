"""Merge the layers of a specification: a profile, a YAML file, flags and ``--set``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shasam.documents import parse_yaml
from shasam.errors import Argument, SpecError
from shasam.extras import has
from shasam.registry import lookup, names
from shasam.spec.fields import ModelSpec, StageSpec, with_source
from shasam.tables import open_table

# -------------------------------------------------------------------------------------------------
# Layers of a specification: a profile, a YAML file, flags and `--set`; the last one wins.
# -------------------------------------------------------------------------------------------------


def parse_set(pairs: Sequence[str]) -> dict[str, Any]:
    """Return ``["train.lr=0.1", "seed=3"]`` as nested keys; values are read as YAML."""
    body: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise SpecError(Argument("set", pair), ": write it as dotted.key=value")
        value = parse_yaml(text, f"--set {pair!r:.80}")
        if isinstance(value, str):
            value = _number(value)
        body = merge(body, nest(key, value))
    return body


def nest(key: str, value: Any) -> dict[str, Any]:
    """Write out dots: ``nest("a.b", 1)`` is ``{"a": {"b": 1}}``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge dicts key by key; everything else is replaced by what lies above."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merge(old, value)
        else:
            result[key] = value
    return result


def lay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return one layer on another, both with full keys.

    A stage keeps the length that lies above.
    """
    result = merge(below, above)
    train = above.get("train")
    for path, stage in _stages(train if isinstance(train, Mapping) else {}):
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if stage.get(one) is not None and stage.get(other) is None:
                result = merge(result, nest(f"train.{path}.{other}", None))
    return result


def full_keys(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer with dotted and short keys written out.

    >>> full_keys({"train.lr": 0.1, "model": {"width": 8}})
    {'train': {'learn': {'lr': 0.1}}, 'model': {'options': {'width': 8}}}
    """
    body: dict[str, Any] = {}
    for key, value in layer.items():
        body = merge(body, nest(str(key), value))
    _move(body, "train", "learn", lambda key: key in StageSpec.model_fields)
    _name_the_source(body)
    _move(body, "model", "options", lambda key: key not in ModelSpec.model_fields)
    return body


def _name_the_source(body: dict[str, Any]) -> None:
    """Write out ``encoder: hf:NAME``, short for ``encoder: hf`` and ``options.source: NAME``."""
    model = body.get("model")
    name = model.get("encoder") if isinstance(model, Mapping) else None
    if isinstance(model, Mapping) and isinstance(name, str) and ":" in name:
        kind, _, source = name.partition(":")
        body["model"] = {**model, "encoder": kind, "source": source}


def _move(body: dict[str, Any], part: str, inner: str, short: Any) -> None:
    """Turn ``part.key`` into ``part.inner.key`` if ``key`` is a short one."""
    given = body.get(part)
    if not isinstance(given, Mapping):
        return
    moved = {key: value for key, value in given.items() if short(key)}
    if not moved or not isinstance(given.get(inner, {}), Mapping):
        return
    kept = {key: value for key, value in given.items() if key not in moved}
    # a short key is the plainer wish: it wins over the long one of the same layer
    long = {inner: kept.get(inner) or {}}
    body[part] = {**kept, **lay({"train": long}, {"train": {inner: moved}})["train"]}


def _stages(train: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    others = train.get("others")
    named = others.items() if isinstance(others, Mapping) else ()
    found = [(name, train.get(name)) for name in ("learn", "classify")]
    found += [(f"others.{name}", stage) for name, stage in named]
    return [(path, stage) for path, stage in found if isinstance(stage, Mapping)]


def _number(text: str) -> str | float:
    """Read 1e-3 as the number that people mean; YAML 1.1 reads it as a string."""
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text


# -------------------------------------------------------------------------------------------------
# What the authors of each method trained with: the entries of profile `paper` for rivals.
#
# Lengths that the papers give in epochs stay epochs. `experiments/alive/rivals.md` has the table
# with its sources, and says where ours differs: MFD's rate follows a plateau there and a cosine
# here, and FD-VAE's discriminator has other momenta there.
# -------------------------------------------------------------------------------------------------

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
        for name in (
            "ce",
            "balanced",
            "balanced-hidden",
            "reweight",
            "posthoc",
            "thresholds",
            "grl",
            "groupdro",
            "gap",
            "mmd",
            "hsic",
            "scaling",
            "dfr",
            "jtt",
            "lisa",
        )
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


# -------------------------------------------------------------------------------------------------
# Profiles: named sets of defaults, all of which can be overridden.
#
# `where` holds entries that apply only to runs whose specification has `key=value`.
# -------------------------------------------------------------------------------------------------

# chosen on validation, see experiments/recipe: SupCon's crops, down to a fifth of the image, keep a
# small network on a plateau for hundreds of steps
_LARGE_CROPS = {"crop_scale": [0.5, 1.0]}
# vectors are learnt by heart soon: chosen on validation, see docs/training.md
_ON_VECTORS: dict[str, Any] = {
    "data.name=embeddings": {
        "train": {
            "learn": {"steps": 300, "lr": 1e-3, "clip": None},
            "classify": {"epochs": 3},
        }
    },
    "model.encoder=mlp": {"model": {"dropout": 0.3}},
}
_SMALL_RESNET = {"model": {"stem": "imagenet", "width": 16, "embed_dim": None}}
_CLASSIFY = {"epochs": 10, "batch_views": 256, "optimizer": "adamw", "lr": 1e-3}
_QUICK_STAGE = {
    "steps": 300,
    "batch_views": 96,
    "optimizer": "adamw",
    "lr": 3e-3,
    "clip": 1.0,
}
# Short runs: a ViT from scratch, an easy target (long hair), and weaker adversaries, chosen on
# validation: at full strength they keep a short run from learning the target.
_SHORT_RUNS: dict[str, Any] = {
    "model.encoder=resnet18": _SMALL_RESNET,
    "data.name=faces": {"data": {"target": "long_hair"}},
    **_ON_VECTORS,
    "model.encoder=vit": {
        "model": {"patch_stem": "convolutions", "depth": 2},
        "train": {"learn": {"lr": 1e-3}},
    },
    "method=grl": {"options": {"slope": 1.0}},
    "method=lnl": {"options": {"reversal": 1.0, "slope": 1.0, "tap": "last"}},
    "method=tadet": {"options": {"strength": 0.1, "slope": 1.0}},
    "method=tadet-mmd": {"options": {"strength": 0.1}},
    "method=fairvit": {"options": {"distance_from": 0.5}, "model": {"drop_path": 0.1}},
    "method=fdvae": {
        "options": {"attribute": 500.0, "reversal": 100.0, "reversal_factor": 1.0},
        "train": {"learn": {"lr": 1e-3, "clip": None}},
    },
}

PROFILES: dict[str, dict[str, Any]] = {
    # the paper's settings for SHaSaM: 128 px, SGD, 20 + 10 epochs, 96 views, FSCL's stem.
    # Rivals have what their authors published, see experiments/alive/rivals.md
    "paper": {
        "data": {"size": 128},
        "where": {
            "model.encoder=resnet18": {"model": {"stem": "cifar", "width": 64, "embed_dim": 256}},
            **PUBLISHED,
            # the paper's rate suits its own objective, a mean over 96 views. With the cross-entropy
            # beside ours it diverges in the first epoch (experiments/paper-profile)
            "method=shasam": {"train": {"learn": {"lr": 0.1}}},
            "method=shasam-random": {"train": {"learn": {"lr": 0.1}}},
            "method=shasam-ld": {"train": {"learn": {"lr": 0.1}}},
            "method=shasam-literal": {"train": {"learn": {"warmup": 0.0}}},
            # the paper has no embeddings: its optimiser, at a rate and length that suit an MLP
            "data.name=embeddings": {
                "train": {"learn": {"epochs": 5, "lr": 0.05}, "classify": {"epochs": 3}}
            },
            "model.encoder=mlp": {"model": {"dropout": 0.3}},
        },
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
        "data": {"size": 64, "views": _LARGE_CROPS},
        "where": {
            "model.encoder=resnet18": _SMALL_RESNET,
            "model.encoder=vit": {"train": {"learn": {"lr": 1e-3}}},
            **_ON_VECTORS,
        },
        "train": {
            "learn": {"steps": 1000, "batch_views": 96, "optimizer": "adamw", "lr": 3e-3},
            "classify": _CLASSIFY,
        },
    },
    # all methods beside each other within an hour on two cores
    "quick": {
        "data": {"size": 64, "views": _LARGE_CROPS},
        "where": _SHORT_RUNS,
        "train": {"learn": _QUICK_STAGE, "classify": _CLASSIFY, "validate_every": 4},
    },
    # the paper's tables: hundreds of runs in some hours on two cores. As `quick`, with crops that a
    # short run learns more from (experiments/recipe) and without what the tables do not show
    "short": {
        "data": {"size": 64, "views": {"crop_scale": [0.8, 1.0]}},
        "where": {
            **_SHORT_RUNS,
            # at full weight from the first step and with wide embeddings, as the runs of the
            # committed tables were: hair is found all the same
            "method=shasam-random": {
                "options": {
                    "weight_from": 0.0,
                    "weight_ramp": 0.0,
                    "projection_dim": 128,
                    "primary_features": "encoder",
                }
            },
            "method=shasam-ld": {"options": {"weight_from": 0.0, "weight_ramp": 0.0}},
            # stronger adversaries, and a second stage that does not take half of the run: chosen on
            # validation (experiments/tables-tuning)
            "method=fdvae": merge(
                _SHORT_RUNS["method=fdvae"],
                {"options": {"reversal": 300.0}, "train": {"classify": {"epochs": 3}}},
            ),
        },
        "train": {
            "learn": {**_QUICK_STAGE, "steps": 200},
            "classify": _CLASSIFY,
            "validate_every": 4,
            "natural_head": False,
            "precision": "auto",
        },
    },
    # the paper's tables on vectors of a frozen pretrained network (--features): seconds a run, at
    # accuracies near the paper's. As `cpu` on vectors, without what the tables do not show
    "frozen": {
        "where": _ON_VECTORS,
        "train": {
            "learn": {"steps": 300, "batch_views": 96, "optimizer": "adamw", "lr": 1e-3},
            "classify": _CLASSIFY,
            "validate_every": 0,
            "natural_head": False,
        },
    },
    # seconds: does it run at all?
    "smoke": {
        "data": {"size": 32},
        "where": {
            "data.name=faces": {"data": {"n": 400}},
            "model.encoder=resnet18": {
                "model": {"stem": "imagenet", "width": 8, "embed_dim": None}
            },
        },
        "train": {
            "learn": {"steps": 12, "batch_views": 48, "optimizer": "adamw", "lr": 1e-3},
            "classify": {"epochs": 2, "batch_views": 64, "optimizer": "adamw", "lr": 1e-3},
        },
    },
}


# -------------------------------------------------------------------------------------------------
# Choose the network for a user's own images where none is named: a pretrained one if installed.
#
# The choice is a layer of the specification below the flags. The specification that is stored names
# everything, so a recorded run and ``shasam reproduce`` never come here.
# -------------------------------------------------------------------------------------------------

ENCODER = "efficientnet-lite0"
SIZE = 96  # pixels; half of the arithmetic of 128, and faces are still told apart
BLOCKS = 8  # of 16 that are trained
STEPS = 300
OWN = ("table", "datasets")  # sources of a user's own images
_WITHOUT_NETWORK = (
    "cpu",
    "quick",
)  # the others say which network they are for, or that it does not matter
# The frozen blocks cost two passes over every image where they are kept, and one over every view
# of every step where they are not. Above so many images a single run is faster without them
MOST_CACHED = 40_000


@dataclass(frozen=True)
class StartingPoint:
    """What is laid below the flags, and the sentence about it; both empty where nothing is."""

    layer: Mapping[str, Any] = field(default_factory=dict)
    line: str = ""


def starting_point(
    asked: Mapping[str, Any], method: str, profile: str | None, *, runs: int = 1
) -> StartingPoint:
    """Return the network for ``runs`` runs of a method on the images that the flags name."""
    body = full_keys(asked)
    data = with_source(body.get("data") or {})
    if data.get("name") not in OWN or body.get("model") or profile not in _WITHOUT_NETWORK:
        return StartingPoint()
    if not takes_any_encoder(method):
        return StartingPoint()
    if not has("pretrained"):
        return StartingPoint(
            line="encoder: a small ResNet-18 from scratch. Starting from ImageNet weights was "
            "worth 7.6 points of accuracy on UTKFace: pip install 'shasam[pretrained]', and the "
            "same command takes them"
        )
    n = images(data.get("csv"))
    cache = n <= MOST_CACHED * runs
    how = (
        "its frozen blocks are computed once"
        if cache
        else f"its frozen blocks are not kept, as {n:,} images would take longer than {STEPS} steps"
    )
    size = data.get("size", SIZE)
    return StartingPoint(
        {
            "model": {"encoder": ENCODER, "freeze": BLOCKS, **({"cache": True} if cache else {})},
            "data": {"size": size},
            "train": {"learn": {"steps": STEPS}},
        },
        f"encoder: {ENCODER} with ImageNet weights at {size} px, as the extra pretrained is "
        f"installed; its last {BLOCKS} blocks are trained and {how}. Another: --encoder resnet18",
    )


def takes_any_encoder(method: str) -> bool:
    """Return whether a method works on any image network, and needs no inner layer of it."""
    if method not in names("method"):
        return False
    kind = lookup("method", method)
    inner = "tap" in kind.Config.model_fields
    return not (kind.needs_images or kind.needs_encoder or inner)


def images(csv: Any) -> int:
    """Return rows of a table; 0 if it cannot be read, which is said when it is opened."""
    path = Path(str(csv))
    if csv is None or not path.is_file():
        return 0
    table = open_table(path)
    if table.rows is not None:
        return table.rows
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))
