"""The console script: every command by its name, and texts in the form that was typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from harness.commands import ROOT
from hydra.core.config_store import ConfigStore

from lm_experiments.cli import main as console
from lm_experiments.cli.help import offer_help
from lm_experiments.invocation import as_typed, command_line
from lm_experiments.study import sweeper
from lm_experiments.study.choices import offer_choices


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_alone_it_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(words) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "  " in line]
    assert sorted(listed) == sorted(path.stem for path in ROOT.glob("scripts/*.py"))


def test_every_command_has_its_module() -> None:
    assert [name for name in console.COMMANDS if not find_spec(f"lm_experiments.cli.{name}")] == []


def test_a_typo_is_one_sentence_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["tabel", "runs/x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: tabel is not a command; the commands are train, table,")
    assert err.endswith(" Did you mean lm-experiments table?\n")


def test_messages_and_statuses_are_those_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["/bin/lm-experiments"])
    assert console.main(["export_hf", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err == (
        "error: Type a run directory and the folder to write: lm-experiments export_hf RUN OUT.\n"
    )
    with pytest.raises(SystemExit):
        console.main(["benchmark", "--help"])
    out = capsys.readouterr().out
    assert out.startswith("usage: lm-experiments benchmark SUBJECT")
    assert "  lm-experiments benchmark peers\n" in out
    assert "python scripts" not in out


def test_a_command_line_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "type python scripts/table.py runs/a"
    monkeypatch.setattr(sys, "argv", ["../scripts/train.py", "-m", "a=[1, 2]"])
    assert command_line() == "python ../scripts/train.py -m 'a=[1, 2]'"
    assert as_typed(text) == text
    monkeypatch.setattr(sys, "argv", ["lm-experiments train", "-m", json.dumps({"a": 1})])
    assert command_line() == """lm-experiments train -m '{"a": 1}'"""
    assert as_typed(text) == "type lm-experiments table runs/a"


def test_the_help_of_training_is_in_the_form_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["lm-experiments train", "--help"])
    offer_choices()
    sweeper.register()
    offer_help()
    text = ConfigStore.instance().load("hydra/help/lm_experiments.yaml").node.template
    assert "lm-experiments train -m placement=pre,post" in text
    assert "python scripts" not in text


def test_a_terminal_without_a_character_shows_it_escaped() -> None:
    code = "import lm_experiments.cli; print('caf\u00e9 \u5b9e')"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": str(ROOT)}
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment)
    assert shown == b"caf\xe9 \\u5b9e\n"
