"""What many tests share: a text to train on, and the command line, called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_lines import SMALL, completed

from lm_experiments import registry


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 8 kB of words that repeat, so that a few steps already lower the loss."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("".join(f"line {i % 7} of a short text, word {i}\n" for i in range(250)))
    return path


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of prepared corpora that the whole session shares."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def registry_as_before() -> Iterator[None]:
    """Forget the components that a test's own files registered."""
    before = {axis: dict(components) for axis, components in registry._components.items()}
    yield
    registry._components.update(before)
    for name in [name for name in sys.modules if name.startswith("lm_experiments_code_")]:
        del sys.modules[name]


@pytest.fixture
def train(
    registry_as_before: None,
    tmp_path: Path,
    text_file: Path,
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Answer]:
    """``scripts/train.py`` in an empty folder, with the smallest model unless told otherwise."""
    from lm_experiments.cli.train import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_EXPERIMENTS_CACHE", str(cache_dir))
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def call(*arguments: str, small: bool = True) -> Answer:
        defaults = [*SMALL, f"data.path={text_file}"] if small else []
        monkeypatch.setattr(sys, "argv", ["scripts/train.py", *completed(arguments, defaults)])
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call
