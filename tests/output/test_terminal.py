"""The terminal writer: names are printed, never obeyed."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.table import Table
from tests.payloads import payloads

from shasam import cli
from shasam.commands.compare import compare
from shasam.output import Screen, visible

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]|[\u202a-\u202e\u2028\u2029]")


def shown(*things: object) -> str:
    out = io.StringIO()
    screen = Screen(file=out, force_terminal=True, width=4000)
    for thing in things:
        screen.print(thing)
    return out.getvalue()


def test_every_payload_is_printed_as_it_stands_without_a_control_character() -> None:
    for name in payloads():
        text = shown(name)
        assert not CONTROL.search(text), name
        assert text == visible(name) + "\n"


def test_every_payload_in_a_table_is_a_cell_without_a_control_character() -> None:
    for name in payloads():
        table = Table(name, title=name, caption=name, header_style="", title_style="")
        table.caption_style = "not dim not italic"
        table.title_style = "not italic"
        table.add_row(name)
        text = shown(table)
        assert not CONTROL.search(re.sub(r"\x1b\[[0-9;]*m", "", text)), name
        assert text.count(visible(name).split("\n")[0]) >= 4, name


def test_a_payload_as_an_argument_is_answered_with_one_harmless_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "p.csv"
    table.write_text("label,prediction,group\na,b,x\nb,b,y\n", encoding="utf-8")
    for name in payloads()[::5]:
        for words in (["audit", str(table), f"--label={name}"], [f"x{name}"]):
            with pytest.raises(SystemExit) as stopped:
                cli.main(words)
            assert stopped.value.code == 2
            said = capsys.readouterr().err
            assert said.startswith("shasam: ") and not CONTROL.search(said), name


def test_a_failed_run_whose_error_looks_like_markup_does_not_stop_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from shasam.pipeline import sweeps
    from shasam.pipeline.sweeps import Outcome

    message = "no such file: [/b]\x1b[31m"

    def failing(specs: list, out: Path, how: object, *, tell, **_: object) -> list:
        outcome = Outcome(SimpleNamespace(name="ce-0", seed=0), out, "failed", 0.0, message)
        tell(outcome)
        return [outcome]

    monkeypatch.setattr(sweeps, "sweep", failing)
    with pytest.raises(SystemExit):
        compare(methods="ce", seeds=1, out=tmp_path / "runs", page=tmp_path / "page.html")
    assert visible(message) in capsys.readouterr().out
