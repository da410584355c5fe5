"""A trained run is used after its text, its folder, or the working folder has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.commands import Answer

from lm_experiments.rundir.ledger import broken_links
from lm_experiments.training.config import load_config


def test_a_run_keeps_its_tokenizer_wherever_its_text_goes(
    train: Callable[..., Answer],
    command: Callable[..., Answer],
    text_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(text_file, "notes.txt")
    assert train("name=a", "data.path=notes.txt", "tokenizer=chars").code == 0
    [run] = Path("runs/a").glob("*-s0-*")
    assert load_config(run).data.path == str(tmp_path / "notes.txt")
    moved = tmp_path / "elsewhere"
    shutil.move(run, moved)
    monkeypatch.chdir("/")
    assert command("evaluate", moved).code == 0
    (tmp_path / "notes.txt").rename(tmp_path / "other.txt")
    assert command("generate", moved, "--tokens", 3, "--prompt", "line").code == 0
    other = ("--data", "text", "--path", tmp_path / "other.txt")
    assert command("evaluate", moved, *other).code == 0
    answer = command("evaluate", moved)
    assert answer.code == 2
    assert "elsewhere is not where it was, or not as it was" in answer.err
    (moved / "tokenizer.json").write_text('{"name": "bytes", "state": null}')
    assert "not the tokenizer of the run" in command("generate", moved, "--tokens", 1).err


def test_a_renamed_or_copied_sweep_goes_on_under_its_new_name(
    train: Callable[..., Answer], command: Callable[..., Answer]
) -> None:
    words = ("-m", "ffn=relu", "trainer.max_steps=1")
    assert train(*words, "seed=0", "name=a").code == 0
    Path("runs/a").rename("runs/b")
    answer = train(*words, "seed=0,1", "name=b")
    assert answer.code == 0, answer.err
    assert "1 done already, 1 to train" in answer.out
    assert "\nb: 1 arm, 2 of 2 runs finished" in answer.out
    assert not Path("runs/a").exists()
    assert broken_links(Path("runs/b")) == []
    shutil.copytree("runs/b", "runs/c")
    Path("runs/link").symlink_to("c")
    for name in ("c", "link"):
        assert "2 done already, 0 to train" in train(*words, "seed=0,1", f"name={name}").out
    assert command("table", "runs/link").out.startswith("c: 1 arm, 2 of 2 runs finished")
    assert command("table", "runs/c", "--check").code == 0


def test_a_path_that_is_not_utf_8_is_refused(
    train: Callable[..., Answer], text_file: Path, tmp_path: Path
) -> None:
    name = b"caf\xe9.txt".decode(errors="surrogateescape")
    shutil.copy(text_file, name)
    answer = train(f"data.path={name}")
    assert answer.code == 2
    assert "is not UTF-8; rename the file" in answer.err
    assert not Path("runs").exists()
    # Its folder can be named: what is in a file does not depend on its name.
    Path("folder").mkdir()
    Path(name).rename(Path("folder") / name)
    assert train("data.path=folder").code == 0
