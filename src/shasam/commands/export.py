"""``shasam export``: a trained model as a file for another program, or as a folder for a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def export(
    run: str,
    *,
    format: Literal["onnx", "safetensors", "hub"] = "onnx",
    out: Path | None = None,
    allow_chance: Annotated[bool, Parameter(negative=())] = False,
    images: Annotated[bool, Parameter(negative=())] = False,
    encoder: str | None = None,
) -> None:
    """Write a trained model for another program.

    Pre-processing of pixels, probabilities and the decision are inside an ONNX file; its
    metadata names inputs, classes and groups. The file is checked against the model.

    Parameters
    ----------
    run
        The run directory of a trained model, or anything else that predict takes.
    format
        onnx (runs without torch), safetensors (for shasam.load), or hub: a folder with weights,
        config.json and a model card, to be pushed to a model hub.
    out
        The file to write, or the folder for hub; else model with the ending of the format.
    allow_chance
        Also export a model that is no better than chance on the test split of its run.
    images
        For a model of vectors that `shasam embed` made: put their encoder in front, so that one
        file takes images.
    encoder
        That encoder, such as onnx:FILE or hf:NAME, where it is read from a file or the hub.
    """
    from shasam.export import export as write
    from shasam.output import say

    endings = {"onnx": ".onnx", "safetensors": ".safetensors", "hub": ""}
    file = out or Path(f"model{endings[format]}")
    made = write(run, format, file, allow_chance=allow_chance, images=images, encoder=encoder)
    say(f"{format} in {made}")
    say("load it: " + _HINTS[format].format(file=repr(str(made))))


_HINTS = {
    "onnx": "onnxruntime.InferenceSession({file}); docs/serving.md has an example",
    "safetensors": "shasam.load({file})",
    "hub": "shasam.load({file}); push it: huggingface_hub.upload_folder(repo_id=…, folder_path=…)",
}
