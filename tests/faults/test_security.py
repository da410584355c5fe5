"""A run directory is data: nothing in it is run, nothing secret gets into it, nothing out of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from harness.commands import Answer
from harness.faults import fault_place
from harness.processes import time_limit
from wandb_stub import API_KEY, serving

SECRETS = {
    "WANDB_API_KEY": API_KEY,
    "HF_TOKEN": "hf_NeverWriteThisDown0123456789",
    "AWS_SECRET_ACCESS_KEY": "never/write+this/down/0123456789abcdef",
    "OPENAI_API_KEY": "sk-never-write-this-down-0123456789",
    "DATABASE_URL": "postgres://user:never-write-this-down@localhost/db",
}
EVIL = "from pathlib import Path\nPath('pwned').touch()\n"
RAISING = '''
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

@register("norm", "raising", NormOptions)
class Raising(RMSNorm):
    """Raises in its first forward pass."""
    def forward(self, x):
        raise RuntimeError("this norm is broken")
'''


class Evil:
    """Touches a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pwned",)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    with time_limit(180):
        yield
        assert not Path("pwned").exists(), "code from a run directory was run"


@pytest.fixture
def pair(train: Callable[..., Any]) -> Path:
    """A sweep of two runs, both done, with its table."""
    assert train("-m", "seed=0,1", "name=pair").code == 0
    return Path("runs/pair")


def first(sweep: Path) -> Path:
    return min(path for path in sweep.glob("*-s0-*") if path.is_dir())


def readers(sweep: Path) -> list[tuple[str, ...]]:
    """The commands that read a run directory, as they are typed."""
    return [
        ("generate", str(first(sweep)), "--tokens", "2"),
        ("status", str(sweep)),
        ("table", str(sweep)),
        ("reproduce", str(sweep / "table.json"), "--cells", "2", "--out", "runs/again"),
    ]


@pytest.mark.parametrize("archive", [True, False], ids=["an archive", "a bare pickle"])
def test_a_checkpoint_runs_no_code(
    archive: bool, pair: Path, train: Callable[..., Any], command: Callable[..., Answer]
) -> None:
    run = first(pair)
    hostile = {"state_dict": Evil(), "global_step": 2, "loops": Evil(), "callbacks": Evil()}
    for path in (run / "checkpoints").iterdir():
        torch.save(hostile, path, _use_new_zipfile_serialization=archive)
    answer = command("generate", str(run), "--tokens", "2")
    assert answer.code == 2
    assert len(answer.text.splitlines()) == 1
    assert "remove it" in answer.text
    (run / "result.json").unlink()
    answer = train("-m", "seed=0,1", "name=pair")
    # A bare pickle counts as damaged, and the run starts over; an archive fails the run.
    assert answer.code == (1 if archive else 0), answer.out + answer.err


def test_a_configuration_runs_no_code(
    pair: Path, train: Callable[..., Any], command: Callable[..., Answer]
) -> None:
    for config in pair.glob("*/config.yaml"):
        config.write_text("!!python/object/apply:os.system ['touch pwned']\n")
    for name, *arguments in readers(pair):
        answer = command(name, *arguments)
        assert answer.code == (0 if name in ("status", "table") else 2), answer.text
        assert name in ("status", "table") or "config.yaml cannot be read" in answer.text
    # Without a plan and a result, the configuration alone says what the run is.
    (pair / "sweep.json").unlink()
    for result in pair.glob("*/result.json"):
        result.unlink()
    for name in ("status", "table"):
        answer = command(name, str(pair))
        assert answer.code == 2
        assert len(answer.text.splitlines()) == 1
        assert "config.yaml" in answer.text
    answer = train("-m", "seed=0,1", "name=pair")
    assert answer.code == 2
    assert "config.yaml cannot be read" in answer.err


def test_code_that_a_configuration_names_is_not_run(
    pair: Path, train: Callable[..., Any], command: Callable[..., Answer]
) -> None:
    Path("evil.py").write_text(EVIL)
    for config in pair.glob("*/config.yaml"):
        values = yaml.safe_load(config.read_text())
        config.write_text(yaml.safe_dump({**values, "code_paths": ["evil.py"]}, sort_keys=False))
    for name, *arguments in readers(pair):
        command(name, *arguments)
        assert not Path("pwned").exists(), name
    (first(pair) / "result.json").unlink()
    for sweep in (("-m", "seed=0,1"), ("seed=0",)):
        answer = train(*sweep, "name=pair")
        assert answer.code == 2, answer.out
        assert "holds another run than the one asked for" in answer.err


