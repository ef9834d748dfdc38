"""What is said where Ray is asked for and cannot be had; nobody else imports it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from shasam import extras
from shasam.cli import main
from shasam.cluster import connected
from shasam.errors import ClusterError, InputError, MissingExtraError
from shasam.runs.machine import ExecutionOptions
from shasam.submodular import FacilityLocation, maximize

Z = np.random.default_rng(0).standard_normal((40, 4))


@pytest.fixture
def without_ray(monkeypatch):
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "ray" else found(name))


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = {"profile": "smoke", "base": {"method": "ce"}}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    np.save("z.npy", Z)


COMMANDS = {
    "sweep": ["sweep", "grid.yaml"],
    "compare": ["compare", "--methods", "ce", "--profile", "smoke", "--seeds", "1"],
    "reproduce": ["reproduce", "utkface", "--data", "faces", "--profile", "smoke"],
    "select": ["select", "z.npy", "-k", "3"],
}


def said(words: list[str], capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["sweep", "select"])
def test_without_ray_a_command_names_the_install_line(command, files, without_ray, capsys):
    words = said([*COMMANDS[command], "--engine", "ray"], capsys)
    assert "--engine ray needs ray, not installed here: pip install 'shasam[ray]'" in words


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_without_the_engine_is_refused(command, files, capsys):
    words = said([*COMMANDS[command], "--address", "auto"], capsys)
    assert "belongs to" in words and "engine ray" in words


WRONG = {
    "cluster": "no address of a Ray cluster; give auto",
    "ray://head:10001": "no address of a Ray cluster; give auto",
    "127.0.0.1:1": "no Ray cluster answers at 127.0.0.1:1",
    "no-such-host.invalid:6379": "no Ray cluster answers at no-such-host.invalid:6379",
}


@pytest.mark.parametrize("address", WRONG)
@pytest.mark.parametrize("command", ["sweep", "select"])
def test_a_wrong_address_is_one_sentence(command, address, files, capsys):
    pytest.importorskip("ray", reason="needs shasam[ray]: make test-ray")
    words = said([*COMMANDS[command], "--engine", "ray", "--address", address], capsys)
    assert WRONG[address] in words


@pytest.mark.parametrize("kind", [Exception, RuntimeError, ConnectionError])
def test_a_ray_that_does_not_start_is_one_sentence(kind, monkeypatch):
    def init(**options):
        raise kind("The current node timed out\nduring startup.")

    ray = SimpleNamespace(init=init, is_initialized=lambda: False, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("shasam.cluster.need", lambda *words: None)
    says = pytest.raises(ClusterError, match="on this machine: The current node timed out during")
    with says, connected(None, "a test"):
        pass


def test_the_engine_of_maximize_needs_parts_a_processor_and_ray(without_ray):
    f = FacilityLocation.from_features(Z)
    with pytest.raises(InputError, match="engine='ray' requires partitions=N"):
        maximize(f, 3, engine="ray")
    with pytest.raises(InputError, match="no engine 'spark'; there are local and ray"):
        maximize(f, 3, partitions=2, engine="spark")
    with pytest.raises(MissingExtraError, match=r"engine='ray' needs ray.*shasam\[ray\]"):
        maximize(f, 3, partitions=2, engine="ray")


def test_on_ray_a_run_has_one_thread_unless_more_are_asked_for():
    assert ExecutionOptions(engine="ray").variables()["OMP_NUM_THREADS"] == "1"
    assert ExecutionOptions(engine="ray", threads=3).variables()["OMP_NUM_THREADS"] == "3"
    assert "1 thread;" in ExecutionOptions(engine="ray", jobs=4).line()


def test_nothing_imports_ray_that_was_not_asked_to():
    modules = "shasam, shasam.cli, shasam.cluster, shasam.pipeline.sweeps, shasam.submodular"
    code = f"import sys, {modules}; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
