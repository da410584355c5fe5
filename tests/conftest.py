"""What many tests share: a text to train on, and commands that run in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from harness.commands import SMALL, Answer, completed, run_script
from harness.leaks import package_members, replaced

from lm_experiments import registry


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 8 kB of words that repeat, so that a few steps already lower the loss."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("".join(f"line {i % 7} of a short text, word {i}\n" for i in range(250)))
    return path


@pytest.fixture(scope="session", autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of prepared corpora that the whole session shares, and that of nobody else."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LM_EXPERIMENTS_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def package_as_before() -> Iterator[None]:
    """Fail the file whose patch would otherwise fail another, and only in some orders."""
    before = package_members()
    yield
    assert replaced(before) == []


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Hold torch to one thread: small models are fastest on it, with the same bits each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def registry_as_before() -> Iterator[None]:
    """Forget the components that a test's own files registered."""
    # Registers all that are the package's own.
    import lm_experiments.training.config  # noqa: F401

    before = {axis: dict(components) for axis, components in registry._components.items()}
    yield
    registry._components.update(before)
    for name in [name for name in sys.modules if name.startswith("lm_experiments_code_")]:
        del sys.modules[name]


@pytest.fixture
def command(
    registry_as_before: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Answer]]:
    """``scripts/NAME.py`` with arguments, in this process."""
    threads = torch.get_num_threads()

    def call(name: str, *arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", [f"scripts/{name}.py", *map(str, arguments)])
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
        capfd.readouterr()
        return Answer(run_script(name), *capfd.readouterr())

    yield call
    torch.set_num_threads(threads)


@pytest.fixture
def refused(command: Callable[..., Answer]) -> Callable[..., str]:
    """Call a command that has to refuse; return its one sentence on stderr."""

    def call(name: str, *arguments: object) -> str:
        answer = command(name, *arguments)
        assert (answer.code, answer.out) == (2, ""), answer.text
        assert answer.err.startswith("error: "), answer.err
        assert answer.err.count("\n") == 1, answer.err
        return answer.err

    return call


@pytest.fixture
def train(
    command: Callable[..., Answer],
    tmp_path: Path,
    text_file: Path,
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Answer]:
    """``scripts/train.py`` in an empty folder, with the smallest model unless told otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_EXPERIMENTS_CACHE", str(cache_dir))

    def call(*arguments: str, small: bool = True) -> Answer:
        defaults = [*SMALL, f"data.path={text_file}"] if small else []
        return command("train", *completed(arguments, defaults))

    return call


@pytest.fixture
def run_of(train: Callable[..., Answer]) -> Callable[..., Path]:
    """Train one run of the smallest model; return its directory."""

    def call(*arguments: str) -> Path:
        before = set(Path("runs").glob("*/*/result.json"))
        answer = train(*arguments)
        assert answer.code == 0, answer.err
        [path] = set(Path("runs").glob("*/*/result.json")) - before
        return path.parent

    return call
