"""Every command, study and piece of Python in the documentation is one that works."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from documentation import PAGES, Block, blocks, write_files
from harness.commands import ROOT, Answer, completed
from hydra.core.override_parser.overrides_parser import OverridesParser

from lm_experiments.cli.main import COMMANDS
from lm_experiments.rundir.study import read_study
from lm_experiments.study import sweeper
from lm_experiments.study.choices import offer_choices
from lm_experiments.study.explain import compose_command
from lm_experiments.study.words import prepared_words

# What makes a plan quick.
TEXT = ("data=text", "data.path=words.txt", "tokenizer=bytes")
# What makes training quick, where a command does not say otherwise.
TRAINED = ("trainer.threads=1", "logger=none", "size=tiny", "data.val_fraction=0.005")
# Found before the interpreter by a block of commands: it trains less than was typed.
PYTHON = """\
#!{python}
import os, pathlib, sys
words = sys.argv[1:]
if words[:1] == ["scripts/train.py"] and "--help" not in words:
    words = [word for word in words if not word.startswith("trainer.max_steps=")]
    given = {{word.split("=")[0]: word.partition("=")[2] for word in words}}
    # Another corpus or logger has options of its own.
    chosen = {{key.split(".")[0] for key in given if key.startswith(("data", "logger"))}}
    study = pathlib.Path(given.get("study", "")).stem
    # The folder of a study is named after the words that are typed beside it.
    of_study = ["seed=0", f"name={{study}}"] if study else []
    for word in (*{trained}, *of_study):
        key = word.split("=")[0]
        if key not in given and key.split(".")[0] not in chosen:
            words.append(word)
    words.append("trainer.max_steps=3")
os.execv({python!r}, [{python!r}, *words])
"""


def script_of(words: list[str]) -> str:
    """Return which command of this package some words are, empty for another program's."""
    if words[0] == "lm-experiments":
        return words[1]
    found = re.fullmatch(r"scripts/(\w+)\.py", words[1]) if words[0] == "python" else None
    return found[1] if found else ""


def typed() -> list[tuple[str, tuple[str, ...], Block]]:
    """Return each command of this package that is documented: its name, its words, its block."""
    found = [
        (script_of(words), tuple(words[2:]), block)
        for block in blocks("bash")
        for words in block.commands
        if len(words) > 1 and script_of(words)
    ]
    return list(
        {(name, _arms(words)): (name, words, block) for name, words, block in found}.values()
    )


def _arms(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words without those that change neither what is checked nor what is looked at."""
    return tuple(word for word in words if word.partition("=")[0] not in ("plan", "name"))


def named(case: object) -> str:
    name, words, block = case  # type: ignore[misc]
    return f"{block.page.stem} {name} {' '.join(words)}"


TYPED = typed()


@pytest.mark.parametrize("case", [case for case in TYPED if case[0] == "train"], ids=named)
def test_training_commands_can_be_planned(
    command: Callable[..., Answer],
    case: tuple[str, tuple[str, ...], Block],
    tmp_path: Path,
    text_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, words, block = case
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    (tmp_path / "words.txt").write_bytes(text_file.read_bytes())
    if block.needs:
        prepared = prepared_words(words)
        # Another folder of choices is not here.
        if not any(word.startswith("--config-dir") for word in words):
            compose_command(_first_of_each(prepared))
        return
    chosen = any(word.startswith("data=") for word in words)
    planned = completed(words, ["plan=true", *(() if chosen else TEXT)])
    answer = command("train", *(words if "--help" in words else planned))
    assert answer.code == 0, answer.text


def _first_of_each(words: Sequence[str]) -> list[str]:
    """Return the words of the first run of a sweep."""
    offer_choices()
    sweeper.register()
    kept = [word for word in words if not word.startswith("-")]
    parsed = OverridesParser.create().parse_overrides(kept)
    return [
        f"{override.get_key_element()}={next(override.sweep_string_iterator())}"
        if override.is_sweep_override()
        else str(override.input_line)
        for override in parsed
    ]


@pytest.mark.parametrize("case", [case for case in TYPED if case[0] != "train"], ids=named)
def test_other_commands_have_their_options(
    command: Callable[..., Answer], case: tuple[str, tuple[str, ...], Block]
) -> None:
    name, words, _ = case
    assert name in COMMANDS
    options = [word.split("=")[0] for word in words if word.startswith("-")]
    text = command(name, "--help").out if options else ""
    assert not [option for option in options if option not in text.split()]


def test_make_has_its_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {
        target
        for line in re.findall(r"^([\w -]+):(?!=)", makefile, re.M)
        for target in line.split()
    }
    asked = {words[1] for b in blocks("bash") for words in b.commands if words[0] == "make"}
    assert asked and asked <= targets


def test_studies_are_read() -> None:
    for block in blocks("yaml"):
        values = yaml.safe_load(block.text)
        if "baseline" in values:
            assert read_study(values).name, block.where


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.where)
def test_python_names_what_there_is(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lm_experiments"):
            module = importlib.import_module(str(node.module))
            assert not [name.name for name in node.names if not hasattr(module, name.name)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_typed_from_top_to_bottom(
    page: Path, tmp_path: Path, cache_dir: Path
) -> None:
    write_files(tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    shim = tmp_path / "bin" / "python"
    shim.parent.mkdir()
    shim.write_text(PYTHON.format(python=sys.executable, trained=TRAINED))
    shim.chmod(0o755)
    for block in blocks("bash", "python"):
        if block.page == page and not block.needs and not block.title:
            done = _run(block, tmp_path)
            assert done.returncode == 0, f"{block.where}\n{block.text}\n{done.stdout}{done.stderr}"


def _run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block of commands as a shell does, or one of Python, in a folder."""
    code = f"export PATH={shlex.quote(str(folder / 'bin'))}:$PATH\nset -e\n{block.text}"
    command = ["bash", "-c", code] if block.language == "bash" else ["python", "-c", block.text]
    command = [sys.executable if word == "python" else word for word in command]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
