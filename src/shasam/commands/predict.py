"""``shasam predict``: a trained model on a folder of images, to a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def predict(
    run: Path,
    images: Path,
    *,
    out: Path = Path("predictions.csv"),
    device: Literal["cpu", "cuda", "mps"] = "cpu",
) -> None:
    """Predict the images of a folder, or vectors in a file, with a trained run.

    The CSV file has a row for each image or vector, with the probabilities of all classes.

    Parameters
    ----------
    run
        The run directory of a trained model.
    images
        A folder, searched with its subfolders, or one image. For a model of vectors: a file of
        them (.npy, .npz, .safetensors, Parquet or Arrow).
    out
        The CSV file to write.
    device
        Where to compute.
    """
    import numpy as np

    from shasam.data.decode import BadImage, decode
    from shasam.data.features import SUFFIXES
    from shasam.data.files import EXTENSIONS, Folder
    from shasam.errors import InputError
    from shasam.files import write_atomic
    from shasam.output.csv_text import Cell, csv_text
    from shasam.output.terminal import say
    from shasam.pipeline.load import load
    from shasam.pipeline.vector_rows import predicted_rows

    if not images.exists():
        raise InputError(f"there is no file or folder {images}")
    if images.is_file() and images.suffix.lower() in SUFFIXES:
        model = load(run, device)
        listed = list(predicted_rows(model, images))
        named = ["row", "prediction", *(f"p({name})" for name in model.classes), "problem"]
        write_atomic(out, csv_text([[*named], *listed]))
        lost = sum(row[-1] != "" for row in listed)
        note = f", {lost} could not be used" if lost else ""
        say(f"{len(listed) - lost} predictions in {out}{note}")
        return
    root = images if images.is_dir() else images.parent
    found = sorted(images.rglob("*")) if images.is_dir() else [images]
    paths = [p for p in found if p.suffix.lower() in EXTENSIONS and p.is_file()]
    if not paths:
        raise InputError(f"{images} holds no images ({', '.join(EXTENSIONS)})")
    model = load(run, device)
    if model.spec.data.features_dim is not None:
        raise InputError(f"{run} reads vectors; give a file of them ({', '.join(SUFFIXES)})")
    folder = Folder(root)
    head = ["path", "prediction", *(f"p({name})" for name in model.classes), "problem"]
    rows: list[list[Cell]] = [[*head]]
    bad = 0
    for start in range(0, len(paths), 256):
        names, pixels = [], []
        for path in paths[start : start + 256]:
            name = path.relative_to(root).as_posix()
            try:
                pixels.append(decode(folder.read(name), model.spec.data.size))
                names.append(name)
            except BadImage as error:
                bad += 1
                rows.append([name, "", *("" for _ in model.classes), str(error)])
        if not pixels:
            continue
        answer = model.predict(np.stack(pixels))
        for name, label, scores in zip(names, answer.labels, answer.scores, strict=True):
            rows.append([name, label, *(f"{p:.6f}" for p in scores), ""])
    write_atomic(out, csv_text(rows))
    note = f", {bad} could not be read" if bad else ""
    say(f"{len(paths) - bad} predictions in {out}{note}")
