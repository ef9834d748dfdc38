"""``shasam.audit``: a table in memory gives the audit of the file with the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import shasam
from shasam.commands.audit import audit as on_the_command_line
from shasam.errors import InputError, LimitError

ASKED = {"label": "y", "prediction": "guess", "score": "score", "sensitive": ["sex", "age"]}


@pytest.fixture(scope="module")
def people() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    y, sex = rng.integers(0, 2, 400), rng.choice(["f", "m"], 400)
    score = np.round(np.clip(0.5 + 0.3 * (y - 0.5) + rng.normal(0, 0.3, 400), 0, 1), 6)
    age = rng.choice(["old", "young"], 400)
    return {"y": y, "guess": (score > 0.5).astype(int), "score": score, "sex": sex, "age": age}


def test_every_kind_of_table_gives_the_audit_of_the_command_line(
    people: dict[str, np.ndarray], tmp_path: Path
) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    file, out = tmp_path / "the model.csv", tmp_path / "out.json"
    pacsv.write_csv(pa.table(people), file)
    on_the_command_line(
        [file], label="y", prediction="guess", score=["score"], sensitive=["sex", "age"], json=out
    )
    expected = json.loads(out.read_text(encoding="utf-8"))
    frame = pd.DataFrame(people)
    kinds = [
        people,
        pa.table(people),
        frame,
        frame.astype({"sex": "category"}),
        pl.DataFrame(people),
    ]
    for data in kinds:
        found = shasam.audit(data, **ASKED).to_dict()
        assert json.loads(json.dumps(found)) == expected, type(data)


def test_frames_have_the_numbers_of_the_audit_and_groups_as_fairlearn_has_them(
    people: dict[str, np.ndarray],
) -> None:
    metrics = pytest.importorskip("fairlearn.metrics")
    found = shasam.audit(people, **ASKED | {"sensitive": "sex"})
    frame = found.to_frame()
    assert frame.loc[("sex", "eo_mean"), "value"] == found["eo_mean"].value
    peers = metrics.MetricFrame(
        metrics={"fpr": metrics.false_positive_rate, "selection": metrics.selection_rate},
        y_true=people["y"],
        y_pred=people["guess"],
        sensitive_features=people["sex"],
    )
    for rate in ("fpr", "selection"):
        own = found.by_group[rate].to_dict()
        assert own == pytest.approx(peers.by_group[rate].to_dict())
    several = shasam.audit(people, **ASKED)
    assert several.by_group.loc[("sex", "f"), "fpr"] == found.by_group.loc["f", "fpr"]


def test_a_limit_is_kept_or_raises_a_sentence(people: dict[str, np.ndarray]) -> None:
    found = shasam.audit(people, **ASKED | {"sensitive": "sex"})
    assert found.check(accuracy=0.1) is found
    with pytest.raises(LimitError, match=r"accuracy = 0\.\d+ is below the limit 0.99 .* by sex"):
        found.check(accuracy=0.99)
    with pytest.raises(LimitError, match=r"eo_mean\.high = .* is over the limit 0 "):
        found.check({"eo_mean.high": 0.0})
    with pytest.raises(InputError, match="at least one limit"):
        found.check()


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(people: dict[str, np.ndarray]) -> None:
    hostile = people | {"sex": np.where(people["sex"] == "f", '"></iframe><script>', "m")}
    shown = shasam.audit(hostile, **ASKED | {"sensitive": "sex"})._repr_html_()
    assert shown.startswith("<iframe ") and 'sandbox=""' in shown
    assert shown.count("<") == 2 and "prefers-color-scheme:dark" in shown
    figures = shasam.audit(people, **ASKED).figures
    assert {"groups-0", "scores-0", "calibration-0"} <= set(figures)
    assert figures["groups-0"]._repr_svg_().startswith("<svg ")


@pytest.mark.parametrize(
    ("data", "asked", "says"),
    [
        ({"y": [0, 1]}, {}, "name the label with label="),
        ({"label": [0, 1], "prediction": [0, 1], "group": ["a", None]}, {}, "missing='drop'"),
        ({"label": [0, 1], "prediction": [0, 1, 1], "group": ["a", "b"]}, {}, "not of one length"),
        ("predictions.csv", {}, "shasam audit FILE"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_call(
    data: Any, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        shasam.audit(data, **asked)


def test_it_needs_neither_torch_nor_pandas() -> None:
    script = """
import sys


class NotInstalled:
    def find_spec(self, name, *rest):
        if name in ("torch", "pandas", "polars"):
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, NotInstalled())
import shasam
table = {"label": [0, 1] * 40, "prediction": [0, 1, 1, 1] * 20, "group": ["a", "b"] * 40}
audit = shasam.audit(table)
print(type(audit.to_frame()).__module__, audit.by_group.num_rows, len(audit._repr_html_()) > 1000)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["pyarrow.lib", "2", "True"]
