"""A temperature that is fitted, kept and exported; abstention read by group."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from shasam.cli import app
from shasam.errors import InputError, SpecError
from shasam.metrics import abstention, fit_temperature
from shasam.metrics.scores import HIGHEST, LOWEST
from shasam.types import Predictions


def log_loss(q: np.ndarray, t: np.ndarray, temperature: float) -> float:
    raised = np.exp(np.log(q) / temperature)
    raised /= raised.sum(1, keepdims=True)
    return float(-np.log(raised[np.arange(len(t)), t]).mean())


def test_no_other_temperature_has_a_smaller_log_loss() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(500, 3))
    t = np.array([rng.choice(3, p=np.exp(z) / np.exp(z).sum()) for z in logits])
    sharp = np.exp(3 * logits)  # three times too sure
    q = sharp / sharp.sum(1, keepdims=True)
    found = fit_temperature(q, t)
    assert 2.4 < found < 3.8
    others = np.geomspace(LOWEST, HIGHEST, 400)
    assert log_loss(q, t, found) <= min(log_loss(q, t, x) for x in others) + 1e-12


def test_ends_of_the_range_and_what_cannot_be_fitted() -> None:
    q = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert fit_temperature(q, np.array([0, 1])) == LOWEST  # all right: the surer the better
    assert fit_temperature(q, np.array([1, 0])) == HIGHEST
    with pytest.raises(InputError, match="at least one row"):
        fit_temperature(np.zeros((0, 2)), np.zeros(0, int))


def predictions(**changes: object) -> Predictions:
    """Group b is answered with less confidence than group a."""
    sure = np.array([0.95, 0.9, 0.85, 0.9, 0.7, 0.6, 0.55, 0.95])
    values = {
        "ids": np.array([]), "target": np.array([1, 1, 1, 0, 1, 1, 1, 1]),
        "prediction": np.ones(8, int), "sensitive": np.array([0, 0, 0, 0, 1, 1, 1, 1]),
        "scores": np.stack([1 - sure, sure], 1), "classes": ("no", "yes"), "groups": ("a", "b"),
        "positive": 1,
    }  # fmt: skip
    return Predictions(**{**values, **changes})  # type: ignore[arg-type]


def test_coverage_and_accuracy_are_counted_by_group() -> None:
    everything, half = abstention(predictions(), (1.0, 0.5))
    assert everything.share == 1 and everything.gap == 0
    assert half.confidence == 0.9 and half.share == 0.5  # 0.95, 0.9, 0.9, 0.95
    assert (half.coverage["a"].value, half.coverage["b"].value) == (0.75, 0.25)
    assert half.gap == 0.5
    assert math.isclose(half.accuracy["a"].value, 2 / 3) and half.accuracy["b"].value == 1
    assert half.coverage["a"].low < 0.75 < half.coverage["a"].high


def test_equal_confidences_stay_together_and_counts_weigh() -> None:
    (two,) = abstention(predictions(), (0.3,))  # 3 rows would cut the two of 0.9 apart
    assert two.share == 0.5
    (counted,) = abstention(predictions(repeats=np.array([1, 1, 1, 1, 96, 1, 1, 1])), (0.5,))
    assert counted.confidence == 0.7 and counted.coverage["b"].value > 0.95
    assert abstention(predictions(scores=np.zeros((8, 0)))) == []


def test_an_audit_prints_it_and_the_page_has_it(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, 2, (2, 400))
    p = np.clip(0.5 + (0.4 - 0.25 * s) * (2 * y - 1) + rng.normal(0, 0.15, 400), 0.01, 0.99)
    lines = "".join(f"{a},{b:.4f},{'ab'[g]}\n" for a, b, g in zip(y, p, s, strict=True))
    Path("p.csv").write_text("label,score,group\n" + lines)
    words = "audit p.csv --score score --threshold 0.5 --sensitive group --html a.html --draws 100"
    app([*words.split(), "--abstain"], result_action="return_value")
    shown = capsys.readouterr().out
    assert "Answering only where it is sure" in shown and "100.0 %" in shown
    assert "Where it may abstain: coverage by group" in Path("a.html").read_text()


# -------------------------------------------------------------------------------------------------
# In a run: fitted on validation, kept with the weights, reported by group.
# -------------------------------------------------------------------------------------------------

FLAGS = (
    "--features x.npy --csv labels.csv --target t --sensitive s --steps 400 --lr 0.01 --device cpu"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same training without and with a temperature, on labels of which a fifth is wrong."""
    folder = tmp_path_factory.mktemp("calibrated")
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    rng = np.random.default_rng(0)
    t, s = rng.integers(0, 2, (2, 900))
    x = rng.normal(size=(900, 16)).astype(np.float32)
    x[:, 0] += 2 * t
    wrong = np.where(rng.random(900) < 0.2, 1 - t, t)
    np.save("x.npy", x)
    Path("labels.csv").write_text(
        "t,s\n" + "".join(f"{a},{'fm'[b]}\n" for a, b in zip(wrong, s, strict=True))
    )
    common = f"train ce {FLAGS} --set train.natural_head=false --set model.dropout=0 --no-report -q"
    app(f"{common} --out plain".split(), result_action="return_value")
    app(f"{common} --calibrate --out tempered".split(), result_action="return_value")
    patch.undo()
    return next((folder / "plain").iterdir()), next((folder / "tempered").iterdir())


@pytest.mark.needs_torch
def test_predictions_stay_and_the_calibration_error_falls(runs, capsys) -> None:
    from shasam.report.answer import RunAnswer
    from shasam.runs.directory import RunDirectory

    plain, tempered = map(RunDirectory, runs)
    assert plain.path.name != tempered.path.name
    before, after = plain.metrics(), tempered.metrics()
    assert after["test"]["accuracy"] == before["test"]["accuracy"]
    found = after["calibration"]
    assert found["temperature"] > 1.2  # an MLP on few rows is too sure of itself
    assert found["with"]["ece_max"]["value"] < found["without"]["ece_max"]["value"]
    for key in ("ece_f", "ece_m", "ece_max"):
        was = before["test"][key]["value"]
        assert found["without"][key]["value"] == pytest.approx(was, abs=2e-3)
    said = RunAnswer.of(tempered).lines()[-1]
    assert said.startswith("Temperature") and " f " in said and " m " in said
    assert "calibration" not in before


@pytest.mark.needs_torch
def test_a_loaded_model_and_an_exported_file_have_the_temperature(runs, tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    import shasam
    from shasam.export import export

    x = np.load(runs[1].parents[1] / "x.npy")[:20]
    plain, tempered = (shasam.load(run).predict(x).scores for run in runs)
    temperature = json.loads((runs[1] / "metrics.json").read_text())["calibration"]["temperature"]
    wanted = np.exp(np.log(plain) / temperature)
    assert np.allclose(tempered, wanted / wanted.sum(1, keepdims=True), atol=1e-4)
    file = export(runs[1], "onnx", tmp_path / "m.onnx")
    (scores,) = onnxruntime.InferenceSession(file).run(["scores"], {"vectors": x})
    assert np.allclose(scores, tempered, atol=1e-5)


@pytest.mark.needs_torch
def test_a_method_with_thresholds_of_its_own_refuses(runs, monkeypatch) -> None:
    monkeypatch.chdir(runs[0].parents[1])
    with pytest.raises(SpecError, match=r"leave out train\.calibrate"):
        app(f"train posthoc {FLAGS} --calibrate -q".split(), result_action="return_value")
