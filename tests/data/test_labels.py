"""Labels of one's own table: what is wrong with them is said before any image is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.data.folders import make_folder

from shasam.data import DataSpec, open_data
from shasam.errors import DataError, ShasamWarning


def own(folder: Path, sexes: list[str], **changes: object) -> DataSpec:
    """Images of which every k-th has the k-th of the names in the column ``sex``."""
    make_folder(folder, 60)
    lines = (folder / "people.csv").read_text().splitlines()
    rows = [f"{line},{sexes[k % len(sexes)]}" for k, line in enumerate(lines[1:])]
    (folder / "people.csv").write_text("\n".join([f"{lines[0]},sex", *rows]) + "\n", "utf-8")
    given = {"csv": folder / "people.csv", "target": "smile", "sensitive": "sex", "size": 16}
    return DataSpec(**{**given, "store": folder / "store", **changes})


def test_rows_without_a_label_are_refused_left_out_or_a_group_of_their_own(tmp_path: Path) -> None:
    sexes = ["f", "m", "f", "m", ""]
    with pytest.raises(DataError, match=r"12 of 60 rows of people.csv .* 'sex'.*missing='drop'"):
        open_data(own(tmp_path, sexes))
    assert not (tmp_path / "store").exists()
    assert len(open_data(own(tmp_path, sexes, missing="drop"))) == 48
    kept = open_data(own(tmp_path, sexes, missing="group"))
    assert len(kept) == 60 and kept.sensitive_names == ("f", "m", "(missing)")
    with pytest.raises(DataError, match="'sex'"):  # a target cannot be guessed
        open_data(own(tmp_path, sexes, missing="group", target="sex", sensitive="smile"))


def test_names_that_differ_by_case_or_spaces_and_words_for_no_value_are_pointed_out(
    tmp_path: Path,
) -> None:
    with pytest.warns(ShasamWarning) as said:
        data = open_data(own(tmp_path, ["f", "m", " M", "none"]))
    texts = " ".join(str(entry.message) for entry in said)
    assert "' M', 'm' as classes of their own" in texts and "spell them alike" in texts
    assert "'none' as a class of its own" in texts and "missing=drop" in texts
    assert len(data.sensitive_names) == 4  # nothing is guessed


@pytest.mark.parametrize("sensitive", ["smile", "smile==0"])
def test_a_target_that_says_the_same_as_the_sensitive_attribute_is_refused(
    tmp_path: Path, sensitive: str
) -> None:
    with pytest.raises(DataError, match="say the same"):
        open_data(own(tmp_path, ["f", "m"], sensitive=sensitive))


def test_a_cell_that_is_empty_in_a_split_is_named_before_training(tmp_path: Path) -> None:
    with pytest.warns(ShasamWarning, match=r"the val split has no row of class .*'m'"):
        open_data(own(tmp_path, ["f"] * 9 + ["m"]))
