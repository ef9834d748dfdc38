"""A scratch folder with everything that the pages speak of, small."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tests.data.test_hugging_face import saved
from tests.data.test_sources import celeba, utkface


def make_world(folder: Path) -> Path:
    """``people.csv``, photos, small data sets, embeddings and predictions of any framework."""
    rng = np.random.default_rng(0)
    _people(folder, rng)
    utkface(folder / "utkface", per_cell=60)
    celeba(folder / "celeba", n=400)
    for name in ("UTKFace", "faces"):
        (folder / name).symlink_to(folder / "utkface")
    labels = rng.integers(0, 2, (200, 2))
    np.save(folder / "embeddings.npy", rng.normal(size=(200, 16)).astype(np.float32))
    _table(folder / "labels.csv", ["t", "s"], labels.tolist())
    _predictions(folder / "predictions.csv", rng)
    _scored(folder / "people_scored.csv", rng)
    _applicants(folder / "applicants.csv", rng)
    saved(folder / "people_hf")
    (folder / "scenarios.yaml").write_text(
        "- {attribute: sex, metric: eo_mean, at_most: 0.5, review: 2027-01-15}\n"
        "- {attribute: sex, group: f, metric: selection, at_least: 0.1}\n"
    )
    _warehouse(folder, rng)
    return folder


def _people(folder: Path, rng: np.random.Generator) -> None:
    rows = []
    for k in range(240):
        name = f"{k // 2:03d}/{k % 2}.jpg"
        smiling, age, gender = rng.integers(2), int(rng.integers(18, 70)), rng.integers(2)
        rows.append([name, ("no", "yes")[smiling], age, f"p{k // 2}", ("f", "m")[gender]])
        pixels = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        for place in ("photos", "images"):
            path = folder / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).resize((24, 24)).save(path, quality=90)
    for name in ("people.csv", "new.csv"):
        _table(folder / name, ["path", "smiling", "age", "person", "gender"], rows)
    picture = Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8))
    for name in ("new_photos/1.jpg", "new_photos/2.jpg", "folder/1.jpg", "one.jpg", "two.jpg"):
        (folder / name).parent.mkdir(exist_ok=True)
        picture.save(folder / name)


def _predictions(path: Path, rng: np.random.Generator) -> None:
    """Columns under every name that docs/audit.md uses."""
    y, sex = rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    guess = np.where(rng.random(600) < 0.8 + 0.05 * sex, y, 1 - y)
    rows = [[a, b, ("f", "m")[c], a, b] for a, b, c in zip(y, guess, sex, strict=True)]
    _table(path, ["y", "guess", "sex", "label", "prediction"], rows)


def _scored(path: Path, rng: np.random.Generator) -> None:
    """Predictions with weights, dates, ages and numbers to predict."""
    rows = []
    for k in range(600):
        y, wrong, age = int(rng.integers(2)), bool(rng.random() < 0.2), int(rng.integers(18, 80))
        day = np.datetime64("2024-01-01") + k // 4
        who = [("f", "m")[rng.integers(2)], ("black", "white")[rng.integers(2)]]
        income = 1000 * int(rng.integers(20, 90))
        numbers = [round(float(rng.gamma(3.0, 0.3)), 3), income, income + int(rng.normal(0, 3000))]
        rows.append([y, y ^ wrong, *who, age, str(day), *numbers])
    header = ["label", "prediction", "sex", "race", "age", "day", "w", "income", "estimate"]
    _table(path, header, rows)


def _applicants(path: Path, rng: np.random.Generator) -> None:
    """Selections by sex and race, some of them unknown."""
    rows = []
    for _ in range(800):
        race = ("Asian", "Black", "White", "")[rng.integers(4)]
        rows.append([("no", "yes")[rng.integers(2)], ("Female", "Male")[rng.integers(2)], race])
    _table(path, ["selected", "sex", "race"], rows)


def _warehouse(folder: Path, rng: np.random.Generator) -> None:
    """Counted rows, and a folder of Parquet files."""
    rows = [
        [t, p, sex, race, score, int(rng.integers(20, 90))]
        for t in (0, 1)
        for sex in "fm"
        for race in "AB"
        for p, score in ((0, 0.3), (1, 0.8))
    ]
    _table(folder / "counts.csv", ["label", "prediction", "sex", "race", "score", "n"], rows)
    (folder / "parts").mkdir()
    for i in range(2):
        y, p, sex = rng.integers(0, 2, (3, 300))
        table = pa.table({"label": y, "prediction": p, "sex": np.array(["f", "m"])[sex]})
        pq.write_table(table, folder / "parts" / f"{i}.parquet")


def _table(path: Path, header: list[str], rows: list) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