def test_no_secret_of_the_environment_is_written_down(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in [key for key in os.environ if key.startswith("WANDB")]:
        monkeypatch.delenv(key)
    for key, value in SECRETS.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    Path("raising.py").write_text(RAISING)
    words = ("-m", "norm=rmsnorm,raising", "code_paths=[raising.py]", "logger=wandb")
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        for mode in ("online", "offline"):
            answer = train(*words, f"name={mode}", f"logger.mode={mode}", "logger.init_timeout=5")
            assert answer.code == 1
            assert "1 done, 1 failed" in answer.out
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kinds = {path.suffix for path in files}
    assert {".wandb", ".jsonl", ".json", ".log", ".ckpt", ".yaml", ".md"} <= kinds
    for path in files:
        content = path.read_bytes()
        found = [key for key, value in SECRETS.items() if value.encode() in content]
        assert not found, f"{path} holds {found}"
    # The usual umask lets nobody else write.
    assert not [path for path in files if path.stat().st_mode & 0o022]


@pytest.mark.slow
def test_files_have_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    place = fault_place(tmp_path / "place")
    before = os.umask(0o027)
    try:
        answer = place.train(
            "-m", "seed=0", "name=one", "logger=wandb", "logger.mode=offline", cold=True
        )
    finally:
        os.umask(before)
    assert answer.code == 0, answer.text
    written = [path for part in ("runs", "cache") for path in (place.folder / part).rglob("*")]
    assert {".wandb", ".ckpt", ".bin", ".json"} <= {path.suffix for path in written}
    others = {str(p): oct(p.stat().st_mode) for p in written if p.stat().st_mode & 0o027}
    assert not others
    closed = [p for p in written if p.is_file() and p.suffix in (".json", ".yaml", ".ckpt", ".bin")]
    assert not [path for path in closed if not path.stat().st_mode & 0o040], "the group may read"


ESCAPES = ("name=../x", "name=..", "name=.", "name=a/../../x", "name=/x", "name='a\\\\..\\\\x'")


@pytest.mark.parametrize("word", ESCAPES)
@pytest.mark.parametrize("flags", [(), ("-m",)], ids=["single", "sweep"])
def test_a_name_does_not_lead_out_of_the_folder_of_runs(
    flags: tuple[str, ...], word: str, train: Callable[..., Any]
) -> None:
    answer = train(*flags, "seed=0", word)
    assert answer.code == 2
    assert "must be the name of one folder under runs_dir" in answer.err
    assert not Path("runs").exists()


@pytest.mark.slow
def test_no_other_word_leads_out_of_the_folder_of_runs(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    for number, words in enumerate((("arm=../../x",), ("arm=..",), (f"directory={tmp_path}/x",))):
        for flags in ((), ("-m",)):
            train(*flags, "seed=0", f"name=n{number}{len(flags)}", *words)
    assert {path.name for path in tmp_path.iterdir()} - before == {"runs"}
    assert {path.name for path in (tmp_path / "runs").iterdir()} <= {
        f"n{number}{flag}" for number in range(3) for flag in range(2)
    }


@pytest.mark.parametrize("link", [False, True], ids=["a folder", "a link to one outside"])
def test_a_folder_with_the_runs_hash_that_holds_something_else_is_not_written_to(
    link: bool, pair: Path, train: Callable[..., Any], tmp_path: Path
) -> None:
    run, outside = first(pair), tmp_path / "outside"
    shutil.copytree(first(pair).with_name(next(pair.glob("*-s1-*")).name), outside)
    shutil.rmtree(run)
    if link:
        run.symlink_to(outside)
    else:
        outside.rename(run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    answer = train("-m", "seed=0,1", "name=pair")
    assert answer.code == 2
    assert "holds another run than the one asked for" in answer.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert json.loads((run / "result.json").read_text())["seed"] == 1
