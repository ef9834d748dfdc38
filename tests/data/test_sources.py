"""Sources: each keeps the contract; nothing is guessed, nothing leaves its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.data.folders import make_folder

from shasam.data import DataSpec, Listing, Reading, Source, make_protocol, make_source, open_data
from shasam.data.sources.public_faces import CelebA
from shasam.errors import ContractError, DataError, SpecError
from shasam.registry import names, register
from shasam.spec import resolve
from shasam.testing import check_source


def photo(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((20, 20)).save(path, "JPEG")


def utkface(root: Path, per_cell: int = 12) -> Path:
    seed = 0
    for age in (20, 50):
        for gender in (0, 1):
            for race in (0, 1):
                for k in range(per_cell):
                    photo(root / f"{age + k}_{gender}_{race}_2017010{k:011d}.jpg.chip.jpg", seed)
                    seed += 1
    return root


def celeba(root: Path, n: int = 60) -> Path:
    rng = np.random.default_rng(0)
    header = [f"A{k}" for k in range(33)]
    header += ["Attractive", "Big_Nose", "Bags_Under_Eyes", "Smiling", "Male", "Young"]
    header += ["Brown_Hair"]
    lines, parts = [str(n), " ".join(header) + " "], []
    for k in range(n):
        values = " ".join(f"{v:2d}" for v in rng.choice([-1, 1], len(header)))
        lines.append(f"{k + 1:06d}.jpg {values}")
        parts.append(f"{k + 1:06d}.jpg {(0, 0, 0, 1, 2)[k % 5]}")
        photo(root / "img_align_celeba" / f"{k + 1:06d}.jpg", k)
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root


def own(tmp_path: Path, **changes: object) -> DataSpec:
    values = {
        "name": "table", "root": tmp_path / "photos", "csv": tmp_path / "photos/people.csv",
        "target": "smile", "sensitive": "age<35", "store": tmp_path / "store", "size": 16,
    }  # fmt: skip
    return DataSpec(**{**values, **changes})


def test_all_built_in_sources_keep_the_contract(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 60)
    specs = {
        "faces": DataSpec(n=40, holdout_per_cell=4),
        "clusters": DataSpec(name="clusters"),
        "utkface": DataSpec(name="utkface", root=utkface(tmp_path / "u"), holdout_per_cell=3),
        "celeba": DataSpec(name="celeba", root=celeba(tmp_path / "c")),
        "table": own(tmp_path),
    }
    assert set(specs) <= set(names("source"))
    for name, spec in specs.items():
        check_source(spec, sample=6)
        assert make_source(spec).spec.name == name


class _Stray(Source):
    """A source whose pictures depend on the batch."""

    summary, target, sensitive = "broken on purpose", "t", "s"

    def list_images(self) -> Listing:
        ids = [f"{k:03d}" for k in range(60)]
        t, s = [k % 2 for k in range(60)], [k // 2 % 2 for k in range(60)]
        return Listing(pa.table({"id": ids, "path": ids, "t": t, "s": s}))

    def read(self, table: pa.Table, size: int) -> Reading:
        images = np.full((table.num_rows, size, size, 3), table.num_rows % 256, dtype=np.uint8)
        return Reading(images, ["0" * 64] * table.num_rows, [""] * table.num_rows)

    def pixels_key(self) -> str:
        return "stray"


def test_a_source_that_depends_on_the_batch_is_found_out() -> None:
    register("stray", kind="source")(_Stray)
    with pytest.raises(ContractError, match="reads otherwise alone"):
        check_source(DataSpec(name="stray"))


# ---------------------------------------------------------------- UTKFace


def test_irregular_names_are_listed_never_guessed(tmp_path: Path) -> None:
    root = utkface(tmp_path / "u")
    for name in ("61_1_20170109142408075.jpg.chip.jpg", "20_3_0_20170109142408075.jpg", "x.jpg"):
        photo(root / name, 999)
    photo(root / "24_0_1_20170116220224657 .jpg.chip.jpg", 1000)
    (root / "Thumbs.db").write_bytes(b"x")
    listing = make_source(DataSpec(name="utkface", root=root)).listing
    reasons = {e.id: e.reason for e in listing.excluded}
    assert reasons == {
        "61_1_20170109142408075.jpg.chip.jpg": "irregular name: not age_gender_race_time",
        "20_3_0_20170109142408075.jpg": "irregular name: not age_gender_race_time",
        "x.jpg": "irregular name: not age_gender_race_time",
        "Thumbs.db": "not an image by its name",
    }
    assert listing.notes == [
        "irregular name, its three labels used: '24_0_1_20170116220224657 .jpg.chip.jpg'"
    ]


def test_utkface_labels_are_those_of_fscl(tmp_path: Path) -> None:
    spec = DataSpec(name="utkface", root=utkface(tmp_path / "u"), holdout_per_cell=3,
                    store=tmp_path / "s", size=16, alpha=2)  # fmt: skip
    data = open_data(spec)
    assert data.target_names == ("female", "male") and data.sensitive_names == ("other", "white")
    gender, race = (data.attributes.column(c).to_numpy() for c in ("gender", "race"))
    assert np.array_equal(data.t_N, (gender == 0).astype(int))
    assert np.array_equal(data.s_N, (race == 0).astype(int))
    train = data.rows("train")
    cells = np.bincount(data.t_N[train] * 2 + data.s_N[train])
    assert cells[0] == cells[3] > cells[1] == cells[2]
    assert any("instead of 5800" in note for note in data.manifest.notes)


def test_duplicates_with_other_labels_are_out(tmp_path: Path) -> None:
    root = utkface(tmp_path / "u")
    first = sorted(root.iterdir())[0]
    (root / "90_1_1_20180101000000000.jpg").write_bytes(first.read_bytes())
    data = open_data(DataSpec(name="utkface", root=root, store=tmp_path / "s", size=16,
                              holdout_per_cell=3))  # fmt: skip
    kept = data.manifest.table.column("id").to_pylist()
    assert first.name not in kept and "90_1_1_20180101000000000.jpg" not in kept
    assert sum("another label" in e["reason"] for e in data.manifest.excluded) == 2


# ---------------------------------------------------------------- CelebA


def test_the_ten_settings_name_their_attributes() -> None:
    assert len(CelebA.settings) == 10
    assert CelebA.settings["e&b/m"] == ("Bags_Under_Eyes&Big_Nose", "Male")
    assert CelebA.settings["a/m&y"] == ("Attractive", "Male&Young")
    assert CelebA.settings["a/br"] == ("Attractive", "Brown_Hair")


def test_celeba_keeps_the_official_partition(tmp_path: Path) -> None:
    spec = DataSpec(name="celeba", root=celeba(tmp_path / "c"), store=tmp_path / "s", size=16,
                    setting="a/m&y")  # fmt: skip
    data = open_data(spec)
    assert [len(data.rows(s)) for s in ("train", "val", "test")] == [36, 12, 12]
    assert data.groups == 4
    assert data.manifest.table.column("split")[3].as_py() == "val"


def test_missing_images_are_an_error_with_the_count_or_recorded(tmp_path: Path) -> None:
    root = celeba(tmp_path / "c")
    for k in (2, 3, 5):
        (root / "img_align_celeba" / f"{k:06d}.jpg").unlink()
    spec = DataSpec(name="celeba", root=root, store=tmp_path / "s", size=16)
    with pytest.raises(DataError, match=r"3 of 60 images are missing .*000002.jpg, 000003.jpg"):
        open_data(spec)
    data = open_data(spec.model_copy(update={"allow_missing": True}))
    assert len(data) == 57 and "3 of 60 images are missing" in data.manifest.notes[0]


def test_a_web_page_in_place_of_a_list_is_said(tmp_path: Path) -> None:
    root = celeba(tmp_path / "c")
    (root / "list_attr_celeba.txt").write_text("<!DOCTYPE html><html>quota exceeded</html>")
    with pytest.raises(DataError, match="web page"):
        make_source(DataSpec(name="celeba", root=root)).table()


def test_an_unknown_setting_and_a_bias_on_an_official_split_are_refused(tmp_path: Path) -> None:
    root = celeba(tmp_path / "c")
    with pytest.raises(SpecError, match="did you mean 'a/m'"):
        make_protocol(make_source(DataSpec(name="celeba", root=root, setting="a/mm")))
    with pytest.raises(SpecError, match=r"data\.split=balanced"):
        make_protocol(make_source(DataSpec(name="celeba", root=root, alpha=3)))


# ---------------------------------------------------------------- everybody's own


def test_csv_and_parquet_give_the_same_manifest(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "photos", 80)
    one = open_data(own(tmp_path))
    source = make_source(own(tmp_path)).table().drop_columns(["id"])
    pq.write_table(source, folder / "people.parquet")
    two = open_data(own(tmp_path, csv=folder / "people.parquet"))
    assert one.manifest.sha256 == two.manifest.sha256
    assert one.sensitive_names == ("age>=35", "age<35")


def test_the_hash_does_not_depend_on_where_the_folder_is_or_on_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "photos", 60)
    one = open_data(own(tmp_path)).manifest
    make_folder(tmp_path / "elsewhere" / "photos", 60)
    monkeypatch.setattr("shasam.data.decode.simplejpeg", None)
    two = open_data(own(tmp_path / "elsewhere", size=24)).manifest
    assert one.sha256 == two.sha256


def test_nobody_crosses_a_split_when_people_are_named(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 120)
    data = open_data(own(tmp_path, identity_column="person"))
    who = np.array(data.attributes.column("identity").to_pylist())
    seen = [set(who[data.rows(split)]) for split in ("train", "val", "test")]
    assert not (seen[0] & seen[1]) and not (seen[0] & seen[2]) and not (seen[1] & seen[2])


@pytest.mark.parametrize("path", ["../secret.jpg", "/etc/passwd", "a/../../secret.jpg", "link.jpg"])
def test_paths_that_leave_the_folder_are_never_opened(tmp_path: Path, path: str) -> None:
    folder = make_folder(tmp_path / "photos", 60)
    photo(tmp_path / "secret.jpg", 5)
    (folder / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    with open(folder / "people.csv", "a") as file:
        file.write(f"{path},1,20,x\n")
    data = open_data(own(tmp_path, allow_bad=True))
    assert len(data) == 60
    assert [e["id"] for e in data.manifest.excluded] == [path]
    assert "leaves the folder" in data.manifest.excluded[0]["reason"]


def test_a_linked_folder_that_leads_outside_is_not_entered(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "photos", 60)
    photo(tmp_path / "outside" / "x.jpg", 5)
    (folder / "in").symlink_to(tmp_path / "outside")
    with open(folder / "people.csv", "a") as file:
        file.write("in/x.jpg,1,20,x\n")
    data = open_data(own(tmp_path, allow_bad=True))
    assert "leaves the folder" in data.manifest.excluded[0]["reason"]


def test_more_than_one_percent_bad_stops_unless_allowed(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 100, bad=2)
    with pytest.raises(DataError, match=r"2 of 100 images \(2.0%\) cannot be read"):
        open_data(own(tmp_path))
    data = open_data(own(tmp_path, allow_bad=True))
    assert len(data) == 98
    assert data.manifest.excluded[0]["reason"].startswith("unreadable: a web page")


def test_one_percent_bad_is_left_out_and_listed(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 100, bad=1)
    data = open_data(own(tmp_path))
    assert len(data) == 99 and len(data.manifest.excluded) == 1


def split_column(tmp_path: Path, words: list[str]) -> None:
    """A folder whose table has these words in turn in its column ``split``."""
    folder = make_folder(tmp_path / "photos", 60)
    lines = (folder / "people.csv").read_text().splitlines()
    rows = [f"{x},{words[k % len(words)]}" for k, x in enumerate(lines[1:])]
    (folder / "people.csv").write_text("\n".join([lines[0] + ",split", *rows]))


def test_a_split_column_is_used_and_a_row_without_a_split_is_left_out(tmp_path: Path) -> None:
    split_column(tmp_path, ["Train", "validation", "test", ""])
    data = open_data(own(tmp_path))
    assert [len(data.rows(s)) for s in ("train", "val", "test")] == [15, 15, 15]
    assert len(data.manifest.excluded) == 15


def test_a_split_column_with_other_words_or_without_a_split_is_refused(tmp_path: Path) -> None:
    split_column(tmp_path, ["train", "val", "test", "holiday"])
    with pytest.raises(DataError, match="holds 'holiday'"):
        open_data(own(tmp_path))
    split_column(tmp_path, ["train", "test"])
    with pytest.raises(DataError, match="has no row of val"):
        open_data(own(tmp_path))


def test_absolute_paths_inside_the_root_are_read(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "photos", 40)
    first = len(open_data(own(tmp_path)))
    lines = (folder / "people.csv").read_text().splitlines()
    (folder / "people.csv").write_text("\n".join([lines[0], *(f"{folder}/{x}" for x in lines[1:])]))
    assert len(open_data(own(tmp_path))) == first


def test_a_changed_table_is_another_specification_and_the_old_one_refuses_it(tmp_path: Path):
    folder = make_folder(tmp_path / "photos", 40)
    table = {"csv": str(folder / "people.csv"), "root": str(folder)}
    body = {"method": "ce", "data": {**table, "target": "smile", "sensitive": "age<40"}}
    before = resolve(body, profile="smoke")
    text = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(text + "\n")
    assert resolve(body, profile="smoke").name != before.name
    with pytest.raises(DataError, match="has changed since this specification"):
        open_data(before.data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path_column": "file"}, "no column 'file'"),
        ({"csv": Path("nowhere.csv")}, "is not a file"),
        ({"target": "smiel"}, "did you mean 'smile'"),
        ({"target": None}, "its columns are: smile, age, person"),
        ({"root": Path("nowhere")}, "is not a folder"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(tmp_path: Path, change: dict, words: str) -> None:
    make_folder(tmp_path / "photos", 40)
    with pytest.raises((DataError, SpecError), match=words):
        open_data(own(tmp_path, **change))


def test_repeated_rows_are_listed_and_contradictions_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "photos", 60)
    lines = (folder / "people.csv").read_text().splitlines()
    (folder / "people.csv").write_text("\n".join([*lines, lines[1], ",1,2,x"]) + "\n")
    data = open_data(own(tmp_path))
    reasons = [e["reason"] for e in data.manifest.excluded]
    assert reasons == ["row 61 repeats row 1", "no path"]
    name = lines[1].split(",")[0]
    (folder / "people.csv").write_text("\n".join([*lines, f"{name},1,999,x"]) + "\n")
    with pytest.raises(DataError, match="listed twice with different values"):
        open_data(own(tmp_path))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_and_a_byte_order_mark_are_read(tmp_path: Path, delimiter: str) -> None:
    folder = make_folder(tmp_path / "photos", 40)
    one = open_data(own(tmp_path)).manifest.sha256
    text = (folder / "people.csv").read_text().replace(",", delimiter)
    (folder / "people.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert open_data(own(tmp_path)).manifest.sha256 == one
