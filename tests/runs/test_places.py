"""Places that cannot be written, and start weights that do not fit: said before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from shasam.cli import app
from shasam.errors import InputError, ShasamError
from shasam.files import check_writable


@pytest.mark.needs_torch
def test_a_place_that_cannot_be_written_is_an_error_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    nowhere = tmp_path / "file" / "x"
    table = tmp_path / "p.csv"
    table.write_text("label,prediction,group\n1,1,a\n0,1,b\n1,0,b\n0,0,a\n")
    store = ["--store", str(tmp_path / "store")]
    for words in (
        ["audit", str(table), "--html", str(nowhere)],
        ["audit", str(table), "--json", str(tmp_path)],
        ["train", "ce", "--profile", "smoke", "--out", str(nowhere), *store],
        ["compare", "--methods", "ce", "--profile", "smoke", "--page", str(nowhere), *store],
        ["data", "describe", "--save", str(nowhere), *store],
    ):
        with pytest.raises(ShasamError, match=r"cannot be written|is a folder"):
            app(words, result_action="return_value")
        assert not (tmp_path / "store").exists()
    assert "EO" not in capsys.readouterr().out
    with pytest.raises(ShasamError, match=r"cannot be kept here .* data\.store"):
        app(["data", "prepare", "--n", "40", "--store", str(nowhere)], result_action="return_value")


def test_looking_whether_a_place_can_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "page.html")
    check_writable(tmp_path / "runs", folder=True)
    assert list(tmp_path.iterdir()) == []


def test_start_weights_are_read_before_any_image(tmp_path: Path) -> None:
    words = ["train", "ce", "--profile", "smoke", "--init", str(tmp_path / "none.safetensors")]
    words += ["--out", str(tmp_path / "runs"), "--store", str(tmp_path / "store")]
    with pytest.raises(InputError, match="no weights file"):
        app(words, result_action="return_value")
    assert not (tmp_path / "store").exists()
