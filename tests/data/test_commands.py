"""``shasam data`` from a stranger's chair: a folder and a CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.folders import make_folder

from shasam.cli import app, main
from shasam.data import Manifest
from shasam.data.inspect import cramers_v
from shasam.errors import DataError, SpecError


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    app(words, result_action="return_value")
    return " ".join(capsys.readouterr().out.split())


def own(tmp_path: Path) -> list[str]:
    return ["--csv", str(tmp_path / "photos/people.csv"), "--store", str(tmp_path / "store"),
            "--size", "16"]  # fmt: skip


def test_from_a_folder_and_a_csv_to_a_description(tmp_path: Path, capsys) -> None:
    make_folder(tmp_path / "photos", 120)
    words = [*own(tmp_path), "--target", "smile", "--sensitive", "age:[0,30,60]"]
    words += ["--sheet", str(tmp_path / "sheet.png"), "--save", str(tmp_path / "m.parquet")]
    out = run(["data", "describe", *words], capsys)
    manifest = Manifest.load(tmp_path / "m.parquet")
    assert f"manifest {manifest.sha256}" in out
    assert "age 30-60" in out and "Cramér's V" in out
    with Image.open(tmp_path / "sheet.png") as image:
        colours = np.unique(np.asarray(image).reshape(-1, 3), axis=0)
        assert image.size[0] > 500 and len(colours) > 100


def test_a_column_of_many_numbers_is_described_as_training_takes_it(tmp_path: Path, capsys) -> None:
    table = make_folder(tmp_path / "photos", 240) / "people.csv"
    head, *lines = table.read_text(encoding="utf-8").splitlines()
    aged = [f"{line},{'' if i % 3 else 20 + i % 70}" for i, line in enumerate(lines)]
    table.write_text("\n".join([f"{head},years", *aged]) + "\n", encoding="utf-8")
    words = [*own(tmp_path), "--target", "smile", "--sensitive", "years", "--missing", "use"]
    out = run(["data", "describe", *words], capsys)
    assert "years 20-" in out and "without a group" in out
    assert "240 images listed" in run(["data", "check", *words], capsys)


def test_check_lists_bad_files_and_duplicates(tmp_path: Path, capsys) -> None:
    folder = make_folder(tmp_path / "photos", 300, bad=2)
    (folder / "p007.jpg").write_bytes((folder / "p008.jpg").read_bytes())
    out = run(["data", "check", *own(tmp_path)], capsys)
    assert "300 images listed, 298 readable" in out
    assert "'p000.jpg': a web page saved under an image's name" in out
    # the two web pages are byte-identical as well
    assert "2 files are byte-identical to an earlier one" in out
    assert "p007.jpg = p008.jpg" in out and "every hash is right" in out


def test_check_ends_in_an_error_when_too_much_is_bad(tmp_path: Path, capsys) -> None:
    make_folder(tmp_path / "photos", 50, bad=3)
    with pytest.raises(DataError, match=r"6\.0% of the images cannot be read"):
        run(["data", "check", *own(tmp_path)], capsys)


def test_prepare_packs_once(tmp_path: Path, capsys) -> None:
    make_folder(tmp_path / "photos", 50)
    out = run(["data", "prepare", *own(tmp_path)], capsys)
    assert "50 images of 16 px" in out
    directory = next((tmp_path / "store" / "stores").iterdir())
    stamp = (directory / "store.json").stat().st_mtime_ns
    run(["data", "prepare", *own(tmp_path)], capsys)
    assert (directory / "store.json").stat().st_mtime_ns == stamp


def test_a_sheet_of_the_drawn_faces(tmp_path: Path, capsys) -> None:
    words = ["--n", "40", "--holdout-per-cell", "4", "--store", str(tmp_path)]
    run(["data", "sheet", *words, "--out", str(tmp_path / "s.png"), "--of", "test"], capsys)
    assert (tmp_path / "s.png").is_file()


def test_flags_that_make_no_sense_are_answered(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["data", "describe", "--size", "2"])
    assert "shasam: --size: input should be greater than or equal to 8" in capsys.readouterr().err
    with pytest.raises(SpecError, match="did you mean 'faces'"):
        run(["data", "describe", "--data", "face"], capsys)


def test_cramers_v_by_hand() -> None:
    assert cramers_v([[4, 1], [1, 4]]) == pytest.approx(0.6)  # type: ignore[arg-type]
    assert cramers_v([[5, 5], [5, 5]]) == 0  # type: ignore[arg-type]
    assert cramers_v([[5, 0], [5, 0]]) != cramers_v([[5, 0], [5, 0]])  # type: ignore[arg-type]
