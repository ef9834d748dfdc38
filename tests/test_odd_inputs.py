"""What was taken in silence, or ended in a traceback: now a sentence, or the right number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shasam.cli import main
from shasam.data.vector_files import open_features
from shasam.errors import DataError, InputError, ShasamError
from shasam.metrics import evaluate
from shasam.metrics.intervals import MOST_BYTES, draws_of_runs, evaluation_bytes
from shasam.report.columns import Columns
from shasam.report.predictions import given_counts, read_predictions
from shasam.report.subject import AuditOptions
from shasam.tables import open_table

ROWS = {"label": [0, 1, 0, 1], "prediction": [0, 1, 1, 1], "sensitive": ["a", "b", "a", "b"]}


class _Wanted:
    all = ("label", "prediction", "sensitive")


@pytest.mark.parametrize("count", [2**63, 2**53 + 2, 1e300, -1, 0.5])
def test_counts_that_cannot_be_counted_are_an_error(tmp_path: Path, count: float) -> None:
    whole = count == 2**63
    values = [count if whole else float(count), 5, 4, 4]
    column = pa.array(values, pa.uint64() if whole else pa.float64())
    pq.write_table(pa.table({**ROWS, "n": column}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match=r"first is line 1"):
        given_counts(open_table(tmp_path / "c.parquet"), _Wanted, "n")  # type: ignore[arg-type]


def test_counts_that_add_up_to_too_much_are_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({**ROWS, "n": pa.array([2**52] * 4)}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match="add up to"):
        given_counts(open_table(tmp_path / "c.parquet"), _Wanted, "n")  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_only_the_ratios_of_weights_count(scale: float) -> None:
    draw = np.random.default_rng(0)
    t, p, s = draw.integers(0, 2, (3, 400))
    w = draw.uniform(1, 2, 400)
    plain, scaled = (evaluate(t, p, s, weights=w * k, draws=200) for k in (1.0, scale))
    for name in ("accuracy", "eo_mean"):
        assert scaled[name].value == pytest.approx(plain[name].value, rel=1e-12)
        assert scaled[name].high == pytest.approx(plain[name].high, rel=1e-9)


@pytest.mark.parametrize("odd", [1e300, 1e17, 5e-324])
def test_a_weight_beside_which_the_others_are_lost_is_an_error(tmp_path: Path, odd: float) -> None:
    draw = np.random.default_rng(0)
    t, p, s = draw.integers(0, 2, (3, 400))
    w = np.where(np.arange(400) == 7, odd, 1.0)
    with pytest.raises(InputError, match="are lost in every sum"):
        evaluate(t, p, s, weights=w, draws=200)
    rows = {"label": t, "prediction": p, "sensitive": s, "w": w}
    pq.write_table(pa.table(rows), tmp_path / "w.parquet")
    with pytest.raises(InputError, match=r"'w' of w\.parquet go from .* are lost"):
        read_predictions(tmp_path / "w.parquet", Columns(weight="w"))
    evaluate(t, p, s, weights=np.where(w == odd, 0.0, w), draws=200)


@pytest.mark.parametrize("column", ["label", "prediction", "sensitive"])
@pytest.mark.parametrize("value", [[1], {"x": 1}])
def test_nested_columns_are_a_sentence(tmp_path: Path, column: str, value: object) -> None:
    pq.write_table(pa.table({**ROWS, column: [value] * 4}), tmp_path / "p.parquet")
    with pytest.raises(InputError, match="each row needs one value"):
        read_predictions(tmp_path / "p.parquet", Columns())


def test_headers_of_another_shape_are_a_sentence(tmp_path: Path) -> None:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (True, 16), }".ljust(117) + b"\n"
    npy = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)
    (tmp_path / "e.npy").write_bytes(npy)
    for number, header in enumerate((b"[1]", b"7", b'"x"', b'{"a": 1}', b'{"a": {"shape": []}}')):
        content = len(header).to_bytes(8, "little") + header
        (tmp_path / f"{number}.safetensors").write_bytes(content)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(ShasamError, match=r"not a|must hold|damaged|shape"):
            open_features(path)


@pytest.mark.parametrize("draws, seed", [(10**9, 0), (2000, -1)])
def test_draws_and_seeds_that_cannot_be_used_are_refused(draws: int, seed: int) -> None:
    with pytest.raises(InputError, match=r"at most|0 or more"):
        AuditOptions(draws=draws, seed=seed)
    with pytest.raises(ShasamError, match=r"0 or more|draws fit"):
        evaluate([0, 1] * 9, [0, 1] * 9, [0, 0, 1] * 6, draws=draws, seed=seed)


@pytest.mark.needs_torch
@pytest.mark.parametrize("words", [["select", "z.npy", "-k", "2"], ["mine", "--scene", "all"]])
@pytest.mark.parametrize("seed", ["-1", str(2**63)])
def test_seeds_of_commands_that_pick_are_checked_first(words, seed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("z.npy", np.eye(8, dtype=np.float32))
    with pytest.raises(SystemExit) as ended:
        main([*words, "--seed", seed])
    assert ended.value.code == 2 and "--seed must be 0 or more" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="Linux")
def test_a_file_that_cannot_be_read_is_a_sentence() -> None:
    with pytest.raises(DataError, match="/proc/self/mem"):
        open_table("/proc/self/mem")


@pytest.mark.parametrize(
    "end, fine",
    [('1,"b', False), ('1,"b\n0,a\n', False), ('1,"b"\n', True), ('1,5" pipe\n', True),
     ('1,"5"" pipe"\n', True), ('1,""', True), ('1,"', False)],
)  # fmt: skip
def test_a_quote_that_is_never_closed_is_an_error(tmp_path: Path, end: str, fine: bool) -> None:
    path = tmp_path / "q.csv"
    path.write_text(f"x,y\n0,a\n{end}")
    if fine:
        assert open_table(path).read().num_rows == 2
    else:
        with pytest.raises(DataError, match=r"begins in line 3|cells like the header"):
            open_table(path).read()


def test_an_ascii_locale_does_not_end_a_command() -> None:
    code = "from shasam.cli import main; from shasam.output import say; import shasam.cli\n"
    code += "shasam.cli.app.command(lambda: say('\\xb1 \\xe9'), name='says')\nmain(['says'])"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment |= {"PYTHONIOENCODING": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.strip() == b"\\xb1 \\xe9"


def test_the_draws_of_a_run_follow_from_its_groups_and_not_from_the_machine(monkeypatch) -> None:
    from shasam.metrics import intervals

    for free in (10**9, 10**12):
        monkeypatch.setattr(intervals, "available_memory", lambda free=free: free)
        assert draws_of_runs(2, 4) == (2000, True)
        assert draws_of_runs(2, 50) == (2000, False)  # as curves of 1,225 pairs take too much
        draws, _ = draws_of_runs(20, 100)
        assert draws < 2000 and evaluation_bytes(20, 100, draws) <= MOST_BYTES
