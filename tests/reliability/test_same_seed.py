"""Same seed, same run: 100 runs in 20 interpreters with their own hash seeds, locales and zones."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
INTERPRETERS, EACH = 20, 5
# what a run decides; provenance and log hold times and commands, pages are tested elsewhere
DECIDED = ("*.parquet", "metrics.json", "mining.json", "spec.yaml", "model.safetensors")
TRAIN = """
import sys
from pathlib import Path
from shasam.cli import app
for number in range(int(sys.argv[2])):
    app(["train", "shasam", "--profile", "smoke", "--device", "cpu", "--quiet", "--no-report",
          "--set", "data.n=80", "--set", "data.holdout_per_cell=10", "--steps", "6",
          "--set", "options.mining.start=0.2", "--set", "options.mining.negatives=flqmi",
          "--out", str(Path(sys.argv[1]) / str(number))],
        result_action="return_value")
"""


def digests(run: Path) -> dict[str, str]:
    files = sorted(path for pattern in DECIDED for path in run.glob(pattern))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_100_runs_decide_the_same_bytes(tmp_path):
    known = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False)
    locales = [name for name in known.stdout.split() if name.startswith(("C", "de", "tr", "en"))]
    locales = locales or ["C"]
    found: Counter[tuple[tuple[str, str], ...]] = Counter()
    for number in range(INTERPRETERS):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": str(7919 * number + 1),
            "LC_ALL": locales[number % len(locales)],
            "TZ": ("UTC", "Asia/Tokyo", "America/Lima")[number % 3],
            "OMP_NUM_THREADS": "1",
            "SHASAM_CACHE": str(tmp_path / "cache"),
        }
        folder = tmp_path / str(number)
        command = [sys.executable, "-c", TRAIN, str(folder), str(EACH)]
        subprocess.run(
            command, env=environment, check=True, cwd=ROOT, timeout=1200, capture_output=True
        )
        for run in folder.glob("*/*"):
            found[tuple(digests(run).items())] += 1
    (only,) = found.items()
    assert only[1] == INTERPRETERS * EACH
    names = {name for name, _ in only[0]}
    assert {"predictions.parquet", "model.safetensors", "mining.json", "metrics.json"} <= names
